"""apt-get, apt-cache and apt-mark for the packages in `universe.json`.

`update` finds the packages in a repository only if a sources list contains the repository and its signing key is trusted.
Pins, holds and exact version dependencies work as in apt.
"""

from __future__ import annotations

import os
import sys

from .arguments import Arguments
from .packages import install, remove
from .passing import package_lock, remaining
from .state import State, change_state, exists, fail, read_state, read_text, walk, write_file
from .universe import Universe, declared_packages, matches, newer

LISTS = "/var/lib/apt/lists"


_VALUED = {"-o": "setting", "-c": "file", "-t": "release"}


def apt_get(argv: list[str]) -> int:
    arguments = Arguments(argv, _VALUED)
    words, options = arguments.words, arguments.flags
    action, names = (words[0], words[1:]) if words else ("", [])
    if action == "update":
        return package_lock("update") or _update()
    if action == "download":
        return _download(names)
    if action in ("install", "remove", "purge", "autoremove"):
        if locked := package_lock("apt-get", _lock_timeout(arguments.all("setting"))):
            return locked
        return _install(names, options) if action == "install" else _remove(names)
    if action in ("upgrade", "dist-upgrade", "full-upgrade"):
        return _upgrade()
    if action in ("clean", "autoclean", "check", "autopurge", ""):
        return 0
    return fail(f"E: Invalid operation {action}", 100)


def _lock_timeout(settings: list[str]) -> float:
    """Return the value of `-o DPkg::Lock::Timeout=SECONDS`."""
    return max([0.0, *(float(text.partition("=")[2]) for text in settings if text.startswith("DPkg::Lock::Timeout="))])


def apt_cache(argv: list[str]) -> int:
    words = Arguments(argv, _VALUED).words
    action, names = (words[0], words[1:]) if words else ("", [])
    state = read_state()
    universe = Universe(state)
    if action == "pkgnames":
        prefix = names[0] if names else ""
        packages = [
            name
            for name in universe.names()
            if name.startswith(prefix) and (_known(universe, name) or name in state["packages"])
        ]
        sys.stdout.write("".join(f"{name}\n" for name in packages))
        return 0
    for name in names:
        versions = _known(universe, name)
        installed = state["packages"].get(name, {}).get("version")
        if action == "policy":
            if not versions and not installed:
                continue
            candidate = _candidate(universe, name, _pins()) or installed or "(none)"
            sys.stdout.write(
                f"{name}:\n  Installed: {installed or '(none)'}\n  Candidate: {candidate}\n  Version table:\n"
            )
            for version in reversed(versions):
                sys.stdout.write(f" {'***' if version == installed else '   '} {version} 500\n")
        elif action in ("madison", "show"):
            if not versions:
                return fail(f"N: Unable to locate package {name}", 100)
            for version in reversed(versions):
                if action == "madison":
                    sys.stdout.write(f"{name:>10} | {version} | {_uri(universe, name)} Packages\n")
                else:
                    sys.stdout.write(f"Package: {name}\nVersion: {version}\nArchitecture: amd64\n\n")
    return 0


def apt_mark(argv: list[str]) -> int:
    words = Arguments(argv, _VALUED).words
    action, names = (words[0], words[1:]) if words else ("", [])
    packages = read_state()["packages"]
    if action in ("showhold", "showholds"):
        sys.stdout.write(
            "".join(
                f"{name}\n" for name in sorted(packages) if packages[name].get("hold") and (not names or name in names)
            )
        )
        return 0
    if action in ("showmanual", "showauto"):
        requested = action == "showauto"
        sys.stdout.write(
            "".join(f"{name}\n" for name in sorted(packages) if bool(packages[name].get("auto")) == requested)
        )
        return 0
    unknown = [name for name in names if name not in packages]
    if unknown:
        return fail(f"E: Unable to locate package {unknown[0]}", 100)
    if locked := package_lock("apt-mark"):
        return locked

    def change(state: State) -> None:
        for name in names:
            if action in ("hold", "unhold"):
                state["packages"][name]["hold"] = action == "hold"
            else:
                state["packages"][name]["auto"] = action == "auto"

    change_state(change)
    for name in names:
        text = {"hold": "set on hold.", "unhold": "Canceled hold on"}.get(action, "")
        sys.stdout.write(f"{name} {text}\n" if action == "hold" else f"{text} {name}.\n")
    return 0


