"""The step that writes declared files, with real files."""

from __future__ import annotations

import getpass
import grp
import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from gpuinfra.base.shipped import shipped

from .conftest import Node

ID = "92-files"
USER, GROUP = getpass.getuser(), grp.getgrgid(os.getgid()).gr_name


@pytest.fixture(autouse=True)
def root(node: Node) -> None:
    """The step sees the user ID of root, also if an unprivileged user runs the tests."""
    lib = node.bundle / "bootstrap/lib.sh"
    lib.write_text(lib.read_text(encoding="utf-8").replace("((EUID == 0))", "true"), encoding="utf-8")


def declare(node: Node, *files: tuple[Path, str, str], owner: str = USER, group: str = GROUP) -> None:
    """Add the step with these files (path, content, mode), as `bundle.build` does."""
    (node.bundle / "files").mkdir(exist_ok=True)
    lines = ""
    for number, (path, content, mode) in enumerate(files):
        digest = hashlib.sha256(content.encode()).hexdigest()
        (node.bundle / "files" / digest).write_text(content, encoding="utf-8")
        lines += f"NODE_FILE_{number}='{digest} {mode} {owner} {group} {path}'\n"
    (node.bundle / "versions.env").write_text(lines, encoding="utf-8")
    shutil.copy(shipped("bootstrap") / f"{ID}.sh", node.bundle / "bootstrap")
    node.steps = [{"id": ID, "file": f"bootstrap/{ID}.sh", "timeout_s": 300, "retries": 0}]
    content = json.dumps({"schema": "gpuinfra.steps/1", "steps": node.steps})
    (node.bundle / "steps.json").write_text(content, encoding="utf-8")


def shown(path: Path) -> tuple[str, int]:
    """The content and the permissions of a file."""
    return path.read_text(encoding="utf-8"), path.stat().st_mode & 0o7777


def test_files_are_written_and_changed(node: Node, tmp_path: Path) -> None:
    """A file has exactly its content and mode in new folders, a second run changes nothing, and a change of content or mode replaces it."""
    first, second = tmp_path / "etc/new/a.conf", tmp_path / "b"
    declare(node, (first, "no newline at the end", "0600"), (second, "b\n\n", "0755"))
    code, said = node.run("--dry-run")
    assert f"would write {first}" in said
    assert not first.exists()
    code, said = node.run()
    assert code == 0, said
    assert "2 declared files are written" in said
    assert (shown(first), shown(second)) == (("no newline at the end", 0o600), ("b\n\n", 0o755))
    assert first.parent.stat().st_mode & 0o777 == 0o755
    code, said = node.run("--again")
    assert "none made changes" in said, said

    second.chmod(0o700)
    (first.parent / ".gpuinfra-abcdef").write_text("of a run that was killed")
    declare(node, (first, "changed", "0640"), (second, "b\n\n", "0755"))
    code, said = node.run()
    assert code == 0, said
    assert (shown(first), shown(second)) == (("changed", 0o640), ("b\n\n", 0o755))
    assert sorted(one.name for one in first.parent.iterdir()) == ["a.conf"]


def test_a_link_is_replaced(node: Node, tmp_path: Path) -> None:
    """The step replaces a link to a file and does not write to its target. A link to a folder, such as /lib, stays and is the reason."""
    for number, (content, mode) in enumerate((("mine", "0644"), ("declared", "0777"))):  # links have the mode 0777
        target, path = tmp_path / f"target-{number}", tmp_path / f"link-{number}"
        target.write_text(content, encoding="utf-8")
        path.symlink_to(target)
        declare(node, (path, "declared", mode))
        code, said = node.run()
        assert code == 0, said
        assert (path.is_symlink(), path.read_text(), target.read_text()) == (False, "declared", content)

    (tmp_path / "folder").mkdir()
    (tmp_path / "lib").symlink_to("folder")
    declare(node, (tmp_path / "lib", "declared", "0644"))
    code, said = node.run()
    assert code == 1, said
    assert f"{tmp_path}/lib is a folder on this node" in str(node.status(ID)["reason"]), said
    assert (tmp_path / "lib").is_symlink()


def test_systemd_reads_changed_files(node: Node, tmp_path: Path) -> None:
    """After a file in /etc/systemd changes, the step reloads systemd once. Other files, unchanged files and a dry run cause no reload."""
    calls, tools, systemd = tmp_path / "calls", tmp_path / "tools", tmp_path / "systemd"
    tools.mkdir()
    (tools / "systemctl").write_text(f'#!/bin/sh\necho "$@" >>{calls}\n', encoding="utf-8")
    (tools / "systemctl").chmod(0o755)
    calls.touch()
    node.environment["PATH"] = f"{tools}:{os.environ['PATH']}"

    def run(*options: str, content: str = "[Manager]\n") -> str:
        files = [(systemd / f"system.conf.d/{name}.conf", content, "0644") for name in "ab"]
        declare(node, *files, (tmp_path / "other", content, "0644"))
        step = node.bundle / f"bootstrap/{ID}.sh"
        step.write_text(step.read_text(encoding="utf-8").replace("/etc/systemd", str(systemd)), encoding="utf-8")
        code, said = node.run(*options)
        assert code == 0, said
        made = calls.read_text(encoding="utf-8")
        calls.write_text("", encoding="utf-8")
        return made

    assert run("--dry-run") == ""
    assert run() == "daemon-reload\n"
    assert run("--again") == ""
    assert run(content="[Manager]\nDefaultEnvironment=A=1\n") == "daemon-reload\n"
    (tmp_path / "other").write_text("", encoding="utf-8")
    assert run("--again", content="[Manager]\nDefaultEnvironment=A=1\n") == ""


def test_a_file_that_cannot_be_written_is_the_reason(node: Node, tmp_path: Path) -> None:
    """A missing owner or group, or a path that is a folder or below a file, fails the step with one reason."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    for path, accounts, reason in (
        (tmp_path / "a", {"owner": "nobody-here"}, "belongs to user nobody-here, who does not exist on this node"),
        (tmp_path / "a", {"group": "nobody-here"}, "belongs to group nobody-here, which does not exist on this node"),
        (tmp_path, {}, f"{tmp_path} is a folder on this node"),
        (tmp_path / "file/a", {}, f"cannot create the folder {tmp_path}/file"),
    ):
        declare(node, (path, "x", "0644"), **accounts)
        code, said = node.run()
        assert code == 1, said
        assert reason in str(node.status(ID)["reason"]), said
        assert "software.files" in said
