from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .servers import Lab


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A user key without an SSH agent, and a folder for servers."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    made = Lab(tmp_path)
    yield made
    made.close()
