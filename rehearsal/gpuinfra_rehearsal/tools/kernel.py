"""Kernel and modules: modprobe, rmmod, lsmod, modinfo, uname, mokutil, and module loading at boot."""

from __future__ import annotations

import os
import sys

from .. import devices
from .arguments import Arguments
from .state import RUN, State, change_state, exists, fail, read_state, read_text, unit_active, walk, write_file

DEPENDENCIES = {
    "nvidia_uvm": ["nvidia"],
    "nvidia_modeset": ["nvidia"],
    "nvidia_drm": ["nvidia_modeset"],
    "nvidia_peermem": ["nvidia", "ib_core"],
    "ib_uverbs": ["ib_core"],
    "ib_umad": ["ib_core"],
    "efa": ["ib_uverbs"],
    "mlx5_ib": ["mlx5_core", "ib_uverbs"],
    "ib_ipoib": ["ib_core"],
    "gdrdrv": ["nvidia"],
    "lnet": ["libcfs"],
    "lustre": ["lnet"],
    "ksocklnd": ["lnet"],
    "kefalnd": ["lnet", "efa"],
}
SIZES = {"nvidia": 14000000, "nvidia_uvm": 2076672, "efa": 98304, "lustre": 1073152}
NETWORK = {"aws": ["ena"], "azure": ["mlx5_core", "mlx5_ib"], "gcp": ["gve"]}
"""Maps a cloud to the modules of its network cards. Azure's accelerated interface is a Mellanox card."""
FILES_MADE = RUN + "/device-files"


def boot() -> None:
    """Load the modules of the machine's devices, then the modules in `modules-load.d`."""
    state = read_state()
    forget_loaded()
    to_load = [*NETWORK[state["instance"]["cloud"]], "nvme"]
    if state["hardware"].get("fabric") == "gib" or devices.needs_subnet_manager(state):  # type: ignore[arg-type]
        to_load.append("mlx5_ib")
    files = state["module_files"].get(state["kernel"], {})
    if state["hardware"]["gpus"] and "nvidia" in files:
        to_load += ["nvidia", "nvidia_modeset", "nvidia_drm"]
    if state["hardware"]["efa"]:
        to_load.append("efa")
    for folder in ("/usr/lib/modules-load.d", "/etc/modules-load.d"):
        for path in walk(folder):
            if path.endswith(".conf"):
                to_load += [
                    line.strip() for line in read_text(path).splitlines() if line.strip() and line[0] not in "#;"
                ]
    for name in to_load:
        code, text = load(name)
        if code and name in ("nvidia", "efa"):
            os.write(2, f"systemd-modules-load: {text}\n".encode())
    refresh_devices()


def load(name: str) -> tuple[int, str]:
    """Load a module with its dependencies. Returns modprobe's exit code and message."""
    name = name.replace("-", "_")
    state = read_state()
    if name in state["modules"]:
        return 0, ""
    files = state["module_files"].get(state["kernel"], {})
    order = _with_dependencies(name)
    for item in order:
        if item not in files:
            return 1, f"modprobe: FATAL: Module {item} not found in directory /lib/modules/{state['kernel']}"
    if name.startswith("nvidia") and not state["hardware"]["gpus"]:
        return 1, f"modprobe: ERROR: could not insert '{name}': No such device"
    if name in _blacklisted() and name == "nouveau":
        return 1, ""

    def change(state: State) -> None:
        for item in order:
            if item not in state["modules"]:
                state["modules"].append(item)
        describe_driver(state)

    change_state(change)
    for item in order:
        if item not in state["modules"]:
            write_file(f"/sys/module/{item}/srcversion", srcversion(item, files[item]) + "\n")
    return 0, ""


def srcversion(name: str, facts: dict) -> str:
    """Return the ID of a module build, as `modinfo` and /sys show it."""
    from zlib import crc32

    return f"{crc32(repr((name, facts.get('version'), facts.get('package'))).encode()):08X}"


