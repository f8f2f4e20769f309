"""Settings for network, software, audit, budget, access, and handover. All fields in this module have defaults."""

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictInt

from gpuinfra.spec.base import Days, Line, Number, Percent, SpecModel, Unit, Version, defaults
from gpuinfra.spec.files import NodeFile, Variables
from gpuinfra.spec.formats import text
from gpuinfra.spec.image import Image, Os
from gpuinfra.spec.steps import AptPackage, NodeStep

Email = Annotated[str, text(r"^[^@\s]{1,64}@[^@\s]{1,190}\.[^@\s]{1,63}$", "an email address such as ops@example.com")]
PublicKey = Annotated[
    str,
    text(
        r"^(ssh-rsa|ssh-ed25519) [A-Za-z0-9+/]{40,2000}={0,2}( [^\x00-\x1f\x7f]{1,100})?$",
        "a public SSH key that begins with ssh-rsa or ssh-ed25519",
    ),
]
UserName = Annotated[
    str,
    text(
        r"^[a-z]([a-z0-9_-]{0,30}[a-z0-9])?$",
        "lowercase letters, digits, hyphens and underscores, starting with a letter",
        max_length=32,
    ),
]
"""A name that useradd of Ubuntu accepts (useradd(8): at most 32 characters)."""
Cidr = Annotated[str, text(r"^[0-9a-fA-F.:]{2,45}/[0-9]{1,3}$", "a CIDR block such as 203.0.113.0/24")]
PolicyArn = Annotated[
    str,
    text(
        r"^arn:aws(-cn|-us-gov)?:iam::(aws|[0-9]{12}):policy/[A-Za-z0-9_+=,.@/-]+$",
        "the ARN of a managed policy such as arn:aws:iam::123456789012:policy/gpu-data",
        max_length=700,
    ),
]
"""IAM API reference, `CreatePolicy` and data type `AttachedPolicy`: a path and a name of letters, digits and `_+=,.@-`."""
Currency = Annotated[str, text(r"^[A-Z]{3}$", "an ISO 4217 code such as EUR")]
PortRange = Annotated[
    str, text(r"^[1-9][0-9]{0,4}(-[1-9][0-9]{0,4})?$", 'a quoted port or range of ports such as "8080" or "9000-9100"')
]
StackReference = Annotated[str, text(r"^[^\s]{1,200}$", "a stack reference without spaces, at most 200 characters")]


class ExistingNetwork(SpecModel):
    """An existing network."""

    id: Line = Field(examples=["vpc-0123456789abcdef0"])
    """VPC ID on AWS, resource ID of the virtual network on Azure, network name or path on Google Cloud."""
    subnets: dict[Line, Line] = Field(min_length=1, max_length=50, examples=[{"use1-az4": "subnet-0123456789abcdef0"}])
    """Subnet for the nodes in each zone on AWS, or in each region on Azure and Google Cloud.
    On Azure, the `storage-scratch-0` key specifies the subnet of the file system at /scratch."""
    dns_zones: dict[Line, Line] = Field(
        default_factory=dict,
        max_length=20,
        examples=[
            {
                "privatelink.blob.core.windows.net": "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/corp"
                "/providers/Microsoft.Network/privateDnsZones/privatelink.blob.core.windows.net"
            }
        ],
    )
    """Azure: private DNS zones that are already linked to the network. Maps each zone name to a resource ID. If omitted, the zones are created and linked."""


class NetworkSpec(SpecModel):
    """The private network of the cluster."""

    cidr: Cidr = Field(default="10.64.0.0/16", examples=["10.64.0.0/16"])
    """Address range of the network: a private IPv4 range from /16 to /20.
    Each zone uses a separate part of the range, so adding a pool or zone does not change existing subnets."""
    egress: Literal["nat", "endpoints"] = "nat"
    """Outbound access of the nodes: `nat` allows connections to the internet, `endpoints` allows only connections to the cloud's services.
    `endpoints` requires a prebuilt image or `software.mirror_url`."""
    existing: ExistingNetwork | None = None
    """An existing network to use. If omitted, a network is created."""
    flow_log_days: Days = Field(default=90, ge=1, le=3653, examples=[90])
    """Retention of the network's flow logs."""
    machines: tuple[Line, ...] = Field(default=(), max_length=20, examples=[["a3-megagpu-8g"]])
    """Google Cloud: machine types that clusters on this site will use. The networks for their interfaces are created with the site.
    If omitted, the machine types of the pools are used."""


