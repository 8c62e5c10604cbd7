"""Which cluster a provider's settings name, so that objects of two clusters don't meet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml


def cluster_of(config: Mapping[str, Any]) -> str:
    """A text that tells one cluster from another; empty for the one that nobody names.

    It is the server where a kubeconfig is given as a text: credentials in it may change. Of a file
    only the path and the context are known, for files of real clusters are never read here.
    """
    given, context = config.get("kubeconfig"), config.get("context")
    named = str(context) if isinstance(context, str) else ""
    if not isinstance(given, str) or not given.strip():
        return named
    document = _read(given)
    if document is None:
        return f"{given}#{named}" if named else given
    contexts = _named(document.get("contexts"), "context")
    chosen = contexts.get(named or str(document.get("current-context")), {})
    wanted = str(config.get("cluster") or chosen.get("cluster") or "")
    server = _named(document.get("clusters"), "cluster").get(wanted, {}).get("server")
    return str(server or wanted or named)


def _read(text: str) -> Mapping[str, Any] | None:
    """The document; None for what is a path."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        return None
    return found if isinstance(found, Mapping) else None


def _named(entries: Any, key: str) -> dict[str, Mapping[str, Any]]:
    """Entries of a kubeconfig by their names."""
    found: dict[str, Mapping[str, Any]] = {}
    for each in entries if isinstance(entries, list) else ():
        if isinstance(each, Mapping) and isinstance(each.get(key), Mapping):
            found[str(each.get("name"))] = each[key]
    return found
