"""The image of nodes: a release of the cloud's GPU image, or your own image."""

from typing import Annotated, Literal, get_args

from pydantic import Field, StrictBool

from gpuinfra.spec.base import Gib, Line, SpecModel
from gpuinfra.spec.formats import REASONS, text

Os = Literal["ubuntu-22.04", "ubuntu-24.04"]
REASONS[get_args(Os)] = "the bootstrap steps install Ubuntu packages and hold them with apt"
ReleaseDate = Annotated[
    str,
    text(
        r"^20[0-9][0-9]-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$",
        "default, plain, a release date such as 2026-10-06, or a mapping of fields",
    ),
]


class CustomImage(SpecModel):
    """An image selected by its ID: your own image, or an exact version of an image that the cloud publishes."""

    ref: Line = Field(examples=["ami-0123456789abcdef0"])
    """AMI ID or SSM parameter on AWS; image ID, gallery image ID or `publisher:offer:sku:version` on Azure;
    `projects/P/global/images/I` or `projects/P/global/images/family/F` on Google Cloud."""
    os: Os = "ubuntu-22.04"
    """Operating system of the image."""
    arch: Literal["x86_64", "arm64"] = "x86_64"
    """CPU architecture of the image."""
    prebuilt: StrictBool = True
    """Whether the image contains the driver and fabric software. If true, bootstrap steps verify the installed software and install only what is missing."""
    size_gib: Gib | None = Field(default=None, ge=8, le=2048, examples=[100])
    """Size of the image's root snapshot. If set, a smaller root disk is an error. If omitted, the size is not checked."""


Image = Literal["default", "plain"] | ReleaseDate | CustomImage
"""`default`, `plain`, the release date of the cloud's GPU image, or an image by its ID."""
