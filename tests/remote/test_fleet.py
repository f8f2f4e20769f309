"""Many hosts at once: with tasks that are only functions, and over real OpenSSH."""

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
from gpuinfra.remote.fleet import Again, Fleet, back_off, by_kind
from gpuinfra.remote.hosts import Host
from gpuinfra.remote.known import Known
from gpuinfra.remote.problem import HostProblem, Kind

from .servers import Lab, needed
from .test_openssh import deaf


def hosts(count: int) -> list[Host]:
    """Hosts that nobody connects to."""
    return [Host(name=f"h{number}", address="127.0.0.1") for number in range(count)]


def test_a_task_that_asks_for_more_is_called_again() -> None:
    """A task is called until it has a result, and outcomes are in the order of the hosts."""
    calls: Counter[str] = Counter()

    def task(host: Host) -> str | Again:
        calls[host.name] += 1
        return f"{host.name} done" if calls[host.name] == 3 else Again(0.001)

    ended = Fleet(hosts(20), task, parallel=4).run()
    assert [outcome.value for outcome in ended.outcomes] == [f"h{number} done" for number in range(20)]
    assert set(calls.values()) == {3}


def test_what_may_pass_is_tried_again_and_what_may_not_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that cannot be reached is tried as often as allowed; a refused key ends it at once."""
    monkeypatch.setattr("gpuinfra.remote.fleet.back_off", lambda tries: 0.001)
    calls: Counter[str] = Counter()
    kinds = {"h0": Kind.UNREACHABLE, "h1": Kind.HOST_KEY_CHANGED, "h2": Kind.LOGIN, "h3": Kind.DROPPED}

    def task(host: Host) -> str:
        calls[host.name] += 1
        if host.name == "h3" and calls["h3"] == 4:
            return "came back"
        raise HostProblem(kinds[host.name], "no", "mend")

    ended = Fleet(hosts(4), task, tries=5).run()
    assert calls == {"h0": 5, "h1": 1, "h2": 1, "h3": 4}
    assert ended.outcomes[3].value == "came back"
    problems = [outcome.problem for outcome in ended.outcomes if outcome.problem]
    assert {kind: len(group) for kind, group in by_kind(problems)} == {
        Kind.UNREACHABLE: 1,
        Kind.HOST_KEY_CHANGED: 1,
        Kind.LOGIN: 1,
    }


def test_a_surprise_with_one_host_leaves_the_others() -> None:
    """An error that nobody foresaw is that host's outcome and ends nothing else."""

    def task(host: Host) -> str:
        if host.name == "h1":
            raise ZeroDivisionError("oops")
        return "done"

    ended = Fleet(hosts(3), task).run()
    assert [outcome.value for outcome in ended.outcomes] == ["done", None, "done"]
    assert ended.outcomes[1].problem is not None
    assert ended.outcomes[1].problem.kind is Kind.DEFECT


def test_back_off_grows_is_bounded_and_is_spread() -> None:
    """Hosts that failed together do not come back together."""
    assert [back_off(tries, lambda: 0.5) for tries in (1, 2, 3, 10)] == [1.0, 2.0, 4.0, 30.0]
    assert back_off(1, lambda: 0.0) == 0.5
    assert back_off(10, lambda: 1.0) == 45.0


