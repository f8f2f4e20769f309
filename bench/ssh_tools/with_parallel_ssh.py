"""The benchmark command with the native client of parallel-ssh; see bench/ssh.py."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pssh.clients import ParallelSSHClient  # pyright: ignore[reportMissingImports]
from pssh.config import HostConfig  # pyright: ignore[reportMissingImports]

folder, parallel, count, command = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
began = time.perf_counter()
hosts = json.loads((folder / "hosts.json").read_text())[:count]
client = ParallelSSHClient(
    [address for address, _ in hosts],
    user="root",
    pkey=str(folder / "user"),
    host_config=[HostConfig(port=port) for _, port in hosts],
    pool_size=parallel,
    num_retries=1,
    allow_agent=False,
    timeout=100,
)
answers = client.run_command(command, stop_on_errors=False)
client.join(answers)
right = sum(answer.exit_code == 0 for answer in answers)
print(json.dumps({"seconds": time.perf_counter() - began, "right": right, "cpu": time.process_time()}))
