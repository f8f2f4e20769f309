"""Google Cloud rules for labels, budget alerts, access, existing networks and renewal."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from datetime import date

from gpuinfra.base.findings import Finding, error, info
from gpuinfra.clouds.gcp import names
from gpuinfra.clouds.gcp.profile import PROFILE
from gpuinfra.clouds.gcp.regions import IAP_RANGE
from gpuinfra.plan.machines import machines_of, similar
from gpuinfra.plan.storage import created
from gpuinfra.spec.messages import listed
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.rule import rules_in
from gpuinfra.spec.shown import shown
from gpuinfra.spec.storage import Lustre

PROJECT = re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]")
"""A project ID."""
_NAME = "[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?"
_PREFIX = "(?:https://www[.]googleapis[.]com/compute/v1/)?projects/[a-z][-a-z0-9.:]{4,62}/"
_NETWORK = re.compile(f"(?:{_PREFIX}global/networks/)?{_NAME}")
"""A name as in RFC 1035, or a path (Compute Engine API, `networks`)."""
_SUBNET = re.compile(f"(?:{_PREFIX}regions/[a-z0-9-]+/subnetworks/)?{_NAME}")
_KINDS = ["user", "group", "serviceAccount", "domain", "principal", "principalSet"]
_MEMBER = re.compile(rf"({'|'.join(_KINDS)}):\S+")
BUDGET_CHANNELS = 5
"""Maximum number of notification channels per budget."""
_ROLE = re.compile(r"roles/[A-Za-z0-9_.]{1,100}|(projects|organizations)/[a-z0-9-]{1,63}/roles/[A-Za-z0-9_.]{3,64}")
BROAD_ROLES = frozenset(
    [
        "assuredoss.admin",
        "backupdr.cloudStorageOperator",
        "bigquerymigration.worker",
        "cloudbuild.builds.builder",
        "clouddeploy.jobRunner",
        "cloudmigration.storageaccess",
        "cloudtestservice.testAdmin",
        "composer.environmentAndStorageObjectAdmin",
        "composer.worker",
        "config.agent",
        "dataflow.admin",
        "dataflow.worker",
        "dataplex.storageDataOwner",
        "dataplex.storageDataWriter",
        "dataproc.worker",
        "designcenter.admin",
        "designcenter.user",
        "earthengine.appsPublisher",
        "editor",
        "firebase.admin",
        "firebase.developAdmin",
        "firebaseapphosting.computeRunner",
        "firebaserules.system",
        "iam.admin",
        "iam.dataScientist",
        "iam.databasesAdmin",
        "iam.devOps",
        "iam.editor",
        "iam.infrastructureAdmin",
        "iam.mlEngineer",
        "iam.securityAdmin",
        "iam.serviceAccountAdmin",
        "iam.serviceAccountKeyAdmin",
        "iam.serviceAccountTokenCreator",
        "iam.workloadIdentityUser",
        "owner",
        "resourcemanager.folderAdmin",
        "resourcemanager.organizationAdmin",
        "resourcemanager.projectIamAdmin",
        "run.sourceDeveloper",
        "securedlandingzone.bqdwProjectRemediator",
        "securitycenter.admin",
        "storage.admin",
        "storage.expressModeServiceInput",
        "storage.expressModeServiceOutput",
        "storage.expressModeUserAccess",
        "storage.folderAdmin",
        "storage.legacyBucketOwner",
        "storage.legacyBucketWriter",
        "storage.objectAdmin",
        "storage.objectCreator",
        "storage.objectUser",
    ]
)
"""Predefined roles, without `roles/`, that contain one of the permissions storage.objects.create, storage.objects.delete, storage.buckets.setIamPolicy,
resourcemanager.projects.setIamPolicy, iam.serviceAccounts.getAccessToken, iam.serviceAccounts.setIamPolicy and iam.serviceAccountKeys.create
(roles of Google Cloud in iann0036/iam-dataset, MIT License, 2026-08-22). Service agent roles are excluded, because they cannot be assigned."""


def labels_are_unique(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Tags remain unique after conversion to labels, which allow lowercase letters, digits, hyphens and underscores."""
    for path, tags in (("tags", spec.tags), *((f"pools[{i}].tags", pool.tags) for i, pool in enumerate(spec.pools))):
        taken: dict[str, str] = {"gpuinfra-cluster": "gpuinfra:cluster", "gpuinfra-managed-by": "gpuinfra:managed-by"}
        for key, value in tags.items():
            (label,) = names.labels({key: value})
            if label in taken and taken[label] != key:
                what = f"becomes the label {label}, as does {shown(taken[label])}"
                yield error(f"{path}.{key}", what, "rename the tag")
            elif (label, names.label(value)) != (key, value):
                what = f"becomes the label {label}={names.label(value)}, because labels allow lower-case letters, digits, - and _"
                yield info(f"{path}.{key}", what, "filter billing reports by the label in this form")
            taken[label] = key


