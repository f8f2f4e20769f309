"""Launch templates and Auto Scaling groups. `core/fleet.py` runs the groups."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpuinfra_rehearsal.cloud.aws import refreshes, schedules
from gpuinfra_rehearsal.cloud.aws.groups import GROUP, TEMPLATE, desired, resolve_template, template_of
from gpuinfra_rehearsal.cloud.core import wire
from gpuinfra_rehearsal.cloud.core.behavior import Behavior, behaves
from gpuinfra_rehearsal.cloud.core.check import RejectedInput
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected, CreatedButFailed

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Call, Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource, Store


_NOT_VERSIONED = frozenset(
    {"name", "namePrefix", "tags", "updateDefaultVersion", "defaultVersion", "description", "region", "__defaults"}
)


@behaves
class LaunchTemplate(Behavior):
    """A launch template. Every change to a launch setting creates a version. Older versions remain."""

    types = (TEMPLATE,)
    unique = (("name", "region"),)
    taken = ApiRejected(
        "InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use.", status=409
    )
    volatile = ("latestVersion", "defaultVersion")

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        data = call.plain.get("userData")
        if isinstance(data, str) and not wire.is_unknown(data):
            import base64
            import binascii

            try:
                if len(base64.b64decode(data, validate=True)) > 16384:
                    yield RejectedInput("userData", "is limited to 16384 bytes before it is encoded")
            except (binascii.Error, ValueError):
                yield RejectedInput("userData", "must be encoded in base64")

    def before_create(self, cloud: Cloud, call: Call) -> None:
        interfaces = call.plain.get("networkInterfaces") or []
        seen: set[tuple[int, int]] = set()
        for interface in interfaces:
            place = (int(interface.get("networkCardIndex") or 0), int(interface.get("deviceIndex") or 0))
            if place in seen:
                raise ApiRejected(
                    "InvalidParameterValue",
                    f"Each network interface requires a unique device index; {place[1]} is used twice on card {place[0]}",
                    "EC2: CreateLaunchTemplate",
                )
            seen.add(place)

    def created(self, cloud: Cloud, call: Call) -> None:
        _keep_version(cloud.store, call, 1)
        call.outputs |= {"latestVersion": 1, "defaultVersion": 1}

    def updated(self, cloud: Cloud, call: Call) -> None:
        assert call.old is not None
        latest, default = int(call.old.outputs["latestVersion"]), int(call.old.outputs["defaultVersion"])
        old = {key: value for key, value in call.old.inputs.items() if key not in _NOT_VERSIONED}
        new = {key: value for key, value in call.inputs.items() if key not in _NOT_VERSIONED}
        if wire.plain(old) != wire.plain(new):
            latest += 1
            _keep_version(cloud.store, call, latest)
            default = latest if call.plain.get("updateDefaultVersion") else default
        chosen = call.plain.get("defaultVersion")
        call.outputs |= {"latestVersion": latest, "defaultVersion": int(chosen) if chosen else default}

    def deleted(self, cloud: Cloud, resource: Resource) -> None:
        for version in range(1, int(resource.outputs["latestVersion"]) + 1):
            cloud.store.drop("template-version", f"{resource.id}:{version}")


def _keep_version(store: Store, call: Call, number: int) -> None:
    data = {key: value for key, value in call.plain.items() if key not in _NOT_VERSIONED}
    store.put("template-version", f"{call.id}:{number}", data)


@behaves
class AutoScalingGroup(Behavior):
    """A group of instances that use one template."""

    types = (GROUP,)
    unique = (("name", "region"),)
    taken = ApiRejected(
        "AlreadyExists",
        "AutoScalingGroup by this name already exists - A group with the name {name} already exists",
        status=409,
    )

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        plain = call.plain
        sources = [
            key
            for key in ("launchTemplate", "mixedInstancesPolicy", "launchConfiguration")
            if plain.get(key) is not None
        ]
        if len(sources) != 1:
            given = " and ".join(sources) or "none"
            yield RejectedInput(
                "launchTemplate",
                f"exactly one of launchTemplate, mixedInstancesPolicy, launchConfiguration must be given, got {given}",
            )

    def before_create(self, cloud: Cloud, call: Call) -> None:
        self._validate(cloud, call, "CreateAutoScalingGroup")

    def before_update(self, cloud: Cloud, call: Call) -> None:
        """The provider sends the desired capacity only if it differs from the state (`resourceGroupUpdate` in terraform-provider-aws,
        internal/service/autoscaling/group.go). Auto Scaling then keeps the capacity, or moves it between the new minimum and maximum
        (API reference of UpdateAutoScalingGroup, both retrieved 2026-11-27)."""
        if call.old is not None and call.state.get("desiredCapacity") == desired(call.plain):
            low, high = int(call.plain["minSize"]), int(call.plain["maxSize"])
            call.inputs = {**call.inputs, "desiredCapacity": max(low, min(desired(call.old.plain), high))}
        self._validate(cloud, call, "UpdateAutoScalingGroup")

    @staticmethod
    def _validate(cloud: Cloud, call: Call, operation: str) -> None:
        plain = call.plain

        def refuse(message: str) -> ApiRejected:
            return ApiRejected("ValidationError", message, f"Auto Scaling: {operation}")

        low, high, wanted = int(plain["minSize"]), int(plain["maxSize"]), desired(plain)
        if low > high:
            raise refuse(f"Max bound, {high}, must be greater than or equal to min bound, {low}")
        if not low <= wanted <= high:
            raise refuse(f"Desired capacity:{wanted} must be between the specified min size:{low} and max size:{high}")
        if not plain.get("launchConfiguration") and resolve_template(cloud.store, plain, call.region) is None:
            named = template_of(plain)
            raise refuse(
                "You must use a valid fully-formed launch template. The specified launch template, with template ID "
                f"{named.get('id') or named.get('name')} and version {named.get('version') or '$Default'}, does not exist."
            )
        for subnet in plain.get("vpcZoneIdentifiers") or []:
            if cloud.store.find("aws:ec2/subnet:Subnet", subnet) is None and cloud.external(subnet) is None:
                raise refuse(f"The subnet ID '{subnet}' does not exist")
        group = plain.get("placementGroup")
        if (
            group
            and not any(one.id == group for one in cloud.store.list("aws:ec2/placementGroup:PlacementGroup"))
            and cloud.external(group) is None
        ):
            raise refuse(f"The placement group '{group}' does not exist")

    def created(self, cloud: Cloud, call: Call) -> None:
        plain = call.plain
        call.outputs |= {"desiredCapacity": desired(plain), "predictedCapacity": 0, "warmPoolSize": 0}
        if not plain.get("availabilityZones"):
            zones = {
                str(subnet.outputs.get("availabilityZone"))
                for id in plain.get("vpcZoneIdentifiers") or []
                if (subnet := cloud.store.find("aws:ec2/subnet:Subnet", id))
            }
            call.outputs["availabilityZones"] = sorted(zones)

    def updated(self, cloud: Cloud, call: Call) -> None:
        self.created(cloud, call)
        assert call.old is not None
        if call.plain.get("instanceRefresh") is not None and template_of(call.plain) != template_of(call.old.plain):
            preferences = (call.plain["instanceRefresh"].get("preferences")) or {}
            refreshes.start(cloud.store, call.region, call.id, preferences)

    def after(self, cloud: Cloud, call: Call) -> None:
        """Wait for the instances unless `waitForCapacityTimeout` is 0. A rehearsal fails immediately instead of after
        ten minutes."""
        plain = call.plain
        patience = str(plain.get("waitForCapacityTimeout") or "10m")
        if re.fullmatch(r"0[a-z]*", patience) or not desired(plain):
            return
        if not cloud.fleet.has_capacity(call.resource(), desired(plain)):
            raise CreatedButFailed(
                "timeout", "timeout while waiting for state to become 'ok' (last state: 'want at least "
                f"{desired(plain)} healthy instance(s) in Auto Scaling Group, have 0', timeout: {patience})", status=200,
            )  # fmt: skip

    def deleted(self, cloud: Cloud, resource: Resource) -> None:
        refreshes.drop(cloud.store, resource.region, resource.id)
        cloud.fleet.abandon(resource)


@behaves
class ScheduledAction(Behavior):
    """A scheduled action of a group. AWS rejects an action in the past (API reference of PutScheduledUpdateGroupAction;
    the message is in hashicorp/terraform-provider-aws pull request 3033, both retrieved 2026-11-26)."""

    types = (schedules.SCHEDULE,)

    def before_create(self, cloud: Cloud, call: Call) -> None:
        start = call.plain.get("startTime")
        if start and schedules.is_past(str(start)):
            raise ApiRejected(
                "ValidationError", "Given start time is in the past", "Auto Scaling: PutScheduledUpdateGroupAction"
            )

    def before_update(self, cloud: Cloud, call: Call) -> None:
        self.before_create(cloud, call)
