"""A short-lived token for Amazon Managed Grafana.

A workspace accepts tokens of its service accounts. A token can be created with a lifetime, and is deleted with its account
(https://docs.aws.amazon.com/grafana/latest/APIReference/API_CreateWorkspaceServiceAccountToken.html, retrieved 2026-11-30).
"""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from typing import Any

from gpuinfra.base.errors import DeploymentError
from gpuinfra.base.safe_text import one_line
from gpuinfra.clouds.aws import credentials
from gpuinfra.clouds.aws.api_errors import DENIED, code_of
from gpuinfra.spec.messages import listed

WORKSPACE = re.compile(r"(g-[0-9a-f]{10})\.grafana-workspace\.([a-z0-9-]+)\.amazonaws\.com")
"""Host of a workspace: its ID and its Region."""
ACCOUNT = "gpuinfra-dashboards"
"""Start of the name of the service account, which exists during the command. The name ends with the Unix time at which its token expires and a random part,
so that a command never deletes the account of another operator's command."""
_NAME = re.compile(ACCOUNT + r"-([0-9]{1,12})-[0-9a-f]{4}")
LIFETIME_S = 300
CLOCKS_S = 3600
"""Maximum difference between the clocks of two operators. An account that an interrupted command left is deleted this long after its token expired."""
PERMISSIONS = (
    "grafana:ListWorkspaceServiceAccounts",
    "grafana:CreateWorkspaceServiceAccount",
    "grafana:CreateWorkspaceServiceAccountToken",
    "grafana:DeleteWorkspaceServiceAccount",
)


def token(host: str, settings: Mapping[str, object]) -> contextlib.AbstractContextManager[str] | None:
    """Return a token with the role Editor for a workspace, or None if the host is no workspace of Amazon Managed Grafana.

    The account and its token exist within the context. Raises `DeploymentError` if AWS refuses the requests.
    """
    place = WORKSPACE.fullmatch(host)
    return _lent(place[1], credentials.session(settings, place[2]).client("grafana")) if place else None


@contextlib.contextmanager
def _lent(workspace: str, grafana: Any) -> Iterator[str]:
    with contextlib.ExitStack() as stack:
        with _asked(f"no token for the workspace {workspace}"):
            account = _account(workspace, grafana)
            # The account is deleted also if the request for its token fails.
            stack.callback(_delete, workspace, grafana, account)
            given = grafana.create_workspace_service_account_token(
                workspaceId=workspace, serviceAccountId=account, name=ACCOUNT, secondsToLive=LIFETIME_S
            )
        yield str(given["serviceAccountToken"]["key"])


def _account(workspace: str, grafana: Any) -> str:
    """Return the ID of a new account. Accounts that interrupted commands left are deleted first."""
    now = int(time.time())
    pages = grafana.get_paginator("list_workspace_service_accounts").paginate(workspaceId=workspace)
    for account in [account for page in pages for account in page["serviceAccounts"]]:
        own = _NAME.fullmatch(account["name"])
        if own and int(own[1]) + CLOCKS_S < now:
            _delete(workspace, grafana, account["id"])
    name = f"{ACCOUNT}-{now + LIFETIME_S}-{secrets.token_hex(2)}"
    made = grafana.create_workspace_service_account(workspaceId=workspace, name=name, grafanaRole="EDITOR")
    return str(made["id"])


def _delete(workspace: str, grafana: Any, account: str) -> None:
    """Delete an account, unless another command has deleted it."""
    left = f"the service account {account} of the workspace {workspace} was not deleted; delete it in the workspace"
    with _asked(left), contextlib.suppress(grafana.exceptions.ResourceNotFoundException):
        grafana.delete_workspace_service_account(workspaceId=workspace, serviceAccountId=account)


@contextlib.contextmanager
def _asked(what: str) -> Iterator[None]:
    """Convert errors of botocore to `DeploymentError`. `what` is the consequence."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as problem:
        message = str(problem.response.get("Error", {}).get("Message", ""))
        denied = f"; your identity requires {listed(list(PERMISSIONS))}" if code_of(problem) in DENIED else ""
        raise DeploymentError(f"{what}: {one_line(f'{code_of(problem)}: {message}')}{denied}") from None
    except BotoCoreError as problem:
        raise DeploymentError(f"{what}: {one_line(problem)}") from None
