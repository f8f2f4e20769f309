"""Rejects a second file system for the same data.

FSx file systems do not have unique names. Without this check, a change that replaces a file system
(a smaller size, fewer metadata IOPS, an older version, another zone or key) creates an empty one, and so does an `up`
after a `destroy` that retained it. Nodes would mount the empty file system.
"""

from __future__ import annotations

import pulumi

from gpuinfra.clouds.aws.file_systems import find
from gpuinfra.clouds.operation import owner_of_hooks


def refuse_second(name: str, group: pulumi.Input[str], region: str) -> pulumi.ResourceHookBinding | None:
    """Return the hook of the file system with this logical name and log group, or None outside a program."""
    if owner_of_hooks() is None:
        return None
    profile = pulumi.Config("aws").get("profile")

    def before_create(_: pulumi.ResourceHookArgs) -> None:
        check(str(group), region, profile, name)

    options = pulumi.ResourceHookOptions(on_dry_run=True)
    hook = pulumi.ResourceHook(f"gpuinfra-one-{name}", before_create, options)
    return pulumi.ResourceHookBinding(before_create=[hook])


def check(group: str, region: str, profile: str | None, name: str) -> None:
    """Raise an error if the account has the file system, or if the request to the account fails."""
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        found = find(boto3.Session(profile_name=profile, region_name=region).client("fsx"), group)
    except (BotoCoreError, ClientError) as problem:
        raise RuntimeError(
            f"cannot check whether {name} already exists: {problem}; set credentials in the environment or in "
            "`aws:profile` that allow fsx:DescribeFileSystems"
        ) from None
    if found is None:
        return
    stack = pulumi.get_stack()
    raise RuntimeError(
        f"{name} exists: {found}. A second file system would be empty, and the nodes would mount it. "
        f"If an earlier destroy of {stack} retained it, run `gpuinfra adopt {stack}`, then `pulumi up`. "
        "If you did not destroy the stack, this change replaces the file system (`pulumi preview --diff` shows the "
        "input). FSx can only increase the size and the metadata IOPS; undo the change, or declare another mount, copy "
        "the files, and then remove this one."
    )
