"""Command line of the node program: `node.pyz steps | verify | attest | health | explain`.

JSON goes to stdout, messages to stderr.
Exit codes, for a scheduler's prolog, a health check or systemd:
0 verified (or done), 1 not verified (or a step failed), 2 usage error, 3 missing prerequisite, 4 the partner of a pair did not arrive.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Callable

from . import VERSION
from .console import BUNDLE, NODE, OK, WRONG_USE, MissingPrerequisite, load, print_message


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["steps"]:
        # The step runner parses its own arguments and must start fast, so it imports no checks.
        from . import steps

        return steps.main(words[1:])
    try:
        args = _parser().parse_args(words)
    except SystemExit as error:
        return OK if error.code in (0, None) else WRONG_USE
    try:
        return args.run(args)
    except MissingPrerequisite as error:
        print_message(str(error), console="--upload" in words or words[:1] == ["attest"])
        return error.code
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="node.pyz", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--version", action="version", version="gpuinfra node program %s" % VERSION)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    commands.add_parser("steps", help="run the bootstrap steps, starting after the last completed step", add_help=False)

    def add(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text)
        command.set_defaults(run=run)
        return command

    verify = add("verify", _later("verify", "verify"), "probe and judge this node")
    verify.add_argument(
        "--upload", action="store_true", help="store the evidence, and use the node's identity to upload it"
    )
    verify.add_argument(
        "--json", action="store_true", help="print the outcomes as JSON (the default if stdout is not a terminal)"
    )
    verify.add_argument(
        "--document",
        action="store_true",
        help="print the complete evidence with the raw output instead of the outcomes",
    )
    verify.add_argument(
        "--phase",
        action="append",
        choices=("presence", "correctness", "speed"),
        help="run only the checks in this phase; repeatable",
    )
    verify.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="CHECK",
        help="also run this check, even if the machine does not require it (for example B2, N5); repeatable",
    )
    verify.add_argument(
        "--burn-in",
        type=int,
        choices=(1, 2, 3, 4),
        metavar="LEVEL",
        help="run DCGM diagnostics at this level: 1 takes seconds, 2 takes minutes, 3 takes about 15 minutes plus a stress test, 4 takes hours",
    )
    verify.add_argument(
        "--watch",
        type=float,
        metavar="SECONDS",
        help="verify repeatedly with this pause between rounds; print one line of JSON per round",
    )
    verify.add_argument(
        "--again",
        action="store_true",
        help="repeat only the checks that do not disturb jobs, and reuse the other measurements of this boot; "
        "upload the evidence only if it has changed or is old",
    )
    verify.add_argument(
        "--evidence", type=Path, metavar="FILE", help="judge the evidence in this file instead of this node"
    )
    add(
        "attest",
        _attest,
        "renew the identity proof for the newest evidence, and upload the evidence if it has not been uploaded yet",
    )
    health = add("health", _health, "serve the verification state of this node over HTTP until terminated")
    health.add_argument(
        "--address", default="127.0.0.1", metavar="ADDRESS", help="local address to listen on; default: 127.0.0.1"
    )
    nccl = add(
        "nccl", _later("measure", "nccl_command"), "run an all-reduce over this node's GPUs; print one JSON object"
    )
    pair = add(
        "pair",
        _later("measure", "pair_command"),
        "run an all-reduce between this node and its assigned partner; print one JSON object",
    )
    pair.add_argument("--assignment", type=Path, metavar="FILE", help="default: /var/lib/gpuinfra/pair.json")
    fabric = add(
        "fabric",
        _later("fabric_command", "fabric_command"),
        "measure pairs of nodes in rounds until the slow node or path is found; run it on all nodes at the same time; print one JSON object",
    )
    fabric.add_argument("--store", type=Path, required=True, metavar="FOLDER", help="folder that all nodes mount")
    fabric.add_argument(
        "--run", dest="run_name", required=True, metavar="NAME", help="name of this test, the same on all nodes"
    )
    fabric.add_argument("--nodes", type=int, required=True, help="number of nodes that take part")
    fabric.add_argument("--name", help="name of this node; default: the instance ID, or the host name outside a cloud")
    fabric.add_argument(
        "--join", type=float, default=900, metavar="SECONDS", help="maximum wait for all nodes (default: %(default)s)"
    )
    add(
        "fabric-service",
        _later("fabric_service", "fabric_service"),
        "take part in the fabric tests of this node's pool through the evidence bucket until terminated (the gpuinfra-fabric unit)",
    )
    add(
        "notices",
        _later("notice_service", "notice_service"),
        "read the cloud's notices about this machine until terminated (the gpuinfra-notices unit)",
    )
    add(
        "metrics",
        _later("metrics", "metrics_service"),
        "write what this node knows about itself for node exporter until terminated (the gpuinfra-metrics unit)",
    )
    add(
        "discovery",
        _later("discovery", "discovery"),
        "write the configuration of Prometheus with the names of this account, for gpuinfra-prometheus on the control node",
    )
    add(
        "repair",
        _later("repair_service", "repair_service"),
        "repair the nodes of the cluster until terminated (the gpuinfra-repair unit on the control node)",
    )
    add(
        "secrets",
        _later("discovery", "receivers"),
        "write the configuration of Alertmanager with the topics and the secrets of the receivers of alerts, for gpuinfra-alertmanager on the control node",
    )
    disk = add(
        "data-disk",
        _later("data_disk", "data_disk"),
        "attach and mount the disk with the data of Prometheus and Alertmanager on the control node",
    )
    disk.add_argument(
        "service", nargs="?", choices=("prometheus", "alertmanager"), help="also create the folder of this service"
    )
    for command in (nccl, pair, fabric):
        command.add_argument(
            "--gib",
            type=float,
            help="size of the buffer on each GPU, in GiB; each GPU allocates two buffers; default: the size that the floor of the machine type names",
        )
        command.add_argument("--rounds", type=int, default=20)
    add(
        "links",
        _printed("links", "measure"),
        "measure each fabric device with a loopback test; print one JSON object",
    )
    heat = add(
        "heat",
        _later("measure", "heat_command"),
        "stress the GPUs until the temperatures are steady; print one JSON object",
    )
    heat.add_argument("--seconds", type=int, default=1800, help="maximum duration of the stress (default: %(default)s)")
    mig = add(
        "mig",
        _later("measure", "mig_command"),
        "create the MIG instances that the pool declares; exit code 194 requests a reboot",
    )
    add(
        "energy",
        _printed("energy", "energy"),
        "read the energy counters of the GPUs; print the readings of this boot as one JSON object",
    )
    add("mounts", _printed("mounts", "mounts"), "test the mounted network file systems; print one JSON object")
    add("ports", _printed("ports", "ports"), "list the RDMA ports that the kernel reports; print one JSON object")
    add("pcie", _printed("pcie", "counters"), "list the error counters of PCIe devices; print one JSON object")
    files = add(
        "files",
        _printed("files", "files", "expectation"),
        "read the declared files and environment variables; print one JSON object",
    )
    for command in (verify, mig, fabric, files, nccl, pair):
        command.add_argument(
            "--expectation", type=Path, default=BUNDLE / "expectation.json", help="default: %(default)s"
        )
    explain = add("explain", _explain, "show what a check verifies, how it works, and what to do if it fails")
    explain.add_argument("check", metavar="CHECK", help="ID or name of the check, such as G5 or ecc_errors")
    return parser


def _later(module: str, name: str) -> Callable[[argparse.Namespace], int]:
    """Return a command that imports its module on first use, which keeps the program's startup time short."""

    def run(args: argparse.Namespace) -> int:
        from importlib import import_module

        return getattr(import_module("." + module, __package__), name)(args)

    return run


