"""The stacks that a command operates on: deployed or rehearsed stacks. The commands do not distinguish between the two."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from gpuinfra.base.errors import DeploymentError, EnvironmentMissing, UsageError
from gpuinfra.base.json_text import parsed
from gpuinfra.base.safe_text import one_line
from gpuinfra.base.stack_files import known_stacks, project_folder, stack_argument, stack_name
from gpuinfra.cli.rehearsals import DEFAULT_FOLDER, required

Resources = Sequence[Mapping[str, Any]]
BACKEND_TIMEOUT_S = 15.0
"""Time limit for the question about the state backend, which the Pulumi CLI can send over the network."""
NO_PROJECT = "pass the fully qualified "
"""Part of the messages of the CLI for the name of a stack outside a project (pkg/backend/diy/store.go and pkg/backend/httpstate/backend.go
of Pulumi v3.259.0)."""
IN_PROJECT = "run the command in the folder of the Pulumi project, or specify the path of the stack file in it"


class NoStack(DeploymentError):
    """The state backend has no stack with this name."""


@dataclass(frozen=True, kw_only=True)
class Stacks:
    """The stacks that a command operates on."""

    open: Callable[[str], AbstractContextManager[Resources]]
    """Opens a stack by name and returns the resources in its state. The cloud and the nodes are reachable until the context is closed."""
    up: str
    """The command that deploys a stack, with `{stack}` as the placeholder for its name."""
    restore: str
    """The commands that read the cloud again and restore what was changed, with `{stack}` as the placeholder."""
    project: Callable[[str], Path]
    """Returns the folder that contains a stack's Pulumi project. See `project_of`."""
    open_cloud: Callable[[str], AbstractContextManager[Resources]] | None = None
    """Like `open`, but only the cloud is reachable. None if `open` does not start nodes."""
    options: str = ""
    """The options that select these stacks in other commands, with a leading space."""
    notice: str = ""
    """A line to print above every output."""
    marks: Mapping[str, object] = field(default_factory=dict)
    """Fields to add to every JSON document."""
    records: Path | None = None
    """Folder for the records of bootstrap runs. None selects the user's state folder."""
    hosts_files: bool = True
    """Whether `--hosts` and `--evidence` can replace the stack."""
    lasting: bool = True
    """Whether the nodes are reachable after the command ends."""
    backend: Callable[[str], str] = lambda name: ""
    """Returns the URL of the state backend of a stack, or an empty string if it is unknown."""
    other: Sequence[str] = ()
    """What else you can do if the state has no nodes or cannot be read, such as `specify --hosts FILE`."""
    named: Callable[[str], str] = lambda name: short_name(name)
    """Returns what replaces the placeholder in `up` and `restore` in the current folder."""

    def to_deploy(self, name: str) -> str:
        """Return the command that deploys a stack."""
        return self.up.format(stack=self.named(name))

    def to_restore(self, name: str) -> str:
        """Return the commands that read the cloud again and restore what was changed."""
        return self.restore.format(stack=self.named(name))


def stacks_of(given: dict[str, Any]) -> Stacks:
    """Take the options of a command and return the stacks that they select: deployed ones, without `stack_choice`."""
    folder = given.pop("folder", None)
    if not given.pop("rehearsal", False):
        other = [*(["add --rehearsal to use its rehearsal"] if folder else [])]
        other += ["specify --hosts FILE"] if "hosts_file" in given else []
        return Stacks(
            open=lambda name: nullcontext(_required(name, other)),
            up="pulumi up --stack {stack}",
            restore="pulumi up --refresh --stack {stack}",
            project=project_of,
            backend=lambda name: current_backend(project_of(name)),
            other=other,
            named=_for_pulumi,
        )
    rehearsal = required()
    place = "" if folder == DEFAULT_FOLDER else f" --folder {shlex.quote(str(folder))}"
    return Stacks(
        open=lambda name: rehearsal.opened(name, folder),
        open_cloud=lambda name: rehearsal.opened(name, folder, nodes=False),
        up="gpuinfra rehearse up {stack}",
        restore=f"gpuinfra rehearse refresh {{stack}}{place} && gpuinfra rehearse up {{stack}}{place}",
        project=lambda name: (folder / short_name(name) / "project").resolve(),
        options=f" --rehearsal{place}",
        named=as_argument,
        notice="rehearsal: these are stand-in nodes on this machine",
        marks={"rehearsal": True},
        records=folder,
        hosts_files=False,
        lasting=False,
    )


