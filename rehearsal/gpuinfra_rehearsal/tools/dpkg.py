"""dpkg and dpkg-query for the node's installed packages."""

from __future__ import annotations

import sys

from .arguments import Arguments
from .packages import configure_all, file_list, install, remove
from .passing import package_lock
from .state import State, fail, read_state, read_text
from .universe import Universe, matches, newer

_RELATIONS = {
    "lt": (-1,), "le": (-1, 0), "eq": (0,), "ne": (-1, 1), "ge": (0, 1), "gt": (1,),
    "<": (-1, 0), "<<": (-1,), "<=": (-1, 0), "=": (0,), ">=": (0, 1), ">>": (1,), ">": (0, 1),
}  # fmt: skip


def dpkg(argv: list[str]) -> int:
    """The actions that bootstrap steps use."""
    words = [word for word in argv if not word.startswith("--force")]
    action, rest = (words[0], words[1:]) if words else ("", [])
    if action in ("-i", "--install", "--unpack", "--configure", "-r", "--remove", "-P", "--purge") and (
        locked := package_lock("dpkg")
    ):
        return locked
    if action in ("-i", "--install", "--unpack"):
        return _install(rest, configure=action != "--unpack")
    if action == "--print-architecture":
        sys.stdout.write("amd64\n")
        return 0
    if action == "--print-foreign-architectures":
        return 0
    if action == "--compare-versions":
        return 0 if newer(rest[0], rest[2]) in _RELATIONS[rest[1]] else 1
    if action in ("--audit", "-C"):
        half = _half()
        if half:
            sys.stdout.write(
                "The following packages have been unpacked but not yet configured:\n"
                + "".join(f" {name}\n" for name in half)
            )
        return 0
    if action == "--configure":
        half = _half()
        sys.stdout.write("".join(f"Setting up {name} ...\n" for name in half))
        broken = configure_all() if half else []
        return fail(f"dpkg: error processing package {broken[0]} (--configure)") if broken else 0
    if action in ("-l", "--list", "-s", "--status", "-L", "--listfiles", "-S", "--search"):
        return dpkg_query(argv)
    if action in ("-r", "--remove", "-P", "--purge"):
        remove(rest)
        return 0
    if action in ("-c", "--contents", "-I", "--info"):
        sys.stdout.write(read_text(rest[0], ""))
        return 0
    return fail(f"dpkg: error: the stand-in does not support {action}", 2)


_ACTIONS = {"-W": "--show", "-l": "--list", "-s": "--status", "-L": "--listfiles", "-S": "--search"}


def dpkg_query(argv: list[str]) -> int:
    """`-W -f=...`, `-l`, `-s`, `-L`, `-S`."""
    state = read_state()
    packages = state["packages"]
    arguments = Arguments(argv, {"-f": "format", "--showformat": "format"})
    form = arguments.one("format", "${Package}\\t${Version}\\n")
    action = next((action for action, name in _ACTIONS.items() if arguments.has(action, name)), "")
    patterns = [word if "*" in word else word.partition(":")[0] for word in arguments.words]
    if action == "-S":
        return _search(state, patterns)
    if action == "-L":
        for name in patterns:
            if name not in packages:
                return fail(f"dpkg-query: package '{name}' is not installed", 1)
            sys.stdout.write("\n".join(file_list(state, name)) + "\n")
        return 0
    names = [name for name in sorted(packages) if not patterns or any(matches(name, pattern) for pattern in patterns)]
    missing = [pattern for pattern in patterns if not any(matches(name, pattern) for name in packages)]
    for name in names:
        package = packages[name]
        abbreviation = ("h" if package.get("hold") else "i") + ("U" if package.get("half") else "i")
        if action == "-s":
            want = "hold" if package.get("hold") else "install"
            sys.stdout.write(
                f"Package: {name}\nStatus: {want} ok installed\nArchitecture: amd64\nVersion: {package['version']}\n\n"
            )
        elif action == "-l":
            sys.stdout.write(f"{abbreviation}  {name:<40} {package['version']:<30} amd64\n")
        else:
            sys.stdout.write(_format(form, name, package, abbreviation))
    for pattern in missing:
        sys.stderr.write(f"dpkg-query: no packages found matching {pattern}\n")
    return 1 if missing else 0


def _install(paths: list[str], configure: bool) -> int:
    for path in paths:
        lines = read_text(path, "").splitlines()
        words = lines[1].split() if len(lines) > 1 else []
        if len(words) != 4 or words[0] != "package":
            return fail(f"dpkg-deb: error: '{path}' is not a Debian format archive", 1)
        sys.stdout.write(f"{'Setting up' if configure else 'Unpacking'} {words[1]} ({words[2]}) ...\n")
        install({words[1]: words[2]}, origin="file", configure=configure)
    return 0


def _half() -> list[str]:
    packages = read_state()["packages"]
    return [name for name in packages if packages[name].get("half")]


def _search(state: State, patterns: list[str]) -> int:
    matched = False
    for name in state["packages"]:
        for path in file_list(state, name):
            if any(pattern == path or (not pattern.startswith("/") and pattern in path) for pattern in patterns):
                sys.stdout.write(f"{name}: {path}\n")
                matched = True
    return 0 if matched else fail(f"dpkg-query: no path found matching pattern {patterns[0]}", 1)


def _format(form: str, name: str, package: dict, abbreviation: str) -> str:
    status = "half-configured" if package.get("half") else "installed"
    want = "hold" if package.get("hold") else "install"
    if "${Depends}" in form:
        universe = Universe(read_state())
        entry = universe.get(name) or {}
        needs = [universe.fill(entry, package["version"], need) for need in entry.get("depends", [])]
        form = form.replace("${Depends}", ", ".join(needs))
    values = {
        "Package": name, "binary:Package": name, "Version": package["version"], "Architecture": "amd64",
        "Status": f"{want} ok {status}", "db:Status-Status": status, "db:Status-Abbrev": abbreviation + " ",
        "db:Status-Want": want, "source:Package": name, "source:Version": package["version"],
    }  # fmt: skip
    for key, value in values.items():
        form = form.replace("${" + key + "}", value)
    return form.replace("\\n", "\n").replace("\\t", "\t")
