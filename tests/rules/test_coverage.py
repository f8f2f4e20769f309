from __future__ import annotations

import re
from pathlib import Path

from gpuinfra.base.registry import CLOUDS
from gpuinfra.plan.profile import profile_of
from gpuinfra.reference.fields import all_fields
from gpuinfra.rules.run import all_rules
from gpuinfra.rules.shape import OF_SOME_CLOUDS

PAGE = Path(__file__).parents[2] / "docs/reference/rules.md"
REFUSALS = {
    "AWS": [str(n) for n in range(1, 59)],
    "Azure": [str(n) for n in range(1, 51)],
    "Google Cloud": [f"V{n:02}" for n in range(1, 59)],
}
WAYS = ("*schema*", "*plan*", "*component*", "*preflight*", "*clone*")


def _rows() -> dict[str, list[tuple[str, str, str]]]:
    found: dict[str, list[tuple[str, str, str]]] = {}
    chapter = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            chapter = line[3:]
        elif match := re.fullmatch(r"\| ([A-Z]?\d+) \| (.+?) \| (.+) \|", line):
            found.setdefault(chapter, []).append((match[1], match[2], match[3]))
    return found


def test_every_requirement_is_covered() -> None:
    """The page covers 58 requirements of AWS, 50 of Azure and 58 of Google Cloud, each with a rule or another mechanism."""
    rows = _rows()
    for chapter, numbers in REFUSALS.items():
        assert [number for number, _, _ in rows[chapter]] == numbers
    for listed in rows.values():
        for number, _, kept in listed:
            assert "`" in kept or any(way in kept for way in WAYS), number


def test_page_names_existing_rules() -> None:
    """Every rule on the page exists."""
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


