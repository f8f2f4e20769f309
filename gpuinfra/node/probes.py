"""The commands that probe a node, by name. This module is data only. `probe.py` runs the probes, and each check names the probes that it reads."""

from __future__ import annotations

from dataclasses import dataclass

KIB, MIB = 1024, 1024 * 1024

GPU_FIELDS = (
    "index",
    "serial",
    "name",
    "pci.bus_id",
    "driver_version",
    "inforom.checksum_validation",
    "persistence_mode",
    "mig.mode.current",
    "mig.mode.pending",
    "ecc.mode.current",
    "ecc.mode.pending",
    "gpu_recovery_action",
    "pcie.link.gen.current",
    "pcie.link.gen.max",
    "pcie.link.width.current",
    "pcie.link.width.max",
    "memory.total",
    "memory.used",
    "temperature.gpu",
    "temperature.gpu.tlimit",
    "temperature.memory",
    "power.limit",
    "power.default_limit",
    "clocks_event_reasons.active",
    "ecc.errors.uncorrected.volatile.total",
    "ecc.errors.uncorrected.aggregate.sram",
    "remapped_rows.pending",
    "remapped_rows.failure",
    "fabric.state",
    "fabric.status",
    "fabric.health.summary",
)
"""Columns that checks judge. Index, serial number and address identify a GPU in messages.
nvidia-smi fails if the driver does not have a column, so `probe.py` lists the driver's
columns first and omits the others; a check reports a missing column that it needs."""

OLDER_NAMES = {"clocks_event_reasons.active": "clocks_throttle_reasons.active"}
"""Columns that have a different name in drivers before 535.54.03. Newer drivers accept both names and print one of them."""


NOT_FOUND, NOT_STARTED, TIMED_OUT, HANGS = 127, 126, 124, 125
"""Exit codes in the record of a command without a result, beside the text in `problem`."""


@dataclass(frozen=True)
class Probe:
    """One command with its limits."""

    argv: tuple[str, ...]
    timeout_s: int = 60
    limit: int = 256 * KIB
    """Maximum bytes of stdout and stderr together."""
    keep: str | None = None
    """Keep only the first lines and matching lines, because most of a kernel log is irrelevant."""
    otherwise: tuple[tuple[str, ...], ...] = ()
    """Commands to try if the first one is missing or fails."""
    loads: bool = False
    """True if it loads the GPUs or the fabric. It then runs once for each boot and never at the same time as a job."""


SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
NODE_PART = "@node-part"
"""Placeholder for this program. NCCL, for example, runs in a separate process."""

DCGM_PLUGINS = "/usr/libexec/datacenter-gpu-manager-4/plugins"
METRICS_QUERY = "/etc/gpuinfra/metrics.curl"
"""URL of the exporter that a bootstrap step installed."""
METRIC = "DCGM_FI_DEV_GPU_TEMP{"
METRICS = ("curl", "-s", "--noproxy", "*", "--max-time", "10")
HOST_COPIES = ("-j", "-t", "host_to_device_memcpy_ce", "device_to_host_memcpy_ce")
GPU_COPIES = ("-j", "-t", "device_to_device_memcpy_read_ce")
GPU_MEMORY = ("-j", "-b", "2048", "-t", "device_local_copy")
"""2 GiB, because the published figures are for this size."""

KERNEL_LINES = r"NVRM|SXid|nvidia|nvswitch|Linux version|infiniband|efa |mlx5|gve |lost carrier|Out of memory|Hardware Error|AER: |PCIe Bus Error"


def nvbandwidth(options: tuple[str, ...]) -> Probe:
    """Return a call of nvbandwidth. DCGM's package for the driver's CUDA version contains it."""
    first, *others = [
        (path, *options)
        for path in (*(DCGM_PLUGINS + "/%s/nvbandwidth" % cuda for cuda in ("cuda13", "cuda12")), "nvbandwidth")
    ]
    return Probe(first, timeout_s=600, loads=True, otherwise=tuple(others))


