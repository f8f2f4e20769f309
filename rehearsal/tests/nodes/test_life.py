"""Boot, reboot, suspension, power cut and termination of stand-in nodes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuinfra_rehearsal.nodes import Instance, NodeHost, root
from rehearsal.tests.nodes.conftest import Metadata, Nodes, wait_for

NAME = "i-00000000000000001"
CHECKOUT = Path(__file__).resolve().parents[3]

TWO_UNITS = """#!/bin/bash
cat >/etc/systemd/system/once.service <<'END'
[Service]
Type=oneshot
ExecStart=/bin/bash -c 'echo ran >>/var/log/once'
[Install]
WantedBy=multi-user.target
END
cat >/etc/systemd/system/daemon.service <<'END'
[Service]
ExecStart=/bin/bash -c 'echo began >>/var/log/daemon; exec sleep 1000'
[Install]
WantedBy=multi-user.target
END
echo user data >>/var/log/user-data
systemctl enable once daemon
systemctl start --no-block once daemon
"""


def test_a_node_boots_from_its_user_data(nodes: Nodes) -> None:
    """User data comes over IMDSv2, runs as root, and sees the node's kernel, boot id, system and host name."""
    nodes.metadata.user_data = (
        "#!/bin/bash\nuname -r >/root/kernel\nid -u >>/root/kernel\necho told the console >/dev/console\n"
    )
    nodes.launch()
    assert nodes.run("cat /root/kernel").split() == ["6.8.0-1040-aws", "0"]
    status = nodes.host.status()[0]
    assert nodes.run("cat /proc/sys/kernel/random/boot_id") == status.boot_id
    assert nodes.run("cat /proc/sys/kernel/osrelease") == "6.8.0-1040-aws"
    assert 'VERSION_ID="22.04"' in nodes.run("cat /etc/os-release")
    assert nodes.run("hostname") == "cluster-gpu-1"
    assert json.loads(nodes.run("cloud-init status --format=json"))["status"] == "done"
    assert "told the console" in nodes.host.console(NAME)
    assert "latest/user-data" in nodes.metadata.asked


def test_a_node_sees_only_the_programs_of_the_host(nodes: Nodes, tmp_path: Path) -> None:
    """The node has its own /etc, /root, /tmp and processes; the host's /usr is read-only."""
    (tmp_path / "secret").write_text("the host's")
    nodes.launch()
    assert nodes.run(f"cat {tmp_path}/secret", code=1).endswith("No such file or directory")
    assert nodes.run("touch /.host/usr/bin/written", code=1).endswith("Read-only file system")
    assert nodes.run("cat /proc/1/cmdline | tr '\\0' ' '").startswith("/usr/bin/python3 -I -S /run/standin/lib/init")
    assert int(nodes.run("ls /proc/*/root -d | wc -l")) < 40
    assert nodes.run("command -v nvcc docker-compose snap", code=1) == ""


def test_a_command_has_no_variable_of_a_unit(nodes: Nodes) -> None:
    """A command runs as in a login shell, so the runner of the steps sees a person. systemd tells only units their invocation."""
    nodes.metadata.user_data = "#!/bin/bash\nenv >/root/environment\n"
    nodes.launch()
    assert "INVOCATION_ID=" in nodes.run("cat /root/environment")
    assert "INVOCATION_ID=" not in nodes.run("env")


def test_failed_user_data_is_an_error_of_cloud_init(nodes: Nodes) -> None:
    """`cloud-init status` exits with 1, and the unit has failed."""
    nodes.metadata.user_data = "#!/bin/bash\nexit 3\n"
    nodes.launch()
    answer = json.loads(nodes.run("cloud-init status --format=json", code=1))
    assert answer["status"] == "error"
    assert "1 failures (part-001) in 1 attempted commands" in answer["errors"][0]
    assert nodes.run("systemctl is-active cloud-final", code=3) == "failed"


def test_a_reboot_from_inside_is_a_new_boot_without_user_data(nodes: Nodes) -> None:
    """A new boot id, enabled units run again, user data does not, files stay, /run does not."""
    nodes.metadata.user_data = TWO_UNITS
    nodes.launch()
    first = nodes.host.status()[0].boot_id
    nodes.run("touch /run/of-this-boot; modprobe -r nvidia_drm; (sleep 0.2; systemctl reboot) & disown")
    wait_for(lambda: nodes.host.status()[0].boots == 2, "the node boots again")
    nodes.settle(NAME)
    assert nodes.host.status()[0].boot_id != first
    assert nodes.run("cat /var/log/user-data /var/log/once /var/log/daemon").split("\n") == [
        "user data", "ran", "ran", "began", "began",
    ]  # fmt: skip
    assert nodes.run("ls /run/of-this-boot", code=2)
    assert "nvidia_drm" in nodes.run("lsmod")


