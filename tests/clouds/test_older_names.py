"""Logical names are a promise: state that an earlier program made is still found under them."""

from __future__ import annotations

import pytest

from tests.clouds.names import STACKS, known_as, of_then
from tests.clouds.stacks import recording_of


@pytest.mark.parametrize("stack", STACKS)
def test_nothing_of_an_earlier_program_has_another_name(stack: str) -> None:
    """A resource of then is registered under the same type, parent type and name, now or by an alias, or it would be made anew.

    What goes on purpose is taken out of the golden file together with a line in the changelog; what is renamed ships with an alias.
    A name that holds the checksum of an image's reference changes with that reference, and should.
    """
    registered = {known_as(urn) for one in recording_of(stack).resources for urn in (one.urn, *one.once)}
    assert of_then(stack) - registered == set()
    assert len(of_then(stack)) > 70
