"""All steps on machines of three clouds, on GPU images and on plain Ubuntu, with golden final states."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

import pytest

from gpuinfra_rehearsal.nodes import NodeHost
from rehearsal.tests.nodes.conftest import wait_for
from rehearsal.tests.nodes.machines import GOLDEN, LONG, Machine, Metadata, host, metadata, pool_of
from tests.plan.pools import with_steps

__all__ = ["host", "metadata"]

MATRIX = [
    pytest.param("aws", "p5.48xlarge", "ubuntu-22.04", "default", 0, marks=LONG),
    pytest.param("aws", "p6-b200.48xlarge", "ubuntu-24.04", "plain", 0, marks=LONG),
    ("azure", "Standard_ND96isr_H100_v5", "ubuntu-22.04", "default", 0),
    pytest.param("azure", "Standard_ND96isr_H200_v5", "ubuntu-24.04", "default", 0, marks=LONG),
    pytest.param("azure", "Standard_ND96amsr_A100_v4", "ubuntu-22.04", "plain", 2, marks=LONG),
    pytest.param("azure", "Standard_ND96isr_H100_v5", "ubuntu-24.04", "plain", 1, marks=LONG),
    pytest.param("gcp", "a3-megagpu-8g", "ubuntu-24.04", "default", 0, marks=LONG),
    pytest.param("gcp", "a3-highgpu-8g", "ubuntu-24.04", "default", 0, marks=LONG),
    pytest.param("gcp", "a3-ultragpu-8g", "ubuntu-22.04", "default", 0, marks=LONG),
    pytest.param("gcp", "a4-highgpu-8g", "ubuntu-24.04", "plain", 0, marks=LONG),
    pytest.param("gcp", "a2-ultragpu-8g", "ubuntu-22.04", "default", 0, marks=LONG),
]


@pytest.mark.parametrize(("cloud", "machine", "os_name", "image", "reboots"), MATRIX)
def test_a_machine_of_any_cloud_reaches_its_golden_state(
    host: NodeHost, cloud: str, machine: str, os_name: str, image: str, reboots: int
) -> None:
    """All steps end in the golden state after the expected number of reboots; a second run changes nothing, and in the next boot, no step runs again."""
    node = Machine(host, pool_of(cloud, machine, os_name, image))
    node.launch(cloud)
    code, said, rebooted = node.through()
    assert code == 0, said
    assert rebooted == reboots
    path = GOLDEN / f"{machine}-{os_name}-{image}.json"
    text = json.dumps(node.final(), indent=1, sort_keys=True) + "\n"
    if os.environ.get("GPUINFRA_WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
    code, said = node.steps("--again")
    assert code == 0, said
    assert "none made changes" in said, said
    node.reboot()
    code, said = node.steps()
    assert code == 0, said
    assert "steps done, nothing to do" in said, said


@pytest.mark.parametrize("cloud", ["azure", "gcp"])
def test_cloud_init_runs_user_data_of_each_cloud(host: NodeHost, metadata: Metadata, cloud: str) -> None:
    """Azure's user data come from the provisioning disc or compute.userData, Google's from the attribute `user-data`; they run once for each instance."""
    script = b"#!/bin/bash\necho ran >>/root/ran\n"
    metadata.user_data = script
    machine = "Standard_NC24ads_A100_v4" if cloud == "azure" else "a2-highgpu-1g"
    node = Machine(host, pool_of(cloud, machine, "ubuntu-22.04", "plain"))
    node.launch(cloud)
    wait_for(lambda: node.run("cat", "/root/ran") == (0, "ran\n"), "user data ran")
    node.reboot()
    assert node.run("cat", "/root/ran") == (0, "ran\n")
    code, said = node.run("cloud-init", "status", "--format=json")
    assert code == 0
    assert json.loads(said)["detail"] == {"azure": "DataSourceAzure", "gcp": "DataSourceGCELocal"}[cloud]


HOME = {"kind": "home", "mount": "/home", "dns_name": "10.0.0.9", "mount_name": "/home"}


def test_homes_are_mounted_with_the_image_s_logins(host: NodeHost) -> None:
    """The image's files in /home are copied to the share before it is mounted; existing homes stay unchanged."""
    node = Machine(host, pool_of("gcp", "a2-highgpu-1g", "ubuntu-22.04", "plain", home=True))
    node.launch("gcp", file_systems=(HOME,))
    node.pool = with_steps(node.pool, "10-prepare", "62-home")
    node.unpack()
    node.run("bash", "-c", "mkdir -p /home/ubuntu/.ssh && echo key >/home/ubuntu/.ssh/authorized_keys")
    code, said = node.steps()
    assert code == 0, said
    assert node.run("findmnt", "-n", "-o", "SOURCE,FSTYPE", "--mountpoint", "/home") == (0, "10.0.0.9:/home nfs\n")
    assert node.run("cat", "/home/ubuntu/.ssh/authorized_keys") == (0, "key\n")
    node.run("bash", "-c", "echo another >/home/ubuntu/.ssh/authorized_keys")
    node.reboot()
    code, said = node.steps("--again")
    assert code == 0, said
    assert "none made changes" in said, said
    assert node.run("cat", "/home/ubuntu/.ssh/authorized_keys") == (0, "another\n")