def test_every_rule_is_on_the_page_or_specific_to_gpuinfra() -> None:
    """A rule is on the page, or in this list because it checks a requirement of gpuinfra."""
    named = {name for listed in _rows().values() for _, _, kept in listed for name in re.findall(r"`(\w+)`", kept)}
    own = {
        "region_is_known", "offers_are_used", "declared_zone_is_used", "names_are_unique", "mount_is_not_a_system_path", "cluster_layer_has_pools", "layer_is_created_or_used", "storage_needs_site", "storage_kind_is_supported",
        "site_storage_is_repeated", "reservation_covers_pool", "purchase_fixes_zone", "text_contains_no_key", "resource_logs_have_a_workspace", "reservation_is_used_once", "placement_group_name_is_valid", "identifier_is_not_an_example", "fallback_replaces_reservations", "audit_trail_is_enabled", "weakened_protection_is_reported", "operators_are_members", "floor_is_reachable",
        "tags_are_allowed", "name_is_not_reserved", "local_zone_is_named", "lustre_data_is_exported", "spot_price_limit_is_unset", "reservation_id_is_valid", "reservation_zone_is_named", "overflow_depends_on_on_demand", "one_local_zone", "homes_are_in_availability_zones",
        "existing_network_covers_zones", "node_subnet_is_large_enough", "project_id_is_valid", "machine_has_gpudirect",
        "gpudirect_stacks_are_not_mixed", "existing_subnets_are_named", "bucket_export_is_manual", "all_buckets_are_recorded", "project_audit_is_reported", "first_batch_is_canary", "registry_is_artifact_registry", "mig_layout_fits", "container_runtimes_are_supported", "gpu_metrics_have_gpus", "own_step_names_are_unique", "own_step_has_one_script", "own_step_file_is_a_script", "own_step_url_is_reachable", "own_step_pools_exist", "own_step_fits_deadline", "lustre_restore_is_supported", "variable_name_is_free", "variable_value_is_literal", "variable_keeps_the_fabric", "variables_fit_node", "file_has_one_source", "file_can_be_read", "file_path_is_free", "file_paths_do_not_conflict", "file_pools_exist", "files_fit_bundle", "packages_are_listed_once", "packages_are_not_managed", "package_servers_are_reachable", "deadline_covers_burn_in", "fabric_test_is_possible", "user_names_and_ids_are_unique", "user_name_is_not_reserved", "user_keys_are_valid", "user_key_identifies_one_user", "users_have_nodes",
        "evidence_account_is_reachable", "evidence_ranges_are_public", "operators_are_object_ids", "bastion_is_public", "bastion_subnet_fits", "existing_network_ids_are_valid", "node_policies_are_limited", "node_roles_are_limited", "node_roles_are_listed_once", "ingress_is_private", "ingress_rules_fit", "ingress_needs_its_own_network",
        "renewal_batch_is_allowed", "failed_pools_can_be_empty", "lustre_is_near_clients", "fields_are_used_by_the_cloud", "link_fields_have_a_bucket", "scheduled_exports_are_offered", "paused_exports_are_scheduled", "scheduled_exports_repeat_daily", "image_release_exists", "image_os_is_declared_once",
        "bucket_is_mounted_once", "bucket_cache_fits_local_disks", "bucket_client_is_reachable", "used_bucket_name_is_valid", "mounted_bucket_key_is_valid", "mounted_bucket_has_no_key", "mounted_container_is_valid", "existing_file_system_has_no_settings", "existing_file_system_is_reachable", "existing_file_system_uses_efa", "existing_file_system_is_listed_once", "existing_fsx_or_efs_is_identified", "existing_instance_is_identified", "existing_lustre_is_identified", "existing_share_is_identified", "share_size_is_offered", "canary_fits_pool", "foundation_fields_have_an_effect", "home_service_is_of_cloud", "home_settings_are_of_service", "openzfs_is_offered_in_region", "existing_volume_is_identified",
        "recovery_is_supported", "recovery_layers_are_created", "recovery_region_offers_machines", "recovery_covers_all_data", "recovery_existing_buckets_are_known", "recovery_rate_is_known", "recovery_replication_time_is_declared",
        "recovery_site_time_is_declared", "recovery_site_time_covers_file_systems", "recovery_targets_hold", "recovery_needs_no_failed_control_plane", "recovery_audit_covers_region", "recovery_names_are_supported", "recovery_names_are_unique", "recovery_names_can_move", "recovery_checkpoints_are_objects", "budget_currency_has_rate", "budget_covers_nodes", "lustre_is_used_by_nodes", "private_endpoint_is_needed", "recovery_image_copies_are_needed", "recovery_homes_are_replicated_by_their_service",
    }  # fmt: skip
    assert set(all_rules()) - named == own


_OWN_RULES = {
    "audit.all_buckets", "budget.currency", "storage.existing.address_range", "storage.existing.efa_enabled",
    "storage.existing.security_group", "storage.key_arn", "storage.restore_from", "recovery.copy_images", "recovery.existing_key_arn", "recovery.homes",
    "monitoring.store",
}  # fmt: skip
"""Fields of some clouds that a rule with a reason of its own rejects on the other clouds."""


def test_a_field_of_some_clouds_is_rejected_on_the_others() -> None:
    """The description of a field begins with its clouds if and only if the rules reject it on the other clouds."""
    titles = {profile_of(cloud).title: cloud for cloud in CLOUDS}
    described: dict[str, set[str]] = {}
    for path, forms in all_fields().items():
        for form in forms:
            words = re.match(r"((?:AWS|Azure|Google Cloud)(?: and (?:Azure|Google Cloud))?): ", form.meaning)
            if words and path != "storage.existing.id" and not path.startswith(("access.", "pools.fallback.")):
                described[path.removeprefix("pools.")] = {titles[title] for title in words[1].split(" and ")}
    known = {f"{section}.{name}" for section, names in OF_SOME_CLOUDS.items() for name in names}
    used = {path: {cloud for cloud in CLOUDS if path in profile_of(cloud).own_fields} for path in known}
    assert {path: clouds for path, clouds in described.items() if path not in _OWN_RULES} == used
