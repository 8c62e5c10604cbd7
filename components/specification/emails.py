"""Addresses of people who are told something."""

from __future__ import annotations

import re

from falaj.components.specification.refusals import Refusals

_EMAIL = re.compile(r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,63}$")
#: Both clouds send a budget's alert to ten addresses at most: https://docs.aws.amazon.com/
#: cost-management/latest/userguide/management-limits.html
MOST = 10


def checked_emails(
    argument: str, value: object, refusals: Refusals, least: int = 0
) -> tuple[str, ...]:
    """A list of e-mail addresses, ``least`` to `MOST` of them."""
    found = refusals.texts(argument, value)
    for position, address in enumerate(found):
        if not _EMAIL.match(address):
            refusals.add(f"{argument}[{position}]", address, "an address such as ops@example.ae")
    if not least <= len(found) <= MOST:
        refusals.say(argument, f"given {len(found)} addresses; allowed: {least} to {MOST}")
    return found
