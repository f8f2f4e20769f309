from __future__ import annotations

import re
from pathlib import Path

from gpuinfra.reference.fields import all_fields
from gpuinfra.rules.run import all_rules

PAGE = Path(__file__).parents[2] / "docs/rules.md"
REFUSALS = {
    "AWS": [str(n) for n in range(1, 59)],
    "Azure": [str(n) for n in range(1, 51)],
    "Google Cloud": [f"V{n:02}" for n in range(1, 59)],
}
WAYS = ("*shape*", "*plan*", "*component*", "*preflight*", "*clone*")


def _rows() -> dict[str, list[tuple[str, str, str]]]:
    found: dict[str, list[tuple[str, str, str]]] = {}
    chapter = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            chapter = line[3:]
        elif match := re.fullmatch(r"\| ([A-Z]?\d+) \| (.+?) \| (.+) \|", line):
            found.setdefault(chapter, []).append((match[1], match[2], match[3]))
    return found


def test_every_refusal_of_the_clouds_is_kept_by_something() -> None:
    """58 refusals of AWS, 50 of Azure and 58 of Google Cloud are each kept by a rule or by something with a reason."""
    rows = _rows()
    for chapter, numbers in REFUSALS.items():
        assert [number for number, _, _ in rows[chapter]] == numbers
    for listed in rows.values():
        for number, _, kept in listed:
            assert "`" in kept or any(way in kept for way in WAYS), number


def test_every_rule_that_is_named_exists() -> None:
    """The page names no rule that is not there."""
    rules = set(all_rules())
    fields = {path.rsplit(".", 1)[-1] for path in all_fields()} | {
        "stale",
        "single_fabric",
        "service_range",
        "DRIVER_FLAVOUR",
        "block",
    }
    for listed in _rows().values():
        for number, _, kept in listed:
            for name in re.findall(r"`(\w+)`", kept):
                assert name in rules or name in fields, (number, name)


def test_every_rule_is_on_the_page_or_is_gpuinfras_own() -> None:
    """A rule that keeps no refusal of a cloud keeps a sentence of gpuinfra's own, and is listed here."""
    named = {name for listed in _rows().values() for _, _, kept in listed for name in re.findall(r"`(\w+)`", kept)}
    own = {
        "region_is_known", "names_are_unique", "mount_is_free", "pools_are_there", "layer_is_made_or_used", "storage_needs_site", "storage_is_made",
        "site_storage_is_repeated", "reservation_covers_pool", "fallback_replaces_reservations", "trail_is_made", "what_is_loosened_is_said", "operators_are_members", "floor_is_reachable",
        "tags_fit", "spot_price_is_left_alone", "reservation_id_has_its_form", "reserved_p_needs_account_team", "one_local_zone",
        "existing_network_has_zone", "node_subnet_is_large_enough", "project_has_its_form", "fabric_is_there",
        "flavours_do_not_share_data_networks", "existing_subnets_are_named", "lustre_is_exported_by_hand", "first_lot_is_the_canary", "registry_is_ours_to_open", "mig_layout_fits", "burn_in_has_time",
        "evidence_is_reached", "evidence_ranges_are_public", "operators_are_object_ids", "bastion_is_public", "bastion_has_room", "existing_network_is_named_by_ids",
        "batch_is_one_that_azure_takes",
    }  # fmt: skip
    assert set(all_rules()) - named == own
