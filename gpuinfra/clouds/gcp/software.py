"""Google Cloud facts that determine the software on nodes."""

from __future__ import annotations

from gpuinfra.software import tables
from gpuinfra.software.cloud import BucketClient, CloudSoftware, HomeMount, LustreClient, LustreRelease

GCSFUSE = BucketClient(
    name="gcsfuse",
    package="gcsfuse",
    pin="3.11.2",
    accepted=("3", "4"),
    why="the package from Google's repository, for the mounted buckets",
    variables={
        "REPOSITORY": "https://packages.cloud.google.com/apt",
        "SUITE": "gcsfuse-{suite} main",
        "KEY_URL": tables.GOOGLE_KEY_URL,
        "KEY_FINGERPRINT": tables.GOOGLE_KEY_FINGERPRINT,
    },
)
"""Release v3.11.2 (GoogleCloudPlatform/gcsfuse, tag of 2026-07-24), which public scripts install as `gcsfuse=3.11.2`. The suites
`gcsfuse-jammy` and `gcsfuse-noble` are signed by the key of Artifact Registry (a Cisco image build contains that key for
`gcsfuse-noble`, and apt reports NO_PUBKEY C0BA5CE6DC6315A3 without it), retrieved 2026-11-22. Google does not publish SHA-256 checksums of its packages;
the signed index of the repository contains them."""

SOFTWARE = CloudSoftware(
    kernels={"ubuntu-22.04": ("6.8",), "ubuntu-24.04": ("6.8", "6.14", "6.17")},
    kernel_flavour="gcp",
    # `nvme_card-pd` is a network disk.
    local_disk_model="nvme_card[0-9]*",
    # The plan creates a Filestore instance with NFS 3. The other options are assumptions.
    homes={"filestore": HomeMount(options="nfsvers=3,tcp,hard,timeo=600,retrans=3")},
    buckets=GCSFUSE,
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
