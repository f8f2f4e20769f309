"""Customer keys, and which of Google's own service accounts may use them.

Key rings and keys can never be deleted, and what was encrypted is lost with a key's versions, so both are kept and refuse to be destroyed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pulumi
import pulumi_gcp as gcp

from gpuinfra import naming
from gpuinfra.clouds.gcp.components.scope import Scope, child
from gpuinfra.clouds.ready_after import ready_after
from gpuinfra.clouds.resource_group import Parent, Part

ROTATION = "7776000s"
"""90 days, the most that CIS 1.10 lets a key go without a new version."""
RESCUE = "2592000s"
"""30 days in which a destroyed version can still be restored."""
USE = "roles/cloudkms.cryptoKeyEncrypterDecrypter"


@dataclass(frozen=True, kw_only=True)
class KeyArgs:
    """What a key is for."""

    scope: Scope
    purpose: str
    """Part of its name: `audit`, `data`."""
    users: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Who encrypts with it: a word for the grant's name -> member of a policy."""


class Key(Part):
    """A key in a ring of its own, renewed every 90 days, and the grants of those who encrypt with it."""

    id: pulumi.Output[str]
    """`projects/P/locations/R/keyRings/N/cryptoKeys/N`, once everybody who needs it may use it."""

    def __init__(self, name: str, args: KeyArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        scope = args.scope
        called = scope.unique_name(args.purpose)
        ring = gcp.kms.KeyRing(
            naming.logical(name, "ring"),
            name=called,
            project=scope.project,
            location=scope.region,
            opts=child(self, keep=True),
        )
        key = gcp.kms.CryptoKey(
            naming.logical(name, "key"),
            name=called,
            key_ring=ring.id,
            purpose="ENCRYPT_DECRYPT",
            rotation_period=ROTATION,
            destroy_scheduled_duration=RESCUE,
            deletion_policy="PREVENT",
            labels=scope.labelled(),
            opts=child(self, keep=True),
        )
        grants = [grant(naming.logical(name, word), key.id, member, self) for word, member in args.users.items()]
        self.id = ready_after(key.id, grants)


def grant(
    name: str, key_id: pulumi.Input[str], member: pulumi.Input[str], parent: Parent
) -> gcp.kms.CryptoKeyIAMMember:
    """Lets one service use a key. It is kept, because Google's services have one account for the whole project: what is taken
    from one stack's things is taken from everybody's, and what was encrypted is closed. Made again it is the same grant."""
    return gcp.kms.CryptoKeyIAMMember(
        name, crypto_key_id=key_id, role=USE, member=member, opts=child(parent, keep=True)
    )
