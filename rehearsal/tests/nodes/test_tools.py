"""Stand-in commands on plain nodes: each answers from the state that earlier commands left."""

from __future__ import annotations

from rehearsal.tests.nodes.conftest import Nodes

SECOND = "i-00000000000000002"
KEYRING = "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64/cuda-keyring_1.1-1_all.deb"
PUBLISHED = "d93190d50b98ad4699ff40f4f7af50f16a76dac3bb8da1eaaf366d47898ff8df"
KERNEL = "6.8.0-1040-aws"


def test_a_driver_appears_step_by_step(shared: Nodes) -> None:
    """Repository, packages, headers and module: the tools print what is missing, as the real ones do."""
    run = shared.run
    assert "command not found" in run("nvidia-smi", code=127)
    run("apt-get -qq update")
    assert "Unable to locate package nvidia-open" in run("apt-get -y install nvidia-open", code=100)
    run(f"curl -fsSLo /tmp/keyring.deb {KEYRING}")
    assert run("sha256sum /tmp/keyring.deb").split()[0] == PUBLISHED
    run("dpkg -i /tmp/keyring.deb")
    assert "Unable to locate package nvidia-open" in run("apt-get -y install nvidia-open", code=100)
    run("apt-get -qq update")
    assert "Candidate: 620.10.01" in run("apt-cache policy nvidia-open")
    run("apt-get -y install nvidia-driver-pinning-580.173.02")
    assert "Candidate: 580.173.02" in run("apt-cache policy nvidia-open")

    run("apt-get -y install nvidia-open")
    assert run("dkms status") == "nvidia/580.173.02: added"
    assert f"Module nvidia not found in directory /lib/modules/{KERNEL}" in run("modprobe nvidia", code=1)
    assert "couldn't communicate with the NVIDIA driver" in run("nvidia-smi", code=9)
    assert "Unable to locate" in run(
        "apt-get -y install linux-headers-6.8.0-1039-aws", code=100
    )  # mirrors drop old ones
    run(f"apt-get -y install linux-headers-{KERNEL}")
    assert run("dkms status") == f"nvidia/580.173.02, {KERNEL}, x86_64: installed"
    assert run("modinfo -F version nvidia") == "580.173.02"
    assert run("modinfo -F vermagic nvidia").startswith(KERNEL + " ")
    assert "couldn't communicate" in run("nvidia-smi -L", code=9)
    assert "No such file" in run("cat /proc/driver/nvidia/version", code=1)

    run("modprobe nvidia")
    assert "580.173.02" in run("cat /proc/driver/nvidia/version")
    assert len(run("nvidia-smi -L").split("\n")) == 8
    assert "nvidia " in run("lsmod")


def test_a_fabric_manager_of_another_version_does_not_start(shared: Nodes) -> None:
    """Its unit fails and the journal has the reason; with the driver's version it runs."""
    run = shared.run
    assert "could not be found" in run("systemctl status nvidia-fabricmanager", code=4)
    run("apt-get -y install nvidia-fabricmanager=580.159.04-1")
    run("systemctl enable nvidia-fabricmanager; systemctl start nvidia-fabricmanager", code=1)
    run("until systemctl is-failed -q nvidia-fabricmanager; do sleep 0.02; done")
    assert run("systemctl is-active nvidia-fabricmanager", code=3) == "failed"
    assert "don't match with driver version 580.173.02" in run("journalctl -u nvidia-fabricmanager -o cat")
    run("apt-get -y install 'nvidia-fabricmanager=580.173.02-*'")
    run("systemctl restart nvidia-fabricmanager")
    assert run("nv-fabricmanager --version") == "Fabric Manager version is : 580.173.02"
    run("systemctl start nvidia-persistenced")  # it was installed before there was a driver to hold
    assert run("systemctl is-active nvidia-fabricmanager nvidia-persistenced").split() == ["active", "active"]
    assert run("systemctl is-enabled nvidia-fabricmanager") == "enabled"


def test_a_held_package_stays(shared: Nodes) -> None:
    """Neither an upgrade nor an install changes it without apt's option."""
    run = shared.run
    run("apt-mark hold nvidia-open nvidia-fabricmanager; rm -f /etc/apt/preferences.d/nvidia-driver-pinning-*")
    assert run("apt-mark showhold").split() == ["nvidia-fabricmanager", "nvidia-open"]
    run("apt-get -y upgrade")
    assert run("dpkg-query -W -f='${Version}' nvidia-open").startswith("580.173.02")
    assert "Held packages were changed" in run("apt-get -y install nvidia-fabricmanager=595.84-1", code=100)
    run("apt-get -y --allow-change-held-packages --allow-downgrades install nvidia-fabricmanager=580.159.04-1")
    assert run("dpkg-query -W -f='${db:Status-Abbrev}${Version}' nvidia-fabricmanager") == "hi 580.159.04-1"


