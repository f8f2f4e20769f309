"""Starts, reboots, suspends, terminates and watches the stand-in nodes of one rehearsal.

One thread starts and watches all process trees, because the kernel kills a child when the thread that started it
exits. A node's record is on disk before its process starts, so the next rehearsal can continue after a kill: a node
that was running boots again with a new boot ID, as after a power failure, and a suspended node resumes. A node can be suspended
only after its boot has reached its units. Before that, boot progress is not recorded, so the node boots again.
At most one node per core boots at the same time.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import selectors
import shutil
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuinfra_rehearsal.nodes import endpoints, enter, root
from gpuinfra_rehearsal.nodes.library import LAUNCHER, ToolLibrary
from gpuinfra_rehearsal.nodes.node import NodeStatus, NotRunning, StandInNode, empty, hostname, write_environment
from gpuinfra_rehearsal.nodes.ssh_ports import SshPorts
from gpuinfra_rehearsal.nodes.stage import stage_of
from gpuinfra_rehearsal.nodes.state import AttachedDisk, Instance, first_state, image_cloud
from gpuinfra_rehearsal.nodes.support import ISOLATED

REBOOT, POWEROFF = 40, 41
"""Exit codes of a node's init (`tools/init.py`)."""
DEFAULT_TARGET = "multi-user.target"
"""The unit that a node's init starts first (`tools/init.py`)."""
BOOT_SLOT_S = 30.0
"""After this time, the next node can boot, because this node might be waiting for others."""


