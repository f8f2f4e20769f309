"""2,800 different faults of eight-GPU nodes of three clouds; each must fail at least one check.

The generator makes only faults by definition of the checks' fields; each kind lists what it changes.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest

from gpuinfra.node import nvsmi
from gpuinfra.node.judge import judge, verdict
from gpuinfra.node.states import NO_TEXT, STATES
from gpuinfra.node.xids import XIDS
from tests.node.healthy import (
    AZURE,
    AZURE_A100,
    GOOGLE,
    GOOGLE_B200,
    GOOGLE_RDMA,
    H100,
    JOURNAL,
    MIG,
    P4D,
    healthy,
    machine,
)
from tests.plan.pools import REGIONS, machines

FAULTS = 2800
MACHINES = (P4D, H100, AZURE, AZURE_A100, GOOGLE, GOOGLE_RDMA, GOOGLE_B200, MIG)
TOKENS = (
    "[Unknown Error]",
    "[GPU is lost]",
    "[GPU requires reset]",
    "[Insufficient Permissions]",
    "Unknown Error",
    "ERR!",
)
BAD = {
    "driver_version": ("580.95.05", "", "N/A", "5"),
    "name": ("NVIDIA A100-SXM4-80GB", "NVIDIA Graphics Device", "", "N/A"),
    "memory.total": ("20480 MiB", "0 MiB", "[N/A]", "many"),
    "pcie.link.width.current": ("8", "4", "1", "[N/A]", "0"),
    "pcie.link.width.max": ("8", "[N/A]"),
    "pcie.link.gen.max": ("3", "1", "[N/A]", "6"),
    "ecc.mode.current": ("Disabled", "[N/A]", "On"),
    "ecc.mode.pending": ("Disabled", "[N/A]"),
    "ecc.errors.uncorrected.volatile.total": ("1", "4000000000", "[N/A]", "-1", "x"),
    "ecc.errors.uncorrected.aggregate.sram": ("1", "12", "[N/A]"),
    "remapped_rows.pending": ("Yes", "[N/A]", "Maybe", "1"),
    "remapped_rows.failure": ("Yes", "[N/A]"),
    "clocks_event_reasons.active": (
        "0x0000000000000008",
        "0x0000000000000040",
        "0x00000000000000C8",
        "[N/A]",
        "8",
        "0x0000000000000020",
    ),
    "temperature.gpu": ("85", "120", "0", "-3", "[N/A]", "hot"),
    "temperature.memory": ("95", "0", "150"),
    "power.limit": ("100.00 W", "[N/A]"),
    "gpu_recovery_action": ("Reset", "Reboot", "Drain P2P", "Drain and Reset", "[N/A]", "Something New"),
    "inforom.checksum_validation": ("invalid", "[N/A]", ""),
    "mig.mode.current": ("Enabled", "Half"),
    "mig.mode.pending": ("Enabled",),
}

Node = dict[str, Any]


class NoPart(Exception):
    """The machine does not have the part that the fault needs."""


def _choice(rng: random.Random, ways: list[Any]) -> Any:
    if not ways:
        raise NoPart
    return rng.choice(ways)


def _lines(one: Node, probe: str) -> list[str]:
    return one["probes"][probe]["stdout"].splitlines()


def _write(one: Node, probe: str, lines: list[str]) -> None:
    one["probes"][probe]["stdout"] = "\n".join(lines) + "\n"


def bad_cell(rng: random.Random, one: Node) -> str:
    """One judged cell of one GPU has a value that no healthy GPU reports."""
    if not one["expectation"]["gpus"]:
        raise NoPart
    cut = one["expectation"].get("mig", False)  # rows of a cut GPU are absent, and its mode is on
    return _cell(
        rng, one, rng.choice(sorted(name for name in BAD if not (cut and name.startswith(("mig", "remapped"))))), None
    )


def error_token(rng: random.Random, one: Node) -> str:
    """Any cell of one GPU contains an error token."""
    if not one["expectation"]["gpus"]:
        raise NoPart
    header = [re.sub(r" \[.*", "", name) for name in _lines(one, "nvidia-smi-csv")[0].split(", ")]
    return _cell(rng, one, rng.choice([name for name in header if name != "name"]), rng.choice(TOKENS))


def _cell(rng: random.Random, one: Node, column: str, value: str | None) -> str:
    lines = _lines(one, "nvidia-smi-csv")
    header = [re.sub(r" \[.*", "", name) for name in lines[0].split(", ")]
    row = rng.randrange(1, one["expectation"]["gpus"] + 1)
    cells = lines[row].split(", ")
    right = cells[header.index(column)]
    lanes = str(one["expectation"]["pcie_width"])  # a narrow slot is right on a machine that is sold with it
    fitting = (right, lanes) if column.startswith("pcie.link.width") else (right,)
    cells[header.index(column)] = value or rng.choice([bad for bad in BAD.get(column, ()) if bad not in fitting])
    lines[row] = ", ".join(cells)
    _write(one, "nvidia-smi-csv", lines)
    return f"{column} of GPU {row - 1} = {cells[header.index(column)]!r}"


def lost_line(rng: random.Random, one: Node) -> str:
    """The line of a device is missing."""
    known = [
        "nvidia-smi-csv",
        "nvidia-smi-list",
        "nvlink-status",
        "nvlink-errors",
        "lspci",
        "cdi",
        "topology",
        "modules",
        "efa",
        "gvnics",
    ]
    probe = _choice(rng, [name for name in known if name in one["probes"]])
    lines = _lines(one, probe)
    wanted = {
        "nvidia-smi-csv": r"^\d", "nvidia-smi-list": "^GPU", "nvlink-status": "Link", "nvlink-errors": "^GPU", "lspci": "controller",
        "cdi": ".", "topology": r"^GPU\d", "modules": "^nvidia", "efa": "provider: efa", "gvnics": "1ae0",
    }[probe]  # fmt: skip
    at = rng.choice([at for at, line in enumerate(lines) if re.search(wanted, line)])
    if probe == "efa":  # a device is all its lines
        device = lines[at + 2]
        blocks = [lines[start : start + 6] for start in range(0, len(lines), 6)]
        lines = [line for block in blocks if block[2] != device for line in block]
    elif probe == "modules":
        lines = [line for line in lines if not re.match(r"^(nvidia|nvidia_uvm)\s", line)]
    elif probe == "nvlink-errors":
        end = next((end for end in range(at + 1, len(lines)) if lines[end].startswith("GPU")), len(lines))
        del lines[at:end]
    else:
        del lines[at]
    _write(one, probe, lines)
    return f"line {at} of {probe}"


def doubled_line(rng: random.Random, one: Node) -> str:
    """A GPU is listed twice."""
    probe = _choice(rng, [name for name in ("nvidia-smi-csv", "nvidia-smi-list", "lspci") if name in one["probes"]])
    lines = _lines(one, probe)
    at = rng.choice([at for at, line in enumerate(lines) if re.search(r"^GPU|^\d+, |controller", line)])
    lines.insert(at, lines[at])
    _write(one, probe, lines)
    return f"line {at} of {probe}"


def broken_state(rng: random.Random, one: Node) -> str:
    """One call of nvidia-smi reports a known broken state, or exits with its code."""
    state = rng.choice([state for state in STATES if state.pattern != NO_TEXT])
    smi = [name for name in sorted(one["probes"]) if one["probes"][name]["argv"][0] == "nvidia-smi"]
    probe = _choice(rng, smi)
    text = re.sub(r"\(\?:([^|)]*)[^)]*\)|\\|\^|\$", lambda m: m.group(1) or "", state.pattern.split("|")[0])
    one["probes"][probe].update(stdout=text + "\n", exit=rng.choice([0, 1, state.exit or 255, 255]))
    return f"{probe}: {text}"


def bad_exit(rng: random.Random, one: Node) -> str:
    """A command fails without output. No check judges the notices of the cloud."""
    probe = rng.choice(
        sorted(name for name in one["probes"] if name not in ("secure-boot", "module-signer", "notices"))
    )
    one["probes"][probe].update(stdout="", exit=rng.choice((1, 2, 126, 127, 139, 255)))
    return probe


def no_answer(rng: random.Random, one: Node) -> str:
    """A probe is missing, truncated or timed out."""
    probe = rng.choice(sorted(name for name in one["probes"] if name not in ("module-signer", "notices")))
    how = rng.choice(("missing", "truncated", "timed out"))
    if how == "missing":
        del one["probes"][probe]
    elif how == "truncated":
        one["probes"][probe]["truncated"] = True
    else:
        one["probes"][probe].update(problem="timed out after 60 s", exit=124)
    return f"{probe} {how}"


def xml_fault(rng: random.Random, one: Node) -> str:
    """The XML lacks a GPU or its end, or contains an error token."""
    if "nvidia-smi-xml" not in one["probes"]:
        raise NoPart
    gpus = one["expectation"]["gpus"]
    text = one["probes"]["nvidia-smi-xml"]["stdout"]
    how = rng.choice(("gpu", "cut", "token", "count"))
    if how == "gpu":
        gone = rng.choice(list(re.finditer(r"\t<gpu id=.*?</gpu>\n", text, re.DOTALL)))
        text = text[: gone.start()] + text[gone.end() :]
    elif how == "cut":
        text = text[: rng.randrange(10, len(text) - 20)]
    elif how == "count":
        wrong = rng.choice([count for count in (0, 1, 4, 7, gpus + 1) if count != gpus])
        text = text.replace(f"<attached_gpus>{gpus}<", f"<attached_gpus>{wrong}<")
    else:
        # The instance of a process, the time and the version of CUDA are not about the health of a GPU.
        leaves = list(
            re.finditer(
                r"<(?!product_name|value|supported|timestamp|cuda_version|(?:gpu|compute)_instance_id)(\w+)>([^<>\n]+)</\1>",
                text,
            )
        )
        leaf = rng.choice(leaves)
        how = f"token in {leaf.group(1)}"
        text = (
            text[: leaf.start(2)]
            + rng.choice(("Unknown Error", "GPU is lost", "[GPU requires reset]"))
            + text[leaf.end(2) :]
        )
    one["probes"]["nvidia-smi-xml"]["stdout"] = text
    return how


def link_fault(rng: random.Random, one: Node) -> str:
    """An NVLink is down, slow or counts errors, or a pair of GPUs is connected differently."""
    if "nvlink-status" not in one["probes"]:  # a GPU that is cut shows no links
        raise NoPart
    # Only machines with NVSwitch connect all pairs in the same way.
    how = rng.choice(("down", "slow", "errors", *(("pair",) if "topology" in one["probes"] else ())))
    probe = {"down": "nvlink-status", "slow": "nvlink-status", "errors": "nvlink-errors", "pair": "topology"}[how]
    lines = _lines(one, probe)
    if how == "pair":
        at = rng.choice([at for at, line in enumerate(lines) if re.match(r"^GPU\d", line)])
        other = rng.choice([cell for cell in range(1, one["expectation"]["gpus"] + 1) if cell != at])
        cells = lines[at].split("\t")
        mirror = lines[other].split("\t")
        other_ways = [way for way in ("SYS", "NODE", "PHB", "PIX", "NV4", "NV11") if way != cells[other].strip()]
        cells[other] = mirror[at] = rng.choice(other_ways)
        lines[at], lines[other] = "\t".join(cells), "\t".join(mirror)
    else:
        at = rng.choice(
            [at for at, line in enumerate(lines) if re.search(r"Link.*GB/s|Link.*: [A-Z][A-Za-z ]+ Errors: 0", line)]
        )
        value = {"down": "<inactive>", "slow": f"{rng.uniform(0, 20):.3f} GB/s"}.get(how)
        lines[at] = re.sub(r": [^:]*$", f": {value or rng.randrange(1, 10**6)}", lines[at])
    _write(one, probe, lines)
    return f"{how}: {lines[at].strip()[:60]}"


def kernel_fault(rng: random.Random, one: Node) -> str:
    """The kernel log contains a relevant or unknown Xid or a fatal SXid, or is missing."""
    serious = [number for number, entry in XIDS.items() if entry.severity != "log" and number != 154]
    unknown = [number for number in range(1, 400) if number not in XIDS]
    switch = f"nvidia-nvswitch{rng.randrange(6)}: SXid (PCI:0000:c0:18.0): {rng.randrange(10000, 30000)}, Fatal, Link {rng.randrange(36)} error"
    line = rng.choice(
        (
            f"NVRM: Xid (PCI:0000:{rng.randrange(256):02x}:00): {rng.choice(serious)}, pid={rng.randrange(9999)}, name=x, text",
            f"NVRM: Xid (PCI:0000:{rng.randrange(256):02x}:00): {rng.choice(unknown)}, pid='<unknown>', name=<unknown>",
            "NVRM: Xid (PCI:0000:20:1d): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
            f"NVRM: Xid (PCI:0000:20:00): {rng.randrange(144, 151)}, NETIR_LINK_DOWN Fatal XC0 i0 Link 09 (0x00000000 0x00000000 0x00000000)",
            *((switch,) if one["expectation"]["nvswitch"] else ()),
            "",
        )
    )
    if not one["expectation"]["gpus"]:  # no driver writes to the log
        line = ""
    if line:
        one["probes"]["kernel-log"]["stdout"] += f"2026-11-21T10:00:00+0000 gpu-1 kernel: {line}\n"
    else:
        one["probes"]["kernel-log"]["stdout"] = "\n".join(_lines(one, "kernel-log")[3:])
    return line or "log without its beginning"


def version_fault(rng: random.Random, one: Node) -> str:
    """One of the places with the driver, kernel or fabric manager version has another version."""
    other = rng.choice(("580.95.05", "575.57.08", "595.84", "580.173.03"))
    places = (
        "driver-version",
        "nvidia-smi-csv",
        "nvidia-smi-xml",
        "dkms",
        "fabric-manager-version",
        "recorded",
        "uname",
        "lustre-module",
    )
    gpus = one["expectation"]["gpus"]
    probe = rng.choice([name for name in places if name in one["probes"] or (name == "recorded" and gpus)])
    if probe == "recorded":
        one["journal"]["recorded"]["driver"] = other
    elif probe in ("uname", "lustre-module"):
        one["probes"][probe]["stdout"] = one["probes"][probe]["stdout"].replace(
            "6.8.0-1040", f"6.8.0-{rng.randrange(1041, 1099)}"
        )
    else:
        text = one["probes"][probe]["stdout"]
        at = rng.choice([m.start() for m in re.finditer(r"580\.173\.02", text)][:8])
        if probe == "nvidia-smi-xml":
            at = text.index("580.173.02")
        one["probes"][probe]["stdout"] = text[:at] + other + text[at + 10 :]
    return f"{probe} {other}"


def host_fault(rng: random.Random, one: Node) -> str:
    """A unit, mount, limit, hold, disk or cloud-init has a wrong state."""
    ways = (
            ("fabric-manager", rng.choice(("inactive", "failed", "activating")) + "\n", 3),
            ("disk", f"  Avail\n{rng.randrange(0, 50 * 2**30)}\n", 0),
            ("memlock", f"* soft memlock {rng.randrange(0, 2**24)}\n* hard memlock unlimited\n", 0),
            ("mounts", '{"schema": "gpuinfra.mounts/1", "mounts": []}\n', 0),
            (
                "mounts",
                '{"schema": "gpuinfra.mounts/1", "mounts": [{"mount": "/scratch", "kind": "lustre", "problem": "does not respond"}]}\n',
                0,
            ),
            ("holds", "linux-aws\n", 0),
            ("cloud-init", '{"status": "error", "errors": ["x"]}', 1),
            ("cloud-init", '{"status": "running", "errors": []}', 0),
            ("secure-boot", "This system doesn't know\n", 1),
            ("kernel-headers", "", 0),
            ("dkms", "nvidia/580.173.02: added\n", 0),
            ("modules", "Module                  Size  Used by\nnouveau 1 0\nnvidia 1 0\nnvidia_uvm 1 0\n", 0),
            ("driver-version", "", 1),
    )  # fmt: skip
    probe, text, code = rng.choice([way for way in ways if way[0] in one["probes"]])
    one["probes"][probe].update(stdout=text, exit=code)
    return f"{probe}: {text.strip()[:50]}"


def journal_fault(rng: random.Random, one: Node) -> str:
    """A step is not done, or nothing is recorded."""
    steps = one["journal"]["steps"]
    # A machine without GPUs records no driver.
    how = rng.choice(("status", "gone", "hash", "all", *(("recorded",) if one["expectation"]["gpus"] else ())))
    if how == "status":
        rng.choice(steps)["status"] = rng.choice(("pending", "running", "reboot", "failed", "DONE", ""))
    elif how == "gone":
        steps.pop(rng.randrange(len(steps)))
    elif how == "hash":
        rng.choice(steps)["hash"] = rng.choice(("", None, "a" * 63, "z" * 64))
    elif how == "recorded":
        one["journal"]["recorded"].pop(rng.choice(("driver", "kernel")))
    else:
        one["journal"] = rng.choice(({}, {"steps": []}, {"schema": "gpuinfra.state/2", "steps": steps}))
    return how


def fabric_fault(rng: random.Random, one: Node) -> str:
    """A port, interface, key or library of the fabric has a wrong state."""
    provider = one["expectation"]["fabric_provider"]
    if provider is None:
        raise NoPart
    interface = {"infiniband": "ib3", "gib": "gpu3rdma0", "tcpx": "eth3", "tcpxo": "enp7s0"}.get(provider)
    ways = {
        "ports": (
            (r'"link_downed": "0"', f'"link_downed": "{rng.randrange(6, 10**6)}"'),
            ("gpuinfra.ports/1", "gpuinfra.ports/9"),
            (r'"4: ACTIVE"', '"2: INIT"'),
            (r'"5: LinkUp"', '"3: Disabled"'),
            (r'"rate": "[24]00[^"]*"', '"rate": "100 Gb/sec (4X EDR)"'),
            *(((r'"0x800b"', f'"{rng.choice(("0x7fff", "0x900c", "none"))}"'),) if provider == "infiniband" else ()),
        ),
        "efa": (("provider: efa", "provider: tcp"), ("FI_EP_RDM", "FI_EP_DGRAM")),
        "gvnics": (("1ae0:0042", "1af4:1000"), (r"\A(.*\n)", r"\1\1")),
        "fabric-libraries": ((r"/\S+", "/usr/lib/x"),),
        "link-log": ((r"\Z", f"2026-11-21T10:00:00+0000 gpu-1 systemd-networkd[1]: {interface}: Lost carrier\n" * 9),),
    }
    probe = _choice(rng, [name for name in sorted(ways) if name in one["probes"]])
    text = one["probes"][probe]["stdout"]
    if probe == "ports" and provider in ("tcpx", "tcpxo", "efa"):
        return bad_exit(
            rng, one
        )  # such a machine has no RDMA port to break; on EFA, only the error counters of a port are judged
    pattern, replacement = rng.choice([way for way in ways[probe] if re.search(way[0], text)])
    # The bridges of B200 and Azure's Ethernet function come first and are not part of the fabric.
    first = "mlx5_ib" if provider == "infiniband" else '"device": "roce'
    start = max(0, text.find(first)) if probe == "ports" and pattern[0] not in "g\\" else 0
    broken = text[:start] + re.sub(pattern, replacement, text[start:], count=1)
    assert broken != text, f"{probe}: {pattern} changed nothing"
    one["probes"][probe]["stdout"] = broken
    return f"{probe}: {pattern}"


def software_fault(rng: random.Random, one: Node) -> str:
    """A container runtime, NVIDIA's diagnostics, the installed module or the boot has a wrong state."""
    ways = {
        "docker": (
            ('"ServerVersion": "[^"]*"', '"ServerVersion": ""'),
            ('"CgroupDriver": "[a-z]*"', '"CgroupDriver": "?"'),
            (r"\A\{", "["),
        ),
        "containerd": ((r"(?s).*", "version = 2\n[plugins]\n"), (r"(?s).*", "")),
        "dcgm": (('"status": "Pass"', '"status": "Fail"'), ('"status": "Pass"', '"status": "Error"'), (r"\{", "x")),
        "module": (("version: .*", "version:        550.163.01"), (r"(?s).*", "")),
        "boot-id": ((r"(?s).*", "\n"),),
        "cdi": (("nvidia.com/gpu=all", "nvidia.com/gpu=none"), ("nvidia.com/gpu=0", "amd.com/gpu=0")),
    }
    probe = _choice(rng, [name for name in sorted(ways) if name in one["probes"]])
    pattern, replacement = rng.choice(ways[probe])
    text = one["probes"][probe]["stdout"]
    one["probes"][probe]["stdout"] = re.sub(pattern, replacement, text, count=1)
    assert one["probes"][probe]["stdout"] != text, f"{probe}: {pattern} changed nothing"
    return f"{probe}: {pattern} -> {replacement[:40]}"


