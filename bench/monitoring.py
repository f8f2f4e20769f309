"""Measures Prometheus on the control node of a cluster with many nodes: `python bench/monitoring.py [NODES] [MINUTES] [PROMETHEUS]`.

Prometheus runs with the configuration and the rules of the plan, and scrapes NODES p5.48xlarge at the interval of the plan. One server answers for all
exporters, with the series of a node that `metrics_gib` assumes. Blocks of 5 minutes instead of 2 hours include the compaction of the head, in which the
memory is highest; such short blocks say nothing about the disk. The limits are the memory and the vCPUs of the default machine type.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

NODES = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
MINUTES = float(sys.argv[2]) if len(sys.argv) > 2 else 9
PROGRAM = sys.argv[3] if len(sys.argv) > 3 else shutil.which("prometheus")
MACHINE, BLOCK = "p5.48xlarge", "5m"
SETTLED_S = 120
"""Time after the start that is not part of the figures for the CPU, because Prometheus creates the series in it."""


class Exporters:
    """The exporters of all nodes. The values of a round are the same for all nodes: Prometheus compresses each series on its own."""

    def __init__(self, interval_s: float) -> None:
        from gpuinfra.clouds.aws.profile import PROFILE
        from gpuinfra.plan import monitoring
        from tests.monitoring.test_dashboards import counters

        machine = PROFILE.machines[MACHINE]
        assert machine.fabric is not None
        kinds = {name: kind for name, kind in counters().items() if kind != "label"}
        gpu = (
            'gpu="{0}",UUID="GPU-abc00000-1111-4222-8333-00090000028{0}",pci_bus_id="00000000:53:00.{0}",device="nvidia{0}",'
            'modelName="NVIDIA H100 80GB HBM3",Hostname="ip-10-0-1-11"'
        )
        more = monitoring.SERIES_PER_GPU - len(kinds)
        kinds |= {f"DCGM_FI_OTHER_{number}": "gauge" for number in range(more)}
        self._dcgm = [(f"{name}{{{gpu.format(n)}}}", kind) for name, kind in kinds.items() for n in range(machine.gpus)]
        modes = ("idle", "iowait", "irq", "nice", "softirq", "steal", "system", "user")
        self._node = [
            *((f'node_cpu_seconds_total{{cpu="{cpu}",mode="{mode}"}}', "counter") for cpu in range(machine.vcpus) for mode in modes),
            *((f'gpuinfra_fabric_counter_total{{device="rdmap{one}s0",counter="c{number}"}}', "counter")
              for one in range(machine.fabric.devices) for number in range(monitoring.SERIES_PER_DEVICE)),
            *((f'node_other_{number}{{device="nvme{number}n1"}}', "gauge") for number in range(monitoring.SERIES_PER_NODE - 6)),
        ]  # fmt: skip
        self._facts = ("gpuinfra_node_info", "gpuinfra_node_verified", "gpuinfra_node_first_verified_timestamp_seconds")
        self._interval_s, self._lock = interval_s, threading.Lock()
        self._round, self._bodies = -1, dict[str, bytes]()

    def body(self, job: str) -> bytes:
        """What an exporter serves in this round."""
        with self._lock:
            if (now := int(time.time() / self._interval_s)) != self._round:
                self._round, self._bodies = now, {"dcgm": self._text(self._dcgm), "node": self._text(self._node)}
                facts = "".join(f"{name} 1\n" for name in self._facts)
                written = (
                    f'node_textfile_mtime_seconds{{file="/var/lib/gpuinfra-metrics/gpuinfra.prom"}} {time.time():.0f}\n'
                )
                self._bodies["node"] += (facts + written).encode()
            return self._bodies[job]

    def _text(self, series: list[tuple[str, str]]) -> bytes:
        """Counters grow, and half of the gauges change. Counters of errors stay 0, so no alert fires."""
        lines = list[str]()
        for number, (name, kind) in enumerate(series):
            if kind == "counter" and name.startswith(("node_cpu", "gpuinfra_fabric")):
                value = self._round * (1 + number % 7)
            else:
                value = random.randrange(100) if number % 2 and "other" in name.lower() else 0
            lines.append(f"{name} {value}")
        return ("\n".join(lines) + "\n").encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    exporters: Exporters

    def do_GET(self) -> None:
        body = self.exporters.body(self.path.split("/")[1])
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


def configuration(folder: Path, exporters: str, own: str) -> tuple[list[str], float]:
    """Write the files of the plan with the nodes as fixed targets. Return the arguments of Prometheus, and the interval in seconds."""
    from datetime import date

    from gpuinfra.monitoring.config import FOLDER, SCRAPE_S
    from gpuinfra.plan.make import build_plan
    from gpuinfra.spec import parse_spec
    from tests.rules.cases import MONITORING, declaration

    spec = declaration(("aws", {"monitoring": MONITORING, "pools.0.machine": MACHINE}))
    (pool,) = [one for one in build_plan(parse_spec(spec), date(2026, 11, 29)).pools if one.name == "monitoring"]
    files = {one.path.rpartition("/")[2]: one.content for one in pool.files}
    (folder / "rules.yml").write_text(files["rules.yml"])
    prometheus = json.loads(files["prometheus.yml"].replace(FOLDER, str(folder)).replace("127.0.0.1:9090", own))
    for job in prometheus["scrape_configs"]:
        if job.pop("ec2_sd_configs", None) is None:
            continue
        name = job["job_name"]
        job["static_configs"] = [
            {
                "targets": [exporters],
                "labels": {
                    "__metrics_path__": f"/{name}/{n}",
                    "__meta_ec2_tag_gpuinfra_pool": "gpu",
                    "__meta_ec2_instance_id": f"i-{n:017x}",
                },
            }
            for n in range(NODES)
        ]
    del prometheus["alerting"]
    (folder / "prometheus.yml").write_text(json.dumps(prometheus))
    blocks = [f"--storage.tsdb.{which}-block-duration={BLOCK}" for which in ("min", "max")]
    return [
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address={own}",
        *blocks,
    ], float(SCRAPE_S)


def used(pid: int) -> tuple[float, float]:
    """The resident memory of a process in GiB, and its CPU time in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (
        int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 2**30,
        (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
    )


def ask(own: str, query: str) -> float:
    """The value of an instant query, or 0 without a result."""
    url = f"http://{own}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(url, timeout=60) as reply:
        found: list[Mapping[str, Any]] = json.load(reply)["data"]["result"]
    return float(found[0]["value"][1]) if found else 0.0


def main() -> None:
    """Print the figures."""
    from gpuinfra.clouds.aws.profile import PROFILE
    from gpuinfra.plan import monitoring
    from tests.servers import free_port

    if PROGRAM is None:
        print("bench/monitoring.py requires prometheus")
        return
    version = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True)
    print(f"{NODES} {MACHINE}, {MINUTES:g} minutes, {(version.stdout or version.stderr).splitlines()[0]}")
    with tempfile.TemporaryDirectory() as name:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        server.request_queue_size = 1024
        own = f"127.0.0.1:{free_port()}"
        arguments, interval_s = configuration(Path(name), f"127.0.0.1:{server.server_address[1]}", own)
        _Handler.exporters = Exporters(interval_s)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with (Path(name) / "log").open("w") as log, subprocess.Popen([PROGRAM, *arguments], stderr=log) as process:
            begun, most, settled = time.monotonic(), 0.0, 0.0
            while (spent := time.monotonic() - begun) < MINUTES * 60:
                time.sleep(1)
                memory, cpu = used(process.pid)
                most = max(most, memory)
                settled = settled or (cpu if spent > SETTLED_S else 0.0)
            cores = (used(process.pid)[1] - settled) / (MINUTES * 60 - SETTLED_S)
            series = ask(own, "prometheus_tsdb_head_series")
            rules = ask(own, "sum(prometheus_rule_group_last_duration_seconds)")
            failed = ask(own, "count(up == 0) or vector(0)")
            slowest = ask(own, "max(scrape_duration_seconds)")
            compacted = ask(own, "prometheus_tsdb_compactions_total")
            process.terminate()
        server.shutdown()
    control = PROFILE.machines[PROFILE.control.machine]
    planned = NODES * monitoring._series(PROFILE.machines[MACHINE])  # pyright: ignore[reportPrivateUsage]
    print(
        f"  {series:,.0f} series, {planned:,} planned; {failed:.0f} targets without an answer, slowest scrape {slowest:.2f} s"
    )
    each = f"{most * 2**30 / series:,.0f} bytes for a series"
    print(
        f"  memory: at most {most:.2f} GiB, {each}, of {control.memory_gib} GiB of {control.name}; {compacted:.0f} compactions"
    )
    print(f"  CPU: {cores:.2f} of {control.vcpus} vCPUs; all rules: {rules:.2f} s of {interval_s:g} s")


if __name__ == "__main__":
    main()
