"""An all-reduce or all-gather that calls libnccl and libcudart directly through ctypes, without a framework, MPI or SSH.

One process drives all GPUs of this node as ranks `first_rank ...` of `ranks`; if there are more ranks than local GPUs, the others
run on other nodes with the same unique ID. The sum is verified, so a link that is fast but corrupts data does not pass.
It runs in a separate process (`node.pyz nccl`), because a hanging collective stops only when its process exits.

The signatures come from nccl.h (2.x) and cuda_runtime_api.h. `network_of` reads the network from NCCL's log. NCCL selects the network
for each communicator, including one that does not leave the node (`commAlloc` in NVIDIA/nccl: src/init.cc, v2.28.9).
"""

from __future__ import annotations

import ctypes
import glob
import os
import re
import time
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from typing import Any

from .console import MissingPrerequisite
from .outcome import shortened

NCCL_NAMES = ("libnccl.so.2",)
CUDART_NAMES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so")
CUDART_GLOBS = ("/usr/local/cuda/lib64/libcudart.so.*", "/usr/local/cuda-*/lib64/libcudart.so.*")
INT32, SUM, DEVICE_TO_HOST = 2, 0, 2
"""ncclInt32, ncclSum, cudaMemcpyDeviceToHost."""
SAMPLE = 1 << 20
GIB = 1 << 30
ALL_REDUCE, ALL_GATHER = "all-reduce", "all-gather"
WARM_UP = 5
"""Warm-up rounds, which are not measured."""


class UniqueId(ctypes.Structure):
    """ncclUniqueId: 128 bytes that all ranks share, passed by value."""

    _fields_ = [("internal", c_char * 128)]

    def tobytes(self) -> bytes:
        """Return all 128 bytes. Reading the field itself stops at the first zero byte."""
        return bytes(bytearray(self))


@dataclass
class _Rank:
    device: int
    rank: int
    comm: c_void_p
    stream: c_void_p
    send: c_void_p
    receive: c_void_p


class Libraries:
    """NCCL and the CUDA runtime with typed functions. A failed call raises `MissingPrerequisite`."""

    def __init__(self, nccl: str | None = None, cudart: str | None = None) -> None:
        self._nccl = _load([nccl] if nccl else list(NCCL_NAMES), "NCCL")
        paths = [path for pattern in CUDART_GLOBS for path in sorted(glob.glob(pattern), reverse=True)]
        self._cuda = _load([cudart] if cudart else list(CUDART_NAMES) + paths, "the CUDA runtime")
        for library, table in ((self._nccl, _NCCL), (self._cuda, _CUDA)):
            for name, arguments in table.items():
                function = getattr(library, name)
                function.argtypes, function.restype = arguments, c_int
        self._nccl.ncclGetErrorString.argtypes, self._nccl.ncclGetErrorString.restype = [c_int], c_char_p
        self._cuda.cudaGetErrorString.argtypes, self._cuda.cudaGetErrorString.restype = [c_int], c_char_p

    def nccl(self, name: str, *arguments: Any) -> None:
        """Call an NCCL function."""
        _call(self._nccl, name, self._nccl.ncclGetErrorString, *arguments)

    def cuda(self, name: str, *arguments: Any) -> None:
        """Call a CUDA runtime function."""
        _call(self._cuda, name, self._cuda.cudaGetErrorString, *arguments)

    def devices(self) -> int:
        """Return the number of GPUs that the runtime finds."""
        count = c_int()
        self.cuda("cudaGetDeviceCount", byref(count))
        return count.value

    def version(self) -> int:
        """Return NCCL's version as a number: 22707 is 2.27.7."""
        version = c_int()
        self.nccl("ncclGetVersion", byref(version))
        return version.value

    def unique_id(self) -> UniqueId:
        """Create a unique ID for a group of ranks."""
        id_ = UniqueId()
        self.nccl("ncclGetUniqueId", byref(id_))
        return id_


