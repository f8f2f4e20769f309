"""What SECURITY.md and docs/reference/security.md promise, and the tests that prove it.

A key is the beginning of a sentence or of a row of a table, as it is read on the page, without markup. A value is a tuple of tests, or the reason why
the sentence is not a promise about gpuinfra.
"""

from __future__ import annotations

HOW_TO, YOURS, LINK = "an instruction", "a limit: what remains your responsibility", "a link or a heading"

_AWS_POLICY, _CONTRACT = "tests/permissions/test_aws_policy.py", "tests/clouds/test_contract.py"
_LINKS, _WRITES = "tests/bootstrap/test_planted_links.py", "tests/base/test_people_files.py"
_RULES = "tests/rules/test_rules.py"
_NO_ADDRESS = (
    "tests/clouds/aws/test_nodes.py::test_nodes_get_no_public_address_in_any_subnet",
    "tests/clouds/azure/test_nodes.py::test_every_size_with_infiniband_is_one_scale_set",
    "tests/clouds/gcp/test_nodes.py::test_interfaces_match_the_machine_type",
)
_TEXT = (
    "tests/verification/test_verification.py::test_hostile_evidence_cannot_write_the_page_or_the_terminal",
    "tests/report/test_tables.py::test_no_control_character_survives",
    "tests/report/test_pages.py::test_text_of_nodes_is_escaped",
)
_HOSTILE = (
    *(
        f"tests/handover/test_fuzz_{cloud}.py::test_hostile_writes_change_no_other_verdict"
        for cloud in ("aws", "azure", "gcp")
    ),
    "tests/handover/test_fuzz.py::test_documents_of_any_content_are_examined_in_bounded_time",
)
_SIGNED = (
    "tests/handover/test_isolation.py::test_objects_that_the_node_did_not_sign_do_not_count",
    *(
        f"tests/handover/test_fuzz_{cloud}.py::test_hostile_writes_change_no_other_verdict"
        for cloud in ("aws", "azure", "gcp")
    ),
)
_REHEARSAL = (
    "rehearsal/tests/test_privacy.py::test_nothing_of_the_user_is_read_and_nothing_outside_is_reached",
    "rehearsal/tests/test_folder.py::test_environment_is_built_from_nothing",
)
_OWN_FILES = (
    f"{_WRITES}::test_an_edit_at_each_step_is_kept",
    f"{_WRITES}::test_kill_at_each_step_leaves_a_whole_file",
    f"{_WRITES}::test_full_disk_loses_nothing",
    f"{_WRITES}::test_no_other_module_writes_files",
)
_KEYS = (
    f"{_RULES}::test_rule_rejects_invalid_declarations",
    "tests/test_promises.py::test_a_key_in_any_text_of_a_declaration_is_an_error",
)

