"""The expected state of a machine in this pool: the bundle's `expectation.json` and the versions that its steps recorded.

A check that needs a missing field results in an error, so an incomplete record never lets a node pass.
"""

from __future__ import annotations

import re
from typing import Any, Mapping

from .outcome import Broken, Unreadable


class Machine:
    """An expectation, read by field name."""

    def __init__(self, expectation: Mapping[str, Any], journal: Mapping[str, Any] | None) -> None:
        self._fields = expectation
        self.journal = journal

    def need(self, field: str, kind: type) -> Any:
        """Return a required field of the given type."""
        value = self._fields.get(field)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            raise Unreadable(
                "the machine's record has no usable %s" % field,
                "fix the machine's catalog record and rebuild the bundle",
            )
        return value

    def get(self, field: str, default: Any) -> Any:
        """Return an optional field, or a safe default."""
        value = self._fields.get(field)
        return default if value is None else value

    @property
    def gpus(self) -> int:
        """The number of GPUs in the machine type."""
        return self.need("gpus", int)

    def version(self, software: str) -> str | None:
        """Return the version that this node's steps recorded, or None if the evidence has no journal. The version must
        be within the range of the software lock, because the node's own record is not proof.
        """
        if self.journal is None:
            return None
        recorded = self.journal.get("recorded")
        value = recorded.get(software) if isinstance(recorded, Mapping) else None
        if not isinstance(value, str) or not value:
            raise Broken(
                "no bootstrap step recorded a version for %s" % software,
                "rerun the bootstrap: systemctl start gpuinfra-bootstrap",
            )
        self.inside_range(software, value)
        return value

    def inside_range(self, software: str, value: str) -> None:
        """Raise `Broken` if the version is outside the lock's range."""
        wanted = self.need("software", dict).get(software)
        bounds = wanted.get("range") if isinstance(wanted, Mapping) else None
        pin = wanted.get("pin") if isinstance(wanted, Mapping) else None
        if not isinstance(bounds, (list, tuple)) or not bounds:
            if not isinstance(pin, str):
                raise Unreadable("the machine's record has neither a pin nor a range for %s" % software)
            bounds = ["==" + pin]
        for bound in bounds:
            if not _holds(value, bound):
                raise Broken(
                    "%s is %s, which is outside the range %s in the software lock"
                    % (software, value, ", ".join(str(one) for one in bounds)),
                    "install the pinned version, or test this version and then widen the range in the lock",
                )


def _parts(version: str) -> tuple[int, ...]:
    numbers = re.findall(r"\d+", version.split("+", 1)[0].split("-", 1)[0])
    if not numbers:
        raise Unreadable("%r is not a version" % version[:40])
    return tuple(int(number) for number in numbers)


def _holds(version: str, bound: object) -> bool:
    match = re.match(r"^(>=|<=|==|<|>)\s*(\S+)$", bound) if isinstance(bound, str) else None
    if match is None:
        raise Unreadable("%r is not a version bound; for example, write >=580.95 or <581" % (bound,))
    left, right = _parts(version), _parts(match.group(2))
    width = max(len(left), len(right))
    left, right = left + (0,) * (width - len(left)), right + (0,) * (width - len(right))
    return {">=": left >= right, "<=": left <= right, "==": left == right, "<": left < right, ">": left > right}[
        match.group(1)
    ]
