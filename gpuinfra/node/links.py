"""`node.pyz links`: measures each fabric device in this node with a loopback test.

`ib_write_bw` (perftest) measures RDMA devices, from GPU memory if it was built with CUDA. `fi_pingpong` (libfabric) measures EFA
domains, with the shared-memory path disabled. Devices are measured one at a time, because two devices can share a PCIe switch.
Both ends run on this node, so a slow link is this node's fault; `pair.py` measures pairs of nodes.
The module reads output by column name. It measures and does not judge.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from typing import Any, Callable

from . import ports
from .console import MissingPrerequisite

SIZE = 8 * 1024 * 1024
"""Bytes per RDMA write, as in Azure's node health checks."""
PING = 1024 * 1024
LIMIT_S = 60.0
_PORT = 18510
COUNTERS = ("rx_drops", "retrans_timeout_events")
"""EFA counters that do not change in a healthy loopback test."""


def measure(wait: Callable[[float], None] = time.sleep) -> dict[str, Any]:
    """Measure every device.

    One object of schema `gpuinfra.links/1`: `tool`, and `devices` with `device`, `gbps` (null on failure), `memory`
    (`gpu` or `host`), `problem` (null or the reason) and, for EFA, the `counters` that rose. Raises `MissingPrerequisite` if there is no device.
    """
    rdma = [one for one in ports.ports()["ports"] if (one["state"] or "").startswith("4")]
    fabric = [one for one in rdma if one["layer"] == "InfiniBand"]
    if not fabric:
        fabric = [one for one in rdma if one["layer"] == "Ethernet" and not one["device"].startswith("mlx5_an")]
    if fabric:
        devices = [_measure_rdma(at, one["device"], one["layer"], wait) for at, one in enumerate(fabric)]
        return {"schema": "gpuinfra.links/1", "tool": "ib_write_bw", "devices": devices}
    domains = _efa_domains()
    if not domains:
        raise MissingPrerequisite("found no active RDMA port and no EFA domain to measure")
    devices = []
    for at, domain in enumerate(domains):
        before = _counters(domain)
        device = _measure_efa(at, domain, wait)
        rose = {name: value - before.get(name, 0) for name, value in _counters(domain).items()}
        device["counters"] = {name: value for name, value in rose.items() if value > 0}
        devices.append(device)
    return {"schema": "gpuinfra.links/1", "tool": "fi_pingpong", "devices": devices}


def _measure_rdma(at: int, device: str, layer: str, wait: Callable[[float], None]) -> dict[str, Any]:
    # GID index 3 is the first RoCE v2 address of a port with an IPv4 address; InfiniBand has its only GID at index 0.
    index = "0" if layer == "InfiniBand" else "3"
    words = ["ib_write_bw", "-d", device, "-p", str(_PORT + at), "-s", str(SIZE), "-x", index, "-F", "--report_gbits"]
    gpu = ["--use_cuda=%d" % (at % 8)]
    text, problem = _server_and_client(words + gpu, {}, wait)
    memory = "gpu"
    if problem and re.search(r"(?i)unrecognized option|invalid option|use_cuda|cuda", text + problem):
        memory = "host"  # the distribution builds perftest without CUDA
        text, problem = _server_and_client(words, {}, wait)
    rate = column(text, "BW average[Gb/sec]", r"#bytes\s")
    return _result(device, rate, memory, problem or (None if rate is not None else "ib_write_bw printed no average"))


def _measure_efa(at: int, domain: str, wait: Callable[[float], None]) -> dict[str, Any]:
    words = ["fi_pingpong", "-p", "efa", "-e", "rdm", "-d", domain, "-S", str(PING), "-I", "200"]
    text, problem = _server_and_client(words, {"FI_EFA_ENABLE_SHM_TRANSFER": "0"}, wait)
    rate = column(text, "MB/sec", r"bytes\s")
    gbps = None if rate is None else rate * 8 / 1000
    return _result(domain, gbps, "host", problem or (None if rate is not None else "fi_pingpong printed no rate"))


def _result(device: str, gbps: float | None, memory: str, problem: str | None) -> dict[str, Any]:
    figure = None if problem or gbps is None else round(gbps, 2)
    return {"device": device, "gbps": figure, "memory": memory, "problem": problem}


def column(text: str, name: str, header: str) -> float | None:
    """Return the number under a column name in the last row of the output, or None."""
    names: list[str] = []
    value = None
    for line in text.splitlines():
        line = line.strip()
        if re.match(header, line):
            names = re.findall(r"BW \w+\[[^\]]*\]|\S+", line)  # perftest's names contain a space
        elif names and re.match(r"^\d", line):
            cells = line.split()
            if name in names and len(cells) >= len(names):
                try:
                    value = float(cells[names.index(name)])
                except ValueError:
                    return None
    return value


def _server_and_client(words: list[str], more: dict[str, str], wait: Callable[[float], None]) -> tuple[str, str | None]:
    """Run a server and its client on this node. Return the client's output and the problem."""
    environment = dict(os.environ, LC_ALL="C", **more)
    # EFA's tools are not in the PATH of a service.
    environment["PATH"] = environment.get("PATH", "/usr/bin:/bin") + ":/opt/amazon/efa/bin"
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    try:
        server = subprocess.Popen(words, env=environment, start_new_session=True, cwd="/", **pipes)
    except OSError as error:
        return "", "%s: %s" % (words[0], error.strerror or "cannot be started")
    try:
        wait(1.0)
        if server.poll() is not None:
            output = server.stdout.read(4096).decode("utf-8", "replace") if server.stdout else ""
            return output, "%s exited immediately: %s" % (words[0], _last_line(output))
        done = subprocess.run([*words, "127.0.0.1"], env=environment, timeout=LIMIT_S, check=False, cwd="/", **pipes)
    except subprocess.TimeoutExpired:
        return "", "%s timed out after %d s" % (words[0], LIMIT_S)
    except OSError as error:
        return "", "%s: %s" % (words[0], error.strerror or "cannot be started")
    finally:
        if server.poll() is None:
            server.kill()
        server.communicate()
    text = done.stdout[:65536].decode("utf-8", "replace")
    return text, None if done.returncode == 0 else "%s failed with exit code %d: %s" % (
        words[0],
        done.returncode,
        _last_line(text),
    )


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no output"


def _efa_domains() -> list[str]:
    text = _output(["fi_info", "-p", "efa", "-t", "FI_EP_RDM"]) or _output(
        ["/opt/amazon/efa/bin/fi_info", "-p", "efa", "-t", "FI_EP_RDM"]
    )
    return sorted(set(re.findall(r"^[ \t]*domain: (\S+)$", text, re.MULTILINE)))


def _counters(domain: str) -> dict[str, int]:
    text = _output(["rdma", "-p", "statistic", "show"])
    block = re.search(
        r"link %s/1\b(.*?)(?=^link |\Z)" % re.escape(domain.split("-")[0]), text, re.MULTILINE | re.DOTALL
    )
    counters = re.findall(r"\b(%s)\s+(\d+)" % "|".join(COUNTERS), block.group(1)) if block else []
    return {name: int(value) for name, value in counters}


def _output(words: list[str]) -> str:
    try:
        done = subprocess.run(words, capture_output=True, timeout=30, check=False, cwd="/", stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout[:1_000_000].decode("utf-8", "replace") if done.returncode == 0 else ""
