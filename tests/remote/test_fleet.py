"""Tasks on many hosts in parallel, with plain functions and over real OpenSSH."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from gpuinfra.remote.connection import Limits
from gpuinfra.remote.fleet import HostFleet, Reschedule, back_off, by_kind
from gpuinfra.remote.hosts import Host
from gpuinfra.remote.known import KnownHosts
from gpuinfra.remote.problem import HostProblem, ProblemKind

from .servers import Lab, needed
from .test_openssh import stalled_port


def hosts(count: int) -> list[Host]:
    """Hosts without a server."""
    return [Host(name=f"h{number}", address="127.0.0.1") for number in range(count)]


def test_task_is_called_until_it_returns_a_result() -> None:
    """A task that returns Reschedule is called again, and outcomes have the order of the hosts."""
    calls: Counter[str] = Counter()

    def task(host: Host) -> str | Reschedule:
        calls[host.name] += 1
        return f"{host.name} done" if calls[host.name] == 3 else Reschedule(0.001)

    ended = HostFleet(hosts(20), task, parallel=4).run()
    assert [outcome.value for outcome in ended.outcomes] == [f"h{number} done" for number in range(20)]
    assert set(calls.values()) == {3}


def test_only_transient_problems_are_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreachable host is retried up to the limit; a refused host key or login is not retried."""
    monkeypatch.setattr("gpuinfra.remote.fleet.back_off", lambda tries: 0.001)
    calls: Counter[str] = Counter()
    kinds = {
        "h0": ProblemKind.UNREACHABLE,
        "h1": ProblemKind.HOST_KEY_CHANGED,
        "h2": ProblemKind.LOGIN,
        "h3": ProblemKind.DROPPED,
    }

    def task(host: Host) -> str:
        calls[host.name] += 1
        if host.name == "h3" and calls["h3"] == 4:
            return "came back"
        raise HostProblem(kinds[host.name], "no", "fix")

    ended = HostFleet(hosts(4), task, tries=5).run()
    assert calls == {"h0": 5, "h1": 1, "h2": 1, "h3": 4}
    assert ended.outcomes[3].value == "came back"
    assert {kind: [host.name for host, _ in group] for kind, group in by_kind(ended.problems)} == {
        ProblemKind.UNREACHABLE: ["h0"],
        ProblemKind.HOST_KEY_CHANGED: ["h1"],
        ProblemKind.LOGIN: ["h2"],
    }


def test_unexpected_error_of_one_host_does_not_stop_the_others() -> None:
    """An unexpected exception becomes the outcome of its host."""

    def task(host: Host) -> str:
        if host.name == "h1":
            raise ZeroDivisionError("oops")
        return "done"

    ended = HostFleet(hosts(3), task).run()
    assert [outcome.value for outcome in ended.outcomes] == ["done", None, "done"]
    assert ended.outcomes[1].problem is not None
    assert ended.outcomes[1].problem.kind is ProblemKind.DEFECT


def test_back_off_is_exponential_with_a_limit_and_jitter() -> None:
    """Hosts that failed at the same time do not retry at the same time."""
    assert [back_off(tries, lambda: 0.5) for tries in (1, 2, 3, 10)] == [1.0, 2.0, 4.0, 30.0]
    assert back_off(1, lambda: 0.0) == 0.5
    assert back_off(10, lambda: 1.0) == 45.0


