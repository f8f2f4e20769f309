"""The device stand-ins, as the other tools call them: they lie beside this package in a node, and are absent in a bare test."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def devices() -> Any:
    """The module `devices`, or None where only this package is."""
    try:
        return __import__("devices")
    except ImportError:
        return None


def play(name: str, argv: list[str]) -> int:
    """Let a device tool answer."""
    module = devices()
    return 127 if module is None else module.main([name, *argv])
