"""The root file system of a stand-in node, created once and without root privileges.

The host's /usr is mounted read-only at /.host/usr, and the node's /usr is a folder of links to it. A package can
therefore install a file, a command or a kernel module at its real path, and the file survives a reboot. Stand-in commands and
the files of vendors' packages are not linked, so a node lacks them until a step installs them. /etc, /var, /opt, /root,
/home, /tmp, /run, /dev and /sys belong to the node. /proc is newly mounted (`enter.py`).
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

LINKED = ("bin", "sbin", "lib", "libexec", "share", "share/keyrings", "include")
"""Folders of /usr that the node owns, filled with links to the host's files. Every other folder is a single link."""
OWN = (
    "lib/modules", "lib/systemd", "lib/modules-load.d", "lib/modprobe.d", "lib/sysctl.d",
    "lib/dracut", "src", "local",
)  # fmt: skip
"""Folders of /usr without any files of the host."""
PARTS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")

_EMPTY = """
boot dev/pts dev/shm etc/apt/apt.conf.d etc/apt/keyrings etc/apt/preferences.d etc/apt/sources.list.d etc/default
etc/depmod.d etc/ld.so.conf.d etc/modprobe.d etc/modules-load.d etc/profile.d etc/security/limits.d etc/ssh
etc/skel etc/sysctl.d etc/systemd/system etc/udev/rules.d etc/cloud home/ubuntu media mnt opt proc root run srv sys/class
sys/bus tmp usr/local/bin usr/local/sbin usr/local/lib var/cache/apt/archives var/crash var/lib/apt/lists
var/lib/cloud var/lib/dpkg/info var/log var/spool var/tmp
"""

ARCHIVES = {
    "aws": "{region}.ec2.archive.ubuntu.com",
    "azure": "azure.archive.ubuntu.com",
    "gcp": "{region}.gce.archive.ubuntu.com",
}
"""Ubuntu archive host in each cloud's images."""
PR_SET_PDEATHSIG = 1
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


def build(
    root: Path, *, hidden: frozenset[str], launchers: dict[str, str], os_name: str, hostname: str, archive: str
) -> None:
    """Create the files of a node.

    `launchers` is path -> link target of stand-in commands that every image has, `archive` the host of Ubuntu's
    archive. Raises OSError with the last line of the reason.
    """
    # In a process of its own, because a thread of a busy process waits for the interpreter lock after each of the thousands of links.
    given = {
        "root": str(root), "hidden": sorted(hidden), "launchers": launchers, "os_name": os_name, "hostname": hostname, "archive": archive,
        "parent": os.getpid(),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-I", "-S", __file__], input=json.dumps(given), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise OSError(
            f"the files of {root} were not created: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}"
        )


def _build(
    root: Path, hidden: frozenset[str], launchers: dict[str, str], os_name: str, hostname: str, archive: str
) -> None:
    for name in _EMPTY.split():
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("tmp", "var/tmp", "dev/shm"):
        (root / name).chmod(0o1777)
    for name in _DEVICES:
        (root / "dev" / name).touch()
    if not (root / "dev/console").exists():
        os.mkfifo(root / "dev/console", 0o622)
    _link(root / "dev/fd", "/proc/self/fd")
    _link(root / "dev/ptmx", "pts/ptmx")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        _link(root / "dev" / name, f"/proc/self/fd/{number}")
    _link(root / "var/run", "/run")
    _link(root / "var/lock", "/run/lock")
    for target in (".host/usr", *(f".host/{part}" for part in PARTS)):
        (root / target).mkdir(parents=True, exist_ok=True)
    _fill_usr(root, hidden)
    _fill_etc(root, os_name, hostname, archive)
    for path, target in launchers.items():
        _link(root / path.lstrip("/"), target)
    for command, target in _interpreter().items():
        _link(root / "usr/bin" / command, target)


