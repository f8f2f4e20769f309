"""Price files that clouds publish become a price file for `--prices`."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from gpuinfra.catalog.records import CapacityKind
from gpuinfra.cli.prices import command
from gpuinfra.cost.file import PriceFile, load
from gpuinfra.errors import SpecError, UsageError

RECORDINGS = Path(__file__).with_name("recordings")
ON_DEMAND, SPOT = CapacityKind.ON_DEMAND, CapacityKind.SPOT


def _run(*words: str) -> Result:
    return CliRunner().invoke(command, ["update", *words], standalone_mode=False)


def _converted(tmp_path: Path, *names: str) -> PriceFile:
    path = tmp_path / "prices.yaml"
    result = _run(*(str(RECORDINGS / name) for name in names), "--output", str(path))
    assert result.exception is None, result.exception
    return load(path)


@pytest.mark.parametrize("name", ["aws-offer.csv", "aws-offer.json"])
def test_an_offer_file_has_the_on_demand_prices_of_shared_linux_instances(tmp_path: Path, name: str) -> None:
    """CSV and JSON have the same prices. Dedicated, Windows, reserved, unused and free entries are left out."""
    found = _converted(tmp_path, name)
    assert found.machines == {
        "p4d.24xlarge": {ON_DEMAND: {"us-east-1": 21.957642}},
        "p5.48xlarge": {ON_DEMAND: {"us-east-1": 55.04}},
    }
    assert found.read == date(2026, 9, 24)
    assert found.source == "AWS price list for AmazonEC2 of 2026-09-24"
    price = found.node("p5.48xlarge", ON_DEMAND, "us-east-1")
    assert price is not None
    assert found.node("p5.48xlarge", ON_DEMAND, "us-west-2") is None


def test_retail_prices_have_the_newest_linux_price_and_the_spot_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows, low priority, reservations, other currencies and secondary meters are left out. The price has the date of this day."""
    monkeypatch.setenv("GPUINFRA_TODAY", "2026-11-20")
    found = _converted(tmp_path, "azure-retail.json")
    assert found.machines == {
        "Standard_D4s_v5": {ON_DEMAND: {"eastus": 0.192}, SPOT: {"eastus": 0.0384}},
        "Standard_ND96isr_H100_v5": {ON_DEMAND: {"eastus": 98.32}},
    }
    assert found.read == date(2026, 11, 20)


def test_files_of_several_clouds_and_pages_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The price file has the prices of all files and the oldest date. A list of pages is read like a page."""
    monkeypatch.setenv("GPUINFRA_TODAY", "2026-11-20")
    page = json.loads((RECORDINGS / "azure-retail.json").read_text())
    pages = tmp_path / "pages.json"
    pages.write_text(json.dumps([page, {**page, "Items": []}]))
    path = tmp_path / "prices.yaml"
    assert _run(str(pages), str(RECORDINGS / "aws-offer.csv"), "--output", str(path)).exception is None
    found = load(path)
    assert set(found.machines) == {"p4d.24xlarge", "p5.48xlarge", "Standard_D4s_v5", "Standard_ND96isr_H100_v5"}
    assert found.read == date(2026, 9, 24)
    assert (
        _run(str(pages), str(RECORDINGS / "aws-offer.csv"), "--region", "eastus", "--output", str(path)).exception
        is None
    )
    assert set(load(path).machines) == {"Standard_D4s_v5", "Standard_ND96isr_H100_v5"}


def _without_column(text: str) -> str:
    return text.replace('"Tenancy"', '"Tenure"')


BAD = {
    "empty": ("", "is not a known price file"),
    "text": ("hello", "is not a known price file"),
    "other JSON": ("{}", "is not a known price file"),
    "empty list": ("[]", "is not a known price file"),
    "cut JSON": ('{"Items": [', "is not a known price file"),
    "deep JSON": ("[" * 100_000, "is not a known price file"),
    "no items": ('{"Items": []}', "contains no price in USD"),
    "items of other types": ('{"Items": [1, null, "x"]}', "contains no price in USD"),
    "other service": ('{"offerCode": "AmazonS3"}', "is the offer file of AmazonS3"),
    "no date": ('{"offerCode": "AmazonEC2", "products": {}, "terms": {"OnDemand": {}}}', "has no publication date"),
    "no terms": ('{"offerCode": "AmazonEC2", "publicationDate": "2026-09-24T00:00:00Z"}', "is not a complete offer file"),
    "other CSV service": ('"FormatVersion","v1.0"\n"Disclaimer","x"\n"Publication Date","2026-09-24"\n"Version","1"\n"OfferCode","AmazonRDS"\n', "is the offer file of AmazonRDS"),
    "short CSV": ('"FormatVersion","v1.0"\n"OfferCode","AmazonEC2"\n', "has no column"),
    "no column": (_without_column((RECORDINGS / "aws-offer.csv").read_text()), "has no column Tenancy"),
    "google": ((RECORDINGS / "google-skus.json").read_text(), "prices of GPUs, cores and memory, but not of machine types"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_cannot_be_used_has_one_finding(tmp_path: Path, name: str) -> None:
    """A file of another form, or without prices, has one error with its path and what is allowed or what to do. No file is written."""
    content, message = BAD[name]
    path, output = tmp_path / "bad", tmp_path / "prices.yaml"
    path.write_text(content)
    result = _run(str(path), "--output", str(output))
    assert isinstance(result.exception, SpecError), result.exception
    (finding,) = result.exception.findings
    assert message in finding.message
    assert finding.hint
    assert finding.file == str(path)
    assert not output.exists()


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", None])
def test_a_file_that_cannot_be_read_has_one_finding(tmp_path: Path, content: bytes | None) -> None:
    """A binary file and a missing file have one error."""
    path = tmp_path / "bad"
    if content is not None:
        path.write_bytes(content)
    result = _run(str(path), "--output", str(tmp_path / "prices.yaml"))
    assert isinstance(result.exception, SpecError)
    assert len(result.exception.findings) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--output"),
        (("aws-offer.csv",), "--output"),
        (("aws-offer.csv", "--output", "x", "--json"), "--json does not apply"),
        (("aws-offer.csv", "--output", "OUT", "--region", "mars-1"), "no price in mars-1"),
        (("aws-offer.csv", "--output", "/proc/x/y"), "cannot be written"),
    ],
)
def test_wrong_options_of_update_are_one_message(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    """A missing or unsuitable option, a region without prices, and a path that cannot be written end with one message."""
    names = [
        str(RECORDINGS / word) if word.endswith(".csv") else str(tmp_path / "o") if word == "OUT" else word
        for word in words
    ]
    result = _run(*names)
    assert result.exception is not None
    assert message in str(getattr(result.exception, "message", "") or result.exception)
    assert isinstance(result.exception, click.UsageError | UsageError)
