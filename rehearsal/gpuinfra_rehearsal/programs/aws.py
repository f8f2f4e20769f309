"""`aws` in a rehearsal. Like the real program, it sends requests through the AWS SDK, here to the stand-in cloud."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpuinfra_rehearsal.programs import parsed, relayed, run


def send_key(words: list[str]) -> int:
    """Send a public key to an instance."""
    needed = ("--instance-id", "--instance-os-user", "--ssh-public-key")
    given = parsed("aws ec2-instance-connect send-ssh-public-key", words, needed, ("--region",))
    key = given.ssh_public_key
    key = Path(key.removeprefix("file://")).read_text(encoding="utf-8") if key.startswith("file://") else key
    _ask(
        "ec2-instance-connect", "send_ssh_public_key", given.region,
        InstanceId=given.instance_id, InstanceOSUser=given.instance_os_user, SSHPublicKey=key,
    )  # fmt: skip
    return 0


def start_session(words: list[str]) -> int:
    """Connect standard input and output to a port of an instance."""
    needed = ("--target", "--document-name", "--parameters")
    given = parsed("aws ssm start-session", words, needed, ("--region",))
    name, _, value = given.parameters.partition("=")
    answer = _ask(
        "ssm", "start_session", given.region,
        Target=given.target, DocumentName=given.document_name, Parameters={name: [value]},
    )  # fmt: skip
    return relayed(urlsplit(answer["StreamUrl"]).port or 0)


def _ask(service: str, operation: str, region: str, **given: Any) -> dict[str, Any]:
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        client = boto3.client(service, **({"region_name": region} if region else {}))  # type: ignore[call-overload]
        answer: dict[str, Any] = getattr(client, operation)(**given)
    except (BotoCoreError, ClientError) as error:
        sys.exit(f"aws: [ERROR]: {' '.join(str(error).split())}")
    return answer


if __name__ == "__main__":
    run("aws", {("ec2-instance-connect", "send-ssh-public-key"): send_key, ("ssm", "start-session"): start_session})
