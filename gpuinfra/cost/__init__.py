"""What a plan costs: by the hour, the month and the declared duration, each price with its date and source.

An unknown price is said and never counted as zero. `compare.py` sets the kinds of capacity beside each other.
"""

from gpuinfra.cost.model import HOURS_PER_MONTH, Cost, Line
from gpuinfra.cost.price import price

__all__ = ["HOURS_PER_MONTH", "Cost", "Line", "price"]
