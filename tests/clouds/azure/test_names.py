"""Names stay within Azure's limits for every name that a spec takes, and two stacks or subscriptions share none."""

from __future__ import annotations

import re
import uuid

from hypothesis import given
from hypothesis import strategies as st

from gpuinfra.clouds.azure import names

CLUSTERS = st.from_regex(r"\A[a-z]([a-z0-9-]{0,22}[a-z0-9])?\Z")
"""Every name that a spec takes (`gpuinfra.spec.base.Name`)."""
PURPOSES = st.sampled_from(["audit", "evidence", "flow", "scratch-0", "very-long-name-of-a-mount-12"])
SUBSCRIPTIONS = st.uuids().map(str)
TOKENS = st.from_regex(r"\A[0-9a-f]{8}\Z")


@given(CLUSTERS, PURPOSES, SUBSCRIPTIONS, TOKENS)
def test_an_account_s_name_is_lower_case_letters_and_digits(
    cluster: str, purpose: str, subscription: str, token: str
) -> None:
    """Three to twenty-four of them, beginning with the cluster where there is room."""
    name = names.storage_account(cluster, purpose, subscription, token)
    assert re.fullmatch(r"[a-z0-9]{3,24}", name)
    assert name[0] == cluster[0]


@given(CLUSTERS, SUBSCRIPTIONS, TOKENS)
def test_a_vault_s_name_begins_with_a_letter_and_has_no_two_hyphens(
    cluster: str, subscription: str, token: str
) -> None:
    """Three to twenty-four letters, digits and single hyphens, ending in a letter or digit."""
    name = names.vault(cluster, subscription, token)
    assert re.fullmatch(r"[a-zA-Z][a-zA-Z0-9]*(-[a-zA-Z0-9]+)*", name)
    assert 3 <= len(name) <= 24


@given(st.text(max_size=40), st.text(max_size=40))
def test_a_host_s_name_is_one_that_any_system_takes(cluster: str, pool: str) -> None:
    """Whatever it is made from: letters, digits and hyphens, at most nine, so that an instance's six follow within fifteen."""
    prefix = names.computer_prefix(cluster, pool)
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,7}[a-z0-9])?", prefix)


@given(CLUSTERS, PURPOSES, SUBSCRIPTIONS, TOKENS, TOKENS)
def test_two_stacks_share_no_account(cluster: str, purpose: str, subscription: str, one: str, other: str) -> None:
    """Neither do two stacks of a subscription, nor two purposes of a stack, nor two customers with the same words."""
    name = names.storage_account(cluster, purpose, subscription, one)
    assert (names.storage_account(cluster, purpose, subscription, other) == name) == (one == other)
    assert names.storage_account(cluster, purpose + "1", subscription, one) != name
    assert names.storage_account(cluster, purpose, str(uuid.UUID(int=0)), one) != name
    assert names.vault(cluster, subscription, one) != names.vault(cluster, str(uuid.UUID(int=0)), one)


def test_long_purposes_that_begin_alike_are_told_apart() -> None:
    """What is cut off is still in the token."""
    both = {
        names.storage_account("train", f"experiments-{index}", str(uuid.UUID(int=1)), "0a1b2c3d") for index in (0, 1)
    }
    assert len(both) == 2


def test_a_role_assignment_s_name_is_the_same_each_time() -> None:
    """A GUID that follows from scope, principal and role, however they are written, and from nothing else."""
    name = names.role_assignment("/subscriptions/A/x", "P", "r")
    assert str(uuid.UUID(name)) == name
    assert name == names.role_assignment("/SUBSCRIPTIONS/a/X", "p", "R")
    assert name != names.role_assignment("/subscriptions/A/y", "P", "r")
