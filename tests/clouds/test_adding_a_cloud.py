"""The cloud of `docs/internals/adding-a-cloud.md`: one folder and one line are enough to plan, price, check and build a cluster."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "internals" / "adding-a-cloud.md"
BLOCK = re.compile(r"^```python (\S+)\n(.*?)^```", re.M | re.S)

STACK = """
config:
  gpuinfra:cluster:
    name: herd
    where: {cloud: meadow, region: north}
    pools: [{name: gpu, machine: m8-h100, capacity: {kind: KIND, count: 3}}]
    storage:
      - {kind: home, mount: /home, capacity_gib: 1024}
      - {kind: lustre, mount: /scratch, capacity_gib: 4800}
      - {kind: object, mount: /data, bucket: training-data}
"""

PROGRAM = """
import json, sys
from gpuinfra.spec import parse_spec
from tests.clouds.recorder import record

def program():
    from gpuinfra import GpuCluster
    spec = parse_spec({"name": "herd", "where": {"cloud": "meadow", "region": "north"},
                       "pools": [{"name": "gpu", "machine": "m8-h100", "capacity": [{"kind": "on_demand", "count": 3}]}]})
    GpuCluster("herd", spec)

made = record(program)
print(json.dumps([[one.type, one.name, one.inputs] for one in made.custom], default=str))
clouds = [name for name in sys.modules if name.startswith(("pulumi_aws", "pulumi_azure", "pulumi_gcp"))]
assert not clouds, clouds
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of gpuinfra with the files and the line of the page."""
    place = tmp_path_factory.mktemp("meadow")
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in ("gpuinfra", "rehearsal/gpuinfra_rehearsal", "bootstrap", "engine", "plugin", "stacks"):
        shutil.copytree(ROOT / folder, place / folder, ignore=ignored)
    (place / "tests" / "clouds").mkdir(parents=True)
    for name in ("tests/__init__.py", "tests/clouds/__init__.py", "tests/clouds/recorder.py"):
        shutil.copy(ROOT / name, place / name)
    blocks = dict(BLOCK.findall(PAGE.read_text(encoding="utf-8")))
    line = blocks.pop("line")
    assert line.count("\n") == 1
    folder = Path("gpuinfra/clouds/meadow")
    stand_in = Path("rehearsal/gpuinfra_rehearsal/cloud/meadow")
    assert {Path(name).parent for name in blocks} == {folder, stand_in}
    for name, text in blocks.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text, encoding="utf-8")
    registry = place / "gpuinfra" / "base" / "registry.py"
    before = registry.read_text(encoding="utf-8")
    after = before.replace("CLOUDS = {", "CLOUDS = {\n" + line, 1)
    assert after != before
    registry.write_text(after, encoding="utf-8")
    return place


def _run(place: Path, *words: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(place), str(place / "rehearsal")))}
    return subprocess.run([sys.executable, *words], cwd=place, env=env, capture_output=True, text=True, timeout=timeout)


def _stack(place: Path, kind: str = "on_demand") -> str:
    path = place / "Pulumi.herd.yaml"
    path.write_text(STACK.replace("KIND", kind), encoding="utf-8")
    return str(path)


def test_a_second_region_is_refused_without_components(copy: Path) -> None:
    """A declaration with `recovery` is an error on a cloud that has no components for a second region."""
    path = Path(_stack(copy))
    targets = "{region: north, rpo_minutes: 60, rto_minutes: 60, checkpoint_gib: 1, checkpoint_minutes: 30}"
    path.write_text(f"{path.read_text(encoding='utf-8')}    recovery: {targets}\n", encoding="utf-8")
    done = _run(copy, "-m", "gpuinfra", "plan", str(path))
    assert done.returncode == 1, done.stdout + done.stderr
    (line,) = [one for one in (done.stdout + done.stderr).splitlines() if "error: " in one]
    assert "recovery is set, but gpuinfra does not create resources in a second region on" in line


def test_the_new_cloud_is_planned(copy: Path) -> None:
    """`gpuinfra plan` returns nodes, file systems, resources, software and steps without an SDK."""
    done = _run(copy, "-m", "gpuinfra", "plan", _stack(copy), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    plan = json.loads(done.stdout)["plan"]
    assert plan["cloud"] == "meadow"
    assert plan["resources"] == {
        "meadow:index:Network": 1,
        "meadow:index:FileSystem": 3,
        "meadow:index:Object": 1,
        "meadow:index:Group": 1,
        "gpuinfra:index:NodesReady": 1,
    }
    assert {one["mount"]: one["kind"] for one in plan["file_systems"]} == {
        "/data": "object",
        "/home": "home",
        "/scratch": "lustre",
    }
    (pool,) = plan["pools"]
    assert {"30-driver", "60-lustre", "62-home", "80-scratch"} <= {step["id"] for step in pool["steps"]}
    assert pool["versions"]["SCRATCH_MODEL"] == "Meadow NVMe Disk"
    assert pool["versions"]["HOMES"].startswith("/home tls nfsvers=4.1,hard")
    assert [one["type"] for one in plan["kept"]] == ["meadow:index:FileSystem"] * 2


def test_the_price_of_the_new_cloud_is_unknown(copy: Path) -> None:
    """A missing price is reported as unknown, and not counted."""
    cost = json.loads(_run(copy, "-m", "gpuinfra", "plan", _stack(copy), "--json").stdout)["cost"]
    assert cost["usd_per_hour"] == 0
    assert not cost["complete"]
    assert not cost["nodes_priced"]
    text = "\n".join(cost["unknown"])
    assert "m8-h100" in text
    assert "Lustre" in text


def test_capacity_that_the_new_cloud_does_not_offer_is_rejected(copy: Path) -> None:
    """The common rules apply: spot is rejected, and the message lists the allowed kinds of capacity."""
    done = _run(copy, "-m", "gpuinfra", "plan", _stack(copy, "spot"))
    assert done.returncode == 1
    assert "capacity" in done.stderr
    assert "on_demand" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_new_cloud_is_in_the_catalog_and_the_schema(copy: Path) -> None:
    """The catalog lists its machine type, and the generated schema has its region."""
    assert "m8-h100" in _run(copy, "-m", "gpuinfra", "catalog", "--cloud", "meadow").stdout
    done = _run(copy, "-c", "from gpuinfra.reference.schema import text; print(text())")
    assert "^(?:north)$" in done.stdout, done.stderr


def test_the_new_cloud_is_built(copy: Path) -> None:
    """`GpuCluster` registers its resources from the plan and loads no other cloud's SDK."""
    (copy / "program.py").write_text(PROGRAM, encoding="utf-8")
    done = _run(copy, "program.py")
    assert done.returncode == 0, done.stdout + done.stderr
    made = {name: (type_, inputs) for type_, name, inputs in json.loads(done.stdout)}
    assert made["herd-gpu-on_demand-0"][0] == "meadow:index:Group"
    assert made["herd-gpu-on_demand-0"][1]["count"] == 3
    assert made["herd-network"][1]["tags"]["gpuinfra:cluster"] == "herd"


@pytest.mark.long
def test_the_new_cloud_is_rehearsed(copy: Path) -> None:
    """Pulumi's engine creates the resources at the stand-in cloud, each node mounts the homes and the bucket, and the handover verifies all stand-in nodes."""
    stack = _stack(copy)
    done = _run(copy, "-m", "gpuinfra", "rehearse", "up", stack, "--deadline", "400s", timeout=500)
    try:
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
        assert "3 of 3 nodes" in done.stdout
        consoles = list((copy / ".rehearsal" / "herd" / "nodes").glob("node-*/console.log"))
        assert len(consoles) == 3
        for console in consoles:
            assert "/data /home accept writes" in console.read_text(encoding="utf-8", errors="replace"), console
    finally:
        _run(copy, "-m", "gpuinfra", "rehearse", "destroy", stack, timeout=300)
