"""Removes audit, budget, access and tag settings that cannot be copied."""

from __future__ import annotations

from gpuinfra.region.clone.draft import Draft
from gpuinfra.region.clone.pair import RegionPair
from gpuinfra.spec.shown import looks_secret


def set_policies(pair: RegionPair, draft: Draft) -> None:
    """Remove the bucket of the audit trail, settings of another cloud, and tags that look like secrets."""
    spec = pair.spec
    if spec.audit.bucket:
        draft.set(("audit", "bucket"), None, f"the bucket is in {pair.source}; the clone creates its own")
    if pair.across:
        if spec.audit.all_buckets and not pair.there.selects_buckets:
            draft.set(("audit", "all_buckets"), None, f"{pair.there.title} does not support this setting")
        if pair.there.budget_currency not in (None, spec.budget.currency):
            why = f"{pair.there.title} accepts only budgets in {pair.there.budget_currency}"
            draft.set(("budget", "currency"), None, why)
            draft.set(("budget", "units_per_usd"), None, why)
        for name in type(spec.access).model_fields:
            if getattr(spec.access, name) and (name not in pair.there.access_fields or name == "operators"):
                draft.set(("access", name), None, f"it is specific to {pair.here.title}")
    for route, tags in (
        (("tags",), spec.tags),
        *((("pools", i, "tags"), pool.tags) for i, pool in enumerate(spec.pools)),
    ):
        for key, value in tags.items():
            if looks_secret(key) or looks_secret(value):
                why = "it looks like a secret, and the clone contains no plaintext secrets"
                draft.set((*route, key), None, why, secret=True)
