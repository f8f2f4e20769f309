"""What the parts of the ground do: records, keys, walls, file systems, and who comes after whom."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.clouds.gcp.instances import apis
from gpuinfra.spec import parse_spec
from tests.clouds.gcp.answers import PROJECT
from tests.clouds.gcp.variants import BASE, VARIANTS, planned, recorded
from tests.clouds.recorder import Recording, Registered
from tests.clouds.stacks import plan_of, recording_of, recording_of_spec

TEMPLATE = "gcp:compute/instanceTemplate:InstanceTemplate"
GROUP = "gcp:compute/instanceGroupManager:InstanceGroupManager"
WALL = "gcp:compute/firewall:Firewall"
BUCKET = "gcp:storage/bucket:Bucket"
LOGS = "gcp:logging/projectBucketConfig:ProjectBucketConfig"
SINK = "gcp:logging/projectSink:ProjectSink"
LUSTRE = "gcp:lustre/instance:Instance"
HOME = "gcp:filestore/instance:Instance"
READY = "gpuinfra:index:NodesReady"


def _wall(recording: Recording, end: str) -> dict[str, Any]:
    (found,) = [one.inputs for one in recording.of(WALL) if one.name.endswith(end)]
    return found


# --- records ---------------------------------------------------------------------------------------------------------


def test_what_nobody_can_shorten_is_locked_for_good_and_nothing_else_is() -> None:
    """`compliance` locks log bucket and records; `governance` holds the same days without a lock that stays."""
    for name, forever in (("a trail that nobody can shorten", True), ("no storage", False)):
        recording = recorded(name)
        assert recording.one(LOGS, "train-foundation-audit-log-bucket").inputs["locked"] is forever
        assert recording.one(LOGS, "train-network-flow-logs").inputs.get("locked") is None
        records = recording.one(BUCKET, "train-foundation-audit-records-bucket").inputs["retentionPolicy"]
        assert records == {"retentionPeriod": str(365 * 86_400), "isLocked": forever}


def test_without_data_events_only_reads_of_settings_are_recorded() -> None:
    """A person who leaves data events out still has what changes settings and who read them."""
    recording = recording_of_spec(parse_spec({**BASE, "audit": {"data_events": False}}))
    config = recording.one("gcp:projects/iAMAuditConfig:IAMAuditConfig").inputs
    assert config["auditLogConfigs"] == [{"logType": "ADMIN_READ"}]


def test_records_can_go_into_a_bucket_of_others() -> None:
    """The sink goes there, its writer is let in there, and no bucket of records is made."""
    recording = recorded("trail into an existing bucket")
    sink = recording.one(SINK, "train-foundation-audit-records").inputs
    grant = recording.one("gcp:storage/bucketIAMMember:BucketIAMMember", "train-foundation-audit-writer").inputs
    assert sink["destination"] == "storage.googleapis.com/somebody-elses-audit"
    assert grant["bucket"] == "somebody-elses-audit"
    assert not [one for one in recording.of(BUCKET) if "records" in one.name]


def test_flows_have_a_bucket_of_their_own_and_are_kept_out_of_the_other() -> None:
    """The sink for everything excludes flows; the one for flows takes those of this network's subnet and no other's."""
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


def test_operators_read_evidence_and_nothing_else() -> None:
    """Each gets one role on the one bucket, which is taken back with the name in the declaration."""
    recording = recorded("people who read evidence")
    grants = [one for one in recording.custom if "-evidence-reader-" in one.name]
    bucket = recording.one(BUCKET, "train-foundation-evidence-store-bucket").inputs["name"]
    told = [(one.inputs["bucket"], one.inputs["role"], one.inputs["member"], one.retained) for one in grants]
    assert sorted(told) == [
        (bucket, "roles/storage.objectViewer", "group:ops@example.com", False),
        (bucket, "roles/storage.objectViewer", "serviceAccount:deploy@my-project.iam.gserviceaccount.com", False),
    ]
    assert not [one for one in recorded("no storage").custom if "reader" in one.name]


def test_what_is_replaced_in_a_bucket_can_be_brought_back() -> None:
    """Old versions stay for 90 days and deleted objects for seven; live ones are never removed by age."""
    for one in recording_of("gcp-a3mega").of(BUCKET):
        assert one.inputs["softDeletePolicy"] == {"retentionDurationSeconds": 7 * 86_400}
        for rule in one.inputs.get("lifecycleRules", []):
            assert rule == {
                "action": {"type": "Delete"},
                "condition": {"daysSinceNoncurrentTime": 90, "withState": "ARCHIVED"},
            }
    assert sum("lifecycleRules" in one.inputs for one in recording_of("gcp-a3mega").of(BUCKET)) == 2


# --- walls -----------------------------------------------------------------------------------------------------------


def test_ssh_is_open_where_it_was_asked_for_and_to_them_alone() -> None:
    """One rule in the main network, port 22, the tunnel's addresses, written down; without it port 22 is nobody's."""
    asked = _wall(recorded("ssh through the tunnel"), "allow-ssh")
    assert asked["sourceRanges"] == ["35.235.240.0/20"]
    assert asked["allows"] == [{"protocol": "tcp", "ports": ["22"]}]
    assert asked["network"].endswith("train-network-main-" + asked["network"][-8:])
    assert asked["logConfig"]
    assert not [one for one in recorded("no storage").of(WALL) if one.name.endswith("allow-ssh")]


def test_without_a_way_out_only_google_s_own_apis_are_reached() -> None:
    """No router, the private addresses of the APIs and no others, and names that lead to them."""
    recording = recorded("endpoints")
    web = _wall(recording, "allow-web-egress")
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
def test_only_the_ports_of_what_is_there_are_open(name: str, out: list[str], inwards: bool) -> None:
    """Lustre's port for Lustre, NFS's for homes, towards the file systems' own addresses."""
    recording = recorded(name)
    files = _wall(recording, "allow-file-systems-egress")
    assert files["allows"] == [{"protocol": "tcp", "ports": out}]
    address = recording.one("gcp:compute/globalAddress:GlobalAddress").inputs
    assert files["destinationRanges"] == [f"{address['address']}/{int(address['prefixLength'])}"]
    assert bool([one for one in recording.of(WALL) if one.name.endswith("allow-file-systems-ingress")]) is inwards


