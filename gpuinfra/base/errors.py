"""Errors with a message for the user, and exit codes.

    GpuinfraError                 an expected failure                             exit 1
    ├── SpecError                 a declaration with findings of level error
    ├── DeploymentError           the engine, a cloud or a node failed
    ├── UsageError                wrong arguments or options                      exit 2
    ├── EnvironmentMissing        a prerequisite is missing on this machine       exit 3
    └── Interrupted               an interrupt after which resources remain       exit 130

| exit code | meaning |
| --- | --- |
| 0 | success, possibly with warnings |
| 1 | findings of level error, failed checks, a failed deployment |
| 2 | usage error |
| 3 | missing prerequisite, such as a tool, free disk space, a writable folder or a login to the state backend |
| 130 | interrupted |

A message contains the location, the value, the allowed values, and the fix. `--debug` prints the traceback.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuinfra.base.findings import Finding

ERROR_PREFIX, WARN_PREFIX = "gpuinfra: error: ", "gpuinfra: warn: "
"""Starts of each line of stderr that states an error or a warning. A finding of a declaration contains its own severity."""


def reason_of(error: BaseException) -> str:
    """Return the text of an error of the operating system without its number, but with its file. Other errors are returned as they are."""
    cause = getattr(error, "reason", None)  # An error of urllib contains the error of the connection.
    if isinstance(cause, OSError):
        return reason_of(cause)
    if not isinstance(error, OSError) or not error.strerror:
        return str(error) or type(error).__name__
    return f"{error.strerror} ({error.filename})" if error.filename else error.strerror


class GpuinfraError(Exception):
    """An expected failure. The text is the message for the user."""

    exit_code = 1


class SpecError(GpuinfraError):
    """A declaration with findings of level error. `findings` contains all findings."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(str(finding) for finding in self.findings))


class DeploymentError(GpuinfraError):
    """The engine, a cloud, or a node failed. The text contains the cause and the fix."""


class UsageError(GpuinfraError):
    """Wrong arguments or options."""

    exit_code = 2


class EnvironmentMissing(GpuinfraError):
    """A prerequisite is missing on this machine. The text specifies the prerequisite and how to install it."""

    exit_code = 3


INTERRUPTED = 130
"""Exit code after an interrupt, as in shells."""


class Interrupted(GpuinfraError):
    """An interrupt. The text describes the remaining resources and how to continue. If none remain, commands raise KeyboardInterrupt."""

    exit_code = INTERRUPTED
