"""Queries AWS before a deployment, with boto3 and the credentials of the operator. All requests are read-only.

Field names, states and error codes come from the service models in botocore. Each question cites the page that documents its error messages.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from gpuinfra.base.errors import EnvironmentMissing
from gpuinfra.base.words import counted
from gpuinfra.catalog.records import CapacityKind
from gpuinfra.clouds.aws import adopt, credentials
from gpuinfra.clouds.aws.api_errors import LOGIN, asked, code_of
from gpuinfra.clouds.aws.catalog import MACHINES
from gpuinfra.clouds.aws.permissions import statements
from gpuinfra.clouds.aws.quotas import Quotas
from gpuinfra.clouds.aws.requests import PREFLIGHT
from gpuinfra.clouds.aws.reservations import capacity, mismatches, moment
from gpuinfra.clouds.aws.simulation import concrete, context, denial
from gpuinfra.clouds.preflight import (
    Owner,
    PreflightQuestion,
    PreflightRow,
    bucket_rows,
    failed,
    no_credentials,
    ok,
    problem,
    quota_needs,
    skipped,
    together,
    warning,
)
from gpuinfra.plan.model import Group, Image, Plan, PoolPlan
from gpuinfra.software.images import ImageFamily

CREDENTIALS = ("AWS_ACCESS_KEY_ID",)
"""Environment variables that contain credentials."""
SETTINGS = {
    credentials.PROFILE: False,
    credentials.ROLES: False,
    "aws:accessKey": True,
    "aws:assumeRoleWithWebIdentity": True,
}
"""Maps a provider sign-in setting to whether it contains or replaces credentials. The names are from `pulumi_aws.config`."""
CONNECT_S, READ_S, ATTEMPTS = 3.0, 5.0, 3
"""Time limits of one attempt, and the number of attempts of one request."""
SIMULATIONS_AT_ONCE = 12
SHOWN = 12
"""Maximum number of denied actions that a row lists."""

TOPICS = ("permissions", "quota", "machine", "reservation", "image", "names")
"""Topics of the questions about a plan."""

READS = PREFLIGHT


class Preflight:
    """Requests from one operator in one Region."""

    def __init__(self, region: str, config: Mapping[str, object]) -> None:
        """`config` contains the provider settings of the stack file. `aws:profile` and `aws:assumeRoles` select the credentials, as for Pulumi."""
        self.region = region or "us-east-1"
        self._settings = config
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()

    def identity(self) -> Iterator[PreflightRow]:
        """Return the account and the type of the identity, and where the credentials come from. Raises `Unanswered`."""
        keys = self.find_credentials()
        with asked("sts:GetCallerIdentity"):
            caller = self.client("sts").get_caller_identity()
        self.account, self._arn = str(caller["Account"]), str(caller["Arn"])
        yield ok("identity", "AWS", f"account {self.account}, {_kind(self._arn)}, credentials from {keys.method}")

    def find_credentials(self) -> Any:
        """Return the credentials of boto3. Sends no request to AWS, except to the metadata service of an instance. Raises `Unanswered`."""
        from botocore.exceptions import BotoCoreError

        try:
            self._session = credentials.session(self._settings, self.region)
            keys = self._session.get_credentials()
        except (BotoCoreError, EnvironmentMissing) as error:
            raise no_credentials(str(error), LOGIN) from None
        if keys is None:
            raise no_credentials("boto3 finds none in environment variables, profiles or the metadata service", LOGIN)
        return keys

    def client(self, service: str) -> Any:
        """Return a client with the time limits of a preflight. Only the creation of clients needs a lock."""
        from botocore.config import Config

        with self._lock:
            if service not in self._clients:
                retries = {"total_max_attempts": ATTEMPTS, "mode": "standard"}
                limits = Config(
                    connect_timeout=CONNECT_S, read_timeout=READ_S, retries=retries, max_pool_connections=32
                )
                self._clients[service] = self._session.client(service, config=limits)
            return self._clients[service]

    def questions(self, plan: Plan, token: Callable[[], str]) -> Iterator[PreflightQuestion]:
        """Yield the questions about a plan. The caller asks `identity` first. `token` returns the stack's `naming.stack_token`, or raises `Unanswered`."""
        yield PreflightQuestion(topic="permissions", where=_kind(self._arn), ask=lambda: self.permissions(plan))
        limits = Quotas(self.client, self.region)
        for code, needs in sorted(quota_needs(plan, _vcpus).items()):
            yield PreflightQuestion(
                topic="quota", where=code, ask=lambda code=code, needs=needs: limits.vcpus(code, needs)
            )
        for group, pool in _groups(plan):
            if group.kind != "block" and not any(_vcpus(pool, CapacityKind(group.kind))):
                why = f"no quota code is known for {group.kind} nodes of {pool.machine}"
                fix = f"aws service-quotas list-service-quotas --service-code ec2 --region {self.region}"
                row = skipped("quota", group.name, why, fix)
                yield PreflightQuestion(topic="quota", where=group.name, ask=lambda row=row: [row])
        yield from limits.questions(plan)
        for machine, zone in sorted({(pool.machine, group.zone) for group, pool in _groups(plan)}):
            ask = lambda machine=machine, zone=zone: self.offering(machine, zone)  # noqa: E731
            yield PreflightQuestion(topic="machine", where=f"{machine} in {zone}", ask=ask)
        for group, pool in _groups(plan):
            if group.reservation_id or group.reservation_group_arn:
                ask = lambda group=group, pool=pool: self.reservation(group, pool.machine)  # noqa: E731
                yield PreflightQuestion(topic="reservation", where=_target(group), ask=ask)
        for pool in {pool.image.ref: pool for pool in plan.pools}.values():
            yield PreflightQuestion(topic="image", where=pool.image.ref, ask=lambda pool=pool: self.image(pool))
        yield PreflightQuestion(topic="names", where="buckets", ask=lambda: self.names(plan, token()))

    # Permissions

    def permissions(self, plan: Plan) -> Iterator[PreflightRow]:
        """The identity has the permissions that `gpuinfra permissions` prints, according to the IAM policy simulator.

        The simulator evaluates identity policies, the permissions boundary and service control policies, but not resource policies:
        https://docs.aws.amazon.com/IAM/latest/APIReference/API_SimulatePrincipalPolicy.html, retrieved 2026-11-22.
        """
        where = _kind(self._arn)
        if self._arn.endswith(":root"):
            yield skipped(
                "permissions", where, "the simulator does not evaluate the root user, which has all permissions"
            )
            return
        source = self._principal()
        simulated = list(statements(plan))
        answers = together([self._simulation(source, plan, one) for one in simulated], at_once=SIMULATIONS_AT_ONCE)
        missing: dict[str, str] = {}
        total = {action for one in simulated for action in one["Action"]}
        for answer in answers:
            missing.update(answer or {})
        if late := answers.count(None):
            raise failed("iam:SimulatePrincipalPolicy", f"{late} of {len(answers)} simulations returned no result")
        if not missing:
            yield ok("permissions", where, f"all {len(total)} actions are allowed")
            return
        names = [f"{action}{reason}" for action, reason in sorted(missing.items())]
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        what = f"{len(missing)} of {counted(len(total), 'action')} denied: {', '.join(names[:SHOWN])}{more}"
        fix = f"run `gpuinfra permissions STACK`, and attach the policies that it prints to {source} (docs/reference/permissions.md)"
        yield problem("permissions", where, what, "the policies that `gpuinfra permissions` prints", fix)

    def _principal(self) -> str:
        """Return the ARN of the user or role. The ARN of a session does not contain the path of its role, so the path is read from IAM."""
        kind, _, name = self._arn.rpartition(":")[2].partition("/")
        if kind != "assumed-role":
            return self._arn
        with asked("iam:GetRole"):
            return str(self.client("iam").get_role(RoleName=name.partition("/")[0])["Role"]["Arn"])

    def _simulation(self, source: str, plan: Plan, statement: Mapping[str, Any]) -> Callable[[], dict[str, str]]:
        """Return a call that simulates one statement and returns its denied actions with the reason."""
        resources = statement["Resource"]
        arns = [concrete(one, self.account) for one in ([resources] if isinstance(resources, str) else resources)]
        arguments: dict[str, Any] = {
            "PolicySourceArn": source,
            "ActionNames": list(statement["Action"]),
            "ResourceArns": arns,
            "ContextEntries": context(statement.get("Condition", {}), plan.region),
        }

        def simulate() -> dict[str, str]:
            denials: dict[str, str] = {}
            page: dict[str, Any] = {"Marker": None}
            with asked("iam:SimulatePrincipalPolicy"):
                while "Marker" in page:
                    marker = {"Marker": page["Marker"]} if page["Marker"] else {}
                    page = self.client("iam").simulate_principal_policy(**arguments, **marker)
                    for result in page.get("EvaluationResults", ()):
                        if (reason := denial(result)) is not None:
                            denials[str(result["EvalActionName"])] = reason
            return denials

        return simulate

    def names(self, plan: Plan, token: str) -> Iterator[PreflightRow]:
        """The names of the buckets are free, or their buckets are in this account."""
        return bucket_rows(adopt.buckets(plan, self.account, token), self._owner)

    def _owner(self, bucket: str) -> Owner:
        """Return who has a bucket. The response has no body, so the status is the error code.

        https://docs.aws.amazon.com/AmazonS3/latest/API/API_HeadBucket.html, retrieved 2026-11-27.
        """
        from botocore.exceptions import ClientError

        with asked("s3:ListBucket"):
            try:
                self.client("s3").head_bucket(Bucket=bucket, ExpectedBucketOwner=self.account)
            except ClientError as error:
                if code_of(error) == "403":
                    return Owner.OTHER
                if code_of(error) != "404":
                    raise
                return Owner.UNUSED
        return Owner.ACCOUNT

    # Capacity

    def offering(self, machine: str, zone: str) -> Iterator[PreflightRow]:
        """The zone exists, is enabled for the account, and offers the machine type."""
        where = f"{machine} in {zone}"
        ec2 = self.client("ec2")
        with asked("ec2:DescribeAvailabilityZones"):
            zones = ec2.describe_availability_zones(AllAvailabilityZones=True)["AvailabilityZones"]
        zone_record = next((one for one in zones if zone in (one.get("ZoneId"), one.get("ZoneName"))), None)
        if zone_record is None:
            ids = ", ".join(sorted(str(one.get("ZoneId")) for one in zones))
            yield problem(
                "machine",
                where,
                f"the account has no zone {zone} in {self.region}",
                f"one of {ids}",
                "set `zone` in the stack file",
            )
            return
        if zone_record.get("OptInStatus") == "not-opted-in":
            fix = f"aws ec2 modify-availability-zone-group --group-name {zone_record['GroupName']} --opt-in-status opted-in --region {self.region}"
            yield problem(
                "machine", where, f"zone group {zone_record['GroupName']} is not enabled", "an enabled zone group", fix
            )
        elif zone_record.get("State") not in (None, "available"):
            messages = "; ".join(str(one.get("Message")) for one in zone_record.get("Messages", ()))
            what = f"the zone is {zone_record['State']}{f': {messages}' if messages else ''}"
            yield warning("machine", where, what, "an available zone", "choose a different zone, or wait")
        filters = [{"Name": "instance-type", "Values": [machine]}]
        with asked("ec2:DescribeInstanceTypeOfferings"):
            offered = ec2.describe_instance_type_offerings(LocationType="availability-zone-id", Filters=filters)
        offers = sorted(str(one["Location"]) for one in offered["InstanceTypeOfferings"])
        if zone_record.get("ZoneId") in offers:
            yield ok("machine", where, f"offered in {', '.join(offers)}")
        elif offers:
            fix = f"set `zone` in the stack file to {' or '.join(offers)}"
            yield problem("machine", where, f"not offered in {zone}", "a zone that offers the machine type", fix)
        else:
            what = f"not offered to this account in {self.region}"
            fix = f"`gpuinfra catalog {machine}` lists regions; `gpuinfra clone STACK --region REGION` writes a declaration for a different region"
            yield problem("machine", where, what, "a region that offers the machine type", fix)

    def reservation(self, group: Group, machine: str) -> Iterator[PreflightRow]:
        """The reservation or Capacity Block exists, matches the nodes, is active in time and has free instances."""
        from botocore.exceptions import ClientError

        where = _target(group)
        ids = [group.reservation_id] if group.reservation_id else self._members(str(group.reservation_group_arn))
        listing = f"aws ec2 describe-capacity-reservations --region {self.region}"
        reservations: list[dict[str, Any]] = []
        with asked("ec2:DescribeCapacityReservations"):
            try:
                if ids:
                    reservations = self.client("ec2").describe_capacity_reservations(CapacityReservationIds=ids)[
                        "CapacityReservations"
                    ]
            except ClientError as error:
                if not code_of(error).startswith("InvalidCapacityReservationId"):
                    raise
        if not reservations:
            what = f"no such reservation in account {self.account} in {self.region}"
            yield problem(
                "reservation",
                where,
                what,
                "the ID of an existing reservation",
                f"`{listing}` lists the reservations; set `id` in the stack file",
            )
            return
        fitting = []
        for reservation in reservations:
            reasons = list(mismatches(reservation, group, machine))
            if not reasons:
                fitting.append(reservation)
            elif len(reservations) == 1:
                for what, needed, fix in reasons:
                    yield problem("reservation", where, what, needed, fix)
        if not fitting:
            if len(reservations) > 1:
                what = f"none of the {len(reservations)} reservations fits"
                yield problem(
                    "reservation", where, what, f"{machine} in {group.zone}", f"`{listing}` lists the reservations"
                )
            return
        yield from capacity(fitting, group, where, self.region)

    def _members(self, arn: str) -> list[str]:
        with asked("resource-groups:ListGroupResources"):
            pages = self.client("resource-groups").get_paginator("list_group_resources").paginate(Group=arn)
            listed = [str(one["Identifier"]["ResourceArn"]) for page in pages for one in page.get("Resources", ())]
        return [one.rpartition("/")[2] for one in listed if ":capacity-reservation/" in one]

    # Images

    def image(self, pool: PoolPlan) -> Iterator[PreflightRow]:
        """The image exists, fits the machine type and the disk, and is not deprecated."""
        image, where = pool.image, pool.image.ref
        release = self._found_image(image)
        if release is None:
            needed, fix = "an existing image", "set `image` in the stack file; `gpuinfra images STACK` lists releases"
            yield problem("image", where, f"not found in {self.region}", needed, fix)
            return
        about = f"{release['ImageId']} {release.get('Name', '')}".strip()
        made = moment(release.get("CreationDate"))
        age = f", {(datetime.now(UTC) - made).days} days old" if made else ""
        if release.get("State") != "available":
            yield problem(
                "image",
                where,
                f"{about} is {release.get('State')}",
                "an available image",
                "set `image` in the stack file",
            )
        elif release.get("Architecture") not in (None, image.arch):
            what = f"{about} is for {release['Architecture']}"
            yield problem("image", where, what, f"an image for {image.arch}", "set `image` in the stack file")
        elif (least := _root_gib(release)) > pool.disk.size_gib:
            fix = f"set `disk.size_gib` of pool {pool.name} to {least}"
            yield problem("image", where, f"{about} has a root volume of {least} GiB", f"a disk of {least} GiB", fix)
        elif (end := moment(release.get("DeprecationTime"))) and end < datetime.now(UTC):
            what = f"{about}{age}, deprecated since {end:%Y-%m-%d}"
            yield warning(
                "image",
                where,
                what,
                "a current image",
                "set `image` in the stack file; `gpuinfra images STACK` lists releases",
            )
        else:
            yield ok("image", where, about + age)

    def newest_image(self, family: ImageFamily) -> str | None:
        """Return the name of the newest image of a family, in the form of `ImageFamily.dated`, or None if the Region has none."""
        image = self._found_image(Image(source="ssm", ref=family.latest, os=family.os, arch=family.arch, prebuilt=True))
        return str(image["Name"]) if image else None

    def _found_image(self, image: Image) -> dict[str, Any] | None:
        from botocore.exceptions import ClientError

        ref = image.ref
        if image.source == "ssm":
            with asked("ssm:GetParameter"):
                try:
                    ref = self.client("ssm").get_parameter(Name=ref)["Parameter"]["Value"]
                except ClientError as error:
                    if code_of(error) != "ParameterNotFound":
                        raise
                    return None
        with asked("ec2:DescribeImages"):
            try:
                if image.source == "name":
                    filters = [{"Name": "name", "Values": [ref]}, {"Name": "architecture", "Values": [image.arch]}]
                    listed = self.client("ec2").describe_images(
                        Owners=["amazon"], Filters=filters, IncludeDeprecated=True
                    )
                else:
                    listed = self.client("ec2").describe_images(ImageIds=[ref])
            except ClientError as error:
                if not code_of(error).startswith("InvalidAMIID"):
                    raise
                return None
        return max(listed["Images"], key=lambda one: str(one.get("CreationDate")), default=None)


