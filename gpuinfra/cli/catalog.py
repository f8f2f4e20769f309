"""`gpuinfra catalog`: machine types with GPUs, fabric, prices and zones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict

import click

from gpuinfra.base.registry import CLOUDS
from gpuinfra.base.words import numbers
from gpuinfra.catalog.records import CapacityKind, MachineType, Price
from gpuinfra.plan.profile import profile_of
from gpuinfra.report import tables
from gpuinfra.report.tables import Column, Table

SCHEMA = "gpuinfra.catalog/1"
ARCHITECTURES = ("x86_64", "arm64")


@click.command("catalog")
@click.argument("machine", required=False)
@click.option("--gpu", metavar="NAME", help="List only machine types with this GPU, such as H100.")
@click.option("--arch", type=click.Choice(ARCHITECTURES), help="List only machine types with this CPU architecture.")
@click.option("--cloud", type=click.Choice(list(CLOUDS)), help="List only the machine types that this cloud offers.")
@click.option("--region", help="List only the machine types that this region offers, with the prices in this region.")
@click.option("--json", "as_json", is_flag=True, help="Print every field as one JSON object.")
def command(
    machine: str | None, gpu: str | None, arch: str | None, cloud: str | None, region: str | None, as_json: bool
) -> int:
    """List machine types with their GPUs, architecture, fabric and prices.

    With MACHINE, print all facts about this machine type, with dates and sources.
    """
    clouds = [cloud] if cloud else list(CLOUDS)
    check_region(region, clouds)
    rows = [(name, record) for name in clouds for record in profile_of(name).machines.values()]
    rows = [(name, record) for name, record in rows if _matches(record, machine, gpu, arch, region)]
    if not rows:
        raise click.UsageError(_no_match(machine, gpu, arch, region, clouds))
    if as_json:
        from gpuinfra.report.plan_json import plain

        machines = [{"cloud": name, **plain(asdict(record))} for name, record in rows]
        click.echo(json.dumps({"schema": SCHEMA, "machines": machines}, indent=2))
    elif machine:
        for name, record in rows:
            click.echo(f"{record.name} on {name} (family {record.family})")
            click.echo("\n".join(tables.fields(_details(record), indent=2)))
    else:
        click.echo("\n".join(tables.text(_table(rows, region))))
        click.echo(
            f"\nThe table shows {f'the price in {region}' if region else 'the lowest price of all regions'}; - means unknown. "
            "`gpuinfra catalog MACHINE` shows dates and sources."
        )
    return 0


def check_region(region: str | None, clouds: Iterable[str]) -> None:
    """Raise `UsageError` if an option names a region that none of the clouds has."""
    profiles = [profile_of(name) for name in dict.fromkeys(clouds)]
    regions = [one for profile in profiles for one in profile.regions]
    if region is None or region in regions:
        return
    from gpuinfra.spec.messages import nearest
    from gpuinfra.spec.shown import shown

    near = nearest(region, regions)
    hint = f"did you mean {near}?" if near else f"specify a region such as {regions[0]}"
    raise click.UsageError(
        f"--region is {shown(region)}, which is not a region of {' or '.join(one.title for one in profiles)}; {hint}"
    )


def _matches(record: MachineType, machine: str | None, gpu: str | None, arch: str | None, region: str | None) -> bool:
    if machine and record.name.lower() != machine.lower():
        return False
    if gpu and (record.gpu is None or gpu.lower() not in record.gpu.key.lower()):
        return False
    return arch in (None, record.arch) and (not region or region in record.zones)


def _no_match(machine: str | None, gpu: str | None, arch: str | None, region: str | None, clouds: list[str]) -> str:
    from gpuinfra.plan.machines import similar
    from gpuinfra.spec.messages import listed
    from gpuinfra.spec.shown import shown

    records = {name: record for cloud in clouds for name, record in profile_of(cloud).machines.items()}
    if machine and machine.lower() not in map(str.lower, records):
        near = similar(machine, records)
        return f"machine type {shown(machine)} is not in the catalog" + (f"; did you mean {near}?" if near else "")
    # The catalog of GPUs also contains models that no machine type has, for `machines` in a declaration.
    offered = sorted({record.gpu.key for record in records.values() if record.gpu})
    if gpu and not any(gpu.lower() in key.lower() for key in offered):
        where = f" of {profile_of(clouds[0]).title}" if len(clouds) == 1 else ""
        return f"GPU {shown(gpu)} is not in the catalog{where}; allowed: {listed(offered, 30)}"
    elsewhere = [record for record in records.values() if machine and _matches(record, machine, gpu, arch, None)]
    if region and elsewhere:
        offered = sorted(elsewhere[0].zones)
        where = f"; the catalog lists it in {listed(offered, 30)}" if offered else ""
        return f"{region} does not offer {elsewhere[0].name}{where}"
    return "no machine type matches all options; remove one of them"


def _table(rows: list[tuple[str, MachineType]], region: str | None) -> Table:
    columns = [
        Column("cloud", optional=True),
        Column("machine"),
        Column("GPUs", right=True),
        Column("GPU", wrap=True),
        Column("fabric", wrap=True),
        Column("USD/h", right=True),
        Column("spot", right=True),
        Column("capacity", wrap=True, optional=True),
        Column("vCPU", right=True, optional=True),
        Column("GiB", right=True, optional=True),
        Column("arch", optional=True),
    ]
    return Table(
        columns,
        [
            (
                cloud,
                record.name,
                record.gpus or "-",
                record.gpu.key if record.gpu else "-",
                _fabric(record),
                _usd(record, CapacityKind.ON_DEMAND, region),
                _usd(record, CapacityKind.SPOT, region),
                " ".join(sorted(kind.value for kind in record.capacity)),
                record.vcpus,
                record.memory_gib,
                record.arch,
            )
            for cloud, record in rows
        ],
    )


def _fabric(record: MachineType) -> str:
    fabric = record.fabric
    return f"{fabric.provider} {fabric.devices} x {fabric.gbps / fabric.devices:g}G" if fabric else "-"


def _usd(record: MachineType, kind: CapacityKind, region: str | None) -> str:
    """Return the lowest of the newest prices of each region."""
    newest: dict[str, Price] = {}
    for price in record.prices:
        earlier = newest.get(price.region)
        if price.kind is kind and not price.term and (earlier is None or earlier.read < price.read):
            newest[price.region] = price
    offered = [price.usd_per_hour for name, price in newest.items() if region is None or name in (region, "*")]
    return f"{min(offered):,.2f}" if offered else "-"


def _details(record: MachineType) -> Iterator[tuple[str, str]]:
    """Yield the label and the text of each fact."""
    if gpu := record.gpu:
        yield (
            "GPUs",
            f"{record.gpus} x {gpu.name}, {gpu.memory_mib / 1024:.0f} GiB each, {gpu.arch}, PCI {', '.join(gpu.pci_ids)}, driver {gpu.driver_floor} or newer",
        )
        links = f"{gpu.nvlinks} NVLinks each" if gpu.nvlinks and record.gpus > 1 else "no NVLink"
        switch = ", NVSwitch" if record.nvswitch else ""
        yield "links", f"{links}{switch}, PCIe gen {gpu.pcie_gen} x{gpu.pcie_width}"
    disks = f"{record.local_disk_gb} GB of" if record.local_disk_gb else "no"
    yield "host", f"{record.vcpus} vCPUs, {record.memory_gib} GiB, {record.arch}, {disks} local disks"
    if fabric := record.fabric:
        direct = "with" if fabric.gpudirect else "without"
        yield (
            "fabric",
            f"{fabric.devices} x {fabric.provider} {fabric.generation}, {fabric.gbps:g} Gbit/s in total, {direct} GPUDirect",
        )
    if record.numa:
        nodes = (
            f"{index}: GPUs {numbers(node.gpus)}, fabric devices {numbers(node.fabric)}"
            for index, node in enumerate(record.numa)
        )
        yield "NUMA nodes", f"{'; '.join(nodes)} (in the order of PCI addresses; {record.numa_source})"
    interfaces = " ".join(f"({nic.card},{nic.device}) {nic.kind}" for nic in record.nics[:6])
    more = f" and {len(record.nics) - 6} more" if len(record.nics) > 6 else ""
    yield "network", f"{record.network_gbps:g} Gbit/s; interfaces {interfaces}{more}"
    yield "capacity", ", ".join(sorted(kind.value for kind in record.capacity))
    for kind, quota in sorted(record.quotas.items()):
        yield "quota", f"{kind.value}: {quota}"
    for region, zones in sorted(record.zones.items()):
        yield "zones", f"{region}: {', '.join(zones) or 'zones unknown'}"
    for price in record.prices:
        low = f"{price.usd_low:,.2f} to " if price.usd_low is not None else ""
        kind_and_term = f"{price.kind.value} {price.term}".strip()
        note = f"; {price.note}" if price.note else ""
        yield (
            "price",
            f"{kind_and_term} {price.region}: {low}{price.usd_per_hour:,.2f} USD/h ({price.read}, {price.source}{note})",
        )
    for floor in record.floors:
        yield "healthy", f"{floor.what}: at least {floor.at_least:g} {floor.unit} ({floor.source})"
    for note in record.notes:
        yield "note", note
    yield "source", f"{record.source.page}, retrieved {record.source.read}"
