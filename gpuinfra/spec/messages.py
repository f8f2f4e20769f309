"""Creates findings from pydantic's validation errors, with the path, the given value, the allowed values, and the fix."""

from __future__ import annotations

import contextlib
import ipaddress
import types
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from gpuinfra.base.findings import Finding, Level
from gpuinfra.spec import refused
from gpuinfra.spec.formats import FORMATS, REASONS
from gpuinfra.spec.meanings import meaning
from gpuinfra.spec.shown import looks_secret, shown

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Loc = tuple[int | str, ...]
KEY = "[key]"
"""The last part of pydantic's location of an invalid key of a mapping."""

LARGEST_NETWORK = 16
"""Prefix length of the largest network, on all clouds. A VPC on AWS has at most 65,536 addresses
(https://docs.aws.amazon.com/vpc/latest/userguide/vpc-cidr-blocks.html, retrieved 2026-11-22)."""


def findings(root: type[BaseModel], value: object, errors: list[ErrorDetails]) -> list[Finding]:
    """Return one finding per error, in document order."""
    by_path: dict[str, Finding] = {}
    words: dict[str, Finding] = {}
    # pydantic also reports a list with invalid entries as too short. Keep only the errors in the entries.
    inside = {error["loc"][:depth] for error in errors for depth in range(len(error["loc"]))}
    # pydantic also reports a required field with a misspelled name as missing. Keep only the error about the misspelled name.
    meant = {_meant(root, error["loc"]) for error in errors if error["type"] == "extra_forbidden"}
    # If a field of a missing section is next to the section, report one mistake.
    absent = {error["loc"] for error in errors if error["type"] == "missing"}
    meant |= {_section_of(root, error["loc"], absent) for error in errors if error["type"] == "extra_forbidden"}
    for error in errors:
        if error["type"] == "missing" and error["loc"] in meant:
            continue
        if error["type"] == "too_short" and error["loc"] in inside:
            continue
        finding = _finding(root, value, error)
        section = _section_of(root, error["loc"], absent) if error["type"] == "extra_forbidden" else None
        if section:
            finding = replace(finding, hint=f"put it in {section[-1]}")
        # For a field that accepts a word or a mapping, pydantic reports one error for each. Keep only the first error.
        if error["type"] in _SHAPES and finding.path in by_path:
            continue
        if error["type"] in ("literal_error", "string_type") and isinstance(error["input"], dict):
            words[finding.path] = finding
            continue
        by_path.setdefault(finding.path, finding)
    # If the value is a mapping, the errors of its fields are more specific.
    for path, finding in words.items():
        if not any(other.startswith(path) for other in by_path):
            by_path[path] = finding
    return list(by_path.values())


_SHAPES = frozenset({"model_type", "model_attributes_type", "dict_type"})


def path_text(route: Loc) -> str:
    """Format a path as `pools[0].capacity[1].count`. A key with unusual characters is described instead of shown."""
    text = ""
    for part in route:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            word = shown(part)
            text += ("." if text else "") + (part if word == repr(part) else f"({word})")
    return text


def nearest(word: str, words: list[str]) -> str | None:
    """Return the known word that is closest to `word`, or None if no word is close. Of equally close words, the one with the longest common start."""
    if len(word) > 64 or looks_secret(word):
        return None
    lower = {name.lower(): name for name in words}
    if word.lower() in lower:
        return lower[word.lower()]
    from difflib import get_close_matches

    close = get_close_matches(word.lower(), list(lower), n=12, cutoff=0.55)
    return (
        lower[min(close, key=lambda one: (_distance(word.lower(), one), -_common(word.lower(), one)))]
        if close
        else None
    )


def _common(word: str, other: str) -> int:
    """Return the number of letters at the start of both words."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(word, other, strict=False)))


def _distance(word: str, other: str) -> int:
    """Return the edit distance between two words. Swapping adjacent letters counts as one edit."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word, 1):
        before, above, row = row, before, [i]
        for j, target in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != target))
            if i > 1 and j > 1 and letter == other[j - 2] and word[i - 2] == target:
                cost = min(cost, above[j - 2] + 1)
            row.append(cost)
    return row[-1]