class Framework(SpecModel):
    """The machine learning frameworks that you plan to use. The driver and CUDA versions must be compatible with them."""

    torch: Version | None = Field(default=None, examples=["2.11.0"])
    """Version of PyTorch that you install from PyPI. If omitted, PyTorch is not checked."""
    tensorflow: Version | None = Field(default=None, examples=["2.20.0"])
    """Version of TensorFlow that you install with `tensorflow[and-cuda]`. If omitted, TensorFlow is not checked."""
    jax_cuda: Annotated[Literal[12, 13], Unit("CUDA major version")] | None = None
    """CUDA major version of the JAX plugin that you install. If omitted, JAX is not checked."""


class Software(SpecModel):
    """The software on the nodes. The software lock selects omitted versions and reports the reasons."""

    image: Image = "default"
    """Image of the nodes. `default` selects the newest release of the cloud's GPU image, if one exists.
    A date such as `2026-10-06` selects the release with that date.
    `plain` selects Ubuntu without GPU software, which the bootstrap steps then install. A mapping selects an image by its ID."""
    os: Os | None = None
    """Operating system of the nodes. If omitted, the release that best supports the machine type is used."""
    driver: Version | None = Field(default=None, examples=["580"])
    """Branch or full version of the NVIDIA driver. If omitted, the lock selects the version."""
    fabric_manager: Version | None = Field(default=None, examples=["580.173.02"])
    """Version of NVIDIA Fabric Manager, which must match the driver version. If omitted, the driver version is used."""
    cuda: Version | None = Field(default=None, examples=["13.0"])
    """CUDA toolkit version to install. If omitted, the lock selects the version."""
    nccl: Version | None = Field(default=None, examples=["2.28.9"])
    """NCCL version for programs that you build on the nodes. If omitted, the lock selects the version."""
    containers: tuple[Literal["docker", "enroot", "pyxis"], ...] = Field(
        default=(), max_length=3, examples=[["docker", "enroot"]]
    )
    """Container runtimes that the bootstrap steps install on each node of each pool: `docker` and `enroot`. `pyxis` is not supported yet.
    If omitted, nodes have the runtimes of their image, and plain images have none."""
    gpu_metrics: Literal["none", "dcgm_exporter"] = "none"
    """GPU metrics exporter for Prometheus: `dcgm_exporter` runs NVIDIA's exporter on each node with GPUs,
    on port 9400 of its private address. `none` installs no exporter."""
    packages: tuple[AptPackage, ...] = Field(default=(), max_length=50, examples=[["htop", "nvme-cli=2.8-1"]])
    """Ubuntu packages to install on each node after the bootstrap steps, from the node's repositories. A package with a version is held.
    Packages that the software lock manages are rejected."""
    environment: Variables = Field(default_factory=dict, examples=[{"HF_HOME": "/scratch/huggingface"}])
    """Environment variables of login shells and jobs on each node. Nodes do not expand references such as $HOME."""
    files: tuple[NodeFile, ...] = Field(default=(), max_length=50)
    """Small text files on the nodes, which are written before the declared packages are installed and the declared steps run."""
    steps: tuple[NodeStep, ...] = Field(default=(), max_length=20)
    """Your own scripts, which run on the nodes after the bootstrap steps, in list order. The checks run after the scripts."""
    framework: Framework = defaults(Framework)
    """Machine learning frameworks that you plan to use, for compatibility checks."""
    kernel: (
        Annotated[
            str,
            text(
                r"^[0-9]+\.[0-9]+\.[0-9]+[A-Za-z0-9.+-]*$",
                "a kernel release in the format that `uname -r` prints",
                max_length=64,
            ),
        ]
        | None
    ) = Field(default=None, examples=["6.8.0-1041-aws"])
    """Exact kernel release (`uname -r`). If omitted, the image's kernel is used and held, so that upgrades do not replace it."""
    mirror_url: (
        Annotated[
            str,
            text(
                r"^https://[A-Za-z0-9.-]+(:[0-9]+)?(/[A-Za-z0-9._~/-]*)?$",
                "an https URL such as https://mirror.example.com",
                max_length=200,
            ),
        ]
        | None
    ) = Field(default=None, examples=["https://mirror.example.com"])
    """Mirror of the vendors' package servers, for networks without internet access:
    `https://vendor/path` becomes `<mirror_url>/vendor/path`. If omitted, nodes download from the vendors."""
    registry: (
        Annotated[
            str,
            text(
                r"^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)*$",
                "a registry and path without a scheme, such as us-central1-docker.pkg.dev/my-project/gpudirect",
                min_length=4,
                max_length=200,
            ),
        ]
        | None
    ) = Field(default=None, examples=["us-central1-docker.pkg.dev/my-project/gpudirect"])
    """Google Cloud: your container registry that contains Google's GPUDirect images (`gpudirect-tcpxo/...`).
    Required for A3 High and A3 Mega, because nodes do not pull images from public registries."""


