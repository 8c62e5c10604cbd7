"""Whether a role lets a service take it, which some services check when they are given one."""

from __future__ import annotations

from collections.abc import Iterator

from falaj.sandbox.clouds.aws import tokens as t
from falaj.sandbox.clouds.aws.documents import statements
from falaj.sandbox.clouds.inputs import Resource, as_list, as_map
from falaj.sandbox.clouds.kinds import Crosscheck
from falaj.sandbox.clouds.model import Problem


def trusts(path: str, service: str, what: str) -> Crosscheck:
    """The role's trust policy allows the service to assume it."""

    def check(resource: Resource) -> Iterator[Problem]:
        arn = resource.string(path)
        for role in resource.world.find(t.ROLE, arn=arn) if arn else ():
            if service not in _services(role.outputs.get("assumeRolePolicy")):
                yield Problem(
                    path,
                    f"the role {role.id} can't be the {what}: its trust policy doesn't allow "
                    f"{service}; add a statement that allows it sts:AssumeRole",
                )

    return check


def _services(document: object) -> set[str]:
    found: set[str] = set()
    for statement in statements(document):
        principal = statement.get("Principal")
        service = as_map(principal).get("Service")
        if statement.get("Effect") == "Allow":
            found |= {service} if isinstance(service, str) else set(map(str, as_list(service)))
    return found
