"""Where a cluster goes: one class for each cloud, with what can be said about a place there."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, create_model

from gpuinfra.registry import CLOUDS
from gpuinfra.spec.base import Part, Word

if TYPE_CHECKING:
    from gpuinfra.spec.places import AwsRegion, AwsZone, AzureRegion, AzureZone, GcpRegion, GcpZone


class Aws(Part):
    """A region of Amazon Web Services."""

    cloud: Literal["aws"] = "aws"
    """The cloud."""
    region: Word = Field(examples=["us-east-1"])
    """Region such as `us-east-1`."""
    zone: Word | None = Field(default=None, examples=["use1-az4"])
    """Zone by id such as `use1-az4`, because letters differ between accounts. Left out: the plan picks one where every machine is sold."""

    if TYPE_CHECKING:

        def __init__(
            self, *, region: AwsRegion, zone: AwsZone | None = None, cloud: Literal["aws"] = "aws"
        ) -> None: ...


class Azure(Part):
    """A region of Microsoft Azure."""

    cloud: Literal["azure"] = "azure"
    """The cloud."""
    region: Word = Field(examples=["southcentralus"])
    """Region such as `southcentralus`, in the short form."""
    zone: Word | None = Field(default=None, examples=["1"])
    """Zone `1`, `2` or `3`. Left out: regional, the cloud picks."""

    if TYPE_CHECKING:

        def __init__(
            self, *, region: AzureRegion, zone: AzureZone | None = None, cloud: Literal["azure"] = "azure"
        ) -> None: ...


class Gcp(Part):
    """A region of Google Cloud."""

    cloud: Literal["gcp"] = "gcp"
    """The cloud."""
    project: Word | None = Field(default=None, examples=["my-project"])
    """Project id. Left out: the provider's own."""
    region: Word = Field(examples=["us-central1"])
    """Region such as `us-central1`."""
    zone: Word | None = Field(default=None, examples=["us-central1-a"])
    """Zone such as `us-central1-a`. Left out: the plan picks one where every machine is sold."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            region: GcpRegion,
            zone: GcpZone | None = None,
            project: str | None = None,
            cloud: Literal["gcp"] = "gcp",
        ) -> None: ...


if TYPE_CHECKING:
    Target = Annotated[Aws | Azure | Gcp, Field(discriminator="cloud")]
else:

    def _generic(name: str) -> type[Part]:
        """The class of a cloud that has no class here: a region and a zone, which the rules check."""
        return create_model(
            name.title(),
            __base__=Part,
            __doc__=f"A region of {name.title()}.",
            cloud=(Literal[name], name),
            region=(Word, ...),
            zone=(Word | None, None),
        )

    _TYPED = {"aws": Aws, "azure": Azure, "gcp": Gcp}
    _ALL = [_TYPED.get(name) or _generic(name) for name in CLOUDS]
    Target = Annotated[functools.reduce(operator.or_, _ALL), Field(discriminator="cloud")]
