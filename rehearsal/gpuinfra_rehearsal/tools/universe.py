"""The available packages, with their versions, repositories and content.

The data is in `universe.json`. This module fills its templates for one node (operating system, kernels, driver
versions).
"""

from __future__ import annotations

from .state import State, loads, read_text

HERE = __file__.rpartition("/")[0] or "."


def table(name: str) -> dict:
    """Return one of the data tables next to this module."""
    return loads(read_text(f"{HERE}/{name}"))  # type: ignore[return-value]


VERSIONS = "/opt/gpuinfra/current/versions.env"
ANY_VERSION = "1.0-1"
"""The version of a declared package that does not specify one."""


def declared_packages() -> dict[str, str]:
    """Return the declared packages with their versions. They are assigned to Ubuntu's repository, because the tables do not list all of its packages."""
    for line in read_text(VERSIONS, "").splitlines():
        name, _, value = line.partition("=")
        if name == "EXTRA_PACKAGES":
            specs = (spec.partition("=") for spec in value.strip("'").split())
            return {name: version for name, _, version in specs}
    return {}


class Universe:
    """The packages available to a node with this state."""

    def __init__(self, state: State) -> None:
        self.data = table("universe.json")
        self.os = state["image"]["os"]
        self.cloud = state["instance"]["cloud"]
        self.packages = {
            entry.get("name", key): entry for key, entry in self.data["packages"].items() if self._offered(entry)
        }
        declared = {} if "packages-missing" in state["faults"] else declared_packages()
        for name, version in declared.items():
            entry = self.packages.get(name, {"repo": "ubuntu", "versions": [] if version else [ANY_VERSION]})
            more = [version] if version and version not in entry["versions"] else []
            self.packages[name] = {**entry, "versions": [*entry["versions"], *more]}
        self.distro = self.os.replace("-", "").replace(".", "")
        self.number = self.os.partition("-")[2]
        self.suite = {"22.04": "jammy", "24.04": "noble"}[self.number]
        self.kernels = self.data["kernels"][self.cloud][self.os]
        self.running = state["kernel"]
        self._cache: dict[str, dict] = {}

    def lustre_kernels(self, repository: str) -> list[str]:
        """Return this operating system's kernels that have a Lustre client in a repository."""
        return [kernel for kernel in self.data["lustre_kernels"][repository] if kernel in self.kernels]

    def _offered(self, entry: dict) -> bool:
        """Return whether a package exists for this cloud and operating system."""
        return entry.get("cloud", self.cloud) == self.cloud and entry.get("os", self.os) == self.os

    def newest(self, entry: dict) -> str:
        """Return the newest kernel of the package's series, or of the running kernel's series."""
        series = entry.get("series") or self.running.rpartition("-")[0].rpartition("-")[0]  # 6.8.0 of 6.8.0-1040-aws
        same = [kernel for kernel in self.kernels if kernel.startswith(series + "-")]
        return (same or self.kernels)[-1]

    def names(self) -> list[str]:
        """Return all package names."""
        packages = []
        for name, entry in self.packages.items():
            family = entry.get("expand")
            if family is None:
                packages.append(name)
            else:
                packages += [name.replace("{" + family + "}", value) for value in self._values(entry)]
        return packages

    def get(self, name: str) -> dict | None:
        """Return the entry of a package with its templates filled, or None."""
        if name in self._cache:
            return self._cache[name]
        entry, values = self.packages.get(name), {}
        if entry is None:
            entry, values = self._template(name)
        if entry is None:
            return None
        entry = {**entry, "name": name, "values": values}
        entry["versions"] = self._versions(entry)
        self._cache[name] = entry
        return entry

    def fill(self, entry: dict, version: str, text: str) -> str:
        """Return a text of a package with its templates filled."""
        values = {
            **entry["values"],
            "version": version,
            "upstream": upstream(version),
            "suite": self.suite,
            "distro": self.distro,
        }
        values["newest_kernel"] = self.newest(entry)
        if "{newest_lustre_kernel}" in text:
            values["newest_lustre_kernel"] = (self.lustre_kernels(entry["repo"]) or [""])[-1]
        for name, value in values.items():
            text = text.replace("{" + name + "}", value)
        return text

    def _template(self, name: str) -> tuple[dict | None, dict[str, str]]:
        for pattern, entry in self.packages.items():
            family = entry.get("expand")
            if family is None:
                continue
            before, _, after = pattern.partition("{" + family + "}")
            value = (
                name[len(before) : len(name) - len(after)] if name.startswith(before) and name.endswith(after) else ""
            )
            if value and value in self._values(entry):
                return entry, {family: value}
        return None, {}

    def _values(self, entry: dict) -> list[str]:
        if entry["expand"] == "driver":
            return self.data["families"]["driver"]
        kernels = self.lustre_kernels(entry["only"]) if "only" in entry else self.kernels
        gone = self.data["headers_gone"] if entry.get("headers") else []
        return [kernel for kernel in kernels if kernel not in gone]

    def _versions(self, entry: dict) -> list[str]:
        if "family" in entry:
            return [value + entry["suffix"] for value in self.data["families"][entry["family"]]]
        if "versions_of" in entry:  # the version of Azure's client is the kernel version of its module
            return self.lustre_kernels(entry["versions_of"])
        values = {"kernel_deb": _deb(entry["values"].get("kernel", "")), "kernel_meta": _deb(self.newest(entry))}
        values |= {**entry["values"], "number": self.number, "suite": self.suite}
        versions = []
        for version in entry["versions"]:
            for name, value in values.items():
                version = version.replace("{" + name + "}", value)
            versions.append(version)
        return versions


