"""The archive that a node downloads: its content, and that the same plan gives the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from gpuinfra import bundle
from gpuinfra.base.errors import GpuinfraError
from gpuinfra.base.shipped import shipped
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import BootstrapStep, PoolPlan
from gpuinfra.rules import load_stack

TODAY = date(2026, 11, 21)
UNITS = (
    "attest.service", "attest.timer", "bootstrap.service", "fabric.service", "notices.service", "recheck.service", "recheck.timer",
    "verify.service",
)  # fmt: skip


@pytest.fixture(scope="module")
def pool() -> PoolPlan:
    """The GPU pool of the shipped stack."""
    return build_plan(load_stack("aws-p4d", today=TODAY).spec, TODAY).pools[0]


@pytest.fixture(scope="module")
def members(pool: PoolPlan) -> dict[str, bytes]:
    """File name -> content of the shipped stack's bundle."""
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(bundle.build(pool).data))) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive.getmembers()}  # type: ignore[union-attr]


def test_it_contains_exactly_the_pools_steps(pool: PoolPlan, members: dict[str, bytes]) -> None:
    """The layout matches docs/reference/formats.md."""
    shared = {
        "lib.sh",
        "lib-downloads.sh",
        "lib-images.sh",
        "lib-lnet.sh",
        "lib-buckets.sh",
        "lib-mounts.sh",
        "lib-nccl.sh",
        "lib-packages.sh",
    }
    expected = {"versions.env", "node.pyz", "expectation.json", "steps.json"} | {f"bootstrap/{part}" for part in shared}
    expected |= {f"bootstrap/{step.id}.sh" for step in pool.steps} | {f"units/gpuinfra-{unit}" for unit in UNITS}
    assert set(members) == expected
    steps = json.loads(members["steps.json"])
    assert [s["id"] for s in steps["steps"]] == [s.id for s in pool.steps]
    assert json.loads(members["expectation.json"]) == json.loads(json.dumps(pool.expectation))


def test_pool_without_fabric_has_no_fabric_step(pool: PoolPlan) -> None:
    """A smaller pool has fewer files."""
    small = replace(pool, steps=tuple(s for s in pool.steps if s.id != "50-efa"))
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(bundle.build(small).data))) as archive:
        assert "bootstrap/50-efa.sh" not in archive.getnames()
    assert bundle.build(small).sha256 != bundle.build(pool).sha256


def test_health_unit_is_only_for_clouds_that_poll_it(pool: PoolPlan) -> None:
    """Azure's extension polls the node; on other clouds nothing listens."""
    azure = replace(pool, expectation={**pool.expectation, "cloud": "azure"})
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(bundle.build(azure).data))) as archive:
        assert "units/gpuinfra-health.service" in archive.getnames()


def test_lnet_unit_is_only_for_nodes_with_lustre_over_efa(pool: PoolPlan) -> None:
    """User data enables every unit in the bundle, so the bundle has only required units."""
    over = replace(pool, versions={**pool.versions, "LNET_EFA_DEVICES": "8"})
    for one, there in ((pool, False), (over, True)):
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(bundle.build(one).data))) as archive:
            assert ("units/gpuinfra-lnet.service" in archive.getnames()) is there


def test_metadata_unit_is_only_for_nodes_that_block_containers(pool: PoolPlan) -> None:
    """On other nodes the unit would have nothing to load."""
    guarded = replace(pool, versions={**pool.versions, "METADATA_GUARDED": "169.254.169.254"})
    for one, there in ((pool, False), (guarded, True)):
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(bundle.build(one).data))) as archive:
            assert ("units/gpuinfra-metadata.service" in archive.getnames()) is there


def test_fabric_unit_is_only_for_nodes_with_the_fabric_test(pool: PoolPlan) -> None:
    """On other nodes the unit would end at once."""
    others = [one for one in pool.expectation["required"] if one != "B8"]  # type: ignore[attr-defined]
    untested = replace(pool, expectation={**pool.expectation, "required": others})
    for one, there in ((untested, False), (pool, True)):
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(bundle.build(one).data))) as archive:
            assert ("units/gpuinfra-fabric.service" in archive.getnames()) is there


def test_same_plan_gives_the_same_bundle(pool: PoolPlan) -> None:
    """The bundle contains no time and no owner, and its files are sorted."""
    first = bundle.build(pool)
    time.sleep(0.01)
    assert bundle.build(pool) == first
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(first.data))) as archive:
        assert {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in archive.getmembers()} == {(0, 0, 0, "", "")}
        assert archive.getnames() == sorted(archive.getnames())
    assert first.data[4:8] == b"\0\0\0\0"


def test_checksum_does_not_depend_on_the_compressor(pool: PoolPlan) -> None:
    """The checksum, which is also in the bucket key and in user data, is that of the uncompressed tar archive."""
    built = bundle.build(pool)
    tar = gzip.decompress(built.data)
    assert built.sha256 == hashlib.sha256(tar).hexdigest()
    assert built.key_of("train", "gpu") == f"bootstrap/train/gpu/{built.sha256}.tar.gz"
    assert len(built.data) < 224 * 1024 < len(tar)


