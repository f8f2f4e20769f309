"""Prometheus and Alertmanager of a stand-in control node.

The host's real programs run with the configuration of the node, if it has them. All stand-in nodes share the host's network, so they listen on the
loopback address of this node, the service discovery is replaced by a file with the nodes that its own request finds, and the DCGM exporter, which opens
no port, is left out. Scrapes follow each second. Without the real programs, the stand-ins read their configuration, find the nodes, and collect nothing.
`curl` calls `answer` in both cases.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from .exporter import address_of
from .passthrough import real
from .searches import SEARCHES, FoundNode
from .state import dumps, fail, loads, read_text, unit_active, write_atomically, write_file

UNITS = {":9090/": "gpuinfra-prometheus.service", ":9093/": "gpuinfra-alertmanager.service"}


WORK = "/run/standin-monitoring"
"""Folder for the configuration of the real programs."""
ALERTMANAGER = "prometheus-alertmanager"
"""Name of Debian's program."""


def daemon(argv: list[str]) -> int:
    """Run until terminated, with a configuration that can be read. Prometheus asks the cloud for the nodes, and logs how many it finds."""
    from .vendor import stay

    options = dict(word.split("=", 1) for word in argv if "=" in word)
    config = options.get("--config.file", "")
    problem = _problem(config) if config else "no --config.file"
    if problem:
        return fail(f"Error loading config: {problem}")
    content = _content(config)
    if "scrape_configs" not in content:
        return _alertmanager(config, options["--storage.path"]) if real(ALERTMANAGER) else stay()
    jobs = [one for one in content["scrape_configs"] if any(key in SEARCHES for key in one)]
    nodes = {str(job["job_name"]): _discover(job) for job in jobs}
    if real("prometheus") is None:
        return stay()
    return _prometheus(content, options["--storage.tsdb.path"], jobs, nodes)


def _discover(job: dict[str, Any]) -> list[FoundNode] | None:
    """Return the nodes of a job, or None if the cloud cannot be asked."""
    import urllib.error

    (kind,) = [key for key in job if key in SEARCHES]
    (keep,) = [one["regex"] for one in job["relabel_configs"] if one.get("action") == "keep"]
    try:
        every = [node for one in job[kind] for node in SEARCHES[kind](one, dict(os.environ))]
    except (urllib.error.HTTPError, OSError) as error:
        sys.stderr.write(f"Unable to refresh target groups: {error}\n")
        sys.stderr.flush()
        return None
    nodes = [node for node in every if re.fullmatch(keep, node.pool)]
    sys.stdout.write(f"discovery manager found {len(nodes)} targets\n")
    sys.stdout.flush()
    return nodes


def _prometheus(
    content: dict[str, Any], storage: str, jobs: list[dict[str, Any]], first: dict[str, list[FoundNode] | None]
) -> int:
    """Run the real Prometheus, and refresh its targets."""
    import time

    os.makedirs(WORK, exist_ok=True)
    here = os.environ["GPUINFRA_MONITORING_ADDRESS"]
    scraped = [job for job in jobs if job["job_name"] == "node"]
    own = [
        {"job_name": job["job_name"], "file_sd_configs": [{"files": [f"{WORK}/{job['job_name']}.json"], "refresh_interval": "1s"}]}
        for job in scraped
    ]  # fmt: skip
    settings = {
        **{key: content[key] for key in ("global", "rule_files", "alerting") if key in content},
        "scrape_configs": [*own, *(one for one in content["scrape_configs"] if one not in jobs)],
    }
    settings["global"] = {**settings["global"], "scrape_interval": "1s", "evaluation_interval": "1s"}
    write_file(f"{WORK}/prometheus.yml", dumps(settings).replace("127.0.0.1", here))
    for job in scraped:
        _write_targets(str(job["job_name"]), first[str(job["job_name"])] or [])
    options = [
        f"--config.file={WORK}/prometheus.yml",
        f"--storage.tsdb.path={storage}",
        f"--web.listen-address={here}:9090",
    ]
    _child("prometheus", options)
    while True:
        time.sleep(2)
        for job in scraped:
            if (nodes := _discover(job)) is not None:
                _write_targets(str(job["job_name"]), nodes)


def _write_targets(job: str, nodes: list[FoundNode]) -> None:
    targets = [
        {"targets": [f"{address_of(node.instance_id)}"], "labels": {"instance": node.label, "pool": node.pool}}
        for node in nodes
    ]
    write_atomically(f"{WORK}/{job}.json", dumps(targets))


def _alertmanager(config: str, storage: str) -> int:
    """Run the real Alertmanager. It publishes to the topics of the stand-in cloud."""
    import signal

    here = os.environ["GPUINFRA_MONITORING_ADDRESS"]
    content = _content(config)
    topics = [one for receiver in content["receivers"] for one in receiver.get("sns_configs", ())]
    for topic in topics:
        topic["api_url"] = os.environ["AWS_ENDPOINT_URL"]
    if topics:
        from .signed import role_keys

        os.environ.update(role_keys(dict(os.environ)))
    os.makedirs(WORK, exist_ok=True)
    config = f"{WORK}/alertmanager.yml"
    write_file(config, dumps(content))
    options = [f"--config.file={config}", f"--storage.path={storage}", f"--web.listen-address={here}:9093"]
    _child(ALERTMANAGER, [*options, "--cluster.listen-address="])
    while True:
        signal.pause()


def _child(name: str, options: list[str]) -> None:
    """Start the host's program, and end with it and before it."""
    import signal

    path = real(name)
    assert path is not None
    pid = os.posix_spawn(path, [name, *options], os.environ)

    def end(*_: object) -> None:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        os._exit(0)

    def ended(*_: object) -> None:
        os._exit(1)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGCHLD, ended)


def promtool(argv: list[str]) -> int:
    """`promtool check config FILE`, with the rule files next to it."""
    path = argv[-1]
    problem = _problem(path)
    if not problem:
        folder = path.rpartition("/")[0]
        problem = next(
            (
                reason
                for name in _content(path).get("rule_files", ())
                if (reason := _problem(os.path.join(folder, name)))
            ),
            "",
        )
    return (
        fail(f"  FAILED: {problem}") if problem else _said(f" SUCCESS: {path} is valid prometheus config file syntax")
    )


def amtool(argv: list[str]) -> int:
    """`amtool check-config FILE`"""
    problem = _problem(argv[-1])
    return fail(f"amtool: error: {problem}") if problem else _said(f"Checking '{argv[-1]}'  SUCCESS")


def answer(url: str) -> int:
    """Answer `curl http://127.0.0.1:PORT/-/ready`."""
    unit = next((unit for port, unit in UNITS.items() if port in url), "")
    return _said("is Ready.") if unit and unit_active(unit) else fail("curl: (7) Failed to connect to 127.0.0.1", 7)


def _said(text: str) -> int:
    sys.stdout.write(text + "\n")
    return 0


def _content(path: str) -> dict[str, Any]:
    return loads(read_text(path))  # type: ignore[return-value]


def _problem(path: str) -> str:
    """Return why a file cannot be read. The files of a control node contain JSON."""
    text = read_text(path, "")
    try:
        return "" if loads(text) else f"{path} is empty or does not exist"
    except ValueError as error:
        return f"{path}: {error}"