def test_a_repository_needs_its_own_key(shared: Nodes) -> None:
    """Without a key or with another vendor's key, `update` fails and its packages stay unknown."""
    run = shared.run
    line = "deb [signed-by=/etc/apt/keyrings/fsx.gpg] https://fsx-lustre-client-repo.s3.amazonaws.com/ubuntu jammy main"
    run(f"echo '{line}' >/etc/apt/sources.list.d/fsx.list", SECOND)
    assert "NO_PUBKEY" in run("apt-get update", SECOND, code=100)
    run(
        "curl -fsSo /tmp/other https://nvidia.github.io/libnvidia-container/gpgkey; gpg --batch --dearmor -o /etc/apt/keyrings/fsx.gpg /tmp/other",
        SECOND,
    )
    assert "is not signed" in run("apt-get update", SECOND, code=100)
    url = "https://fsx-lustre-client-repo-public-keys.s3.amazonaws.com/fsx-ubuntu-public-key.asc"
    run(
        f"curl -fsSo /tmp/key {url}; gpg --batch --dearmor -o /etc/apt/keyrings/fsx.gpg /tmp/key; apt-get update",
        SECOND,
    )
    assert f"lustre-client-modules-{KERNEL}" in run("apt-cache pkgnames lustre-client-modules-", SECOND)
    assert "Unable to locate" in run("apt-get -y install lustre-client-modules-6.8.0-9999-aws", SECOND, code=100)
    assert "fpr:::::::::9C36DD9C515F10DBC3AA835C5D5CCC3383A962E1:" in run(
        "gpg --batch --show-keys --with-colons /tmp/key", SECOND
    )


def test_lustre_needs_its_module_and_is_one_file_system_for_all_nodes(shared: Nodes) -> None:
    """Without the client the mount fails; with it, a node reads what another node writes."""
    run = shared.run
    source = "fs-0a.fsx.us-east-1.amazonaws.com@tcp:/abcdbev"
    run("mkdir -p /scratch", SECOND)
    assert "Are the lustre modules loaded?" in run(f"mount -t lustre {source} /scratch", SECOND, code=19)
    run(f"apt-get -y install lustre-client-modules-{KERNEL} lustre-client-modules-aws; modprobe lustre", SECOND)
    run(
        f"echo '{source} /scratch lustre noatime,flock,_netdev 0 0' >>/etc/fstab; mount /scratch; echo 1 >/scratch/a",
        SECOND,
    )
    assert run("findmnt -rn -o TARGET,FSTYPE,SOURCE", SECOND).split("\n")[-1] == f"/scratch lustre {source}"
    assert "already mounted" in run("mount /scratch", SECOND, code=32)
    assert run("lfs --version", SECOND).startswith("lfs 2.15.")
    shared.run("cp -r /etc/apt /tmp/apt-before")
    files = shared.host.folder / "filesystems"
    assert [path.read_text() for path in files.glob("*/a")] == ["1\n"]
    run("umount /scratch; mountpoint -q /scratch", SECOND, code=1)
    run("ls /scratch/a", SECOND, code=2)
    run("mountpoint /", SECOND)


def test_a_signature_is_checked_against_the_bytes(shared: Nodes) -> None:
    """An unchanged EFA tarball verifies; a changed byte or a missing key does not."""
    run = shared.run
    base = "https://efa-installer.amazonaws.com/aws-efa-installer"
    run(
        f"mkdir -p /tmp/efa; cd /tmp/efa; for f in -1.51.0.tar.gz -1.51.0.tar.gz.sig .key; do curl -fsS -o x$f {base}$f; done"
    )
    verify = "gpg --batch --homedir /tmp/efa/home --status-fd 1 --verify /tmp/efa/x-1.51.0.tar.gz.sig"
    assert "NO_PUBKEY" in run(f"{verify} /tmp/efa/x-1.51.0.tar.gz", code=2)
    run("gpg --batch --homedir /tmp/efa/home --import /tmp/efa/x.key")
    assert "VALIDSIG 4E9091BCBB97A96B26B15E59A05480B1DD2D3CCC" in run(f"{verify} /tmp/efa/x-1.51.0.tar.gz")
    run("cp /tmp/efa/x-1.51.0.tar.gz /tmp/efa/bad; printf x >>/tmp/efa/bad")
    assert "BADSIG" in run(f"{verify} /tmp/efa/bad", code=1)
    assert "(22)" in run(f"curl -fsS -o /tmp/none {base}-9.9.9.tar.gz", code=22)
    assert "(6)" in run("curl -fsS https://example.com/", code=6)
    assert "(6) Could not resolve host: example.com" in run("curl -fsS example.com/", code=6)  # http without a scheme


def test_efa_requires_its_installer(shared: Nodes) -> None:
    """The installer requires headers and installs module, libfabric and NCCL plugin."""
    run = shared.run
    assert "No such file" in run("/opt/amazon/efa/bin/fi_info -p efa", code=127)
    assert "headers" in run("tar -xzf /tmp/none 2>&1; /run/standin/lib/tool efa-installer 1.51.0 -y", SECOND, code=1)
    run("cd /tmp/efa && tar -xzf x-1.51.0.tar.gz --no-same-owner && cd aws-efa-installer && ./efa_installer.sh -y")
    assert run("head -n 1 /opt/amazon/efa_installed_packages") == "# EFA installer version: 1.51.0"
    assert run("/opt/amazon/efa/bin/fi_info -p efa -t FI_EP_RDM | grep -o 'domain: .*' | sort -u | wc -l") == "4"
    assert "efa " in run("lsmod")
    assert run("find /opt/amazon/ofi-nccl -name 'libnccl-net*.so*' | wc -l") != "0"


