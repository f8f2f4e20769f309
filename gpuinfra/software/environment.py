"""The content of `versions.env`: the software lock of a pool as shell variables for the bootstrap steps."""

from __future__ import annotations

from gpuinfra.base.errors import GpuinfraError
from gpuinfra.catalog.records import MachineType
from gpuinfra.software import tables
from gpuinfra.software.cloud import CloudSoftware
from gpuinfra.software.lock import Choice, Lock, lustre_release
from gpuinfra.software.version import key
from gpuinfra.spec.policy import User

SCRATCH_MOUNT = "/mnt/nvme"
"""Folder of the local disks, unless the image mounts them elsewhere."""
ROOT_FREE_GIB = 50
"""Free space in GiB that the driver, CUDA toolkit, and container images require on the root disk."""


def environment(
    machine: MachineType,
    chosen: Lock,
    *,
    cloud: CloudSoftware,
    mirror_url: str | None,
    homes: tuple[tuple[str, str], ...] = (),
    other_homes: bool = False,
    lnet_efa: int = 0,
    guarded: tuple[str, ...] = (),
    buckets: tuple[str, ...] = (),
    packages: tuple[str, ...] = (),
    users: tuple[User, ...] = (),
    users_home: str = "",
    files: tuple[str, ...] = (),
) -> dict[str, str]:
    """Return the variables for the steps of a pool, sorted by name. Containers cannot reach the addresses in `guarded`.

    Each entry in `homes` is the mount and the service of a file system for home directories.
    With `other_homes`, nodes can also mount homes of another stack's site, on any service.
    Each entry in `buckets` is a mounted bucket: `data-0 /data ro 600` (name, mount, mode, cache in GiB). Each entry in `files` is a
    declared file: SHA-256, mode, owner, group and path.
    """
    distribution = tables.DISTRIBUTIONS[chosen.os]
    kernel = chosen.choice("kernel")
    values = {
        "NODE_OS": chosen.os,
        "LOCK_DATE": tables.LOCK_DATE.isoformat(),
        "ROOT_FREE_GIB": str(ROOT_FREE_GIB if machine.gpu else 10),
        "MIRROR_URL": mirror_url or "",
        "KERNEL_FLAVOUR": cloud.kernel_flavour,
        "KERNEL_SERIES": " ".join(chosen.kernel_series),
        "KERNEL_RELEASE": "" if kernel is None or kernel.version == "image" else kernel.version,
        "CUDA_KEYRING_URL": f"https://developer.download.nvidia.com/compute/cuda/repos/{distribution.repository}/{_arch(machine)}/{tables.KEYRING}",
        "CUDA_KEYRING_SHA256": distribution.keyring_sha256,
        "HOLD_PATTERNS": " ".join(chosen.holds),
    }
    if packages:
        values["EXTRA_PACKAGES"] = " ".join(packages)
    for number, file in enumerate(files):
        values[f"NODE_FILE_{number}"] = file
    if users:
        values["USERS_HOME"] = users_home
    # One variable for each user, because Linux limits the length of one variable (128 KiB, execve(2)).
    for number, user in enumerate(users):
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
        if lnet_efa:
            values["LNET_EFA_DEVICES"] = str(lnet_efa)
        release = lustre_release(cloud, chosen.os)
        if release and release.kernel_flavour and chosen.kernel_series:
            values["KERNEL_FLAVOUR"] = release.kernel_flavour
    values |= _fabric(machine, chosen)
    if guarded:
        values["METADATA_GUARDED"] = " ".join(guarded)
    values |= _homes(cloud, homes, other_homes=other_homes)
    if (client := cloud.buckets) and (choice := chosen.choice(client.name)):
        prefix = client.name.upper()
        known = {"version": choice.version, "suite": distribution.suite, "number": distribution.number}
        values |= {
            **_version(prefix, choice),
            **{f"{prefix}_{name}": text.format(**known, arch=machine.arch) for name, text in client.variables.items()},
            "BUCKETS": "; ".join(buckets),
        }
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


def _homes(cloud: CloudSoftware, homes: tuple[tuple[str, str], ...], *, other_homes: bool) -> dict[str, str]:
    """Return the variables that the step uses to mount home directories: `/home tls nfsvers=4.1,hard` (mount, connection, options) for each."""
    if not homes:
        return {}
    entries, tls = [], other_homes and any(known.tls for known in cloud.homes.values())
    for mount, service in homes:
        if (known := cloud.homes.get(service)) is None:
            raise GpuinfraError(
                f"the cloud's profile does not set how nodes mount {service or 'home file systems'}; set homes in the cloud's software.py"
            )
        entries.append(f"{mount} {known.setting}")
        tls = tls or known.tls
    port = {"HOME_TLS_PORT": _known(str(cloud.home_tls_port or ""), "the TLS port of home file systems")} if tls else {}
    return {"HOMES": "; ".join(entries), **port}


def _known(value: str, what: str) -> str:
    """Return a fact about the cloud. Raises `GpuinfraError` if the cloud's profile does not set it."""
    if not value:
        raise GpuinfraError(f"the cloud's profile does not set {what}; set the value in the cloud's software.py")
    return value


def _fabric(machine: MachineType, chosen: Lock) -> dict[str, str]:
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
