"""Addresses of people who are told something."""

from __future__ import annotations

from falaj.components.specification.forms import EMAIL
from falaj.components.specification.refusals import Refusals

#: Both clouds send a budget's alert to ten addresses at most: https://docs.aws.amazon.com/
#: cost-management/latest/userguide/management-limits.html
MOST = 10


def checked_emails(
    argument: str, value: object, refusals: Refusals, least: int = 0
) -> tuple[str, ...]:
    """A list of e-mail addresses, ``least`` to `MOST` of them."""
    found = refusals.texts(argument, value)
    for position, address in enumerate(found):
        refusals.form(f"{argument}[{position}]", address, EMAIL)
    if not least <= len(found) <= MOST:
        refusals.say(argument, f"given {len(found)} addresses; allowed: {least} to {MOST}")
    return found
