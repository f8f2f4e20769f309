"""Runs the bundle's steps in order. The process can be killed at any time.

`steps.json` lists the steps, `journal.py` records their state, and steps report through `bootstrap/lib.sh`.
A step that is done with the same content (its file, lib.sh, versions.env) does not run again. After each boot, it is proven
again without changes, and runs again if its proof fails: a boot can start another kernel, without headers and modules.
Declared steps have no proof, so they do not run again. `--again` runs all steps; each can safely run twice. A step is done if
it exits with 0 *and* has reported a proof.

A run that fails exits with 1, and its unit starts it again, because most failures pass. Under systemd, it exits with 65 after a
failure that a retry cannot fix, which the unit does not repeat.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from . import journal as j
from .log import StepLog, utc_now
from .steplist import BundleStep, Unusable, node_environment, read_steps

_GATE = 'read -r || exit 1; exec bash "$1" </dev/null'
"""Starts a step only after the lock names its process group. If the runner were killed earlier, the next run could not terminate the step."""
EXIT_REFUSED, EXIT_REBOOT = 65, 194
DONE, FAILED, ENVIRONMENT = 0, 1, 3
MAX_REBOOTS = 2
"""Maximum reboots in a row that one step can request."""
REBOOT_PATIENCE_S = 900
OWN_LINES, OWN_LINE_LENGTH = 3, 100
"""Number of output lines in the reason for a failed script, and characters per line."""
FULL_BELOW_BYTES = 1 << 20


@dataclass
class Attempt:
    """The result of one attempt to run a step."""

    code: Optional[int]
    """Exit code; None after a timeout."""
    seconds: float
    changed: List[str] = field(default_factory=list)
    would: List[str] = field(default_factory=list)
    recorded: Dict[str, str] = field(default_factory=dict)
    proofs: List[str] = field(default_factory=list)
    reason: Optional[str] = None
    exited: Optional[str] = None
    """Exit code of a declared step's script, if it is not 0."""

    @property
    def status(self) -> str:
        """`done`, `reboot` or `failed`."""
        if self.code == EXIT_REBOOT:
            return j.REBOOT
        return j.DONE if self.code == 0 and self.proofs else j.FAILED


