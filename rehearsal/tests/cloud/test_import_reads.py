"""What the importer of Google Cloud's provider reads, as observed with the real provider."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gpuinfra_rehearsal.cloud.core import behaviors
from gpuinfra_rehearsal.cloud.core.store import Resource

NO_CLOUD = cast("Any", None)


def imported(kind: str, **inputs: Any) -> Resource:
    """A resource as an import reads it."""
    resource = Resource(type=kind, region="", id="x", inputs=dict(inputs), outputs=dict(inputs))
    return behaviors.of(kind).imported(NO_CLOUD, resource)


@pytest.mark.parametrize(
    "kind",
    ["gcp:storage/bucket:Bucket", "gcp:compute/globalAddress:GlobalAddress", "gcp:filestore/instance:Instance"],
)
def test_an_import_reads_no_labels(kind: str) -> None:
    """Labels that are not in the state are not read, so the first `up` after an import sets them again."""
    found = imported(kind, name="n", labels={"gpuinfra-cluster": "train"})
    assert ("labels" in found.inputs, found.inputs["name"]) == (False, "n")


def test_an_import_of_a_key_has_no_setting_about_its_first_version() -> None:
    """The importer does not set `skipInitialVersionCreation`, so the first `up` after an import does not change it."""
    assert "skipInitialVersionCreation" not in imported("gcp:kms/cryptoKey:CryptoKey", name="k").inputs
