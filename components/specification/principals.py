"""Who somebody is in a cloud: the principals that duties and keys are given to."""

from __future__ import annotations

import re

from falaj.components.specification.argument_errors import ArgumentErrors

_AWS = re.compile(r"^arn:aws:iam::\d{12}:(?:role|user)/(?:[\x21-\x7e]{1,512}/)?[\w+=,.@-]{1,64}$")
_AZURE = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")


def checked_principals(
    cloud: str, argument: str, value: object, errors: ArgumentErrors
) -> tuple[str, ...]:
    """A list of principals: ARNs of roles or users; object ids of Entra principals.

    Never everybody, a whole account or a session: each is somebody who can be held to account.
    """
    found: list[str] = []
    for position, given in enumerate(errors.texts(argument, value)):
        at = f"{argument}[{position}]"
        principal = given if cloud == "aws" else given.lower()
        if cloud == "aws" and ("*" in principal or not _AWS.match(principal)):
            errors.add(
                at,
                given,
                "the ARN of a role or user, such as arn:aws:iam::000000000000:role/platform",
                "name the role itself, not a session of it, an account or '*'",
            )
        elif cloud == "azure" and not _AZURE.match(principal):
            errors.add(
                at, given, "the object id (a GUID) of an Entra group, user or service principal"
            )
        elif principal in found:
            errors.add(at, given, "each only once", "leave out the second")
        else:
            found.append(principal)
    return tuple(found)
