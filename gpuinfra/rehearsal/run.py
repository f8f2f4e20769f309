"""`gpuinfra rehearse`: runs one action or a whole life cycle, and reports the result."""

from __future__ import annotations

from gpuinfra.rehearsal.actions import Result, errors_of, finish, perform
from gpuinfra.rehearsal.life import run_life
from gpuinfra.rehearsal.session import Options, open_session
from gpuinfra.report.progress import View


def rehearse(action: str, options: Options, view: View) -> Result:
    """Run `action` and write its report."""
    with open_session(options, view) as session:
        if action == "life":
            return run_life(session)
        operation = perform(session, action)
        return finish(session, action, ok=operation.ok, problems=errors_of(operation))
