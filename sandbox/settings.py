"""A provider's own settings: the engine sends what is no text as JSON in a text."""

from __future__ import annotations

import json
from typing import Any, Final

from falaj.sandbox.clouds.model import Problem, Properties
from falaj.sandbox.schema import types
from falaj.sandbox.schema.tables import Tables

# Added by the engine itself; they belong to no provider's schema.
_OF_THE_ENGINE: Final = ("version", "pluginDownloadURL", "pluginChecksums")

_CREDENTIALS: Final = {
    "aws": ("accessKey", "secretKey", "token"),
    "azure-native": (
        "clientCertificatePassword",
        "clientSecret",
        "oidcRequestToken",
        "oidcToken",
    ),
}


def decode_settings(tables: Tables, given: Properties) -> dict[str, Any]:
    """Settings with their JSON read; what can't be read stays a text, for the checker to say."""
    found = tables.resource(tables.provider_token)
    known = {} if found is None else found.inputs.properties
    settings: dict[str, Any] = {}
    for name, value in given.items():
        if value is None or name in _OF_THE_ENGINE:
            continue
        is_text = name not in known or known[name].type == types.STRING
        settings[name] = value if is_text else _read(value)
    return settings


def refuse_credentials(package: str, given: Properties) -> list[Problem]:
    """Real credentials among a provider's settings: they have no place in the sandbox's state."""
    return [
        Problem(
            name,
            "real credentials were given to the sandbox, which needs none and would keep them in "
            "its state; take the setting away, or run this stack without the sandbox",
        )
        for name in _CREDENTIALS.get(package, ())
        if given.get(name) is not None
    ]


def _read(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value