def host_bits(cidr: str) -> tuple[str, str] | None:
    """Return the message and the hint for a range with host bits, or None. Raises `ValueError` if it is not a range."""
    given = ipaddress.ip_interface(cidr)
    if given.ip == given.network.network_address:
        return None
    return f"is {cidr}, which has host bits", f"use {given.network} or {given.ip}/{given.max_prefixlen}"


def most_addresses(cidrs: Iterable[str]) -> str:
    """Return which addresses these networks include together, if they include at least half of all public addresses, and otherwise an empty string.
    Texts that are not networks are ignored."""
    networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
    for cidr in cidrs:
        with contextlib.suppress(ValueError):
            networks.append(ipaddress.ip_network(cidr, strict=False))
    four = ipaddress.collapse_addresses(one for one in networks if one.version == 4)
    six = ipaddress.collapse_addresses(one for one in networks if one.version == 6)
    if sum(one.num_addresses for one in four) >= 2**31:
        return "IPv4"
    if sum(min(one.num_addresses, _PUBLIC_V6.num_addresses) for one in six if one.overlaps(_PUBLIC_V6)) >= 2**124:
        return "IPv6"
    return ""


_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
"""All public IPv6 addresses (IANA, IPv6 Global Unicast Address Assignments)."""


def listed(words: list[str], most: int = 12) -> str:
    """Join words with commas, up to a maximum of `most`, and append the number of omitted words: `a, b and 3 more`."""
    if len(words) <= most:
        return ", ".join(words)
    return f"{', '.join(words[:most])} and {len(words) - most} more"


def route_of(root: type[BaseModel], loc: Loc) -> Loc:
    """Return the path in the document, which is pydantic's location without union tags."""
    return tuple(part for part, real, _ in _walk(root, loc) if real)


def _finding(root: type[BaseModel], value: object, error: ErrorDetails) -> Finding:
    loc = error["loc"]
    steps = list(_walk(root, loc))
    route = tuple(part for part, real, _ in steps if real)
    kind = error["type"]
    given = value_at(value, route)
    context: dict[str, Any] = error.get("ctx") or {}
    owner = steps[-2][2] if len(steps) > 1 else root
    field = steps[-1][2] if steps else root
    # Find the field that contains the value, without list indices and mapping keys.
    owners = [root, *(found for _, _, found in steps)]
    named = [
        str(part) for (part, real, _), above in zip(steps, owners, strict=False) if real and _has_field(above, part)
    ]
    if loc[-1:] == (KEY,) and not steps[-1][1]:
        allowed = _ALLOWED.get(kind, lambda c: "a different name")(context)
        message, hint = f"has the name {shown(str(route[-1]))}; allowed: {allowed}", "change the name"
        return Finding(level=Level.ERROR, path=path_text(route), message=message, hint=hint, rule=_rule(kind))
    message, hint = _message(kind, context, given, route, owner, field)
    hint = hint or f"change the value (see gpuinfra explain {'.'.join(named)})"
    return Finding(level=Level.ERROR, path=path_text(route), message=message, hint=hint, rule=_rule(kind))


def _meant(root: type[BaseModel], loc: Loc) -> Loc | None:
    """Return the location of the field whose name was probably misspelled."""
    steps = list(_walk(root, loc))
    near = _near_field(steps[-2][2] if len(steps) > 1 else root, str(loc[-1]))
    return (*loc[:-1], near) if near else None


def _section_of(root: type[BaseModel], loc: Loc, absent: set[Loc]) -> Loc | None:
    """Return the location of the missing section, next to an unknown field, that has a field with this name."""
    steps = list(_walk(root, loc))
    model = _model(steps[-2][2] if len(steps) > 1 else root)
    if model is None or _meant(root, loc):
        return None
    for name, info in model.model_fields.items():
        if (*loc[:-1], name) in absent and any(loc[-1] in inner.model_fields for inner in _models_in(info.annotation)):
            return (*loc[:-1], name)
    return None


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the sections that an annotation contains, directly or as entries."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)


def _near_field(owner: Any, word: str) -> str | None:
    model = _model(owner)
    return nearest(word, list(model.model_fields)) if model else None


def _rule(kind: str) -> str:
    return {"extra_forbidden": "field_is_known", "missing": "field_is_given"}.get(kind, "value_is_allowed")