def test_a_suspended_node_resumes_in_the_same_boot(nodes: Nodes) -> None:
    """Same boot id, services start again, finished jobs do not, modules and mounts stay."""
    nodes.metadata.user_data = TWO_UNITS
    nodes.launch()
    nodes.run(
        "mkdir /scratch; mount -t lustre fs-1.fsx.us-east-1.amazonaws.com@tcp:/abc /scratch; echo data >/scratch/file"
    )
    before = nodes.host.status()[0].boot_id
    nodes.host.suspend_all()
    assert nodes.stage() == "suspended"
    assert not _processes(nodes.host.folder)
    nodes.resume()
    nodes.settle(NAME)
    assert nodes.host.status()[0].boot_id == before
    assert nodes.run("cat /var/log/once") == "ran"
    assert nodes.run("cat /var/log/daemon").split() == ["began", "began"]
    assert nodes.run("systemctl is-active daemon") == "active"
    assert nodes.run("cat /scratch/file; findmnt -n -t lustre -o SOURCE /scratch").split("\n") == [
        "data", "fs-1.fsx.us-east-1.amazonaws.com@tcp:/abc",
    ]  # fmt: skip


def test_jobs_continue_after_a_suspension(nodes: Nodes) -> None:
    """An interrupted oneshot starts again, and one that waited for it runs once after it."""
    nodes.metadata.user_data = """#!/bin/bash
cat >/etc/systemd/system/long.service <<'END'
[Service]
Type=oneshot
ExecStart=/bin/bash -c 'echo began >>/var/log/long; until [ -e /root/go ]; do sleep 0.05; done; echo ended >>/var/log/long'
END
cat >/etc/systemd/system/next.service <<'END'
[Unit]
After=long.service
[Service]
Type=oneshot
ExecStart=/bin/bash -c 'echo next >>/var/log/long'
END
systemctl start --no-block long next
"""
    nodes.host.launch(Instance(id=NAME, machine="p4d.24xlarge"))
    log = nodes.host.nodes_folder / NAME / "root/var/log/long"
    wait_for(log.exists, "the long unit begins")
    # What is cut off in the middle of user data runs all of it again, and would start both once more.
    wait_for(lambda: "finished at" in nodes.host.console(NAME), "user data has ended")
    nodes.host.suspend_all()
    nodes.resume()
    wait_for(lambda: log.read_text().split() == ["began", "began"], "the long unit begins again")
    nodes.run("touch /root/go")
    nodes.settle(NAME)
    assert log.read_text().split() == ["began", "began", "ended", "next"]


HELD = "/etc/systemd/system/held.service"
"""A unit file that is a FIFO holds init where it reads this unit."""


@pytest.mark.parametrize(
    ("path", "boots"), [("etc/modules-load.d/held.conf", 2), ("etc/fstab", 2), (HELD.lstrip("/"), 1)]
)
def test_a_node_suspended_during_its_first_boot_starts_its_units(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, path: str, boots: int
) -> None:
    """Suspended between the installed image and the first unit, it boots again; suspended later, it resumes."""
    build = root.build

    def hold(folder: Path, **values: Any) -> None:
        build(folder, **values)
        (folder / path).unlink(missing_ok=True)
        os.mkfifo(folder / path)
        wants = folder / "etc/systemd/system/multi-user.target.wants"
        wants.mkdir()
        (wants / Path(HELD).name).symlink_to(HELD)

    monkeypatch.setattr(root, "build", hold)
    nodes.metadata.user_data = TWO_UNITS
    nodes.host.launch(Instance(id=NAME, machine="p4d.24xlarge"))
    with _held(nodes.host._nodes[NAME].root / path):
        nodes.host.suspend_all()
    (nodes.host._nodes[NAME].root / path).unlink()
    nodes.resume()
    nodes.settle(NAME)
    assert nodes.host.status()[0].boots == boots
    assert nodes.run("systemctl is-active daemon") == "active"
    assert nodes.run("test -e /sys/module/nvidia/srcversion") == ""


