"""Values, resources and stacks from what the engine writes: an exported state, or a preview."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from falaj.policies.model import Options, PolicyError, Provider, Resource, Stack, items
from falaj.policies.model.values import REDACTED, UNKNOWN
from falaj.wire import (
    ARCHIVE,
    ASSET,
    MASKED,
    OUTPUT_VALUE,
    PROVIDER,
    REFERENCE,
    SECRET,
    SIGNATURE,
    STACK,
    UNKNOWN_TEXTS,
)
from falaj.wire.documents import is_mapping, is_sequence, mapping

# The engine's values as rules see them: secrets opened, unknowns marked, assets by their name.
#
# What a program, a preview or an exported state writes carries mappings with a signature for
# secrets, outputs, assets and references (`falaj.wire`). Unlike a provider, a rule has to see all
# of it: what no provider could use is read as far as it goes, and hidden otherwise.

#: Levels of properties within each other. The deepest schemas of Kubernetes have about 40; deeper
#: than this, Python could not walk through.
DEEPEST: Final = 150
_LONE_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def plain(value: Any, depth: int = 0) -> Any:
    """A value of JSON as rules see it; what can't be read is `REDACTED`.

    Raises:
        PolicyError: it is nested deeper than `DEEPEST` levels. To hide what is below would let it
            pass.
    """
    require_depth(depth)
    if isinstance(value, str):
        if value in UNKNOWN_TEXTS:
            return UNKNOWN
        return REDACTED if value == MASKED else readable(value)
    if is_sequence(value):
        return [plain(each, depth + 1) for each in value]
    if is_mapping(value):
        return _signed(value, depth) if SIGNATURE in value else plain_mapping(value, depth)
    return value


def plain_mapping(value: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """The properties of a resource as rules see them; what providers keep for themselves goes.

    Raises PolicyError as `plain` does.
    """
    return {
        readable(key): plain(each, depth + 1)
        for key, each in value.items()
        if key not in ("__defaults", "__meta")
    }


def require_depth(depth: int) -> None:
    """Raise PolicyError where values are nested deeper than can be walked through."""
    if depth > DEEPEST:
        raise PolicyError(
            f"properties are nested deeper than {DEEPEST} levels, so they can't be judged"
        )


def readable(text: str) -> str:
    """A text that can be written as UTF-8: half characters, which JSON allows, are replaced."""
    return _LONE_SURROGATES.sub("\ufffd", text)


def _signed(value: Mapping[str, Any], depth: int) -> Any:
    kind = value[SIGNATURE]
    if kind == SECRET:
        if "value" in value:
            return plain(value["value"], depth + 1)
        return _opened(value.get("plaintext"), depth)
    if kind == OUTPUT_VALUE:
        return plain(value["value"], depth + 1) if "value" in value else UNKNOWN
    if kind in (ASSET, ARCHIVE):
        # A file's text may hold anything; its name is what rules can judge.
        given = value.get("text") or value.get("path") or value.get("uri")
        return plain(given, depth + 1) if given else REDACTED
    if kind == REFERENCE:
        return plain(value.get("id") or value.get("urn"), depth + 1)
    return REDACTED


def _opened(text: object, depth: int) -> Any:
    """A secret of a state that was exported with `--show-secrets`: JSON in a text."""
    if not isinstance(text, str):
        return REDACTED
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return REDACTED
    return plain(found, depth + 1)


#: Version of deployments that is read: sdk/go/common/apitype of pulumi/pulumi v3.255.0.
VERSIONS: Final = (3, 4)


def read_state(path: Path) -> Stack:
    """The stack of a file that `pulumi stack export` wrote.

    Raises:
        PolicyError: the file can't be read, or isn't an exported state.
    """
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PolicyError(f"the state in {path} can't be read: {error}") from None
    return stack_of_export(document, str(path))


def stack_of_export(document: Any, source: str) -> Stack:
    """The stack of an exported state. Raises PolicyError naming `source` where it isn't one."""
    deployment = document.get("deployment") if is_mapping(document) else None
    if not is_mapping(deployment):
        raise PolicyError(
            f"{source} is no exported state: expected an object with 'deployment'; "
            "write one with: pulumi stack export --file FILE"
        )
    version = document.get("version")
    if version not in VERSIONS:
        raise PolicyError(
            f"{source} has version {version!r}; readable are "
            f"{', '.join(str(each) for each in VERSIONS)}; export it again with a newer pulumi"
        )
    states: Any = deployment.get("resources") or []
    if not is_sequence(states):
        raise PolicyError(f"{source} is no exported state: 'resources' is not a list")
    return stack_of_states(states)


def stack_of_states(states: Iterable[Any]) -> Stack:
    """The stack of resources as the engine writes them, which goes for previews as well.

    Raises PolicyError where one isn't written as the engine does.
    """
    found = list(_usable(states))
    providers = {
        str(each["urn"]): _provider(each) for each in found if each["type"].startswith(PROVIDER)
    }
    resources = tuple(_resource(each, providers) for each in found if each["type"] != STACK)
    parts = str(found[0]["urn"]).split("::") if found else []
    name, project = parts[:2] if len(parts) > 1 else ("", "")
    return Stack(resources, name.removeprefix("urn:pulumi:"), project)


def _usable(states: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    for number, each in enumerate(states):
        state = mapping(each)
        if not all(isinstance(state.get(key), str) for key in ("urn", "type")):
            # Left out, it would be taken for one that was judged.
            raise PolicyError(
                f"resource {number} of the state has no type or no URN, so it can't be judged"
            )
        # On its way out: an update that was interrupted before the old one was deleted.
        if not state.get("delete"):
            yield {**state, "urn": readable(state["urn"]), "type": readable(state["type"])}


def _provider(state: Mapping[str, Any]) -> Provider:
    urn = str(state["urn"])
    return Provider(str(state["type"]), _mapping(state, "inputs"), urn.rpartition("::")[2], urn)


def _resource(state: Mapping[str, Any], providers: Mapping[str, Provider]) -> Resource:
    urn = str(state["urn"])
    reference = str(state.get("provider") or "")
    outputs = _mapping(state, "outputs")
    # What was only read has often no inputs of its own: the cloud's answer says what it is like.
    inputs = _mapping(state, "inputs") or (outputs if state.get("external") is True else {})
    return Resource(
        str(state["type"]),
        urn.rpartition("::")[2],
        inputs,
        urn=urn,
        provider=providers.get(reference.rpartition("::")[0]),
        options=Options(
            protect=state.get("protect") is True,
            retain_on_delete=state.get("retainOnDelete") is True,
        ),
        parent=str(state.get("parent") or ""),
        dependencies=_dependencies(state.get("propertyDependencies")),
        outputs=outputs,
        id=str(state.get("id") or ""),
        custom=state.get("custom") is not False,
        source=_source(state),
    )


def _dependencies(given: Any) -> dict[str, tuple[str, ...]]:
    if not is_mapping(given):
        return {}
    return {
        str(key): tuple(str(each) for each in items(urns))
        for key, urns in cast("Mapping[Any, Any]", given).items()
    }


def _mapping(state: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = state.get(key)
    return plain_mapping(found) if is_mapping(found) else {}


def _source(state: Mapping[str, Any]) -> str:
    """``project:///__main__.py#2`` as ``__main__.py:2``: from the program's folder."""
    position = state.get("sourcePosition")
    if not isinstance(position, str) or not position.startswith("project:///"):
        return ""
    return position.removeprefix("project:///").split(",")[0].replace("#", ":")
