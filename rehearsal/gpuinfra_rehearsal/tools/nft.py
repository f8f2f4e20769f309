"""`nft` on a stand-in node: loads tables from a file and lists them in nft's format. Tables last until the next boot."""

from __future__ import annotations

import sys

from .state import State, change_state, fail, read_state, read_text

MISSING = "Error: No such file or directory"


def nft(argv: list[str]) -> int:
    """`-f FILE`, `list table|tables|ruleset`, `delete table`, `flush ruleset`."""
    if "--version" in argv or "-v" in argv:
        sys.stdout.write("nftables v1.0.2 (Lester Gooch)\n")
        return 0
    tables = loaded(read_state())
    if argv[:1] == ["-f"] and len(argv) == 2:
        return _load(argv[1], tables)
    if argv[:2] in (["list", "tables"], ["list", "ruleset"]):
        sys.stdout.write("".join(f"table {name}\n" if argv[1] == "tables" else text for name, text in tables.items()))
        return 0
    if argv == ["flush", "ruleset"]:
        return _keep({})
    name = " ".join(argv[2:])
    if argv[:2] == ["list", "table"]:
        sys.stdout.write(tables.get(name, ""))
        return 0 if name in tables else fail(f"{MISSING}\nlist table {name}", 1)
    if argv[:2] == ["delete", "table"]:
        if name not in tables:
            return fail(f"Error: Could not process rule: No such file or directory\ndelete table {name}", 1)
        return _keep({other: text for other, text in tables.items() if other != name})
    return fail(f"nft: the stand-in does not support {' '.join(argv[:2])}", 1)


def loaded(state: State) -> dict:
    """Return the listing of each table of this boot."""
    stored = state.get("nft") or {}
    return dict(stored["tables"]) if stored.get("boot_id") == state["boot_id"] else {}


def _keep(tables: dict) -> int:
    change_state(lambda state: state.update(nft={"boot_id": state["boot_id"], "tables": tables}))
    return 0


def _load(path: str, tables: dict) -> int:
    """Load a file completely or not at all."""
    text = read_text(path, "")
    if not text:
        return fail(f'Error: Could not open file "{path}": No such file or directory', 1)
    name, depth = "", 0
    for line in text.splitlines():
        words = line.split("#")[0].strip()
        if depth == 0 and words.startswith("delete table "):
            if tables.pop(words[13:], None) is None:
                return fail(f"{path}: Error: No such file or directory\n{line}", 1)
        elif depth == 0 and words.startswith("table "):
            name = words[6:].rstrip("{ ")
            tables.setdefault(name, f"table {name} {{\n}}\n")
            if words.endswith("{"):
                depth, tables[name] = 1, f"table {name} {{\n"
        elif depth:
            depth += words.count("{") - words.count("}")
            tables[name] += _as_listed(words, depth + (words.endswith("{") * -1))
        elif words:
            return fail(f"{path}: Error: syntax error, unexpected {words.split()[0]}\n{line}", 1)
    return _keep(tables) if depth == 0 else fail(f"{path}: Error: syntax error, unexpected end of file", 1)


def _as_listed(words: str, depth: int) -> str:
    words = words.replace("priority -10;", "priority filter - 10;").replace(
        "counter drop", "counter packets 0 bytes 0 drop"
    )
    return "\t" * depth + words + "\n"
