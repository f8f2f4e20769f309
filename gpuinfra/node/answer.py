"""`Answer` is the recorded result of one probe. `Answers` contains the results from one node.

Exit code, stdout and stderr are always checked together because none of them is reliable alone.
`Answers` parses each output once for all checks; truncated or unreadable output raises an exception for each reader.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Mapping

from . import states, table
from .outcome import Broken, Unreadable, escaped, shortened
from .probes import NOT_FOUND

if TYPE_CHECKING:
    from . import nvsmi


@dataclass(frozen=True)
class Answer:
    """One command and its result."""

    argv: tuple[str, ...]
    exit: int
    stdout: str
    stderr: str
    truncated: bool
    problem: str | None
    """None, or the reason for a missing result, such as `timed out after 60 s`. The exit code then identifies it (`probes.py`)."""
    repeated: int = 0
    """Lines that were omitted because enough lines of their kind were kept."""

    @property
    def command(self) -> str:
        """The command line, shortened for messages."""
        return shortened(" ".join(self.argv), 80)


def read(name: str, record: object) -> Answer:
    """Parse one probe record of the evidence, which is untrusted."""
    if not isinstance(record, Mapping):
        raise Unreadable("probe %s is not a record" % name)
    argv, code = record.get("argv"), record.get("exit")
    stdout, stderr, problem = record.get("stdout"), record.get("stderr"), record.get("problem")
    if not isinstance(argv, (list, tuple)) or not argv or not all(isinstance(word, str) for word in argv):
        raise Unreadable("probe %s contains no command" % name)
    if isinstance(code, bool) or not isinstance(code, int):
        raise Unreadable("probe %s has no exit code" % name)
    if not isinstance(stdout, str) or not isinstance(stderr, str):
        raise Unreadable("probe %s has no text output" % name)
    if not (problem is None or isinstance(problem, str)):
        raise Unreadable("probe %s has an invalid problem field" % name)
    return Answer(
        argv=tuple(argv),
        exit=code,
        stdout=escaped(stdout),
        stderr=escaped(stderr),
        truncated=record.get("truncated") is not False,
        problem=problem,
        repeated=_repeated(record.get("repeated")),
    )


def _repeated(counts: object) -> int:
    if counts is None:
        return 0
    if not isinstance(counts, Mapping) or not all(isinstance(one, int) and 0 < one < 10**9 for one in counts.values()):
        raise Unreadable("a probe has an invalid count of repeated lines")
    return sum(counts.values())


class Answers:
    """All probe results from one node, by probe name."""

    def __init__(self, probes: Mapping[str, object]) -> None:
        self._probes = probes if isinstance(probes, Mapping) else {}
        self._cache: dict[tuple[str, str], Any] = {}

    def raw(self, name: str) -> Answer:
        """Return the complete result, with any exit code."""
        return self._cached("raw", name, self._read)

    def installed(self, name: str) -> bool:
        """Return False if the probe's command does not exist on the node. Each check decides whether that is allowed."""
        record = self._probes.get(name)
        return not (isinstance(record, Mapping) and record.get("problem") and record.get("exit") == NOT_FOUND)

    def text(self, name: str) -> str:
        """Stdout of a command that succeeded."""
        return self._cached("text", name, self._successful).stdout

    def lines(self, name: str) -> list[str]:
        """Non-empty lines of `text`."""
        return [line for line in self.text(name).splitlines() if line.strip()]

    def csv(self, name: str) -> "table.GpuTable":
        """Return the table from `nvidia-smi --query-...`, by column name."""
        return self._cached(
            "csv", name, lambda probe: table.parse(self.text(probe), free_last=probe == "nvidia-smi-apps")
        )

    def xml(self) -> "nvsmi.Log":
        """Return the output from `nvidia-smi -q -x`, by element name."""
        from . import nvsmi  # imported here because a plan imports the checks, and reads no XML

        return self._cached("xml", "nvidia-smi-xml", lambda probe: nvsmi.parse(self.text(probe)))

    def _read(self, name: str) -> Answer:
        if name not in self._probes:
            raise Unreadable("probe %s was not run" % name)
        answer = read(name, self._probes[name])
        if answer.problem:
            state = states.recognize(answer.argv, answer.exit, "")
            if state is not None:
                raise Broken(state.meaning, state.hint, state.cause)
            raise Unreadable("%s: %s" % (answer.command, shortened(answer.problem)))
        if answer.truncated:
            raise Unreadable("the output of %s exceeds the size limit of the evidence" % answer.command)
        return answer

    def _successful(self, name: str) -> Answer:
        answer = self.raw(name)
        state = states.recognize(answer.argv, answer.exit, answer.stdout + "\n" + answer.stderr)
        if state is not None:
            raise Broken(state.describe(answer.stdout + "\n" + answer.stderr), state.hint, state.cause)
        if answer.exit != 0:
            output = shortened(answer.stderr.strip() or answer.stdout.strip() or "no output", 200)
            raise Unreadable("%s failed with exit code %d: %s" % (answer.command, answer.exit, output))
        return answer

    def _cached(self, kind: str, name: str, make: Callable[[str], Any]) -> Any:
        key = (kind, name)
        if key not in self._cache:
            try:
                self._cache[key] = make(name)
            except (Broken, Unreadable) as error:
                self._cache[key] = error
        cached = self._cache[key]
        if isinstance(cached, Broken):
            raise Broken(cached.reason, cached.hint, cached.cause)
        if isinstance(cached, Unreadable):
            raise Unreadable(cached.reason, cached.hint)
        return cached
