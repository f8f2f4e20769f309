"""The serial console log of a node on Azure."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.clouds.azure.handover.ports import BootDiagnostics

URL = "https://log.blob.example/console?sig=x"


class Answers:
    """Azure with one answer for the address of the log."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self._answer = answer

    def arm(self, path: str, api: str, *, post: bool) -> dict[str, Any]:
        """The address of the log."""
        return self._answer

    def signed(self, url: str, limit: int) -> bytes:
        """The log. Azure has no log at another address."""
        assert url == URL
        return b"first\nsecond\nthird\n"


def tail(answer: dict[str, Any], arm_id: str | None = "/subscriptions/s/vm") -> list[str]:
    """The last two lines of the log."""
    return BootDiagnostics(Answers(answer), lambda _: arm_id).tail("vm", 2)  # pyright: ignore[reportArgumentType]


def test_the_last_lines_are_returned() -> None:
    """The log is read from the address that Azure returns."""
    assert tail({"serialConsoleLogBlobUri": URL}) == ["second", "third"]


@pytest.mark.parametrize("answer", [{}, {"serialConsoleLogBlobUri": None}])
def test_without_a_log_there_are_no_lines(answer: dict[str, Any]) -> None:
    """If boot diagnostics are disabled or have no log yet, nothing is requested."""
    assert tail(answer) == []


def test_an_unknown_machine_has_no_lines() -> None:
    """A machine that is not in the groups has no log."""
    assert tail({"serialConsoleLogBlobUri": URL}, arm_id=None) == []
