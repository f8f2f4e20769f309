"""`gpuinfra rehearse`: runs one action or a whole life cycle, and reports the result."""

from __future__ import annotations

from dataclasses import replace

from gpuinfra.base.errors import EnvironmentMissing
from gpuinfra_rehearsal.actions import RehearsalResult, errors_of, finish, perform
from gpuinfra_rehearsal.drill import check_options, run_drill
from gpuinfra_rehearsal.life import run_life
from gpuinfra_rehearsal.progress import View
from gpuinfra_rehearsal.session import Options, Session, open_session


def rehearse(
    action: str, options: Options, view: View, to: str | None = None, lag_minutes: int | None = None
) -> RehearsalResult:
    """Run `action` and write its report. `to` and `lag_minutes` are the second region and the replication lag of a drill."""
    during = options.faults if action == "drill" else ()
    if action == "drill":
        check_options(options, to)
        options = replace(options, faults=())  # They begin with the failover.
    with open_session(options, view) as session:
        if action in ("up", "life", "drill"):
            _require_nodes(session)
        if action == "drill":
            return run_drill(session, lag_minutes, during)
        if action == "life":
            return run_life(session)
        operation = perform(session, action)
        return finish(session, action, ok=operation.ok, problems=errors_of(operation))


def _require_nodes(session: Session) -> None:
    """Raise EnvironmentMissing if this system cannot run the stack's nodes and the user did not omit them."""
    available, reason = session.cloud.nodes_available()
    plan = session.plan()
    if not available and not session.options.without_nodes and (plan is None or plan.nodes):
        raise EnvironmentMissing(
            f"stand-in nodes cannot run: {reason}; to rehearse the cloud without its nodes, add --without-nodes"
        )
