"""What only the settings of a stack in a cloud as a whole show: place, files, ground."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from falaj.components import catalogue
from falaj.components.catalogue.region_names import place_named
from falaj.policies.model.settings import Settings as PackSettings
from falaj.stacks.settings.cloud import CloudSettings
from falaj.stacks.settings.in_cluster import InClusterSettings
from falaj.stacks.settings.problems import Action, Drop, Finding, Put, format_value
from falaj.stacks.settings.siblings import Sibling, siblings
from falaj.stacks.settings.suggestions import closest, similar_files

_AT_HOME: Final = "data and machines stay in the United Arab Emirates"
#: Kinds of stacks that others can't stand on: they make no foundation.
_NO_GROUND: Final = frozenset(("platform", "workloads"))


def check_places(settings: CloudSettings, root: Path) -> list[Finding]:
    """The region has to be in the country, and in the cloud that the stack names."""
    del root
    if settings.placement or settings.platform in (None, "kubernetes"):
        # Places are the catalogue's; the site of an existing cluster is its owner's word.
        return []
    cloud = str(settings.platform)
    regions = [each.region for each in catalogue.all_places() if each.cloud == cloud]
    if settings.region is None or settings.region in regions:
        return []
    meant = region_meant(cloud, settings.region)
    hint = f"; did you mean {meant}?" if meant else f"; {_AT_HOME}"
    said = f"given {format_value(settings.region)}; allowed on {cloud}: {', '.join(regions)}{hint}"
    return [Finding(("region",), said, (Put(("region",), meant or regions[0]),))]


def region_meant(cloud: str, given: str) -> str | None:
    """The region that another spelling stands for: its title, a zone of it, a slip of the pen."""
    named = place_named(given)
    if named in catalogue.PLACES:
        return named.partition("/")[2] if named.startswith(f"{cloud}/") else None
    if named:
        return None  # a place abroad, however alike
    by_title = {each.title: each.region for each in catalogue.all_places() if each.cloud == cloud}
    by_title |= {title.partition(",")[0]: region for title, region in by_title.items()}
    by_title |= {region: region for region in [*by_title.values()]}
    found = closest(given, by_title)
    return by_title[found] if found else None


def check_access(settings: CloudSettings, root: Path) -> list[Finding]:
    """A stack inside a cluster names one cluster, in the way of its platform."""
    if not isinstance(settings, InClusterSettings):
        return []
    if settings.placement:
        said = (
            f"given {format_value(settings.placement)}; a stack inside a cluster is where the "
            "cluster is: name falaj:platform and falaj:region instead"
        )
        return [Finding(("placement",), said, (Drop(("placement",)),))]
    existing = settings.platform == "kubernetes"
    needed: Mapping[str, tuple[str, str]] = {
        "context": ("the kubeconfig's context of the existing cluster", "main"),
        "region": ("the site in the country where the existing cluster stands", "abudhabi-dc1"),
    } if existing else {"cluster": ("the stack that made the cluster", "")}  # fmt: skip
    found: list[Finding] = []
    for key, (what, example) in needed.items():
        if getattr(settings, key) is None:
            value = example or _first_cluster(settings, root)
            found.append(Finding((key,), f"missing; expected {what}", (Put((key,), value),)))
    for key in ("cluster",) if existing else ("context", "kubeconfig"):
        if getattr(settings, key) is not None:
            how = "its context in falaj:context" if existing else "its stack in falaj:cluster"
            said = (
                f"given {format_value(getattr(settings, key))}, but a cluster on the platform "
                f"{settings.platform} is named by {how}"
            )
            found.append(Finding((key,), said, (Drop((key,)),)))
    return found


def check_ground(settings: CloudSettings, root: Path) -> list[Finding]:
    """The stack that this one stands on has a file, and is of a kind that can be stood on."""
    name = settings.upstream
    if name is None or settings.platform == "kubernetes":
        return []
    in_cluster = isinstance(settings, InClusterSettings)
    key = "cluster" if in_cluster else "foundation"
    own = settings.provenance.stack
    others = {each.name: each for each in siblings(settings.provenance, root) if each.name != own}
    usable = [
        each.name
        for each in others.values()
        if _carries(each, in_cluster=in_cluster) and _is_beside(each, settings)
    ]
    if name in usable:
        return []
    what = "the stack of a cluster" if in_cluster else "the stack of a foundation"
    if name == own:
        why = "the stack itself"
    elif name in others:
        kind = others[name].blueprint or "no kind"
        why = f"a stack of the kind {kind} on {others[name].platform or 'several places'}"
    else:
        why = "no stack of this project has a file of that name"
    near = closest(name, usable)
    hint = f"; did you mean {near}?" if near else ""
    listed = f"; here: {', '.join(usable)}" if usable else ""
    actions: list[Action] = [Put((key,), each) for each in (near, *usable) if each]
    if not in_cluster:
        actions.append(Drop((key,)))
    said = f"given {format_value(name)}, {why}; allowed: {what}{listed}{hint}"
    return [Finding((key,), said, tuple(actions))]


def check_policies(settings: CloudSettings, root: Path) -> list[Finding]:
    """What the packs would refuse is refused before the engine starts them."""
    found: list[Finding] = []
    given = settings.policies.given()
    try:
        PackSettings.model_validate(given)
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            path = ("policies", *problem["loc"])
            said = problem["msg"].removeprefix("Value error, ")
            found.append(Finding(path, said, (Drop(path),)))
    named = [(("policies", "waivers"), settings.policies.waivers)]
    named += [
        (("policies", "rules", index), each)
        for index, each in enumerate(settings.policies.rules or ())
    ]
    for path, file in named:
        if file is None or (root / file).is_file():
            continue
        near = [
            each
            for each in similar_files(file, root, (".yaml", ".yml"))
            if not Path(each).name.startswith("Pulumi.")
        ]
        hint = f"; did you mean {near[0]}?" if near else ""
        actions: tuple[Action, ...] = (Put(path, near[0]),) if near else (Drop(path),)
        said = f"there is no file {file} in the project's folder{hint}"
        found.append(Finding(path, said, actions))
    return found


def _first_cluster(settings: CloudSettings, root: Path) -> str:
    found = siblings(settings.provenance, root)
    return next((each.name for each in found if _carries(each, in_cluster=True)), "cluster")


def _is_beside(sibling: Sibling, settings: CloudSettings) -> bool:
    """Whether a stack may be in the same cloud; several places are decided later."""
    return None in (settings.platform, sibling.platform or None) or (
        sibling.platform == settings.platform
    )


def _carries(sibling: Sibling, *, in_cluster: bool) -> bool:
    """Whether a stack makes what another one refers to."""
    if sibling.platform in ("local", "kubernetes"):
        return False
    if in_cluster:
        return sibling.blueprint == "cluster"
    # A cluster or tier without a foundation makes and exports one.
    return sibling.blueprint not in _NO_GROUND and not sibling.stands_on


CHECKS: Final = (check_places, check_access, check_ground, check_policies)
