"""`gpuinfra bootstrap` with real OpenSSH, a real bundle and the real step runner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.bundle import Bundle, _json, node_program, pack
from gpuinfra.remote.connection import Limits
from gpuinfra.remote.deliver import Bootstrap, BootstrapResult, DryRun, Order
from gpuinfra.remote.fleet import FleetResult, HostFleet
from gpuinfra.remote.hosts import Host
from gpuinfra.remote.problem import ProblemKind

from .servers import Lab, needed

pytestmark = needed()
LIB = Path(__file__).parents[2] / "bootstrap" / "lib.sh"
GOOD = '#!/bin/bash\nprintf "changed\\tone thing\\n" >>"$GPUINFRA_REPORT"\nprintf "proved\\tit is so\\n" >>"$GPUINFRA_REPORT"\n'


@dataclass
class _Step:
    id: str


@dataclass
class _Pool:
    name: str
    steps: tuple[_Step, ...]


def order(**scripts: str) -> Order:
    """A bundle of these steps, with the real layout."""
    names = [name.replace("_", "-").removeprefix("s") for name in scripts]
    files: dict[str, bytes] = {
        "bootstrap/lib.sh": LIB.read_bytes(),
        "node.pyz": node_program(),
        "versions.env": b"",
        "expectation.json": b"{}\n",
        "steps.json": _json(
            {
                "schema": "gpuinfra.steps/1",
                "steps": [{"id": n, "file": f"bootstrap/{n}.sh", "timeout_s": 60, "retries": 0} for n in names],
            }
        ),
    }
    for name, text in zip(names, scripts.values(), strict=True):
        files[f"bootstrap/{name}.sh"] = text.encode()
    return Order(
        pool=_Pool("gpu", tuple(_Step(name) for name in names)),  # type: ignore[arg-type]
        bundle=pack(files),
        node={"schema": "gpuinfra.node/1", "cloud": "none", "cluster": "lab", "pool": "gpu", "region": "r"},
    )


@pytest.fixture
def machine(lab: Lab) -> Callable[[str], Host]:
    """Hosts on one server, each with its own root folder."""
    key = lab.keygen("host")
    port = lab.serve(key=key)

    def make(name: str) -> Host:
        root = lab.folder / name
        root.mkdir()
        return lab.host(port, name, root=root, host_keys=(lab.public(key),))

    return make


def run(lab: Lab, hosts: list[Host], what: Order, **options: Any) -> FleetResult[BootstrapResult]:
    """Bootstrap all hosts."""
    connector = lab.connector(*hosts, limits=Limits(connect_s=5, handshake_s=20))
    return HostFleet(
        hosts, Bootstrap(connector, {"gpu": what}, lambda host: "gpu", **options), on_stop=connector.close
    ).run()


def test_second_run_changes_nothing(lab: Lab, machine: Callable[[str], Host]) -> None:
    """The first run installs the bundle and runs its steps; the second run changes no file."""
    hosts = [machine("a"), machine("b")]
    what = order(s10_one=GOOD, s20_two=GOOD)
    first = run(lab, hosts, what)
    assert [outcome.value for outcome in first.outcomes] == [BootstrapResult(steps=2, changed=2, already=False)] * 2
    state = json.loads((hosts[0].root / "var/lib/gpuinfra/state.json").read_text())
    assert state["bundle_sha256"] == what.bundle.sha256
    before = sorted(path.stat().st_mtime_ns for path in hosts[0].root.rglob("*"))
    second = run(lab, hosts, what)
    assert [outcome.value and outcome.value.already for outcome in second.outcomes] == [True, True]
    assert sorted(path.stat().st_mtime_ns for path in hosts[0].root.rglob("*")) == before


def test_failed_step_is_reported_and_retried_by_the_next_run(lab: Lab, machine: Callable[[str], Host]) -> None:
    """The operator reads the reason of the step; after a fix, the next run continues from that step."""
    host = machine("a")
    bad = f'#!/bin/bash\n[[ -e {host.root}/fixed ]] || {{ echo "no space for the driver" >&2; exit 1; }}\n' + GOOD
    what = order(s10_one=GOOD, s30_driver=bad)
    outcome = run(lab, [host], what).outcomes[0]
    assert outcome.problem is not None
    assert outcome.problem.kind is ProblemKind.STEP
    assert "30-driver: no space for the driver" in outcome.problem.reason
    (host.root / "fixed").touch()
    assert run(lab, [host], what).outcomes[0].value == BootstrapResult(steps=2, changed=2, already=False)


def test_steps_continue_after_the_operator_is_killed(lab: Lab, machine: Callable[[str], Host]) -> None:
    """The steps continue after the operator's process is killed, and a second run follows the same runner."""
    host = machine("a")
    slow = f"#!/bin/bash\necho x >>{host.root}/starts\nwhile [[ ! -e {host.root}/go ]]; do sleep 0.05; done\n" + GOOD
    what = order(s10_slow=slow)
    child = os.fork()
    if child == 0:
        run(lab, [host], what)
        os._exit(0)
    for _ in range(400):
        if (host.root / "starts").exists():
            break
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    runner = json.loads((host.root / "var/lib/gpuinfra/lock").read_text())["pid"]
    assert Path(f"/proc/{runner}").exists()
    seen: list[str] = []

    def on_stage(_host: Host, stage: str) -> None:
        seen.append(stage)
        (host.root / "go").touch()

    outcome = run(lab, [host], what, on_stage=on_stage).outcomes[0]
    assert outcome.value == BootstrapResult(steps=1, changed=1, already=True)
    assert seen[0] == "0 of 1 steps, running 10-slow"
    assert (host.root / "starts").read_text() == "x\n"


