"""The amount and the currency of a budget, read from the resources that a program registers."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.spec import parse_spec
from tests.clouds.recorder import Recording
from tests.clouds.stacks import recording_of_spec, spec_of

EUR = {"limit_usd_per_month": 1000, "currency": "EUR", "units_per_usd": 0.925}


def _budget(stack: str, kind: str, **budget: Any) -> dict[str, Any]:
    whole = spec_of(stack).model_dump(mode="json", exclude_unset=True)
    recording: Recording = recording_of_spec(parse_spec({**whole, "budget": budget}))
    return recording.one(kind).inputs


@pytest.mark.parametrize(
    ("budget", "amount"),
    [(EUR, ("EUR", "925")), ({"limit_usd_per_month": 1000.2}, ("USD", "1001"))],
)
def test_google_budget_names_its_currency(budget: dict[str, Any], amount: tuple[str, str]) -> None:
    """Google refuses a currency other than that of the billing account, so the budget has the declared currency and whole units of it."""
    given = _budget("gcp-a3high", "gcp:billing/budget:Budget", **budget)["amount"]["specifiedAmount"]
    assert (given["currencyCode"], given["units"]) == amount


@pytest.mark.parametrize(("budget", "amount"), [(EUR, 925), ({"limit_usd_per_month": 1000.25}, 1000.25)])
def test_azure_budget_is_in_the_billing_currency(budget: dict[str, Any], amount: float) -> None:
    """Azure reads the amount in the currency of the subscription, so the amount is converted."""
    assert _budget("azure-ndv5", "azure-native:consumption:Budget", **budget)["amount"] == amount


def test_aws_budget_is_in_usd() -> None:
    """AWS Budgets accepts only USD."""
    given = _budget("aws-p4d", "aws:budgets/budget:Budget", limit_usd_per_month=1000)
    assert (given["limitAmount"], given["limitUnit"]) == ("1000.00", "USD")
