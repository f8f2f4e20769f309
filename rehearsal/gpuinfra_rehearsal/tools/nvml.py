"""The functions of libnvidia-ml on a stand-in node that `node.pyz energy` calls. `nccl.py` makes ctypes load them.

Error numbers and texts are those of `nvmlReturn_t` and `nvmlErrorString` (nvidia-ml-py 13.615.71: pynvml.py). A stand-in GPU always uses the
power that `nvidia-smi` prints, so its counter is this power multiplied by the time since the boot.
"""

from __future__ import annotations

import time

from ..devices import device_faults
from ..devices.gpus import listed
from .state import read_state, read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NOT_LOADED, LOST = 9, 15
ERRORS = {0: "Success", NOT_LOADED: "Driver Not Loaded", LOST: "GPU is lost"}


class Nvml:
    """The NVML functions."""

    def __init__(self) -> None:
        self._state: Any = read_state()
        faults = device_faults.active(self._state)
        self._gpus = [] if "no-devices" in faults else listed(self._state)
        self._lost = bool({"gpu-lost", "xid-79"} & set(faults))

    def nvmlErrorString(self, code: int) -> bytes:
        return ERRORS.get(code, "Unknown Error").encode()

    def nvmlInit_v2(self) -> int:
        return 0 if self._state["driver"]["loaded"] else NOT_LOADED

    def nvmlShutdown(self) -> int:
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = len(self._gpus)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, device: Any) -> int:
        device._obj.value = index + 1  # a handle is not 0
        return LOST if self._lost and index == device_faults.broken(len(self._gpus)) else 0

    def nvmlDeviceGetUUID(self, device: Any, uuid: Any, size: int) -> int:
        uuid.value = self._gpu(device)["UUID"].encode()
        return 0

    def nvmlDeviceGetPowerManagementDefaultLimit(self, device: Any, limit: Any) -> int:
        limit._obj.value = int(float(self._gpu(device)["LIMIT_DEFAULT"]) * 1000)
        return 0

    def nvmlDeviceGetTotalEnergyConsumption(self, device: Any, energy: Any) -> int:
        seconds = time.time() - float(read_text("/run/standin/booted", "0") or 0)
        energy._obj.value = int(float(self._gpu(device)["POWER"]) * seconds * 1000)
        return 0

    def _gpu(self, device: Any) -> Any:
        return self._gpus[device.value - 1]
