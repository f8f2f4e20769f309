"""lsblk, blkid, mdadm and mkfs over the local disks of the machine type. The host's disks are neither listed nor changed."""

from __future__ import annotations

import sys

from .state import State, change_state, fail, read_state, write_file

ROOT_DISKS = {
    "aws": ("/dev/nvme0n1", "/dev/nvme0n1p1", "Amazon Elastic Block Store"),
    "azure": ("/dev/sda", "/dev/sda1", "Virtual Disk"),
    "gcp": ("/dev/nvme0n1", "/dev/nvme0n1p1", "nvme_card-pd"),
}
"""Cloud -> boot disk, root partition, disk model."""


def disks(state: State) -> list[dict]:
    """Every block device of the node."""
    made = state.get("disks", {})
    mounted = {item["source"]: item["target"] for item in state["mounts"]}
    disk, part, model = ROOT_DISKS[state["instance"]["cloud"]]
    root = {"name": disk, "model": model, "size": "200G", "type": "disk", "fstype": "", "label": "", "mountpoint": ""}
    system = {"type": "part", "fstype": "ext4", "label": "cloudimg-rootfs", "mountpoint": "/"}
    rows = [root, {**root, **system, "name": part, "model": ""}]
    for number in range(1, state["hardware"]["nvme"] + 1):
        name = f"/dev/nvme{number}n1"
        facts = made.get(name, {})
        row = {
            "name": name,
            "model": state["hardware"].get("nvme_model", ""),
            "size": f"{state['hardware']['nvme_gb']}G",
            "type": "disk",
        }
        rows.append(
            {
                **row,
                "fstype": facts.get("fstype", ""),
                "label": facts.get("label", ""),
                "mountpoint": mounted.get(name, ""),
            }
        )
    for name, facts in made.items():
        if name.startswith("/dev/md"):
            rows.append(
                {
                    "name": name,
                    "model": "",
                    "size": "8T",
                    "type": "raid0",
                    "fstype": facts.get("fstype", ""),
                    "label": facts.get("label", ""),
                    "mountpoint": mounted.get(name, ""),
                }
            )
    return rows


def lsblk(argv: list[str]) -> int:
    """Columns, `-d`, `-n`, `-p`, `-r`, `-J`, and devices by name."""
    columns, words, letters, rest = ["NAME", "SIZE", "TYPE", "MOUNTPOINT"], [], "", iter(argv)
    for word in rest:
        name, equals, value = word.partition("=")
        if name == "--output":
            columns = (value if equals else next(rest, "")).upper().split(",")
        elif word.startswith("--"):
            letters += {"--nodeps": "d", "--noheadings": "n", "--paths": "p", "--raw": "r", "--json": "J"}.get(word, "")
        elif word.startswith("-"):
            letters += word[1:]
            if word.endswith("o"):
                columns = next(rest, "").upper().split(",")
        else:
            words.append(word)
    rows = disks(read_state())
    if words:
        rows = [row for row in rows if row["name"] in words or row["name"].rpartition("/")[2] in words]
        if not rows:
            return fail(f"lsblk: {words[0]}: not a block device", 32)
    elif "d" in letters:
        rows = [row for row in rows if row["type"] == "disk"]
    lines = [[_shown(row, column, "p" in letters) for column in columns] for row in rows]
    if "J" in letters:
        import json

        named = [{column.lower(): value or None for column, value in zip(columns, line, strict=True)} for line in lines]
        sys.stdout.write(json.dumps({"blockdevices": named}, indent=3) + "\n")
        return 0
    if "n" not in letters:
        lines.insert(0, columns)
    for line in lines:
        sys.stdout.write(
            " ".join(line).rstrip() + "\n"
            if "r" not in letters
            else " ".join(value.replace(" ", "\\x20") for value in line) + "\n"
        )
    return 0


def blkid(argv: list[str]) -> int:
    """Formatted devices."""
    words = [word for word in argv if word.startswith("/")]
    found = [row for row in disks(read_state()) if row["fstype"] and (not words or row["name"] in words)]
    for row in found:
        label = f' LABEL="{row["label"]}"' if row["label"] else ""
        sys.stdout.write(f'{row["name"]}:{label} TYPE="{row["fstype"]}"\n')
    return 0 if found else 2


def mdadm(argv: list[str]) -> int:
    """`--create`, `--detail --scan`, `--assemble --scan`."""
    words = [word for word in argv if word.startswith("/dev/")]
    state = read_state()
    if "--create" in argv or "-C" in argv:
        known = {row["name"] for row in disks(state)}
        missing = [word for word in words[1:] if word not in known]
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


def mkfs(argv: list[str], kind: str) -> int:
    """Format a disk of the node."""
    label, device, rest = "", "", iter(argv)
    for word in rest:
        if word == "-L":
            label = next(rest, "")
        elif word in ("-m", "-d", "-E", "-O", "-i", "-l", "-n", "-s", "-t", "-T", "-U"):
            next(rest, "")
        elif not word.startswith("-"):
            device = word
    row = next((row for row in disks(read_state()) if row["name"] == device), None)
    if row is None:
        return fail(f"mkfs.{kind}: {device}: No such file or directory")
    if row["mountpoint"]:
        return fail(f"mkfs.{kind}: {device} contains a mounted filesystem")

    def change(state: State) -> None:
        facts = state.setdefault("disks", {}).setdefault(device, {})
        facts.update(fstype=kind, label=label)

    change_state(change)
    return 0


def _shown(row: dict, column: str, paths: bool) -> str:
    value = str(row.get(column.lower(), ""))
    return value if column != "NAME" or paths else value.rpartition("/")[2]
