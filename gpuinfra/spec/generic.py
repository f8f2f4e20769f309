"""Parts that belong to a target, for type checkers: a Capacity Block is not accepted in a pool on Google Cloud.

At run time the parts are plain models, because rules refuse the same mistakes with a reason and generic models are slow to make.
A kind of capacity or a pool is contravariant: what may be on any cloud may be on one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from gpuinfra.spec.target import Aws, Azure, Gcp

    On = TypeVar("On", contravariant=True)
    Place = TypeVar("Place", bound=Aws | Azure | Gcp)
    AnyTarget = Aws | Azure | Gcp

    class OnTarget(Generic[On]):
        """A part that may be on the target `On`."""

        def _may_be_on(self, target: On) -> None: ...

    class AtPlace(Generic[Place]):
        """A declaration for the target `Place`."""

else:
    On = TypeVar("On", contravariant=True)
    Place = TypeVar("Place")
    Aws = Azure = Gcp = AnyTarget = Any

    class OnTarget:
        """A part that may be on some target; the target is for type checkers only."""

        def __class_getitem__(cls, item: object) -> type:
            return cls

    AtPlace = OnTarget

__all__ = ["AnyTarget", "AtPlace", "Aws", "Azure", "Gcp", "On", "OnTarget", "Place"]