def forget_loaded() -> None:
    """Remove the modules of the previous boot from /sys."""
    for path in [path for path in walk("/sys/module") if path.endswith("/srcversion")]:
        os.unlink(path)


def install_module(state: State, release: str, name: str, facts: dict) -> None:
    """Install a module's file for one kernel."""
    folder = "updates/dkms" if facts.get("package") == "dkms" else "kernel/drivers"
    path = f"/usr/lib/modules/{release}/{folder}/{name.replace('_', '-')}.ko"
    write_file(path, f"stand-in module {name} {facts.get('version', '')}\n")
    state["module_files"].setdefault(release, {})[name] = {**facts, "path": path.replace("/usr/lib/", "/lib/", 1)}


def describe_driver(state: State) -> None:
    """Update the versions that device tools compare: the two halves of the driver, and the fabric manager."""
    from .universe import upstream

    packages = state["packages"]
    files = state["module_files"].get(state["kernel"], {})
    loaded = "nvidia" in state["modules"]
    driver = state["driver"]
    utils = _named(packages, "nvidia-utils")
    driver["userspace"] = upstream(utils["version"]) if utils else None
    if loaded and driver["loaded"] is None:
        driver["loaded"] = files["nvidia"]["version"]
        driver["open"] = files["nvidia"].get("open")
    if not loaded:
        driver["loaded"], driver["open"] = None, None
    manager = _named(packages, "nvidia-fabricmanager")
    state["fabric_manager"]["installed"] = upstream(manager["version"]) if manager else None
    if not loaded:
        state["persistenced"] = False


def _named(packages: dict, stem: str) -> dict | None:
    """Matches a package by NVIDIA's name or by Canonical's name, which adds the branch: nvidia-utils-580-server."""
    return next((package for name, package in packages.items() if name == stem or name.startswith(stem + "-")), None)


def refresh_devices() -> None:
    """Update device files below /proc/driver, /sys and /dev from the state."""
    from . import device_tools

    try:
        expected = device_tools.files()
    except SystemExit as error:  # for an unknown GPU, the node boots without device files
        os.write(2, f"stand-in devices: {error}\n".encode())
        expected = {}
    earlier = read_text(FILES_MADE, "").splitlines()
    for path in earlier:
        if path not in expected and exists(path):
            os.unlink(path)
    for path, text in expected.items():
        if read_text(path, "\0") != text:
            write_file(path, text, 0o444 if path.startswith(("/proc", "/sys")) else 0o666)
    write_file(FILES_MADE, "".join(path + "\n" for path in expected))


def modprobe(argv: list[str]) -> int:
    names = [word for word in argv if not word.startswith("-")]
    remove = any(word in ("-r", "--remove") for word in argv)
    quiet = any(word in ("-q", "--quiet") for word in argv)
    if not names:
        return fail("modprobe: ERROR: missing parameters. See -h.")
    if "-a" not in argv and "--all" not in argv:
        names = names[:1]  # the next words are parameters of the module
    if any(word in ("-n", "--dry-run", "--show-depends", "-D") for word in argv):
        return 0 if names[0].replace("-", "_") in _files() else fail(f"modprobe: FATAL: Module {names[0]} not found.")
    if remove:
        return rmmod(names)
    worst = 0
    for name in names:
        code, text = load(name)
        if code and not quiet:
            sys.stderr.write(text + "\n" if text else "")
        worst = worst or code
    refresh_devices()
    return worst


def rmmod(argv: list[str]) -> int:
    for name in [word.replace("-", "_") for word in argv if not word.startswith("-")]:
        state = read_state()
        users = [other for other in state["modules"] if name in DEPENDENCIES.get(other, [])]
        if name not in state["modules"]:
            return fail(f"rmmod: ERROR: Module {name} is not currently loaded")
        if users:
            return fail(f"rmmod: ERROR: Module {name} is in use by: {' '.join(users)}")
        if name == "nvidia" and (
            unit_active("nvidia-persistenced.service") or unit_active("nvidia-fabricmanager.service")
        ):
            return fail("rmmod: ERROR: Module nvidia is in use")

        def change(state: State, name: str = name) -> None:
            state["modules"].remove(name)
            describe_driver(state)

        change_state(change)
    refresh_devices()
    return 0


