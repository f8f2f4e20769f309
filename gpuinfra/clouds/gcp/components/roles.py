"""What a node is allowed to do: fetch its bundle, put down evidence, renew the proof of it, meet another node. Where they take images from
a registry, they read that one. Nothing else, and nothing in the project.

Each grant holds for one kind of object only, by a condition on its name. Google's conditions know no name of the calling instance, so nodes of a
cluster share a folder: none can read, change or remove another's evidence (creating needs no more than a free name), and whose evidence it is
says the identity token that goes with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from gpuinfra import naming
from gpuinfra.clouds.gcp import names
from gpuinfra.clouds.gcp.components.scope import Scope, child
from gpuinfra.clouds.ready_after import ready_after
from gpuinfra.clouds.resource_group import Part

PROOF = ".proof.json"
"""End of the names of proofs, which are written again every ten minutes; writing over an object is deleting it, for Google's roles."""
MEETING = 'resource.name.extract("/rendezvous/{name}") != ""'
"""What nodes read of each other's: where two of them meet for a measurement of the way between them (docs/decisions/pairs.md)."""


@dataclass(frozen=True, kw_only=True)
class NodeRoleArgs:
    """What the nodes of a cluster work with."""

    scope: Scope
    bucket: pulumi.Input[str]
    """Evidence bucket, which holds the bundles too."""
    evidence_prefix: str
    """Where the cluster's nodes write."""
    registry: str | None = None
    """Registry that nodes take images from, `us-central1-docker.pkg.dev/my-project/gpudirect`; left out, none. One that is no Artifact Registry is granted nothing, because nobody here knows how."""


class NodeRole(Part):
    """The service account of nodes."""

    email: pulumi.Output[str]
    """Address of the account, once it may do what it must; what evidence must be signed by."""

    def __init__(self, name: str, args: NodeRoleArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        scope = args.scope
        self._name, self._args = name, args
        self._account = gcp.serviceaccount.Account(
            naming.logical(name, "account"),
            account_id=names.account_id(scope.cluster, "node", scope.token),
            project=scope.project,
            display_name=f"Nodes of {scope.cluster}",
            opts=child(self),
        )
        evidence = f"{args.evidence_prefix}/"
        grants: list[pulumi.Resource] = [
            self._grant("bundle", "roles/storage.objectViewer", f"bootstrap/{scope.cluster}/"),
            self._grant("evidence", "roles/storage.objectCreator", evidence),
            self._grant("proof", "roles/storage.objectUser", evidence, f'resource.name.endsWith("{PROOF}")'),
            self._grant("meeting", "roles/storage.objectViewer", evidence, MEETING),
        ]
        if known := names.repository(args.registry or ""):
            grants.append(self._images(*known))
        self.email = ready_after(self._account.email, grants)

    def _images(self, location: str, project: str, repository: str) -> gcp.artifactregistry.RepositoryIamMember:
        return gcp.artifactregistry.RepositoryIamMember(
            naming.logical(self._name, "images"),
            project=project,
            location=location,
            repository=repository,
            role="roles/artifactregistry.reader",
            member=self._member(),
            opts=child(self),
        )

    def _member(self) -> pulumi.Output[str]:
        return self._account.email.apply(lambda email: f"serviceAccount:{email}")

    def _grant(self, what: str, role: str, folder: str, also: str = "") -> gcp.storage.BucketIAMMember:
        objects = pulumi.Output.concat("projects/_/buckets/", self._args.bucket, "/objects/", folder)
        expression = objects.apply(lambda known: _under(known, also))
        return gcp.storage.BucketIAMMember(
            naming.logical(self._name, what),
            bucket=self._args.bucket,
            role=role,
            member=self._member(),
            condition=gcp.storage.BucketIAMMemberConditionArgs(
                title=f"gpuinfra-{what}", description=f"Objects under {folder} alone", expression=expression
            ),
            opts=child(self),
        )


def _under(folder: str, also: str) -> str:
    begins = f'resource.name.startsWith("{folder}")'
    return f"{begins} && {also}" if also else begins
