"""Where a cluster goes: one class for each cloud, with what can be said about a place there."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpuinfra.spec.base import Part, Word


class Aws(Part):
    """A region of Amazon Web Services."""

    cloud: Literal["aws"] = "aws"
    """The cloud."""
    region: Word = Field(examples=["us-east-1"])
    """Region such as `us-east-1`."""
    zone: Word | None = Field(default=None, examples=["use1-az4"])
    """Zone by id such as `use1-az4`, because letters differ between accounts. Left out: the plan picks one where every machine is sold."""


class Azure(Part):
    """A region of Microsoft Azure."""

    cloud: Literal["azure"] = "azure"
    """The cloud."""
    region: Word = Field(examples=["southcentralus"])
    """Region such as `southcentralus`, in the short form."""
    zone: Word | None = Field(default=None, examples=["1"])
    """Zone `1`, `2` or `3`. Left out: regional, the cloud picks."""


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


Target = Annotated[Aws | Azure | Gcp, Field(discriminator="cloud")]
