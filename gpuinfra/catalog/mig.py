"""MIG profiles of each GPU product, and a check that a layout fits on one GPU.

A GPU has seven compute slices and eight memory slices. A profile uses some of each, and the number of its instances per GPU is limited.
Profiles with media extensions (`+me`) and graphics (`+gfx`) are omitted, because they are not intended for training.
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
    note="read for A100 40 GB and 80 GB; the other names are derived from eighths of the memory, as in the guide and in public device plugins",
)
COMPUTE, MEMORY = 7, 8
"""Number of compute slices and memory slices per GPU."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """A MIG profile."""

    name: str
    """Name in `nvidia-smi` output: `3g.40gb`."""
    compute: int
    """Number of compute slices per instance."""
    memory: int
    """Number of memory slices per instance."""
    max_count: int
    """Maximum number of instances per GPU."""


def _profiles(slice_name: str, two: str, three: str, full: str) -> tuple[Profile, ...]:
    """Return the six profiles of a GPU. The arguments are the sizes of one, two, four, and eight eighths of its memory."""
    sizes = (
        (1, 1, 7, slice_name), (1, 2, 4, two), (2, 2, 3, two), (3, 4, 2, three), (4, 4, 1, three), (7, 8, 1, full),
    )  # fmt: skip
    return tuple(
        Profile(name=f"{compute}g.{size}gb", compute=compute, memory=memory, max_count=count)
        for compute, memory, count, size in sizes
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
"""GPU product key -> profiles. gpuinfra does not partition other products."""


def problem(gpu: Gpu | None, layout: Sequence[str]) -> str:
    """Return the reason why a GPU does not support this layout, or an empty string if it does."""
    profiles = PROFILES.get(gpu.key, ()) if gpu else ()
    if not profiles:
        return f"gpuinfra does not support MIG on {gpu.key if gpu else 'a machine without GPUs'}; remove mig"
    by_name = {profile.name: profile for profile in profiles}
    for name, count in Counter(layout).items():
        if name not in by_name:
            return f"{gpu.key if gpu else ''} has no profile {name}; allowed: {', '.join(by_name)}"
        if count > by_name[name].max_count:
            return f"{count} x {name} do not fit on one {gpu.key if gpu else ''}; allowed: at most {by_name[name].max_count}"
    compute = sum(by_name[name].compute for name in layout)
    memory = sum(by_name[name].memory for name in layout)
    if compute > COMPUTE or memory > MEMORY:
        return (
            f"the profiles need {compute} of {COMPUTE} compute slices and {memory} of {MEMORY} memory slices of one GPU; "
            "remove a profile or use a smaller one"
        )
    return ""
