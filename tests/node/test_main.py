from __future__ import annotations

import gzip
import io
import json
import resource
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gpuinfra.bundle import node_part
from gpuinfra.node import VERSION, evidence
from tests.node.healthy import P4D
from tests.node.test_checks import ON_DEMAND
from tests.node.test_evidence import made


@pytest.fixture(scope="module")
def zipapp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The node part as the bundle carries it."""
    path = tmp_path_factory.mktemp("bundle") / "node.pyz"
    path.write_bytes(node_part())
    return path


def call(zipapp: Path, *args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run it as a node does: isolated from this checkout."""
    command = [sys.executable, "-I", str(zipapp), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=cwd or zipapp.parent, check=False)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """An expectation and evidence of a healthy node."""
    expectation, document = tmp_path / "expectation.json", tmp_path / "evidence.json"
    expectation.write_text(json.dumps(P4D))
    document.write_bytes(evidence.dumped(made()))
    return expectation, document


def test_it_is_small() -> None:
    """The compressed zipapp stays under 100 KB: each node fetches it."""
    assert len(gzip.compress(node_part())) < 100_000


def test_it_starts_at_once(zipapp: Path) -> None:
    """A prolog waits for it: less than 0.2 s of processor time from start to answer, on a machine of today well less."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert call(zipapp, "--version").returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.2


def test_the_zipapp_contains_the_source_files() -> None:
    """Each file of the zipapp equals its source file."""
    with zipfile.ZipFile(io.BytesIO(node_part())) as part:
        for name in part.namelist():
            if name.startswith("gpuinfra/node/"):
                source = (Path(__file__).parents[2] / name).read_bytes()
                assert part.read(name) == source, name


def test_a_healthy_node_exits_with_0_and_json(zipapp: Path, files: tuple[Path, Path]) -> None:
    """Outcomes are JSON on stdout, and 0 tells a scheduler that the node is verified."""
    done = call(zipapp, "verify", "--evidence", str(files[1]), "--expectation", str(files[0]))
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    assert (said["schema"], said["verified"], said["not_checked"]) == ("gpuinfra.verify/1", True, ON_DEMAND)
    assert len(said["checks"]) == len(P4D["required"]) + 2


def test_a_broken_node_exits_with_1_and_says_what_to_do(zipapp: Path, files: tuple[Path, Path]) -> None:
    """One line on stderr for each thing that stands in the way, with check, reason and hint."""
    document = json.loads(files[1].read_bytes())
    document["probes"]["persistenced"].update(stdout="inactive\n", exit=3)
    document["probes"]["nvlink-status"]["stdout"] = document["probes"]["nvlink-status"]["stdout"].replace(
        "Link 4: 25 GB/s", "Link 4: <inactive>", 1
    )
    files[1].write_text(json.dumps(document))
    done = call(zipapp, "verify", "--evidence", str(files[1]), "--expectation", str(files[0]))
    assert done.returncode == 1
    assert done.stderr.splitlines() == [line for line in done.stderr.splitlines() if line.startswith("gpuinfra: F3 ")]
    assert "GPU 0: 11 of 12 links are up" in done.stderr
    assert json.loads(done.stdout)["verified"] is False


def test_one_phase_can_be_asked_for(zipapp: Path, files: tuple[Path, Path]) -> None:
    """A prolog that only wants presence gets an answer about presence."""
    done = call(zipapp, "verify", "--phase", "presence", "--evidence", str(files[1]), "--expectation", str(files[0]))
    said = json.loads(done.stdout)
    assert (done.returncode, {check["phase"] for check in said["checks"]}) == (0, {"presence"})


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        ((), 2, "required"),
        (("frobnicate",), 2, "invalid choice"),
        (("verify", "--phase", "never"), 2, "invalid choice"),
        (("explain", "Z9"), 2, "unknown check Z9"),
        (("verify", "--expectation", "/nonexistent"), 3, "start gpuinfra-bootstrap"),
        (("attest",), 3, "node.json"),
    ],
)
def test_wrong_use_and_a_missing_environment_are_told_apart(
    zipapp: Path, args: tuple[str, ...], code: int, words: str
) -> None:
    """2 is the caller's mistake, 3 the machine's; neither prints a traceback."""
    done = call(zipapp, *args)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("text", ["{", "[]", '{"required": []}', '{"required": ["P1"], "skips": {"F2": ""}}'])
def test_a_broken_expectation_is_told(zipapp: Path, tmp_path: Path, text: str) -> None:
    """An expectation that cannot be read or asks for nothing is the environment's fault, and never a verified node."""
    path = tmp_path / "expectation.json"
    path.write_text(text)
    done = call(zipapp, "verify", "--expectation", str(path))
    assert done.returncode == 3
    assert "Traceback" not in done.stderr


