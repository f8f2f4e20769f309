"""Golden plans: what a declaration leads to, as JSON, compared line by line.

`python -m tests.plan.goldens` writes them again; the difference is then read like any other change.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.report.plan_json import plain
from gpuinfra.spec import parse_spec, read_stack
from gpuinfra.spec.load import stack_name
from tests.rules.cases import (
    AMLFS,
    FILESTORE,
    FSX,
    TODAY,
    Case,
    block,
    declaration,
    existing,
    lustre,
    pool,
    reserved,
)

FOLDER = Path(__file__).with_name("golden")
STACKS = Path(__file__).parents[2] / "stacks"

CASES: dict[str, Case] = {
    "aws-three-pools": (
        "aws",
        {
            "pools": [
                pool("login", "m7i.xlarge", 1),
                pool("gpu", "p5.48xlarge", 16, "spot"),
                {**pool("big", "p4d.24xlarge", 4), "zone": "use1-az6", "capacity": [*reserved(overflow=True)]},
            ],
            "storage": [*lustre(), *lustre(mount="/data", bucket="my-data")],
            "tags": {"team": "research", "cost": "42"},
        },
    ),
    "aws-b300-block": ("aws", {"where.region": "us-west-2", "where.zone": "usw2-az2", "pools.0.machine": "p6-b300.48xlarge", "pools.0.capacity": block(count=8)}),
    "aws-no-egress": ("aws", {"network.egress": "endpoints", "storage": lustre(bucket="auto")}),
    "aws-plain": ("aws", {"software.image": "plain"}),
    "azure-spot-nc": ("azure", {"pools.0.machine": "Standard_NC96ads_A100_v4", "pools.0.capacity": [{"kind": "on_demand", "count": 601}, {"kind": "spot", "count": 2}]}),
    "gcp-a3ultra-flex": ("gcp", {"pools.0.machine": "a3-ultragpu-8g", "pools.0.capacity": [{"kind": "flex", "count": 4, "max_run_hours": 24}], "storage": lustre(capacity_gib=18000)}),
    "aws-existing-lustre": existing("aws", FSX),
    "gcp-existing-filestore": existing("gcp", FILESTORE, kind="home", mount="/home"),
    "azure-existing-lustre": existing("azure", AMLFS),
}  # fmt: skip


def plans() -> dict[str, Plan]:
    """Every golden plan by name: the stacks that ship, and the cases above."""
    found = {
        stack_name(path): build_plan(read_stack(path).spec, TODAY) for path in sorted(STACKS.glob("Pulumi.*.yaml"))
    }
    return found | {name: build_plan(parse_spec(declaration(case)), TODAY) for name, case in CASES.items()}


def text(plan: Plan) -> str:
    """A plan as its golden file has it."""
    content: Any = plain(plan)
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def main() -> None:
    """Write every golden file."""
    FOLDER.mkdir(exist_ok=True)
    for stale in FOLDER.glob("*.json"):
        stale.unlink()
    for name, plan in plans().items():
        (FOLDER / f"{name}.json").write_text(text(plan))


if __name__ == "__main__":
    main()