FUSE = "fuse"
BUCKETS = ("fuse.gcsfuse", FUSE)
"""File system types of mounted buckets."""

FABRIC_RESULT = "/run/gpuinfra/fabric.json"
"""Result of this boot's fabric test, which `node.pyz fabric-service` writes."""

NOTICES = "/run/gpuinfra/notices.json"
"""The cloud's notices about this machine, which `node.pyz notices` writes."""

REPAIR = "/var/lib/gpuinfra/repair.json"
"""State and newest events of the repair, which `node.pyz repair` writes on the control node."""

PROBES: dict[str, Probe] = {
    "lspci": Probe(("lspci", "-Dnn", "-d", "10de:")),
    "uname": Probe(("uname", "-r")),
    "memory": Probe(("free", "-b")),
    "cpus": Probe(("nproc", "--all")),
    "disk-models": Probe(("lsblk", "-dno", "MODEL")),
    "pcie": Probe((NODE_PART, "pcie")),
    "kernel-headers": Probe(
        ("find", "-L", "/lib/modules", "-mindepth", "2", "-maxdepth", "2", "-name", "build", "-type", "d")
    ),
    "disk": Probe(("df", "-B1", "--output=avail", "/")),
    # Without mokutil, the EFI variable is read: its last byte is 1 if Secure Boot is enabled.
    "secure-boot": Probe(("mokutil", "--sb-state"), otherwise=(("od", "-An", "-tu1", SECURE_BOOT),)),
    "module-signer": Probe(("modinfo", "-F", "signer", "nvidia")),
    "modules": Probe(("lsmod",)),
    "driver-version": Probe(("cat", "/proc/driver/nvidia/version")),
    "dkms": Probe(("dkms", "status")),
    "module": Probe(("modinfo", "nvidia"), keep=r"^(?:filename|version|vermagic|signer):"),
    "libcuda": Probe(("ldconfig", "-p"), keep=r"libcuda\.so", otherwise=(("/sbin/ldconfig", "-p"),)),
    "boot-id": Probe(("cat", "/proc/sys/kernel/random/boot_id")),
    "holds": Probe(("apt-mark", "showhold")),
    "fabric-manager": Probe(("systemctl", "is-active", "nvidia-fabricmanager")),
    "fabric-manager-version": Probe(("nv-fabricmanager", "--version")),
    "nvlsm": Probe(("pgrep", "-a", "-x", "nvlsm")),
    "nvidia-smi-list": Probe(("nvidia-smi", "-L")),
    # Eight H100s print about 300 KiB, most of it supported clocks.
    "nvidia-smi-xml": Probe(("nvidia-smi", "-q", "-x"), timeout_s=120, limit=MIB),
    "nvidia-smi-csv": Probe(("nvidia-smi", "--query-gpu=" + ",".join(GPU_FIELDS), "--format=csv"), timeout_s=120),
    # A process name can contain commas, so it is the last column.
    "nvidia-smi-apps": Probe(
        ("nvidia-smi", "--query-compute-apps=gpu_uuid,pid,used_gpu_memory,process_name", "--format=csv")
    ),
    # Only on nodes whose expectation requests it. No check reads it; `gpuinfra calendar` does.
    "energy": Probe((NODE_PART, "energy")),
    # No check reads it; `gpuinfra nodes` and `gpuinfra calendar` do.
    "notices": Probe(("cat", NOTICES)),
    # Only on a control node that repairs nodes. No check reads it; `gpuinfra nodes` does.
    "repair": Probe(("cat", REPAIR)),
    "nvlink-status": Probe(("nvidia-smi", "nvlink", "-s")),
    "nvlink-errors": Probe(("nvidia-smi", "nvlink", "-e")),
    "topology": Probe(("nvidia-smi", "topo", "-m")),
    "kernel-log": Probe(
        ("journalctl", "-k", "-b", "-o", "short-iso", "--no-pager"),
        limit=MIB,
        keep=KERNEL_LINES,
        otherwise=(("dmesg", "--time-format", "iso"),),
    ),
    # Devices of large instances can appear late, so `probe.py` repeats this probe.
    "efa": Probe(
        ("fi_info", "-p", "efa", "-t", "FI_EP_RDM"),
        otherwise=(("/opt/amazon/efa/bin/fi_info", "-p", "efa", "-t", "FI_EP_RDM"),),
    ),
    "memlock": Probe(("grep", "-rhE", "^[^#]*memlock", "/etc/security/limits.conf", "/etc/security/limits.d")),
    "cdi": Probe(("nvidia-ctk", "cdi", "list")),
    "docker": Probe(("docker", "info", "--format", "{{json .}}")),
    "containerd": Probe(("containerd", "config", "dump")),
    # Creates the namespaces of a container as an unprivileged user. The version alone does not show that Ubuntu allows this.
    "enroot": Probe(("enroot", "version")),
    "enroot-namespaces": Probe(
        ("runuser", "-u", "nobody", "--", "enroot-nsenter", "--user", "--mount", "readlink", "/proc/self/ns/user")
    ),
    "metadata-guard": Probe(("nft", "list", "table", "inet", "gpuinfra_metadata")),
    "lustre-module": Probe(("modinfo", "-F", "vermagic", "lustre")),
    "mounts": Probe((NODE_PART, "mounts"), timeout_s=120),
    "declared-files": Probe((NODE_PART, "files"), limit=MIB),
    "lnet": Probe(("lnetctl", "net", "show", "-v")),
    "ports": Probe((NODE_PART, "ports")),
    # The kernel does not log when a link goes down and up. The service that configures the interface logs it.
    "link-log": Probe(
        ("journalctl", "-b", "-u", "systemd-networkd", "-o", "short-iso", "--no-pager"), keep=r"(?i)carrier|link"
    ),
    "gvnics": Probe(("lspci", "-Dnn", "-d", "1ae0:")),
    "fabric-libraries": Probe(
        ("find", "-L", "/usr/local/gib/scripts/set_nccl_env.sh", "/var/lib/tcpxo/lib64", "-maxdepth", "0")
    ),
    # The exporter's bootstrap step writes the URL with the node's private address. Your own exporter may listen on all addresses.
    "metrics": Probe((*METRICS, "-K", METRICS_QUERY), otherwise=((*METRICS, "http://127.0.0.1:9400/metrics"),)),
    "prometheus": Probe(("systemctl", "is-active", "gpuinfra-prometheus")),
    "alertmanager": Probe(("systemctl", "is-active", "gpuinfra-alertmanager")),
    "dcgm": Probe(("dcgmi", "diag", "-r", "1", "--json"), timeout_s=600, loads=True),
    # Measurements that take minutes to hours. They run only on request, for the speed phase or burn-in.
    "dcgm-medium": Probe(("dcgmi", "diag", "-r", "2", "--json"), timeout_s=1800, loads=True),
    "dcgm-long": Probe(("dcgmi", "diag", "-r", "3", "--json"), timeout_s=3600, loads=True),
    "dcgm-extra-long": Probe(("dcgmi", "diag", "-r", "4", "--json"), timeout_s=14400, loads=True),
    "heat": Probe((NODE_PART, "heat"), timeout_s=2400, loads=True),
    "links": Probe((NODE_PART, "links"), timeout_s=2400, loads=True),
    "nccl": Probe((NODE_PART, "nccl"), timeout_s=600, loads=True),
    # Enough for NCCL to select its network: on real machines, most of the time is the initialization of GPUs and plugins.
    "nccl-network": Probe((NODE_PART, "nccl", "--gib", "0.0625", "--rounds", "1"), timeout_s=300, loads=True),
    "pair": Probe((NODE_PART, "pair"), timeout_s=1200, loads=True),
    "fabric-result": Probe(("cat", FABRIC_RESULT)),
    "nvbandwidth": nvbandwidth(HOST_COPIES),
    "gpu-copies": nvbandwidth(GPU_COPIES),
    "gpu-memory": nvbandwidth(GPU_MEMORY),
    "cloud-init": Probe(("cloud-init", "status", "--format=json")),
}