def test_homes_of_a_server_that_returns_after_the_boot_are_mounted(host: NodeHost) -> None:
    """The hourly check mounts what could not be mounted at boot, and leaves other mounts as they are."""
    node = Machine(host, pool_of("gcp", "a2-highgpu-1g", "ubuntu-22.04", "plain", home=True))
    node.launch("gcp", file_systems=(HOME,))
    wanted = ("10-prepare", "62-home")
    node.pool = with_steps(node.pool, *wanted)
    node.unpack()
    assert node.steps()[0] == 0

    def refuse(faults: str) -> None:
        path = "/run/standin/standin.json"
        change = f"import json; s = json.load(open('{path}')); s['faults'] = {faults}; open('{path}', 'w').write(json.dumps(s))"
        assert node.run("python3", "-c", change)[0] == 0

    refuse("['home-mount-refused']")
    node.reboot()
    assert node.run("mountpoint", "-q", "/home")[0] == 1
    refuse("[]")
    node.run(
        "bash",
        "-c",
        "cp /opt/gpuinfra/current/units/gpuinfra-recheck.service /etc/systemd/system/; systemctl daemon-reload",
    )
    for _ in range(2):
        node.run("systemctl", "start", "gpuinfra-recheck.service")
        assert node.run("bash", "-c", "findmnt -rn -o SOURCE,TARGET | grep ' /home$'") == (0, "10.0.0.9:/home /home\n")


EFS = {"kind": "home", "mount": "/home", "dns_name": "fs-1.efs.us-east-1.amazonaws.com", "mount_name": "/"}
TOOLS = {**EFS, "mount": "/tools", "dns_name": "fs-2.efs.us-east-1.amazonaws.com"}


def node_with_tls(host: NodeHost, *faults: str) -> Machine:
    """A node on AWS with two file systems for home directories."""
    node = Machine(host, pool_of("aws", "g5.xlarge", "ubuntu-22.04", "plain", home=True))
    node.launch("aws", faults=faults, file_systems=(EFS, TOOLS))
    node.pool = with_steps(node.pool, "10-prepare", "62-home")
    node.unpack()
    return node


def test_homes_on_aws_are_mounted_with_tls_at_every_boot(host: NodeHost) -> None:
    """Each file system has a local port, stunnel verifies its server's certificate, and both are mounted after a reboot."""
    node = node_with_tls(host)
    code, said = node.steps()
    assert code == 0, said
    config = node.run("cat", "/etc/gpuinfra/home-tls.conf")[1]
    assert "accept = 127.0.0.1:20049\nconnect = fs-1.efs.us-east-1.amazonaws.com:2049\n" in config
    assert "accept = 127.0.0.1:20050\nconnect = fs-2.efs.us-east-1.amazonaws.com:2049\n" in config
    assert config.count("verifyChain = yes\ncheckHost = fs-") == 2
    fstab = node.run("cat", "/etc/fstab")[1]
    # An order only: with a requirement, a restart of the proxy would unmount the homes.
    assert fstab.count("x-systemd.after=gpuinfra-home-tls.service") == 2
    assert "requires=gpuinfra-home-tls" not in fstab
    mounts = {"/home": "20049", "/tools": "20050"}
    node.run("touch", "/home/of-1", "/tools/of-2")

    def check_mounts() -> None:
        for mount, port in mounts.items():
            code, options = node.run("findmnt", "-n", "-t", "nfs,nfs4", "-o", "OPTIONS", "--mountpoint", mount)
            assert (code, f"port={port}" in options) == (0, True), options
        assert node.run("ls", "/home/of-1", "/tools/of-2")[0] == 0

    check_mounts()
    code, said = node.steps("--again")
    assert "none made changes" in said, said
    node.reboot()
    assert node.run("systemctl", "is-active", "gpuinfra-home-tls.service")[1] == "active\n"
    check_mounts()


