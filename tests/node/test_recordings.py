from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpuinfra.node import nvsmi, table
from gpuinfra.node.answer import Answers
from gpuinfra.node.checks.fabric import NvlinkActive
from gpuinfra.node.expectation import Machine
from gpuinfra.node.judge import judge
from gpuinfra.node.outcome import Broken, Unreadable
from tests.node.healthy import RECORDINGS, record
from tests.typed import present

XML = sorted(RECORDINGS.glob("*.xml"))
CAPTURES = sorted(RECORDINGS.glob("*.txt"))
CAN_PARSE = {
    # file: driver, GPUs attached, GPUs described, product, MIG devices
    "a100-sxm4-v12.xml": ("535.54.03", 4, 1, "NVIDIA A100-SXM4-80GB", 4),
    "a100-sxm4-40gb-1.xml": ("570.148.08", 1, 1, "NVIDIA A100-SXM4-40GB", 0),
    "b200-8.xml": ("580.105.08", 8, 8, "NVIDIA B200", 0),
    "gb200-4.xml": ("580.173.02", 4, 4, "NVIDIA GB200", 0),
    "gb300-4.xml": ("580.173.02", 4, 4, "NVIDIA GB300", 0),
    "h100-8.xml": ("580.105.08", 8, 8, "NVIDIA H100 80GB HBM3", 0),
    "l40s-1.xml": ("595.91.07", 1, 1, "NVIDIA L40S", 0),
    "t4-1.xml": ("595.91.07", 1, 1, "Tesla T4", 0),
    "rtx-3080-v12.xml": ("536.40", 1, 1, "NVIDIA GeForce RTX 3080", 0),
    "rtx-4000-sff-ada-v13.xml": ("595.84", 1, 1, "NVIDIA RTX 4000 SFF Ada Generation", 0),
    "tesla-t4.xml": ("515.105.01", 1, 1, "Tesla T4", 0),
}


