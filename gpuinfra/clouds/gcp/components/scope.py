"""What every Google Cloud component is told: whose it is, where it is, and how its things are marked.

Project, region and zone are written on every resource; a component leans on nothing that a provider happens to be configured with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pulumi
import pulumi_gcp as gcp

from gpuinfra import naming
from gpuinfra.clouds.already_exists import explains_existing
from gpuinfra.clouds.gcp import names
from gpuinfra.clouds.resource_group import Parent, inside


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Whose resources these are, and where."""

    cluster: str
    """The cluster's name; begins every readable name."""
    project: pulumi.Input[str]
    """Project id of every resource."""
    number: pulumi.Input[str]
    """The project's number, which Google's own service accounts are named by."""
    region: str
    """Region of every regional resource; changing it replaces them all."""
    token: str
    """Token of the stack, from `gpuinfra.naming.stack_token`."""
    billing_account: pulumi.Input[str] = ""
    """Who pays for the project; only a budget asks."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of every resource that can carry labels, in the declaration's own letters."""

    @staticmethod
    def here(
        cluster: str,
        region: str,
        tags: Mapping[str, str] | None = None,
        project: str | None = None,
        opts: pulumi.InvokeOutputOptions | None = None,
    ) -> Scope:
        """The scope of the stack that runs now, in the named project or the provider's own."""
        token = naming.stack_token(pulumi.get_organization(), pulumi.get_project(), pulumi.get_stack(), cluster)
        found = gcp.organizations.get_project_output(project_id=project, opts=opts)
        return Scope(
            cluster=cluster,
            project=found.project_id,
            number=found.number,
            region=region,
            token=token,
            billing_account=found.billing_account,
            tags=dict(tags or {}),
        )

    def labelled(self, **more: str) -> dict[str, str]:
        """The scope's tags as labels, and more; keyword `gpuinfra_pool` becomes the label `gpuinfra-pool`."""
        return names.labels({**self.tags, **{key.replace("_", ":", 1): value for key, value in more.items()}})

    def named(self, logical: str) -> str:
        """The name in the API of a thing with this logical name."""
        return names.physical(logical, self.token)

    def unique_name(self, purpose: str, limit: int = names.NAME_LIMIT) -> str:
        """The name of something of this stack that is unique in its project, and found again after a destroy."""
        return naming.unique_name(self.cluster, purpose, self.token, limit)

    def bucket_name(self, purpose: str) -> pulumi.Output[str]:
        """The name of one of this stack's buckets."""
        return pulumi.Output.from_input(self.project).apply(
            lambda project: names.bucket(self.cluster, purpose, project, self.token)
        )

    def agent(self, service: str) -> pulumi.Output[str]:
        """Google's own service account of a service in this project, as a member of a policy: `compute-system`."""
        return pulumi.Output.concat("serviceAccount:service-", self.number, f"@{service}.iam.gserviceaccount.com")


def child(
    parent: Parent,
    *,
    keep: bool = False,
    holds_data: bool = False,
    depends_on: Iterable[pulumi.Resource] = (),
    ignore_changes: Iterable[str] = (),
) -> pulumi.ResourceOptions:
    """Options of a component's child; with `keep` the cloud's thing outlives a destroy of the stack.

    Names are ours, so that a replacement would ask for a name that is taken: the old thing goes first.
    What is kept, or `holds_data`, does not go first: its replacement is refused for its name, before anything is touched or lost.
    """
    stays = keep or holds_data
    own = pulumi.ResourceOptions(
        retain_on_delete=keep or None,
        delete_before_replace=not stays,
        depends_on=list(depends_on),
        ignore_changes=list(ignore_changes),
        hooks=explains_existing() if stays else None,
    )
    return inside(parent, own)
