from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.bundle import node_program
from gpuinfra.node.judge import judge
from gpuinfra.node.nccl import devices_of, network_lines, network_of
from gpuinfra.node.outcome import CheckResult
from gpuinfra.node.probe import run
from gpuinfra.node.probes import PROBES, Probe
from tests.node.healthy import P4D, record
from tests.typed import present

HERE = Path(__file__).parent
FLOORS = [{"check": "B2", "what": "all-reduce", "at_least": 0.000001, "unit": "GB/s"}]
SMALL = ("nccl", "--gib", "0.001", "--rounds", "2")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """libnccl and libcudart as one small library that verifies every call, and the zipapp that calls it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("a C compiler is not installed")
    folder = tmp_path_factory.mktemp("nccl")
    built = folder / "libfake.so"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(built), str(HERE / "fake_nccl.c")]
    subprocess.run([compiler, *flags], check=True, capture_output=True, timeout=300)
    for name in ("libnccl.so.2", "libcudart.so.13"):
        (folder / name).symlink_to(built.name)
    (folder / "node.pyz").write_bytes(node_program())
    return folder


def test_a_broken_library_is_not_called_missing(libraries: Path, tmp_path: Path) -> None:
    """A library that exists but cannot be loaded is named with the dynamic linker's reason; only a missing one is not installed."""
    shutil.copy(libraries / "node.pyz", tmp_path)
    done = call(tmp_path)
    assert "NCCL is not installed: none of libnccl.so.2 can be loaded" in done.stderr
    broken = tmp_path / "libnccl.so.2"
    broken.write_text("not a library\n" * 100)
    done = call(tmp_path)
    assert f"NCCL is installed but cannot be loaded: {broken}: invalid ELF header" in done.stderr


