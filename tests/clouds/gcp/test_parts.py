"""Audit records, keys, firewall rules and file systems on Google Cloud, and the order of creation."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.clouds.build import SiteOutputs, site_bucket
from gpuinfra.clouds.gcp.instances import apis
from gpuinfra.spec import parse_spec
from tests.clouds.gcp.answers import PROJECT
from tests.clouds.gcp.variants import BASE, VARIANTS, planned, recorded
from tests.clouds.recorder import Recording, Registered
from tests.clouds.stacks import plan_of, recording_of, recording_of_spec

TEMPLATE = "gcp:compute/instanceTemplate:InstanceTemplate"
GROUP = "gcp:compute/instanceGroupManager:InstanceGroupManager"
RULE = "gcp:compute/firewall:Firewall"
BUCKET = "gcp:storage/bucket:Bucket"
GRANT = "gcp:storage/bucketIAMMember:BucketIAMMember"
LOGS = "gcp:logging/projectBucketConfig:ProjectBucketConfig"
SINK = "gcp:logging/projectSink:ProjectSink"
LUSTRE = "gcp:lustre/instance:Instance"
HOME = "gcp:filestore/instance:Instance"
READY = "gpuinfra:index:NodesReady"


def _rule(recording: Recording, end: str) -> dict[str, Any]:
    (found,) = [one.inputs for one in recording.of(RULE) if one.name.endswith(end)]
    return found


# --- audit -----------------------------------------------------------------------------------------------------------


def test_compliance_locks_the_audit_buckets_permanently() -> None:
    """`compliance` locks the log bucket and the records; `governance` has the same retention without a lock."""
    for name, forever in (("compliance lock", True), ("no storage", False)):
        recording = recorded(name)
        assert recording.one(LOGS, "train-foundation-audit-log-bucket").inputs["locked"] is forever
        assert recording.one(LOGS, "train-network-flow-logs").inputs.get("locked") is None
        records = recording.one(BUCKET, "train-foundation-audit-records-bucket").inputs["retentionPolicy"]
        assert records == {"retentionPeriod": str(365 * 86_400), "isLocked": forever}


def test_without_data_events_only_admin_reads_are_recorded() -> None:
    """Without data events the audit configuration records reads of settings; Google always records their changes."""
    recording = recording_of_spec(parse_spec({**BASE, "audit": {"data_events": False}}))
    config = recording.one("gcp:projects/iAMAuditConfig:IAMAuditConfig").inputs
    assert config["auditLogConfigs"] == [{"logType": "ADMIN_READ"}]


def test_records_can_go_to_an_existing_bucket() -> None:
    """The sink and the grant of its writer name the existing bucket, and no bucket of records is created."""
    recording = recorded("trail into an existing bucket")
    sink = recording.one(SINK, "train-foundation-audit-records").inputs
    grant = recording.one("gcp:storage/bucketIAMMember:BucketIAMMember", "train-foundation-audit-writer").inputs
    assert sink["destination"] == "storage.googleapis.com/existing-audit"
    assert grant["bucket"] == "existing-audit"
    assert not [one for one in recording.of(BUCKET) if "records" in one.name]


def test_flow_logs_have_a_bucket_of_their_own() -> None:
    """The sink for all logs excludes flow logs; the sink for flow logs includes only the subnet of this network."""
    recording = recording_of("gcp-a3mega")
    everything = recording.one(SINK, "train-foundation-audit-all-logs").inputs
    assert [one["filter"] for one in everything["exclusions"]] == ['log_id("compute.googleapis.com/vpc_flows")']
    flows = recording.one(SINK, "train-network-flow-logs").inputs
    subnet = recording.one("gcp:compute/subnetwork:Subnetwork", "train-network-private-0").inputs["name"]
    assert flows["filter"] == (
        f'log_id("compute.googleapis.com/vpc_flows") AND resource.labels.subnetwork_name=("{subnet}")'
    )
    assert flows["destination"].endswith(recording.one(LOGS, "train-network-flow-logs").inputs["bucketId"])
    assert everything["destination"] != flows["destination"]


def test_operators_can_only_read_evidence() -> None:
    """Each operator has one role on the evidence bucket, which is removed with the operator."""
    recording = recorded("operators")
    grants = [one for one in recording.custom if "-evidence-reader-" in one.name]
    bucket = recording.one(BUCKET, "train-foundation-evidence-store-bucket").inputs["name"]
    found = [(one.inputs["bucket"], one.inputs["role"], one.inputs["member"], one.retained) for one in grants]
    assert sorted(found) == [
        (bucket, "roles/storage.objectViewer", "group:ops@example.com", False),
        (bucket, "roles/storage.objectViewer", "serviceAccount:deploy@my-project.iam.gserviceaccount.com", False),
    ]
    assert not [one for one in recorded("no storage").custom if "reader" in one.name]


def test_replaced_and_deleted_objects_can_be_restored() -> None:
    """Old versions are kept for 90 days and deleted objects for seven; live objects do not expire."""
    for one in recording_of("gcp-a3mega").of(BUCKET):
        assert one.inputs["softDeletePolicy"] == {"retentionDurationSeconds": 7 * 86_400}
        for rule in one.inputs.get("lifecycleRules", []):
            assert rule == {
                "action": {"type": "Delete"},
                "condition": {"daysSinceNoncurrentTime": 90, "withState": "ARCHIVED"},
            }
    assert sum("lifecycleRules" in one.inputs for one in recording_of("gcp-a3mega").of(BUCKET)) == 2


# --- firewall rules --------------------------------------------------------------------------------------------------


def test_ssh_is_open_only_to_iap_and_the_declared_networks() -> None:
    """One logged rule in the main network opens port 22 to IAP, which carries `gpuinfra ssh`, and to no other range."""
    ssh = _rule(recorded("no storage"), "allow-ssh")
    assert ssh["sourceRanges"] == ["35.235.240.0/20"]
    assert ssh["allows"] == [{"protocol": "tcp", "ports": ["22"]}]
    assert ssh["network"].endswith("train-network-main-" + ssh["network"][-8:])
    assert ssh["logConfig"]
    assert _rule(recorded("ssh through IAP"), "allow-ssh")["sourceRanges"] == ["35.235.240.0/20"]


def test_without_internet_access_only_google_apis_are_reachable() -> None:
    """There is no router; only the private addresses of the APIs are open, and their names resolve to these addresses."""
    recording = recorded("endpoints")
    web = _rule(recording, "allow-web-egress")
    assert web["destinationRanges"] == ["199.36.153.8/30"]
    assert web["allows"] == [{"protocol": "tcp", "ports": ["443"]}]
    assert not recording.of("gcp:compute/router:Router")
    names = {one.inputs["name"]: one.inputs["rrdatas"] for one in recording.of("gcp:dns/recordSet:RecordSet")}
    four = [f"199.36.153.{n}" for n in (8, 9, 10, 11)]
    assert names == {
        "googleapis.com.": four,
        "*.googleapis.com.": ["googleapis.com."],
        "pkg.dev.": four,
        "*.pkg.dev.": ["pkg.dev."],
    }
    zones = recording.of("gcp:dns/managedZone:ManagedZone")
    assert {one.inputs["visibility"] for one in zones} == {"private"}


@pytest.mark.parametrize(
    ("name", "out", "inwards"),
    [
        ("lustre without a bucket", ["988"], True),
        ("home directories", ["111", "2046", "2049", "2050", "4045"], False),
        ("home directories beside lustre", ["988", "111", "2046", "2049", "2050", "4045"], True),
    ],
)
def test_only_the_ports_of_declared_file_systems_are_open(name: str, out: list[str], inwards: bool) -> None:
    """The port of Lustre and the ports of NFS are open to the addresses of the file systems."""
    recording = recorded(name)
    files = _rule(recording, "allow-file-systems-egress")
    assert files["allows"] == [{"protocol": "tcp", "ports": out}]
    address = recording.one("gcp:compute/globalAddress:GlobalAddress").inputs
    assert files["destinationRanges"] == [f"{address['address']}/{int(address['prefixLength'])}"]
    assert bool([one for one in recording.of(RULE) if one.name.endswith("allow-file-systems-ingress")]) is inwards


def test_in_an_existing_network_one_rule_connects_the_nodes_and_one_admits_probes() -> None:
    """Both rules are in the project of the network; one is from and to the service account of the nodes, without addresses."""
    recording = recording_of("gcp-existing-network")
    rule, probes = sorted(recording.of(RULE), key=lambda one: "sourceRanges" in one.inputs)
    account = recording.one(TEMPLATE).inputs["serviceAccount"]["email"]
    assert rule.inputs["project"] == "my-networks"
    assert rule.inputs["network"] == "projects/my-networks/global/networks/shared"
    assert rule.inputs["sourceServiceAccounts"] == rule.inputs["targetServiceAccounts"] == [account]
    assert "sourceRanges" not in rule.inputs
    assert probes.inputs["network"] == rule.inputs["network"]
    assert probes.inputs["project"] == "my-networks"
    assert probes.inputs["targetServiceAccounts"] == [account]
    assert probes.inputs["sourceRanges"] == ["35.191.0.0/16", "130.211.0.0/22"]
    assert probes.inputs["allows"] == [{"protocol": "tcp", "ports": ["8467"]}]
    (interface,) = recording.one(TEMPLATE).inputs["networkInterfaces"]
    assert interface["subnetwork"] == "projects/my-networks/regions/us-central1/subnetworks/gpu-nodes"


# --- file systems ----------------------------------------------------------------------------------------------------


def test_file_systems_with_the_only_copy_of_data_are_protected_from_deletion() -> None:
    """A Lustre, with or without a bucket, and a Filestore refuse deletion."""
    both = recorded("home directories beside lustre")
    home = both.one(HOME).inputs
    assert home["deletionProtectionEnabled"] is True
    assert home["protocol"] == "NFS_V3"
    assert home["networks"][0]["connectMode"] == "PRIVATE_SERVICE_ACCESS"
    assert home["tier"] == "ZONAL"
    for name in ("home directories beside lustre", "lustre without a bucket"):
        assert recorded(name).one(LUSTRE).inputs["deletionPolicy"] == "PREVENT"


def test_a_bucket_that_the_site_did_not_create_is_an_error() -> None:
    """A cluster on the site of another stack finds a created bucket by its mount, and the error names the missing mount."""
    (out,) = (one for one in planned("mounted buckets").mounted_buckets if one.bucket == "auto")
    known = {"kind": "object", "mount": "/out", "dns_name": "storage.googleapis.com", "mount_name": "lab-out"}
    assert site_bucket(SiteOutputs(subnet_ids={}, file_systems=[known]), out) == "lab-out"
    with pytest.raises(ValueError, match="the site created no bucket for /out"):
        site_bucket(SiteOutputs(subnet_ids={}, file_systems=[{**known, "kind": "home"}]), out)


def test_nodes_have_access_to_mounted_buckets_only() -> None:
    """A bucket has one grant for the nodes: objectViewer if it is read-only, and objectUser if nodes write; a created bucket is encrypted and retained."""
    recording = recorded("mounted buckets")
    grants = {
        one.name: (one.inputs["bucket"], one.inputs["role"])
        for one in recording.of(GRANT)
        if one.name.startswith("train-node-mount-")
    }
    (made,) = (one for one in recording.of(BUCKET) if one.name == "train-out-0-bucket")
    assert grants == {
        "train-node-mount-data-0": ("corpus", "roles/storage.objectViewer"),
        "train-node-mount-out-0": (made.inputs["name"], "roles/storage.objectUser"),
    }
    assert made.retained
    assert made.inputs["encryption"]["defaultKmsKeyName"]
    script = recording.one(TEMPLATE).inputs["metadata"]["user-data"]
    assert '"mount_name": "corpus"' in script
    assert f'"mount_name": "{made.inputs["name"]}"' in script


@pytest.mark.parametrize("name", ["home directories beside lustre", "lustre without a bucket"])
def test_grants_on_keys_are_retained(name: str) -> None:
    """A service has one service agent in a project, so removing a grant would close the file systems of other stacks."""
    grants = recorded(name).of("gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember")
    assert len(grants) > 4
    assert [one.name for one in grants if not one.retained] == []


def test_user_data_has_the_addresses_of_file_systems() -> None:
    """The script has server and name of each file system, for Lustre without the transport."""
    script = recorded("home directories beside lustre").one(TEMPLATE).inputs["metadata"]["user-data"]
    for word in ('"10.64.0.3"', '"scratch0"', '"10.64.4.2"', '"/home"'):
        assert word in script


def test_outputs_have_the_import_and_export_commands() -> None:
    """No resource copies data, so the outputs have the complete commands."""
    recording = recording_of("gcp-a3mega")
    (top,) = [one for one in recording.resources if one.type == "gpuinfra:index:GpuCluster"]
    instance = recording.one(LUSTRE).inputs["instanceId"]
    bucket = recording.one(BUCKET, "train-scratch-0-data-bucket").inputs["name"]
    assert recording.outputs[top.urn]["import_commands"] == {
        "/scratch": f"gcloud lustre instances import-data {instance} --location=us-central1-a --project={PROJECT} "
        f"--gcs-path-uri=gs://{bucket}/ --lustre-path=/"
    }
    export = recording.outputs[top.urn]["export_commands"]["/scratch"]
    assert export == recording.outputs[top.urn]["import_commands"]["/scratch"].replace("import-data", "export-data")


# --- order -----------------------------------------------------------------------------------------------------------


def _after(recording: Recording, one: Registered) -> set[str]:
    """Type and name of all resources that are created before a resource, directly or indirectly."""
    return {f"{other.type} {other.name}" for other in recording.before(one)}


def test_resources_are_created_after_the_apis_are_enabled() -> None:
    """A project refuses requests to disabled APIs, so each resource waits for all APIs."""
    recording = recording_of("gcp-a3mega")
    services = {f"{one.type} {one.name}" for one in recording.of("gcp:projects/service:Service")}
    assert len(services) == len(apis(plan_of("gcp-a3mega")))
    for one in recording.custom:
        if one.inputs.get("project") and one.type != "gcp:projects/service:Service":
            assert services <= _after(recording, one), one.name


def test_templates_are_created_after_the_resources_that_nodes_need() -> None:
    """Firewall rules, Cloud NAT, grants on keys and bucket, bundle and file system exist before the template."""
    recording = recording_of("gcp-a3mega")
    for template in recording.of(TEMPLATE):
        before = _after(recording, template)
        for needed in (
            f"{RULE} train-network-firewall-deny-ingress",
            f"{RULE} train-network-firewall-allow-web-egress",
            f"{RULE} train-network-data-7-firewall-allow-internal-ingress",
            "gcp:compute/routerNat:RouterNat train-network-nat",
            "gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember train-foundation-data-compute",
            "gcp:storage/bucketIAMMember:BucketIAMMember train-node-evidence",
            "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember train-node-images",
            "gcp:storage/bucketObject:BucketObject train-gpu-bundle",
            f"{LUSTRE} train-scratch-0-lustre",
        ):
            assert needed in before, needed


def test_a_file_system_is_created_after_its_peering_and_grant() -> None:
    """Google refuses a Lustre without its peering or its grant."""
    recording = recording_of("gcp-a3mega")
    before = _after(recording, recording.one(LUSTRE))
    assert "gcp:servicenetworking/connection:Connection train-network-services" in before
    assert "gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember train-scratch-0-key" in before


def test_the_handover_has_groups_templates_and_the_service_account() -> None:
    """It is created after all groups and requests, with path, size and template of each group and the identity that signs evidence."""
    for name in ("three pools", "queue"):
        recording = recorded(name)
        ready = recording.one(READY)
        made = {one.inputs["name"]: one for one in recording.of(GROUP)}
        templates = {one.inputs["name"] for one in recording.of(TEMPLATE)}
        found = [group for pool in ready.inputs["pools"] for group in pool["groups"]]
        assert {group["group"].rpartition("/")[2] for group in found} == set(made)
        assert {group["templateVersion"] for group in found} == templates
        for group in found:
            assert group["group"] == made[group["group"].rpartition("/")[2]].id
            assert group["templateId"].endswith(f"{group['templateVersion']}?uniqueId=1")
            assert group["count"] == made[group["group"].rpartition("/")[2]].inputs["targetSize"]
        account = recording.of(TEMPLATE)[0].inputs["serviceAccount"]["email"]
        assert {pool["nodeRole"] for pool in ready.inputs["pools"]} == {account}
        waits = {
            *(one.urn for one in recording.of(GROUP)),
            *(one.urn for one in recording.of("gcp:compute/resizeRequest:ResizeRequest")),
        }
        assert waits <= set(ready.depends_on)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_needed_apis_are_enabled_and_no_others(name: str) -> None:
    """The APIs of all created resources are enabled, and each enabled API belongs to a resource, a policy or the provider."""
    services = {
        "kms": "cloudkms",
        "serviceaccount": "iam",
        "filestore": "file",
        "billing": "billingbudgets",
        "projects": "cloudresourcemanager",
        "gpuinfra": "",
    }
    used = {
        services.get(word, word) for one in recorded(name).custom for word in (one.type.split(":")[1].split("/")[0],)
    }
    used.discard("")
    used.discard("index")
    on = set(apis(planned(name)))
    assert used <= on
    assert on - used <= {"serviceusage", "cloudresourcemanager", "iam", "cloudkms", "compute", "storage", "logging"}


def test_a_preview_registers_the_resources_of_an_up() -> None:
    """No resource is created inside an apply, so a preview has all names."""
    spec = parse_spec({**BASE, "storage": [{"kind": "home"}]})
    previewed = {(one.type, one.name) for one in recording_of_spec(spec, preview=True).resources}
    assert previewed == {(one.type, one.name) for one in recording_of_spec(spec).resources}
