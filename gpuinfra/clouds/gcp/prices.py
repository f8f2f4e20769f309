"""Prices of machine types and services, which `prices.json` contains."""

from pathlib import Path

from gpuinfra.catalog.price_table import PriceTable

PRICES = PriceTable(Path(__file__).with_name("prices.json"))
