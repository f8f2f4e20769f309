"""CIS Google Cloud Platform Foundation 4.0: the controls that apply to the components."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.clouds.controls.control import Ask, Control, drop, each, has, put
from tests.clouds.recorder import Recording, Registered

KEY, BUCKET = "gcp:kms/cryptoKey:CryptoKey", "gcp:storage/bucket:Bucket"
AUDIT, SINK = "gcp:projects/iAMAuditConfig:IAMAuditConfig", "gcp:logging/projectSink:ProjectSink"
NETWORK, SUBNET = "gcp:compute/network:Network", "gcp:compute/subnetwork:Subnetwork"
NAMES, WALL = "gcp:dns/policy:Policy", "gcp:compute/firewall:Firewall"
TEMPLATE, MEMBER = "gcp:compute/instanceTemplate:InstanceTemplate", "gcp:projects/iAMMember:IAMMember"
GRANT = "gcp:storage/bucketIAMMember:BucketIAMMember"
ANYWHERE = {"0.0.0.0/0", "::/0"}
OWN = ("10.", "35.235.240.0/20")
"""Private ranges, and IAP's."""
LONGEST_S = 90 * 24 * 3600


def _no_keys(recording: Recording) -> Iterator[str]:
    yield from (f"{one.name} is a key of a service account" for one in recording.custom if one.type == "gcp:serviceaccount/key:Key")  # fmt: skip


def _roles(refused: tuple[str, ...], types: tuple[str, ...]) -> Ask:
    def ask(recording: Recording) -> Iterator[str]:
        for type_ in types:
            for one in recording.of(type_):
                if str(one.inputs.get("role")).lower().endswith(refused):
                    yield f"{one.name} has {one.inputs['role']}"

    return ask


def _with_key(recording: Recording) -> None:
    one = recording.of(KEY)[0]
    recording.resources.append(type(one)(**{**vars(one), "type": "gcp:serviceaccount/key:Key"}))


def _everything(sink: Registered, config: Registered) -> bool:
    """A sink without a filter; flows may go elsewhere, and do."""
    left = [one.get("filter") for one in sink.inputs.get("exclusions") or []]
    return not sink.inputs.get("filter") and left in ([], ['log_id("compute.googleapis.com/vpc_flows")'])


def _closed(port: int) -> Ask:
    def ask(recording: Recording) -> Iterator[str]:
        for wall in recording.of(WALL):
            if wall.inputs["direction"] != "INGRESS" or not set(wall.inputs.get("sourceRanges") or []) & ANYWHERE:
                continue
            for rule in wall.inputs.get("allows") or []:
                ports = [str(one) for one in rule.get("ports") or ["0-65535"]]
                if rule["protocol"] in ("tcp", "all") and any(_holds(one, port) for one in ports):
                    yield f"{wall.name} allows any source"

    return ask


def _holds(range: str, port: int) -> bool:
    low, _, high = range.partition("-")
    return int(low) <= port <= int(high or low)


def _by_iap(recording: Recording) -> Iterator[str]:
    """SSH from outside of the private ranges uses IAP."""
    for wall in recording.of(WALL):
        for rule in wall.inputs.get("allows") or []:
            by_ssh = any(_holds(str(one), 22) for one in rule.get("ports") or [])
            others = [one for one in wall.inputs.get("sourceRanges") or [] if not str(one).startswith(OWN)]
            if wall.inputs["direction"] == "INGRESS" and by_ssh and others:
                yield f"{wall.name} lets others in than IAP"


def _open(ranges: list[str], ports: list[str]) -> Any:
    return put(WALL, direction="INGRESS", sourceRanges=ranges, allows=[{"protocol": "tcp", "ports": ports}])


def _metadata(key: str, wanted: str) -> Control:
    def spoil(recording: Recording) -> None:
        recording.of(TEMPLATE)[0].inputs["metadata"].pop(key)

    return Control(f"{key} is {wanted}", each(TEMPLATE, lambda one: str(one.inputs["metadata"].get(key)).upper() == wanted, f"has not {key} {wanted}"), spoil)  # fmt: skip


def _named(policy: Registered, network: Registered) -> bool:
    named = [str(one["networkUrl"]) for one in policy.inputs["networks"]]
    return bool(policy.inputs.get("enableLogging")) and any(one.endswith(f"/{network.inputs['name']}") for one in named)


def _shielded(template: Registered) -> bool:
    settings = template.inputs["shieldedInstanceConfig"]
    return settings["enableVtpm"] and settings["enableIntegrityMonitoring"]


def _private(template: Registered) -> bool:
    faces = template.inputs["networkInterfaces"]
    return not any(one.get("accessConfigs") or one.get("ipv6AccessConfigs") for one in faces)


