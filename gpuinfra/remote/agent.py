"""The host agent: a short-lived program that runs on a host as root.

The agent is a single file for Python 3.9 and later that imports only the standard library. Its source is sent over standard input, before the request
and the bundle, and is not written to disk. It reports the state of the host, installs a bundle as user data does, and starts the runner
without waiting for it.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import Any

MARK = "gpuinfra-agent "
MAX_STATE_BYTES = 512 * 1024
MAX_BUNDLE_BYTES = 64 * 1024 * 1024
UNIT = "gpuinfra-bootstrap.service"
FABRIC_UNIT, FABRIC_RESULT = "gpuinfra-fabric.service", "run/gpuinfra/fabric.json"


class AgentRefused(Exception):
    """The host cannot fulfill the request. The text gives the reason and the action to take."""

    busy = False
    """Whether the host installs another bundle, so that the same request can succeed later."""


class AnotherBundle(AgentRefused):
    """The host installs another bundle."""

    busy = True


class HostAgent:
    """One host, or a folder that contains a host's files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bundles = root / "opt/gpuinfra"
        self.node_json = root / "etc/gpuinfra/node.json"
        self.systemd = root == Path("/") and Path("/run/systemd/system").is_dir()

    def status(self) -> dict[str, Any]:
        """Return the installed bundles, the journal and the running step runner."""
        current = self.bundles / "current"
        pid = self._runner()
        unit = self._unit() if self.systemd else {}
        return {
            "python": sys.version.split()[0],
            "systemd": self.systemd,
            "boot_id": _read(Path("/proc/sys/kernel/random/boot_id")).strip(),
            "current": current.readlink().name if current.is_symlink() else None,
            "bundles": sorted(p.name for p in self.bundles.glob("*") if len(p.name) == 64),
            "state": _json(self.root / "var/lib/gpuinfra/state.json"),
            "node": _json(self.node_json),
            "pid": pid,
            "running": pid is not None
            or unit.get("Job", "0") not in ("", "0")
            or unit.get("ActiveState") == "activating",
            "output": _read(self.root / "var/log/gpuinfra/detached.log")[-500:],
        }

    def start(self, order: dict[str, Any], payload: bytes) -> dict[str, Any]:
        """Install the bundle and start the runner. Safe to repeat."""
        status = self.status()
        if status["running"]:
            if status["current"] == order["sha256"]:
                return status
            raise AnotherBundle(
                f"another bundle, {str(status['current'])[:12]}, is being installed; wait until the installation finishes"
            )
        before = status["node"] or {}
        for name in ("cluster", "pool"):
            if before.get(name) not in (None, order["node"][name]):
                raise AgentRefused(
                    f"this machine belongs to {name} {before.get(name)!r}, not to {order['node'][name]!r}; "
                    f"to reassign the machine, remove {self.node_json} on it"
                )
        self._install(order["sha256"], payload)
        node = dict(order["node"], **before)
        node["bundle"] = dict(before.get("bundle") or {}, sha256=order["sha256"])
        self.node_json.parent.mkdir(parents=True, exist_ok=True)
        draft = self.node_json.with_name("node.json.new")
        draft.write_text(json.dumps(node, sort_keys=True, indent=1) + "\n", encoding="utf-8")
        os.replace(draft, self.node_json)
        link = self.bundles / ".current"
        if link.is_symlink():
            link.unlink()
        link.symlink_to(order["sha256"])
        os.replace(link, self.bundles / "current")
        self._start(bool(node.get("evidence")))
        return self.status()

    def dry_run(self, order: dict[str, Any], payload: bytes) -> dict[str, Any]:
        """Report what the steps would change. The runner writes its own files to a temporary folder."""
        with tempfile.TemporaryDirectory(prefix="gpuinfra-dry-") as folder:
            inside = Path(folder)
            bundle = self.bundles / order["sha256"]
            if not bundle.is_dir():
                bundle = inside / order["sha256"]
                _unpack(payload, order["sha256"], bundle)
            for name in ("etc/gpuinfra/node.json", "var/lib/gpuinfra/state.json"):
                (inside / name).parent.mkdir(parents=True)
                if (self.root / name).is_file():
                    shutil.copy(self.root / name, inside / name)
            if not (inside / "etc/gpuinfra/node.json").is_file():
                (inside / "etc/gpuinfra/node.json").write_text(json.dumps(order["node"]), encoding="utf-8")
            words = [sys.executable, str(bundle / "node.pyz"), "steps", "--dry-run", "--root", folder]
            done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            text = done.stdout.decode("utf-8", "replace")[-65536:]
            return {"exit": done.returncode, "lines": text.splitlines()[-400:]}

    def verify(self, order: dict[str, Any], payload: bytes) -> dict[str, Any]:
        """Run the checks with the operator's node program, in a temporary folder."""
        if self.root != Path("/"):
            raise AgentRefused(
                f"checks require a running machine, and {self.root} contains the files of a machine that is not running"
            )
        with tempfile.TemporaryDirectory(prefix="gpuinfra-verify-") as folder:
            part, expectation = Path(folder, "node.pyz"), Path(folder, "expectation.json")
            part.write_bytes(gzip.decompress(payload))
            expectation.write_text(json.dumps(order["expectation"]), encoding="utf-8")
            words = [sys.executable, "-I", str(part), "verify", "--document", "--expectation", str(expectation)]
            done = subprocess.run([*words, *order["options"]], stdin=subprocess.DEVNULL, capture_output=True)
        output = done.stderr.decode("utf-8", "replace")[-4000:]
        return {"exit": done.returncode, "document": _packed(done.stdout), "output": output.splitlines()[-10:]}

    def pair(self, order: dict[str, Any], payload: bytes) -> dict[str, Any]:
        """Run one half of an all-reduce between two machines with the operator's node program, in a temporary folder."""
        assignment = order["assignment"]
        shared_folder = Path(assignment["store"]).parent
        if not shared_folder.is_dir():
            raise AgentRefused(
                f"{shared_folder} is not a folder on this machine; specify a folder that all nodes mount"
            )
        with tempfile.TemporaryDirectory(prefix="gpuinfra-pair-") as folder:
            part, assignment_file = Path(folder, "node.pyz"), Path(folder, "assignment.json")
            part.write_bytes(gzip.decompress(payload))
            assignment_file.write_text(json.dumps(assignment), encoding="utf-8")
            words = [sys.executable, "-I", str(part), "pair", "--assignment", str(assignment_file), *order["options"]]
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True)
        output = done.stderr.decode("utf-8", "replace")[-4000:]
        return {"exit": done.returncode, "result": done.stdout.decode("utf-8", "replace")[:65536], "output": output}

    def clear_pairs(self, order: dict[str, Any], payload: bytes) -> dict[str, Any]:
        """Remove the files that the paired nodes exchanged. Call this function after the last pair, because a partner may still read the files."""
        store = Path(order["store"])
        if store.name == ".gpuinfra-pairs":
            shutil.rmtree(store, ignore_errors=True)
        return {}

    def _install(self, sha256: str, payload: bytes) -> None:
        target = self.bundles / sha256
        if target.is_dir():
            return
        if not payload:
            raise AgentRefused("the bundle was removed during the request; run the command again")
        self.bundles.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".new-", dir=self.bundles))
        try:
            _unpack(payload, sha256, draft)
            draft.chmod(0o755)
            os.sync()
            draft.rename(target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _start(self, uploads: bool) -> None:
        if self.systemd:
            for unit in (self.bundles / "current/units").glob("gpuinfra-*"):
                shutil.copy(unit, "/etc/systemd/system/")
            # Checks upload evidence. If node.json does not contain an evidence bucket, use `gpuinfra check --hosts` to check the machine.
            units = [UNIT] + (
                ["gpuinfra-verify.service", "gpuinfra-attest.timer", "gpuinfra-recheck.timer"] if uploads else []
            )
            if uploads and (self.bundles / "current" / "units" / FABRIC_UNIT).exists():
                units.append(FABRIC_UNIT)
            # A result of the fabric test belongs to the bundle that measured it. The service would write it again.
            for words in (["daemon-reload"], ["enable", *units], ["reset-failed", UNIT], ["stop", FABRIC_UNIT]):
                self._systemctl(words, optional=words[0] in ("reset-failed", "stop"))
            (self.root / FABRIC_RESULT).unlink(missing_ok=True)
            self._systemctl(["restart", "--no-block", *units])
            return
        log = self.root / "var/log/gpuinfra/detached.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        words = [
            sys.executable,
            str(self.bundles / "current/node.pyz"),
            "steps",
            "--no-reboot",
            "--root",
            str(self.root),
        ]
        with log.open("wb") as output:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd="/"
            )
        # The runner writes its process ID to the lock file shortly after it starts. Wait for the ID, so that the next status request finds it.
        lock = self.root / "var/lib/gpuinfra/lock"
        for _ in range(500):
            if (_json(lock) or {}).get("pid") == process.pid or process.poll() is not None:
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.02)

    @staticmethod
    def _systemctl(words: list[str], *, optional: bool = False) -> None:
        done = subprocess.run(["systemctl", *words], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if done.returncode != 0 and not optional:
            raise AgentRefused(f"systemctl {words[0]}: {done.stderr.decode('utf-8', 'replace').strip()}")

    def _runner(self) -> int | None:
        """Return the runner's process ID from its lock file. Acquiring the lock instead would make a starting runner fail."""
        pid = (_json(self.root / "var/lib/gpuinfra/lock") or {}).get("pid")
        if not isinstance(pid, int) or pid <= 1:
            return None
        words = _read(Path(f"/proc/{pid}/cmdline")).split("\0")
        return pid if "steps" in words and any(word.endswith("node.pyz") for word in words) else None

    @staticmethod
    def _unit() -> dict[str, str]:
        done = subprocess.run(
            ["systemctl", "show", "-p", "ActiveState", "-p", "Job", UNIT],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)


def _packed(data: bytes) -> str:
    """Shorten text to one line."""
    return base64.b64encode(zlib.compress(data, 6)).decode("ascii")


def _unpack(payload: bytes, sha256: str, target: Path) -> None:
    try:
        tar = zlib.decompressobj(31).decompress(payload, MAX_BUNDLE_BYTES)
    except zlib.error:
        tar = b""
    digest = hashlib.sha256(tar).hexdigest()
    if digest != sha256:
        raise AgentRefused(
            f"the bundle was damaged in transfer: its checksum is {digest[:12]}, expected {sha256[:12]}; run the command again"
        )
    target.mkdir(exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(tar), mode="r:") as archive:
        for entry in archive:
            parts = Path(entry.name).parts
            if not entry.isreg() or ".." in parts or entry.name.startswith("/"):
                raise AgentRefused(
                    f"the bundle contains {entry.name!r}, which is not a regular file or has a path outside the bundle"
                )
            path = target.joinpath(*parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            source = archive.extractfile(entry)
            assert source is not None
            path.write_bytes(source.read())
            path.chmod(entry.mode & 0o755)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as source:
            return source.read(MAX_STATE_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _json(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(_read(path))
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def main() -> int:
    """Read one request, handle it, and print one line."""
    source = sys.stdin.buffer
    order = json.loads(source.readline().decode("utf-8"))
    payload = source.read(order["size"])
    os.umask(0o022)
    try:
        if len(payload) != order["size"]:
            raise AgentRefused(f"received {len(payload)} of {order['size']} bytes; run the command again")
        agent = HostAgent(Path(order["root"]))
        if order["do"] == "status":
            answer = agent.status()
        else:
            actions = {
                "start": agent.start,
                "dry_run": agent.dry_run,
                "verify": agent.verify,
                "pair": agent.pair,
                "clear_pairs": agent.clear_pairs,
            }
            answer = actions[order["do"]](order, payload)
    except AgentRefused as refused:
        answer = {"refused": str(refused), "busy": refused.busy}
    except OSError as error:
        answer = {"busy": False, "refused": f"{error.filename or 'this machine'}: {error.strerror or error}"}
    sys.stdout.write(f"\n{MARK}{json.dumps(answer)}\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
