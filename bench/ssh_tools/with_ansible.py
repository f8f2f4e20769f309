"""The benchmark command with ansible's `raw` module, which sends no Python; see bench/ssh.py."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

folder, parallel, count, command = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
hosts = json.loads((folder / "hosts.json").read_text())[:count]
(folder / "inventory").write_text(
    "".join(
        f"n{n} ansible_host={address} ansible_port={port} ansible_user=root\n"
        for n, (address, port) in enumerate(hosts)
    )
)
(folder / "ansible.cfg").touch()
settings = {
    "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
    "ANSIBLE_HOST_KEY_CHECKING": "True",
    "ANSIBLE_LOCAL_TEMP": str(folder / "ansible-tmp"),
    # Each host gets one command, so a shared connection would only add a process.
    "ANSIBLE_SSH_ARGS": "-F none -o ControlMaster=no -o ControlPath=none -o IdentitiesOnly=yes "
    f"-o StrictHostKeyChecking=yes -o UserKnownHostsFile={folder / 'known_hosts'}",
}
words = [sys.executable, "-m", "ansible", "adhoc", "all", "-i", str(folder / "inventory"), "-m", "raw", "-a", command]
words += ["-f", str(parallel), "--private-key", str(folder / "user"), "-o"]
began = time.perf_counter()
done = subprocess.run(words, env={**os.environ, **settings}, capture_output=True, text=True, check=False)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(
    json.dumps(
        {
            "seconds": time.perf_counter() - began,
            "right": done.stdout.count("| rc=0 |"),
            "cpu": used.ru_utime + used.ru_stime,
        }
    )
)
