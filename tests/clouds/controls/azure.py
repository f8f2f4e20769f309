"""CIS Microsoft Azure Foundations 6.0: the controls that apply to the components."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.clouds.controls.control import Ask, Control, drop, each, has, put
from tests.clouds.recorder import Recording, Registered

VAULT, KEY = "azure-native:keyvault:Vault", "azure-native:keyvault:Key"
ACTIVITY, REQUESTS = "azure-native:monitor:SubscriptionDiagnosticSetting", "azure-native:monitor:DiagnosticSetting"
ACCOUNT, BLOBS = "azure-native:storage:StorageAccount", "azure-native:storage:BlobServiceProperties"
NETWORK, FLOW = "azure-native:network:VirtualNetwork", "azure-native:network:FlowLog"
SUBNET, GROUP = "azure-native:network:Subnet", "azure-native:network:NetworkSecurityGroup"
ENDPOINT = "azure-native:network:PrivateEndpoint"
CATEGORIES = {"Administrative", "Alert", "Policy", "Security"}
ANYWHERE = {"*", "0.0.0.0/0", "internet", "::/0"}


def _properties(one: Registered) -> dict[str, Any]:
    return one.inputs.get("properties") or {}


def _whole_setting(one: Registered) -> bool:
    return {log["category"] for log in one.inputs["logs"] if log["enabled"]} >= CATEGORIES


def _own_key(recording: Recording) -> Iterator[str]:
    accounts = {one.id.lower(): one for one in recording.of(ACCOUNT)}
    for setting in recording.of(ACTIVITY):
        account = accounts.get(str(setting.inputs.get("storageAccountId")).lower())
        if account is None or (account.inputs.get("encryption") or {}).get("keySource") != "Microsoft.Keyvault":
            yield f"{setting.name} writes into an account without a key of its owner"


def _analysed(flow: Registered, network: Registered) -> bool:
    settings = (flow.inputs.get("flowAnalyticsConfiguration") or {}).get("networkWatcherFlowAnalyticsConfiguration") or {}  # fmt: skip
    target = str(flow.inputs.get("targetResourceId")).lower()
    return bool(flow.inputs.get("enabled") and settings.get("enabled") and target == network.id.lower())


def _closed(protocol: str, *ports: int) -> Ask:
    """These ports are not reachable from the internet."""

    def ask(recording: Recording) -> Iterator[str]:
        for group in recording.of(GROUP):
            for rule in group.inputs.get("securityRules") or []:
                sources = {str(one).lower() for one in [rule.get("sourceAddressPrefix"), *(rule.get("sourceAddressPrefixes") or [])]}  # fmt: skip
                ranges = [str(one) for one in [rule.get("destinationPortRange"), *(rule.get("destinationPortRanges") or [])] if one]  # fmt: skip
                lets_in = rule["access"] == "Allow" and rule["direction"] == "Inbound" and sources & ANYWHERE
                reached = rule["protocol"].lower() in ("*", protocol) and any(_holds(one, port) for one in ranges for port in ports)  # fmt: skip
                if lets_in and reached:
                    yield f"{group.name} allows any source in {rule['name']}"

    return ask


def _holds(range: str, port: int) -> bool:
    low, _, high = range.partition("-")
    return range == "*" or int(low) <= port <= int(high or low)


def _open(protocol: str, port: str) -> Any:
    rule = {"name": "hole", "access": "Allow", "direction": "Inbound", "sourceAddressPrefix": "Internet", "destinationPortRange": port, "protocol": protocol}  # fmt: skip
    return lambda recording: recording.of(GROUP)[0].inputs["securityRules"].append(rule)


def _kept(key: str) -> Ask:
    def refers(blobs: Registered, account: Registered) -> bool:
        policy = blobs.inputs.get(key) or {}
        return blobs.inputs["accountName"] == account.inputs["accountName"] and bool(policy.get("enabled")) and policy["days"] >= 7  # fmt: skip

    return has(ACCOUNT, BLOBS, refers, "forgets at once")


def _by_endpoint(endpoint: Registered, vault: Registered) -> bool:
    return any(str(link["privateLinkServiceId"]).lower() == vault.id.lower() for link in endpoint.inputs["privateLinkServiceConnections"])  # fmt: skip


def _account(key: str, wanted: Any, text: str, spoilt: Any) -> Control:
    return Control(f"{key} is {wanted}", each(ACCOUNT, lambda one: one.inputs.get(key) == wanted, text), put(ACCOUNT, **{key: spoilt}))  # fmt: skip


def _vault(key: str, wanted: Any) -> Control:
    def spoil(recording: Recording) -> None:
        _properties(recording.of(VAULT)[0])[key] = None

    return Control(f"{key} is {wanted}", each(VAULT, lambda one: _properties(one).get(key) == wanted, f"has not {key} {wanted}"), spoil)  # fmt: skip


def _rotates(key: Registered) -> bool:
    actions = (_properties(key).get("rotationPolicy") or {}).get("lifetimeActions") or []
    return any(one["action"]["type"].lower() == "rotate" for one in actions)


CONTROLS = {
    "6.1.1.1": Control("a setting records the subscription's activity", has(VAULT, ACTIVITY, lambda *_: True, "stands in a subscription without one"), drop(ACTIVITY)),
    "6.1.1.2": Control("it records the categories", each(ACTIVITY, _whole_setting, "lacks a category"), put(ACTIVITY, logs=[{"category": "Policy", "enabled": True}])),
    "6.1.1.3": Control("its account has its owner's key", _own_key, lambda r: [one.inputs.update(encryption=None) for one in r.of(ACCOUNT)]),
    "6.1.1.4": Control("who used a key is recorded", has(VAULT, REQUESTS, lambda setting, vault: str(setting.inputs["resourceUri"]).lower() == vault.id.lower(), "records nothing"), drop(REQUESTS)),
    "6.1.1.6": Control("flows go to Log Analytics", has(NETWORK, FLOW, _analysed, "has no analysed flow log"), drop(FLOW)),
    "7.1": Control("no RDP from the internet", _closed("tcp", 3389), _open("Tcp", "3000-4000")),
    "7.2": Control("no SSH from the internet", _closed("tcp", 22), _open("*", "22")),
    "7.3": Control("no UDP from the internet", _closed("udp", 53, 123, 161, 389, 1900), _open("Udp", "*")),
    "7.4": Control("no HTTP from the internet", _closed("tcp", 80, 443), _open("Tcp", "443")),
    "7.8": Control("flow logs stay 90 days", each(FLOW, lambda one: (one.inputs.get("retentionPolicy") or {}).get("days", 0) >= 90, "forgets too soon"), put(FLOW, retentionPolicy={"days": 30, "enabled": True})),
    "7.11": Control("every subnet has a security group", each(SUBNET, lambda one: one.inputs.get("networkSecurityGroup"), "has no security group"), put(SUBNET, networkSecurityGroup=None)),
    "8.3.5": _vault("enablePurgeProtection", True),
    "8.3.6": _vault("enableRbacAuthorization", True),
    "8.3.7": _vault("publicNetworkAccess", "Disabled"),
    "8.3.8": Control("a vault is reached by a private endpoint", has(VAULT, ENDPOINT, _by_endpoint, "has no private endpoint"), drop(ENDPOINT)),
    "8.3.9": Control("keys rotate", each(KEY, _rotates, "does not rotate"), lambda r: _properties(r.of(KEY)[0]).pop("rotationPolicy")),
    "9.2.1": Control("deleted blobs can be taken back", _kept("deleteRetentionPolicy"), put(BLOBS, deleteRetentionPolicy=None)),
    "9.2.2": Control("deleted containers can be taken back", _kept("containerDeleteRetentionPolicy"), put(BLOBS, containerDeleteRetentionPolicy=None)),
    "9.2.3": Control("blobs have versions", has(ACCOUNT, BLOBS, lambda blobs, account: blobs.inputs["accountName"] == account.inputs["accountName"] and blobs.inputs.get("isVersioningEnabled"), "keeps no versions"), put(BLOBS, isVersioningEnabled=False)),
    "9.3.1.3": _account("allowSharedKeyAccess", False, "takes its own keys", True),
    "9.3.2.2": Control("accounts have no public address", each(ACCOUNT, lambda one: one.inputs.get("publicNetworkAccess") == "Disabled", "has a public address"), lambda r: [one.inputs.pop("publicNetworkAccess") for one in r.of(ACCOUNT)]),
    "9.3.2.3": Control("an account denies networks that are not listed", each(ACCOUNT, lambda one: one.inputs["networkRuleSet"]["defaultAction"] == "Deny", "allows all networks"), put(ACCOUNT, networkRuleSet={"defaultAction": "Allow"})),
    "9.3.4": _account("enableHttpsTrafficOnly", True, "takes requests without TLS", False),
    "9.3.6": _account("minimumTlsVersion", "TLS1_2", "takes an old TLS", "TLS1_0"),
    "9.3.7": _account("allowCrossTenantReplication", False, "may be copied to another tenant", True),
    "9.3.8": _account("allowBlobPublicAccess", False, "may have public blobs", True),
    "9.3.11": Control("what is audit is in two regions", each(ACCOUNT, lambda one: "GRS" in one.inputs["sku"]["name"] or "GZRS" in one.inputs["sku"]["name"], "is in one region"), put(ACCOUNT, sku={"name": "Premium_LRS"})),
}  # fmt: skip

LEFT_OUT = {
    "6.1.2": "Activity Log alerts belong to the subscription and not to a cluster",
    "6.2": "a lock would block the stack's own updates; Pulumi retains resources that hold data, and audit records are immutable",
    "7.6": "Azure creates one network watcher per region and subscription",
    "8.1": "Defender plans belong to the subscription",
    "8.3.1": "an expired key makes every disk and file system unusable; keys rotate instead (8.3.9)",
    "8.3.3": "no secrets are created",
    "8.4.1": "Bastion is optional (`access.bastion`), because it is billed by the hour",
    "9.3.2.1": "nodes reach evidence through a private endpoint, which the reachability tests verify; Azure services write records and flows",
    "9.3.5": "an account allows trusted Azure services only if one of them writes to it",
}
"""Maps control numbers that are not checked to the reason."""

EXCEPTIONS = {
    ("6.1.1.1", "guest-foundation-vault-vault"): "the declaration states that the subscription has a setting (`audit.trail: existing`)",
    ("6.1.1.4", "guest-foundation-vault-vault"): "`audit.trail: existing`: the owner of the trail configures request logs",
    ("8.3.8", "guest-foundation-vault-vault"): "an existing network gets one endpoint, for evidence; services use keys as trusted services",
    ("8.3.8", "train-recovery-vault-vault"): "storage accounts use its key as a trusted service, and the second region has no network in this stack",
    ("9.3.1.3", "train-recovery-scratch-0-account"): "Managed Lustre imports the replica with the account's key, as in the first region",
    ("9.3.2.2", "train-recovery-evidence-account"): "operators come from `access.evidence_from`; all other networks are denied (9.3.2.3)",
    ("9.3.11", "train-recovery-evidence-account"): "it is the copy in another region",
    ("9.3.11", "train-recovery-scratch-0-account"): "it is the copy in another region",
    ("9.3.1.3", "scratch-0-data-account"): "Managed Lustre imports with the account's key; the plan reports it",
    ("9.3.2.2", "audit-records-account"): "Azure Monitor writes there as a trusted service; all other networks are denied (9.3.2.3)",
    ("9.3.2.2", "network-flow-account"): "Network Watcher writes there as a trusted service; all other networks are denied (9.3.2.3)",
    ("9.3.2.2", "evidence-store-account"): "operators come from `access.evidence_from`; all other networks are denied (9.3.2.3)",
    ("9.3.11", "network-flow-account"): "flow logs are read within weeks and are also in Log Analytics",
    ("9.3.11", "scratch-0-data-account"): "Managed Lustre uses the account in one region; its owner can declare a copy in another one",
}  # fmt: skip
"""Maps (control, end of a resource's name) to the reason for the exception."""