def speed_fault(rng: random.Random, one: Node) -> str:
    """The node sums data or copies below the floor of the machine, or sums wrong data, without an error."""
    floors = {entry["check"]: entry["at_least"] for entry in one["expectation"].get("floors", ())}
    required = one["expectation"]["required"]
    if "B2" in required and rng.random() < 0.7:
        wrong = rng.random() < 0.2
        rate = round(floors["B2"] * rng.uniform(0.05, 0.99), 1)
        text = one["probes"]["nccl"]["stdout"]
        text = (
            re.sub(r'"wrong": 0', f'"wrong": {rng.randrange(1, 99)}', text)
            if wrong
            else re.sub(r'"busbw_gb_s": [\d.]+', f'"busbw_gb_s": {rate}', text)
        )
        one["probes"]["nccl"]["stdout"] = text
        return f"B2 {'wrong' if wrong else rate}"
    if "B5" not in required:
        raise NoPart
    document = json.loads(one["probes"]["nvbandwidth"]["stdout"])
    case = rng.choice(document["nvbandwidth"]["testcases"])
    row = rng.choice(case["bandwidth_matrix"])
    row[rng.randrange(len(row))] = f"{floors['B5'] * rng.uniform(0.05, 0.99):.2f}"
    one["probes"]["nvbandwidth"]["stdout"] = json.dumps(document)
    return f"B5 {case['name']}"


