"""`gpuinfra rehearse preview|up|refresh|destroy`: one action of the real engine on stand-ins, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuinfra.errors import GpuinfraError
from gpuinfra.rehearsal import least_privilege as least
from gpuinfra.rehearsal.engine import Operation
from gpuinfra.rehearsal.events import kind_of, name_of
from gpuinfra.rehearsal.report import collect, write
from gpuinfra.rehearsal.retained import kept_in, remember, remembered
from gpuinfra.rehearsal.retry_hints import broken_nodes, what_to_do
from gpuinfra.rehearsal.session import Order, Session, opened, titles
from gpuinfra.rehearsal.view import View

ACTIONS = ("preview", "up", "refresh", "destroy")


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of a rehearsal."""

    ok: bool
    report: dict[str, Any]
    problems: tuple[str, ...] = ()
    """What is wrong, in the words of engine, cloud or handover."""
    closing: tuple[str, ...] = ()
    """What a person has to know before trying again; the last lines that are read."""


def rehearse(action: str, order: Order, view: View) -> Result:
    """Do one action and report it."""
    if action == "life":
        from gpuinfra.rehearsal.life import live

        with opened(order, view) as session:
            return live(session)
    with opened(order, view) as session:
        operation = perform(session, action)
        problems = problems_of(operation)
        return finish(session, action, ok=operation.ok, problems=problems)


def finish(
    session: Session, action: str, *, ok: bool, problems: tuple[str, ...], extra: dict[str, Any] | None = None
) -> Result:
    """Collect the report while the cloud still answers, and write it."""
    report = collect(session, action, ok=ok, problems=problems, extra=extra)
    if under := least.outcome(session):
        report["permissions"] = under
    if report["nodes"]:
        report["rights"] = session.cloud.ask("rights")
    closing = broken_nodes(session.folder, session.order.folder, report["nodes"])
    report["notes"] = [*report["notes"], *closing]
    write(session.folder, report)
    return Result(ok=ok, report=report, problems=problems, closing=closing)


def perform(session: Session, action: str) -> Operation:
    """One action of the engine."""
    name = titles(session.folder.stack, session.order.faults)
    if action == "preview":
        return session.operate("preview", title=f"preview of {name}")
    if action == "up":
        session.adopt_kept()
        return session.operate("up", "--yes", "--skip-preview", title=f"up of {name}")
    if action == "refresh":
        return session.operate("refresh", "--yes", "--skip-preview", title=f"refresh of {name}")
    if action == "destroy":
        return _destroy(session, name)
    raise GpuinfraError(f"there is no action {action!r}; allowed are {', '.join((*ACTIONS, 'life'))}")


def _destroy(session: Session, name: str) -> Operation:
    """Destroy, and write down what stays on purpose; written before, so that a kill in between loses nothing."""
    things = {t.urn: t for t in (*remembered(session.folder), *kept_in(session.pulumi.deployment()))}
    remember(session.folder, list(things.values()))
    return session.operate("destroy", "--yes", "--skip-preview", title=f"destroy of {name}")


def problems_of(operation: Operation) -> tuple[str, ...]:
    """The errors of an operation, each once, with the resource that they are about."""
    if operation.ok:
        return ()
    found: list[str] = []
    for severity, urn, text in operation.progress.diagnostics:
        if severity != "error" or not text or text.strip() in ("update failed", "preview failed"):
            continue
        where = f"{name_of(urn)} ({kind_of(urn)}): " if urn and kind_of(urn) not in ("pulumi:pulumi:Stack", "") else ""
        line = where + tidy(text)
        if where and "what to do: " not in line:
            line += f"\n  what to do: {what_to_do(text)}"
        if line not in found:
            found.append(line)
    if not found:
        tail = operation.output.strip().splitlines()[-8:]
        found = ["the engine failed without a word about why; its log ends:", *tail]
    return tuple(found)


def tidy(text: str) -> str:
    """An engine's error without the frame around the reasons: `1 error occurred: * ...`."""
    lines = [line.rstrip() for line in text.strip().splitlines()]
    kept = [
        line for line in lines if not line.strip().endswith(("error occurred:", "errors occurred:")) and line.strip()
    ]
    return "\n".join(line.replace("\t* ", "", 1) if line.startswith("\t* ") else line for line in kept)