def test_in_another_s_network_one_rule_is_made_about_our_own_nodes() -> None:
    """It is in the project of that network, from and to the nodes' account, and no address is let in."""
    recording = recording_of("gcp-existing-network")
    (rule,) = recording.of(WALL)
    account = recording.one(TEMPLATE).inputs["serviceAccount"]["email"]
    assert rule.inputs["project"] == "my-networks"
    assert rule.inputs["network"] == "projects/my-networks/global/networks/shared"
    assert rule.inputs["sourceServiceAccounts"] == rule.inputs["targetServiceAccounts"] == [account]
    assert "sourceRanges" not in rule.inputs
    (interface,) = recording.one(TEMPLATE).inputs["networkInterfaces"]
    assert interface["subnetwork"] == "projects/my-networks/regions/us-central1/subnetworks/gpu-nodes"


# --- file systems ----------------------------------------------------------------------------------------------------


def test_what_holds_the_only_copy_refuses_to_be_deleted() -> None:
    """A kept Lustre and a home refuse deletion; a Lustre that a bucket feeds goes with its stack."""
    both = recorded("home directories beside lustre")
    home = both.one(HOME).inputs
    assert home["deletionProtectionEnabled"] is True
    assert home["protocol"] == "NFS_V3"
    assert home["networks"][0]["connectMode"] == "PRIVATE_SERVICE_ACCESS"
    assert home["tier"] == "ZONAL"
    assert both.one(LUSTRE).inputs.get("deletionPolicy") is None
    assert recorded("lustre without a bucket").one(LUSTRE).inputs["deletionPolicy"] == "PREVENT"


@pytest.mark.parametrize("name", ["home directories beside lustre", "lustre without a bucket"])
def test_nobody_s_key_is_taken_away(name: str) -> None:
    """A service has one account in a project, so a grant that goes with one stack would close the file systems of others."""
    grants = recorded(name).of("gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember")
    assert len(grants) > 4
    assert [one.name for one in grants if not one.retained] == []


def test_nodes_are_told_where_their_file_systems_are() -> None:
    """Server and name of each go into the first script, Lustre's without its transport."""
    script = recorded("home directories beside lustre").one(TEMPLATE).inputs["metadata"]["user-data"]
    for word in ('"10.64.0.3"', '"scratch0"', '"10.64.4.2"', '"/home"'):
        assert word in script


