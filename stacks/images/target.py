"""Whether a registry may hold what runs in the country: by the same rule as `falaj check`."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from falaj.policies.model import Settings, read_settings
from falaj.policies.reading.images import is_allowed, parse
from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.errors import StackError
from falaj.stacks.settings import CloudSettings

#: https://github.com/distribution/reference, host with port and path, in lower case.
_REGISTRY: Final = re.compile(
    r"^(\[[0-9a-f:]+\]|[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*)"
    r"(:\d{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$"
)


def packs_settings(project: Project, stack: str | None) -> tuple[Settings, str]:
    """What the policy packs allow for a stack, or by default; and whose settings they are.

    Raises:
        StackError: there is no such stack, or its file was refused.
    """
    if stack is None:
        return Settings(), "the default policies"
    file = StackFile(stack, project)
    settings = file.settings()
    given = settings.policies.given() if isinstance(settings, CloudSettings) else {}
    return read_settings(given, str(file.shown_path)), str(file.shown_path)


def require_in_country(registry: str, settings: Settings, source: str) -> str:
    """The registry's address, if images may be kept there.

    This machine's own addresses are fine: nothing leaves it.

    Args:
        registry: host with port and path, without ``https://``.
        settings: what the policy packs allow.
        source: where that was read, for the error.

    Raises:
        StackError: it isn't an address, or the policies don't allow it.
    """
    address = registry.rstrip("/")
    if not _REGISTRY.match(address):
        raise StackError(
            f"registry: given {registry!r}; allowed: a host in lower case with port and path, as "
            "registry.example.ae/falaj, without https://"
        )
    if is_loopback(address) or is_allowed(parse(f"{address}/any"), settings):
        return address
    allowed = [f"ECR in {region}" for region in settings.regions("aws")]
    allowed += settings.allowed_registries
    raise StackError(
        f"registry: given {address}, which {source} don't allow: images are kept in the country\n"
        f"  allowed: {', '.join(allowed)}\n"
        "  if it stands in the country: add it to falaj:policies, allowedRegistries of a stack, "
        "and name that with --stack"
    )


def is_loopback(address: str) -> bool:
    """Whether a registry's address is this machine's own."""
    host = re.sub(r":\d+$", "", address.partition("/")[0]).strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
