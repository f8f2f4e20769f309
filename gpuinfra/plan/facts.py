"""The facts about a pool that determine the steps, the checks and the settings of its nodes.

`make.py` collects them once for each pool. `steps.py`, `expectation.py` and `environment.py` compute their parts of the plan from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuinfra.catalog.records import MachineType
from gpuinfra.plan.model import ExistingFileSystemPlan, FilePlan, FileSystemPlan, OwnStep
from gpuinfra.plan.storage import lnet_efa_devices
from gpuinfra.software.cloud import BucketClient, CloudSoftware, LogAgent
from gpuinfra.software.lock import SoftwareLock
from gpuinfra.spec.policy import User


@dataclass(frozen=True, kw_only=True)
class PoolFacts:
    """The facts about a pool. The defaults suit a pool for which the declaration sets nothing that is optional."""

    cloud: str
    machine: MachineType
    software: CloudSoftware
    """Facts about the cloud that affect the software on nodes."""
    lock: SoftwareLock
    fabric: bool
    """Whether the nodes use the machine's fabric."""
    file_systems: tuple[FileSystemPlan | ExistingFileSystemPlan, ...] = ()
    """File systems and buckets that the nodes mount, whether the stack creates them or not."""
    other_homes: bool = False
    """Whether nodes can also mount home directories of another stack's site, on any service."""
    mig: tuple[str, ...] = ()
    """MIG profiles of each GPU, or empty without MIG."""
    fabric_test: bool = False
    """Whether the nodes must pass the fabric test (`fabric_test.py`)."""
    burn_in: int = 1
    """Level of the burn-in test."""
    replacing_xids: tuple[int, ...] = ()
    """Xids after which the cloud replaces a machine."""
    energy: bool = False
    """Whether the nodes record the energy of their GPUs."""
    checkpoints: str = ""
    """Names of the files that complete a checkpoint, if the nodes report the newest one."""
    orders: str = ""
    """Key of the object with the orders of the control node, if it can take nodes out of use."""
    repair: str = ""
    """On the control node: the mode of the repair, unless it is off."""
    log_files: tuple[str, ...] = ()
    """Log files that the nodes send to the log service of the cloud. Empty if the stack declares no logs."""
    metadata: tuple[str, ...] = ()
    """Addresses of the metadata service to which a packet filter on the node controls access. Empty if the cloud has a hop limit."""
    containers_reach_metadata: bool = False
    users: tuple[User, ...] = ()
    packages: tuple[str, ...] = ()
    files: tuple[FilePlan, ...] = ()
    """Declared files, and the file that sets the variables."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Declared environment variables."""
    own_steps: tuple[OwnStep, ...] = ()
    """Declared steps of this pool."""
    mirror_url: str | None = None

    @property
    def lustre(self) -> tuple[str, ...]:
        """Mounts of the Lustre file systems, sorted."""
        return self._mounts("lustre")

    @property
    def homes(self) -> tuple[str, ...]:
        """Mounts of the file systems for home directories, sorted."""
        return self._mounts("home")

    @property
    def users_home(self) -> str:
        """The folder of the users' home directories: `/home`, unless only another folder is on a home file system."""
        return "/home" if not self.homes or "/home" in self.homes else self.homes[0]

    @property
    def buckets(self) -> tuple[FileSystemPlan, ...]:
        """The buckets that the nodes mount. Empty on a cloud whose nodes mount no buckets."""
        if self.software.buckets is None:
            return ()
        return tuple(one for one in self.file_systems if isinstance(one, FileSystemPlan) and one.kind == "object")

    @property
    def bucket_client(self) -> BucketClient | None:
        """The program that mounts the buckets, or None without buckets."""
        return self.software.buckets if self.buckets else None

    @property
    def log_agent(self) -> LogAgent | None:
        """The agent that sends the logs, or None if the stack declares no logs."""
        return self.software.log_agent if self.log_files else None

    @property
    def lnet_efa(self) -> int:
        """Number of EFA devices that Lustre uses."""
        return lnet_efa_devices(self.file_systems, self.machine, fabric=self.fabric)

    @property
    def gvnics(self) -> int:
        """Number of gVNICs if the nodes use the fabric, which is 0 on clouds other than Google Cloud."""
        return sum(1 for nic in self.machine.nics if nic.kind == "gvnic") if self.fabric else 0

    @property
    def guarded(self) -> tuple[str, ...]:
        """Addresses of the metadata service that containers cannot reach."""
        return () if self.containers_reach_metadata else self.metadata

    @property
    def containers(self) -> tuple[str, ...]:
        """Declared container runtimes."""
        return tuple(name for name in ("docker", "enroot") if self.lock.choice(name))

    @property
    def exporter(self) -> bool:
        """Whether the nodes run the DCGM exporter."""
        return self.lock.choice("dcgm_exporter") is not None

    def _mounts(self, kind: str) -> tuple[str, ...]:
        return tuple(sorted(one.mount for one in self.file_systems if one.kind == kind))