class NodeHost:
    """The stand-in nodes of one rehearsal."""

    def __init__(self, folder: Path, *, endpoint: str, slots: int | None = None) -> None:
        """`endpoint` is the stand-in cloud's address, `http://127.0.0.1:PORT`. It can change on each start."""
        self.folder = Path(folder).resolve()
        self.nodes_folder = self.folder / "nodes"
        self.endpoint = endpoint.rstrip("/")
        # Part of a boot waits, so two processors boot four nodes together in less time than in two pairs.
        self.slots = slots or max(4, os.cpu_count() or 1)
        self._nodes: dict[str, StandInNode] = {}
        self._waiting: list[tuple[StandInNode, bool]] = []
        self._commands: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._library: ToolLibrary | None = None
        self.ssh_ports = SshPorts(self.folder)

    def start(self) -> None:
        """Start the thread. Suspended nodes of an earlier process resume, and killed nodes boot again."""
        self.nodes_folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "filesystems").mkdir(exist_ok=True)
        self._library = ToolLibrary.make(self.nodes_folder / ".lib")
        self._thread = threading.Thread(target=self._run_loop, name="stand-in nodes", daemon=True)
        self._thread.start()
        self.ssh_ports.start()
        self._call(self._restore)

    def launch(self, instance: Instance) -> None:
        """Launch a new machine and return immediately. A known ID is ignored."""
        self._call(lambda: self._launch(instance))

    def reboot(self, instance_id: str) -> None:
        """Terminate the processes of a node and boot it with a new boot ID."""
        self._call(lambda: self._reboot(self._nodes[instance_id]))

    def redeploy(self, instance_id: str) -> None:
        """Boot a node on a different host: with the same disk, a new boot ID, different GPUs and no faults."""
        self._call(lambda: self._redeploy(self._nodes[instance_id]))

    def attach_disk(self, instance_id: str, disk: AttachedDisk) -> None:
        """Attach a disk to a node, as another block device."""
        self._call(lambda: self._attach_disk(self._nodes[instance_id], disk))

    def terminate(self, instance_id: str) -> None:
        """Terminate a node. Its folder moves to `nodes/.gone/`."""
        self._call(lambda: self._terminate(instance_id))

    def break_hardware(self, instance_id: str, faults: Sequence[str]) -> None:
        """Give a running node other faults, and start its hourly checks."""
        self._call(lambda: self._set_faults(self._nodes[instance_id], faults))
        self.run(instance_id, ("systemctl", "start", "--no-block", "gpuinfra-recheck.service"))

    def suspend_all(self) -> None:
        """Terminate the processes of all nodes. Nodes whose units have started keep their boot ID. Other nodes boot again later."""
        self._call(lambda: [self._suspend(node) for node in self._nodes.values()])

    def close(self) -> None:
        """Suspend all nodes and stop the thread."""
        if self._thread is None:
            return
        self.ssh_ports.stop()
        self.suspend_all()
        self._stopping = True
        self._wake()
        self._thread.join(timeout=10)
        self._thread = None
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def status(self) -> list[NodeStatus]:
        """Return the status of each node, in launch order."""
        return [self._status(node) for node in sorted(list(self._nodes.values()), key=lambda node: node.instance.id)]

    def console(self, instance_id: str) -> str:
        """Return the console output of a node since its launch."""
        for folder in (self.nodes_folder, self.nodes_folder / ".gone"):
            with contextlib.suppress(FileNotFoundError):
                return (folder / instance_id / "console.log").read_text(encoding="utf-8", errors="replace")
        return ""

    def run(self, instance_id: str, argv: Sequence[str], limit_s: float = 60.0) -> tuple[int, str]:
        """Run a command in a running node. Returns its exit code and output."""
        folder = os.open(self._nodes[instance_id].root / "run/standin", os.O_RDONLY)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.connect(
                    f"/proc/self/fd/{folder}/init.sock"
                )  # the full path may exceed the limit of a socket path
                connection.settimeout(limit_s + 10)
                connection.sendall(json.dumps({"do": "run", "argv": list(argv), "limit": limit_s}).encode() + b"\n")
                with connection.makefile() as stream:
                    answer = json.loads(stream.readline() or "{}")
        except (FileNotFoundError, ConnectionError) as error:
            raise NotRunning(f"{instance_id} is not running, so it cannot run {argv[0]}: {error}") from None
        finally:
            os.close(folder)
        if "code" not in answer:
            raise RuntimeError(f"{instance_id} did not run {argv[0]}: {answer.get('error', 'the node ended')}")
        return answer["code"], answer["output"]

    # The methods below run in the host's thread.

    def _run_loop(self) -> None:
        while not self._stopping or any(node.process for node in self._nodes.values()):
            for key, _ in self._selector.select(timeout=0.25):
                if key.data is None:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake_read, 4096)
                else:
                    self._read_messages(key.data, key.fd)
            while not self._commands.empty():
                action, answer = self._commands.get()
                try:
                    answer.set_result(action())
                except Exception as error:
                    answer.set_exception(error)
            for node in list(self._nodes.values()):
                if node.process is not None and node.process.poll() is not None:
                    self._ended(node, node.process.returncode)
            self._fill_slots()

    def _restore(self) -> None:
        for record in sorted(self.nodes_folder.glob("*/host.json")):
            data = json.loads(record.read_text(encoding="utf-8"))
            values = {**data["instance"], "faults": tuple(data["instance"]["faults"])}
            node = StandInNode(record.parent, Instance(**values), data["power"], data["boot_id"], data["boots"])
            if node.power == "ended":  # a kill interrupted the termination
                self._bury(node)
                continue
            self._nodes[node.instance.id] = node
            self._continue(node)

    def _attach_disk(self, node: StandInNode, disk: AttachedDisk) -> None:
        """Create the device and its links, and record the disk for the node's tools. The content of a disk is in a folder that outlives the nodes."""
        folder = self.folder / "filesystems" / "disks" / disk.key
        (folder / "data").mkdir(parents=True, exist_ok=True)
        partial = node.folder / "standin" / ".data-disks.json"
        partial.write_text(json.dumps([{"name": disk.device, "key": disk.key}]) + "\n", encoding="utf-8")
        partial.replace(node.folder / "standin" / "data-disks.json")
        (node.root / disk.device.lstrip("/")).touch()
        link = node.root / disk.link.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(disk.device)

    def _continue(self, node: StandInNode) -> None:
        """Queue the start of a node that is on or suspended, has no process, and is not queued."""
        if node.process is None and node.power in ("on", "suspended") and node not in (n for n, _ in self._waiting):
            self._request_start(node, resume=node.power == "suspended")

    def _launch(self, instance: Instance) -> None:
        assert self._library is not None
        if instance.id in self._nodes:
            return
        folder = self.nodes_folder / instance.id
        if folder.exists():  # left by a kill before the record was written
            shutil.rmtree(folder, ignore_errors=True)
        node = StandInNode(folder, instance)
        (folder / "standin").mkdir(parents=True)
        state = json.dumps(first_state(instance), indent=1)
        (folder / "standin" / "standin.json").write_text(state + "\n", encoding="utf-8")
        os.symlink("standin/standin.json", folder / "standin.json")
        (folder / "console.log").touch()
        root.build(
            node.root,
            hidden=self._library.hidden,
            # Steps call `date` for each line of their log, so only a node with a wrong clock has the stand-in, which is slower.
            launchers=self._library.launchers | ({"/usr/bin/date": LAUNCHER} if "clock-off" in instance.faults else {}),
            os_name=instance.os,
            hostname=hostname(instance),
            archive=root.ARCHIVES[image_cloud(instance.cloud)].format(region=instance.region),
        )
        self._nodes[instance.id] = node
        self._request_start(node, resume=False)

    def _request_start(self, node: StandInNode, *, resume: bool) -> None:
        """Queue a start. `power` is recorded first, so that the node boots later if a kill prevents the start."""
        node.power = "suspended" if resume else "on"
        node.save()
        self.ssh_ports.open(node)
        self._waiting.append((node, resume))

    def _fill_slots(self) -> None:
        now = time.monotonic()
        busy = sum(1 for node in self._nodes.values() if node.process and not node.settled and now < node.slot_until)
        while self._waiting and busy < self.slots and not self._stopping:
            node, resume = self._waiting.pop(0)
            if node.process is None and node.power in ("on", "suspended"):
                try:
                    self._power_on(node, resume)
                except OSError as error:
                    self._stopped(node, f"cannot start: {error}")
                busy += 1

    def _power_on(self, node: StandInNode, resume: bool) -> None:
        assert self._library is not None
        node.settled, node.slot_until = False, time.monotonic() + BOOT_SLOT_S  # before the new boot is visible
        node.ending = None
        if not resume or not node.boot_id:
            resume = False
            node.boot_id = str(uuid.uuid4())
            node.boots += 1
            empty(node.root / "run")
            empty(node.root / "tmp")
        node.power = "on"
        node.save()
        state = node.folder / "standin" / "standin.json"
        data = json.loads(state.read_text(encoding="utf-8"))
        if not resume:
            data.update(
                boot_id=node.boot_id,
                boots=node.boots,
                booted=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                modules=[],
                mounts=[],
            )
            data["driver"]["loaded"] = None
            data["next_kernel"] = data.get("next_kernel") or data["kernel"]
            data["kernel"] = data["next_kernel"]
            partial = state.with_name(".standin.json")
            partial.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
            partial.replace(state)
        environ = self._environ(node)
        write_environment(node.root, environ)
        config = {
            "parent": os.getpid(),
            "root": str(node.root),
            "hostname": hostname(node.instance),
            "binds": root.binds(
                node.root,
                lib=self._library.folder,
                state=node.folder / "standin",
                shared=self.folder / "filesystems",
                console=node.folder / "console.log",
            ),
            "proc": root.proc_files(node.root, boot_id=node.boot_id, kernel=data["kernel"]),
            "argv": ["/usr/bin/python3", "-I", "-S", "/run/standin/lib/init", "resume" if resume else "boot"],
            "environ": environ,
        }
        file = node.folder / "enter.json"
        file.write_text(json.dumps(config), encoding="utf-8")
        with open(node.folder / "console.log", "ab") as console:
            node.process = subprocess.Popen(
                [*ISOLATED, enter.__file__, str(file)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=console,
                env={**environ, "PATH": os.environ.get("PATH", "/usr/bin:/bin")},
                start_new_session=True,
            )
        assert node.process.stdout is not None
        os.set_blocking(node.process.stdout.fileno(), False)
        self._selector.register(node.process.stdout, selectors.EVENT_READ, node)

    def _environ(self, node: StandInNode) -> dict[str, str]:
        return {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "GPUINFRA_REHEARSAL": str(self.folder),
            "GPUINFRA_FABRIC_WAIT_S": "1",
            "GPUINFRA_REPAIR_ROUND_S": "1",
            "GPUINFRA_FAULT_PATIENCE_S": "60",  # The pause of a failed unit is shortened to ten seconds.
            "GPUINFRA_MONITORING_ADDRESS": endpoints.monitoring_address(self.endpoint, node.instance.id),
            "PYTHONPATH": "/run/standin/lib/standin/tools/python",
            **endpoints.of_node(node.instance.cloud, self.endpoint, node.instance.id),
        }

    def _read_messages(self, node: StandInNode, fd: int) -> None:
        """Read messages from a node's init: `init PID`, `settled` when all jobs are done, and `ending CODE` when a reboot
        or power-off begins."""
        try:
            data = os.read(fd, 4096)
        except (BlockingIOError, OSError):
            return
        for line in data.decode(errors="replace").splitlines():
            if line == "settled":
                node.settled = True
            elif line.startswith("ending "):
                node.ending = int(line.split()[1])
            elif line.startswith("init "):
                node.init_pid = int(line.split()[1])
                (node.folder / "init.pid").write_text(str(node.init_pid), encoding="ascii")
        if not data:
            with contextlib.suppress(KeyError):
                self._selector.unregister(fd)

    def _ended(self, node: StandInNode, code: int) -> None:
        self._forget(node)
        if node.power != "on":
            return
        if code == REBOOT:
            self._request_start(node, resume=False)
        elif code == POWEROFF:
            node.power = "off"
            node.save()
        else:
            self._stopped(node, f"stopped with status {code}")

    def _stopped(self, node: StandInNode, what: str) -> None:
        """Switch off a failed node. Its record stays `on`, because the failure can be a kill of all processes of
        the rehearsal that reached this node first."""
        node.power = "off"
        with open(node.folder / "console.log", "a", encoding="utf-8") as console:
            console.write(f"the stand-in machine {what}; the next rehearsal boots it again\n")

    def _kill(self, node: StandInNode) -> None:
        process = node.process
        if process is not None and process.stdout is not None:
            self._read_messages(node, process.stdout.fileno())
            # Killing init terminates all processes of the node, and then its parent.
            # Before init's ID is known, its parent is the only process, and later processes terminate with it.
            target = node.init_pid if node.init_pid is not None and process.poll() is None else process.pid
            with contextlib.suppress(ProcessLookupError):
                os.kill(target, signal.SIGKILL)
            process.wait()
            self._read_messages(node, process.stdout.fileno())
        self._forget(node)

    def _forget(self, node: StandInNode) -> None:
        if node.process is not None and node.process.stdout is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(node.process.stdout)
            node.process.stdout.close()
        node.process, node.init_pid = None, None
        (node.folder / "init.pid").unlink(missing_ok=True)

    def _reboot(self, node: StandInNode) -> None:
        self._kill(node)
        self._request_start(node, resume=False)

    def _redeploy(self, node: StandInNode) -> None:
        self._kill(node)
        path = node.folder / "standin" / "standin.json"
        state = json.loads(path.read_text(encoding="utf-8"))
        state["instance"]["moves"] = state["instance"].get("moves", 0) + 1
        state["faults"] = []
        partial = path.with_name(".standin.json")
        partial.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
        partial.replace(path)
        self._request_start(node, resume=False)

    @staticmethod
    def _set_faults(node: StandInNode, faults: Sequence[str]) -> None:
        path = node.folder / "standin" / "standin.json"
        state = {**json.loads(path.read_text(encoding="utf-8")), "faults": list(faults)}
        partial = path.with_name(".standin.json")
        partial.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
        partial.replace(path)

    def _suspend(self, node: StandInNode) -> None:
        self._waiting = [item for item in self._waiting if item[0] is not node]
        if node.process is None:
            return
        self._kill(node)
        if node.power == "on" and node.ending == POWEROFF:
            node.power = "off"
        elif node.power == "on" and node.ending is None and self._units_started(node):
            node.power = "suspended"
        node.save()

    def _units_started(self, node: StandInNode) -> bool:
        """Return whether init recorded the units of this boot. `_power_on` removes the record of the previous boot."""
        try:
            units = json.loads((node.root / "run/standin/units.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return False
        return DEFAULT_TARGET in units

    def _terminate(self, instance_id: str) -> None:
        node = self._nodes.pop(instance_id, None)
        if node is None:
            return
        node.power = "ended"
        node.save()
        self.ssh_ports.close(instance_id)
        self._waiting = [item for item in self._waiting if item[0] is not node]
        self._kill(node)
        self._bury(node)

    def _bury(self, node: StandInNode) -> None:
        gone = self.nodes_folder / ".gone"
        gone.mkdir(exist_ok=True)
        shutil.rmtree(gone / node.instance.id, ignore_errors=True)
        node.folder.rename(gone / node.instance.id)

    def _status(self, node: StandInNode) -> NodeStatus:
        stage, detail = stage_of(node.root, power=node.power, running=node.process is not None, booted=node.boots > 0)
        return NodeStatus(
            id=node.instance.id,
            name=node.instance.name,
            pool=node.instance.pool,
            stage=stage,
            detail=detail,
            boot_id=node.boot_id,
            boots=node.boots,
        )

    def _call(self, action: Callable[[], Any]) -> Any:
        """Run `action` in the host's thread and wait for the result."""
        if self._thread is None or not self._thread.is_alive():
            raise RuntimeError("the node host is not running")
        answer: Future[Any] = Future()
        self._commands.put((action, answer))
        self._wake()
        return answer.result(timeout=120)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b".")
