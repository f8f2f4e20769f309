"""The variables that the steps of the fabrics set."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from gpuinfra.software import tables

BOOTSTRAP = Path(__file__).parents[2] / "bootstrap"
FOLDERS = {"PATH", "LD_LIBRARY_PATH"}
"""The declaration rejects these variables on every machine."""


def exported(step: str) -> set[str]:
    """The variables that a step writes to a profile or to `nccl.conf`."""
    text = (BOOTSTRAP / f"50-{step}.sh").read_text(encoding="utf-8")
    lines = [
        line for line in text.splitlines() if "export " in line or re.match(r"NCCL_\w+=", line) or "'NCCL_" in line
    ]
    named = {name for line in lines for name in re.findall(r"\b([A-Za-z_]*[A-Z]\w+)=", line)}
    return named | {name for line in lines for name in re.findall(r"export ([A-Z_]+) ", line)}


@pytest.mark.parametrize("provider", tables.FABRIC_VARIABLES)
def test_the_table_lists_each_variable_of_a_step(provider: str) -> None:
    """A declaration that replaces a variable of a fabric's step causes a warning, so the table lists all of them."""
    found = exported(provider) - FOLDERS
    assert found
    patterns = tables.FABRIC_VARIABLES[provider].split()
    assert {name for name in found if not any(fnmatchcase(name, pattern) for pattern in patterns)} == set()


def test_every_provider_has_both_tables() -> None:
    """The tables have the same providers, and no variable is in both."""
    assert set(tables.FABRIC_VARIABLES) == set(tables.NETWORK_VARIABLES)
    for provider, names in tables.NETWORK_VARIABLES.items():
        assert not set(names.split()) & set(tables.FABRIC_VARIABLES[provider].split())
