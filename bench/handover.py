"""Measures the polls of the handover for a large fleet: `python bench/handover.py [NODES] [BOOTS] [CLOUD...]`. Default: 4,000 nodes, 20 boots, all clouds.

The evidence store and the identity service are `handover_tools/evidence_server.py`, in a separate process over loopback.
The members are in memory. The figures are the CPU
seconds of the handover with its processes, its peak memory, and its requests: for the first poll, for a poll of an unchanged fleet, and for a poll while one
node has not reported. They are compared with judging alone, and with one list of the whole prefix, which each poll of an earlier version requested. The
figures depend on the machine, so the script has no pass criteria. The targets are 60 s and 1 GiB for the first poll, and 2 s for an unchanged poll.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "bench" / "handover_tools"
sys.path[:0] = [str(ROOT), str(TOOLS)]

import evidence_server as fleet  # noqa: E402  # pyright: ignore[reportMissingImports]

from gpuinfra.clouds.aws.handover import ports as aws  # noqa: E402
from gpuinfra.clouds.azure.handover import ports as azure  # noqa: E402
from gpuinfra.clouds.azure.handover.attested import ROOTS_VARIABLE, Trust  # noqa: E402
from gpuinfra.clouds.azure.rest import Rest  # noqa: E402
from gpuinfra.clouds.gcp.handover import ports as gcp  # noqa: E402
from gpuinfra.clouds.gcp.handover.identity import GoogleIdentity  # noqa: E402
from gpuinfra.handover.examine import judge_node  # noqa: E402
from gpuinfra.handover.gather import Gatherer  # noqa: E402
from gpuinfra.handover.ports import GroupExpected, Member, PoolExpected, Ports  # noqa: E402
from tests.clouds.azure import azure_authority  # noqa: E402
from tests.clouds.gcp.handover import test_identity as test_gcp_identity  # noqa: E402
from tests.node.healthy import JOURNAL, P4D, healthy  # noqa: E402

CONTAINER = "https://account.blob.core.windows.net/evidence"


class Members:
    """A group whose members are in memory."""

    def __init__(self, cloud: str, nodes: int) -> None:
        launched = fleet.NEWEST - timedelta(days=30)
        self.held = [Member(instance_id=fleet.instance(cloud, n), group="g", launched=launched) for n in range(1, nodes + 1)]  # fmt: skip

    def members(self, groups: object) -> list[Member]:
        return self.held


def ports(cloud: str, address: str, members: Members, folder: Path, prefix: str = fleet.PREFIX) -> Ports:
    """Return the ports of a cloud, with the server as their evidence store and identity service."""
    store: Any
    identity: Any
    if cloud == "aws":
        os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_ENDPOINT_URL_S3=address)
        client = aws._client(aws._session("us-east-1", "", "", ""), "s3")
        store = aws.S3Evidence(client, "evidence", prefix)
        sts = SimpleNamespace(meta=SimpleNamespace(endpoint_url=address), get_caller_identity=lambda: {"Account": "000000000000"})  # fmt: skip
        identity = aws.StsIdentity(sts)
    elif cloud == "azure":
        token = SimpleNamespace(token="t", expires_on=time.time() + 3600)
        credential: Any = SimpleNamespace(get_token=lambda *_: token)
        rest = Rest(credential, {"AZURE_STORAGE_SERVICE_ENDPOINT": address})
        store = azure.BlobEvidence(rest, CONTAINER, prefix)
        trust = Trust({ROOTS_VARIABLE: str(folder / "roots.pem")})
        identity = azure.AttestedIdentity(trust, lambda: {azure_authority.SUBSCRIPTION}, lambda: azure_authority.NOW)
    else:
        import requests

        store = gcp.StorageEvidence(gcp.Client(requests.Session()), address, "evidence", prefix)
        keys = json.loads((folder / "keys.json").read_text())
        identity = GoogleIdentity(lambda: keys, lambda: {"standin-project"}, clock=lambda: test_gcp_identity.NOW)
    return Ports(membership=members, store=store, identity=identity, console=SimpleNamespace())  # type: ignore[arg-type]


def used() -> float:
    """Return the CPU seconds of this process and of its ended processes."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in spent)


