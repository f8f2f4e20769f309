"""An A3 Mega cluster with Lustre, bought in any of the three ways that Google Cloud sells it."""

from gpuinfra.spec import Budget, ClusterSpec, Flex, Gcp, Lustre, Pool, Reserved, Software, Spot

WAYS = {
    "reserved": Reserved(id="train-reservation", count=8),
    "spot": Spot(count=8),
    "flex": Flex(count=8, max_run_hours=72),
}


def a3mega(way: str) -> ClusterSpec[Gcp]:
    """The cluster, bought in one way."""
    return ClusterSpec(
        name="train",
        where=Gcp(region="us-central1", zone="us-central1-a"),
        pools=[Pool(name="gpu", machine="a3-megagpu-8g", capacity=WAYS[way])],
        storage=[Lustre(mount="/scratch", capacity_gib=36000, throughput_mb_s_per_tib=500, bucket="auto")],
        software=Software(registry="us-central1-docker.pkg.dev/my-project/gpudirect"),
        budget=Budget(limit_usd_per_month=500_000.0, recipients=("ops@example.com",)),
    )
