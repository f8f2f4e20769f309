"""Measures the `drain` step of a failover on Google Cloud against a service that answers after 20 ms: `python bench/drain.py [LATENCY_S] [OBJECTS]`.

The floor is the time of the pages of both lists, which are read one after another. The objects are encrypted with a customer-managed key, so the lists
contain no checksums. Without the time of the source in each copy, both checksums of each object are read.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

LATENCY_S = float(sys.argv[1]) if len(sys.argv) > 1 else 0.02
OBJECTS = int(sys.argv[2]) if len(sys.argv) > 2 else 20_000
PAGE = 1000
"""Objects in a page (https://cloud.google.com/storage/docs/json_api/v1/objects/list, retrieved 2026-11-29)."""
CREATED = "2026-11-29T01:00:00.123Z"
SOURCE, REPLICA = "first", "second"


class Service:
    """Cloud Storage with two equal buckets. `times`: the copies have the time of their source."""

    def __init__(self, *, times: bool) -> None:
        self.times, self.lists, self.gets = times, 0, 0

    def json(
        self,
        method: str,
        url: str,
        parameters: Mapping[str, str] | None = None,
        body: Mapping[str, object] | None = None,
    ) -> dict[str, Any]:
        """Answer a list of a bucket, or the description of an object."""
        time.sleep(LATENCY_S)
        bucket, _, name = url.partition("/b/")[2].partition("/o")
        if name:
            self.gets += 1
            return {"name": name[1:], "generation": "1", "size": "7", "crc32c": "AAAA=="}
        self.lists += 1
        start = int((parameters or {}).get("pageToken", "0"))
        custom = {"customTime": CREATED} if self.times and bucket == REPLICA else {}
        rows = [
            {"name": f"{number:08}", "generation": "1", "size": "7", "timeCreated": CREATED, **custom}
            for number in range(start, min(start + PAGE, OBJECTS))
        ]
        return {"items": rows, **({"nextPageToken": str(start + PAGE)} if start + PAGE < OBJECTS else {})}


def main() -> None:
    """Print the figures."""
    from gpuinfra.clouds.gcp.api import Api
    from gpuinfra.clouds.gcp.region.failover import GcpFailover
    from gpuinfra.clouds.region.failover import BucketPair

    pair = BucketPair(source=SOURCE, replica=REPLICA, job="project/transferJobs/1")
    floor = 2 * -(-OBJECTS // PAGE) * LATENCY_S
    print(f"{OBJECTS} objects, {LATENCY_S * 1000:g} ms for each request; floor: {floor:.2f} s")
    for title, times in (("with the time of the source", True), ("without it", False)):
        service = Service(times=times)
        begun = time.perf_counter()
        missing = GcpFailover(Api(service)).not_replicated(pair)
        seconds = time.perf_counter() - begun
        assert missing == []
        print(f"  {title}: {seconds:.2f} s, {service.lists} pages, {service.gets} descriptions")


if __name__ == "__main__":
    main()
