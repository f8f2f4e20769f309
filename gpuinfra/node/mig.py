"""`node.pyz mig`: creates the MIG instances that the pool declares on this node's GPUs.

Instances do not survive a reboot, and on newer GPUs neither does the MIG mode, so this runs at each boot and changes only what differs.
It uses nvidia-smi with profile names and creates the largest profile first, because a small instance in the middle of a GPU would
leave no space for it.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Callable, Mapping, Sequence

from .outcome import Unreadable, shortened
from .table import parse

Run = Callable[[Sequence[str]], "tuple[int, str]"]
REBOOT = 194
"""Exit code that requests a reboot, as for bootstrap steps."""
_GPU = re.compile(r"^GPU (\d+): ")
_INSTANCE = re.compile(r"^MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[0-9a-zA-Z/-]+)\)$")


class MigError(Exception):
    """The MIG configuration failed. The message contains the command and its output."""


class RebootNeeded(Exception):
    """A reboot is required to apply a GPU's new MIG mode."""


def instances(text: str) -> dict[int, list[tuple[str, str]]]:
    """GPU -> (profile, UUID) of each MIG instance in `nvidia-smi -L`. Raises `Unreadable` for any other line."""
    cuts: dict[int, list[tuple[str, str]]] = {}
    current: list[tuple[str, str]] | None = None
    for line in text.splitlines():
        gpu, instance = _GPU.match(line), _INSTANCE.match(line.strip())
        if gpu:
            current = cuts.setdefault(int(gpu.group(1)), [])
        elif instance and current is not None:
            current.append((instance.group(1), instance.group(3)))
        elif line.strip():
            raise Unreadable("cannot parse a line of nvidia-smi -L: %s" % shortened(line, 80))
    return cuts


def apply(expectation: Mapping[str, Any], run: Run | None = None) -> list[str]:
    """Configure every GPU as declared. Returns one line per change.

    Raises `MigError` if a command fails, and `RebootNeeded` if the mode needs a reboot.
    A pool without MIG profiles is not changed: check G12 reports a GPU that is in MIG mode by mistake.
    """
    run = run or _run
    wanted = expectation.get("mig_profiles")
    if expectation.get("mig") is not True:
        return []
    if not isinstance(wanted, list) or not wanted or not all(isinstance(name, str) for name in wanted):
        raise MigError("the expectation declares MIG but no profiles")
    changed = _modes(run)
    for gpu, here in sorted(instances(_must(run, ["nvidia-smi", "-L"])).items()):
        if Counter(name for name, _ in here) == Counter(wanted):
            continue
        chosen = ["nvidia-smi", "mig", "-i", str(gpu)]
        if here:
            _must(run, [*chosen, "-dci"])
            _must(run, [*chosen, "-dgi"])
        _must(run, [*chosen, "-cgi", ",".join(sorted(wanted, key=_size, reverse=True)), "-C"])
        changed.append("GPU %d: %s" % (gpu, ", ".join(wanted)))
    for gpu, here in instances(_must(run, ["nvidia-smi", "-L"])).items():
        if Counter(name for name, _ in here) != Counter(wanted):
            shown = ", ".join(name for name, _ in here) or "nothing"
            raise MigError("GPU %d has %s after MIG was configured as %s" % (gpu, shown, ", ".join(wanted)))
    return changed


def _modes(run: Run) -> list[str]:
    """Enable MIG where it is disabled."""
    changed = []
    for gpu, _, pending in _read_modes(run):
        if pending != "Enabled":
            _must(run, ["nvidia-smi", "-i", gpu, "-mig", "1"])
            changed.append("GPU %s: MIG enabled" % gpu)
    # Older GPUs apply the mode at a reset, which a process or NVLink may prevent; a reboot always applies it.
    for gpu, current, _ in _read_modes(run):
        if current != "Enabled":
            code, _text = run(["nvidia-smi", "--gpu-reset", "-i", gpu])
            if code:
                raise RebootNeeded("GPU %s enables MIG at the next reboot" % gpu)
    waiting = [gpu for gpu, current, _ in _read_modes(run) if current != "Enabled"]
    if waiting:
        raise RebootNeeded("GPU %s enables MIG at the next reboot" % ", ".join(waiting))
    return changed


def _read_modes(run: Run) -> list[tuple[str, str, str]]:
    text = _must(run, ["nvidia-smi", "--query-gpu=index,mig.mode.current,mig.mode.pending", "--format=csv"])
    rows = [(row.get("index"), row.get("mig.mode.current"), row.get("mig.mode.pending")) for row in parse(text).rows]
    for gpu, current, pending in rows:
        if not gpu.isdigit() or not {current, pending} <= {"Enabled", "Disabled"}:
            raise MigError(
                "cannot configure MIG on GPU %s: its mode is %s, pending %s"
                % (shortened(gpu, 10), shortened(current, 40), shortened(pending, 40))
            )
    if not rows:
        raise MigError("nvidia-smi listed no GPU")
    return rows


def _size(profile: str) -> tuple[int, int]:
    numbers = re.findall(r"\d+", profile)
    return (int(numbers[-1]), int(numbers[0])) if numbers else (0, 0)


def _must(run: Run, words: Sequence[str]) -> str:
    code, text = run(words)
    if code:
        raise MigError(
            "%s failed with exit code %d: %s" % (" ".join(words), code, shortened(text.strip() or "no output", 200))
        )
    return text


def _run(words: Sequence[str]) -> tuple[int, str]:
    import subprocess  # imported here because the judge imports this module for `instances`

    try:
        done = subprocess.run(
            list(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
            check=False,
            cwd="/",
        )
    except OSError as error:
        return 127, "%s: %s" % (words[0], error.strerror or "cannot be started")
    except subprocess.TimeoutExpired:
        return 124, "timed out after 300 s"
    return done.returncode, done.stdout[:65536].decode("utf-8", "backslashreplace")
