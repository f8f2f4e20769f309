"""Rules about the control node, which collects metrics and sends alerts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date

from gpuinfra.base.findings import Finding, error, warn
from gpuinfra.plan.machines import machines_of, pools_of, similar
from gpuinfra.plan.monitoring import control_machine, memory_gib, runs_prometheus
from gpuinfra.plan.profile import profile_of
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.monitoring import CONTROL_POOL, Receiver
from gpuinfra.spec.rule import rules_in
from gpuinfra.spec.shown import shown


def control_node_watches_gpus(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A stack with a control node has the cluster layer and a pool with GPUs, because the alert rules read the metrics of GPUs."""
    if spec.monitoring is None:
        return
    machines = [machine for _, _, machine in pools_of(spec)]
    if "cluster" not in spec.made_layers:
        yield error("monitoring", "has no effect, because this stack creates no nodes", "set it in the cluster's stack")
    elif len(machines) == len(spec.pools) and not any(machine.gpu for machine in machines):
        yield error("monitoring", "has no effect, because no pool has GPUs", "add a pool with GPUs, or remove it")


def control_node_has_a_small_machine(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The machine type of the control node is known, has no GPUs, and has x86_64 processors, for which the lock has checksums."""
    if spec.monitoring is None or spec.monitoring.machine is None:
        return
    name, machines = spec.monitoring.machine, machines_of(spec)
    machine, default = machines.get(name), control_machine(spec)
    if machine is None:
        plain = {key: one for key, one in machines.items() if one.gpu is None}
        near = similar(name, plain)
        hint = f"did you mean {near}?" if near else f"remove it to use {default}"
        yield error("monitoring.machine", f"is {shown(name)}, which is not in the catalog", hint)
    elif not runs_prometheus(machine):
        what = f"is {name}, which has {'GPUs' if machine.gpu else f'{machine.arch} processors'}; allowed: machine types without GPUs and with x86_64 processors"
        yield error("monitoring.machine", what, f"remove it to use {default}")
    elif machine.memory_gib < (needed := memory_gib(spec)):
        what = f"is {name} with {machine.memory_gib} GiB of memory, but the metrics of {spec.nodes} nodes need {needed} GiB"
        yield error("monitoring.machine", what, f"remove it to use {default}, or declare a larger one")


def control_node_has_a_name_of_its_own(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """No declared pool has the name of the control node's pool."""
    for i, pool in enumerate(spec.pools):
        if spec.monitoring and pool.name == CONTROL_POOL:
            yield error(f"pools[{i}].name", f"is {pool.name}, the name of the control node", "use another name")


def control_node_has_a_role_of_its_own(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A stack with a control node creates IAM resources, so the nodes' role is not created in the site to avoid them."""
    if spec.monitoring and spec.access.node_role_in_site:
        what = "is true, but the control node needs a role of its own, which the stack with the nodes creates"
        yield error("access.node_role_in_site", what, "set it to false, or remove monitoring")


def control_node_reaches_its_downloads(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Without internet access, the control node can find the nodes, installs its software from a mirror, and sends nothing to the internet."""
    if spec.monitoring is None or spec.network.egress != "endpoints":
        return
    if service := profile_of(spec.cloud).control.needs_internet:
        what = f"finds the nodes with {service}, which nodes cannot reach, because network.egress is endpoints"
        yield error("monitoring", what, "set network.egress to nat, or remove monitoring")
        return
    if not spec.software.mirror_url:
        what = "requires downloads from the internet, but network.egress is endpoints"
        yield error("monitoring", what, "set software.mirror_url, or set network.egress to nat")
    if spec.monitoring.remote_write:
        what = "is an endpoint that nodes cannot reach, because network.egress is endpoints"
        yield error("monitoring.remote_write.url", what, "remove monitoring.remote_write, or set network.egress to nat")
    if spec.monitoring.store:
        what = "is a service that nodes cannot reach, because network.egress is endpoints"
        yield error("monitoring.store", what, "remove monitoring.store, or set network.egress to nat")
    for i, receiver in enumerate(spec.monitoring.receivers):
        if receiver.kind != "webhook":
            what = f"is {receiver.kind}, which nodes cannot reach, because network.egress is endpoints"
            yield error(
                f"monitoring.receivers[{i}].kind", what, "use a webhook in your network, or set network.egress to nat"
            )


def alerts_have_receivers(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A control node has receivers of its alerts, each of them is listed once, only Slack has channels, and only email has recipients and no secret."""
    if spec.monitoring is None:
        return
    receivers = spec.monitoring.receivers
    if not receivers:
        what = "is empty, so alerts are not sent"
        yield warn("monitoring.receivers", what, "add a receiver")
    for i, receiver in enumerate(receivers):
        path = f"monitoring.receivers[{i}]"
        if receiver.channel and receiver.kind != "slack":
            yield error(f"{path}.channel", f"is set, but kind is {receiver.kind}", "remove it, or set kind to slack")
        if receiver.to and receiver.kind != "email":
            yield error(f"{path}.to", f"is set, but kind is {receiver.kind}", "remove it, or set kind to email")
        if receiver.secret and receiver.kind == "email":
            yield error(f"{path}.secret", "is set, but kind is email, which needs no secret", "remove it")
        elif not receiver.secret and receiver.kind != "email":
            yield error(f"{path}.secret", f"is required, because kind is {receiver.kind}", "add the name of the secret")
        elif _twin(receiver) in [_twin(one) for one in receivers[:i]]:
            key = "to" if receiver.kind == "email" else "secret"
            what = f"is {receiver.secret or shown(list(receiver.to))}, which is listed twice"
            yield error(f"{path}.{key}", what, "remove one of the receivers")


def _twin(receiver: Receiver) -> tuple[object, ...]:
    return receiver.kind, receiver.secret, receiver.channel, receiver.to


def email_is_sent_by_the_cloud(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Alerts by email have recipients, and are declared on a cloud with a service that sends them for Alertmanager."""
    if spec.monitoring is None:
        return
    control = profile_of(spec.cloud).control
    for i, receiver in enumerate(spec.monitoring.receivers):
        path = f"monitoring.receivers[{i}]"
        if receiver.kind == "email" and control.email is None:
            hint = "use slack, pagerduty or a webhook, and let that service send the emails"
            yield error(f"{path}.kind", f"is email, but {control.no_email}", hint)
        elif receiver.kind == "email" and not receiver.to and not spec.budget.recipients:
            yield error(f"{path}.to", "is empty, and so is budget.recipients", "add an email address")


def metrics_store_exists_on_the_cloud(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A managed store is declared on a cloud on which a stack can create it, its retention is set only with a store, and the alert that the control node is
    gone has recipients."""
    if spec.monitoring is None:
        return
    declared, store = spec.monitoring, profile_of(spec.cloud).control.store
    if declared.store and store is None:
        what = f"is {declared.store}, but {profile_of(spec.cloud).control.no_store}"
        yield error("monitoring.store", what, "remove it, or use monitoring.remote_write with an endpoint of your own")
        return
    if declared.store and not spec.budget.recipients:
        what = f"is {declared.store}, but budget.recipients is empty, so no alert is sent if the control node is gone"
        yield warn("monitoring.store", what, "add budget.recipients")
    days = declared.store_retention_days
    if days is not None and not declared.store:
        yield error(
            "monitoring.store_retention_days",
            f"is {days}, but monitoring.store is not set",
            "remove it, or set monitoring.store to managed",
        )


def monitoring_names_secrets_of_the_cloud(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The secret of a receiver or of the remote endpoint has the form of a name in the secret store of the cloud."""
    if spec.monitoring is None:
        return
    control, remote = profile_of(spec.cloud).control, spec.monitoring.remote_write
    secrets = {f"receivers[{i}]": one.secret for i, one in enumerate(spec.monitoring.receivers) if one.secret}
    secrets |= {"remote_write": remote.secret} if remote else {}
    for path, secret in secrets.items():
        if not re.fullmatch(control.secret, secret):
            what = f"is {shown(secret)}; allowed: {control.secret_form}"
            yield error(f"monitoring.{path}.secret", what, "store the secret there, and use its name")


RULES = rules_in(vars())
