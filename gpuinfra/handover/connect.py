"""Connect to a cloud by its name. A cloud's module and its SDK are imported on first use."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from gpuinfra.handover.ports import Ports, PortUnavailable

CLOUDS = ("aws", "azure", "gcp")
"""Clouds with a module in this package; each has `connect(region, bucket, prefix, *, profile, role_arn) -> Ports`."""


def ports_of(
    cloud: str, *, region: str, evidence_bucket: str, evidence_prefix: str, profile: str = "", role_arn: str = ""
) -> Ports:
    """The ports of one cloud's region, under the operator's credentials.

    `evidence_bucket` is the bucket's name, or the container's address on Azure. `profile` and `role_arn` select AWS
    credentials; the other clouds refuse them. Raises `PortUnavailable`.
    """
    if cloud not in CLOUDS:
        raise PortUnavailable(
            f"the handover does not support {cloud}; supported: {', '.join(CLOUDS)}; "
            "set `wait: none` to deploy without it"
        )
    module = importlib.import_module(f"gpuinfra.handover.{cloud}")
    ports: Ports = module.connect(region, evidence_bucket, evidence_prefix, profile=profile, role_arn=role_arn)
    return ports


def connect(inputs: Mapping[str, object]) -> Ports:
    """The ports for the inputs of a `NodesReady`."""
    return ports_of(
        str(inputs.get("cloud")),
        region=str(inputs["region"]),
        evidence_bucket=str(inputs["evidenceBucket"]),
        evidence_prefix=str(inputs["evidencePrefix"]),
        profile=str(inputs.get("profile") or ""),
        role_arn=str(inputs.get("roleArn") or ""),
    )
