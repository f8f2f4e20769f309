"""The logs of the nodes in the log service of the cloud."""

from typing import Annotated

from pydantic import Field

from gpuinfra.spec.base import Days, SpecModel
from gpuinfra.spec.formats import text

LogFiles = Annotated[
    str,
    text(
        r"^(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)+/[A-Za-z0-9_*-][A-Za-z0-9_.*-]*$",
        "an absolute path such as /var/log/app/*.log, with `*` only in the name of the file",
        max_length=200,
    ),
]
"""The path of log files, without spaces."""


class Logs(SpecModel):
    """The logs of the nodes, which the agent of the cloud sends to its log service. Only AWS: Amazon CloudWatch Agent and CloudWatch Logs."""

    retention_days: Days = Field(default=30, ge=1, le=3650, examples=[90])
    """Period for which the log service keeps the lines, also those of nodes that no longer exist. CloudWatch Logs accepts only certain periods,
    such as 30, 60, 90 or 365 days."""
    files: tuple[LogFiles, ...] = Field(default=(), max_length=20, examples=[["/var/log/app/*.log"]])
    """Further log files on the nodes. The kernel log, the log of gpuinfra's units and `/var/log/gpuinfra` are always sent."""


__all__ = ["LogFiles", "Logs"]
