"""The four ports by the name of the cloud. A cloud's module, and with it its SDK, is imported when its ports are wanted."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from gpuinfra.handover.ports import Ports, PortUnavailable

CLOUDS = ("aws", "azure", "gcp")
"""Clouds with a module beside this one; each has `connect(region, bucket, prefix, *, profile, role_arn) -> Ports`."""


def ports_of(
    cloud: str, *, region: str, evidence_bucket: str, evidence_prefix: str, profile: str = "", role_arn: str = ""
) -> Ports:
    """The ports of one cloud's region, under the operator's credentials.

    `evidence_bucket` is what the cloud calls it: a bucket's name, a container's address. `profile` and `role_arn` are
    AWS's ways to say whose credentials; a cloud that has no such thing refuses them. Raises `PortUnavailable`.
    """
    if cloud not in CLOUDS:
        raise PortUnavailable(
            f"the handover on {cloud} is not there yet, it is on {', '.join(CLOUDS)}; "
            "set `wait: none` to go on without it"
        )
    module = importlib.import_module(f"gpuinfra.handover.{cloud}")
    ports: Ports = module.connect(region, evidence_bucket, evidence_prefix, profile=profile, role_arn=role_arn)
    return ports


def connect(inputs: Mapping[str, object]) -> Ports:
    """The ports that the inputs of a `NodesReady` name."""
    return ports_of(
        str(inputs.get("cloud")),
        region=str(inputs["region"]),
        evidence_bucket=str(inputs["evidenceBucket"]),
        evidence_prefix=str(inputs["evidencePrefix"]),
        profile=str(inputs.get("profile") or ""),
        role_arn=str(inputs.get("roleArn") or ""),
    )
