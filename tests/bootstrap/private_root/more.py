"""What the vendors of other machines and clouds publish: DOCA, gIB, TCPXO, GDRCopy."""

from __future__ import annotations

import hashlib

from .debs import Deb, publish
from .vendors import Vendors, module

GIB = "us-apt.pkg.dev/projects/gce-ai-infra"
GDRCOPY = "developer.download.nvidia.com/compute/redist/gdrcopy/CUDA%2012.8/ubuntu22_04/x64"
DOCA = "www.mellanox.com/downloads/DOCA/DOCA_v3.2.1/host"


def publish_more(vendors: Vendors, kernel: str) -> dict[str, str]:
    """Put it in place beside the rest; returns the variables that the steps need."""
    web = vendors.folder / "web"
    scripts = "/usr/local/gib/scripts/set_nccl_env.sh"
    gib = [
        Deb("nccl-gib", v, files={scripts: "", "/usr/local/gib/lib64/libnccl-net.so": ""}) for v in ("1.1.0", "2.0.0")
    ]
    tcpxo = {"/var/lib/tcpxo/lib64/libnccl-net.so": "", "/var/lib/tcpxo/lib64/nccl-env-profile.sh": ""}
    publish(web / GIB, "gpudirect-gib-apt", gib, vendors.keys["toolkit"])
    publish(web / GIB, "gpudirect-tcpxo-apt", [Deb("nccl-tcpxo", "1.0.14", files=tcpxo)], vendors.keys["toolkit"])
    vendors._put(f"{GIB}/key.gpg", vendors.keys["toolkit"].public)

    drv = Deb("gdrdrv-dkms", "2.5-1", files=module(kernel, "gdrdrv", "2.5"))
    debs = [deb.build(web / "gdrcopy") for deb in (drv, Deb("libgdrapi", "2.5-1"))]
    listed = []
    for deb in debs:
        vendors._put(f"{GDRCOPY.replace('%20', ' ')}/{deb.name}", deb.read_bytes())
        listed.append(f"https://{GDRCOPY}/{deb.name} {hashlib.sha256(deb.read_bytes()).hexdigest()}")

    doca = Deb("doca-ofed", "3.2.1-044000-25.10", files=module(kernel, "mlx5_ib", "25.10"))
    publish(web / "linux.mellanox.com/doca", "/", [doca], vendors.keys["nvidia"])
    host = Deb(
        "doca-host",
        "3.2.1-044000-25.10-ubuntu2204",
        files={
            "/etc/apt/sources.list.d/doca.list": "deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg]"
            " https://linux.mellanox.com/doca /\n"
        },
    ).build(web / "gdrcopy")
    vendors._put(f"{DOCA}/{host.name}", host.read_bytes())
    key = vendors.keys["toolkit"].fingerprint
    return {
        "DCGM_PACKAGE": "datacenter-gpu-manager-4-cuda13",
        "DCGM_RANGE_MIN": "4.2",
        "DCGM_RANGE_MAX": "5",
        "DOCA_VERSION": "3.2.1",
        "DOCA_RANGE_MIN": "2.9",
        "DOCA_RANGE_MAX": "4",
        "DOCA_HOST_URL": f"https://{DOCA}/{host.name}",
        "DOCA_HOST_SHA256": hashlib.sha256(host.read_bytes()).hexdigest(),
        "GIB_VERSION": "1.1.0",
        "GIB_RANGE_MIN": "1.1",
        "GIB_RANGE_MAX": "2",
        "GIB_REPOSITORY": f"https://{GIB}",
        "GIB_SUITE": "gpudirect-gib-apt",
        "GIB_KEY_URL": f"https://{GIB}/key.gpg",
        "GIB_KEY_FINGERPRINT": key,
        "TCPXO_PACKAGES": "nccl-tcpxo=1.0.14",
        "TCPXO_REPOSITORY": f"https://{GIB}",
        "TCPXO_SUITE": "gpudirect-tcpxo-apt",
        "TCPXO_KEY_URL": f"https://{GIB}/key.gpg",
        "TCPXO_KEY_FINGERPRINT": key,
        "GDRCOPY_VERSION": "2.5",
        "GDRCOPY_RANGE_MIN": "2.4",
        "GDRCOPY_RANGE_MAX": "3",
        "GDRCOPY_DEBS": "; ".join(listed),
    }
