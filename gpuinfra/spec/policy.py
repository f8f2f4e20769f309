"""The rest of a declaration: network, software, audit, budget, access and handover. Everything here has a default."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from gpuinfra.spec.base import Part, Real, Whole, Word, YesNo

Version = Annotated[str, StringConstraints(pattern=r"^\d{1,4}(\.\d{1,4}){0,3}$")]
Email = Annotated[str, StringConstraints(pattern=r"^[^@\s]{1,64}@[^@\s]{1,190}\.[^@\s]{1,63}$")]
PublicKey = Annotated[
    str, StringConstraints(pattern=r"^(ssh-rsa|ssh-ed25519) [A-Za-z0-9+/]{40,2000}={0,2}( [^\x00-\x1f\x7f]{1,100})?$")
]
Cidr = Annotated[str, StringConstraints(pattern=r"^[0-9a-fA-F.:]{2,45}/\d{1,3}$")]


class ExistingNetwork(Part):
    """A network that is already there."""

    id: Word = Field(examples=["vpc-0123456789abcdef0"])
    """VPC id on AWS, virtual network id on Azure, network name on Google Cloud."""
    subnets: dict[Word, Word] = Field(min_length=1, max_length=50, examples=[{"use1-az4": "subnet-0123456789abcdef0"}])
    """Zone (region on Azure and Google Cloud) -> subnet for the nodes. Azure: also `storage-scratch-0` -> the subnet of a file system of its own."""
    dns_zones: dict[Word, Word] = Field(default_factory=dict, max_length=20)
    """Azure: private DNS zones that the network is linked to already, name -> id. Left out: they are made and linked."""


class Network(Part):
    """The network that nobody outside can reach."""

    cidr: Cidr = "10.64.0.0/16"
    """Addresses; every zone has its own part of it, so that a new pool or zone moves nothing."""
    egress: Literal["nat", "endpoints"] = "nat"
    """`nat`: nodes reach vendors' servers, nobody reaches them; `endpoints`: no way out but the cloud's own services, needs a prebuilt image or a mirror."""
    existing: ExistingNetwork | None = None
    """Use this network in place of making one."""
    flow_log_days: Whole = Field(default=90, ge=1, le=3653)
    """Days that flow logs are kept."""
    machines: tuple[Word, ...] = Field(default=(), max_length=20, examples=[["a3-megagpu-8g"]])
    """Google Cloud: machine types that clusters of this site will use, so that the networks of their interfaces are made with it. Left out: those of the pools."""


class Framework(Part):
    """What will run, so that driver and CUDA can be checked against it."""

    torch: Version | None = None
    """PyTorch from PyPI, such as 2.11.0."""
    tensorflow: Version | None = None
    """TensorFlow with `and-cuda`, such as 2.20.0."""
    jax_cuda: Literal[12, 13] | None = None
    """CUDA major of the JAX plugin."""


class Software(Part):
    """What nodes run; the software lock fills in what is left out and says why."""

    image: Literal["default", "plain"] = "default"
    """`default`: the cloud's own GPU image where there is one; `plain`: plain Ubuntu, every step installs."""
    os: Literal["ubuntu-22.04", "ubuntu-24.04"] | None = None
    """Left out: what the machine's stack supports best."""
    driver: Version | None = None
    """NVIDIA driver, a branch such as 580 or a full version. Left out: the lock's."""
    fabric_manager: Version | None = None
    """Fabric manager; any version but the driver's own is refused. Left out: the driver's."""
    cuda: Version | None = None
    """CUDA toolkit such as 13.0. Left out: the lock's."""
    nccl: Version | None = None
    """NCCL for programs built on the host. Left out: the lock's."""
    framework: Framework = Framework()
    """What will run on the nodes."""
    kernel: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\.\d+[A-Za-z0-9.+-]*$", max_length=64)] | None = None
    """Exact kernel release (`uname -r`). Left out: the image's own is kept and held."""
    mirror_url: (
        Annotated[
            str, StringConstraints(pattern=r"^https://[A-Za-z0-9.-]+(:\d+)?(/[A-Za-z0-9._~/-]*)?$", max_length=200)
        ]
        | None
    ) = None
    """Mirror of the vendors' servers for networks without internet: `https://vendor/path` becomes `<mirror>/vendor/path`."""
    registry: (
        Annotated[str, StringConstraints(pattern=r"^[a-z0-9.-]+(:\d+)?(/[a-z0-9._-]+)*$", min_length=4, max_length=200)]
        | None
    ) = Field(default=None, examples=["us-central1-docker.pkg.dev/my-project/gpudirect"])
    """Google Cloud: container registry of yours that holds Google's GPUDirect images (`gpudirect-tcpxo/...`). A3 High and A3 Mega need it, because nodes pull from no public registry."""


