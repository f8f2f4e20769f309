"""Reads the docstrings below the fields of a section from its source code.

They are the descriptions in the JSON schema, in `gpuinfra explain` and in a few messages. Pydantic can read them too
(`use_attribute_docstrings`), but it parses the source code of each section at import, and most commands do not need them.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

from pydantic import BaseModel


@cache
def meanings(section: type[BaseModel]) -> dict[str, str]:
    """Return the docstring of each field of a section. A field that has its own description, or no docstring, is not in the result."""
    meaning_of: dict[str, str] = {}
    for base in reversed(section.__mro__):
        meaning_of |= _docstrings(base.__module__).get(base.__name__, {}) if issubclass(base, BaseModel) else {}
    return {
        name: meaning_of[name]
        for name, info in section.model_fields.items()
        if name in meaning_of and not info.description
    }


def meaning(section: type[BaseModel], name: str) -> str:
    """Return the description of a field, or an empty string if it has none."""
    return section.model_fields[name].description or meanings(section).get(name, "")


@cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of the fields of each class in a module."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):
        return {}  # A class that a program creates has no source code.
    return {node.name: dict(_fields(node.body)) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def _fields(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, " ".join(text.split())
