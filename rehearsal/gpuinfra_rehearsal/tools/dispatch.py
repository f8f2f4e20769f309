"""The module and function of each stand-in command. As in busybox, the name of the call selects the command."""

from __future__ import annotations

import sys

COMMANDS: dict[str, tuple[str, str]] = {
    "alertmanager": ("monitoring", "daemon"),
    "amazon-cloudwatch-agent-ctl": ("cloudwatch", "control"),
    "amtool": ("monitoring", "amtool"),
    "apparmor_parser": ("vendor", "apparmor_parser"),
    "apt": ("apt", "apt_get"),
    "apt-get": ("apt", "apt_get"),
    "apt-cache": ("apt", "apt_cache"),
    "apt-mark": ("apt", "apt_mark"),
    "azurehpc-sku-customizations": ("vendor_clouds", "sku_customizations"),
    "blkid": ("disks", "blkid"),
    "blobfuse2": ("buckets", "blobfuse2"),
    "cloud-init": ("cloudinit", "cloud_init"),
    "chown": ("accounts", "chown"),
    "containerd": ("vendor", "dockerd"),
    "ctr": ("vendor", "container"),
    "curl": ("web", "curl"),
    "date": ("passing", "date"),
    "dcgm-exporter": ("exporter", "daemon"),
    "dcgmi": ("vendor_clouds", "dcgmi"),
    "depmod": ("kernel", "nothing"),
    "df": ("mounts", "df"),
    "dkms": ("packages", "dkms"),
    "docker": ("vendor", "container"),
    "dockerd": ("vendor", "dockerd"),
    "dpkg": ("dpkg", "dpkg"),
    "dpkg-query": ("dpkg", "dpkg_query"),
    "efa-installer": ("vendor", "efa_installer"),
    "enroot": ("vendor", "enroot"),
    "enroot-nsenter": ("vendor", "enroot_nsenter"),
    "findmnt": ("mounts", "findmnt"),
    "gcsfuse": ("buckets", "gcsfuse"),
    "gpg": ("trust", "gpg"),
    "gpgconf": ("kernel", "nothing"),
    "insmod": ("kernel", "modprobe"),
    "ip": ("exporter", "ip"),
    "journalctl": ("machine", "journalctl"),
    "lctl": ("vendor", "lctl"),
    "ldconfig": ("machine", "ldconfig"),
    "lfs": ("vendor", "lfs"),
    "lnetctl": ("lnet", "lnetctl"),
    "logger": ("machine", "logger"),
    "lsblk": ("disks", "lsblk"),
    "lsmod": ("kernel", "lsmod"),
    "mdadm": ("disks", "mdadm"),
    "modinfo": ("kernel", "modinfo"),
    "modprobe": ("kernel", "modprobe"),
    "mokutil": ("kernel", "mokutil"),
    "mount": ("mounts", "mount"),
    "mount-s3": ("buckets", "mount_s3"),
    "mount.lustre": ("mounts", "mount"),
    "mountpoint": ("mounts", "mountpoint"),
    "needrestart": ("kernel", "nothing"),
    "nft": ("nft", "nft"),
    "nv-fabricmanager": ("vendor", "fabric_manager"),
    "nv-hostengine": ("vendor_clouds", "hostengine"),
    "nvidia-ctk": ("vendor", "nvidia_ctk"),
    "nvidia-fabricmanager-start.sh": ("vendor", "fabric_manager_start"),
    "nvidia-modprobe": ("vendor", "nvidia_modprobe"),
    "nvidia-persistenced": ("vendor", "persistenced"),
    "nvlsm": ("vendor", "nvlsm"),
    "ofed_info": ("vendor_clouds", "ofed_info"),
    "pgrep": ("machine", "pgrep"),
    "poweroff": ("systemctl", "shutdown"),
    "prometheus": ("monitoring", "daemon"),
    "prometheus-node-exporter": ("exporter", "node_exporter"),
    "promtool": ("monitoring", "promtool"),
    "reboot": ("systemctl", "reboot"),
    "resize2fs": ("kernel", "nothing"),
    "rmmod": ("kernel", "rmmod"),
    "runuser": ("vendor", "runuser"),
    "sha256sum": ("trust", "sha256sum"),
    "shutdown": ("systemctl", "shutdown"),
    "sysctl": ("machine", "sysctl"),
    "sshd": ("accounts", "sshd"),
    "start-amazon-cloudwatch-agent": ("cloudwatch", "daemon"),
    "stat": ("accounts", "stat"),
    "stunnel4": ("mounts", "stunnel"),
    "sudo": ("sudo", "sudo"),
    "systemctl": ("systemctl", "systemctl"),
    "systemd-analyze": ("kernel", "nothing"),
    "systemd-detect-virt": ("machine", "detect_virt"),
    "systemd-run": ("systemctl", "systemd_run"),
    "timedatectl": ("machine", "timedatectl"),
    "udevadm": ("kernel", "nothing"),
    "umount": ("mounts", "umount"),
    "uname": ("kernel", "uname"),
    "update-grub": ("kernel", "nothing"),
    "update-initramfs": ("kernel", "nothing"),
    "useradd": ("accounts", "useradd"),
    "usermod": ("accounts", "usermod"),
    "wget": ("web", "wget"),
    "xfs_info": ("kernel", "nothing"),
}


def main(argv: list[str]) -> int:
    """Run the command that `argv[0]` names. For `tool`, the next word names the command."""
    path = argv[0]
    name, rest = path.rpartition("/")[2], argv[1:]
    if name == "tool":
        name, rest = rest[0], rest[1:]
    try:
        if name == "nvcc":
            from .vendor import nvcc

            return nvcc(rest, path)
        if name.startswith("mkfs."):
            from .disks import mkfs

            return mkfs(rest, name[5:])
        if name in COMMANDS:
            module, function = COMMANDS[name]
            return getattr(__import__(f"{__package__}.{module}", fromlist=[function]), function)(rest)
        from . import device_tools

        if name in device_tools.TOOLS:
            return device_tools.run([name, *rest])
        sys.stderr.write(f"{name}: the stand-in has no such command\n")
        return 126
    except BrokenPipeError:
        import os

        os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
        return 141
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            import os

            os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
