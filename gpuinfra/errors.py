"""Errors that reach people, and the exit codes of the command.

    GpuinfraError                 anything that gpuinfra says on purpose          exit 1
    ├── SpecError                 a declaration that cannot be built (findings)
    ├── DeploymentError           the engine, a cloud or a node said no
    ├── UsageError                the command was typed wrong                     exit 2
    └── EnvironmentMissing        this machine lacks something                    exit 3

| exit code | meaning |
| --- | --- |
| 0 | done, warnings included |
| 1 | findings of level error, failed checks, a deployment that failed |
| 2 | wrong use |
| 3 | the environment is missing something |
| 130 | interrupted |

Every message says where, what was given, what is allowed and what to change; a traceback is shown with `--debug` only.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuinfra.findings import Finding


class GpuinfraError(Exception):
    """Anything that gpuinfra says on purpose. The text is for people."""

    exit_code = 1


class SpecError(GpuinfraError):
    """A declaration that cannot be built; `findings` holds every reason at once."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(str(finding) for finding in self.findings))


class DeploymentError(GpuinfraError):
    """The engine, a cloud or a node said no; the text names which, and what to do."""


class UsageError(GpuinfraError):
    """The command was typed wrong."""

    exit_code = 2


class EnvironmentMissing(GpuinfraError):
    """This machine lacks something; the text says what and how it is installed."""

    exit_code = 3


INTERRUPTED = 130
"""Exit code after an interrupt, as shells have it."""