def test_system_tar_reads_it(pool: PoolPlan, tmp_path: Path) -> None:
    """The node unpacks with its own tar and gzip."""
    (tmp_path / "b.tar.gz").write_bytes(bundle.build(pool).data)
    subprocess.run(["tar", "-xzf", "b.tar.gz", "--no-same-owner"], cwd=tmp_path, check=True)
    assert (tmp_path / "bootstrap/30-driver.sh").stat().st_mode & 0o111


def test_zipapp_starts(members: dict[str, bytes], tmp_path: Path) -> None:
    """The zipapp runs without this checkout in its path, and prints its version."""
    (tmp_path / "node.pyz").write_bytes(members["node.pyz"])
    command = [sys.executable, "-I", "-S", str(tmp_path / "node.pyz"), "--version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert b"__pycache__" not in members["node.pyz"]


def test_zipapp_contains_the_step_runner(members: dict[str, bytes], tmp_path: Path) -> None:
    """`node.pyz steps` starts the runner, which finds its own bundle."""
    for name, content in members.items():
        (tmp_path / "bundle" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "bundle" / name).write_bytes(content)
    command = [sys.executable, "-I", "-S", str(tmp_path / "bundle/node.pyz"), "steps", "--root", str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 3
    assert "node.json (" in answer.stderr


def test_unknown_step_is_refused(pool: PoolPlan) -> None:
    """A plan with an unknown step is refused with the known ones."""
    strange = replace(pool, steps=(BootstrapStep(id="99-magic", timeout_s=1, retries=0, why=""),))
    with pytest.raises(GpuinfraError, match=r"'99-magic'.*30-driver"):
        bundle.build(strange)


@pytest.mark.parametrize(
    "value", ["a b", "$(touch /tmp/x)", "`id`", "it's", '"', "#", "", "2.28.9-1+cuda13.0", "a;b", "*"]
)
def test_versions_are_safe_to_source(value: str, tmp_path: Path) -> None:
    """Bash reads back exactly the values of the lock."""
    file = tmp_path / "versions.env"
    file.write_text(bundle.versions_env({"VALUE": value}), encoding="utf-8")
    command = ["bash", "-c", f'. {file}; printf "%s" "$VALUE"']
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == value


@pytest.mark.parametrize("versions", [{"lower": "1"}, {"A B": "1"}, {"A": "1\nB=2"}])
def test_invalid_version_variables_are_refused(versions: dict[str, str]) -> None:
    """A name or value that would become another line is refused."""
    with pytest.raises(GpuinfraError, match="versions"):
        bundle.versions_env(versions)


def test_lock_contains_every_variable_of_the_steps(pool: PoolPlan) -> None:
    """Each name in a step's `need_variables` is a key of the shipped stack's versions.env."""
    for step in pool.steps:
        text = (shipped("bootstrap") / f"{step.id}.sh").read_text(encoding="utf-8")
        for line in text.splitlines():
            words = line.strip().split()
            if words[:1] == ["need_variables"]:
                missing = [w for w in words[1:] if not pool.versions.get(w)]
                assert not missing, f"{step.id} needs {missing}"


def test_every_step_has_a_header() -> None:
    """Each step documents what it reads and proves, and does its work inside main."""
    for path in shipped("bootstrap").glob("[0-9]*.sh"):
        text = path.read_text(encoding="utf-8")
        assert "\n# Reads:" in text, path.name
        assert "\n# Proves:" in text, path.name
        assert "set -euo pipefail" in text
        assert text.endswith('\nmain "$@"\n')
        assert len(text.splitlines()) < 160, f"{path.name} is no longer one small step"


EARLY = re.compile(r"\|\s*(head|grep -[a-zA-Z]*q|grep -[a-zA-Z]*m)|awk .*\bexit\b(?! !)|sed .*[0-9/]q\b")


def test_pipes_are_not_closed_early() -> None:
    """Under pipefail a reader that stops early kills its writer with SIGPIPE, on one of a hundred nodes."""
    for path in shipped("bootstrap").rglob("*.sh"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            code = line.partition(" # ")[0]
            assert code.startswith("#") or not EARLY.search(code), f"{path.name}:{number}: {line.strip()}"


def test_units_pass_systemd_analyze() -> None:
    """systemd reports no problem with the units."""
    units = sorted(str(path) for path in (shipped("bootstrap") / "units").glob("gpuinfra-*"))
    try:
        answer = subprocess.run(
            ["systemd-analyze", "verify", "--recursive-errors=one", *units], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("systemd-analyze is not installed")
    assert (answer.returncode, answer.stderr) == (0, "")


def test_units_have_no_ordering_cycle() -> None:
    """Units after cloud-final.service do not delay multi-user.target, which that service waits for."""
    for name in ("bootstrap", "verify"):
        text = (shipped("bootstrap") / f"units/gpuinfra-{name}.service").read_text(encoding="utf-8")
        assert "cloud-final.service" in text
        assert "DefaultDependencies=no" in text
        assert "Conflicts=shutdown.target" in text
