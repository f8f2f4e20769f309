"""How a GPU can be cut by MIG: the profiles of each product, and whether a layout fits on one GPU.

A GPU has seven slices of compute and eight of memory; a profile takes some of each, and of each profile there are only so many.
Profiles with media extensions (`+me`) and with graphics (`+gfx`) are left out: nobody trains on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from gpuinfra.catalog.records import Gpu, Source

SOURCE = Source(
    page="https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html",
    read=date(2026, 11, 21),
    note="A100 40 GB table, and its names for 80 GB, seen; other names follow the memory's eighths as the same guide and public device plugins write them",
)
COMPUTE, MEMORY = 7, 8
"""Slices of one GPU."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """One way to cut out an instance."""

    name: str
    """As nvidia-smi writes it: `3g.40gb`."""
    compute: int
    memory: int
    most: int
    """How many of it one GPU can have."""


def _profiles(one: str, two: str, three: str, full: str) -> tuple[Profile, ...]:
    """The six shapes of a GPU with seven slices; the arguments are the memory of one, two, four and all eighths."""
    shapes = (
        (1, 1, 7, one), (1, 2, 4, two), (2, 2, 3, two), (3, 4, 2, three), (4, 4, 1, three), (7, 8, 1, full),
    )  # fmt: skip
    return tuple(
        Profile(name=f"{compute}g.{size}gb", compute=compute, memory=memory, most=most)
        for compute, memory, most, size in shapes
    )


PROFILES: dict[str, tuple[Profile, ...]] = {
    "A100-40GB": _profiles("5", "10", "20", "40"),
    "A100-80GB": _profiles("10", "20", "40", "80"),
    "A100-PCIE-80GB": _profiles("10", "20", "40", "80"),
    "H100": _profiles("10", "20", "40", "80"),
    "H100-NVL": _profiles("12", "24", "47", "94"),
    "H200": _profiles("18", "35", "71", "141"),
    "B200": _profiles("23", "45", "90", "180"),
    "B300": _profiles("34", "67", "135", "269"),
}
"""Key of a GPU product -> its profiles. A product that is not here is not cut by gpuinfra."""


def problem(gpu: Gpu | None, layout: Sequence[str]) -> str:
    """Why this layout cannot be made on each GPU of that product; empty where it can."""
    known = PROFILES.get(gpu.key, ()) if gpu else ()
    if not known:
        return f"{gpu.key if gpu else 'a machine without GPUs'} is not cut by MIG here; leave mig out"
    by_name = {profile.name: profile for profile in known}
    for name, count in Counter(layout).items():
        if name not in by_name:
            return f"{gpu.key if gpu else ''} has no profile {name}; it has {', '.join(by_name)}"
        if count > by_name[name].most:
            return f"one {gpu.key if gpu else ''} has room for {by_name[name].most} x {name}, not for {count}"
    compute = sum(by_name[name].compute for name in layout)
    memory = sum(by_name[name].memory for name in layout)
    if compute > COMPUTE or memory > MEMORY:
        return (
            f"together they need {compute} of {COMPUTE} compute slices and {memory} of {MEMORY} memory slices of one GPU; "
            "leave one out or take a smaller one"
        )
    return ""