def test_homes_of_two_services_are_mounted_each_in_its_own_way(host: NodeHost) -> None:
    """FSx for OpenZFS is mounted from its server, EFS through the proxy, and both are mounted after a reboot."""
    homes: tuple[dict[str, object], ...] = ({"kind": "home", "service": "openzfs"}, {"kind": "home", "mount": "/tools"})
    node = Machine(host, pool_of("aws", "g5.xlarge", "ubuntu-22.04", "plain", buckets=homes))
    openzfs = {**EFS, "dns_name": "fs-3.fsx.us-east-1.amazonaws.com", "mount_name": "/fsx"}
    node.launch("aws", file_systems=(openzfs, TOOLS))
    node.pool = with_steps(node.pool, "10-prepare", "62-home")
    node.unpack()
    code, said = node.steps()
    assert code == 0, said
    assert "home directories at /home /tools accept writes; with TLS: /tools" in said + str(node.state["steps"])
    config = node.run("cat", "/etc/gpuinfra/home-tls.conf")[1]
    assert config.count("\nconnect = ") == 1
    assert "accept = 127.0.0.1:20049\nconnect = fs-2.efs.us-east-1.amazonaws.com:2049\n" in config
    sources = {"/home": "fs-3.fsx.us-east-1.amazonaws.com:/fsx\n", "/tools": "127.0.0.1:/\n"}
    for again in (False, True):
        if again:
            node.reboot()
        for mount, source in sources.items():
            assert node.run("findmnt", "-n", "-o", "SOURCE", "--mountpoint", mount) == (0, source)
    lines = {line.split()[1]: line for line in node.run("cat", "/etc/fstab")[1].splitlines() if " nfs " in line}
    assert "gpuinfra-home-tls" not in lines["/home"]
    assert "x-systemd.after=gpuinfra-home-tls.service" in lines["/tools"]


def test_a_home_without_its_connection_is_not_mounted(host: NodeHost) -> None:
    """Without stunnel, the mount is refused instead of connecting without TLS."""
    node = node_with_tls(host)
    assert node.steps()[0] == 0
    node.run("umount", "/home")
    node.run("systemctl", "stop", "gpuinfra-home-tls.service")
    code, said = node.run("mount", "/home")
    assert (code, said) == (32, "mount.nfs: Connection refused\n")
    node.run("systemctl", "start", "gpuinfra-home-tls.service")
    assert node.run("mountpoint", "-q", "/home")[0] == 1  # the unit mounts nothing; only a boot does


def test_a_refused_home_is_reported(host: NodeHost) -> None:
    """The step fails with the reason of the server, and the check L2 names the mount."""
    node = node_with_tls(host, "home-mount-refused")
    code, said = node.steps()
    assert code == 1, said
    reason = next(step["reason"] for step in node.state["steps"] if step["id"] == "62-home")
    assert "mounting /home failed 3 times" in reason
    assert "access denied by server while mounting 127.0.0.1:/" in reason


def test_a_node_without_homes_rejects_the_step(host: NodeHost) -> None:
    """A node.json without homes fails at once, without a retry."""
    node = Machine(host, pool_of("gcp", "a2-highgpu-1g", "ubuntu-22.04", "plain", home=True))
    node.launch("gcp", file_systems=())
    node.pool = with_steps(node.pool, "10-prepare", "62-home")
    node.unpack()
    code, said = node.steps()
    assert code == 1
    assert "node.json lists no file system of kind home" in said
    assert "again in" not in said


@dataclass(frozen=True)
class Client:
    """A program that mounts buckets, as a node shows it."""

    cloud: str
    disks: str
    """Machine type with local disks."""
    diskless: str
    step: str
    version: str
    shown: str
    """Source and type in the list of mounts; `*` stands for the bucket."""
    read_only: str
    cached: str
    """Options of a cache of 100 GiB."""
    refused: str
    missing: str
    unreachable: str


