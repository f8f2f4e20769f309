"""Finds, reads and enables systemd unit files. Supports the subset of the format that node and vendor units use."""

from __future__ import annotations

import os

SEARCH = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system")
WANTS = (".wants", ".requires")
TYPES = (".service", ".timer", ".target", ".path", ".mount", ".socket")


class UnitFile:
    """One unit: section -> key -> values in order. Not a dataclass, because importing dataclasses is slow."""

    def __init__(self, name: str, path: str) -> None:
        self.name, self.path = name, path
        self.sections: dict[str, dict[str, list[str]]] = {}

    def all(self, section: str, key: str) -> list[str]:
        """Return all values of a key. An empty assignment clears earlier values."""
        return self.sections.get(section, {}).get(key, [])

    def words(self, section: str, key: str) -> list[str]:
        """Return the words of a list such as `After=`."""
        return [word for value in self.all(section, key) for word in value.split()]

    def one(self, section: str, key: str, default: str = "") -> str:
        """Return the last value."""
        values = self.all(section, key)
        return values[-1] if values else default

    def flag(self, section: str, key: str, default: bool) -> bool:
        """Return a boolean setting."""
        value = self.one(section, key).lower()
        return default if not value else value in ("1", "yes", "true", "on")

    @property
    def kind(self) -> str:
        """`service`, `timer`, ..."""
        return self.name.rpartition(".")[2]

    @property
    def type(self) -> str:
        """`oneshot`, `simple`, ..."""
        return self.one("Service", "Type", "simple" if self.all("Service", "ExecStart") else "oneshot")


def full_name(name: str) -> str:
    """Return the name with its type: `ssh` becomes `ssh.service`."""
    return name if name.endswith(TYPES) else name + ".service"


def find(name: str) -> str | None:
    """Return the path of a unit's file, or None. For a masked unit, this is the link to /dev/null."""
    for folder in SEARCH:
        path = f"{folder}/{name}"
        if os.path.lexists(path):
            return path
    return None


def masked(name: str) -> bool:
    """Return whether the unit is masked."""
    path = find(name)
    return path is not None and os.path.islink(path) and os.readlink(path) == "/dev/null"


def load(name: str) -> UnitFile | None:
    """Return the unit with its drop-ins, or None without a file. A target does not need a file."""
    path = find(name)
    template = None
    if path is None and "@" in name:
        template = name.partition("@")[0] + "@." + name.rpartition(".")[2]
        path = find(template)
    if path is None or masked(name):
        return UnitFile(name, "") if path is None and name.endswith(".target") else None
    unit = UnitFile(name, path)
    _read(unit, path)
    for drop in drop_ins(template or name):
        _read(unit, drop)
    return unit


def drop_ins(name: str) -> list[str]:
    """Return the drop-in files of a unit in the order in which they apply."""
    paths = []
    for folder in reversed(SEARCH):
        drop = f"{folder}/{name}.d"
        if os.path.isdir(drop):
            paths += [f"{drop}/{file}" for file in sorted(os.listdir(drop)) if file.endswith(".conf")]
    return paths


def wanted_by(target: str) -> list[str]:
    """Return the units enabled for a target: the links in its folders."""
    names: list[str] = []
    for folder in SEARCH:
        for suffix in WANTS:
            try:
                names += sorted(os.listdir(f"{folder}/{target}{suffix}"))
            except OSError:
                continue
    return list(dict.fromkeys(names))


def enable(name: str) -> list[str]:
    """Create the links of `[Install]`. Returns the lines that systemctl prints."""
    unit = load(name)
    if unit is None:
        raise FileNotFoundError(f"Unit file {name} does not exist.")
    messages = []
    for key, suffix in (("WantedBy", ".wants"), ("RequiredBy", ".requires")):
        for target in unit.words("Install", key):
            link = f"/etc/systemd/system/{target}{suffix}/{name}"
            if not os.path.lexists(link):
                os.makedirs(os.path.dirname(link), exist_ok=True)
                os.symlink(unit.path, link)
                messages.append(f"Created symlink {link} → {unit.path}.")
    for alias in unit.words("Install", "Alias"):
        link = f"/etc/systemd/system/{alias}"
        if not os.path.lexists(link):
            os.symlink(unit.path, link)
            messages.append(f"Created symlink {link} → {unit.path}.")
    for also in unit.words("Install", "Also"):
        messages += enable(also)
    return messages


