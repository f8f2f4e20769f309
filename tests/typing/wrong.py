"""Declarations that a type checker refuses, each on a line marked `refused`."""

from gpuinfra.spec import Aws, Azure, Block, Candidate, ClusterSpec, Flex, Gcp, OnDemand, Pool, Spot

block = Block(id="cr-0123456789abcdef0", count=2, starts_at="2026-12-01T11:30:00Z", ends_at="2026-12-08T11:30:00Z")
flex = Flex(count=2, max_run_hours=24)
aws_pool = Pool(name="gpu", machine="p5.48xlarge", capacity=[block, Spot(count=1)])
gcp_pool = Pool(name="gpu", machine="a3-megagpu-8g", capacity=flex)

Aws(region="us-east-1", zone="2")  # refused: an Azure zone on AWS
Aws(region="us-central1")  # refused: a Google region on AWS
Aws(region="us-east-1", zone="us-east-1a")  # refused: a zone's letter differs between accounts
Azure(region="eastus", zone="use1-az4")  # refused: an AWS zone on Azure
Gcp(region="us-central1", project=5)  # refused: a project that is no text
ClusterSpec(name="x", where=Gcp(region="us-central1"), pools=[aws_pool])  # refused: a Capacity Block on Google Cloud
ClusterSpec(name="x", where=Azure(region="eastus"), pools=[aws_pool])  # refused: a Capacity Block on Azure
ClusterSpec(name="x", where=Aws(region="us-east-1"), pools=[gcp_pool])  # refused: flex-start on AWS
ClusterSpec(name="x", where=Azure(region="eastus"), pools=[gcp_pool])  # refused: flex-start on Azure
ClusterSpec(name="x", where=Aws(region="us-east-1"), pools=[aws_pool, gcp_pool])  # refused: two clouds in one
Pool(name="gpu", machine="x", capacity=[block, flex])  # refused: a mix that no cloud sells
Pool(name="gpu", machine="x", capacity=Spot(count="2"))  # refused: a count that is a text
Pool(name="gpu", machine="x", capacity=OnDemand(cuont=2))  # refused: a misspelt field
Pool(name="gpu", machine="x")  # refused: no capacity
elsewhere = [Candidate(zone="z", capacity=flex)]
Pool(name="gpu", machine="x", capacity=block, fallback=elsewhere)  # refused: flex behind a block
ClusterSpec(name="x", where=Aws(region="us-east-1"), colour="red")  # refused: an unknown field
