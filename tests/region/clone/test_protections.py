"""`gpuinfra ready` on a stack in the stand-in cloud whose protections are broken one at a time."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuinfra.base.shipped import shipped
from gpuinfra.cli import ready as cli
from gpuinfra.cli.stacks import Stacks
from gpuinfra.region.clone.make import clone
from gpuinfra.region.clone.model import CloneRequest
from gpuinfra.spec.load import read_stack
from tests.clouds.stacks import TODAY
from tests.region.clone.deployed import Deployed
from tests.region.clone.protections import PROTECTIONS, SECOND, TOPICS, Break, Broken

Lines = dict[tuple[str, str], dict[str, str]]


@pytest.fixture(scope="module", params=SECOND)
def deployed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Deployed, Path, Any]]:  # fmt: skip
    """A shipped stack in the stand-in cloud, the folder with its files, and a copy of the cloud."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "Pulumi.yaml").write_text("name: gpuinfra\nruntime: python\n")
    path = folder / f"Pulumi.{request.param}.yaml"
    shutil.copyfile(shipped("stacks") / path.name, path)
    stack = read_stack(path)
    one = Deployed(stack, tmp_path_factory.mktemp("cloud"))
    replicas = next(each for each in one.resources if each["type"].endswith(":RegionClone"))["outputs"]["buckets"]
    values: tuple[tuple[str, object], ...] = (("storage[0].bucket", replicas["scratch-0"]),)
    made = clone(stack, path.read_text(), CloneRequest(region=SECOND[request.param], values=values), TODAY)
    assert made.ok, made.findings
    (file,) = made.files
    file.path.write_text(file.text)
    with pytest.MonkeyPatch.context() as patch:
        _operate(patch, one)
        ready(path)  # The stand-in replicates the bundle when a request reads the bucket.
    yield one, folder, one.save()
    one.close()


def _operate(patch: pytest.MonkeyPatch, one: Deployed) -> None:
    """Use the credentials of the operator and the state of the stack."""
    for name, value in one.environment.items():
        patch.setenv(name, value)
    patch.delenv("AWS_PROFILE", raising=False)
    patch.delenv("PULUMI_BACKEND_URL", raising=False)
    patch.setattr(cli, "readable_stack", lambda *_, **__: nullcontext(one.resources))


@pytest.fixture
def broken(deployed: tuple[Deployed, Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Broken:
    """The stack, before a protection is broken."""
    one, folder, copy = deployed
    one.restore(copy)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    _operate(monkeypatch, one)
    files = sorted(tmp_path.glob("Pulumi.*.yaml"), key=lambda path: len(path.name))
    return Broken(deployed=one, files=(files[0], files[1]))


def ready(path: Path) -> tuple[int, Lines]:
    """Run the command. Returns the exit code and the lines by topic and name."""

    def chosen(given: dict[str, Any]) -> Stacks:
        del given["rehearsal"], given["folder"]
        return Stacks(open=lambda _: nullcontext([]), up="", restore="pulumi up --refresh --stack {stack}", project=lambda name: Path())  # fmt: skip

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpuinfra.cli.options.stacks_of", chosen)
        done = CliRunner().invoke(cli.command, [str(path), "--json"], standalone_mode=False)
    assert isinstance(done.return_value, int), (done.output, done.exception)
    return done.return_value, {(one["topic"], one["name"]): one for one in json.loads(done.output)["lines"]}


def test_second_region_is_ready_before_a_protection_breaks(broken: Broken) -> None:
    """With the clone that uses the replica, no line fails and every question is answered."""
    code, lines = ready(broken.files[0])
    assert code == 0, [one for one in lines.values() if one["state"] in ("fail", "unread")]
    assert {one["state"] for one in lines.values()} <= {"ok", "warn", "not checked"}


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_broken_protection_is_named(protection: str, broken: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken protection is the only line that fails. The line has the name of the broken part, and a command."""
    break_: Break = PROTECTIONS[protection][broken.deployed.name]
    topic, name = break_(broken)
    assert topic == TOPICS[protection]
    for variable, value in broken.environment.items():
        monkeypatch.setenv(variable, value)
    code, lines = ready(broken.files[0])
    assert code == 1, lines
    failed = {key: one for key, one in lines.items() if one["state"] == "fail"}
    assert [key[0] for key in failed] == [topic], failed
    ((_, found),) = failed
    assert name in found
    (line,) = failed.values()
    assert line["reason"]
    assert line["fix"]
    assert "unread" not in {one["state"] for one in lines.values()}
