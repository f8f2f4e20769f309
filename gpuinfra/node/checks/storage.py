"""L: shared file systems - Lustre client and mounts, home directories, Lustre over EFA, mounted buckets."""

from __future__ import annotations

import re
from typing import Any, Mapping

from ..answer import Answers
from ..expectation import Machine
from ..outcome import CheckOutcome, Phase, Severity, Unreadable, failed, passed, shortened, skipped
from ..probes import BUCKETS
from .base import Check, judged, result_of
from .conditions import buckets, homes, lustre, lustre_over_efa


def network_mounts(answers: Answers) -> dict[str, tuple[str, str | None]]:
    """Return mount point -> (kind, problem), as measured by the node program. The problem is None if the mount responds."""
    mounts = {}
    for mount in _mounts(answers):
        texts = [mount.get(name) for name in ("mount", "kind")] if isinstance(mount, dict) else [None]
        if not all(isinstance(text, str) for text in texts) or not isinstance(
            mount.get("problem", 0), (str, type(None))
        ):
            raise Unreadable("the list of mounts contains an invalid entry")
        mounts[mount["mount"]] = (mount["kind"], mount["problem"])
    return mounts


def _mounts(answers: Answers) -> list[Any]:
    return list(result_of(answers, "mounts", "gpuinfra.mounts/1", "the list of mounts", "mounts")["mounts"])


def mount_problems(
    wanted: list[str], found: Mapping[str, tuple[str, str | None]], kinds: tuple[str, ...]
) -> dict[str, str]:
    """Return the problem of each expected mount that has one."""
    wrong = {}
    for mount in wanted:
        kind, problem = found.get(mount, ("", None))
        if kind not in kinds:
            wrong[mount] = "%s is %s" % (mount, "mounted as %s" % shortened(kind, 20) if kind else "not mounted")
        elif problem is not None:
            wrong[mount] = "%s: %s" % (mount, shortened(problem, 100))
    return wrong


class LustreMounts(Check):
    """The Lustre module matches the running kernel, and every Lustre file system in the pool is mounted and responds."""

    id, name = "L1", "lustre_mounts"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    is_installation = True
    when = (lustre,)
    probes = ("lustre-module", "uname", "mounts")
    hint = (
        "rerun the Lustre step, because the client must be built for exactly the running kernel; then mount the "
        "file system and read dmesg"
    )
    source = (
        "microsoft/amlFilesystem-lustre: AMLFS_2.17.0; aws/aws-parallelcluster-cookbook: resources/lustre; "
        "GoogleCloudPlatform/cluster-toolkit: modules/file-system/managed-lustre/scripts/install-managed-lustre-client.sh"
    )

    def parse(self, answers: Answers, machine: Machine) -> tuple[str, str, dict[str, tuple[str, str | None]]]:
        built_for = " ".join(answers.text("lustre-module").split()[:1])
        return answers.text("uname").strip(), built_for, network_mounts(answers)

    def judge(self, found: tuple[str, str, dict[str, tuple[str, str | None]]], machine: Machine) -> CheckOutcome:
        wanted = [str(mount) for mount in machine.file_systems]
        if not wanted:
            return skipped("the pool has no shared file system")
        kernel, built_for, mounts = found
        missing = mount_problems(wanted, mounts, ("lustre",))
        wrong = list(missing.values())
        if built_for != kernel:
            why = "the Lustre module is built for %s, but the kernel is %s" % (built_for or "nothing", kernel)
            wrong.insert(0, why)
        return judged([mount for mount in wanted if mount not in missing], wanted, wrong)


class HomeMounts(Check):
    """Every home directory in the pool is mounted over NFS and responds."""

    id, name = "L2", "home_mounts"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    is_installation = True
    when = (homes,)
    probes = ("mounts",)
    hint = (
        "mount the directory (for example, mount /home) and read the error message; the server's address is in node.json; "
        "if /etc/fstab contains 127.0.0.1, also run systemctl status gpuinfra-home-tls"
    )
    source = "the home directories that the pool declares"

    def parse(self, answers: Answers, machine: Machine) -> dict[str, tuple[str, str | None]]:
        return network_mounts(answers)

    def judge(self, found: dict[str, tuple[str, str | None]], machine: Machine) -> CheckOutcome:
        wanted = [str(mount) for mount in machine.homes]
        if not wanted:
            return skipped("the pool has no home directories")
        wrong = mount_problems(wanted, found, ("nfs", "nfs4"))
        return judged([mount for mount in wanted if mount not in wrong], wanted, list(wrong.values()))