def test_people_are_told_how_the_bucket_is_brought_in() -> None:
    """No resource moves data, so the outputs hold the command, complete."""
    recording = recording_of("gcp-a3mega")
    (top,) = [one for one in recording.resources if one.type == "gpuinfra:index:GpuCluster"]
    instance = recording.one(LUSTRE).inputs["instanceId"]
    bucket = recording.one(BUCKET, "train-scratch-0-data-bucket").inputs["name"]
    assert recording.outputs[top.urn]["import_commands"] == {
        "/scratch": f"gcloud lustre instances import-data {instance} --location=us-central1-a --project={PROJECT} "
        f"--gcs-path-uri=gs://{bucket}/ --lustre-path=/"
    }
    out = recording.outputs[top.urn]["export_commands"]["/scratch"]
    assert out == recording.outputs[top.urn]["import_commands"]["/scratch"].replace("import-data", "export-data")


# --- order -----------------------------------------------------------------------------------------------------------


def _after(recording: Recording, one: Registered) -> set[str]:
    """Types and names of everything that a resource comes after, however far."""
    return {f"{other.type} {other.name}" for other in recording.before(one)}


def test_everything_comes_after_the_apis() -> None:
    """A project without its APIs refuses everything, so each thing in it waits for all of them."""
    recording = recording_of("gcp-a3mega")
    services = {f"{one.type} {one.name}" for one in recording.of("gcp:projects/service:Service")}
    assert len(services) == len(apis(plan_of("gcp-a3mega")))
    for one in recording.custom:
        if one.inputs.get("project") and one.type != "gcp:projects/service:Service":
            assert services <= _after(recording, one), one.name


def test_nodes_come_after_what_they_need() -> None:
    """Walls, way out, grants on keys and bucket, bundle and file system are there before a template names them."""
    recording = recording_of("gcp-a3mega")
    for template in recording.of(TEMPLATE):
        before = _after(recording, template)
        for wanted in (
            f"{WALL} train-network-firewall-deny-ingress",
            f"{WALL} train-network-firewall-allow-web-egress",
            f"{WALL} train-network-data-7-firewall-allow-internal-ingress",
            "gcp:compute/routerNat:RouterNat train-network-nat",
            "gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember train-foundation-data-compute",
            "gcp:storage/bucketIAMMember:BucketIAMMember train-node-evidence",
            "gcp:storage/bucketIAMMember:BucketIAMMember train-node-proof",
            "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember train-node-images",
            "gcp:storage/bucketObject:BucketObject train-gpu-bundle",
            f"{LUSTRE} train-scratch-0-lustre",
        ):
            assert wanted in before, wanted


def test_a_file_system_comes_after_its_peering_and_its_grant() -> None:
    """Lustre is refused without either (gcp.md 5.1, 6.3)."""
    recording = recording_of("gcp-a3mega")
    before = _after(recording, recording.one(LUSTRE))
    assert "gcp:servicenetworking/connection:Connection train-network-services" in before
    assert "gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember train-scratch-0-key" in before


def test_the_handover_knows_groups_templates_and_the_nodes_account() -> None:
    """It comes after every group and request, and is told each group's path, size and template, and whose token counts."""
    for name in ("three pools", "a queue"):
        recording = recorded(name)
        ready = recording.one(READY)
        made = {one.inputs["name"]: one for one in recording.of(GROUP)}
        templates = {one.inputs["name"] for one in recording.of(TEMPLATE)}
        told = [group for pool in ready.inputs["pools"] for group in pool["groups"]]
        assert {group["group"].rpartition("/")[2] for group in told} == set(made)
        assert {group["templateVersion"] for group in told} == templates
        for group in told:
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
def test_no_api_is_missing_and_none_is_turned_on_in_vain(name: str) -> None:
    """Services of the resources that are made are on; those that are on belong to a resource, to a policy, or to the providers."""
    services = {
        "kms": "cloudkms",
        "serviceaccount": "iam",
        "filestore": "file",
        "billing": "billingbudgets",
        "projects": "cloudresourcemanager",
        "gpuinfra": "",
        "artifactregistry": "",
    }
    used = {
        services.get(word, word) for one in recorded(name).custom for word in (one.type.split(":")[1].split("/")[0],)
    }
    used.discard("")
    used.discard("index")
    on = set(apis(planned(name)))
    assert used <= on
    assert on - used <= {"serviceusage", "cloudresourcemanager", "iam", "cloudkms", "compute", "storage", "logging"}


def test_a_preview_registers_what_an_up_registers() -> None:
    """No resource is made inside an apply: the list of names is complete before anything exists."""
    spec = parse_spec({**BASE, "storage": [{"kind": "home"}]})
    previewed = {(one.type, one.name) for one in recording_of_spec(spec, preview=True).resources}
    assert previewed == {(one.type, one.name) for one in recording_of_spec(spec).resources}
