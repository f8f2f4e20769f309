"""`gpuinfra rehearse drill` of a stack on Azure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpuinfra.base.shipped import shipped
from gpuinfra.clouds.azure.names import storage_account
from gpuinfra_rehearsal.document import report_schema
from gpuinfra_rehearsal.object_stores import pattern_of
from tests.report.validate import violations

from .conftest import Rehearse

ZONE = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/dns/providers/Microsoft.Network/privateDnsZones/example.internal"
FILE = shipped("stacks") / "Pulumi.azure-recovery.yaml"


def azure_stack(folder: Path, mode: str) -> Path:
    """`azure-recovery` with one node, and with this mode."""
    text = FILE.read_text().replace("count: 2", "count: 1").replace("mode: cold", f"mode: {mode}")
    if mode != "cold":
        text = re.sub(r"\n *site_minutes: \d+", "", text)
    path = folder / "Pulumi.recovery.yaml"
    path.write_text(text)
    return path


def container(subscription: str, purpose: str = "scratch-0-eastus2") -> str:
    """The ID of the container of a replica in a subscription."""
    account = storage_account("train", purpose, subscription, "0a1b2c3d")
    group = f"/subscriptions/{subscription}/resourceGroups/train-recovery-eastus2-{subscription[:8]}"
    return f"{group}/providers/Microsoft.Storage/storageAccounts/{account}/blobServices/default/containers/data"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (container("12345678-0000-4000-8000-000000000001"), True),
        (container("12345678-0000-4000-8000-000000000001", "home-0-eastus2"), False),
        ("auto", False),
    ],
)
def test_a_replica_is_found_in_another_subscription(given: str, found: bool) -> None:
    """The ID of the same container in a real subscription matches, and the ID of another container does not."""
    replica = container("00000000-0000-0000-0000-000000000000")
    assert bool(re.fullmatch(pattern_of("azure", replica), given)) is found


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize("mode", ["hot", "pilot-light", "cold"])
def test_a_stack_on_azure_fails_over_within_its_targets(mode: str, rehearse: Rehearse, tmp_path: Path) -> None:
    """In each mode, the nodes in the second region are verified, the newest replicated checkpoint is complete, both targets are met, and the DNS names move."""
    path = azure_stack(tmp_path, mode)
    path.write_text(path.read_text() + f"      names: {{zone: {ZONE}, domain: train.example.internal}}\n")
    done = rehearse("drill", str(path), "--to", "eastus2", "--json")
    assert done.code == 0, done.out + done.err
    drill = done.report["drill"]
    assert violations(done.report, report_schema()) == []
    assert drill["rpo"]["met"]
    assert drill["rto"]["met"]
    states = {one["step"]: one["found"] for one in drill["steps"]}
    assert "--ignore fence" in states["failover: fence"]
    assert "2 replicas detached" in states["failover: replicas"]
    assert "checkpoint 2 of 3" in states["data"]
    assert "login.train.example.internal A 10." in states["failover: names"]
    assert {one["outcome"] for one in done.report["nodes"]} == {"verified"}
