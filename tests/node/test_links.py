from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.node import links, ports
from gpuinfra.node.console import MissingPrerequisite

WRITE = """#!/bin/sh
# Stand-in of ib_write_bw: without a host as last argument it is the server.
case "$*" in *127.0.0.1) ;; *) exec sleep 30 ;; esac
case "$*" in *use_cuda*) [ -e {folder}/cuda ] || {{ echo "ib_write_bw: unrecognized option '--use_cuda=0'"; exit 1; }} ;; esac
case "$*" in *mlx5_ib2*) [ ! -e {folder}/broken ] || {{ echo "Couldn't connect"; exit 1; }} ;; esac
cat <<END
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 8388608    5000             393.12             392.47               0.005848
---------------------------------------------------------------------------------------
END
"""
PING = """#!/bin/sh
case "$*" in *127.0.0.1) ;; *) exec sleep 30 ;; esac
[ "$FI_EFA_ENABLE_SHM_TRANSFER" = 0 ] || exit 3
cat <<END
bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
1m      200     =200     400m        0.03s  11938.20      87.83       0.01
END
"""
INFO = """#!/bin/sh
for device in rdmap16s27 rdmap32s27; do printf 'provider: efa\\n    fabric: efa\\n    domain: %s-rdm\\n    type: FI_EP_RDM\\n' $device; done
"""
RDMA = """#!/bin/sh
count=$(cat {folder}/count 2>/dev/null || echo 0); echo $((count + 1)) >{folder}/count
printf 'link rdmap16s27/1\\n    rx_drops %s\\n    retrans_timeout_events 0\\nlink rdmap32s27/1\\n    rx_drops 7\\n    retrans_timeout_events 0\\n' $count
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with stand-ins of the vendors' tools, and ports that the test sets."""
    for name, text in {"ib_write_bw": WRITE, "fi_pingpong": PING, "fi_info": INFO, "rdma": RDMA}.items():
        (tmp_path / name).write_text(text.format(folder=tmp_path))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def see(monkeypatch: pytest.MonkeyPatch, layer: str, *devices: str) -> None:
    """The kernel lists these ports, all up."""
    found = [{"device": name, "state": "4: ACTIVE", "layer": layer} for name in devices]
    found.append({"device": "mlx5_an0", "state": "4: ACTIVE", "layer": "Ethernet"})
    monkeypatch.setattr(ports, "ports", lambda: {"schema": "gpuinfra.ports/1", "ports": found})


def quick(seconds: float) -> None:
    """Stand-in servers start immediately."""


def test_every_infiniband_port_is_measured(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fabric port is measured on its own, from GPU memory; Azure's Ethernet function is skipped."""
    (tools / "cuda").touch()
    see(monkeypatch, "InfiniBand", "mlx5_ib0", "mlx5_ib1")
    found = links.measure(quick)
    assert found["tool"] == "ib_write_bw"
    assert found["devices"] == [
        {"device": name, "gbps": 392.47, "memory": "gpu", "problem": None} for name in ("mlx5_ib0", "mlx5_ib1")
    ]


def test_tool_without_cuda_measures_from_host_memory(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The distribution's perftest has no CUDA support: the measurement is repeated from host memory."""
    see(monkeypatch, "Ethernet", "rocep145s0")
    assert links.measure(quick)["devices"] == [
        {"device": "rocep145s0", "gbps": 392.47, "memory": "host", "problem": None}
    ]


def test_failed_port_does_not_hide_the_others(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that does not connect has no rate but the tool's last line; the others are measured."""
    (tools / "cuda").touch()
    (tools / "broken").touch()
    see(monkeypatch, "InfiniBand", "mlx5_ib1", "mlx5_ib2", "mlx5_ib3")
    found = links.measure(quick)["devices"]
    assert [one["gbps"] for one in found] == [392.47, None, 392.47]
    assert found[1]["problem"] == "ib_write_bw failed with exit code 1: Couldn't connect"


def test_every_efa_domain_is_measured_with_its_counters(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """EFA domains are measured over the network, not over shared memory, and dropped packets are counted."""
    monkeypatch.setattr(ports, "ports", lambda: {"ports": []})
    found = links.measure(quick)
    assert [(one["device"], one["gbps"]) for one in found["devices"]] == [
        ("rdmap16s27-rdm", 95.51),
        ("rdmap32s27-rdm", 95.51),
    ]
    assert [one["counters"] for one in found["devices"]] == [{"rx_drops": 1}, {}]


def test_without_a_device_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node without a fabric raises an error."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(ports, "ports", lambda: {"ports": []})
    with pytest.raises(MissingPrerequisite, match="no active RDMA port and no EFA domain"):
        links.measure(quick)


def test_a_missing_tool_is_a_problem_of_each_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without perftest every port has no rate but a reason."""
    monkeypatch.setenv("PATH", str(tmp_path))
    see(monkeypatch, "InfiniBand", "mlx5_ib0")
    assert links.measure(quick)["devices"][0]["problem"] == "ib_write_bw: No such file or directory"


@pytest.mark.parametrize(
    ("text", "figure"),
    [
        (" #bytes     #iterations    BW average[Gb/sec]\n 8388608    5000     1.5\n", 1.5),
        (" #bytes #iterations    BW peak[Gb/sec]    BW average[Gb/sec]\n 8388608    5000     1.5  many\n", None),
        (" 8388608    5000     1.5 1.4 0.1\n", None),
        (" #bytes     #iterations    BW peak[Gb/sec]\n 8388608    5000     1.5\n", None),
        ("", None),
    ],
)
def test_rate_is_read_by_column_name(text: str, figure: float | None) -> None:
    """Without a header, the column or a number there is no rate."""
    assert links.column(text, "BW average[Gb/sec]", r"#bytes\s") == figure


def test_ports_are_read_from_the_kernel(tmp_path: Path) -> None:
    """Each port has its texts; a missing one is null, and devices without ports are skipped."""
    port = tmp_path / "mlx5_ib0" / "ports" / "1"
    (port / "pkeys").mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    (port / "pkeys" / "0").write_text("0x800b\n")
    (tmp_path / "other").mkdir()
    found: list[dict[str, Any]] = ports.ports(tmp_path)["ports"]
    assert len(found) == 1
    assert (found[0]["device"], found[0]["port"], found[0]["state"], found[0]["key_0"]) == (
        "mlx5_ib0",
        "1",
        "4: ACTIVE",
        "0x800b",
    )
    assert found[0]["link_downed"] is None
    assert ports.ports(tmp_path / "nothing")["ports"] == []