CONTROLS = {
    "1.4": Control("no service account has a key", _no_keys, _with_key),
    "1.5": Control("no account is an administrator", _roles(("owner", "editor", "admin"), (MEMBER, GRANT)), put(GRANT, role="roles/storage.admin")),
    "1.6": Control("no role allows acting as every account", _roles(("serviceaccountuser", "serviceaccounttokencreator"), (MEMBER, GRANT)), put(GRANT, role="roles/iam.serviceAccountUser")),
    "1.10": Control("keys rotate in 90 days", each(KEY, lambda one: int(str(one.inputs.get("rotationPeriod", "0s")).rstrip("s")) in range(1, LONGEST_S + 1), "rotates too seldom"), put(KEY, rotationPeriod="31536000s")),
    "2.1": Control("all access is audited", each(AUDIT, lambda one: one.inputs["service"] == "allServices" and {log["logType"] for log in one.inputs["auditLogConfigs"]} == {"ADMIN_READ", "DATA_READ", "DATA_WRITE"}, "leaves something out"), put(AUDIT, auditLogConfigs=[{"logType": "DATA_READ"}])),
    "2.2": Control("one sink takes everything", has(AUDIT, SINK, _everything, "has no sink for everything"), drop(SINK)),
    "2.3": Control("records cannot be deleted before their time", each(BUCKET, lambda one: (one.inputs.get("retentionPolicy") or {}).get("isLocked", True), "is not locked"), lambda r: [one.inputs.update(retentionPolicy={"isLocked": False}) for one in r.of(BUCKET)]),
    "2.12": Control("names that are asked for are logged", has(NETWORK, NAMES, _named, "logs no names"), lambda r: [one.inputs.update(enableLogging=False) for one in r.of(NAMES)]),
    "3.6": Control("no SSH from the internet", _closed(22), _open(["0.0.0.0/0"], ["20-25"])),
    "3.7": Control("no RDP from the internet", _closed(3389), _open(["0.0.0.0/0"], ["3389"])),
    "3.8": Control("subnets log their flows", each(SUBNET, lambda one: one.inputs.get("logConfig"), "logs no flows"), lambda r: [one.inputs.pop("logConfig", None) for one in r.of(SUBNET)]),
    "3.10": Control("people connect through IAP", _by_iap, _open(["203.0.113.0/24"], ["22"])),
    "4.1": Control("machines have an account of their own", each(TEMPLATE, lambda one: str((one.inputs.get("serviceAccount") or {}).get("email")).endswith(".iam.gserviceaccount.com"), "has the default account"), put(TEMPLATE, serviceAccount={"email": "100-compute@developer.gserviceaccount.com"})),
    "4.3": _metadata("block-project-ssh-keys", "TRUE"),
    "4.4": _metadata("enable-oslogin", "TRUE"),
    "4.5": _metadata("serial-port-enable", "FALSE"),
    "4.6": Control("machines forward nothing", each(TEMPLATE, lambda one: one.inputs.get("canIpForward") is False, "forwards"), put(TEMPLATE, canIpForward=True)),
    "4.8": Control("machines are shielded", each(TEMPLATE, _shielded, "is not shielded"), put(TEMPLATE, shieldedInstanceConfig={"enableVtpm": False, "enableIntegrityMonitoring": True})),
    "4.9": Control("machines have no public address", each(TEMPLATE, _private, "has a public address"), put(TEMPLATE, networkInterfaces=[{"accessConfigs": [{}]}])),
    "5.1": Control("buckets are not public", each(BUCKET, lambda one: one.inputs.get("publicAccessPrevention") == "enforced", "may be made public"), put(BUCKET, publicAccessPrevention="inherited")),
    "5.2": Control("buckets have uniform access", each(BUCKET, lambda one: one.inputs.get("uniformBucketLevelAccess") is True, "has lists of access"), put(BUCKET, uniformBucketLevelAccess=False)),
}  # fmt: skip

LEFT_OUT = {
    "2.4": "metric filters and alerts (2.4 to 2.11) belong to the project and not to a cluster",
    "2.13": "the asset inventory belongs to the organization",
    "3.1": "the default network belongs to the project; an organization policy can prevent it",
    "4.2": "nodes do not use the default account, so its grants limit the scope",
    "4.7": "disks use customer-managed keys in Cloud KMS (CMEK) instead of keys in a request",
    "4.11": "no GPU machine type in the catalog supports Confidential Computing",
}
"""Maps control numbers that are not checked to the reason."""

FAST = (*(f"network-data-{index}" for index in range(8)), "network-host-1", "roce")
"""Networks that carry only traffic between GPUs."""

EXCEPTIONS = {
    ("2.3", "foundation-audit-records-bucket"): "a lock is permanent, so it requires `audit.lock_mode: compliance` and a confirmation",
    **{("2.12", name): "networks between GPUs have no DNS queries" for name in FAST},
    **{("3.8", name): "terabits of traffic between GPUs; RDMA networks do not support flow logs" for name in (*FAST[:-1], *(f"roce-{index}" for index in range(8)))},
}  # fmt: skip
"""Maps (control, end of a resource's name) to the reason for the exception."""
