"""Parses command lines of stand-in commands as getopt(3) does."""

from __future__ import annotations


class Arguments:
    """The words, flags and option values of a command line."""

    def __init__(self, argv: list[str], valued: dict[str, str]) -> None:
        """`valued` maps each option that takes a value (`-o`, `--output`) to the name of that value."""
        self.words: list[str] = []
        self.flags: set[str] = set()
        """Options without a value: `--raw`, or `-r`, which can also be combined as in `-rn`."""
        self.values: dict[str, list[str]] = {}
        rest = iter(argv)
        for word in rest:
            if word.startswith("--"):
                name, equals, value = word.partition("=")
                if name in valued:
                    self._add(valued[name], value if equals else next(rest, ""))
                else:
                    self.flags.add(name)
            elif word.startswith("-") and word != "-":
                for at, letter in enumerate(word[1:], start=2):
                    if f"-{letter}" in valued:
                        self._add(valued[f"-{letter}"], word[at:].removeprefix("=") or next(rest, ""))
                        break
                    self.flags.add(f"-{letter}")
            else:
                self.words.append(word)

    def _add(self, name: str, value: str) -> None:
        self.values.setdefault(name, []).append(value)

    def all(self, name: str) -> list[str]:
        """Return all values of an option."""
        return self.values.get(name, [])

    def one(self, name: str, default: str = "") -> str:
        """Return the last value of an option."""
        return self.values.get(name, [default])[-1]

    def has(self, *flags: str) -> bool:
        """Return whether one of these flags is set."""
        return not self.flags.isdisjoint(flags)
