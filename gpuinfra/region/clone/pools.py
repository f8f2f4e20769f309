"""Chooses the machine type of each pool."""

from __future__ import annotations

from collections.abc import Iterator

from gpuinfra.base.findings import Finding, error, warn
from gpuinfra.catalog.records import MachineType
from gpuinfra.plan.machines import machines_of
from gpuinfra.region.clone import machines as find
from gpuinfra.region.clone.draft import Draft
from gpuinfra.region.clone.pair import RegionPair
from gpuinfra.spec.messages import nearest
from gpuinfra.spec.pool import Pool
from gpuinfra.spec.shown import shown


def set_machines(pair: RegionPair, draft: Draft) -> dict[str, MachineType]:
    """Set the machine types. Returns pool -> machine type, without pools that no machine type can replace."""
    chosen: dict[str, MachineType] = {}
    machines_known, offered = machines_of(pair.spec), dict(pair.there.machines)
    if not pair.across:
        offered = machines_known
    for index, pool in enumerate(pair.spec.pools):
        old = machines_known[pool.machine]
        asked = pair.request.machine.get(pool.name) or pair.request.machine.get("*")
        new = _machine(pair, draft, index, pool, old, asked, offered)
        if new is None:
            continue
        chosen[pool.name] = new
        draft.set(("pools", index, "machine"), new.name, _why(pair, old, new, asked))
    for index, name in enumerate(() if pair.across else pair.spec.network.machines):
        old = machines_known[name]
        new = _machine(pair, draft, index, None, old, None, offered)
        if new:
            draft.set(("network", "machines", index), new.name, _why(pair, old, new, None))
    if pair.across and pair.spec.machines:
        draft.set(("machines",), None, f"these machine types exist only on {pair.here.title}")
    if pair.across and pair.spec.network.machines:
        draft.set(("network", "machines"), None, f"the machine types exist only on {pair.here.title}")
    return chosen


def _machine(
    pair: RegionPair,
    draft: Draft,
    index: int,
    pool: Pool | None,
    old: MachineType,
    asked: str | None,
    offered: dict[str, MachineType],
) -> MachineType | None:
    if asked is not None:
        if asked in offered:
            draft.findings += _warnings(pair, pool, old, offered[asked])
            return offered[asked]
        near = nearest(asked, list(offered))
        hint = f"did you mean {near}?" if near else f"`gpuinfra catalog --cloud {pair.cloud}` lists the machine types"
        what = f"is {shown(asked)}, which is not in the {pair.there.title} catalog"
        draft.findings.append(error("--machine", what, hint))
        return None
    if not pair.across and find.is_listed(old, pair.target):
        return old
    nodes = pool.nodes if pool else 1
    fabric = old.fabric is not None and (pool is None or pool.fabric != "none")
    equal = find.equals(old, nodes, pair.there, pair.target, fabric=fabric)
    if equal:
        return equal[0]
    path = f"pools[{index}].machine" if pool else f"network.machines[{index}]"
    what = f"is {old.name}, which the catalog does not list in {pair.target}, and no machine type there can replace it"
    if pair.across:
        what = f"is {old.name}, and no machine type that the {pair.there.title} catalog lists in {pair.target} can replace it"
    hint = "use a different region, or specify the machine type with --machine if you know that the region offers it"
    draft.findings.append(error(path, what, hint))
    return None


def _warnings(pair: RegionPair, pool: Pool | None, old: MachineType, new: MachineType) -> Iterator[Finding]:
    """Yield an error if a machine type of `--machine` has no GPUs, and a warning if it has less than the machine type of the stack."""
    if old.gpu is None:
        return
    if new.gpu is None:
        what = f"is {new.name}, which has no GPUs; {old.name} has {old.gpus} GPUs"
        yield error(
            "--machine", what, f"specify a machine type with GPUs; `gpuinfra catalog --cloud {pair.cloud}` lists them"
        )
        return
    if new.gpu.memory_mib < find.SAME_MEMORY * old.gpu.memory_mib:
        what = f"is {new.name} with {new.gpu.memory_mib:,} MiB per GPU, but {old.name} has {old.gpu.memory_mib:,} MiB"
        yield warn("--machine", what, "check that your jobs fit in the memory")
    if pool and pool.nodes > 1 and pool.fabric != "none" and old.fabric and new.fabric is None:
        what = f"is {new.name}, which has no fabric between nodes, but {old.name} has one"
        yield warn("--machine", what, "check that your jobs do not require a fabric")


def _why(pair: RegionPair, old: MachineType, new: MachineType, asked: str | None) -> str:
    return f"{_choice(pair, old, new, asked)}{_fabrics(old, new)}"


def _choice(pair: RegionPair, old: MachineType, new: MachineType, asked: str | None) -> str:
    if asked:
        return "set with --machine"
    gpus = f"{new.gpus} x {new.gpu.key}" if new.gpu else f"{new.vcpus} vCPUs"
    kind = "the same GPU" if find.same_gpu(old, new) else "the nearest GPU with at least the same memory"
    where = pair.there.title if pair.across else f"{pair.target}"
    was = "is a machine type of another cloud" if pair.across else "is not listed there"
    return (
        f"{old.name} {was}; {new.name} ({gpus}) has {kind} in {where}"
        if old.gpu
        else f"{old.name} {was}; {new.name} ({gpus}) is the smallest machine type that can replace it"
    )


def _fabrics(old: MachineType, new: MachineType) -> str:
    """Return the difference between the fabrics, or an empty text if they are equal."""
    before, after = (
        f"{one.fabric.provider} with {one.fabric.gbps:,.0f} Gbit/s" if one.fabric else "none" for one in (old, new)
    )
    return f"; the fabric between nodes is {after} instead of {before}" if before != after else ""
