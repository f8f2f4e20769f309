"""The cost of a plan per hour, per month and for the declared duration; each price has a date and a source.

An unknown price is reported and never counted as zero. `compare.py` compares the kinds of capacity.
"""

from gpuinfra.cost.model import HOURS_PER_MONTH, Cost, Line
from gpuinfra.cost.price import price

__all__ = ["HOURS_PER_MONTH", "Cost", "Line", "price"]