def test_a_node_suspended_while_it_resumes_loses_no_unit(nodes: Nodes) -> None:
    """Each unit that ran before the first suspension runs after the second."""
    nodes.metadata.user_data = TWO_UNITS
    nodes.launch()
    folder = nodes.host._nodes[NAME].root
    nodes.run("cp /etc/systemd/system/daemon.service /etc/systemd/system/first.service; systemctl start first")
    nodes.run(
        "printf '[Service]\\nType=oneshot\\nExecStart=/bin/sh -c \"echo began >>/var/log/last; until test -e /root/go; do sleep 0.1; done\"\\n'"
        " >/etc/systemd/system/last.service; systemctl start --no-block last"
    )
    log = folder / "var/log/last"
    wait_for(log.exists, "the job begins")
    nodes.host.suspend_all()
    unit = folder / "etc/systemd/system/first.service"
    text = unit.read_text()
    unit.unlink()
    os.mkfifo(unit)
    nodes.resume()
    with _held(unit):
        nodes.host.suspend_all()
    unit.unlink()
    unit.write_text(text)
    nodes.resume()
    wait_for(lambda: log.read_text().split() == ["began"] * 2, "the job begins again")
    nodes.run("touch /root/go")
    nodes.settle(NAME)
    assert nodes.run("systemctl is-active first daemon").split() == ["active"] * 2
    assert nodes.host.status()[0].boots == 1


def test_a_node_suspended_while_a_unit_waits_to_restart_starts_it(nodes: Nodes) -> None:
    """A service in the pause of `RestartSec=` is not lost."""
    nodes.launch()
    nodes.run(
        "printf '[Service]\\nRestart=always\\nRestartSec=10\\nExecStart=/bin/sh -c \"test -e /root/fixed && exec sleep 1000\"\\n'"
        " >/etc/systemd/system/again.service; systemctl start again"
    )
    wait_for(lambda: nodes.run("systemctl is-active again", code=None) == "failed", "the service fails")
    nodes.run("touch /root/fixed")
    nodes.host.suspend_all()
    nodes.resume()
    nodes.settle(NAME)
    wait_for(lambda: nodes.run("systemctl is-active again", code=None) == "active", "the service starts again")


def test_a_node_suspended_while_it_reboots_boots_again(nodes: Nodes) -> None:
    """Services that the reboot ended are not resumed as failed."""
    nodes.metadata.user_data = TWO_UNITS
    nodes.launch()
    nodes.run(
        "printf '[Service]\\nExecStart=/bin/bash -c \"trap : TERM; while :; do sleep 1; done\"\\n'"
        " >/etc/systemd/system/slow.service; systemctl start slow; (sleep 0.2; systemctl reboot) & disown"
    )
    wait_for(lambda: "Rebooting" in nodes.host.console(NAME), "the reboot begins")
    nodes.host.suspend_all()
    nodes.resume()
    wait_for(lambda: nodes.host.status()[0].boots == 2, "the node boots again")
    nodes.settle(NAME)
    assert nodes.run("cat /var/log/once").split() == ["ran", "ran"]


def test_a_node_whose_processes_were_killed_first_boots_again(nodes: Nodes, metadata: Metadata, tmp_path: Path) -> None:
    """A kill of all processes can end a node before its host. The next rehearsal boots this node."""
    nodes.launch()
    init = nodes.host._nodes[NAME].init_pid
    assert init is not None
    os.kill(init, signal.SIGKILL)
    wait_for(lambda: nodes.stage() == "failed", "the host sees that the node stopped")
    nodes.host.close()
    host = NodeHost(tmp_path / "rehearsal", endpoint=metadata.url)
    host.start()
    try:
        Nodes(host, metadata).settle(NAME)
        assert host.status()[0].boots == 2
    finally:
        host.close()


def test_an_interrupted_termination_is_completed(nodes: Nodes, metadata: Metadata, tmp_path: Path) -> None:
    """A machine of the same ID, as after a reimage, starts with a new disk."""
    nodes.launch()
    nodes.run("touch /root/old")
    nodes.host.close()
    record = nodes.host.nodes_folder / NAME / "host.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "power": "ended"}))
    host = NodeHost(tmp_path / "rehearsal", endpoint=metadata.url)
    host.start()
    try:
        assert host.status() == []
        again = Nodes(host, metadata)
        again.launch()
        assert again.run("ls /root") == ""
    finally:
        host.close()


