"""Finds the rehearsal, which is a distribution of its own (`rehearsal/` in the repository) that imports this one.

The commands know only the protocol in this module. The installed rehearsal implements it and registers itself as an entry point, so no
module of this package imports it. docs/internals/decisions/rehearsal-package.md explains the names and the install commands.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gpuinfra.base.errors import EnvironmentMissing

if TYPE_CHECKING:
    from gpuinfra.clouds.preflight import PreflightQuestion
    from gpuinfra.engine.entries import CacheEntry
    from gpuinfra.report.plan_diff import ResourceChange
    from gpuinfra.spec.load import LoadedStack

DISTRIBUTION = "gpuinfra-rehearsal"
ENTRY_POINTS = "gpuinfra.rehearsal"
"""The group of entry points with which the rehearsal registers its `Rehearsals`."""
LABEL = "+unpublished"
"""The local label of the rehearsal's version. Public package indexes do not accept versions with a local label."""
DEFAULT_FOLDER = Path(".rehearsal")
KIND = "rehearsal"
"""The kind of a rehearsal among the entries of `gpuinfra cache`."""


@dataclass(frozen=True, kw_only=True)
class RehearsalRequest:
    """What `gpuinfra rehearse` is asked to do."""

    action: str
    stack: str
    """Name of the stack, or path of its file."""
    folder: Path
    """Folder with the data of the rehearsals."""
    words: Sequence[str]
    """Command of `rehearse run`, or empty."""
    faults: tuple[str, ...]
    deadline: str | None
    least_privilege: bool
    without_nodes: bool
    on: date | None
    """Date that replaces today, or None."""
    to: str | None
    """Second region of a drill, as declared in `recovery.region`, or None."""
    lag_minutes: int | None
    """Simulated replication lag of a drill in minutes, or None for the time in the plan."""
    as_json: bool


class Rehearsals(Protocol):
    """What the commands need from the rehearsal."""

    def run(self, request: RehearsalRequest) -> int:
        """Rehearse an action of a stack, or run a command in its rehearsal, print the result, and return the exit code."""
        ...

    def opened(
        self, stack: str, folder: Path, *, nodes: bool = True
    ) -> AbstractContextManager[Sequence[Mapping[str, Any]]]:
        """Open a rehearsed stack and return the resources in its state. Its cloud and, with `nodes`, its nodes run until the context is closed."""
        ...

    def entries(self, folder: Path) -> Iterator[CacheEntry]:
        """Yield the rehearsals in a folder."""
        ...

    def size(self, folder: Path) -> int:
        """Return the bytes of the rehearsals in a folder."""
        ...

    def remove(self, entry: CacheEntry) -> bool:
        """Remove a rehearsal. Return False if it is in use."""
        ...

    def questions(self) -> Iterator[PreflightQuestion]:
        """Yield what stand-in nodes require on this machine."""
        ...

    def faults(self, labels: Sequence[str], targets: Sequence[str]) -> Iterator[str]:
        """Yield the values of `--fault` for nodes with these labels, and for the cloud with these pools, kinds and zones."""
        ...

    def resource_changes(self, old: LoadedStack, new: LoadedStack, day: date) -> tuple[ResourceChange, ...]:
        """Return what a deployment of `new` does to the resources of `old`. Raises `Uncomparable` if they cannot be compared."""
        ...


def installed() -> Rehearsals | None:
    """Return the installed rehearsal, or None. Raises `EnvironmentMissing` if it belongs to another version of gpuinfra."""
    from importlib.metadata import entry_points, version  # This import is slow, and most commands do not need it.

    entry = next(iter(entry_points(group=ENTRY_POINTS)), None)
    if entry is None or entry.dist is None:
        return None
    ours, theirs = version("gpuinfra"), entry.dist.version.removesuffix(LABEL)
    if theirs != ours:
        raise EnvironmentMissing(
            f"{DISTRIBUTION} {theirs} is installed, but this is gpuinfra {ours}; run {install_command(ours)}"
        )
    rehearsals: Rehearsals = entry.load()()
    return rehearsals


def required() -> Rehearsals:
    """Return the installed rehearsal. Raises `EnvironmentMissing` with the command that installs it."""
    if (rehearsals := installed()) is None:
        raise EnvironmentMissing(not_installed())
    return rehearsals


def not_installed() -> str:
    """Return the message if the rehearsal is not installed."""
    return f"the rehearsal is not installed; run {install_command()}"


def install_command(version: str | None = None) -> str:
    """Return the command that installs the rehearsal from the clone that this package is part of, or from its wheel file.

    The command contains a path, never only the name of the distribution: on a public index, that name can belong to somebody else.
    `--no-deps` keeps pip from an index too, because the rehearsal requires nothing but gpuinfra.
    """
    clone = Path(__file__).resolve().parents[2] / "rehearsal"
    if (clone / "pyproject.toml").is_file():
        return f"`pip install --no-deps {shlex.quote(str(clone))}`"
    if version is None:
        from importlib.metadata import version as installed_version

        version = installed_version("gpuinfra")
    wheel = f"{DISTRIBUTION.replace('-', '_')}-{version}{LABEL}-py3-none-any.whl"
    return f"`pip install --no-deps FOLDER/{wheel}`, where FOLDER contains this file; `make dist` builds it in a clone"
