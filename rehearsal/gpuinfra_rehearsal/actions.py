"""Runs one engine action (preview, up, refresh or destroy) against the stand-ins, and collects its result and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuinfra.base.errors import GpuinfraError
from gpuinfra.handover import wire
from gpuinfra_rehearsal import least_privilege, retained
from gpuinfra_rehearsal.engine import OperationResult
from gpuinfra_rehearsal.events import kind_of, name_of
from gpuinfra_rehearsal.report import collect, write
from gpuinfra_rehearsal.retry_hints import broken_nodes, hint_for, ineffective_faults, refused_nodes
from gpuinfra_rehearsal.session import Session

ACTIONS = ("preview", "up", "refresh", "destroy")


@dataclass(frozen=True, kw_only=True)
class RehearsalResult:
    """The result of a rehearsal."""

    ok: bool
    report: dict[str, Any]
    problems: tuple[str, ...] = ()
    """Errors from the engine, the cloud or the handover."""
    closing: tuple[str, ...] = ()
    """Notes to read before the next run. They are printed last."""


def perform(session: Session, action: str) -> OperationResult:
    """Run one engine action. `up` first adopts the resources that an earlier destroy retained."""
    if action not in ACTIONS:
        raise GpuinfraError(f"action is {action!r}; allowed: {', '.join((*ACTIONS, 'life'))}")
    if action == "up":
        session.adopt()
    if action == "destroy":
        # Record the resources before the destroy, so that an interrupted destroy does not lose any data.
        kept = (*retained.recorded(session.folder), *retained.retained_in(session.pulumi.deployment()))
        retained.record(session.folder, list({(one.type, one.name): one for one in kept}.values()))
    flags = () if action == "preview" else ("--yes", "--skip-preview")
    faults = session.options.faults
    title = f"{action} of {session.folder.stack}{', with fault ' + ', '.join(faults) if faults else ''}"
    return session.operate(action, *flags, title=title)


def finish(
    session: Session, action: str, *, ok: bool, problems: tuple[str, ...], extra: dict[str, Any] | None = None
) -> RehearsalResult:
    """Collect the report while the stand-in cloud runs, and write it."""
    session.view.phase("report")
    if action == "up" and ok and session.options.faults:
        missed = session.cloud.ask("faults")["without_effect"]
        problems += ineffective_faults(session.folder, session.options.folder, missed)
        ok = not problems
    report = collect(session, action, ok=ok, problems=problems, extra=extra)
    if usage := least_privilege.usage(session.cloud, session.plan()):
        report["permissions"] = usage
    if report["nodes"]:
        report["rights"] = session.cloud.ask("rights")
    closing = broken_nodes(session.folder, session.options.folder, report["nodes"])
    if action == "up" and not ok:
        closing += refused_nodes(session.folder, session.options.folder, session.options.faults)
    report["notes"] = [*report["notes"], *closing]
    write(session.folder, report)
    return RehearsalResult(ok=ok, report=report, problems=problems, closing=closing)


def errors_of(operation: OperationResult) -> tuple[str, ...]:
    """Return the operation's errors without duplicates, each with the resource that caused it and a hint."""
    if operation.ok:
        return ()
    errors: list[str] = []
    for severity, urn, text in operation.progress.diagnostics:
        if severity != "error" or not text or text.strip() in ("update failed", "preview failed"):
            continue
        where = f"{name_of(urn)} ({kind_of(urn)}): " if urn and kind_of(urn) not in ("pulumi:pulumi:Stack", "") else ""
        line = where + tidy(text)
        if where and kind_of(urn) != wire.TYPE:  # The errors of the handover contain the advice.
            line += f"\n  what to do: {hint_for(text)}"
        if line not in errors:
            errors.append(line)
    if not errors:
        errors = [
            "the engine failed without an error message; the end of its log:",
            *operation.output.strip().splitlines()[-8:],
        ]
    return tuple(errors)


def tidy(text: str) -> str:
    """Return an engine error without its `1 error occurred:` frame."""
    lines = [line.rstrip() for line in text.strip().splitlines()]
    reasons = [
        line for line in lines if line.strip() and not line.strip().endswith(("error occurred:", "errors occurred:"))
    ]
    return "\n".join(line.replace("\t* ", "", 1) if line.startswith("\t* ") else line for line in reasons)