def test_a_node_that_cannot_start_does_not_stop_the_others(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the system when a node starts is on its console, and other nodes boot."""
    make = root.proc_files

    def fail_for_one(folder: Path, **values: str) -> list[dict[str, str]]:
        if folder.parent.name == NAME:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return make(folder, **values)

    monkeypatch.setattr(root, "proc_files", fail_for_one)
    nodes.host.launch(Instance(id=NAME, machine="p4d.24xlarge"))
    nodes.launch(2)
    assert nodes.stage() == "failed"
    assert "cannot start: [Errno 11] Resource temporarily unavailable" in nodes.host.console(NAME)


def test_init_does_not_outlive_a_parent_that_was_killed_at_once(namespaces: None, tmp_path: Path) -> None:
    """A kill between the fork and the child's death signal leaves no node."""
    config = tmp_path / "enter.json"
    started = {"argv": ["/bin/sh", "-c", f"touch {tmp_path}/started"], "environ": {}}
    config.write_text(json.dumps({"root": "/", "hostname": "h", "binds": [], "proc": [], "parent": 0, **started}))
    done = subprocess.run(
        [sys.executable, "-c", _KILLED_AT_ONCE, str(config)],
        capture_output=True, text=True, timeout=300, check=False, cwd=CHECKOUT,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    assert done.stderr == ""
    assert not (tmp_path / "started").exists()


def test_a_terminated_node_is_gone(nodes: Nodes) -> None:
    """It has no process and no folder among the nodes; its console can still be read."""
    nodes.launch()
    nodes.host.terminate(NAME)
    assert nodes.host.status() == []
    assert not _processes(nodes.host.folder)
    assert not (nodes.host.nodes_folder / NAME).exists()
    assert "Cloud-init" in nodes.host.console(NAME)


def test_launching_a_known_node_changes_nothing(nodes: Nodes) -> None:
    """A second launch of the same id is ignored."""
    nodes.launch()
    before = nodes.host.status()
    nodes.host.launch(Instance(id=NAME, machine="p5.48xlarge"))
    assert [(item.id, item.boot_id) for item in nodes.host.status()] == [(item.id, item.boot_id) for item in before]


def test_a_node_that_never_reports_waits_for_its_network(nodes: Nodes) -> None:
    """The fault stops cloud-init before user data, and the console has the reason."""
    nodes.metadata.user_data = "#!/bin/bash\ntouch /root/ran\n"
    nodes.host.launch(Instance(id=NAME, machine="p4d.24xlarge", faults=("never-reports",)))
    wait_for(lambda: "waiting for network" in nodes.host.console(NAME), "cloud-init gives up on the network")
    assert nodes.stage() == "cloud-init"
    assert nodes.run("ls /root/ran", code=2)


def test_a_killed_host_leaves_no_process_and_its_nodes_boot_again(
    namespaces: None, metadata: Metadata, tmp_path: Path
) -> None:
    """A killed rehearsal leaves no process; the next one finds its nodes on disk and boots them."""
    metadata.user_data = TWO_UNITS
    folder = tmp_path / "rehearsal"
    with _host_process(folder, metadata.url) as first:
        try:
            root = folder / "nodes" / NAME / "root"
            wait_for((root / "var/log/daemon").exists, "the node's daemon runs")
            # A kill before cloud-init has noted that user data ran would make it run again, here as on a real machine.
            wait_for(lambda: any(root.glob("var/lib/cloud/instances/*/boot-finished")), "cloud-init is done")
        finally:
            first.kill()
    wait_for(lambda: not _processes(folder), "the node's processes end", 5)
    host = NodeHost(folder, endpoint=metadata.url)
    host.start()
    try:
        nodes = Nodes(host, metadata)
        nodes.settle(NAME)
        assert host.status()[0].boots == 2
        assert nodes.run("cat /var/log/user-data") == "user data"
        assert nodes.run("systemctl is-active daemon") == "active"
    finally:
        host.close()


@pytest.mark.parametrize("moment", [0.02, 0.1, 0.35, 0.45, 0.65])
def test_a_kill_during_the_first_boot_leaves_a_complete_machine(
    namespaces: None, metadata: Metadata, tmp_path: Path, moment: float
) -> None:
    """After a power cut at any moment the image is installed completely and a boot hook completes."""
    # cloud-init marks an ordinary script before it runs it, so a power cut during the script is final.
    metadata.user_data = f"#cloud-boothook\n{TWO_UNITS}"
    folder = tmp_path / "rehearsal"
    with _host_process(folder, metadata.url) as first:
        assert first.stdout is not None
        first.stdout.readline()
        time.sleep(moment)
        first.kill()
    wait_for(lambda: not _processes(folder), "the node's processes end", 5)
    host = NodeHost(folder, endpoint=metadata.url)
    host.start()
    try:
        nodes = Nodes(host, metadata)
        nodes.launch()
        assert nodes.run("systemctl is-active nvidia-fabricmanager daemon").split() == ["active", "active"]
        assert len(nodes.run("nvidia-smi -L").split("\n")) == 8
        assert nodes.run("dpkg-query -W -f='${Version}' nvidia-open").startswith("595.")
    finally:
        host.close()


def test_nodes_need_no_root(namespaces: None, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A node boots as user 65534."""
    if os.geteuid() != 0:
        pytest.skip("this already runs as an ordinary user, so every other test here shows it")
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if (
        python is None
        or subprocess.run([python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"], check=False).returncode
    ):
        pytest.skip("no Python 3.11 or newer that user 65534 may run")
    folder = Path("/tmp") / f"gpuinfra-ordinary-{os.getpid()}"
    try:
        for package in (CHECKOUT / "gpuinfra", CHECKOUT / "rehearsal/gpuinfra_rehearsal"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(package, folder / "code" / package.name, ignore=ignored)
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        (folder / "out").mkdir()
        os.chown(folder / "out", 65534, 65534)
        services = subprocess.run(
            ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", python, "-c", _ORDINARY, str(folder / "out")],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(folder / "code"), "HOME": str(folder / "out")},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert services.stdout.strip().endswith("0"), services.stdout + services.stderr
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_a_system_without_namespaces_is_reported(namespaces: None) -> None:
    """Without namespaces the answer has the reason, and no traceback."""
    code = "from gpuinfra_rehearsal.nodes import available; print(available())"
    done = subprocess.run(
        ["unshare", "-Ur", "/bin/sh", "-c", 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$0" -c "$1"', sys.executable, code],
        capture_output=True, text=True, timeout=300, check=False, cwd=CHECKOUT,
    )  # fmt: skip
    assert done.stdout.startswith("(False, 'this system forbids user namespaces"), done.stdout + done.stderr


_KILLED_AT_ONCE = """
import os, signal, sys
from gpuinfra_rehearsal.nodes import enter
fork, (gone, here) = os.fork, os.pipe()
def killed_at_once():
    child = fork()
    if child:
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(here)
    os.read(gone, 1)  # returns when the parent has ended
    return 0
os.fork, enter.die_with, enter._pivot, enter._proc, enter.bind = killed_at_once, *[lambda *_: None] * 4
enter.main(sys.argv[1:])
"""

_ORDINARY = """
import sys, time
from pathlib import Path
from gpuinfra_rehearsal.nodes import Instance, NodeHost, root
host = NodeHost(Path(sys.argv[1]), endpoint="http://127.0.0.1:9")
host.start()
host.launch(Instance(id="i-00000000000000001", machine="p4d.24xlarge", faults=("never-reports",)))
for _ in range(300):
    time.sleep(0.1)
    if host.status()[0].stage == "cloud-init":
        break
code, output = host.run("i-00000000000000001", ["id", "-u"])
host.close()
print(output)
"""

_HOST = """
import sys, time
from pathlib import Path
from gpuinfra_rehearsal.nodes import Instance, NodeHost, root
host = NodeHost(Path(sys.argv[1]), endpoint=sys.argv[2])
host.start()
print("started", flush=True)
host.launch(Instance(id="i-00000000000000001", machine="p4d.24xlarge", name="gpu-1"))
time.sleep(600)
"""


@contextlib.contextmanager
def _held(fifo: Path) -> Iterator[None]:
    """Wait until a process reads a FIFO, and let it wait for data inside the block."""
    opened: list[int] = []

    def is_open() -> bool:
        with contextlib.suppress(OSError):  # ENXIO: no process reads the pipe
            opened.append(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
        return bool(opened)

    wait_for(is_open, f"init reads {fifo.name}")
    yield
    os.close(opened[0])


def _host_process(folder: Path, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _HOST, str(folder), url], stdout=subprocess.PIPE, text=True, cwd=CHECKOUT
    )


def _processes(folder: Path) -> list[int]:
    """Processes of a rehearsal folder."""
    needle = f"GPUINFRA_REHEARSAL={folder}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (
                    needle in (entry / "environ").read_bytes().split(b"\0")
                    and b") Z" not in (entry / "stat").read_bytes()
                ):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
