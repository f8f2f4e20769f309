"""A cloud that supports only some kinds of storage."""

from __future__ import annotations

import pytest

from gpuinfra.clouds.azure.profile import AzureProfile
from gpuinfra.rules import check
from gpuinfra.spec import parse_spec
from tests.rules.cases import TODAY, declaration


def test_a_kind_of_storage_that_a_cloud_does_not_support_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the kind, the cloud and the supported kinds, and suggests an alternative."""
    monkeypatch.setattr(AzureProfile, "storage_kinds", frozenset({"lustre", "object"}))
    spec = parse_spec(declaration(("azure", {"storage": [{"kind": "home"}]})))
    (found,) = [one for one in check(spec, TODAY) if one.rule == "storage_kind_is_supported"]
    assert (found.level, found.path) == ("error", "storage[0].kind")
    assert found.message == "is home, which gpuinfra does not support on Azure yet"
    assert found.hint == "allowed: lustre, object; mount your own shared file system on the nodes"
