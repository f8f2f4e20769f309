"""The pipelines in docs/guides/ci: schemas and security linters of others, scripts, commands, and a run of the plan job."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuinfra.base.shipped import shipped
from tests.test_docs_blocks import check_gpuinfra

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
GITHUB, GITLAB = (
    ROOT / "docs" / "guides" / "ci" / "github-actions.yml",
    ROOT / "docs" / "guides" / "ci" / "gitlab-ci.yml",
)
LOGIN = re.compile(r"^ +- name: Log in to the cloud\n(?: {8}.*\n)+", flags=re.MULTILINE)


def _read(path: Path) -> dict[Any, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _scripts() -> Iterator[tuple[str, str]]:
    """Name and script of each job step on GitHub, and of each job on GitLab."""
    for name, job in _read(GITHUB)["jobs"].items():
        for number, step in enumerate(job["steps"]):
            if "run" in step:
                yield f"github-{name}-{number}", step["run"]
    for name, job in _read(GITLAB).items():
        parts = (
            [job.get(part, []) for part in ("before_script", "script", "after_script")] if isinstance(job, dict) else []
        )
        if lines := [line for part in parts for line in part]:
            yield f"gitlab-{name}", "\n".join(lines) + "\n"


SCRIPTS = dict(_scripts())


def _of_plan(provider: str) -> str:
    """The line of the plan job that writes the comment."""
    found = [
        line for name, text in SCRIPTS.items() if name.startswith(f"{provider}-plan") for line in text.splitlines()
    ]
    (line,) = [line for line in found if line.startswith("gpuinfra plan")]
    return line


def _logins() -> list[str]:
    """The login steps: that of the file, and those on the page."""
    blocks = re.findall(
        r"```yaml\n(- name: Log in to the cloud\n.*?)```", (ROOT / "docs" / "guides" / "ci.md").read_text(), re.DOTALL
    )
    assert len(blocks) == 2
    return ["", *blocks]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--builtin-schema", "vendor.github-workflows", GITHUB],
        ["--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci", GITLAB],
    ],
    ids=["github", "gitlab"],
)
def test_pipelines_are_valid(arguments: list[str | Path]) -> None:
    """Each file validates against the published schema of its service."""
    done = subprocess.run([BIN / "check-jsonschema", *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("login", _logins(), ids=["aws", "azure", "gcp"])
def test_workflow_has_no_security_findings(tmp_path: Path, login: str) -> None:
    """zizmor finds no excessive permission, no unpinned action and no other weakness, with the login step of each cloud."""
    text = GITHUB.read_text(encoding="utf-8")
    if login:
        indented = "".join(f"      {line}\n" for line in login.splitlines())
        text, count = LOGIN.subn(lambda _: indented, text)
        assert count == 2
    workflow = tmp_path / ".github" / "workflows" / "gpuinfra.yml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text(text, encoding="utf-8")
    command = [BIN / "zizmor", "--offline", "--pedantic", "--format", "json", workflow]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout, done.stderr
    assert [(one["ident"], one["desc"]) for one in json.loads(done.stdout)] == []
    assert done.returncode == 0


def test_only_jobs_that_log_in_request_a_token() -> None:
    """A job can request a token of the pipeline only if it logs in to the cloud, and no job can write to the repository."""
    for name, job in _read(GITHUB)["jobs"].items():
        logs_in = any("Log in" in step.get("name", "") for step in job["steps"])
        assert ("id-token" in job["permissions"]) == logs_in, name
        assert job["permissions"]["contents"] == "read"
        assert not logs_in or name == "inspect" or "head.repo.full_name == github.repository" in job["if"]
    for name, job in _read(GITLAB).items():
        if name in ("plan", "comment", "rehearse"):
            assert "extends" not in job
            assert "id_tokens" not in job


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_have_no_findings(name: str) -> None:
    """ShellCheck finds nothing in a script."""
    shell = "bash" if name.startswith("github") else "sh"
    command = [BIN / "shellcheck", f"--shell={shell}", "--exclude=SC2155", "-"]
    done = subprocess.run(command, input=SCRIPTS[name], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_commands_of_the_pipelines_exist() -> None:
    """Each `gpuinfra` command in a pipeline exists with its options, and each job of the page is in both files."""
    lines = [line for text in SCRIPTS.values() for line in text.splitlines() if line.startswith("gpuinfra ")]
    assert {shlex.split(line)[1] for line in lines} == {"plan", "drift", "ready"}
    for line in lines:
        check_gpuinfra(shlex.split(line.split(">")[0])[1:])
    assert {"plan", "rehearse", "preview", "inspect"} == set(_read(GITHUB)["jobs"])
    assert {"plan", "rehearse", "preview", "drift", "ready"} <= set(_read(GITLAB))


def test_state_of_the_example_is_in_another_region_than_the_cluster() -> None:
    """The state backend of the examples survives a failure of the region of the cluster."""
    for values in (_read(GITHUB)["env"], _read(GITLAB)["variables"]):
        assert values["AWS_REGION"] not in values["BACKEND"]


@pytest.mark.parametrize(
    ("provider", "base"),
    [("github", "BASE"), pytest.param("gitlab", "CI_MERGE_REQUEST_DIFF_BASE_SHA", marks=pytest.mark.long)],
)
def test_the_plan_job_writes_the_comment(tmp_path: Path, provider: str, base: str) -> None:
    """The script of the job compares with the base commit; if the change is wrong, it fails, and the comment has the finding."""

    def git(*words: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", *words]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    stack = tmp_path / "stacks" / "Pulumi.aws-p4d.yaml"
    stack.parent.mkdir()
    before = (shipped("stacks") / stack.name).read_text()
    (tmp_path / "Pulumi.yaml").write_text("name: gpuinfra\nruntime: python\nmain: stacks/\nstackConfigDir: stacks\n")
    stack.write_text(before)
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "first")
    environment = {
        **os.environ,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "STACK": "aws-p4d",
        base: git("rev-parse", "HEAD"),
    }

    def run() -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-e", "-c", _of_plan(provider)],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        return done.returncode, (tmp_path / "comment.md").read_text()

    stack.write_text(re.sub(r"count: \d+", "count: 8", before, count=1))
    code, comment = run()
    assert code == 0
    assert "USD" in comment
    stack.write_text(before.replace("p4d.24xlarge", "p4d.99xlarge", 1))
    code, comment = run()
    assert code == 1
    assert "p4d.99xlarge" in comment


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_program_has_a_secret_in_its_arguments(name: str) -> None:
    """Every user of a machine can read the arguments of a program. Secrets are in the environment, in files, or in the input of a program."""
    commands = re.split(r"\n|[|;&]+", SCRIPTS[name].replace("\\\n", " "))
    secret = re.compile(r"\$\{?\w*(TOKEN|SECRET|PASSWORD|PASSPHRASE|_KEY)\b")
    words = [command.split() for command in commands if command.strip()]
    builtins = ("printf", "echo", "test", "[", "[[", "export", "if", "!")
    assert [line for line in words if line[0] not in builtins and any(secret.search(word) for word in line)] == []