class MountedBuckets(Check):
    """Every bucket in the pool is mounted and responds to a lookup. If the declaration lets nodes write, the bucket accepts, returns and deletes an object."""

    id, name = "L4", "mounted_buckets"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    is_installation = True
    when = (buckets,)
    probes = ("mounts",)
    hint = (
        "run systemctl status 'gpuinfra-bucket-*' and journalctl -u for the mount's unit; if the cloud denies access, compare "
        "the permissions of the nodes' identity on the bucket with the plan; "
        "then run systemctl restart for the unit, which closes all files that jobs have open in the bucket"
    )
    source = (
        "GoogleCloudPlatform/gcsfuse v3.11.2: docs/troubleshooting.md (missing permissions), docs/semantics.md, cmd/mount.go "
        "(file system name and type); awslabs/mountpoint-s3 v1.23.0: doc/SEMANTICS.md, doc/TROUBLESHOOTING.md, "
        "mountpoint-s3-fs/src/fuse/config.rs (name and type); Azure/azure-storage-fuse commit 74098e3: "
        "component/libfuse/libfuse_handler.go (name), retrieved 2026-11-22 and 2026-11-23"
    )

    def parse(self, answers: Answers, machine: Machine) -> dict[str, tuple[str, str | None, bool]]:
        states = {}
        modes = {one["mount"]: one.get("read_only") for one in _mounts(answers) if isinstance(one, dict)}
        for mount, (kind, problem) in network_mounts(answers).items():
            read_only = modes[mount]
            if not isinstance(read_only, bool):
                raise Unreadable("the list of mounts does not show whether %s is read-only" % shortened(mount, 80))
            states[mount] = (kind, problem, read_only)
        return states

    def judge(self, found: dict[str, tuple[str, str | None, bool]], machine: Machine) -> CheckOutcome:
        wanted = {str(one["mount"]): bool(one["read_only"]) for one in machine.buckets}
        if not wanted:
            return skipped("the pool mounts no buckets")
        wrong = mount_problems(
            list(wanted), {mount: (kind, problem) for mount, (kind, problem, _) in found.items()}, BUCKETS
        )
        for mount, read_only in wanted.items():
            if mount not in wrong and found[mount][2] != read_only:
                wrong[mount] = "%s is mounted %s" % (mount, "writable" if read_only else "read-only")
        return judged([mount for mount in wanted if mount not in wrong], list(wanted), list(wrong.values()))


class LustreOverEfa(Check):
    """Lustre's network (LNet) uses the planned number of EFA devices and receives messages over them.

    If a security group rule is missing, Lustre silently falls back to TCP, at a tenth of the speed.
    """

    id, name = "L3", "lustre_over_efa"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    is_installation = True
    when = (lustre_over_efa,)
    probes = ("lnet",)
    hint = (
        "compare the output of lnetctl net show -v with that of a healthy node; the security groups of the nodes and the file system must allow all "
        "traffic in both directions, and each must reference the other by its ID; then run systemctl restart gpuinfra-lnet and mount the file system again"
    )
    source = (
        "AWS: EFA with FSx for Lustre, https://docs.aws.amazon.com/fsx/latest/LustreGuide/efa-file-systems.html; "
        "security groups, https://docs.aws.amazon.com/fsx/latest/LustreGuide/limit-access-security-groups.html, retrieved 2026-08; "
        "public measurement: 34 GB/s, 2 GB/s without the egress rule"
    )

    def parse(self, answers: Answers, machine: Machine) -> tuple[list[str], int]:
        """Return the EFA addresses that are up and the number of messages received over them."""
        up: list[str] = []
        received, net, address = 0, None, None
        lines = answers.lines("lnet")
        if not lines or lines[0].strip() != "net:":
            raise Unreadable("lnetctl printed no network list")
        for line in lines[1:]:
            match = re.match(r"^\s*(?:- )?(net type|nid|status|recv_count): (\S+)\s*$", line)
            if match is None:
                if not re.match(r"^[\w() \t.\[\],-]+:(?: .*)?$", line):
                    raise Unreadable("cannot parse a line of lnetctl: %s" % shortened(line, 80))
                continue
            field, value = match.groups()
            if field == "net type":
                net, address = value, None
            elif field == "nid":
                address = value
            elif net == "efa" and address is not None:
                if field == "status" and value == "up":
                    up.append(address)
                elif field == "recv_count":
                    if not re.match(r"^\d{1,20}$", value):
                        raise Unreadable("lnetctl printed an invalid message count: %s" % shortened(value, 40))
                    received += int(value)
        return up, received

    def judge(self, found: tuple[list[str], int], machine: Machine) -> CheckOutcome:
        up, received = found
        wanted = machine.lnet_efa
        if len(set(up)) < wanted:
            return failed(
                len(set(up)), wanted, "%d of %d EFA devices are up in LNet" % (len(set(up)), wanted), "devices"
            )
        if received == 0:
            return failed(0, wanted, "no messages were received over EFA, so Lustre uses TCP", "devices with traffic")
        return passed(len(set(up)), wanted, "devices")
