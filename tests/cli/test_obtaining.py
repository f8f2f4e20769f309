"""What an earlier destroy of the second region retained is imported before the stack is deployed again."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.shipped import shipped
from gpuinfra.cli import obtaining
from gpuinfra.cli.stacks import NoStack
from gpuinfra.clouds.aws.cloud import AwsCloud
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.preflight import Unanswered
from gpuinfra.engine.find import Engine
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.planned import PlannedResource, RetainedResource
from gpuinfra.spec.load import LoadedStack, read_stack
from tests.clouds.stacks import TODAY

Imports = list[dict[str, Any]]


@pytest.fixture
def file(tmp_path: Path) -> LoadedStack:
    """A stack of a second region."""
    path = tmp_path / "Pulumi.aws-p4d.yaml"
    shutil.copyfile(shipped("stacks") / path.name, path)
    return read_stack(path)


@pytest.fixture
def imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Imports:
    """The documents that the engine imports, and the options of each import."""
    found: Imports = []
    monkeypatch.setenv("GPUINFRA_TODAY", TODAY.isoformat())
    engine = Engine(path=tmp_path, version="3.259.0", host_dir=tmp_path, source="path")
    monkeypatch.setattr("gpuinfra.engine.find_engine", lambda *_: engine)
    monkeypatch.setattr("gpuinfra.doctor.cloud.token_of", lambda *_: "token")

    def record(engine: Engine, name: str, project: Path, document: dict[str, Any], **options: Any) -> None:
        found.append({"stack": name, "document": document, **options})

    monkeypatch.setattr("gpuinfra.engine.up.import_resources", record)
    return found


def planned(file: LoadedStack) -> list[PlannedResource[Any]]:
    """The resources of a stack that `destroy` retains and `adopt` finds."""
    every = cloud_of("aws").resources(build_plan(file.spec, TODAY))
    return [one for one in every if one.retained and one.lookup is not None]


def state(monkeypatch: pytest.MonkeyPatch, resources: Sequence[PlannedResource[Any]] | None) -> None:
    """Set the state of the stack. None: it does not exist."""
    rows = [{"type": one.type, "urn": f"urn:pulumi:s::p::{one.type}::{one.name}"} for one in resources or ()]

    def exported(name: str, *, project: Path) -> list[dict[str, str]]:
        if resources is None:
            raise NoStack(name)
        return rows

    monkeypatch.setattr(obtaining, "exported", exported)


def account(monkeypatch: pytest.MonkeyPatch, resources: Sequence[PlannedResource[Any]]) -> list[str]:
    """Set what exists in the account. Returns the tokens with which the account is read."""
    tokens: list[str] = []

    def retained(
        self: AwsCloud, plan: object, token: str, settings: object, profile: object
    ) -> list[RetainedResource[Any]]:
        tokens.append(token)
        return [RetainedResource(resource=one, id=f"id-{one.name}") for one in resources]

    monkeypatch.setattr(AwsCloud, "retained", retained)
    return tokens


@pytest.mark.parametrize("exists", [False, True], ids=["no stack", "destroyed stack"])
def test_retained_resources_are_imported(
    exists: bool, file: LoadedStack, imports: Imports, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    """Each resource that exists is in the import file, with its ID, and the command names it. The engine inherits the lock."""
    first, second, *_ = planned(file)
    state(monkeypatch, [] if exists else None)
    assert account(monkeypatch, [first, second]) == []
    obtaining.adopt_retained(file, file.path.parent, [7], again=True)
    (made,) = imports
    rows = {row["logicalName"]: row["id"] for row in made["document"]["resources"] if not row.get("component")}
    assert rows == {one.name: f"id-{one.name}" for one in (first, second)}
    assert (made["stack"], made["keep"], made["again"]) == ("aws-p4d", [7], True)
    assert (
        f"importing what an earlier deployment of aws-p4d retained: {first.name}, {second.name}"
        in capsys.readouterr().err
    )


def test_a_killed_import_continues(file: LoadedStack, imports: Imports, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resources that the state already contains are not imported again."""
    first, second, *_ = planned(file)
    state(monkeypatch, [first])
    account(monkeypatch, [first, second])
    obtaining.adopt_retained(file, file.path.parent, [], again=True)
    (made,) = imports
    assert [row["logicalName"] for row in made["document"]["resources"] if not row.get("component")] == [second.name]


def test_a_deployed_stack_is_not_looked_up(
    file: LoadedStack, imports: Imports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the state contains all retained resources, the account is not read."""
    state(monkeypatch, planned(file))
    assert account(monkeypatch, []) == []
    obtaining.adopt_retained(file, file.path.parent, [], again=False)
    assert imports == []


def test_a_first_deployment_imports_nothing(
    file: LoadedStack, imports: Imports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If nothing exists in the account, the engine is not called."""
    state(monkeypatch, None)
    tokens = account(monkeypatch, [])
    obtaining.adopt_retained(file, file.path.parent, [], again=False)
    assert (tokens, imports) == (["token"], [])


def test_an_unknown_organization_is_a_warning(
    file: LoadedStack, imports: Imports, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In Pulumi Cloud, the names depend on the organization, so the command to run is printed, and the deployment continues."""

    def unknown(*_: object) -> str:
        raise Unanswered("not checked, because the names depend on the organization", "", "run `gpuinfra adopt S`")

    state(monkeypatch, None)
    monkeypatch.setattr("gpuinfra.doctor.cloud.token_of", unknown)
    obtaining.adopt_retained(file, file.path.parent, [], again=False)
    assert imports == []
    assert "gpuinfra: warn: retained resources of aws-p4d are not checked" in capsys.readouterr().err
