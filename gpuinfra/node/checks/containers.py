"""C: containers - the runtime's configuration, the CDI specification, and access to the node's identity.

No check runs a container, because this would pull an image, and public registries throttle requests from a whole fleet.
"""

from __future__ import annotations

import re
from typing import Any

from ..answer import Answers
from ..expectation import Machine
from ..outcome import CheckOutcome, Phase, Severity, Unreadable, equal, failed, passed, shortened
from .base import Check, json_object, listed
from .conditions import enroot, gpus, gpus_or_docker, guarded_metadata


def docker(answers: Answers) -> dict[str, Any] | None:
    """Return the output of `docker info`, or None without Docker."""
    if not answers.installed("docker"):
        return None
    info = json_object(answers.text("docker"), "the output of docker info")
    errors = info.get("ServerErrors")
    if errors or not isinstance(info.get("ServerVersion"), str) or not info["ServerVersion"]:
        why = listed([str(one) for one in errors]) if isinstance(errors, list) and errors else "no server version"
        raise Unreadable("the Docker daemon does not respond: %s" % shortened(why, 160), "run systemctl restart docker")
    return info


def offers_cdi(info: dict[str, Any]) -> bool:
    """Return True if Docker supports CDI device names: always since 28.2, in earlier versions if enabled."""
    folders = info.get("CDISpecDirs")
    return isinstance(folders, list) and "/etc/cdi" in folders


class ContainerRuntime(Check):
    """Each container runtime on the node is configured to provide GPUs to containers, and Docker is installed if the declaration lists it."""

    id, name = "C1", "container_runtime"
    phase, severity = Phase.CORRECTNESS, Severity.BLOCK
    is_installation = True
    when = (gpus_or_docker,)
    probes = ("docker", "containerd")
    hint = "rerun the container toolkit step: nvidia-ctk runtime configure --runtime=docker (or containerd), then restart the runtime's service"
    source = (
        "NVIDIA/cloud-native-docs: container-toolkit/install-guide.md; "
        "its own check runs an image, which a whole fleet must not pull at the same time"
    )

    def parse(self, answers: Answers, machine: Machine) -> dict[str, str]:
        """Return how each runtime provides GPUs to containers. The text is empty if it cannot."""
        ways_of = {}
        info = docker(answers)
        if info is not None:
            runtimes = info.get("Runtimes")
            if not isinstance(runtimes, dict):
                raise Unreadable("docker info lists no runtimes")
            ways = (["runtime nvidia"] if "nvidia" in runtimes else []) + (["CDI"] if offers_cdi(info) else [])
            ways_of["docker"] = " and ".join(ways)
        # Docker ships its own containerd, which serves only Docker; a containerd counts only with a Kubernetes plugin.
        if answers.installed("containerd"):
            text = answers.text("containerd")
            if not re.search(r"(?m)^version = \d|^\[", text):
                raise Unreadable("containerd config dump printed no configuration")
            disabled = re.search(
                r"(?m)^[ \t]*disabled_plugins = \[[^\[\]]*[\"'](?:io\.containerd\.grpc\.v1\.)?cri[\"']", text
            )
            if not (disabled and "docker" in ways_of):
                ways = ["runtime nvidia"] if re.search(r"(?m)^[ \t]*\[.*runtimes\.[\"']?nvidia[\"']?\]", text) else []
                ways += ["CDI"] if re.search(r"(?m)^[ \t]*enable_cdi = true", text) else []
                ways_of["containerd"] = " and ".join(ways)
        return ways_of

    def judge(self, found: dict[str, str], machine: Machine) -> CheckOutcome:
        declared = "docker" in machine.containers
        if declared and "docker" not in found:
            return failed("none", "docker", "the declaration lists docker, but it is not installed")
        if declared and not machine.gpus:
            return passed("docker answers", "docker answers")
        if declared and "runtime nvidia" not in found["docker"]:
            shown = "docker: %s" % (found["docker"] or "nothing")
            return failed(shown, "runtime nvidia", "docker has no nvidia runtime, which docker run --gpus uses")
        if not found:
            return CheckOutcome(
                "pass", "none", "a runtime that provides GPUs, or none", reason="no container runtime is installed"
            )
        shown = ["%s: %s" % (name, ways or "nothing") for name, ways in sorted(found.items())]
        wrong = [name for name, ways in sorted(found.items()) if not ways]
        if wrong:
            return failed(shown, "runtime nvidia or CDI", "%s cannot provide GPUs to containers" % " and ".join(wrong))
        return passed(shown, "runtime nvidia or CDI")


class CdiDevices(Check):
    """CDI has one device name for each GPU, and one for all GPUs together."""

    id, name = "C2", "cdi_devices"
    phase, severity = Phase.CORRECTNESS, Severity.WARN
    is_installation = True
    when = (gpus,)
    probes = ("cdi",)
    hint = "run systemctl restart nvidia-cdi-refresh, or rerun the container toolkit step"
    source = "NVIDIA/cloud-native-docs: container-toolkit/release-notes.md"

    def parse(self, answers: Answers, machine: Machine) -> list[str]:
        # The count goes to stderr as a log line; the names go to stdout, one per line.
        return [line.strip() for line in answers.lines("cdi") if line.strip().startswith("nvidia.com/gpu=")]

    def judge(self, found: list[str], machine: Machine) -> CheckOutcome:
        names = {name.split("=", 1)[1] for name in found}
        cut = machine.mig_profiles if machine.mig else []
        # A MIG instance is named with its GPU: 0:1.
        pattern, wanted, what = (
            (r"\d+:\d+", machine.gpus * len(cut), "instances") if cut else (r"\d+", machine.gpus, "GPUs")
        )
        indexed = len([name for name in names if re.match("^%s$" % pattern, name)])
        if "all" not in names:
            return failed(indexed, wanted, "CDI does not list nvidia.com/gpu=all", what)
        return equal(indexed, wanted, what, "CDI lists %d of %d %s" % (indexed, wanted, what))