def silent_fault(rng: random.Random, one: Node) -> str:
    """Counters, repairs, kernel lines and firmware that no command reports as an error."""
    lines = (
        "NVRM: fallen off the bus and is not responding to commands.", "{1}[Hardware Error]: event severity: fatal",
        "mce: [Hardware Error]: Machine check events logged", "pcieport 0000:10:00.0: AER: Uncorrected (Non-Fatal) error received",
        "Out of memory: Killed process 1 (x)",
    )  # fmt: skip
    ways = [("kernel-log", r"\Z", f"2026-11-21T10:00:00+0000 gpu-1 kernel: {rng.choice(lines)}\n")]
    if "nvidia-smi-xml" in one["probes"]:
        ways.append(("nvidia-smi-xml", "_repair_pending>No<", "_repair_pending>Yes<"))
    if one["expectation"]["gpus"] > 1:  # one GPU has no other to differ from
        ways.append(("nvidia-smi-xml", "<vbios_version>[^<]*<", f"<vbios_version>92.00.{rng.randrange(99)}<"))
    if "N10" in one["expectation"]["required"]:
        name = rng.choice(
            ("retrans_timeout_events", "retrans_pkts", "symbol_error", "link_error_recovery", "packet_seq_err")
        )
        ways.append(("ports", '"errors": {}', f'"errors": {{"{name}": "{rng.randrange(1, 10**6)}"}}'))
    if "F4" in one["expectation"]["required"] and "nvlink-errors" in one["probes"]:
        ways.append(
            ("nvlink-errors", r"Link 0: [^:]*: 0", f"Link 0: Link recovery successful events: {rng.randrange(1, 1000)}")
        )
    probe, pattern, replacement = rng.choice(ways)
    text, done = re.subn(pattern, replacement.replace("\\", "\\\\"), one["probes"][probe]["stdout"], count=1)
    assert done, f"{pattern} is not in {probe}"
    one["probes"][probe]["stdout"] = text
    return f"{probe}: {replacement[:60]}"


