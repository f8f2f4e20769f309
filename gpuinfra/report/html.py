"""Renders pages from Jinja2 templates with autoescaping, one base template, one stylesheet and one content security policy.

Text from nodes is untrusted. Every value that a template prints is made printable and then escaped. Templates
cannot disable this behavior. The page's policy allows only the page's stylesheet, by hash.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from gpuinfra.base.safe_text import printable
from gpuinfra.report.tables import tone

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **context: Any) -> str:
    """Render a page as a single self-contained document."""
    return _environment().get_template(template).render(**context)


def render_source(source: str, **context: Any) -> str:
    """Like `render`, for the text of a template of another package, which extends `base.html.j2`."""
    return _environment().from_string(source).render(**context)


@cache
def _environment() -> Environment:
    from importlib.metadata import version

    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    folder = files("gpuinfra.report") / "templates"
    style = (folder / "style.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    made = Environment(
        loader=FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else printable(_joined(value)),
    )
    # Without this filter, templates cannot declare a value safe.
    del made.filters["safe"]
    made.globals.update(
        policy=f"default-src 'none'; style-src 'sha256-{digest}'",
        style=Markup(style),
        tone=tone,
        version=version("gpuinfra"),
    )
    return made


def _joined(value: object) -> object:
    return ", ".join(str(one) for one in value) if isinstance(value, list | tuple) else value
