"""Rules about the declared files and environment variables of the nodes (`software.files`, `software.environment`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from fnmatch import fnmatchcase

from gpuinfra.base.findings import Finding, error, warn
from gpuinfra.plan.environment import SCRATCH_MOUNT
from gpuinfra.plan.files import of_pool, variables
from gpuinfra.plan.machines import pools_of
from gpuinfra.plan.profile import profile_of
from gpuinfra.software import tables
from gpuinfra.software.pool import pool_lock
from gpuinfra.spec.files import MAX_POOL_BYTES, MAX_VARIABLES, NodeFile
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.rule import pools_exist, rules_in
from gpuinfra.spec.shown import contains_key

_LISTS = frozenset({"PATH", "LD_LIBRARY_PATH"})
"""Lists of folders that the image and the bootstrap steps extend (40-cuda, 50-gib, 50-tcpx, 50-tcpxo)."""
_OF_LOGIN = frozenset({
    "HOME", "LOGNAME", "USER", "SHELL", "PWD", "OLDPWD", "MAIL", "TERM", "IFS", "ENV", "SHLVL", "UID", "EUID", "PPID", "_",
    "BASH", "BASHOPTS", "BASHPID", "SHELLOPTS", "RANDOM", "SRANDOM", "SECONDS", "EPOCHSECONDS", "EPOCHREALTIME", "LINENO",
    "GROUPS", "FUNCNAME", "DIRSTACK", "HISTCMD", "OPTIND",
})  # fmt: skip
"""Variables that the login or the shell sets, with `BASH_*`. login(1), environ(7), bash(1) "Shell Variables"."""
_OF_JOBS = frozenset(
    [
        "NNODES",
        "NODE_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "GPUS_PER_NODE",
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
    ]
)
"""Variables of a job (`gpuinfra.remote.job`), which a login shell would replace."""
_OF_SCHEDULERS = ("GPUINFRA_", "SLURM_")
_OF_DEVICES = frozenset({"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"})
_SECRET_NAME = re.compile(r"(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|PRIVATE_KEY)$", re.IGNORECASE)
_FOLDERS = (
    "/proc", "/sys", "/dev", "/run", "/tmp", "/var/run", "/var/lock", "/var/tmp", "/opt/gpuinfra", "/etc/gpuinfra", "/var/lib/gpuinfra",
    "/var/cache/gpuinfra", "/var/lib/tcpx", "/var/lib/tcpxo", "/opt/aws/amazon-cloudwatch-agent",
)  # fmt: skip
"""Folders that are empty after a reboot, that the kernel provides, or that belong to gpuinfra or to the agent of the logs. hier(7)."""
_WRITTEN = "which the bootstrap steps write; use another name"
_FILES = {
    "/etc/environment": "which belongs to the image; use software.environment",
    "/etc/os-release": "which identifies the operating system, and belongs to the image; use another name",
    "/etc/fstab": "which lists the file systems of the node; use storage",
    "/etc/passwd": "which lists the users of the node; use access.users",
    "/etc/group": "which lists the groups of the node; use access.users",
    "/etc/shadow": "which lists the users of the node; use access.users",
    "/etc/gshadow": "which lists the groups of the node; use access.users",
    "/etc/subuid": "which lists the users of the node; use access.users",
    "/etc/subgid": "which lists the groups of the node; use access.users",
    "/etc/ssh/authorized_keys.d": "which contains the keys of the users; use access.users",
    "/etc/docker/daemon.json": "which the bootstrap steps write; use a step in software.steps to change it",
    "/etc/nccl.conf": "which the image or the fabric's software writes; use software.environment",
    "/etc/containerd/conf.d/99-nvidia.toml": _WRITTEN,
    "/etc/apparmor.d/enroot": "which the package enroot contains; use another name",
    "/etc/apt/sources.list.d/cuda-*.list": "which the package cuda-keyring contains; use another name",
    "/etc/apt/sources.list.d/doca*.list": "which the package doca-host contains; use another name",
    **{
        path: _WRITTEN
        for name in (
            "docker",
            "nvidia-container-toolkit",
            "lustre-client",
            "gpudirect-gib",
            "gpudirect-tcpxo",
            "blobfuse2",
            "gcsfuse",
        )
        for path in (f"/etc/apt/sources.list.d/{name}.list", f"/etc/apt/keyrings/{name}.gpg")
    },
}
"""Files and folders that the image or the bootstrap steps write, and what to do instead. `*` stands for any characters."""


def _declared(spec: ClusterSpec) -> Iterator[tuple[str, str, str]]:
    """Yield the path, the name and the value of each declared variable."""
    sections = [("software", spec.software.environment)]
    sections += [(f"pools[{i}]", pool.environment) for i, pool in enumerate(spec.pools)]
    for section, declared in sections:
        for name, value in declared.items():
            yield f"{section}.environment.{name}", name, value


def variable_name_is_free(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A declared environment variable is not one that logins, jobs, a scheduler or the search path of programs depend on."""
    for path, name, _ in _declared(spec):
        if name in _LISTS:
            what = "replaces the value of the image and of the fabric, because nodes do not expand variables"
            hint = f"write a script such as /etc/profile.d/tools.sh with software.files, which extends {name}"
            yield error(path, what, hint)
        elif name in _OF_LOGIN or name.startswith("BASH_"):
            yield error(path, "is set by each login or shell", "remove it, or use another name")
        elif name in _OF_JOBS or name.startswith(_OF_SCHEDULERS):
            what = "is set for each job or node, and a declared value would replace it"
            yield error(path, what, "remove it, or use another name")
        elif name in _OF_DEVICES:
            what = "selects the GPUs of a process, and a declared value would give the same GPUs to all jobs of a node"
            yield error(path, what, "set it in the job")


