"""Makes the mutants of a shell script: copies of its text with one changed line. A name holds the function, the line and the changed line."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

_FUNCTION = re.compile(r"^(\w+)\(\) \{")
_HERE = re.compile(r"<<-?\s*[\'\"]?(\w+)[\'\"]?")
_COMMAND = re.compile(r"^\s*[\w.\[(\"$/{]")
_CONTINUES = re.compile(r"(\\|\||&&|\|\||\{|\(|\bthen|\bdo|\belse|\bin)\s*$")
_WORDS = frozenset(
    {
        "if",
        "then",
        "elif",
        "else",
        "fi",
        "for",
        "while",
        "until",
        "do",
        "done",
        "case",
        "esac",
        "local",
        "readonly",
        "declare",
        "export",
    }
)


def mutants(text: str) -> list[str]:
    """The name of each mutant, in the order of the lines. Some are not valid bash."""
    return list(_all(text))


def mutant(text: str, name: str) -> str:
    """The text of one mutant. Raises `KeyError` for an unknown name."""
    return _all(text)[name]


def is_valid(text: str, name: str) -> bool:
    """Whether bash can parse a mutant."""
    return (
        subprocess.run(["bash", "-n"], input=mutant(text, name), text=True, capture_output=True, check=False).returncode
        == 0
    )


def _all(text: str) -> dict[str, str]:
    lines = text.splitlines(keepends=True)
    found: dict[str, str] = {}
    for number, function, line in _code(lines):
        for changed in _changes(line):
            base = f"{function}: {' '.join(line.split())[:90]} -> {' '.join(changed.split())[:90] or ':'}"
            name, same = base, 1
            while name in found:
                same += 1
                name = f"{base} ({same})"
            found[name] = "".join([*lines[:number], changed, *lines[number + 1 :]])
    return found


def _code(lines: list[str]) -> Iterator[tuple[int, str, str]]:
    """Each line of code, with its number and its function. Comments and here-documents are left out."""
    function, end, joined = "script", "", False
    for number, line in enumerate(lines):
        words = line.strip()
        if end:
            end = "" if words == end else end
            continue
        if opened := _FUNCTION.match(line):
            function = opened[1]
        elif words and not words.startswith("#"):
            yield number, function, line if not joined else f"{line.rstrip()}\n"
        if here := _HERE.search(line):
            end = here[1]
        joined = bool(_CONTINUES.search(line.rstrip()))


def _changes(line: str) -> Iterator[str]:
    for old, new in (
        ("||", "&&"),
        ("&&", "||"),
        ("==", "!="),
        ("!=", "=="),
        (" -f ", " -d "),
        (" -n ", " -z "),
        (" -z ", " -n "),
    ):
        for at in (one.start() for one in re.finditer(re.escape(old), line)):
            if not old.startswith(" ") or "[[" in line[:at]:
                yield f"{line[:at]}{new}{line[at + len(old) :]}"
    for at in (one.start() for one in re.finditer(r"(?<!! )\[\[ ", line)):
        yield f"{line[:at]}! {line[at:]}"
    for at in (one.start() for one in re.finditer(r"! (?=\[\[ |\w)", line)):
        yield f"{line[:at]}{line[at + 2 :]}"
    for option in re.finditer(r" --?[A-Za-z][\w-]*(=\S+)?(?=[ \n])", line):
        if option[0].strip() not in ("-f", "-n", "-z", "-e", "-d") or "[[" not in line[: option.start()]:
            yield f"{line[: option.start()]}{line[option.end() :]}"
    first = line.split()[0]
    if (
        _COMMAND.match(line)
        and first not in _WORDS
        and not _CONTINUES.search(line.rstrip())
        and not first.startswith(("}", ")"))
    ):
        yield f"{line[: len(line) - len(line.lstrip())]}:\n"