def test_host_that_installs_another_bundle_is_busy(lab: Lab, machine: Callable[[str], Host]) -> None:
    """A host that installs another bundle is reported as busy and is not changed."""
    host = machine("a")
    slow = f"#!/bin/bash\nwhile [[ ! -e {host.root}/go ]]; do sleep 0.05; done\n" + GOOD
    first, other = order(s10_slow=slow), order(s10_one=GOOD)
    try:
        begun = run(lab, [host], first, limit_s=1.0).outcomes[0]
        assert begun.problem is not None
        assert "did not finish within 1 s" in begun.problem.reason
        outcome = run(lab, [host], other).outcomes[0]
        assert outcome.problem is not None
        assert outcome.problem.kind is ProblemKind.BUSY
        assert not (host.root / "opt/gpuinfra" / other.bundle.sha256).exists()
    finally:
        (host.root / "go").touch()
    assert run(lab, [host], first).outcomes[0].value == BootstrapResult(steps=1, changed=1, already=True)


def test_host_of_another_cluster_is_refused(lab: Lab, machine: Callable[[str], Host]) -> None:
    """A host that belongs to another cluster is not changed."""
    host = machine("a")
    (host.root / "etc/gpuinfra").mkdir(parents=True)
    (host.root / "etc/gpuinfra/node.json").write_text('{"cluster": "other", "pool": "gpu"}')
    outcome = run(lab, [host], order(s10_one=GOOD)).outcomes[0]
    assert outcome.problem is not None
    assert "belongs to cluster 'other', not to 'lab'" in outcome.problem.reason


def test_reboot_without_systemd_is_reported(lab: Lab, machine: Callable[[str], Host]) -> None:
    """Without systemd, a step that needs a reboot ends the run, because the steps cannot continue after it."""
    host = machine("a")
    reboot = '#!/bin/bash\nprintf "reboot\\tthe new kernel has to run\\n" >>"$GPUINFRA_REPORT"\nexit 194\n'
    outcome = run(lab, [host], order(s10_one=GOOD, s20_kernel=reboot)).outcomes[0]
    assert outcome.problem is not None
    assert outcome.problem.kind is ProblemKind.REBOOT
    assert "the new kernel has to run" in outcome.problem.reason


def test_dry_run_changes_nothing(lab: Lab, machine: Callable[[str], Host]) -> None:
    """A dry run reports what the steps would change and leaves no file on the host."""
    host = machine("a")
    would = (
        '#!/bin/bash\n[[ -n $GPUINFRA_DRY_RUN ]] && printf "would\\tinstall the driver\\n" >>"$GPUINFRA_REPORT"\n'
        + GOOD
    )
    connector = lab.connector(host)
    ended = HostFleet([host], DryRun(connector, {"gpu": order(s30_driver=would)}, lambda host: "gpu")).run()
    outcome = ended.outcomes[0]
    assert outcome.value is not None, outcome.problem
    assert outcome.value.lines == ("30-driver: would install the driver",)
    assert list(host.root.iterdir()) == []


def test_damaged_bundle_is_refused(lab: Lab, machine: Callable[[str], Host]) -> None:
    """Content with another checksum is not unpacked."""
    host, what = machine("a"), order(s10_one=GOOD)
    damaged = Order(
        pool=what.pool, node=what.node, bundle=Bundle(data=what.bundle.data[:-1] + b"x", sha256=what.bundle.sha256)
    )
    outcome = run(lab, [host], damaged).outcomes[0]
    assert outcome.problem is not None
    assert "damaged in transfer" in outcome.problem.reason
    assert not list((host.root / "opt/gpuinfra").iterdir())


def test_command_reports_each_host(lab: Lab) -> None:
    """The command exits with 1 and reports the kind and reason of each host's failure."""
    key = lab.keygen("host")
    port = lab.serve(key=key)
    hosts = {
        "untrusted": {"address": "127.0.0.1", "port": port},
        "gone": {"address": "127.0.0.1", "port": port, "proxy_command": "false"},
    }
    file = lab.folder / "hosts.json"
    (lab.folder / "known").write_text("")
    file.write_text(
        json.dumps(
            {
                "stack": "aws-p4d",
                "pool": "gpu",
                "known_hosts": "known",
                "defaults": {"user": lab.user, "identity": str(lab.key)},
                "hosts": hosts,
            }
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "gpuinfra", "bootstrap", "--hosts", str(file), "--json", "--timeout", "1"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XDG_STATE_HOME": str(lab.folder / "state")},
    )
    assert done.returncode == 1, done.stderr
    hosts_by_name = {entry["name"]: entry for entry in json.loads(done.stdout)["hosts"]}
    assert hosts_by_name["untrusted"]["outcome"] == "unknown host key"
    assert (
        hosts_by_name["gone"]["outcome"] == "not reachable"
        or "did not finish within" in hosts_by_name["gone"]["reason"]
    )
    assert "Traceback" not in done.stderr
