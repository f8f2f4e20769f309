"""The handover's view of a cloud: the ports of the cloud, and what the Pulumi provider serves for it. The SDK of a cloud is imported on first use."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from gpuinfra.base.registry import CLOUDS, cloud_as
from gpuinfra.handover.ports import CloudTerms, Ports, PortUnavailable
from gpuinfra.handover.refusals import Refusals


class CloudHandover(Protocol):
    """The module `handover.ports` of a cloud."""

    @property
    def REFUSALS(self) -> Refusals:
        """The messages with which the cloud refuses nodes."""
        ...

    @property
    def TERMS(self) -> CloudTerms:
        """What advice calls the things of the cloud."""
        ...

    @property
    def TRUST_VARIABLES(self) -> tuple[str, ...]:
        """Environment variables that change where evidence is read and what proves an identity."""
        ...

    def connect(
        self, region: str, bucket: str, prefix: str, *, profile: str = "", role_arn: str = "", assume_roles: str = ""
    ) -> Ports:
        """Return the ports for one region, which use the operator's credentials. Raises `PortUnavailable`."""
        ...

    def access(self, resources: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """Return the arguments of `connect` that select the credentials of the provider in a state."""
        ...

    def check_credentials(self) -> None:
        """Raise `PortUnavailable` if there are certainly no credentials. Sends no request."""
        ...


class ServedResource(Protocol):
    """A module with a resource type that gpuinfra's Pulumi provider serves for one cloud, because the cloud's own provider has no such type.

    Requests raise `PortUnavailable`. Problems are tuples of a property and a reason.
    """

    @property
    def TYPE(self) -> str:
        """Pulumi type."""
        ...

    @property
    def INPUTS(self) -> tuple[str, ...]: ...

    @property
    def OUTPUTS(self) -> tuple[str, ...]:
        """The outputs that are not inputs. The first one is the ID of the resource."""
        ...

    @property
    def SCHEMA(self) -> Mapping[str, object]:
        """The resource in the schema of the provider."""
        ...

    def check_inputs(self, inputs: Mapping[str, object]) -> list[tuple[str, str]]:
        """Return the problems with the inputs."""
        ...

    def changes(self, state: Mapping[str, object], news: Mapping[str, object]) -> list[str]:
        """Return the changed inputs. Each of them replaces the resource."""
        ...

    def create(self, inputs: Mapping[str, object], cancelled: threading.Event) -> dict[str, object]:
        """Create the resource and return its properties. Raises `ValueError` and `OSError` for wrong inputs."""
        ...

    def read(self, properties: Mapping[str, object]) -> bool:
        """Return whether the resource still exists."""
        ...

    def delete(self, properties: Mapping[str, object]) -> str:
        """Delete the resource. Return the reason if it cannot be deleted, otherwise an empty string."""
        ...


class ServedFunction(Protocol):
    """A module with a function that gpuinfra's Pulumi provider serves for one cloud."""

    @property
    def TOKEN(self) -> str: ...

    def check_inputs(self, inputs: Mapping[str, object]) -> list[tuple[str, str]]:
        """Return the problems with the arguments, as tuples of a property and a reason."""
        ...

    def call(self, inputs: Mapping[str, object]) -> dict[str, object]:
        """Return the result. Raises `PortUnavailable`."""
        ...


@runtime_checkable
class HandoverCloud(Protocol):
    """A cloud as the handover and the Pulumi provider use it."""

    @property
    def handover(self) -> CloudHandover | None: ...

    @property
    def served_resources(self) -> tuple[ServedResource, ...]: ...

    @property
    def served_functions(self) -> tuple[ServedFunction, ...]: ...


def handover_of(cloud: str) -> CloudHandover:
    """Return the handover of a cloud. Raises `PortUnavailable` if the cloud has none."""
    handover = cloud_as(cloud, HandoverCloud).handover if cloud in CLOUDS else None
    if handover is None:
        raise PortUnavailable(
            f"the handover does not support {cloud}; supported: {', '.join(CLOUDS)}; set `wait: none` to deploy without the handover"
        )
    return handover


def terms_of(cloud: str) -> CloudTerms:
    """Return what advice calls the things of a cloud. Raises `PortUnavailable`."""
    return handover_of(cloud).TERMS


def served_resources() -> dict[str, ServedResource]:
    """Return the resource types that the provider serves for the clouds."""
    return {one.TYPE: one for cloud in CLOUDS for one in cloud_as(cloud, HandoverCloud).served_resources}


def served_functions() -> dict[str, ServedFunction]:
    """Return the functions that the provider serves for the clouds, by token."""
    return {one.TOKEN: one for cloud in CLOUDS for one in cloud_as(cloud, HandoverCloud).served_functions}


def ports_of(
    cloud: str,
    *,
    region: str,
    evidence_bucket: str,
    evidence_prefix: str,
    profile: str = "",
    role_arn: str = "",
    assume_roles: str = "",
) -> Ports:
    """Return the ports for one cloud region, which use the operator's credentials.

    `evidence_bucket` is the bucket's name or, on Azure, the container's address. `profile`, `role_arn` and `assume_roles` select AWS
    credentials; the other clouds refuse them. Raises `PortUnavailable`.
    """
    return handover_of(cloud).connect(
        region, evidence_bucket, evidence_prefix, profile=profile, role_arn=role_arn, assume_roles=assume_roles
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
        assume_roles=str(inputs.get("assumeRoles") or ""),
    )