def test_interrupt_ends_all_threads() -> None:
    """After Ctrl-C, finished hosts keep their result, the others are interrupted, and every thread ends."""
    program = """
import threading, time
from gpuinfra.remote.fleet import HostFleet
from gpuinfra.remote.hosts import Host
stop = threading.Event()
def task(host):
    if host.name == "h0":
        return "done"
    if host.name == "h1":
        print("waits", flush=True)
    stop.wait(3000)
    raise OSError("closed")
ended = HostFleet([Host(name=f"h{n}", address="x") for n in range(3)], task, parallel=2, on_stop=stop.set).run()
print(ended.interrupted, [o.value or o.problem.kind.value for o in ended.outcomes], threading.active_count())
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    last_line = process.communicate(timeout=300)[0].splitlines()[-1]
    assert last_line == "True ['done', 'interrupted', 'interrupted'] 1"


def many(lab: Lab, count: int) -> tuple[list[Host], str]:
    """Hosts on loopback aliases, 15 per server, because OpenSSH listens on at most 16 addresses."""
    key = lab.keygen("host")
    made: list[Host] = []
    for start in range(0, count, 15):
        addresses = tuple(f"127.{1 + n // 250}.7.{1 + n % 250}" for n in range(start, min(start + 15, count)))
        port = lab.serve(key=key, addresses=addresses)
        made += [lab.host(port, f"n{start + n}", address) for n, address in enumerate(addresses)]
    return made, "".join(f"[{host.address}]:{host.port} {lab.public(key)}\n" for host in made)


def run_many(lab: Lab, count: int, parallel: int) -> None:
    """All hosts but one answer; that one stalls and does not delay the others."""
    before = threading.active_count()
    nodes, known = many(lab, count - 1)
    with stalled_port() as port:
        nodes.append(lab.host(port, "slow"))
        connector = lab.connector(known=known, limits=Limits(connect_s=60, handshake_s=200, login_s=200))
        first = threading.Event()

        def task(host: Host) -> str:
            if host.name == "slow":
                first.set()
            with connector.connect(host) as connection:
                return connection.run("echo $SSH_CONNECTION").output.decode().split()[2]

        ended_at: list[str] = []

        def changed(outcome: object) -> None:
            ended_at.append(outcome.host.name)  # type: ignore[attr-defined]
            if len(ended_at) == count - 1:
                connector.close()

        nodes.insert(0, nodes.pop())
        ended = HostFleet(nodes, task, parallel=parallel, on_outcome=changed, tries=1).run()
    assert first.is_set()
    assert ended_at[-1] == "slow"
    assert {outcome.host.name: outcome.value for outcome in ended.outcomes if outcome.host.name != "slow"} == {
        host.name: host.address for host in nodes if host.name != "slow"
    }
    assert ended.outcomes[0].problem is not None
    for _ in range(200):
        if threading.active_count() <= before:
            break
        time.sleep(0.05)
    assert threading.active_count() <= before


@needed()
def test_one_stalled_host_of_40_does_not_delay_the_others(lab: Lab) -> None:
    """A stalled host occupies one connection; every other host answers before it times out."""
    run_many(lab, 40, parallel=8)


@needed()
@pytest.mark.long
def test_one_stalled_host_of_300_does_not_delay_the_others(lab: Lab) -> None:
    """The same with 300 parallel connections."""
    run_many(lab, 300, parallel=300)


def bootstrap_many(lab: Lab, count: int, parallel: int) -> None:
    """Install a real bundle on many hosts in parallel, each with its own root folder."""
    from gpuinfra.remote.deliver import Bootstrap

    from .test_bootstrap import GOOD, order

    nodes, known = many(lab, count)
    nodes = [replace(host, root=lab.folder / "roots" / host.name) for host in nodes]
    for host in nodes:
        host.root.mkdir(parents=True)
    what = order(s10_one=GOOD, s20_two=GOOD)
    connector = lab.connector(known=known, limits=Limits(connect_s=100, handshake_s=200, login_s=200))
    seen: Counter[str] = Counter()

    def on_stage(host: Host, stage: str) -> None:
        seen[stage.split(" ")[0]] += 1

    task = Bootstrap(connector, {"gpu": what}, lambda host: "gpu", on_stage=on_stage)
    ended = HostFleet(nodes, task, parallel=parallel, on_stop=connector.close).run()
    assert [outcome.problem for outcome in ended.outcomes if outcome.problem] == []
    assert seen["sending"] == count
    for host in nodes:
        journal = json.loads((host.root / "var/lib/gpuinfra/state.json").read_text())
        assert [step["status"] for step in journal["steps"]] == ["done", "done"]


@needed()
def test_20_hosts_are_bootstrapped_in_parallel(lab: Lab) -> None:
    """Each host receives the bundle and has a complete journal."""
    bootstrap_many(lab, 20, parallel=20)


@needed()
@pytest.mark.long
def test_300_hosts_are_bootstrapped_in_parallel(lab: Lab) -> None:
    """The same with 300 parallel connections."""
    bootstrap_many(lab, 300, parallel=300)


@needed()
def test_each_host_is_verified_by_its_own_key(lab: Lab) -> None:
    """A changed host key and an unknown host key are different problems, also among many hosts."""
    nodes, known = many(lab, 6)
    other = lab.keygen("other")
    lines = known.splitlines()
    lines[2] = f"[{nodes[2].address}]:{nodes[2].port} {lab.public(other)}"
    del lines[4]
    connector = lab.connector(known="\n".join(lines))

    def task(host: Host) -> str:
        with connector.connect(host) as connection:
            return connection.run("echo in").output.decode().strip()

    ended = HostFleet(nodes, task).run()
    assert [outcome.problem.kind if outcome.problem else outcome.value for outcome in ended.outcomes] == [
        "in",
        "in",
        ProblemKind.HOST_KEY_CHANGED,
        "in",
        ProblemKind.HOST_KEY_UNKNOWN,
        "in",
    ]


@needed()
def test_interrupted_command_explains_how_to_continue(lab: Lab) -> None:
    """Ctrl-C ends the command with exit code 130, and the next run reports that it continues."""
    with stalled_port() as port:
        file = lab.folder / "hosts.json"
        (lab.folder / "known").write_text("")
        file.write_text(
            json.dumps(
                {
                    "stack": "aws-p4d",
                    "known_hosts": "known",
                    "hosts": {"slow": {"address": "127.0.0.1", "port": port, "user": lab.user}},
                }
            )
        )
        words = [sys.executable, "-m", "gpuinfra", "bootstrap", "--hosts", str(file)]
        environment = {**os.environ, "XDG_STATE_HOME": str(lab.folder / "state")}
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        record = lab.folder / "state/gpuinfra/bootstrap"
        for _ in range(6000):
            if record.is_dir() and list(record.glob("*.json")):
                break
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 130, err
        assert "0 of 1 hosts done" in out
        assert "run the same command again" in out
        assert "Traceback" not in err
        again = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        assert again.stderr is not None
        assert again.stderr.readline().startswith("resuming the run from ")
        again.send_signal(signal.SIGINT)
        again.communicate(timeout=300)


def test_known_hosts_file_is_parsed_once(tmp_path: Path) -> None:
    """10,000 known_hosts lines are parsed once; each host is a lookup."""
    blob = base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0 " + b"k" * 32).decode()
    names = [f"10.{n // 62500}.{n // 250 % 250}.{n % 250}" for n in range(10_000)]
    file = tmp_path / "known_hosts"
    file.write_text("".join(f"{name} ssh-ed25519 {blob}\n" for name in names))
    began = time.process_time()
    known = KnownHosts([file])
    assert all(len(known.trust(Host(name=name, address=name)).keys) == 1 for name in names)
    # A file that is parsed for each host takes minutes.
    assert time.process_time() - began < 60
