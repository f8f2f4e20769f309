"""How long AWS needs to create resources, and which resources wait for which. Pure.

The figures are from public logs of the provider that this program uses, terraform-provider-aws, or from AWS. `docs/reference/time-to-nodes.md` explains the estimate.
"""

from __future__ import annotations

from gpuinfra.clouds.aws import resources as rows
from gpuinfra.clouds.timing import Duration, Timing

TIMING = Timing(
    durations={
        rows.VPC.type: Duration(
            seconds=21,
            source="median of five public logs of `terraform apply`, 12 to 22 s, such as https://github.com/turbot/steampipe-plugin-aws/pull/540 (12 s) and "
            "https://github.com/DevopsArtFactory/terraform-provisioning/pull/4 (21 s), retrieved 2026-11-26",
        ),
        rows.NAT_GATEWAY.type: Duration(
            seconds=107,
            source="median of seven public logs of `terraform apply`, 1m25s to 2m4s, such as the log of the workshop of Amazon EKS Blueprints for Terraform (1m51s), retrieved 2026-11-26",
        ),
        rows.BUCKET_LIFECYCLE.type: Duration(
            seconds=55,
            source="the provider reads the configuration until it is stable: 55 s against a server without delays, https://github.com/ministackorg/ministack/issues/306, retrieved 2026-11-26",
            at_least=True,
        ),
        rows.LUSTRE.type: Duration(
            seconds=600,
            source="about 10 minutes, https://github.com/aws-samples/aws-hpc-tutorials/pull/289; a file system of 72 TB takes about 12 minutes, "
            "https://github.com/kubernetes-sigs/aws-fsx-csi-driver/issues/382; both retrieved 2026-11-26",
        ),
        rows.DATA_REPOSITORY.type: Duration(
            seconds=None,
            source="no public figure; the time depends on the number of objects, and can exceed 10 minutes: "
            "https://github.com/aws-samples/amazon-eks-machine-learning-with-terraform-and-kubeflow/issues/112, retrieved 2026-11-26",
        ),
        rows.HOME.type: Duration(
            seconds=12,
            source="a public log of `terraform apply`, https://github.com/turbot/steampipe-plugin-aws/pull/426, retrieved 2026-11-26",
        ),
        rows.OPENZFS.type: Duration(seconds=None, source="no public figure, searched 2026-11-27"),
        rows.MOUNT_TARGET.type: Duration(
            seconds=60,
            source="a public log of `terraform apply`, which shows only the first minute of the creation, https://github.com/turbot/steampipe-plugin-aws/pull/426, retrieved 2026-11-26",
            at_least=True,
        ),
        rows.GROUP.type: Duration(
            seconds=None,
            source="launch and first boot: no public figure for machines with GPUs. A c5.xlarge runs its user data after 34 s, and machines with GPUs often take much longer: "
            "https://github.com/awslabs/amazon-eks-ami/issues/1099, retrieved 2026-11-26",
        ),
    },
    after={
        rows.NAT_GATEWAY: (rows.VPC,),
        rows.LUSTRE: (rows.VPC,),
        rows.DATA_REPOSITORY: (rows.LUSTRE, rows.BUCKET_LIFECYCLE),
        rows.MOUNT_TARGET: (rows.VPC, rows.HOME),
        rows.OPENZFS: (rows.VPC,),
        rows.GROUP: (
            rows.VPC,
            rows.NAT_GATEWAY,
            rows.BUCKET_LIFECYCLE,
            rows.LUSTRE,
            rows.DATA_REPOSITORY,
            rows.MOUNT_TARGET,
            rows.OPENZFS,
        ),
        rows.NODES_READY: (rows.GROUP,),
    },
    group=rows.GROUP,
    ready=rows.NODES_READY,
    lustre=rows.LUSTRE,
)