class Audit(SpecModel):
    """The audit trail of API calls in the account."""

    trail: Literal["create", "existing", "none"] = "create"
    """Source of the audit trail: `create` creates a multi-region trail with a locked bucket,
    `existing` uses the account's trail (AWS allows five per region), and `none` disables it."""
    bucket: Line | None = Field(default=None, examples=["my-audit-bucket"])
    """Existing bucket for the trail. If omitted, a bucket is created and retained."""
    lock_days: Days = Field(default=365, ge=1, le=36500, examples=[365])
    """Period during which audit records cannot be deleted."""
    lock_mode: Literal["governance", "compliance"] = "governance"
    """Protection of the locked records. With `compliance`, the lock cannot be shortened, not even by the root user of the account."""
    confirm_compliance: StrictBool = False
    """Confirms that the lock is irreversible. Must be true if `lock_mode` is `compliance`."""
    data_events: StrictBool = True
    """Whether the trail also records reads and writes of objects. On AWS, only objects in the stack's buckets are recorded, unless `all_buckets` is true."""
    all_buckets: StrictBool = False
    """AWS: whether `data_events` applies to all buckets in the account. CIS 4.8 and 4.9 require it. AWS bills each event."""
    log_retention_days: Days = Field(default=365, ge=1, le=3653, examples=[365])
    """Retention of logs in the cloud's log service."""


class BudgetSpec(SpecModel):
    """The alert for costs above a monthly budget."""

    limit_usd_per_month: Annotated[Number, Unit("USD per month")] | None = Field(
        default=None, gt=0, le=1e9, examples=[60000]
    )
    """Monthly budget for the cluster. If omitted, it is the plan's monthly price plus 10 percent.
    If `recovery.mode` is `pilot-light` or `hot`, the price includes the stack in the second region."""
    recipients: tuple[Email, ...] = Field(default=(), max_length=10, examples=[["gpu-budget@example.com"]])
    """Email addresses that receive alerts. If omitted, no alerts are sent, and a warning is reported."""
    thresholds_percent: tuple[Annotated[Percent, Field(ge=1, le=1000)], ...] = Field(
        default=(50, 80, 100), min_length=1, max_length=5, examples=[[50, 80, 100]]
    )
    """Percentages of the budget at which an alert is sent."""
    currency: Currency = Field(default="USD", examples=["EUR"])
    """Azure and Google Cloud: currency in which the billing account is charged, as an ISO 4217 code. AWS Budgets accepts only USD."""
    units_per_usd: Annotated[Number, Unit("units of the currency per USD")] | None = Field(
        default=None, gt=0, le=1e6, examples=[0.92]
    )
    """Exchange rate for the budget amount, which is `limit_usd_per_month` times this rate. Required if `currency` is not USD."""


