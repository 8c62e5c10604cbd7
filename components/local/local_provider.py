"""The explicit provider of a local stack; default providers are disabled."""

from typing import TypedDict

import pulumi

from falaj.components.specification.described import described


@described
class LocalProviderArgs(TypedDict):
    """Arguments of `LocalProvider`."""

    site: str
    """Absolute path of the stack's site; internal errors are logged in it."""


class LocalProvider(pulumi.ProviderResource):
    """The provider ``falaj-local``: everything of a stack on this machine goes through it."""

    def __init__(
        self, name: str, args: LocalProviderArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("falaj-local", name, {"site": args["site"]}, opts)
