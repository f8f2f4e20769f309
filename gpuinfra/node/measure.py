"""The node part's commands that measure, change or list one thing and print it: `nccl`, `pair`, `links`, `heat`, `mig`, `mounts`, `ports`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from .console import NODE, NOT_VERIFIED, OK, WRONG_USE, Missing, load, say


def nccl_command(args: argparse.Namespace) -> int:
    """An all-reduce over this node's GPUs."""
    import tempfile

    from . import nccl

    if not (0 < args.gib <= 64 and 0 < args.rounds <= 10_000):
        say("give --gib between 0 and 64, and --rounds between 1 and 10000")
        return WRONG_USE
    with tempfile.TemporaryDirectory(prefix="gpuinfra-nccl-") as folder:
        try:
            result = nccl.run(int(args.gib * nccl.GIB) // 4 * 4, args.rounds, folder + "/log")
        except nccl.NcclError as error:
            raise Missing(str(error)) from None
    json.dump(result, sys.stdout)
    print()
    return OK


def pair_command(args: argparse.Namespace) -> int:
    """An all-reduce with the node that this one is assigned."""
    import tempfile

    from . import cloud, nccl, pair

    if not (0 < args.gib <= 64 and 0 < args.rounds <= 10_000):
        say("give --gib between 0 and 64, and --rounds between 1 and 10000")
        return WRONG_USE
    try:
        assignment = pair.read(args.assignment or pair.ASSIGNMENT)
        if assignment["store"]:
            store: pair.Store = pair.Folder(Path(assignment["store"]))
        else:
            node = load(NODE, "the node's configuration", "it is written by user data; or name a folder as store")
            store = pair.Bucket(node, cloud.of(node))
        with tempfile.TemporaryDirectory(prefix="gpuinfra-pair-") as folder:
            result = pair.run(
                assignment, store, size=int(args.gib * nccl.GIB) // 4 * 4, rounds=args.rounds, log=folder + "/log"
            )
    except (pair.PairError, nccl.NcclError, cloud.CloudError, OSError) as error:
        raise Missing(str(error)) from None
    json.dump(result, sys.stdout)
    print()
    return OK


def links_command(args: argparse.Namespace) -> int:
    """Each fabric device in a loop through itself."""
    from . import links

    try:
        result = links.measure()
    except links.LinkError as error:
        raise Missing(str(error)) from None
    json.dump(result, sys.stdout)
    print()
    return OK


def heat_command(args: argparse.Namespace) -> int:
    """Stress until the temperatures stand still."""
    from . import heat
    from .words import Unreadable

    if not 60 <= args.seconds <= 6 * 3600:
        say("give --seconds between 60 and 21600")
        return WRONG_USE
    try:
        result = heat.measure(args.seconds)
    except heat.HeatError as error:
        raise Missing(str(error)) from None
    except Unreadable as error:
        raise Missing(error.reason) from None
    json.dump(result, sys.stdout)
    print()
    return OK


def mig_command(args: argparse.Namespace) -> int:
    """Cut the GPUs as the pool declares; 194 asks for a reboot."""
    from . import mig
    from .words import Unreadable

    expectation = load(args.expectation, "the bundle's expectation", "start gpuinfra-bootstrap")
    try:
        for line in mig.apply(expectation):
            print("changed: %s" % line)
    except mig.RebootNeeded as error:
        print("reboot: %s" % error)
        return mig.REBOOT
    except (mig.MigError, Unreadable) as error:
        say(str(error))
        return NOT_VERIFIED
    return OK


def mounts_command(args: argparse.Namespace) -> int:
    """Network file systems, and whether they answer."""
    from . import mounts

    try:
        result = mounts.mounts()
    except mounts.MountError as error:
        raise Missing(str(error)) from None
    json.dump(result, sys.stdout)
    print()
    return OK


def ports_command(args: argparse.Namespace) -> int:
    """RDMA ports as the kernel describes them."""
    from . import ports

    json.dump(ports.ports(), sys.stdout)
    print()
    return OK