class Ingress(SpecModel):
    """Connections that the nodes accept from other networks."""

    sources: tuple[Cidr, ...] = Field(min_length=1, max_length=20, examples=[["10.0.0.0/16"]])
    """Private IPv4 networks that can connect, such as a peered network, or offices that connect through a VPN. Nodes have no public address."""
    ports: tuple[PortRange, ...] = Field(min_length=1, max_length=20, examples=[["8080", "9000-9100"]])
    """Ports of the nodes, as quoted numbers or ranges."""
    protocol: Literal["tcp", "udp"] = "tcp"
    """Protocol of the connections."""


class NodeRoleSpec(SpecModel):
    """A role that is assigned to the nodes' identity."""

    role: Line = Field(examples=["roles/artifactregistry.reader", "7f951dda-4ed3-4680-a7ca-43fe172d538d"])
    """Google Cloud: name of a predefined or custom role. Azure: ID of a role definition, such as `7f951dda-4ed3-4680-a7ca-43fe172d538d` (AcrPull)."""
    scope: Line | None = Field(
        default=None,
        examples=[
            "data-project",
            "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/shared/providers/Microsoft.ContainerRegistry/registries/images",
        ],
    )
    """Google Cloud: project ID. If omitted, the project of the stack is used. Azure: resource ID, which is required."""


class User(SpecModel):
    """A user of the nodes, who logs in with an SSH key."""

    name: UserName = Field(examples=["alice"])
    """Login name, which is also the name of the user's group."""
    uid: Annotated[StrictInt, Unit("user ID")] = Field(ge=2000, le=59_999, examples=[2001])
    """ID of the user and of the user's group on every node. Files on shared file systems belong to this ID,
    so do not reuse the ID of a user that you remove."""
    ssh_keys: tuple[PublicKey, ...] = Field(
        min_length=1,
        max_length=5,
        examples=[
            ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA alice@example.com"]
        ],
    )
    """Public SSH keys of the user. Users have no password."""
    sudo: StrictBool = False
    """Whether the user can run commands as root, without a password."""


class Access(SpecModel):
    """Access to nodes and evidence, in addition to the cloud's session service."""

    ssh_from: tuple[Cidr, ...] = Field(default=(), max_length=20, examples=[["203.0.113.0/24"]])
    """Azure and Google Cloud: networks that can connect to port 22 of the nodes.
    If omitted, port 22 is closed, and `gpuinfra ssh` uses the cloud's tunnel. On AWS, `gpuinfra ssh` uses Session Manager, which needs no open port."""
    ingress: tuple[Ingress, ...] = Field(default=(), max_length=20)
    """Connections that the nodes accept from other networks, such as requests to an inference server.
    If omitted, nodes accept connections only from each other, from `ssh_from`, and from services of the cloud that the stack uses."""
    operators: tuple[Line, ...] = Field(default=(), max_length=20, examples=[["group:gpu-operators@example.com"]])
    """Principals that can read evidence: IAM members on Google Cloud, object IDs on Azure.
    On AWS, attach the policies that `gpuinfra permissions` prints instead. If omitted on Azure, the deploying identity can read evidence.
    If set, include that identity."""
    evidence_from: tuple[Cidr, ...] = Field(default=(), max_length=100, examples=[["203.0.113.0/24"]])
    """Azure: public IPv4 ranges from which operators can read evidence and upload bundles.
    If omitted, access is possible only from the cluster's network, and you must run `up` there."""
    ssh_keys: tuple[PublicKey, ...] = Field(
        default=(),
        max_length=20,
        examples=[["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEXAMPLEEXAMPLEEXAMPLEEXAMPLEEXAMPLEEXAMPLE ops@example.com"]],
    )
    """Azure: public SSH keys for logging in as user `gpuinfra`. If omitted, no key can log in. AWS and Google Cloud check your cloud identity instead."""
    users: tuple[User, ...] = Field(default=(), max_length=50)
    """Users to create on every node of every pool, on all clouds.
    Their home directories are on the home file system of the declaration, or on the root disk if there is none.
    If omitted, only the users of the image and of the cloud's login service exist."""
    node_policies: tuple[PolicyArn, ...] = Field(
        default=(), max_length=10, examples=[["arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly"]]
    )
    """AWS: ARNs of managed policies to attach to the nodes' role, such as access to your data or container images.
    If omitted, nodes can only download their bundle, upload evidence and accept sessions."""
    node_roles: tuple[NodeRoleSpec, ...] = Field(default=(), max_length=10)
    """Azure and Google Cloud: roles to assign to the nodes' identity, such as access to your data or container images.
    If omitted, nodes can only download their bundle, upload evidence, and use the declared buckets and registry. On AWS, use `node_policies`."""
    node_role_in_site: StrictBool = False
    """AWS: whether the site creates the nodes' role, so that a stack with only the nodes creates no IAM resources.
    Set it in both stacks before their first deployment, because a change replaces the role."""
    permissions_boundary: PolicyArn | None = Field(
        default=None, examples=["arn:aws:iam::123456789012:policy/gpu-boundary"]
    )
    """AWS: ARN of the managed policy that is the permissions boundary of every role that the stack creates. If omitted, the roles have no boundary."""
    bastion: StrictBool = False
    """Azure: whether to create an Azure Bastion host with a public address, through which you connect to port 22 of the nodes."""


