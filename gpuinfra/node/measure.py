"""The measurement and configuration commands that take options: `nccl`, `pair`, `heat`, `mig`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import pair
    from .checks.speed import AllReduce, PairReduce

from .console import NODE, NOT_VERIFIED, OK, WRONG_USE, MissingPrerequisite, load, optional, print_message

PROFILE = "/etc/profile.d/gpuinfra-nccl.sh"
"""File that sets the environment in which NCCL uses the fabric. The fabric's bootstrap step writes it."""
MANAGERS = ("/usr/local/sbin/gpuinfra-tcpxo", "/usr/local/sbin/gpuinfra-tcpx")
"""Commands that start and stop the receive manager for TCPXO and TCPX."""
WITH_PROFILE = "GPUINFRA_WITH_PROFILE"


def in_fabric_environment(argv: Sequence[str], *, managers: Sequence[str] = (), profile: str = PROFILE) -> int | None:
    """Run this command again with the environment for the fabric, which the dynamic loader reads when a process starts.

    Returns its exit code, or None if this process already has that environment or the node has none. A receive manager, if required, runs at the same time.
    In a probe, the command ends after four fifths of the probe's time limit, because the probe runner also kills this process, and the manager must stop first.
    """
    import os
    import subprocess
    import time

    from .probe import PROBE_LIMIT_S

    if os.environ.get(WITH_PROFILE) or not Path(profile).exists():
        return None
    begun, limit = time.monotonic(), float(os.environ.get(PROBE_LIMIT_S) or 0) * 0.8
    manager = next((command for command in managers if Path(command).exists()), None)
    if manager:
        done = subprocess.run(
            [manager, "start"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        if done.returncode != 0:
            raise MissingPrerequisite("%s start: %s" % (manager, done.stderr.decode("utf-8", "replace").strip()[-200:]))
    try:
        # The output of the measurement is one JSON object, so what the profile prints goes to stderr.
        words = ["bash", "-c", '. "$0" >&2 && exec "$@"', profile, *argv]
        left = max(1.0, begun + limit - time.monotonic()) if limit else None
        return subprocess.run(words, env={**os.environ, WITH_PROFILE: "1"}, check=False, timeout=left).returncode
    except subprocess.TimeoutExpired:
        raise MissingPrerequisite("the measurement exceeded its time limit of %g s" % limit) from None
    finally:
        if manager:
            subprocess.run([manager, "stop"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)


def nccl_command(args: argparse.Namespace) -> int:
    """Run an all-reduce over this node's GPUs."""
    import tempfile

    if _is_wrong(args):
        return WRONG_USE
    code = in_fabric_environment([sys.executable, *sys.argv], managers=MANAGERS)
    if code is not None:
        return code
    from . import nccl
    from .checks.speed import AllReduce

    with tempfile.TemporaryDirectory(prefix="gpuinfra-nccl-") as folder:
        size, collective = _size(args, AllReduce)
        return _print(nccl.run(size, args.rounds, folder + "/log", collective))


def pair_command(args: argparse.Namespace) -> int:
    """Run an all-reduce with the assigned partner node."""
    import tempfile

    if _is_wrong(args):
        return WRONG_USE
    code = in_fabric_environment([sys.executable, *sys.argv], managers=MANAGERS)
    if code is not None:
        return code
    # Only the process with this environment needs the modules, which are compiled at each start, because they are in an archive.
    from . import cloud, fabric_relay, pair
    from .checks.speed import PairReduce

    try:
        assignment = pair.read(args.assignment or pair.ASSIGNMENT)
        if assignment["store"]:
            store: pair.Rendezvous = pair.RendezvousFolder(Path(assignment["store"]))
        else:
            node = load(NODE, "the node's configuration", "user data writes it; or specify a folder as the store")
            store = _bucket(node, assignment.get("session"))
        with tempfile.TemporaryDirectory(prefix="gpuinfra-pair-") as folder:
            size, collective = _size(args, PairReduce)
            log = folder + "/log"
            result = pair.run(assignment, store, size=size, rounds=args.rounds, log=log, collective=collective)
    except fabric_relay.Withdrawn as error:
        raise pair.NoPartner(str(error)) from None
    except (cloud.CloudError, OSError) as error:
        raise MissingPrerequisite(str(error)) from None
    return _print(result)


def _bucket(node: dict[str, Any], test: str | None) -> pair.Rendezvous:
    """Return the store of an assignment without a folder: the relay of a fabric test, or the evidence bucket."""
    from . import cloud, evidence, fabric_relay, pair

    connected = cloud.of(node)
    if test:
        return fabric_relay.RelayedRendezvous(fabric_relay.Relay(node, connected, evidence.boot_id()), test)
    return pair.RendezvousBucket(node, connected)


def heat_command(args: argparse.Namespace) -> int:
    """Stress the GPUs until the temperatures are steady."""
    from . import heat
    from .outcome import Unreadable

    if not 60 <= args.seconds <= 6 * 3600:
        print_message("--seconds must be between 60 and 21600")
        return WRONG_USE
    try:
        result = heat.measure(args.seconds)
    except Unreadable as error:
        raise MissingPrerequisite(error.reason) from None
    return _print(result)


def mig_command(args: argparse.Namespace) -> int:
    """Create the MIG instances that the pool declares; exit code 194 requests a reboot."""
    from . import mig
    from .outcome import Unreadable

    expectation = load(args.expectation, "the bundle's expectation", "start gpuinfra-bootstrap")
    try:
        for line in mig.apply(expectation):
            print("changed: %s" % line)
    except mig.RebootNeeded as error:
        print("reboot: %s" % error)
        return mig.REBOOT
    except (mig.MigError, Unreadable) as error:
        print_message(str(error))
        return NOT_VERIFIED
    return OK


def _size(args: argparse.Namespace, check: type[AllReduce | PairReduce]) -> tuple[int, str]:
    """Return the bytes and the collective of a test: those of the floor of the machine type, because other sizes have other rates."""
    from . import nccl

    floors = (optional(args.expectation) or {}).get("floors")
    entries = [one for one in floors if isinstance(one, dict)] if isinstance(floors, list) else []
    entry = next((one for one in entries if one.get("check") == check.id), {})
    gib = args.gib or entry.get("gib") or check.default_gib
    return int(gib * nccl.GIB) // 4 * 4, nccl.ALL_GATHER if entry.get(
        "collective"
    ) == nccl.ALL_GATHER else nccl.ALL_REDUCE


def _is_wrong(args: argparse.Namespace) -> bool:
    """Return True and print a message if the size or the number of rounds is outside the limits."""
    if (args.gib is None or 0 < args.gib <= 64) and 0 < args.rounds <= 10_000:
        return False
    print_message("--gib must be between 0 and 64, and --rounds between 1 and 10000")
    return True


def _print(result: dict[str, Any]) -> int:
    print(json.dumps(result))
    return OK