def _update() -> int:
    """All errors count. The real apt ignores some errors without Error-Mode=any."""
    state = read_state()
    universe = Universe(state)
    worst = 0
    for path in walk(LISTS):
        os.unlink(path)
    for source, keyring in _sources():
        if remaining("dns-off"):
            # apt 2.6.1, methods/connect.cc: the answer of the resolver is EAI_AGAIN.
            host = source.partition("://")[2].partition("/")[0]
            worst = fail(f"E: Failed to fetch {source}/InRelease  Temporary failure resolving '{host}'", 100)
            continue
        configured = next((item for item in universe.data["repositories"].items() if item[1]["uri"] in source), None)
        if configured is None:
            sys.stdout.write(f"Err: {source}\n")
            worst = fail(
                f"E: Failed to fetch {source}  Could not resolve host (a stand-in node reaches only vendors' repositories)",
                100,
            )
            continue
        name, repository = configured
        if "repository-503" in state["faults"] and name != "ubuntu":
            worst = fail(f"E: Failed to fetch {source}/InRelease  503  Service Unavailable", 100)
            continue
        if repository["key"] and repository["key"] not in read_text(keyring or "/nonexistent", ""):
            sys.stderr.write(
                f"W: GPG error: {source} InRelease: The following signatures couldn't be verified: NO_PUBKEY {repository['key'][-16:]}\n"
            )
            worst = fail(f"E: The repository '{source} InRelease' is not signed.", 100)
            continue
        write_file(f"{LISTS}/{name}_Packages", source + "\n")
        sys.stdout.write(f"Get: {source} InRelease\n")
    sys.stdout.write("Reading package lists...\n")
    return worst


def _install(names: list[str], options: set[str]) -> int:
    state = read_state()
    universe, pins = Universe(state), _pins()
    chosen: dict[str, str] = {}
    files: list[str] = []
    for word in names:
        if word.startswith(("/", "./")):
            files.append(word)
            continue
        name, _, version = word.partition("=")
        try:
            _resolve(universe, state, name.partition(":")[0], version, pins, chosen, options, asked=True)
        except LookupError as error:
            return fail(f"E: {error}", 100)
    sys.stdout.write("Reading package lists...\nBuilding dependency tree...\n")
    conflicts = [
        (name, other)
        for name in chosen
        for other in (universe.get(name) or {}).get("conflicts", [])
        if other in chosen or other in state["packages"]
    ]
    gone = [other for _, other in conflicts if other not in chosen]
    if any(other in chosen for _, other in conflicts):
        return fail(f"E: Unable to correct problems: {conflicts[0][0]} : Conflicts: {conflicts[0][1]}", 100)
    if gone:
        remove(gone)
    new = [name for name in chosen if name not in state["packages"]]
    if "packages-unreachable" in state["faults"] and (lost := sorted(chosen.keys() & declared_packages().keys())):
        for name in lost:
            sys.stderr.write(
                f"E: Failed to fetch {_uri(universe, name)}/pool/{name}_{chosen[name]}_amd64.deb  503  Service Unavailable\n"
            )
        return fail(
            "E: Unable to fetch some archives, maybe run apt-get update or try with --fix-missing?", 100
        )  # both lines as apt 2.7 prints them when a server returns 503
    if chosen:
        sys.stdout.write("The following packages will be installed:\n  " + " ".join(sorted(chosen)) + "\n")
        asked = {word.partition("=")[0] for word in names}
        for name, version in chosen.items():
            sys.stdout.write(f"Setting up {name} ({version}) ...\n")
        install(chosen, auto=frozenset(name for name in chosen if name not in asked))
    for path in files:
        from .dpkg import dpkg

        code = dpkg(["-i", path])
        if code:
            return code
    sys.stdout.write(f"0 upgraded, {len(new)} newly installed, 0 to remove.\n")
    return 0


def _download(names: list[str]) -> int:
    """`apt-get download NAME=VERSION`: write the package file to the working folder."""
    universe = Universe(read_state())
    for word in names:
        name, _, requested = word.partition("=")
        fitting = [version for version in _known(universe, name) if not requested or matches(version, requested)]
        if not fitting:
            return fail(f"E: Can't find a source to download version '{requested}' of '{name}'", 100)
        text = f"stand-in file apt\npackage {name} {fitting[-1]} amd64\nend\n"
        write_file(f"{os.getcwd()}/{name}_{fitting[-1]}_all.deb", text)
    return 0


