"""The cloud, region, and zone of a cluster, with one class per cloud."""

import functools
import operator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, create_model

from gpuinfra.base.registry import CLOUDS
from gpuinfra.spec.base import Line, SpecModel
from gpuinfra.spec.machines import TypeName

if TYPE_CHECKING:
    from gpuinfra.spec.places import AwsRegion, AwsZone, AzureRegion, AzureZone, GcpRegion, GcpZone


class Aws(SpecModel):
    """A region and zone of Amazon Web Services."""

    cloud: Literal["aws"] = "aws"
    """Selects Amazon Web Services."""
    region: Line = Field(examples=["us-east-1"])
    """AWS Region, such as `us-east-1`."""
    zone: Line | None = Field(default=None, examples=["use1-az4"])
    """Availability Zone ID, such as `use1-az4`, because zone letters differ between accounts.
    If omitted, the plan selects a zone that offers every machine type."""
    offers: tuple[TypeName, ...] = Field(default=(), max_length=16, examples=[["p5.48xlarge"]])
    """Machine types that the region and its zones offer although the catalog does not list them there. Without an entry, such a
    machine type is an error."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            region: AwsRegion,
            zone: AwsZone | None = None,
            offers: tuple[str, ...] = (),
            cloud: Literal["aws"] = "aws",
        ) -> None: ...


class Azure(SpecModel):
    """A region and zone of Microsoft Azure."""

    cloud: Literal["azure"] = "azure"
    """Selects Microsoft Azure."""
    region: Line = Field(examples=["southcentralus"])
    """Short name of the Azure region, such as `southcentralus`."""
    zone: Line | None = Field(default=None, examples=["1"])
    """Availability zone `1`, `2`, or `3`. If omitted, resources are regional and Azure chooses the zone."""
    offers: tuple[TypeName, ...] = Field(default=(), max_length=16, examples=[["Standard_ND96isr_H100_v5"]])
    """Machine types that the region and its zones offer although the catalog does not list them there. Without an entry, such a
    machine type is an error."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            region: AzureRegion,
            zone: AzureZone | None = None,
            offers: tuple[str, ...] = (),
            cloud: Literal["azure"] = "azure",
        ) -> None: ...


class Gcp(SpecModel):
    """A project, region, and zone of Google Cloud."""

    cloud: Literal["gcp"] = "gcp"
    """Selects Google Cloud."""
    project: Line | None = Field(default=None, examples=["my-project"])
    """ID of the Google Cloud project. If omitted, the project of the Pulumi provider is used."""
    region: Line = Field(examples=["us-central1"])
    """Google Cloud region, such as `us-central1`."""
    zone: Line | None = Field(default=None, examples=["us-central1-a"])
    """Google Cloud zone, such as `us-central1-a`. If omitted, the plan selects a zone that offers every machine type."""
    offers: tuple[TypeName, ...] = Field(default=(), max_length=16, examples=[["a4-highgpu-8g"]])
    """Machine types that the region and its zones offer although the catalog does not list them there. Without an entry, such a
    machine type is an error."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            region: GcpRegion,
            zone: GcpZone | None = None,
            offers: tuple[str, ...] = (),
            project: str | None = None,
            cloud: Literal["gcp"] = "gcp",
        ) -> None: ...


if TYPE_CHECKING:
    Target = Annotated[Aws | Azure | Gcp, Field(discriminator="cloud")]
else:

    def _generic(name: str) -> type[SpecModel]:
        """Return the target class for a cloud without a class in this module. Rules check its region and zone."""
        return create_model(
            name.title(),
            __base__=SpecModel,
            __doc__=f"A region of {name.title()}.",
            cloud=(Literal[name], name),
            region=(
                Line,
                Field(description=f"Region of {name.title()} in which the cluster runs.", examples=["region-1"]),
            ),
            zone=(
                Line | None,
                Field(
                    default=None,
                    description=f"Zone of {name.title()} in which the cluster runs.",
                    examples=["region-1a"],
                ),
            ),
            offers=(
                tuple[TypeName, ...],
                Field(
                    default=(),
                    description="Machine types that the region offers although the catalog does not list them there.",
                    examples=[["machine-1"]],
                ),
            ),
        )

    _TYPED = {"aws": Aws, "azure": Azure, "gcp": Gcp}
    # A cloud that has no class above uses a generic class (docs/internals/adding-a-cloud.md).
    _ALL = [_TYPED.get(name) or _generic(name) for name in CLOUDS]
    Target = Annotated[functools.reduce(operator.or_, _ALL), Field(discriminator="cloud")]