def peak_mib() -> tuple[float, float]:
    """Return the peak memory of this process, and of the largest of its ended processes."""
    return tuple(resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))  # type: ignore[return-value]


def measure(cloud: str, nodes: int, address: str, folder: Path) -> None:
    """Print the figures of one cloud."""
    members = Members(cloud, nodes)
    four = ports(cloud, address, members, folder)
    group = GroupExpected(name="gpu", group="g", count=nodes)
    role = {"aws": fleet.ROLE, "azure": "", "gcp": test_gcp_identity.NODE}[cloud]
    pool = PoolExpected(
        cloud=cloud,
        name="gpu", machine="p4d.24xlarge", groups=(group,), expectation=P4D, bundle_sha256=fleet.BUNDLE, node_role=role,
        evidence_owner=fleet.owner(cloud),
    )  # fmt: skip

    def timed(work: Callable[[], object]) -> tuple[float, float, str, Any]:
        cpu, start = used(), time.perf_counter()
        result = work()
        spent = used() - cpu, time.perf_counter() - start
        with urllib.request.urlopen(f"{address}/counts") as answer:
            counts: dict[str, int] = json.load(answer)
        return *spent, f"{sum(counts.values())} requests: {', '.join(f'{v} {k}' for k, v in counts.items()) or 'none'}", result  # fmt: skip

    probes, sample = healthy(), min(nodes, 100)
    judged, *_ = timed(lambda: [judge_node(probes, P4D, JOURNAL) for _ in range(sample)])
    judged *= nodes / sample
    gatherer = Gatherer(four, [pool], judge_node=judge_node)
    cpu, wall, counts, verdict = timed(gatherer.poll)
    own, largest = peak_mib()
    cores = len(os.sched_getaffinity(0))
    assert verdict.verified == nodes, verdict.nodes[0]
    print(
        f"{cloud}: first poll      {cpu:6.1f} s CPU, {wall:.1f} s, {cpu / judged:.2f} times judging alone ({judged:.1f} s CPU); {counts}"
    )
    print(
        f"{cloud}: peak memory     {own:6.0f} MiB, and {largest:.0f} MiB for each of at most {cores} judging processes"
    )
    cpu, wall, counts, verdict = timed(lambda: gatherer.poll(verdict.names))
    above = ports(cloud, address, members, folder, "evidence").store
    full, full_wall, full_counts, _ = timed(lambda: list(above.list("train")))
    print(f"{cloud}: unchanged poll  {cpu:6.2f} s CPU, {wall:.2f} s, {cpu / full:.2f} times the whole list; {counts}")
    members.held = [*members.held, Member(instance_id=fleet.instance(cloud, nodes + 1), group="g")]
    cpu, wall, counts, verdict = timed(lambda: gatherer.poll(verdict.names))
    print(f"{cloud}: one node open   {cpu:6.2f} s CPU, {wall:.2f} s; {counts}")
    print(f"{cloud}: the whole list  {full:6.2f} s CPU, {full_wall:.2f} s; {full_counts}")


def main() -> None:
    """Start a server for each cloud, and measure the cloud in a process of its own, so that peak memory is per cloud."""
    nodes, boots = int(sys.argv[1]) if len(sys.argv) > 1 else 4000, int(sys.argv[2]) if len(sys.argv) > 2 else 20
    print(f"{nodes} nodes with {boots} boots, evidence of {len(fleet.Fleet('aws', 1, 1).template) / 1024:.0f} KiB per boot", flush=True)  # fmt: skip
    for cloud in sys.argv[3:] or ["aws", "azure", "gcp"]:
        with tempfile.TemporaryDirectory() as folder:
            command = [
                sys.executable,
                str(TOOLS / "evidence_server.py"),
                cloud,
                str(nodes),
                str(boots),
                folder,
            ]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
                assert server.stdin is not None
                assert server.stdout is not None
                address = f"http://127.0.0.1:{server.stdout.readline().strip()}"
                subprocess.run([sys.executable, __file__, "--measure", cloud, str(nodes), address, folder], check=True)
                server.stdin.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2], int(sys.argv[3]), sys.argv[4], Path(sys.argv[5]))
    else:
        main()
