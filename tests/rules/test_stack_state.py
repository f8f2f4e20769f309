"""The Pulumi state of a cluster with a second region survives the failure of the first."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuinfra.base.findings import Level
from gpuinfra.base.shipped import shipped
from gpuinfra.region.clone import CloneRequest, clone
from gpuinfra.rules.stack import check_stack
from gpuinfra.spec import read_stack
from tests.rules.cases import TODAY

RULE = "state_survives_the_region"
STACK = (shipped("stacks") / "Pulumi.aws-recovery.yaml").read_text(encoding="utf-8")
KEY = "arn:aws:kms:{}:000000000000:key/00000000-0000-0000-0000-000000000001"


def _found(folder: Path, backend: str | None, provider: str | None, stack: str = STACK) -> list[tuple[Level, str]]:
    """The level and the path of each finding of the rule for a project."""
    (folder / "Pulumi.yaml").write_text(
        "name: lab\nruntime: python\n" + (f"backend: {{url: '{backend}'}}\n" if backend else "")
    )
    stacks = folder / "stacks"
    stacks.mkdir(exist_ok=True)
    path = stacks / "Pulumi.lab.yaml"
    path.write_text((f"secretsprovider: '{provider}'\n" if provider else "") + stack)
    return [(one.level, one.path) for one in check_stack(read_stack(path), TODAY) if one.rule == RULE]


@pytest.mark.parametrize(
    ("backend", "provider"),
    [
        (None, None),
        ("s3://state?region=us-west-2", f"awskms:///{KEY.format('us-west-2')}"),
        ("s3://state-us-east-2?region=eu-west-1&awssdk=v2", "awskms://alias/state?region=us-west-2"),
        ("https://api.pulumi.com", "passphrase"),
        ("gs://state", "gcpkms://projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"),
    ],
)
def test_state_in_a_different_region_is_accepted(tmp_path: Path, backend: str | None, provider: str | None) -> None:
    """State and keys in a different region, in a different cloud or in the Pulumi service survive."""
    assert _found(tmp_path, backend, provider) == []


@pytest.mark.parametrize(
    ("backend", "provider", "expected"),
    [
        ("s3://state?region=us-east-2", None, (Level.ERROR, "backend.url")),
        ("s3://state?awssdk=v2&region=us-east-2", None, (Level.ERROR, "backend.url")),
        (None, f"awskms:///{KEY.format('us-east-2')}", (Level.ERROR, "secretsprovider")),
        (None, "awskms://alias/state?region=us-east-2", (Level.ERROR, "secretsprovider")),
        ("s3://state", None, (Level.WARN, "backend.url")),
        (None, "awskms://alias/state", (Level.WARN, "secretsprovider")),
    ],
)
def test_state_in_the_region_that_fails_is_rejected(
    tmp_path: Path, backend: str | None, provider: str | None, expected: tuple[Level, str]
) -> None:
    """The finding has the place of the URL. A URL without a region is a warning."""
    assert _found(tmp_path, backend, provider) == [expected]


@pytest.mark.parametrize(
    ("location", "expected"),
    [("us-central1", [(Level.ERROR, "secretsprovider")]), ("us-east4", []), ("us", []), ("global", [])],
)
def test_key_ring_in_the_region_that_fails_is_rejected(
    tmp_path: Path, location: str, expected: list[tuple[Level, str]]
) -> None:
    """The URL of a secrets provider on Google Cloud contains the location of the key ring."""
    stack = (shipped("stacks") / "Pulumi.gcp-recovery.yaml").read_text(encoding="utf-8")
    provider = f"gcpkms://projects/p/locations/{location}/keyRings/r/cryptoKeys/k"
    assert _found(tmp_path, None, provider, stack) == expected


@pytest.mark.parametrize(
    ("region", "backend", "expected"),
    [
        ("eu-west-1", "s3://state?region=eu-west-1", [(Level.WARN, "backend.url")]),
        ("eu-west-1", "s3://state?region=us-west-2", []),
        ("us-west-2", "s3://state?region=eu-west-1", []),
        ("eu-west-1", "s3://state", [(Level.WARN, "backend.url")]),
        ("nowhere", "s3://state?region=nowhere", []),
    ],
)
def test_state_of_a_clone_in_the_region_of_the_original_is_a_warning(
    tmp_path: Path, region: str, backend: str, expected: list[tuple[Level, str]]
) -> None:
    """A clone without `recovery` needs its state when the region of its original fails. A setting that names no region has no effect."""
    stack = STACK[: STACK.index("    recovery:")].replace(
        "config:\n", f"config:\n  gpuinfra:clone-of: {{stack: lab, region: {region}}}\n"
    )
    assert _found(tmp_path, backend, None, stack) == expected


@pytest.mark.parametrize(
    ("backend", "expected"),
    [
        ("s3://state?region=us-east-2", [(Level.ERROR, "backend.url")]),
        ("s3://state?region=us-west-2", [(Level.WARN, "backend.url")]),
        ("s3://state?region=eu-west-1", []),
        ("s3://state", [(Level.WARN, "backend.url")]),
    ],
)
def test_state_of_a_clone_with_recovery_is_in_a_third_region(
    tmp_path: Path, backend: str, expected: list[tuple[Level, str]]
) -> None:
    """Both regions of a clone with `recovery` can fail, and a URL without a region is one finding."""
    stack = STACK.replace("config:\n", "config:\n  gpuinfra:clone-of: {stack: lab, region: us-west-2}\n")
    assert _found(tmp_path, backend, None, stack) == expected


def test_clone_warns_about_the_state_of_the_stack(tmp_path: Path) -> None:
    """`gpuinfra clone` reports a state backend in the region of the stack, which both stacks share."""
    (tmp_path / "Pulumi.yaml").write_text("name: lab\nruntime: python\nbackend: {url: 's3://state?region=us-east-2'}\n")
    path = tmp_path / "Pulumi.lab.yaml"
    path.write_text(STACK[: STACK.index("    recovery:")])
    made = clone(read_stack(path), path.read_text(), CloneRequest(region="us-west-2"), TODAY)
    assert made.ok
    (found,) = [one for one in made.findings if one.path == "backend.url"]
    assert "us-east-2" in found.message


@pytest.mark.parametrize(("region", "found"), [("us-east-2", 1), ("us-west-2", 0), ("nowhere", 0)])
def test_state_of_a_clone_on_a_different_cloud(tmp_path: Path, region: str, found: int) -> None:
    """A clone on Google Cloud needs its state when the region of its original on AWS fails."""
    stack = (shipped("stacks") / "Pulumi.gcp-foundation.yaml").read_text(encoding="utf-8")
    stack = stack.replace("config:\n", f"config:\n  gpuinfra:clone-of: {{stack: lab, region: {region}}}\n")
    assert _found(tmp_path, "s3://state?region=us-east-2", None, stack) == [(Level.WARN, "backend.url")] * found


def test_without_a_second_region_the_state_can_be_anywhere(tmp_path: Path) -> None:
    """A declaration without `recovery` has no failover."""
    stack = STACK[: STACK.index("    recovery:")]
    assert _found(tmp_path, "s3://state?region=us-east-2", None, stack) == []
