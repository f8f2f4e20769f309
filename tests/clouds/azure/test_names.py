"""Names are within Azure's limits for every name of a cluster, and different for every stack and subscription."""

from __future__ import annotations

import re
import uuid

from hypothesis import given
from hypothesis import strategies as st

from gpuinfra.clouds.azure import names

CLUSTERS = st.from_regex(r"\A[a-z]([a-z0-9-]{0,22}[a-z0-9])?\Z")
"""Every name that a spec accepts (`gpuinfra.spec.base.Name`)."""
PURPOSES = st.sampled_from(["audit", "evidence", "flow", "scratch-0", "very-long-name-of-a-mount-12"])
SUBSCRIPTIONS = st.uuids().map(str)
TOKENS = st.from_regex(r"\A[0-9a-f]{8}\Z")


@given(CLUSTERS, PURPOSES, SUBSCRIPTIONS, TOKENS)
def test_account_names_are_lower_case_letters_and_digits(
    cluster: str, purpose: str, subscription: str, token: str
) -> None:
    """They have 3 to 24 characters and start with the name of the cluster."""
    name = names.storage_account(cluster, purpose, subscription, token)
    assert re.fullmatch(r"[a-z0-9]{3,24}", name)
    assert name[0] == cluster[0]


@given(CLUSTERS, SUBSCRIPTIONS, TOKENS)
def test_vault_names_start_with_a_letter_and_have_no_double_hyphens(
    cluster: str, subscription: str, token: str
) -> None:
    """They have 3 to 24 letters, digits and single hyphens, and end with a letter or digit."""
    name = names.vault(cluster, subscription, token)
    assert re.fullmatch(r"[a-zA-Z][a-zA-Z0-9]*(-[a-zA-Z0-9]+)*", name)
    assert 3 <= len(name) <= 24


@given(st.text(max_size=40), st.text(max_size=40))
def test_host_name_prefixes_are_valid(cluster: str, pool: str) -> None:
    """They have at most nine letters, digits and hyphens, so that the six characters of an instance fit into 15."""
    prefix = names.computer_prefix(cluster, pool)
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,7}[a-z0-9])?", prefix)


@given(CLUSTERS, PURPOSES, SUBSCRIPTIONS, TOKENS, TOKENS)
def test_two_stacks_have_different_account_names(
    cluster: str, purpose: str, subscription: str, one: str, other: str
) -> None:
    """Another stack, purpose or subscription results in another name."""
    name = names.storage_account(cluster, purpose, subscription, one)
    assert (names.storage_account(cluster, purpose, subscription, other) == name) == (one == other)
    assert names.storage_account(cluster, purpose + "1", subscription, one) != name
    assert names.storage_account(cluster, purpose, str(uuid.UUID(int=0)), one) != name
    assert names.vault(cluster, subscription, one) != names.vault(cluster, str(uuid.UUID(int=0)), one)


def test_long_purposes_with_the_same_start_have_different_names() -> None:
    """The token contains the part that is cut off."""
    both = {
        names.storage_account("train", f"experiments-{index}", str(uuid.UUID(int=1)), "0a1b2c3d") for index in (0, 1)
    }
    assert len(both) == 2


def test_role_assignment_names_are_stable() -> None:
    """The name is a GUID derived from scope, principal and role, independent of case."""
    name = names.role_assignment("/subscriptions/A/x", "P", "r")
    assert str(uuid.UUID(name)) == name
    assert name == names.role_assignment("/SUBSCRIPTIONS/a/X", "p", "R")
    assert name != names.role_assignment("/subscriptions/A/y", "P", "r")
