"""Why resources wait for other resources although their inputs contain no value of them, by the types of both, without package and module."""

from __future__ import annotations

_RULES = "nodes and file servers would start without the rules of their network; tests/clouds/test_waiting.py"
_GRANT = "a permission that the resource uses when it is created"
_BOOT = "nodes use it during the first boot"
_API = "the API must be enabled before it is called; tests/clouds/gcp/test_apis_first.py"

REQUIRED: dict[str, dict[tuple[str, str], str]] = {
    "aws": {
        ("BucketReplicationConfig", "RolePolicy"): _GRANT,
        ("BucketPolicy", "BucketLifecycleConfiguration"): "a bucket is used after all its settings apply; tests/clouds/test_waiting.py",
        ("BucketObjectv2", "BucketPolicy"): "the same",
        ("NodesReady", "BucketPolicy"): "the same",
        ("LaunchTemplate", "DataRepositoryAssociation"): ("the files of the bucket exist at the first boot, "
            "new files are exported, and `destroy` terminates the nodes first; "
            "tests/clouds/test_waiting.py"),
        ("AlertManagerDefinition", "TopicPolicy"): "the alert manager sends to the topic after its policy allows it",
        ("LaunchTemplate", "FileSystemPolicy"): "a file system is used after its policy applies",
        ("LaunchTemplate", "MountTarget"): "nodes in a zone connect to the mount target of the zone",
        ("MountTarget", "SecurityGroupIngressRule"): _RULES,
        ("Group", "VpcEndpoint"): f"{_BOOT}: access without the internet",
        ("Group", "SecurityGroupIngressRule"): _RULES,
        ("LaunchTemplate", "LustreFileSystem"): "the user data contains the address of the file system",
        ("EventTarget", "TopicPolicy"): _GRANT,
        ("Eip", "InternetGateway"): "an Elastic IP address of a VPC requires an internet gateway: https://docs.aws.amazon.com/vpc/latest/userguide/vpc-eips.html",
        ("FlowLog", "RolePolicy"): _GRANT,
        ("Group", "PlacementGroup"): "the group's input contains the name of the placement group",
        ("Group", "Route"): f"{_BOOT}: outbound access",
        ("Group", "RouteTableAssociation"): f"{_BOOT}: outbound access",
        ("LaunchTemplate", "BucketObjectv2"): f"{_BOOT}: the bundle",
        ("LaunchTemplate", "Parameter"): "the template contains the stored image",
        ("LaunchTemplate", "RolePolicy"): f"{_BOOT}: permissions",
        ("LaunchTemplate", "SecurityGroupEgressRule"): _RULES,
        ("LaunchTemplate", "SecurityGroupIngressRule"): _RULES,
        ("LustreFileSystem", "SecurityGroupEgressRule"): _RULES,
        ("LustreFileSystem", "SecurityGroupIngressRule"): _RULES,
        ("LaunchTemplate", "OpenZfsFileSystem"): "the user data contains the address of the file system",
        ("OpenZfsFileSystem", "SecurityGroupIngressRule"): _RULES,
        ("NatGateway", "RouteTableAssociation"): "a NAT gateway uses the route of its subnet to the internet gateway",
        ("Trail", "RolePolicy"): _GRANT,
    },
    "azure": {
        ("AmlFilesystem", "RoleAssignment"): _GRANT,
        ("AmlFilesystem", "PrivateDnsZoneGroup"): "the file system resolves the private name of its container when it is created",
        ("BlobContainer", "ManagementPolicy"): "a container is used after all settings of its account apply; tests/clouds/test_waiting.py",
        ("DiskEncryptionSet", "RoleAssignment"): _GRANT,
        ("FlowLog", "RoleAssignment"): _GRANT,
        ("PrivateDnsZoneGroup", "VirtualNetworkLink"): "the names are used after the zone is linked to the network",
        ("RoleAssignment", "RoleDefinition"): "the assignment contains the ID of the role",
        ("RoleAssignment", "UserAssignedIdentity"): "the assignment contains the principal of the identity",
        ("StorageAccount", "RoleAssignment"): _GRANT,
        ("Upload", "RoleAssignment"): _GRANT,
        ("VirtualMachineScaleSet", "AmlFilesystem"): "the user data contains the address of the file system",
        ("VirtualMachineScaleSet", "PrivateDnsZoneGroup"): f"{_BOOT}: private names",
        ("VirtualMachineScaleSet", "RoleAssignment"): f"{_BOOT}: permissions",
        ("VirtualMachineScaleSet", "Upload"): f"{_BOOT}: the bundle",
    },
    "gcp": {
        **{
            (one, "Service"): _API
            for one in (
                "Account", "Bucket", "Budget", "HealthCheck", "IAMAuditConfig", "IAMCustomRole", "KeyRing", "Network", "NotificationChannel",
                "ProjectBucketConfig", "ResourcePolicy", "ServiceIdentity",
            )
        },
        ("Bucket", "CryptoKeyIAMMember"): _GRANT,
        ("BucketIAMMember", "ProjectSink"): "the grant contains the identity of the sink",
        ("BucketIAMMember", "ServiceIdentity"): "the grant contains the address of the service agent",
        ("BucketObject", "TransferJob"): "only objects that are written later are replicated; tests/clouds/test_waiting.py",
        ("CryptoKeyIAMMember", "ServiceIdentity"): "the grant contains the address of the service agent",
        ("Instance", "Connection"): "a file system is created in the peered network",
        ("Instance", "CryptoKeyIAMMember"): _GRANT,
        ("InstanceGroupManager", "Firewall"): _RULES,
        ("InstanceTemplate", "Firewall"): _RULES,
        ("InstanceTemplate", "Instance"): "the user data contains the address of the file system",
        ("InstanceTemplate", "RepositoryIamMember"): f"{_BOOT}: permissions",
        ("InstanceTemplate", "BucketIAMMember"): f"{_BOOT}: permissions",
        ("InstanceTemplate", "IAMMember"): f"{_BOOT}: permissions of the control node",
        ("InstanceTemplate", "SecretIamMember"): f"{_BOOT}: permissions of the control node",
        ("InstanceTemplate", "RouterNat"): f"{_BOOT}: outbound access",
        ("Job", "Bucket"): "the encoded body of the request contains the name of the bucket",
        ("Job", "IAMMember"): "the service account is allowed to export before the first request",
        ("ProjectBucketConfig", "CryptoKeyIAMMember"): _GRANT,
        ("Disk", "CryptoKeyIAMMember"): _GRANT,
        ("AlertPolicy", "TransferJob"): "the filter of the policy contains the number of the job",
        ("TransferJob", "IAMMember"): _GRANT,
    },
}  # fmt: skip
"""Waits that an API or a node requires."""

KEPT: dict[str, dict[tuple[str, str], str]] = {
    "aws": {
        ("Key", "Bucket"): "a foundation whose bucket name is taken stops before it creates a key, which cannot be deleted at once",
        ("Subnet", "Eip"): "the order of deletion: terraform-provider-aws issue 49299",
        ("BucketServerSideEncryptionConfiguration", "Alias"): "the ARN of a key resolves after its alias exists, so that `adopt` finds the key",
        ("LogGroup", "Alias"): "the same",
        ("FileSystem", "Alias"): "the same",
        ("LustreFileSystem", "Alias"): "the same",
        ("OpenZfsFileSystem", "Alias"): "the same",
        ("Volume", "Alias"): "the same",
        ("Workspace", "Alias"): "the same",
        ("RolePolicy", "Alias"): "the same",
    },
    "azure": {},
    "gcp": {
        ("CryptoKeyIAMMember", "CryptoKeyIAMMember"): "the ID of a key resolves after the grants of the services that use it",
        ("Firewall", "Connection"): "the ID of a network resolves after the peering that its file systems use",
    },
}  # fmt: skip
"""Waits that nothing requires, with the reason for which they stay. None is on the longest chain of a shipped stack for more than a few seconds."""
