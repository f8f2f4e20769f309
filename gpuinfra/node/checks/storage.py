"""L: shared file systems - Lustre's client and mounts, home directories, and Lustre's way over EFA."""

from __future__ import annotations

import json
import re
from typing import Mapping

from ..answer import Answers
from ..expectation import Machine
from ..words import Outcome, Phase, Severity, Unreadable, failed, passed, shortened, skipped
from .base import Check, listed


def network_mounts(answers: Answers) -> dict[str, tuple[str, str | None]]:
    """Mount point -> kind and what is wrong with it (None: it answers), from the node part's own asking."""
    try:
        said = json.loads(answers.text("mounts"))
    except (ValueError, RecursionError):
        raise Unreadable("the list of mounts is no JSON") from None
    listed_ = said.get("mounts") if isinstance(said, dict) and said.get("schema") == "gpuinfra.mounts/1" else None
    if not isinstance(listed_, list):
        raise Unreadable("the list of mounts is of another format")
    found = {}
    for one in listed_:
        texts = [one.get(name) for name in ("mount", "kind")] if isinstance(one, dict) else [None]
        if not all(isinstance(text, str) for text in texts) or not isinstance(one.get("problem", 0), (str, type(None))):
            raise Unreadable("the list of mounts holds something that is no mount")
        found[one["mount"]] = (one["kind"], one["problem"])
    return found


def mounted(wanted: list[str], found: Mapping[str, tuple[str, str | None]], kinds: tuple[str, ...]) -> list[str]:
    """What is wrong with the mounts that should be there."""
    wrong = []
    for mount in wanted:
        kind, problem = found.get(mount, ("", None))
        if kind not in kinds:
            wrong.append("%s is %s" % (mount, "mounted as %s" % shortened(kind, 20) if kind else "not mounted"))
        elif problem is not None:
            wrong.append("%s: %s" % (mount, shortened(problem, 100)))
    return wrong


class LustreMounts(Check):
    """The Lustre module fits the running kernel, and every Lustre file system of the pool is mounted and answers."""

    id, name = "L1", "lustre_mounts"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    probes = ("lustre-module", "uname", "mounts")
    hint = (
        "rerun the Lustre step: the client must be built for exactly the running kernel; then mount the file "
        "system and look at dmesg"
    )

    def parse(self, answers: Answers, machine: Machine) -> tuple[str, str, dict[str, tuple[str, str | None]]]:
        built_for = " ".join(answers.text("lustre-module").split()[:1])
        return answers.text("uname").strip(), built_for, network_mounts(answers)

    def judge(self, found: tuple[str, str, dict[str, tuple[str, str | None]]], machine: Machine) -> Outcome:
        wanted = [str(mount) for mount in machine.need("file_systems", list)]
        if not wanted:
            return skipped("the pool has no shared file system")
        kernel, built_for, mounts = found
        wrong = mounted(wanted, mounts, ("lustre",))
        if built_for != kernel:
            wrong.insert(0, "the Lustre module is built for %s, the kernel is %s" % (built_for or "nothing", kernel))
        there = [mount for mount in wanted if not mounted([mount], mounts, ("lustre",))]
        return failed(there, wanted, listed(wrong)) if wrong else passed(there, wanted)


class HomeMounts(Check):
    """Every home directory of the pool is mounted by NFS and answers."""

    id, name = "L2", "home_mounts"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    probes = ("mounts",)
    hint = "mount it (mount /home) and read what mount says; the server's address is in /etc/fstab and node.json"

    def parse(self, answers: Answers, machine: Machine) -> dict[str, tuple[str, str | None]]:
        return network_mounts(answers)

    def judge(self, found: dict[str, tuple[str, str | None]], machine: Machine) -> Outcome:
        wanted = [str(mount) for mount in machine.get("homes", [])]
        if not wanted:
            return skipped("the pool has no home directories")
        wrong = mounted(wanted, found, ("nfs", "nfs4"))
        there = [mount for mount in wanted if not mounted([mount], found, ("nfs", "nfs4"))]
        return failed(there, wanted, listed(wrong)) if wrong else passed(there, wanted)


class LustreOverEfa(Check):
    """Lustre's network uses as many EFA devices as planned, and answers come in over them.

    Where a rule of a security group is missing, Lustre falls back to TCP without a word, at a tenth of the speed.
    """

    id, name = "L3", "lustre_over_efa"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    probes = ("lnet",)
    hint = (
        "compare lnetctl net show -v with a healthy node; the security groups of nodes and file system have to let all "
        "traffic in and out, each naming the other by its id; then systemctl restart gpuinfra-lnet and mount again"
    )
    source = "fact sheet on AWS, 3.1 and 3.2: EFA to FSx, and the silent fallback of a missing egress rule"

    def parse(self, answers: Answers, machine: Machine) -> tuple[list[str], int]:
        """Addresses on EFA that are up, and messages that came in over them."""
        up: list[str] = []
        received, net, address = 0, None, None
        lines = answers.lines("lnet")
        if not lines or lines[0].strip() != "net:":
            raise Unreadable("lnetctl printed no list of networks")
        for line in lines[1:]:
            found = re.match(r"^\s*(?:- )?(net type|nid|status|recv_count): (\S+)\s*$", line)
            if found is None:
                if not re.match(r"^\s*(?:- )?[\w() .\[\],-]+:(?: .*)?$", line):
                    raise Unreadable("lnetctl printed a line that is no field: %s" % shortened(line, 80))
                continue
            field, value = found.groups()
            if field == "net type":
                net, address = value, None
            elif field == "nid":
                address = value
            elif net == "efa" and address is not None:
                if field == "status" and value == "up":
                    up.append(address)
                elif field == "recv_count":
                    if not re.match(r"^\d{1,20}$", value):
                        raise Unreadable("lnetctl counts messages as %s" % shortened(value, 40))
                    received += int(value)
        return up, received

    def judge(self, found: tuple[list[str], int], machine: Machine) -> Outcome:
        up, received = found
        wanted = machine.need("lnet_efa", int)
        if len(set(up)) < wanted:
            return failed(
                len(set(up)), wanted, "%d of %d EFA devices are up in LNet" % (len(set(up)), wanted), "devices"
            )
        if received == 0:
            return failed(0, wanted, "nothing came in over EFA: Lustre goes over TCP", "devices with traffic")
        return passed(len(set(up)), wanted, "devices")


CHECKS = (LustreMounts, HomeMounts, LustreOverEfa)
