"""`gpuinfra failover` in a process of its own, whose requests go to a stand-in cloud and whose engine is a script.

Run with the path of a JSON file: `states` (stack -> resources), `stack` (path of the stack file), `region`, `engine` (path of the script)
and `words` (more options). Everything else is the command that users run: steps, journal, lock and requests.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from gpuinfra.cli import main
from gpuinfra.engine.find import Engine
from gpuinfra.handover.judge import FleetVerdict, NodeVerdict

VERIFIED = NodeVerdict(label="gpu-1", cloud="aws", cause=None, instance_id="1", pool="gpu", group="gpu", machine="m", outcome="verified", reason="",
    settled=True)  # fmt: skip


def run(given: dict[str, Any]) -> int:
    """Run the command."""
    folder = Path(given["engine"]).parent
    engine = Engine(path=Path(given["engine"]), version="3.259.0", host_dir=folder, source="path")
    verified = [SimpleNamespace(verdict=FleetVerdict(nodes=(VERIFIED,)))]
    with (
        patch("gpuinfra.cli.ready.readable_stack", lambda *_, **__: nullcontext(given["states"][given["name"]])),
        patch("gpuinfra.cli.failover.exported", lambda name, **_: given["states"][name]),
        patch("gpuinfra.cli.obtaining.exported", lambda name, **_: given["states"][name]),
        patch("gpuinfra.cli.up.exported", lambda name, **_: given["states"][name]),
        patch("gpuinfra.engine.find_engine", lambda *_, **__: engine),
        patch("gpuinfra.verification.store.polled", lambda resources: verified),
        patch("gpuinfra.region.failover.steps.POLL_S", 0.02),
        patch("gpuinfra.clouds.aws.region.exports.SETTLED", timedelta()),
        patch("gpuinfra.clouds.region.reach.PROOF_S", 0.0),
        patch("gpuinfra.clouds.region.reach.BUSY_S", 0.0),
    ):
        return main(["failover", given["stack"], "--to", given["region"], "--yes", "--json", *given["words"]])


if __name__ == "__main__":
    sys.exit(run(json.loads(Path(sys.argv[1]).read_text())))
