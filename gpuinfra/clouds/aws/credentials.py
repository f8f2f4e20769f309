"""The credentials of gpuinfra's own requests to AWS: those of the provider, from `aws:profile` and `aws:assumeRoles`.

The provider assumes the roles in the order of the list, each with the credentials of the role before it ("Assuming an IAM Role" in
https://registry.terraform.io/providers/hashicorp/aws/latest/docs, retrieved 2026-11-29). The keys of an entry are those of
`pulumi_aws.config.outputs.AssumeRoles` 7.51.1.
Every session of boto3 in this package is created here (`tests/clouds/test_selected_account.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from gpuinfra.base.errors import EnvironmentMissing
from gpuinfra.base.json_text import parsed

PROFILE, ROLES = "aws:profile", "aws:assumeRoles"
"""Provider settings that select the credentials and contain none."""
SESSION = "gpuinfra"
"""Name of a role's session if the setting has none."""
_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_REGIONS = {"aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1"}
"""Region of the security token service of a partition."""
_FORMS = {
    "roleArn": ("RoleArn", str),
    "sessionName": ("RoleSessionName", str),
    "externalId": ("ExternalId", str),
    "sourceIdentity": ("SourceIdentity", str),
    "policy": ("Policy", str),
    "duration": ("DurationSeconds", str),
    "policyArns": ("PolicyArns", list),
    "tags": ("Tags", dict),
    "transitiveTagKeys": ("TransitiveTagKeys", list),
}
"""Maps a key of a role in the setting to the parameter of `sts:AssumeRole` and the type of its value."""


def of_running_program() -> dict[str, str]:
    """Return the provider settings of the running Pulumi program that select the credentials, without those that are not set."""
    import pulumi

    config = pulumi.Config("aws")
    values = {name: config.get(name.partition(":")[2]) for name in (PROFILE, ROLES)}
    return {name: value for name, value in values.items() if value}


def of_provider(resources: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the settings of the provider that created the resources of a state. A secret value cannot be read and is left out."""
    inputs = [one.get("inputs") or {} for one in resources if one.get("type") == "pulumi:providers:aws"]
    settings: dict[str, str] = {}
    for name in (PROFILE, ROLES):
        values = [value for one in inputs if isinstance(value := one.get(name.partition(":")[2]), str) and value]
        settings.update({name: values[0]} if values else {})
    return settings


def roles_of(value: object) -> tuple[dict[str, Any], ...]:
    """Return the parameters of `sts:AssumeRole` for each role in the setting `aws:assumeRoles`: a list, or its JSON text as the engine passes it.

    Raises `EnvironmentMissing` if the value is not such a list.
    """
    if not value:
        return ()
    try:
        entries = parsed(value) if isinstance(value, str) else value
        if not isinstance(entries, list):
            raise TypeError("it is not a list")
        return tuple(_parameters(entry) for entry in entries)
    except (ValueError, TypeError) as problem:
        raise EnvironmentMissing(
            f"{ROLES} cannot be used: {problem}; write a list of roles, such as `- roleArn: arn:aws:iam::123456789012:role/deploy`"
        ) from None


def session(settings: Mapping[str, object], region: str = "", *, base: Any = None) -> Any:
    """Return a session of boto3 with the credentials that the settings select, or those of the environment. Sends no request.

    The keys of a role are requested with the first request to AWS and again before they expire. `base` is called for each session of botocore.
    Raises `botocore.exceptions.ProfileNotFound`, and `EnvironmentMissing` if the roles cannot be parsed.
    """
    import boto3

    roles = roles_of(settings.get(ROLES))
    profile = str(settings.get(PROFILE) or "") or None
    signed_in = boto3.session.Session(
        region_name=region or None, profile_name=profile, botocore_session=base() if base else None
    )
    for role in roles:
        signed_in = _with_role(signed_in, role, base)
    return signed_in


def environment(settings: Mapping[str, object], region: str = "") -> dict[str, str]:
    """Return the variables with which the AWS CLI uses the last of the roles. Empty without roles. Raises errors of botocore."""
    if not roles_of(settings.get(ROLES)):
        return {}
    keys = session(settings, region).get_credentials().get_frozen_credentials()
    return {
        "AWS_ACCESS_KEY_ID": keys.access_key,
        "AWS_SECRET_ACCESS_KEY": keys.secret_key,
        "AWS_SESSION_TOKEN": keys.token,
    }


def with_role(settings: Mapping[str, object], role_arn: str, session_name: str) -> dict[str, object]:
    """Return settings that also assume this role, after those in the settings."""
    value = settings.get(ROLES) or []
    entries = list(parsed(value)) if isinstance(value, str) else list(value)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return {**settings, ROLES: [*entries, {"roleArn": role_arn, "sessionName": session_name}]}


def _with_role(source: Any, role: Mapping[str, Any], base: Any) -> Any:
    import boto3
    import botocore.session
    from botocore.credentials import AssumeRoleCredentialFetcher, CredentialProvider, CredentialResolver
    from botocore.credentials import DeferredRefreshableCredentials as Deferred

    partition = role["RoleArn"].split(":")[1:2]
    where = source.region_name or _REGIONS.get("".join(partition), "us-east-1")
    fetcher = AssumeRoleCredentialFetcher(
        # As botocore passes it for a role of a profile, with a Region for sessions that have none.
        client_creator=partial(source._session.create_client, region_name=where),
        source_credentials=source.get_credentials(),
        role_arn=role["RoleArn"],
        extra_args={key: value for key, value in role.items() if key != "RoleArn"},
    )

    class AssumedRole(CredentialProvider):
        METHOD = "assume-role"

        def load(self) -> Any:
            return Deferred(fetcher.fetch_credentials, self.METHOD)

    core = base() if base else botocore.session.Session()
    core.register_component("credential_provider", CredentialResolver([AssumedRole()]))
    return boto3.session.Session(region_name=source.region_name, botocore_session=core)


def _parameters(entry: object) -> dict[str, Any]:
    if not isinstance(entry, dict) or not entry.get("roleArn"):
        raise TypeError("a role has no roleArn")
    parameters: dict[str, Any] = {"RoleSessionName": SESSION}
    for key, value in entry.items():
        if key not in _FORMS:
            raise TypeError(f"a role has the unknown key {key}")
        name, form = _FORMS[key]
        if not isinstance(value, form):
            raise TypeError(
                f"{key} of a role is not a {form.__name__}; a secret value can be read only by the provider"
            )
        parameters[name] = value
    if "DurationSeconds" in parameters:
        parameters["DurationSeconds"] = _seconds(parameters["DurationSeconds"])
    if "PolicyArns" in parameters:
        parameters["PolicyArns"] = [{"arn": arn} for arn in parameters["PolicyArns"]]
    if "Tags" in parameters:
        parameters["Tags"] = [{"Key": key, "Value": value} for key, value in parameters["Tags"].items()]
    return parameters


def _seconds(duration: str) -> int:
    """Convert a duration of Go, such as `1h30m`, to seconds."""
    parts = re.findall(r"(\d{1,12}(?:\.\d{0,12})?|\.\d{1,12})(h|ms|us|µs|ns|m|s)", duration)
    if not parts or "".join(number + unit for number, unit in parts) != duration:
        raise ValueError(f"the duration {json.dumps(duration)} has no unit; write 1h or 30m")
    return round(sum(float(number) * _UNITS_S[unit] for number, unit in parts))
