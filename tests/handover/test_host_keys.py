"""SSH host keys in evidence are parsed before they are trusted."""

from __future__ import annotations

import base64
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuinfra.handover.text import MAX_HOST_KEY, MAX_HOST_KEYS, host_keys, moment
from gpuinfra.handover.wire import TYPE
from gpuinfra.inventory import nodes_of


def blob(kind: str, size: int = 32) -> str:
    """A key of a type, in base64."""
    data = len(kind).to_bytes(4, "big") + kind.encode() + size.to_bytes(4, "big") + b"k" * size
    return base64.b64encode(data).decode()


GOOD = f"ssh-ed25519 {blob('ssh-ed25519')}"
HOSTILE = [
    f"{GOOD}\n@cert-authority * {GOOD}",
    f"@cert-authority * {GOOD}",
    f"@cert-authority {blob('ssh-ed25519')}",
    f"{GOOD}\r\nother {GOOD}",
    f"{GOOD}\x00",
    f"ssh-ed25519\t{blob('ssh-ed25519')}",
    f"ssh-ed25519 {blob('ssh-rsa')}",
    f"ssh-dss {blob('ssh-dss')}",
    f"ssh-ed25519-cert-v01@openssh.com {blob('ssh-ed25519-cert-v01@openssh.com')}",
    "ssh-ed25519 not-base64!",
    "ssh-ed25519 AAAA",
    f"ssh-rsa {blob('ssh-rsa', 20_000)}",
    f"{GOOD} comment",
    "",
    7,
    None,
    [GOOD],
]


@pytest.mark.parametrize("key", HOSTILE)
def test_only_a_type_and_its_key_on_one_line_are_kept(key: object) -> None:
    """A line break, a marker, another type, a comment or a huge key is dropped; a valid key beside it is kept."""
    assert host_keys([key]) == ()
    assert host_keys([key, GOOD]) == (GOOD,)


def test_keys_of_openssh_are_kept(tmp_path: Path) -> None:
    """The keys that `ssh-keygen` writes for each type are kept as they are."""
    made = []
    for kind in ("ed25519", "ecdsa", "rsa"):
        file = tmp_path / kind
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(file)], check=True)
        made.append(" ".join(file.with_suffix(".pub").read_text().split()[:2]))
    assert host_keys(made) == tuple(made)


def test_the_number_of_keys_is_bounded() -> None:
    """A node can list a few keys; the rest are dropped, and so is a value that is no list."""
    assert len(host_keys([GOOD] * 1000)) <= MAX_HOST_KEYS
    assert host_keys(GOOD) == host_keys(None) == host_keys({}) == ()


@pytest.mark.parametrize("key", HOSTILE)
def test_a_state_with_a_hostile_key_gives_none(key: object) -> None:
    """A state that an older version wrote is parsed in the same way."""
    entry = {"instanceId": "i-1", "outcome": "verified", "sshHostKeys": [key]}
    (node,) = nodes_of([{"type": TYPE, "outputs": {"nodes": [entry]}}])
    assert node.host_keys == ()


def test_a_key_without_content_is_dropped() -> None:
    """A blob that holds the type only, or less, is no key; a key of the greatest length is one, and a longer line is not."""
    name = b"ssh-ed25519"
    head = len(name).to_bytes(4, "big") + name
    lines = {size: f"ssh-ed25519 {base64.b64encode(head + bytes(size)).decode()}" for size in (0, 1, 32)}
    assert host_keys(list(lines.values())) == (lines[1], lines[32])
    longest = next(
        line
        for size in range(3100, 2900, -1)
        if len(line := f"ssh-ed25519 {base64.b64encode(head + bytes(size)).decode()}") == MAX_HOST_KEY
    )
    assert host_keys([longest]) == (longest,)
    assert host_keys([longest + "AAAA"]) == ()


def test_moments_have_a_time_zone() -> None:
    """A time without a zone is UTC, a zone is kept, and other text is no time."""
    assert moment("2026-11-22T10:00:00") == datetime(2026, 11, 22, 10, tzinfo=UTC)
    assert moment("2026-11-22T10:00:00+02:00") == datetime(2026, 11, 22, 8, tzinfo=UTC)
    assert moment("yesterday") is None
    assert moment(7) is None
