"""What waits for what: nothing is used before all that makes it safe is in force, and lists of what is waited for stay short.

Each resource that a value waits for is written into the state with each input that uses the value (docs/decisions/simplify.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pulumi


def after(value: pulumi.Input[str], resources: Iterable[pulumi.Resource]) -> pulumi.Output[str]:
    """A value for those who rely on more than the thing it names: they come up after `resources`, and go before them.

    Where `resources` are many, `gathered` makes one of them.
    """
    return pulumi.Output.all(value, *(resource.urn for resource in resources)).apply(lambda known: str(known[0]))


Maker = Callable[[Sequence[pulumi.Resource]], pulumi.Resource]
"""Makes one resource after those that it is given."""


def gathered(makers: Sequence[Maker]) -> pulumi.Resource:
    """The last of several resources, made after all the others: who relies on all of them waits for this one."""
    *first, last = makers
    return last([make(()) for make in first])
