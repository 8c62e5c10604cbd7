"""Which inputs of a resource no longer hold on the API server."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeGuard

# Keys by which the entries of a list are told apart, the first that all of them have:
# https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy
_KEYS: Final = ("name", "key", "mountPath", "containerPort", "port", "ip", "type", "uid")


_TEXTS: Final = "stringData"


def with_texts(inputs: Mapping[str, Any], found: Mapping[str, Any]) -> Mapping[str, Any]:
    """A Secret with its values where the inputs have them; any other object as it is.

    The API server takes texts in ``stringData``, writes them into ``data``, and never gives them
    back as they were. https://kubernetes.io/docs/concepts/configuration/secret/
    """
    texts = inputs.get(_TEXTS)
    if not isinstance(texts, Mapping):
        return found
    data = dict(found.get("data") or {})
    said = {key: _decoded(data.pop(key)) for key in texts if key in data}
    return {**found, "data": data, _TEXTS: said}


def _decoded(value: object) -> object:
    """A value of ``data`` as a text; what isn't one is shown as near as can be."""
    try:
        return base64.b64decode(str(value), validate=True).decode(errors="replace")
    except (binascii.Error, ValueError):
        return value


def drifted(inputs: Any, wanted: Any, live: Any) -> Any:
    """The inputs with what is true now in the place of what has changed.

    Args:
        inputs: as the program gave them.
        wanted: the object as applying the inputs would make it (a dry run). The API server writes
            many values in another way than they were given (``1000m`` is ``1``), and adds others;
            both are no drift.
        live: the object as it is.
    """
    if wanted == live:
        return inputs
    if isinstance(inputs, Mapping) and isinstance(wanted, Mapping) and isinstance(live, Mapping):
        return {
            key: drifted(value, wanted.get(key), live.get(key))
            for key, value in inputs.items()
            if key in live or key not in wanted
        }
    if _is_list(inputs) and _is_list(wanted) and _is_list(live):
        return _entries(inputs, wanted, live)
    return live


def _entries(inputs: Sequence[Any], wanted: Sequence[Any], live: Sequence[Any]) -> list[Any]:
    key = _key(inputs, live)
    if key is None:
        if len(inputs) == len(wanted) == len(live):
            return [drifted(*each) for each in zip(inputs, wanted, live, strict=True)]
        return list(live)
    wants = {each.get(key): each for each in wanted if isinstance(each, Mapping)}
    lives = {each.get(key): each for each in live}
    kept = [
        drifted(each, wants.get(each[key]), lives[each[key]])
        for each in inputs
        if each[key] in lives
    ]
    # What others have added isn't ours, unless applying the inputs would take it away.
    own = {each[key] for each in inputs}
    return kept + [each for name, each in lives.items() if name not in own and name not in wants]


def _key(inputs: Sequence[Any], live: Sequence[Any]) -> str | None:
    for key in _KEYS:
        for entries in (inputs, live):
            if not all(isinstance(each, Mapping) and key in each for each in entries):
                break
            values = [each[key] for each in entries]
            if any(not isinstance(value, str | int) for value in values):
                break
            if len(set(values)) != len(values):
                break
        else:
            return key
    return None


def _is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str)
