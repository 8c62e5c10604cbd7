"""Where a pack's settings come from: its own configuration, else the stack's, else defaults.

A stack's file may hold, beside Falaj's other keys::

    falaj:policies:
      allowedHosts: [models.example.ae]
      waivers: stacks/waivers.yaml

Keys may also stand alone (``falaj:policies.strict: false``), as everywhere in a stack's file.

The same keys may come from `pulumi … --policy-pack-config FILE` under the name ``settings``; they
win over the stack's. Data class and environment are read from the stack's own keys.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from falaj.policies.model import PolicyError, Rule, Settings, read_settings
from falaj.policies.model.settings import strict_by_default
from falaj.policies.rules import all_rules
from falaj.policies.rules.governance.tags import TAGS_RULE
from falaj.policies.team_rules import read_rules
from falaj.policies.variables import PROJECT_FOLDER
from falaj.policies.waivers import Waivers, read_waivers

#: Beginnings of keys that only stacks of Falaj's own blueprints have.
OWN_STACKS: Final = ("falaj:platform", "falaj:placement", "falaj:blueprint")
_TAGS: Final = "requiredTags"
_OWN_KEYS: Final = {"dataClass": "falaj:dataClass", "environment": "falaj:environment"}
_SETTINGS: Final = "falaj:policies"


@dataclass(frozen=True)
class Configuration:
    """What a pack works with."""

    settings: Settings
    waivers: Waivers
    rules: tuple[Rule, ...] = ()
    """The team's own, of the files that the setting ``rules`` names, for all packs."""
    advised: frozenset[str] = frozenset()
    """Ids of rules that only warn here."""


def read_configuration(
    given: Mapping[str, Any],
    stack_config: Mapping[str, str],
    folder: Path,
    secret: Collection[str] = (),
) -> Configuration:
    """Settings, waivers and a team's own rules.

    Args:
        given: the pack's own configuration.
        stack_config: the stack's, as the engine gives it: texts, objects as JSON.
        folder: where relative paths start, unless the environment says otherwise.
        secret: keys of the stack's configuration whose values are secrets.

    Raises:
        PolicyError: a setting can't be used, or the waivers or rules that it names can't.
    """
    _require_read(stack_config, secret)
    own = {key: stack_config[name] for key, name in _OWN_KEYS.items() if stack_config.get(name)}
    asked = {**own, **_policies(stack_config), **given}
    settings = settings_of(asked)
    start = Path(os.environ.get(PROJECT_FOLDER) or folder)
    rules: tuple[Rule, ...] = ()
    for each in settings.rules:
        rules += read_rules(start / each, (*all_rules(), *rules))
    waivers = Waivers()
    if settings.waivers:
        waivers = read_waivers(start / settings.waivers, (*all_rules(), *rules))
    return Configuration(settings, waivers, rules, _advised(asked, stack_config))


def _advised(asked: Collection[str], stack_config: Collection[str]) -> frozenset[str]:
    """Falaj's tags are advice to programs that aren't its own, unless a team asks for tags."""
    ours = any(key.startswith(OWN_STACKS) for key in stack_config)
    return frozenset() if ours or _TAGS in asked else frozenset((TAGS_RULE,))


def settings_of(given: Mapping[str, Any]) -> Settings:
    """Settings with the strictness that the environment asks for. Raises PolicyError."""
    environment = str(given.get("environment", "production"))
    return read_settings(
        {"strict": strict_by_default(environment), **given},
        "the stack or the pack's configuration",
    )


def _require_read(stack_config: Collection[str], secret: Collection[str]) -> None:
    """Refuse keys that would be passed over in silence, and a laxer default taken instead."""
    known = {each.lower(): each for each in (*_OWN_KEYS.values(), _SETTINGS)}
    for key in sorted({*stack_config, *secret}):
        section, dot, below = key.partition(".")
        meant = known.get(section.lower())
        if meant is not None and (section != meant or (dot and meant != _SETTINGS)):
            raise PolicyError(f"the stack's configuration has {key}; the key is {meant}")
        if meant is not None and dot and (not below or "." in below):
            raise PolicyError(f"the stack's configuration has {key}; no setting has that name")
        if meant is not None and key in secret:
            raise PolicyError(
                f"{key} is a secret, which policies can't go by; set it as plain text "
                "(pulumi config set --plaintext)"
            )


def _policies(stack_config: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if text := stack_config.get(_SETTINGS):
        whole = _parsed(text)
        if not isinstance(whole, dict):
            raise PolicyError(f"{_SETTINGS}: expected a mapping of settings")
        found.update(cast("dict[str, Any]", whole))
    for key in sorted(stack_config):
        section, _, below = key.partition(".")
        if section == _SETTINGS and below:
            if below in found:
                raise PolicyError(f"{key}: given twice, alone and in {_SETTINGS}; keep one")
            found[below] = _parsed(stack_config[key])
    # Which packs run is said to whoever starts them.
    found.pop("packs", None)
    return found


def _parsed(text: str) -> Any:
    """A value as the engine hands it on: objects and what is no text as JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text
