"""`node.pyz verify`: probe this node, judge it, tell it, and keep and upload the evidence; once, or again and again."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from .console import ENVIRONMENT, NODE, NOT_VERIFIED, OK, STATE, WRONG_USE, Missing, load, optional, say


def verify(args: argparse.Namespace) -> int:
    """Once: the exit code says whether the node is verified."""
    if args.watch is not None:
        return _watch(args)
    from .judge import judge, not_checked, verdict

    asked = _asked(args)
    if asked is None:
        return WRONG_USE
    expectation, unchecked = asked, not_checked(load(args.expectation, "", ""))
    if args.evidence:
        document = load(args.evidence, "the evidence", "give a file of format gpuinfra.evidence/1")
        checks = judge(document.get("probes") or {}, expectation, journal=document.get("state"), phases=args.phase)
    else:
        document = _gather(expectation, args.phase)
        checks = document["checks"]
    result = verdict(checks, _of_phases(expectation, checks, args.phase))
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
        say("%s %s: %s; %s" % (check["id"], check["name"], check["reason"], check["hint"]), console=args.upload)
    for name in result.missing:
        say("%s did not run" % name)
    if upload_problem:
        say(upload_problem, console=True)
        return ENVIRONMENT
    return OK if result.verified else NOT_VERIFIED


def _watch(args: argparse.Namespace) -> int:
    """Again and again until somebody ends it; what changed is told, and evidence is uploaded only then."""
    import time

    from .judge import verdict

    if not args.watch >= 1 or args.evidence:
        say("--watch takes at least 1 second, and no --evidence: it looks at this node")
        return WRONG_USE
    expectation = _asked(args)
    if expectation is None:
        return WRONG_USE
    before: dict[str, str] | None = None
    while True:
        document = _gather(expectation, args.phase)
        checks = document["checks"]
        outcomes = {check["id"]: check["outcome"] for check in checks}
        changed = sorted(name for name, outcome in outcomes.items() if (before or {}).get(name) != outcome)
        problem = _upload(document) if args.upload and changed else None
        line = {
            "schema": "gpuinfra.watch/1",
            "time": document["finished"],
            "changed": {name: outcomes[name] for name in changed},
        }
        line["verified"] = verdict(checks, _of_phases(expectation, checks, args.phase)).verified
        if problem:
            line["problem"] = problem
        print(json.dumps(line), flush=True)
        before = outcomes
        time.sleep(args.watch)


def _asked(args: argparse.Namespace) -> dict[str, Any] | None:
    """The machine's record with what is asked for besides; None where that is no check, which is told."""
    from .checks import ALL
    from .judge import not_checked

    expectation = load(
        args.expectation, "the bundle's expectation", "start gpuinfra-bootstrap, or give --expectation FILE"
    )
    unknown = [name for name in args.also if name not in ALL]
    if unknown:
        say("there is no check %s; there are %s" % (unknown[0][:40], ", ".join(ALL)))
        return None
    try:
        not_checked(expectation)  # refuses a record that asks for nothing
    except ValueError as error:
        raise Missing(str(error)) from None
    also = [*args.also, *burn_in_checks(args.burn_in)]
    expectation = dict(expectation, required=list(dict.fromkeys([*expectation["required"], *also])))
    if args.burn_in:
        expectation["burn_in"] = args.burn_in
    return expectation


def burn_in_checks(level: int | None) -> list[str]:
    """Checks that a level of burn-in asks for."""
    return [] if not level else ["B1"] if level == 1 else ["B6"] if level == 2 else ["B6", "B7"]


def _of_phases(expectation: dict[str, Any], checks: list[dict[str, Any]], phases: list[str] | None) -> dict[str, Any]:
    """Who asks for one phase is told about that phase; where it has no check at all, nothing is verified."""
    if not phases:
        return expectation
    ran = {check["id"] for check in checks}
    return dict(
        expectation, required=[name for name in expectation["required"] if name in ran] or expectation["required"]
    )


def _gather(expectation: dict[str, Any], phases: list[str] | None) -> dict[str, Any]:
    """Probe this node and make its evidence, without a word to anybody."""
    from . import evidence
    from .probe import probe_all

    node = optional(NODE) or {}
    journal = optional(STATE)
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

    node = load(NODE, "the node's configuration", "it is written by user data")
    kept = evidence.Kept()
    try:
        upload.deliver(node, document, kept, cloud.of(node))
    except (cloud.CloudError, OSError) as error:
        return "the evidence is in %s and was not uploaded: %s" % (kept.folder, error)
    return None


def _instance_id(node: dict[str, Any]) -> str:
    """Who this is: the cloud's word, or the host's name on a machine that no cloud made."""
    if node.get("cloud") not in (None, "none"):
        from . import cloud

        try:
            return cloud.of(node).instance_id()
        except cloud.CloudError as error:
            raise Missing("this instance does not know its id: %s" % error) from None
    return os.uname().nodename
