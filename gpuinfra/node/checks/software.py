"""S: cloud-init, the bootstrap's journal, and the declared files and environment variables."""

from __future__ import annotations

import json
import re
from typing import Any, Mapping

from ..answer import Answers
from ..expectation import Machine
from ..outcome import CheckOutcome, Phase, Severity, Unreadable, failed, passed, shortened, skipped
from .base import Check, judged, listed, result_of
from .conditions import control_node, every_node, files
from .driver import unit_state


class CloudInit(Check):
    """cloud-init finished without an error; otherwise a failed part of the first boot would go unnoticed."""

    id, name = "S1", "cloud_init"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    is_installation = True
    when = (every_node,)
    probes = ("cloud-init",)
    hint = "read /var/log/cloud-init-output.log, fix the cause, and replace the node: cloud-init runs only at the first boot"
    source = "canonical/cloud-init: failure_states.rst and cli.rst"

    def parse(self, answers: Answers, machine: Machine) -> tuple[int, str, list[str]]:
        answer = answers.raw("cloud-init")
        try:
            document = json.loads(answer.stdout)
        except (ValueError, RecursionError):
            raise Unreadable(
                "cloud-init status printed no JSON: %s" % shortened(answer.stdout + answer.stderr, 80)
            ) from None
        if not isinstance(document, dict) or not isinstance(document.get("status"), str):
            raise Unreadable("cloud-init status reports no status")
        problems = [str(one) for one in document["errors"]] if isinstance(document.get("errors"), list) else []
        recoverable = document.get("recoverable_errors")
        if isinstance(recoverable, Mapping):
            problems += [
                "%s: %s" % (level, one)
                for level, ones in recoverable.items()
                if level not in _NOTICES
                for one in (ones if isinstance(ones, list) else [ones])
            ]
        return answer.exit, document["status"], problems

    def judge(self, found: tuple[int, str, list[str]], machine: Machine) -> CheckOutcome:
        code, status, problems = found
        # The exit code is 2 for recoverable errors and for a notice that a key is deprecated.
        if code in (0, 2) and status == "done" and not problems:
            return passed("done", "done")
        shown = status if status != "done" else "done with errors"
        return failed(shown, "done", listed(problems) or "cloud-init is %s (exit code %d)" % (status, code))


_NOTICES = ("DEPRECATED", "DEBUG", "INFO")
"""Levels of recoverable cloud-init errors that the check ignores. For example, the configuration of an image can use a deprecated key."""


class BootstrapSteps(Check):
    """Every bootstrap step is done according to the node's journal."""

    id, name = "S2", "bootstrap_steps"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    is_installation = True
    when = (every_node,)
    rank = 9
    probes = ()
    hint = "run systemctl start gpuinfra-bootstrap to continue; /var/log/gpuinfra/bootstrap.log shows why it stopped"
    source = "the journal that the bootstrap writes on the node"

    def parse(self, answers: Answers, machine: Machine) -> dict[str, Any]:
        journal = machine.journal
        if journal is None:
            raise Unreadable("the evidence contains no bootstrap journal")
        if journal.get("schema") != "gpuinfra.state/1" or not isinstance(journal.get("steps"), list):
            raise Unreadable("the journal does not have the schema gpuinfra.state/1")
        steps = {}
        for step in journal["steps"]:
            if not isinstance(step, Mapping) or not isinstance(step.get("id"), str) or step["id"] in steps:
                raise Unreadable("the journal contains an invalid step entry")
            steps[step["id"]] = step
        return steps

    def judge(self, found: dict[str, Any], machine: Machine) -> CheckOutcome:
        wanted = machine.steps
        own = machine.own_steps
        wrong = []
        for step in wanted:
            entry = found.get(step, {"status": "missing"})
            if entry.get("status") != "done":
                why = entry.get("reason")
                wrong.append(
                    "%s is %s%s"
                    % (step, shortened(str(entry.get("status")), 20), ": %s" % shortened(str(why), 400) if why else "")
                )
            elif not re.match(r"^[0-9a-f]{64}$", str(entry.get("hash"))):
                wrong.append("%s is done, but its SHA-256 is missing" % step)
            elif own.get(step, entry["hash"]) != entry["hash"]:
                wrong.append("%s is done with a script that has a different SHA-256" % step)
        done = len(wanted) - len(wrong)
        # The reason for a declared step contains the last lines of its output.
        return (
            failed(done, len(wanted), listed(wrong, limit=450), "steps")
            if wrong
            else passed(done, len(wanted), "steps")
        )


