"""`gpuinfra bootstrap` against real OpenSSH, a real bundle and the real runner of steps."""

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

from gpuinfra.bundle import Bundle, _json, node_part, pack
from gpuinfra.remote.connection import Limits
from gpuinfra.remote.deliver import Bootstrap, Done, DryRun, Order
from gpuinfra.remote.fleet import Ended, Fleet
from gpuinfra.remote.hosts import Host
from gpuinfra.remote.problem import Kind

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
    """A bundle of these steps, laid out as the product's own."""
    names = [name.replace("_", "-").removeprefix("s") for name in scripts]
    files: dict[str, bytes] = {
        "bootstrap/lib.sh": LIB.read_bytes(),
        "node.pyz": node_part(),
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
    """Machines of one server, each with a folder of its own for its files."""
    key = lab.keygen("host")
    port = lab.serve(key=key)

    def make(name: str) -> Host:
        root = lab.folder / name
        root.mkdir()
        return lab.host(port, name, root=root, host_keys=(lab.public(key),))

    return make


def run(lab: Lab, hosts: list[Host], what: Order, **options: Any) -> Ended[Done]:
    """One run over all hosts."""
    connector = lab.connector(*hosts, limits=Limits(connect_s=5, handshake_s=20))
    return Fleet(hosts, Bootstrap(connector, {"gpu": what}, lambda host: "gpu", **options), leave=connector.close).run()


def test_steps_run_on_each_host_and_a_second_run_has_nothing_to_do(lab: Lab, machine: Callable[[str], Host]) -> None:
    """A bundle is delivered, its steps are done, and the same order again changes nothing and says so."""
    hosts = [machine("a"), machine("b")]
    what = order(s10_one=GOOD, s20_two=GOOD)
    first = run(lab, hosts, what)
    assert [outcome.value for outcome in first.outcomes] == [Done(steps=2, changed=2, already=False)] * 2
    state = json.loads((hosts[0].root / "var/lib/gpuinfra/state.json").read_text())
    assert state["bundle_sha256"] == what.bundle.sha256
    before = sorted(path.stat().st_mtime_ns for path in hosts[0].root.rglob("*"))
    second = run(lab, hosts, what)
    assert [outcome.value and outcome.value.already for outcome in second.outcomes] == [True, True]
    assert sorted(path.stat().st_mtime_ns for path in hosts[0].root.rglob("*")) == before


def test_a_step_that_fails_is_told_with_its_reason_and_tried_again_by_the_next_run(
    lab: Lab, machine: Callable[[str], Host]
) -> None:
    """The reason of the step on the host is the reason that the operator reads; after mending, the next run goes on."""
    host = machine("a")
    bad = f'#!/bin/bash\n[[ -e {host.root}/mended ]] || {{ echo "no space for the driver" >&2; exit 1; }}\n' + GOOD
    what = order(s10_one=GOOD, s30_driver=bad)
    outcome = run(lab, [host], what).outcomes[0]
    assert outcome.problem is not None
    assert outcome.problem.kind is Kind.STEP
    assert "30-driver: no space for the driver" in outcome.problem.reason
    (host.root / "mended").touch()
    assert run(lab, [host], what).outcomes[0].value == Done(steps=2, changed=2, already=False)


def test_a_run_goes_on_after_the_operators_machine_died(lab: Lab, machine: Callable[[str], Host]) -> None:
    """The steps outlive a killed operator, and a second run watches the same runner in place of starting another."""
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

    def said(_host: Host, stage: str) -> None:
        seen.append(stage)
        (host.root / "go").touch()

    outcome = run(lab, [host], what, said=said).outcomes[0]
    assert outcome.value == Done(steps=1, changed=1, already=True)
    assert seen[0] == "0 of 1 steps, 10-slow runs"
    assert (host.root / "starts").read_text() == "x\n"


def test_another_bundle_that_is_being_installed_is_left_alone(lab: Lab, machine: Callable[[str], Host]) -> None:
    """A host that installs something else is busy, and nothing of it is touched."""
    host = machine("a")
    slow = f"#!/bin/bash\nwhile [[ ! -e {host.root}/go ]]; do sleep 0.05; done\n" + GOOD
    first, other = order(s10_slow=slow), order(s10_one=GOOD)
    try:
        begun = run(lab, [host], first, limit_s=1.0).outcomes[0]
        assert begun.problem is not None
        assert "was not done within 1 s" in begun.problem.reason
        outcome = run(lab, [host], other).outcomes[0]
        assert outcome.problem is not None
        assert outcome.problem.kind is Kind.BUSY
        assert not (host.root / "opt/gpuinfra" / other.bundle.sha256).exists()
    finally:
        (host.root / "go").touch()
    assert run(lab, [host], first).outcomes[0].value == Done(steps=1, changed=1, already=True)


def test_a_machine_of_another_cluster_is_refused(lab: Lab, machine: Callable[[str], Host]) -> None:
    """A machine that belongs elsewhere is not taken over."""
    host = machine("a")
    (host.root / "etc/gpuinfra").mkdir(parents=True)
    (host.root / "etc/gpuinfra/node.json").write_text('{"cluster": "other", "pool": "gpu"}')
    outcome = run(lab, [host], order(s10_one=GOOD)).outcomes[0]
    assert outcome.problem is not None
    assert "is of cluster 'other' and not of 'lab'" in outcome.problem.reason


def test_a_reboot_without_systemd_is_asked_of_a_person(lab: Lab, machine: Callable[[str], Host]) -> None:
    """A step that needs a reboot ends the run with that word, because nothing would go on by itself."""
    host = machine("a")
    reboot = '#!/bin/bash\nprintf "reboot\\tthe new kernel has to run\\n" >>"$GPUINFRA_REPORT"\nexit 194\n'
    outcome = run(lab, [host], order(s10_one=GOOD, s20_kernel=reboot)).outcomes[0]
    assert outcome.problem is not None
    assert outcome.problem.kind is Kind.REBOOT
    assert "the new kernel has to run" in outcome.problem.reason


def test_a_dry_run_tells_and_leaves_nothing(lab: Lab, machine: Callable[[str], Host]) -> None:
    """What the steps would do is told, and no file of the host is there that was not there before."""
    host = machine("a")
    would = (
        '#!/bin/bash\n[[ -n $GPUINFRA_DRY_RUN ]] && printf "would\\tinstall the driver\\n" >>"$GPUINFRA_REPORT"\n'
        + GOOD
    )
    connector = lab.connector(host)
    ended = Fleet([host], DryRun(connector, {"gpu": order(s30_driver=would)}, lambda host: "gpu")).run()
    outcome = ended.outcomes[0]
    assert outcome.value is not None, outcome.problem
    assert outcome.value.lines == ("30-driver: would install the driver",)
    assert list(host.root.iterdir()) == []


def test_a_damaged_bundle_is_refused(lab: Lab, machine: Callable[[str], Host]) -> None:
    """Bytes that do not have the checksum are not unpacked."""
    host, what = machine("a"), order(s10_one=GOOD)
    damaged = Order(
        pool=what.pool, node=what.node, bundle=Bundle(data=what.bundle.data[:-1] + b"x", sha256=what.bundle.sha256)
    )
    outcome = run(lab, [host], damaged).outcomes[0]
    assert outcome.problem is not None
    assert "arrived damaged" in outcome.problem.reason
    assert not list((host.root / "opt/gpuinfra").iterdir())


def test_the_command_names_each_host_and_groups_failures(lab: Lab) -> None:
    """The command exits with 1 and says of each kind of failure which hosts, why and what to do."""
    key = lab.keygen("host")
    port = lab.serve(key=key)
    hosts = {
        "strange": {"address": "127.0.0.1", "port": port},
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
    told = {entry["name"]: entry for entry in json.loads(done.stdout)["hosts"]}
    assert told["strange"]["outcome"] == "unknown host key"
    assert told["gone"]["outcome"] == "not reachable" or "was not done within" in told["gone"]["reason"]
    assert "Traceback" not in done.stderr