_NCCL = {
    "ncclGetVersion": [POINTER(c_int)],
    "ncclGetUniqueId": [POINTER(UniqueId)],
    "ncclCommInitRank": [POINTER(c_void_p), c_int, UniqueId, c_int],
    "ncclAllReduce": [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p],
    "ncclAllGather": [c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_void_p],
    "ncclGroupStart": [],
    "ncclGroupEnd": [],
    "ncclCommGetAsyncError": [c_void_p, POINTER(c_int)],
    "ncclCommDestroy": [c_void_p],
    "ncclCommAbort": [c_void_p],
}
_CUDA = {
    "cudaGetDeviceCount": [POINTER(c_int)],
    "cudaSetDevice": [c_int],
    "cudaMalloc": [POINTER(c_void_p), c_size_t],
    "cudaFree": [c_void_p],
    "cudaMemset": [c_void_p, c_int, c_size_t],
    "cudaMemcpy": [c_void_p, c_void_p, c_size_t, c_int],
    "cudaStreamCreate": [POINTER(c_void_p)],
    "cudaStreamSynchronize": [c_void_p],
    "cudaStreamDestroy": [c_void_p],
}


def all_reduce(
    libraries: Libraries,
    *,
    size: int,
    rounds: int = 20,
    collective: str = ALL_REDUCE,
    unique_id: UniqueId | None = None,
    first_rank: int = 0,
    ranks: int | None = None,
) -> dict[str, Any]:
    """Sum `size` bytes over all ranks, or gather `size` bytes from all ranks, `rounds` times, and verify the result."""
    here = libraries.devices()
    if not here:
        raise MissingPrerequisite("the CUDA runtime finds no GPU")
    total = ranks or here
    if collective == ALL_GATHER:
        size -= size % (4 * total)
    if size % 4 or size <= 0 or not 0 < total < 256:
        raise MissingPrerequisite("size must be a positive multiple of 4 bytes, and ranks must be below 256")
    made: list[_Rank] = []
    try:
        _make(libraries, made, here, size, unique_id or libraries.unique_id(), first_rank, total)
        for _ in range(WARM_UP):
            _round(libraries, made, size, total, collective)
        _wait(libraries, made)
        started = time.perf_counter()
        for _ in range(rounds):
            _round(libraries, made, size, total, collective)
        _wait(libraries, made)
        seconds = (time.perf_counter() - started) / rounds
        # Each rank sends known data, so the expected result is known.
        count = _wrong_gathered if collective == ALL_GATHER else _wrong_bytes
        wrong = sum(count(libraries, one, size, total) for one in made)
    finally:
        _free(libraries, made)
    bandwidth = size / seconds / 1e9
    return {
        "schema": "gpuinfra.nccl/1",
        "nccl": libraries.version(),
        "ranks": total,
        "gpus": here,
        "collective": collective,
        "bytes": size,
        "rounds": rounds,
        "seconds": seconds,
        "algbw_gb_s": bandwidth,
        # https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
        "busbw_gb_s": bandwidth * (1 if collective == ALL_GATHER else 2) * (total - 1) / total,
        "wrong": wrong,
    }


def _make(
    libraries: Libraries, made: list[_Rank], here: int, size: int, one_id: UniqueId, first: int, total: int
) -> None:
    for device in range(here):
        rank = _Rank(device, first + device, c_void_p(), c_void_p(), c_void_p(), c_void_p())
        made.append(rank)
        libraries.cuda("cudaSetDevice", device)
        libraries.cuda("cudaStreamCreate", byref(rank.stream))
        libraries.cuda("cudaMalloc", byref(rank.send), size)
        libraries.cuda("cudaMalloc", byref(rank.receive), size)
        libraries.cuda("cudaMemset", rank.send, _value(rank.rank), size)
        libraries.cuda("cudaMemset", rank.receive, 0, size)
    libraries.nccl("ncclGroupStart")
    for rank in made:
        libraries.cuda("cudaSetDevice", rank.device)
        libraries.nccl("ncclCommInitRank", byref(rank.comm), total, one_id, rank.rank)
    libraries.nccl("ncclGroupEnd")