def slow_part(rng: random.Random, one: Node) -> str:
    """One GPU, pair of GPUs or RDMA device is slow, or a CPU, memory module, disk or port is missing, without an error of any command."""
    required, ways = one["expectation"]["required"], []
    share = rng.uniform(0.05, 0.75)
    for check, probe, part in (
        ("B9", "gpu-copies", r'"\d+\.\d+"'),
        ("B10", "gpu-memory", r'"\d+\.\d+"'),
        ("N5", "links", r'(?<="gbps": )[\d.]+'),
    ):
        if check in required:
            ways.append(
                (probe, part, lambda found: re.sub(r"[\d.]+", lambda rate: f"{float(rate[0]) * share:.2f}", found[0]))
            )
    ways.append(
        ("memory", r"(?<=Mem:).*", lambda found: f" {int(found[0].split()[0]) * rng.uniform(0.1, 0.9):.0f} 1 1 1 1 1")
    )
    ways.append(("cpus", r"\d+", lambda found: str(rng.randrange(int(found[0])))))
    if "P9" in required:
        # The other lines are disks of the network, such as the boot disk.
        ways.append(("disk-models", rf"(?m)^(?:{one['expectation']['local_disk_model']})[ \t]*\n", lambda found: ""))
    if "N11" in required:
        ways.append(("ports", "4: ACTIVE", lambda found: rng.choice(("1: DOWN", "2: INIT", "3: ARMED"))))
    replays = rng.randrange(1001, 10**6)
    kind, errors = rng.choice((("fatal", 1), ("nonfatal", 7), ("correctable", 12000)))
    if one["expectation"]["gpus"]:
        ways.append(("nvidia-smi-xml", "<replay_counter>0<", lambda found: f"<replay_counter>{replays}<"))
        ways.append(("pcie", rf'"{kind}": \d+', lambda found: f'"{kind}": {errors}'))
    probe, pattern, change = rng.choice(ways)
    text = one["probes"][probe]["stdout"]
    hit = rng.choice(list(re.finditer(pattern, text)))
    one["probes"][probe]["stdout"] = text[: hit.start()] + change(hit) + text[hit.end() :]
    return f"{probe}: {change(hit)[:60]}"


