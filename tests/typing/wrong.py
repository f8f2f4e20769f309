"""Declarations that the type checker rejects, each on a line marked `error`."""

from gpuinfra.spec import Aws, Azure, Block, Candidate, ClusterSpec, Flex, Gcp, OnDemand, Pool, Spot

block = Block(id="cr-0123456789abcdef0", count=2, starts_at="2026-12-01T11:30:00Z", ends_at="2026-12-08T11:30:00Z")
flex = Flex(count=2, max_run_hours=24)
aws_pool = Pool(name="gpu", machine="p5.48xlarge", capacity=[block, Spot(count=1)])
gcp_pool = Pool(name="gpu", machine="a3-megagpu-8g", capacity=flex)

Aws(region="us-east-1", zone="2")  # error: an Azure zone on AWS
Aws(region="us-central1")  # error: a Google region on AWS
Aws(region="us-east-1", zone="us-east-1a")  # error: zone letters differ between accounts
Azure(region="eastus", zone="use1-az4")  # error: an AWS zone on Azure
Gcp(region="us-central1", project=5)  # error: a project that is not a string
ClusterSpec(name="x", where=Gcp(region="us-central1"), pools=[aws_pool])  # error: a Capacity Block on Google Cloud
ClusterSpec(name="x", where=Azure(region="eastus"), pools=[aws_pool])  # error: a Capacity Block on Azure
ClusterSpec(name="x", where=Aws(region="us-east-1"), pools=[gcp_pool])  # error: flex-start on AWS
ClusterSpec(name="x", where=Azure(region="eastus"), pools=[gcp_pool])  # error: flex-start on Azure
ClusterSpec(name="x", where=Aws(region="us-east-1"), pools=[aws_pool, gcp_pool])  # error: two clouds in one
Pool(name="gpu", machine="x", capacity=[block, flex])  # error: a mix of kinds that no cloud sells
Pool(name="gpu", machine="x", capacity=Spot(count="2"))  # error: a count that is a string
Pool(name="gpu", machine="x", capacity=OnDemand(cuont=2))  # error: a misspelled field
Pool(name="gpu", machine="x")  # error: no capacity
elsewhere = [Candidate(zone="z", capacity=flex)]
Pool(name="gpu", machine="x", capacity=block, fallback=elsewhere)  # error: flex behind a block
ClusterSpec(name="x", where=Aws(region="us-east-1"), color="red")  # error: an unknown field