def _value(rank: int) -> int:
    """Return the byte that a rank sends: 1 to 7 in turn, so that neighbors differ."""
    return 1 + rank % 7


def _sum(total: int) -> int:
    """Return the expected value of every int32 in the result, with 32-bit overflow."""
    return sum(_value(rank) * 0x01010101 for rank in range(total)) & 0xFFFFFFFF


def _round(libraries: Libraries, made: list[_Rank], size: int, total: int, collective: str) -> None:
    libraries.nccl("ncclGroupStart")
    for rank in made:
        if collective == ALL_GATHER:
            count = size // 4 // total
            libraries.nccl("ncclAllGather", rank.send, rank.receive, count, INT32, rank.comm, rank.stream)
        else:
            libraries.nccl("ncclAllReduce", rank.send, rank.receive, size // 4, INT32, SUM, rank.comm, rank.stream)
    libraries.nccl("ncclGroupEnd")


def _wait(libraries: Libraries, made: list[_Rank]) -> None:
    for rank in made:
        libraries.cuda("cudaSetDevice", rank.device)
        libraries.cuda("cudaStreamSynchronize", rank.stream)
        late = c_int()
        libraries.nccl("ncclCommGetAsyncError", rank.comm, byref(late))
        if late.value:
            raise MissingPrerequisite("rank %d reported an asynchronous error (%d)" % (rank.rank, late.value))


def _wrong_bytes(libraries: Libraries, rank: _Rank, size: int, total: int) -> int:
    """Count the wrong bytes in samples from the beginning, the middle and the end."""
    libraries.cuda("cudaSetDevice", rank.device)
    length = min(SAMPLE, size)
    expected = _sum(total).to_bytes(4, "little") * (length // 4)
    wrong = 0
    for start in sorted({0, (size - length) // 2 // 4 * 4, size - length}):
        buffer = ctypes.create_string_buffer(length)
        libraries.cuda("cudaMemcpy", buffer, c_void_p((rank.receive.value or 0) + start), length, DEVICE_TO_HOST)
        if buffer.raw != expected:
            wrong += sum(a != b for a, b in zip(buffer.raw, expected))
    return wrong


def _wrong_gathered(libraries: Libraries, rank: _Rank, size: int, total: int) -> int:
    """Count the wrong bytes at the beginning and the end of the part of each rank."""
    libraries.cuda("cudaSetDevice", rank.device)
    part = size // total
    length = min(SAMPLE // total // 4 * 4, part)
    wrong = 0
    for other in range(total):
        expected = bytes([_value(other)]) * length
        for start in sorted({0, part - length}):
            buffer = ctypes.create_string_buffer(length)
            place = c_void_p((rank.receive.value or 0) + other * part + start)
            libraries.cuda("cudaMemcpy", buffer, place, length, DEVICE_TO_HOST)
            if buffer.raw != expected:
                wrong += sum(a != b for a, b in zip(buffer.raw, expected))
    return wrong


def _free(libraries: Libraries, made: list[_Rank]) -> None:
    """Free all resources. An error here must not hide the original error."""
    for rank in made:
        for call, name, handle in (
            (libraries.cuda, "cudaSetDevice", rank.device),
            (libraries.nccl, "ncclCommDestroy", rank.comm),
            (libraries.cuda, "cudaFree", rank.send),
            (libraries.cuda, "cudaFree", rank.receive),
            (libraries.cuda, "cudaStreamDestroy", rank.stream),
        ):
            try:
                if isinstance(handle, int) or handle.value:
                    call(name, handle)
            except MissingPrerequisite:
                pass


_ABSENT = "cannot open shared object file: No such file"
"""The dynamic linker's message for a missing file. It follows the name of the library or of one of its dependencies."""


def _load(names: list[str], what: str) -> ctypes.CDLL:
    problems = []
    for name in names:
        try:
            return ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            if not str(error).startswith("%s: %s" % (name, _ABSENT)):
                problems.append(str(error))
    if problems:
        raise MissingPrerequisite("%s is installed but cannot be loaded: %s" % (what, shortened(problems[0], 300)))
    raise MissingPrerequisite("%s is not installed: none of %s can be loaded" % (what, ", ".join(names[:4])))


def _call(library: ctypes.CDLL, name: str, explain: Any, *arguments: Any) -> None:
    code = getattr(library, name)(*arguments)
    if code:
        raise MissingPrerequisite(
            "%s failed: %s (%d)" % (name, (explain(code) or b"?").decode("utf-8", "replace"), code)
        )


def run(size: int, rounds: int, log: str, collective: str = ALL_REDUCE) -> dict[str, Any]:
    """Run one collective inside this node. Adds the networks, their devices and the related lines from NCCL's log.

    Raises `MissingPrerequisite` with these lines if NCCL cannot create the communicator.
    """
    os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET,ENV", NCCL_DEBUG_FILE=log)
    try:
        result = all_reduce(Libraries(), size=size, rounds=rounds, collective=collective)
    except MissingPrerequisite as error:
        lines = network_lines(read_log(log))
        raise MissingPrerequisite("; ".join([str(error), *lines[-6:]])) from None
    text = read_log(log)
    result["network"] = network_of(text)
    result["network_devices"] = devices_of(text)
    result["network_log"] = network_lines(text)
    return result


def read_log(log: str) -> str:
    """Return the content of a log file, or an empty text if the file does not exist."""
    try:
        with open(log, encoding="utf-8", errors="backslashreplace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""


def network_of(log: str) -> list[str]:
    """Return the names of the networks in NCCL's log. A possible name is `Socket`, which GPU nodes should never use."""
    networks = re.findall(r"NCCL INFO (?:\[\d+\] )?Using network (.+)$", log, re.MULTILINE)
    return sorted({name.strip() for name in networks} - {""})


_OFI = re.compile(r"NET/OFI Selected [Pp]rovider is efa(?:, fabric is \S+)? \(found (\d+) nics\)")
"""The fabric is in the line since aws-ofi-nccl 1.14, and `provider` is in lower case since 1.9 (logs of public repositories, retrieved 2026-11)."""
_IB = re.compile(r"NET/IB ?: Using((?: ?\[\d+\]\S+)+)")


def devices_of(log: str) -> dict[str, int]:
    """Return the number of devices that the network plugins in NCCL's log use: `efa`, `IB` and `RoCE`. Plugins that print no devices have no entry.

    aws-ofi-nccl prints the number of devices; NCCL's own plugin and nccl-rdma-sharp-plugins list each port with its link layer.
    If ranks differ, the lowest number counts.
    """
    counts: dict[str, int] = {}
    for count in _OFI.findall(log):
        counts["efa"] = min(int(count), counts.get("efa", int(count)))
    for ports in _IB.findall(log):
        layers = re.findall(r":\d+/(IB|RoCE)", ports)
        for layer in ("IB", "RoCE"):
            counts[layer] = min(layers.count(layer), counts.get(layer, layers.count(layer)))
    return counts


def network_lines(log: str) -> list[str]:
    """Return the lines of NCCL's log that explain the choice of the network, without prefixes and repetitions, at most 40."""
    lines: dict[str, None] = {}
    for line in log.splitlines():
        _, marker, text = line.partition("NCCL INFO ")
        if not marker:
            _, marker, text = line.partition("NCCL WARN ")
        text = re.sub(r"^\[\d+\] ", "", text).strip()
        if marker and _ABOUT_NETWORK.search(text):
            lines[shortened(text, 200)] = None
    return list(lines)[:40]


_ABOUT_NETWORK = re.compile(
    r"NET/|NET plugin|net(?:work)? plugin|Using network|network \S+ not found|libibverbs|topology file|NCCL_(?:NET|IB|TOPO)\w* set|FasTrak"
)
