"""An A3 Mega cluster with Lustre, with each kind of capacity that Google Cloud sells for it."""

from gpuinfra.spec import BudgetSpec, ClusterSpec, Flex, Gcp, Lustre, Pool, Reserved, Software, Spot

CAPACITY = {
    "reserved": Reserved(id="train-reservation", count=8),
    "spot": Spot(count=8),
    "flex": Flex(count=8, max_run_hours=72),
}


def a3mega(kind: str) -> ClusterSpec[Gcp]:
    """The cluster with one kind of capacity."""
    return ClusterSpec(
        name="train",
        where=Gcp(region="us-central1", zone="us-central1-a"),
        pools=[Pool(name="gpu", machine="a3-megagpu-8g", capacity=CAPACITY[kind])],
        storage=[Lustre(mount="/scratch", capacity_gib=36000, throughput_mb_s_per_tib=500, bucket="auto")],
        software=Software(registry="us-central1-docker.pkg.dev/my-project/gpudirect"),
        budget=BudgetSpec(limit_usd_per_month=500_000.0, recipients=("ops@example.com",)),
    )
