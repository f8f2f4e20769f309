"""The files of a state backend in a local folder after a kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuinfra.base.errors import DeploymentError
from gpuinfra.engine.state_files import drop_truncated_attributes, restore_state


def test_a_truncated_state_is_restored(tmp_path: Path) -> None:
    """The backup replaces a state file that a kill truncated, once."""
    state = tmp_path / "aws-p4d.json"
    (tmp_path / "aws-p4d.json.bak").write_text('{"checkpoint": {"latest": {"resources": []}}}', encoding="utf-8")
    for broken in ("", '{"checkpoint": {"latest"'):
        state.write_text(broken, encoding="utf-8")
        assert restore_state(state)
        assert "resources" in state.read_text(encoding="utf-8")
    assert not restore_state(state)


def test_a_truncated_state_without_a_backup_is_an_error(tmp_path: Path) -> None:
    """Without a complete file the message names the file and what to do."""
    state = tmp_path / "aws-p4d.json"
    state.write_text("", encoding="utf-8")
    with pytest.raises(DeploymentError, match="both truncated"):
        restore_state(state)


def test_truncated_attributes_are_removed(tmp_path: Path) -> None:
    """The backend rejects a file with unreadable attributes and accepts a file without any."""
    folder = tmp_path / ".pulumi" / "stacks"
    folder.mkdir(parents=True)
    complete, truncated = folder / "a.json.attrs", folder / "b.json.attrs"
    complete.write_text('{"user.content_type": "application/json"}', encoding="utf-8")
    truncated.touch()
    assert drop_truncated_attributes(tmp_path) == 1
    assert complete.exists()
    assert not truncated.exists()