class DeclaredFiles(Check):
    """Every declared file has its content, owner, group and mode, and a login shell has every declared environment variable."""

    id, name = "S3", "declared_files"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    is_installation = True
    when = (files,)
    probes = ("declared-files",)
    hint = (
        "find out what changed the file or the variable, such as a package, a step or another script in /etc/profile.d; "
        "to write the files again, run /opt/gpuinfra/current/node.pyz steps --again"
    )
    source = "the files and variables that the pool declares"

    def parse(self, answers: Answers, machine: Machine) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
        document = result_of(answers, "declared-files", "gpuinfra.files/1", "the list of declared files", "files")
        files = {}
        for file_entry in document["files"]:
            if not isinstance(file_entry, Mapping) or not all(
                isinstance(file_entry.get(name), str) for name in ("path", *_OF_FILE)
            ):
                raise Unreadable("the list of declared files contains an invalid entry")
            files[file_entry["path"]] = {name: file_entry[name] for name in _OF_FILE}
        shown = document.get("variables")
        if not isinstance(shown, Mapping) or not all(isinstance(value, str) for value in shown.values()):
            raise Unreadable("the list of declared files contains no environment variables")
        return files, dict(shown)

    def judge(self, found: tuple[dict[str, dict[str, str]], dict[str, str]], machine: Machine) -> CheckOutcome:
        wanted, variables = list(machine.files), dict(machine.variables)
        if not wanted:
            return skipped("the pool declares no files")
        files, shown = found
        wrong = []
        for declared in wanted:
            here = files.get(declared["path"])
            if here is None or here["problem"]:
                wrong.append("%s: %s" % (declared["path"], shortened((here or {}).get("problem") or "not listed", 100)))
                continue
            different = [
                "another content"
                if name == "sha256"
                else "%s %s instead of %s" % (name, shortened(here[name], 40), declared[name])
                for name in ("sha256", "owner", "group", "mode")
                if here[name] != declared[name]
            ]
            if different:
                wrong.append("%s has %s" % (declared["path"], ", ".join(different)))
        for name, value in variables.items():
            if name not in shown:
                wrong.append("login shells do not have the variable %s" % name)
            elif shown[name] != value:
                seen = (shortened(shown[name], 60), shortened(value, 60))
                wrong.append("the variable %s is '%s' in login shells instead of '%s'" % (name, *seen))
        total = len(wanted) + len(variables)
        return judged(total - len(wrong), total, wrong, "files and variables")


_OF_FILE = ("sha256", "owner", "group", "mode", "problem")


class ControlPrograms(Check):
    """Prometheus and Alertmanager run."""

    id, name = "M2", "control_programs"
    phase, severity = Phase.CORRECTNESS, Severity.WARN
    is_installation = True
    when = (control_node,)
    probes = ("prometheus", "alertmanager")
    hint = "run journalctl -u gpuinfra-prometheus -u gpuinfra-alertmanager; Alertmanager starts when each secret in monitoring.receivers can be read"
    source = "bootstrap/94-monitoring.sh"

    def parse(self, answers: Answers, machine: Machine) -> dict[str, str]:
        """Return the state of the unit of each program."""
        return {probe: unit_state(answers, probe) for probe in self.probes}

    def judge(self, found: dict[str, str], machine: Machine) -> CheckOutcome:
        wrong = ["gpuinfra-%s is %s" % (name, state) for name, state in found.items() if state != "active"]
        shown, wanted = ", ".join(found.values()), "active, active"
        return failed(shown, wanted, "; ".join(wrong)) if wrong else passed(shown, wanted)