def _kind(arn: str) -> str:
    """Return the type and the name of an identity from its ARN: `role deployer`, `user ana`, `root user`."""
    kind, _, name = arn.rpartition(":")[2].partition("/")
    if kind == "assumed-role":
        return f"role {name.partition('/')[0]}"
    return f"{kind} {name.rpartition('/')[2]}" if name else f"{kind} user"


def _groups(plan: Plan) -> Iterator[tuple[Group, PoolPlan]]:
    return ((group, pool) for pool in plan.pools for group in pool.groups)


def _vcpus(pool: PoolPlan, kind: CapacityKind) -> Iterator[tuple[str, int]]:
    """Yield a node's vCPU quota and number of vCPUs. Capacity Blocks do not count toward a quota (Capacity Blocks guide, retrieved 2026-11-20)."""
    machine = MACHINES.get(pool.machine)
    if machine and machine.quotas.get(kind):
        yield machine.quotas[kind], machine.vcpus


def _target(group: Group) -> str:
    return f"{group.name}: {group.reservation_id or group.reservation_group_arn}"


def _root_gib(image: Mapping[str, Any]) -> int:
    root = image.get("RootDeviceName")
    sizes = [
        one.get("Ebs", {}).get("VolumeSize") or 0
        for one in image.get("BlockDeviceMappings", ())
        if one.get("DeviceName") == root
    ]
    return int(max(sizes, default=0))
