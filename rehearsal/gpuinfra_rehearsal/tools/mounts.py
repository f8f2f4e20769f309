"""mount, umount, findmnt, mountpoint and df for simulated Lustre file systems, mounted buckets and local disks.

A Lustre file system or a bucket is a folder that all nodes of a rehearsal share, bound to the mount point. A local disk is a
folder of the node. The kernel reports all of them as `ext4`, so these commands read the node's state instead. Other mounts use the
real commands.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from .arguments import Arguments
from .disks import attached, formatted
from .passthrough import run_real
from .state import RUN, State, change_state, exists, fail, make_folder, read_state, read_text, write_file
from .unitfile import is_enabled

SHARED = RUN + "/filesystems"
DISKS = "/var/lib/stand-in-disks"
ROOT = {"source": "/dev/root", "target": "/", "type": "ext4", "options": "rw,relatime,discard,errors=remount-ro"}
MS_RDONLY, MS_REMOUNT, MS_BIND, MNT_DETACH = 1, 32, 4096, 2
LOCAL = "127.0.0.1:"
BUCKETS = ("fuse.gcsfuse", "fuse")
"""Types of mounted buckets: Cloud Storage FUSE, and Mountpoint for Amazon S3 and BlobFuse, which set no subtype."""
SHARED_KINDS = ("lustre", "nfs", *BUCKETS)
SIMULATED = (*SHARED_KINDS, "xfs", "ext4")
TUNNELS = RUN + "/tunnels"
"""The `local-port server` lines of the running stunnel."""
WAITING = RUN + "/waiting-mounts"
"""The fstab lines that wait for a unit of this boot (`x-systemd.after=`)."""
_AFTER = "x-systemd.after="
REFUSED = "mount.nfs: Connection refused"
NFS_RETRY_S = 120.0
"""How long mount.nfs retries if a server refuses connections (nfs(5), `retry=`)."""


def boot() -> None:
    """Mount the image's local disks, then the fstab entries that do not wait for a unit."""
    state = read_state()
    place = state["image"].get("scratch")
    if place and state["hardware"]["nvme"]:
        item = {"source": place["source"], "target": place["mount"], "type": place["type"]}
        attach({**item, "options": "rw,noatime,nodiratime"})
    waiting = []
    for source, target, kind, options in _fstab():
        if kind not in SIMULATED or target == "/" or "noauto" in options:
            continue
        units = {word[len(_AFTER) :] for word in options.split(",") if word.startswith(_AFTER)}
        if any(is_enabled(unit) == "enabled" for unit in units):
            waiting.append(f"{source} {target} {kind} {options}\n")
        else:
            _mount_at_boot(source, target, kind, options)
    write_file(WAITING, "".join(waiting))


def after_unit(name: str) -> None:
    """Mount the fstab entries that wait for this unit, once per boot, because `After=` does not repeat a mount later."""
    lines = read_text(WAITING, "").splitlines()
    due = [line for line in lines if _AFTER + name in line.split()[3].split(",")]
    for line in due:
        source, target, kind, options = line.split()
        _mount_at_boot(source, target, kind, options)
    if due:
        write_file(WAITING, "".join(line + "\n" for line in lines if line not in due))


def _mount_at_boot(source: str, target: str, kind: str, options: str) -> None:
    until = time.monotonic() + NFS_RETRY_S
    while True:
        code, text = _mount(source, target, kind, options)
        if text != REFUSED or time.monotonic() > until:
            break
        time.sleep(0.05)
    if code:
        os.write(2, f"systemd: Failed to mount {target}: {text}\n".encode())


def stunnel(argv: list[str]) -> int:
    """The TLS client."""
    from .vendor import stay

    lines, port = [], ""
    for line in read_text(argv[-1]).splitlines():
        name, _, value = (word.strip() for word in line.partition("="))
        if name == "accept":
            port = value.rpartition(":")[2]
        elif name == "connect":
            lines.append(f"{port} {value.rpartition(':')[0]}\n")
    if not lines:
        return fail("No service is configured")
    write_file(TUNNELS, "".join(lines))
    return stay(lambda: os.unlink(TUNNELS))


