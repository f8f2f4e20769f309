"""`node.pyz verify`: probe this node, judge it, print the result, and store and upload the evidence; once or repeatedly."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any, Iterable, Mapping

from .console import (
    ENVIRONMENT,
    NODE,
    NOT_VERIFIED,
    OK,
    STATE,
    WRONG_USE,
    MissingPrerequisite,
    load,
    optional,
    print_message,
)
from .outcome import CheckResult


def verify(args: argparse.Namespace) -> int:
    """Verify once. The exit code shows whether the node is verified."""
    if args.watch is not None:
        return _watch(args)
    if args.again:
        return _again(args)
    from .judge import judge, not_checked, verdict

    expectation = _expectation(args)
    if expectation is None:
        return WRONG_USE
    unchecked = not_checked(load(args.expectation, "", ""))
    if args.evidence:
        document = load(args.evidence, "the evidence", "specify a file in the format gpuinfra.evidence/1")
        checks = judge(document.get("probes") or {}, expectation, journal=document.get("state"), phases=args.phase)
    else:
        document = _make_evidence(args, expectation)
        checks = document["checks"]
    result = verdict(checks, _limited_to_phases(expectation, checks, args.phase))
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
        print_message(
            "%s %s: %s; %s" % (check["id"], check["name"], check["reason"], check["hint"]), console=args.upload
        )
    for name in result.missing:
        print_message("%s did not run" % name)
    if upload_problem:
        print_message(upload_problem, console=True)
        return ENVIRONMENT
    return OK if result.verified else NOT_VERIFIED


def _watch(args: argparse.Namespace) -> int:
    """Verify repeatedly until terminated. Each line lists the changed outcomes; evidence is uploaded only after a change."""
    import time

    from .judge import verdict

    if not args.watch >= 1 or args.evidence:
        print_message("--watch requires at least 1 second and cannot be combined with --evidence")
        return WRONG_USE
    expectation = _expectation(args)
    if expectation is None:
        return WRONG_USE
    before: dict[str, str] | None = None
    while True:
        document = _make_evidence(args, expectation)
        checks = document["checks"]
        outcomes = {check["id"]: check["outcome"] for check in checks}
        changed = sorted(name for name, outcome in outcomes.items() if (before or {}).get(name) != outcome)
        problem = _upload(document) if args.upload and changed else None
        line = {
            "schema": "gpuinfra.watch/1",
            "time": document["finished"],
            "changed": {name: outcomes[name] for name in changed},
        }
        line["verified"] = verdict(checks, _limited_to_phases(expectation, checks, args.phase)).verified
        if problem:
            line["problem"] = problem
        print(json.dumps(line), flush=True)
        before = outcomes
        time.sleep(args.watch)


RENEW_S = 6 * 3600
"""Age in seconds at which unchanged evidence is uploaded again. The handover accepts evidence that is at most one day old (`handover/judge.py`)."""


def _again(args: argparse.Namespace) -> int:
    """Repeat the checks that do not disturb jobs; the output of the probes that load the GPUs or the fabric is kept from this boot.

    New evidence is stored and uploaded if an outcome changed or if the newest evidence is older than `RENEW_S`.
    """
    from . import evidence
    from .judge import verdict

    if args.watch is not None or args.evidence or args.phase or args.also or args.burn_in:
        print_message("--again cannot be combined with --watch, --evidence, --phase, --also or --burn-in")
        return WRONG_USE
    expectation = _expectation(args)
    if expectation is None:
        return WRONG_USE
    newest = evidence.EvidenceFolder().newest()
    if newest is None or newest[1].get("boot_id") != evidence.boot_id():
        raise MissingPrerequisite("no evidence for this boot yet; gpuinfra-verify.service creates it")
    before = newest[1]
    document = _make_evidence(args, expectation, before)
    result = verdict(document["checks"], expectation)
    problem = _upload(document) if args.upload and is_news(before, document) else None
    for check in result.blockers:
        print_message("%s %s: %s; %s" % (check["id"], check["name"], check["reason"], check["hint"]), console=True)
    if problem:
        print_message(problem, console=True)
        return ENVIRONMENT
    return OK if result.verified else NOT_VERIFIED


def is_news(before: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
    """Return True if the outcomes, the result of the fabric test, the notices, the bundle or the host keys differ from the previous evidence,
    if GPUs that were idle are used again, or if that evidence is old.

    GPUs that become idle are not news, so work that starts and stops every hour causes at most one additional upload for each renewal.
    """
    import datetime

    from .energy import returned_to_use

    def readings(document: Mapping[str, Any]) -> str:
        return str(((document.get("probes") or {}).get("energy") or {}).get("stdout"))

    def content(document: Mapping[str, Any]) -> list[Any]:
        outcomes = {check["id"]: check["outcome"] for check in document["checks"]}
        # The handover reads the result of the fabric test, and shows why a node still waits for it.
        probes = document.get("probes") or {}
        stored = [(probes.get(name) or {}).get("stdout") for name in ("fabric-result", "notices", "repair")]
        return [outcomes, stored, document.get("bundle_sha256"), document.get("ssh_host_keys")]

    def moment(document: Mapping[str, Any]) -> datetime.datetime:
        return datetime.datetime.strptime(str(document.get("finished")), "%Y-%m-%dT%H:%M:%SZ").replace(
            tzinfo=datetime.timezone.utc
        )

    try:
        age = (moment(document) - moment(before)).total_seconds()
        used_again = returned_to_use(readings(before), readings(document))
        return content(before) != content(document) or used_again or not 0 <= age < RENEW_S
    except (ValueError, KeyError, TypeError):
        return True


def _expectation(args: argparse.Namespace) -> dict[str, Any] | None:
    """Return the expectation with the requested extra checks. If a check is unknown, print a message and return None."""
    from .checks import ALL
    from .judge import not_checked

    expectation = load(
        args.expectation, "the bundle's expectation", "start gpuinfra-bootstrap, or set --expectation FILE"
    )
    unknown = [name for name in args.also if name not in ALL]
    if unknown:
        print_message("unknown check %s; known checks: %s" % (unknown[0][:40], ", ".join(ALL)))
        return None
    try:
        not_checked(expectation)  # raises if the expectation has no required checks
    except ValueError as error:
        raise MissingPrerequisite(str(error)) from None
    also = [*args.also, *burn_in_checks(args.burn_in)]
    expectation = dict(expectation, required=list(dict.fromkeys([*expectation["required"], *also])))
    if args.burn_in:
        expectation["burn_in"] = args.burn_in
    return expectation


def burn_in_checks(level: int | None) -> list[str]:
    """Return the checks for a burn-in level."""
    from .checks import ALL

    return [name for name, check in ALL.items() if level in check.burn_in]


def _limited_to_phases(
    expectation: dict[str, Any], checks: Iterable[CheckResult], phases: list[str] | None
) -> dict[str, Any]:
    """Limit the expectation to the requested phases. A node is not verified if no check in these phases ran."""
    if not phases:
        return expectation
    ran = {check["id"] for check in checks}
    return dict(
        expectation, required=[name for name in expectation["required"] if name in ran] or expectation["required"]
    )


def _make_evidence(
    args: argparse.Namespace, expectation: dict[str, Any], before: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Probe this node and create its evidence. With the evidence `before`, the output of its loading probes is kept."""
    from . import evidence
    from .log import utc_now
    from .probe import probe_all, with_expectation
    from .probes import PROBES

    node = optional(NODE) or {}
    journal = optional(STATE)
    folder = evidence.EvidenceFolder()
    newest = folder.newest()
    started = utc_now()
    needed = evidence.needed_probes(expectation, args.phase)
    kept: dict[str, Any] = {}
    if before is not None:
        held = before.get("probes") or {}
        kept = {name: held[name] for name in needed if PROBES[name].loads and name in held}
        needed = [name for name in needed if not PROBES[name].loads]
    devices = int(expectation.get("fabric_devices") or 0)
    probes = {**probe_all(needed, do=with_expectation(args.expectation), efa_devices=devices), **kept}
    return evidence.make(
        node=node,
        expectation=expectation,
        # A configured node without a journal did not bootstrap, so judge it like a node with an empty journal.
        journal=journal if journal is not None or not node else {},
        probes=probes,
        instance_id=instance_id(node),
        boot_id=evidence.boot_id(),
        seq=folder.next_number(),
        previous=None if newest is None else evidence.sha256(newest[2]),
        started=started,
        finished=utc_now(),
        host_keys=evidence.ssh_host_keys(),
        phases=args.phase,
        measured_in=None if before is None else before.get("measured_in"),
    )


def _upload(document: dict[str, Any]) -> str | None:
    """Store and upload the evidence. Return a problem instead of raising it, because the outcomes are printed first."""
    from . import cloud, evidence, upload

    node = load(NODE, "the node's configuration", "user data writes it")
    folder = evidence.EvidenceFolder()
    try:
        upload.deliver(node, document, folder, cloud.of(node))
    except (cloud.CloudError, OSError) as error:
        return "the evidence was stored in %s but not uploaded: %s" % (folder.folder, error)
    return None


def instance_id(node: dict[str, Any]) -> str:
    """Return the node's ID: the cloud's instance ID, or the host name outside a cloud."""
    if node.get("cloud") not in (None, "none"):
        from . import cloud

        try:
            return cloud.of(node).instance_id()
        except cloud.CloudError as error:
            raise MissingPrerequisite("cannot determine the ID of this instance: %s" % error) from None
    return os.uname().nodename
