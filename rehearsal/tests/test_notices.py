"""A notice of the cloud reaches a job, the hooks of the node, and `gpuinfra nodes`."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from gpuinfra_rehearsal.cloud.core.notices import SPOT
from tests.remote.servers import needed

from .conftest import REPOSITORY, Rehearse, command, run
from .test_login import STACKS

PATIENCE_S = 240
POLLS = {"aws": 5.0, "azure": 1.0, "gcp": 1.0}
NOTICE_S = {"aws": 120, "azure": 30, "gcp": 30}
JOB = f"""
trap 'date +%s.%N; cat /run/gpuinfra/notices.json; ended=yes' USR1
echo started
for at in $(seq {PATIENCE_S * 10}); do [ -z "$ended" ] || break; [ ! -e /tmp/end ] || break; sleep 0.1; done
[ -n "$ended" ] || [ $NODE_RANK != 0 ] || exit 9
"""
"""A job whose first node ends with the signal, which then ends the job on the other node."""


def send_notice(root: Path, label: str) -> float:
    """Begin a notice of a running node, as the first request with a fault does, and return when."""
    at = time.time()
    with closing(sqlite3.connect(root / "cloud.sqlite", timeout=60)) as store, store:
        for name, data in store.execute("select id, data from things where kind = 'instance'").fetchall():
            if json.loads(data)["name"] == label:
                store.execute("insert into things values ('notice', ?, ?)", (f"{name} {SPOT}", json.dumps({"at": at})))
                return at
    raise AssertionError(f"no node {label}")


@needed()
@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize("cloud", list(STACKS))
def test_a_spot_notice_reaches_a_job_on_two_nodes(rehearse: Rehearse, tmp_path: Path, cloud: str) -> None:
    """The process that handles the signal reads the deadline within two polls. The node uploads the notice, and its group replaces the node."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / ".ssh/id_ed25519")], check=True)
    text = STACKS[cloud].replace("KEY", (home / ".ssh/id_ed25519.pub").read_text().strip())
    file = tmp_path / f"Pulumi.{cloud}.yaml"
    file.write_text("config:" + re.sub(r"kind: \w+, count: 2", "kind: spot, count: 2", text))
    up = rehearse("up", str(file))
    assert up.code == 0, up.out[-3000:] + up.err
    place = (str(file), "--rehearsal", "--folder", str(up.root.parent))
    env = {key: value for key, value in os.environ.items() if key != "SSH_AUTH_SOCK"}
    env |= {"HOME": str(home), "PYTHONPATH": str(REPOSITORY), "XDG_CACHE_HOME": str(Path.home() / ".cache")}
    words = command("run", *place, "-N", "2", "--logs", str(tmp_path / "logs"), "--", JOB)
    sent: list[float] = []
    with subprocess.Popen(
        words, env=env, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as job:
        stop = threading.Timer(PATIENCE_S, job.kill)
        stop.start()
        lines: list[str] = []
        assert job.stdout
        for line in job.stdout:
            lines.append(line)
            if sum("started" in one for one in lines) == 2 and not sent:
                sent.append(send_notice(up.root, "gpu-1"))
            if any("notices/1" in one for one in lines) and not (tmp_path / "ended").exists():
                (tmp_path / "ended").touch()
                job.send_signal(2)
        stop.cancel()
    output = "".join(lines)
    assert sent, output
    noticed = next(line for line in lines if "gpuinfra.notices/1" in line)
    (notice,) = [one for one in json.loads(noticed.partition("| ")[2])["notices"] if one["kind"] == "reclaim"]
    received = float(lines[lines.index(noticed) - 1].partition("| ")[2])
    # The job looks twice a second. The rest is for a busy machine.
    assert received - sent[0] < 2 * POLLS[cloud] + 0.5 + 5, output
    deadline = time.mktime(time.strptime(notice["deadline"] + "GMT", "%Y-%m-%dT%H:%M:%SZ%Z")) - time.timezone
    assert abs(deadline - sent[0] - NOTICE_S[cloud]) < 2 * POLLS[cloud] + 5
    # Between fork and exec, a process that the shell starts has its handlers.
    assert re.search("sent SIGUSR1 to [12] processes", output), output
    seen = run(command("nodes", *place, "--json"), up.root)
    assert seen.code == 0, seen.err
    assert {one["label"] for one in json.loads(seen.out)["nodes"]} >= {"gpu-2"}
