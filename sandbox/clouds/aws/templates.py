"""Ids and ARNs from templates.

``{hex17}`` is that many hexadecimal digits beginning with the sandbox's mark, ``{letters14}``
characters of A-Z and 0-9, ``{digits12}`` decimal digits, ``{uuid}`` a UUID; ``{account}``,
``{region}``, ``{partition}``, ``{suffix}`` (the endpoints' domain) and ``{id}`` speak for
themselves; any other name is that input's value.
"""

from __future__ import annotations

import re
from typing import Final

from falaj.sandbox.clouds.aws.arns import ACCOUNT, partition, region_of
from falaj.sandbox.clouds.aws.hashes import digits, letters, marked, uuid
from falaj.sandbox.clouds.aws.regions import dns_suffix
from falaj.sandbox.clouds.inputs import Inputs

_FIELD: Final = re.compile(r"\{(\w+)\}")
_COUNTED: Final = re.compile(r"(hex|letters|digits)(\d+)")


class MissingError(Exception):
    """A template names an input that is absent or unknown."""


def fill(template: str, inputs: Inputs, *, id: str = "", seed: str = "") -> str:
    """The template with its fields replaced.

    Raises:
        MissingError: a field names an input that is absent or not known yet.
    """
    return _FIELD.sub(lambda field: _value(field[1], inputs, id, seed), template)


def _value(name: str, inputs: Inputs, id: str, seed: str) -> str:
    places = {
        "id": id,
        "account": ACCOUNT,
        "region": region_of(inputs),
        "partition": partition(inputs),
        "suffix": dns_suffix(region_of(inputs)),
    }
    if name in places:
        return places[name]
    if name == "uuid":
        return uuid(seed)
    counted = _COUNTED.fullmatch(name)
    if counted is not None:
        count = int(counted[2])
        return {"hex": marked, "letters": letters, "digits": digits}[counted[1]](count, seed)
    value = inputs.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise MissingError(name)
    return str(value)
