"""What the components of one machine take, each argument stated once.

Read without the SDK: the provider's check and schema, the sections of a stack's file, the help and
the reference are made of these classes.
"""

from typing import Annotated, Final, NotRequired, TypedDict

from falaj.components.specification.arguments import Default, Input, Replaces
from falaj.components.specification.limits import OBJECT, OneOf, TextRule

REPLACES: Final = Replaces()
PATH: Final = TextRule(r"^/.*$", "an absolute path", "/srv/falaj")
#: It ends up in folder names, URLs and certificate names.
NAME: Final = TextRule(
    OBJECT.pattern, "1 to 63 lower-case letters, digits and '-', not at either end", "churn"
)
NOT_EMPTY: Final = TextRule(r"^.*\S.*$", "text that is not empty", "digits")
"""Of paths and columns."""
AUTO: Final = "auto"
SUPERVISORS: Final = ("systemd", "supervisord")
"""What can keep a program running."""
SUPERVISOR: Final = OneOf((AUTO, *SUPERVISORS))


class SiteArgs(TypedDict):
    """Of everything that lies in a site."""

    site: Annotated[Input[str], PATH, REPLACES]
    """Folder of the site (``Workspace.path``)."""


class KeptArgs(SiteArgs):
    """Of what is named by its content."""

    retain: NotRequired[Annotated[Input[bool], Default(value=False)]]
    """Keep it when it is replaced or destroyed; a later one with the same content adopts it."""


class SupervisedArgs(SiteArgs):
    """Of what a supervisor keeps running."""

    supervisor: NotRequired[Annotated[Input[str], SUPERVISOR, Default(AUTO)]]
    """Who keeps it running; ``auto`` is systemd where the user has it."""
