"""Generic base classes that bind a model to a target, so that a type checker rejects, for example, a Capacity Block in a pool on Google Cloud.

At run time, the models are not generic, because generic models are slow to build. Rules report the same errors with a reason.
Capacity and pools are contravariant: a value that is valid on all clouds is valid on each cloud.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from gpuinfra.spec.target import Aws, Azure, Gcp

    On = TypeVar("On", contravariant=True)
    Place = TypeVar("Place", bound=Aws | Azure | Gcp)
    AnyTarget = Aws | Azure | Gcp

    class OnTarget(Generic[On]):
        """A model that is valid on the target `On`."""

        def _is_valid_on(self, target: On) -> None: ...

    class AtPlace(Generic[Place]):
        """A declaration for the target `Place`."""

else:
    On = TypeVar("On", contravariant=True)
    Place = TypeVar("Place")
    Aws = Azure = Gcp = AnyTarget = Any

    class OnTarget:
        """A base class that ignores its type argument. Only type checkers read the argument."""

        def __class_getitem__(cls, item: object) -> type:
            return cls

    AtPlace = OnTarget

__all__ = ["AnyTarget", "AtPlace", "Aws", "Azure", "Gcp", "On", "OnTarget", "Place"]
