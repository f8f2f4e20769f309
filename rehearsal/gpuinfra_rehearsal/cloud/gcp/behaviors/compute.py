"""Instance templates, managed instance groups and resize requests. `core/fleet.py` runs the groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinfra_rehearsal.cloud.core import wire
from gpuinfra_rehearsal.cloud.core.behavior import Behavior, behaves
from gpuinfra_rehearsal.cloud.core.check import RejectedInput
from gpuinfra_rehearsal.cloud.core.errors import CreatedButFailed
from gpuinfra_rehearsal.cloud.gcp.behaviors.network import NETWORK, SUBNET, exists
from gpuinfra_rehearsal.cloud.gcp.errors import in_use, invalid, missing
from gpuinfra_rehearsal.cloud.gcp.groups import GROUP, REQUEST, TEMPLATE, data_of, size_of, template_of, versions_of
from gpuinfra_rehearsal.cloud.gcp.ids import PROJECT, last, link, new_id, path_of

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Call, Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource

GROUP_LIMIT = 1000
"""Maximum number of instances in a zonal group."""
METADATA_LIMIT = 256 * 1024
"""Maximum bytes of one metadata value. All values together are limited to 512 KiB.
https://cloud.google.com/compute/docs/metadata/setting-custom-metadata, retrieved 2026-11-21."""


@behaves
class InstanceTemplate(Behavior):
    """An instance template. It is immutable."""

    types = (TEMPLATE,)

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        plain = call.plain
        for key, value in (plain.get("metadata") or {}).items():
            if isinstance(value, str) and not wire.is_unknown(value) and len(value.encode()) > METADATA_LIMIT:
                yield RejectedInput(f"metadata.{key}", f"is limited to {METADATA_LIMIT} bytes")
        scheduling = plain.get("scheduling") or {}
        model = scheduling.get("provisioningModel")
        if model in ("SPOT", "FLEX_START") and scheduling.get("automaticRestart") is not False:
            yield RejectedInput("scheduling.automaticRestart", f"must be false with provisioning model {model}")
        if model == "FLEX_START" and not scheduling.get("maxRunDuration"):
            yield RejectedInput("scheduling.maxRunDuration", "must be given with provisioning model FLEX_START")

    def before_create(self, cloud: Cloud, call: Call) -> None:
        seen: set[str] = set()
        for number, network_interface in enumerate(call.plain.get("networkInterfaces") or []):
            subnet = path_of(str(network_interface.get("subnetwork") or ""))
            if subnet and not exists(cloud.store, SUBNET, subnet):
                raise missing(subnet)
            subnet_record = cloud.store.find(SUBNET, subnet) if subnet else None
            network = path_of(
                str(
                    network_interface.get("network")
                    or (subnet_record.plain.get("network") if subnet_record else "")
                    or subnet
                )
            )
            rdma = network_interface.get("nicType") in ("MRDMA", "IRDMA")
            made = cloud.store.find(NETWORK, network)
            profiled = bool(made and made.plain.get("networkProfile"))
            if rdma and number == 0:
                raise invalid(
                    "Invalid value for field 'resource.properties.networkInterfaces[0].nicType': 'MRDMA'. "
                    "The primary network interface must not be of type MRDMA."
                )
            if made and rdma != profiled:
                raise invalid(
                    f"Network interface nic{number} of type {network_interface.get('nicType')} is not supported on network '{network}' "
                    f"{'with' if profiled else 'without'} an RDMA network profile."
                )
            if not rdma and network in seen:
                raise invalid("Networks must be distinct for NICs attached to a VM.")
            seen.add(network)

    def created(self, cloud: Cloud, call: Call) -> None:
        number = str(2_000_000_000_000_000_000 + cloud.store.next("template"))
        own = link(call.id)
        call.outputs |= {"selfLink": own, "selfLinkUnique": f"{own}?uniqueId={number}", "numericId": number}

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        for group in cloud.store.list(GROUP):
            if any(path_of(str(one.get("instanceTemplate") or "")) == resource.id for one in versions_of(group)):
                raise in_use("instance_template", resource.id, group.id)


