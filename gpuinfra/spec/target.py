"""Where a cluster goes: one class for each cloud, with what can be said about a place there."""

from __future__ import annotations

import functools
import importlib
import operator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from gpuinfra.clouds import CLOUDS
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
    _TYPED = {"aws": Aws, "azure": Azure, "gcp": Gcp}
    # A cloud whose places no type checker knows brings its class in its own folder (docs/adding-a-cloud.md).
    _ALL = [_TYPED.get(name) or importlib.import_module(f"{package}.target").Target for name, package in CLOUDS.items()]
    Target = Annotated[functools.reduce(operator.or_, _ALL), Field(discriminator="cloud")]
