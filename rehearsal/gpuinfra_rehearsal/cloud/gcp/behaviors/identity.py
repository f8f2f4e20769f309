"""Service accounts, grants, keys, audit configuration and logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.core import ids, wire
from gpuinfra_rehearsal.cloud.core.behavior import Behavior, behaves
from gpuinfra_rehearsal.cloud.core.check import RejectedInput
from gpuinfra_rehearsal.cloud.gcp import conditions
from gpuinfra_rehearsal.cloud.gcp.errors import GoogleError
from gpuinfra_rehearsal.cloud.gcp.ids import PROJECT, PROJECT_NUMBER, new_id
from gpuinfra_rehearsal.cloud.gcp.stand_in import RoleMember

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Call, Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource

ACCOUNT = "gcp:serviceaccount/account:Account"
GRANTS = (
    "gcp:storage/bucketIAMMember:BucketIAMMember",
    "gcp:projects/iAMMember:IAMMember",
    "gcp:secretmanager/secretIamMember:SecretIamMember",
    "gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember",
)
KEYS = ("gcp:kms/keyRing:KeyRing", "gcp:kms/cryptoKey:CryptoKey")


@behaves
class Account(Behavior):
    types = (ACCOUNT,)
    shapes = {
        "accountId": (
            r"^[a-z][-a-z0-9]{4,28}[a-z0-9]\Z",
            "must be 6 to 30 lower case letters, digits and hyphens, got '{value}'",
        )
    }
    taken = GoogleError(
        "alreadyExists",
        f"Service account {{inputs[accountId]}} already exists within project projects/{PROJECT}.",
        status=409,
    )

    def created(self, cloud: Cloud, call: Call) -> None:
        email = call.id.rsplit("/", 1)[-1]
        call.outputs |= {
            "email": email,
            "name": call.id,
            "member": f"serviceAccount:{email}",
            "uniqueId": str(100_000_000_000_000_000_000 + cloud.store.next("account")),
        }


@behaves
class Grant(RoleMember):
    """One role for one member. A member in this project must exist, and the condition must be supported."""

    types = GRANTS

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        text = (
            (call.plain.get("condition") or {}).get("expression")
            if isinstance(call.plain.get("condition"), dict)
            else None
        )
        if isinstance(text, str) and not wire.is_unknown(text):
            try:
                conditions.check(text)
            except ValueError as error:
                yield RejectedInput("condition.expression", f"cannot be parsed: {error}")

    def before_create(self, cloud: Cloud, call: Call) -> None:
        member = str(call.plain.get("member") or "")
        kind, _, name = member.partition(":")
        if kind not in (
            "user",
            "group",
            "domain",
            "serviceAccount",
            "principal",
            "principalSet",
            "deleted",
            "allUsers",
            "allAuthenticatedUsers",
        ):
            raise GoogleError("badRequest", f"Invalid principal: {member}")
        own = f"@{PROJECT}.iam.gserviceaccount.com"
        if (
            kind == "serviceAccount"
            and name.endswith(own)
            and cloud.store.find(ACCOUNT, f"projects/{PROJECT}/serviceAccounts/{name}") is None
        ):
            raise GoogleError("badRequest", f"Service account {name} does not exist.")


@behaves
class Key(Behavior):
    """Key rings and keys are never deleted. The provider removes them from the state, their names stay reserved, and
    the key's versions are destroyed."""

    types = KEYS[:1]
    taken = GoogleError("alreadyExists", "{kind} {id} already exists.", status=409)

    def created(self, cloud: Cloud, call: Call) -> None:
        if cloud.store.get("gcp-key", call.id):
            assert self.taken
            raise self.taken.filled(kind=ids.class_name(call.token), id=call.id)

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        if resource.plain.get("deletionPolicy") == "PREVENT":
            raise GoogleError("failedPrecondition", f"cannot destroy {resource.id}: its deletion_policy is PREVENT")

    def deleted(self, cloud: Cloud, resource: Resource) -> None:
        cloud.store.put("gcp-key", resource.id, {"destroyed": resource.type == KEYS[1]})


@behaves
class CryptoKey(Key):
    types = KEYS[1:]
    importer_sets = {"deletionPolicy": "DELETE"}


@behaves
class LogBucket(Behavior):
    """A log bucket. A create operation takes over an existing bucket and patches it. A locked bucket cannot be changed. A deleted
    bucket keeps its name for 7 days.

    Create and import as in `resource_logging_bucket_config.go` and `resource_logging_project_bucket_config.go`
    (GoogleCloudPlatform/magic-modules at d577844, Mozilla Public License 2.0, retrieved 2026-11-22): the importer sets
    `project` to `projects/P`, and a change of `project` forces a replacement.
    """

    types = ("gcp:logging/projectBucketConfig:ProjectBucketConfig",)
    joins = True

    def before_create(self, cloud: Cloud, call: Call) -> None:
        path = new_id(call.token, call.name, call.plain)
        if cloud.store.get("gcp-log-bucket", path):
            raise GoogleError("failedPrecondition", f"Log bucket {path} is in state DELETE_REQUESTED.")
        if role := cloud.store.find(call.token, path):
            self._check_lock(role.plain, call)

    def created(self, cloud: Cloud, call: Call) -> None:
        call.outputs |= {"name": call.id, "lifecycleState": "ACTIVE"}

    updated = created

    def imported(self, cloud: Cloud, resource: Resource) -> Resource:
        project = {"project": "/".join(resource.id.split("/")[:2])}
        return resource.changed(**project)

    def deleted(self, cloud: Cloud, resource: Resource) -> None:
        cloud.store.put("gcp-log-bucket", resource.id, {"state": "DELETE_REQUESTED"})

    def before_update(self, cloud: Cloud, call: Call) -> None:
        assert call.old is not None
        self._check_lock(call.old.plain, call)

    @staticmethod
    def _check_lock(before: Mapping[str, Any], call: Call) -> None:
        if before.get("locked") and (
            not call.plain.get("locked") or before.get("retentionDays") != call.plain.get("retentionDays")
        ):
            raise GoogleError(
                "failedPrecondition", f"Log bucket {call.plain['bucketId']} is locked and cannot be changed."
            )


@behaves
class AuditConfig(Behavior):
    """The audit configuration of one service of a project. A create replaces an existing one."""

    types = ("gcp:projects/iAMAuditConfig:IAMAuditConfig",)
    joins = True


@behaves
class Sink(Behavior):
    """A sink writes with its own service account."""

    types = ("gcp:logging/projectSink:ProjectSink",)

    def created(self, cloud: Cloud, call: Call) -> None:
        own = f"service-{PROJECT_NUMBER}@gcp-sa-logging.iam.gserviceaccount.com"
        call.outputs["writerIdentity"] = f"serviceAccount:{own}"

    updated = created


@behaves
class ServiceIdentity(Behavior):
    """A Google service's service account in this project."""

    types = ("gcp:projects/serviceIdentity:ServiceIdentity",)
    joins = stays = True

    def created(self, cloud: Cloud, call: Call) -> None:
        service = str(call.plain.get("service") or "").removesuffix(".googleapis.com")
        email = f"service-{PROJECT_NUMBER}@gcp-sa-{service}.iam.gserviceaccount.com"
        call.outputs |= {"email": email, "member": f"serviceAccount:{email}"}


@behaves
class Api(Behavior):
    """An API of a project. Several programs can enable it."""

    types = ("gcp:projects/service:Service",)
    joins = stays = True