def lsmod(argv: list[str]) -> int:
    del argv
    loaded = read_state()["modules"]
    rows = ["Module                  Size  Used by"]
    for name in reversed(loaded):
        users = [other for other in loaded if name in DEPENDENCIES.get(other, [])]
        rows.append(f"{name:<20} {SIZES.get(name, 65536):>8}  {len(users)}{' ' + ','.join(users) if users else ''}")
    sys.stdout.write("\n".join(rows) + "\n")
    return 0


def modinfo(argv: list[str]) -> int:
    state = read_state()
    arguments = Arguments(argv, {"-F": "field", "--field": "field", "-k": "kernel", "--set-version": "kernel"})
    field = "filename" if arguments.has("-n", "--filename") else arguments.one("field")
    release, names = arguments.one("kernel", state["kernel"]), arguments.words
    if not names:
        return fail("modinfo: ERROR: missing module or filename.")
    worst = 0
    for name in names:
        facts = state["module_files"].get(release, {}).get(name.replace("-", "_"))
        if facts is None:
            worst = fail(f"modinfo: ERROR: Module {name} not found.")
            continue
        values = {
            "filename": facts["path"],
            "version": facts.get("version", ""),
            "license": facts.get("license", "GPL"),
            "srcversion": srcversion(name.replace("-", "_"), facts),
        }
        values |= {
            "description": "stand-in module",
            "name": name,
            "vermagic": f"{release} SMP mod_unload modversions ",
            "signer": facts.get("signer", ""),
        }
        if field:
            if values.get(field):
                sys.stdout.write(values[field] + "\n")
        else:
            sys.stdout.write("".join(f"{key + ':':<16}{value}\n" for key, value in values.items() if value))
    return worst


def uname(argv: list[str]) -> int:
    import posix

    state = read_state()
    host = posix.uname()
    parts = {
        "s": "Linux",
        "n": host.nodename,
        "r": state["kernel"],
        "v": "#1 SMP stand-in",
        "m": "x86_64",
        "p": "x86_64",
        "i": "x86_64",
        "o": "GNU/Linux",
    }
    long = {
        "--kernel-name": "s",
        "--nodename": "n",
        "--kernel-release": "r",
        "--kernel-version": "v",
        "--machine": "m",
        "--operating-system": "o",
    }
    asked = "".join(long.get(word, word[1:] if word != "--all" else "a") for word in argv) or "s"
    order = "snrvmpio"
    sys.stdout.write(" ".join(parts[letter] for letter in order if letter in asked or "a" in asked) + "\n")
    return 0


def mokutil(argv: list[str]) -> int:
    if "--sb-state" in argv:
        sys.stdout.write("SecureBoot disabled\n")
    return 0


def nothing(argv: list[str]) -> int:
    """Commands that have no effect on a stand-in node: depmod, update-initramfs, update-grub."""
    del argv
    return 0


def _files() -> dict:
    state = read_state()
    return state["module_files"].get(state["kernel"], {})


def _with_dependencies(name: str) -> list[str]:
    order: list[str] = []
    for need in DEPENDENCIES.get(name, []):
        order += [item for item in _with_dependencies(need) if item not in order]
    return [*order, name]


def _blacklisted() -> set[str]:
    modules = set()
    for path in [*walk("/etc/modprobe.d"), *walk("/usr/lib/modprobe.d")]:
        for line in read_text(path).splitlines():
            words = line.split()
            if words[:1] == ["blacklist"]:
                modules.add(words[1].replace("-", "_"))
    return modules
