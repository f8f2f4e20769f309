"""`gpuinfra rehearse run`: commands in a rehearsal, and the runbook that practices a failover with it."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuinfra.base.day import today
from gpuinfra.base.errors import UsageError
from gpuinfra.plan.make import build_plan
from gpuinfra.spec.load import find_stack, read_stack
from gpuinfra_rehearsal.faults import check_against_plans, parse

from .conftest import REPOSITORY, Finished, command, run

RUNBOOK = REPOSITORY / "docs/guides/runbook.md"


def lines(heading: str = "") -> list[str]:
    """The commands of a section of the runbook, or those above the first section."""
    text = RUNBOOK.read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2] if heading else text
    blocks = re.findall(r"```console\n(.*?)```", section.partition("\n## ")[0], re.S)
    return [line for block in blocks for line in block.splitlines()]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("run", "aws-recovery"), "the command is missing"),
        (("run", "aws-recovery", "--", "rehearse", "up", "aws-recovery"), "'rehearse' cannot run in a rehearsal"),
        (("run", "aws-recovery", "--", "bash"), "'bash' cannot run in a rehearsal; allowed: pulumi, and each command"),
        (("run", "aws-recovery", "--json", "--", "ready", "aws-recovery"), "add it to the command after --"),
        (("run", "aws-recovery", "--to", "us-west-2", "--", "ready"), "--to is an option of `gpuinfra rehearse drill`"),
        (("up", "aws-recovery", "ready"), "'ready' follows STACK; omit it, or use `gpuinfra rehearse run"),
        (("run", "aws-recovery", "--fault", "cloud:no-capacity:spot", "--", "plan", "aws-recovery"), "'spot' is not a pool"),
    ],
)  # fmt: skip
def test_a_wrong_command_is_refused_before_the_rehearsal(words: tuple[str, ...], problem: str, tmp_path: Path) -> None:
    """The error names what is allowed, and no rehearsal begins."""
    done = run(command("rehearse", *words), tmp_path, cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert problem in done.err
    assert not (tmp_path / ".rehearsal" / "aws-recovery" / "cloud.sqlite").exists()


def test_a_fault_can_concern_each_stack_of_the_rehearsal() -> None:
    """A fault that is possible in one of the plans is accepted. The reason of the first plan is shown if it is possible in none of them."""
    reserved, block = (
        build_plan(read_stack(find_stack(name)).spec, today()) for name in ("aws-recovery", "aws-p5-block")
    )
    fault = parse(["cloud:no-capacity:block"], {"gpu": 2})
    check_against_plans(fault, [reserved, block])
    with pytest.raises(UsageError, match="allowed: gpu, gpu-reserved-0, reserved"):
        check_against_plans(fault, [reserved])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_lets_the_command_end_in_order(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C, which the terminal also sends to the command, and SIGTERM end the command with one interrupt, and its exit code is returned."""
    started = tmp_path / "started"
    inner = (
        f"import pathlib, sys, time\ntry:\n    pathlib.Path({str(started)!r}).touch()\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    sys.exit(7)"
    )
    outer = (
        "import subprocess, sys; from gpuinfra_rehearsal.access import wait_for; "
        f"sys.exit(wait_for(subprocess.Popen([sys.executable, '-c', {inner!r}])))"
    )
    process = subprocess.Popen([sys.executable, "-c", outer], start_new_session=True)
    while not started.exists():
        assert process.poll() is None
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    assert process.wait(60) == 7


REGIONS = {
    "aws": ("us-east-2", "us-west-2"),
    "azure": ("southcentralus", "eastus2"),
    "gcp": ("us-central1", "us-east4"),
}


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize("cloud", REGIONS)
def test_the_runbook_practices_a_failover(cloud: str, tmp_path: Path) -> None:
    """In an empty folder, with the commands of the page only, and the names of the cloud: a failover without capacity changes nothing in the first region,
    the abort returns to it, the second failover moves the stack, and the failback moves it back."""
    stack, (first, second) = f"{cloud}-recovery", REGIONS[cloud]

    def typed(line: str, code: int = 0) -> Finished:
        for aws, own in (("aws-recovery", stack), *zip(REGIONS["aws"], REGIONS[cloud], strict=True)):
            line = line.replace(aws, own)
        words = shlex.split(line, comments=True)
        assert words[0] == "gpuinfra"
        # As the page says for nodes without a key of the operator.
        words += ["--ignore", "jobs"] if cloud == "azure" and {"failover", "failback"} & set(words) else []
        done = run(command(*words[1:]), tmp_path, cwd=tmp_path)
        assert done.code == code, f"{line}\n{done.out}\n{done.err}"[-6000:]
        return done

    def practiced(line: str, code: int = 0) -> Finished:
        return typed(f"gpuinfra rehearse run {stack} -- {line}", code)

    (up, ready), (clone, _) = lines(), lines("Before the night")
    typed(up)
    typed(ready, 1)
    practiced(clone)
    fix = re.search(rf"^ +(gpuinfra clone {stack} .* --force --set .*)$", typed(ready, 1).out, re.M)
    assert fix
    practiced(fix[1])
    typed(ready)
    refused, aborted, moved, returned = lines("Practice with faults")
    assert f"nothing in {first} was changed, and its nodes continue to run" in typed(refused, 1).err
    assert f"the failover is undone, and {stack} runs in {first}" in typed(aborted).out
    assert f"{stack} runs in {second}" in typed(moved).out
    assert "cannot start" not in typed(returned).err
    nodes = practiced(f"nodes {stack}").out
    assert nodes.count("verified") >= 2
    listed = practiced("pulumi stack ls")
    assert listed.out.count("recovery") >= 2
    said = [line for line in listed.err.splitlines() if line.startswith("rehearsal: ")]
    assert said[-2].endswith("with stand-ins for the cloud and the nodes: pulumi stack ls")
    assert said[-1] == "rehearsal: this was a rehearsal, and nothing was deployed or changed in a cloud"


def test_the_runbook_is_short() -> None:
    """A page for 3 a.m. has at most 1,500 words."""
    assert len(RUNBOOK.read_text(encoding="utf-8").split()) <= 1_500
