"""Answers to queries (invokes)."""

from __future__ import annotations

from typing import Any, Final

from falaj.sandbox.clouds.aws.answers import documents, images, lookups, offerings, places
from falaj.sandbox.clouds.aws.naming import ACCOUNT, region_of
from falaj.sandbox.clouds.inputs import Inputs
from falaj.sandbox.clouds.kinds import Answers
from falaj.sandbox.clouds.model import Properties, World

ANSWERS: Final[Answers] = {
    **places.ANSWERS,
    **offerings.ANSWERS,
    **images.ANSWERS,
    **lookups.ANSWERS,
    **documents.ANSWERS,
}


def answer(token: str, args: Properties, config: Properties, world: World) -> dict[str, Any]:
    """The answer to a query.

    Raises:
        LookupError: the query isn't known here, or what it asks for doesn't exist.
    """
    known = ANSWERS.get(token)
    if known is None:
        raise LookupError(
            f"the sandbox has no answer to the query {token}; known are: "
            f"{', '.join(sorted(name.rsplit(':', 1)[-1] for name in ANSWERS))}"
        )
    inputs = Inputs(args, config, token)
    given = {key: value for key, value in args.items() if value is not None}
    own = {"region": region_of(inputs)} if region_of(inputs) else {}
    return {"id": region_of(inputs) or ACCOUNT, **own, **given, **known(inputs, world)}