def budget_recipients_fit(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A budget alert has at most five recipients."""
    count = len(spec.budget.recipients)
    if count > BUDGET_CHANNELS:
        what = f"has {count} addresses; allowed: up to {BUDGET_CHANNELS}"
        yield error("budget.recipients", what, "use a mailing list")


def node_roles_are_limited(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The node roles do not allow a node to change permissions or the evidence of other nodes in the stack's project."""
    own = getattr(spec.where, "project", None)
    for i, node_role in enumerate(spec.access.node_roles):
        path = f"access.node_roles[{i}]"
        if not _ROLE.fullmatch(node_role.role):
            what = f"is {shown(node_role.role)}; allowed: the name of a role such as roles/artifactregistry.reader"
            yield error(f"{path}.role", what, "run `gcloud iam roles list` to list the roles")
        elif node_role.scope in (None, own) and node_role.role.removeprefix("roles/") in BROAD_ROLES:
            what = f"is {node_role.role}, which allows a node to change permissions or the evidence of other nodes in the project"
            yield error(
                f"{path}.role", what, "use a role that only reads, or a custom role, or set scope to another project"
            )
        if node_role.scope is not None and not PROJECT.fullmatch(node_role.scope):
            what = f"is {shown(node_role.scope)}, which is not a project ID"
            yield error(f"{path}.scope", what, "use the project ID, not the project name or number")


def ssh_uses_iap(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Port 22 is opened to Identity-Aware Proxy (IAP) or to private networks, because nodes have no public address."""
    for i, cidr in enumerate(spec.access.ssh_from):
        path = f"access.ssh_from[{i}]"
        try:
            network = ipaddress.ip_network(cidr, strict=False)
        except ValueError:
            continue
        if str(network) != IAP_RANGE and not network.is_private:
            what = f"is {network}, which cannot reach the nodes, because they have no public address"
            yield error(path, what, f"use {IAP_RANGE}, the range of Identity-Aware Proxy (IAP)")
    if spec.access.ssh_from and spec.network.existing:
        what = "has no effect, because gpuinfra does not change the firewall rules of network.existing"
        yield info("access.ssh_from", what, "open port 22 in the existing network yourself")


def ingress_needs_its_own_network(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """In an existing network, the network's owner opens ports, because the firewall rules belong to the network."""
    if spec.access.ingress and spec.network.existing:
        what = "has no effect, because gpuinfra does not change the firewall rules of network.existing"
        yield error("access.ingress", what, "remove it, and add the rules to the existing network")


def existing_subnets_are_named(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """An existing network has a subnet for the region. Other keys are networks of the machine types."""
    existing = spec.network.existing
    if existing is None:
        return
    region, machines = spec.where.region, machines_of(spec)
    if region not in PROFILE.regions or any(pool.machine not in machines for pool in spec.pools):
        return
    if not _NETWORK.fullmatch(existing.id):
        what = f"is {shown(existing.id)}; allowed: a name such as my-network, or a path such as projects/my-project/global/networks/my-network"
        yield error("network.existing.id", what, "run `gcloud compute networks list` to list the networks")
    for key, value in existing.subnets.items():
        if not _SUBNET.fullmatch(value):
            what = f"is {shown(value)}; allowed: a name such as my-subnet, or a path such as projects/my-project/regions/us-central1/subnetworks/my-subnet"
            yield error(
                f"network.existing.subnets.{key}",
                what,
                "run `gcloud compute networks subnets list` to list the subnets",
            )
    further = {nic.network for pool in spec.pools for nic in machines[pool.machine].nics}
    allowed = [region, *sorted(further - {"main", "roce"})]
    if region not in existing.subnets:
        what = f"has {listed(sorted(existing.subnets))}, but no subnet for {region}"
        yield error("network.existing.subnets", what, f"add {region}: SUBNET")
    for key in existing.subnets:
        if key not in allowed:
            what = f"is not a region or network of this cluster; allowed: {listed(allowed)}"
            yield error(f"network.existing.subnets.{key}", what, "remove or rename it")


def existing_network_is_peered(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """An existing network is peered with servicenetworking.googleapis.com, which connects nodes to file systems."""
    if spec.network.existing and any(created(spec.storage)) and "site" in spec.made_layers:
        what = f"is {shown(spec.network.existing.id)}; nodes reach storage over its peering with servicenetworking.googleapis.com"
        hint = "make sure that the peering exists and has 1024 free addresses, or remove network.existing"
        yield info("network.existing.id", what, hint)


def bucket_export_is_manual(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Managed Lustre exports to its bucket only if you or a schedule start an export, so `destroy` retains the file system."""
    for i, entry in enumerate(spec.storage):
        if isinstance(entry, Lustre) and entry.bucket is not None and "site" in spec.made_layers:
            what = (
                f"is {entry.bucket}, and exports from {entry.mount} are not continuous, so destroy retains the file system, "
                "which is billed until you delete it"
            )
            hint = "to delete the file system, run the commands in the `export_commands` output before `destroy`, and delete the file system afterward"
            yield info(f"storage[{i}].bucket", what, hint)


def operators_are_members(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Operators are IAM members with a type prefix. The member allUsers is not allowed."""
    for i, operator in enumerate(spec.access.operators):
        if not _MEMBER.fullmatch(operator):
            what = f"is {shown(operator)}; allowed: an IAM member with the prefix {listed(_KINDS)}"
            hint = (
                "use a format such as group:ops@example.com or serviceAccount:deploy@my-project.iam.gserviceaccount.com"
            )
            yield error(f"access.operators[{i}]", what, hint)


def site_machines_are_known(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The machine types in `network.machines` are in the catalog."""
    machines = machines_of(spec)
    for i, name in enumerate(spec.network.machines):
        if name not in machines:
            near = similar(name, machines)
            hint = f"did you mean {near}?" if near else "`gpuinfra catalog --cloud gcp` lists the machine types"
            what = f"is {shown(name)}, which is not in the catalog of {PROFILE.title}"
            yield error(f"network.machines[{i}]", what, hint)


def first_batch_is_canary(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Managed instance groups renew nodes in batches of equal size, so the first batch is the canary."""
    for i, pool in enumerate(spec.pools):
        largest = max(entry.count for entry in pool.capacity)
        batch = max(1, largest * pool.renew.at_once_percent // 100)
        if 0 < pool.renew.canary < batch:
            what = f"is {pool.renew.canary}; on Google Cloud the first batch is the canary, and it has {batch} of {largest} nodes"
            hint = f"lower renew.at_once_percent to {max(1, pool.renew.canary * 100 // largest)} for a smaller batch"
            yield info(f"pools[{i}].renew.canary", what, hint)


def project_audit_is_reported(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A foundation replaces the audit configuration of the project, and data access logs are billed by usage."""
    if spec.audit.trail == "create" and "foundation" in spec.made_layers and spec.audit.data_events:
        what = (
            "records reads and writes of data for all services of the project, replaces the project's audit configuration for allServices, "
            "and is billed per GiB, which the plan does not include"
        )
        yield info("audit.data_events", what, "use a separate project, or set audit.data_events: false")


def registry_is_artifact_registry(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The registry is an Artifact Registry repository, to which gpuinfra grants nodes read access."""
    registry = spec.software.registry
    if registry and names.repository(registry) is None:
        what = f"is {shown(registry)}, which is not an Artifact Registry repository, so gpuinfra does not grant nodes access to it"
        hint = "use LOCATION-docker.pkg.dev/PROJECT/REPOSITORY, or make sure that nodes can read the registry"
        yield info("software.registry", what, hint)


def nvlink_domains_are_unsupported(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The pool does not use A4X machines. Their groups need a topology policy for NVLink domains, which gpuinfra does not create yet."""
    machines = machines_of(spec)
    for i, pool in enumerate(spec.pools):
        if pool.machine in machines and machines[pool.machine].family == "a4x":
            what = f"is {pool.machine}, whose groups need a topology policy for NVLink domains, which gpuinfra does not create yet"
            yield error(f"pools[{i}].machine", what, "use a4-highgpu-8g or a3-ultragpu-8g")


RULES = rules_in(vars())