def _server(source: str, options: str) -> str | None:
    """Return the source of an NFS mount from the server's perspective: the source at the end of the tunnel if the mount uses a tunnel."""
    if not source.startswith(LOCAL):
        return source
    port = next((word[5:] for word in options.split(",") if word.startswith("port=")), "2049")
    servers = dict(line.split() for line in read_text(TUNNELS, "").splitlines())
    return f"{servers[port]}:{source.removeprefix(LOCAL)}" if port in servers else None


def restore() -> None:
    """Bind again after a suspension, because the bind mounts ended with the node's processes."""
    for item in read_state()["mounts"]:
        _bind(item)


def mount(argv: list[str]) -> int:
    valued = {"-t": "type", "--types": "type", "-o": "options", "--options": "options", "-O": "tests"}
    arguments = Arguments(argv, valued)
    words, kind, options = arguments.words, arguments.one("type"), arguments.one("options", "defaults")
    if arguments.has("-a", "--all"):
        return _mount_all(kind, arguments.one("tests"))
    if not words and not kind:
        for item in table():
            sys.stdout.write(f"{item['source']} on {item['target']} type {item['type']} ({item['options']})\n")
        return 0
    if len(words) == 1:
        line = next((line for line in _fstab() if words[0].rstrip("/") in (line[1], line[0])), None)
        if line is None:
            return fail(f"mount: {words[0]}: can't find in /etc/fstab.", 1)
        words, kind, options = [line[0], line[1]], line[2], line[3]
    if len(words) == 2 and (kind in ("lustre", "nfs") or "@tcp:/" in words[0] or _disk(words[0])):
        code, text = _mount(words[0], words[1], kind or "lustre", options)
        return fail(text, code) if code else 0
    return run_real("mount", argv)


def _mount_all(types: str, tests: str) -> int:
    """Mount the fstab entries that are not mounted, except `noauto` entries. Exit codes: mount(8)."""
    codes = []
    for source, target, kind, options in _fstab():
        words = options.split(",")
        wanted = all(
            test[2:] not in words if test.startswith("no") else test in words for test in tests.split(",") if test
        )
        mounted = any((item["source"], item["target"]) == (source, target) for item in read_state()["mounts"])
        if kind not in SIMULATED or target == "/" or "noauto" in words or mounted or not wanted:
            continue
        if not types or kind in types.split(","):
            code, text = _mount(source, target, kind, options)
            codes.append(fail(text, code) if code else 0)
    return 0 if not any(codes) else 32 if all(codes) else 64


def umount(argv: list[str]) -> int:
    arguments = Arguments(argv, {"-t": "type"})
    for target in (word.rstrip("/") for word in arguments.words):
        item = next((item for item in read_state()["mounts"] if item["target"] == target), None)
        if item is None:
            return run_real("umount", argv)
        if _call("umount2", target.encode(), MNT_DETACH if arguments.has("-l", "--lazy") else 0):
            return fail(f"umount: {target}: target is busy.", 32)

        def change(state: State, target: str = target) -> None:
            state["mounts"] = [item for item in state["mounts"] if item["target"] != target]

        change_state(change)
        _end(item)
    return 0


def _end(item: dict) -> None:
    """Stop the daemon of a user-space file system, as the kernel does by closing its connection."""
    pid = item.get("pid", 0)
    if pid and item["target"].encode() in read_text(f"/proc/{pid}/cmdline", "").encode():
        os.kill(pid, signal.SIGTERM)


def mountpoint(argv: list[str]) -> int:
    words = [word for word in argv if not word.startswith("-")]
    quiet = "-q" in argv
    path = words[0].rstrip("/") or "/"
    is_mount = any(item["target"] == path for item in table())
    if not quiet:
        sys.stdout.write(f"{path} is {'' if is_mount else 'not '}a mountpoint\n")
    return 0 if is_mount else 1


_FINDMNT = {
    "-o": "columns", "--output": "columns", "-t": "types", "--types": "types", "-T": "path", "--target": "path",
    "-M": "mountpoint", "--mountpoint": "mountpoint", "-S": "source", "--source": "source",
}  # fmt: skip