def hidden_gpus(rng: random.Random, one: Node) -> str:
    """DCGM has no result for some GPUs, or no memory for its test, and reports a setting or a pass."""
    if "B1" not in one["expectation"]["required"]:
        raise NoPart
    document = json.loads(one["probes"]["dcgm"]["stdout"])
    results = document["DCGM Diagnostic"]["test_categories"][0]["tests"][0]["results"]
    if rng.random() < 0.5:
        del results[rng.randrange(min(1, len(results) - 1), len(results)) :]
        for result in results:
            result.update(
                status="Fail",
                warnings=[{"warning": "Persistence mode is disabled.", "error_id": 29, "error_severity": 5}],
            )
    else:
        rng.choice(results)["warnings"] = [{"warning": "Couldn't allocate", "error_id": 32, "error_severity": 4}]
    one["probes"]["dcgm"]["stdout"] = json.dumps(document)
    return f"{len(results)} results"


KINDS: tuple[Callable[[random.Random, Node], str], ...] = (
    bad_cell, error_token, lost_line, doubled_line, broken_state, bad_exit, no_answer, xml_fault, link_fault, kernel_fault,
    version_fault, host_fault, journal_fault, fabric_fault, software_fault, speed_fault, silent_fault, slow_part, hidden_gpus,
)  # fmt: skip