CLIENTS = {
    "gcp": Client(
        "gcp", "a2-ultragpu-1g", "a2-highgpu-1g", "85-gcsfuse", "3.11.2", "* fuse.gcsfuse", " -o ro ",
        " --cache-dir=/mnt/nvme/gpuinfra-buckets/data-0 --file-cache-max-size-mb=102400 ",
        "Bad credentials for bucket corpus: permission denied", "Unknown bucket corpus: no such file or directory",
        "cannot list corpus: the service does not respond",
    ),
    "aws": Client(
        "aws", "g6.2xlarge", "m7i.xlarge", "85-mountpoint-s3", "1.24.0", "mountpoint-s3 fuse", " --read-only ",
        " --cache=/mnt/nvme/gpuinfra-buckets/data-0 --max-cache-size=102400 ",
        "Failed to create S3 client: initial ListObjectsV2 failed for bucket corpus in region us-east-1: Client error: Forbidden: Access Denied",
        "initial ListObjectsV2 failed for bucket corpus in region us-east-1: Service error: The bucket does not exist",
        "Client error: Unknown CRT error: CRT error 1059: aws-c-io: AWS_IO_DNS_INVALID_NAME",
    ),
    "azure": Client(
        "azure", "Standard_NC24ads_A100_v4", "Standard_D4s_v5", "85-blobfuse2", "2.5.4", "blobfuse2 fuse", "read-only: true\n",
        "file_cache:\n  path: /mnt/nvme/gpuinfra-buckets/data-0\n  max-size-mb: 102400\n",
        "failed to initialize new pipeline [failed to authenticate azstorage credentials with error [BlockBlob::TestPipeline : "
            "[AuthorizationPermissionMismatch]]]",
        "[failed to authenticate azstorage credentials with error [BlockBlob::TestPipeline : [ContainerNotFound]]]",
        "dial tcp: lookup storage.blob.core.windows.net: the service does not respond",
    ),
}  # fmt: skip
BUCKET = {"kind": "object", "mount": "/data", "dns_name": "storage.blob.core.windows.net", "mount_name": "corpus"}
OUT = {**BUCKET, "mount": "/out", "mount_name": "train-out"}
UNIT = "gpuinfra-bucket-out-0.service"


@pytest.fixture(params=["aws", *(pytest.param(cloud, marks=pytest.mark.long) for cloud in ("azure", "gcp"))])
def client(request: pytest.FixtureRequest) -> Client:
    """The program of each cloud."""
    return CLIENTS[request.param]


def node_with_buckets(host: NodeHost, client: Client, *faults: str, disks: bool = True) -> Machine:
    """A node that reads one bucket and writes to another."""
    buckets: tuple[dict[str, object], ...] = (
        {"kind": "object", "mount": "/data", "bucket": "corpus", "cache_gib": 100 if disks else None},
        {"kind": "object", "mount": "/out", "bucket": "auto", "read_only": False},
    )
    machine = client.disks if disks else client.diskless
    node = Machine(
        host, pool_of(client.cloud, machine, "ubuntu-24.04" if disks else "ubuntu-22.04", "plain", buckets=buckets)
    )
    node.launch(client.cloud, faults=faults, file_systems=(BUCKET, OUT))
    node.pool = with_steps(node.pool, "10-prepare", "80-scratch", client.step)
    node.unpack()
    return node


def settings_of(node: Machine, name: str) -> str:
    """The unit of a bucket, and the configuration of its program if it has one."""
    unit = f"gpuinfra-bucket-{name}"
    return node.run("bash", "-c", f"cat /etc/systemd/system/{unit}.service; cat /etc/{unit}.yaml 2>/dev/null || true")[
        1
    ]


def test_buckets_are_mounted_at_every_boot(host: NodeHost, client: Client) -> None:
    """A unit mounts each bucket with its mode and its cache on the local disks, now and after a reboot."""
    node = node_with_buckets(host, client)
    code, said = node.steps()
    assert code == 0, said
    unit = settings_of(node, "data-0")
    assert client.read_only in unit
    assert client.cached in unit
    assert "RequiresMountsFor=/mnt/nvme/gpuinfra-buckets/data-0\n" in unit
    assert node.state["recorded"][client.step[3:].replace("-", "_")] == client.version

    def check_mounts() -> None:
        for mount, bucket, mode in (("/data", "corpus", "ro"), ("/out", "train-out", "rw")):
            code, said = node.run("findmnt", "-n", "-o", "SOURCE,FSTYPE,OPTIONS", "--mountpoint", mount)
            assert (code, said.startswith(f"{client.shown.replace('*', bucket)} {mode},")) == (0, True), said
        assert node.run("touch", "/out/one")[0] == 0
        assert node.run("touch", "/data/one")[0] == 1
        found = json.loads(node.run("python3", "/opt/gpuinfra/current/node.pyz", "mounts")[1])["mounts"]
        modes = {one["mount"]: (one["read_only"], one["problem"]) for one in found}
        assert modes == {"/data": (True, None), "/out": (False, None)}
        assert node.run("ls", "-A", "/out") == (0, "one\n")

    check_mounts()
    code, said = node.steps("--again")
    assert code == 0, said
    assert "none made changes" in said, said
    node.reboot()
    check_mounts()


