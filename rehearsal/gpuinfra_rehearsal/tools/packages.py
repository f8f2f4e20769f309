"""Installs and removes packages on a stand-in node, with the effects of their files and maintainer scripts."""

from __future__ import annotations

# ruff: noqa: SIM105 - contextlib takes longer to import than most of these commands run
import os
import sys

from . import kernel
from .state import LIB, RUN, State, change_state, exists, fail, link, make_folder, read_state, read_text, write_file
from .universe import Universe, newer, upstream

LAUNCHER = LIB + "/tool"
TRIPLET = "/usr/lib/x86_64-linux-gnu"


def install(
    names: dict[str, str],
    *,
    auto: frozenset[str] = frozenset(),
    origin: str = "repository",
    services: bool = True,
    configure: bool = True,
) -> None:
    """Install packages (version by name). The caller resolves dependencies and lists them first.

    Without `configure`, packages are only unpacked: nothing is built or started until `configure_all`.
    """
    start: list[str] = []

    def change(state: State) -> None:
        universe = Universe(state)
        for name, version in names.items():
            entry = universe.get(name)
            if entry is None:
                continue
            old = state["packages"].get(name)
            if old and old["version"] != version:
                _unpack(universe, entry, old["version"], state, remove=True)
            state["packages"][name] = {
                "version": version,
                "hold": bool(old and old.get("hold")),
                "auto": name in auto,
                "from": origin,
                **({} if configure else {"half": True}),
            }
            _unpack(universe, entry, version, state)
            start.extend(_units(entry))
        _dkms(universe, state)
        kernel.describe_driver(state)

    change_state(change)
    kernel.refresh_devices()
    if services and configure and start and exists(RUN + "/init.sock"):
        from .systemctl import request

        request({"do": "start", "units": start, "wait": True})


def configure_all() -> list[str]:
    """Run `dpkg --configure -a`. Returns the packages that cannot be configured."""

    def change(state: State) -> None:
        for package in state["packages"].values():
            package.pop("half", None)
        _dkms(Universe(state), state)
        for item in state["dkms"]:
            if item["status"] == "broken" and item.get("package") in state["packages"]:
                item["status"] = "added"
                state["packages"][item["package"]]["half"] = True
        kernel.describe_driver(state)

    state = change_state(change)
    kernel.refresh_devices()
    return [name for name, package in state["packages"].items() if package.get("half")]


def remove(names: list[str]) -> None:
    """Remove packages with their files."""

    def change(state: State) -> None:
        universe = Universe(state)
        for name in names:
            entry, old = universe.get(name), state["packages"].pop(name, None)
            if entry and old:
                _unpack(universe, entry, old["version"], state, remove=True)
        kernel.describe_driver(state)

    change_state(change)
    kernel.refresh_devices()


def file_list(state: State, name: str) -> list[str]:
    """Return the files of a package, as `dpkg -L` prints them."""
    universe = Universe(state)
    entry, package = universe.get(name), state["packages"].get(name)
    if entry is None or package is None:
        return []
    files = [universe.fill(entry, package["version"], path) for path in entry.get("files", {})]
    files += entry.get("commands", []) + [f"/usr/lib/systemd/system/{unit}" for unit in entry.get("units", [])]
    return sorted([*files, f"/usr/share/doc/{name}"])


def _unpack(universe: Universe, entry: dict, version: str, state: State, remove: bool = False) -> None:
    def fill(text: str) -> str:
        return universe.fill(entry, version, text)

    paths: list[str] = []
    for path, text in entry.get("files", {}).items():
        paths.append(fill(path))
        if not remove:
            write_file(paths[-1], fill(text))
    links = {path: LAUNCHER for path in entry.get("commands", [])} | entry.get("links", {})
    for soname, real in entry.get("libraries", {}).items():
        paths.append(f"{TRIPLET}/{fill(real)}")
        links[f"{TRIPLET}/{soname}"] = fill(real)
        if not remove:
            write_file(paths[-1], f"stand-in library {fill(real)}\n")
    for path, target in links.items():
        paths.append(path)
        if not remove:
            link(target, path)
    for unit in entry.get("units", []):
        paths.append(f"/usr/lib/systemd/system/{unit}")
        if not remove:
            write_file(paths[-1], _unit_text(unit))
    if remove:
        for path in paths:
            _unlink(path)
        if "dkms" in entry:
            for release in state["kernels"]:
                for name in entry["dkms"]["modules"]:
                    state["module_files"].get(release, {}).pop(name, None)
            state["dkms"] = [item for item in state["dkms"] if item["module"] != entry["dkms"]["module"]]
        return
    if "kernel_modules" in entry:
        release = entry["values"]["kernel"]
        facts = {
            "version": fill(entry.get("module_version", "")),
            "license": entry.get("module_license", "GPL"),
            "open": entry.get("module_open"),
            "signer": entry.get("module_signer", ""),
            "package": entry["name"],
        }
        for name in entry["kernel_modules"]:
            kernel.install_module(state, release, name, facts)
    if entry.get("boots"):
        release = entry["values"]["kernel"]
        if release not in state["kernels"]:
            state["kernels"].append(release)
            state["next_kernel"] = release
    if entry.get("headers"):
        release = entry["values"]["kernel"]
        make_folder(f"/usr/lib/modules/{release}")
        link(f"/usr/src/linux-headers-{release}", f"/usr/lib/modules/{release}/build")
    if "dkms" in entry:
        state["dkms"] = [item for item in state["dkms"] if item["module"] != entry["dkms"]["module"]]
        built = entry["dkms"].get("version") or upstream(version)
        item = {"module": entry["dkms"]["module"], "version": built, "status": "added", "kernel": ""}
        state["dkms"].append(
            {
                **item,
                "open": entry["dkms"]["open"],
                "modules": entry["dkms"]["modules"],
                "license": entry["dkms"]["license"],
                "package": entry["name"],
                "from_kernel": entry["dkms"].get("from_kernel"),
            }
        )


