"""Deploys a stack with `pulumi up`, and removes single resources with `pulumi destroy`, without prompts. The output of the engine is forwarded."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from gpuinfra.base.errors import DeploymentError
from gpuinfra.base.json_text import parsed
from gpuinfra.base.safe_text import one_line
from gpuinfra.engine.find import Engine
from gpuinfra.engine.locked import check_unlocked, locks_left

NO_STACK = "no stack named"
"""Part of the message of the CLI for a stack that does not exist (`IsSelectStack404Error` in sdk/go/auto/errors.go of Pulumi v3.259.0)."""

PARTIAL_FAILURE = 1
"""Status of a failed operation whose resource is in the state (`StatusPartialFailure` in sdk/go/common/resource/status.go of Pulumi v3.259.0)."""

FORWARD_S = 0.5
"""Maximum time between two copies of new errors to the output."""

_MARKUP = re.compile(r"<\{%[^%]*%\}>")
"""Color markup in engine event messages."""


@dataclass(frozen=True, kw_only=True)
class EngineFailure:
    """An error that the engine reports."""

    urn: str
    """The resource, or an empty string if the error is not about one resource."""
    message: str
    saved: bool = False
    """Whether the failed operation wrote the resource to the state, as an initialization that fails does."""

    @property
    def type(self) -> str:
        """Pulumi type of the resource, or an empty string."""
        return self.urn.split("::")[2].rpartition("$")[2] if self.urn.count("::") >= 3 else ""

    @property
    def name(self) -> str:
        """Logical name of the resource, or an empty string."""
        return self.urn.split("::", 3)[3] if self.urn.count("::") >= 3 else ""


class OtherRun(DeploymentError):
    """Another run updated the stack after this one."""


class UpFailed(DeploymentError):
    """The engine did not deploy the stack. `failures` contains its errors."""

    def __init__(self, message: str, failures: Sequence[EngineFailure]) -> None:
        super().__init__(message)
        self.failures = tuple(failures)


def up(
    engine: Engine,
    stack: str,
    project: Path,
    *,
    output: IO[str],
    secrets: str | None = None,
    keep: Sequence[int] = (),
    again: bool = False,
    exclude: Sequence[str] = (),
    refresh: bool = False,
    agent: str = "",
    more: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Create the stack if it does not exist, and deploy it.

    Raises `UpFailed` if the engine fails, `Locked` if another run holds the lock of the stack, and `DeploymentError` if the state
    cannot be read.

    `project` is the folder of `Pulumi.yaml`. A new stack gets the secrets provider `secrets`, or the default one. The engine
    inherits the file descriptors in `keep`. Set `again` if an earlier operation of this program was killed: if it left its lock in a
    self-managed state backend, the lock is removed. `exclude` contains URN patterns. The matching
    resources, and the resources that depend on them, are neither created nor changed. With `refresh`, the engine reads the resources
    from the cloud first, so that it also reverts changes that were made outside the stack. `agent` is recorded in the
    history of the stack (see `check_last`). `more` contains environment variables for the providers.
    """
    make_stack(engine, stack, project, secrets)
    with tempfile.TemporaryDirectory(prefix="gpuinfra-up-") as folder:
        events = Path(folder) / "events.jsonl"
        words = ["up", "--yes", "--skip-preview", "--stack", stack, "--event-log", str(events)]
        words += ["--refresh"] if refresh else []
        words += ["--exec-agent", agent] if agent else []
        for pattern in exclude:
            words += ["--exclude", pattern]
        words += ["--exclude-dependents"] if exclude else []
        # The CLI has the option --event-log only with this variable (cmd/pulumi/pulumi.go and sdk/go/auto/stack.go of Pulumi v3.259.0).
        more = {**more, "PULUMI_DEBUG_COMMANDS": "true"}
        code = operate(engine, stack, project, words, output=output, keep=keep, again=again, more=more)
        failures = tuple(_failures(events)) if code else ()
    if code:
        raise UpFailed(f"`pulumi up --stack {stack}` exited with code {code}; its output is above", failures)


