"""A stack on Azure moves to its second region while both regions respond, and back, with the commands that users run."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.clouds.azure.region.failover import STOPPED, account_of
from gpuinfra.clouds.azure.rest import Rest
from gpuinfra_rehearsal.applied_environment import applied
from gpuinfra_rehearsal.drill import _Drill
from gpuinfra_rehearsal.object_stores import admit, store_of
from gpuinfra_rehearsal.progress import view_for
from gpuinfra_rehearsal.session import Options, open_session

from .test_azure_drill import azure_stack


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
def test_a_stack_on_azure_fails_over_and_back(tmp_path: Path) -> None:
    """The failover replicates every blob first, the failback copies only the blobs that the second region wrote,
    and the nodes of the first region are verified."""
    options = Options(stack=str(azure_stack(tmp_path, "hot")), folder=tmp_path / "rehearsal")
    with open_session(options, view_for(io.StringIO())) as session:
        drill = _Drill(session, None)
        file = str(session.folder.stack_file)
        drill._up_primary()
        drill._prepare()
        ((source, replica),) = drill._buckets().items()
        pairs = drill.cloud.pairs(drill.resources)

        def move(*words: str) -> dict[str, Any]:
            done = drill._gpuinfra(*words, "--yes", "--json")
            document: dict[str, Any] = json.loads(done.stdout)
            assert done.returncode == 0, (document["problem"], done.stderr[-4000:])
            return {one["name"]: one["found"] for one in document["steps"]} | {"left": document.get("left")}

        with applied(session.pulumi.env):
            blobs = store_of("azure", "southcentralus")
            admit("azure", session.cloud.ask, [name for pair in pairs for name in (pair.source, pair.replica)])
            for name in ("kept", "changed"):
                blobs.put(source, name, b"first")
        over = move("failover", file, "--to", "eastus2", "--ignore", "jobs")
        assert over["fence"] == "no nodes are left in 1 group"
        assert over["drain"] == "the replicas contain every object"
        assert over["replication"] == "the replication of 2 buckets is disabled"
        assert over["replicas"] == "2 replicas detached"
        with applied(session.pulumi.env):
            for name in ("changed", "new"):
                blobs.put(replica, name, b"second")
        back = move("failback", file, "--ignore", "jobs")
        assert back["check"].endswith("2 objects (0.0 GiB) to copy")
        assert back["precopy"] == "2 objects (0.0 GiB) copied while the nodes ran"
        assert back["copy"] == "0 objects copied"
        assert back["verify recovery"] == "1 of 1 node verified"
        assert back["left"] == ["start the nodes in eastus2 again, as hot mode requires: pulumi up --refresh --stack recovery-eastus2"]  # fmt: skip
        with applied(session.pulumi.env):
            assert {name: blobs.get(source, name) for name in sorted(blobs.keys(source, ""))} == {
                "changed": b"second",
                "kept": b"first",
                "new": b"second",
            }
            # `pulumi up --refresh` replicates again and removes the tag.
            assert STOPPED not in Rest().arm(account_of(replica), "2024-01-01")["tags"]
            blobs.put(source, "later", b"first")
            assert blobs.get(replica, "later") == b"first"