def sections(path: Path) -> dict[str, str]:
    """Command -> output of each section of a capture; the idle one if a command was run twice."""
    found: dict[str, str] = {}
    parts = re.split(
        r"^#{80}\n# (.+)\n# \$ (.+)\n(?:# .*\n)*#{80}\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    for command, output in zip(parts[2::3], parts[3::3], strict=True):
        found.setdefault(command.strip(), re.split(r"^#{80}$", output, flags=re.MULTILINE)[0].rstrip("\n") + "\n")
    return found


def test_all_recordings_are_listed() -> None:
    """Each recording is listed here with its content."""
    assert {path.name for path in XML} == set(CAN_PARSE)
    assert len(CAPTURES) == 2


@pytest.mark.parametrize("path", XML, ids=lambda path: path.stem)
def test_xml_of_every_recorded_machine_is_parsed(path: Path) -> None:
    """Driver, counts, model and memory match the file."""
    driver, attached, described, product, mig = CAN_PARSE[path.name]
    log = nvsmi.parse(path.read_text(encoding="utf-8"))
    assert (log.driver_version, log.attached_gpus, len(log.gpus)) == (driver, attached, described)
    gpu = log.gpus[0]
    assert gpu.get("product_name") == product
    assert gpu.repeated.get("mig_device", 0) == mig
    assert (table.number(gpu.get("fb_memory_usage/total"), "memory") or 0) > 8000
    assert re.fullmatch(r"GPU-[0-9a-f-]{36}", gpu.get("uuid"))
    assert "supported_clocks" not in "".join(gpu.fields)


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_table_of_every_captured_machine_is_parsed(path: Path) -> None:
    """More than 200 columns of a captured CSV are read by name, with numbers where the device reports them."""
    command, text = next((c, t) for c, t in sections(path).items() if c.startswith("nvidia-smi --query-gpu="))
    read = table.parse(text)
    asked = command.split("=", 1)[1].split(" ")[0].split(",")
    assert list(read.header) == asked
    row = read.rows[0]
    assert row.get("name").startswith("NVIDIA H100")
    assert row.number("memory.total") == 81559
    assert row.number("pcie.link.width.max") == 16
    assert row.number("retired_pages.single_bit_ecc.count") is None
    assert not any(table.failure(cell) for cell in row.cells.values())


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_links_of_every_captured_machine_are_parsed(path: Path) -> None:
    """An H100 has 18 links; with MIG the hidden links are a finding."""
    answers = Answers({"nvlink-status": record(["nvidia-smi", "nvlink", "-s"], sections(path)["nvidia-smi nvlink -s"])})
    machine = Machine({"gpus": 1}, None)
    if "mig" in path.stem:
        with pytest.raises(Broken, match="in MIG mode"):
            NvlinkActive().parse(answers, machine)
    else:
        assert NvlinkActive().parse(answers, machine) == {0: [26.562] * 18}


def test_captured_h100_passes_its_checks() -> None:
    """The captured one-GPU H100 passes the checks of its CSV, and fails as an eight-GPU node."""
    parts = sections(next(path for path in CAPTURES if "mig" not in path.stem))
    command, text = next((c, t) for c, t in parts.items() if c.startswith("nvidia-smi --query-gpu="))
    probes = {
        "nvidia-smi-csv": record(command.split(), text),
        "nvidia-smi-list": record(["nvidia-smi", "-L"], parts["nvidia-smi -L"]),
    }
    machine = {
        "gpus": 1, "gpu_name": "NVIDIA H100 80GB HBM3", "gpu_memory_mib": 81559, "pcie_gen": 5, "pcie_width": 16, "ecc": True,
        "required": ["G2", "G3", "G4", "G5", "G6", "G7", "G8", "G9", "G10", "G11", "G12", "F2"], "skips": {},
    }  # fmt: skip
    assert {check["id"]: check["outcome"] for check in judge(probes, machine)} == dict.fromkeys(
        machine["required"], "pass"
    )


def test_mig_is_detected_and_its_hidden_fields_pass() -> None:
    """With MIG, hidden remapped rows pass; the mode itself fails in a pool without MIG."""
    parts = sections(next(path for path in CAPTURES if "mig" in path.stem))
    command, text = next((c, t) for c, t in parts.items() if c.startswith("nvidia-smi --query-gpu="))
    probes = {"nvidia-smi-csv": record(command.split(), text)}
    checks = {c["id"]: c for c in judge(probes, {"gpus": 1, "required": ["G6", "G12"], "skips": {}})}
    assert checks["G6"]["outcome"] == "pass", checks["G6"]
    assert checks["G12"]["outcome"] == "fail"
    wanted = {c["id"]: c for c in judge(probes, {"gpus": 1, "required": ["G12"], "skips": {}, "mig": True})}
    assert wanted["G12"]["outcome"] == "pass"


def test_missing_column_of_an_older_driver_is_an_error() -> None:
    """A driver without the recovery action column gives an error, which blocks."""
    probes = {"nvidia-smi-csv": record(["nvidia-smi"], "index, pci.bus_id\n0, 00000000:00:1E.0\n")}
    check = judge(probes, {"gpus": 1, "required": ["G10"], "skips": {}})[0]
    assert check["outcome"] == "error"
    assert "no column gpu_recovery_action" in present(check["reason"])


def test_older_column_name_is_read() -> None:
    """Drivers before 535.54.03 call clock event reasons throttle reasons."""
    probes = {
        "nvidia-smi-csv": record(["nvidia-smi"], "index, clocks_throttle_reasons.active\n0, 0x0000000000000001\n")
    }
    assert judge(probes, {"gpus": 1, "required": ["G7"], "skips": {}})[0]["outcome"] == "pass"


@pytest.mark.parametrize(
    ("text", "code", "word"),
    [
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.158\n",
            18,
            "different versions",
        ),
        ("Unable to determine the device handle for GPU0000:91:00.0: Unknown Error\n", 0, "0000:91:00.0"),
        ("No devices were found\n", 0, "initialized no GPU"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", 9, "not loaded"),
        ("Failed to initialize NVML: Unknown Error\n", 255, "NVML cannot be initialized"),
        ("", 15, "lost a GPU"),
        ("", 14, "infoROM"),
    ],
)
def test_known_broken_state_is_recognized_with_any_exit_code(text: str, code: int, word: str) -> None:
    """Texts and exit codes from public reports fail the check and name the state."""
    answers = Answers({"nvidia-smi-list": record(["nvidia-smi", "-L"], text, code)})
    with pytest.raises(Broken, match=word):
        answers.text("nvidia-smi-list")


def test_an_unknown_exit_code_is_an_error() -> None:
    """A command that fails with an unknown exit code is not judged."""
    answers = Answers({"nvidia-smi-list": record(["nvidia-smi", "-L"], "GPU 0: x (UUID: y)\n", 77)})
    with pytest.raises(Unreadable, match="exit code 77"):
        answers.text("nvidia-smi-list")
