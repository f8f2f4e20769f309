"""The permissions of a plan, on its cloud."""

from __future__ import annotations

from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.permissions import Permissions
from gpuinfra.plan.model import Plan


def permissions_of(plan: Plan, *, read_only: bool = False) -> Permissions:
    """Return the minimum permissions for a plan."""
    return cloud_of(plan.cloud).permissions(plan, read_only=read_only)
