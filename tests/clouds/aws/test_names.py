"""Logical names are a promise: state that was made by the first version is still found under them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.clouds.stacks import recording_of_spec, spec_of

GOLDEN = Path(__file__).parent / "names-aws-p4d-0.1.0.json"
"""Parent type, type and name of everything that version 0.1.0 registered for `aws-p4d`, as in its URNs."""


def test_nothing_of_the_first_version_has_another_name() -> None:
    """A resource of the first version is registered under the same type, parent type and name, or it would be made anew.

    What goes on purpose is taken out of the golden file together with a line in the changelog; what is renamed ships with an alias.
    A name that holds the checksum of an image's reference changes with that reference, and should.
    """
    registered = {one.urn.split("::", 2)[2] for one in recording_of_spec(spec_of("aws-p4d"), stack="aws-p4d").resources}
    assert set(json.loads(GOLDEN.read_text())) - registered == set()
