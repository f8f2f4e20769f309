"""The content of `versions.env`: the software lock of a pool as shell variables for the bootstrap steps."""

from __future__ import annotations

from gpuinfra.base.errors import GpuinfraError
from gpuinfra.catalog.records import MachineType
from gpuinfra.plan.facts import PoolFacts
from gpuinfra.plan.model import FileSystemPlan
from gpuinfra.plan.storage import object_cache_gib
from gpuinfra.software import tables
from gpuinfra.software.cloud import CloudProgram, CloudSoftware
from gpuinfra.software.lock import Choice, SoftwareLock, lustre_release
from gpuinfra.software.version import key

SCRATCH_MOUNT = "/mnt/nvme"
"""Folder of the local disks, unless the image mounts them elsewhere."""
ROOT_FREE_GIB = 50
"""Free space in GiB that the driver, CUDA toolkit, and container images require on the root disk."""


def environment(facts: PoolFacts) -> dict[str, str]:
    """Return the variables for the steps of a pool, sorted by name."""
    machine, chosen, cloud = facts.machine, facts.lock, facts.software
    distribution = tables.DISTRIBUTIONS[chosen.os]
    kernel = chosen.choice("kernel")
    values = {
        "NODE_OS": chosen.os,
        "LOCK_DATE": tables.LOCK_DATE.isoformat(),
        "ROOT_FREE_GIB": str(ROOT_FREE_GIB if machine.gpu else 10),
        "MIRROR_URL": facts.mirror_url or "",
        "KERNEL_FLAVOUR": cloud.kernel_flavour,
        "KERNEL_SERIES": " ".join(chosen.kernel_series),
        "KERNEL_RELEASE": "" if kernel is None or kernel.version == "image" else kernel.version,
        "CUDA_KEYRING_URL": f"https://developer.download.nvidia.com/compute/cuda/repos/{distribution.repository}/{_arch(machine)}/{tables.KEYRING}",
        "CUDA_KEYRING_SHA256": distribution.keyring_sha256,
        "HOLD_PATTERNS": " ".join(chosen.holds),
    }
    if facts.packages:
        values["EXTRA_PACKAGES"] = " ".join(facts.packages)
    for number, file in enumerate(facts.files):
        values[f"NODE_FILE_{number}"] = f"{file.sha256} {file.mode} {file.owner} {file.group} {file.path}"
    if facts.users:
        values["USERS_HOME"] = facts.users_home
    # One variable for each user, because Linux limits the length of one variable (128 KiB, execve(2)).
    for number, user in enumerate(facts.users):
        keys = "; ".join(" ".join(key.split(" ")[:2]) for key in user.ssh_keys)
        values[f"NODE_USER_{number}"] = f"{user.name} {user.uid} {'sudo' if user.sudo else '-'} {keys}"
    if driver := chosen.choice("driver"):
        values |= {
            **_version("DRIVER", driver),
            "DRIVER_BRANCH": str(key(driver.version)[0]),
            "DRIVER_FLAVOUR": chosen.flavour,
            "DRIVER_PACKAGE": "nvidia-open" if chosen.flavour == "open" else "cuda-drivers",
        }
    if chosen.choice("fabric_manager"):
        values["FABRIC_MANAGER_PACKAGE"] = "nvidia-fabricmanager"
    if cuda := chosen.choice("cuda"):
        values |= {"CUDA_VERSION": cuda.version, "CUDA_PACKAGE": tables.CUDA[cuda.version].package}
    if nvlsm := chosen.choice("nvlsm"):
        values |= _version("NVLSM", nvlsm)
    if dcgm := chosen.choice("dcgm"):
        major = cuda.version.split(".")[0] if cuda else "13"
        parts = ("core", f"cuda{major}", "proprietary", f"proprietary-cuda{major}")
        dcgm_packages = " ".join(f"datacenter-gpu-manager-4-{part}" for part in parts)
        values |= {"DCGM_PACKAGES": dcgm_packages, **_version("DCGM", dcgm)}
    if exporter := chosen.choice("dcgm_exporter"):
        values |= _version("DCGM_EXPORTER", exporter)
    if exporter := chosen.choice("node_exporter"):
        values |= {"NODE_EXPORTER_RANGE_MIN": exporter.low, "NODE_EXPORTER_RANGE_MAX": exporter.high}
    for name, archive in (("prometheus", tables.PROMETHEUS), ("alertmanager", tables.ALERTMANAGER)):
        if chosen.choice(name):
            prefix = name.upper()
            values |= {
                f"{prefix}_VERSION": archive.version,
                f"{prefix}_URL": archive.url,
                f"{prefix}_SHA256": archive.sha256,
            }
    if nccl := chosen.choice("nccl"):
        values |= _version("NCCL", nccl)
    if efa := chosen.choice("efa_installer"):
        values |= {
            **_version("EFA_INSTALLER", efa),
            "EFA_INSTALLER_URL": f"{tables.EFA_HOST}/aws-efa-installer-{efa.version}.tar.gz",
            "EFA_INSTALLER_KEY_URL": f"{tables.EFA_HOST}/aws-efa-installer.key",
            "EFA_INSTALLER_KEY_FINGERPRINT": tables.EFA_KEY_FINGERPRINT,
            "EFA_DEVICES": str(machine.fabric.devices if machine.fabric else 0),
        }
    if lustre := chosen.choice("lustre_client"):
        values |= {"LUSTRE_CLIENT_RANGE_MIN": lustre.low, "LUSTRE_CLIENT_RANGE_MAX": lustre.high}
        values |= _lustre(cloud, chosen.os, distribution.suite)
        if facts.lnet_efa:
            values["LNET_EFA_DEVICES"] = str(facts.lnet_efa)
        release = lustre_release(cloud, chosen.os)
        if release and release.kernel_flavour and chosen.kernel_series:
            values["KERNEL_FLAVOUR"] = release.kernel_flavour
    values |= _fabric(machine, chosen)
    if facts.guarded:
        values["METADATA_GUARDED"] = " ".join(facts.guarded)
    values |= _homes(facts)
    for program in (facts.bucket_client, facts.log_agent):
        if program and (choice := chosen.choice(program.name)):
            values |= _program(program, choice, machine, distribution)
    if facts.buckets:
        values["BUCKETS"] = "; ".join(_bucket(bucket, machine) for bucket in facts.buckets)
    if facts.log_agent:
        values["LOG_FILES"] = " ".join(facts.log_files)
    if toolkit := chosen.choice("container_toolkit"):
        values |= {
            **_version("CONTAINER_TOOLKIT", toolkit),
            "CONTAINER_TOOLKIT_REPOSITORY": tables.CONTAINER_TOOLKIT_REPOSITORY,
            "CONTAINER_TOOLKIT_KEY_URL": tables.CONTAINER_TOOLKIT_KEY_URL,
            "CONTAINER_TOOLKIT_KEY_FINGERPRINT": tables.CONTAINER_TOOLKIT_KEY_FINGERPRINT,
        }
    if docker := chosen.choice("docker"):
        release = f"~ubuntu.{distribution.number}~{distribution.suite}"
        values |= {
            **_version("DOCKER", docker),
            "DOCKER_PACKAGES": " ".join(
                f"{name}={version}{release}" for name, version in tables.DOCKER_PACKAGES.items()
            ),
            "DOCKER_REPOSITORY": tables.DOCKER_REPOSITORY,
            "DOCKER_SUITE": f"{distribution.suite} stable",
            "DOCKER_KEY_URL": tables.DOCKER_KEY_URL,
            "DOCKER_KEY_FINGERPRINT": tables.DOCKER_KEY_FINGERPRINT,
        }
    if enroot := chosen.choice("enroot"):
        debs = "; ".join(f"{url} {sha256}" for url, sha256 in tables.ENROOT_DEBS.items())
        values |= {**_version("ENROOT", enroot), "ENROOT_DEBS": debs}
    if machine.local_disk_gb:
        values |= {
            "SCRATCH_MOUNT": SCRATCH_MOUNT,
            "SCRATCH_MODEL": _known(cloud.local_disk_model, f"the model of the local disks in {machine.name}"),
            "SCRATCH_DISKS": str(machine.local_disks),
            "SCRATCH_OF_IMAGE": cloud.local_disk_mount_of_image,
        }
    return dict(sorted(values.items()))