def _message(kind: str, context: dict[str, Any], given: object, route: Loc, owner: Any, field: Any) -> tuple[str, str]:
    last = str(route[-1]) if route else ""
    model = _model(owner)
    if kind == "extra_forbidden":
        if known_reason := refused.field(model, last):
            return f"is not a known field, because {known_reason[0]}", known_reason[1]
        near = _near_field(owner, last)
        fields_allowed = list(model.model_fields) if model else []
        return (
            f"is not a known field; allowed: {listed(fields_allowed, 20)}",
            f"did you mean {near}?" if near else "remove it",
        )
    if kind == "missing":
        info = model.model_fields.get(last) if model else None
        example = f", for example {last}: {info.examples[0]}" if info and info.examples else ""
        about = meaning(model, last).split(". ")[0].rstrip(".") if model and info else ""
        return "is missing", f"add it{example}" + (f" ({about})" if about else "")
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        tag, allowed = str(context.get("discriminator", "kind")).strip("'"), _tags(field)
        if kind == "union_tag_not_found":
            return f"has no {tag}; allowed: {listed(allowed)}", f"add one of them, such as {tag}: {allowed[0]}"
        word = str(context.get("tag", ""))
        if known_reason := refused.kind(word) if "lustre" in allowed else None:
            return f"has {tag} {shown(word)}; allowed: {listed(allowed)}, because {known_reason[0]}", known_reason[1]
        return f"has {tag} {shown(word)}; allowed: {listed(allowed)}", _choose(word, allowed)
    if kind in ("literal_error", "enum"):
        allowed = [str(word) for word in _literals(field)] or [str(context.get("expected", ""))]
        forms = _texts(field)
        if forms:
            return f"is {shown(given)}; allowed: {forms[0]}", _choose(given, allowed)
        section = " or a mapping of fields" if _model(field) else ""
        fields_allowed = REASONS.get(tuple(allowed))
        reason = f", because {refused.distribution(given) or fields_allowed}" if fields_allowed else ""
        return f"is {shown(given)}; allowed: {listed(allowed)}{section}{reason}", _choose(given, allowed)
    if known_reason := refused.count(last, given):
        return f"is {shown(given)}; allowed: a whole number, because {known_reason[0]}", known_reason[1]
    allowed_text = _ALLOWED.get(kind, lambda c: "a different value")(context)
    return f"is {shown(given)}; allowed: {allowed_text}", _hint(kind, given)


def _choose(given: object, allowed: list[str]) -> str:
    near = nearest(given, allowed) if isinstance(given, str) else None
    return f"did you mean {near}?" if near else "use one of these values"


def _least(context: dict[str, Any], text: str, many: str) -> str:
    return f"at least {context.get('min_length')} {text if context.get('min_length') == 1 else many}"


_ALLOWED: dict[str, Any] = {
    "greater_than_equal": lambda c: f"{c.get('ge'):,g} or more",
    "greater_than": lambda c: f"more than {c.get('gt'):,g}",
    "less_than_equal": lambda c: f"{c.get('le'):,g} or less",
    "less_than": lambda c: f"less than {c.get('lt'):,g}",
    "int_type": lambda c: "a whole number",
    "int_from_float": lambda c: "a whole number",
    "int_parsing_size": lambda c: "a smaller whole number",
    "float_type": lambda c: "a number",
    "finite_number": lambda c: "a finite number",
    "bool_type": lambda c: "true or false",
    "string_type": lambda c: "a string",
    "string_too_short": lambda c: _least(c, "character", "characters"),
    "string_too_long": lambda c: f"at most {c.get('max_length')} characters",
    "string_pattern_mismatch": lambda c: FORMATS.get(
        str(c.get("pattern")), f"a string that matches {c.get('pattern')}"
    ),
    "string_unicode": lambda c: "a string in UTF-8",
    "too_short": lambda c: _least(c, "entry", "entries"),
    "too_long": lambda c: f"at most {c.get('max_length')} entries",
    "tuple_type": lambda c: "a list",
    "list_type": lambda c: "a list",
    "dict_type": lambda c: "a mapping",
    "model_type": lambda c: "a mapping of fields",
    "model_attributes_type": lambda c: "a mapping of fields",
}


def _has_field(annotation: Any, part: int | str) -> bool:
    model = _model(annotation)
    return model is not None and part in model.model_fields


