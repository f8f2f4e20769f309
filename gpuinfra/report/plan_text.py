"""Formats a plan as text: topology, software, time, price and retained resources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gpuinfra.base.words import counted
from gpuinfra.cost import Cost
from gpuinfra.plan.logs import OWN_FILES
from gpuinfra.plan.model import Plan, PoolPlan
from gpuinfra.plan.recovery_model import RecoveryPlan
from gpuinfra.report import tables
from gpuinfra.report.plan_json import PlanReport
from gpuinfra.report.plan_tables import (
    dates,
    existing_text,
    gpus_of,
    image_text,
    own_steps_table,
    recovery_table,
    storage_text,
    subnet_table,
    time_table,
    ways_table,
)
from gpuinfra.report.prices import price_table
from gpuinfra.report.tables import Column, Table
from gpuinfra.report.workload_text import workload_fields

LABEL = Column(width=8)
SOFTWARE = {"driver": "DRIVER_VERSION", "CUDA": "CUDA_VERSION", "NCCL": "NCCL_VERSION"}


def text(report: PlanReport) -> str:
    """Return the entire plan. The result is empty if the declaration has errors."""
    return "\n".join(_lines(report))


def _lines(report: PlanReport) -> Iterator[str]:
    plan, cost = report.plan, report.cost
    if plan is None or cost is None:
        return
    place = f"{plan.cloud} {plan.region}, {', '.join(plan.zones)}"
    yield f"{plan.name}: {counted(plan.nodes, 'node')}, {counted(gpus_of(plan), 'GPU')} on {place}  ({', '.join(plan.layers)})"
    why = {one.path: one.why for one in plan.decisions}
    for pool in plan.pools:
        yield ""
        yield from _pool(pool, why[f"{pool.name}.fabric_test"])
    yield ""
    yield from _site(plan)
    if report.time:
        yield from _field("time", report.time.in_words)
        yield from tables.text(time_table(report.time), indent=2)
    yield ""
    yield from _cost(cost)
    if ways := ways_table(report.ways):
        yield ""
        yield from tables.text(ways, indent=2)
    if report.workload:
        yield ""
        yield from tables.fields(list(workload_fields(report.workload)), label=LABEL)
    yield ""
    yield from _resources(plan)


def _pool(pool: PoolPlan, why_tested: str) -> Iterator[str]:
    expected = pool.expectation
    gpu = f", {expected['gpus']} x {expected['gpu_name']}" if "gpu_name" in expected else ""
    fabric = (
        f", {expected['fabric_devices']} x {expected['fabric_provider']}" if expected.get("fabric_provider") else ""
    )
    yield f"pool {pool.name}: {pool.count} x {pool.machine}{gpu}{fabric}"
    groups = [
        (
            group.name,
            str(group.count) if group.count == group.max_count else f"{group.count} of {group.max_count}",
            group.kind.replace("_", "-"),
            group.zone,
            group.placement_group or "none",
        )
        for group in pool.groups
    ]
    yield from tables.text(Table(["group", "nodes", "kind", "zone", "placement group"], groups), indent=2)
    nics = Counter(nic.kind for nic in pool.nics)
    software = [f"{name} {pool.versions[key]}" for name, key in SOFTWARE.items() if key in pool.versions]
    rows = [
        ("image", f"{'prebuilt' if pool.image.prebuilt else 'plain'} {pool.image.os} ({pool.image.ref})"),
        ("release", f"{pool.image.on}; {pool.image.contains}" if pool.image.prebuilt else ""),
        ("nics", ", ".join(f"{count} {kind}" for kind, count in nics.items())),
        ("disk", f"{pool.disk.size_gib} GiB {pool.disk.kind}, encrypted"),
        ("software", ", ".join(software)),
        ("steps", " ".join(step.id for step in pool.steps)),
        ("test", _fabric_test(pool, why_tested) if fabric else ""),
        *(("dates", one) for one in dates(pool)),
    ]
    yield from tables.fields([row for row in rows if row[1]], indent=2, label=LABEL)
    if own := own_steps_table(pool):
        yield from tables.text(own, indent=2)


def _fabric_test(pool: PoolPlan, why: str) -> str:
    mode = "required" if pool.fabric_test else "off"
    alone = "; the only node of the pool is handed over without it" if pool.fabric_test and pool.count == 1 else ""
    return f"fabric test {mode}: {why}{alone}"


def _site(plan: Plan) -> Iterator[str]:
    network = plan.network
    if network is None:
        if plan.pools:
            yield from _field("network", "from another stack")
    elif network.existing_id:
        inbound = f", {network.inbound}" if network.inbound else ""
        yield from _field("network", f"{network.existing_id}, existing{inbound}")
    else:
        outbound = "a NAT gateway" if network.egress == "nat" else "only cloud service endpoints"
        inbound = network.inbound or "no inbound access"
        yield from _field("network", f"{network.cidr}, {inbound}, outbound through {outbound}")
        yield from tables.text(subnet_table(network.subnets), indent=2)
    for entry in plan.file_systems:
        yield from _field("storage", f"{entry.mount}: {storage_text(entry)}")
    for existing in plan.existing_file_systems:
        yield from _field("storage", f"{existing.mount}: {existing_text(existing)}")
    if plan.audit.trail:
        locked = f"locked for {plan.audit.lock_days} days ({plan.audit.lock_mode.lower()})"
        yield from _field("audit", f"trail for the entire account, {locked}")
    if plan.budget:
        notified = f"notifies {', '.join(plan.budget.recipients)}" if plan.budget.recipients else "no recipients"
        both = " and of the second region" if plan.recovery and plan.recovery.mode != "cold" else ""
        source = f"from the price of this plan{both}" if plan.budget.derived else "as declared"
        limit = f"{plan.budget.limit_usd_per_month:,.0f} USD a month"
        if plan.budget.currency != "USD":
            limit = f"{plan.budget.amount_per_month:,.0f} {plan.budget.currency} a month, {limit}"
        yield from _field("budget", f"{limit} ({source}), {notified}")
    if plan.recovery:
        yield from _recovery(plan.recovery)
    if plan.monitoring:
        receivers = ", ".join(plan.monitoring.receivers) or "no receivers"
        disk = f"on a disk of {plan.monitoring.disk.size_gib} GiB that stays when the node is replaced"
        kept = f"keeps metrics for {counted(plan.monitoring.retention_days, 'day')} {disk}"
        sent = f", sends metrics to {plan.monitoring.remote_write}" if plan.monitoring.remote_write else ""
        yield from _field("monitoring", f"pool {plan.monitoring.pool}, {kept}, alerts to {receivers}{sent}")
        if store := plan.monitoring.store:
            kept = f", which keeps metrics for {counted(store.retention_days, 'day')}" if store.retention_days else ""
            told = (
                f"; reports to {', '.join(store.recipients)} that the control node is gone"
                if store.recipients and store.watches
                else ""
            )
            yield from _field("store", f"{store.service}{kept}{told}")
        for email in plan.monitoring.emails:
            yield from _field("alerts", f"{email.receiver} sends emails to {', '.join(email.recipients)}")
        if repair := plan.monitoring.repair:
            limit = "" if repair.mode == "report" else f", at most {counted(repair.at_most, 'node')} a day"
            yield from _field("repair", f"{repair.mode}{limit}")
    if plan.logs:
        days, recipients = counted(plan.logs.retention_days, "day"), ", ".join(plan.logs.recipients) or "no recipients"
        also = f", and {', '.join(plan.logs.files)}" if plan.logs.files else ""
        what = f"kernel, units of gpuinfra and {OWN_FILES}{also}"
        yield from _field("logs", f"{what}, kept for {days}, Xids reported to {recipients}")
    if plan.pools:
        hand = plan.handover
        wait = {"all": "every node", "floor": counted(hand.floor or 0, "node"), "none": "no node"}[hand.wait]
        tested = [pool.name for pool in plan.pools if pool.fabric_test]
        test = f"; fabric test in {counted(len(tested), 'pool')}: {', '.join(tested)}" if tested else ""
        yield from _field("handover", f"waits for {wait}, at most {hand.deadline_s // 60} minutes{test}")


def _recovery(recovery: RecoveryPlan) -> Iterator[str]:
    buckets = ", ".join(one.name for one in recovery.replicas)
    homes = "".join(f" and of the home directories {one.mount}" for one in recovery.homes)
    yield from _field("recovery", f"{recovery.mode} in {recovery.region}, replicas of the buckets {buckets}{homes}")
    if recovery.names:
        yield from _field("names", f"{', '.join(recovery.names.hosts)} in the zone {recovery.names.zone}")
    for image in recovery.images:
        yield from _field("image", image_text(image))
    yield from tables.text(recovery_table(recovery), indent=2)
    for command in recovery.commands:
        yield from tables.fields([("run", f"{command.command}  # {command.why}")], indent=2, label=LABEL)


def _cost(cost: Cost) -> Iterator[str]:
    if table := price_table(cost.as_dict()["lines"]):
        yield from tables.text(table, indent=2)
    yield from _field("price", total(cost))
    for line in cost.unknown:
        yield f"  not included: {line}"
    if estimates := sum(line.usd_per_unit_hour is not None and not line.certain for line in cost.lines):
        yield f"  number of these prices that are estimates: {estimates}; `gpuinfra prices STACK` shows the reason and the source of each"
    if cost.stale:
        yield f"  number of these prices that are older than 100 days: {len(cost.stale)}; use `--prices FILE` to set your own prices"


def total(cost: Cost) -> str:
    """Return the total price on one line."""
    if not cost.nodes_priced:
        return "unknown, because the price of the nodes is unknown; use `--prices FILE` to set your own prices"
    least = "" if cost.complete else "at least "
    text = f"{least}{cost.usd_per_hour:,.2f} USD an hour, {least}{cost.usd_per_month:,.0f} a month"
    if cost.usd_rest_of_month is not None:
        text += f", {least}{cost.usd_rest_of_month:,.0f} until the end of this month"
    if cost.usd_for_duration is not None:
        text += f", {least}{cost.usd_for_duration:,.0f} for {cost.duration_hours} hours"
    return text


def _resources(plan: Plan) -> Iterator[str]:
    yield f"creates {sum(plan.resources.values())} resources of {len(plan.resources)} types; `--json` lists them"
    if plan.kept:
        yield f"destroy retains {len(plan.kept)} of them:"
        reasons = Counter(item.why for item in plan.kept)
        yield from tables.fields(
            [(str(count), reason) for reason, count in reasons.items()], indent=2, label=Column(right=True)
        )


def _field(label: str, value: str) -> list[str]:
    return tables.fields([(label, value)], label=LABEL)
