"""Rules about the declared steps and packages (`software.steps` and `software.packages`)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from fnmatch import fnmatchcase

from gpuinfra.base.findings import Finding, error, warn
from gpuinfra.plan.machines import pools_of
from gpuinfra.plan.profile import profile_of
from gpuinfra.software.pool import pool_lock
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.rule import pools_exist, rules_in
from gpuinfra.spec.steps import NodeStep


def own_step_names_are_unique(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The names of the declared steps are unique, because they identify the steps in logs and evidence."""
    seen: dict[str, int] = {}
    for i, step in enumerate(spec.software.steps):
        if step.name in seen:
            what = f"is {step.name}, which is also the name of software.steps[{seen[step.name]}]"
            yield error(f"software.steps[{i}].name", what, "use a unique name")
        seen.setdefault(step.name, i)


def own_step_has_one_script(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A declared step has a file, or a URL with a checksum."""
    for i, step in enumerate(spec.software.steps):
        path = f"software.steps[{i}]"
        if step.file and step.url:
            yield error(path, "has a file and a url, but a step runs one script", "remove one of them")
        elif not step.file and not step.url:
            yield error(path, "has no script", "set file, or url and sha256")
        elif step.url and not step.sha256:
            what = "has a url without sha256, so the script could be replaced with a different one"
            yield error(path, what, "set sha256 to the output of sha256sum")
        elif step.file and step.sha256:
            what = "is set, but the checksum of a file is calculated from its content"
            yield error(f"{path}.sha256", what, "remove it")


def own_step_file_is_a_script(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The file of a declared step is a script of at most 256 KiB in the folder of the stack file, with an interpreter in its first line and without keys."""
    for i, step in enumerate(spec.software.steps):
        if step.script and step.script.problem:
            what = f"is {step.file}, {step.script.problem}"
            yield error(f"software.steps[{i}].file", what, step.script.hint)


def own_step_url_is_reachable(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Nodes that download a step have outbound access to the internet, or a mirror."""
    for i, step in enumerate(spec.software.steps):
        if step.url and spec.network.egress == "endpoints" and not spec.software.mirror_url:
            what = "is on the internet, but nodes with network.egress: endpoints cannot reach the internet"
            yield error(f"software.steps[{i}].url", what, "use file instead, or set software.mirror_url")


def own_step_pools_exist(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The pools of a declared step exist, and each is listed once."""
    return pools_exist(spec, "software.steps", spec.software.steps)


def own_step_fits_deadline(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The time limits of a pool's declared steps, including retries, are shorter than the handover deadline,
    so that a step that hangs is reported before `up` stops waiting."""
    deadline = spec.handover.deadline_minutes
    if spec.handover.wait == "none":
        return
    within: list[NodeStep] = []
    for i, step in enumerate(spec.software.steps):
        longest = _longest(step)
        if longest < deadline:
            within.append(step)
        else:
            retries = f", and {longest} with {step.retries} retries" if step.retries else ""
            what = f"is {step.timeout_minutes}{retries}, but `pulumi up` waits at most {deadline} minutes for the nodes"
            hint = f"reduce {'timeout_minutes or retries' if retries else 'it'}, or increase handover.deadline_minutes"
            yield error(f"software.steps[{i}].timeout_minutes", what, hint)
    for pool in spec.pools:
        total = sum(_longest(step) for step in within if not step.pools or pool.name in step.pools)
        if total >= deadline:
            what = f"can take {total} minutes in pool {pool.name}, but `pulumi up` waits at most {deadline} minutes for the nodes"
            hint = "reduce timeout_minutes or retries of the steps, or increase handover.deadline_minutes"
            # Not an error, because time limits are usually much longer than the steps.
            yield warn("software.steps", what, hint)
            return


def _longest(step: NodeStep) -> int:
    """Return the minutes that a step takes if each run reaches its time limit."""
    return step.timeout_minutes * (step.retries + 1)


def packages_are_listed_once(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Each declared package is listed once, with at most one version."""
    names = [package.partition("=")[0] for package in spec.software.packages]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield error("software.packages", f"contains {name} more than once", "list each package once")


def packages_are_not_managed(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The software lock does not manage the declared packages, because a different version would change the software that the checks verify."""
    cloud = profile_of(spec.cloud)
    managed: dict[str, str] = {}
    for _, pool, machine in pools_of(spec):
        image, _ = cloud.image(spec, pool, machine)
        for pattern in pool_lock(spec, pool, machine, cloud.software, image).holds:
            for package in spec.software.packages:
                if fnmatchcase(package.partition("=")[0], pattern):
                    managed.setdefault(package, f"the lock of pool {pool.name} manages {pattern}")
    for package, reason in managed.items():
        hint = "remove it; driver, cuda, nccl, containers and kernel in software select the versions that gpuinfra installs"
        yield error("software.packages", f"contains {package}, but {reason}", hint)
        return


def package_servers_are_reachable(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Nodes that install declared packages can reach Ubuntu's package servers."""
    if spec.software.packages and spec.network.egress == "endpoints":
        what = "is installed from servers on the internet, which nodes cannot reach because network.egress is endpoints"
        yield error("software.packages", what, "use an image that contains the packages, or set network.egress to nat")


RULES = rules_in(vars())
