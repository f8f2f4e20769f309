"""Google Cloud facts that determine the software on nodes."""

from __future__ import annotations

from gpuinfra.software import tables
from gpuinfra.software.cloud import CloudSoftware, LustreClient, LustreRelease

SOFTWARE = CloudSoftware(
    kernels={"ubuntu-22.04": ("6.8",), "ubuntu-24.04": ("6.8", "6.14", "6.17")},
    kernel_flavour="gcp",
    # `nvme_card-pd` is a network disk.
    local_disk_model="nvme_card[0-9]*",
    # The plan creates a Filestore instance with NFS 3. The other options are assumptions.
    home_options="nfsvers=3,tcp,hard,timeo=600,retrans=3",
    gcsfuse=True,
    lustre=LustreClient(
        repository=f"{tables.GOOGLE_PACKAGES}/lustre-client-binaries",
        suite="lustre-client-ubuntu-{suite}",
        key_url=tables.GOOGLE_KEY_URL,
        key_fingerprint=tables.GOOGLE_KEY_FINGERPRINT,
        releases=dict.fromkeys(
            ("ubuntu-22.04", "ubuntu-24.04"),
            LustreRelease(packages="lustre-client-modules-@KERNEL@ lustre-client-utils"),
        ),
    ),
)
