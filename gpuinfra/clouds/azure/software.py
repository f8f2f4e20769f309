"""Azure facts that determine the software on nodes."""

from __future__ import annotations

from gpuinfra.software.cloud import BucketClient, CloudSoftware, HomeMount, LustreClient, LustreRelease

MICROSOFT_KEY_URL = "https://packages.microsoft.com/keys/microsoft.asc"
MICROSOFT_KEY_FINGERPRINT = "BC528686B50D79E339D3721CEB3E94ADBE1229CF"

BLOBFUSE = BucketClient(
    name="blobfuse2",
    package="blobfuse2",
    pin="2.5.4",
    accepted=("2.5", "3"),
    why="the package from Microsoft's repository, for the mounted containers",
    variables={
        "REPOSITORY": "https://packages.microsoft.com/ubuntu/{number}/prod",
        "SUITE": "{suite} main",
        "KEY_URL": MICROSOFT_KEY_URL,
        "KEY_FINGERPRINT": MICROSOFT_KEY_FINGERPRINT,
    },
)
"""Azure/azure-storage-fuse commit 74098e3: setup/packages.csv (repositories for 22.04 and 24.04, amd64 and arm64), CHANGELOG.md (2.5.4 of
2026-07-08). The scripts that build the node images of AKS install `blobfuse2=2.5.4` from these repositories (Azure/AgentBaker), read
2026-11-23. Microsoft does not publish SHA-256 checksums of its packages; the signed index of the repository contains them."""

SOFTWARE = CloudSoftware(
    kernels={"ubuntu-22.04": ("5.15", "6.8"), "ubuntu-24.04": ("6.8", "6.11", "6.14", "6.17")},
    kernel_flavour="azure",
    local_disk_model="Microsoft NVMe Direct Disk( v2)?",
    # Azure/azhpc-images:components/customizations/setup_nvme.sh
    local_disk_mount_of_image="/mnt/resource_nvme",
    homes={
        # Version, sec and nconnect: https://learn.microsoft.com/azure/storage/files/encryption-in-transit-for-nfs-shares, page dated 2025-06-27.
        # The other options are assumptions.
        "files": HomeMount(
            options="vers=4,minorversion=1,sec=sys,hard,timeo=600,nconnect=4,noresvport,actimeo=30", tls=True
        ),
        # Sizes and nconnect: "Linux NFS mount options best practices for Azure NetApp Files"
        # (https://learn.microsoft.com/azure/azure-netapp-files/performance-linux-mount-options, page dated 2024-03-07), and the options of
        # Azure/cyclecloud-slurm-workspace at 057add5: bicep/anf.bicep. NFS 4.1 would require the ID domain of the volumes on each node
        # (https://learn.microsoft.com/azure/azure-netapp-files/azure-netapp-files-configure-nfsv41-domain, page dated 2025-04-12).
        "netapp": HomeMount(options="vers=3,tcp,hard,timeo=600,rsize=262144,wsize=262144,nconnect=8"),
    },
    # The mount helper of Azure Files connects stunnel to this port (Azure/AZNFS-mount at 850eebf: src/nfsv4mountscript.sh). The certificate is issued
    # for *.file.core.windows.net.
    home_tls_port=2049,
    buckets=BLOBFUSE,
    lustre=LustreClient(
        repository="https://packages.microsoft.com/repos/amlfs-{suite}/",
        suite="{suite}",
        key_url=MICROSOFT_KEY_URL,
        key_fingerprint=MICROSOFT_KEY_FINGERPRINT,
        # Kernel series: https://docs.azure.cn/en-us/azure-managed-lustre/client-install-plan.
        # Packages: Azure/azhpc-images:versions.json; the version of a package is the kernel version of its modules.
        # The modules for 22.04 support only the long-term kernel (linux-image-azure-lts-22.04):
        # https://learn.microsoft.com/azure/azure-managed-lustre/client-install
        releases={
            "ubuntu-24.04": LustreRelease(
                packages="amlfs-lustre-client-2.17.0-24-gf517bc4=@KERNEL@",
                version="2.17.0",
                kernel_series=("6.8", "6.11", "6.14", "6.17"),
            ),
            "ubuntu-22.04": LustreRelease(
                packages="amlfs-lustre-client-2.15.8-35-gdf4872c=@KERNEL@",
                version="2.15.8",
                kernel_series=("5.15",),
                kernel_flavour="azure-lts-22.04",
            ),
        },
    ),
)
