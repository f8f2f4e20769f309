"""Reads JSON from files, nodes, clouds and other programs."""

from __future__ import annotations

import json
from typing import Any


def parsed(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raises `ValueError` if the text is not JSON, or if it is nested too deeply for Python's parser."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the JSON text is nested too deeply") from None
