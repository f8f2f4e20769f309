"""The benchmark command with asyncssh, as its documentation recommends for many hosts; see bench/ssh.py."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import asyncssh  # pyright: ignore[reportMissingImports]

folder, parallel, count, command = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]


async def main() -> None:
    """Run the command on all hosts in parallel."""
    began = time.perf_counter()
    hosts = json.loads((folder / "hosts.json").read_text())[:count]
    # Read the files once. With file names, asyncssh would read them again for each host.
    key, known = asyncssh.read_private_key(folder / "user"), asyncssh.read_known_hosts(str(folder / "known_hosts"))
    places = asyncio.Semaphore(parallel)

    async def one(address: str, port: int) -> int | None:
        options = {"username": "root", "client_keys": [key], "known_hosts": known, "agent_path": None, "config": None}
        async with places:
            try:
                async with asyncssh.connect(
                    address, port, login_timeout=100, connect_timeout=100, **options
                ) as connection:
                    return (await connection.run(command)).exit_status
            except (OSError, asyncssh.Error):
                return None

    codes = await asyncio.gather(*(one(address, port) for address, port in hosts))
    print(json.dumps({"seconds": time.perf_counter() - began, "right": codes.count(0), "cpu": time.process_time()}))


asyncio.run(main())
