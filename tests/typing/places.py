"""Writes `gpuinfra/spec/places.py` from the clouds' region tables: `python -m tests.typing.places`."""

from __future__ import annotations

from pathlib import Path

from gpuinfra.clouds.aws import regions as aws
from gpuinfra.clouds.azure import regions as azure
from gpuinfra.clouds.gcp import regions as gcp

FILE = Path(__file__).parents[2] / "gpuinfra/spec/places.py"
HEAD = '''"""Regions and zones as literals, so that a type checker rejects an Azure zone on AWS. Only type checkers read this module.

`python -m tests.typing.places` generates it from the clouds' region tables; a test compares them.
"""

from typing import Literal

'''
WIDTH = 118


def text() -> str:
    """The expected content of the module."""
    aws_zones = [f"{prefix}-az{number}" for prefix in aws.PREFIXES.values() for number in range(1, 7)]
    aws_zones += [zone for zones in aws.LOCAL_ZONES.values() for zone in zones]
    gcp_zones = [f"{region}-{letter}" for region in sorted(gcp.REGIONS) for letter in "abcdf"]
    parts = (
        _literal("AwsRegion", list(aws.PREFIXES), "Regions of AWS."),
        _literal("AwsZone", aws_zones, "Zones of AWS by ID."),
        _literal("AzureRegion", sorted(azure.REGIONS), "Regions of Azure."),
        _literal("AzureZone", ["1", "2", "3"], "Zones of Azure."),
        _literal("GcpRegion", sorted(gcp.REGIONS), "Regions of Google Cloud."),
        _literal("GcpZone", gcp_zones, "Zones of Google Cloud."),
    )
    return HEAD + "\n".join(parts)


def _literal(name: str, words: list[str], about: str) -> str:
    lines, line = [], "   "
    for word in words:
        piece = f' "{word}",'
        if len(line) + len(piece) > WIDTH:
            lines.append(line)
            line = "   "
        line += piece
    return "\n".join([f"{name} = Literal[", *lines, line, "]  # fmt: skip", f'"""{about}"""', ""])


if __name__ == "__main__":
    FILE.write_text(text())