def upstream(version: str) -> str:
    """Return `580.126.20` for `1:580.126.20-1ubuntu1`."""
    return version.partition(":")[2 if ":" in version else 0].rpartition("-")[0] or version


def _deb(kernel: str) -> str:
    return kernel.rpartition("-")[0].replace("-", ".", 1) + ".1" if kernel else ""


def matches(text: str, pattern: str) -> bool:
    """Return whether a text matches a glob that uses only `*`, as in apt's version and package patterns."""
    if "*" not in pattern:
        return text == pattern
    parts = pattern.split("*")
    if not text.startswith(parts[0]) or not text.endswith(parts[-1]):
        return False
    place = len(parts[0])
    for part in parts[1:-1]:
        at = text.find(part, place)
        if at < 0:
            return False
        place = at + len(part)
    return place <= len(text) - len(parts[-1])


def newer(left: str, right: str) -> int:
    """Return -1, 0 or 1 as dpkg orders versions."""
    for part, other in zip(_version_parts(left), _version_parts(right), strict=True):
        result = _compare(part, other)
        if result:
            return result
    return 0


def _version_parts(version: str) -> tuple[str, str, str]:
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    head, dash, tail = rest.rpartition("-")
    return (epoch, head, tail) if dash else (epoch, rest, "0")


def _order(char: str) -> int:
    if char == "~":
        return -1
    if char.isalpha():
        return ord(char)
    return ord(char) + 256 if char else 0


def _compare(left: str, right: str) -> int:
    a = b = 0
    while a < len(left) or b < len(right):
        while (a < len(left) and not left[a].isdigit()) or (b < len(right) and not right[b].isdigit()):
            order = _order(left[a]) if a < len(left) and not left[a].isdigit() else 0
            other = _order(right[b]) if b < len(right) and not right[b].isdigit() else 0
            if order != other:
                return -1 if order < other else 1
            a, b = a + 1, b + 1
        order, a = _digits(left, a)
        other, b = _digits(right, b)
        if order != other:
            return -1 if order < other else 1
    return 0


def _digits(text: str, start: int) -> tuple[int, int]:
    end = start
    while end < len(text) and text[end].isdigit():
        end += 1
    return int(text[start:end] or "0"), end
