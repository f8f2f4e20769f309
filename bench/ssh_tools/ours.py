"""The benchmark command with gpuinfra's connections; see bench/ssh.py."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from gpuinfra.remote.connect import Connector
from gpuinfra.remote.connection import Limits
from gpuinfra.remote.fleet import HostFleet
from gpuinfra.remote.hosts import Host
from gpuinfra.remote.known import KnownHosts

folder, parallel, count, command = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
began = time.perf_counter()
hosts = [
    Host(name=f"n{number}", address=address, port=port, user="root", identity=(folder / "user",))
    for number, (address, port) in enumerate(json.loads((folder / "hosts.json").read_text())[:count])
]
connector = Connector(KnownHosts([folder / "known_hosts"]), {}, Limits(connect_s=100, handshake_s=100, login_s=100))


def task(host: Host) -> int:
    """Run the command on one host and return its exit code."""
    with connector.connect(host) as connection:
        return connection.run(command).exit


ended = HostFleet(hosts, task, parallel=parallel, tries=1).run()
print(
    json.dumps(
        {
            "seconds": time.perf_counter() - began,
            "right": sum(outcome.value == 0 for outcome in ended.outcomes),
            "cpu": time.process_time(),
        }
    )
)
