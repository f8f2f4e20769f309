"""`node.pyz discovery` and `node.pyz secrets`: write the configuration of Prometheus and of Alertmanager with the names that a plan does not contain, for
`gpuinfra-prometheus` and `gpuinfra-alertmanager` on the control node.

In the file of the plan, `${metrics_url}` and `${email_N}` stand for the address of the managed store and of a topic in `node.json`, and each other `${name}`
for the value of `NamedAccount` with that name.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Mapping, Optional, Pattern, Protocol, runtime_checkable

from . import cloud, secrets
from .console import NODE, MissingPrerequisite, load

PLANNED = Path("/etc/gpuinfra-monitoring/prometheus.yml")
FOLDER = Path("/run/gpuinfra-prometheus")
NAMES = Path("/etc/gpuinfra-monitoring/prometheus-secrets.json")
"""`remote-write` -> name of its secret; empty without a remote endpoint."""
_NAME = re.compile(r"\$\{(\w+)\}")
_ACCOUNT_NAME = re.compile(r"[\w.()-]+")
ALERTMANAGER = Path("/etc/gpuinfra-monitoring/alertmanager.yml")
_FORMS = {
    "metrics_url": re.compile(r"https://[\w.-]+/[\w./?=&-]+"),
    "email_": re.compile(r"arn:[\w-]+:sns:[\w-]+:[0-9]+:[\w.-]+"),
}
"""Forms of the values that are not names of the account. The name of a topic ends with a number."""


@runtime_checkable
class NamedAccount(Protocol):
    """A cloud whose service discovery needs names of the account."""

    def account(self) -> Mapping[str, str]:
        """Return the names. Raises `CloudError` if the metadata service does not have them."""
        ...


def discovery(args: argparse.Namespace, planned: Path = PLANNED, folder: Path = FOLDER, names: Path = NAMES) -> int:
    """Write the configuration and the secret of the remote endpoint to the runtime folder of the unit. Raises `MissingPrerequisite` with the reason
    if a name or the secret cannot be read."""
    try:
        text = planned.read_text(encoding="utf-8")
    except OSError as error:
        raise MissingPrerequisite("%s cannot be read: %s; the step 92-files writes it" % (planned, error)) from None
    if _NAME.search(text):
        text = _filled(text)
    secrets.write(folder / planned.name, text, folder.stat())
    return secrets.secrets(args, names, folder)


def receivers(args: argparse.Namespace) -> int:
    """Write the configuration of Alertmanager with the topics of receivers in `node.json`, and the secrets of the other receivers."""
    return discovery(args, ALERTMANAGER, secrets.FOLDER, secrets.NAMES)


def _filled(text: str) -> str:
    settings = load(NODE, "the node's configuration", "user data writes it")
    values = {"metrics_url": settings.get("metrics_url", ""), **settings.get("alert_topics", {})}
    if not all(_form(name) for name in _NAME.findall(text)):
        values.update(_account(cloud.of(settings)))

    def value(match: re.Match[str]) -> str:
        name = values.get(match[1], "")
        form = _form(match[1])
        if not (form or _ACCOUNT_NAME).fullmatch(name):
            source = "node.json contains" if form else "the metadata service returned"
            raise MissingPrerequisite("%s %r as the %s of this machine" % (source, name[:40], match[1]))
        return name

    return _NAME.sub(value, text)


def _form(name: str) -> Optional[Pattern[str]]:
    return _FORMS.get(name.rstrip("0123456789"))


def _account(node: object) -> Mapping[str, str]:
    if not isinstance(node, NamedAccount):
        raise MissingPrerequisite("nodes of this cloud cannot read the names of their account")
    try:
        return node.account()
    except cloud.CloudError as error:
        raise MissingPrerequisite("the names of the account: %s" % error) from None
