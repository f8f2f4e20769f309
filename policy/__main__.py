"""The policy pack: `pulumi up --policy-pack policy`. `gpu_rules.py` contains the rules."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from gpu_rules import CONFIG, OF_RESOURCE, OF_STACK, Resource
from pulumi_policy import (
    EnforcementLevel,
    PolicyConfigSchema,
    PolicyPack,
    ResourceValidationPolicy,
    StackValidationPolicy,
)


def _of_resource(rule: Callable[..., Any]) -> Callable[[Any, Any], None]:
    def validate(args: Any, report: Any) -> None:
        one = Resource(type=args.resource_type, name=args.name, props=args.props)
        for message in rule(one, args.get_config(), datetime.now(UTC).date()):
            report(message)

    return validate


def _of_stack(rule: Callable[..., Any]) -> Callable[[Any, Any], None]:
    def validate(args: Any, report: Any) -> None:
        made = {one.urn: Resource(type=one.resource_type, name=one.name, props=one.props) for one in args.resources}
        for one in args.resources:
            made[one.urn].uses.extend(made[other.urn] for other in one.dependencies if other.urn in made)
        urns = {id(resource): urn for urn, resource in made.items()}
        for resource, message in rule([*made.values()], args.get_config()):
            report(message, urns.get(id(resource)))

    return validate


def _schema(rule: Callable[..., Any]) -> PolicyConfigSchema | None:
    known = CONFIG.get(rule.__name__)
    return PolicyConfigSchema(properties=known) if known else None


def _about(rule: Callable[..., Any]) -> dict[str, Any]:
    """Return the name, description and configuration of a policy, derived from the function."""
    name = rule.__name__.replace("_", "-")
    return {"name": name, "description": (rule.__doc__ or "").splitlines()[0], "config_schema": _schema(rule)}


PolicyPack(
    name="gpuinfra",
    enforcement_level=EnforcementLevel.MANDATORY,
    policies=[
        *(ResourceValidationPolicy(validate=_of_resource(rule), **_about(rule)) for rule in OF_RESOURCE),
        *(StackValidationPolicy(validate=_of_stack(rule), **_about(rule)) for rule in OF_STACK),
    ],
)
