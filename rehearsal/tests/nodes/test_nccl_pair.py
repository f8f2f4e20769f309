"""The stand-in of NCCL: two nodes add their sums."""

from __future__ import annotations

import ctypes
import threading
from ctypes import byref, c_void_p
from types import SimpleNamespace
from typing import Any

import pytest

from gpuinfra.node.nccl import ALL_GATHER, ALL_REDUCE, UniqueId, all_reduce
from gpuinfra_rehearsal.tools import nccl

LOCK = threading.Lock()
"""The two nodes of a test are threads, which share the memory of the stand-in."""


@pytest.fixture(autouse=True)
def network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every communicator has a network, and a missing partner is noticed at once."""
    monkeypatch.setattr(nccl, "NcclNetwork", lambda version: SimpleNamespace(assign=lambda rank: True))
    monkeypatch.setattr(nccl, "PARTNER_S", 60.0)


def node(first: int, ranks: int, one_id: UniqueId, library: nccl.Nccl, values: list[int]) -> list[int]:
    """Run two all-reduces with these bytes on a node. Returns the codes of the groups and the received words."""
    cuda, send, receive = object.__new__(nccl.CudaRuntime), [], []
    codes = [library.ncclGroupStart()]
    with LOCK:
        for at, value in enumerate(values):
            library.ncclCommInitRank(byref(c_void_p()), ranks, one_id, first + at)
            for buffers in (send, receive):
                buffers.append(c_void_p())
                cuda.cudaMalloc(byref(buffers[-1]), 1024)
            cuda.cudaMemset(send[-1], value, 1024)
    codes.append(library.ncclGroupEnd())
    for _ in range(2):
        for one, other in zip(send, receive, strict=True):
            library.ncclAllReduce(one, other)
        codes.append(library.ncclGroupEnd())
    library.ncclCommDestroy(None)
    return [*codes, *(nccl._memory[buffer.value or 0] for buffer in receive)]


def test_two_nodes_receive_the_sum_of_all_gpus() -> None:
    """Two nodes with two GPUs each receive the sum over four GPUs in each round."""
    first, second, one_id, found = nccl.Nccl("libnccl.so.2"), nccl.Nccl("libnccl.so.2"), UniqueId(), []
    first.ncclGetUniqueId(byref(one_id))
    copy = UniqueId.from_buffer_copy(one_id.tobytes())
    thread = threading.Thread(target=lambda: found.append(node(2, 4, copy, second, [3, 4])))
    thread.start()
    word = (1 + 2 + 3 + 4) * 0x01010101
    assert node(0, 4, one_id, first, [1, 2]) == [0, 0, 0, 0, word, word]
    thread.join(300)
    assert found == [[0, 0, 0, 0, word, word]]


def test_a_node_whose_partner_is_gone_gets_an_error() -> None:
    """The second node cannot connect to a first node whose process ended."""
    first, second, one_id = nccl.Nccl("libnccl.so.2"), nccl.Nccl("libnccl.so.2"), UniqueId()
    first.ncclGetUniqueId(byref(one_id))
    first._server.close()
    assert node(2, 4, one_id, second, [3, 4])[1] == nccl.UNREACHABLE


def test_one_node_needs_no_connection() -> None:
    """All ranks of one node are summed without the other node."""
    library, one_id = nccl.Nccl("libnccl.so.2"), UniqueId()
    assert ctypes.sizeof(one_id) == 128
    library.ncclGetUniqueId(byref(one_id))
    assert node(0, 2, one_id, library, [1, 2])[-1] == 3 * 0x01010101


@pytest.mark.parametrize("collective", [ALL_REDUCE, ALL_GATHER])
def test_the_test_of_the_node_program_finds_no_wrong_data(collective: str) -> None:
    """The node program verifies the result of each collective of the stand-in, as it does on a real node."""
    library, cuda = nccl.Nccl("libnccl.so.2"), object.__new__(nccl.CudaRuntime)
    libraries: Any = SimpleNamespace(
        nccl=lambda name, *arguments: getattr(library, name)(*arguments),
        cuda=lambda name, *arguments: getattr(cuda, name)(*arguments),
        devices=lambda: 4,
        version=lambda: 22809,
    )
    one_id = UniqueId()
    library.ncclGetUniqueId(byref(one_id))
    result = all_reduce(libraries, size=1 << 26, rounds=2, collective=collective, unique_id=one_id)
    assert (result["wrong"], result["collective"], result["bytes"]) == (0, collective, 1 << 26)
