"""Scheduled exports of a stack that fails over, with the commands that users run and the real engine. The stack has file systems and no nodes."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.shipped import shipped
from gpuinfra_rehearsal.drill import _Drill
from gpuinfra_rehearsal.object_stores import admit
from gpuinfra_rehearsal.progress import view_for
from gpuinfra_rehearsal.session import Options, open_session

SECOND = {"azure": "eastus2", "gcp": "us-east4"}
SCHEDULE = {"azure": "azure-native:logic:Workflow", "gcp": "gcp:cloudscheduler/job:Job"}
FILE_SYSTEM = {"azure": "AmlFilesystem", "gcp": "Instance"}
RUNS, PAUSED = ("Enabled", "ENABLED"), ("Disabled", "PAUSED")


def stack_file(cloud: str, folder: Path) -> Path:
    """The shipped stack with a second region, without nodes."""
    text = (shipped("stacks") / f"Pulumi.{cloud}-recovery.yaml").read_text()
    text = re.sub(r"    pools:\n(?:      .*\n)+", "    layers: [foundation, site]\n", text)
    path = folder / "Pulumi.recovery.yaml"
    path.write_text(re.sub(r"    software:.*\n", "", text))
    return path


@pytest.mark.long
@pytest.mark.parametrize("cloud", SECOND)
def test_a_move_pauses_the_schedule_until_the_first_region_has_the_newest_files(cloud: str, tmp_path: Path) -> None:
    """A failover pauses the schedule before the final export, its abort and a failback resume it after the deployment and the import, and a deployment
    before and after the moves leaves it running. The schedule of the second region runs between the failover and the failback."""
    options = Options(stack=str(stack_file(cloud, tmp_path)), folder=tmp_path / "rehearsal", without_nodes=True)
    with open_session(options, view_for(io.StringIO())) as session:
        drill = _Drill(session, None)
        file = str(session.folder.stack_file)
        drill._up_primary()
        drill._prepare()
        admit(cloud, session.cloud.ask, [name for pair in drill.cloud.pairs(drill.resources) for name in (pair.source, pair.replica)])  # fmt: skip

        def state(*, second: bool = False) -> str:
            schedules = (one for one in session.cloud.ask("resources")["resources"] if one["type"] == SCHEDULE[cloud])
            (schedule,) = (one for one in schedules if (SECOND[cloud] in json.dumps(one)) is second)
            return str(schedule["outputs"]["state"])

        def move(*words: str, ok: bool = True) -> list[dict[str, Any]]:
            done = drill._gpuinfra(words[0], file, *words[1:], "--yes", "--json")
            document: dict[str, Any] = json.loads(done.stdout)
            assert (done.returncode == 0) is ok, (document["problem"], done.stderr[-4000:])
            return list(document["steps"])

        over = ("failover", "--to", SECOND[cloud], "--stop-first")
        assert state() in RUNS
        session.cloud.ask("faults", {"faults": [f"cloud:error:{FILE_SYSTEM[cloud]}:9"]})
        failed = {one["name"]: one for one in move(*over, ok=False)}
        assert "scheduled exports are paused" in failed["export"]["found"]
        assert state() in PAUSED
        session.cloud.ask("faults", {"faults": []})
        aborted = [one["name"] for one in move(*over[:3], "--abort")]
        assert aborted.index("abort up recovery") < aborted.index("abort schedule")
        assert state() in RUNS

        move(*over)
        assert state() in PAUSED
        assert state(second=True) in RUNS
        back = move("failback")
        assert [one["name"] for one in back][-3:] == ["up recovery", "import recovery", "schedule"]
        assert back[-1]["found"].startswith("scheduled exports resumed: ")
        assert state() in RUNS
        assert state(second=True) in PAUSED
        assert session.operate("up", "--yes", title="up").ok
        assert state() in RUNS
