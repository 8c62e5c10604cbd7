"""Arguments of `Budget`."""

from typing import NotRequired

from components.specification.placed import PlacedArgs


class BudgetArgs(PlacedArgs):
    """Arguments of `Budget`."""

    monthly_usd: float
    """Limit for a month in US dollars."""
    emails: list[str]
    """Who is told, one to ten addresses."""
    alert_percent: NotRequired[list[int]]
    """Shares of the limit at which they are told. Default: 50, 80, 100; and when the forecast
    passes 100."""
    start: NotRequired[str]
    """First month, ``2026-11``. Default: the month in which it is made, and kept after that."""
