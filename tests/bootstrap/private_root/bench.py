"""The vendors and one machine, for tests that run the real steps on real apt."""

from __future__ import annotations

import difflib
import os
from datetime import date
from pathlib import Path

from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import PoolPlan
from gpuinfra.spec import parse_spec

from .root import PrivateRoot, base
from .vendors import Vendors

TODAY = date(2026, 11, 21)
KERNEL = "6.8.0-1040-aws"
GOLDEN = Path(__file__).parents[1] / "golden"


PLACES = {
    "aws": {"cloud": "aws", "region": "us-east-1", "zone": "use1-az4"},
    "azure": {"cloud": "azure", "region": "eastus"},
    "gcp": {"cloud": "gcp", "region": "us-central1", "zone": "us-central1-a"},
}


def pool_of(
    machine: str, os_name: str, *, lustre: bool = True, cloud: str = "aws", containers: tuple[str, ...] = ()
) -> PoolPlan:
    """One pool on plain Ubuntu, where every step installs."""
    software: dict[str, object] = {"image": "plain", "os": os_name, "containers": list(containers)}
    if cloud == "gcp":
        software["registry"] = "us-central1-docker.pkg.dev/my-project/gpudirect"
    declared = {
        "name": "train",
        "where": PLACES[cloud],
        "software": software,
        "pools": [{"name": "gpu", "machine": machine, "capacity": [{"kind": "spot", "count": 1}]}],
    }
    if lustre:
        tier = {"aws": 250, "azure": 250, "gcp": 500}[cloud]
        storage = {"kind": "lustre", "mount": "/scratch", "capacity_gib": 36000, "throughput_mb_s_per_tib": tier}
        declared["storage"] = [storage]
    return build_plan(parse_spec(declared), TODAY).pools[0]


class Bench:
    """The vendors and one machine."""

    def __init__(self, folder: Path, vendors: Vendors) -> None:
        self.folder = folder
        self.vendors = vendors
        self.base = base()

    def machine(
        self,
        machine: str = "p4d.24xlarge",
        os_name: str = "ubuntu-22.04",
        *,
        kernel: str = KERNEL,
        kernels: tuple[str, ...] = (KERNEL,),
        lustre: bool = True,
        cloud: str = "aws",
        containers: tuple[str, ...] = (),
        lock: dict[str, str] | None = None,
        **published: object,
    ) -> PrivateRoot:
        """A freshly booted machine."""
        self.pool = pool_of(machine, os_name, lustre=lustre, cloud=cloud, containers=containers)
        self.versions = self.vendors.publish(lock or self.pool.versions, kernels, **published)  # type: ignore[arg-type]
        root = PrivateRoot(self.folder / "machine", self.base, self.vendors.url.partition("://")[2])
        root.prepare(self.pool, self.versions, kernel=kernel, ubuntu_ring=self.vendors.keys["ubuntu"].ring)
        self.vendors.asked.clear()
        return root


def compare(name: str, text: str, url: str) -> None:
    """Compare with a golden file; GPUINFRA_WRITE_GOLDEN=1 writes it."""
    text = text.replace(url, "http://MIRROR")
    path = GOLDEN / name
    if os.environ.get("GPUINFRA_WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    wanted = path.read_text(encoding="utf-8")
    # A message, because pytest explains assertions in test files only.
    difference = "\n".join(
        difflib.unified_diff(wanted.splitlines(), text.splitlines(), "golden", "actual", lineterm="")
    )
    assert text == wanted, f"{name}:\n{difference}"
