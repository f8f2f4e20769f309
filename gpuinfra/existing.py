"""What is there already: given by a program as inputs, or made by another stack and read from its outputs.

These are the ids that are born elsewhere, so they never pass through the spec.
The names are those of a stack's outputs; a layer made by one stack is used by another under the same words.
Which names there are is the cloud's own business: each `cluster.py` has a table `EXISTING`, and nothing here knows a cloud.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulumi


@dataclass(frozen=True, kw_only=True)
class Given:
    """One thing that a cluster can be given in place of making it."""

    layer: str
    """The layer that makes it otherwise: `foundation` or `site`."""
    what: str
    """What it is, in one sentence for people."""
    always: bool = True
    """False where a layer may lack it; its absence is then no error."""
    joined: bool = True
    """False where it is never taken from another stack, because whether there is one decides what is made, so it has to be known before."""


class Existing:
    """Things that a cluster uses and does not make, by the names of its cloud's table `EXISTING`.

    Values are `pulumi.Input`; None is the same as leaving a name out.
    """

    _things: dict[str, Any]
    _table: Mapping[str, Given]

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            # AWS
            data_key_arn: pulumi.Input[str] | None = None,
            log_key_arn: pulumi.Input[str] | None = None,
            access_log_bucket: pulumi.Input[str] | None = None,
            evidence_bucket_arn: pulumi.Input[str] | None = None,
            vpc_id: pulumi.Input[str] | None = None,
            nodes_group_id: pulumi.Input[str] | None = None,
            # Google Cloud
            data_key_id: pulumi.Input[str] | None = None,
            # Azure
            evidence_account_id: pulumi.Input[str] | None = None,
            vault_id: pulumi.Input[str] | None = None,
            vault_uri: pulumi.Input[str] | None = None,
            data_key_name: pulumi.Input[str] | None = None,
            data_key_url: pulumi.Input[str] | None = None,
            data_key_identity_id: pulumi.Input[str] | None = None,
            disk_encryption_set_id: pulumi.Input[str] | None = None,
            workspace_id: pulumi.Input[str] | None = None,
            # several clouds
            network_id: pulumi.Input[str] | None = None,
            # every cloud
            evidence_bucket: pulumi.Input[str] | None = None,
            subnet_ids: pulumi.Output[Mapping[str, str]] | Mapping[str, pulumi.Input[str]] | None = None,
            file_systems: Any = None,
            **more: Any,
        ) -> None: ...

    else:

        def __init__(self, **things: Any) -> None:
            self._things = {name: value for name, value in things.items() if value is not None}
            self._table = {}

    def get(self, name: str) -> Any:
        """A thing that may be missing."""
        return self._things.get(name)

    def wanted(self, name: str) -> Any:
        """A thing that this stack needs. Raises `ValueError` saying who has to give it."""
        value = self.get(name)
        if value is None:
            layer = self._table[name].layer if name in self._table else "site"
            raise ValueError(
                f"this stack makes no {layer}, so it needs {name}; name the stack that made it under use.{layer}, "
                f"or give Existing({name}=...) to GpuCluster"
            )
        return value

    def joined(
        self,
        table: Mapping[str, Given],
        *,
        foundation: str | None,
        site: str | None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> Existing:
        """These things, and what the named stacks made; what a program gave itself goes first.

        Raises `ValueError` for a name that the cloud's table does not have, before anything is made.
        """
        if unknown := sorted(set(self._things) - set(table)):
            raise ValueError(
                f"Existing has {', '.join(unknown)}, which this cloud does not use; known are {', '.join(sorted(table))}"
            )
        things = dict(self._things)
        for layer, stack in (("foundation", foundation), ("site", site)):
            if stack is None:
                continue
            reference = pulumi.StackReference(stack, opts=opts)
            for name, given in table.items():
                if given.layer == layer and given.joined and name not in things:
                    told = reference.get_output(name)
                    things[name] = told.apply(_required(name, stack)) if given.always else told
        result = Existing(**things)
        result._table = table
        return result


def _required(name: str, stack: str) -> Callable[[Any], Any]:
    """What another stack has to have made; one that stopped half-way lacks it, which people are told without a traceback."""

    def found(value: Any) -> Any:
        if value is None:
            raise pulumi.RunError(
                f"the stack {stack} has no output {name}: its last `pulumi up` did not come to its end, or it makes something else; "
                f"bring it up first (pulumi up --stack {stack.rpartition('/')[2]}), then this one again"
            )
        return value

    return found