def findmnt(argv: list[str]) -> int:
    """Columns, types, `--target`, `--mountpoint`, `--source`, raw, JSON."""
    arguments = Arguments(argv, _FINDMNT)
    columns = arguments.one("columns", "TARGET,SOURCE,FSTYPE,OPTIONS").upper().split(",")
    words = [word.rstrip("/") or "/" for word in arguments.words]
    items = table()
    if path := arguments.one("path"):
        holder = _holder(path)
        items = [item for item in items if item["target"] == holder]
    if point := arguments.one("mountpoint"):
        items = [item for item in items if item["target"] == (point.rstrip("/") or "/")]
    if words:
        items = [item for item in items if item["target"] in words or item["source"] in words]
    if source := arguments.one("source"):
        items = [item for item in items if item["source"] == source]
    if types := arguments.one("types"):
        items = [item for item in items if item["type"] in types.split(",")]
    keys = {"TARGET": "target", "SOURCE": "source", "FSTYPE": "type", "OPTIONS": "options"}
    rows = [[item.get(keys.get(column, ""), "") for column in columns] for item in items]
    if arguments.has("-J", "--json"):
        import json

        filesystems = [{column.lower(): value for column, value in zip(columns, row, strict=True)} for row in rows]
        sys.stdout.write(json.dumps({"filesystems": filesystems}, indent=3) + "\n" if rows else "")
    else:
        head = [] if arguments.has("-n", "--noheadings") else [columns]
        sys.stdout.write("".join(" ".join(row) + "\n" for row in [*head, *rows]))
    return 0 if rows else 1


def df(argv: list[str]) -> int:
    """The node's root disk and file systems, not the host's."""
    words = [word for word in argv if not word.startswith("-")]
    output = next((word.partition("=")[2] for word in argv if word.startswith("--output")), None)
    unit = 1 if "-B1" in argv or "--block-size=1" in argv or "-b" in argv else 1024
    places = [_holder(word) for word in words] or [item["target"] for item in table() if item["type"] in SIMULATED]
    rows = []
    for item in table():
        if item["target"] in places:
            size, used = _size(item)
            rows.append({
                "source": item["source"], "fstype": item["type"], "size": size // unit, "used": used // unit,
                "avail": (size - used) // unit, "pcent": f"{100 * used // size}%", "target": item["target"],
                "file": words[0] if words else "-",
            })  # fmt: skip
    names = {
        "source": "Filesystem", "fstype": "Type", "size": "1B-blocks" if unit == 1 else "1K-blocks", "used": "Used",
        "avail": "Avail", "pcent": "Use%", "target": "Mounted on", "file": "File",
    }  # fmt: skip
    columns = (
        output.split(",")
        if output
        else ["source", *(["fstype"] if "-T" in argv else []), "size", "used", "avail", "pcent", "target"]
    )
    sys.stdout.write(" ".join(names[column] for column in columns) + "\n")
    for row in rows:
        sys.stdout.write(" ".join(str(row[column]) for column in columns) + "\n")
    return 0 if rows else fail(f"df: {words[0] if words else ''}: No such file or directory")


def table() -> list[dict]:
    """Return all mounts of the node."""
    fixed = [
        ROOT,
        *(
            {"source": kind, "target": target, "type": kind, "options": "rw,nosuid,nodev,noexec,relatime"}
            for kind, target in (("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"))
        ),
    ]
    return [*fixed, *read_state()["mounts"]]


def _mount(source: str, target: str, kind: str, options: str) -> tuple[int, str]:
    target = target.rstrip("/") or "/"
    state = read_state()
    if not exists(target):
        return 32, f"mount: {target}: mount point does not exist."
    if any(item["target"] == target and item["source"] == source for item in state["mounts"]):
        return 32, f"mount: {target}: {source} already mounted on {target}."
    if kind == "lustre":
        if "lustre" not in state["modules"]:
            from .kernel import load

            code, _ = load("lustre")
            if code:
                return (
                    19,
                    f"mount.lustre: mount {source} at {target} failed: No such device\nAre the lustre modules loaded?",
                )
        if "lustre-mount-fails" in state["faults"]:
            return 5, f"mount.lustre: mount {source} at {target} failed: Input/output error\nIs the MGS running?"
        if "nofail" in options.split(","):
            # It passes options that are not in its table to the kernel, which refuses unknown options (lustre/utils/mount_lustre.c).
            return 22, f"mount.lustre: mount {source} at {target} failed: Invalid argument"
        if "@tcp:/" not in source:
            return 22, f"mount.lustre: {source} is not a Lustre source (SERVER@tcp:/NAME)"
    elif kind == "nfs":
        if "nfs-common" not in state["packages"]:
            return (
                32,
                f"mount: {target}: bad option; for several filesystems (e.g. nfs, cifs) you might need a /sbin/mount.<type> helper program.",
            )
        if ":/" not in source:
            return 32, f"mount.nfs: remote share not in 'host:dir' format: {source}"
        server = _server(source, options)
        if server is None:
            return 32, REFUSED
        if "home-mount-refused" in state["faults"]:
            return 32, f"mount.nfs: access denied by server while mounting {source}"
    elif _disk(source) is None:
        return 32, f"mount: {target}: can't find {source}."
    device = source if kind in ("lustre", "nfs") else _disk(source)
    item = {"source": device, "target": target, "type": kind, "options": _shown(options)}
    return attach({**item, "server": _server(source, options)} if kind == "nfs" else item)


