"""The schema of the package. `python -m tests.provider.test_schema` writes `schema.json` after an intended change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.registry import CLOUDS, cloud_as
from gpuinfra.clouds.cloud import BuiltCloud
from gpuinfra.provider.schema import OUTPUTS, TYPE, package_schema
from gpuinfra.spec.model import ClusterSpec

GOLDEN = Path(__file__).with_name("schema.json")


def text() -> str:
    """The schema as the golden file contains it."""
    return json.dumps(package_schema("0.0.0"), indent=1, sort_keys=True) + "\n"


def references(value: Any) -> Iterator[str]:
    """The types that a part of the schema refers to."""
    if isinstance(value, dict):
        yield from (one for key, one in value.items() if key == "$ref")
        for one in value.values():
            yield from references(one)
    elif isinstance(value, list):
        for one in value:
            yield from references(one)


def test_schema_changes_only_on_purpose() -> None:
    """The schema is the golden file, because generated SDKs depend on it."""
    assert text() == GOLDEN.read_text()


def test_declaration_has_the_fields_of_its_models() -> None:
    """The type of the declaration has the fields and the required fields of the model, with the same names."""
    declaration = package_schema("0.0.0")["types"]["gpuinfra:index:ClusterSpec"]
    assert list(declaration["properties"]) == list(ClusterSpec.model_fields)
    assert declaration["required"] == ["name", "where"]


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("layer", ["foundation_refs", "site_refs"])
def test_each_output_of_a_layer_is_an_output_of_the_component(cloud: str, layer: str) -> None:
    """A program in another language can export every value that a stack of the next layer reads."""
    refs = getattr(cloud_as(cloud, BuiltCloud).builder, layer)
    names = {one.name for one in fields(refs) if one.metadata.get("output", True)}
    assert "evidence_bucket" in names or "subnet_ids" in names
    assert names <= set(OUTPUTS)


def test_every_reference_has_a_type() -> None:
    """Every type that the schema refers to is in it or is built in."""
    schema = package_schema("0.0.0")
    known = {f"#/types/{token}" for token in schema["types"]} | {"pulumi.json#/Any", "pulumi.json#/Asset"}
    assert set(references(schema)) <= known


def test_a_choice_between_models_is_made_by_a_required_field() -> None:
    """The models of a choice have different values of its discriminator, which is required."""
    types = package_schema("0.0.0")["types"]
    where = types["gpuinfra:index:ClusterSpec"]["properties"]["where"]
    assert where["discriminator"]["propertyName"] == "cloud"
    for value, reference in where["discriminator"]["mapping"].items():
        model = types[reference.removeprefix("#/types/")]
        assert model["properties"]["cloud"]["const"] == value
        assert "cloud" in model["required"]


def test_values_of_the_declaration_are_plain() -> None:
    """The SDKs accept no outputs of resources in the declaration, because the plan requires its values first."""
    for token, model in package_schema("0.0.0")["types"].items():
        for name, field in model["properties"].items():
            assert field["plain"] is True, f"{token}.{name}"


def test_component_and_resources_are_in_one_package() -> None:
    """The package has the component and the resources that it creates itself."""
    schema = package_schema("1.2.3")
    assert (schema["name"], schema["version"]) == ("gpuinfra", "1.2.3")
    assert schema["resources"][TYPE]["isComponent"] is True
    assert {"gpuinfra:index:NodesReady", "gpuinfra:index:Upload"} < set(schema["resources"])


if __name__ == "__main__":
    GOLDEN.write_text(text())
