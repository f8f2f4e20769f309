"""`gpuinfra prices`: prices of machine types and stacks with dates and sources."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from gpuinfra.base.errors import UsageError
from gpuinfra.cli.prices import command
from tests.cost import price_pairs

PAIRS = [
    *(("p5.48xlarge", region) for region in ("us-east-1", "us-east-2", "us-west-2", "eu-north-1", "ap-northeast-1", "ap-south-1")),
    *(("p4d.24xlarge", region) for region in ("us-east-1", "eu-central-1", "eu-west-2")),
    *(("p5en.48xlarge", region) for region in ("us-west-2", "eu-south-2")),
    ("p6-b300.48xlarge", "us-west-2"),
    ("m7i.2xlarge", "eu-west-1"),
    *(("Standard_ND96isr_H100_v5", region) for region in ("eastus", "uksouth", "swedencentral", "norwayeast", "japaneast")),
    *(("Standard_ND96amsr_A100_v4", region) for region in ("southcentralus", "swedencentral", "westeurope")),
    *(("Standard_ND96isr_H200_v5", region) for region in ("eastus2", "switzerlandnorth")),
    ("Standard_D8s_v5", "southcentralus"),
    *(("a3-megagpu-8g", region) for region in ("us-central1", "us-east4", "europe-west4")),
    *(("a3-highgpu-8g", region) for region in ("us-central1", "asia-southeast1")),
    ("a3-ultragpu-8g", "europe-west1"),
    ("n2-standard-16", "us-central1"),
]  # fmt: skip
"""Machine type and region of 31 on-demand prices."""


def _run(*words: str) -> Result:
    return CliRunner().invoke(command, list(words), standalone_mode=False)


def _prices(*words: str) -> list[dict[str, Any]]:
    result = _run(*words, "--json")
    assert result.exception is None, result.exception
    document = json.loads(result.output)
    assert document["schema"] == "gpuinfra.prices/1"
    rows: list[dict[str, Any]] = document["prices"]
    return rows


def test_thirty_pairs_of_machine_type_and_region_have_price_date_and_source() -> None:
    """Each of thirty pairs has an on-demand price with its date, its source and its certainty. An estimate has its calculation."""
    assert len(set(PAIRS)) == len(PAIRS) >= 30
    rows = _prices(*dict.fromkeys(machine for machine, _ in PAIRS))
    found = {(row["what"], row["region"]): row for row in rows if (row["kind"], row["term"]) == ("on_demand", "")}
    for pair in PAIRS:
        row = found[pair]
        assert row["usd"] > 0
        assert date(2025, 1, 1) < date.fromisoformat(row["read"]) <= date(2026, 11, 22)
        assert row["source"]
        assert row["certain"] or row["note"] or "sum of" in row["source"] or "plus" in row["source"], pair
    assert not found["Standard_ND96isr_H100_v5", "norwayeast"]["certain"]
    assert found["p5.48xlarge", "us-west-2"]["certain"]


def test_the_table_of_the_page_has_the_prices_of_the_data() -> None:
    """The page lists the thirty pairs. Its tool changes no row, so each row has the price, date, certainty and source of the data."""
    text = price_pairs.PAGE.read_text(encoding="utf-8")
    rows = [(row["machine"], row["region"]) for row in price_pairs.ROW.finditer(text)]
    assert rows == PAIRS
    assert price_pairs.updated(text) == text
    assert price_pairs.updated(text.replace("| 55.04 | 2026-07-28 |", "| 50 | 2020-01-01 |")) == text
    assert (
        "| `Standard_ND96isr_H100_v5` | norwayeast | 129.5563 | 2026-09-16 | estimate | estimate: price in eastus times 1.3177"
        in text
    )


def test_a_stack_lists_every_billed_item() -> None:
    """The prices of a stack are those of its plan: nodes, disks, storage, network, services and usage. An estimate has its reason."""
    rows = _prices("azure-ndv4")
    assert {row["kind"] for row in rows} >= {"on_demand", "disk", "storage", "network", "service", "usage"}
    (lustre,) = [row for row in rows if "Lustre" in row["what"]]
    assert lustre["usd"] == pytest.approx(0.21 * 1.1979, rel=1e-3)
    assert not lustre["certain"]
    assert "no public copy of Azure's price was found" in lustre["note"]
    (nat,) = [row for row in rows if "through NAT" in row["what"]]
    assert (nat["usd"], nat["unit"], nat["certain"]) == (0.045, "GB", True)
    assert all(row["usd"] and row["read"] and row["source"] for row in rows)
    text = _run("azure-ndv4").output
    assert "39.324" in text
    assert "unknown" not in text
    assert "estimate" in text


def test_own_prices_are_listed(tmp_path: Path) -> None:
    """A price file overrides the price of a stack, with the source of the file."""
    path = tmp_path / "own.yaml"
    path.write_text(
        "read: 2026-11-01\nsource: our agreement\nmachines: {p4d.24xlarge: {reserved: {us-east-1: 12.5}}}\n"
    )
    row = next(row for row in _prices("aws-p4d", "--prices", str(path)) if "p4d.24xlarge" in row["what"])
    assert (row["usd"], row["source"]) == (12.5, "our agreement")


def test_region_selects_prices() -> None:
    """`--region` lists the prices of one region and those that apply to every region."""
    assert {row["region"] for row in _prices("p5.48xlarge", "--region", "us-west-2")} == {"us-west-2", "*"}
    assert "no price is known for p4d.24xlarge in" not in _run("p4d.24xlarge", "--region", "af-south-1").output
    assert "no price is known for g5.xlarge in af-south-1" in _run("g5.xlarge", "--region", "af-south-1").output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("p5.48xlrage",), "did you mean p5.48xlarge?"),
        (("p5.48xlarge", "nothing-like-it"), "'nothing-like-it' is not in the catalog"),
        (("aws-p4d", "--region", "us-east-1"), "--region does not apply to a stack"),
        (("p5.48xlarge", "--region", "us-wst-2"), "not a region of AWS; did you mean us-west-2?"),
        (
            ("p5.48xlarge", "a3-megagpu-8g", "--region", "nowhere"),
            "not a region of AWS or Google Cloud; specify a region such as",
        ),
        (("p5.48xlarge", "--prices", "own.yaml"), "--prices applies only to a stack"),
        (("nowhere-at-all",), "stack 'nowhere-at-all' does not exist"),
        (("nowhere-at-all",), "or specify a machine type, which `gpuinfra catalog` lists"),
    ],
)
def test_a_wrong_name_or_option_is_one_message(words: tuple[str, ...], message: str) -> None:
    """A name that is neither a stack nor a machine type, or an option that does not apply, ends with one message."""
    result = _run(*words)
    assert isinstance(result.exception, click.UsageError | UsageError)
    assert message in str(getattr(result.exception, "message", "") or result.exception)
