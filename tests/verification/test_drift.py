"""Drift of nodes and cloud resources, and the output of `gpuinfra drift`."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuinfra.base.errors import DeploymentError, EnvironmentMissing
from gpuinfra.cli import drift as cli
from gpuinfra.cli.stacks import Stacks
from gpuinfra.engine import refresh
from gpuinfra.engine.refresh import CloudChange, DriftedProperty
from gpuinfra.handover.ports import PortUnavailable
from gpuinfra.node.checks import ALL
from gpuinfra.verification import store
from gpuinfra.verification.drift import INSTALLATION, Difference, FixCommands, of_cloud, of_nodes
from gpuinfra.verification.judged import judge_all
from gpuinfra.verification.read import Absent, EvidenceDocument, FoundEvidence
from tests.node.healthy import DRIVER, P4D
from tests.verification.test_verification import documented

COMMANDS = FixCommands(restore="pulumi up --refresh --stack s", on_node="gpuinfra ssh s {node} '{command}'")
NCCL = {"pin": "2.28.9-1+cuda13.0", "range": [">=2.23", "<3"]}
EXPECTED = {
    **P4D,
    "software": {
        **P4D["software"],
        "cuda": {"pin": "13.0"},
        "dcgm": {"pin": "1:4.5.2-1", "range": [">=4.4.1", "<5"]},
        "nccl": NCCL,
    },
}
RECORDED = {"cuda": "13.0.88", "dcgm": "1:4.5.2-1", "nccl": "2.28.9-1+cuda13.0"}


def evidence(number: int, change: Callable[[dict[str, Any]], None] = lambda document: None) -> EvidenceDocument:
    """Evidence of a node with all versions of the lock, after a change."""
    document = copy.deepcopy(documented(f"i-{number:017}"))
    document["state"]["recorded"] |= RECORDED
    change(document)
    return EvidenceDocument(where="a bucket", sha256="0", document=document, name=f"gpu-{number}")


def differences(*nodes: EvidenceDocument, absent: tuple[Absent, ...] = ()) -> list[Difference]:
    """The differences of these nodes."""
    judged = judge_all(FoundEvidence(newest=nodes, about=""), lambda one: EXPECTED)
    return list(of_nodes(judged, absent, COMMANDS))


def recorded(name: str, version: str) -> Callable[[dict[str, Any]], None]:
    """Change a version that the steps recorded."""
    return lambda document: document["state"]["recorded"].__setitem__(name, version)


def output(probe: str, text: str, code: int = 0) -> Callable[[dict[str, Any]], None]:
    """Change the output of a probe."""
    return lambda document: document["probes"][probe].update(stdout=text, exit=code)


def test_checks_of_software_are_drift() -> None:
    """All checks of containers, drivers, libraries, monitoring and storage are about the installation, and no kernel log and no rate but B4."""
    assert {check for check in ALL if check[0] in "CDLMS"} <= INSTALLATION
    assert {check for check in INSTALLATION if check[0] in "BX"} == {"B4"}


def test_nodes_as_deployed_have_no_differences() -> None:
    """Equal nodes with the versions of the lock have no drift, also with an epoch and in a range."""
    older = recorded("dcgm", "1:4.4.9-1")
    assert differences(evidence(1), evidence(2)) == []
    assert differences(evidence(1, older), evidence(2, older)) == []


@pytest.mark.parametrize(
    ("change", "kind", "what", "found", "reason"),
    [
        (recorded("dcgm", "1:3.3.9-1"), "version", "dcgm", "1:3.3.9-1", "outside the range"),
        (recorded("nccl", "3.0.1-1+cuda13.0"), "version", "nccl", "3.0.1-1+cuda13.0", "outside the range"),
        (recorded("nccl", "2.27.3-1+cuda13.0"), "version", "nccl", "2.27.3-1+cuda13.0", "but 2.28.9-1+cuda13.0 on most nodes"),
        (recorded("cuda", "13.1.2"), "version", "cuda", "13.1.2", "outside the range ==13.0"),
        (recorded("cuda", "13.01"), "version", "cuda", "13.01", "outside the range ==13.0"),
        (recorded("nccl", "latest"), "version", "nccl", "latest", "is not a version"),
        (recorded("kernel", "6.8.0-1099-aws"), "version", "kernel", "6.8.0-1099-aws", "on most nodes of the pool"),
        (output("holds", "libnccl2\n"), "setting", "D4 holds", "libnccl2", "not held: "),
        (output("fabric-manager", "inactive\n", 3), "setting", "F1 fabric_manager", "", ""),
        (lambda document: document["state"]["steps"][1].update(status="failed"), "setting", "S2 bootstrap_steps", "1", "30-driver is failed"),
    ],
)  # fmt: skip
def test_a_changed_node_is_named(
    change: Callable[[dict[str, Any]], None], kind: str, what: str, found: str, reason: str
) -> None:
    """The difference names the node, what changed, the value, and a command on that node."""
    found_all = differences(evidence(1), evidence(2), evidence(3, change))
    assert {other.name for other in found_all} == {"gpu-3"}
    one = found_all[0]
    assert (one.area, one.name, one.id, one.kind, one.what) == ("node", "gpu-3", f"i-{3:017}", kind, what)
    assert found in one.found
    assert reason in one.reason
    assert one.fix.startswith("gpuinfra ssh s gpu-3 'sudo python3 /opt/gpuinfra/current/node.pyz steps --again")


def test_replaced_driver_is_a_difference_with_both_versions() -> None:
    """A driver that differs from the recorded version is named with both versions."""
    found = differences(evidence(1), evidence(2, lambda d: d["probes"]["driver-version"].update(
        stdout=d["probes"]["driver-version"]["stdout"].replace(DRIVER, "580.200.01"))))  # fmt: skip
    assert {one.name for one in found} == {"gpu-2"}
    assert any("D1" in one.what and "580.200.01" in one.found and DRIVER in one.recorded for one in found)


def test_a_driver_that_was_installed_in_this_boot_is_not_drift() -> None:
    """A new node on plain Ubuntu can need no reboot. D7 then warns until its first reboot, and nothing has changed since the deployment."""

    def installed_now(document: dict[str, Any]) -> None:
        document["state"]["recorded"]["driver_boot"] = document["probes"]["boot-id"]["stdout"].strip()

    assert differences(evidence(1, installed_now)) == []


def test_hardware_fault_is_not_drift() -> None:
    """A node with a broken GPU has no difference, because `verify` reports it."""
    broken = EvidenceDocument(where="", sha256="", document=documented("i-1", "ecc-uncorrected"), name="gpu-1")
    broken.document["state"]["recorded"].update(RECORDED)
    judged = judge_all(FoundEvidence(newest=(broken,), about=""), lambda one: EXPECTED)
    assert not judged[0].verified
    assert list(of_nodes(judged, (), COMMANDS)) == []


@pytest.mark.parametrize(
    ("outcome", "instance", "fix"),
    [
        ("no evidence", "i-1", "gpuinfra ssh s gpu-9 'sudo systemctl start gpuinfra-recheck.service'"),
        ("refused", "i-1", COMMANDS.restore),
        ("not launched", "", COMMANDS.restore),
    ],
)
def test_node_without_evidence_is_a_difference(outcome: str, instance: str, fix: str) -> None:
    """Old evidence, evidence of another bundle and a missing node are differences with a command."""
    absent = Absent(name="gpu-9", instance_id=instance, outcome=outcome, reason="why", hint="what to do")
    (one,) = differences(absent=(absent,))
    assert (one.kind, one.reason, one.fix) == (outcome, "why; what to do", fix)


def test_cloud_differences_name_resource_property_and_values() -> None:
    """Each changed property and each deleted resource is one difference; skipped types have none."""
    values = (
        DriftedProperty(path="tags.owner", recorded='"a"', found='"b"'),
        DriftedProperty(path="acl", recorded='"x"', found=None),
    )
    changes = [
        CloudChange(type="aws:s3/bucket:Bucket", name="data", id="b-1", deleted=False, properties=values),
        CloudChange(type="aws:kms/key:Key", name="key", id="k-1", deleted=True),
        CloudChange(type="gpuinfra:index:NodesReady", name="nodes", id="n", deleted=False, properties=values),
    ]
    found = list(of_cloud(changes, COMMANDS, except_types=["gpuinfra:index:NodesReady"]))
    assert [(one.name, one.kind, one.what, one.recorded, one.found) for one in found] == [
        ("data", "changed", "tags.owner", '"a"', '"b"'),
        ("data", "changed", "acl", '"x"', ""),
        ("key", "deleted", "aws:kms/key:Key", "k-1", ""),
    ]
    assert ["has a different value" in found[0].reason, "was removed" in found[1].reason] == [True, True]
    assert {one.fix for one in found} == {COMMANDS.restore}


def stacks(resources: list[dict[str, Any]] | Exception) -> Stacks:
    """A stack with this state, or whose state cannot be read."""

    @contextmanager
    def failed(name: str) -> Iterator[Any]:
        raise resources  # pyright: ignore[reportGeneralTypeIssues]
        yield

    return Stacks(
        open=failed if isinstance(resources, Exception) else lambda name: nullcontext(resources),
        up="pulumi up --stack {stack}",
        restore="pulumi up --refresh --stack {stack}",
        project=lambda name: Path(),
    )


def chosen(given: dict[str, Any], resources: list[dict[str, Any]] | Exception) -> Stacks:
    """Take the options of a command and return this stack."""
    del given["rehearsal"], given["folder"]
    return stacks(resources)


STATE = [{"type": "aws:s3/bucket:Bucket", "custom": True}]
CHANGE = CloudChange(type="aws:kms/key:Key", name="key", id="k-1", deleted=True)
UNREAD = EnvironmentMissing("the cloud cannot be read; log in")


@pytest.mark.parametrize(
    ("changes", "nodes", "code", "complete", "areas"),
    [
        ((), (), 0, True, set()),
        ((CHANGE,), (), 1, True, {"cloud"}),
        ((), (evidence(3, recorded("dcgm", "3.0")),), 1, True, {"node"}),
        ((CHANGE,), (evidence(3, recorded("dcgm", "3.0")),), 1, True, {"cloud", "node"}),
        (UNREAD, (), 3, False, set()),
        ((), PortUnavailable("no credentials"), 3, False, set()),
        (UNREAD, (evidence(3, recorded("dcgm", "3.0")),), 1, False, {"node"}),
        ((CHANGE,), PortUnavailable("no credentials"), 1, False, {"cloud"}),
    ],
)
def test_exit_code_and_json_state_drift_and_what_could_not_be_read(
    monkeypatch: pytest.MonkeyPatch, changes: Any, nodes: Any, code: int, complete: bool, areas: set[str]
) -> None:
    """0 without drift, 1 with drift, 3 if a part could not be read and the rest has no drift."""

    def refreshed(*_: object) -> Any:
        if isinstance(changes, Exception):
            raise changes
        return changes

    def found(_: object) -> Any:
        if isinstance(nodes, Exception):
            raise nodes
        return FoundEvidence(newest=nodes, about=""), {one.instance_id: EXPECTED for one in nodes}

    monkeypatch.setattr(refresh, "preview_refresh", refreshed)
    monkeypatch.setattr(store, "found_of", found)
    monkeypatch.setattr("gpuinfra.engine.find_engine", lambda _: None)
    monkeypatch.setattr("gpuinfra.cli.options.stacks_of", lambda given: chosen(given, STATE))
    done = CliRunner().invoke(cli.command, ["aws-p4d", "--json"], standalone_mode=False)
    assert done.return_value == code, done.output
    document = json.loads(done.output)
    assert (document["schema"], document["stack"]) == ("gpuinfra.drift/1", "aws-p4d")
    assert (document["drift"], document["complete"]) == (code == 1, complete)
    assert {one["area"] for one in document["differences"]} == areas
    assert all(one["fix"] for one in document["differences"])
    text = CliRunner().invoke(cli.command, ["aws-p4d"], standalone_mode=False)
    assert text.return_value == code
    assert ("not compared: " in text.output) == (not complete)
    assert ("to fix" in text.output) == bool(areas)


@pytest.mark.parametrize(
    ("resources", "message"), [([], "run `pulumi up --stack aws-p4d` first"), (DeploymentError("log in"), "log in")]
)
def test_unreadable_state_is_not_the_absence_of_drift(
    monkeypatch: pytest.MonkeyPatch, resources: Any, message: str
) -> None:
    """A stack without resources and an unreadable state end with exit code 3."""
    monkeypatch.setattr("gpuinfra.engine.find_engine", lambda _: None)
    monkeypatch.setattr("gpuinfra.cli.options.stacks_of", lambda given: chosen(given, resources))
    done = CliRunner().invoke(cli.command, ["aws-p4d"], standalone_mode=False)
    assert isinstance(done.exception, EnvironmentMissing)
    assert message in str(done.exception)
    assert done.exception.exit_code == 3
