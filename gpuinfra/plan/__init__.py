"""Every decision taken, still data: `model.py` is the shape, `make.py` decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinfra.plan.model import Plan

if TYPE_CHECKING:
    from datetime import date

    from gpuinfra.spec.model import ClusterSpec

__all__ = ["Plan", "make_plan"]


def make_plan(spec: ClusterSpec, today: date) -> Plan:
    """The plan of a declaration that the rules let pass."""
    from gpuinfra.plan.make import make_plan as make

    return make(spec, today)
