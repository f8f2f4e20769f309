"""Calls of Compute Engine: networks, firewall rules, templates, groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.clouds.gcp.requests import Call, Inputs, link, mapper

V1, BETA = "compute.v1", "compute.beta"


@mapper("compute/network:Network")
def _network(inputs: Inputs) -> Iterator[Call]:
    where = inputs.some("project")
    routes = inputs.take("deleteDefaultRoutesOnCreate")
    body = inputs.some("name", "autoCreateSubnetworks", "mtu")
    if mode := inputs.take("routingMode"):
        body["routingConfig"] = {"routingMode": mode}
    if profile := inputs.take("networkProfile"):
        body["networkProfile"] = link(profile)
    yield Call(V1, "networks.insert", where, body)
    if routes:
        yield Call(V1, "routes.delete", {**where, "route": "default-route-0123456789abcdef"})


@mapper("compute/subnetwork:Subnetwork")
def _subnetwork(inputs: Inputs) -> Iterator[Call]:
    region = inputs.take("region")
    body = inputs.some("name", "ipCidrRange", "stackType", privateIpGoogleAccess="privateIpGoogleAccess")
    body |= {"network": link(inputs.take("network")), "region": region}
    if logs := inputs.take("logConfig"):
        body["logConfig"] = {"enable": True, **logs}
    yield Call(V1, "subnetworks.insert", {**inputs.some("project"), "region": region}, body)


@mapper("compute/firewall:Firewall")
def _firewall(inputs: Inputs) -> Iterator[Call]:
    body = inputs.some(
        "name",
        "direction",
        "priority",
        "sourceRanges",
        "destinationRanges",
        "sourceServiceAccounts",
        "targetServiceAccounts",
    )
    body["network"] = link(inputs.take("network"))
    for ours, theirs in (("allows", "allowed"), ("denies", "denied")):
        if rules := inputs.take(ours):
            body[theirs] = [{"IPProtocol": one["protocol"], "ports": one.get("ports", [])} for one in rules]
    if logs := inputs.take("logConfig"):
        body["logConfig"] = {"enable": True, **logs}
    yield Call(V1, "firewalls.insert", inputs.some("project"), body)


@mapper("compute/router:Router")
def _router(inputs: Inputs) -> Iterator[Call]:
    body = {**inputs.some("name"), "network": link(inputs.take("network"))}
    yield Call(V1, "routers.insert", inputs.some("project", "region"), body)


@mapper("compute/routerNat:RouterNat")
def _nat(inputs: Inputs) -> Iterator[Call]:
    where = inputs.some("project", "region", "router")
    body = inputs.some(
        "name",
        "natIpAllocateOption",
        "enableDynamicPortAllocation",
        "enableEndpointIndependentMapping",
        "minPortsPerVm",
        "maxPortsPerVm",
        "logConfig",
        sourceSubnetworkIpRangesToNat="sourceSubnetworkIpRangesToNat",
    )
    body["subnetworks"] = [
        {"name": link(one["name"]), "sourceIpRangesToNat": one["sourceIpRangesToNats"]}
        for one in inputs.take("subnetworks", [])
    ]
    yield Call(V1, "routers.patch", where, {"nats": [body]})


@mapper("compute/globalAddress:GlobalAddress")
def _address(inputs: Inputs) -> Iterator[Call]:
    where, labels = inputs.some("project"), inputs.take("labels")
    body = inputs.some("name", "address", "addressType", "purpose", "prefixLength")
    body["network"] = link(inputs.take("network"))
    yield Call(V1, "globalAddresses.insert", where, body)
    yield Call(V1, "globalAddresses.setLabels", {**where, "resource": body["name"]}, {"labels": labels})


@mapper("compute/resourcePolicy:ResourcePolicy")
def _policy(inputs: Inputs) -> Iterator[Call]:
    where = inputs.some("project", "region")
    yield Call(V1, "resourcePolicies.insert", where, inputs.some("name", "description", "workloadPolicy"))


@mapper("compute/instanceTemplate:InstanceTemplate")
def _template(inputs: Inputs) -> Iterator[Call]:
    where, name = inputs.some("project"), inputs.take("name")
    properties = inputs.some("machineType", "description", "canIpForward", "labels", "shieldedInstanceConfig")
    properties["metadata"] = {"items": [{"key": k, "value": v} for k, v in inputs.take("metadata").items()]}
    properties["serviceAccounts"] = [inputs.take("serviceAccount")]
    properties["disks"] = [_disk(one) for one in inputs.take("disks")]
    properties["networkInterfaces"] = [
        {**one, "subnetwork": link(one["subnetwork"])} for one in inputs.take("networkInterfaces")
    ]
    properties["scheduling"] = _scheduling(inputs.take("scheduling"))
    properties["reservationAffinity"] = _affinity(inputs.take("reservationAffinity"))
    yield Call(V1, "instanceTemplates.insert", where, {"name": name, "properties": properties})


def _disk(disk: dict[str, Any]) -> dict[str, Any]:
    disk = dict(disk)
    numbers = {
        api: str(disk.pop(ours))
        for ours, api in (
            ("diskSizeGb", "diskSizeGb"),
            ("provisionedIops", "provisionedIops"),
            ("provisionedThroughput", "provisionedThroughput"),
        )
        if ours in disk
    }
    start = {key: disk.pop(key) for key in ("sourceImage", "diskType", "labels") if key in disk}
    attached = {key: disk.pop(key) for key in ("boot", "autoDelete", "type", "mode") if key in disk}
    if key := disk.pop("diskEncryptionKey", None):
        attached["diskEncryptionKey"] = {"kmsKeyName": key["kmsKeySelfLink"]}
    assert not disk, f"no part of the request has {sorted(disk)} of a disk"
    return {**attached, "initializeParams": {**start, **numbers}}


def _scheduling(scheduling: dict[str, Any]) -> dict[str, Any]:
    run = scheduling.get("maxRunDuration")
    return {**scheduling, **({"maxRunDuration": {"seconds": str(run["seconds"])}} if run else {})}


def _affinity(affinity: dict[str, Any]) -> dict[str, Any]:
    # The API has another name for the type, and the reservation beside it.
    specific = affinity.get("specificReservation", {})
    return {"consumeReservationType": affinity["type"], **specific}


@mapper("compute/instanceGroupManager:InstanceGroupManager")
def _group(inputs: Inputs) -> Iterator[Call]:
    where = inputs.some("project", "zone")
    body = inputs.some("name", "baseInstanceName", "description", "targetSize", "resourcePolicies")
    body["versions"] = inputs.take("versions")
    body["instanceLifecyclePolicy"] = inputs.take("instanceLifecyclePolicy")
    update = inputs.take("updatePolicy")
    for word in ("maxSurge", "maxUnavailable"):
        update[word] = {"fixed": update.pop(f"{word}Fixed")}
    update["mostDisruptiveAllowedAction"] = update.pop("mostDisruptiveAllowedAction")
    if health := inputs.take("autoHealingPolicies"):
        body["autoHealingPolicies"] = [{**health, "healthCheck": link(health["healthCheck"])}]
    yield Call(V1, "instanceGroupManagers.insert", where, {**body, "updatePolicy": update})


@mapper("compute/healthCheck:HealthCheck")
def _health_check(inputs: Inputs) -> Iterator[Call]:
    body = inputs.some(
        "name",
        "description",
        "checkIntervalSec",
        "timeoutSec",
        "healthyThreshold",
        "unhealthyThreshold",
        "httpHealthCheck",
    )
    yield Call(V1, "healthChecks.insert", inputs.some("project"), {**body, "type": "HTTP"})


@mapper("compute/disk:Disk")
def _data_disk(inputs: Inputs) -> Iterator[Call]:
    where = inputs.some("project", "zone")
    zone = f"projects/{where['project']}/zones/{where['zone']}"
    key = inputs.take("diskEncryptionKey")
    body = {
        **inputs.some("name", "labels"),
        "sizeGb": str(inputs.take("size")),
        "type": f"{zone}/diskTypes/{inputs.take('type')}",
    }
    yield Call(V1, "disks.insert", where, {**body, "diskEncryptionKey": {"kmsKeyName": key["kmsKeySelfLink"]}})


@mapper("compute/resizeRequest:ResizeRequest")
def _request(inputs: Inputs) -> Iterator[Call]:
    where = inputs.some("project", "zone", "instanceGroupManager")
    body = inputs.some("name", "resizeBy", "requestedRunDuration")
    yield Call(V1, "instanceGroupManagerResizeRequests.insert", where, body)
