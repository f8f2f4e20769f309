"""The health endpoint for rolling updates."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.node import evidence, health
from tests.node.healthy import JOURNAL, P4D, healthy

BOOT = "0a0a0a0a-0000-4000-8000-000000000001"
NODE = {"cloud": "azure", "bundle": {"sha256": "b" * 64}}


def made(bundle: str = "b" * 64, **probes: Any) -> dict[str, Any]:
    """Evidence of one verification."""
    return evidence.make(
        node={**NODE, "bundle": {"sha256": bundle}}, expectation=P4D, journal=JOURNAL, probes={**healthy(), **probes},
        instance_id="i", boot_id=BOOT, seq=1, previous=None, started="", finished="", host_keys=[],
    )  # fmt: skip


def test_only_a_verified_boot_with_the_current_bundle_is_healthy() -> None:
    """An older bundle, another boot or missing evidence is `Unknown`, so the node is neither repaired nor is the update continued."""
    assert health.state(NODE, P4D, made(), BOOT) == "Healthy"
    assert health.state(NODE, P4D, made(bundle="c" * 64), BOOT) == "Unknown"
    assert health.state(NODE, P4D, made(), "another boot") == "Unknown"
    assert health.state(NODE, P4D, None, BOOT) == "Unknown"
    assert health.state(NODE, None, made(), BOOT) == "Unknown"
    assert health.state({}, P4D, made(), BOOT) == "Unknown"


def test_failed_checks_are_unhealthy() -> None:
    """A missing check counts as failed, and invalid content is not healthy."""
    broken = made(**{"nvidia-smi-xml": {**healthy()["nvidia-smi-xml"], "stdout": "No devices were found", "exit": 6}})
    assert health.state(NODE, P4D, broken, BOOT) == "Unhealthy"
    assert health.state(NODE, P4D, {**made(), "checks": []}, BOOT) == "Unhealthy"
    assert health.state(NODE, P4D, {**made(), "checks": ["?"]}, BOOT) == "Unhealthy"


def test_it_serves_http_until_terminated(tmp_path: Path) -> None:
    """The body has the format of Azure's extension; other paths are not found."""
    address = f"127.84.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"  # the port is fixed, and another run of the tests uses it
    (tmp_path / "node.json").write_text(json.dumps(NODE))
    code = (
        f"from pathlib import Path; from gpuinfra.node import health; health.serve(Path({str(tmp_path / 'node.json')!r}), "
        f"Path({str(tmp_path)!r}), '{address}')"
    )
    process = subprocess.Popen([sys.executable, "-c", code], env={})
    try:
        url = f"http://{address}:{health.PORT}{health.PATH}"
        until = time.monotonic() + 300
        while True:
            try:
                with urllib.request.urlopen(url, timeout=300) as answer:
                    output = json.load(answer)
                break
            except OSError:
                assert time.monotonic() < until, "nothing answers"
                assert process.poll() is None
                time.sleep(0.1)
        assert output == {"ApplicationHealthState": "Unknown"}
        with pytest.raises(urllib.error.HTTPError, match="404") as caught:
            urllib.request.urlopen(url + "z", timeout=300)
        caught.value.close()
    finally:
        process.terminate()
    assert process.wait(300) == 0
