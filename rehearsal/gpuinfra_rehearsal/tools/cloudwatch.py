"""Amazon CloudWatch Agent: reads its real configuration, and sends what it selects to the stand-in's CloudWatch Logs, as far as gpuinfra's configuration goes.

A journal entry becomes the JSON object that the agent sends, with the fields of the entry in `body`
(amazon-contributing/opentelemetry-collector-contrib: exporter/awscloudwatchlogsexporter/exporter.go, retrieved 2026-11-30).
"""

from __future__ import annotations

import json
import os
import sys
import time
from urllib.error import HTTPError

from . import signed
from .arguments import Arguments
from .logs import LogReader
from .state import fail, make_folder, read_state, read_text, write_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HOME = "/opt/aws/amazon-cloudwatch-agent"
CONFIGS = f"{HOME}/etc/amazon-cloudwatch-agent.d"
POSITIONS = f"{HOME}/logs/state/stand-in.json"
TAIL = 10
"""Number of entries that `journalctl --follow` prints first. The agent begins with them (`start_at: end`)."""
_KEYS = {
    "": {"agent", "logs"},
    "logs": {"force_flush_interval", "logs_collected"},
    "logs_collected": {"files", "journald"},
    "journald": {"log_group_name", "log_stream_name", "matches", "units", "priority", "filters", "retention_in_days"},
    "files": {"file_path", "log_group_name", "log_stream_name", "publish_multi_logs", "retention_in_days"},
}
"""Keys of the configuration that the stand-in knows, of those in translator/config/schema.json."""


def control(argv: list[str]) -> int:
    """`-a fetch-config -m ec2 -c file:PATH`, which validates a file and copies it."""
    arguments = Arguments(argv, {"-a": "action", "-m": "mode", "-c": "config"})
    source = arguments.one("config").removeprefix("file:")
    if arguments.one("action") != "fetch-config" or arguments.one("mode") != "ec2" or not source:
        return fail("amazon-cloudwatch-agent-ctl: the stand-in supports -a fetch-config -m ec2 -c file:PATH")
    text = read_text(source, "")
    if problem := _problem(text):
        return fail(f"Configuration validation first phase failed. {problem}")
    make_folder(CONFIGS)
    write_file(f"{CONFIGS}/file_{source.rpartition('/')[2]}", text)
    sys.stdout.write("Configuration validation succeeded\n")
    return 0


def _problem(text: str) -> str:
    try:
        config = json.loads(text)
    except ValueError as error:
        return f"Invalid JSON: {error}"
    collected = config.get("logs", {}).get("logs_collected", {})
    parts: list[tuple[str, dict[str, Any]]] = [
        ("", config),
        ("logs", config.get("logs", {})),
        ("logs_collected", collected),
    ]
    parts += [(kind, one) for kind in collected for one in collected[kind].get("collect_list", [])]
    for kind, part in parts:
        if unknown := set(part) - _KEYS.get(kind, set()):
            return f"Additional property {sorted(unknown)[0]} is not allowed"
        if kind in ("journald", "files") and not part.get("log_group_name"):
            return "log_group_name is required"
    return ""


def daemon(argv: list[str]) -> int:
    """Send new lines each second, and the last ones at SIGTERM."""
    import signal

    del argv
    files = sorted(os.listdir(CONFIGS)) if os.path.isdir(CONFIGS) else []
    if not files:
        return fail("no json config files found, please provide config")
    collected = json.loads(read_text(f"{CONFIGS}/{files[0]}"))["logs"]["logs_collected"]
    agent = Agent(collected, dict(os.environ))
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    while True:
        agent.once()
        if ended:
            return 0
        time.sleep(1)


class Agent:
    """The agent with its configuration."""

    def __init__(self, collected: dict[str, Any], environ: dict[str, str]) -> None:
        self._journald = collected.get("journald", {}).get("collect_list", [])
        self._files = collected.get("files", {}).get("collect_list", [])
        self._environ = environ
        self._instance: str = read_state()["instance"]["id"]
        self._reader = LogReader(POSITIONS)

    def once(self) -> None:
        """Read and send. Lines that cannot be sent are read again."""
        entries = self._reader.entries()
        batches: dict[tuple[str, str], list[tuple[float, str]]] = {}
        for declared in self._journald:
            chosen = [entry for entry in entries if _selected(entry, declared.get("matches", []))]
            for entry in chosen[-TAIL:] if self._reader.first else chosen:
                body = {key: value for key, value in entry.items() if key != "__REALTIME_TIMESTAMP"}
                batches.setdefault(self._target(declared), []).append(
                    (entry["__REALTIME_TIMESTAMP"], json.dumps({"body": body, "severity_text": ""}))
                )
        for declared in self._files:
            for path, line in self._reader.lines([declared["file_path"]]):
                group, stream = self._target(declared)
                batches.setdefault((group, f"{stream}_{path.replace('/', '_')}"), []).append((time.time(), line))
        try:
            for (group, stream), events in batches.items():
                self._put(group, stream, events)
        except (HTTPError, OSError) as error:
            sys.stderr.write(f"E! cloudwatchlogs: {error}\n")
            sys.stderr.flush()
            self._reader = LogReader(POSITIONS)
            return
        if batches or self._reader.first:
            self._reader.save()

    def _target(self, declared: dict[str, Any]) -> tuple[str, str]:
        stream = str(declared.get("log_stream_name", "{instance_id}")).replace("{instance_id}", self._instance)
        return str(declared["log_group_name"]), stream

    def _put(self, group: str, stream: str, events: list[tuple[float, str]]) -> None:
        named: dict[str, object] = {"logGroupName": group, "logStreamName": stream}
        # An event has at least one character.
        sent = [{"timestamp": int(moment * 1000), "message": text} for moment, text in events if text]
        if not sent:
            return
        try:
            signed.logs("PutLogEvents", {**named, "logEvents": sent}, self._environ)
        except HTTPError as error:
            if "ResourceNotFoundException" not in error.read().decode(errors="replace"):
                raise
            signed.logs("CreateLogStream", named, self._environ)
            signed.logs("PutLogEvents", {**named, "logEvents": sent}, self._environ)


def _selected(entry: dict[str, Any], wanted: list[dict[str, str]]) -> bool:
    """Return whether an entry has all fields of one of the objects, as journalctl selects it with `+` between them."""
    return not wanted or any(all(entry.get(key) == value for key, value in one.items()) for one in wanted)
