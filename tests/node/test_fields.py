"""The GPU table as other drivers print it: built from the fields that nvidia-smi 590 supports, in any order, with and without units."""

from __future__ import annotations

import random
from typing import Any

import pytest

from gpuinfra.node import table
from gpuinfra.node.judge import judge
from gpuinfra.node.probes import GPU_FIELDS
from tests.node.healthy import DRIVER, JOURNAL, record

SHOWN = {
    "index": "{gpu}", "uuid": "GPU-0000000{gpu}-1111-2222-3333-444444444444", "serial": "165002300000{gpu}",
    "name": "NVIDIA H100 80GB HBM3", "pci.bus_id": "00000000:{gpu}B:00.0", "driver_version": DRIVER,
    "vbios_version": "96.00.A5.00.01", "inforom.checksum_validation": "valid", "persistence_mode": "Enabled",
    "mig.mode.current": "Disabled", "mig.mode.pending": "Disabled", "ecc.mode.current": "Enabled",
    "ecc.mode.pending": "Enabled", "gpu_recovery_action": "None", "pcie.link.gen.current": "5",
    "pcie.link.gen.max": "5", "pcie.link.width.current": "16", "pcie.link.width.max": "16", "memory.total": "81559 MiB",
    "memory.used": "4 MiB", "temperature.gpu": "41", "temperature.gpu.tlimit": "46", "temperature.memory": "47",
    "power.draw": "70.12 W", "power.limit": "700.00 W", "power.default_limit": "700.00 W", "clocks.max.sm": "1980 MHz",
    "clocks.current.sm": "345 MHz", "clocks_event_reasons.active": "0x0000000000000001",
    "clocks_event_reasons_counters.hw_thermal_slowdown": "0 us",
    "clocks_event_reasons_counters.hw_power_brake_slowdown": "0 us", "ecc.errors.uncorrected.volatile.total": "0",
    "ecc.errors.uncorrected.volatile.sram": "0", "ecc.errors.uncorrected.aggregate.sram": "0",
    "ecc.errors.corrected.aggregate.total": "0", "remapped_rows.correctable": "0", "remapped_rows.uncorrectable": "0",
    "remapped_rows.pending": "No", "remapped_rows.failure": "No", "retired_pages.pending": "[N/A]",
    "fabric.state": "Completed", "fabric.status": "Success", "fabric.cliqueId": "0",
    "fabric.clusterUuid": "00000000-0000-0000-0000-000000000000", "fabric.health.summary": "N/A",
    "gsp.mode.current": "Enabled", "addressing_mode": "HMM",
}  # fmt: skip
"""Field -> value on a healthy idle H100, driver 590.48.01, from utkuozdemir/nvidia_gpu_exporter: internal/captures;
`power.default_limit` comes from `--help-query-gpu`."""
CSV = ["D2", "D5", "G2", "G3", "G4", "G5", "G6", "G7", "G8", "G9", "G10", "G11", "G12", "G13", "G14", "F2"]
H100 = {
    "gpus": 8, "gpu_name": "NVIDIA H100 80GB HBM3", "gpu_memory_mib": 81559, "pcie_gen": 5, "pcie_width": 16, "ecc": True,
    "software": {"driver": {"pin": DRIVER}}, "required": [check for check in CSV if check != "G13"], "skips": {},
}  # fmt: skip
NAMES = {"index", "serial", "pci.bus_id"}
"""Columns that name a GPU in messages."""
OPTIONAL = {"fabric.health.summary"}
"""Columns that older drivers do not have."""


def printed(fields: list[str], *, units: bool = True, change: dict[tuple[int, str], str] | None = None) -> str:
    """The CSV of eight such GPUs with these columns."""
    names = []
    for field in fields:
        unit = SHOWN.get(field, "").partition(" ")[2] if field in SHOWN and SHOWN[field][:1].isdigit() else ""
        names.append(f"{field} [{unit}]" if unit else field)
    lines = [", ".join(names)]
    for gpu in range(8):
        cells = []
        for field in fields:
            shown = SHOWN.get(field, SHOWN["clocks_event_reasons.active"]).format(gpu=gpu)
            shown = shown if units or not shown[:1].isdigit() else shown.partition(" ")[0]
            cells.append((change or {}).get((gpu, field), shown))
        lines.append(", ".join(cells))
    return "\n".join(lines) + "\n"


