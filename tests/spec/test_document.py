from __future__ import annotations

import time
from pathlib import Path

import pytest

from gpuinfra.base.errors import SpecError
from gpuinfra.spec.document import parse, read


def _error(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        parse(text, "stack.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1, 2\nb: 3\n", ["line 2", "column"]),
        ("a: 1\n\tb: 2\n", ["line 2", "column"]),
        ("a: 'x\n", ["not valid YAML", "line"]),
        ("a: 1\na: 2\n", ["stack.yaml:2", "repeats the key 'a'"]),
        ("? [1, 2]\n: 3\n", ["has a key that is a list or a mapping"]),
        ("a: *nothing\n", ["not valid YAML"]),
        ("a: 1\n---\nb: 2\n", ["not valid YAML"]),
    ],
)
def test_invalid_yaml_is_reported_with_its_line(text: str, words: list[str]) -> None:
    """Invalid YAML is reported in one message with line and column."""
    message = _error(text)
    for word in words:
        assert word in message
    assert "Traceback" not in message


def test_values_are_plain_and_have_line_numbers() -> None:
    """Numbers, booleans and strings are parsed as in YAML 1.2, each with its line number."""
    document = parse("a: 1\nb: yes\nc: true\nd: 1.5\ne:\n  - x: null\n", "f")
    assert document.value == {"a": 1, "b": "yes", "c": True, "d": 1.5, "e": [{"x": None}]}
    assert document.line(("e", 0, "x")) == 6
    assert document.line(("e", 0, "missing")) == 6
    assert document.line(("b",)) == 2


def test_alias_bomb_is_rejected_quickly() -> None:
    """A small file whose aliases multiply is rejected before it is expanded."""
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    for level in range(1, 12):
        bomb += f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n"
    start = time.process_time()
    assert "more than" in _error(bomb)
    # The expanded file has 10^12 values: a parser that expands it does not end.
    assert time.process_time() - start < 60


def test_deep_nesting_is_rejected() -> None:
    """Nesting is limited, so the parser never exhausts the stack."""
    for text in ("[" * 5000, "a: " + "[" * 200 + "]" * 200, "\n".join("  " * i + "a:" for i in range(60))):
        message = _error(text)
        assert "levels" in message or "not valid YAML" in message


def test_tags_create_no_objects() -> None:
    """A YAML tag outside the core schema is refused, with its line, and creates no object."""
    for text, tag in (
        ("a: !!python/object/apply:os.system ['true']", "'!!python/object/apply:os.system'"),
        ("b: !Foo x", "'!Foo'"),
        ("!mine b: x", "'!mine'"),
        ("!mine {b: x}", "'!mine'"),
        ("b: !!map x", "'!!map'"),
        ("b: !!str [x]", "'!!str'"),
        ("b: !!timestamp '2026-12-08'", "'!!timestamp'"),
        ("base: &b {a: 1}\nc:\n  !mine <<: *b", "'!mine'"),
    ):
        message = _error(text)
        assert f"has the tag {tag}, which has no effect" in message, message
        assert "remove it" in message, message


def test_tags_of_the_core_schema_are_accepted() -> None:
    """Tags of YAML 1.2's core schema select the type of a value. Values without a tag, such as dates, have none."""
    text = "a: !!str 5\nb: !!int '5'\nc: !!seq [x]\nd: !!map {x: 1}\ne: 2026-12-08\nf: ! x\n<<: {g: !!null ''}\n2026-12-08: =\n"
    assert parse(text, "f").value == {
        "a": "5", "b": 5, "c": ["x"], "d": {"x": 1}, "e": "2026-12-08", "f": "x", "g": None, "2026-12-08": "=",
    }  # fmt: skip


def test_unreadable_files_are_rejected(tmp_path: Path) -> None:
    """Binary, oversized and unreadable files each yield one message."""
    binary, large = tmp_path / "b.yaml", tmp_path / "l.yaml"
    binary.write_bytes(b"a: \xff\xfe")
    large.write_bytes(b"# " + b"x" * 1_100_000)
    for path, word in ((binary, "UTF-8"), (large, "bytes"), (tmp_path, "cannot be read")):
        with pytest.raises(SpecError) as caught:
            read(path)
        assert word in str(caught.value)


def test_merge_keys_are_expanded_as_in_pulumi() -> None:
    """A merge key adds the keys that a mapping and earlier mappings do not have. Pulumi 3.259.0 reads this text the same way."""
    text = "base: &base {machine: p4d.24xlarge, a: 1}\nmore: &more {a: 3, b: 4}\npools:\n  - a: 2\n    <<: *base\n  - <<: [*more, *base]\n"
    document = parse(text, "f")
    assert isinstance(document.value, dict)
    assert document.value["pools"] == [
        {"a": 2, "machine": "p4d.24xlarge"},
        {"a": 3, "b": 4, "machine": "p4d.24xlarge"},
    ]
    assert document.line(("pools", 0, "a")) == 4
    assert document.line(("pools", 0)) == 4


@pytest.mark.parametrize("text", ["a:\n  <<: 5\n", "a:\n  <<: [x]\n", "a:\n  <<: [[]]\n"])
def test_a_merge_key_without_a_mapping_is_rejected(text: str) -> None:
    """A merge key with a value that is not a mapping yields one message with the line."""
    assert "has a merge key without a mapping" in _error(text)
