"""The resources of the running stack as its last deployment saved them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pulumi

OUTPUTS = "pulumi:pulumi:readStackResourceOutputs"
"""Function of the engine that returns the outputs of each resource of a stack, as last saved (pkg/resource/deploy/builtins.go of Pulumi v3.259.0)."""
READS, PAUSE_S = 5, 0.5
"""Attempts to read the outputs, and seconds between them. A state in files is written in place while the program runs, so a read can find it incomplete."""


def saved_resources(reads: int = READS) -> list[Mapping[str, Any]]:
    """Return the resources of the running stack as last saved, with their outputs. Raises `RunError` if the engine does not return them."""
    name = "/".join(part for part in (pulumi.get_organization(), pulumi.get_project(), pulumi.get_stack()) if part)
    try:
        answer = pulumi.runtime.invoke(OUTPUTS, {"stackName": name}).value
    except Exception as problem:  # The engine reports each failure of a function as a plain exception.
        if reads > 1:
            time.sleep(PAUSE_S)
            return saved_resources(reads - 1)
        raise pulumi.RunError(f"the engine does not return the outputs of {name}: {problem}") from None
    outputs = (answer or {}).get("outputs") or {}
    return [{"urn": urn, **resource} for urn, resource in outputs.items()]


def never_smaller(size_gib: int, type_: str, name: str, output: str) -> int:
    """Return the size of a disk: the planned one, or that of the existing disk if it is larger.

    AWS and Azure refuse to make a disk smaller, and on Google Cloud the provider would replace it, although fewer nodes, or none during a failover, need less
    space. `output` is the output with the size in GiB.
    """
    for resource in saved_resources():
        if resource.get("type") == type_ and str(resource["urn"]).endswith(f"::{name}"):
            return max(size_gib, int((resource.get("outputs") or {}).get(output) or 0))
    return size_gib
