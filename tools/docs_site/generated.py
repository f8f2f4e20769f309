"""Generates the reference of the documentation site: fields, rules, checks, steps, Xids, commands, the report, components and Python names.

All text comes from the code, through the functions that `gpuinfra explain` and `gpuinfra --help` use.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import click
import components

import gpuinfra
from gpuinfra.base.registry import CLOUDS, folder_of
from gpuinfra.cli import GROUPS
from gpuinfra.node.checks import ALL
from gpuinfra.node.xids import XIDS
from gpuinfra.plan.profile import profile_of
from gpuinfra.reference.explain import Explanation, known_checks, known_rules, known_steps, known_xid
from gpuinfra.reference.fields import FieldHelp, all_fields
from gpuinfra.report.tables import escaped
from gpuinfra_rehearsal.document import report_schema

SOURCE = "This page is generated from the code. "
LONGEST = 240
"""Characters of a message of a cloud."""
MARKUP = re.compile(r"([|*_<>\[\]`])")


def pages() -> dict[str, str]:
    """Return the text of each page by file name, in the order of the navigation."""
    checks = known_checks()
    steps = {entry.title: entry for entry in known_steps().values()}
    return {
        "fields.md": page(
            "Fields of a declaration",
            "`gpuinfra explain FIELD` prints the same text. [Declaring a cluster](../docs/reference/declaring.md) explains how the fields work together.",
            fields(),
        ),
        "rules.md": page(
            "Rules",
            "A finding contains the name of its rule. `gpuinfra explain NAME` prints the same text. "
            "[Rules and what they prevent](../docs/reference/rules.md) lists the cloud errors that each rule prevents.",
            (line for name, entry in sorted(known_rules().items()) for line in entry_lines(f"`{name}`", entry)),
        ),
        "checks.md": page(
            "Node checks",
            "`gpuinfra explain ID` prints the same text. [Checks](../docs/reference/checks.md) explains evidence and verification.",
            (
                line
                for check in ALL.values()
                for line in entry_lines(f"{check.id} `{check.name}`", checks[check.id])
            ),
        ),
        "steps.md": page(
            "Bootstrap steps",
            "`gpuinfra explain STEP` prints the same text. [Bootstrap](../docs/internals/bootstrap.md) explains when each step runs.",
            (
                line
                for title, entry in steps.items()
                for line in [f"## `{title.removeprefix('step ')}`", "", *fence(entry.rows[0][1])]
            ),
        ),
        "xids.md": page(
            "Xids",
            "An Xid is an error number of the NVIDIA driver in the kernel log. `gpuinfra explain xid-79` prints the same text.",
            (line for number in sorted(XIDS) for line in entry_lines(f"Xid {number}", known_xid(number))),
        ),
        "refusals.md": page(
            "Messages of the clouds",
            "A cloud returns these messages if it does not launch nodes. [Cloud error messages](../docs/reference/refusals.md) describes each cause.",
            refusals(),
        ),
        "commands.md": page(
            "Commands and options",
            "`gpuinfra COMMAND --help` prints the same information. [Commands](../docs/reference/commands.md) has examples.",
            commands(),
        ),
        "report.md": page(
            "Report of a rehearsal",
            "`gpuinfra rehearse --json` prints the report, and `.rehearsal/STACK/report.json` contains it. "
            "The schema is `rehearsal/gpuinfra_rehearsal/report.schema.json`. [Rehearsing a cluster](../docs/guides/rehearsal.md) describes the files.",
            report(),
        ),
        "components.md": page(
            "Components",
            "Each component is a Pulumi component that you can use on its own. "
            "[Using the library](../docs/guides/library.md) and the pages of the clouds have examples.",
            components.lines(),
        ),
        "plan.md": page(
            "Plan",
            "`make_plan` returns a `Plan`. Its parts are the `plan` arguments of the components. `gpuinfra plan --json` prints the same fields.",
            components.plan_lines(),
        ),
        "python.md": page(
            "Python names",
            "You can import these names from `gpuinfra`. [Using the library](../docs/guides/library.md) has examples.",
            names(),
        ),
    }  # fmt: skip


def page(title: str, text: str, lines: Iterable[str]) -> str:
    """Return a page with its title and an introduction. The table of contents beside the page lists two levels."""
    return "\n".join(["---", "tocdepth: 2", "---", "", f"# {title}", "", SOURCE + text, "", *lines, ""])


def fields() -> Iterator[str]:
    """Yield one section for each top-level field, and one for each field in it."""
    for path, variants in all_fields().items():
        top = "." not in path
        yield from [f"{'##' if top else '###'} `{path}`", ""]
        for field in variants:
            yield from field_lines(field)


def field_lines(field: FieldHelp) -> Iterator[str]:
    """Yield the description of a field as a paragraph and a list."""
    if field.kinds:
        yield from ["For " + ", ".join(f"`{field.tag}: {kind}`" for kind in field.kinds) + ":", ""]
    yield from [inline(field.meaning), ""]
    for label in ("type", "unit", "limits", "default"):
        if (value := getattr(field, label)) not in ("", "none"):
            yield f"- {label}: {inline(value)}"
    if field.example:
        yield f"- example: `{field.example}`"
    yield ""


def entry_lines(title: str, entry: Explanation) -> Iterator[str]:
    """Yield a section with the meaning as paragraphs and the other rows as a list."""
    yield from [f"## {title}", ""]
    (_, meaning), *rows = entry.rows
    yield from paragraphs(meaning)
    yield from [f"- {label}: " + (f"`{text}`" if label == "runs" else inline(text)) for label, text in rows]
    yield ""


def refusals() -> Iterator[str]:
    """Yield a table of the recorded messages for each cloud, with the source of each."""
    for cloud in CLOUDS:
        yield from [f"## {profile_of(cloud).title}", "", "| cause | message | source, date |", "| --- | --- | --- |"]
        table = json.loads((folder_of(cloud) / "handover" / "refusals.json").read_text(encoding="utf-8"))
        for row in table:
            for sighting in row["texts"]:
                text = sighting["text"] if len(sighting["text"]) <= LONGEST else f"{sighting['text'][:LONGEST]}..."
                where = sighting["source"].removeprefix("https://github.com/")
                quoted = MARKUP.sub(r"\\\1", text)
                yield f"| `{row['cause']}` | {quoted} | [{where}]({sighting['source']}), {sighting['date']} |"
        yield ""


def commands() -> Iterator[str]:
    """Yield the help of each command, by group."""
    for group, listed in GROUPS.items():
        yield from [f"## {group}", ""]
        for name in listed:
            command = importlib.import_module(f"gpuinfra.cli.{name}").command
            context = click.Context(command, info_name=f"gpuinfra {name}", terminal_width=100)
            yield from [f"### `gpuinfra {name}`", "", *fence(command.get_usage(context).removeprefix("Usage: "))]
            yield from paragraphs(command.help or "")
            records = (option.get_help_record(context) for option in command.get_params(context))
            yield from (f"- `{record[0]}`: {inline(record[1])}" for record in records if record and record[1])
            yield ""


def report() -> Iterator[str]:
    """Yield one section for each property of the report, with the properties in it as a list."""
    for name, schema in report_schema()["properties"].items():
        yield from [f"## `{name}`", "", *_property(schema)]
        inner = list(properties(schema, ""))
        yield from [*inner, ""] if inner else []


def _property(schema: dict[str, Any]) -> Iterator[str]:
    if meaning := schema.get("description"):
        yield from [inline(meaning), ""]
    yield from [f"- type: {kind_of(schema)}", ""]


def properties(schema: dict[str, Any], prefix: str) -> Iterator[str]:
    """Yield the inner properties of an object or of the entries of a list, with the path of each."""
    items = schema.get("items")
    inner: dict[str, Any] = items if isinstance(items, dict) else schema
    for name, one in inner.get("properties", {}).items():
        path = f"{prefix}{name}"
        meaning = f". {inline(one['description'])}" if one.get("description") else ""
        yield f"- `{path}`: {kind_of(one)}{meaning}"
        yield from properties(one, f"{path}.")


def kind_of(schema: dict[str, Any]) -> str:
    """Return the type of a JSON schema in words."""
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " or ".join(f"`{one}`" for one in schema["enum"])
    kinds = schema.get("type", "any value")
    text = " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
    return f"array of {kind_of(schema['items'])}" if text == "array" and isinstance(schema.get("items"), dict) else text


def names() -> Iterator[str]:
    """Yield the signature and the docstring of each public name."""
    for name in gpuinfra.__all__:
        value = getattr(gpuinfra, name)
        yield from [f"## `{name}`", ""]
        if signature := call(name, value):
            yield from fence(textwrap.fill(signature, 80, subsequent_indent="    "), "python")
        yield from paragraphs(inspect.getdoc(value) or "")


def call(name: str, value: Any) -> str:
    """Return the signature of a function or component. The models of a declaration have their fields as parameters."""
    if hasattr(value, "model_fields"):
        return f"{name}({', '.join(f'{field}=...' for field in value.model_fields)})"
    return f"{name}{inspect.signature(value)}"


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a docstring. Click marks a paragraph with fixed lines with `\\b`."""
    for part in inspect.cleandoc(text).split("\n\n"):
        yield from fence(part.removeprefix("\b\n")) if part.startswith("\b") else [inline(part), ""]


def inline(text: str) -> str:
    """Return text as Markdown on one line. Text between backticks remains code."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if part.startswith("`") else spaced(part) for part in parts)


def spaced(text: str) -> str:
    """Return escaped text that keeps a space at each end, for text next to code."""
    return f"{' ' if text[:1].isspace() else ''}{escaped(text.strip())}{' ' if text[-1:].isspace() else ''}"


def fence(text: str, language: str = "text") -> list[str]:
    """Return text as a code block."""
    return [f"```{language}", text, "```", ""]
