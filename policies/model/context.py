"""What a rule knows besides the resource: the settings, and the whole stack once it is known."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from falaj.policies.model.resource import REFERENCE, Resource, Stack
from falaj.policies.model.settings import Settings


@dataclass(frozen=True)
class Context:
    """The settings and, in the second look, the whole stack.

    A resource is judged twice. At first alone (`stack` is None): what is certain then blocks it
    before it is made. A rule that needs other resources, or a value that isn't known yet, yields
    an indeterminate finding in that look. Where a rule did so, it is asked again once the whole
    stack is known, and what it then yields is what counts. So a rule is one function for both.
    Violations of the first look are said at once: nothing in the stack can explain them.
    """

    settings: Settings = field(default_factory=Settings)
    stack: Stack | None = None

    def referred(self, resource: Resource, path: str) -> list[Resource]:
        """The resources that a property refers to; empty while the stack isn't known."""
        return self.stack.referred(resource, path) if self.stack else []

    def is_from_another_stack(self, resource: Resource, path: str) -> bool:
        """Whether a property's value was made from what another stack offers.

        That stack's resources are judged with it; a reference is a program's own word that they
        are one's own. Known in the second look only.
        """
        top = re.split(r"[.\[]", path, maxsplit=1)[0]
        urns = resource.dependencies.get(top, ()) if self.stack else ()
        return any(f"::{REFERENCE}::" in urn for urn in urns)

    def data_class(self, resource: Resource) -> str:
        """The class of the resource's data: its own tag's, else the stack's."""
        own = (resource.tags.get(each) for each in ("falaj:data-class", "data-class"))
        return next((each for each in own if isinstance(each, str) and each), "") or (
            self.settings.data_class
        )