def test_a_bucket_in_use_can_be_restarted(host: NodeHost, client: Client) -> None:
    """The restart that check L4 recommends works while a job holds a file, which makes the mount busy."""
    node = node_with_buckets(host, client)
    assert node.steps()[0] == 0
    node.run("bash", "-c", "exec </dev/null >/dev/null 2>&1; setsid sleep 80 >>/out/held & sleep 0.2")
    assert node.run("umount", "/out") == (32, "umount: /out: target is busy.\n")
    assert node.run("systemctl", "restart", UNIT)[0] == 0
    assert node.run("ls", "-A", "/out") == (0, "held\n")
    assert node.run("bash", "-c", "findmnt -rn -o TARGET | grep -c '^/out$'") == (0, "1\n")


def test_a_bucket_whose_process_ends_is_mounted_again(host: NodeHost, client: Client) -> None:
    """systemd starts the process again if it is killed, and leaves a bucket unmounted that someone unmounts."""
    node = node_with_buckets(host, client)
    assert node.steps()[0] == 0

    def process() -> str:
        return node.run("systemctl", "show", "-p", "MainPID", "--value", UNIT)[1].strip()

    first = process()
    assert node.run("kill", "-9", first)[0] == 0
    wait_for(
        lambda: process() not in ("0", first) and node.run("systemctl", "is-active", UNIT)[0] == 0,
        "the unit runs again",
    )
    assert node.run("mountpoint", "-q", "/out")[0] == 0
    assert node.run("umount", "/out")[0] == 0
    wait_for(lambda: node.run("systemctl", "is-active", UNIT)[1] == "inactive\n", "the unit ended")
    assert node.run("mountpoint", "-q", "/out")[0] == 1


@pytest.mark.long
def test_a_bucket_that_someone_else_mounted_is_replaced(host: NodeHost) -> None:
    """Mountpoint shows the same source for every bucket, so the step compares the process, and mounts the declared bucket."""
    node = node_with_buckets(host, CLIENTS["aws"])
    assert node.steps()[0] == 0
    assert node.run("systemctl", "stop", UNIT)[0] == 0
    assert node.run("mount-s3", "--allow-other", "other", "/out")[0] == 0
    code, said = node.steps("--again")
    assert code == 0, said
    assert "3 ran, 1 made changes" in said
    assert node.run("systemctl", "is-active", UNIT)[0] == 0


def test_a_machine_without_local_disks_has_no_cache(host: NodeHost, client: Client) -> None:
    """Without local disks, the unit has no cache options."""
    node = node_with_buckets(host, client, disks=False)
    code, said = node.steps()
    assert code == 0, said
    unit = settings_of(node, "out-0")
    assert "cache-" not in unit.replace("metadata-cache-", "").replace("writeback-cache", "")
    assert "file_cache" not in unit
    assert "--cache" not in unit
    assert "RequiresMountsFor" not in unit


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("bucket-mount-refused", "refused"),
        pytest.param("bucket-missing", "missing", marks=pytest.mark.long),
        pytest.param("bucket-unreachable", "unreachable", marks=pytest.mark.long),
    ],
)
def test_a_bucket_that_cannot_be_mounted_fails_the_step_with_the_reason(host: NodeHost, client: Client, fault: str, words: str) -> None:  # fmt: skip
    """The step fails with the message of the program, and no empty folder counts as the bucket."""
    node = node_with_buckets(host, client, fault)
    code, said = node.steps()
    assert code == 1, said
    reason = next(step["reason"] for step in node.state["steps"] if step["id"] == client.step)
    assert "mounting /data failed 4 times" in reason
    assert getattr(client, words) in reason


@pytest.mark.long
def test_mig_instances_are_created_at_every_boot(host: NodeHost) -> None:
    """Every GPU has the declared instances, and the unit creates them again after a reboot."""
    node = Machine(
        host, pool_of("azure", "Standard_ND96isr_H100_v5", "ubuntu-22.04", "default", mig=["3g.40gb", "3g.40gb"])
    )
    node.launch("azure")
    code, said, _ = node.through()
    assert code == 0, said
    assert node.state["recorded"]["mig"] == "16"
    node.reboot()
    assert node.run("bash", "-c", "nvidia-smi -L | grep -c '^ *MIG '") == (0, "16\n")
    assert node.run("systemctl", "is-active", "gpuinfra-mig.service")[1] == "active\n"
    code, said = node.steps("--again")
    assert code == 0, said
    assert "none made changes" in said, said
