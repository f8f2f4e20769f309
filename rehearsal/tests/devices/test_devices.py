"""Output of device tools, judged by the real checks."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.node import nvsmi, table
from gpuinfra.node.checks.fabric import RATE_SHARE
from gpuinfra.node.judge import judge, verdict
from gpuinfra.plan.profile import profile_of
from gpuinfra_rehearsal.devices import faults, provenance
from gpuinfra_rehearsal.devices.models import MODELS
from gpuinfra_rehearsal.nodes.library import ToolLibrary
from tests.node.healthy import (
    AZURE,
    DRIVER,
    GOOGLE,
    GOOGLE_RDMA,
    JOURNAL,
    P4D,
    RECORDINGS,
    devices,
    machine,
    probes,
    state,
)
from tests.node.test_recordings import sections


def machines(cloud: str) -> tuple[Any, ...]:
    """All machine types of a cloud's catalog."""
    known = profile_of(cloud).machines
    return tuple(known.values() if hasattr(known, "values") else known)


NOTICED_BY = {
    "gpu-missing": "G1", "gpu-off-bus": "P1", "gpu-lost": "G1", "xid-79": "X1", "xid-48": "X1", "xid-154": "X1",
    "sxid-fatal": "X2", "no-devices": "G1", "gpu-wrong-model": "G2", "gpu-less-memory": "G2", "ecc-uncorrected": "G5",
    "ecc-sram": "G5", "ecc-off": "G5", "remap-pending": "G6", "remap-failed": "G6", "pcie-narrow": "G3", "pcie-slow": "G3",
    "thermal": "G7", "power-capped": "G9", "recovery-reset": "G10", "recovery-reboot": "G10", "inforom-corrupt": "G1",
    "mig-enabled": "G12", "unknown-error": "G13", "stale-process": "G14", "memory-leaked": "G14", "fabric-unhealthy": "F2", "nvlink-inactive": "F3",
        "nvlink-errors": "F4",
    "efa-missing": "N1", "fabric-device-missing": "N2", "fabric-port-down": "N2", "fabric-port-slow": "N2", "fabric-no-key": "N9",
    "fabric-flapping": "N6", "gvnic-missing": "N8", "host-copy-slow": "B5",
    "gpu-copy-slow": "B9", "gpu-memory-slow": "B10", "pcie-replays": "G18", "rdma-slow": "N5", "efa-port-down": "N11", "cpus-missing": "P8",
    "memory-missing": "P7",
}  # fmt: skip
"""The check that tells each fault first."""
MILD = {"power-capped", "stale-process", "nvlink-errors", "fabric-no-key"}
"""Faults that are worth a look and do not hold a node back."""


def play(*words: str, device_state: dict | None = None) -> tuple[int, str]:
    """The output of one tool."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = devices.main(list(words), device_state or state())
    return code, said.getvalue()


def test_every_fault_has_its_check() -> None:
    """Each fault is mapped to the check that detects it."""
    assert set(NOTICED_BY) == set(faults())


@pytest.mark.parametrize("fault", sorted(NOTICED_BY))
def test_a_fault_fails_its_check_and_names_the_device(fault: str) -> None:
    """The real judgement of a broken node's output names the right check, the GPU or device, and a hint."""
    machine = (
        GOOGLE
        if fault.startswith("gvnic")
        else AZURE
        if fault.startswith("fabric") or fault in ("memory-leaked", "rdma-slow")
        else P4D
    )
    checks = judge(probes(fault, expectation=machine), machine, journal=JOURNAL)
    result = verdict(checks, machine)
    assert result.verified == (fault in MILD)
    first = (result.blockers or [check for check in checks if check["outcome"] == "warn"])[0]
    assert first["id"] == NOTICED_BY[fault]
    assert first["hint"]
    named = r"20:1d|GPU 3|mlx5_ib5|7 of 8 (ports|devices)|8 of 9 gVNICs|0000:c0:1a|\d of 4 EFA|7 of 8|python3|no GPU|device-3|rdmap|48 of 96|GiB of memory"
    assert re.search(named, first["reason"], re.IGNORECASE), first["reason"]


def test_a_driver_mismatch_fails_every_call() -> None:
    """A loaded module of another version than the libraries gives NVML error 18 and its message."""
    device_state = state()
    device_state["driver"]["loaded"] = "580.95.05"
    assert play("nvidia-smi", "-L", device_state=device_state) == (
        18,
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.173\n",
    )
    result = verdict(judge(probes(device_state=device_state), P4D, journal=JOURNAL), P4D)
    assert result.blockers[0]["id"] in ("D1", "D2", "G1")
    assert "different versions" in json.dumps(result.blockers)


def test_nvidia_smi_fails_without_the_module() -> None:
    """Before the driver step loads the module, nvidia-smi fails and its files are missing."""
    device_state = state()
    device_state["driver"]["loaded"] = None
    code, text = play("nvidia-smi", device_state=device_state)
    assert code == 9
    assert "couldn't communicate with the NVIDIA driver" in text
    assert "/proc/driver/nvidia/version" not in devices.files(device_state)
    assert f"  {DRIVER}  " in devices.files(state())["/proc/driver/nvidia/version"]


