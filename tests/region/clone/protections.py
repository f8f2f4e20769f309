"""The protections of a second region, and how the tests break each of them on each cloud.

A break changes the stand-in cloud or the stack files as an operator or the cloud can change them. It returns the topic of the line that
must fail, and a part of its name. Its docstring describes the defect.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuinfra.catalog.records import CapacityKind
from gpuinfra.plan.machines import machines_of
from gpuinfra.region.readiness import BACKEND
from gpuinfra.spec.load import read_stack
from gpuinfra_rehearsal.cloud.azure import stores
from tests.region.clone.deployed import Deployed

SECOND = {"aws-recovery": "us-west-2", "azure-recovery": "eastus2", "gcp-recovery": "us-east4"}
RULES, KEY = "aws:s3/bucketReplicationConfig:BucketReplicationConfig", "aws:kms/key:Key"
VAULT = "azure-native:keyvault:Vault"
POLICY, ACCOUNT, GRANT = (
    "azure-native:storage:ObjectReplicationPolicy",
    "azure-native:storage:StorageAccount",
    "azure-native:authorization:RoleAssignment",
)
JOB, ROLE = "gcp:storage/transferJob:TransferJob", "gcp:projects/iAMCustomRole:IAMCustomRole"
GROUPS = "/subscriptions/00000000-0000-4000-8000-00000000abcd/resourceGroups/capacity/providers/Microsoft.Compute"


DAY_S = 86400


@dataclass
class Broken:
    """A deployed stack with the files of both regions, in which a test breaks one protection."""

    deployed: Deployed
    files: tuple[Path, Path]
    environment: dict[str, str] = field(default_factory=dict)
    """Variables for `gpuinfra ready`."""

    @property
    def second(self) -> str:
        """The second region."""
        return read_stack(self.files[1]).spec.where.region

    def edit(self, pattern: str, *new: str) -> None:
        """Replace one place in the file of the second region, or in both files."""
        for path, text in zip(self.files[-len(new) :], new, strict=True):
            found, count = re.subn(pattern, text, path.read_text(), count=1)
            assert count == 1, pattern
            path.write_text(found)

    def reserve(self, ident: str, machine: str, **why: object) -> tuple[str, str]:
        """Use a reservation that exists and cannot be used."""
        self.deployed.ask("external", id=ident, machine=machine, **why)
        self.edit(r"kind: (on_demand|spot|flex)", f"kind: reserved, id: {ident}")
        return "reservation", ident.rpartition("/")[2]

    def use_images(self, *refs: str) -> tuple[str, str]:
        """Set the image of the nodes in both files."""
        self.edit(r"( *)- name: gpu\n", *(rf"\1- name: gpu\n\1  image: {{ref: {ref}}}\n" for ref in refs))
        return "image", refs[-1]

    @property
    def source(self) -> str:
        """The bucket of the file system in the first region, as the store of the stand-in names it."""
        one = self.deployed
        if one.name == "aws":
            return str(one.first(RULES, "scratch")["outputs"]["bucket"])
        if one.name == "gcp":
            return str(one.first(JOB, "scratch")["outputs"]["replicationSpec"]["gcsDataSource"]["bucketName"])
        return stores.bucket(one.first(POLICY, "/trainscratch")["outputs"]["sourceAccount"].rpartition("/")[2], "data")


Break = Callable[[Broken], tuple[str, str]]


def _rules(one: Broken, change: Callable[[dict[str, Any]], None]) -> str:
    rules = one.deployed.first(RULES, "evidence")
    changed = json.loads(json.dumps(rules["outputs"]["rules"]))
    change(changed[0])
    one.deployed.drift(rules, rules=changed)
    return str(rules["outputs"]["rules"][0]["destination"]["bucket"].rpartition(":")[2])


def aws_replication_off(one: Broken) -> tuple[str, str]:
    """the replication rule is disabled"""
    _rules(one, lambda rule: rule.update(status="Disabled"))
    return "replication", str(one.deployed.first(RULES, "evidence")["outputs"]["bucket"])


def aws_other_key(one: Broken) -> tuple[str, str]:
    """the replication rule uses a key in the first Region"""
    key = one.deployed.first(KEY, "us-east-2")["outputs"]["arn"]
    return "key", _rules(one, lambda rule: rule["destination"]["encryptionConfiguration"].update(replicaKmsKeyId=key))


def aws_role(one: Broken) -> tuple[str, str]:
    """the replication role is deleted"""
    role = one.deployed.first(RULES)["outputs"]["role"].rpartition("/")[2]
    one.deployed.ask("vanish", type="aws:iam/role:Role", id=role)
    return "role", role


def azure_replication_off(one: Broken) -> tuple[str, str]:
    """the replication policy in the first region is deleted"""
    policies = [each for each in one.deployed.resources if each["type"] == POLICY and "/trainevidence" in each["id"]]
    policy = next(each for each in policies if each["inputs"]["objectReplicationPolicyId"] != "default")
    one.deployed.vanish(policy)
    return "replication", f"{policy['outputs']['sourceAccount'].rpartition('/')[2]}/evidence"


def azure_other_key(one: Broken) -> tuple[str, str]:
    """the account of the replica uses a key in the first region"""
    vaults = [
        each["outputs"]["properties"]["vaultUri"]
        for each in one.deployed.resources
        if each["type"] == "azure-native:keyvault:Vault" and each["outputs"]["location"] == "southcentralus"
    ]
    replica = next(
        each
        for each in one.deployed.resources
        if each["type"] == ACCOUNT and "eastus2" in each["id"] and "/trainscratch" in each["id"]
    )
    encryption = json.loads(json.dumps(replica["outputs"]["encryption"]))
    encryption["keyVaultProperties"]["keyVaultUri"] = vaults[0]
    one.deployed.drift(replica, encryption=encryption)
    return "key", replica["id"].rpartition("/")[2]


def azure_role(one: Broken) -> tuple[str, str]:
    """the role that allows the replicas to use their key is deleted"""
    grant = one.deployed.first(GRANT, "train-recovery-eastus2")
    one.deployed.vanish(grant)
    return "role", grant["id"].rpartition("/")[2]


def gcp_replication_off(one: Broken) -> tuple[str, str]:
    """the replication job is disabled"""
    job = one.deployed.first(JOB, "evidence")
    one.deployed.drift(job, status="DISABLED")
    return "replication", str(job["outputs"]["replicationSpec"]["gcsDataSource"]["bucketName"])


def gcp_other_key(one: Broken) -> tuple[str, str]:
    """the replication job keeps the keys of the objects, which are in the first region"""
    job = one.deployed.first(JOB, "evidence")
    spec = json.loads(json.dumps(job["outputs"]["replicationSpec"]))
    spec["transferOptions"]["metadataOptions"]["kmsKey"] = "KMS_KEY_PRESERVE"
    one.deployed.drift(job, replicationSpec=spec)
    return "key", job["outputs"]["name"]


def gcp_role(one: Broken) -> tuple[str, str]:
    """a replication role is deleted"""
    role = one.deployed.first(ROLE, "replication")
    one.deployed.vanish(role)
    return "role", role["id"]


def addresses(one: Broken) -> tuple[str, str]:
    """both networks have the same address range"""
    one.edit(r"(?m)^( *)cidr: .*", rf"\1cidr: {read_stack(one.files[0]).spec.network.cidr}")
    return "addresses", one.files[1].name.split(".")[1]


def no_quota(one: Broken) -> tuple[str, str]:
    """the quota in the second region is 0"""
    spec = read_stack(one.files[1]).spec
    pool = spec.pools[0]
    quota = machines_of(spec)[pool.machine].quotas[CapacityKind(pool.capacity[0].kind)]
    one.deployed.ask("external", id=f"quota:{quota}:{one.second}", count=0)
    return "quota", quota


def _late(one: Broken, lag_s: int) -> tuple[str, str]:
    one.deployed.ask("replication", lag_s=lag_s)
    one.deployed.cloud.store.put_object(one.source, "checkpoint", b"content")
    one.deployed.ask("clock", at=time.time() + DAY_S)
    return "lag", one.source.removeprefix("azure:")


def stale(one: Broken) -> tuple[str, str]:
    """an object has been waiting for replication for a day"""
    return _late(one, 30 * DAY_S)


def gcp_stale(one: Broken) -> tuple[str, str]:
    """the replication of an object took a day"""
    return _late(one, DAY_S - 60)


def no_bundle(one: Broken) -> tuple[str, str]:
    """the bundle is not in the replica"""
    one.deployed.ask("replication", lag_s=30 * DAY_S)
    store = one.deployed.cloud.store
    found = store._rows("SELECT bucket, key FROM objects WHERE key LIKE '%.tar.gz'")
    ((replica, key),) = (row for row in found if one.second in row[0])
    store.remove_object(replica, key)
    return "bundle", key


def azure_bundle(one: Broken) -> tuple[str, str]:
    """the bundle has no replication status"""
    one.deployed.ask("replication", lag_s=30 * DAY_S)
    outputs = one.deployed.first("gpuinfra:index:Upload")["outputs"]
    account = outputs["container"].removeprefix("https://").partition(".")[0]
    one.deployed.cloud.store.put_object(stores.bucket(account, "evidence"), outputs["blob"], b"another")
    return "bundle", outputs["blob"]


def aws_state(one: Broken) -> tuple[str, str]:
    """the state is in a bucket in the first Region"""
    one.deployed.ask("existing", type="aws:s3/bucket:Bucket", id="our-state", inputs={"bucket": "our-state", "region": "us-east-2"})  # fmt: skip
    one.environment[BACKEND] = "s3://our-state"
    return "state", BACKEND


def azure_state(one: Broken) -> tuple[str, str]:
    """the state is in a storage account in the first region"""
    group = one.deployed.first(ACCOUNT)["id"].partition("/providers/")[0]
    inputs = {
        "resourceGroupName": group.rpartition("/")[2],
        "accountName": "ourstate",
        "location": "southcentralus",
        "kind": "StorageV2",
        "sku": {"name": "Standard_LRS"},
    }
    one.deployed.ask("existing", type=ACCOUNT, id=f"{group}/providers/Microsoft.Storage/storageAccounts/ourstate", inputs=inputs)  # fmt: skip
    one.environment[BACKEND] = "azblob://state?storage_account=ourstate"
    return "state", BACKEND


def gcp_state(one: Broken) -> tuple[str, str]:
    """the state is in a bucket in the first region"""
    one.deployed.ask("existing", type="gcp:storage/bucket:Bucket", id="our-state", inputs={"name": "our-state", "location": "US-CENTRAL1"})  # fmt: skip
    one.environment[BACKEND] = "gs://our-state"
    return "state", BACKEND


def _secrets(one: Broken, url: str, name: str = "secretsprovider") -> tuple[str, str]:
    path = one.files[0]
    path.write_text(f"secretsprovider: {url}\n{path.read_text()}")
    return "state", name


def aws_secrets(one: Broken) -> tuple[str, str]:
    """the key of the secrets provider is in the first Region"""
    return _secrets(one, f"awskms:///{one.deployed.first(KEY, 'us-east-2')['outputs']['arn']}")


def azure_secrets(one: Broken) -> tuple[str, str]:
    """the Key Vault of the secrets provider is in the first region"""
    vault = next(each for each in one.deployed.resources if each["type"] == VAULT and each["outputs"]["location"] == "southcentralus")  # fmt: skip
    return _secrets(
        one,
        f"azurekeyvault://{vault['id'].rpartition('/')[2]}.vault.azure.net/keys/pulumi",
        "secretsprovider of azure-recovery",
    )


def gcp_secrets(one: Broken) -> tuple[str, str]:
    """the key of the secrets provider is in the first region"""
    return _secrets(one, "gcpkms://projects/p/locations/us-central1/keyRings/r/cryptoKeys/k")


def aws_image(one: Broken) -> tuple[str, str]:
    """the image does not exist in the second Region"""
    one.deployed.ask("external", id="ami-0fedcba9876543210", regions=["us-east-2"])
    return one.use_images("ami-0123456789abcdef0", "ami-0fedcba9876543210")


def azure_image(one: Broken) -> tuple[str, str]:
    """the image exists only in the first region"""
    one.deployed.ask("external", id=f"{GROUPS}/images/second", regions=["southcentralus"])
    return one.use_images(f"{GROUPS}/images/first", f"{GROUPS}/images/second")


def gcp_image(one: Broken) -> tuple[str, str]:
    """the image is stored only in the first region"""
    image = "projects/our-images/global/images/gpu-1"
    one.deployed.ask("external", id=image, regions=["us-central1"])
    return one.use_images(image, image)


def aws_reservation(one: Broken) -> tuple[str, str]:
    """the reservation is expired"""
    return one.reserve("cr-0a1b2c3d4e5f60718", "p4d.24xlarge", count=2, state="expired")


def azure_reservation(one: Broken) -> tuple[str, str]:
    """the reservation group has no capacity"""
    # Azure offers no reservations of ND machines.
    one.edit(r"machine: \S+", *["machine: Standard_NC24ads_A100_v4"] * 2)
    first = f"kind: reserved, id: {GROUPS}/capacityReservationGroups/first"
    one.edit(r"kind: on_demand", first, "kind: on_demand")
    return one.reserve(f"{GROUPS}/capacityReservationGroups/ours", "Standard_NC24ads_A100_v4", count=0)


def gcp_reservation(one: Broken) -> tuple[str, str]:
    """the reservation is being deleted"""
    return one.reserve("ours", "a3-megagpu-8g", count=2, state="DELETING")


PROTECTIONS: dict[str, dict[str, Break]] = {
    "replication off": {"aws": aws_replication_off, "azure": azure_replication_off, "gcp": gcp_replication_off},
    "single-region key": {"aws": aws_other_key, "azure": azure_other_key, "gcp": gcp_other_key},
    "image not copied": {"aws": aws_image, "azure": azure_image, "gcp": gcp_image},
    "state in the first region": {"aws": aws_state, "azure": azure_state, "gcp": gcp_state},
    "secrets in the first region": {"aws": aws_secrets, "azure": azure_secrets, "gcp": gcp_secrets},
    "role missing": {"aws": aws_role, "azure": azure_role, "gcp": gcp_role},
    "overlapping addresses": dict.fromkeys(("aws", "azure", "gcp"), addresses),
    "quota zero": dict.fromkeys(("aws", "azure", "gcp"), no_quota),
    "stale replica": {"aws": stale, "azure": stale, "gcp": gcp_stale},
    "bundle missing": {"aws": no_bundle, "azure": azure_bundle, "gcp": no_bundle},
    "expired reservation": {"aws": aws_reservation, "azure": azure_reservation, "gcp": gcp_reservation},
}
"""Maps a protection and a cloud to the function that breaks it."""
TOPICS = {
    "replication off": "replication", "single-region key": "key", "image not copied": "image", "state in the first region": "state",
    "secrets in the first region": "state",
    "role missing": "role", "overlapping addresses": "addresses", "quota zero": "quota", "stale replica": "lag",
    "bundle missing": "bundle", "expired reservation": "reservation",
}  # fmt: skip
"""Maps a protection to the topic of the line that must fail."""