def disable(name: str) -> list[str]:
    """Remove all links that enable the unit. Returns the lines that systemctl prints."""
    messages = []
    for folder in SEARCH[:2]:
        for entry in os.listdir(folder) if os.path.isdir(folder) else ():
            if entry.endswith(WANTS):
                link = f"{folder}/{entry}/{name}"
                if os.path.lexists(link):
                    os.unlink(link)
                    messages.append(f"Removed {link}.")
    return messages


def is_enabled(name: str) -> str:
    """Return the output of `systemctl is-enabled`."""
    path = find(name)
    if path is None:
        return "not-found"
    if masked(name):
        return "masked"
    for folder in SEARCH:
        try:
            entries = os.listdir(folder)
        except OSError:
            continue
        if any(entry.endswith(WANTS) and os.path.lexists(f"{folder}/{entry}/{name}") for entry in entries):
            return "enabled"
    unit = load(name)
    return "disabled" if unit is not None and unit.sections.get("Install") else "static"


def seconds(text: str) -> float:
    """Convert `10min`, `1h 30s` or `90` to seconds. `infinity` is 1e9."""
    if text.strip() in ("infinity", ""):
        return 1e9
    total, number, letters = 0.0, "", ""
    for char in text.replace(" ", "") + "\0":
        if char.isdigit() or char == ".":
            if letters:
                total += float(number) * _UNITS[letters]
                number = letters = ""
            number += char
        elif char == "\0":
            if number:
                total += float(number) * _UNITS[letters or "s"]
        else:
            letters += char
    return total


_UNITS = {
    name: factor
    for names, factor in (
        ("us", 1e-6), ("ms", 1e-3), ("s sec second seconds", 1), ("m min minute minutes", 60), ("h hr hour hours", 3600),
        ("d day days", 86400), ("w week weeks", 604800),
    )
    for name in names.split()
}  # fmt: skip


def _read(unit: UnitFile, path: str) -> None:
    section: dict[str, list[str]] = {}
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().replace("\\\n", " ").splitlines()
    for line in lines:
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        if line.startswith("[") and line.endswith("]"):
            section = unit.sections.setdefault(line[1:-1], {})
        elif "=" in line:
            key, _, value = line.partition("=")
            values = section.setdefault(key.strip(), [])
            if value.strip():
                values.append(_specifiers(unit.name, value.strip()))
            else:
                values.clear()


def _specifiers(name: str, value: str) -> str:
    if "%" not in value:
        return value
    instance = name.partition("@")[2].rpartition(".")[0]
    for sign, text in (("%i", instance), ("%I", instance), ("%n", name), ("%N", name.rpartition(".")[0]), ("%%", "%")):
        value = value.replace(sign, text)
    return value


def unmet(unit: UnitFile) -> list[str]:
    """Return the unmet conditions."""
    conditions, triggering, triggered = [], [], False
    checks = {
        "ConditionPathExists": os.path.exists,
        "ConditionPathIsDirectory": os.path.isdir,
        "ConditionDirectoryNotEmpty": _has_entries,
        "ConditionFileNotEmpty": _not_empty,
    }
    for key, check in checks.items():
        for value in unit.all("Unit", key):
            path = value.removeprefix("|")
            holds = check(path.removeprefix("!")) != path.startswith("!")
            if value.startswith("|"):  # at least one of these conditions must hold
                triggering.append(f"{key}={value}")
                triggered = triggered or holds
            elif not holds:
                conditions.append(f"{key}={value}")
    return conditions + ([] if triggered else triggering)


def _has_entries(path: str) -> bool:
    return os.path.isdir(path) and bool(os.listdir(path))


def _not_empty(path: str) -> bool:
    return os.path.isfile(path) and os.path.getsize(path) > 0
