"""The commands on the page about the second region, in the order of the page, against each stand-in cloud. The page has the names of AWS.

A script replaces the engine, and the nodes do not boot. `gpuinfra rehearse drill` runs the failover with both.
"""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuinfra.base.day import VARIABLE
from gpuinfra.base.shipped import shipped
from gpuinfra.cli import main
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.engine.find import Engine
from gpuinfra.handover.judge import FleetVerdict, NodeVerdict
from gpuinfra.region.clone.make import clone
from gpuinfra.region.clone.model import CloneRequest
from gpuinfra.region.clone.replicas import replicas_of
from gpuinfra.spec.load import read_stack
from gpuinfra_rehearsal.object_stores import admit
from tests.clouds.stacks import TODAY
from tests.region.clone.deployed import Deployed

GUIDES = Path(__file__).parents[3] / "docs/guides"
PAGES = ("clone.md", "second-region.md", "failover.md", "dns-names.md", "failback.md")
"""The guides, in the order in which their commands run."""
DOMAIN = "train.example.internal"


@dataclass(frozen=True, kw_only=True)
class Runbook:
    """What differs between the clouds."""

    stack: str
    """Stack with `recovery`."""
    cloned: str
    """Stack that the first commands clone."""
    first: str
    second: str
    zone: str

    def words(self, line: str) -> list[str]:
        """The words of a command of the page, with the names of this cloud."""
        for name, own in {"aws-recovery": self.stack, "aws-p4d": self.cloned, "us-west-2": self.second}.items():
            line = line.replace(name, own)
        return shlex.split(line, comments=True)[1:]


RUNBOOKS = {
    "aws": Runbook(stack="aws-recovery", cloned="aws-p4d", first="us-east-2", second="us-west-2", zone="Z0123456789ABCDEFGHIJ"),
    "azure": Runbook(
        stack="azure-recovery", cloned="azure-ndv4", first="southcentralus", second="eastus2",
        zone="/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/dns/providers/Microsoft.Network/privateDnsZones/example.internal",
    ),
    "gcp": Runbook(
        stack="gcp-recovery", cloned="gcp-a3high", first="us-central1", second="us-east4", zone="projects/standin-project/managedZones/train"
    ),
}  # fmt: skip
VERIFIED = NodeVerdict(
    label="gpu-1",
    cloud="aws",
    cause=None,
    instance_id="i-1",
    pool="gpu",
    group="gpu",
    machine="m",
    outcome="verified",
    reason="",
    settled=True,
    private_ip="10.64.32.1",
)
ENGINE = '#!/bin/sh\n[ "$1" != stack ] || echo "{}"\n'


def commands(book: Runbook) -> list[list[str]]:
    """The words of each command in a console block, without its comment."""
    text = "".join((GUIDES / page).read_text(encoding="utf-8") for page in PAGES)
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    return [book.words(line) for block in blocks for line in block.splitlines() if line.startswith("gpuinfra ")]  # fmt: skip


@pytest.fixture(params=RUNBOOKS)
def book(request: pytest.FixtureRequest) -> Runbook:
    """The cloud."""
    return RUNBOOKS[request.param]


@pytest.fixture
def cloud(book: Runbook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployed]:
    """A project with the stacks of the page. The stack with a second region is deployed in both regions."""
    (tmp_path / "Pulumi.yaml").write_text("name: gpuinfra\nruntime: python\n")
    folder = tmp_path / "stacks"
    folder.mkdir()
    cloned = f"Pulumi.{book.cloned}.yaml"
    (folder / cloned).write_text((shipped("stacks") / cloned).read_text())
    path = folder / f"Pulumi.{book.stack}.yaml"
    text = (shipped("stacks") / path.name).read_text().rstrip()
    path.write_text(f"{text}\n      names: {{zone: {book.zone}, domain: {DOMAIN}}}\n")
    stack = read_stack(path)
    one = Deployed(stack, tmp_path / "cloud")
    one.ask("external", id=book.zone, domain=DOMAIN)
    values: tuple[tuple[str, object], ...] = (("storage[0].bucket", replicas_of(one.resources).buckets["scratch-0"]),)
    (file,) = clone(stack, path.read_text(), CloneRequest(region=book.second, values=values), TODAY).files
    file.path.write_text(file.text)
    states = {book.stack: one.resources, file.stack: one.another(read_stack(file.path))}
    for name, value in {**one.environment, VARIABLE: TODAY.isoformat(), "XDG_STATE_HOME": str(tmp_path / "state")}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    mover = cloud_of(one.name).failover(book.first, book.second, {})
    assert mover is not None
    buckets = [name for pair in mover.pairs(one.resources) for name in (pair.source, pair.replica)]
    admit(one.name, lambda action, body: one.ask(action, **body), buckets)
    for name in ("AWS_PROFILE", "PULUMI_BACKEND_URL"):
        monkeypatch.delenv(name, raising=False)
    engine = tmp_path / "pulumi"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    monkeypatch.setattr("gpuinfra.engine.find_engine", lambda *_, **__: Engine(path=engine, version="3.259.0", host_dir=tmp_path, source="path"))  # fmt: skip
    monkeypatch.setattr("gpuinfra.cli.ready.readable_stack", lambda *_, **__: nullcontext(one.resources))
    for module in ("active", "failover", "obtaining", "returning", "names", "ready", "up"):
        monkeypatch.setattr(f"gpuinfra.cli.{module}.exported", lambda name, **_: states[name])
    verdict: Any = [SimpleNamespace(verdict=FleetVerdict(nodes=(VERIFIED,)))]
    monkeypatch.setattr("gpuinfra.verification.store.polled", lambda resources: verdict)
    monkeypatch.setattr("gpuinfra.verification.store.await_nodes", lambda *_: "2 of 2 nodes verified")
    monkeypatch.setattr("gpuinfra.region.failover.steps.POLL_S", 0.02)
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
    assert [words[0] for words in commands(RUNBOOKS["aws"])] == [
        "clone",
        "clone",
        "plan",
        "ready",
        "ready",
        *["failover"] * 4,
        *["names"] * 3,
        *["failback"] * 4,
    ]


@pytest.mark.long
@pytest.mark.usefixtures("cloud")
def test_the_commands_of_the_page_run_in_order(book: Runbook, capfd: pytest.CaptureFixture[str]) -> None:
    """Each command of the page succeeds, except that a failover that has finished is not undone. The names point to the region in which the stack runs."""
    for words in commands(book):
        code = main(words)
        text = capfd.readouterr()
        if "--abort" in words:  # The move has finished.
            assert code == 2, (words, text.out, text.err)
            undo = f"to return to {book.first}, run: gpuinfra failback {book.stack}"
            assert (undo if words[0] == "failover" else "so there is nothing to undo") in text.err
            continue
        assert code == 0, (words, text.out, text.err)
        if words[:2] == ["failover", book.stack] and len(words) == 4:
            assert f"{book.stack} runs in {book.second}" in text.out
        if words == ["failback", book.stack]:
            assert f"{book.stack} runs in {book.first}" in text.out
