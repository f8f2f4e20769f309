"""lsblk, blkid, mdadm and mkfs for the local disks of the machine type and the attached disks of the stack. The host's disks are neither listed nor
changed."""

from __future__ import annotations

import sys

from .arguments import Arguments
from .state import FOLDER, RUN, State, change_state, dumps, fail, loads, read_state, read_text, write_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ROOT_DISKS = {
    "aws": ("/dev/nvme0n1", "/dev/nvme0n1p1", "Amazon Elastic Block Store"),
    "azure": ("/dev/sda", "/dev/sda1", "Virtual Disk"),
    "gcp": ("/dev/nvme0n1", "/dev/nvme0n1p1", "nvme_card-pd"),
}
"""Maps a cloud to its boot disk, root partition and disk model."""


ATTACHED = RUN + "/filesystems/disks"
"""Folder with the content of attached disks, which all nodes of a rehearsal share."""


def attached() -> dict[str, str]:
    """Return the folder of each attached disk, keyed by device."""
    records: Any = loads(read_text(FOLDER + "/data-disks.json", "[]"))
    return {one["name"]: f"{ATTACHED}/{one['key']}" for one in records}


def formatted(state: State) -> dict[str, dict]:
    """Return the facts of the formatted disks, keyed by device. An attached disk contains its own facts."""
    own: Any = {name: loads(read_text(folder + "/disk.json", "{}")) for name, folder in attached().items()}
    return {**state.get("disks", {}), **own}


def disks(state: State) -> list[dict]:
    """Return all block devices of the node."""
    made = formatted(state)
    mounted = {item["source"]: item["target"] for item in state["mounts"]}
    disk, part, model = ROOT_DISKS[state["instance"]["cloud"]]
    root = {"name": disk, "model": model, "size": "200G", "type": "disk", "fstype": "", "label": "", "mountpoint": ""}
    system = {"type": "part", "fstype": "ext4", "label": "cloudimg-rootfs", "mountpoint": "/"}
    rows = [root, {**root, **system, "name": part, "model": ""}]
    size = f"{state['hardware'].get('nvme_gb', 0)}G"
    for number in range(1, state["hardware"]["nvme"] + 1):
        row = {
            "name": f"/dev/nvme{number}n1",
            "model": state["hardware"].get("nvme_model", ""),
            "size": size,
            "type": "disk",
        }
        rows.append(row)
    rows += [{"name": name, "model": "", "size": "8T", "type": "raid0"} for name in made if name.startswith("/dev/md")]
    rows += [{"name": name, "model": model, "size": "10G", "type": "disk"} for name in attached()]
    for row in rows[2:]:
        facts = made.get(row["name"], {})
        row.update(
            fstype=facts.get("fstype", ""), label=facts.get("label", ""), mountpoint=mounted.get(row["name"], "")
        )
    return rows


def lsblk(argv: list[str]) -> int:
    """Columns, `-d`, `-n`, `-p`, `-r`, `-J`, and devices by name."""
    arguments = Arguments(argv, {"-o": "columns", "--output": "columns"})
    columns, words = arguments.one("columns", "NAME,SIZE,TYPE,MOUNTPOINT").upper().split(","), arguments.words
    rows = disks(read_state())
    if words:
        rows = [row for row in rows if row["name"] in words or row["name"].rpartition("/")[2] in words]
        if not rows:
            return fail(f"lsblk: {words[0]}: not a block device", 32)
    elif arguments.has("-d", "--nodeps"):
        rows = [row for row in rows if row["type"] == "disk"]
    lines = [[_shown(row, column, arguments.has("-p", "--paths")) for column in columns] for row in rows]
    if arguments.has("-J", "--json"):
        import json

        named = [{column.lower(): value or None for column, value in zip(columns, line, strict=True)} for line in lines]
        sys.stdout.write(json.dumps({"blockdevices": named}, indent=3) + "\n")
        return 0
    if not arguments.has("-n", "--noheadings"):
        lines.insert(0, columns)
    for line in lines:
        sys.stdout.write(
            " ".join(line).rstrip() + "\n"
            if not arguments.has("-r", "--raw")
            else " ".join(value.replace(" ", "\\x20") for value in line) + "\n"
        )
    return 0


def blkid(argv: list[str]) -> int:
    """Formatted devices, or the value of one tag of a device."""
    words = [word for word in argv if word.startswith("/")]
    rows = [row for row in disks(read_state()) if row["fstype"] and (not words or row["name"] in words)]
    for row in rows:
        if "--match-tag" in argv and "value" in argv:
            tags = {"TYPE": row["fstype"], "LABEL": row["label"]}
            sys.stdout.write(tags[argv[argv.index("--match-tag") + 1]] + "\n")
            continue
        label = f' LABEL="{row["label"]}"' if row["label"] else ""
        sys.stdout.write(f'{row["name"]}:{label} TYPE="{row["fstype"]}"\n')
    return 0 if rows else 2


def mdadm(argv: list[str]) -> int:
    """`--create`, `--detail --scan`, `--assemble --scan`."""
    words = [word for word in argv if word.startswith("/dev/")]
    state = read_state()
    if "--create" in argv or "-C" in argv:
        names = {row["name"] for row in disks(state)}
        missing = [word for word in words[1:] if word not in names]
        if missing:
            return fail(f"mdadm: cannot open {missing[0]}: No such file or directory")

        def change(state: State) -> None:
            made = state.setdefault("disks", {})
            made[words[0]] = {"members": words[1:], "uuid": "00000000:00000000:00000000:00000001"}
            for member in words[1:]:
                made[member] = {"fstype": "linux_raid_member", "label": "stand-in:gpuinfra-scratch"}

        change_state(change)
        write_file(words[0], "")
        sys.stdout.write(f"mdadm: array {words[0]} started.\n")
        return 0
    if "--scan" in argv or "--detail" in argv:
        for name in state.get("disks", {}):
            if name.startswith("/dev/md"):
                sys.stdout.write(f"ARRAY {name} metadata=1.2 UUID={state['disks'][name]['uuid']}\n")
    return 0


_MKFS_VALUED = ("-m", "-d", "-E", "-O", "-i", "-l", "-n", "-s", "-t", "-T", "-U")


def mkfs(argv: list[str], kind: str) -> int:
    """Format a disk of the node."""
    arguments = Arguments(argv, dict.fromkeys(_MKFS_VALUED, "ignored") | {"-L": "label"})
    label, device = arguments.one("label"), (arguments.words or [""])[-1]
    row = next((row for row in disks(read_state()) if row["name"] == device), None)
    if row is None:
        return fail(f"mkfs.{kind}: {device}: No such file or directory")
    if row["mountpoint"]:
        return fail(f"mkfs.{kind}: {device} contains a mounted filesystem")

    if folder := attached().get(device):
        write_file(folder + "/disk.json", dumps({"fstype": kind, "label": label}))
        return 0

    def change(state: State) -> None:
        facts = state.setdefault("disks", {}).setdefault(device, {})
        facts.update(fstype=kind, label=label)

    change_state(change)
    return 0


def _shown(row: dict, column: str, paths: bool) -> str:
    value = str(row.get(column.lower(), ""))
    return value if column != "NAME" or paths else value.rpartition("/")[2]
