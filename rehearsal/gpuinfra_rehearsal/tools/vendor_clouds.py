"""Commands of cloud images and DCGM: Azure's machine size customization, the DOCA version, DCGM's daemon."""

from __future__ import annotations

import sys

from .state import link, read_state, write_file
from .universe import upstream

TOPOLOGY = (("ndv4", ("_v4",)), ("ndv5", ("_H100_v5", "_H200_v5")))
"""Topology file families, each with the suffixes of its machine sizes (Azure/azhpc-images:components/setup_sku_customizations.sh)."""


def sku_customizations(argv: list[str]) -> int:
    """Write NCCL's configuration and topology for this machine size, as the image's service does."""
    del argv
    machine = read_state()["machine"]
    family = next(
        (family for family, ends in TOPOLOGY if machine.startswith("Standard_ND96") and machine.endswith(ends)), ""
    )
    if not family:
        sys.stdout.write(f"no customization for {machine}\n")
        return 0
    link(f"/opt/microsoft/{family}-topo.xml", f"/opt/microsoft/{family}/topo.xml")
    lines = (
        "NCCL_IB_PCI_RELAXED_ORDERING=1",
        f"NCCL_TOPO_FILE=/opt/microsoft/{family}/topo.xml",
        "NCCL_IGNORE_CPU_AFFINITY=1",
    )
    write_file("/etc/nccl.conf", "\n".join(lines) + "\n")
    return 0


def ofed_info(argv: list[str]) -> int:
    """`ofed_info -s`."""
    version = read_state()["packages"].get("mlnx-ofed-kernel-dkms", {}).get("version", "")
    sys.stdout.write(f"OFED-internal-{version.partition('.OFED')[0]}:\n" if "-s" in argv else f"{version}\n")
    return 0


def dcgmi(argv: list[str]) -> int:
    """`--version` of the package; other calls go to the device tools."""
    if "--version" not in argv and "-v" not in argv:
        from . import device_tools

        return device_tools.run(["dcgmi", *argv])
    version = upstream(read_state()["packages"].get("datacenter-gpu-manager-4-core", {}).get("version", ""))
    sys.stdout.write(f"dcgmi  version: {version}\n")
    return 0


def hostengine(argv: list[str]) -> int:
    """DCGM's daemon."""
    from .vendor import stay

    del argv
    return stay()