def _resolve(
    universe: Universe,
    state: State,
    name: str,
    requested: str,
    pins: list,
    chosen: dict[str, str],
    options: set[str],
    asked: bool,
) -> None:
    installed = state["packages"].get(name)
    if name in chosen:
        if requested and not matches(chosen[name], requested):
            raise LookupError(f"Unable to correct problems: {name} is required at {chosen[name]} and at {requested}")
        return
    if installed and (not requested or matches(installed["version"], requested)) and not asked:
        return
    versions = _known(universe, name)
    if not versions and not installed:
        raise LookupError(f"Unable to locate package {name}")
    if requested:
        fitting = [version for version in versions if matches(version, requested)]
        if not fitting:
            raise LookupError(f"Version '{requested}' for '{name}' was not found")
        version = fitting[-1]
    else:
        version = _candidate(universe, name, pins) or (installed or {}).get("version", "")
        if not version:
            raise LookupError(f"Package '{name}' has no installation candidate")
    if installed:
        if installed["version"] == version or (not requested and newer(version, installed["version"]) < 0):
            return
        if installed.get("hold") and "--allow-change-held-packages" not in options:
            raise LookupError("Held packages were changed and -y was used without --allow-change-held-packages.")
        if (
            newer(version, installed["version"]) < 0
            and "--allow-downgrades" not in options
            and "--force-yes" not in options
        ):
            raise LookupError("Packages were downgraded and -y was used without --allow-downgrades.")
    entry = universe.get(name) or {}
    for need in entry.get("depends", []):
        other, _, relation = universe.fill(entry, version, need).partition(" ")
        exact = "same" in relation and "(=" in relation
        _resolve(
            universe, state, other, _same(universe, other, version) if exact else "", pins, chosen, options, asked=False
        )
    chosen[name] = version


def _same(universe: Universe, name: str, version: str) -> str:
    """Return the version of another package from the same source."""
    entry = universe.get(name) or {}
    if version in entry.get("versions", []):
        return version
    return version.rpartition("-")[0] + "-*"


def _remove(names: list[str]) -> int:
    installed = read_state()["packages"]
    gone = [name for word in names for name in installed if matches(name, word)]
    remove(gone)
    sys.stdout.write("".join(f"Removing {name} ...\n" for name in gone))
    return 0


def _upgrade() -> int:
    state = read_state()
    universe, pins = Universe(state), _pins()
    upgrades = {}
    for name, package in state["packages"].items():
        candidate = _candidate(universe, name, pins)
        if candidate and not package.get("hold") and newer(candidate, package["version"]) > 0:
            upgrades[name] = candidate
    install(upgrades)
    sys.stdout.write(f"{len(upgrades)} upgraded, 0 newly installed, 0 to remove.\n")
    return 0


def _known(universe: Universe, name: str) -> list[str]:
    """Return the versions in the lists of configured repositories, oldest first."""
    entry = universe.get(name)
    if entry is None or not exists(f"{LISTS}/{entry['repo']}_Packages"):
        return []
    return entry["versions"]


def _candidate(universe: Universe, name: str, pins: list[tuple[list[str], str, int]]) -> str:
    versions = _known(universe, name)
    if not versions:
        return ""
    best: tuple[int, str] = (500, versions[-1])
    for patterns, requested, priority in pins:
        if priority > best[0] and any(matches(name, pattern) for pattern in patterns):
            fitting = [version for version in versions if matches(version, requested)]
            if fitting:
                best = (priority, fitting[-1])
    return best[1]


def _pins() -> list[tuple[list[str], str, int]]:
    """Return (package globs, version glob, priority) of each preference file."""
    pins = []
    for path in [*walk("/etc/apt/preferences.d"), "/etc/apt/preferences"]:
        packages: list[str] = []
        version = ""
        for line in [*read_text(path, "").splitlines(), ""]:
            key, _, value = line.partition(":")
            if key == "Package":
                packages = value.split()
            elif key == "Pin" and value.split()[:1] == ["version"]:
                version = value.split()[1]
            elif key == "Pin-Priority" and version:
                pins.append((packages, version, int(value)))
            elif not line.strip():
                packages, version = [], ""
    return pins


def _sources() -> list[tuple[str, str]]:
    """Return (URI, keyring) of each enabled source."""
    sources = []
    for path in ["/etc/apt/sources.list", *walk("/etc/apt/sources.list.d")]:
        text = read_text(path, "")
        if path.endswith(".list"):
            for line in text.splitlines():
                words = line.split()
                if words[:1] != ["deb"]:
                    continue
                keyring, rest = "", words[1:]
                if rest and rest[0].startswith("["):
                    while rest and not rest[0].endswith("]"):
                        keyring += rest.pop(0) + " "
                    keyring += rest.pop(0)
                keyring = next(
                    (item.partition("=")[2] for item in keyring.strip("[]").split() if item.startswith("signed-by=")),
                    "",
                )
                if rest:
                    sources.append((rest[0].rstrip("/"), keyring))
        elif path.endswith(".sources"):
            values = {line.partition(":")[0]: line.partition(":")[2] for line in text.splitlines()}
            for uri in values.get("URIs", "").split():
                sources.append((uri.rstrip("/"), values.get("Signed-By", "").strip()))
    return sources


def _uri(universe: Universe, name: str) -> str:
    return "https://" + universe.data["repositories"][(universe.get(name) or {})["repo"]]["uri"]
