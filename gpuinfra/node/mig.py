"""Cutting the GPUs of this node by MIG as its pool declares: `node.pyz mig`.

Instances do not survive a reboot, on newer GPUs not even the mode does, so this runs at each boot and changes only what differs.
Everything goes through nvidia-smi, by profile names; the largest profile is made first, because a small one in the middle of a GPU
leaves no room for it.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Callable, Mapping, Sequence

from .table import parse
from .words import Unreadable, shortened

Run = Callable[[Sequence[str]], "tuple[int, str]"]
REBOOT = 194
"""Exit code that asks for a reboot, as steps use it."""
_GPU = re.compile(r"^GPU (\d+): ")
_INSTANCE = re.compile(r"^MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[0-9a-zA-Z/-]+)\)$")


class MigError(Exception):
    """The GPUs could not be cut; the message says which command said what."""


class RebootNeeded(Exception):
    """A GPU takes its new mode only after a reboot."""


def instances(text: str) -> dict[int, list[tuple[str, str]]]:
    """GPU -> (profile, UUID) of each MIG instance that `nvidia-smi -L` lists. Raises `Unreadable` for a line that is neither."""
    found: dict[int, list[tuple[str, str]]] = {}
    current: list[tuple[str, str]] | None = None
    for line in text.splitlines():
        gpu, instance = _GPU.match(line), _INSTANCE.match(line.strip())
        if gpu:
            current = found.setdefault(int(gpu.group(1)), [])
        elif instance and current is not None:
            current.append((instance.group(1), instance.group(3)))
        elif line.strip():
            raise Unreadable("nvidia-smi -L printed a line that is neither GPU nor instance: %s" % shortened(line, 80))
    return found


def apply(expectation: Mapping[str, Any], run: Run | None = None) -> list[str]:
    """Cut every GPU as declared; what was changed, one line each.

    Raises `MigError` when a command fails, and `RebootNeeded` when the mode waits for a reboot.
    A pool that declares no layout is left as it is: G12 tells when a GPU is cut that should be whole.
    """
    run = run or _run
    wanted = expectation.get("mig_profiles")
    if expectation.get("mig") is not True:
        return []
    if not isinstance(wanted, list) or not wanted or not all(isinstance(name, str) for name in wanted):
        raise MigError("the expectation declares MIG and names no profiles")
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
            raise MigError("GPU %d shows %s after it was cut into %s" % (gpu, shown, ", ".join(wanted)))
    return changed


def _modes(run: Run) -> list[str]:
    """Switch MIG on where it is off."""
    changed = []
    for gpu, _, pending in _read_modes(run):
        if pending != "Enabled":
            _must(run, ["nvidia-smi", "-i", gpu, "-mig", "1"])
            changed.append("GPU %s: MIG on" % gpu)
    # Older GPUs take the mode at a reset, which a process or NVLink may forbid; a reboot always does.
    for gpu, current, _ in _read_modes(run):
        if current != "Enabled":
            code, _text = run(["nvidia-smi", "--gpu-reset", "-i", gpu])
            if code:
                raise RebootNeeded("MIG of GPU %s is switched on by a reboot" % gpu)
    waiting = [gpu for gpu, current, _ in _read_modes(run) if current != "Enabled"]
    if waiting:
        raise RebootNeeded("MIG of GPU %s is switched on by a reboot" % ", ".join(waiting))
    return changed


def _read_modes(run: Run) -> list[tuple[str, str, str]]:
    text = _must(run, ["nvidia-smi", "--query-gpu=index,mig.mode.current,mig.mode.pending", "--format=csv"])
    rows = [(row.get("index"), row.get("mig.mode.current"), row.get("mig.mode.pending")) for row in parse(text).rows]
    for gpu, current, pending in rows:
        if not gpu.isdigit() or not {current, pending} <= {"Enabled", "Disabled"}:
            raise MigError(
                "GPU %s cannot be cut: its MIG mode is %s, pending %s"
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
        raise MigError("%s ended with %d: %s" % (" ".join(words), code, shortened(text.strip() or "nothing said", 200)))
    return text


def _run(words: Sequence[str]) -> tuple[int, str]:
    import subprocess  # reading what is there (`instances`) is pure, and judges import it

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
        return 127, "%s: %s" % (words[0], error.strerror or "cannot be run")
    except subprocess.TimeoutExpired:
        return 124, "did not end within 300 s"
    return done.returncode, done.stdout[:65536].decode("utf-8", "backslashreplace")
