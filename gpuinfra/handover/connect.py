"""Connects to a cloud by name. The module and the SDK of a cloud are imported on first use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuinfra.base.registry import CLOUDS, has_module, module_of
from gpuinfra.handover.ports import CloudTerms, Ports, PortUnavailable


def ports_of(
    cloud: str, *, region: str, evidence_bucket: str, evidence_prefix: str, profile: str = "", role_arn: str = ""
) -> Ports:
    """Return the ports for one cloud region, which use the operator's credentials.

    `evidence_bucket` is the bucket's name or, on Azure, the container's address. `profile` and `role_arn` select AWS
    credentials; the other clouds refuse them. Raises `PortUnavailable`.
    """
    ports: Ports = module(cloud).connect(region, evidence_bucket, evidence_prefix, profile=profile, role_arn=role_arn)
    return ports


def check_credentials(inputs: Mapping[str, object]) -> None:
    """Raise `PortUnavailable` if the cloud's module can determine, without a request, that the operator has no credentials."""
    check = getattr(module(str(inputs.get("cloud"))), "check_credentials", None)
    if check is not None:
        check()


def terms_of(cloud: str) -> CloudTerms:
    """Return what advice calls the things of a cloud. Raises `PortUnavailable`."""
    terms: CloudTerms = module(cloud).TERMS
    return terms


def module(cloud: str) -> Any:
    """Import the module that defines a cloud's `connect(region, bucket, prefix, *, profile, role_arn) -> Ports`.

    The module is `handover.ports` in the cloud's package.
    """
    if cloud in CLOUDS and has_module(cloud, "handover.ports"):
        return module_of(cloud, "handover.ports")
    raise PortUnavailable(
        f"the handover does not support {cloud}; supported: {', '.join(CLOUDS)}; set `wait: none` to deploy without the handover"
    )


def connect(inputs: Mapping[str, object]) -> Ports:
    """Return the ports for the inputs of a `NodesReady` resource."""
    return ports_of(
        str(inputs.get("cloud")),
        region=str(inputs["region"]),
        evidence_bucket=str(inputs["evidenceBucket"]),
        evidence_prefix=str(inputs["evidencePrefix"]),
        profile=str(inputs.get("profile") or ""),
        role_arn=str(inputs.get("roleArn") or ""),
    )
