"""AWS facts that determine the software on nodes."""

from __future__ import annotations

from gpuinfra.software.cloud import BucketClient, CloudSoftware, HomeMount, LogAgent, LustreClient, LustreRelease

LUSTRE_KEY_FINGERPRINT = "9C36DD9C515F10DBC3AA835C5D5CCC3383A962E1"
"""Pinned by a public installer script; AWS does not publish the fingerprint."""

MOUNTPOINT = BucketClient(
    name="mountpoint_s3",
    package="mount-s3",
    pin="1.24.0",
    accepted=("1.18", "2"),
    why="Amazon's signed package, for the mounted buckets",
    variables={
        "URL": "https://s3.amazonaws.com/mountpoint-s3-release/{version}/{arch}/mount-s3-{version}-{arch}.deb",
        "KEY_URL": "https://s3.amazonaws.com/mountpoint-s3-release/public_keys/KEYS",
        "KEY_FINGERPRINT": "8AEFE705EBE329C0948C75A66F1C3B3AEF4B030B",
    },
)
"""Mountpoint for Amazon S3, awslabs/mountpoint-s3: doc/INSTALL.md (key, signature next to the package, amd64 and arm64), v1.23.0, retrieved 2026-11-22.
Public scripts install release 1.24.0 from this address. Amazon does not publish SHA-256 checksums of its packages, so the step verifies the signature."""

CLOUDWATCH_AGENT = LogAgent(
    name="cloudwatch_agent",
    package="amazon-cloudwatch-agent",
    pin="1.300072.0b1766",
    accepted=("1.300070", "2"),
    why="Amazon's signed package; the first release that reads the journal is 1.300070.0",
    variables={
        "URL": "https://amazoncloudwatch-agent.s3.amazonaws.com/ubuntu/{deb_arch}/{version}/amazon-cloudwatch-agent.deb",
        "KEY_URL": "https://amazoncloudwatch-agent.s3.amazonaws.com/assets/amazon-cloudwatch-agent.gpg",
        "KEY_FINGERPRINT": "937616F3450B7D806CBD9725D58167303B789C72",
    },
)
"""Amazon CloudWatch Agent, aws/amazon-cloudwatch-agent: RELEASE_NOTES (1.300070.0 of 2026-06-19 collects journald logs). A public recipe for an image downloads
this version from this address and verifies its detached signature. Eight public scripts pin the fingerprint of the key, which is that of
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/verify-CloudWatch-Agent-Package-Signature.html. All retrieved 2026-11-30. Only one recipe has
a checksum, so the step verifies the signature."""

SOFTWARE = CloudSoftware(
    kernels={"ubuntu-22.04": ("6.8",), "ubuntu-24.04": ("6.8", "6.14", "6.17", "7.0")},
    kernel_flavour="aws",
    local_disk_model="Amazon EC2 NVMe Instance Storage",
    local_disk_mount_of_image="/opt/dlami/nvme",
    homes={
        # https://docs.aws.amazon.com/efs/latest/ug/mounting-fs-nfs-mount-settings.html, retrieved 2026-11-21
        "efs": HomeMount(
            options="nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport", tls=True
        ),
        # The options of Scale-Out Computing on AWS (awslabs/scale-out-computing-on-aws: templates/linux/shared_storage/mount_fsx_openzfs.sh.j2,
        # retrieved 2026-11-27), which mount without TLS.
        "openzfs": HomeMount(options="nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2"),
    },
    # https://docs.aws.amazon.com/efs/latest/ug/encryption-in-transit.html, retrieved 2026-11-22
    home_tls_port=2049,
    buckets=MOUNTPOINT,
    log_agent=CLOUDWATCH_AGENT,
    lustre=LustreClient(
        repository="https://fsx-lustre-client-repo.s3.amazonaws.com/ubuntu",
        suite="{suite}",
        key_url="https://fsx-lustre-client-repo-public-keys.s3.amazonaws.com/fsx-ubuntu-public-key.asc",
        key_fingerprint=LUSTRE_KEY_FINGERPRINT,
        releases=dict.fromkeys(
            ("ubuntu-22.04", "ubuntu-24.04"),
            LustreRelease(packages="lustre-client-modules-@KERNEL@ lustre-client-modules-aws"),
        ),
    ),
)
