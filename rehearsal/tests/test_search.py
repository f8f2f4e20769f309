"""`gpuinfra up` with the real engine and the stand-in cloud: capacity that is found, missing or refused, and a kill during the search."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.inventory import handovers_of
from gpuinfra_rehearsal.progress import view_for
from gpuinfra_rehearsal.session import Options, Session, open_session

from .conftest import command

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]

CLOUDS = {
    "aws": ("us-east-1", "use1-az4", "m7i.xlarge", "aws:region", "spot", [{"zone": "use1-az6"}]),
    "gcp": ("us-central1", "us-central1-a", "n2-standard-4", "gcp:region", "spot", [{"zone": "us-central1-b"}]),
    "azure": (
        "southcentralus",
        None,
        "Standard_D4s_v5",
        "azure-native:location",
        "spot",
        [{"capacity": {"kind": "on_demand", "count": 1}}],
    ),
}
"""Region, first zone, machine type, region setting, kind of capacity, and alternatives."""


def stack_file(cloud: str, folder: Path) -> Path:
    """Write the smallest stack with an alternative."""
    region, zone, machine, setting, kind, fallback = CLOUDS[cloud]
    access = ", access: {evidence_from: [203.0.113.0/24]}" if cloud == "azure" else ""
    where = f"{{cloud: {cloud}, region: {region}{f', zone: {zone}' if zone else ''}}}"
    pool = f"{{name: gpu, machine: {machine}, capacity: {{kind: {kind}, count: 1}}, fallback: {json.dumps(fallback)}}}"
    path = folder / f"Pulumi.find-{cloud}.yaml"
    path.write_text(
        f"config:\n  {setting}: {region}\n  gpuinfra:cluster: {{name: find, where: {where}, pools: [{pool}]{access}}}\n"
    )
    return path


@dataclass
class Run:
    """A session, and the commands of an operator in it."""

    session: Session
    journal_folder: Path
    deadline: str = ""
    """Deadline of the handover. Default: the deadline of the session."""

    @property
    def file(self) -> Path:
        """The stack file that the commands use."""
        return self.session.folder.stack_file

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command in the project, in its own process group."""
        deadline = {"GPUINFRA_DEADLINE": self.deadline} if self.deadline else {}
        environment = {**self.session.pulumi.env, "XDG_STATE_HOME": str(self.journal_folder), **deadline}
        return subprocess.Popen(
            list(words), cwd=self.session.folder.project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def up(self, *options: str) -> tuple[int, str, str]:
        """Run `gpuinfra up` to its end."""
        process = self.start(*command("up", str(self.file), "--yes", *options))
        out, err = process.communicate(timeout=1200)
        return process.returncode, out, err

    def changes(self) -> list[str]:
        """Return the changes of a plain `pulumi preview`, except the stack."""
        process = self.start(str(self.session.pulumi.path), "preview", "--json", "--stack", self.session.folder.stack)
        out, err = process.communicate(timeout=600)
        assert process.returncode == 0, out + err
        steps = json.loads(out)["steps"]
        return [f"{one['op']} {one['urn'].split('::', 2)[2]}" for one in steps if one["op"] not in ("same", "read")]

    def journal(self) -> dict[str, Any]:
        """Return the journal, or an empty mapping."""
        found = list(self.journal_folder.glob("gpuinfra/up/*.json"))
        return json.loads(found[0].read_text()) if found else {}

    def handovers(self) -> list[dict[str, Any]]:
        """Return the outputs of the handovers in the state."""
        return [dict(one["outputs"]) for one in handovers_of(self.session.pulumi.resources())]

    def groups(self) -> list[str]:
        """Return the types of the groups in the stand-in cloud."""
        kinds = ("autoscaling/group:Group", "InstanceGroupManager", "VirtualMachineScaleSet")
        return [str(one["type"]) for one in self.session.cloud.resources() if str(one["type"]).endswith(kinds)]


@contextlib.contextmanager
def opened(path: Path, folder: Path, fault: str, deadline: str) -> Iterator[Run]:
    """Open a session with this fault."""
    options = Options(stack=str(path), folder=folder / "r", faults=(fault,), deadline=deadline)
    with open_session(options, view_for(io.StringIO())) as session:
        yield Run(session, folder / "state")


@pytest.mark.parametrize("cloud", CLOUDS)
def test_capacity_is_found_after_a_kill(cloud: str, tmp_path: Path) -> None:
    """The first placement has no capacity. After a kill during the second attempt, `--resume` deploys it, and a preview changes nothing."""
    zone = CLOUDS[cloud][1]
    path = stack_file(cloud, tmp_path)
    with opened(path, tmp_path, f"cloud:no-capacity:{zone or 'spot'}", "150s") as run:
        process = run.start(*command("up", str(run.file), "--yes"))
        until = time.monotonic() + 900
        # The first placement has no capacity, so the first node is one of the second attempt. It has not reported yet.
        while not [one for one in run.session.cloud.nodes() if one.get("stage") != "terminated"]:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        code, _, err = run.up()
        assert (code, "add --resume to continue the run" in err) == (2, True), err
        code, out, err = run.up("--resume", "--json")
        assert code == 0, out + err
        document = json.loads(out)
        assert document["ok"]
        assert document["result"].startswith("1 of 1 nodes")
        assert [one["result"] for one in document["attempts"]] == ["no capacity", "ready"]
        assert {row["kind"] for row in document["attempts"][0]["problems"]} == {"stock-out"}
        assert [(one["ended"], one["shortages"]) for one in run.handovers()] == [("ready", [])]
        assert len(run.groups()) == 1
        assert run.changes() == []
        nodes = [one for one in run.session.cloud.nodes() if one.get("stage") != "terminated"]
        assert len(nodes) == 1


@pytest.mark.parametrize("cloud", CLOUDS)
def test_quota_ends_the_search_and_no_capacity_removes_the_groups(cloud: str, tmp_path: Path) -> None:
    """A quota of 0 ends the first attempt with the hint. Without capacity anywhere, no group is left and the stack file is as before."""
    path = stack_file(cloud, tmp_path)
    with opened(path, tmp_path, "cloud:no-quota:gpu", "20s") as run:
        code, out, err = run.up()
        assert code == 1, out + err
        assert "request a higher quota" in err
        assert [one["result"] for one in run.journal()["attempts"]] == ["failed"]
        # The failed creation of the handover kept its outputs. On Azure, the scale set fails, and the handover is not created.
        rows = [row for one in run.handovers() for row in one["shortages"]]
        causes = [(row["pool"], row["group"], row["kind"], row["zone"], row["missing"], row["cause"]) for row in rows]
        assert causes == ([] if cloud == "azure" else [("gpu", "gpu-spot-0", "spot", CLOUDS[cloud][1], 1, "quota")])
        assert [one["ended"] for one in run.handovers()] == ([] if cloud == "azure" else ["stock-out"])
        messages = [row["message"] for row in run.journal()["attempts"][0]["problems"]]
        assert cloud == "azure" or messages == [row["message"] for row in rows]
        assert "Traceback" not in err
    with opened(path, tmp_path, "cloud:no-capacity:gpu", "20s") as run:
        before = run.file.read_text()
        code, out, err = run.up()
        assert code == 1, out + err
        assert "no placement of gpu has capacity" in err
        assert [one["result"] for one in run.journal()["attempts"]] == ["no capacity", "no capacity"]
        assert run.groups() == []
        assert run.file.read_text() == before
        assert [one for one in run.changes() if not one.startswith("create ")] == []
        assert not [one for one in run.session.cloud.nodes() if one.get("stage") != "terminated"]


@pytest.mark.parametrize(("cloud", "choice"), [("aws", "scale_to_zero"), ("gcp", "destroy")])
def test_a_failed_deployment_leaves_no_nodes(cloud: str, choice: str, tmp_path: Path) -> None:
    """After a failure, `scale_to_zero` leaves a stack without nodes whose preview changes nothing in the cloud,
    and `destroy` leaves only retained resources."""
    path = stack_file(cloud, tmp_path)
    path.write_text(path.read_text().replace("name: find,", f"name: find, handover: {{on_failure: {choice}}},"))
    with opened(path, tmp_path, "cloud:no-quota:gpu", "20s") as run:
        code, out, err = run.up()
        assert code == 1, out + err
        assert "request a higher quota" in err
        lines = err.partition("price after the failure")[2].splitlines()
        assert [line.split()[0] for line in lines if line.endswith("(chosen)")] == [choice]
        if choice == "destroy":
            assert run.groups() == []
            assert not [one for one in run.session.cloud.resources() if "network" in str(one["type"]).lower()]
        else:
            assert "count: 0" in run.file.read_text().replace('"', "")
            assert len(run.groups()) == 1
            # Without a ready fleet, the handover is always judged again.
            assert {one.rpartition("::")[2] for one in run.changes()} <= {"find-ready"}, err
        assert not [one for one in run.session.cloud.nodes() if one.get("stage") != "terminated"]
