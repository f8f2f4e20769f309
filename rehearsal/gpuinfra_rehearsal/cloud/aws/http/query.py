"""AWS query protocol: the STS, Auto Scaling and EC2 calls that the handover and the preflight use.

Responses have the format that the AWS SDKs parse. Other actions are refused.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from gpuinfra_rehearsal.cloud.aws import access, credentials, home_replication, operator, places, refreshes, signatures
from gpuinfra_rehearsal.cloud.aws.groups import GROUP, desired
from gpuinfra_rehearsal.cloud.aws.http import changes, describe, logs, offers, pending, sessions, topics, volumes
from gpuinfra_rehearsal.cloud.aws.ids import ACCOUNT
from gpuinfra_rehearsal.cloud.core import ids, outage
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.http import Request, Response

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud

_REQUEST_ID = ids.uuid(0)
_NAMESPACES = {
    "sts": "https://sts.amazonaws.com/doc/2011-06-15/",
    "autoscaling": "http://autoscaling.amazonaws.com/doc/2011-01-01/",
    "ec2": "http://ec2.amazonaws.com/doc/2016-11-15/",
    "iam": "https://iam.amazonaws.com/doc/2010-05-08/",
    "sns": "http://sns.amazonaws.com/doc/2010-03-31/",
}
_OFFERS = {
    "ServiceQuotasV20190624.GetServiceQuota": offers.get_service_quota,
    "AmazonSSM.GetParameter": offers.get_parameter,
}
_LOGINS = {
    "AWSEC2InstanceConnectService.SendSSHPublicKey": sessions.send_ssh_public_key,
    "AmazonSSM.StartSession": sessions.start_session,
}
_PAGE = 100


class Queries:
    """Serves POST `/`."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self._actions: dict[tuple[str, str], Callable[[dict[str, str], signatures.Verified], dict[str, Any]]] = {
            ("sts", "GetCallerIdentity"): self._identity,
            ("sts", "AssumeRole"): self._assume_role,
            ("autoscaling", "DescribeAutoScalingGroups"): self._groups,
            ("autoscaling", "DescribeAutoScalingInstances"): self._group_instances,
            ("autoscaling", "DescribeScalingActivities"): self._activities,
            ("autoscaling", "DescribeInstanceRefreshes"): self._refreshes,
            ("autoscaling", "StartInstanceRefresh"): self._start_refresh,
            ("autoscaling", "TerminateInstanceInAutoScalingGroup"): self._terminate,
            **{
                ("autoscaling", name): lambda asked, by, change=change: change(cloud, asked, by.region)
                for name, change in changes.GROUP_CHANGES.items()
            },
            ("ec2", "DescribeInstances"): self._instances,
            ("ec2", "GetConsoleOutput"): self._console,
            ("ec2", "AttachVolume"): lambda asked, by: volumes.attach(cloud, asked, by.region),
            ("ec2", "DescribeInstanceTypeOfferings"): self._offerings,
            ("ec2", "DescribeAvailabilityZones"): self._zones,
            ("ec2", "DescribeImages"): lambda asked, by: offers.describe_images(
                cloud, _members(asked, "ImageId"), _filters(asked), by.region
            ),
            ("ec2", "DescribeCapacityReservations"): lambda asked, by: offers.describe_capacity_reservations(
                cloud, _members(asked, "CapacityReservationId"), by.region
            ),
            ("ec2", "DescribeCapacityBlockOfferings"): lambda asked, by: offers.describe_block_offerings(
                cloud, asked, by.region
            ),
            ("ec2", "DescribeCapacityBlockExtensionOfferings"): lambda asked, by: offers.describe_extension_offerings(
                cloud, asked, by.region
            ),
            ("sns", "Publish"): lambda asked, by: topics.publish(cloud, asked),
            ("iam", "GetRole"): lambda asked, by: describe.get_role(cloud, asked.get("RoleName", "")),
            ("ec2", "DescribeSecurityGroups"): lambda asked, by: describe.describe_security_groups(
                cloud, _filters(asked), by.region
            ),
            ("ec2", "DescribeTags"): lambda asked, by: pending.describe_tags(cloud, _filters(asked), by.region),
            ("ec2", "DescribeRouteTables"): lambda asked, by: pending.describe_route_tables(
                cloud, _filters(asked), by.region
            ),
            ("ec2", "DescribeSubnets"): lambda asked, by: describe.describe_subnets(cloud, _filters(asked), by.region),
            ("ec2", "DescribeNetworkInterfaces"): lambda asked, by: describe.describe_network_interfaces(
                cloud, _members(asked, "NetworkInterfaceId"), by.region
            ),
        }

    def __call__(self, request: Request) -> Response:
        service = "sts"
        try:
            verified = self._verify(request)
            service = verified.service
            if (target := request.headers.get("x-amz-target")) is not None:
                return self._json(target, request, verified)
            asked = dict(parse_qsl(request.body.decode(), keep_blank_values=True)) | request.query
            action = asked.get("Action", "no action")
            handler = self._actions.get((service, action))
            if handler is None:
                raise ApiRejected(
                    "InvalidAction", f"The action {action} of {service} is not supported in a rehearsal", status=400
                )
            if service == "iam":
                self._read_only(verified)
            elif service == "ec2" and action == "DescribeInstances" and verified.key.principal.role:
                self._allowed_to_node(verified, "ec2:DescribeInstances", "*")
                return _answer(service, action, handler(asked, verified))
            elif action == "TerminateInstanceInAutoScalingGroup" and verified.key.principal.role:
                self._may_terminate(asked, verified)
            elif action == "AttachVolume" and verified.key.principal.role:
                self._may_attach(asked, verified)
            elif service == "sns" and verified.key.principal.role:
                self._allowed_to_node(verified, f"sns:{action}", asked.get("TopicArn", ""))
            elif service != "sts":
                self._read_only(verified)
                if self.cloud.faults.throttles():
                    # The code and its source are in clouds/aws/handover/refusals.json.
                    raise ApiRejected("Throttling", "Rate exceeded")
                named = None if action.startswith("Describe") else asked.get("AutoScalingGroupName")
                if action.startswith("Terminate"):
                    named = (self.cloud.store.get("instance", asked.get("InstanceId", "")) or {}).get("group")
                where = operator.group_arn(named, verified.region) if named else "*"
                self.cloud.operator.check(operator, operator.http(f"{service}:{action}", where, verified.region))
            return _answer(service, action, handler(asked, verified))
        except ApiRejected as error:
            if error.status in (400, 403):
                self.cloud.store.log("POST", service, request.body[:200].decode(errors="replace"), "", error.code)
            return _error(service, error)

    def _json(self, target: str, request: Request, verified: signatures.Verified) -> Response:
        """Handle an action of the JSON protocol."""
        kind = "application/x-amz-json-1.1"
        try:
            body = json.loads(request.body or b"{}")
            if target == "AmazonSSM.GetParameter" and verified.key.principal.role:
                arn = f"arn:aws:ssm:{verified.region}:{ACCOUNT}:parameter{body.get('Name')}"
                self._allowed_to_node(verified, "ssm:GetParameter", arn)
                return Response(200, json.dumps(offers.secret_parameter(self.cloud, body)).encode(), kind)
            if target in logs.OF_NODES and verified.key.principal.role:
                action_name, arn = logs.asked_by_node(target, body, verified.region)
                self._allowed_to_node(verified, action_name, arn)
                answer = logs.OF_NODES[target](self.cloud, body, verified.region)
                return Response(200, json.dumps(answer).encode(), kind)
            self._read_only(verified)
            action = (
                describe.JSON_ACTIONS.get(target)
                or changes.KEY_CHANGES.get(target)
                or pending.JSON_ACTIONS.get(target)
                or logs.JSON_ACTIONS.get(target)
                or _OFFERS.get(target)
                or _LOGINS.get(target)
            )
            if action is None:
                raise ApiRejected("UnknownOperationException", f"The action {target} is not supported in a rehearsal")
            answer = action(self.cloud, body, verified.region)
            return Response(200, json.dumps(answer).encode(), kind)
        except ApiRejected as error:
            self.cloud.store.log("POST", verified.service, target, "", error.code)
            return Response(error.status, json.dumps({"__type": error.code, "message": error.message}).encode(), kind)

    def _verify(self, request: Request) -> signatures.Verified:
        """Verify the signature. Raises `NoResponse` if the region of the service has an outage. IAM is in us-east-1 for every Region of the request."""
        verified = signatures.verify(request, lambda key: credentials.by_id(self.cloud.store, key))
        region = places.CONTROL_REGION if verified.service == "iam" else verified.region
        if outage.affects(self.cloud.store, region):
            raise outage.NoResponse(region)
        return verified

    def efs(self, request: Request) -> Response:
        """Handle GET `/2015-02-01/file-systems` and `mount-targets`, and the replication of file systems."""
        path = request.path.removeprefix("/2015-02-01/")
        if change := home_replication.changes(request.method, path):
            return self._rest("efs", request, change, method=request.method)
        actions = {
            "file-systems": describe.describe_homes,
            "file-systems/replication-configurations": home_replication.describe,
            "mount-targets": pending.describe_mount_targets,
        }
        return self._rest("efs", request, actions.get(path))

    def amp(self, request: Request) -> Response:
        """Handle GET `/workspaces`."""
        return self._rest("amp", request, pending.list_workspaces if request.path == "/workspaces" else None)

    def _rest(
        self,
        service: str,
        request: Request,
        action: Callable[[Cloud, dict[str, str], str], dict[str, Any]] | None,
        method: str = "GET",
    ) -> Response:
        """Handle a request of the REST protocol with JSON."""
        try:
            verified = self._verify(request)
            self._read_only(verified)
            if request.method != method or action is None:
                raise ApiRejected("BadRequest", f"{request.method} {request.path} is not supported in a rehearsal")
            body = json.loads(request.body) if request.body else {}
            answer = action(self.cloud, {**request.query, **body}, verified.region)
            return Response(204 if method == "DELETE" else 200, json.dumps(answer).encode(), "application/json")
        except ApiRejected as error:
            self.cloud.store.log(request.method, service, request.path[:500], "", error.code)
            text = {"ErrorCode": error.code, "Message": error.message}
            headers = {"x-amzn-errortype": error.code}
            return Response(error.status, json.dumps(text).encode(), "application/json", headers=headers)

    # STS

    def _identity(self, asked: dict[str, str], verified: signatures.Verified) -> dict[str, Any]:
        who = verified.key.principal
        return {"Arn": who.arn, "UserId": who.user_id, "Account": ACCOUNT}

    def _assume_role(self, asked: dict[str, str], verified: signatures.Verified) -> dict[str, Any]:
        """Return keys of a role outside the stack: https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html, retrieved 2026-11-29."""
        who, role = verified.key.principal, asked.get("RoleArn", "")
        name = re.fullmatch(r"arn:[a-z-]+:iam::\d{12}:role/(?:[\w+=,.@-]+/)*([\w+=,.@-]{1,64})", role)
        if name is None:
            raise ApiRejected("ValidationError", f"{role} is invalid", status=400)
        if who.kind != "operator":
            raise ApiRejected(
                "AccessDenied",
                f"User: {who.arn} is not authorized to perform: sts:AssumeRole on resource: {role}",
                status=403,
            )
        pair, stored = credentials.of_assumed_role(self.cloud.store, int(asked.get("DurationSeconds") or 3600))
        expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(stored["expires"]))
        keys = {"AccessKeyId": pair.id, "SecretAccessKey": pair.secret, "SessionToken": stored["token"]}
        session = f"arn:aws:sts::{ACCOUNT}:assumed-role/{name[1]}/{asked.get('RoleSessionName')}"
        return {"Credentials": {**keys, "Expiration": expires}, "AssumedRoleUser": {"Arn": session}}

    # Auto Scaling

    def _groups(self, asked: dict[str, str], verified: signatures.Verified) -> dict[str, Any]:
        wanted = _members(asked, "AutoScalingGroupNames.member")
        groups = [
            one
            for one in self.cloud.store.list(GROUP)
            if one.region == verified.region and (not wanted or one.id in wanted)
        ]
        page, token = _page(groups, asked, "MaxRecords")
        return {"AutoScalingGroups": [self._group(group) for group in page], "NextToken": token}

    def _group(self, group: Any) -> dict[str, Any]:
        inputs = group.plain
        return {
            "AutoScalingGroupName": group.id,
            "AutoScalingGroupARN": group.outputs["arn"],
            "MinSize": int(inputs["minSize"]),
            "MaxSize": int(inputs["maxSize"]),
            "DesiredCapacity": desired(inputs),
            "DefaultCooldown": 300,
            "AvailabilityZones": list(group.outputs.get("availabilityZones") or []),
            "LoadBalancerNames": [],
            "HealthCheckType": inputs.get("healthCheckType", "EC2"),
            "HealthCheckGracePeriod": int(inputs.get("healthCheckGracePeriod") or 300),
            "Instances": [self._member(one) for one in self.cloud.fleet.of_group(group)],
            "CreatedTime": _iso(group.created),
            "VPCZoneIdentifier": ",".join(inputs.get("vpcZoneIdentifiers") or []),
            "Tags": [
                {"ResourceId": group.id, "ResourceType": "auto-scaling-group", "Key": tag["key"], "Value": str(tag["value"]),
                    "PropagateAtLaunch": bool(tag["propagateAtLaunch"])}
                for tag in inputs.get("tags") or []
            ],
        }  # fmt: skip

    @staticmethod
    def _member(instance: dict[str, Any]) -> dict[str, Any]:
        return {
            "InstanceId": instance["id"],
            "InstanceType": instance["machine"],
            "AvailabilityZone": instance["zone"],
            "LifecycleState": "InService",
            "HealthStatus": "Healthy",
            "LaunchTemplate": {
                "LaunchTemplateId": instance["template"], "LaunchTemplateName": instance["template_name"], "Version": str(instance["template_version"]),
            },
            "ProtectedFromScaleIn": False,
        }  # fmt: skip

    def _group_instances(self, asked: dict[str, str], verified: signatures.Verified) -> dict[str, Any]:
        wanted = _members(asked, "InstanceIds.member")
        members = [
            one for one in self.cloud.fleet.instances().values()
            if one["state"] != "terminated" and one["region"] == verified.region and (not wanted or one["id"] in wanted)
        ]  # fmt: skip
        page, token = _page(members, asked, "MaxRecords")
        return {
            "AutoScalingInstances": [
                {**self._member(one), "AutoScalingGroupName": one["group"], "HealthStatus": "HEALTHY"} for one in page
            ],
            "NextToken": token,
        }

    def _activities(self, asked: dict[str, str], verified: signatures.Verified) -> dict[str, Any]:
        group = asked.get("AutoScalingGroupName", "")
        page, token = _page(self.cloud.fleet.activities(verified.region, group), asked, "MaxRecords")
        return {
            "Activities": [_activity(one) for one in page],
            "NextToken": token,
        }

    def _refreshes(self, asked: dict[str, str], verified: signatures.Verified) -> dict[str, Any]:
        """Describe the newest refresh of a group. The stand-in does not keep older refreshes."""
        name = asked.get("AutoScalingGroupName", "")
        refresh = refreshes.newest(self.cloud.store, verified.region, name)
        if refresh is None:
            return {"InstanceRefreshes": []}
        given = refresh["preferences"]
        shown = {
            "MinHealthyPercentage": _int(given.get("minHealthyPercentage")),
            "MaxHealthyPercentage": _int(given.get("maxHealthyPercentage")),
            "InstanceWarmup": _int(given.get("instanceWarmup")),
            "CheckpointPercentages": [int(one) for one in given.get("checkpointPercentages") or []],
            "CheckpointDelay": _int(given.get("checkpointDelay")),
            "SkipMatching": bool(given.get("skipMatching")),
        }
        entry = {
            "InstanceRefreshId": refresh["id"], "AutoScalingGroupName": name, "Status": refresh["status"], "StartTime": _iso(refresh["started"]),
            "EndTime": _iso(refresh["ended"]) if refresh["ended"] else None, "PercentageComplete": refresh["percent"], "Preferences": shown,
        }  # fmt: skip
        return {"InstanceRefreshes": [entry]}

    def _start_refresh(self, asked: dict[str, str], verified: signatures.Verified) -> dict[str, Any]:
        name = asked.get("AutoScalingGroupName", "")
        if self.cloud.store.find(GROUP, name, verified.region) is None:
            raise ApiRejected(
                "ValidationError", f"AutoScalingGroup name not found - AutoScalingGroup '{name}' not found"
            )
        keys = ("MinHealthyPercentage", "MaxHealthyPercentage", "InstanceWarmup", "CheckpointDelay")
        given: dict[str, Any] = {key[0].lower() + key[1:]: int(asked[f"Preferences.{key}"]) for key in keys if f"Preferences.{key}" in asked}  # fmt: skip
        points = _members(asked, "Preferences.CheckpointPercentages.member")
        given |= {"checkpointPercentages": [int(one) for one in points]} if points else {}
        given["skipMatching"] = asked.get("Preferences.SkipMatching") == "true"
        with self.cloud.store.change():
            made = refreshes.start_now(self.cloud.store, verified.region, name, given)
        self.cloud.store.log("StartInstanceRefresh", GROUP, name, "")
        self.cloud.wake()
        return {"InstanceRefreshId": made}

    def _terminate(self, asked: dict[str, str], verified: signatures.Verified) -> dict[str, Any]:
        """Terminate an instance. Its group launches a new instance. The stand-in does not decrement the desired capacity."""
        id = asked.get("InstanceId", "")
        instance = self.cloud.store.get("instance", id)
        if asked.get("ShouldDecrementDesiredCapacity") != "false":
            raise ApiRejected("ValidationError", "ShouldDecrementDesiredCapacity=true is not supported in a rehearsal")
        why = f"instance {id} was taken out of service in response to a user request."
        if instance is None or instance["region"] != verified.region or not self.cloud.fleet.terminate(id, why):
            raise ApiRejected(
                "ValidationError", "Instance Id not found - No managed instance found for instance ID: " + id
            )
        self.cloud.store.log("TerminateInstanceInAutoScalingGroup", GROUP, id, "")
        newest = self.cloud.fleet.activities(verified.region, instance["group"])[0]
        return {"Activity": _activity(newest) | {"StatusCode": "InProgress", "EndTime": None, "Progress": 0}}

    # EC2

    def _instances(self, asked: dict[str, str], verified: signatures.Verified) -> dict[str, Any]:
        wanted = _members(asked, "InstanceId")
        every = {id: one for id, one in self.cloud.fleet.instances().items() if one["region"] == verified.region}
        if missing := [id for id in wanted if id not in every]:
            raise ApiRejected("InvalidInstanceID.NotFound", f"The instance ID '{missing[0]}' does not exist")
        matching = [
            one for one in every.values() if (not wanted or one["id"] in wanted) and _passes(one, _filters(asked))
        ]
        page, token = _page(matching, asked, "MaxResults")
        return {
            "reservationSet": [
                {
                    "reservationId": "r-" + one["id"][2:],
                    "ownerId": ACCOUNT,
                    "groupSet": [],
                    "instancesSet": [_instance(one)],
                }
                for one in page
            ],
            "nextToken": token,
        }

    def _console(self, asked: dict[str, str], verified: signatures.Verified) -> dict[str, Any]:
        id = asked.get("InstanceId", "")
        instance = self.cloud.store.get("instance", id)
        if instance is None:
            raise ApiRejected("InvalidInstanceID.NotFound", f"The instance ID '{id}' does not exist")
        output = base64.b64encode(self.cloud.fleet.console(id).encode()[-65536:]).decode()
        return {"instanceId": id, "timestamp": _iso(time.time()), "output": output}

    def _offerings(self, asked: dict[str, str], verified: signatures.Verified) -> dict[str, Any]:
        """Return the zones that offer machine types, according to the catalog. A type without a record is offered in
        every zone."""
        types = _filters(asked).get("instance-type") or []
        kind = asked.get("LocationType", "region")
        offerings = []
        for machine in types:
            sold = places.offered(machine, verified.region)
            where = {
                "region": [verified.region] if sold else [],
                "availability-zone": [name for name, _ in sold],
                "availability-zone-id": [id for _, id in sold],
            }
            offerings += [
                {"instanceType": machine, "locationType": kind, "location": place} for place in where.get(kind, [])
            ]
        return {"instanceTypeOfferingSet": offerings}

    def _zones(self, asked: dict[str, str], verified: signatures.Verified) -> dict[str, Any]:
        return {
            "availabilityZoneInfo": [
                {"zoneName": name, "zoneId": id, "zoneState": "available", "regionName": verified.region, "optInStatus": "opt-in-not-required",
                    "zoneType": "availability-zone"}
                for name, id in places.zones(verified.region)
            ]
        }  # fmt: skip

    def _may_terminate(self, asked: Mapping[str, str], verified: signatures.Verified) -> None:
        """Deny a node the termination of an instance, unless its role allows it for the group of the instance and the tags of this group."""
        instance = self.cloud.store.get("instance", asked.get("InstanceId", "")) or {}
        if (group := self.cloud.store.find(GROUP, str(instance.get("group")))) is not None:
            tags = {str(one["key"]): str(one["value"]) for one in group.plain.get("tags") or []}
            where = operator.group_arn(group.id, verified.region)
            self._allowed_to_node(verified, "autoscaling:TerminateInstanceInAutoScalingGroup", where, tags)

    def _may_attach(self, asked: Mapping[str, str], verified: signatures.Verified) -> None:
        """Deny a node the attachment of a volume, unless its role allows it for the volume and for the instance, and lets EBS use the key of the volume."""
        for resource, tags in volumes.attachment(self.cloud, asked, verified.region):
            self._allowed_to_node(verified, "ec2:AttachVolume", resource, tags)
        if key := volumes.key_of(self.cloud, asked, verified.region):
            grant = {"kms:GrantIsForAWSResource": "true", "kms:ViaService": f"ec2.{verified.region}.amazonaws.com"}
            self._allowed_to_node(verified, "kms:CreateGrant", key, more=grant)

    def _allowed_to_node(
        self,
        verified: signatures.Verified,
        action: str,
        resource: str,
        tags: Mapping[str, str] | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        """Deny an action that the role of a node does not allow on a resource with these tags. `more` are other context keys."""
        who = verified.key.principal
        if not access.role_allows(self.cloud, who.role, action, resource, verified.region, tags, more):
            what = f"User: {who.arn} is not authorized to perform: {action} on resource: {resource}"
            codes = {
                "ec2": ("UnauthorizedOperation", 403),
                "autoscaling": ("AccessDenied", 403),
                "sns": ("AuthorizationError", 403),
            }
            codes["kms"] = codes["ec2"]  # a request of EC2 in the name of the caller
            code, status = codes.get(action.partition(":")[0], ("AccessDeniedException", 400))
            raise ApiRejected(code, what, status=status)

    @staticmethod
    def _read_only(verified: signatures.Verified) -> None:
        """Allow only the operator to describe instances. The role of a node is denied."""
        who = verified.key.principal
        if who.kind != "operator":
            raise ApiRejected("AccessDenied", f"User: {who.arn} is not authorized to perform this action", status=403)


def _activity(activity: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "ActivityId": activity["id"], "AutoScalingGroupName": activity["group"], "Description": activity["description"], "Cause": activity["cause"],
        "StartTime": _iso(activity["start"]), "EndTime": _iso(activity["end"]), "StatusCode": activity["status"], "StatusMessage": activity["message"] or None,
        "Progress": 100, "Details": "{}",
    }  # fmt: skip


def _instance(instance: Mapping[str, Any]) -> dict[str, Any]:
    code, name = (48, "terminated") if instance["state"] == "terminated" else (16, "running")
    return {
        "instanceId": instance["id"],
        "imageId": instance["image_id"],
        "instanceType": instance["machine"],
        "instanceState": {"code": code, "name": name},
        "launchTime": _iso(instance["launched"]),
        "placement": {
            "availabilityZone": instance["zone"],
            "availabilityZoneId": instance["zone_id"],
            "tenancy": "default",
        },
        "privateIpAddress": instance["address"],
        "subnetId": instance["subnet"] or None,
        "instanceLifecycle": "spot" if instance["kind"] == "spot" else None,
        "capacityReservationId": (instance["reservations"] or [None])[0],
        "iamInstanceProfile": {"arn": instance["profile"].get("arn"), "id": "AIPA00000000000000001"}
        if instance["profile"]
        else None,
        "stateReason": {"code": "Server.InternalError", "message": instance.get("why", "")} if code == 48 else None,
        "tagSet": [{"key": key, "value": value} for key, value in sorted(instance["tags"].items())],
        "networkInterfaceSet": [],
    }


def _passes(instance: Mapping[str, Any], filters: Mapping[str, Sequence[str]]) -> bool:
    shown = _instance(instance)
    for name, values in filters.items():
        if name.startswith("tag:"):
            given = instance["tags"].get(name[4:])
        elif name == "tag-key":
            given = next((key for key in instance["tags"] if key in values), None)
        else:
            given = {
                "instance-id": instance["id"], "instance-state-name": shown["instanceState"]["name"], "instance-type": instance["machine"],
                "image-id": instance["image_id"], "subnet-id": instance["subnet"], "availability-zone": instance["zone"],
                "private-ip-address": instance["address"],
            }.get(name, _REFUSED)  # fmt: skip
        if given is _REFUSED:
            raise ApiRejected("InvalidParameterValue", f"The filter '{name}' is not supported in a rehearsal")
        if given not in values:
            return False
    return True


_REFUSED = "\0refused"


def _int(value: Any) -> int | None:
    return None if value is None else int(value)


def _members(asked: Mapping[str, str], prefix: str) -> list[str]:
    return [value for key, value in asked.items() if key.startswith(prefix + ".") and key[len(prefix) + 1 :].isdigit()]


def _filters(asked: Mapping[str, str]) -> dict[str, list[str]]:
    filters: dict[str, list[str]] = {}
    for key, name in asked.items():
        if key.startswith("Filter.") and key.endswith(".Name"):
            filters[name] = _members(asked, key.removesuffix("Name") + "Value")
    return filters


def _page(items: Sequence[Any], asked: Mapping[str, str], size: str) -> tuple[Sequence[Any], str | None]:
    token = asked.get("NextToken") or "0"
    if not token.isdigit():
        raise ApiRejected("InvalidNextToken", "The NextToken value is not valid.")
    start, count = int(token), min(int(asked.get(size) or _PAGE), _PAGE)
    return items[start : start + count], str(start + count) if start + count < len(items) else None


def _answer(service: str, action: str, result: Mapping[str, Any]) -> Response:
    if service == "ec2":
        text = f'<{action}Response xmlns="{_NAMESPACES[service]}"><requestId>{_REQUEST_ID}</requestId>{_xml(result, "item")}</{action}Response>'
    else:
        text = (
            f'<{action}Response xmlns="{_NAMESPACES[service]}"><{action}Result>{_xml(result, "member")}</{action}Result>'
            f"<ResponseMetadata><RequestId>{_REQUEST_ID}</RequestId></ResponseMetadata></{action}Response>"
        )
    return Response(200, text.encode(), "text/xml")


def _xml(value: Any, item: str) -> str:
    if isinstance(value, Mapping):
        return "".join(f"<{key}>{_xml(one, item)}</{key}>" for key, one in value.items() if one is not None)
    if isinstance(value, (list, tuple)):
        return "".join(f"<{item}>{_xml(one, item)}</{item}>" for one in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return escape(str(value))


def _error(service: str, error: ApiRejected) -> Response:
    body = f"<Code>{error.code}</Code><Message>{escape(error.message)}</Message>"
    if service == "ec2":
        text = f"<Response><Errors><Error>{body}</Error></Errors><RequestID>{_REQUEST_ID}</RequestID></Response>"
    else:
        text = f"<ErrorResponse><Error><Type>Sender</Type>{body}</Error><RequestId>{_REQUEST_ID}</RequestId></ErrorResponse>"
    return Response(error.status, text.encode(), "text/xml")


def _iso(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
