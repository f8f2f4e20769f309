"""The parts of libnccl and libcudart on a stand-in node that `node.pyz nccl` and `node.pyz pair` call. `python/sitecustomize.py` makes ctypes load them.

The library selects the network as NVIDIA/nccl v2.28.9 does (src/plugin/net.cc, src/plugin/plugin_open.cc, src/transport/net_ib.cc,
src/misc/param.cc) and prints the lines of that source. It reads the node's files, the environment, and the devices that other tools list.
Lines of plugins: aws-ofi-nccl 1.18.0 on p5 and 1.19.0 on p5en (awslabs/awsome-distributed-ai and public logs), Google's documentation of
gIB, TCPX (skypilot-org/skypilot: examples/gcp_gpu_direct_tcpx) and a public log of FasTrak, all retrieved 2026-11-22.
GPU memory and timing are not simulated: a buffer is the value of its bytes, and bandwidth is meaningless. Two nodes exchange their sums once, over
the loopback interface, to which the unique ID contains the address, as the ID of NCCL contains the address of rank 0.
"""

from __future__ import annotations

import os
import sys

from .. import devices
from .state import exists, read_state, read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

NO_DEVICE, INVALID_USAGE, UNREACHABLE = 100, 5, 6
CUDA_ERRORS = {2: "out of memory", NO_DEVICE: "no CUDA-capable device is detected"}
NCCL_ERRORS = {
    INVALID_USAGE: "invalid usage (run with NCCL_DEBUG=WARN for details)",
    UNREACHABLE: "remote process exited or there was a network error",
}
PARTNER_S = 120.0
"""Maximum wait for the other node of a communicator, in seconds."""
LIBRARIES = ("libnccl.so", "libcudart.so", "libnvidia-ml.so")
CONFIGURATION = ("/root/.nccl.conf", "/etc/nccl.conf")
"""NCCL reads the user's file first. A variable that is already set keeps its value."""


def serve(ctypes: Any) -> None:
    """Change `ctypes.CDLL` so that it opens the stand-in libraries and all other libraries as before."""
    real = ctypes.CDLL

    class CDLL(real):
        def __new__(cls, name: str | None = None, *args: object, **options: object) -> object:
            if name is not None and os.path.basename(str(name)).startswith(LIBRARIES):
                return Library(str(name))
            return object.__new__(cls)

    ctypes.CDLL = CDLL


class Library:
    """One opened library. Its functions are the methods below. As in ctypes, an unknown name raises AttributeError."""

    def __init__(self, name: str) -> None:
        path = find(name)
        if path is None:
            raise OSError(f"{name}: cannot open shared object file: No such file or directory")
        calls = _calls(os.path.basename(name), path)
        for attribute in dir(calls):
            if not attribute.startswith("_"):
                setattr(self, attribute, _Function(getattr(calls, attribute)))


def _calls(name: str, path: str) -> object:
    if name.startswith("libnccl"):
        return Nccl(path)
    if name.startswith("libnvidia-ml"):
        from .nvml import Nvml

        return Nvml()
    return CudaRuntime()


class _Function:
    """A function with the attributes that ctypes reads."""

    def __init__(self, call: Callable[..., object]) -> None:
        self._call = call
        self.argtypes: object = None
        self.restype: object = None

    def __call__(self, *arguments: object) -> object:
        return self._call(*arguments)


def find(name: str) -> str | None:
    """Return the path of a library as the dynamic loader finds it: LD_LIBRARY_PATH, then the folders of the loader's cache."""
    if "/" in name:
        return name if exists(name) else None
    folders = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    for path in [f"{folder}/{name}" for folder in folders] + _cached(name):
        if exists(path):
            return path
    return None


def _cached(name: str) -> list[str]:
    import io
    from contextlib import redirect_stdout

    from .machine import ldconfig

    output = io.StringIO()
    with redirect_stdout(output):
        ldconfig(["-p"])
    rows = (line.split() for line in output.getvalue().splitlines() if "=>" in line)
    return [row[-1] for row in rows if row[0] == name]


_current = 0
_memory: dict[int, int] = {}
"""Maps the address of a GPU buffer to the value of its bytes or, after a sum, of its 32-bit words."""
_handles = [0x7F0000000000]


def _set(pointer: Any, value: int) -> None:
    """Set the variable that a `byref` argument points to."""
    pointer._obj.value = value