def _printed(module: str, name: str, *options: str) -> Callable[[argparse.Namespace], int]:
    """Return a command that runs a measurement with the values of its options and prints the result as one JSON object."""

    def run(args: argparse.Namespace) -> int:
        from importlib import import_module

        measure = getattr(import_module("." + module, __package__), name)
        print(json.dumps(measure(*(getattr(args, option) for option in options))))
        return OK

    return run


def _attest(args: argparse.Namespace) -> int:
    from . import cloud, evidence, upload

    node = load(NODE, "the node's configuration", "user data writes it")
    try:
        problem = upload.renew(node, evidence.EvidenceFolder(), cloud.of(node), evidence.boot_id())
    except (cloud.CloudError, OSError) as error:
        raise MissingPrerequisite("cannot renew the identity proof: %s" % error) from None
    if problem:
        raise MissingPrerequisite(problem)
    return OK


def _health(args: argparse.Namespace) -> int:
    from . import health

    try:
        health.serve(NODE, BUNDLE, args.address)
    except OSError as error:
        raise MissingPrerequisite("cannot listen on port %d: %s" % (health.PORT, error)) from None
    return OK


def _explain(args: argparse.Namespace) -> int:
    from .checks import ALL
    from .probes import PROBES

    for check in ALL.values():
        if args.check.lower() in (check.id.lower(), check.name):
            shown = {
                "id": check.id,
                "name": check.name,
                "phase": check.phase.value,
                "severity": check.severity.value,
                "proves": " ".join((check.__doc__ or "").split()),
                "commands": [" ".join(PROBES[name].argv) for name in check.probes],
                "when_it_fails": check.hint,
                "source": check.source,
            }
            json.dump(shown, sys.stdout, indent=2)
            print()
            return OK
    print_message("unknown check %s; known checks: %s" % (args.check[:40], ", ".join(ALL)))
    return WRONG_USE


if __name__ == "__main__":
    sys.exit(main())
