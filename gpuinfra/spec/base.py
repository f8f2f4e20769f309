"""Types that all parts of a declaration use.

Models are frozen and reject unknown fields. Numbers are strict: `true` is not accepted as 1, and `"4800 GiB"` is not accepted as 4800,
because the unit is part of the field's name.
The modules of the sections do not import `annotations` from `__future__`, because pydantic compiles annotations that are strings at each start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StrictInt, ValidationError

from gpuinfra.spec.formats import text

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler

    # A type checker reads the fields of the sections from pydantic's own metaclass.
    from pydantic._internal._model_construction import ModelMetaclass as _SpecType
    from pydantic_core import CoreSchema
else:

    class _SpecType(type(BaseModel)):
        """The metaclass of all sections. A section that a program builds from invalid values raises the same error as one in a file."""

        def __call__(cls, *args: Any, **fields: Any) -> Any:
            try:
                return super().__call__(*args, **fields)
            except ValidationError as problem:
                from gpuinfra.base.errors import SpecError
                from gpuinfra.spec.messages import findings

                problems = findings(cls, fields, problem.errors(include_url=False))
                raise SpecError([replace(one, file=f"{cls.__name__}(...)") for one in problems]) from None


class SpecModel(BaseModel, metaclass=_SpecType):
    """A section in a declaration. Invalid values raise `SpecError` with all findings."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=False, defer_build=True, hide_input_in_errors=True
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Add the docstrings of the section and of its fields to the JSON schema, each in one line."""
        from gpuinfra.spec.meanings import meanings

        schema = handler(core_schema)
        section = handler.resolve_ref_schema(schema)
        if cls.__doc__:
            section["description"] = " ".join(cls.__doc__.split())
        for name, words in meanings(cls).items():
            section["properties"][name]["description"] = words
        return schema


Section = TypeVar("Section", bound=SpecModel)


def defaults(section: type[Section]) -> Section:
    """Return a section in which every field has its default. The section is not validated, so that its validator is built on first use."""
    return section.model_construct()


@dataclass(frozen=True)
class Unit:
    """The unit of a number. It is published in the JSON schema as `x-unit` and shown by `gpuinfra explain`."""

    name: str

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:
        return {**handler(core_schema), "x-unit": self.name}


Name = Annotated[
    str,
    text(
        r"^[a-z]([a-z0-9-]*[a-z0-9])?$",
        "lowercase letters, digits and hyphens, starting with a letter",
        min_length=1,
        max_length=24,
    ),
]
"""A name that is valid in resource names on all clouds."""

Line = Annotated[str, text(r"^[^\x00-\x1f\x7f]+$", "one line of text", min_length=1, max_length=256)]
"""One line of text."""

Number = Annotated[FiniteFloat, Field(strict=True)]
Nodes = Annotated[int, Field(strict=True, ge=1, le=100_000), Unit("nodes")]
NodesOrNone = Annotated[int, Field(strict=True, ge=0, le=100_000), Unit("nodes")]
Gib = Annotated[StrictInt, Unit("GiB")]
Days = Annotated[StrictInt, Unit("days")]
Hours = Annotated[StrictInt, Unit("hours")]
Percent = Annotated[StrictInt, Unit("percent")]
Gpus = Annotated[StrictInt, Unit("GPUs")]
Vcpus = Annotated[StrictInt, Unit("vCPUs")]
Mount = Annotated[
    str,
    text(
        r"^(/[A-Za-z0-9_-][A-Za-z0-9_.-]*|/\.[A-Za-z0-9_-][A-Za-z0-9_.-]*)+$",
        "an absolute path such as /scratch",
        max_length=128,
    ),
]
"""An absolute path without spaces, in the only spelling that it has: `/a`, not `/a/`, `/a//b`, `/./a` or `/b/../a`."""
UtcTime = Annotated[
    str,
    text(
        r"^[0-9]{4}-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9](:[0-9][0-9])?Z$",
        "a time in UTC such as 2026-12-01T11:30:00Z",
    ),
    Unit("time in UTC"),
]
"""RFC 3339 in UTC: `2026-12-01T11:30:00Z`."""
Version = Annotated[str, text(r"^[0-9]{1,4}(\.[0-9]{1,4}){0,3}$", 'a quoted version such as "580" or "13.0"')]