@dataclass
class Runner:
    """One run of the bundle's steps."""

    steps: Sequence[BundleStep]
    journal: j.StepJournal
    lock: j.RunLock
    log: StepLog
    environment: Dict[str, str]
    reports: Path
    options: argparse.Namespace
    group: Optional[int] = None
    """The process group of the running step."""
    rebooting: bool = False
    """Whether this process requested a reboot."""

    def run(self) -> int:
        """Run every step that is not done yet. Stops at the first failure."""
        worked = changed = 0
        # systemd started the checks when the previous run was killed or failed, so they ran on an incomplete node.
        resumed = any(
            e["status"] in (j.RUNNING, j.FAILED) and e["boot_id"] == self.journal.boot_id
            for e in self.journal.steps.values()
        )
        for number, step in enumerate(self.steps, 1):
            entry = self.journal.steps[step.id]
            place = f"step {number} of {len(self.steps)} {step.id}"
            if entry["status"] == j.DONE and not self.options.again:
                self._mark(step).unlink(missing_ok=True)
                if step.own or entry["boot_id"] == self.journal.boot_id or self._proven(step, place):
                    continue
            if entry["status"] == j.REBOOT and entry["boot_id"] == self.journal.boot_id:
                return self._reboot(place, entry)
            if entry["status"] == j.RUNNING:
                self.log.write(f"{place}: an earlier run was killed during this step; the step starts again")
            attempt = self._try(step, place, entry)
            worked += 1
            changed += bool(attempt.changed)
            if attempt.status == j.REBOOT:
                return self._reboot(place, self.journal.steps[step.id])
            if attempt.status == j.FAILED:
                self.log.write(f"{place} failed: {attempt.reason}")
                self.log.write(
                    f"full log: {self.log.log_path}; fix the cause, then run: "
                    "systemctl restart gpuinfra-bootstrap.service gpuinfra-verify.service"
                )
                # The evidence of the first failure tells that the node repeats the step. This is news.
                if self.journal.steps[step.id]["final"] and self.journal.steps[step.id]["failures"] > 1:
                    self._repeat_checks()
                return EXIT_REFUSED if attempt.code == EXIT_REFUSED and self._by_systemd else FAILED
        total = f"{len(self.steps)} steps done"
        if worked == 0:
            self.log.write(f"{total}, nothing to do")
        else:
            self.log.write(f"{total}: {worked} ran, {changed or 'none'} made changes")
        if resumed:
            self._repeat_checks()
        return DONE

    def _repeat_checks(self) -> None:
        """Start the checks again, if systemd started this run."""
        if self._by_systemd:
            command = ["systemctl", "--no-block", "restart", "gpuinfra-verify.service"]
            subprocess.run(command, stdin=subprocess.DEVNULL, check=False)

    def dry_run(self) -> int:
        """Report what each step would change, without modifying the journal."""
        for step in self.steps:
            if step.own and self.journal.steps[step.id]["status"] == j.DONE and not self.options.again:
                self.log.write(f"{step.id}: would change nothing")
                continue
            attempt = self._run_once(step, {"GPUINFRA_DRY_RUN": "1"})
            if attempt.status == j.FAILED:
                self.log.write(f"{step.id}: unknown: {attempt.reason}")
            elif attempt.would:
                for text in attempt.would:
                    self.log.write(f"{step.id}: would {text}")
            else:
                self.log.write(f"{step.id}: would change nothing")
        return DONE

    @property
    def _patience_s(self) -> float:
        return float(self.environment.get("GPUINFRA_FAULT_PATIENCE_S") or j.FAULT_PATIENCE_S)

    @property
    def _by_systemd(self) -> bool:
        return "INVOCATION_ID" in self.environment

    def _proven(self, step: BundleStep, place: str) -> bool:
        """Prove a step that an earlier boot completed, without changes."""
        attempt = self._run_once(step, {"GPUINFRA_DRY_RUN": "1", "GPUINFRA_PROVE": "1"})
        if attempt.status == j.DONE and not attempt.would:
            self.journal.update(step.id, boot_id=self.journal.boot_id)
            return True
        reason = f"it would {'; '.join(attempt.would)}" if attempt.would else attempt.reason
        self.log.write(f"{place}: the proof fails after this boot, so the step runs again: {reason}")
        return False

    def _try(self, step: BundleStep, place: str, entry: Dict[str, Any]) -> Attempt:
        started = time.monotonic()
        # The monotonic clock does not jump when the time service corrects the clock, and starts again with each boot.
        failing = entry.get("failing_since") if entry["boot_id"] == self.journal.boot_id else None
        changed = bool(entry["changed"]) and entry["status"] in (j.REBOOT, j.RUNNING)
        tries = entry["attempts"] if entry["status"] == j.RUNNING else 0
        self.log.write(f"{place} started")
        attempt = Attempt(None, 0.0)
        for number in range(step.retries + 1):
            tries += 1
            self.journal.update(
                step.id,
                status=j.RUNNING,
                started=utc_now(),
                attempts=tries,
                reason=None,
                boot_id=self.journal.boot_id,
                changed=changed,
            )
            attempt = self._run_once(step, {})
            changed = changed or bool(attempt.changed)
            if attempt.status != j.FAILED or attempt.code == EXIT_REFUSED or number == step.retries:
                break
            pause = self.options.retry_pause_s * 3**number
            self.log.write(
                f"{place} failed, attempt {number + 1} of {step.retries + 1}: {attempt.reason}; retrying in {pause:g} s"
            )
            time.sleep(pause)
        reboots = entry.get("reboots", 0) + 1 if attempt.status == j.REBOOT else 0
        if reboots > MAX_REBOOTS:
            attempt.code, attempt.reason = 1, f"it requests reboot number {reboots} in a row: {attempt.reason}"
        failures, since = 0, None
        if attempt.status == j.FAILED:
            failures, since = int(entry.get("failures") or 0) + 1, failing or time.monotonic()
        lasted = since is not None and time.monotonic() - since >= self._patience_s
        attempt.changed = attempt.changed or (["earlier"] if changed else [])
        if attempt.status == j.DONE:
            # Write the recorded values and the status in one operation.
            self.journal.recorded.update(attempt.recorded)
        self.journal.update(
            step.id,
            status=attempt.status,
            seconds=round(time.monotonic() - started, 1),
            changed=changed,
            reboots=reboots,
            failures=failures,
            failing_since=since,
            final=attempt.code == EXIT_REFUSED or (failures >= j.MAX_FAILURES and lasted),
            reason=attempt.reason if attempt.status != j.DONE else None,
        )
        if attempt.status == j.DONE:
            # Only after the journal records `done`: if the run is killed in between, the step must know that it installed.
            self._mark(step).unlink(missing_ok=True)
            how = f"{len(attempt.changed)} changes" if changed else "no changes"
            self.log.write(f"{place} done in {attempt.seconds:.1f} s, {how}; {attempt.proofs[-1]}")
        return attempt

    def _run_once(self, step: BundleStep, extra: Dict[str, str]) -> Attempt:
        self.reports.mkdir(parents=True, exist_ok=True)
        report = self.reports / f"{step.id}.report"
        report.write_text("", encoding="utf-8")
        environment = {**self.environment, **extra, "GPUINFRA_STEP": step.id, "GPUINFRA_REPORT": str(report)}
        environment["GPUINFRA_UNFINISHED"] = str(self._mark(step))
        if step.own:
            environment.update(step.own, OWN_FINISHED=str(self.journal.path.with_name(f"finished-{step.id}")))
        since, began = self.log.size(), time.monotonic()
        # Output goes directly to the file, not through a pipe: a step does not depend on a reader, and a daemon blocks nothing.
        process = subprocess.Popen(
            ["bash", "-c", _GATE, "-", str(step.file)],
            stdin=subprocess.PIPE,
            stdout=self.log.log,
            stderr=self.log.log,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
        self.group = process.pid
        self.lock.started(process.pid)
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write(b"\n")
        code: Optional[int]
        try:
            code = process.wait(step.timeout_s)
        except subprocess.TimeoutExpired:
            j.end_group(process.pid)
            process.wait()
            code = None
        self.group = None
        self.lock.ended()
        attempt = Attempt(code, time.monotonic() - began)
        self._read_report(report, attempt)
        if attempt.status != j.DONE:
            attempt.reason = self._reason(step, attempt, since)
        return attempt

    def _mark(self, step: BundleStep) -> Path:
        """Return a file that exists while the step installs (`begin_installing` in lib.sh)."""
        return self.journal.path.with_name(f"unfinished-{step.id}")

    @staticmethod
    def _read_report(report: Path, attempt: Attempt) -> None:
        for line in report.read_text(encoding="utf-8", errors="replace").splitlines():
            kind, _, text = line.partition("\t")
            if kind == "record":
                name, _, value = text.partition("\t")
                attempt.recorded[name] = value
            elif kind == "changed":
                attempt.changed.append(text)
            elif kind == "would":
                attempt.would.append(text)
            elif kind == "proved":
                attempt.proofs.append(text)
            elif kind in ("failed", "reboot"):
                attempt.reason = text
            elif kind == "exited":
                attempt.exited = text

    def _reason(self, step: BundleStep, attempt: Attempt, since: int) -> str:
        if attempt.exited:
            lines = " / ".join(line[:OWN_LINE_LENGTH] for line in self.log.last_lines(since, OWN_LINES)) or "none"
            return f"the script exited with code {attempt.exited}; last output: {lines}"
        output = attempt.reason or self.log.last_line(since) or "no output"
        if free_bytes(self.log.log_path.parent) < FULL_BELOW_BYTES:
            return f"the disk of {self.log.log_path.parent} is full; free up space ({output})"
        if attempt.code is None:
            return f"it timed out after {step.timeout_s:g} s; last output: {self.log.last_line(since)}"
        if attempt.code == 0:
            return "it exited with 0 but reported no proof"
        if attempt.code < 0:
            return f"it was killed by signal {-attempt.code}; last output: {output}"
        return output

    def _reboot(self, place: str, entry: Dict[str, Any]) -> int:
        self.log.write(f"{place} continues after a reboot: {entry['reason']}")
        if self.options.no_reboot:
            return EXIT_REBOOT
        self.rebooting = True  # systemd terminates this process too, possibly before `systemctl` returns
        done = subprocess.run(["systemctl", "reboot"], stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            self.rebooting = False
            self.log.write(f"systemctl reboot failed with exit code {done.returncode}; reboot this machine manually")
            return FAILED
        # Exiting now would start the checks shortly before the machine goes down.
        time.sleep(REBOOT_PATIENCE_S)
        self.rebooting = False
        self.log.write(f"the machine did not reboot within {REBOOT_PATIENCE_S} s; reboot it manually")
        return FAILED

    def interrupted(self, number: int, _frame: object) -> None:
        """Terminate the running step and exit. Its status stays `running`, so the next run repeats it.

        A reboot that a step requested terminates this process in the same way and is not a failure.
        """
        if self.rebooting:
            self.log.write("the machine reboots")
            raise SystemExit(DONE)
        if self.group is not None:
            j.end_group(self.group, grace_s=5.0)
        self.log.write(f"terminated by signal {number}; the next run continues here")
        raise SystemExit(128 + number)


def free_bytes(folder: Path) -> int:
    """Return the free space on the disk of the folder."""
    return shutil.disk_usage(folder).free


def _options(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="node.pyz steps", description="Run the bundle's steps that are not done yet.")
    parser.add_argument("--dry-run", action="store_true", help="report what would change without changing anything")
    parser.add_argument("--again", action="store_true", help="run all steps, including those that are done")
    parser.add_argument("--no-reboot", action="store_true", help=f"exit with code {EXIT_REBOOT} instead of rebooting")
    parser.add_argument(
        "--bundle", type=Path, default=None, help="the unpacked bundle; default: the folder of node.pyz"
    )
    parser.add_argument(
        "--root", type=Path, default=Path("/"), help="the folder that contains /etc, /var and /run; default: /"
    )
    parser.add_argument(
        "--retry-pause-s",
        type=float,
        default=5.0,
        help="pause in seconds before the second attempt; each later pause is three times as long as the previous one",
    )
    return parser.parse_args(argv)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Exit code 0 done or rebooting, 1 a step failed, 2 usage error, 3 the steps cannot run now."""
    options = _options(argv)
    root: Path = options.root
    bundle = (options.bundle or Path(sys.argv[0]).resolve().parent).resolve()
    try:
        log = StepLog(root / "var/log/gpuinfra/bootstrap.log", root / "dev/console")
        steps = read_steps(bundle)
        environment = node_environment(root / "etc/gpuinfra/node.json", bundle)
        lock = j.RunLock(root / "var/lib/gpuinfra/lock")
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        journal = j.StepJournal(root / "var/lib/gpuinfra/state.json", bundle.name, boot_id)
        runner = Runner(steps, journal, lock, log, environment, root / "run/gpuinfra", options)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, runner.interrupted)
        if options.dry_run:
            journal.expect({step.id: step.hash for step in steps})
            return runner.dry_run()
        if journal.broken:
            log.write(
                f"cannot read the journal ({journal.broken}); it was renamed to {journal.path.name}.broken, and every step runs again"
            )
        journal.expect({step.id: step.hash for step in steps})
        journal.write()
        return runner.run()
    except (Unusable, j.AnotherRun) as error:
        print(f"gpuinfra: {error}", file=sys.stderr)
    except OSError as error:
        full = "the disk is full: " if free_bytes(root) < FULL_BELOW_BYTES or error.errno == errno.ENOSPC else ""
        print(
            f"gpuinfra: {full}{error}; the journal is intact; fix the cause, and run the steps again", file=sys.stderr
        )
    return ENVIRONMENT
