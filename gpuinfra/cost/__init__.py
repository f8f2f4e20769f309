"""The cost of a plan per hour, per month, and for the declared duration. Each price has a date and a source.

Unknown prices are reported and never counted as zero. `compare.py` compares the kinds of capacity.
"""

from gpuinfra.cost.model import HOURS_PER_MONTH, Cost, CostLine
from gpuinfra.cost.price import price

__all__ = ["HOURS_PER_MONTH", "Cost", "CostLine", "price"]
