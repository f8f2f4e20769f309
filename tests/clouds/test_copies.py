"""Functions that the cloud folders repeat."""

from __future__ import annotations

import ast
import difflib
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

CLOUDS = Path(__file__).parents[2] / "gpuinfra" / "clouds"
LIMIT = 0.6
"""Largest share of equal tokens that two functions of the same name may have."""
SMALLEST = 30
"""Shorter functions, in tokens, are alike by nature: a property that returns one field."""
CONSTRUCTORS = "it only passes arguments to the constructors of its own SDK or its own components, whose names happen to be the same"
ALLOWED: dict[str, str] = {
    "Builder._bucket": CONSTRUCTORS,
    "Builder._network": CONSTRUCTORS,
    "Builder._second_region": CONSTRUCTORS,
    "Builder.cluster": CONSTRUCTORS,
    "Builder.foundation": CONSTRUCTORS,
    "Evidence.__init__": CONSTRUCTORS,
    "Foundation.__init__": CONSTRUCTORS,
    "NodePool.__init__": CONSTRUCTORS,
    "NodePool._create": CONSTRUCTORS,
    "RegionClone._key": CONSTRUCTORS,
    "RegionClone._replica": CONSTRUCTORS,
    "Scope.bucket_name": "the name has the account on AWS and the project on Google Cloud; a shared function would take one more argument than it has lines",
    "Scope.of": "each SDK has its own call for the account, subscription or project",
    "data_disk": CONSTRUCTORS,
    "_lustre": "one call of the shared `planned.retained_subnets` with the lookup of the cloud",
    "_quotas": "one call of the shared `second_region.quota_totals`; the unit, the command and the treatment of unknown quotas differ",
    "schedules_in": "one loop over the state; the type, the output and the mark of a schedule differ",
    "networks": "the condition for a network of one's own differs; the rest is one call of the shared `inside`",
}
"""Function name -> why the clouds keep a version each although the versions are alike."""


def _functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, list[str]]]:
    """Qualified name and tokens of each function below a node, without docstrings and signatures."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.FunctionDef):
            body = [
                line for line in child.body if not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
            ]
            yield prefix + child.name, re.findall(r"\w+|[^\w\s]", "\n".join(map(ast.unparse, body)))


def _alike() -> dict[str, float]:
    """Name of each function that two clouds share, with the largest share of equal tokens."""
    found: dict[str, list[tuple[str, list[str]]]] = defaultdict(list)
    for cloud in sorted(path.name for path in CLOUDS.iterdir() if (path / "profile.py").exists()):
        for file in sorted((CLOUDS / cloud).rglob("*.py")):
            for name, tokens in _functions(ast.parse(file.read_text(encoding="utf-8"))):
                if len(tokens) >= SMALLEST:
                    found[name].append((cloud, tokens))
    alike: dict[str, float] = {}
    for name, versions in found.items():
        for (first, one), (second, other) in itertools.combinations(versions, 2):
            share = difflib.SequenceMatcher(None, one, other, autojunk=False).ratio() if first != second else 0.0
            if share > max(LIMIT, alike.get(name, 0.0)):
                alike[name] = share
    return alike


def test_clouds_do_not_copy_functions() -> None:
    """Two clouds have no function of the same name that is more than 60 percent identical, unless the reason is listed here."""
    alike = _alike()
    copies = {name: f"{share:.0%}" for name, share in alike.items() if name not in ALLOWED}
    assert not copies, copies
    assert not set(ALLOWED) - set(alike), "listed as alike, but no longer alike"
