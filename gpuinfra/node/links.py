"""How fast each fabric device of this node is, over a loop through the device itself: `node.pyz links`.

RDMA devices are measured by `ib_write_bw` (perftest), from GPU memory where it was built for that; EFA domains by `fi_pingpong`
(libfabric), with the shared-memory shortcut off. One device after the other, so that no two share a PCIe switch.
Both ends run here, so a slow link shows that is this node's own; pairs of nodes are the business of `pair.py`.
Output formats: perftest's and libfabric's own print-outs, read by column name. Nothing is judged here.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from typing import Any, Callable

from . import ports

SIZE = 8 * 1024 * 1024
"""Bytes of one RDMA write; what Azure's node health checks use."""
PING = 1024 * 1024
LIMIT_S = 60.0
_PORT = 18510
COUNTERS = ("rx_drops", "retrans_timeout_events")
"""EFA's counters that a healthy loop leaves as they are."""


class LinkError(Exception):
    """Nothing could be measured; the message says why."""


def measure(wait: Callable[[float], None] = time.sleep) -> dict[str, Any]:
    """Measure every device, and say what became of it.

    One object of schema `gpuinfra.links/1`: `tool`, and `devices` with `device`, `gbps` (null where it failed), `memory`
    (`gpu` or `host`), `problem` (null or why) and, for EFA, `counters` that rose. Raises `LinkError` where there is no device.
    """
    rdma = [one for one in ports.ports()["ports"] if (one["state"] or "").startswith("4")]
    fabric = [one for one in rdma if one["layer"] == "InfiniBand"]
    if not fabric:
        fabric = [one for one in rdma if one["layer"] == "Ethernet" and not one["device"].startswith("mlx5_an")]
    if fabric:
        devices = [_write(at, one["device"], one["layer"], wait) for at, one in enumerate(fabric)]
        return {"schema": "gpuinfra.links/1", "tool": "ib_write_bw", "devices": devices}
    domains = _efa_domains()
    if not domains:
        raise LinkError("there is no RDMA port that is up and no EFA domain: nothing can be measured")
    devices = []
    for at, domain in enumerate(domains):
        before = _counters(domain)
        one = _ping(at, domain, wait)
        rose = {name: value - before.get(name, 0) for name, value in _counters(domain).items()}
        one["counters"] = {name: value for name, value in rose.items() if value > 0}
        devices.append(one)
    return {"schema": "gpuinfra.links/1", "tool": "fi_pingpong", "devices": devices}


def _write(at: int, device: str, layer: str, wait: Callable[[float], None]) -> dict[str, Any]:
    # 3 is the first RoCE v2 address of a port with an IPv4 address; InfiniBand has its one at 0.
    index = "0" if layer == "InfiniBand" else "3"
    words = ["ib_write_bw", "-d", device, "-p", str(_PORT + at), "-s", str(SIZE), "-x", index, "-F", "--report_gbits"]
    gpu = ["--use_cuda=%d" % (at % 8)]
    text, problem = _both(words + gpu, ["127.0.0.1"], {}, wait)
    memory = "gpu"
    if problem and re.search(r"(?i)unrecognized option|invalid option|use_cuda|cuda", text + problem):
        memory = "host"  # perftest of the distribution is built without CUDA
        text, problem = _both(words, ["127.0.0.1"], {}, wait)
    rate = column(text, "BW average[Gb/sec]", r"#bytes\s")
    return _one(device, rate, memory, problem or (None if rate is not None else "ib_write_bw printed no average"))


def _ping(at: int, domain: str, wait: Callable[[float], None]) -> dict[str, Any]:
    words = ["fi_pingpong", "-p", "efa", "-e", "rdm", "-d", domain, "-S", str(PING), "-I", "200"]
    text, problem = _both(words, ["127.0.0.1"], {"FI_EFA_ENABLE_SHM_TRANSFER": "0"}, wait)
    rate = column(text, "MB/sec", r"bytes\s")
    gbps = None if rate is None else rate * 8 / 1000
    return _one(domain, gbps, "host", problem or (None if rate is not None else "fi_pingpong printed no rate"))


def _one(device: str, gbps: float | None, memory: str, problem: str | None) -> dict[str, Any]:
    figure = None if problem or gbps is None else round(gbps, 2)
    return {"device": device, "gbps": figure, "memory": memory, "problem": problem}


def column(text: str, name: str, header: str) -> float | None:
    """The figure below a column's name in the last row of a print-out; None where there is none."""
    names: list[str] = []
    found = None
    for line in text.splitlines():
        line = line.strip()
        if re.match(header, line):
            names = re.findall(r"BW \w+\[[^\]]*\]|\S+", line)  # perftest's names hold a blank
        elif names and re.match(r"^\d", line):
            cells = line.split()
            if name in names and len(cells) >= len(names):
                try:
                    found = float(cells[names.index(name)])
                except ValueError:
                    return None
    return found


def _both(
    words: list[str], client: list[str], more: dict[str, str], wait: Callable[[float], None]
) -> tuple[str, str | None]:
    """Run a server and its client on this node; the client's output, and what went wrong."""
    environment = dict(os.environ, LC_ALL="C", **more)
    # EFA's tools are not on the path of a service.
    environment["PATH"] = environment.get("PATH", "/usr/bin:/bin") + ":/opt/amazon/efa/bin"
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    try:
        server = subprocess.Popen(words, env=environment, start_new_session=True, cwd="/", **pipes)
    except OSError as error:
        return "", "%s: %s" % (words[0], error.strerror or "cannot be run")
    try:
        wait(1.0)
        if server.poll() is not None:
            said = server.stdout.read(4096).decode("utf-8", "replace") if server.stdout else ""
            return said, "%s ended at once: %s" % (words[0], _last(said))
        done = subprocess.run([*words, *client], env=environment, timeout=LIMIT_S, check=False, cwd="/", **pipes)
    except subprocess.TimeoutExpired:
        return "", "%s did not end within %d s" % (words[0], LIMIT_S)
    except OSError as error:
        return "", "%s: %s" % (words[0], error.strerror or "cannot be run")
    finally:
        if server.poll() is None:
            server.kill()
        server.communicate()
    text = done.stdout[:65536].decode("utf-8", "replace")
    return text, None if done.returncode == 0 else "%s ended with %d: %s" % (words[0], done.returncode, _last(text))


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "nothing said"


def _efa_domains() -> list[str]:
    text = _said(["fi_info", "-p", "efa", "-t", "FI_EP_RDM"]) or _said(
        ["/opt/amazon/efa/bin/fi_info", "-p", "efa", "-t", "FI_EP_RDM"]
    )
    return sorted(set(re.findall(r"^\s*domain: (\S+)$", text, re.MULTILINE)))


def _counters(domain: str) -> dict[str, int]:
    text = _said(["rdma", "-p", "statistic", "show"])
    block = re.search(
        r"link %s/1\b(.*?)(?=^link |\Z)" % re.escape(domain.split("-")[0]), text, re.MULTILINE | re.DOTALL
    )
    found = re.findall(r"\b(%s)\s+(\d+)" % "|".join(COUNTERS), block.group(1)) if block else []
    return {name: int(value) for name, value in found}


def _said(words: list[str]) -> str:
    try:
        done = subprocess.run(words, capture_output=True, timeout=30, check=False, cwd="/", stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout[:1_000_000].decode("utf-8", "replace") if done.returncode == 0 else ""
