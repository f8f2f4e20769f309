"""nvbandwidth on a stand-in node: `-j -t CASE ...` with the copies between host memory and each GPU, between GPUs, and within each GPU.

The output has the format of nvbandwidth 0.8, which DCGM installs. The speed of a copy is limited by the slower of the GPU's link and the processor's link.
"""

from __future__ import annotations

from . import device_faults
from . import gpus as device_gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .schema import DeviceState

RATES = {3: 12.3, 4: 25.13, 5: 55.4}
"""GB/s over 16 lanes, keyed by PCIe generation. Sources: NCCL's constant for 3.0, an A100 (NVIDIA/nvbandwidth
issue 42), an H200 (stas00/ml-engineering)."""
HOSTS = {"p4": 3, "p5.": 4, "p5e.": 4, "a2-": 3, "g2-": 3}
"""Maps the prefix of a machine type to the PCIe generation of its processor, if the processor is slower than the GPUs."""
CASES = ("host_to_device_memcpy_ce", "device_to_host_memcpy_ce")
PEERS, LOCAL = "device_to_device_memcpy_read_ce", "device_local_copy"
PEER_RATES = {"Ampere": 274.0, "Hopper": 370.9, "Blackwell": 765.1}
LOCAL_RATES = {"Ampere": 790.0, "Hopper": 1519.1, "Blackwell": 3312.0}
"""GB/s. Sources: p2pBandwidthLatencyTest of eight A100 (stas00/ml-engineering; the memory counts reads and writes), eight H100 (Azure; Hugging Face), and
seven B300 and four GB200 (public results of nvbandwidth). Other GPUs have assumed rates."""


def main(state: DeviceState, args: list[str]) -> int:
    """Run the test cases that `-t` lists, or all test cases."""
    import json

    gpus = device_gpus.listed(state)
    if not state.get("driver", {}).get("loaded") or not gpus:
        print("CUDA_ERROR: [CUDA_ERROR_NO_DEVICE] no CUDA-capable device is detected in expression cuInit(0)")
        return 1
    chosen = [word for word in args if word in (*CASES, PEERS, LOCAL)] or [*CASES, PEERS, LOCAL]
    machine = state.get("machine", "")
    host = next((gen for start, gen in HOSTS.items() if machine.startswith(start)), 5)
    faults = device_faults.active(state)
    rates = []
    for index, gpu in enumerate(gpus):
        rate = RATES[min(int(gpu["GEN"]), host, 5)] * int(gpu["WIDTH"]) / 16
        if "host-copy-slow" in faults and index == device_faults.broken(len(gpus)):
            rate /= 10
        rates.append("%.2f" % rate)
    cases = [
        {"name": name, "status": "Passed", "bandwidth_description": "memcpy CE CPU(row) %s GPU(column) bandwidth (GB/s)" % ("->" if at == 0 else "<-"),
         "bandwidth_matrix": [rates], "sum": round(sum(float(rate) for rate in rates), 2)}
        for at, name in enumerate(CASES) if name in chosen
    ]  # fmt: skip
    arch, slow = gpus[0].get("ARCH", ""), device_faults.broken(len(gpus))
    if PEERS in chosen:
        full = PEER_RATES.get(arch, 50.0)
        rows = [["N/A" if a == b else "%.2f" % (full / 2 if "gpu-copy-slow" in faults and slow in (a, b) else full) for b in range(len(gpus))]
                for a in range(len(gpus))]  # fmt: skip
        cases.append({"name": PEERS, "status": "Passed", "bandwidth_description": "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
                      "bandwidth_matrix": rows})  # fmt: skip
    if LOCAL in chosen:
        full = LOCAL_RATES.get(arch, 250.0)
        row = ["%.2f" % (full / 2 if "gpu-memory-slow" in faults and gpu == slow else full) for gpu in range(len(gpus))]
        cases.append({"name": LOCAL, "status": "Passed", "bandwidth_description": "memcpy local GPU(column) bandwidth (GB/s)",
                      "bandwidth_matrix": [row]})  # fmt: skip
    heads = {"CUDA Runtime Version": 13000, "Driver Version": state["driver"]["loaded"], "git_version": "v0.8"}
    print(json.dumps({"nvbandwidth": {**heads, "testcases": cases}}, indent=2))
    return 0
