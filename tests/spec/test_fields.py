"""Each field of a declaration has meaning, unit, limits, default and an example, and `gpuinfra explain` shows all five."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import TypeAdapter, ValidationError

import gpuinfra
from gpuinfra.base.findings import READING_RULES
from gpuinfra.reference.explain import explain, known_checks, known_rules, known_steps
from gpuinfra.reference.fields import all_fields
from gpuinfra.reference.schema import FILE
from gpuinfra.spec.base import Mount, Version
from gpuinfra.spec.document import parse
from gpuinfra.spec.formats import FORMATS
from gpuinfra.spec.model import ClusterSpec

SCHEMA = json.loads(FILE.read_text())
MODELS = {name: model for name, model in SCHEMA["$defs"].items() if "properties" in model}
FIELDS = {f"{name}.{field}": schema for name, model in MODELS.items() for field, schema in model["properties"].items()}
ROWS = ("meaning", "unit", "limits", "default", "example")
UNITS = (
    "_gib",
    "_tib",
    "_mib_s",
    "_mb_s",
    "_gbps",
    "_days",
    "_hours",
    "_minutes",
    "_percent",
    "_usd",
    "_vcpus",
    "iops",
)


def _scalars(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The schemas of single values in a field's schema, without other sections."""
    inner = [*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else ())]
    return [scalar for one in inner for scalar in _scalars(one)] if inner else [schema]


@pytest.mark.parametrize("field", FIELDS)
def test_field_has_a_meaning_a_unit_and_valid_examples(field: str) -> None:
    """The description is at least one sentence of four words, numbers have an `x-unit`, and each example is valid for the field."""
    schema = FIELDS[field]
    text = schema.get("description", "")
    assert re.match(r"[A-Z`]", text), text
    assert text.endswith("."), text
    assert len(text.split(".")[0].split()) >= 4 or schema.get("const"), text
    for scalar in _scalars(schema):
        if scalar.get("type") in ("integer", "number") or field.endswith(UNITS):
            assert scalar.get("type") == "null" or scalar.get("x-unit"), scalar
    validator = jsonschema.Draft202012Validator({**schema, "$defs": SCHEMA["$defs"]})
    for example in schema.get("examples", ()):
        assert not list(validator.iter_errors(example)), example


@pytest.mark.parametrize("model", MODELS)
def test_model_has_a_description(model: str) -> None:
    """Editors show the description of each section."""
    assert MODELS[model].get("description", "").endswith("."), model


def test_explain_shows_meaning_unit_limits_default_and_example() -> None:
    """Each kind that has the field gets its own text with five filled rows, and the example is YAML for that field."""
    for path, fields in all_fields().items():
        texts = explain(path).split("\n\n")
        for field in fields:
            shown = next(one for one in texts if one == "\n".join(field.lines()))
            for row in ROWS:
                assert re.search(rf"^  {row} +\S", shown, re.MULTILINE), f"{row} is missing in:\n{shown}"
            name = path.rsplit(".", 1)[-1]
            value = parse(field.example, "example").value
            assert isinstance(value, dict), field.example
            assert list(value) == [name]
            assert value[name] not in (None, [], {}, [None]), field.example


def test_every_field_of_every_model_is_explained() -> None:
    """All fields of the schema are reachable from the root of a declaration."""
    reachable = {field for path in all_fields() for field in [path.rsplit(".", 1)[-1]]}
    assert {name.rsplit(".", 1)[-1] for name in FIELDS} == reachable
    assert set(ClusterSpec.model_fields) <= set(all_fields())
    tagged = [model for model in MODELS.values() if "kind" in model["properties"] or "cloud" in model["properties"]]
    kinds = {kind for fields in all_fields().values() for field in fields for kind in field.kinds}
    consts = {m["properties"][tag].get("const") for m in tagged for tag in ("kind", "cloud") if tag in m["properties"]}
    assert kinds == consts - {None}


