"""Stacks from what the engine writes: an exported state, or the resources of a preview."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from falaj.policies.decoding import plain_mapping, readable
from falaj.policies.model import Options, PolicyError, Provider, Resource, Stack, items
from falaj.policies.model.resource import ROOT

#: Version of deployments that is read: sdk/go/common/apitype of pulumi/pulumi v3.255.0.
VERSIONS: Final = (3, 4)
#: How the types of providers themselves begin.
PROVIDERS: Final = "pulumi:providers:"


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
    deployment = document.get("deployment") if isinstance(document, Mapping) else None
    if not isinstance(deployment, Mapping):
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
    if not isinstance(states, list):
        raise PolicyError(f"{source} is no exported state: 'resources' is not a list")
    return stack_of_states(cast("list[Any]", states))


def stack_of_states(states: Iterable[Any]) -> Stack:
    """The stack of resources as the engine writes them, which goes for previews as well.

    Raises PolicyError where one isn't written as the engine does.
    """
    found = list(_usable(states))
    providers = {
        str(each["urn"]): _provider(each) for each in found if each["type"].startswith(PROVIDERS)
    }
    resources = tuple(_resource(each, providers) for each in found if each["type"] != ROOT)
    parts = str(found[0]["urn"]).split("::") if found else []
    name, project = parts[:2] if len(parts) > 1 else ("", "")
    return Stack(resources, name.removeprefix("urn:pulumi:"), project)


def _usable(states: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    for number, each in enumerate(states):
        state = cast("Mapping[str, Any]", each) if isinstance(each, Mapping) else {}
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
    if not isinstance(given, Mapping):
        return {}
    return {
        str(key): tuple(str(each) for each in items(urns))
        for key, urns in cast("Mapping[Any, Any]", given).items()
    }


def _mapping(state: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = state.get(key)
    return plain_mapping(cast("Mapping[str, Any]", found)) if isinstance(found, Mapping) else {}


def _source(state: Mapping[str, Any]) -> str:
    """``project:///__main__.py#2`` as ``__main__.py:2``: from the program's folder."""
    position = state.get("sourcePosition")
    if not isinstance(position, str) or not position.startswith("project:///"):
        return ""
    return position.removeprefix("project:///").split(",")[0].replace("#", ":")
