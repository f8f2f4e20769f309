"""Reverses the recovery section."""

from __future__ import annotations

from gpuinfra.base.findings import error, warn
from gpuinfra.region.clone.draft import Draft
from gpuinfra.region.clone.pair import RegionPair
from gpuinfra.spec.messages import listed
from gpuinfra.spec.storage import Lustre, ObjectMount


def set_recovery(pair: RegionPair, draft: Draft) -> None:
    """Reverse the recovery section: the first region is the second region of the clone, with the mode of the clone.

    A section for a bucket that the clone does not create is removed, because the rules reject it.
    """
    recovery = pair.spec.recovery
    if recovery is None:
        return
    mode, buckets = (
        pair.request.mode,
        [
            str(name)
            for index, entry in enumerate(pair.spec.storage)
            if isinstance(entry, Lustre | ObjectMount)
            and (name := pair.final(draft, ("storage", index, "bucket"))) not in (None, "auto")
        ],
    )
    if recovery.region == pair.target and recovery.mode != mode and not pair.across:
        what = f"is {mode}, but recovery.mode of the stack is {recovery.mode}, which determines its recovery time"
        draft.findings.append(warn("--mode", what, f"use --mode {recovery.mode}, or change recovery.mode of the stack"))
    if pair.across:
        draft.set(("recovery",), None, f"data is not replicated between {pair.there.title} and {pair.here.title}")
        return
    if buckets and not pair.is_given(("recovery",)):
        why = f"the clone does not create the bucket {listed(buckets)} and cannot replicate it; set up its replication to {pair.source} before you fail back"
        draft.set(("recovery",), None, why)
        return
    if not pair.is_given(("recovery", "region")):
        why = f"{pair.source} is the second region of the clone, so that you can fail back"
        draft.set(("recovery", "region"), pair.source, why)
    for field in ("existing_buckets", "existing_key_arn"):
        if getattr(recovery, field) and not pair.is_given(("recovery", field)):
            draft.set(("recovery", field), None, "the clone creates its buckets")
    if recovery.homes and not pair.is_given(("recovery", "homes")):
        draft.set(("recovery", "homes"), None, f"the home directories are replicated from {pair.source}")
    if recovery.copy_images and not pair.is_given(("recovery", "copy_images")):
        draft.set(("recovery", "copy_images"), None, f"the images of the stack exist in {pair.source}")
    if pair.is_given(("recovery", "mode")) or recovery.mode == mode:
        return
    draft.set(("recovery", "mode"), mode, "mode of the clone")
    if pair.is_given(("recovery", "site_minutes")):
        return
    if mode != "cold":
        why = f"with mode {mode}, the site exists before the failover"
        draft.set(("recovery", "site_minutes"), None, why)
    else:
        what = f"is required in cold mode; the stack has mode {recovery.mode} and does not set it"
        hint = (
            f"add --set recovery.site_minutes=MINUTES, the measured time to create the site, or --mode {recovery.mode}"
        )
        draft.findings.append(error("recovery.site_minutes", what, hint))
