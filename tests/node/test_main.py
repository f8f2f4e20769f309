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

from gpuinfra.bundle import node_program
from gpuinfra.node import VERSION, evidence
from gpuinfra.node.judge import not_checked
from tests.node.healthy import P4D
from tests.node.test_evidence import made


@pytest.fixture(scope="module")
def zipapp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zipapp as the bundle contains it."""
    path = tmp_path_factory.mktemp("bundle") / "node.pyz"
    path.write_bytes(node_program())
    return path


def call(zipapp: Path, *args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run it as a node does, isolated from this checkout."""
    command = [sys.executable, "-I", str(zipapp), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=cwd or zipapp.parent, check=False)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """An expectation and evidence of a healthy node."""
    expectation, document = tmp_path / "expectation.json", tmp_path / "evidence.json"
    expectation.write_text(json.dumps(P4D))
    document.write_bytes(evidence.dumped(made()))
    return expectation, document


def test_it_is_small() -> None:
    """The compressed zipapp stays under 190 KB, because each node downloads it."""
    assert len(gzip.compress(node_program())) < 190_000


def test_it_starts_fast(zipapp: Path) -> None:
    """It needs less than 0.2 s of processor time, because a prolog waits for it."""
    needed = []
    for _ in range(20):  # a busy machine also takes more processor time for the same work
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert call(zipapp, "--version").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        needed.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if needed[-1] < 0.2:
            break
    assert min(needed) < 0.2


def test_the_zipapp_contains_the_source_files() -> None:
    """Each file of the zipapp equals its source file."""
    with zipfile.ZipFile(io.BytesIO(node_program())) as part:
        for name in part.namelist():
            if name.startswith("gpuinfra/node/"):
                source = (Path(__file__).parents[2] / name).read_bytes()
                assert part.read(name) == source, name


def test_healthy_node_exits_with_0_and_json(zipapp: Path, files: tuple[Path, Path]) -> None:
    """Outcomes are JSON on stdout, and 0 tells a scheduler that the node is verified."""
    done = call(zipapp, "verify", "--evidence", str(files[1]), "--expectation", str(files[0]))
    assert (done.returncode, done.stderr) == (0, "")
    output = json.loads(done.stdout)
    assert (output["schema"], output["verified"], output["not_checked"]) == (
        "gpuinfra.verify/1",
        True,
        not_checked(P4D),
    )
    assert len(output["checks"]) == len(P4D["required"]) + 2


def test_broken_node_exits_with_1_and_hints(zipapp: Path, files: tuple[Path, Path]) -> None:
    """Stderr has one line per blocking check, with check, reason and hint."""
    document = json.loads(files[1].read_bytes())
    table = document["probes"]["nvidia-smi-csv"]
    table["stdout"] = table["stdout"].replace("valid, Enabled", "valid, Disabled", 1)
    document["probes"]["nvlink-status"]["stdout"] = document["probes"]["nvlink-status"]["stdout"].replace(
        "Link 4: 25 GB/s", "Link 4: <inactive>", 1
    )
    files[1].write_text(json.dumps(document))
    done = call(zipapp, "verify", "--evidence", str(files[1]), "--expectation", str(files[0]))
    assert done.returncode == 1
    assert done.stderr.splitlines() == [line for line in done.stderr.splitlines() if line.startswith("gpuinfra: F3 ")]
    assert "GPU 0: 11 of 12 links are up" in done.stderr
    assert json.loads(done.stdout)["verified"] is False


def test_one_phase_can_be_requested(zipapp: Path, files: tuple[Path, Path]) -> None:
    """`--phase presence` judges only that phase."""
    done = call(zipapp, "verify", "--phase", "presence", "--evidence", str(files[1]), "--expectation", str(files[0]))
    output = json.loads(done.stdout)
    assert (done.returncode, {check["phase"] for check in output["checks"]}) == (0, {"presence"})


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
def test_usage_errors_and_missing_prerequisites_differ(
    zipapp: Path, args: tuple[str, ...], code: int, words: str
) -> None:
    """Exit code 2 is a usage error, 3 a missing prerequisite; neither prints a traceback."""
    done = call(zipapp, *args)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("text", ["{", "[]", '{"required": []}', '{"required": ["P1"], "skips": {"F2": ""}}'])
def test_broken_expectation_is_reported(zipapp: Path, tmp_path: Path, text: str) -> None:
    """An unreadable or empty expectation is a missing prerequisite, never a verified node."""
    path = tmp_path / "expectation.json"
    path.write_text(text)
    done = call(zipapp, "verify", "--expectation", str(path))
    assert done.returncode == 3
    assert "Traceback" not in done.stderr


def test_explain_shows_a_check(zipapp: Path) -> None:
    """It prints what the check proves, its commands, and what to do, by id or by name."""
    output = json.loads(call(zipapp, "explain", "ecc_errors").stdout)
    assert output == json.loads(call(zipapp, "explain", "g5").stdout)
    assert output["id"] == "G5"
    assert output["severity"] == "drain"
    assert output["commands"][0].startswith("nvidia-smi --query-gpu=")
    assert output["proves"]
    assert output["when_it_fails"]


def test_version_is_printed(zipapp: Path) -> None:
    """The version is the one of the package."""
    assert call(zipapp, "--version").stdout == f"gpuinfra node program {VERSION}\n"


def test_this_machine_without_gpus_never_passes(zipapp: Path, files: tuple[Path, Path]) -> None:
    """On a machine without GPUs the real command exits with a verdict and without a traceback."""
    done = call(zipapp, "verify", "--phase", "presence", "--expectation", str(files[0]))
    output = json.loads(done.stdout)
    outcomes = {check["id"]: check["outcome"] for check in output["checks"]}
    assert done.returncode == 1
    assert outcomes["G1"] in ("fail", "error")
    assert "Traceback" not in done.stderr


def test_extra_checks_can_be_requested(zipapp: Path, files: tuple[Path, Path]) -> None:
    """Measurements run on request; without their output the node is not verified."""
    args = ("verify", "--evidence", str(files[1]), "--expectation", str(files[0]))
    done = call(zipapp, *args, "--also", "B2")
    output = json.loads(done.stdout)
    assert (done.returncode, {c["id"]: c["outcome"] for c in output["checks"]}["B2"]) == (1, "error")
    assert call(zipapp, *args, "--also", "Z9").returncode == 2


def test_watch_prints_changes(zipapp: Path, files: tuple[Path, Path]) -> None:
    """Each round is one line of JSON: the first lists all outcomes, later ones only changes."""
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


def test_watch_of_one_phase_can_pass(zipapp: Path, tmp_path: Path) -> None:
    """A round of one phase judges that phase only."""
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