def _version(prefix: str, choice: Choice) -> dict[str, str]:
    """Return the version to install and the range of versions that is accepted from an image."""
    return {
        f"{prefix}_VERSION": choice.version,
        f"{prefix}_RANGE_MIN": choice.low,
        f"{prefix}_RANGE_MAX": choice.high,
    }


def _program(
    program: CloudProgram, choice: Choice, machine: MachineType, distribution: tables.Distribution
) -> dict[str, str]:
    """Return the variables of the step of a program, with its name as their prefix."""
    prefix = program.name.upper()
    placeholders = {
        "version": choice.version,
        "suite": distribution.suite,
        "number": distribution.number,
        "arch": machine.arch,
        "deb_arch": "amd64" if machine.arch == "x86_64" else machine.arch,
    }
    filled = {f"{prefix}_{name}": text.format(**placeholders) for name, text in program.variables.items()}
    return {**_version(prefix, choice), **filled}


def _lustre(cloud: CloudSoftware, os: str, suite: str) -> dict[str, str]:
    """Return the variables that the step uses to fetch the client. `@KERNEL@` stands for the running kernel."""
    client, release = cloud.lustre, lustre_release(cloud, os)
    if client is None or release is None:
        raise GpuinfraError(
            f"there is no Lustre client for {os} on this cloud; add a client to the cloud's software.py"
        )
    return {
        "LUSTRE_REPOSITORY": client.repository.format(suite=suite),
        "LUSTRE_SUITE": client.suite.format(suite=suite),
        "LUSTRE_KEY_URL": client.key_url,
        "LUSTRE_KEY_FINGERPRINT": client.key_fingerprint,
        "LUSTRE_PACKAGES": release.packages,
    }


