"""Brings one node of each machine type of a cloud to verified, on a stand-in node without an engine."""

from __future__ import annotations

import json
from dataclasses import replace

from gpuinfra_rehearsal.nodes import NodeHost
from rehearsal.tests.nodes.machines import Machine
from tests.plan.pools import planned

IMAGES = ("default", "plain")
WARNINGS = {"B8", "D7"}
"""B8 warns on a node that measured no other node yet. D7 warns after an installation: the driver was not seen to survive a reboot yet."""


def becomes_verified(host: NodeHost, cloud: str, machine: str, image: str) -> None:
    """Run all steps over all reboots, then all required checks."""
    pool = planned(cloud, machine, image)
    node = Machine(host, replace(pool))
    node.launch(cloud, file_systems=())
    code, said, _ = node.through()
    assert code == 0, said
    is_verified(node)


def is_verified(node: Machine) -> None:
    """All required checks run and pass, or are skipped with a listed reason."""
    pool = node.pool
    code, said = node.run("python3", "/opt/gpuinfra/current/node.pyz", "verify", "--json")
    start = said.index("{")
    outcomes = {one["id"]: one for one in json.loads(said[start : said.rindex("}") + 1])["checks"]}
    missing = set(pool.expectation["required"]) - set(outcomes)
    assert not missing, missing
    skips = pool.expectation["skips"]
    wrong = {
        name: f"{one['outcome']}: {one['reason']}"
        for name, one in outcomes.items()
        if one["outcome"] not in ("pass", *(["skip"] if name in skips else []), *(["warn"] if name in WARNINGS else []))
    }
    assert not wrong, wrong
    assert code == 0, said
