"""Determines which changes replace a resource. All other changes are made in place.

| source | inputs that it covers |
| --- | --- |
| `StandIn.identity_inputs` | components of an ID or a path: name, region, zone, project, resource group |
| `StandIn.replacing` | the cloud's own tables (`replacements.py` in its folder) |
| `StandIn.replaces_when` | inputs where it depends on the old and the new value, such as a size that shrinks |
| the SDK's documentation | inputs documented with "Changing this forces a new resource", without a condition |
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from gpuinfra_rehearsal.cloud.core import registry

_SENTENCE = re.compile(
    r"(forces?|will force|force) (the )?(creation of )?(a )?(new resource|replacement|recreation)|forces a new \w+ to be created"
    r"|cannot be (changed|updated|modified) (after|once)|changing this (creates|will create) a new|^\W*immutable\b|property is immutable",
    re.I,
)
_CONDITION = re.compile(r"\b(when|if|from|between|unless|decreas|removing|only)\b", re.I)


def replaces(token: str, path: str, old: Any = None, new: Any = None) -> bool:
    """Return whether a change at `path` (`subnetIds[0]`, `dnsOptions.privateDnsPreference`) replaces the resource."""
    if (decided := registry.of_token(token).replaces_when(token, path, old, new)) is not None:
        return decided
    names = re.sub(r"\[[^\]]*\]", "", path).split(".")
    return any(".".join(names[:count]) in inputs(token) for count in range(1, len(names) + 1))


@cache
def inputs(token: str) -> frozenset[str]:
    """Return the inputs of a type, or the paths below them, whose change replaces the resource."""
    stand_in = registry.of_token(token)
    declared = registry.sdk_of(token).resource(token).inputs
    names = {name for name in stand_in.identity_inputs if name in declared}
    names |= {name for name, prop in declared.items() if _documented(prop.doc)}
    return frozenset((names | stand_in.replacing(token, declared)) - {"tags", "labels"})


def _documented(doc: str) -> bool:
    sentences = re.split(r"(?<=[.;])\s+|\n", doc)
    return any(_SENTENCE.search(one) and not _CONDITION.search(one) for one in sentences)
