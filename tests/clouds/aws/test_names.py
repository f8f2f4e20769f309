"""Logical names are a promise: state that was made by the first version is still found under them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.clouds.aws.upgrade import PARTS, known_as
from tests.clouds.stacks import recording_of_spec, spec_of

GOLDEN = Path(__file__).parent / "names-aws-p4d-0.1.0.json"
"""Parent type, type and name of everything that version 0.1.0 registered for `aws-p4d`, as in its URNs."""


def test_nothing_of_the_first_version_has_another_name() -> None:
    """A resource of the first version is registered under the same type, parent type and name, now or by an alias, or it would be made anew.

    Components that became parts are no resources of a cloud: their states go, what was in them stays. What goes on purpose is taken out of the golden file together with a line in the changelog; what is renamed ships with an alias.
    A name that holds the checksum of an image's reference changes with that reference, and should.
    """
    resources = recording_of_spec(spec_of("aws-p4d"), stack="aws-p4d").resources
    registered = {known_as(urn) for one in resources for urn in (one.urn, *one.once)}
    golden = {name for name in json.loads(GOLDEN.read_text()) if name.rsplit("::", 1)[0].split("$")[-1] not in PARTS}
    assert golden - registered == set()