def test_a_check_is_explained(zipapp: Path) -> None:
    """What it proves, with which commands, and what to do: by id or by name."""
    said = json.loads(call(zipapp, "explain", "ecc_errors").stdout)
    assert said == json.loads(call(zipapp, "explain", "g5").stdout)
    assert said["id"] == "G5"
    assert said["severity"] == "drain"
    assert said["commands"][0].startswith("nvidia-smi --query-gpu=")
    assert said["proves"]
    assert said["when_it_fails"]


def test_it_says_its_version(zipapp: Path) -> None:
    """The version is the one of the package."""
    assert call(zipapp, "--version").stdout == f"gpuinfra node code {VERSION}\n"


def test_verifying_this_machine_never_passes_without_gpus(zipapp: Path, files: tuple[Path, Path]) -> None:
    """Run for real on a machine that is no GPU node, it answers, blocks and leaves no traceback."""
    done = call(zipapp, "verify", "--phase", "presence", "--expectation", str(files[0]))
    said = json.loads(done.stdout)
    outcomes = {check["id"]: check["outcome"] for check in said["checks"]}
    assert done.returncode == 1
    assert outcomes["G1"] in ("fail", "error")
    assert "Traceback" not in done.stderr


def test_more_can_be_asked_for_than_the_machine_requires(zipapp: Path, files: tuple[Path, Path]) -> None:
    """Checks that measure run on demand; without their answer the node is not verified."""
    args = ("verify", "--evidence", str(files[1]), "--expectation", str(files[0]))
    done = call(zipapp, *args, "--also", "B2")
    said = json.loads(done.stdout)
    assert (done.returncode, {c["id"]: c["outcome"] for c in said["checks"]}["B2"]) == (1, "error")
    assert call(zipapp, *args, "--also", "Z9").returncode == 2


def test_watching_tells_what_changed(zipapp: Path, files: tuple[Path, Path]) -> None:
    """Each round is one line of JSON: the first names every outcome, the next only what is different."""
    command = [sys.executable, "-I", str(zipapp), "verify", "--watch", "1", "--phase", "presence", "--expectation"]
    with subprocess.Popen(
        [*command, str(files[0])], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        first, second = json.loads(process.stdout.readline()), json.loads(process.stdout.readline())
        process.terminate()
    assert (first["schema"], first["verified"]) == ("gpuinfra.watch/1", False)
    assert "G1" in first["changed"]
    assert second["changed"] == {}
    assert call(zipapp, "verify", "--watch", "0", "--expectation", str(files[0])).returncode == 2
    assert call(zipapp, "verify", "--watch", "1", "--also", "Z9", "--expectation", str(files[0])).returncode == 2


def test_watching_one_phase_can_end_well(zipapp: Path, tmp_path: Path) -> None:
    """A round of one phase judges that phase: what is asked in the others does not hold the node back."""
    record = {**P4D, "required": ["P3", "B2"], "skips": {}, "root_free_gib": 0}
    (tmp_path / "expectation.json").write_text(json.dumps(record))
    command = [sys.executable, "-I", str(zipapp), "verify", "--watch", "1", "--phase", "presence", "--expectation"]
    with subprocess.Popen(
        [*command, str(tmp_path / "expectation.json")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = json.loads(process.stdout.readline())
        process.terminate()
    assert (line["changed"], line["verified"]) == ({"P3": "pass"}, True)
