"""What stacks cost at least and at most, from their resources: known prices, and the rest named.

>>> from falaj.stacks import costs
>>> found = costs.of([], place="aws/me-central-1")
>>> found.summary()
'USD 0.00 per hour (0 per month)'
"""

from __future__ import annotations

from falaj.stacks.costs.billing import Billed, Charge, Meter, billed
from falaj.stacks.costs.costs import of
from falaj.stacks.costs.prices import NO_PRICES, Price, PriceError, Prices, read_prices
from falaj.stacks.costs.pricing import Line
from falaj.stacks.costs.report import Costs, Total, Unclassified

__all__ = [
    "NO_PRICES",
    "Billed",
    "Charge",
    "Costs",
    "Line",
    "Meter",
    "Price",
    "PriceError",
    "Prices",
    "Total",
    "Unclassified",
    "billed",
    "of",
    "read_prices",
]