SECURITY = {
    "To report a vulnerability, choose Report": HOW_TO,
    "Do not open a public issue": HOW_TO,
    "Include the version": HOW_TO,
    "Only the latest release": "a policy of the maintainers",
    "The changelog lists each fixed": "a policy of the maintainers",
    "make sbom writes a bill": ("tests/test_sbom.py::test_bill_of_materials_lists_the_locked_packages",),
    "It lists the locked Python packages": ("tests/test_sbom.py::test_bill_of_materials_lists_the_locked_packages",),
    "engine/go.sum lists": ("tests/test_promises.py::test_the_engine_is_built_from_locked_modules",),
    "the permissions of the operator and of the nodes | ": LINK,
    "connections to nodes: host keys, bastions, tunnels | ": LINK,
    "evidence: which records are accepted from a node, and which are not | ": LINK,
    "the audit trail, and what destroy retains | ": LINK,
    "the engine: sources, checksums and their limits | ": LINK,
    "These properties hold": LINK,
    "tests/promises.py lists": ("tests/test_promises.py::test_every_sentence_names_its_tests",),
    "Nodes have no public addresses": _NO_ADDRESS,
    "Rules reject networks for SSH": (f"{_RULES}::test_rule_rejects_invalid_declarations",),
    "On a node, no file, link or name": (
        f"{_LINKS}::test_proof_of_a_mount_writes_only_a_new_file",
        f"{_LINKS}::test_home_is_not_copied_through_a_link",
        f"{_LINKS}::test_cache_of_a_bucket_is_in_a_folder_of_root",
        f"{_LINKS}::test_rendezvous_of_a_pair_follows_no_link",
        f"{_LINKS}::test_every_redirection_of_a_step_is_into_a_folder_of_root",
    ),
    "Commands write a stack file only if": _OWN_FILES,
    "Edits of people and of other commands are kept": _OWN_FILES,
    "A private key or an access token in a declaration": _KEYS,
    "Text from nodes, clouds and stack files": _TEXT,
    "Control characters and bidirectional": (*_TEXT, *_HOSTILE),
    "Evidence is parsed only after": _SIGNED,
    "Objects that a node did not sign": _SIGNED,
    "A rehearsal does not use your credentials": _REHEARSAL,
    "A stack file, a script in software.steps": YOURS,
    "Review them": HOW_TO,
    "Pulumi state contains": YOURS,
    "Protect the state backend": HOW_TO,
    "An operator with permission to write evidence": YOURS,
}

