"""Customer-managed keys, and the Google services that can use them.

Google Cloud cannot delete key rings or keys, and data cannot be read after its key versions are destroyed. `destroy` therefore retains both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pulumi
import pulumi_gcp as gcp

from gpuinfra.clouds.gcp import resources as rows
from gpuinfra.clouds.gcp.components.scope import Scope, child
from gpuinfra.clouds.ready_after import ready_after
from gpuinfra.plan.planned import ResourceKind

ROTATION = "7776000s"
"""90 days, the longest rotation period that CIS 1.10 allows."""
DESTROY_DELAY = "2592000s"
"""30 days during which a key version that is scheduled for destruction can be restored."""
ROLE = "roles/cloudkms.cryptoKeyEncrypterDecrypter"


@dataclass(frozen=True, kw_only=True)
class KeyArgs:
    """Arguments for a key: its purpose and the services that use it."""

    scope: Scope
    purpose: str
    """Part of the name, such as `audit` or `data`."""
    users: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Services that encrypt with the key. Maps part of the grant name to the policy member."""


class Key(pulumi.ComponentResource):
    """A key in its own key ring, rotated every 90 days, and grants for the services that encrypt with it."""

    id: pulumi.Output[str]
    """`projects/P/locations/R/keyRings/N/cryptoKeys/N`. Resolves after all grants exist."""

    def __init__(self, name: str, args: KeyArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:gcp:Key", name, None, args.scope.options(opts))
        unique = args.scope.unique_name(args.purpose)
        ring = gcp.kms.KeyRing(
            rows.KEY_RING.logical(name),
            name=unique,
            location=args.scope.region,
            opts=child(self, rows.KEY_RING),
        )
        key = gcp.kms.CryptoKey(
            rows.KEY.logical(name),
            name=unique,
            key_ring=ring.id,
            purpose="ENCRYPT_DECRYPT",
            rotation_period=ROTATION,
            destroy_scheduled_duration=DESTROY_DELAY,
            deletion_policy="PREVENT",
            opts=child(self, rows.KEY),
        )
        grants = [
            key_grant(rows.KEY_GRANT.logical(name, user=user), key.id, member, self, rows.KEY_GRANT)
            for user, member in args.users.items()
        ]
        self.id = ready_after(key.id, grants)
        self.register_outputs({"id": self.id})


def key_grant(
    name: str, key_id: pulumi.Input[str], member: pulumi.Input[str], parent: pulumi.Resource, row: ResourceKind[Any]
) -> gcp.kms.CryptoKeyIAMMember:
    """Allow a service to encrypt and decrypt with a key.

    A service has one service agent per project, so deleting the grant of one stack would also revoke access for the file systems of other stacks.
    `destroy` therefore retains the grant. Recreating the grant has no effect.
    """
    return gcp.kms.CryptoKeyIAMMember(name, crypto_key_id=key_id, role=ROLE, member=member, opts=child(parent, row))
