"""C: what containers see of the GPUs - the runtime's configuration, the CDI specification - and of the node's identity.

No container is run: that would pull an image, and at fleet size a public registry refuses.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ..answer import Answers
from ..expectation import Machine
from ..words import Outcome, Phase, Severity, Unreadable, equal, failed, passed, shortened
from .base import Check, listed


def docker(answers: Answers) -> dict[str, Any] | None:
    """What the Docker daemon says of itself, None where there is no Docker."""
    if not answers.installed("docker"):
        return None
    try:
        said = json.loads(answers.text("docker"))
    except (ValueError, RecursionError):
        raise Unreadable("docker info printed no JSON") from None
    if not isinstance(said, dict):
        raise Unreadable("docker info printed something else than an object")
    errors = said.get("ServerErrors")
    if errors or not isinstance(said.get("ServerVersion"), str) or not said["ServerVersion"]:
        why = listed([str(one) for one in errors]) if isinstance(errors, list) and errors else "it names no version"
        raise Unreadable("the Docker daemon does not answer: %s" % shortened(why, 160), "systemctl restart docker")
    return said


def offers_cdi(said: dict[str, Any]) -> bool:
    """True where this Docker gives devices by their CDI names: since 28.2 by itself, before where it is switched on."""
    folders = said.get("CDISpecDirs")
    return isinstance(folders, list) and "/etc/cdi" in folders


class ContainerRuntime(Check):
    """Each container runtime of the node knows how to give GPUs to a container; a node without one has nothing to misconfigure."""

    id, name = "C1", "container_runtime"
    phase, severity = Phase.CORRECTNESS, Severity.BLOCK
    probes = ("docker", "containerd")
    hint = "rerun the container toolkit step: nvidia-ctk runtime configure --runtime=docker (or containerd), then restart that service"
    source = "fact sheet on nodes, section 4; the sheet's own check runs an image, which a fleet must not pull at once"

    def parse(self, answers: Answers, machine: Machine) -> dict[str, str]:
        """Runtime -> how it gives GPUs, or what is wrong."""
        found = {}
        said = docker(answers)
        if said is not None:
            runtimes = said.get("Runtimes")
            if not isinstance(runtimes, dict):
                raise Unreadable("docker info names no runtimes")
            ways = (["runtime nvidia"] if "nvidia" in runtimes else []) + (["CDI"] if offers_cdi(said) else [])
            found["docker"] = " and ".join(ways)
        # Docker brings a containerd of its own, which serves nobody else: only one with a Kubernetes plugin is asked.
        if answers.installed("containerd"):
            text = answers.text("containerd")
            if not re.search(r"(?m)^version = \d|^\[", text):
                raise Unreadable("containerd config dump printed no configuration")
            disabled = re.search(
                r"(?ms)^\s*disabled_plugins = \[[^\]]*[\"'](?:io\.containerd\.grpc\.v1\.)?cri[\"']", text
            )
            if not (disabled and "docker" in found):
                ways = ["runtime nvidia"] if re.search(r"(?m)^\s*\[.*runtimes\.[\"']?nvidia[\"']?\]", text) else []
                ways += ["CDI"] if re.search(r"(?m)^\s*enable_cdi = true", text) else []
                found["containerd"] = " and ".join(ways)
        return found

    def judge(self, found: dict[str, str], machine: Machine) -> Outcome:
        if not found:
            return Outcome(
                "pass", "none", "a runtime that gives GPUs, or none", reason="no container runtime is installed"
            )
        shown = ["%s: %s" % (name, ways or "nothing") for name, ways in sorted(found.items())]
        wrong = [name for name, ways in sorted(found.items()) if not ways]
        if wrong:
            return failed(shown, "runtime nvidia or CDI", "%s cannot give GPUs to a container" % " and ".join(wrong))
        return passed(shown, "runtime nvidia or CDI")


class CdiDevices(Check):
    """The container runtime is offered each GPU by name, and all of them."""

    id, name = "C2", "cdi_devices"
    phase, severity = Phase.CORRECTNESS, Severity.WARN
    probes = ("cdi",)
    hint = "systemctl restart nvidia-cdi-refresh, or rerun the container toolkit step"

    def parse(self, answers: Answers, machine: Machine) -> list[str]:
        # The count line goes to stderr as a log line; names go to stdout, one a line.
        return [line.strip() for line in answers.lines("cdi") if line.strip().startswith("nvidia.com/gpu=")]

    def judge(self, found: list[str], machine: Machine) -> Outcome:
        names = {name.split("=", 1)[1] for name in found}
        cut = machine.get("mig_profiles", []) if machine.get("mig", False) is True else []
        # A GPU that is cut is named with its instance: 0:1.
        pattern, wanted, what = (
            (r"\d+:\d+", machine.gpus * len(cut), "instances") if cut else (r"\d+", machine.gpus, "GPUs")
        )
        indexed = len([name for name in names if re.match("^%s$" % pattern, name)])
        if "all" not in names:
            return failed(indexed, wanted, "CDI does not name nvidia.com/gpu=all", what)
        return equal(indexed, wanted, what, "CDI names %d of %d %s" % (indexed, wanted, what))


class ContainersKeepGpus(Check):
    """A running container keeps its GPUs when systemd reloads: devices come by CDI, or Docker does not leave cgroups to systemd.

    With the older hooks and systemd's cgroups every `systemctl daemon-reload` takes the GPUs from running containers.
    """

    id, name = "C3", "containers_keep_gpus"
    phase, severity = Phase.CORRECTNESS, Severity.WARN
    probes = ("docker",)
    hint = "use Docker 28.2 or newer, or switch CDI on (features.cdi in /etc/docker/daemon.json), and give GPUs by --device nvidia.com/gpu=all"
    source = "fact sheet on nodes, section 4: Failed to initialize NVML: Unknown Error in a running container"

    def parse(self, answers: Answers, machine: Machine) -> dict[str, Any] | None:
        return docker(answers)

    def judge(self, found: dict[str, Any] | None, machine: Machine) -> Outcome:
        wanted = "CDI, or cgroups by cgroupfs"
        if found is None:
            return Outcome("pass", "none", wanted, reason="Docker is not installed")
        driver = found.get("CgroupDriver")
        if driver not in ("systemd", "cgroupfs", "none"):
            raise Unreadable("docker info names no cgroup driver")
        shown = "%s, cgroups by %s" % ("CDI" if offers_cdi(found) else "no CDI", driver)
        if driver == "systemd" and not offers_cdi(found):
            return failed(shown, wanted, "systemctl daemon-reload takes the GPUs from running containers here")
        return passed(shown, wanted)


class ContainersKeptFromMetadata(Check):
    """What containers send to the cloud's metadata service is dropped: it hands out the node's identity to whoever asks.

    For clouds without a hop limit. A container on the host's own network reaches it in any case.
    """

    id, name = "C4", "containers_kept_from_metadata"
    phase, severity = Phase.CORRECTNESS, Severity.BLOCK
    probes = ("metadata-guard",)
    hint = "systemctl restart gpuinfra-metadata, and find out what removed its table (nft flush ruleset, or nftables.service)"
    source = "nft(8): a drop is final whatever other tables say; listing as nftables 1.0.6 prints it"

    def parse(self, answers: Answers, machine: Machine) -> list[str]:
        """Addresses for which the chain drops before it does anything else."""
        if not answers.installed("metadata-guard"):
            return []
        if "No such file or directory" in answers.raw("metadata-guard").stderr:
            return []
        found, dropping = [], False
        for line in answers.lines("metadata-guard"):
            rule = re.match(r"^\s*ip6? daddr (\S+) tcp dport != 53 (?:counter packets \d+ bytes \d+ )?drop$", line)
            if rule and dropping:
                found.append(rule.group(1))
            else:
                dropping = re.match(r"^\s*type filter hook forward priority ", line) is not None
        return found

    def judge(self, found: list[str], machine: Machine) -> Outcome:
        wanted = machine.need("metadata_guarded", list)
        open_ = [address for address in wanted if address not in found]
        if open_ or not wanted:
            return failed(found, wanted, "containers on a bridge reach %s" % (listed(open_) or "what nobody named"))
        return passed(found, wanted)


CHECKS = (ContainerRuntime, CdiDevices, ContainersKeepGpus, ContainersKeptFromMetadata)