def binds(root: Path, *, lib: Path, state: Path, shared: Path, console: Path) -> list[dict[str, Any]]:
    """Return the bind mounts that each start makes, in order."""
    items: list[dict[str, Any]] = [{"source": "/usr", "target": "/.host/usr", "read_only": True}]
    for part in PARTS:
        if os.path.isdir(f"/{part}") and not os.path.islink(f"/{part}"):
            items.append({"source": f"/{part}", "target": f"/.host/{part}", "read_only": True})
    prefix = os.path.realpath(sys.base_prefix)
    if not _within(prefix, "/usr"):
        (root / prefix.lstrip("/")).mkdir(parents=True, exist_ok=True)
        items.append({"source": prefix, "target": prefix, "read_only": True})
    for name in _DEVICES:
        if os.path.exists(f"/dev/{name}"):
            items.append({"source": f"/dev/{name}", "target": f"/dev/{name}"})
    for source, target, read_only in ((lib, "lib", True), (state, "state", False), (shared, "filesystems", False)):
        (root / "run/standin" / target).mkdir(parents=True, exist_ok=True)
        items.append({"source": str(source), "target": f"/run/standin/{target}", "read_only": read_only})
    return items


def proc_files(root: Path, *, boot_id: str, kernel: str) -> list[dict[str, str]]:
    """Return the files of /proc that differ from the host's, written for this boot."""
    folder = root.parent / "proc"
    (folder / "driver").mkdir(parents=True, exist_ok=True)
    texts = {
        "sys/kernel/random/boot_id": boot_id,
        "sys/kernel/osrelease": kernel,
        "version": f"Linux version {kernel} (buildd@stand-in) (stand-in node; the kernel is that of the host) #1 SMP",
        "cmdline": f"BOOT_IMAGE=/boot/vmlinuz-{kernel} root=PARTUUID=00000000-01 ro console=tty1 console=ttyS0 nvme_core.io_timeout=4294967295",
        "modules": "",
    }
    items = [{"source": str(folder / "driver"), "target": "/proc/driver"}]
    for name, text in texts.items():
        file = folder / name.replace("/", "_")
        file.write_text(text + "\n" if text else "", encoding="utf-8")
        items.append({"source": str(file), "target": f"/proc/{name}"})
    return items


def _fill_usr(root: Path, hidden: frozenset[str]) -> None:
    usr = root / "usr"
    usr.mkdir(exist_ok=True)
    triplets = [entry.name for entry in os.scandir("/usr/lib") if entry.is_dir() and entry.name.endswith("-linux-gnu")]
    linked = {*LINKED, *(f"lib/{name}" for name in triplets)}
    for name in OWN:
        (usr / name).mkdir(parents=True, exist_ok=True)
    (usr / "lib/systemd/system").mkdir(exist_ok=True)
    _link_all(usr, "/usr", {name.split("/")[0] for name in (*linked, *OWN)}, hidden)
    for name in sorted(linked):
        if os.path.isdir(f"/usr/{name}") and not os.path.islink(f"/usr/{name}"):
            (usr / name).mkdir(parents=True, exist_ok=True)
            inner = {other[len(name) + 1 :].split("/")[0] for other in (*linked, *OWN) if other.startswith(name + "/")}
            _link_all(usr / name, f"/usr/{name}", inner, hidden)
    for part in PARTS:
        if os.path.islink(f"/{part}"):
            _link(root / part, f"usr/{part}")
        elif os.path.isdir(f"/{part}"):  # a system without merged /usr
            (root / part).mkdir(exist_ok=True)
            _link_all(root / part, f"/{part}", set(), hidden)


def _link_all(folder: Path, host: str, own: set[str], hidden: frozenset[str]) -> None:
    """Link every entry of the host's folder, except hidden entries and entries that the node owns."""
    for name in os.listdir(host):
        if name in own or name in hidden or name.startswith(_VENDORS):
            continue
        _link(folder / name, f"/.host{host}/{name}")


_VENDORS = ("nvidia", "libnvidia", "libcuda", "libnccl", "cuda", "docker", "containerd", "libefa", "libfabric")


