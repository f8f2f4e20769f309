"""`node.pyz secrets`: the secrets of the receivers of alerts become files that only the user of Alertmanager can read."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import pytest

from gpuinfra.node import cloud, secrets
from gpuinfra.node.cloud import CloudError
from gpuinfra.node.console import OK, MissingPrerequisite

URL = "https://hooks.example.com/x"


class Parameters:
    """A cloud with parameters."""

    def __init__(self, **values: str) -> None:
        self._values = values

    def secret(self, name: str) -> str:
        if name not in self._values:
            raise CloudError(f"parameter {name} could not be read: 400 ParameterNotFound")
        return self._values[name]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the unit, and the list of one secret."""
    folder = tmp_path / "run"
    folder.mkdir()
    (tmp_path / "secrets.json").write_text(json.dumps({"slack-0": "url"}))
    monkeypatch.setattr(secrets, "load", lambda path, *_: json.loads(Path(path).read_text()) if path.name == "secrets.json" else {})  # fmt: skip
    return folder


def run(folder: Path, store: object, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the command with a cloud."""
    monkeypatch.setattr(cloud, "of", lambda node: store)
    return secrets.secrets(argparse.Namespace(), folder.parent / "secrets.json", folder)


def test_a_secret_is_replaced_and_can_be_read_only_by_its_owner(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has the value without a line break at its end and mode 0400. A later run replaces it, also after a run that was killed."""
    assert run(written, Parameters(url=f"{URL}\n"), monkeypatch) == OK
    file = written / "slack-0"
    assert (file.read_text(), file.stat().st_mode & 0o777) == (URL, 0o400)
    (written / "slack-0.new").write_text("half of a very long value that a killed run left")
    assert run(written, Parameters(url="https://new.example.com"), monkeypatch) == OK
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("https://new.example.com", 0o400)
    assert [path.name for path in written.iterdir()] == ["slack-0"]


def test_the_owner_of_a_linked_file_does_not_change(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user of the unit can replace the file with a link at any time. root changes only the owner of the file that it wrote."""
    target = tmp_path / "target"
    target.write_text("not a secret")
    changed: list[int] = []

    def swapped(file: int | str, uid: int, gid: int) -> None:
        draft = written / "slack-0.new"
        draft.unlink()
        draft.symlink_to(target)
        changed.append(os.stat(file).st_ino)  # noqa: PTH116 (a path or an open file)

    for function in ("chown", "fchown"):
        monkeypatch.setattr(os, function, swapped)
    assert run(written, Parameters(url=URL), monkeypatch) == OK
    assert len(changed) == 1
    assert target.stat().st_ino not in changed


def test_a_missing_secret_names_the_receiver_and_the_field(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message states the receiver, the cause and what to change, and an earlier value stays."""
    (written / "slack-0").write_text(URL)
    with pytest.raises(MissingPrerequisite, match=r"the secret of slack-0: parameter url .* correct monitoring"):
        run(written, Parameters(), monkeypatch)
    assert (written / "slack-0").read_text() == URL


def test_a_cloud_without_secrets_is_refused(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of other clouds cannot read secrets, and the message says so."""
    with pytest.raises(MissingPrerequisite, match="nodes of this cloud cannot read secrets"):
        run(written, object(), monkeypatch)