def _required(name: str, other: Sequence[str]) -> list[dict[str, Any]]:
    """Like `exported`, for a command that requires the state. Raises `EnvironmentMissing` if it cannot be read, because a login is a prerequisite."""
    try:
        return exported(name, other, project=project_of(name))
    except DeploymentError as problem:
        raise EnvironmentMissing(str(problem)) from None


def project_of(stack: str | Path) -> Path:
    """Return the folder of the Pulumi project of a stack: that of its file for a path, otherwise that of the current folder.

    Outside a project, it is the current folder.
    """
    return project_folder(Path(stack).absolute().parent) or Path.cwd()


def as_argument(stack: str | Path) -> str:
    """Return how a `gpuinfra` command in the current folder names a stack: by its name, or by the path of its file if the name does not find the file."""
    return shlex.quote(stack_argument(Path(stack)))


def _for_pulumi(name: str) -> str:
    """Return how a `pulumi` command in the current folder names a stack."""
    project, short = project_of(name), short_name(name)
    return short if project == project_of(short) else f"{short} --cwd {shlex.quote(str(project))}"


def exported(name: str, other: Sequence[str] = (), *, project: Path | None = None) -> list[dict[str, Any]]:
    """Return the resources of a deployed stack from its state backend. Raises `DeploymentError` if it cannot be read.

    `project` is the folder of the stack's Pulumi project, in which the engine runs. None selects the current folder. Two projects
    can have stacks with the same name. `other` contains what else you can do if the state cannot be read.
    """
    import subprocess

    from gpuinfra.engine import find_engine
    from gpuinfra.engine.up import NO_STACK

    short = short_name(name)
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", short):
        # The engine uses the selected stack if the name is empty or a path.
        raise UsageError(
            f"{name} is not the name of a stack or the path of a stack file; specify a stack, such as aws-p4d"
        )
    engine = find_engine(lambda line: click.echo(line, err=True))
    words = [str(engine.path), "stack", "export", "--stack", short, "--non-interactive"]
    done = subprocess.run(words, cwd=project, env=engine.environ(), capture_output=True, text=True, errors="replace", check=False)  # fmt: skip
    if done.returncode != 0:
        reason = one_line((done.stderr.strip() or "no error message").splitlines()[-1]).removeprefix("error: ")
        login = "log in to the state backend (`pulumi login`) and deploy the stack"
        fixes = [IN_PROJECT if NO_PROJECT in reason else login, *other]
        text = f"`pulumi stack export` failed for {name}: {reason}; {_meant(short)}{', or '.join(fixes)}"
        raise NoStack(text) if NO_STACK in done.stderr else DeploymentError(text)
    try:
        resources = parsed(done.stdout)["deployment"].get("resources") or []
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DeploymentError(
            f"`pulumi stack export` printed a document in an unknown format for {name}; update Pulumi"
        ) from None
    return [one for one in resources if isinstance(one, dict)]


def _meant(short: str) -> str:
    """Return a question if the name is close to the name of a stack file. A stack in the state does not need a stack file."""
    from gpuinfra.spec.messages import nearest

    names = list(known_stacks())
    near = None if short in names else nearest(short, names)
    return f"did you mean {near}? otherwise, " if near else ""


def current_backend(project: Path | None = None) -> str:
    """Return the URL of the state backend that the engine uses in the folder of a project, or an empty string if the engine does not return it.

    None selects the current folder. A project can declare its own backend, which replaces that of the last login.
    """
    import subprocess

    from gpuinfra.engine import find_engine

    try:
        engine = find_engine(may_build=False)
        words = [str(engine.path), "whoami", "--json", "--non-interactive", "--color=never"]
        done = subprocess.run(
            words,
            cwd=project,
            env=engine.environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=BACKEND_TIMEOUT_S,
            check=False,
        )
        return str(parsed(done.stdout).get("url") or "")
    except (EnvironmentMissing, OSError, subprocess.TimeoutExpired, ValueError, AttributeError):
        return ""


def short_name(name: str) -> str:
    """Return the short name of a stack: `aws-p4d` for `stacks/Pulumi.aws-p4d.yaml`, and `dev.eu` for `dev.eu`."""
    return stack_name(Path(name))
