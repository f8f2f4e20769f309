"""`gpuinfra bootstrap` and `gpuinfra verify` over SSH on stand-in nodes: the real bundle, steps, units and checks."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.remote.connect import Connector
from gpuinfra.remote.deliver import Bootstrap, BootstrapResult, DryRun
from gpuinfra.remote.fleet import HostFleet
from gpuinfra.remote.hosts import Host
from gpuinfra.remote.known import KnownHosts
from gpuinfra.remote.problem import ProblemKind
from gpuinfra.remote.verify import Verify
from gpuinfra.rules import load_stack
from gpuinfra.verification.judged import judge_all
from gpuinfra.verification.over_ssh import found_of
from rehearsal.tests.nodes.conftest import Nodes
from rehearsal.tests.nodes.test_ssh_ports import key_of
from rehearsal.tests.nodes.test_steps import STACK
from tests.remote.servers import needed

pytestmark = needed()
NAME = "i-00000000000000001"


@pytest.fixture(scope="module")
def plan() -> Plan:
    """The plan of the shipped stack."""
    today = date(2026, 11, 21)
    return build_plan(load_stack("aws-p4d", today).spec, today)


@pytest.fixture
def node(nodes: Nodes) -> tuple[Nodes, Host]:
    """A stand-in node without user data, as its operator reaches it."""
    nodes.launch(cloud="aws")
    return nodes, host_of(nodes)


def host_of(nodes: Nodes, name: str = NAME) -> Host:
    """A host with the host keys that the node puts into its evidence."""
    keys = sorted(nodes.host._nodes[name].root.glob("etc/ssh/ssh_host_*_key.pub"))
    return Host(
        name=name,
        address="127.0.0.1",
        port=nodes.host.ssh_ports.numbers()[name],
        user="ubuntu",
        identity=(key_of(nodes),),
        sudo=True,
        host_keys=tuple(" ".join(key.read_text().split()[:2]) for key in keys),
    )


def orders(plan: Plan, host: Host) -> dict[str, Any]:
    """The orders of the command."""
    from gpuinfra.cli.bootstrap import _orders

    return _orders(plan, ["gpu"])


def test_real_bundle_is_installed_over_ssh_and_the_node_is_verified(node: tuple[Nodes, Host], plan: Plan) -> None:
    """Bundle, every step under the node's systemd, a second run without changes, and a verification over SSH."""
    there, host = node
    what = orders(plan, host)
    connector = Connector(KnownHosts([]), {})
    dry = HostFleet([host], DryRun(connector, what, lambda _: "gpu")).run().outcomes[0]
    assert dry.value is not None, dry.problem
    assert "gpuinfra" not in there.run("ls /opt")
    stages: list[str] = []
    task = Bootstrap(connector, what, lambda _: "gpu", on_stage=lambda _, stage: stages.append(stage))
    outcome = HostFleet([host], task).run().outcomes[0]
    assert isinstance(outcome.value, BootstrapResult), outcome.problem
    assert outcome.value.steps == len(plan.pools[0].steps)
    assert stages[0].startswith("sending ")
    journal = json.loads(there.run("cat /var/lib/gpuinfra/state.json"))
    assert journal["bundle_sha256"] == what["gpu"].bundle.sha256
    assert {step["status"] for step in journal["steps"]} == {"done"}
    assert there.run("systemctl is-enabled gpuinfra-bootstrap.service") == "enabled"
    again = HostFleet([host], Bootstrap(connector, what, lambda _: "gpu")).run().outcomes[0]
    assert again.value is not None
    assert again.value.already

    expected = plan.pools[0].expectation
    seen = HostFleet([host], Verify(connector, lambda _: expected)).run()
    connector.close()
    found = found_of(seen.outcomes, {host.name: ("gpu", expected)})
    assert found.absent == ()
    judged = judge_all(found, lambda _: expected)[0]
    # A node without user data has no shared file system; every other check passes.
    assert {str(check["id"]) for check in judged.blockers} <= {"L1"}
    assert len([check for check in judged.checks if check["outcome"] == "pass"]) > 30


def test_fault_of_a_node_is_found_over_ssh(nodes: Nodes, plan: Plan) -> None:
    """Evidence that is collected over SSH shows the fault."""
    nodes.launch(cloud="aws", faults=("gpu-missing",))
    host, expected = host_of(nodes), plan.pools[0].expectation
    connector = Connector(KnownHosts([]), {})
    seen = HostFleet([host], Verify(connector, lambda _: expected, phases=["presence"])).run()
    connector.close()
    judged = judge_all(found_of(seen.outcomes, {host.name: ("gpu", expected)}), lambda _: expected)[0]
    assert not judged.verified
    assert "G1" in {str(check["id"]) for check in judged.checks if check["outcome"] == "fail"}


def test_node_with_an_untrusted_host_key_is_absent(node: tuple[Nodes, Host], plan: Plan, tmp_path: Path) -> None:
    """Without a trusted host key, a stand-in node is refused and listed as absent."""
    _, host = node
    stranger = Host(**{**host.__dict__, "host_keys": ()})
    expected = plan.pools[0].expectation
    connector = Connector(KnownHosts([]), {})
    seen = HostFleet([stranger], Verify(connector, lambda _: expected)).run()
    connector.close()
    absent = found_of(seen.outcomes, {host.name: ("gpu", expected)}).absent[0]
    assert absent.outcome == ProblemKind.HOST_KEY_UNKNOWN.value
    assert absent.gpus == 8


@pytest.mark.long
def test_bootstrap_waits_for_a_reboot(nodes: Nodes, tmp_path: Path) -> None:
    """The node reboots into the requested kernel under its systemd, and the same run follows it to the end."""
    today = date(2026, 11, 21)
    file = tmp_path / "Pulumi.plain.yaml"
    file.write_text(STACK.format(software="{os: ubuntu-22.04, image: plain, kernel: 6.8.0-1044-aws}"))
    plan = build_plan(load_stack(str(file), today).spec, today)
    nodes.launch(cloud="aws", os="ubuntu-22.04", prebuilt=False)
    host = host_of(nodes)
    stages: list[str] = []
    connector = Connector(KnownHosts([]), {})
    task = Bootstrap(connector, orders(plan, host), lambda _: "gpu", on_stage=lambda _, stage: stages.append(stage))
    outcome = HostFleet([host], task, tries=20).run().outcomes[0]
    connector.close()
    assert isinstance(outcome.value, BootstrapResult), (outcome.problem, stages, nodes.host.console(NAME)[-3000:])
    assert nodes.host._nodes[NAME].boots >= 2
    assert nodes.run("uname -r") == "6.8.0-1044-aws"
