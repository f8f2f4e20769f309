"""AWS extensions of the stand-in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra.clouds.aws.regions import PREFIXES
from gpuinfra_rehearsal.cloud.aws import (
    access,
    credentials,
    filled,
    home_replication,
    ids,
    operator,
    places,
    replacements,
    replication,
    schedules,
    texts,
)
from gpuinfra_rehearsal.cloud.aws.groups import AutoScaling
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.ids import Count, kebab, module
from gpuinfra_rehearsal.cloud.core.interfaces import Subject
from gpuinfra_rehearsal.cloud.core.stand_in import Action, StandIn

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.http import Service
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra_rehearsal.cloud.core.sdk import Property
    from gpuinfra_rehearsal.cloud.core.store import Store

_ID_PREFIXES = ("vpc-", "subnet-", "sg-", "cr-", "rtb-", "lt-", "ami-", "fs-", "backup-", "eipalloc-")


BUCKET_SETTINGS = re.compile(r"aws:s3/bucket(?!Object(v2)?:)")


class AwsStandIn(StandIn):
    """AWS."""

    typed = True
    default_region = "us-east-1"
    regional_ids = True
    moving_settings = ()
    identity_inputs = ("region",)
    group_kinds = (AutoScaling(),)
    unavailable = ApiRejected(
        "ServiceUnavailable",
        "The request has failed due to a temporary failure of the server. (injected by --fault)",
        "{service}: Create{kind}",
        status=503,
    )
    permissions = operator
    texts = texts.TEXTS

    def identify(self, token: str, name: str, inputs: Mapping[str, Any], region: str, count: Count) -> str:
        """Return a sequential ID, an ARN, or the inputs that form the ID."""
        return ids.new_id(token, name, inputs, region, count)

    def own_names(self, token: str) -> list[str]:
        """Return the one input that is the ID, for types that have one."""
        return [ids.NAMED.get(token, "name")]

    def generated_name(self, token: str, name: str, digest: str) -> str:
        """Return the name. Key aliases have a prefix."""
        made = super().generated_name(token, name, digest)
        return f"alias/{made}" if token == "aws:kms/alias:Alias" else made

    def replacing(self, token: str, inputs: Mapping[str, Property]) -> set[str]:
        return replacements.forced(token, inputs)

    def replaces_when(self, token: str, path: str, old: Any, new: Any) -> bool | None:
        return replacements.when(token, path, old, new)

    def defaults(self, token: str) -> Mapping[str, Any]:
        return filled.DEFAULTS.get(token, {})

    def filled(self, token: str) -> Mapping[str, Any]:
        return filled.OUTPUTS.get(token, {})

    def split_import_id(self, id: str) -> tuple[str, str]:
        """Split `<id>@<region>`."""
        bare, _, region = id.rpartition("@")
        return (bare, region) if bare else (id, "")

    def is_real_id(self, id: str) -> bool:
        """Return whether an ID is real. Stand-in IDs have at least eight zeros after the prefix."""
        return id.startswith(_ID_PREFIXES) and not re.search(r"-0{8}", id)

    def text(self, name: str, about: Subject, path: tuple[str, ...]) -> str | None:
        """Return ARNs, the region and the account."""
        if name == "arn" and len(path) == 1:
            return ids.arn_of(about.token, about.id, about.inputs, about.region)
        if name == "region":
            return about.region
        if name in ("ownerId", "accountId", "owner", "registryId", "awsAccountId"):
            return ids.ACCOUNT
        if name == "partition":
            return "aws"
        if name.endswith(("Arn", "arn")):
            kind = kebab(name[:-3]) or "standin"
            return f"arn:aws:{module(about.token)}:{about.region}:{ids.ACCOUNT}:{kind}/{about.digest(path)[:8]}"
        return None

    def services(self, cloud: Cloud) -> Mapping[str, Service]:
        """Return the services. EFS, Managed Service for Prometheus and Route 53 have separate paths. The other paths belong to S3, STS, EC2 and Auto Scaling,
        because the AWS SDKs use one endpoint."""
        from gpuinfra_rehearsal.cloud.aws.http.dns import PREFIX, Route53
        from gpuinfra_rehearsal.cloud.aws.http.metadata import MetadataService
        from gpuinfra_rehearsal.cloud.aws.http.objects import Objects
        from gpuinfra_rehearsal.cloud.aws.http.query import Queries

        queries, objects = Queries(cloud), Objects(cloud)
        return {
            "/.imds/": MetadataService(cloud),
            "/2015-02-01/": queries.efs,
            "/workspaces": queries.amp,
            PREFIX: Route53(cloud),
            "/": lambda request: (queries if (request.method, request.raw_path) == ("POST", "/") else objects)(request),
        }

    def required_regions(self, token: str, region: str) -> tuple[str, ...]:
        return (region or places.CONTROL_REGION, *([places.CONTROL_REGION] if BUCKET_SETTINGS.match(token) else []))

    def regions(self) -> Iterable[str]:
        return PREFIXES

    def replicate(self, store: Store) -> None:
        replication.run(store)

    def operator_credentials(self, cloud: Cloud) -> dict[str, str]:
        """Return a key pair."""
        key = credentials.operator(cloud.store)
        return {"access_key_id": key.id, "secret_access_key": key.secret}

    def node_rights(self, store: Store, nodes: list[dict[str, Any]]) -> Iterator[str]:
        """Return each action of each statement in the policies of the nodes' roles."""
        for role in {role.id for one in nodes if (role := credentials.role_of(store, one))}:
            yield from access.rights_of(store, role)

    def logins(self, cloud: Cloud, instance: dict[str, Any]) -> Mapping[str, list[str]]:
        """Return the user of the image, with the keys that EC2 Instance Connect currently provides."""
        from gpuinfra_rehearsal.cloud.aws.http import sessions

        return sessions.logins(cloud, instance)

    def tick(self, cloud: Cloud) -> None:
        schedules.run_due(cloud.store)

    def control_actions(self, cloud: Cloud) -> Mapping[str, Action]:
        """Handle POST `schedule` `{"name"}`: run a group's scheduled action now. `home_replication` describes `homes`."""

        def schedule(asked: dict[str, Any]) -> dict[str, Any]:
            if not schedules.run(cloud.store, str(asked["name"])):
                raise ValueError(f"no group has a scheduled action {asked['name']}")
            cloud.wake()
            return {"name": asked["name"]}

        return {"schedule": schedule, "homes": lambda asked: home_replication.control(cloud, asked)}


STAND_IN = AwsStandIn
