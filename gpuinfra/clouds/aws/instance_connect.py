"""EC2 Instance Connect as a proxy command: `python -m gpuinfra.clouds.aws.instance_connect --instance ID --user U --key FILE [PORT]`.

It sends the public key to the metadata service of the instance, which provides it to sshd for 60 seconds, and then opens a
Systems Manager session on standard input and output. With `--address`, it connects to that address instead.
SSH verifies the host key inside the session, as it does on any other connection. Your identity requires
`ec2-instance-connect:SendSSHPublicKey` and, without `--address`, the permissions for a session that `gpuinfra permissions` prints
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/connect-linux-inst-eic.html, retrieved 2026-11-22).
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys

from gpuinfra.base.safe_text import one_line
from gpuinfra.clouds.aws import credentials
from gpuinfra.clouds.relay import relay

CONNECT_S = 20.0


def main(argv: list[str] | None = None) -> int:
    """Run until the connection ends. If the connection cannot be opened, print the reason to stderr and return exit code 1."""
    given = _arguments(argv)
    place = ["--region", given.region] if given.region else []
    settings = {credentials.PROFILE: given.profile, credentials.ROLES: given.assume_roles}
    try:
        keys = credentials.environment(settings, given.region)
    except Exception as problem:  # botocore has no common base of its errors, and the first line is what SSH shows
        return _failed(f"the roles in {credentials.ROLES} cannot be assumed: {one_line(problem)}")
    place += ["--profile", given.profile] if given.profile and not keys else []
    environment = {**os.environ, **keys}
    if keys:
        for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
            environment.pop(name, None)
    send = ["aws", "ec2-instance-connect", "send-ssh-public-key", "--instance-id", given.instance]
    send += ["--instance-os-user", given.user, "--ssh-public-key", f"file://{given.key}", *place]
    try:
        done = subprocess.run(
            send,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env=environment,
        )
    except OSError as error:
        return _failed(f"aws cannot be started: {error.strerror}; install the AWS CLI and sign in")
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        return _failed(
            f"the key cannot be sent to {given.instance}: {one_line(lines[-1]) if lines else 'no error message'}"
        )
    if not given.address:
        words = ["aws", "ssm", "start-session", "--target", given.instance, "--document-name", "AWS-StartSSHSession"]
        os.execvpe("aws", [*words, "--parameters", f"portNumber={given.port}", *place], environment)
    try:
        stream = socket.create_connection((given.address, given.port), timeout=CONNECT_S)
    except OSError as error:
        return _failed(f"{given.address}:{given.port} cannot be reached: {error.strerror or error}")
    with stream:
        relay(stream)
    return 0


def _failed(reason: str) -> int:
    sys.stderr.write(f"{reason}\n")
    return 1


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m gpuinfra.clouds.aws.instance_connect", description="EC2 Instance Connect as a proxy command."
    )
    parser.add_argument("--instance", required=True, help="ID of the instance")
    parser.add_argument("--user", required=True, help="user on the instance")
    parser.add_argument("--key", required=True, help="file that contains the public key")
    parser.add_argument("--region", default="", help="region of the instance (default: the region that the CLI uses)")
    parser.add_argument(
        "--profile", default="", help="named profile of the AWS CLI (default: the environment's credentials)"
    )
    parser.add_argument(
        "--assume-roles", default="", help="the provider setting aws:assumeRoles, as JSON (default: no role is assumed)"
    )
    parser.add_argument(
        "--address", default="", help="connect directly to this address instead of through Session Manager"
    )
    parser.add_argument("port", nargs="?", type=int, default=22, help="port on the instance (default: 22)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
