"""The model of a scale set (`virtualMachineProfile` and size), and the machine fields derived from it."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from gpuinfra_rehearsal.cloud.core.interfaces import Instance

GROUP = "azure-native:compute:VirtualMachineScaleSet"
SINGLE_LIMIT = 100
"""Maximum machines in one placement group.
https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-placement-groups,
retrieved 2026-11-21."""


def profile_of(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the model of a scale set's machines."""
    return inputs.get("virtualMachineProfile") or {}


def machine_of(inputs: dict[str, Any]) -> str:
    """Return the machine type."""
    return str((inputs.get("sku") or {}).get("name") or "")


def desired(inputs: dict[str, Any]) -> int:
    """Return the desired number of machines of a scale set."""
    return int((inputs.get("sku") or {}).get("capacity") or 0)


def above_single_limit(inputs: dict[str, Any], wanted: int) -> str | None:
    """Return the error text if `wanted` machines do not fit into the set's single placement group."""
    if inputs.get("singlePlacementGroup") is False or wanted <= SINGLE_LIMIT:
        return None
    return f"The capacity {wanted} of a scale set with a single placement group is above {SINGLE_LIMIT}."


def model_hash(inputs: dict[str, Any]) -> str:
    """Return a hash of all model fields from which a machine is created."""
    return _digest([profile_of(inputs), machine_of(inputs)])


def disk_of(inputs: dict[str, Any]) -> str:
    """Return a hash of the model fields from which a machine's disk is created. A machine whose hash differs is
    reimaged."""
    storage = profile_of(inputs).get("storageProfile") or {}
    return _digest([storage.get("imageReference"), storage.get("osDisk"), machine_of(inputs)])


def kind_of(inputs: dict[str, Any]) -> str:
    """Return the capacity kind: reserved, on_demand or spot."""
    if profile_of(inputs).get("priority") in ("Spot", "Low"):
        return "spot"
    return "reserved" if reservation_group(inputs) else "on_demand"


def reservation_group(inputs: dict[str, Any]) -> str:
    """Return the ID of the model's capacity reservation group, or an empty string if it has none."""
    named = (profile_of(inputs).get("capacityReservation") or {}).get("capacityReservationGroup") or {}
    return str(named.get("id") or "")


def extension(profile: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """Return the model's extension of that type, or None."""
    every = (profile.get("extensionProfile") or {}).get("extensions") or []
    return next((one for one in every if one.get("type") == kind), None)


def identities(inputs: dict[str, Any]) -> list[str]:
    """Return the IDs of the user-assigned identities."""
    return [str(one) for one in (inputs.get("identity") or {}).get("userAssignedIdentities") or []]


def brought_to(inputs: dict[str, Any]) -> Instance:
    """Return the fields that a machine takes from a model without a new disk."""
    profile = profile_of(inputs)
    script = (extension(profile, "CustomScript") or {}).get("settings") or {}
    diagnostics = (profile.get("diagnosticsProfile") or {}).get("bootDiagnostics") or {}
    return {
        "model": model_hash(inputs),
        "script": str(script.get("script") or ""),
        "reports_health": extension(profile, "ApplicationHealthLinux") is not None,
        "console": bool(diagnostics.get("enabled")),
        "user_data": str(profile.get("userData") or ""),
    }


def provisioned(inputs: dict[str, Any]) -> Instance:
    """Return the fields that a machine takes from the model when its disk is created. Custom data is read only then."""
    profile = profile_of(inputs)
    name, system, prebuilt = _image_of(profile)
    return {
        "machine": machine_of(inputs),
        "image_id": name,
        "os": system,
        "prebuilt": prebuilt,
        "custom_data": str((profile.get("osProfile") or {}).get("customData") or ""),
        "logins": _logins(profile.get("osProfile") or {}),
        "disk": disk_of(inputs),
    }


def _logins(profile: dict[str, Any]) -> dict[str, list[str]]:
    """Return the administrator with the keys that provisioning writes to the disk."""
    user = str(profile.get("adminUsername") or "")
    ssh = (profile.get("linuxConfiguration") or {}).get("ssh") or {}
    keys = [one for one in ssh.get("publicKeys") or [] if one.get("path") == f"/home/{user}/.ssh/authorized_keys"]
    return {user: [str(one.get("keyData") or "") for one in keys]} if user else {}


def _image_of(profile: dict[str, Any]) -> tuple[str, str, bool]:
    """Return (name, operating system, whether it contains the driver and the fabric software) of the model's image.

    The names of marketplace images determine both: `microsoft-dsvm:ubuntu-hpc:2204:...` contains the drivers,
    Canonical's images do not. A custom image counts as a plain image unless its name contains `hpc`.
    """
    reference = (profile.get("storageProfile") or {}).get("imageReference") or {}
    parts = [str(reference.get(key) or "") for key in ("publisher", "offer", "sku", "version")]
    name = str(reference.get("id") or reference.get("communityGalleryImageId") or ":".join(parts))
    version = re.search(r"(2[024])[._-]?(04)", name)
    return name, f"ubuntu-{version[1]}.{version[2]}" if version else "ubuntu-22.04", "hpc" in name.lower()


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