WARNED = {
    "X1": "NVIDIA ignores the number or blames the application, or the number is not in its catalog; a rotated log proves nothing",
    "X2": "a rotated log proves nothing",
    "X3": "processes run out of memory on healthy nodes, corrected machine checks repeat nothing, and a rotated log proves nothing",
    "X4": "a few errors that PCIe repeated",
    "F4": "a few errors that NVLink repeated",
    "B8": "the handover waits for a node without a result of the fabric test, although its own checks pass",
    "B1": "a setting of the driver that the diagnostics report and no GPU is affected by",
    "N10": "a few time-outs and retransmissions, which jobs that end abruptly leave behind",
    "G7": "the driver lowers the clocks at this moment because of the temperature; slowdowns of the hardware fail",
    "G14": "a process that uses GPU memory does not damage the node",
}
"""Checks of severity block or drain that only warn about a fault, and why the node is handed over."""


def _judged(one: Node, what: str) -> tuple[str | None, str | None]:
    """Judge a node with a fault. Returns the fault if no check notices it, and the fault if the node is handed over without a reason in the list."""
    machine = one["expectation"]
    checks = judge(one["probes"], machine, journal=one["journal"])
    noticed = [check for check in checks if check["outcome"] not in ("pass", "skip")]
    escaped = None if noticed else what
    if not verdict(checks, machine).verified:
        return escaped, None
    wrong = [check["id"] for check in noticed if check["severity"] != "warn" and check["id"] not in WARNED]
    return escaped, f"{what}: {wrong}" if wrong else None