def test_field_of_several_kinds_is_explained_for_each() -> None:
    """`storage.capacity_gib` is explained for Lustre and for home directories, `pools.capacity.count` for kinds that can have no nodes and for the others."""
    text = explain("storage.capacity_gib")
    assert "storage.capacity_gib (kind: lustre)" in text
    assert "storage.capacity_gib (kind: home)" in text
    assert "1 to 102,400" in text
    assert "(kind: on_demand, spot, reserved)" in explain("pools.capacity.count")
    assert "(kind: block, flex)" in explain("pools.capacity.count")
    assert "where.zone (cloud: azure)" in explain("where.zone")


def test_limits_are_those_of_the_model() -> None:
    """Ranges, lengths and patterns of the models appear in words, and every pattern has words."""
    assert "limits   0 to 100,000" in explain("pools.capacity.count")
    assert "limits   more than 0, at most 1,000,000,000" in explain("budget.limit_usd_per_month")
    assert "limits   an absolute path such as /scratch; at most 128 characters" in explain("storage.mount")
    document = json.loads(FILE.read_text())
    del document["$defs"]["ClusterSpec"]["allOf"]  # the names of regions, of which a rule tells what is wrong
    patterns = set(re.findall(r'"pattern": ("(?:[^"\\]|\\.)*")', json.dumps(document)))
    assert {json.loads(pattern) for pattern in patterns} <= set(FORMATS)
    assert all(not re.search(r"[\\^$]", words) for words in FORMATS.values())


def test_every_rule_that_a_finding_names_is_explained() -> None:
    """Each rule name that the code writes into a finding is a known rule."""
    source = "".join(path.read_text() for path in Path(gpuinfra.__file__).parent.rglob("*.py"))
    named = set(re.findall(r'\brule="(\w+)"', source)) | set(READING_RULES)
    assert len(named) > 4
    assert named <= set(known_rules())


def test_every_rule_check_and_step_is_explained() -> None:
    """`gpuinfra explain` prints a title and a meaning for every rule, check and step."""
    for known in (known_rules(), known_checks(), known_steps()):
        for name, text in ((name, entry.text()) for name, entry in known.items()):
            assert text in explain(name)
            assert re.match(r"(rule|check|step) \S.*\n  (meaning|header) +\S", text), text


@pytest.mark.parametrize("pattern", FORMATS)
def test_a_pattern_lists_its_digits(pattern: str) -> None:
    """A pattern contains `[0-9]` instead of the class of digits, which includes other scripts and takes milliseconds to compile."""
    assert r"\d" not in pattern


def test_a_version_in_digits_of_another_script_is_an_error() -> None:
    """A version contains only the digits 0 to 9."""
    version = TypeAdapter(Version)
    assert version.validate_python("580.1") == "580.1"
    with pytest.raises(ValidationError):
        version.validate_python("\N{ARABIC-INDIC DIGIT FIVE}\N{ARABIC-INDIC DIGIT EIGHT}\N{ARABIC-INDIC DIGIT ZERO}")


@pytest.mark.parametrize("mount", ["/.", "/..", "/./x", "/x/.", "/x/../y", "//", "//x", "/x//y", "/x/", "/...", "x"])
def test_a_path_has_one_spelling(mount: str) -> None:
    """A mount point with another spelling than its own is refused, so that no rule about paths can be avoided."""
    with pytest.raises(ValidationError, match="String should match pattern"):
        TypeAdapter(Mount).validate_python(mount)
    assert TypeAdapter(Mount).validate_python("/data/.cache/v1.2") == "/data/.cache/v1.2"


@pytest.mark.parametrize("model", ["Receiver", "RemoteWrite"])
def test_text_in_the_files_of_the_control_node_contains_no_variable(model: str) -> None:
    """No field refers to a variable of the control node or to a template of Alertmanager, which would fill it."""
    texts = {
        field: pattern
        for field, schema in MODELS[model]["properties"].items()
        for pattern in re.findall(r'"pattern": ("(?:[^"\\]|\\.)*")', json.dumps(schema))
    }
    assert len(texts) > 1
    filled = [
        name for name, pattern in texts.items() for text in ("${a}", "{{a}}") if re.search(json.loads(pattern), text)
    ]
    assert filled == []
