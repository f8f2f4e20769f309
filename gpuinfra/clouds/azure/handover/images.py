"""Looks up the newest version of an Azure Marketplace image in one region: the plugin's `gpuinfra:index:azureImageVersion` function.

The Azure provider does not have a function for this purpose. With the version `latest`, nodes that join a scale set later could get a different image.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpuinfra.clouds.azure.rest import THROTTLED_S, Rest
from gpuinfra.handover.ports import PortUnavailable

TOKEN = "gpuinfra:index:azureImageVersion"
INPUTS = ("subscription", "region", "publisher", "offer", "sku")
API = "2024-11-01"


def check_inputs(inputs: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return problems with the inputs, as (property, reason)."""
    return [
        (name, f"{name} is missing") for name in INPUTS if not isinstance(inputs.get(name), str) or not inputs[name]
    ]


def call(inputs: Mapping[str, object]) -> dict[str, object]:
    """Return the newest version as the result of the function."""
    return {"version": newest(inputs, Rest(patience_s=THROTTLED_S))}


def newest(inputs: Mapping[str, object], rest: Rest) -> str:
    """Return the newest version. Raises `PortUnavailable` if there is no version or the request fails."""
    path = (
        "/subscriptions/{subscription}/providers/Microsoft.Compute/locations/{region}/publishers/{publisher}"
        "/artifacttypes/vmimage/offers/{offer}/skus/{sku}/versions"
    ).format(**{name: str(inputs[name]) for name in INPUTS})
    versions_listed = rest.arm(path, API).get("value") or []
    versions = [str(one["name"]) for one in versions_listed if isinstance(one, dict) and one.get("name")]
    if not versions:
        named = ":".join(str(inputs[name]) for name in ("publisher", "offer", "sku"))
        raise PortUnavailable(
            f"Azure offers no version of {named} in {inputs['region']}; choose a different image or region"
        )
    return max(versions, key=_numbers)


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers in a dotted version for use in comparisons, because 22.04.10 is newer than 22.04.9."""
    return tuple(int(part) if part.isdigit() else -1 for part in version.split("."))
