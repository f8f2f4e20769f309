"""Fields and values that people declare and that gpuinfra does not support, with the reason and the alternative."""

from __future__ import annotations

from typing import Any

_BOUNDS = frozenset(
    [
        "min",
        "max",
        "minimum",
        "maximum",
        "min_count",
        "max_count",
        "count_min",
        "count_max",
        "min_size",
        "max_size",
        "min_nodes",
        "max_nodes",
        "autoscale",
        "autoscaling",
        "autoscaler",
    ]
)
_NO_AUTOSCALER = "gpuinfra has no autoscaler, so only the declaration changes the number of nodes"
_COUNT = "set count to the number of nodes, and run `pulumi up` after each change; 0 creates a group without nodes"
_EFS = "use kind home, which creates Amazon EFS"
_FILES = "use kind home, which creates an NFS share of Azure Files"
_OF_KIND_HOME = "it is a service for home directories, and the kind is home"
_KINDS = {
    **dict.fromkeys(
        ("openzfs", "zfs", "fsx_openzfs", "fsx-openzfs", "fsx_zfs"),
        (_OF_KIND_HOME, "use kind home with service: openzfs"),
    ),
    **dict.fromkeys(
        ("netapp", "anf", "azure_netapp_files", "netapp_files", "azure-netapp-files"),
        (_OF_KIND_HOME, "use kind home with service: netapp"),
    ),
    **dict.fromkeys(
        ("ontap", "fsx_ontap", "fsx-ontap"),
        (
            "home directories on AWS are on Amazon EFS or FSx for OpenZFS",
            "use kind home with service: efs or service: openzfs",
        ),
    ),
    "efs": ("the kind is independent of the cloud", _EFS),
    **dict.fromkeys(("azure_files", "azurefiles", "azure-files"), ("the kind is independent of the cloud", _FILES)),
    "filestore": ("the kind is independent of the cloud", "use kind home, which creates Filestore"),
    **dict.fromkeys(
        ("nfs", "homes"),
        ("the kind is independent of the protocol", "use kind home, which mounts home directories over NFS"),
    ),
    **dict.fromkeys(
        ("fsx", "fsx_lustre", "amlfs", "managed_lustre"), ("the kind is independent of the cloud", "use kind lustre")
    ),
    **dict.fromkeys(
        ("bucket", "s3", "gcs", "blob"), ("the kind is independent of the cloud", "use kind object to mount a bucket")
    ),
}
"""Kinds of storage that do not exist: the reason, and what to use instead."""
_RPM = ("rocky", "rhel", "redhat", "alma", "centos", "fedora", "amazon", "al2", "oracle")
"""How the names of distributions with RPM packages begin."""
_HOME_SETTINGS = "each service for home directories has its own settings"
_AFTER = "a duration starts at the first deployment, whose time is not part of the declaration (docs/internals/decisions/dates.md)"
_EFA = (
    "the EFA installer contains libfabric and the NCCL plugin (aws-ofi-nccl), and the software lock pins the installer"
)


def field(model: Any, name: str) -> tuple[str, str] | None:
    """Return the reason why a model has no field with this name, and the fix, or None."""
    fields = getattr(model, "model_fields", {})
    if name in _BOUNDS and ({"count", "capacity"} & set(fields)):
        return _NO_AUTOSCALER, _COUNT
    if name == "expires_after":
        return _AFTER, "set expires_at of the cluster to a time in UTC, such as 2026-12-31T18:00:00Z"
    if name == "idle_stop":
        return "each pool is idle on its own", "set idle_stop in an entry of pools, such as idle_stop: 24h"
    if getattr(model, "__name__", "") == "Home" and name in ("type", "deployment", "tier", "performance"):
        return _HOME_SETTINGS, "use service, throughput_mb_s (FSx for OpenZFS) or service_level (Azure NetApp Files)"
    if getattr(model, "__name__", "") == "Software" and name in (
        "aws_ofi_nccl",
        "ofi_nccl",
        "efa_installer",
        "efa",
        "libfabric",
    ):
        return _EFA, "use an image with another version of the installer; the bootstrap steps accept it"
    return None


def count(name: str, given: object) -> tuple[str, str] | None:
    """Return the reason why a number of nodes is not a mapping of a minimum and a maximum, and the fix, or None."""
    if name == "count" and isinstance(given, dict) and set(map(str, given)) & _BOUNDS:
        return _NO_AUTOSCALER, _COUNT
    return None


def kind(word: str) -> tuple[str, str] | None:
    """Return the reason why a kind of storage does not exist, and what to use instead, or None."""
    return _KINDS.get(word.lower())


def distribution(given: object) -> str | None:
    """Return the reason why a distribution with RPM packages is not an operating system of nodes, or None for other values."""
    if isinstance(given, str) and given.lower().startswith(_RPM):
        return "the software lock, the bootstrap steps and the checks use apt and dpkg, and distributions such as Rocky Linux and RHEL use dnf and rpm"
    return None