class Audit(Part):
    """The trail of who did what."""

    trail: Literal["create", "existing", "none"] = "create"
    """`create`: a multi-region trail in a locked bucket; `existing`: the account has one already (AWS allows five in a region); `none`: refused unless said."""
    bucket: Word | None = None
    """Existing bucket for the trail. Left out: one is made and kept."""
    lock_days: Whole = Field(default=365, ge=1, le=36500)
    """Days that nobody may delete an entry."""
    lock_mode: Literal["governance", "compliance"] = "governance"
    """`compliance` cannot be shortened by anyone, the account's owner included."""
    confirm_compliance: YesNo = False
    """Has to be true beside `lock_mode: compliance`."""
    data_events: YesNo = True
    """Also record reads and writes of objects."""
    log_retention_days: Whole = Field(default=365, ge=1, le=3653)
    """Days that logs are kept for searching."""


class Budget(Part):
    """The alert when money goes faster than planned."""

    limit_usd_per_month: Real | None = Field(default=None, gt=0, le=1e9)
    """Limit in USD. Left out: the plan's own price for a month plus a tenth."""
    recipients: tuple[Email, ...] = Field(default=(), max_length=10)
    """Who is told. Left out: nobody, which is a warning."""
    thresholds_percent: tuple[Annotated[int, Field(strict=True, ge=1, le=1000)], ...] = Field(
        default=(50, 80, 100), min_length=1, max_length=5
    )
    """Shares of the limit at which they are told."""


class Access(Part):
    """Who may reach nodes, beside the cloud's own session service."""

    ssh_from: tuple[Cidr, ...] = Field(default=(), max_length=20)
    """Networks that may reach port 22. Left out: none; `gpuinfra ssh` goes through the cloud's own tunnel."""
    operators: tuple[Word, ...] = Field(default=(), max_length=20)
    """Roles that may read evidence, by the provider's own id; on Azure the object ids of those who deploy too. Left out there: whoever deploys."""
    evidence_from: tuple[Cidr, ...] = Field(default=(), max_length=100)
    """Azure: public IPv4 ranges that operators read evidence and put bundles from. Left out: only the network itself, so `up` has to run inside it."""
    ssh_keys: tuple[PublicKey, ...] = Field(default=(), max_length=20)
    """Azure: public keys that may log in as `gpuinfra`. Left out: nobody's."""
    bastion: YesNo = False
    """Azure: a Bastion host with a public address, through which people reach port 22 of nodes."""


class Handover(Part):
    """How long `up` waits for its nodes, and for how many."""

    wait: Literal["all", "floor", "none"] = "all"
    """`all` nodes, a `floor`, or `none`."""
    floor: Whole | None = Field(default=None, ge=1)
    """Nodes that have to be verified with `wait: floor`."""
    deadline_minutes: Whole = Field(default=60, ge=1, le=1440)
    """Longest wait in minutes."""
    on_failure: Literal["keep", "scale_to_zero"] = "keep"
    """What `gpuinfra up` does with nodes of a pool that was not handed over."""
    burn_in: Whole = Field(default=1, ge=1, le=4)
    """Level of NVIDIA's diagnostics that each node passes before it is handed over: 1 seconds, 2 some minutes, 3 up to an hour and stress until the temperatures stand still, 4 hours. The nodes cost their price meanwhile."""


class Use(Part):
    """Layers that other stacks hold, by stack reference."""

    foundation: Annotated[str, StringConstraints(pattern=r"^[^\s]{1,200}$")] | None = None
    """Stack with the audit trail, keys, evidence bucket and budget: `organisation/project/stack`."""
    site: Annotated[str, StringConstraints(pattern=r"^[^\s]{1,200}$")] | None = None
    """Stack with the network and file systems."""


__all__ = ["Access", "Audit", "Budget", "ExistingNetwork", "Framework", "Handover", "Network", "Software", "Use"]
