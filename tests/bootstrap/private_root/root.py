"""A private root: a debootstrap base, an overlay on top, and a process namespace around it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuinfra import bundle
from gpuinfra.plan.model import PoolPlan

INCLUDE = "ca-certificates,curl,gnupg,kmod,python3"
TOOLS = Path(__file__).parent / "tools"
PRETTY = {
    "ubuntu-22.04": 'NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\nVERSION_ID="22.04"\nVERSION_CODENAME=jammy\n',
    "ubuntu-24.04": 'NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\n',
}
SUITES = {"ubuntu-22.04": "jammy", "ubuntu-24.04": "noble"}
MODELS = {"aws": "Amazon EC2 NVMe Instance Storage", "azure": "Microsoft NVMe Direct Disk", "gcp": "nvme_card0"}
GRUB = "etc/default/grub.d/90-gpuinfra.cfg"
BOOT_ID = "/proc/sys/kernel/random/boot_id"


def base() -> Path:
    """The common base layer, created once and cached for the user; skips the test if it cannot be created."""
    if os.geteuid() != 0:
        pytest.skip("a private root needs root")
    for tool in ("debootstrap", "dpkg", "gpg", "unshare"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuinfra" / "private-root"
    cache.mkdir(parents=True, exist_ok=True)
    # The workers of a test run start at the same time, and one of them creates the layer for all.
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready = cache / "bookworm-1"
        if not ready.exists():
            draft = cache / "draft"
            shutil.rmtree(draft, ignore_errors=True)
            command = ["debootstrap", "--variant=minbase", f"--include={INCLUDE}", "bookworm", str(draft)]
            made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
            if made.returncode != 0:
                shutil.rmtree(draft, ignore_errors=True)
                what = (made.stdout + made.stderr).strip().splitlines()[-1:]
                pytest.skip(f"debootstrap reaches no mirror: {what}")
            draft.rename(ready)
    return ready


ENTER = """
set -e
mount -t overlay overlay -o "lowerdir=$BASE,upperdir=$CASE/upper,workdir=$CASE/work" "$CASE/root"
mount -t proc proc "$CASE/root/proc"
mount --bind "$CASE/driver" "$CASE/root/proc/driver"
mount -t tmpfs tmpfs "$CASE/root/dev"
for device in "null 1 3" "zero 1 5" "random 1 8" "urandom 1 9"; do
  read -r name major minor <<<"$device"
  mknod -m 666 "$CASE/root/dev/$name" c "$major" "$minor"
done
ln -s /proc/self/fd "$CASE/root/dev/fd"
touch "$CASE/root/dev/console"
mount --bind "$CASE/run" "$CASE/root/run"
exec chroot "$CASE/root" /usr/bin/env -i HOME=/root LC_ALL=C GPUINFRA_RETRY_PAUSE_S=0 GPUINFRA_CLOCK_PATIENCE_S=0 \
  AWS_EC2_METADATA_SERVICE_ENDPOINT=http://127.0.0.1:9 GCE_METADATA_HOST="$METADATA" \
  PATH=/opt/standin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