def test_an_interrupt_leaves_cleanly() -> None:
    """After Ctrl-C what is done counts, the rest is named, every thread ends, and nobody waits for the slow."""
    program = """
import threading, time
from gpuinfra.remote.fleet import Fleet
from gpuinfra.remote.hosts import Host
stop = threading.Event()
def task(host):
    if host.name == "h0":
        return "done"
    if host.name == "h1":
        print("waits", flush=True)
    stop.wait(60)
    raise OSError("closed")
ended = Fleet([Host(name=f"h{n}", address="x") for n in range(3)], task, parallel=2, leave=stop.set).run()
print(ended.interrupted, [o.value or o.problem.kind.value for o in ended.outcomes], threading.active_count())
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    time.sleep(0.2)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=20)[0].splitlines()[-1]
    assert said == "True ['done', 'interrupted', 'interrupted'] 1"
    assert time.monotonic() - began < 10


def many(lab: Lab, count: int) -> tuple[list[Host], str]:
    """Hosts on loopback aliases; OpenSSH listens on 16 addresses at most, so several daemons share them."""
    key = lab.keygen("host")
    made: list[Host] = []
    for start in range(0, count, 15):
        addresses = tuple(f"127.{1 + n // 250}.7.{1 + n % 250}" for n in range(start, min(start + 15, count)))
        port = lab.serve(key=key, addresses=addresses)
        made += [lab.host(port, f"n{start + n}", address) for n, address in enumerate(addresses)]
    return made, "".join(f"[{host.address}]:{host.port} {lab.public(key)}\n" for host in made)


def run_many(lab: Lab, count: int, parallel: int) -> None:
    """All hosts but the last answer; the last one stalls and holds none of the others."""
    before = threading.active_count()
    nodes, known = many(lab, count - 1)
    with deaf() as port:
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
        ended = Fleet(nodes, task, parallel=parallel, changed=changed, tries=1).run()
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
def test_one_slow_host_of_forty_holds_none_of_the_others(lab: Lab) -> None:
    """A host that stalls costs one place; every other host answers before it is given up."""
    run_many(lab, 40, parallel=8)


@needed()
@pytest.mark.long
def test_one_slow_host_of_three_hundred_holds_none_of_the_others(lab: Lab) -> None:
    """The same with 300 hosts, all with a connection at one time."""
    run_many(lab, 300, parallel=300)


def bootstrap_many(lab: Lab, count: int, parallel: int) -> None:
    """A real bundle on many hosts at once, each with a folder of its own for its files."""
    from gpuinfra.remote.deliver import Bootstrap

    from .test_bootstrap import GOOD, order

    nodes, known = many(lab, count)
    nodes = [replace(host, root=lab.folder / "roots" / host.name) for host in nodes]
    for host in nodes:
        host.root.mkdir(parents=True)
    what = order(s10_one=GOOD, s20_two=GOOD)
    connector = lab.connector(known=known, limits=Limits(connect_s=100, handshake_s=200, login_s=200))
    seen: Counter[str] = Counter()

    def said(host: Host, stage: str) -> None:
        seen[stage.split(" ")[0]] += 1

    task = Bootstrap(connector, {"gpu": what}, lambda host: "gpu", said=said)
    ended = Fleet(nodes, task, parallel=parallel, leave=connector.close).run()
    assert [outcome.problem for outcome in ended.outcomes if outcome.problem] == []
    assert seen["delivers"] == count
    for host in nodes:
        journal = json.loads((host.root / "var/lib/gpuinfra/state.json").read_text())
        assert [step["status"] for step in journal["steps"]] == ["done", "done"]


@needed()
def test_twenty_hosts_are_bootstrapped_at_once(lab: Lab) -> None:
    """Several daemons, a bundle for each host, each journal whole."""
    bootstrap_many(lab, 20, parallel=20)


@needed()
@pytest.mark.long
def test_three_hundred_hosts_are_bootstrapped_at_once(lab: Lab) -> None:
    """The same with 300 hosts, each with a connection at one time."""
    bootstrap_many(lab, 300, parallel=300)


@needed()
def test_each_host_of_many_is_judged_by_its_own_key(lab: Lab) -> None:
    """Among hosts with known keys, one with a changed key and one that is unknown are told apart."""
    nodes, known = many(lab, 6)
    other = lab.keygen("other")
    lines = known.splitlines()
    lines[2] = f"[{nodes[2].address}]:{nodes[2].port} {lab.public(other)}"
    del lines[4]
    connector = lab.connector(known="\n".join(lines))

    def task(host: Host) -> str:
        with connector.connect(host) as connection:
            return connection.run("echo in").output.decode().strip()

    ended = Fleet(nodes, task).run()
    assert [outcome.problem.kind if outcome.problem else outcome.value for outcome in ended.outcomes] == [
        "in",
        "in",
        Kind.HOST_KEY_CHANGED,
        "in",
        Kind.HOST_KEY_UNKNOWN,
        "in",
    ]


@needed()
def test_an_interrupt_of_the_command_says_how_to_go_on(lab: Lab) -> None:
    """Ctrl-C ends the command with 130 within seconds, and the next run says what it goes on with."""
    with deaf() as port:
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
        for _ in range(400):
            if record.is_dir() and list(record.glob("*.json")):
                break
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert process.returncode == 130, err
        assert "0 of 1 hosts done" in out
        assert "run the same command again" in out
        assert "Traceback" not in err
        again = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        assert again.stderr is not None
        assert again.stderr.readline().startswith("resumes the run of ")
        again.send_signal(signal.SIGINT)
        again.communicate(timeout=30)


def test_ten_thousand_known_hosts_cost_little(tmp_path: Path) -> None:
    """A fleet's known_hosts file is read once: each further host is a look-up and not another reading."""
    blob = base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0 " + b"k" * 32).decode()
    names = [f"10.{n // 62500}.{n // 250 % 250}.{n % 250}" for n in range(10_000)]
    file = tmp_path / "known_hosts"
    file.write_text("".join(f"{name} ssh-ed25519 {blob}\n" for name in names))
    began = time.process_time()
    known = Known([file])
    assert all(len(known.of(Host(name=name, address=name)).keys) == 1 for name in names)
    assert time.process_time() - began < 10
