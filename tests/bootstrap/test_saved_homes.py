"""Local homes are copied to the shared file system once, even if two nodes copy the same home at the same time."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuinfra.base.shipped import shipped

SCRIPT = shipped("bootstrap") / "62-home.sh"
RUN = r"""
set -euo pipefail
dry_run() { return 1; }
changed() { :; }
eval "$(grep -vE '^(main|\.) ' "$SCRIPT")"
. "${SCRIPT%/*}/lib-mounts.sh"
saved_homes() { printf '%s\n' "$SAVED"; }
cp() { command cp "$@" && mkdir -p "$SHARED/ubuntu" && echo theirs >"$SHARED/ubuntu/file"; }
mv() { command mv "$@"; ! compgen -G "$SHARED/.gpuinfra-*" >/dev/null || return "$SKIPPED"; }
restore_local_homes "$SHARED"
"""
"""Another node creates the home while this node copies it. `mv` returns SKIPPED if it skipped the target."""


@pytest.mark.parametrize("skipped", [0, 1], ids=["coreutils 8.32 and 9.5", "coreutils 9.2 to 9.4"])
def test_the_home_of_another_node_is_kept(tmp_path: Path, skipped: int) -> None:
    """The step continues, the other node's files stay, and no copy is left over."""
    saved, shared = tmp_path / "saved", tmp_path / "shared"
    (saved / "ubuntu").mkdir(parents=True)
    (saved / "ubuntu" / "file").write_text("ours\n")
    shared.mkdir()
    environment = {
        "PATH": "/usr/bin:/bin", "SCRIPT": str(SCRIPT), "SAVED": str(saved), "SHARED": str(shared), "SKIPPED": str(skipped)
    }  # fmt: skip
    done = subprocess.run(["bash", "-c", RUN], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in shared.iterdir()] == ["ubuntu"]
    assert (shared / "ubuntu" / "file").read_text() == "theirs\n"
    assert not saved.exists()
