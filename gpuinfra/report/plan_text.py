"""A plan for people, as plain text: what it will be, why, what it costs and what stays behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuinfra.cost import Cost
from gpuinfra.cost.compare import Row
from gpuinfra.plan.model import Plan, PoolPlan
from gpuinfra.report.plan_json import Answer


def text(answer: Answer) -> str:
    """The whole answer."""
    return "\n".join(_lines(answer))


def _lines(answer: Answer) -> Iterator[str]:
    plan, cost = answer.plan, answer.cost
    if plan is None or cost is None:
        return
    gpus = sum(pool.count * _number(pool.expectation.get("gpus")) for pool in plan.pools)
    place = f"{plan.cloud} {plan.region}, {', '.join(plan.zones)}"
    yield f"{plan.name}: {plan.nodes} nodes, {gpus} GPUs on {place}  ({', '.join(plan.layers)})"
    for pool in plan.pools:
        yield ""
        yield from _pool(pool)
    yield ""
    yield from _site(plan)
    yield ""
    yield from _cost(cost)
    yield from _ways(answer.ways)
    yield ""
    yield from _rest(plan)


def _pool(pool: PoolPlan) -> Iterator[str]:
    expected = pool.expectation
    gpu = f", {expected['gpus']} x {expected['gpu_name']}" if expected.get("gpu_name") else ""
    fabric = expected.get("fabric_provider")
    network = f", {expected['fabric_devices']} x {fabric}" if fabric else ""
    yield f"pool {pool.name}: {pool.count} x {pool.machine}{gpu}{network}"
    rows = [("group", "nodes", "kind", "zone", "placement group")]
    for group in pool.groups:
        nodes = str(group.count) if group.count == group.max_count else f"{group.count} of {group.max_count}"
        placed = group.placement_group or "none"
        rows.append((group.name, nodes, group.kind.replace("_", "-"), group.zone, placed))
    yield from _table(rows, "  ")
    image = "prebuilt" if pool.image.prebuilt else "plain"
    yield f"  image    {image} {pool.image.os} ({pool.image.ref})"
    yield f"  nics     {_nics(pool)}"
    yield f"  disk     {pool.disk.size_gib} GiB {pool.disk.kind}, encrypted"
    wanted = {"driver": "DRIVER_VERSION", "CUDA": "CUDA_VERSION", "NCCL": "NCCL_VERSION"}
    software = [f"{name} {pool.versions[key]}" for name, key in wanted.items() if key in pool.versions]
    if software:
        yield f"  software {', '.join(software)}"
    yield f"  steps    {' '.join(step.id for step in pool.steps)}"


def _nics(pool: PoolPlan) -> str:
    kinds: dict[str, int] = {}
    for nic in pool.nics:
        kinds[nic.kind] = kinds.get(nic.kind, 0) + 1
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items())


def _site(plan: Plan) -> Iterator[str]:
    network = plan.network
    if network is None:
        yield "network  from another stack"
    elif network.existing_id:
        yield f"network  {network.existing_id}, there already"
    else:
        way_out = "a NAT gateway" if network.egress == "nat" else "the cloud's own endpoints only"
        way_in = f"in to port 22 from {', '.join(network.ssh_from)}" if network.ssh_from else "no way in"
        yield f"network  {network.cidr}, {way_in}; out through {way_out}"
        for subnet in network.subnets:
            yield f"  {subnet.name:<12} {subnet.cidr:<18} {subnet.zone:<16} {subnet.role}"
    for entry in plan.file_systems:
        tier = f" at {entry.throughput_mb_s_per_tib} MB/s for each TiB" if entry.throughput_mb_s_per_tib else ""
        size = f"{entry.capacity_gib} GiB" if entry.capacity_gib else "grows by itself"
        link = f", bucket {entry.bucket}" if entry.bucket else ""
        yield f"storage  {entry.mount}: {entry.kind} {entry.deployment}, {size}{tier}{link}"
    if plan.audit.trail:
        yield f"audit    trail of the whole account, locked for {plan.audit.lock_days} days ({plan.audit.lock_mode.lower()})"
    if plan.budget:
        told = ", ".join(plan.budget.recipients) or "nobody"
        source = "from this plan's price" if plan.budget.derived else "as declared"
        yield f"budget   {plan.budget.limit_usd_per_month:,.0f} USD a month ({source}), tells {told}"
    hand = plan.handover
    wait = {"all": "every node", "floor": f"{hand.floor} nodes", "none": "no node"}[hand.wait]
    yield f"handover waits for {wait}, at most {hand.deadline_s // 60} minutes"


def _cost(cost: Cost) -> Iterator[str]:
    rows = [("what is billed", "USD/h", "price of")]
    for line in cost.lines:
        hour = "unknown" if line.usd_per_hour is None else f"{line.usd_per_hour:,.2f}"
        rows.append((line.what, hour, f"{line.read or ''}{'' if line.certain or not line.read else ' (not certain)'}"))
    yield from _table(rows, "  ", right=(1,))
    least = "" if cost.complete else "at least "
    total = f"{least}{cost.usd_per_hour:,.2f} USD an hour, {least}{cost.usd_per_month:,.0f} a month"
    if cost.usd_rest_of_month is not None:
        total += f", {least}{cost.usd_rest_of_month:,.0f} until the end of this month"
    if cost.usd_for_duration is not None:
        total += f", {least}{cost.usd_for_duration:,.0f} for {cost.duration_hours} hours"
    yield (
        f"price    {total}"
        if cost.nodes_priced
        else "price    not known, because that of the nodes is not; `--prices FILE` sets your own"
    )
    for line in cost.unknown:
        yield f"  not counted: {line}"
    if cost.stale:
        yield f"  older than a quarter: {len(cost.stale)} of these prices; `--prices FILE` sets your own"


def _ways(ways: Sequence[Row]) -> Iterator[str]:
    if len(ways) < 2:
        return
    rows = [("the same nodes", "USD/h", "USD/month", "pays from", "price of")]
    for way in ways:
        pays = f"{way.break_even_hours:,.0f} h a month" if way.break_even_hours is not None else "-"
        name = way.way.replace("_", "-")
        rows.append((name, f"{way.usd_per_hour:,.2f}", f"{way.usd_per_month:,.0f}", pays, str(way.read)))
    yield from _table(rows, "  ", right=(1, 2))


def _rest(plan: Plan) -> Iterator[str]:
    total = sum(plan.resources.values())
    yield f"creates {total} resources of {len(plan.resources)} types; `--json` lists them"
    if plan.kept:
        reasons: dict[str, int] = {}
        for item in plan.kept:
            reasons[item.why] = reasons.get(item.why, 0) + 1
        yield f"destroy keeps {len(plan.kept)} of them:"
        for why, count in reasons.items():
            yield f"  {count:>3}  {why}"


def _table(rows: Sequence[Sequence[str]], indent: str, right: Sequence[int] = ()) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row)]
        yield (indent + "  ".join(cells)).rstrip()


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