def variable_value_is_literal(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The value of a declared environment variable contains no reference to another variable and no secret."""
    for path, name, value in _declared(spec):
        if contains_key(value):
            what = "contains a private key or an access token, and every user of a node can read it"
            yield error(path, what, "let the job read it from a secret store with the identity of the node")
        elif "$" in value:
            hint = "write the value in full, or write a script such as /etc/profile.d/tools.sh with software.files"
            yield error(path, "contains $, but nodes do not expand variables", hint)
        elif value and _SECRET_NAME.search(name):
            what = "looks like a secret, but the stack file and every node contain it as plain text"
            yield warn(path, what, "let the job read it from a secret store with the identity of the node")


def variable_keeps_the_fabric(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A declared environment variable does not replace one that makes programs use the fabric.
    The checks do not use declared variables, so they would not detect it."""
    cloud = profile_of(spec.cloud)
    seen: set[str] = set()
    for path, pool, machine in pools_of(spec):
        image, _ = cloud.image(spec, pool, machine)
        fabric = pool_lock(spec, pool, machine, cloud.software, image).fabric
        if fabric is None:
            continue
        for name in variables(spec, pool):
            section = path if name in pool.environment else "software"
            where = f"{section}.environment.{name}"
            if where in seen:
                continue
            seen.add(where)
            if _is_listed(name, tables.FABRIC_VARIABLES[fabric]):
                what = f"replaces the value that the {fabric} step sets on {machine.name}"
                yield warn(where, what, "remove it, or set it in the job")
            elif _is_listed(name, tables.NETWORK_VARIABLES[fabric]):
                what = f"selects the network of programs, which use {fabric} on {machine.name} without it"
                yield warn(where, what, "remove it, or set it in the job")


def _is_listed(name: str, patterns: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns.split())


def variables_fit_node(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The nodes of a pool have at most 50 declared environment variables."""
    for i, pool in enumerate(spec.pools):
        number = len(variables(spec, pool))
        if number > MAX_VARIABLES:
            what = f"and software.environment together have {number} variables; allowed: at most {MAX_VARIABLES}"
            yield error(
                f"pools[{i}].environment", what, "remove variables, or write them to a file with software.files"
            )


def file_has_one_source(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A declared file has a content or a local file."""
    for i, file in enumerate(spec.software.files):
        if file.content is not None and file.file is not None:
            yield error(f"software.files[{i}]", "has content and file, but needs one source", "remove one of them")
        elif file.content is None and file.file is None:
            yield error(f"software.files[{i}]", "has no content", "set content or file")


def file_can_be_read(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The local file of a declared file is a text in UTF-8 of at most 64 KiB in the folder of the stack file, and neither it nor `content` contains keys."""
    for i, file in enumerate(spec.software.files):
        if file.read and file.read.problem:
            yield error(f"software.files[{i}].file", f"is {file.file}, {file.read.problem}", file.read.hint)
        elif file.content and contains_key(file.content):
            what = "contains a private key or an access token, and every user of a node can read it"
            hint = "let a script in software.steps read it from a secret store with the identity of the node"
            yield error(f"software.files[{i}].content", what, hint)
        elif file.content and "\0" in file.content:
            yield error(f"software.files[{i}].content", "contains a null character", "remove it")


def file_path_is_free(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The path of a declared file is on the disk of the node, in a folder that only root can change, and is not a file that the bootstrap steps write."""
    local = tuple(filter(None, (SCRATCH_MOUNT, profile_of(spec.cloud).software.local_disk_mount_of_image)))
    mounts = sorted({*local, *(entry.mount for entry in spec.storage)})
    for i, file in enumerate(spec.software.files):
        path = f"software.files[{i}].path"
        mount = next((mount for mount in mounts if _within(file.path, mount)), None)
        folder = next((folder for folder in _FOLDERS if _within(file.path, folder)), None)
        pattern = next((known for known in _FILES if fnmatchcase(file.path, known) or _within(file.path, known)), None)
        if pattern:
            what, _, hint = _FILES[pattern].partition("; ")
            yield error(path, f"is {file.path}, {what}", hint)
        elif mount:
            what, hint = "all nodes share", "write the file once, in a job or on one node"
            if mount in local:
                what, hint = "is empty when a node starts on another machine", "use a folder on the root disk"
            yield error(path, f"is {file.path}, which is on {mount}, a file system that {what}", hint)
        elif _within(file.path, "/home"):
            what = f"is {file.path}, but users can change the folders in /home, and root writes the file"
            yield error(path, what, "use a folder such as /etc, or a script in software.steps")
        elif folder:
            yield error(
                path,
                f"is {file.path}, but files in {folder} are temporary or belong to the system",
                "use a folder such as /etc or /usr/local",
            )
        elif "gpuinfra" in file.path.rpartition("/")[2]:
            yield error(
                path, f"is {file.path}, but names with gpuinfra belong to the bootstrap steps", "use another name"
            )


def file_paths_do_not_conflict(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A node gets one declared file for each path, and a path is not a folder of another path."""
    for i, file in enumerate(spec.software.files):
        for j, other in enumerate(spec.software.files[:i]):
            if not _same_nodes(file, other):
                continue
            if file.path == other.path:
                what = f"is {file.path}, which is also the path of software.files[{j}] on the same nodes"
                yield error(f"software.files[{i}].path", what, "remove one of them, or set pools")
                break
            if _within(file.path, other.path) or _within(other.path, file.path):
                what = f"is {file.path}, but software.files[{j}] is {other.path}, so one of them must be a folder"
                yield error(f"software.files[{i}].path", what, "use another path")
                break


def file_pools_exist(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The pools of a declared file exist, and each is listed once."""
    return pools_exist(spec, "software.files", spec.software.files)


def files_fit_bundle(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The declared files of a pool have at most 1 MiB together, because each node downloads them in its bundle."""
    for pool in spec.pools:
        size = sum(len(one.content.encode("utf-8", "surrogatepass")) for one in of_pool(spec, pool))
        if size > MAX_POOL_BYTES:
            what = f"have {size:,} bytes in pool {pool.name}; allowed: at most {MAX_POOL_BYTES:,}"
            yield error("software.files", what, "download large files with a script in software.steps")
            return


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _same_nodes(node_file: NodeFile, other: NodeFile) -> bool:
    return not node_file.pools or not other.pools or bool(set(node_file.pools) & set(other.pools))


RULES = rules_in(vars())
