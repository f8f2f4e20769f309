"""MIG on a stand-in node: enabling it, creating and destroying instances, and the resulting nvidia-smi output.

As on real GPUs, the mode persists, and instances last until the next boot.
"""

from __future__ import annotations

from . import gpus as device_gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .schema import Change, DeviceState, Mig


def enabled(state: DeviceState) -> set[int]:
    """Return the indexes of the GPUs in MIG mode."""
    return {int(index) for index in state.get("mig", {}).get("enabled", ())}


def instances(state: DeviceState, index: int | str) -> list[str]:
    """Return the profiles of one GPU in device order."""
    mig = state.get("mig", {})
    return mig.get("instances", {}).get(str(index), []) if mig.get("boot_id") == state.get("boot_id") else []


def uuid(state: DeviceState, index: int, number: int) -> str:
    """Return the UUID of one instance, which is clearly synthetic."""
    tail = device_gpus._number(state.get("instance", {}).get("id", "")) % 16**8
    return "MIG-00000000-0000-4000-8%03x-%04x%08x" % (number, index, tail)


def mode(args: list[str], change: Change) -> int:
    """`nvidia-smi [-i N] -mig 0|1`."""
    index, on = _index(args), args[args.index("-mig") + 1] in ("1", "ENABLED")

    def write(state):
        mig = _mig_of(state)
        every = range(state["hardware"]["gpus"]) if index is None else [int(index)]
        chosen = set(mig["enabled"]) | set(every) if on else set(mig["enabled"]) - set(every)
        mig["enabled"] = sorted(chosen)

    change(write)
    print("%s MIG Mode for GPU %s" % ("Enabled" if on else "Disabled", index or "all"))
    return 0


def manage(state: DeviceState, args: list[str], change: Change) -> int:
    """`nvidia-smi mig [-i N] -cgi PROFILES -C | -dci | -dgi`."""
    index = _index(args)
    if index is None or int(index) not in enabled(state):
        print("No MIG-supported devices found.")
        return 6
    if "-dci" in args:
        return _print(0, "Successfully destroyed compute instances from GPU %s" % index)
    if "-dgi" in args:
        change(lambda state: _mig_of(state)["instances"].pop(index, None))
        return _print(0, "Successfully destroyed GPU instances from GPU %s" % index)
    if "-cgi" not in args:
        return _print(1, "the stand-in supports mig -cgi, -dci and -dgi")
    profiles = args[args.index("-cgi") + 1].split(",")
    taken = sum(_memory(state, name) for name in [*instances(state, index), *profiles])
    if taken > 8 or sum(int(name[0]) for name in [*instances(state, index), *profiles]) > 7:
        return _print(
            19,
            "Unable to create a GPU instance on GPU %s using profile %s: Insufficient Resources"
            % (index, profiles[-1]),
        )

    def write(state):
        _mig_of(state)["instances"].setdefault(index, []).extend(profiles)

    change(write)
    for name in profiles:
        print("Successfully created GPU instance on GPU %s using profile MIG %s" % (index, name))
    return 0


def _memory(state: DeviceState, profile: str) -> int:
    """The eighths of GPU memory that a profile uses."""
    record = device_gpus.model(state)
    return round(int(profile.split(".")[1][:-2]) * 8 * 1024 / int(record["MEMORY"])) if record else 0


def _mig_of(state: DeviceState) -> Mig:
    mig = state.setdefault("mig", {"enabled": [], "instances": {}})
    if mig.get("boot_id") != state.get("boot_id"):
        mig.update(boot_id=state.get("boot_id"), instances={})
    return mig


def _index(args: list[str]) -> str | None:
    return args[args.index("-i") + 1] if "-i" in args else None


def _print(code: int, text: str) -> int:
    print(text)
    return code
