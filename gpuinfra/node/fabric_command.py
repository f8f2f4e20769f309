"""`node.pyz fabric`: the nodes of a pool find each other in a shared folder, measure pairs, and find the slow node or path.

`fabric.py` defines the protocol, and `fabric_run.py` runs it. In the handover, `fabric_service.py` takes part in a test that the operator's command runs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any, Mapping

from . import fabric, fabric_run
from .checks.speed import known_floor
from .console import NODE, NOT_VERIFIED, OK, WRONG_USE, MissingPrerequisite, load, optional, print_message
from .expectation import Machine

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")


class FabricFolder:
    """A folder that all nodes mount, for example on Lustre."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(self, key: str, data: bytes) -> bool:
        """Write a file once. The link makes the complete file visible and fails if the name exists."""
        target = self.path / key
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(prefix=".part-", dir=str(target.parent))
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.link(part, target)
        except FileExistsError:
            return False
        finally:
            os.unlink(part)
        return True

    def get(self, key: str) -> bytes | None:
        """Return a file, up to the size limit, or None."""
        try:
            with open(self.path / key, "rb") as file:
                return file.read(fabric.MAX_BYTES)
        except FileNotFoundError:
            return None

    def list(self, prefix: str) -> list[str]:
        """Return all files below a folder."""
        keys = []
        for folder, _, names in os.walk(self.path / prefix):
            inner = Path(folder).relative_to(self.path).as_posix()
            keys += ["%s/%s" % (inner, name) for name in names if not name.startswith(".part-")]
        return keys


def fabric_command(args: argparse.Namespace) -> int:
    """Take part in the fabric test, and print the verdict as one JSON object."""
    expectation = load(
        args.expectation, "the bundle's expectation", "start gpuinfra-bootstrap, or set --expectation FILE"
    )
    problem = _problem(args, expectation)
    if problem:
        print_message(problem)
        return WRONG_USE
    node = optional(NODE) or {}
    name = args.name or _own_name(node)
    if not _NAME.match(name):
        raise MissingPrerequisite(
            "the name of this node is %r; set --name to letters, digits, dots and dashes" % name[:80]
        )
    settings = fabric.Settings(
        name=name,
        incarnation=fabric_run.incarnation(),
        nodes=args.nodes,
        join_s=args.join,
        round_s=fabric_run.round_s(),
    )
    try:
        folder = args.store / _session(node, args.run_name)
        size = ("--gib", str(args.gib)) if args.gib else ()
        options = (*size, "--rounds", str(args.rounds), "--expectation", str(args.expectation.absolute()))
        place = {"store": str(folder / "pairs")}
        plan, _ = fabric_run.take_part(
            settings,
            FabricFolder(folder),
            lambda step: fabric_run.measured(name, step, expectation, place, options),
        )
    except OSError as error:
        raise MissingPrerequisite("the folder %s cannot be used: %s" % (args.store, error)) from None
    if name not in plan.members and name not in plan.absent:
        raise MissingPrerequisite("the fabric test %s ended before this node joined; start another one" % args.run_name)
    ruling = dict(plan.verdict or {})
    bad = ruling["slow"] or ruling["slow_paths"] or ruling["unknown"] or plan.absent
    complete = not bad and len(ruling["good"]) >= args.nodes
    shown = {"schema": "gpuinfra.fabric/1", "run": args.run_name, "node": name, "verified": complete}
    print(json.dumps({**shown, "rounds": plan.round, **ruling, "absent": list(plan.absent)}))
    return OK if name in ruling["good"] else NOT_VERIFIED


def _problem(args: argparse.Namespace, expectation: Mapping[str, Any]) -> str:
    """Return what is wrong with the options or the machine, or an empty string."""
    if not expectation.get("fabric_provider"):
        return "%s has no fabric, so there is nothing to measure" % expectation.get("machine")
    if known_floor(Machine(expectation, {}), "B3") is None:
        return (
            "the record of %s has no floor for check B3, so every pair would fail; measure two healthy nodes and add their figure to the record"
            % expectation.get("machine")
        )
    if not _NAME.match(args.run_name):
        return "--run is %r; use letters, digits, dots and dashes" % args.run_name[:80]
    if not 2 <= args.nodes <= fabric.MAX_NODES:
        return "--nodes is %d; it must be between 2 and %d" % (args.nodes, fabric.MAX_NODES)
    if not args.store.is_absolute():
        return "--store is %s; specify the absolute path of a folder that all nodes mount" % args.store
    if not (args.gib is None or 0 < args.gib <= 64) or not 0 < args.rounds <= 10_000 or not 0 < args.join <= 86400:
        return "--gib must be between 0 and 64, --rounds between 1 and 10000, and --join between 0 and 86400"
    return ""


def _own_name(node: dict[str, Any]) -> str:
    from .verify import instance_id

    return instance_id(node)


def _session(node: Mapping[str, Any], run: str) -> str:
    """Return the folder of one test. Nodes of another pool, or with another bundle, do not meet."""
    bundle = node.get("bundle")
    sha256 = bundle.get("sha256") if isinstance(bundle, Mapping) else None
    return "fabric-%s-%s-%s" % (node.get("pool") or "nodes", str(sha256 or "none")[:12], run)
