"""Home directories of a stack that fails over and back, with the commands that users run and the real engine. The stack has file systems and no nodes."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.shipped import shipped
from gpuinfra.clouds.region.failover import ReplicatedHomes
from gpuinfra_rehearsal.drill import _Drill
from gpuinfra_rehearsal.object_stores import admit
from gpuinfra_rehearsal.progress import view_for
from gpuinfra_rehearsal.session import Options, open_session

SECOND = "us-west-2"


def stack_file(folder: Path) -> Path:
    """The shipped stack with a second region and replicated home directories, without nodes."""
    text = (shipped("stacks") / "Pulumi.aws-recovery.yaml").read_text()
    text = re.sub(r"    pools:\n(?:      .*\n)+", "    layers: [foundation, site]\n", text)
    text = text.replace("    budget:", "      - {kind: home}\n    budget:").replace("      mode: cold", "      homes: true\n      mode: cold")  # fmt: skip
    path = folder / "Pulumi.recovery.yaml"
    path.write_text(text)
    return path


@pytest.mark.long
def test_home_directories_move_to_the_second_region_and_back(tmp_path: Path) -> None:
    """The second region has the files of the first one and can write to them. A failback returns them, and the deployment replicates again."""
    options = Options(stack=str(stack_file(tmp_path)), folder=tmp_path / "rehearsal", without_nodes=True)
    with open_session(options, view_for(io.StringIO())) as session:
        drill = _Drill(session, None)
        file = str(session.folder.stack_file)
        drill._up_primary()
        drill._prepare()
        admit("aws", session.cloud.ask, [name for pair in drill.cloud.pairs(drill.resources) for name in (pair.source, pair.replica)])  # fmt: skip
        assert isinstance(drill.cloud, ReplicatedHomes)
        (pair,) = drill.cloud.homes(drill.resources)

        def files(system: str, **written: str) -> dict[str, str]:
            return dict(session.cloud.ask("homes", {"id": system, "write": written})["files"])

        def move(*words: str) -> dict[str, Any]:
            done = drill._gpuinfra(words[0], file, *words[1:], "--yes", "--json")
            document: dict[str, Any] = json.loads(done.stdout)
            assert done.returncode == 0, (document["problem"], done.stderr[-4000:])
            return {one["name"]: one["found"] for one in document["steps"]}

        assert files(pair.source, model="1") == files(pair.replica) == {"model": "1"}
        found = move("failover", "--to", SECOND)
        assert found["sync"] == "the replicas of the home directories have the newest files"
        assert found["homes"] == f"nodes can write to {pair.replica}"
        assert files(pair.replica, result="2") == {"model": "1", "result": "2"}
        targets = [one for one in session.cloud.ask("resources")["resources"] if one["type"] == "aws:efs/mountTarget:MountTarget"]  # fmt: skip
        assert {(one["region"], one["inputs"]["fileSystemId"]) for one in targets} == {("us-east-2", pair.source), (SECOND, pair.replica)}  # fmt: skip
        back = move("failback")
        assert back["homes"] == f"{pair.source} have the files of {SECOND}"
        assert files(pair.source, last="3") == files(pair.replica) == {"model": "1", "result": "2", "last": "3"}
        assert session.operate("up", "--yes", title="up").ok
