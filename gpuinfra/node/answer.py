"""An answer is what one probe recorded; answers are what one node recorded.

None of exit code, stdout and stderr is trusted alone.
`Answers` parses each output once, however many checks read it, and a cut or garbled one raises for every reader.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Mapping

from . import nvsmi, states, table
from .words import Broken, Unreadable, harmless, shortened


@dataclass(frozen=True)
class Answer:
    """One command and what came back."""

    argv: tuple[str, ...]
    exit: int
    stdout: str
    stderr: str
    truncated: bool
    problem: str | None
    """None, or why the command could not be judged: `not found`, `timed out after 60 s`, `not permitted`."""

    @property
    def command(self) -> str:
        """The command as a person would type it, short enough for a message."""
        return shortened(" ".join(self.argv), 80)


def read(name: str, record: object) -> Answer:
    """Take one record of the evidence, which may have been written by anybody."""
    if not isinstance(record, Mapping):
        raise Unreadable("probe %s is not a record" % name)
    argv, code = record.get("argv"), record.get("exit")
    stdout, stderr, problem = record.get("stdout"), record.get("stderr"), record.get("problem")
    if not isinstance(argv, (list, tuple)) or not argv or not all(isinstance(word, str) for word in argv):
        raise Unreadable("probe %s does not say which command it ran" % name)
    if isinstance(code, bool) or not isinstance(code, int):
        raise Unreadable("probe %s has no exit code" % name)
    if not isinstance(stdout, str) or not isinstance(stderr, str):
        raise Unreadable("probe %s has no text output" % name)
    if not (problem is None or isinstance(problem, str)):
        raise Unreadable("probe %s has a garbled problem field" % name)
    return Answer(
        argv=tuple(argv),
        exit=code,
        stdout=harmless(stdout),
        stderr=harmless(stderr),
        truncated=record.get("truncated") is not False,
        problem=problem,
    )


class Answers:
    """All answers of one node, by probe name."""

    def __init__(self, probes: Mapping[str, object]) -> None:
        self._probes = probes if isinstance(probes, Mapping) else {}
        self._cache: dict[tuple[str, str], Any] = {}

    def raw(self, name: str) -> Answer:
        """The answer as it came, whatever its exit code, as long as it is whole."""
        return self._once("raw", name, self._read)

    def installed(self, name: str) -> bool:
        """False where the command of a probe does not exist on the node; whether it may be absent is each check's decision."""
        record = self._probes.get(name)
        return not (isinstance(record, Mapping) and record.get("problem") == "not found")

    def text(self, name: str) -> str:
        """Stdout of a command that ended well."""
        return self._once("text", name, self._trusted).stdout

    def lines(self, name: str) -> list[str]:
        """Non-empty lines of `text`."""
        return [line for line in self.text(name).splitlines() if line.strip()]

    def csv(self, name: str) -> "table.Table":
        """The table that `nvidia-smi --query-...` printed, by column name."""
        return self._once(
            "csv", name, lambda probe: table.parse(self.text(probe), free_last=probe == "nvidia-smi-apps")
        )

    def xml(self, name: str = "nvidia-smi-xml") -> "nvsmi.Log":
        """What `nvidia-smi -q -x` printed, by element name."""
        return self._once("xml", name, lambda probe: nvsmi.parse(self.text(probe)))

    def _read(self, name: str) -> Answer:
        if name not in self._probes:
            raise Unreadable("probe %s was not run" % name)
        answer = read(name, self._probes[name])
        if answer.problem:
            state = states.recognise(answer.argv, answer.exit, answer.problem)
            if state is not None:
                raise Broken(state.meaning, state.hint)
            raise Unreadable("%s: %s" % (answer.command, shortened(answer.problem)))
        if answer.truncated:
            raise Unreadable("%s printed more than the evidence keeps" % answer.command)
        return answer

    def _trusted(self, name: str) -> Answer:
        answer = self.raw(name)
        state = states.recognise(answer.argv, answer.exit, answer.stdout + "\n" + answer.stderr)
        if state is not None:
            raise Broken(state.told(answer.stdout + "\n" + answer.stderr), state.hint)
        if answer.exit != 0:
            said = shortened(answer.stderr.strip() or answer.stdout.strip() or "nothing", 200)
            raise Unreadable("%s ended with exit code %d and said: %s" % (answer.command, answer.exit, said))
        return answer

    def _once(self, kind: str, name: str, make: Callable[[str], Any]) -> Any:
        key = (kind, name)
        if key not in self._cache:
            try:
                self._cache[key] = make(name)
            except (Broken, Unreadable) as error:
                self._cache[key] = error
        kept = self._cache[key]
        if isinstance(kept, (Broken, Unreadable)):
            raise type(kept)(kept.reason, kept.hint)
        return kept