def _fill_etc(root: Path, os_name: str, hostname: str, archive: str) -> None:
    etc = root / "etc"
    for name in ("ld.so.cache", "ld.so.conf"):
        if os.path.exists(f"/etc/{name}"):
            shutil.copyfile(f"/etc/{name}", etc / name)
    if os.path.isdir("/etc/alternatives") and not (etc / "alternatives").exists():
        shutil.copytree("/etc/alternatives", etc / "alternatives", symlinks=True)
    version = os_name.removeprefix("ubuntu-")
    codename, full = _UBUNTU[version]
    texts = {
        "os-release": _OS_RELEASE.format(
            version=version, codename=codename, full=full, name=full.split("(")[1].split(" ")[0]
        ),
        "lsb-release": f'DISTRIB_ID=Ubuntu\nDISTRIB_RELEASE={version}\nDISTRIB_CODENAME={codename}\nDISTRIB_DESCRIPTION="Ubuntu {full.split(" (")[0]}"\n',
        "hostname": hostname + "\n",
        "hosts": f"127.0.0.1 localhost\n127.0.1.1 {hostname}\n",
        "resolv.conf": "# a stand-in node has no DNS: vendors' hosts are simulated, others do not exist\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n",
        "passwd": "root:x:0:0:root:/root:/bin/bash\nubuntu:x:1000:1000:Ubuntu:/home/ubuntu:/bin/bash\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        "group": "root:x:0:\nadm:x:4:ubuntu\nsudo:x:27:ubuntu\nubuntu:x:1000:\nnogroup:x:65534:\n",
        "shadow": "root:*:20000:0:99999:7:::\nubuntu:!:20000:0:99999:7:::\nnobody:*:20000:0:99999:7:::\n",
        "fstab": "LABEL=cloudimg-rootfs / ext4 discard,errors=remount-ro 0 1\n",
        "machine-id": "",
        "shells": "/bin/sh\n/bin/bash\n",
        "apt/sources.list": f"deb http://{archive}/ubuntu/ {codename} main restricted universe multiverse\n",
        "apt/apt.conf.d/20auto-upgrades": 'APT::Periodic::Update-Package-Lists "1";\nAPT::Periodic::Unattended-Upgrade "1";\n',
        "apt/apt.conf.d/50unattended-upgrades": _UNATTENDED,
        "profile": 'for script in /etc/profile.d/*.sh; do [ -r "$script" ] && . "$script"; done; unset script\n',
    }
    for name, text in texts.items():
        if not (etc / name).exists():
            (etc / name).write_text(text, encoding="utf-8")
    _link(etc / "mtab", "../proc/self/mounts")
    _link(etc / "localtime", "/usr/share/zoneinfo/Etc/UTC")


def _interpreter() -> dict[str, str]:
    """The node's python3 is the interpreter that runs this code, because it is known to work."""
    real = os.path.realpath(os.path.join(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}"))
    if not os.path.exists(real):
        real = os.path.realpath(sys.executable)
    seen = "/.host" + real if _within(real, "/usr") else real
    return {"python3": seen, f"python{sys.version_info[0]}.{sys.version_info[1]}": seen}


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def _link(path: Path, target: str) -> None:
    try:
        os.symlink(target, path)
    except FileExistsError:
        if os.path.islink(path) and os.readlink(path) != target:
            os.unlink(path)
            os.symlink(target, path)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(target, path)


_UBUNTU = {"22.04": ("jammy", "22.04.5 LTS (Jammy Jellyfish)"), "24.04": ("noble", "24.04.3 LTS (Noble Numbat)")}

_OS_RELEASE = """PRETTY_NAME="Ubuntu {full}"
NAME="Ubuntu"
VERSION_ID="{version}"
VERSION="{full}"
VERSION_CODENAME={codename}
ID=ubuntu
ID_LIKE=debian
UBUNTU_CODENAME={codename}
"""

_UNATTENDED = """Unattended-Upgrade::Allowed-Origins {
	"${distro_id}:${distro_codename}";
	"${distro_id}:${distro_codename}-security";
};
Unattended-Upgrade::Package-Blacklist {
};
"""


if __name__ == "__main__":
    values = json.load(sys.stdin)
    # A killed host leaves no process, because the next host creates the same folder.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != values.pop("parent"):
        sys.exit(1)
    _build(Path(values.pop("root")), frozenset(values.pop("hidden")), **values)
