"""Writes the counts of replayed recordings into `docs/internals/cloud-models.md`: `python -m tests.providers`."""

from __future__ import annotations

from tests.providers import table

if __name__ == "__main__":
    table.PAGE.write_text(table.written(), encoding="utf-8")