def test_efa_is_listed_once_its_module_is_loaded() -> None:
    """fi_info finds nothing before the EFA step, and one domain for each device after it."""
    device_state = state()
    device_state["modules"].remove("efa")
    assert play("fi_info", "-p", "efa", "-t", "FI_EP_RDM", device_state=device_state) == (
        61,
        "fi_getinfo: -61 (No data available)\n",
    )
    assert len(set(re.findall(r"domain: (\S+)", play("fi_info", "-p", "efa")[1]))) == 4


def test_the_help_is_a_recording() -> None:
    """The list of columns is that of a real driver."""
    recorded = sections(RECORDINGS / "nvidia-h100-80gb-hbm3__590.48.01.txt")["nvidia-smi --help-query-gpu"]
    assert play("nvidia-smi", "--help-query-gpu")[1].rstrip() == recorded.rstrip()


def test_every_recorded_column_can_be_queried() -> None:
    """All columns of the recorded driver can be queried, with the same headers."""
    parts = sections(RECORDINGS / "nvidia-h100-80gb-hbm3__590.48.01.txt")
    command, text = next((c, t) for c, t in parts.items() if c.startswith("nvidia-smi --query-gpu="))
    code, printed = play(*command.split())
    assert code == 0
    assert printed.splitlines()[0] == text.splitlines()[0]
    assert len(table.parse(printed).rows) == 8


def test_the_xml_has_every_element_of_a_recording() -> None:
    """The document has the elements of a recorded one of the same format for each GPU."""
    recorded = nvsmi.parse((RECORDINGS / "rtx-4000-sff-ada-v13.xml").read_text(encoding="utf-8"))
    played = nvsmi.parse(play("nvidia-smi", "-q", "-x")[1])
    assert (played.attached_gpus, len(played.gpus), played.driver_version) == (8, 8, DRIVER)
    for gpu in played.gpus:
        missing = set(recorded.gpus[0].fields) - set(gpu.fields)
        assert missing <= {"processes"}, missing
        assert "@" not in "".join(gpu.fields.values())


def test_an_unknown_column_fails_the_call() -> None:
    """The call fails with exit code 2 and the name of the column, as the real one does."""
    code, text = play("nvidia-smi", "--query-gpu=index,nonsense", "--format=csv")
    assert (code, text.splitlines()[0]) == (2, 'Field "nonsense" is not a valid field to query.')


def test_formats_follow_their_flags() -> None:
    """Flags remove header and units, and both names of a column work."""
    assert play("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")[1] == "40960\n" * 8
    assert play("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")[1] == f"{DRIVER}\n" * 8
    assert play("nvidia-smi", "--query-gpu=clocks_throttle_reasons.active", "--format=csv")[1].startswith(
        "clocks_event_reasons.active\n"
    )


def test_gpu_identities_differ_between_instances() -> None:
    """UUIDs and serial numbers are made from the instance id, so a replaced node has other GPUs."""
    other = state()
    other["instance"]["id"] = "i-00000000000000002"
    first, second = play("nvidia-smi", "-L")[1], play("nvidia-smi", "-L", device_state=other)[1]
    assert not set(re.findall(r"GPU-[0-9a-f-]+", first)) & set(re.findall(r"GPU-[0-9a-f-]+", second))
    assert "GPU-00000000-0000-" in first


def test_provenance_names_every_tool() -> None:
    """Each output has its origin: recorded, synthesized or a documented format."""
    records = provenance()
    assert {entry["made"] for entry in records} <= {"recorded", "synthesized", "documented format"}
    assert all(entry["recording"] for entry in records if entry["made"] != "documented format")
    text = " ".join(entry["output"] for entry in records)
    for tool in ("nvidia-smi", "lspci", "fi_info", "rdma", "ibv_devinfo", "ibstat", "journalctl", "dmesg"):
        assert tool in text


