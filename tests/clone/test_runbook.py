"""The commands on the page about the second region, in the order of the page, against a stand-in cloud.

A script replaces the engine, and the nodes do not boot. `gpuinfra rehearse drill` runs the failover with both.
"""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuinfra.cli import main
from gpuinfra.clone.make import clone
from gpuinfra.clone.model import Request
from gpuinfra.clone.replicas import replicas_of
from gpuinfra.day import VARIABLE
from gpuinfra.engine.find import Engine
from gpuinfra.handover.judge import FleetVerdict, NodeVerdict
from gpuinfra.shipped import shipped
from gpuinfra.spec.load import read_stack
from tests.clone.deployed import Deployed
from tests.clouds.stacks import TODAY

PAGE = Path(__file__).parents[2] / "docs/second-region.md"
STACK, SECOND = "aws-recovery", "us-west-2"
ZONE, DOMAIN = "Z0123456789ABCDEFGHIJ", "train.example.internal"
VERIFIED = NodeVerdict(label="gpu-1", instance_id="i-1", pool="gpu", group="gpu", machine="m", outcome="verified", reason="", settled=True, private_ip="10.64.32.1")  # fmt: skip
ENGINE = '#!/bin/sh\n[ "$1" != stack ] || echo "{}"\n'


def commands() -> list[list[str]]:
    """The words of each command in a console block, without its comment."""
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return [shlex.split(line, comments=True)[1:] for block in blocks for line in block.splitlines() if line.startswith("gpuinfra ")]  # fmt: skip


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployed]:
    """A project with the stacks of the page. The stack with a second region is deployed in both regions."""
    (tmp_path / "Pulumi.yaml").write_text("name: gpuinfra\nruntime: python\n")
    folder = tmp_path / "stacks"
    folder.mkdir()
    (folder / "Pulumi.aws-p4d.yaml").write_text((shipped("stacks") / "Pulumi.aws-p4d.yaml").read_text())
    path = folder / f"Pulumi.{STACK}.yaml"
    text = (shipped("stacks") / path.name).read_text().rstrip()
    path.write_text(f"{text}\n      names: {{zone: {ZONE}, domain: {DOMAIN}}}\n")
    stack = read_stack(path)
    one = Deployed(stack, tmp_path / "cloud")
    one.ask("external", id=ZONE, domain=DOMAIN)
    values: tuple[tuple[str, object], ...] = (("storage[0].bucket", replicas_of(one.resources).buckets["scratch-0"]),)
    (file,) = clone(stack, path.read_text(), Request(region=SECOND, values=values), TODAY).files
    file.path.write_text(file.text)
    states = {STACK: one.resources, file.stack: one.another(read_stack(file.path))}
    for name, value in {**one.environment, VARIABLE: TODAY.isoformat(), "XDG_STATE_HOME": str(tmp_path / "state")}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "PULUMI_BACKEND_URL"):
        monkeypatch.delenv(name, raising=False)
    engine = tmp_path / "pulumi"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    monkeypatch.setattr("gpuinfra.engine.find_engine", lambda *_, **__: Engine(path=engine, version="3.259.0", host_dir=tmp_path, source="path"))  # fmt: skip
    monkeypatch.setattr("gpuinfra.cli.ready.readable_stack", lambda *_, **__: nullcontext(one.resources))
    for module in ("failover", "failback", "names", "ready"):
        monkeypatch.setattr(f"gpuinfra.cli.{module}.exported", lambda name: states[name])
    verdict: Any = [SimpleNamespace(verdict=FleetVerdict(nodes=(VERIFIED,)))]
    monkeypatch.setattr("gpuinfra.verification.store.polled", lambda resources: verdict)
    monkeypatch.setattr("gpuinfra.failover.steps.POLL_S", 0.02)
    monkeypatch.setattr("click.confirm", lambda *_, **__: True)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.chdir(tmp_path)
    one.cloud.fleet.start()
    limit = time.monotonic() + 600
    while len(one.cloud.fleet.running()) < 2:
        assert time.monotonic() < limit
        time.sleep(0.05)
    yield one
    one.cloud.fleet.stop()
    one.close()


def test_the_page_has_each_command_of_a_second_region() -> None:
    """The runbook contains every command that prepares, checks and moves a second region."""
    assert [words[0] for words in commands()] == ["clone", "clone", "plan", "ready", "ready", *["failover"] * 3, *["names"] * 3, *["failback"] * 3]  # fmt: skip


@pytest.mark.usefixtures("cloud")
def test_the_commands_of_the_page_run_in_order(capfd: pytest.CaptureFixture[str]) -> None:
    """Each command of the page succeeds. The names point to the region in which the stack runs."""
    for words in commands():
        code = main(words)
        text = capfd.readouterr()
        assert code == 0, (words, text.out, text.err)
        if words[:2] == ["failover", STACK] and len(words) == 4:
            assert f"{STACK} runs in {SECOND}" in text.out
        if words == ["failback", STACK]:
            assert f"{STACK} runs in us-east-2" in text.out