def make_stack(engine: Engine, stack: str, project: Path, secrets: str | None = None) -> None:
    """Create the stack if it does not exist. Raises `DeploymentError` if its state cannot be read. The arguments are as in `up`."""
    answer = quick(engine, project, "stack", "export", "--stack", stack)
    if answer.returncode and NO_STACK in answer.stderr:
        provider = [f"--secrets-provider={secrets}"] if secrets else []
        answer = quick(engine, project, "stack", "init", stack, "--no-select", *provider)
    if answer.returncode:
        raise DeploymentError(
            f"the state of {stack} cannot be read: {one_line(answer.stderr.strip() or 'no error message')}; log in to the state backend (`pulumi login`)"
        )


def import_resources(
    engine: Engine,
    stack: str,
    project: Path,
    document: Mapping[str, Any],
    *,
    output: IO[str],
    secrets: str | None = None,
    keep: Sequence[int] = (),
    again: bool = False,
) -> None:
    """Import existing resources into a stack, which is created if it does not exist. Raises `DeploymentError`, and `StateLocked` as in `up`.

    `document` is the content of the file for `pulumi import --file`. The program does not run. The other arguments are as in `up`.
    """
    make_stack(engine, stack, project, secrets)
    with tempfile.TemporaryDirectory(prefix="gpuinfra-import-") as folder:
        file = Path(folder) / "import.json"
        file.write_text(json.dumps(document), encoding="utf-8")
        words = ["import", "--file", str(file), "--generate-code=false", "--yes", "--skip-preview", "--stack", stack]
        if code := operate(engine, stack, project, words, output=output, keep=keep, again=again):
            raise DeploymentError(f"`pulumi import --stack {stack}` exited with code {code}; its output is above")


def remove(
    engine: Engine,
    stack: str,
    project: Path,
    urns: Sequence[str],
    *,
    output: IO[str],
    keep: Sequence[int] = (),
    again: bool = False,
    agent: str = "",
) -> None:
    """Delete these resources of a deployed stack, and the resources that depend on them. Raises `DeploymentError`.

    The arguments are as in `up`. The program of the stack does not run.
    """
    words = [*(["--exec-agent", agent] if agent else []), "--target-dependents"]
    for urn in urns:
        words += ["--target", urn]
    _destroy(engine, stack, project, words, output=output, keep=keep, again=again)


def destroy(
    engine: Engine, stack: str, project: Path, *, output: IO[str], keep: Sequence[int] = (), again: bool = False
) -> None:
    """Delete all resources of a deployed stack that are not retained. Raises `DeploymentError`. The arguments are as in `up`."""
    _destroy(engine, stack, project, [], output=output, keep=keep, again=again)


def check_last(engine: Engine, stack: str, project: Path, agent: str) -> None:
    """Raise `OtherRun` if the last update of the stack was not one with this agent. Call this function before you delete what an update created.

    Operators on different machines share only the state. Its lock serializes their updates, and its history contains every update that ended,
    also one that failed (`addToHistory` in pkg/backend/diy/backend.go of Pulumi v3.259.0), with the option --exec-agent as `exec.agent`.
    """
    done = quick(engine, project, "stack", "history", "--stack", stack, "--json", "--page-size", "1")
    try:
        updates = parsed(done.stdout) if done.returncode == 0 else []
        last = updates[0] if isinstance(updates, list) and updates else {}
        ended, last_agent = str(last.get("endTime") or ""), (last.get("environment") or {}).get("exec.agent", "")
    except (ValueError, AttributeError):
        ended, last_agent = "", ""
    if last_agent != agent:
        last_one = (
            f"the last update of {stack}, which ended at {one_line(ended)}, is"
            if ended
            else f"the updates of {stack} are"
        )
        raise OtherRun(
            f"{last_one} not of this command, so nodes of another operator can be running, and nothing was deleted; "
            f"read `pulumi stack history --stack {stack}`, and run the command again"
        )


