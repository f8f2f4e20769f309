"""What file systems are called: after where they are mounted, in the order of their mounts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpuinfra.spec.storage import Home, Lustre, ObjectMount


def named(storage: Iterable[Lustre | Home | ObjectMount]) -> Iterator[tuple[str, Lustre | Home | ObjectMount]]:
    """Name and declaration of each file system: `scratch-0`, `data-0`, `data-1`."""
    names: dict[str, int] = {}
    for entry in sorted(storage, key=lambda entry: entry.mount):
        stem = re.sub(r"[^a-z0-9]+", "-", entry.mount.lower()).strip("-") or entry.kind
        index = names.get(stem, 0)
        names[stem] = index + 1
        yield f"{stem}-{index}", entry
