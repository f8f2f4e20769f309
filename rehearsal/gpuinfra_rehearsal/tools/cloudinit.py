"""cloud-init: host keys, boot hooks at every boot, user scripts once per instance, and `cloud-init status`.

It runs as two units, as on Ubuntu: `cloud-init.service` (network and data source) and `cloud-final.service` (user
scripts). `datasource.py` reads the instance ID and the user data of each cloud.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime

from .datasource import NAMES, identity
from .state import read_state, write_atomically

LIB, RUN = "/var/lib/cloud", "/run/cloud-init"
HOOK = b"#cloud-boothook"
KEYS = ("ed25519", "ecdsa", "rsa")


def cloud_init(argv: list[str]) -> int:
    """`init`, `final` (which stands for `modules --mode=final`), `status`, `clean`."""
    action = argv[0] if argv else "--help"
    if action == "status":
        return _status(argv[1:])
    if action == "init":
        return _init()
    if action == "final" or argv[:2] == ["modules", "--mode=final"]:
        return _final()
    if action == "query":
        sys.stdout.write(read_state()["instance"]["id"] + "\n")
        return 0
    if action == "--version":
        sys.stdout.write("/usr/bin/cloud-init 25.2-stand-in\n")
        return 0
    return 0


def _init() -> int:
    os.makedirs(RUN, exist_ok=True)
    _print(f"Cloud-init v. 25.2 running 'init' at {datetime.now(UTC):%a, %d %b %Y %H:%M:%S +0000}.")
    _record(stage="init", status="running")
    if "never-reports" in read_state()["faults"]:
        _print("ci-info: no device got an address; waiting for network")
        while True:  # the fault of an instance that never reports
            time.sleep(3600)
    try:
        instance, user_data = identity(read_state()["instance"]["cloud"])
    except (OSError, ValueError) as error:
        _record(stage="init", status="error", errors=[f"metadata service: {error}"])
        _print(f"{_source()}: metadata service does not respond: {error}")
        return 1
    folder = f"{LIB}/instances/{instance}"
    os.makedirs(f"{folder}/sem", exist_ok=True)
    os.makedirs(f"{folder}/scripts", exist_ok=True)
    if os.path.islink(f"{LIB}/instance"):
        os.unlink(f"{LIB}/instance")
    os.symlink(folder, f"{LIB}/instance")
    os.makedirs(f"{LIB}/data", exist_ok=True)
    write_atomically(f"{LIB}/data/instance-id", instance + "\n")
    if user_data[:2] == b"\x1f\x8b":
        user_data = gzip.decompress(user_data)
    with open(f"{folder}/user-data.txt", "wb") as file:
        file.write(user_data)
    os.chmod(f"{folder}/user-data.txt", 0o600)
    _boot_hook(folder, user_data)
    _host_keys(folder)
    _record(stage="init", status="running")
    return 0


def _boot_hook(folder: str, user_data: bytes) -> None:
    """Run a boot hook, at every boot. A failure is only logged (cloudinit/handlers/boot_hook.py)."""
    if not user_data.startswith(HOOK):
        return
    os.makedirs(f"{folder}/boothooks", exist_ok=True)
    script = f"{folder}/boothooks/part-001"
    with open(script, "wb") as file:
        file.write(user_data.removeprefix(HOOK).lstrip())
    os.chmod(script, 0o700)
    if _run_script(script):
        _print(f"boot_hook.py[WARNING]: Boothooks script {script} execution error")


def _final() -> int:
    folder = os.path.realpath(f"{LIB}/instance")
    mark = f"{folder}/sem/config_scripts_user"
    code = 0
    _record(stage="modules-final", status="running")
    if not os.path.exists(mark):
        # Runs once for each instance, even after an error or a power cut: FileSemaphores in cloudinit/helpers.py (22.4.2) writes the mark first.
        write_atomically(mark, f"{os.getpid()}: {datetime.now(UTC):%Y-%m-%d %H:%M:%S}\n")
        code = _run_user_data(folder)
    failure = "('scripts_user', RuntimeError('Runparts: 1 failures (part-001) in 1 attempted commands'))"  # Kong/kong-terraform-aws#44
    _record(stage="done", status="error" if code else "done", errors=[failure] if code else [])
    os.makedirs(folder, exist_ok=True)
    write_atomically(f"{folder}/boot-finished", f"{time.time():.2f}\n")
    _print(f"Cloud-init v. 25.2 finished at {datetime.now(UTC):%a, %d %b %Y %H:%M:%S +0000}. Datasource {_source()}.")
    return 1 if code else 0


def _run_user_data(folder: str) -> int:
    path = f"{folder}/user-data.txt"
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        return 0
    with open(path, "rb") as file:
        start = file.read(64)
    if start.startswith(HOOK):
        return 0
    if not start.startswith(b"#!"):
        _print(f"__init__.py[WARNING]: Unhandled non-multipart (text/x-not-multipart) userdata: '{start[:24]!r}...'")
        return 0
    script = f"{folder}/scripts/part-001"
    shutil.copyfile(path, script)
    os.chmod(script, 0o700)
    return _run_script(script)


def _run_script(script: str) -> int:
    with open("/var/log/cloud-init-output.log", "ab") as log:
        process = subprocess.Popen(
            [script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/"
        )
        assert process.stdout is not None
        for line in process.stdout:
            log.write(line)
            log.flush()
            sys.stdout.buffer.write(line)
            sys.stdout.flush()
        return process.wait()


def _host_keys(folder: str) -> None:
    """Create host keys and print them on the console, as cc_ssh does on the first boot of an instance."""
    mark = f"{folder}/sem/config_ssh"
    if os.path.exists(mark):
        return
    generator = shutil.which("ssh-keygen")
    if generator is None:
        _print("cc_ssh: this system has no ssh-keygen, so this node has no host keys")
        return
    for kind in KEYS[:1] if read_state()["image"].get("few_keys") else KEYS[:2]:
        path = f"/etc/ssh/ssh_host_{kind}_key"
        for old in (path, path + ".pub"):
            if os.path.exists(old):
                os.unlink(old)
        done = subprocess.run(
            [generator, "-q", "-t", kind, "-N", "", "-C", f"root@{os.uname().nodename}", "-f", path],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            _print(f"cc_ssh: {done.stderr.strip()}")
    write_atomically(mark, "done\n")
    _print("-----BEGIN SSH HOST KEY KEYS-----")
    for kind in KEYS:
        path = f"/etc/ssh/ssh_host_{kind}_key.pub"
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                _print(file.read().strip())
    _print("-----END SSH HOST KEY KEYS-----")


def _status(argv: list[str]) -> int:
    """`status [--wait] [--format=json]`; exit 0 ok, 1 critical, 2 recoverable errors."""
    while True:
        record = _read()
        if "--wait" not in argv or record.get("status") in ("done", "error", "disabled"):
            break
        time.sleep(0.2)
    status = record.get("status", "not started")
    recoverable = record.get("recoverable_errors", {})
    if any(word.startswith("--format") for word in argv) or "--long" in argv:
        answer = {
            "boot_status_code": "enabled-by-generator",
            "datasource": _source().removeprefix("DataSource").lower(),
            "detail": _source(),
            "errors": record.get("errors", []),
            "extended_status": status if not recoverable else f"degraded {status}",
            "last_update": record.get("time", ""),
            "recoverable_errors": recoverable,
            "schemas": {},
            "stage": record.get("stage") if status == "running" else None,
            "status": status,
        }
        sys.stdout.write(json.dumps(answer, indent=2) + "\n")
    else:
        sys.stdout.write(f"status: {status}\n")
    return 1 if status == "error" else 2 if recoverable else 0


def _record(**values: object) -> None:
    record = {**_read(), **values, "time": f"{datetime.now(UTC):%a, %d %b %Y %H:%M:%S +0000}"}
    os.makedirs(RUN, exist_ok=True)
    write_atomically(f"{RUN}/status.json", json.dumps(record))


def _read() -> dict:
    try:
        with open(f"{RUN}/status.json", encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def _source() -> str:
    return NAMES[read_state()["instance"]["cloud"]]


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