def _destroy(
    engine: Engine, stack: str, project: Path, more: Sequence[str], *, output: IO[str], keep: Sequence[int], again: bool
) -> None:
    words = ["destroy", "--yes", "--skip-preview", "--stack", stack, *more]
    if code := operate(engine, stack, project, words, output=output, keep=keep, again=again):
        raise DeploymentError(f"`pulumi destroy --stack {stack}` exited with code {code}; its output is above")


def operate(
    engine: Engine, stack: str, project: Path, words: Sequence[str], *, output: IO[str], keep: Sequence[int], again: bool,
    more: Mapping[str, str] = MappingProxyType({}),
) -> int:  # fmt: skip
    """Run an operation that changes a stack, and return its exit code. `words` include the stack. Raises `Locked`."""
    code, errors = _run(engine, words, project, output, keep, more)
    if code and again and (left := locks_left(errors)):
        output.write(
            f"removing the lock of a killed run: {' and '.join(map(str, left))}; its process no longer exists\n"
        )
        output.flush()
        # The result is not checked: if the lock remains, the second run reports it.
        quick(engine, project, "cancel", "--yes", "--stack", stack)
        code, errors = _run(engine, words, project, output, keep, more)
    if code:
        check_unlocked(errors, stack)
    return code


def quick(engine: Engine, project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a CLI command that changes no resources, without forwarding its output."""
    return subprocess.run(
        [str(engine.path), *words, "--non-interactive"], cwd=project, env=engine.environ(), capture_output=True, text=True,
        errors="replace", check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def _run(
    engine: Engine, words: Sequence[str], project: Path, output: IO[str], keep: Sequence[int], more: Mapping[str, str]
) -> tuple[int, str]:
    """Run a CLI command until it exits, and return its exit code and its errors, which are also forwarded.

    An interrupt does not end the wait: the terminal sends the interrupt to the engine, which then shuts down cleanly.
    """
    # A file and not a pipe, because the engine must continue if this process is killed.
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [str(engine.path), *words, "--non-interactive"], cwd=project, env={**engine.environ(), **more},
            stdout=output, stderr=errors, stdin=subprocess.DEVNULL, pass_fds=tuple(keep),
        )  # fmt: skip
        code: int | None = None
        sent, interrupted = 0, False
        while code is None:
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(FORWARD_S)
                ended = process.returncode
                sent = _forward(errors.fileno(), sent, output, whole_lines=ended is None)
                code = ended
            except KeyboardInterrupt:
                interrupted = True
        text = os.pread(errors.fileno(), sent, 0).decode(errors="replace")
    if interrupted:
        raise KeyboardInterrupt
    return code, text


def _forward(source: int, start: int, output: IO[str], *, whole_lines: bool) -> int:
    """Copy a file from this offset to the output, and return the offset of the rest. The engine writes to the same open file, so its offset stays."""
    new = os.pread(source, os.fstat(source).st_size - start, start)
    if whole_lines:
        new = new[: new.rfind(b"\n") + 1]
    if new:
        with contextlib.suppress(OSError):  # The engine continues if nothing reads the output.
            output.write(new.decode(errors="replace"))
            output.flush()
    return start + len(new)


def _failures(events: Path) -> Iterator[EngineFailure]:
    """Yield the errors in an event log."""
    try:
        lines = events.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return
    failed: list[dict[str, Any]] = []
    saved: set[str] = set()
    for line in lines:
        try:
            event = parsed(line)
            if event.get("resOpFailedEvent", {}).get("status") == PARTIAL_FAILURE:
                saved.add(event["resOpFailedEvent"]["metadata"]["urn"])
            if event.get("diagnosticEvent", {}).get("severity") == "error":
                failed.append(event["diagnosticEvent"])
        except (ValueError, AttributeError, KeyError, TypeError):
            continue
    for diagnostic in failed:
        urn, message = str(diagnostic.get("urn") or ""), str(diagnostic.get("message") or "")
        yield EngineFailure(urn=urn, message=_MARKUP.sub("", message).strip(), saved=urn in saved)
