"""The node part's command: `node.pyz steps | verify | attest | health | explain`.

JSON on stdout, words for people on stderr.
Exit codes that a scheduler's prolog, a health check and systemd understand:
0 verified (or done), 1 not verified (or a step failed), 2 wrong use, 3 the environment lacks something.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from . import VERSION

OK, NOT_VERIFIED, WRONG_USE, ENVIRONMENT = 0, 1, 2, 3
NODE = Path("/etc/gpuinfra/node.json")
STATE = Path("/var/lib/gpuinfra/state.json")
BUNDLE = Path("/opt/gpuinfra/current")


class Missing(Exception):
    """The environment lacks something; the message says what and what to do."""


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["steps"]:
        # The runner has arguments of its own and must start fast: nothing of the checks is imported.
        from . import steps

        return steps.main(words[1:])
    try:
        args = _parser().parse_args(words)
    except SystemExit as error:
        return OK if error.code in (0, None) else WRONG_USE
    try:
        return args.run(args)
    except Missing as error:
        _say(str(error), console="--upload" in words or words[:1] == ["attest"])
        return ENVIRONMENT
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="node.pyz", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--version", action="version", version="gpuinfra node part %s" % VERSION)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    commands.add_parser("steps", help="run the bootstrap's steps, resuming where they stopped", add_help=False)
    verify = commands.add_parser("verify", help="probe and judge this node")
    verify.add_argument(
        "--upload", action="store_true", help="keep the evidence and upload it under the node's identity"
    )
    verify.add_argument(
        "--json", action="store_true", help="print the outcomes as JSON (the default when stdout is no terminal)"
    )
    verify.add_argument(
        "--document", action="store_true", help="print the whole evidence instead: raw output too, for others to judge"
    )
    verify.add_argument(
        "--phase",
        action="append",
        choices=("presence", "correctness", "speed"),
        help="only this phase; may be repeated",
    )
    verify.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="CHECK",
        help="ask for this check too, though the machine does not require it: B2, B4 and B5 measure; may be repeated",
    )
    verify.add_argument(
        "--burn-in",
        type=int,
        choices=(1, 2, 3, 4),
        metavar="LEVEL",
        help="DCGM's diagnostics of this level: 1 seconds, 2 minutes, 3 a quarter of an hour and stress until the heat is steady, 4 hours",
    )
    verify.add_argument(
        "--watch", type=float, metavar="SECONDS", help="verify again and again; one line of JSON a round"
    )
    verify.add_argument(
        "--evidence", type=Path, metavar="FILE", help="judge the evidence in this file again instead of this node"
    )
    verify.add_argument("--expectation", type=Path, default=BUNDLE / "expectation.json", help="default: %(default)s")
    verify.set_defaults(run=_verify)
    attest = commands.add_parser(
        "attest", help="renew the identity proof of the newest evidence, and upload it if it never arrived"
    )
    attest.set_defaults(run=_attest)
    health = commands.add_parser("health", help="answer on this machine whether it is proven, until ended")
    health.set_defaults(run=_health)
    nccl = commands.add_parser("nccl", help="all-reduce over this node's GPUs; prints one JSON object")
    nccl.add_argument("--gib", type=float, default=8.0, help="bytes summed on each GPU, twice of that is allocated")
    nccl.add_argument("--rounds", type=int, default=20)
    nccl.set_defaults(run=_nccl)
    pair = commands.add_parser("pair", help="all-reduce between this node and the one it is assigned; one JSON object")
    pair.add_argument("--assignment", type=Path, metavar="FILE", help="default: /var/lib/gpuinfra/pair.json")
    pair.add_argument("--gib", type=float, default=2.0, help="bytes summed on each GPU, twice of that is allocated")
    pair.add_argument("--rounds", type=int, default=20)
    pair.set_defaults(run=_pair)
    links = commands.add_parser(
        "links", help="how fast each fabric device is in a loop through itself; one JSON object"
    )
    links.set_defaults(run=_links)
    heat = commands.add_parser("heat", help="stress until the temperatures stand still; prints one JSON object")
    heat.add_argument("--seconds", type=int, default=1800, help="longest stress (default: %(default)s)")
    heat.set_defaults(run=_heat)
    mig = commands.add_parser("mig", help="cut the GPUs by MIG as the pool declares; exit code 194 asks for a reboot")
    mig.add_argument("--expectation", type=Path, default=BUNDLE / "expectation.json", help="default: %(default)s")
    mig.set_defaults(run=_mig)
    mounts = commands.add_parser("mounts", help="which network file systems are mounted and answer; one JSON object")
    mounts.set_defaults(run=_mounts)
    ports = commands.add_parser("ports", help="what the kernel says about each RDMA port; prints one JSON object")
    ports.set_defaults(run=_ports)
    explain = commands.add_parser("explain", help="what a check proves, how, and what to do when it fails")
    explain.add_argument("check", metavar="CHECK", help="id or name: G5, ecc_errors")
    explain.set_defaults(run=_explain)
    return parser


def _verify(args: argparse.Namespace) -> int:
    if args.watch is not None:
        return _watch(args)
    from .judge import judge, not_checked, verdict

    expectation = _load(
        args.expectation, "the bundle's expectation", "start gpuinfra-bootstrap, or give --expectation FILE"
    )
    from .checks import ALL

    unknown = [name for name in args.also if name not in ALL]
    if unknown:
        _say("there is no check %s; there are %s" % (unknown[0][:40], ", ".join(ALL)))
        return WRONG_USE
    try:
        unchecked = not_checked(expectation)
        also = [*args.also, *burn_in_checks(args.burn_in)]
        expectation = dict(expectation, required=list(dict.fromkeys([*expectation["required"], *also])))
        if args.burn_in:
            expectation["burn_in"] = args.burn_in
    except ValueError as error:
        raise Missing(str(error)) from None
    if args.evidence:
        document = _load(args.evidence, "the evidence", "give a file of format gpuinfra.evidence/1")
        checks = judge(document.get("probes") or {}, expectation, journal=document.get("state"), phases=args.phase)
    else:
        document = _gather(expectation, args.phase)
        checks = document["checks"]
    if args.phase:
        # A person who asks for one phase is told about that phase.
        ran = {check["id"] for check in checks}
        expectation = dict(
            expectation, required=[name for name in expectation["required"] if name in ran] or expectation["required"]
        )
    result = verdict(checks, expectation)
    upload_problem = _upload(document) if args.upload and not args.evidence else None
    if args.document:
        from . import evidence

        sys.stdout.write(evidence.dumped(document).decode("ascii") + "\n")
    elif args.json or not sys.stdout.isatty():
        shown = {
            "schema": "gpuinfra.verify/1",
            "verified": result.verified,
            "instance_id": document.get("instance_id"),
            "boot_id": document.get("boot_id"),
        }
        shown.update(checks=checks, not_checked=unchecked, gpus=document.get("gpus"))
        json.dump(shown, sys.stdout, ensure_ascii=True)
        print()
    else:
        for check in checks:
            print(
                "%-5s %-4s %-22s found %s, expected %s"
                % (check["outcome"], check["id"], check["name"], check["found"], check["expected"])
            )
    for check in result.blockers:
        _say("%s %s: %s; %s" % (check["id"], check["name"], check["reason"], check["hint"]), console=args.upload)
    for name in result.missing:
        _say("%s did not run" % name)
    if upload_problem:
        _say(upload_problem, console=True)
        return ENVIRONMENT
    return OK if result.verified else NOT_VERIFIED


def burn_in_checks(level: int | None) -> list[str]:
    """Checks that a level of burn-in asks for."""
    return [] if not level else ["B1"] if level == 1 else ["B6"] if level == 2 else ["B6", "B7"]


def _watch(args: argparse.Namespace) -> int:
    """Verify again and again until somebody ends it; what changed is told, and evidence is uploaded only then."""
    import time

    from .judge import verdict

    if not args.watch >= 1:
        _say("give --watch at least 1 second")
        return WRONG_USE
    expectation = _load(args.expectation, "the bundle's expectation", "start gpuinfra-bootstrap")
    before: dict[str, str] | None = None
    while True:
        document = _gather(expectation, args.phase)
        outcomes = {check["id"]: check["outcome"] for check in document["checks"]}
        changed = sorted(name for name, outcome in outcomes.items() if (before or {}).get(name) != outcome)
        problem = _upload(document) if args.upload and changed else None
        line = {
            "schema": "gpuinfra.watch/1",
            "time": document["finished"],
            "changed": {name: outcomes[name] for name in changed},
        }
        line["verified"] = verdict(document["checks"], expectation).verified
        if problem:
            line["problem"] = problem
        print(json.dumps(line), flush=True)
        before = outcomes
        time.sleep(args.watch)


def _gather(expectation: dict[str, Any], phases: list[str] | None) -> dict[str, Any]:
    """Probe this node and make its evidence, without a word to anybody."""
    from . import evidence
    from .probe import probe_all

    node = _optional(NODE) or {}
    journal = _optional(STATE)
    kept = evidence.Kept()
    newest = kept.newest()
    started = evidence.now()
    probes = probe_all(
        evidence.needed_probes(expectation, phases), efa_devices=int(expectation.get("fabric_devices") or 0)
    )
    return evidence.make(
        node=node,
        expectation=expectation,
        # A node that was configured by us and has no journal did not bootstrap: that is no reason to ask less of it.
        journal=journal if journal is not None or not node else {},
        probes=probes,
        instance_id=_instance_id(node),
        boot_id=evidence.boot_id(),
        seq=kept.next_number(),
        previous=None if newest is None else evidence.sha256(newest[2]),
        started=started,
        finished=evidence.now(),
        host_keys=evidence.ssh_host_keys(),
        phases=phases,
    )


def _upload(document: dict[str, Any]) -> str | None:
    """Keep and upload; the reason when that did not work, because the outcomes are told first."""
    from . import cloud, evidence, upload

    node = _load(NODE, "the node's configuration", "it is written by user data")
    kept = evidence.Kept()
    try:
        upload.deliver(node, document, kept, cloud.of(node))
    except (cloud.CloudError, OSError) as error:
        return "the evidence is in %s and was not uploaded: %s" % (kept.folder, error)
    return None


def _attest(args: argparse.Namespace) -> int:
    from . import cloud, evidence, upload

    node = _load(NODE, "the node's configuration", "it is written by user data")
    try:
        problem = upload.renew(node, evidence.Kept(), cloud.of(node), evidence.boot_id())
    except (cloud.CloudError, OSError) as error:
        raise Missing("the proof was not renewed: %s" % error) from None
    if problem:
        raise Missing(problem)
    return OK


def _health(args: argparse.Namespace) -> int:
    from . import health

    try:
        health.serve(NODE, BUNDLE)
    except OSError as error:
        raise Missing("port %d cannot be listened on: %s" % (health.PORT, error)) from None
    return OK


def _say(line: str, console: bool = False) -> None:
    """One line for people on stderr, and on the console where nobody is logged in to see stderr."""
    from .words import harmless

    line = "gpuinfra: %s" % harmless(line).replace("\n", " ")
    print(line, file=sys.stderr)
    if console:
        try:
            handle = os.open("/dev/console", os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
            os.write(handle, (line + "\r\n").encode("utf-8", "replace"))
            os.close(handle)
        except OSError:
            pass  # no console here


def _nccl(args: argparse.Namespace) -> int:
    import tempfile

    from . import nccl

    if not (0 < args.gib <= 64 and 0 < args.rounds <= 10_000):
        _say("give --gib between 0 and 64, and --rounds between 1 and 10000")
        return WRONG_USE
    with tempfile.TemporaryDirectory(prefix="gpuinfra-nccl-") as folder:
        try:
            result = nccl.run(int(args.gib * nccl.GIB) // 4 * 4, args.rounds, folder + "/log")
        except nccl.NcclError as error:
            raise Missing(str(error)) from None
    json.dump(result, sys.stdout)
    print()
    return OK


def _pair(args: argparse.Namespace) -> int:
    import tempfile

    from . import cloud, nccl, pair

    if not (0 < args.gib <= 64 and 0 < args.rounds <= 10_000):
        _say("give --gib between 0 and 64, and --rounds between 1 and 10000")
        return WRONG_USE
    try:
        assignment = pair.read(args.assignment or pair.ASSIGNMENT)
        if assignment["store"]:
            store: pair.Store = pair.Folder(Path(assignment["store"]))
        else:
            node = _load(NODE, "the node's configuration", "it is written by user data; or name a folder as store")
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


def _links(args: argparse.Namespace) -> int:
    from . import links

    try:
        result = links.measure()
    except links.LinkError as error:
        raise Missing(str(error)) from None
    json.dump(result, sys.stdout)
    print()
    return OK


def _heat(args: argparse.Namespace) -> int:
    from . import heat
    from .words import Unreadable

    if not 60 <= args.seconds <= 6 * 3600:
        _say("give --seconds between 60 and 21600")
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


def _mig(args: argparse.Namespace) -> int:
    from . import mig
    from .words import Unreadable

    expectation = _load(args.expectation, "the bundle's expectation", "start gpuinfra-bootstrap")
    try:
        for line in mig.apply(expectation):
            print("changed: %s" % line)
    except mig.RebootNeeded as error:
        print("reboot: %s" % error)
        return mig.REBOOT
    except (mig.MigError, Unreadable) as error:
        _say(str(error))
        return NOT_VERIFIED
    return OK


def _mounts(args: argparse.Namespace) -> int:
    from . import mounts

    try:
        result = mounts.mounts()
    except mounts.MountError as error:
        raise Missing(str(error)) from None
    json.dump(result, sys.stdout)
    print()
    return OK


def _ports(args: argparse.Namespace) -> int:
    from . import ports

    json.dump(ports.ports(), sys.stdout)
    print()
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
    _say("there is no check %s; there are %s" % (args.check[:40], ", ".join(ALL)))
    return WRONG_USE


def _instance_id(node: dict[str, Any]) -> str:
    """Who this is: the cloud's word, or the host's name on a machine that no cloud made."""
    if node.get("cloud") not in (None, "none"):
        from . import cloud

        try:
            return cloud.of(node).instance_id()
        except cloud.CloudError as error:
            raise Missing("this instance does not know its id: %s" % error) from None
    return os.uname().nodename


def _load(path: Path, what: str, mend: str) -> dict[str, Any]:
    found = _optional(path)
    if found is None:
        raise Missing("%s is not at %s; %s" % (what, path, mend))
    return found


def _optional(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise Missing("%s cannot be read: %s" % (path, error)) from None
    if not isinstance(value, dict):
        raise Missing("%s holds no JSON object" % path)
    return value


if __name__ == "__main__":
    sys.exit(main())
