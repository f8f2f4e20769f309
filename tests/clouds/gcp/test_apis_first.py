"""In a new project, each API is enabled before anything calls it. Read from the state of a deployed stack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

STATE = Path(__file__).parents[2] / "upgrade" / "0.2.0" / "gcp-a3high.json"
SERVICE = "gcp:projects/service:Service"
STASH = "pulumi:index:Stash"


def _rows() -> list[dict[str, Any]]:
    return list(json.loads(STATE.read_text(encoding="utf-8")))


def _without_apis() -> list[str]:
    """The resources that no enabled API precedes."""
    rows = {str(one["urn"]): one for one in _rows()}
    services = {urn for urn, one in rows.items() if one["type"] == SERVICE}

    def follows(urn: str, seen: set[str]) -> bool:
        if urn in services:
            return True
        seen.add(urn)
        return any(follows(one, seen) for one in rows.get(urn, {}).get("dependencies") or [] if one not in seen)

    made = [urn for urn, one in rows.items() if one["type"].startswith("gcp:") or one["type"] == STASH]
    assert services
    return [urn for urn in made if urn not in services and not follows(urn, set())]


def test_every_resource_waits_for_the_apis() -> None:
    """Each resource, the looked-up image included, depends on the enabled APIs."""
    assert _without_apis() == []


def test_the_budget_waits_for_its_api_and_its_account() -> None:
    """The account and the project number of a budget are used after the APIs are enabled."""
    (budget,) = [one for one in _rows() if one["type"] == "gcp:billing/budget:Budget"]
    for name in ("billingAccount", "budgetFilter"):
        waits = budget["propertyDependencies"][name]
        assert [one for one in waits if one.endswith("billingbudgets")], name