"""


@dataclass
class PrivateRoot:
    """One machine."""

    folder: Path
    base: Path
    metadata: str = "127.0.0.1:9"
    """Host of the metadata server that returns tokens."""

    def prepare(self, pool: PoolPlan, versions: dict[str, str], *, kernel: str, ubuntu_ring: bytes) -> None:
        """An Ubuntu as the cloud boots it: a kernel, Ubuntu's repository and the unpacked bundle."""
        for name in ("upper", "work", "root", "driver", "run"):
            (self.folder / name).mkdir(parents=True)
        upper = self.folder / "upper"
        self.write("etc/os-release", PRETTY[pool.image.os])
        self.write("etc/standin/kernel", kernel)
        disks = range(1, 1 + (int(versions.get("SCRATCH_DISKS") or 0) or 2))
        self.write("etc/standin/disks", "".join(f"/dev/nvme{number}n1\n" for number in disks))
        self.write("etc/standin/model", MODELS[str(pool.expectation["cloud"])])
        self.write("etc/apt/apt.conf.d/99quick", 'Acquire::Retries::Delay "false";\n')
        self.write("etc/fstab", "LABEL=cloudimg-rootfs / ext4 defaults 0 1\n")
        ring = upper / "usr/share/keyrings/ubuntu-archive-keyring.gpg"
        ring.parent.mkdir(parents=True)
        ring.write_bytes(ubuntu_ring)
        source = f"deb [signed-by=/{ring.relative_to(upper)}] {versions['MIRROR_URL']}/archive.ubuntu.com/ubuntu "
        self.write("etc/apt/sources.list", f"{source}{SUITES[pool.image.os]} main\n")
        shutil.copytree(TOOLS, upper / "opt/standin")
        # Maintainer scripts run with apt's own PATH, so `uname` must be right there too.
        (upper / "usr/bin").mkdir(parents=True)
        shutil.copy(self.base / "usr/bin/uname", upper / "usr/bin/uname.real")
        (upper / "opt/standin/uname").rename(upper / "usr/bin/uname")
        self.bundle(pool, versions)
        config = {
            "schema": "gpuinfra.node/1",
            "cloud": pool.expectation["cloud"],
            "cluster": "train",
            "pool": pool.name,
            "region": "us-east-1",
        }
        systems = [{"kind": "lustre", "mount": "/scratch", "dns_name": "fs-1.example", "mount_name": "abc"}]
        config["file_systems"] = systems if "LUSTRE_KEY_URL" in versions else []
        self.write("etc/gpuinfra/node.json", json.dumps(config))
        self.run("apt-get", "-q", "update", check=True)
        line = f"linux-image-{kernel.rpartition('-')[2]}"
        self.run("apt-get", "-qy", "install", f"linux-image-{kernel}", line, check=True)

    def bundle(self, pool: PoolPlan, versions: dict[str, str]) -> None:
        """Unpack the pool's bundle, with these versions."""
        from dataclasses import replace

        made = bundle.build(replace(pool, versions=versions))
        archive = self.folder / "bundle.tar.gz"
        archive.write_bytes(made.data)
        target = self.folder / "upper/opt/gpuinfra/current"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        subprocess.run(["tar", "-xzf", str(archive), "-C", str(target)], check=True)

    def write(self, name: str, text: str) -> None:
        """Write a file of this machine from outside."""
        path = self.folder / "upper" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a command inside; killing it is a power loss for everything inside."""
        enter = ["unshare", "-mpf", "--kill-child", "--propagation", "private", "bash", "-c", ENTER, "-", *command]
        environment = {
            "PATH": os.environ["PATH"],
            "BASE": str(self.base),
            "CASE": str(self.folder),
            "METADATA": self.metadata,
        }
        return subprocess.Popen(enter, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, *command: str, check: bool = False) -> tuple[int, str]:
        """Run a command inside to its end."""
        process = self.start(*command)
        output, _ = process.communicate(timeout=300)
        assert not check or process.returncode == 0, output
        return process.returncode, output

    def steps(self, *options: str) -> tuple[int, str]:
        """Run the bundle's steps."""
        return self.run(
            "python3", "/opt/gpuinfra/current/node.pyz", "steps", "--no-reboot", "--retry-pause-s", "0.1", *options
        )

    def reboot(self, kernel: str | None = None) -> None:
        """Restart modules and services that are enabled; the journal sees another boot, and grub's choice is the next kernel."""
        code, chosen = self.run("sed", "-n", 's/.*with Linux \\(.*\\)"$/\\1/p', f"/{GRUB}")
        if kernel or (code == 0 and chosen.strip()):
            self.write("etc/standin/kernel", kernel or chosen.strip())
        self.run("standin-boot", check=True)
        state = self.state
        for entry in state["steps"]:
            entry["boot_id"] = entry["boot_id"] and "00000000-0000-0000-0000-000000000000"
        self.write("var/lib/gpuinfra/state.json", json.dumps(state))

    def read(self, name: str) -> str:
        """Read a file of this machine."""
        return self.run("cat", f"/{name}", check=True)[1]

    @property
    def state(self) -> dict:
        """The journal."""
        return json.loads(self.read("var/lib/gpuinfra/state.json"))

    def final(self) -> str:
        """The final state of this machine for a golden file: packages, holds, files, services, proofs."""
        script = """
echo '# not wholly installed'; dpkg-query -W -f '${Status} ${Package} ${Version}\\n' | grep -vE '^(install|hold) ok installed' || true
echo '# packages'; dpkg-query -W -f '${Package} ${Version}\\n' | grep -E "$1"
echo '# holds'; apt-mark showhold
echo '# enabled'; sort /var/lib/standin/enabled
echo '# active'; sort /run/standin/active
echo '# modules'; sort /run/standin/modules
echo '# mounts'; sort /run/standin/mounts
for file in /etc/fstab $(find /etc -newer /etc/standin/disks -name '*gpuinfra*' -type f | sort) \
  $(find /etc/apt/sources.list.d /etc/apt/keyrings /etc/apt/preferences.d -type f | sort); do
  echo "# $file"; case $file in *.gpg) echo binary ;; *) cat "$file" ;; esac
done
"""
        names = "^(nvidia|libnvidia|cuda|libnccl|lustre|linux-|dkms|mdadm|xfsprogs|pciutils|datacenter|nvlsm|doca|mlnx|amlfs|kmod|nccl|dmabuf|docker)"
        output = self.run("bash", "-c", script, "-", names, check=True)[1]
        recorded = "".join(
            f"{key} {'A-BOOT' if key == 'driver_boot' else value}\n"
            for key, value in sorted(self.state["recorded"].items())
        )
        return f"{output}# recorded\n{recorded}"