@behaves
class InstanceGroupManager(Behavior):
    """A group of instances that use one or two templates."""

    types = (GROUP,)
    shapes = {
        "baseInstanceName": (
            r"^[a-z][a-z0-9-]{0,57}\Z",
            "must be 1 to 58 lower case letters, digits and hyphens, got '{value}'",
        )
    }

    def before_create(self, cloud: Cloud, call: Call) -> None:
        plain = call.plain
        for version in plain.get("versions") or []:
            template = str(version.get("instanceTemplate") or "")
            if template_of(cloud.store, template) is None:
                raise missing(path_of(template))
        policy, size = plain.get("updatePolicy") or {}, int(plain.get("targetSize") or 0)
        if size > GROUP_LIMIT:
            raise invalid(
                f"Invalid value for field 'resource.targetSize': '{size}'. Must be less than or equal to {GROUP_LIMIT}."
            )
        surge = policy.get("maxSurgeFixed") or policy.get("maxSurgePercent")
        idle = policy.get("maxUnavailableFixed") or policy.get("maxUnavailablePercent")
        named = any(key in policy for key in ("maxSurgeFixed", "maxSurgePercent"))
        if policy.get("replacementMethod") == "RECREATE" and (surge or not named):
            raise invalid(
                "Invalid value for field 'resource.updatePolicy': maxSurge must be equal to 0 when replacement method is set to RECREATE."
            )
        if named and not surge and not idle and policy.get("type") == "PROACTIVE":
            raise invalid(
                "Invalid value for field 'resource.updatePolicy': maxSurge and maxUnavailable cannot both be equal to 0."
            )
        data = data_of(cloud.store, call.resource())
        model = (data.get("scheduling") or {}).get("provisioningModel")
        failing = (plain.get("instanceLifecyclePolicy") or {}).get("defaultActionOnFailure")
        if model == "FLEX_START" and failing != "DO_NOTHING":
            raise invalid(
                "Instances with provisioning model FLEX_START require the group's defaultActionOnFailure to be DO_NOTHING."
            )
        if (plain.get("resourcePolicies") or {}).get("workloadPolicy") and data.get("resourcePolicies"):
            raise invalid("A group with a workload policy cannot use an instance template with a placement policy.")

    before_update = before_create

    def created(self, cloud: Cloud, call: Call) -> None:
        zone = call.id.split("/zones/")[-1].split("/")[0]
        group = f"projects/{PROJECT}/zones/{zone}/instanceGroups/{last(call.id)}"
        call.outputs |= {
            "selfLink": link(call.id),
            "instanceGroup": link(group),
            "instanceGroupManagerId": cloud.store.next("group"),
        }

    def after(self, cloud: Cloud, call: Call) -> None:
        """The provider waits for the instances with `waitForInstances`. A rehearsal fails immediately instead of after
        15 minutes."""
        wanted = int(call.plain.get("targetSize") or 0)
        if not call.plain.get("waitForInstances") or not wanted:
            return
        if not cloud.fleet.has_capacity(call.resource(), wanted):
            raise CreatedButFailed(
                "timeout", "timeout while waiting for the group's instances to become stable", status=200
            )

    def read(self, cloud: Cloud, resource: Resource) -> Resource | None:
        size = size_of(cloud.store, resource)
        if int(resource.plain.get("targetSize") or 0) == size:
            return resource
        grown = {"targetSize": size}
        return resource.changed(**grown)

    def deleted(self, cloud: Cloud, resource: Resource) -> None:
        cloud.fleet.abandon(resource)
        cloud.store.drop("gcp-size", resource.id)
        for request in cloud.store.list(REQUEST):
            if request.id.startswith(f"{resource.id}/"):
                cloud.store.remove(request)


@behaves
class ResizeRequest(Behavior):
    """A resize request for a number of instances. The group grows when all of them are available."""

    types = (REQUEST,)

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        by = call.plain.get("resizeBy")
        if isinstance(by, int) and by < 1:
            yield RejectedInput("resizeBy", f"must be at least 1, got {by}")
        seconds = (call.plain.get("requestedRunDuration") or {}).get("seconds")
        if isinstance(seconds, str) and seconds.isdigit() and not 600 <= int(seconds) <= 604800:
            yield RejectedInput("requestedRunDuration.seconds", f"must be 600 to 604800, got {seconds}")

    def before_create(self, cloud: Cloud, call: Call) -> None:
        self._group(cloud, new_id(call.token, call.name, call.plain))

    def created(self, cloud: Cloud, call: Call) -> None:
        cloud.store.put("gcp-request", call.id, {"by": int(call.plain["resizeBy"]), "state": "ACCEPTED"})
        call.outputs["state"] = "ACCEPTED"

    def read(self, cloud: Cloud, resource: Resource) -> Resource | None:
        state = (cloud.store.get("gcp-request", resource.id) or {}).get("state", "SUCCEEDED")
        return replace(resource, outputs={**resource.outputs, "state": state})

    def deleted(self, cloud: Cloud, resource: Resource) -> None:
        """Cancel a waiting request. The machines of a fulfilled request remain."""
        cloud.store.drop("gcp-request", resource.id)

    @staticmethod
    def _group(cloud: Cloud, request: str) -> Resource:
        path = request.partition("/resizeRequests/")[0]
        group = cloud.store.find(GROUP, path)
        if group is None:
            raise missing(path)
        return group
