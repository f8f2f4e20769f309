"""Declarations that the type checker accepts."""

from gpuinfra.spec import Aws, Azure, Block, Candidate, ClusterSpec, Flex, Gcp, Lustre, OnDemand, Pool, Reserved, Spot

block = Block(id="cr-0123456789abcdef0", count=2, starts_at="2026-12-01T11:30:00Z", ends_at="2026-12-08T11:30:00Z")
flex = Flex(count=2, max_run_hours=24)
anywhere = Pool(name="any", machine="p5.48xlarge", capacity=Spot(count=1))

on_aws = ClusterSpec(
    name="train",
    where=Aws(region="us-east-2", zone="use2-az1"),
    pools=[
        Pool(
            name="gpu",
            machine="p5.48xlarge",
            capacity=[block, Spot(count=2), Reserved(id="cr-0123456789abcdef0", count=16)],
        ),
        anywhere,
    ],
    storage=[Lustre(mount="/scratch", capacity_gib=48000, throughput_mb_s_per_tib=250)],
)
on_azure = ClusterSpec(
    name="train",
    where=Azure(region="southcentralus", zone="2"),
    pools=[Pool(name="gpu", machine="Standard_ND96amsr_A100_v4", capacity=OnDemand(count=16))],
)
on_gcp = ClusterSpec(
    name="train",
    where=Gcp(region="us-central1", zone="us-central1-a", project="my-project"),
    pools=[
        Pool(name="gpu", machine="a3-megagpu-8g", capacity=[flex], fallback=[Candidate(zone="us-central1-c")]),
        anywhere,
    ],
)
nodes: int = on_aws.nodes
region: str = on_gcp.where.region
