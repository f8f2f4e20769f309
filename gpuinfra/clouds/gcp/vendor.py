"""The request body of `instances.reportHostAsFaulty` about a faulty node. Pure.

Google accepts the report only for running instances of the A3 Ultra, A4, A4X and A4X Max machine types with the reservation-bound provisioning model
(https://docs.cloud.google.com/ai-hypercomputer/docs/manage/report-faulty-host, retrieved 2026-11-26). The fields and values are those of the
Compute API discovery document, with which a test compares them.
"""

from __future__ import annotations

import json

from gpuinfra.clouds.vendor import Faulty
from gpuinfra.node.cause import FaultyPart

ACCEPTED = ("a3-ultragpu-", "a4-", "a4x-")
UNUSABLE = frozenset({FaultyPart.MISSING_GPU, FaultyPart.GPU, FaultyPart.NVLINK})
ACTION = "recreate the instance in its managed instance group"
SAME_HOST = (
    "send report-host-as-faulty.json to Google while the instance runs. Google stops the instance, repairs the host and, on A3 Ultra and A4, "
    "attempts to move the instance to a different host. For other machine types, send node.txt to your account team"
)


def behavior(node: Faulty) -> str:
    """Return the value of `behavior`. An Xid identifies an unrecoverable GPU error, and a chip error makes a GPU unusable."""
    if node.xids:
        return "UNRECOVERABLE_GPU_ERROR"
    return "CHIP_ERROR" if node.faults & UNUSABLE else "PERFORMANCE"


def files(node: Faulty) -> dict[str, str]:
    """Return the request body, and the command that sends it."""
    reason = {"behavior": behavior(node), "description": node.summary}
    body = {"disruptionSchedule": "IMMEDIATE", "faultReasons": [reason]}
    url = f"https://compute.googleapis.com/compute/v1/{node.resource}/reportHostAsFaulty"
    accepted = node.machine.startswith(ACCEPTED)
    send = (
        "Send the report while the instance runs, because the report concerns the host on which the instance runs. "
        "Google then stops and repairs the instance, so "
        "you do not have to replace it. Google accepts the report for reservation-bound instances:\n"
        'curl -X POST -H "Authorization: Bearer $(gcloud auth print-access-token)" -H "Content-Type: application/json" '
        f"-d @report-host-as-faulty.json {url}\n"
        if accepted
        else f"Google does not accept reports about hosts of {node.machine}. Send node.txt to your account team or to Google Cloud support.\n"
    )
    facts = [f"Instance: {node.resource}", f"Instance number: {node.instance_id}", f"Zone: {node.zone}"]
    written = {"node.txt": "\n".join([*facts, *node.facts()]) + "\n", "SEND.txt": send}
    return {"report-host-as-faulty.json": json.dumps(body, indent=2) + "\n", **written} if accepted else written
