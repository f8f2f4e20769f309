"""The newest version of an image of the Azure Marketplace."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.clouds.azure.handover import images
from gpuinfra.handover.ports import PortUnavailable

INPUTS = {"subscription": "s", "region": "eastus", "publisher": "p", "offer": "o", "sku": "k"}


class Versions:
    """Azure with these versions."""

    def __init__(self, *names: str) -> None:
        self._names, self.asked = names, ""

    def arm(self, path: str, api: str) -> dict[str, Any]:
        """The list of versions."""
        self.asked = path
        return {"value": [{"name": name} for name in self._names]}


@pytest.mark.parametrize("missing", INPUTS)
def test_each_input_is_required(missing: str) -> None:
    """An input that is missing or empty is a problem with its name."""
    assert images.check_inputs(INPUTS) == []
    assert images.check_inputs({**INPUTS, missing: ""}) == [(missing, f"{missing} is missing")]


def test_versions_are_compared_as_numbers() -> None:
    """The newest version has the highest numbers, and the request names each input."""
    azure = Versions("22.04.9", "22.04.10", "22.04.10-beta")
    assert images.newest(INPUTS, azure) == "22.04.10"  # pyright: ignore[reportArgumentType]
    assert azure.asked.startswith("/subscriptions/s/providers/Microsoft.Compute/locations/eastus/publishers/p/")
    assert azure.asked.endswith("/offers/o/skus/k/versions")


def test_an_image_without_a_version_is_an_error() -> None:
    """The message names the image and the region."""
    with pytest.raises(PortUnavailable, match="no version of p:o:k in eastus"):
        images.newest(INPUTS, Versions())  # pyright: ignore[reportArgumentType]