def test_tools_import_nothing_slow(tmp_path: Path) -> None:
    """A node makes hundreds of calls, so a call loads neither json nor re."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from standin import devices; "
        "devices.main(['lspci', '-d', '10de:'], {'hardware': {'gpus': 8, 'gpu': 'NVIDIA A100-SXM4-40GB'}, 'instance': {'id': 'i-1'}}); "
        "sys.stderr.write(' '.join(sorted({'json', 're', 'subprocess', 'typing', 'dataclasses'} & set(sys.modules))))"
    )
    library = ToolLibrary.make(tmp_path / "lib").folder
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(library)], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert done.stdout.count("10de:20b0") == 8


def test_every_gpu_of_the_catalog_has_a_model() -> None:
    """Each GPU of a catalog has a model, with equal values where checks read them."""
    sold = {
        machine.gpu.name: machine.gpu for cloud in ("aws", "azure", "gcp") for machine in machines(cloud) if machine.gpu
    }
    played = {record["NAME"]: record for record in MODELS}
    assert set(sold) <= set(played)
    for name, gpu in sold.items():
        record = played[name]
        assert f"10de:{record['PCIID'][:4].lower()}" in gpu.pci_ids, name
        found = (int(record["MEMORY"]), int(record["GEN"]), int(record["WIDTH"]), record["LINKS"])
        assert found == (gpu.memory_mib, gpu.pcie_gen, gpu.pcie_width, gpu.nvlinks), name
        # A real B200 prints the rate without the encoding: 50 GB/s.
        assert gpu.nvlink_gb_s is None or RATE_SHARE * gpu.nvlink_gb_s <= float(record["RATE"]) <= gpu.nvlink_gb_s, name


ALL_MACHINES = [(cloud, one) for cloud in ("aws", "azure", "gcp") for one in machines(cloud) if one.gpu]


@pytest.mark.parametrize(("cloud", "one"), ALL_MACHINES, ids=[one.name for _, one in ALL_MACHINES])
def test_a_healthy_machine_of_every_type_passes(cloud: str, one: Any) -> None:
    """The output for each machine type with GPUs passes every check of its plan."""
    wanted = machine(cloud, one.name)
    device_state = state(expectation=wanted)
    device_state["driver"]["open"] = wanted["open_module"]
    answers = probes(expectation=wanted, device_state=device_state)
    checks = judge(answers, wanted, journal=JOURNAL)
    assert {c["id"]: c["reason"] for c in checks if c["outcome"] not in ("pass", "skip")} == {}
    assert verdict(checks, wanted).verified


SEVERAL = {"gpu-copy-slow", "gpu-memory-slow"}
"""Faults that only a comparison with other GPUs, or a floor of the machine type, shows."""
OF_A_GPU = [
    fault for fault, check in NOTICED_BY.items() if (check[0] in "BGP" or check == "X1") and fault not in SEVERAL
]


@pytest.mark.parametrize("fault", OF_A_GPU)
@pytest.mark.parametrize(("cloud", "name"), [("aws", "p5.4xlarge"), ("azure", "Standard_NC80adis_H100_v5"), ("gcp", "g2-standard-4")])  # fmt: skip
def test_a_fault_of_a_gpu_has_an_effect_on_machines_with_fewer_gpus(fault: str, cloud: str, name: str) -> None:
    """On machines with one or two GPUs, the last GPU is broken, and the check of the fault fails or warns."""
    wanted = machine(cloud, name)
    device_state = state(fault, expectation=wanted)
    device_state["driver"]["open"] = wanted["open_module"]
    checks = judge(probes(expectation=wanted, device_state=device_state), wanted, journal=JOURNAL)
    assert NOTICED_BY[fault] in {one["id"] for one in checks if one["outcome"] not in ("pass", "skip")}


@pytest.mark.parametrize(
    ("fault", "check"), [("fabric-device-missing", "N7"), ("fabric-port-down", "N7"), ("fabric-flapping", "N6")]
)
def test_a_broken_rdma_device_of_google_fails_its_check(fault: str, check: str) -> None:
    """The RDMA faults of an A3 Ultra fail the check of its devices."""
    checks = judge(probes(fault, expectation=GOOGLE_RDMA), GOOGLE_RDMA, journal=JOURNAL)
    first = verdict(checks, GOOGLE_RDMA).blockers[0]
    assert first["id"] == check
    assert re.search(r"rocep199s0|7 of 8", first["reason"])


def test_infiniband_is_listed_once_its_module_is_loaded() -> None:
    """Before mlx5_ib is loaded the functions are on the PCI bus, and RDMA tools list nothing."""
    device_state = state(expectation=AZURE)
    device_state["modules"] = ["nvidia"]
    assert play("ibstat", device_state=device_state) == (255, "")
    assert play("ibv_devinfo", device_state=device_state) == (255, "No IB devices found\n")
    assert play("lspci", "-d", "15b3:", device_state=device_state)[1].count("[0207]") == 8
    assert play("ibstat", device_state=state(expectation=AZURE))[1].count("Rate: 400") == 8


def test_tools_of_a_node_list_the_same_ports() -> None:
    """ibstat, ibv_devices, ibdev2netdev, rdma and /sys list the same devices."""
    here = state(expectation=AZURE)
    named = set(re.findall(r"^CA '(.*)'", play("ibstat", device_state=here)[1], re.MULTILINE))
    assert len(named) == 9
    for tool in (("ibv_devices",), ("ibdev2netdev",), ("rdma", "link"), ("ibv_devinfo",)):
        assert set(re.findall(r"mlx5_\w+", play(*tool, device_state=here)[1])) == named, tool
    assert {path.split("/")[4] for path in devices.files(here) if path.startswith("/sys/class/infiniband/")} == named
