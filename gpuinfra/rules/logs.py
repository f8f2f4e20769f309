"""Rules about the logs of the nodes in the log service of the cloud."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from gpuinfra.base.findings import Finding, error, warn
from gpuinfra.plan.profile import profile_of
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.rule import rules_in


def logs_are_sent_by_nodes(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A stack with logs has nodes, on a cloud whose agent gpuinfra can install."""
    if spec.logs is None:
        return
    cloud = profile_of(spec.cloud)
    if cloud.software.log_agent is None:
        what = f"has no effect on {cloud.title}, because gpuinfra does not send logs there"
        yield error("logs", what, "remove it; a declared step (software.steps) can install an agent")
    elif "cluster" not in spec.made_layers:
        yield error("logs", "has no effect, because this stack creates no nodes", "set it in the cluster's stack")


def logs_have_a_role_of_the_nodes(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The stack that creates the log group also creates the role of the nodes, which can write to it."""
    if spec.logs and spec.access.node_role_in_site:
        what = "is true, but only the stack with the nodes can allow their role to write to its log group"
        yield error("access.node_role_in_site", what, "set it to false, or remove logs")


def log_agent_reaches_its_download(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Without internet access, the agent that sends the logs is installed from a mirror."""
    if spec.logs and spec.network.egress == "endpoints" and not spec.software.mirror_url:
        what = "requires a download from the internet, but network.egress is endpoints"
        yield error("logs", what, "set software.mirror_url, or set network.egress to nat")


def log_files_are_listed_once(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Each log file is sent once. A file in two entries is billed twice."""
    files = spec.logs.files if spec.logs else ()
    for i, file in enumerate(files):
        if file.startswith("/var/log/gpuinfra/"):
            yield error(f"logs.files[{i}]", f"is {file}, which is always sent", "remove it")
        elif file in files[:i]:
            yield error(f"logs.files[{i}]", f"is {file}, which is listed twice", "remove one of the entries")


def xids_have_recipients(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The alert about Xids has recipients: those of the budget."""
    if spec.logs and "cluster" in spec.made_layers and not spec.budget.recipients:
        what = "is empty, so no alert is sent for Xids in the logs"
        yield warn("budget.recipients", what, "add an email address")


RULES = rules_in(vars())
