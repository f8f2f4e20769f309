"""The journal of `gpuinfra up`: a file in the user's state folder with the attempts and the placements that were chosen.

It is written before each action, so `--resume` can continue after a kill.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuinfra.handover.shortages import Shortage
from gpuinfra.remote.stack_journal import StackJournal, now
from gpuinfra.search.placements import Choices

SCHEMA = "gpuinfra.up-journal/1"
STARTED, READY, NO_CAPACITY, FAILED, OVER_LIMIT = "started", "ready", "no capacity", "failed", "over the price limit"
"""Results of an attempt. An attempt that was interrupted remains `started`. A placement over the price limit was not deployed."""


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A placement that is not deployed, because it is over the price limit."""

    pool: str
    placements: dict[str, str]
    """Text of each placement, keyed by pool name."""
    why: str


class SearchJournal(StackJournal):
    """The journal of one stack, locked until `close`."""

    SCHEMA = SCHEMA
    FOLDER = "up"
    COMMAND = "`gpuinfra up`"
    ENTRIES = "attempts"
    ENTRIES_TYPE = list

    @property
    def unfinished(self) -> bool:
        """Whether a run was started and has not finished."""
        return bool(self._body) and not self._body.get("ended")

    @property
    def succeeded(self) -> str:
        """Time at which the last run ended with capacity, or an empty text."""
        ready = any(one.get("result") == READY for one in self.attempts) if self._body else False
        return str(self._body.get("ended") or "") if ready else ""

    @property
    def began(self) -> str:
        """Time at which the run began."""
        return str(self._body.get("began") or "")

    @property
    def run(self) -> str:
        """Random name of the run. The history of the stack contains it for each update of the run."""
        return f"gpuinfra-up/{self._body.get('run')}"

    @property
    def original(self) -> str | None:
        """Text of the stack file with the declared placements, or None if the file was not edited."""
        text = self._body.get("original")
        return text if isinstance(text, str) else None

    @property
    def choices(self) -> dict[str, int]:
        """Placement of each pool that does not have the declared one."""
        return dict(self._body.get("choices") or {})

    @property
    def before(self) -> dict[str, int]:
        """Placements of the attempt before the last change of `choices`."""
        return dict(self._body.get("before") or {})

    @property
    def removing(self) -> list[str]:
        """Pools whose groups must be removed before the next attempt."""
        return list(self._body.get("removing") or [])

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """Attempts in order: `placements`, `result`, `seconds`, `problems`."""
        return list(self._body.get("attempts") or [])

    @property
    def options(self) -> dict[str, Any]:
        """Options that `--resume` uses again: `max_usd_per_hour`, `prices` (the path of a price file),
        `running` (the groups that had nodes before the run, or None if they could not be read),
        and `until` (the time in seconds since 1970 until which the search is repeated)."""
        return dict(self._body.get("options") or {})

    def remember(self, options: Mapping[str, Any]) -> None:
        """Record options of a resumed run. They replace earlier values."""
        self._body["options"] = {**self.options, **options}
        self._write()

    def begin(self, stack: str, options: Mapping[str, Any] | None = None) -> None:
        """Start a journal. See `options` for the keys."""
        self._body = {
            "schema": SCHEMA, "stack": stack, "file": str(self.stack_file), "began": now(), "ended": None,
            "run": secrets.token_hex(8), "options": dict(options or {}), "original": None, "choices": {}, "before": {}, "removing": [], "attempts": [],
        }  # fmt: skip
        self._write()

    def start(self, placements: dict[str, str]) -> None:
        """Record that an attempt starts. An attempt that was interrupted restarts."""
        attempts = self._body["attempts"]
        if attempts and attempts[-1]["result"] == STARTED and attempts[-1]["placements"] == placements:
            attempts.pop()
        attempts.append({"placements": placements, "result": STARTED, "started": now(), "seconds": None, "problems": []})  # fmt: skip
        self._write()

    def finish(self, result: str, seconds: float, shortages: Iterable[Shortage] = ()) -> None:
        """Record the result of the last attempt."""
        rows = [
            {"group": shortage.group, "kind": shortage.cause.value, "message": shortage.message}
            for shortage in shortages
        ]
        self._body["attempts"][-1] |= {"result": result, "seconds": round(seconds), "problems": rows}
        self._write()

    def remove(self, pools: Iterable[str], choices: Choices, original: str, skipped: Sequence[Skipped] = ()) -> None:
        """Record that the groups of these pools are removed, the placements that are skipped, and the placements of the next attempt."""
        self._body["attempts"] += [
            {
                "placements": one.placements, "result": OVER_LIMIT, "started": now(), "seconds": None,
                "problems": [{"group": one.pool, "kind": "price", "message": one.why}],
            }
            for one in skipped
        ]  # fmt: skip
        self._body |= {
            "removing": list(pools), "before": self.choices, "choices": dict(choices), "original": self.original or original,
        }  # fmt: skip
        self._write()

    def start_over(self, pools: Iterable[str]) -> None:
        """Record that the next attempt uses the declared placement of these pools again. Their groups are removed."""
        choices = {pool: choice for pool, choice in self.choices.items() if pool not in set(pools)}
        self._body |= {"before": self.choices, "choices": choices, "removing": []}
        self._write()

    def removed(self) -> None:
        """Record that the groups are removed."""
        self._body["removing"] = []
        self._write()
