"""systemd on a stand-in node: ordered jobs, services, timers, and their states in `/run/standin/units.json`.

Ordering, `Requires`, `Wants`, conditions, time limits, restarts and timers follow systemd's documentation, to the
extent that node units use them. Instead of a cgroup, the processes of a unit share an invocation ID in their environment.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from .commands import DEFAULT_TIMEOUT, TIMED_OUT, UnitCommands, start_limit
from .process import Reaper, end_all, members
from .state import UNITS, dumps, loads, read_text, write_atomically
from .unitfile import UnitFile, full_name, load, masked, seconds, unmet, wanted_by

_FORKS = ("gcsfuse", "mount-s3", "blobfuse2")
"""Commands that exit after they start a daemon, like the real commands. Other stand-in daemons stay in the foreground."""


@dataclass
class StartJob:
    """A requested start that has not finished."""

    name: str
    done: threading.Event = field(default_factory=threading.Event)
    result: str = ""


class Manager:
    """All units of one node."""

    def __init__(
        self,
        reaper: Reaper,
        log: Callable[[str, str, bool], None],
        environ: dict[str, str],
        mount_after: Callable[[str], None] = lambda unit: None,
    ) -> None:
        self.reaper, self.log, self.mount_after = reaper, log, mount_after
        self.commands = UnitCommands(reaper, log, environ)
        self.lock = threading.RLock()
        self.states: dict[str, dict] = {}
        self.jobs: dict[str, StartJob] = {}
        self.last_job = time.monotonic()

    # Requests

    def start(self, names: list[str], wait: bool = True) -> dict[str, str]:
        """Start units with their requirements. Returns the result of each job: `done`, `failed`, `dependency`,
        `skipped`, `not-found`, `masked`."""
        jobs: dict[str, StartJob | str] = {}
        with self.lock:
            fresh: list[tuple[StartJob, UnitFile]] = []
            for name in names:
                jobs[name] = self._enqueue(full_name(name), fresh)
            self._break_cycles(fresh)
        for job, unit in fresh:
            threading.Thread(target=self._run_job, args=(job, unit), name=f"start {unit.name}", daemon=True).start()
        results = {}
        for name, job in jobs.items():
            if isinstance(job, str):
                results[name] = job
                continue
            if wait:
                job.done.wait()
            results[name] = job.result or "queued"
        return results

    def stop(self, name: str) -> None:
        """Stop a unit and its processes."""
        name = full_name(name)
        state = self.states.get(name)
        if state is None or state["active"] in ("inactive", "failed"):
            return
        unit = load(name)
        patience = seconds(unit.one("Service", "TimeoutStopSec", "10")) if unit else 10.0
        self._set(name, stopping=True)
        if unit:
            for command in unit.all("Service", "ExecStop"):
                self.commands.execute(unit, command, state.get("invocation", ""), patience)
        if state.get("invocation"):
            end_all(state["invocation"], patience)
        self._set(name, active="inactive", sub="dead", stopping=False, ended=time.time(), pid=0)

    def state(self, name: str) -> dict:
        """Return the state of a unit."""
        return self.states.get(full_name(name)) or {"active": "inactive", "sub": "dead"}

    def resume(self) -> None:
        """Resume after a suspension. Units that were running restart in the same boot; finished units do not.

        All of them are recorded as queued before the first one starts, so another suspension does not lose any.
        """
        earlier = loads(read_text(UNITS, "{}"))
        again = []
        with self.lock:
            for name, state in earlier.items():  # type: ignore[union-attr]
                waits = state.get("queued") or state.get("restarting")
                running = waits or state["active"] == "activating" or state["sub"] == "running"
                self.states[name] = {**state, "stopping": False}
                if running:
                    self.states[name].update(active="inactive", queued=True)
                    again.append(name)
        self.start(again, wait=False)

    def busy(self) -> bool:
        """Return whether a job is queued or running."""
        return bool(self.jobs)

    def tick(self) -> None:
        """Start the services of due timers."""
        for name, state in list(self.states.items()):
            if name.endswith(".timer") and state["active"] == "active":
                self._tick(name, state)

    # Jobs

    def _enqueue(self, name: str, fresh: list[tuple[StartJob, UnitFile]]) -> StartJob | str:
        if name in self.jobs:
            return self.jobs[name]
        state = self.states.get(name)
        if state is not None and state["active"] == "active":
            return "done"
        if masked(name):
            return "masked"
        unit = load(name)
        if unit is None:
            return "not-found"
        job = StartJob(name)
        self.jobs[name] = job
        fresh.append((job, unit))
        self._set(name, queued=True)  # recorded so that a suspension does not lose it
        for other in self._requirements(unit):
            self._enqueue(other, fresh)
        return job

    def _requirements(self, unit: UnitFile) -> list[str]:
        names = unit.words("Unit", "Requires") + unit.words("Unit", "Wants") + unit.words("Unit", "BindsTo")
        if unit.kind == "target":
            names += wanted_by(unit.name)
        return [full_name(name) for name in names]

    def _after(self, unit: UnitFile) -> set[str]:
        """Return the units whose jobs run first: `After=`, their `Before=`, and the members of a target."""
        names = set(unit.words("Unit", "After"))
        for other in list(self.jobs):
            loaded = load(other)
            if loaded is None or other == unit.name:
                continue
            if unit.name in loaded.words("Unit", "Before"):
                names.add(other)
            if (
                unit.kind == "target"
                and other in self._requirements(unit)
                and loaded.flag("Unit", "DefaultDependencies", True)
                and unit.name not in loaded.words("Unit", "After")
            ):
                names.add(other)
        return names

    def _break_cycles(self, fresh: list[tuple[StartJob, UnitFile]]) -> None:
        """Delete a job of each ordering cycle and log it, as systemd does."""
        units = {unit.name: unit for _, unit in fresh}
        after = {name: {other for other in self._after(unit) if other in units} for name, unit in units.items()}
        done: set[str] = set()

        def visit(name: str, path: tuple[str, ...]) -> None:
            if name in done or name not in self.jobs:
                return
            if name in path:
                victim = next((item for item in path[path.index(name) :] if not item.endswith(".target")), name)
                self.log(
                    "systemd",
                    f"{victim}: Found ordering cycle on {name}. Job {victim}/start deleted to break ordering cycle",
                    True,
                )
                self.jobs.pop(victim).result = "canceled"
                self._set(victim, queued=False)
                done.add(victim)
                return
            for other in sorted(after[name]):
                visit(other, (*path, name))
            done.add(name)

        for name in sorted(units):
            visit(name, ())
        for job, _ in list(fresh):
            if job.result == "canceled":
                job.done.set()
                fresh[:] = [item for item in fresh if item[0] is not job]

    def _run_job(self, job: StartJob, unit: UnitFile) -> None:
        try:
            waited: set[str] = set()
            while True:  # jobs queued in the meantime might also have to run first
                with self.lock:
                    first = [
                        self.jobs[name]
                        for name in self._after(unit)
                        if name in self.jobs and name not in waited and name != unit.name
                    ]
                if not first:
                    break
                for other in first:
                    other.done.wait()
                    waited.add(other.name)
            broken = [name for name in unit.words("Unit", "Requires") if self.state(name)["active"] == "failed"]
            if broken:
                self.log("systemd", f"Dependency failed for {unit.name}: {broken[0]}", True)
                job.result = "dependency"
                self._set(unit.name, active="inactive", sub="dead", result="dependency", ended=time.time())
            else:
                job.result = self._start(unit)
            self.mount_after(unit.name)
        except Exception as error:  # an error in the stand-in must not block the node
            self.log("systemd", f"{unit.name}: {error!r}", True)
            job.result = "failed"
            self._set(unit.name, active="failed", sub="failed", result="resources", ended=time.time())
        finally:
            ended = job.result == "failed" and unit.type in ("oneshot", "forking") and unit.kind == "service"
            again = ended and _restarts(
                unit, False, self.state(unit.name).get("result", ""), self.state(unit.name).get("status", 0)
            )
            with self.lock:
                self.jobs.pop(job.name, None)
                self.last_job = time.monotonic()
                self._set(job.name, queued=False, **({"restarting": True} if again else {}))
            job.done.set()
            self._follow(unit, job.result)
        if again:
            self._restart(unit)

    def _follow(self, unit: UnitFile, result: str) -> None:
        if unit.type == "oneshot" or result != "done":
            names = unit.words("Unit", "OnSuccess" if result == "done" else "OnFailure")
            if names and result in ("done", "failed"):
                self.start(names, wait=False)

    # Units

    def _start(self, unit: UnitFile) -> str:
        if unit.kind != "service":
            return self._start_passive(unit)
        for reason in unmet(unit):
            self.log("systemd", f"{unit.name} skipped: {reason}", False)
            self._set(unit.name, active="inactive", sub="dead", result="condition", ended=time.time())
            return "skipped"
        invocation = uuid.uuid4().hex
        self._set(
            unit.name,
            active="activating",
            sub="start",
            restarting=False,
            result="success",
            status=0,
            started=time.time(),
            ended=None,
            invocation=invocation,
        )
        limit = start_limit(unit)
        for key in ("ExecCondition", "ExecStartPre"):
            for command in unit.all("Service", key):
                code = self.commands.execute(unit, command, invocation, limit)
                if code != 0:
                    return self._failed(unit, code)
        if unit.type == "oneshot":
            return self._oneshot(unit, invocation, limit)
        return self._daemon(unit, invocation)

    def _oneshot(self, unit: UnitFile, invocation: str, limit: float) -> str:
        until = time.monotonic() + limit
        for command in unit.all("Service", "ExecStart"):
            code = self.commands.execute(unit, command, invocation, max(0.1, until - time.monotonic()))
            if code != 0:
                return self._failed(unit, code)
        for command in unit.all("Service", "ExecStartPost"):
            self.commands.execute(unit, command, invocation, limit)
        if unit.flag("Service", "RemainAfterExit", False):
            self._set(unit.name, active="active", sub="exited", ended=time.time())
        else:
            self._set(unit.name, active="inactive", sub="dead", ended=time.time())
        return "done"

    def _daemon(self, unit: UnitFile, invocation: str) -> str:
        command = unit.all("Service", "ExecStart")[-1]
        try:
            pid = self.commands.spawn(unit, command, invocation)
        except OSError as error:
            self.log("systemd", f"{unit.name}: {error}", True)
            return self._failed(unit, 203)
        if unit.type in ("notify", "forking", "dbus"):
            forks = any(word.rpartition("/")[2] in _FORKS for word in command.split())
            code = self.reaper.wait(pid, start_limit(unit)) if forks else self._until_idle(pid)
            if code is not None and not (unit.type == "forking" and code == 0):
                return self._failed(unit, code)
            if code == 0:
                pid = next((one for one in sorted(members(invocation)) if self.reaper.adopt(one)), 0)
                if not pid:
                    self._set(unit.name, active="inactive", sub="dead", ended=time.time())
                    return "done"
        self._set(unit.name, active="active", sub="running", pid=pid)
        for post in unit.all("Service", "ExecStartPost"):
            self.commands.execute(unit, post, invocation, DEFAULT_TIMEOUT)
        threading.Thread(target=self._watch, args=(unit, pid), name=f"watch {unit.name}", daemon=True).start()
        return "done"

    def _until_idle(self, pid: int) -> int | None:
        """Wait until a process exits, and return its code, or until it sleeps in three consecutive samples, and return None.

        A stand-in cannot notify. On a busy machine, a process that still waits for a processor or a disk has not yet checked its prerequisites.
        """
        asleep = 0
        for _ in range(600):
            code = self.reaper.wait(pid, 0.05)
            if code is not None:
                return code
            asleep = asleep + 1 if _sleeps(pid) else 0
            if asleep == 3:
                break
        return None

    def _watch(self, unit: UnitFile, pid: int) -> None:
        code = self.reaper.wait(pid)
        state = self.states[unit.name]
        if state.get("stopping") or state.get("pid") != pid:
            return
        clean = code == 0 or str(code) in unit.words("Service", "SuccessExitStatus")
        again = _restarts(
            unit, clean, state.get("result", "") if clean else _result(code if code is not None else 1), code or 0
        )
        if clean:
            self._set(unit.name, active="inactive", sub="dead", ended=time.time(), status=code, pid=0, restarting=again)
        else:
            self._failed(unit, code if code is not None else 1, restarting=again)
        if again:
            self._restart(unit)

    def _restart(self, unit: UnitFile) -> None:
        """Restart a unit after `RestartSec=` and within its start limit (five times in ten seconds by default). The pause
        is recorded, so a suspension does not lose the start."""
        state = self.states[unit.name]
        interval = seconds(unit.one("Unit", "StartLimitIntervalSec", "10"))
        burst = int(unit.one("Unit", "StartLimitBurst", "5"))
        times = [moment for moment in state.get("restarts", []) if time.time() - moment < interval] + [time.time()]
        limited = interval > 0 and len(times) > burst
        self._set(unit.name, restarts=times, restarting=not limited)
        if limited:
            self.log("systemd", f"{unit.name}: Start request repeated too quickly.", True)
            return
        time.sleep(min(seconds(unit.one("Service", "RestartSec", "100ms")), 10.0))
        if self.states[unit.name]["active"] in ("inactive", "failed") and not self.states[unit.name].get("stopping"):
            self.start([unit.name], wait=False)
        else:
            self._set(unit.name, restarting=False)

    def _failed(self, unit: UnitFile, code: int, **more: object) -> str:
        result = _result(code)
        self.log("systemd", f"{unit.name}: Failed with result '{result}' (status={code}).", True)
        self._set(
            unit.name, active="failed", sub="failed", result=result, status=code, ended=time.time(), pid=0, **more
        )
        return "failed"

    def _start_passive(self, unit: UnitFile) -> str:
        if unit.kind == "timer":
            self._set(
                unit.name,
                active="active",
                sub="waiting",
                since=self.states.get(unit.name, {}).get("since") or time.time(),
            )
        elif unit.kind in ("path", "socket"):
            self._set(unit.name, active="active", sub="waiting")
        else:
            self._set(unit.name, active="active", sub="active")
        return "done"

    def _tick(self, name: str, state: dict) -> None:
        unit = load(name)
        if unit is None:
            return
        service = unit.one("Timer", "Unit") or name.removesuffix(".timer") + ".service"
        last = self.states.get(service, {})
        if service in self.jobs or last.get("active") in ("activating", "active"):
            return
        boot = float(read_text("/run/standin/booted", "0") or 0)
        fired = state.get("fired", 0.0)
        due: list[float] = []
        for key, base, once in (
            ("OnBootSec", boot, True),
            ("OnStartupSec", boot, True),
            ("OnActiveSec", state["since"], True),
        ):
            moment = base + seconds(unit.one("Timer", key)) if unit.one("Timer", key) else None
            if moment is not None and not (once and fired):
                due.append(max(moment, 0))
        if unit.one("Timer", "OnUnitActiveSec") and last.get("started"):
            due.append(last["started"] + seconds(unit.one("Timer", "OnUnitActiveSec")))
        if unit.one("Timer", "OnUnitInactiveSec") and last.get("ended"):
            due.append(last["ended"] + seconds(unit.one("Timer", "OnUnitInactiveSec")))
        if due and time.time() >= min(due):
            with self.lock:
                self.states[name] = {
                    **self.states[name],
                    "fired": time.time(),
                }  # recorded together with the queued service
                self.start([service], wait=False)

    def _set(self, name: str, **values: object) -> None:
        with self.lock:
            self.states[name] = {**self.states.get(name, {"active": "inactive", "sub": "dead"}), **values}
            write_atomically(UNITS, dumps(self.states))


def _result(code: int) -> str:
    return "timeout" if code == TIMED_OUT else "signal" if code < 0 else "exit-code"


def _sleeps(pid: int) -> bool:
    """Return whether a process waits for an event (state S in proc(5))."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            return stream.read().rpartition(")")[2].split()[0] == "S"
    except OSError:
        return False


def _restarts(unit: UnitFile, clean: bool, result: str, status: int) -> bool:
    """Return whether `Restart=` applies to a service that exited."""
    if str(status) in unit.words("Service", "RestartPreventExitStatus"):
        return False
    policy = unit.one("Service", "Restart", "no")
    abnormal = result in ("signal", "timeout")
    return policy == "always" or (policy == "on-failure" and not clean) or (policy == "on-abnormal" and abnormal)