def call(libraries: Path, *args: str, timeout: int = 300, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the node's all-reduce on the library."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries), **environ}
    command = [sys.executable, str(libraries / "node.pyz"), *(args or SMALL)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)


def judged(stdout: str, expectation: dict[str, Any] | None = None) -> dict[str, CheckResult]:
    """The outcomes of B2 and B4 for this output."""
    machine = {**P4D, "required": ["B2", "B4"], "skips": {}, "floors": FLOORS, **(expectation or {})}
    one = record(["python3", "nccl"], stdout)
    return {check["id"]: check for check in judge({"nccl": one, "nccl-network": one}, machine)}


@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_sum_over_all_gpus_is_correct_and_measured(libraries: Path, gpus: int) -> None:
    """Every call has the arguments that the real libraries require; the result has bandwidth and ranks."""
    done = call(libraries, FAKE_GPUS=str(gpus))
    assert (done.returncode, done.stderr) == (0, "")
    output = json.loads(done.stdout)
    assert (output["ranks"], output["wrong"], output["nccl"]) == (gpus, 0, 22707)
    assert output["network"] == ["AWS Libfabric"]
    assert output["busbw_gb_s"] == pytest.approx(output["algbw_gb_s"] * 2 * (gpus - 1) / gpus)


def test_healthy_result_passes_and_slow_result_fails(libraries: Path) -> None:
    """The bandwidth is compared with the machine's floor, and the plugin with the machine's fabric."""
    stdout = call(libraries).stdout
    assert {name: check["outcome"] for name, check in judged(stdout).items()} == {"B2": "pass", "B4": "pass"}
    slow = judged(stdout, {"floors": [{"check": "B2", "at_least": 228.0}]})["B2"]
    assert slow["outcome"] == "fail"
    assert "a healthy machine reaches 228 GB/s" in present(slow["reason"])


def test_wrong_sum_fails_at_any_speed(libraries: Path) -> None:
    """One wrong byte at the end of the last GPU's buffer is detected."""
    found = judged(call(libraries, FAKE_WRONG="1").stdout)["B2"]
    assert (found["outcome"], found["found"]) == ("fail", 1)
    assert "computes wrong results" in found["hint"]


def test_sockets_never_pass(libraries: Path) -> None:
    """A job over sockets runs at a twentieth of the speed; the plugin must be the fabric's."""
    found = judged(call(libraries, FAKE_NETWORK="Socket").stdout)["B4"]
    assert (found["outcome"], found["found"]) == ("fail", ["Socket"])
    assert judged(call(libraries, FAKE_NETWORK="").stdout)["B4"]["outcome"] == "error"


def test_built_in_network_is_not_googles_plugin(libraries: Path) -> None:
    """NCCL's own IB runs over Google's RoCE devices without gIB, so it fails on gIB machines and passes on InfiniBand."""
    output = call(libraries, FAKE_NETWORK="IB").stdout
    found = judged(output, {"fabric_provider": "gib"})["B4"]
    assert (found["outcome"], found["found"], found["expected"]) == ("fail", ["IB"], ["gIB"])
    assert judged(output, {"fabric_provider": "infiniband"})["B4"]["outcome"] == "pass"
    output = call(libraries, FAKE_NETWORK="gIB").stdout
    assert judged(output, {"fabric_provider": "gib"})["B4"]["outcome"] == "pass"


def test_fewer_gpus_than_the_machine_has_fail(libraries: Path) -> None:
    """Seven fast GPUs fail on an eight-GPU machine."""
    assert "7 of 8 GPUs" in present(judged(call(libraries, FAKE_GPUS="7").stdout)["B2"]["reason"])


@pytest.mark.parametrize(
    "order",
    [
        "cudaGetDeviceCount:1", "cudaMalloc:1", "cudaMalloc:7", "cudaStreamCreate:3", "cudaStreamSynchronize:2", "cudaMemcpy:1",
        "ncclGetUniqueId:1", "ncclCommInitRank:1", "ncclCommInitRank:5", "ncclAllReduce:1", "ncclAllReduce:20", "ncclGroupEnd:1",
        "ncclGroupEnd:3",
    ],
)  # fmt: skip
def test_error_of_any_call_is_reported_and_resources_are_freed(libraries: Path, order: str) -> None:
    """The message names the call and the library's reason; memory and communicators are freed."""
    done = call(libraries, FAKE_FAIL=order)
    assert done.returncode == 3
    assert f"gpuinfra: {order.split(':')[0]} failed: " in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert {check["outcome"] for check in judged(done.stdout).values()} == {"error"}


def test_asynchronous_error_is_reported(libraries: Path) -> None:
    """NCCL reports some errors only on request, so they are checked after each wait."""
    done = call(libraries, FAKE_ASYNC="1")
    assert done.returncode == 3
    assert "rank 0 reported an asynchronous error" in done.stderr


def test_hanging_collective_is_ended_with_its_process(libraries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe's time limit also ends a hanging network call, and the check ends in error."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(libraries))
    monkeypatch.setenv("FAKE_HANG", "1")
    command = (sys.executable, str(libraries / "node.pyz"), *SMALL)
    answer = run(command, Probe(command, timeout_s=3))
    assert answer["problem"] == "timed out after 3 s"
    machine = {**P4D, "required": ["B2"], "skips": {}, "floors": FLOORS}
    assert judge({"nccl": answer}, machine)[0]["outcome"] == "error"


def test_missing_libraries_are_reported(libraries: Path) -> None:
    """On a node without NCCL the message lists the names that were tried."""
    environment = {**os.environ, "LD_LIBRARY_PATH": "/nonexistent"}
    command = [sys.executable, str(libraries / "node.pyz"), *SMALL]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode == 0:
        pytest.skip("this machine has NCCL and GPUs")
    assert done.returncode == 3
    assert "is not installed" in done.stderr or "sees no GPU" in done.stderr or "failed" in done.stderr


@pytest.mark.parametrize(
    "args", [("nccl", "--gib", "0"), ("nccl", "--gib", "nan"), ("nccl", "--rounds", "0"), ("nccl", "--gib", "x")]
)
def test_impossible_sizes_are_usage_errors(libraries: Path, args: tuple[str, ...]) -> None:
    """Nothing is allocated for an invalid size."""
    assert call(libraries, *args).returncode == 2


def test_probe_runs_this_program() -> None:
    """The probe contains no path, so it works from the zipapp and from a checkout."""
    answer = run((*PROBES["nccl"].argv, "--gib", "0"), PROBES["nccl"])
    assert answer["exit"] == 2
    assert answer["argv"][0] == sys.executable


@pytest.mark.parametrize(
    ("log", "names"),
    [
        ("ip-1:5:5 [0] NCCL INFO Using network AWS Libfabric\n", ["AWS Libfabric"]),
        (
            "h:1:1 [3] NCCL INFO [3] Using network IBext_v9\nh:1:1 [0] NCCL INFO Using network Socket\n",
            ["IBext_v9", "Socket"],
        ),
        ("NET/Plugin: Using network lines without the prefix\n", []),
        ("", []),
    ],
)
def test_network_is_read_from_nccls_log(log: str, names: list[str]) -> None:
    """All names in the log count, so one rank on sockets is visible among seven on the fabric."""
    assert network_of(log) == names


AZURE_PORTS = "".join(f"[{at}]mlx5_ib{at}:1/IB " for at in range(8)) + "[8]mlx5_an0:1/RoCE"


@pytest.mark.parametrize(
    ("log", "devices"),
    [
        ("h:1:1 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)\n", {"efa": 32}),
        (
            "".join(f"h:1:1 [{n}] NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found {n} nics)\n" for n in (4, 3)),
            {"efa": 3},
        ),
        (f"h:1:1 [5] NCCL INFO NET/IB : Using {AZURE_PORTS} [RO]; OOB eth0:10.0.0.4<0>\n", {"IB": 8, "RoCE": 1}),
        ("h:1:1 [0] NCCL INFO NET/IB: Using [0]mlx5_0:1/IB/SHARP [1]mlx5_1:1/IB/SHARP [RO]; OOB e:1<0>\n", {"IB": 2, "RoCE": 0}),
        ("h:1:1 [0] NCCL INFO NET/IB : Using [RO]; OOB eth0:165.245.165.177<0>\n", {}),
        ("h:1:1 [0] NCCL INFO NET/gIB : Initializing gIB v1.0.2\n", {}),
    ],
)  # fmt: skip
def test_devices_of_the_plugin_are_counted(log: str, devices: dict[str, int]) -> None:
    """The lines are written in the shape of public logs: p5 and p4d with aws-ofi-nccl, Azure with eight InfiniBand ports, H200 with the plugin v11."""
    assert devices_of(log) == devices


def test_lines_about_the_network_have_no_prefix_and_no_repetition() -> None:
    """Each rank prints the same lines; one of each explains the choice, and other lines of the log are left out."""
    log = "".join(
        f"h:1:{rank} [{rank}] NCCL INFO {text}\n"
        for rank in range(8)
        for text in ("cudaDriverVersion 13000", "NET/Plugin: Could not find: libnccl-net.so", "Using network Socket")
    )
    assert network_lines(log) == ["NET/Plugin: Could not find: libnccl-net.so", "Using network Socket"]


def test_a_communicator_without_a_network_reports_the_reason(libraries: Path) -> None:
    """If NCCL creates no communicator, the message has the lines of its log, because the error code has no reason."""
    done = call(libraries, FAKE_FAIL="ncclGroupEnd:1", FAKE_NETWORK="Socket")
    assert "ncclGroupEnd failed: unhandled system error (2); Using network Socket" in done.stderr


def test_host_copies_are_judged_per_gpu() -> None:
    """The slowest GPU of nvbandwidth decides, in both directions."""
    machine = {**P4D, "required": ["B5"], "skips": {}, "floors": [{"check": "B5", "at_least": 21}]}

    def of(*rates: float, status: str = "Passed") -> CheckResult:
        cases = [
            {"name": name, "status": status, "bandwidth_matrix": [[f"{rate:.2f}" for rate in rates]]}
            for name in ("host_to_device_memcpy_ce", "device_to_host_memcpy_ce")
        ]
        text = json.dumps({"nvbandwidth": {"testcases": cases}})
        return judge({"nvbandwidth": record(["nvbandwidth", "-j"], text)}, machine)[0]

    assert of(*[24.1] * 8)["outcome"] == "pass"
    slow = of(*[24.1] * 7, 11.9)
    assert slow["outcome"] == "fail"
    assert "GPU 7: host_to_device: 11.9 GB/s" in present(slow["reason"])
    assert of(*[24.1] * 7)["outcome"] == "fail"
    assert of(*[24.1] * 8, status="Error")["outcome"] == "error"


def test_all_gather_is_verified_by_rank(libraries: Path, tmp_path: Path) -> None:
    """An all-gather has the size and the collective of the machine's floor, its own bus bandwidth, and each rank's data in its place."""
    record_ = tmp_path / "expectation.json"
    floor = {"check": "B2", "what": "x", "at_least": 0.001, "unit": "GB/s", "gib": 0.001, "collective": "all-gather"}
    record_.write_text(json.dumps({"floors": [floor]}))
    args = ("nccl", "--rounds", "2", "--expectation", str(record_))
    done = call(libraries, *args)
    assert (done.returncode, done.stderr) == (0, "")
    output = json.loads(done.stdout)
    assert (output["collective"], output["wrong"], output["bytes"] // 2**20) == ("all-gather", 0, 1)
    assert output["busbw_gb_s"] == pytest.approx(output["algbw_gb_s"] * 7 / 8)
    assert judged(done.stdout, {"floors": [floor]})["B2"]["outcome"] == "pass"
    assert json.loads(call(libraries, *args, FAKE_WRONG="1").stdout)["wrong"] == 1
    for wrong in ({"gib": 16}, {"collective": "all-reduce"}):
        found = judged(done.stdout, {"floors": [{**floor, **wrong}]})["B2"]
        assert (found["outcome"], "the floor is for an" in (found["reason"] or "")) == ("error", True)
