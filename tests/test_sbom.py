"""`make sbom` writes one bill of materials per cloud."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.long
def test_bill_of_materials_lists_the_locked_packages(tmp_path: Path) -> None:
    """Each bill of materials contains exactly the packages of the lock file, with version and hashes, and two runs write equal bytes."""
    for folder in ("first", "second"):
        done = subprocess.run(
            ["make", "sbom", f"DIST={tmp_path / folder}"], cwd=ROOT, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr
    for cloud in ("aws", "azure", "gcp"):
        first, second = (tmp_path / folder / f"gpuinfra-{cloud}.cdx.json" for folder in ("first", "second"))
        assert first.read_bytes() == second.read_bytes()
        bill = json.loads(first.read_text(encoding="utf-8"))
        assert bill["bomFormat"] == "CycloneDX"
        assert bill["metadata"]["component"]["name"] == "gpuinfra"
        lock = (ROOT / "requirements" / f"{cloud}.txt").read_text(encoding="utf-8")
        locked = set(re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==([\w.]+)", lock, re.M))
        assert {(one["name"], one["version"]) for one in bill["components"]} == locked
        hashes = {
            entry["content"]
            for one in bill["components"]
            for reference in one["externalReferences"]
            for entry in reference.get("hashes", ())
        }
        assert hashes == set(re.findall(r"--hash=sha256:(\w+)", lock))