class ContainersKeepGpus(Check):
    """A running container keeps its GPUs when systemd reloads, because its devices come from CDI or Docker does not use the systemd cgroup driver.

    With the older hooks and the systemd cgroup driver, every `systemctl daemon-reload` removes the GPUs from running containers.
    """

    id, name = "C3", "containers_keep_gpus"
    phase, severity = Phase.CORRECTNESS, Severity.WARN
    is_installation = True
    when = (gpus,)
    probes = ("docker",)
    hint = "use Docker 28.2 or newer, or enable CDI (features.cdi in /etc/docker/daemon.json), and pass GPUs with --device nvidia.com/gpu=all"
    source = "NVIDIA/cloud-native-docs: container-toolkit/troubleshooting.md: Failed to initialize NVML: Unknown Error in a running container"

    def parse(self, answers: Answers, machine: Machine) -> dict[str, Any] | None:
        return docker(answers)

    def judge(self, found: dict[str, Any] | None, machine: Machine) -> CheckOutcome:
        wanted = "CDI, or cgroup driver cgroupfs"
        if found is None:
            return CheckOutcome("pass", "none", wanted, reason="Docker is not installed")
        driver = found.get("CgroupDriver")
        if driver not in ("systemd", "cgroupfs", "none"):
            raise Unreadable("docker info reports no known cgroup driver")
        shown = "%s, cgroup driver %s" % ("CDI" if offers_cdi(found) else "no CDI", driver)
        if driver == "systemd" and not offers_cdi(found):
            return failed(shown, wanted, "systemctl daemon-reload removes the GPUs from running containers")
        return passed(shown, wanted)


class Enroot(Check):
    """Enroot is installed at an accepted version, and an unprivileged user can create the namespaces of a container."""

    id, name = "C5", "enroot"
    phase, severity = Phase.CORRECTNESS, Severity.BLOCK
    is_installation = True
    when = (enroot,)
    probes = ("enroot", "enroot-namespaces")
    hint = (
        "rerun step 71-enroot; on Ubuntu 24.04 the AppArmor profile /etc/apparmor.d/enroot must be loaded (aa-status)"
    )
    source = "NVIDIA/enroot: doc/requirements.md, doc/cmd/version.md and bin/enroot-nsenter.c"

    def parse(self, answers: Answers, machine: Machine) -> tuple[str, str]:
        """Return the version and the error from creating the namespaces, which is empty on success."""
        if not answers.installed("enroot"):
            return "", "enroot is not installed"
        version = answers.text("enroot").strip()
        if not re.match(r"^\d+\.\d+\.\d+$", version):
            raise Unreadable("enroot version printed no version: %s" % shortened(version, 60))
        made = answers.raw("enroot-namespaces")
        if made.exit != 0:
            return version, shortened(made.stderr.strip(), 160) or "exit code %d" % made.exit
        if not re.match(r"^user:\[\d+\]$", made.stdout.strip()):
            raise Unreadable("enroot-nsenter printed no user namespace: %s" % shortened(made.stdout.strip(), 60))
        return version, ""

    def judge(self, found: tuple[str, str], machine: Machine) -> CheckOutcome:
        version, problem = found
        if problem:
            why = "an unprivileged user cannot start a container: %s" % problem
            return failed(version or "none", "namespaces for users", why)
        machine.inside_range("enroot", version)
        return passed(version, "namespaces for users")


class ContainersKeptFromMetadata(Check):
    """Containers cannot reach the cloud's metadata service, which gives the node's identity to any caller.

    This check is for clouds without a hop limit. Containers on the host network can still reach the metadata service.
    """

    id, name = "C4", "containers_kept_from_metadata"
    phase, severity = Phase.CORRECTNESS, Severity.BLOCK
    is_installation = True
    when = (guarded_metadata,)
    probes = ("metadata-guard",)
    hint = "run systemctl restart gpuinfra-metadata, and find out what removed its nftables table (nft flush ruleset, or nftables.service)"
    source = "nft(8): a drop is final, whatever other tables accept; output format of nftables 1.0.6"

    def parse(self, answers: Answers, machine: Machine) -> list[str]:
        """Return the addresses that the first rules in the chain drop."""
        if not answers.installed("metadata-guard"):
            return []
        if "No such file or directory" in answers.raw("metadata-guard").stderr:
            return []
        rules, dropping = [], False
        for line in answers.lines("metadata-guard"):
            rule = re.match(r"^\s*ip6? daddr (\S+) tcp dport != 53 (?:counter packets \d+ bytes \d+ )?drop$", line)
            if rule and dropping:
                rules.append(rule.group(1))
            else:
                dropping = re.match(r"^\s*type filter hook forward priority ", line) is not None
        return rules

    def judge(self, found: list[str], machine: Machine) -> CheckOutcome:
        wanted = machine.metadata_guarded
        open_ = [address for address in wanted if address not in found]
        if open_ or not wanted:
            return failed(
                found,
                wanted,
                "containers on a bridge can reach %s" % (listed(open_) or "the metadata service: no address is listed"),
            )
        return passed(found, wanted)
