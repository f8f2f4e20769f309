from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuinfra.base.errors import EnvironmentMissing, UsageError
from gpuinfra.cli.git import file_at


def git(folder: Path, *words: str) -> str:
    """Run git in a folder."""
    name = ["-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *name, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a stack file and a script in one commit, and changes that are not committed."""
    folder = tmp_path / "a project"
    (folder / "stacks/setup").mkdir(parents=True)
    git(folder, "init", "--quiet")
    (folder / "stacks/Pulumi.train.yaml").write_text("old\n")
    (folder / "stacks/setup/tuning.sh").write_text("echo old\n")
    (folder / ".gitattributes").write_text("stacks export-ignore\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    (folder / "stacks/Pulumi.train.yaml").write_text("new\n")
    (folder / "stacks/Pulumi.added.yaml").write_text("new\n")
    git(folder, "add", "stacks/Pulumi.added.yaml")
    return folder


def test_a_file_is_read_from_a_commit_with_its_neighbours(repository: Path) -> None:
    """The content is that of the commit, files next to it are there, and status and index of the repository are the same."""
    before = git(repository, "status", "--porcelain")
    with file_at("HEAD", repository / "stacks/Pulumi.train.yaml") as found:
        assert found.name == "Pulumi.train.yaml"
        assert found.read_text() == "old\n"
        assert (found.parent / "setup/tuning.sh").read_text() == "echo old\n"
        assert not (found.parent / "Pulumi.added.yaml").exists()
    assert not found.exists()
    assert git(repository, "status", "--porcelain") == before


@pytest.mark.parametrize(
    ("reference", "file", "words"),
    [
        ("nope", "Pulumi.train.yaml", "nope is not a stack, a file or a Git reference"),
        ("--help", "Pulumi.train.yaml", "--help is not a stack, a file or a Git reference"),
        ("HEAD:stacks", "Pulumi.train.yaml", "is not a stack, a file or a Git reference"),
        ("HEAD", "Pulumi.added.yaml", "stacks/Pulumi.added.yaml does not exist in HEAD"),
    ],
)
def test_a_reference_or_file_that_does_not_exist_is_one_error(
    repository: Path, reference: str, file: str, words: str
) -> None:
    """An unknown reference, an option, a folder instead of a commit and a file that is not in the commit are named."""
    with pytest.raises(UsageError, match=words), file_at(reference, repository / "stacks" / file):
        pass


def test_outside_of_a_repository_the_error_names_the_file(tmp_path: Path) -> None:
    """A file outside of a repository is refused with the reason of git."""
    file = tmp_path / "Pulumi.train.yaml"
    file.write_text("x\n")
    with pytest.raises(UsageError, match="is not in a Git repository"), file_at("main", file):
        pass


def test_without_git_the_error_says_what_to_install(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing git is a missing prerequisite."""
    monkeypatch.setenv("PATH", str(repository))
    file = repository / "stacks/Pulumi.train.yaml"
    with pytest.raises(EnvironmentMissing, match="git is not installed"), file_at("HEAD", file):
        pass
