"""Price files that clouds publish become a price file for `--prices`."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from gpuinfra.base.errors import SpecError, UsageError
from gpuinfra.catalog.records import CapacityKind
from gpuinfra.cli.prices import command
from gpuinfra.clouds.gcp.public_prices import FAMILIES
from gpuinfra.cost.file import PriceFile, load
from gpuinfra.plan.profile import profile_of

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


def test_skus_of_google_cloud_have_the_sum_of_the_parts_of_a_machine_type(tmp_path: Path) -> None:
    """Cores, memory, GPUs and bundled local disks are added. Commitments, calendar mode, custom machines, tiers,
    other currencies and future prices are left out."""
    found = _converted(tmp_path, "google-compute-skus.json")
    central = {
        name: {kind: usd.get("us-central1") for kind, usd in kinds.items()} for name, kinds in found.machines.items()
    }
    a2 = 2.933908 + 12 * 0.031611 + 85 * 0.004237
    assert central["a2-highgpu-1g"][ON_DEMAND] == pytest.approx(a2, abs=1e-6)
    assert central["a2-highgpu-1g"][SPOT] == pytest.approx(1.648 + 12 * 0.012 + 85 * 0.0016, abs=1e-6)
    assert central["a2-highgpu-8g"][ON_DEMAND] == pytest.approx(8 * a2, abs=1e-5)
    disks = 375 * 0.08 / 730
    assert central["a2-ultragpu-1g"] == {
        ON_DEMAND: pytest.approx(3.92808 + 12 * 0.031611 + 170 * 0.004237 + disks, abs=1e-6)
    }
    assert central["a3-highgpu-8g"][ON_DEMAND] == pytest.approx(
        8 * 9.796550569 + 208 * 0.0255 + 1872 * 0.0022 + 16 * disks, abs=1e-6
    )
    assert central["n2-standard-16"][ON_DEMAND] == pytest.approx(
        16 * 0.031611 + 64 * 0.003945975 * 1.073741824, abs=1e-6
    )
    assert found.machines["n2-standard-16"] == {
        ON_DEMAND: {"us-central1": pytest.approx(central["n2-standard-16"][ON_DEMAND])}
    }
    # The price of a slice of A4 contains its cores, memory and disks.
    assert central["a4-highgpu-8g"] == {ON_DEMAND: pytest.approx(8 * 16.11)}
    assert not {"a3-ultragpu-8g", "g2-standard-4"} & set(found.machines)
    assert found.read == date(2026, 7, 7)
    assert found.source == "Cloud Billing Catalog of 2026-07-07: sum of the parts"


@pytest.mark.parametrize(("today", "used"), [("2026-07-06", False), ("2026-07-07", True)])
def test_a_price_applies_from_its_effective_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, today: str, used: bool
) -> None:
    """The prices of A2 have applied since 2023. A price that applies later than this day is left out."""
    monkeypatch.setenv("GPUINFRA_TODAY", today)
    found = _converted(tmp_path, "google-compute-skus.json")
    assert "a2-highgpu-1g" in found.machines
    assert ("a4-highgpu-8g" in found.machines) == used
    assert found.read == (date(2026, 7, 7) if used else date(2023, 3, 24))


def test_the_parts_of_a3_mega_have_the_names_of_their_region(tmp_path: Path) -> None:
    """In us-central1, the GPU and the series of A3 Mega have names of their own. In other regions, the cores are those of A3."""
    mega = _converted(tmp_path, "google-compute-skus.json").machines["a3-megagpu-8g"][ON_DEMAND]
    americas = 8 * 10.344275712 + 208 * 0.026924 + 1872 * 0.002344 + 6000 * 0.08 / 730
    tokyo = 8 * 13 + 208 * 0.04 + 1872 * 0.003 + 6000 * 0.104 / 730
    assert mega == {"us-central1": pytest.approx(americas, abs=1e-6), "asia-northeast1": pytest.approx(tokyo, abs=1e-6)}


@pytest.mark.parametrize("region", ["us-central1", "us-east1", "us-west1"])
def test_recorded_skus_have_the_price_in_the_catalog(tmp_path: Path, region: str) -> None:
    """The recorded SKUs of A2 add up to the list price of a2-highgpu-1g in the catalog."""
    found = _converted(tmp_path, "google-compute-skus.json").node("a2-highgpu-1g", ON_DEMAND, region)
    listed = profile_of("gcp").machines["a2-highgpu-1g"].price(ON_DEMAND, region)
    assert found is not None
    assert listed is not None
    assert found.usd_per_hour == pytest.approx(listed.usd_per_hour, abs=1e-4)


def test_pages_of_the_catalog_are_read_together(tmp_path: Path) -> None:
    """The parts of a machine type can be on different pages of a JSON list. A list without the last page is refused, because parts can be missing."""
    page = json.loads((RECORDINGS / "google-compute-skus.json").read_text())
    skus = page["skus"]
    pages = [{"skus": skus[:2], "nextPageToken": "next"}, {"skus": skus[2:]}]
    path, output = tmp_path / "pages.json", tmp_path / "prices.yaml"
    path.write_text(json.dumps(pages))
    assert _run(str(path), "--output", str(output)).exception is None
    whole = _converted(tmp_path, "google-compute-skus.json")
    assert load(output).machines == whole.machines
    path.write_text(json.dumps(pages[:1]))
    result = _run(str(path), "--output", str(output))
    assert isinstance(result.exception, SpecError)
    assert "lacks further pages" in result.exception.findings[0].message


def test_every_machine_type_of_google_cloud_has_known_parts() -> None:
    """Each family with a price in the catalog of gpuinfra can be read from the SKUs, and no family is left over."""
    machines = profile_of("gcp").machines.values()
    families = {(one.family, one.gpu.key if one.gpu else "") for one in machines if one.prices}
    assert families == set(FAMILIES)


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
    "other CSV service": (('"FormatVersion","v1.0"\n"Disclaimer","x"\n"Publication '
        'Date","2026-09-24"\n"Version","1"\n"OfferCode","AmazonRDS"\n'), "is the offer file of AmazonRDS"),
    "short CSV": ('"FormatVersion","v1.0"\n"OfferCode","AmazonEC2"\n', "has no column"),
    "no column": (_without_column((RECORDINGS / "aws-offer.csv").read_text()), "has no column Tenancy"),
    "google without a machine": ((RECORDINGS / "google-skus.json").read_text(), "does not contain the SKUs in USD of all parts"),
    "google of other types": (('{"skus": [1, null, {"description": 1, "category": []}, {"description": "N2 Instance Ram", "category": {"usageType": '
        '"OnDemand"}, "serviceRegions": 1, "pricingInfo": 3}, {"description": "N2 Instance Core", "category": {"usageType": '
        '"OnDemand"}, "pricingInfo": [1, {"effectiveTime": "2026-01-01"}]}]}'), "does not contain the SKUs in USD of all parts"),
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
