"""`gpuinfra catalog`: machine types with GPUs, fabric, prices and zones."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click

from gpuinfra.catalog.records import CapacityKind, MachineType
from gpuinfra.clouds import profile_of
from gpuinfra.registry import CLOUDS

SCHEMA = "gpuinfra.catalog/1"


@click.command("catalog")
@click.argument("machine", required=False)
@click.option("--gpu", metavar="NAME", help="List only machine types with this GPU, such as H100.")
@click.option("--cloud", type=click.Choice(list(CLOUDS)), help="List only machine types of this cloud.")
@click.option("--region", help="List only machine types that this region offers, with its prices.")
@click.option("--json", "as_json", is_flag=True, help="Print every field as one JSON object.")
def command(machine: str | None, gpu: str | None, cloud: str | None, region: str | None, as_json: bool) -> int:
    """List machine types with GPUs, fabric and prices.

    With a MACHINE, print every fact about it, with dates and sources.
    """
    clouds = [cloud] if cloud else list(CLOUDS)
    rows = [(name, record) for name in clouds for record in profile_of(name).machines.values()]
    rows = [(name, record) for name, record in rows if _matches(record, machine, gpu, region)]
    if not rows:
        raise click.UsageError(_no_match(machine, gpu, clouds))
    if as_json:
        machines = [{"cloud": name, **_record(record)} for name, record in rows]
        click.echo(json.dumps({"schema": SCHEMA, "machines": machines}, indent=2))
    elif machine:
        for name, record in rows:
            click.echo("\n".join(_details(name, record)))
    else:
        click.echo("\n".join(_table(rows, region)))
    return 0


def _matches(record: MachineType, machine: str | None, gpu: str | None, region: str | None) -> bool:
    if machine and record.name.lower() != machine.lower():
        return False
    if gpu and (record.gpu is None or gpu.lower() not in record.gpu.key.lower()):
        return False
    return not region or region in record.zones


def _no_match(machine: str | None, gpu: str | None, clouds: list[str]) -> str:
    from gpuinfra.catalog.gpus import GPUS
    from gpuinfra.spec.messages import listed, nearest
    from gpuinfra.spec.shown import shown

    if machine:
        known = [name for cloud in clouds for name in profile_of(cloud).machines]
        # A part of a name, such as `p4d` or `a3`, suggests the names that contain it.
        holding = [name for name in known if machine.lower() in name.lower()]
        near = listed(holding, 6) if holding else nearest(machine, known)
        return f"machine type {shown(machine)} is not in the catalog" + (f"; did you mean {near}?" if near else "")
    if gpu and not any(gpu.lower() in key.lower() for key in GPUS):
        return f"GPU {shown(gpu)} is not in the catalog; allowed: {listed(list(GPUS), 30)}"
    return "no machine type matches all options; remove one of them"


def _table(rows: list[tuple[str, MachineType]], region: str | None) -> Iterator[str]:
    lines = [("cloud", "machine", "GPUs", "GPU", "vCPU", "GiB", "fabric", "USD/h", "spot", "capacity")]
    for cloud, record in rows:
        fabric = (
            f"{record.fabric.provider} {record.fabric.devices} x {record.fabric.gbps / record.fabric.devices:g}G"
            if record.fabric
            else "-"
        )
        lines.append(
            (
                cloud,
                record.name,
                str(record.gpus or "-"),
                record.gpu.key if record.gpu else "-",
                str(record.vcpus),
                str(record.memory_gib),
                fabric,
                _usd(record, CapacityKind.ON_DEMAND, region),
                _usd(record, CapacityKind.SPOT, region),
                " ".join(sorted(kind.value for kind in record.capacity)),
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
    yield ""
    yield (
        f"Prices are the newest in {region or 'any region'}; - is unknown. "
        "`gpuinfra catalog MACHINE` shows dates and sources."
    )


def _usd(record: MachineType, kind: CapacityKind, region: str | None) -> str:
    known = [
        p for p in record.prices if p.kind is kind and not p.term and (region is None or p.region in (region, "*"))
    ]
    return f"{max(known, key=lambda p: p.read).usd_per_hour:,.2f}" if known else "-"


def _details(cloud: str, record: MachineType) -> Iterator[str]:
    yield f"{record.name} on {cloud} (family {record.family})"
    if record.gpu:
        gpu = record.gpu
        memory = f"{gpu.memory_mib / 1024:.0f} GiB each"
        yield f"  GPUs      {record.gpus} x {gpu.name}, {memory}, {gpu.arch}, PCI {', '.join(gpu.pci_ids)}, driver {gpu.driver_floor} or newer"
        links = f"{gpu.nvlinks} NVLinks each" if gpu.nvlinks and record.gpus > 1 else "no NVLink"
        yield f"  links     {links}{', NVSwitch' if record.nvswitch else ''}, PCIe gen {gpu.pcie_gen} x{gpu.pcie_width}"
    yield f"  host      {record.vcpus} vCPUs, {record.memory_gib} GiB, {record.arch}, {f'{record.local_disk_gb} GB of' if record.local_disk_gb else 'no'} local disks"
    if record.fabric:
        fabric = record.fabric
        direct = "with" if fabric.gpudirect else "without"
        yield f"  fabric    {fabric.devices} x {fabric.provider} {fabric.generation}, {fabric.gbps:g} Gbit/s in total, {direct} GPUDirect"
    yield (
        f"  network   {record.network_gbps:g} Gbit/s; interfaces {' '.join(f'({n.card},{n.device}) {n.kind}' for n in record.nics[:6])}"
        + (f" and {len(record.nics) - 6} more" if len(record.nics) > 6 else "")
    )
    yield f"  capacity  {', '.join(sorted(kind.value for kind in record.capacity))}"
    for kind, quota in sorted(record.quotas.items()):
        yield f"  quota     {kind.value}: {quota}"
    for region, zones in sorted(record.zones.items()):
        yield f"  zones     {region}: {', '.join(zones) or 'zones unknown'}"
    for price in record.prices:
        low = f"{price.usd_low:,.2f} to " if price.usd_low is not None else ""
        term = f" {price.term}" if price.term else ""
        note = f"; {price.note}" if price.note else ""
        yield f"  price     {price.kind.value}{term} {price.region}: {low}{price.usd_per_hour:,.2f} USD/h ({price.read}, {price.source}{note})"
    for floor in record.floors:
        yield f"  healthy   {floor.what}: at least {floor.at_least:g} {floor.unit} ({floor.source})"
    for note in record.notes:
        yield f"  note      {note}"
    yield f"  source    {record.source.page}, read {record.source.read}"


def _record(record: MachineType) -> dict[str, object]:
    from dataclasses import asdict

    return {key: _plain(value) for key, value in asdict(record).items()}


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, frozenset):
        return sorted(str(item) for item in value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.isoformat() if hasattr(value, "isoformat") else value  # type: ignore[union-attr]
