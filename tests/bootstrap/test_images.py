"""A container image is pulled once."""

from __future__ import annotations

import subprocess

import pytest

from gpuinfra.base.shipped import shipped

STEPS = shipped("bootstrap")
RUN = r"""
set -euo pipefail
. "$STEPS/lib-images.sh"
would() { return 1; }
changed() { :; }
sign_in() { echo "sign in to $1"; }
rm() { :; }
retry() { shift 2; "$@"; }
docker() {
  case "$1 $2" in
    "image inspect") [[ $3 == --format ]] && echo "registry.example/tool@sha256:abc" || return "$MISSING" ;;
    *) echo "docker ${*:3}" ;;
  esac
}
pull_image registry.example/tool:1
echo "digest $IMAGE_DIGEST"
"""


@pytest.mark.parametrize(
    ("missing", "lines"),
    [("1", ["sign in to registry.example", "docker pull --quiet registry.example/tool:1"]), ("0", [])],
)
def test_only_a_missing_image_is_pulled(missing: str, lines: list[str]) -> None:
    """The step signs in and pulls an image that the node does not have, and reports the digest in both cases."""
    environment = {"PATH": "/usr/bin:/bin", "STEPS": str(STEPS), "MISSING": missing}
    done = subprocess.run(["bash", "-c", RUN], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [*lines, "digest sha256:abc"]
