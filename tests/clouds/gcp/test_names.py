"""Google accepts all names, for any names of clusters and pools and any tags."""

from __future__ import annotations

import functools
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuinfra.clouds.gcp import names
from gpuinfra.spec import parse_spec
from tests.clouds.gcp.variants import ULTRA
from tests.clouds.recorder import Recording
from tests.clouds.stacks import recording_of_spec

RFC1035 = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
ACCOUNT = re.compile(r"[a-z]([-a-z0-9]{4,28}[a-z0-9])")
BUCKET = re.compile(r"[a-z0-9][a-z0-9_-]{1,61}[a-z0-9]")
LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
LABEL = re.compile(r"[a-z0-9_-]{0,63}")

LONG = "a" * 23 + "b"
NAMED = {
    "longest": {"name": LONG, "pool": "c" * 24},
    "shortest": {"name": "x", "pool": "y"},
    "dashes": {"name": "a-----------------------b", "pool": "a----------------------b"},
    "contains google": {"name": "google-train", "pool": "goog"},
    "begins with goog": {"name": "goog", "pool": "gpu"},
    "digits": {"name": "a1234567890123456789012", "pool": "b0"},
}
"""Names that a declaration accepts at the limits of what Google accepts."""
for _case in NAMED.values():
    _case["name"] = _case["name"][:24].rstrip("-")
    _case["pool"] = _case["pool"][:24].rstrip("-")


@functools.cache
def _recorded(name: str, pool: str) -> Recording:
    kinds: list[dict[str, Any]] = [
        {"kind": "spot", "count": 2},
        {"kind": "reserved", "id": "r", "count": 1},
        {"kind": "flex", "count": 1, "max_run_hours": 1},
    ]
    return recording_of_spec(
        parse_spec(
            {
                "name": name,
                "where": {
                    "cloud": "gcp",
                    "region": "northamerica-northeast1",
                    "zone": "northamerica-northeast1-b",
                    "offers": [ULTRA["machine"]],
                },
                "pools": [{**ULTRA, "name": pool, "capacity": kinds}],
                "storage": [
                    {
                        "kind": "lustre",
                        "mount": "/" + "google-scratch-of-everybody" * 3,
                        "capacity_gib": 18000,
                        "bucket": "auto",
                    }
                ],
                "network": {"egress": "endpoints"},
                "access": {"ssh_from": ["35.235.240.0/20"]},
                "tags": {"Kostenstelle": "Ä 42", "9": "x" * 200},
            }
        ),
        stack="a-stack-with-a-long-name" * 4,
    )


@pytest.mark.parametrize("case", NAMED)
def test_google_accepts_every_name(case: str) -> None:
    """Names follow RFC 1035 with 63 characters, 30 for accounts, 58 for the base name of a group; buckets do not resemble Google's."""
    recording = _recorded(**NAMED[case])
    seen = 0
    for one in recording.custom:
        inputs = one.inputs
        if one.type == "gcp:storage/bucket:Bucket":
            assert BUCKET.fullmatch(inputs["name"]), inputs["name"]
            assert not inputs["name"].startswith("goog")
            assert "google" not in inputs["name"]
        elif one.type.startswith(("gcp:compute/", "gcp:dns/")) and not one.type.endswith(":RecordSet"):
            assert RFC1035.fullmatch(inputs["name"]), inputs["name"]
        elif one.type.startswith(("gcp:kms/keyRing", "gcp:kms/cryptoKey:", "gcp:logging/projectSink")):
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,63}", inputs["name"]), inputs["name"]
        else:
            continue
        seen += 1
    assert seen > 40
    (account,) = recording.of("gcp:serviceaccount/account:Account")
    assert ACCOUNT.fullmatch(account.inputs["accountId"])
    (lustre,) = recording.of("gcp:lustre/instance:Instance")
    assert RFC1035.fullmatch(lustre.inputs["instanceId"])
    assert re.fullmatch(r"[a-zA-Z0-9]{1,8}", lustre.inputs["filesystem"])
    for group in recording.of("gcp:compute/instanceGroupManager:InstanceGroupManager"):
        base = group.inputs["baseInstanceName"]
        assert len(base) <= 58
        assert RFC1035.fullmatch(f"{base}-x7k2")