def outcomes(text: str) -> dict[str, str]:
    """The outcomes of the table's checks."""
    log = f"<nvidia_smi_log><driver_version>{DRIVER}</driver_version><attached_gpus>0</attached_gpus></nvidia_smi_log>"
    probes = {
        "nvidia-smi-csv": record(["nvidia-smi", "--query-gpu=x", "--format=csv"], text),
        "nvidia-smi-xml": record(["nvidia-smi", "-q", "-x"], log),
        "nvidia-smi-apps": record(["nvidia-smi"], "gpu_uuid, pid, used_gpu_memory [MiB], process_name\n"),
    }
    return {check["id"]: check["outcome"] for check in judge(probes, H100, journal=JOURNAL)}


def test_probe_queries_only_supported_fields() -> None:
    """An unsupported field would make the whole query fail."""
    assert set(GPU_FIELDS) <= set(SHOWN)


@pytest.mark.parametrize("seed", range(12))
def test_columns_are_read_by_name(seed: int) -> None:
    """Another order, extra or missing unused columns, missing units and older column names: every check passes."""
    chance = random.Random(seed)
    fields = [field for field in SHOWN if field in GPU_FIELDS or chance.random() < 0.5]
    fields = [field for field in fields if field not in NAMES | OPTIONAL or chance.random() < 0.5]
    chance.shuffle(fields)
    older = [field.replace("clocks_event_reasons.", "clocks_throttle_reasons.") for field in fields]
    text = printed(older if seed % 2 else fields, units=seed % 3 > 0)
    assert set(outcomes(text).values()) == {"pass"}, outcomes(text)
    assert table.parse(text).rows[3].get("name") == "NVIDIA H100 80GB HBM3"


def test_missing_column_is_an_error_or_unused() -> None:
    """A missing column that a check reads gives an error, which does not pass."""
    unnoticed = set()
    for field in GPU_FIELDS:
        found = outcomes(printed([one for one in GPU_FIELDS if one != field]))
        if set(found.values()) == {"pass"}:
            unnoticed.add(field)
    assert unnoticed == NAMES | OPTIONAL


@pytest.mark.parametrize(
    "value", ["[Unknown Error]", "[GPU is lost]", "[GPU requires reset]", "", "\ufffd", "-1", "nan"]
)
def test_invalid_cell_never_passes(value: str) -> None:
    """An error token, an empty cell or an impossible value in one cell of one GPU makes some check not pass."""
    passed = []
    for field in set(GPU_FIELDS) - NAMES - OPTIONAL:
        found: dict[str, Any] = outcomes(printed(list(GPU_FIELDS), change={(5, field): value}))
        if set(found.values()) == {"pass"}:
            passed.append(field)
    assert passed == []


BAD = {
    "name": "NVIDIA A100-SXM4-80GB", "driver_version": "535.54.03", "inforom.checksum_validation": "invalid",
    "persistence_mode": "Disabled", "mig.mode.current": "Enabled", "mig.mode.pending": "Enabled", "ecc.mode.current": "Disabled",
    "ecc.mode.pending": "Disabled", "gpu_recovery_action": "Reset", "pcie.link.gen.current": "3", "pcie.link.gen.max": "4",
    "pcie.link.width.current": "8", "pcie.link.width.max": "8", "memory.total": "40960 MiB", "memory.used": "70000 MiB",
    "temperature.gpu": "91", "temperature.gpu.tlimit": "2", "temperature.memory": "99", "power.limit": "350.00 W",
    "power.default_limit": "900.00 W", "clocks_event_reasons.active": "0x0000000000000008",
    "ecc.errors.uncorrected.volatile.total": "3", "ecc.errors.uncorrected.aggregate.sram": "1", "remapped_rows.pending": "Yes",
    "remapped_rows.failure": "Yes", "fabric.state": "In Progress", "fabric.status": "Failure", "fabric.health.summary": "Unhealthy",
}  # fmt: skip
"""Field -> a value that a GPU with a fault prints."""


@pytest.mark.parametrize("field", [field for field in GPU_FIELDS if field not in NAMES])
def test_every_queried_field_is_judged(field: str) -> None:
    """A bad value in any queried column of one GPU fails or warns, so no column is queried and ignored."""
    change = {(5, field): BAD[field]}
    if field == "pcie.link.gen.current":  # an idle GPU may lower it
        change[5, "clocks_event_reasons.active"] = "0x0000000000000000"
    found = outcomes(printed(list(GPU_FIELDS), change=change))
    assert set(found.values()) & {"fail", "warn"}, found


def test_name_columns_are_in_messages() -> None:
    """Index, address and serial number of the GPU are in the reason."""
    row = table.parse(printed(list(GPU_FIELDS))).rows[5]
    assert row.label == "GPU 5 at 00000000:5B:00.0 (serial 1650023000005)"