def _bucket(bucket: FileSystemPlan, machine: MachineType) -> str:
    """Return how the step mounts a bucket: `data-0 /data ro 600` (name, mount, mode, cache in GiB)."""
    return f"{bucket.name} {bucket.mount} {'ro' if bucket.read_only else 'rw'} {object_cache_gib(bucket, machine)}"


def _homes(facts: PoolFacts) -> dict[str, str]:
    """Return the variables that the step uses to mount home directories: `/home tls nfsvers=4.1,hard` (mount, connection, options) for each."""
    if not facts.homes:
        return {}
    cloud = facts.software
    entries, tls = [], facts.other_homes and any(how.tls for how in cloud.homes.values())
    for home in facts.file_systems:
        if home.kind != "home":
            continue
        if (how := cloud.homes.get(home.service)) is None:
            raise GpuinfraError(
                f"the cloud's profile does not set how nodes mount {home.service or 'home file systems'}; set homes in the cloud's software.py"
            )
        entries.append(f"{home.mount} {how.setting}")
        tls = tls or how.tls
    port = {"HOME_TLS_PORT": _known(str(cloud.home_tls_port or ""), "the TLS port of home file systems")} if tls else {}
    return {"HOMES": "; ".join(entries), **port}


def _known(value: str, what: str) -> str:
    """Return a fact about the cloud. Raises `GpuinfraError` if the cloud's profile does not set it."""
    if not value:
        raise GpuinfraError(f"the cloud's profile does not set {what}; set the value in the cloud's software.py")
    return value


def _fabric(machine: MachineType, chosen: SoftwareLock) -> dict[str, str]:
    """Return the variables of the InfiniBand, gIB, TCPXO, or TCPX software."""
    if doca := chosen.choice("doca_ofed"):
        row = tables.DOCA[chosen.os]
        values = _version("DOCA", doca)
        if machine.arch == "x86_64":
            values |= {"DOCA_HOST_URL": row.url, "DOCA_HOST_SHA256": row.sha256}
        if gdrcopy := chosen.choice("gdrcopy"):
            values |= {**_version("GDRCOPY", gdrcopy), "GDRCOPY_DEBS": ""}
        return values
    if gib := chosen.choice("gib"):
        return {**_version("GIB", gib), **_google("GIB", "gpudirect-gib-apt")}
    if chosen.choice("tcpxo"):
        return {
            "TCPXO_HELPER": tables.TCPXO_HELPER,
            "TCPXO_ARGUMENTS": tables.TCPXO_ARGUMENTS[machine.family],
            **_google("TCPXO", "gpudirect-tcpxo-apt"),
            **_images("TCPXO", chosen.registry, tables.TCPXO),
        }
    return _images("TCPX", chosen.registry, tables.TCPX) if chosen.choice("tcpx") else {}


def _google(prefix: str, suite: str) -> dict[str, str]:
    return {
        f"{prefix}_REPOSITORY": f"{tables.GOOGLE_PACKAGES}/gce-ai-infra",
        f"{prefix}_SUITE": suite,
        f"{prefix}_KEY_URL": tables.GOOGLE_KEY_URL,
        f"{prefix}_KEY_FINGERPRINT": tables.GOOGLE_KEY_FINGERPRINT,
    }


def _images(prefix: str, registry: str, row: tables.Gpudirect) -> dict[str, str]:
    """Return the variables of both images in your registry."""
    folder = f"{registry}/{row.folder}"
    return {
        f"{prefix}_PLUGIN": f"{folder}/{tables.PLUGIN_IMAGE}:{row.plugin}",
        f"{prefix}_MANAGER": f"{folder}/{tables.MANAGER_IMAGE}:{row.manager}",
    }


def _arch(machine: MachineType) -> str:
    return "sbsa" if machine.arch == "arm64" else "x86_64"