class Handover(SpecModel):
    """How long `up` waits for verified nodes, and how many verified nodes it requires."""

    wait: Literal["all", "floor", "none"] = "all"
    """Nodes to wait for: `all` nodes, the number in `floor`, or `none`."""
    floor: Annotated[StrictInt, Unit("nodes")] | None = Field(default=None, ge=1, examples=[14])
    """Minimum number of verified nodes. Required if and only if `wait` is `floor`."""
    deadline_minutes: Annotated[StrictInt, Unit("minutes")] = Field(default=60, ge=1, le=1440, examples=[90])
    """Maximum time that `up` waits for the nodes."""
    on_failure: Literal["keep", "scale_to_zero", "destroy"] = "keep"
    """What `gpuinfra up` does if a deployment fails, for example if there is no capacity or a node fails its checks:
    `keep` the resources, set each `count` in the stack file to 0 and remove the nodes (`scale_to_zero`),
    or delete the resources of the stack that are not retained (`destroy`). If the stack had nodes before, the resources are always kept.
    `pulumi up` always keeps them."""
    fabric_test: Literal["auto", "required", "off"] = "auto"
    """Whether each node of a pool must pass an all-reduce with at least one other node over the fabric before `up` succeeds.
    `auto` tests the pools with whole GPUs and a fabric whose bandwidth between two nodes is known.
    `required` also rejects pools with GPUs that cannot be tested. `off` tests no pool.
    Nodes that are replaced or restarted later also have to pass: they measure with nodes whose GPUs no process uses.
    The only node of a pool has no partner and is handed over without the test.
    If `floor` is 1, `auto` tests no pool, because one node can be the only one that launches, and `required` is an error for a pool of several nodes."""
    burn_in: Annotated[StrictInt, Unit("level of NVIDIA DCGM diagnostics")] = Field(default=1, ge=1, le=4, examples=[2])
    """DCGM diagnostics that each node must pass before handover.
    Level 1 takes seconds, level 2 takes minutes, level 3 takes up to an hour and includes a stress test that runs until temperatures are
    stable, and level 4 takes hours. Nodes are billed during this time."""


class LayersUsed(SpecModel):
    """Layers that other stacks create, as stack references."""

    foundation: StackReference | None = Field(default=None, examples=["organization/gpuinfra/aws-foundation"])
    """Stack that creates the audit trail, keys, evidence bucket, and budget. If omitted, this stack creates the foundation."""
    site: StackReference | None = Field(default=None, examples=["organization/gpuinfra/aws-site"])
    """Stack that creates the network and file systems. If omitted, this stack creates the site."""


__all__ = [
    "Access",
    "Audit",
    "BudgetSpec",
    "ExistingNetwork",
    "Framework",
    "Handover",
    "Ingress",
    "LayersUsed",
    "NetworkSpec",
    "NodeRoleSpec",
    "Software",
    "User",
]