@pytest.mark.parametrize("case", NAMED)
def test_google_accepts_every_label(case: str) -> None:
    """Keys and values of labels are shortened and in lower case."""
    carried = 0
    for one in _recorded(**NAMED[case]).custom:
        for key, value in {**one.inputs.get("labels", {}), **one.inputs.get("userLabels", {})}.items():
            assert LABEL_KEY.fullmatch(key), key
            assert LABEL.fullmatch(value), value
            carried += 1
    assert carried > 10


def test_resources_of_one_type_have_different_names() -> None:
    """Shortened names end in a part of a hash, so that two long names stay different."""
    recording = _recorded(**NAMED["longest"])
    known: set[tuple[str, str]] = set()
    for one in recording.custom:
        name = one.inputs.get("name") or one.inputs.get("instanceId") or one.inputs.get("bucketId")
        if name and one.type != "gcp:dns/recordSet:RecordSet":
            assert (one.type, name) not in known
            known.add((one.type, name))
    assert len(known) > 30


def test_stacks_of_one_project_have_different_names() -> None:
    """Names differ between stacks of the same declaration, and bucket names also between projects."""
    both: list[set[tuple[str, str]]] = []
    for stack in ("one", "two"):
        spec = parse_spec({"name": "train", "where": {"cloud": "gcp", "region": "us-central1"}, "pools": [ULTRA]})
        recording = recording_of_spec(spec, stack=stack)
        shared = ("gcp:projects/service:Service", "gpuinfra:index:NodesReady", "gcp:storage/bucketObject:BucketObject")
        both.append(
            {
                (one.type, str(one.inputs[key]))
                for one in recording.custom
                for key in ("name", "instanceId", "bucketId", "accountId")
                if key in one.inputs and one.type not in shared
            }
        )
    assert both[0]
    assert not both[0] & both[1]
    assert names.bucket("train", "evidence", "one", "0a1b2c3d") != names.bucket("train", "evidence", "two", "0a1b2c3d")


text = st.text(st.characters(codec="utf-8"), max_size=200)
plain = st.from_regex(r"[a-z]([a-z0-9-]{0,80}[a-z0-9])?", fullmatch=True)


@settings(max_examples=200, deadline=None)
@given(logical=plain, other=plain, content=text, more=text)
def test_names_are_valid_for_any_input(logical: str, other: str, content: str, more: str) -> None:
    """Fitted, physical and content names have a valid form, and different inputs give different names."""
    for made in (names.physical(logical, "0a1b2c3d"), names.by_content(logical, content)):
        assert RFC1035.fullmatch(made), made
    assert len(names.fitted(logical, names.GROUP_BASE_LIMIT)) <= names.GROUP_BASE_LIMIT
    if logical != other:
        assert names.physical(logical, "0a1b2c3d") != names.physical(other, "0a1b2c3d")
    if content != more:
        assert names.by_content(logical, content) != names.by_content(logical, more)
    assert names.by_content(logical, content) == names.by_content(logical, content)


@settings(max_examples=200, deadline=None)
@given(tags=st.dictionaries(text.filter(bool), text, max_size=5))
def test_labels_are_valid_for_any_tags(tags: dict[str, str]) -> None:
    """Any text of a tag becomes a label that Google accepts."""
    for key, value in names.labels(tags).items():
        assert LABEL_KEY.fullmatch(key), key
        assert LABEL.fullmatch(value), value


@pytest.mark.parametrize(
    ("registry", "known"),
    [
        ("us-central1-docker.pkg.dev/my-project/gpudirect", ("us-central1", "my-project", "gpudirect")),
        ("europe-docker.pkg.dev/example.com:my-project/a/b", ("europe", "example.com:my-project", "a")),
        ("us-docker.pkg.dev/my-project", None),
        ("registry.example.com/gpudirect", None),
        ("", None),
    ],
)
def test_an_artifact_registry_is_parsed(registry: str, known: tuple[str, str, str] | None) -> None:
    """Location, project and repository are read from the address of an Artifact Registry; other registries give None."""
    assert names.repository(registry) == known


def test_networks_and_subnets_accept_a_name_or_a_path() -> None:
    """A name belongs to the project of the stack; a path names its own project."""
    assert names.network_path("shared", "p") == "projects/p/global/networks/shared"
    assert names.network_path("projects/q/global/networks/shared", "p") == "projects/q/global/networks/shared"
    assert names.subnet_path("s", "p", "r") == "projects/p/regions/r/subnetworks/s"
    assert names.project_of("https://www.googleapis.com/compute/v1/projects/q/global/networks/n", "p") == "q"
    assert names.project_of("n", "p") == "p"
