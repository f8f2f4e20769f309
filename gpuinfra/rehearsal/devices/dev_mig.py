"""MIG on a stand-in node: switching it on, making and destroying instances, and what nvidia-smi then shows.

The mode is kept with the node, instances only until the next boot, as on real GPUs.
"""

import dev_gpus


def enabled(state):
    """Indexes of the GPUs whose MIG mode is on."""
    return {int(index) for index in state.get("mig", {}).get("enabled", ())}


def instances(state, index):
    """Profiles of one GPU in the order of their devices."""
    kept = state.get("mig", {})
    return kept.get("instances", {}).get(str(index), []) if kept.get("boot_id") == state.get("boot_id") else []


def uuid(state, index, number):
    """The identity of one instance, synthetic and visibly so."""
    tail = dev_gpus._number(state.get("instance", {}).get("id", "")) % 16**8
    return "MIG-00000000-0000-4000-8%03x-%04x%08x" % (number, index, tail)


def mode(args, change):
    """`nvidia-smi [-i N] -mig 0|1`."""
    index, on = _index(args), args[args.index("-mig") + 1] in ("1", "ENABLED")

    def write(state):
        kept = _kept(state)
        every = range(state["hardware"]["gpus"]) if index is None else [int(index)]
        chosen = set(kept["enabled"]) | set(every) if on else set(kept["enabled"]) - set(every)
        kept["enabled"] = sorted(chosen)

    change(write)
    print("%s MIG Mode for GPU %s" % ("Enabled" if on else "Disabled", index or "all"))
    return 0


def manage(state, args, change):
    """`nvidia-smi mig [-i N] -cgi PROFILES -C | -dci | -dgi`."""
    index = _index(args)
    if index is None or int(index) not in enabled(state):
        print("No MIG-supported devices found.")
        return 6
    if "-dci" in args:
        return _say(0, "Successfully destroyed compute instances from GPU %s" % index)
    if "-dgi" in args:
        change(lambda state: _kept(state)["instances"].pop(index, None))
        return _say(0, "Successfully destroyed GPU instances from GPU %s" % index)
    if "-cgi" not in args:
        return _say(1, "the stand-in plays mig -cgi, -dci and -dgi")
    profiles = args[args.index("-cgi") + 1].split(",")
    taken = sum(_memory(state, name) for name in [*instances(state, index), *profiles])
    if taken > 8 or sum(int(name[0]) for name in [*instances(state, index), *profiles]) > 7:
        return _say(
            19,
            "Unable to create a GPU instance on GPU %s using profile %s: Insufficient Resources"
            % (index, profiles[-1]),
        )

    def write(state):
        _kept(state)["instances"].setdefault(index, []).extend(profiles)

    change(write)
    for name in profiles:
        print("Successfully created GPU instance on GPU %s using profile MIG %s" % (index, name))
    return 0


def _memory(state, profile):
    """Eighths of a GPU's memory that a profile takes."""
    record = dev_gpus.model(state)
    return round(int(profile.split(".")[1][:-2]) * 8 * 1024 / int(record["MEMORY"])) if record else 0


def _kept(state):
    kept = state.setdefault("mig", {"enabled": [], "instances": {}})
    if kept.get("boot_id") != state.get("boot_id"):
        kept.update(boot_id=state.get("boot_id"), instances={})
    return kept


def _index(args):
    return args[args.index("-i") + 1] if "-i" in args else None


def _say(code, text):
    print(text)
    return code