def _node(machine: dict[str, Any]) -> Node:
    return {"probes": healthy(machine), "journal": copy.deepcopy(JOURNAL), "expectation": machine}


def test_every_generated_fault_fails_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 2,800 generated faults fails or warns at least one check. A node is handed over only with warnings of checks that never block, or of those
    in the list."""
    # Most faults do not change the XML; parsing it is pure, so the result is shared.
    monkeypatch.setattr(nvsmi, "parse", lru_cache(maxsize=8)(nvsmi.parse))
    rng = random.Random(20261121)
    escaped, handed_over, seen, clouds = [], [], Counter(), Counter()
    for number in range(FAULTS):
        kind = KINDS[number % len(KINDS)]
        machine = rng.choice(MACHINES)
        try:
            what = kind(rng, one := _node(machine))
        except NoPart:
            what = bad_cell(rng, one := _node(machine))
        found = _judged(one, f"{machine['machine']} {kind.__name__}: {what}")
        escaped += [found[0]] if found[0] else []
        handed_over += [found[1]] if found[1] else []
        seen[kind.__name__] += 1
        clouds[machine["cloud"]] += 1
    assert (escaped, handed_over) == ([], [])
    assert sum(seen.values()) == FAULTS
    assert min(seen.values()) > 100
    assert min(clouds.values()) > 700


DRAWS = 6
"""Faults of each kind on each machine type in the long test."""
DECLARABLE = [(cloud, name) for cloud in REGIONS for name in machines(cloud)]


def _cannot_have(kind: Callable[[random.Random, Node], str], machine: dict[str, Any]) -> bool:
    """Whether the machine does not have the part that this kind of fault breaks."""
    no_gpu = not machine["gpus"]
    return {
        link_fault: not machine.get("nvlinks_per_gpu"),
        fabric_fault: machine["fabric_provider"] is None,
        speed_fault: not {"B2", "B5"} & set(machine["required"]),
    }.get(kind, no_gpu and kind not in ON_EVERY_MACHINE)  # fmt: skip


ON_EVERY_MACHINE = (bad_exit, no_answer, kernel_fault, version_fault, host_fault, journal_fault, silent_fault, slow_part)  # fmt: skip
"""Kinds that need neither a GPU nor a fabric."""


@pytest.mark.long
@pytest.mark.parametrize(("cloud", "name"), DECLARABLE, ids=[name for _, name in DECLARABLE])
def test_no_machine_type_is_handed_over_with_a_fault(cloud: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each machine type that a stack can declare is verified when it is healthy, and no fault of any kind that it can have is handed over."""
    monkeypatch.setattr(nvsmi, "parse", lru_cache(maxsize=8)(nvsmi.parse))
    machine_type = machine(cloud, name)
    well = _node(machine_type)
    assert verdict(judge(well["probes"], machine_type, journal=well["journal"]), machine_type).verified
    rng, wrong, without = random.Random(f"20261129 {name}"), [], []
    for kind in KINDS:
        for _ in range(DRAWS):
            try:
                what = kind(rng, one := _node(machine_type))
            except NoPart:
                without.append(kind)
                break
            wrong += [found for found in _judged(one, f"{kind.__name__}: {what}") if found]
    assert wrong == []
    assert without == [kind for kind in KINDS if _cannot_have(kind, machine_type)]