def _dkms(universe: Universe, state: State) -> None:
    """Build DKMS modules for each kernel with headers. Without headers, they remain `added`."""
    for item in list(state["dkms"]):
        for release in state["kernels"]:
            if not exists(f"/usr/lib/modules/{release}/build/Makefile"):
                if release == state["kernel"] and item["status"] == "added":
                    sys.stdout.write(
                        f"Error! Your kernel headers for kernel {release} cannot be found at\n/lib/modules/{release}/build or /lib/modules/{release}/source.\n"
                    )
                continue
            done = any(
                other["module"] == item["module"] and other["kernel"] == release and other["version"] == item["version"]
                for other in state["dkms"]
            )
            if done or state["packages"].get(item.get("package", ""), {}).get("half"):
                continue
            if _source_too_old(item, release):
                sys.stdout.write(f"Error! Bad return status for module build on kernel: {release} (x86_64)\n")
                item["status"] = "broken"
                continue
            version = item["version"]
            if "driver-mismatch" in state["faults"] and item["module"] == "nvidia":
                version = older_driver(universe, version)
            for name in item["modules"]:
                facts = {"version": version, "license": item["license"], "open": item["open"], "package": "dkms"}
                kernel.install_module(state, release, name, facts)
            state["dkms"].append({**item, "kernel": release, "status": "installed"})
            sys.stdout.write(f"Building initial module for {release}\nDone.\n")
    built = {item["module"] for item in state["dkms"] if item["status"] == "installed"}
    state["dkms"] = [item for item in state["dkms"] if item["status"] == "installed" or item["module"] not in built]


def dkms(argv: list[str]) -> int:
    """`status`, and `autoinstall`, which builds missing modules."""
    state = read_state()
    if argv[:1] == ["status"]:
        for item in state["dkms"]:
            where = f", {item['kernel']}, x86_64" if item["kernel"] else ""
            sys.stdout.write(f"{item['module']}/{item['version']}{where}: {item['status']}\n")
        return 0
    if argv[:1] in (["autoinstall"], ["install"], ["build"]):
        install({})
        return 0
    return fail(f"dkms: the stand-in has no action {argv[:1]}")


def _source_too_old(item: dict, release: str) -> bool:
    """Return whether a module's source fails to build on a kernel. `from_kernel` contains the first such kernel, a
    file, and the text that the file then requires."""
    if not item.get("from_kernel"):
        return False
    first, path, text = item["from_kernel"]
    return newer(release.partition("-")[0], first) >= 0 and text not in read_text(path, "")


def older_driver(universe: Universe, version: str) -> str:
    """Return the previous release on the same branch, for the fault `driver-mismatch`."""
    branch = version.partition(".")[0] + "."
    same = [other for other in universe.data["families"]["driver"] if other.startswith(branch)]
    place = same.index(version) if version in same else 0
    return same[place - 1] if place else same[-1]


def _units(entry: dict) -> list[str]:
    """Enable the units of a package, as its maintainer scripts do. Returns the units that they start."""
    if not entry.get("enable"):
        return []
    from .unitfile import enable, masked

    for unit in entry["units"]:
        if not masked(unit):
            enable(unit)
    return [unit for unit in entry["units"] if entry.get("start") and not unit.endswith("refresh.service")]


def _unit_text(unit: str) -> str:
    from .universe import table

    return "\n".join(table("units.json")["units"][unit]) + "\n"


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
