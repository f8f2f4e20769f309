"""Prometheus and Alertmanager of a stand-in control node. They read their configuration, find the nodes, and collect nothing.

All stand-in nodes share the host's network, so they open no ports. `curl` calls `answer` instead.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from .searches import SEARCHES
from .state import fail, loads, read_text, unit_active

UNITS = {":9090/": "gpuinfra-prometheus.service", ":9093/": "gpuinfra-alertmanager.service"}


def daemon(argv: list[str]) -> int:
    """Run until terminated, with a configuration that can be read. Prometheus asks the cloud for the nodes once, and logs how many it finds."""
    from .vendor import stay

    files = [word.partition("=")[2] for word in argv if word.startswith("--config.file=")]
    problem = _problem(files[0]) if files else "no --config.file"
    if problem:
        return fail(f"Error loading config: {problem}")
    for job in _content(files[0]).get("scrape_configs", ()):
        kind = next((key for key in job if key in SEARCHES), None)
        if kind:
            (keep,) = [one["regex"] for one in job["relabel_configs"] if one.get("action") == "keep"]
            _discover(SEARCHES[kind], job[kind], keep)
    return stay()


def _discover(search: Callable[..., Iterator[str]], settings: list[dict[str, Any]], keep: str) -> None:
    import urllib.error

    try:
        pools = [pool for one in settings for pool in search(one, dict(os.environ)) if re.fullmatch(keep, pool)]
        sys.stdout.write(f"discovery manager found {len(pools)} targets\n")
    except (urllib.error.HTTPError, OSError) as error:
        sys.stderr.write(f"Unable to refresh target groups: {error}\n")
    sys.stdout.flush()


def promtool(argv: list[str]) -> int:
    """`promtool check config FILE`, with the rule files next to it."""
    path = argv[-1]
    problem = _problem(path)
    if not problem:
        folder = path.rpartition("/")[0]
        problem = next(
            (
                reason
                for name in _content(path).get("rule_files", ())
                if (reason := _problem(os.path.join(folder, name)))
            ),
            "",
        )
    return (
        fail(f"  FAILED: {problem}") if problem else _said(f" SUCCESS: {path} is valid prometheus config file syntax")
    )


def amtool(argv: list[str]) -> int:
    """`amtool check-config FILE`"""
    problem = _problem(argv[-1])
    return fail(f"amtool: error: {problem}") if problem else _said(f"Checking '{argv[-1]}'  SUCCESS")


def answer(url: str) -> int:
    """Answer `curl http://127.0.0.1:PORT/-/ready`."""
    unit = next((unit for port, unit in UNITS.items() if port in url), "")
    return _said("is Ready.") if unit and unit_active(unit) else fail("curl: (7) Failed to connect to 127.0.0.1", 7)


def _said(text: str) -> int:
    sys.stdout.write(text + "\n")
    return 0


def _content(path: str) -> dict[str, Any]:
    return loads(read_text(path))  # type: ignore[return-value]


def _problem(path: str) -> str:
    """Return why a file cannot be read. The files of a control node contain JSON."""
    text = read_text(path, "")
    try:
        return "" if loads(text) else f"{path} is empty or does not exist"
    except ValueError as error:
        return f"{path}: {error}"
