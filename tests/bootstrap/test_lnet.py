"""The commands that configure Lustre over EFA."""

from __future__ import annotations

import subprocess

from gpuinfra.base.shipped import shipped

STEPS = shipped("bootstrap")
RUN = r"""
set -euo pipefail
. "$STEPS/lib-lnet.sh"
load_module() { echo "load $1"; }
changed() { :; }
spread_devices() { printf '%s\n' rdmap0 rdmap1; }
lnetctl() { [[ $2 == show ]] || echo "$*"; }
configure_lnet eth0
"""


def test_lnet_is_configured_in_the_order_of_the_guide() -> None:
    """The modules are loaded, TCP and each EFA device become networks, peers are discovered, and EFA is preferred
    (https://docs.aws.amazon.com/fsx/latest/LustreGuide/configure-efa-clients.html, retrieved 2026-11-28)."""
    done = subprocess.run(
        ["bash", "-c", RUN],
        env={"PATH": "/usr/bin:/bin", "STEPS": str(STEPS)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "load kefalnd",
        "lnet configure",
        "net add --net tcp --if eth0",
        "net add --net efa --if rdmap0 --peer-credits 32",
        "net add --net efa --if rdmap1 --peer-credits 32",
        "set discovery 1",
        "udsp add --src efa --priority 0",
    ]