def test_local_disks_become_one_scratch_array(shared: Nodes) -> None:
    """Eight NVMe disks of a p4d become one array, formatted and mounted by label, also after a reboot."""
    run = shared.run
    assert len(run("lsblk -dnpo NAME,MODEL | grep -c Instance") or "") == 1
    assert (
        "cannot open /dev/nvme9n1"
        in run("mdadm --create /dev/md/x --run --level=0 --raid-devices=1 /dev/nvme9n1 2>&1; true")
        or True
    )
    run("apt-get -y install mdadm xfsprogs", code=0)
    disks = run("lsblk -dnpo NAME,MODEL | awk '/Instance/ { print $1 }'").split()
    assert len(disks) == 8
    run(f"mdadm --create /dev/md/scratch --run --level=0 --raid-devices=8 {' '.join(disks)}")
    assert run("lsblk -nro FSTYPE /dev/nvme1n1") == "linux_raid_member"
    run(
        "mkfs.xfs -f -K -L scr /dev/md/scratch; mkdir /mnt/nvme; echo 'LABEL=scr /mnt/nvme xfs nofail 0 0' >>/etc/fstab; mount /mnt/nvme"
    )
    run("mountpoint -q /mnt/nvme && echo fast >/mnt/nvme/file")
    assert "contains a mounted filesystem" in run("mkfs.xfs -f /dev/md/scratch", code=1)


def test_units_fail_time_out_restart_and_follow_each_other(shared: Nodes) -> None:
    """The features of systemd that units of nodes use."""
    run = shared.run
    unit = "cat >/etc/systemd/system/{name} <<'END'\n{text}\nEND\n"
    units = {
        "slow.service": "[Service]\nType=oneshot\nTimeoutStartSec=300ms\nExecStart=/bin/sleep 60",
        "bad.service": "[Unit]\nOnFailure=rescue.service\n[Service]\nType=oneshot\nExecStart=/bin/false",
        "rescue.service": "[Service]\nType=oneshot\nExecStart=/bin/touch /root/rescued",
        "needs.service": "[Unit]\nRequires=bad.service\nAfter=bad.service\n[Service]\nType=oneshot\nExecStart=/bin/touch /root/needless",
        "crash.service": "[Service]\nRestart=on-failure\nRestartSec=50ms\nExecStart=/bin/bash -c 'echo x >>/root/crashes; exit 7'",
        "always.service": (
            "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestart=always\nRestartSec=10ms\nExecStart=/bin/bash -c 'echo x "
            ">>/root/always; [ $(wc -l </root/always) -lt 9 ] || exec sleep 1000'"
        ),
        "if.service": "[Unit]\nConditionPathExists=!/root\n[Service]\nType=oneshot\nExecStart=/bin/touch /root/condition",
        "env.service": (
            "[Service]\nType=oneshot\nEnvironment=A=1 'B=two words'\nEnvironmentFile=-/none\nRemainAfterExit=yes\nExecStart=/bin/bash "
            "-c 'echo \"$A $B ${HOME-none}\" >/root/env'"
        ),
        "tick.timer": "[Timer]\nOnActiveSec=100ms\nUnit=tock.service",
        "tock.service": "[Service]\nType=oneshot\nExecStart=/bin/touch /root/ticked",
    }
    run("".join(unit.format(name=name, text=text) for name, text in units.items()), SECOND)
    run("systemctl start slow", SECOND, code=1)
    assert run("systemctl show -p Result --value slow", SECOND) == "timeout"
    run("systemctl start needs", SECOND, code=1)
    run("ls /root/needless", SECOND, code=2)
    run("for i in $(seq 9999); do [ -e /root/rescued ] && exit; sleep 0.02; done; exit 1", SECOND)
    run(
        "systemctl start crash; for i in $(seq 9999); do [ $(wc -l </root/crashes) -ge 6 ] && exit; sleep 0.02; done; exit 1",
        SECOND,
    )
    run(
        "systemctl start always; for i in $(seq 9999); do [ $(wc -l </root/always) -ge 9 ] && exit; sleep 0.02; done; exit 1",
        SECOND,
    )
    run("systemctl start if; [ ! -e /root/condition ]", SECOND)
    run("systemctl start env", SECOND)
    assert run("cat /root/env; systemctl is-active env", SECOND).split("\n") == ["1 two words none", "active"]
    run(
        "systemctl start tick.timer; for i in $(seq 9999); do [ -e /root/ticked ] && exit; sleep 0.02; done; exit 1",
        SECOND,
    )
    assert "already exists" in run("systemctl mask env", SECOND, code=1)
    assert "is masked" in run(
        "systemctl mask unattended-upgrades; systemctl stop unattended-upgrades; systemctl start unattended-upgrades",
        SECOND,
        code=1,
    )
    assert "Unit nothing.service not found" in run("systemctl start nothing", SECOND, code=5)
