"""The stage of a node, read from its systemd units and the journal of its steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BOOTSTRAP, VERIFY = "gpuinfra-bootstrap.service", "gpuinfra-verify.service"


def stage_of(root: Path, *, power: str, running: bool, booted: bool) -> tuple[str, str]:
    """Return the stage and the detail, as in `NodeStatus`."""
    if power in ("suspended", "off", "ended"):
        return {"suspended": ("suspended", ""), "off": ("failed", "switched off"), "ended": ("terminated", "")}[power]
    if not running:
        return ("booting", "waiting for a boot slot") if booted else ("pending", "waiting for a boot slot")
    units = _json(root / "run/standin/units.json")
    verify = units.get(VERIFY, {})
    if verify.get("active") == "activating":
        return "checks", ""
    if verify.get("ended"):
        ok = verify.get("result") in ("success", "exit-code") and verify.get("status") in (0, 1)
        return ("reported", "") if ok else ("failed", f"{VERIFY}: {verify.get('result')}")
    bootstrap = units.get(BOOTSTRAP, {})
    journal = _json(root / "var/lib/gpuinfra/state.json")
    for step in journal.get("steps", []):
        if step.get("status") == "failed":  # the checks still run, and the evidence reports the failure
            return f"step {step['id']}", f"failed: {step.get('reason') or 'no reason given'}"
    for step in journal.get("steps", []):
        if step.get("status") in ("running", "reboot"):
            return f"step {step['id']}", "rebooting" if step["status"] == "reboot" else ""
    if bootstrap.get("active") == "activating" or bootstrap.get("ended"):
        return "steps", ""
    if any(name.startswith("cloud-") for name in units):
        return "cloud-init", ""
    return "booting", ""


def _json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