def attach(item: dict) -> tuple[int, str]:
    """Bind a file system's folder to its mount point and record the mount. Returns mount's exit code and message."""
    make_folder(item["target"])
    code = _bind(item)
    if code:
        return 32, f"mount: {item['target']}: failed"

    def change(state: State) -> None:
        state["mounts"] = [other for other in state["mounts"] if other["target"] != item["target"]] + [item]

    change_state(change)
    return 0, ""


def _shared(item: dict) -> str:
    """Return the folder of a file system or bucket that all nodes share."""
    return SHARED + "/" + item.get("server", item["source"]).replace("/", "_").replace("@", "_").replace(":", "_")


def fill(item: dict, name: str, content: bytes) -> None:
    """Write a file of a mounted bucket, before it is mounted. A name that ends with a slash is a folder."""
    path = os.path.join(_shared(item), name)
    make_folder(os.path.dirname(path))
    if not name.endswith("/"):
        with open(path, "wb") as stream:
            stream.write(content)


def _bind(item: dict) -> int:
    if item["type"] in SHARED_KINDS:
        backing = _shared(item)
    else:
        folder = attached().get(item["source"])
        backing = folder + "/data" if folder else DISKS + item["source"].replace("/", "_")
    make_folder(backing)
    make_folder(item["target"])
    target = item["target"].encode()
    code = _call("mount", backing.encode(), target, None, MS_BIND, None)
    if code == 0 and "ro" in item["options"].split(","):
        code = _call("mount", None, target, None, MS_BIND | MS_REMOUNT | MS_RDONLY, None)
    return code


def _call(name: str, *arguments: object) -> int:
    """Call a C library function. Init cannot run a command instead, because its reaper would collect the
    child."""
    import ctypes

    return getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments)


def _fstab() -> list[tuple[str, str, str, str]]:
    entries = []
    for line in read_text("/etc/fstab", "").splitlines():
        words = line.split()
        if len(words) >= 4 and not line.startswith("#"):
            entries.append((words[0], words[1], words[2], words[3]))
    return entries


def _disk(source: str) -> str | None:
    """Return the formatted disk with this name or label."""
    for name, facts in formatted(read_state()).items():
        if facts.get("fstype") and (
            source == name or source in (f"LABEL={facts.get('label')}", f"UUID={facts.get('uuid')}")
        ):
            return name
    return None


def _holder(path: str) -> str:
    """Return the mount point of a path."""
    path = path.rstrip("/") or "/"
    points = sorted((item["target"] for item in table()), key=len, reverse=True)
    return next(point for point in points if path == point or path.startswith(point.rstrip("/") + "/"))


def _size(item: dict) -> tuple[int, int]:
    gib = 1 << 30
    state = read_state()
    if item["target"] == "/":
        used = state["image"].get("used_gib", 3) * gib + sum(
            package.get("size_mib", 0) << 20 for package in state["packages"].values()
        )
        return state["image"].get("root_gib", 200) * gib, used
    if item["type"] in SHARED_KINDS:
        return 1200 * gib, 8 << 20
    return state["hardware"]["nvme"] * state["hardware"]["nvme_gb"] * 10**9 or gib, 32 << 20


def _shown(options: str) -> str:
    visible = [
        word
        for word in options.split(",")
        if word not in ("defaults", "_netdev", "nofail") and not word.startswith("x-")
    ]
    return ",".join(["rw", *visible])
