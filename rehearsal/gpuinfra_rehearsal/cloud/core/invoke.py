"""Evaluates SDK functions: validates arguments, synthesizes results, and applies cloud-specific implementations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuinfra_rehearsal.cloud.core import behaviors, synth, wire
from gpuinfra_rehearsal.cloud.core.check import RejectedInput, check
from gpuinfra_rehearsal.cloud.core.cloud import Cloud


class InvokeRefused(Exception):
    """The arguments are invalid."""

    def __init__(self, failures: Sequence[RejectedInput]) -> None:
        self.failures = tuple(failures)
        super().__init__("; ".join(f"{f.path} {f.reason}" for f in failures))


def answer(cloud: Cloud, token: str, args: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Return the result of the function. Raises Refused, NotDeclared or CloudError."""
    declared = cloud.function(token)
    given = {key: value for key, value in args.items() if value is not None}
    if failures := list(check(given, declared.inputs)):
        raise InvokeRefused(failures)
    where = wire.peel(given.get("region")) or region
    plain = wire.plain(given)
    about = synth.Subject(token, _identity(token, plain), str(where), given)
    made = synth.outputs(declared.outputs, declared.inputs, about)
    if own := behaviors.answer(token):
        made |= own(cloud, plain, str(where))
    return made


def _identity(token: str, plain: Mapping[str, Any]) -> str:
    """Return an identity that depends only on the arguments, so that equal arguments give equal results."""
    given = [f"{key}={plain[key]}" for key in sorted(plain)]
    return (
        "/".join(str(plain[key]) for key in ("id", "name") if plain.get(key))
        or "&".join(given)
        or token.rsplit(":", 1)[1]
    )