def _hint(kind: str, given: object) -> str:
    """Return the hint for this kind of error, or an empty string if the allowed values are sufficient."""
    if kind in ("int_type", "float_type") and isinstance(given, str):
        if any(ch.isdigit() for ch in given) and not looks_secret(given):
            return "write the number without quotes and without its unit, because the field defines the unit"
        return "write a number without quotes"
    if kind == "string_type" and isinstance(given, (int, float)):
        return "put the value in quotes"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return "write the fields below it, one per line"
    if kind in ("tuple_type", "list_type"):
        return "write a list, with a dash before each entry"
    return ""


def _walk(root: Any, loc: Loc) -> Iterator[tuple[int | str, bool, Any]]:
    """Yield each element of a location, whether it is in the document, and the type at that location."""
    here: Any = root
    in_mapping = False
    for part in loc:
        if part == KEY and in_mapping:  # pydantic's location of an invalid key: the mapping, the key, and this word
            yield part, False, here
            continue
        here = _bare(here)
        in_mapping = get_origin(here) is dict
        branches = _branches(here)
        if isinstance(part, str) and branches:
            tagged = [b for b in branches if part in _tag_words(b)]
            if tagged:
                here = tagged[0]
                yield part, False, here
                continue
            inner = [b for b in branches if _has_field(b, part)]
            if not inner and (
                part == "constrained-str" or part.endswith("]") or part in {_type_name(b) for b in branches}
            ):
                here = next((b for b in branches if _type_name(b) == part), here)
                yield part, False, here
                continue
            here = inner[0] if inner else branches[0]
        elif isinstance(part, int) and branches:
            here = next((b for b in branches if get_origin(_bare(b)) in (tuple, list)), here)
        here = _step(_bare(here), part)
        yield part, True, here


def _step(here: Any, part: int | str) -> Any:
    origin = get_origin(here)
    if origin in (tuple, list):
        return get_args(here)[0] if get_args(here) else Any
    if origin is dict:
        return get_args(here)[1]
    if isinstance(here, type) and issubclass(here, BaseModel) and part in here.model_fields:
        info = here.model_fields[str(part)]
        return info.annotation
    return here


def _bare(annotation: Any) -> Any:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation


def _branches(annotation: Any) -> list[Any]:
    if get_origin(annotation) in (Union, types.UnionType):
        return [_bare(arg) for arg in get_args(annotation) if arg is not type(None)]
    return []


def _tag_words(model: Any) -> set[str]:
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return set()
    for name in ("kind", "cloud"):
        if name in model.model_fields:
            return {str(word) for word in get_args(model.model_fields[name].annotation)}
    return set()


def _tags(annotation: Any) -> list[str]:
    here = _bare(annotation)
    if get_origin(here) in (tuple, list):
        here = _bare(get_args(here)[0])
    return [word for branch in _branches(here) for word in sorted(_tag_words(branch))]


def _literals(annotation: Any) -> list[object]:
    here = _bare(annotation)
    if get_origin(here) is Literal:
        return list(get_args(here))
    values: list[object] = []
    for branch in _branches(here):
        values += _literals(branch)
    if get_origin(here) in (tuple, list) and get_args(here):
        values += _literals(get_args(here)[0])
    return values


def _texts(annotation: Any) -> list[str]:
    """Return the descriptions of the text formats that a field accepts instead of its words."""
    here = annotation
    if get_origin(here) is Annotated:
        return [FORMATS[one.pattern] for one in get_args(here)[1:] if getattr(one, "pattern", None) in FORMATS]
    if get_origin(here) in (Union, types.UnionType):
        return [words for arg in get_args(here) for words in _texts(arg)]
    return []


def _type_name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _model(annotation: Any) -> type[BaseModel] | None:
    here = _bare(annotation)
    if isinstance(here, type) and issubclass(here, BaseModel):
        return here
    for branch in _branches(here):
        if isinstance(branch, type) and issubclass(branch, BaseModel):
            return branch
    return None


def value_at(value: object, route: Loc) -> object:
    """Return the value at a path in a document, or the nearest enclosing value."""
    for part in route:
        if part == 0 and isinstance(value, dict):
            continue  # A single entry is valid without a list.
        try:
            value = value[part]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return value
    return value


def more_addresses(prefix: int, fewer: str) -> str:
    """Return how to get more addresses in a network with this prefix length. The largest network that a declaration allows is a /16."""
    return (
        "use a larger network"
        if prefix > LARGEST_NETWORK
        else f"use {fewer}, because a /{prefix} is the largest network"
    )