MODEL = {
    "control node | orders to the nodes of its cluster": (
        "tests/node/test_orders.py::test_an_order_to_this_node_becomes_an_imminent_notice",
        "rehearsal/tests/cloud/test_repair_requests.py::test_aws",
        "rehearsal/tests/cloud/test_repair_requests.py::test_azure",
        "rehearsal/tests/cloud/test_repair_requests.py::test_gcp",
    ),
    "This page describes": LINK,
    "To report a vulnerability": HOW_TO,
    "operator: the identity that runs pulumi up | ": (
        f"{_AWS_POLICY}::test_resources_of_another_cluster_are_denied",
        "tests/permissions/test_other_evaluator.py::test_a_loss_of_retained_data_is_denied",
        "tests/permissions/test_azure_and_google.py::test_a_loss_of_retained_data_is_denied_on_azure",
        "tests/permissions/test_azure_and_google.py::test_a_loss_of_retained_data_is_denied_on_google",
    ),
    "node | ": (
        "rehearsal/tests/cloud/test_fabric_sheet.py::test_aws",
        "tests/verification/test_nodes.py::test_evidence_that_another_node_wrote_does_not_count",
        "rehearsal/tests/cloud/test_gcp_handover_ports.py::test_node_cannot_write_outside_its_clusters_folder",
    ),
    "user of a node | ": ("tests/bootstrap/test_real_users.py::test_users_have_ids_homes_and_keys",),
    "cloud provider | ": "what you trust the provider with",
    "package servers | ": (
        "tests/test_promises.py::test_unpinned_packages_are_those_of_the_page",
        "tests/bootstrap/test_lib.py::test_signature_must_be_the_vendors",
        "tests/bootstrap/test_lib.py::test_repository_key_must_be_the_pinned_one",
    ),
    "network | ": (
        *_NO_ADDRESS,
        "tests/clouds/aws/test_reachability.py::test_nodes_are_not_reachable_from_outside",
        "tests/clouds/test_connections.py::test_a_diagram_shows_the_rules_of_the_nodes",
        f"{_RULES}::test_rule_rejects_invalid_declarations",
    ),
    "login | ": (
        "tests/remote/test_openssh.py::test_unknown_key_is_refused_and_not_added",
        "tests/remote/test_openssh.py::test_host_key_from_the_handover_overrides_known_hosts",
        "tests/remote/test_known.py::test_key_of_the_handover_is_the_only_trusted_one",
    ),
    "evidence | ": (
        "tests/clouds/aws/handover/test_ports.py::test_valid_proof_yields_hash_and_signed_headers",
        "tests/clouds/azure/handover/test_attested.py::test_document_for_other_evidence_is_refused",
    ),
    "instance metadata | ": (
        "tests/plan/test_plan.py::test_nodes_block_the_metadata_service_without_a_hop_limit",
        "tests/clouds/controls/test_controls.py::test_shipped_stacks_pass_all_controls",
    ),
    "data at rest | ": ("tests/clouds/controls/test_controls.py::test_shipped_stacks_pass_all_controls",),
    "audit | ": (
        "tests/clouds/controls/test_controls.py::test_shipped_stacks_pass_all_controls",
        f"{_CONTRACT}::test_destroy_retains_data_audit_records_and_keys",
    ),
    "root on nodes | ": (
        f"{_LINKS}::test_proof_of_a_mount_has_a_name_that_nobody_can_guess",
        f"{_LINKS}::test_proof_of_a_mount_writes_only_a_new_file",
        f"{_LINKS}::test_home_is_not_copied_through_a_link",
        f"{_LINKS}::test_shared_scratch_gets_the_sticky_bit",
    ),
    "software | ": (
        "tests/bootstrap/test_real_packages.py::test_packages_are_installed_at_their_versions_and_held",
        "tests/test_promises.py::test_unpinned_packages_are_those_of_the_page",
        "tests/bootstrap/test_lib.py::test_signature_of_a_key_that_is_no_longer_valid_fails",
    ),
    "stack files | ": (*_OWN_FILES, f"{_WRITES}::test_links_are_not_followed_to_other_files"),
    "state | ": (
        "tests/engine/test_up.py::test_the_lock_of_another_run_is_never_removed",
        "tests/engine/test_up.py::test_real_engine_records_whose_update_was_the_last",
        "tests/cli/test_up.py::test_an_update_of_another_operator_is_kept",
    ),
    "secrets in declarations | ": _KEYS,
    "programs of others | ": ("tests/policy/test_rules.py::test_a_rule_refuses_one_program_and_accepts_the_other",),
    "engine | ": (
        "tests/engine/test_release.py::test_a_release_that_cannot_be_used_is_built_instead_with_one_line",
        "tests/test_promises.py::test_the_engine_is_built_from_locked_modules",
    ),
    "text from nodes and clouds | ": _TEXT,
    "rehearsal | ": _REHEARSAL,
    "gpuinfra plan reports a finding": (f"{_RULES}::test_rule_rejects_invalid_declarations",),
    "An operator who can write evidence": YOURS,
    "Separate the identity": HOW_TO,
    "The Pulumi state contains": YOURS,
    "Protect the state backend": HOW_TO,
    "A stack file, a script in software.steps": YOURS,
    "On Google Cloud, a condition cannot refer": YOURS,
    "A node can create objects in the evidence folder": (
        "tests/clouds/gcp/test_node_role.py::test_nodes_add_objects_and_replace_none",
        "tests/clouds/azure/test_roles.py::test_a_node_reads_and_creates_blobs_and_cannot_replace_them",
        "rehearsal/tests/cloud/test_azure_http.py::test_a_role_limits_a_node",
    ),
    "The handover ignores what the other node did not sign": (
        *_SIGNED,
        "tests/node/test_evidence.py::test_the_timer_never_takes_an_object_of_another_node_for_its_own",
        "tests/node/test_evidence.py::test_numbers_that_another_node_used_are_skipped",
    ),
    "Nodes of a pool measure the fabric with each other": YOURS,
    "A compromised node can delay its partners": YOURS,
    "It changes no other verdict": (
        "tests/handover/test_relay.py::test_a_neighbor_that_occupies_every_name_stops_no_other_node",
        "tests/handover/test_relay.py::test_a_hostile_member_stops_no_other_node",
        "tests/handover/test_pairing.py::test_a_lying_node_changes_no_other_result",
    ),
    "Nodes of a cluster trust each other": YOURS,
    "gpuinfra has not run in a real account": YOURS,
    "proofs.md lists": LINK,
}

PROMISES = {"SECURITY.md": SECURITY, "docs/reference/security.md": MODEL}
