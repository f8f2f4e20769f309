"""The list of failover scenarios, their recorded results, and the tables in `docs/reference/failover-scenarios.md`."""

from __future__ import annotations

import pytest

from rehearsal.tests.failover_scenarios import PAGE, REGIONS, SCENARIOS, recorded, table
from rehearsal.tests.scenarios import page

CLOUDS = [cloud for cloud in REGIONS if any(name.startswith(cloud) for name in recorded())]


@pytest.mark.parametrize("cloud", CLOUDS)
def test_each_scenario_has_a_result(cloud: str) -> None:
    """At least 16 scenarios of a cloud are recorded, with the exit code, the nodes and the active region of the list, and nothing is left over."""
    results = {name: found for name, found in recorded().items() if name.startswith(f"{cloud}: ")}
    assert list(results) == [name for name in SCENARIOS if name in results]
    assert len(results) >= 16
    for name, found in results.items():
        one = SCENARIOS[name]
        nodes = " / ".join(map(str, one.nodes))
        shown = (found["code"], found["after"], found["active"], found["left_over"])
        assert shown == (one.code, nodes, REGIONS[cloud][one.active], 0), one.name


def test_a_node_runs_at_each_moment() -> None:
    """Only `--stop-first`, and the abort that undoes it, have a time without nodes."""
    for name, found in recorded().items():
        if found["fewest"] == 0:
            assert SCENARIOS[name].stops, name
            assert "stop first" in SCENARIOS[name].title, name


@pytest.mark.parametrize("cloud", CLOUDS)
def test_each_next_command_is_run(cloud: str) -> None:
    """One of the commands that a scenario prints is run by a scenario of the cloud."""
    rows = {name: found for name, found in recorded().items() if name.startswith(f"{cloud}: ")}
    ran = [found["ran"] for found in rows.values()]
    for name, found in rows.items():
        assert not found["next"] or any(each.startswith(command) for command in found["next"] for each in ran), name


def test_the_page_has_the_results() -> None:
    """The tables on the page are generated from the results. `python -m rehearsal.tests.failover_scenarios` writes them."""
    text = PAGE.read_text(encoding="utf-8")
    assert page(text, table()) == text