def _number(handle: Any) -> int:
    return handle if isinstance(handle, int) else handle.value or 0


class CudaRuntime:
    """The CUDA runtime functions."""

    def __init__(self) -> None:
        self._gpus = devices.gpu_count(read_state())  # type: ignore[arg-type]

    def cudaGetErrorString(self, code: int) -> bytes:
        return CUDA_ERRORS.get(code, "unknown error").encode()

    def cudaGetDeviceCount(self, count: Any) -> int:
        if not self._gpus:
            return NO_DEVICE
        _set(count, self._gpus)
        return 0

    def cudaSetDevice(self, device: int) -> int:
        global _current
        _current = device
        return 0

    def cudaMalloc(self, pointer: Any, size: int) -> int:
        _handles[0] += size + 4096
        _set(pointer, _handles[0] - size)
        _memory[_handles[0] - size] = 0
        return 0

    def cudaFree(self, pointer: Any) -> int:
        _memory.pop(_number(pointer), None)
        return 0

    def cudaMemset(self, pointer: Any, value: int, size: int) -> int:
        _memory[_number(pointer)] = value * 0x01010101
        return 0

    def cudaMemcpy(self, to: Any, pointer: Any, size: int, kind: int) -> int:
        word = _memory[max(start for start in _memory if start <= _number(pointer))]
        to.raw = (word.to_bytes(4, "little") * (size // 4 + 1))[:size]
        return 0

    def cudaStreamCreate(self, stream: Any) -> int:
        _handles[0] += 16
        _set(stream, _handles[0])
        return 0

    def cudaStreamSynchronize(self, stream: Any) -> int:
        return 0

    def cudaStreamDestroy(self, stream: Any) -> int:
        return 0


class Nccl:
    """The NCCL functions for the GPUs of one or two nodes."""

    def __init__(self, path: str) -> None:
        version = os.path.realpath(path).rpartition(".so.")[2]
        parts = [int(part) for part in version.split(".") if part.isdigit()]
        # A plugin's own copy of the library has no version in its name.
        self._version = parts if len(parts) == 3 else [2, 28, 7]
        self._ranks: list[int] = []
        self._total = 0
        self._sums: list[tuple[int, int]] = []
        self._rank_of: dict[int, int] = {}
        self._gathered: list[tuple[int, int, int, int]] = []
        """Rank, word, address and length of each part of an all-gather."""
        self._network: NcclNetwork | None = None
        self._first, self._address = 0, ""
        self._server: Any = None
        self._partner: Any = None
        self._theirs: tuple[bytes, bytes] | None = None
        """The last data of this node and the data that the partner sent for it."""

    def ncclGetErrorString(self, code: int) -> bytes:
        return NCCL_ERRORS.get(code, "internal error").encode()

    def ncclGetVersion(self, version: Any) -> int:
        major, minor, patch = self._version
        _set(version, major * 10000 + minor * 100 + patch)
        return 0

    def ncclGetUniqueId(self, unique_id: Any) -> int:
        import socket

        self._server = socket.create_server(("127.0.0.1", 0))
        unique_id._obj.internal = f"127.0.0.1:{self._server.getsockname()[1]}".encode()
        return 0

    def ncclGroupStart(self) -> int:
        return 0

    def ncclCommInitRank(self, comm: Any, ranks: int, unique_id: Any, rank: int) -> int:
        _handles[0] += 16
        _set(comm, _handles[0])
        self._rank_of[_handles[0]] = rank
        if not self._ranks:
            self._first, self._address = rank, unique_id.internal.decode()
        self._ranks.append(_current)
        self._total = ranks
        return 0

    def ncclGroupEnd(self) -> int:
        if self._ranks:
            if self._network is None:
                self._network = NcclNetwork(self._version)
            ranks, self._ranks = self._ranks, []
            if not all(self._network.assign(rank) for rank in ranks):
                return INVALID_USAGE
            if len(ranks) != self._total and not self._meet():
                return UNREACHABLE
        total = sum(_memory[send] for send, _ in self._sums)
        if self._sums and self._partner is not None:
            other = self._exchange(total.to_bytes(8, "little"))
            if other is None:
                return UNREACHABLE
            total += int.from_bytes(other, "little")
        for _, receive in self._sums:
            _memory[receive] = total & 0xFFFFFFFF
        self._sums = []
        return self._gather()

    def _gather(self) -> int:
        words = {rank: word for rank, word, _, _ in self._gathered}
        if words and self._partner is not None:
            other = self._exchange(b"".join(words[rank].to_bytes(4, "little") for rank in sorted(words)))
            if other is None:
                return UNREACHABLE
            first = 0 if self._first else len(words)
            for at in range(len(other) // 4):
                words[first + at] = int.from_bytes(other[4 * at : 4 * at + 4], "little")
        for _, _, receive, length in self._gathered:
            for rank, word in words.items():
                _memory[receive + rank * length] = word
        self._gathered = []
        return 0

    def _meet(self) -> bool:
        """Connect to the other node: the node with rank 0 accepts the connection of the other one."""
        import socket

        host, _, port = self._address.partition(":")
        try:
            if self._first == 0:
                self._server.settimeout(PARTNER_S)
                self._partner = self._server.accept()[0]
            else:
                self._partner = socket.create_connection((host, int(port)), PARTNER_S)
            self._partner.settimeout(PARTNER_S)
        except (OSError, ValueError):
            return False
        return True

    def _exchange(self, mine: bytes) -> bytes | None:
        """Return the data of the other node, or None if it does not respond. The buffers do not change between rounds, so data is exchanged once."""
        if self._theirs is None or self._theirs[0] != mine:
            try:
                self._partner.sendall(mine)
                data = self._partner.recv(len(mine))
            except OSError:
                return None
            if len(data) != len(mine):
                return None
            self._theirs = mine, data
        return self._theirs[1]

    def ncclAllReduce(self, send: Any, receive: Any, *_: object) -> int:
        self._sums.append((_number(send), _number(receive)))
        return 0

    def ncclAllGather(self, send: Any, receive: Any, count: int, _type: int, comm: Any, _stream: Any) -> int:
        self._gathered.append((self._rank_of[_number(comm)], _memory[_number(send)], _number(receive), 4 * count))
        return 0

    def ncclCommGetAsyncError(self, comm: Any, error: Any) -> int:
        _set(error, 0)
        return 0

    def ncclCommDestroy(self, comm: Any) -> int:
        for connection in (self._server, self._partner):
            if connection is not None:
                connection.close()
        return 0

    def ncclCommAbort(self, comm: Any) -> int:
        return self.ncclCommDestroy(comm)


class NcclNetwork:
    """Selects the network for this process's communicators, and writes the lines of NCCL's log."""

    def __init__(self, version: list[int]) -> None:
        self._state = read_state()
        self._environ = _environment()
        self._usable: dict[str, bool] = {}
        self._rank = 0
        self._info(f"NCCL version {'.'.join(map(str, version))}+cuda13.0")
        self._names = [*self._plugins(), "IB", "Socket"]

    def assign(self, rank: int) -> bool:
        """Select the network of one communicator; False if none can be used."""
        self._rank = rank
        wanted = self._environ.get("NCCL_NET", "").lower()
        if "NCCL_NET" in self._environ:
            self._info(f"NCCL_NET set by environment to {self._environ['NCCL_NET']}.")
        for name in self._names:
            if wanted and name.lower() != wanted:
                continue
            if name not in self._usable:
                self._usable[name] = self._begins(name)
                self._info(f"{'Initialized' if self._usable[name] else 'Failed to initialize'} NET plugin {name}")
            if self._usable[name]:
                self._info(f"Assigned NET plugin {name} to comm")
                self._info(f"Using network {name}")
                topology = self._environ.get("NCCL_TOPO_FILE", "")
                if topology:
                    self._info(f"NCCL_TOPO_FILE set by environment to {topology}")
                    if not exists(topology):
                        self._info(f"Could not open XML topology file {topology} : No such file or directory")
                return True
        self._say("NCCL WARN Failed to initialize any NET plugin")
        return False

    def _plugins(self) -> list[str]:
        """Load the external plugins that NCCL_NET_PLUGIN lists, or the default plugin, and return their network names."""
        listed = self._environ.get("NCCL_NET_PLUGIN")
        if listed is not None:
            self._info(f"NCCL_NET_PLUGIN set by environment to {listed}")
        words = ["libnccl-net.so"] if listed is None else listed.split(",")
        return [found for word in words if word and word.lower() != "none" for found in self._load(word)]

    def _load(self, word: str) -> list[str]:
        names = [word]
        if "/" not in word and not (word.startswith("lib") and word.endswith(".so")):
            names.append(f"libnccl-net-{word}.so")
        for name in names:
            path = find(name)
            if path is None:
                continue
            if "nccl-library-broken" in self._state["faults"]:
                self._info(
                    f"NET/Plugin: {name}: libnl-route-3.so.200: cannot open shared object file: No such file or directory"
                )
                return []
            content = read_text(path)
            plugin_network = next((network for words, network in _PLUGINS.items() if words in content), None)
            if plugin_network is not None:
                self._info(f"Successfully loaded external network plugin {path}")
                return [plugin_network]
        self._info(f"NET/Plugin: Could not find: {' '.join(names)}")
        return []

    def _begins(self, name: str) -> bool:
        """Return whether a plugin finds devices. Prints its log lines."""
        state = self._state
        if name == "IB":
            return self._infiniband()
        if name == "Libfabric":
            count = len(devices.efa_domains(state))  # type: ignore[arg-type]
            self._info("NET/OFI Initializing aws-ofi-nccl")
            if not count:
                self._info("NET/OFI No eligible providers were found")
                return False
            self._info(f"NET/OFI Selected provider is efa, fabric is efa-direct (found {count} nics)")
        elif name == "gIB":
            self._info("NET/gIB : Initializing gIB")
            return any(up for _, _, up in devices.verbs_ports(state))  # type: ignore[arg-type]
        elif name == "GPUDirectTCPX_v7":
            self._info("NET/GPUDirectTCPX : GPUDirectTCPX enable: 1")
        elif name == "FasTrak":
            self._info("Initializing network FasTrak")
        else:
            self._info("NET/Socket : Using [0]eth0:10.0.0.10<0>")
        return True

    def _infiniband(self) -> bool:
        if self._environ.get("NCCL_IB_DISABLE", "0") not in ("", "0"):
            self._info(f"NCCL_IB_DISABLE set by environment to {self._environ['NCCL_IB_DISABLE']}.")
            return False
        if "nccl-library-broken" in self._state["faults"]:
            self._info("Failed to open libibverbs.so[.1]")
            return False
        wanted = [word for word in self._environ.get("NCCL_IB_HCA", "").split(",") if word]
        if wanted:
            self._info(f"NCCL_IB_HCA set to {','.join(wanted)}")
        used = [
            (name, layer)
            for name, layer, up in devices.verbs_ports(self._state)  # type: ignore[arg-type]
            if up and (not wanted or name.startswith(tuple(word.partition(":")[0] for word in wanted)))
        ]
        if not used:
            self._info("NET/IB : No device found.")
            return False
        words = {"InfiniBand": "IB", "Ethernet": "RoCE"}
        line = "".join(f" [{at}]{name}:1/{words[layer]}" for at, (name, layer) in enumerate(used))
        self._info(f"NET/IB : Using{line} [RO]; OOB eth0:10.0.0.10<0>")
        return True

    def _info(self, text: str) -> None:
        self._say(f"NCCL INFO {text}")

    def _say(self, text: str) -> None:
        path = self._environ.get("NCCL_DEBUG_FILE")
        line = f"{os.uname().nodename}:{os.getpid()}:{os.getpid()} [{self._rank}] {text}\n"
        if path and self._environ.get("NCCL_DEBUG") == "INFO":
            with open(path, "a", encoding="utf-8") as file:
                file.write(line)
        elif self._environ.get("NCCL_DEBUG"):
            sys.stdout.write(line)


_PLUGINS = {
    "aws-ofi-nccl": "Libfabric",
    "library gIB": "gIB",
    "library FasTrak": "FasTrak",
    "GPUDirectTCPX": "GPUDirectTCPX_v7",
}
"""Maps words in a plugin's stand-in library to its network."""


def _environment() -> dict[str, str]:
    """Return the environment with the variables from NCCL's configuration files."""
    environment = dict(os.environ)
    for path in CONFIGURATION:
        for line in read_text(path, "").splitlines():
            name, equals, value = line.strip().partition("=")
            if equals and not name.startswith("#"):
                environment.setdefault(name, value)
    return environment
