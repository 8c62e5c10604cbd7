"""Checks of the versions that are served side by side."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from falaj.components.kubernetes.serving.arguments import ModelVersionArgs
from falaj.components.kubernetes.serving.specification import Version
from falaj.components.specification.refusals import Refusals

MOST_VERSIONS: Final = 8
"""An HTTPRoute holds 16 rules and a rule 16 backends; each version takes up to one rule:
https://gateway-api.sigs.k8s.io/reference/spec/#httproutespec"""
MOST_REPLICAS: Final = 1000
_DIGEST: Final = re.compile(r"^sha256:[0-9a-f]{64}$")
#: A header's value, as a word: what can't be confused with another one.
_HEADER: Final = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")


def checked_versions(
    given: Mapping[str, Any],
    refusals: Refusals,
    *,
    with_digest: bool,
    careful: bool,
    cold: bool,
) -> tuple[Version, ...]:
    """The argument ``versions``.

    Args:
        given: the service's arguments.
        refusals: gets what can't be used.
        with_digest: whether each version has an image of its own.
        careful: whether a single replica is refused.
        cold: whether the service may have none, asleep.
    """
    value = given.get("versions")
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        refusals.add("versions", value, f"a list of 1 to {MOST_VERSIONS} versions")
        return ()
    entries = cast("Sequence[object]", value)
    if len(entries) > MOST_VERSIONS:
        refusals.add("versions", f"{len(entries)} versions", f"1 to {MOST_VERSIONS}")
    found: list[Version] = []
    for position, entry in enumerate(entries):
        at = f"versions[{position}]"
        if not isinstance(entry, Mapping):
            refusals.add(at, entry, "version and weight, by name")
            continue
        one = cast("Mapping[str, Any]", entry)
        _names(at, one, refusals)
        low = 1 if cold or not careful else 2
        default = given.get("min_replicas", low)
        least = refusals.whole(
            f"{at}.min_replicas" if "min_replicas" in one else "min_replicas",
            one.get("min_replicas", default), low, MOST_REPLICAS,
        )  # fmt: skip
        most = refusals.whole(
            f"{at}.max_replicas" if "max_replicas" in one else "max_replicas",
            one.get("max_replicas", given.get("max_replicas", max(10, least))),
            least, MOST_REPLICAS,
        )  # fmt: skip
        found.append(
            Version(
                refusals.whole(f"{at}.version", one.get("version"), 1, 999_999_999),
                refusals.whole(f"{at}.weight", one.get("weight"), 0, 100),
                _digest(at, one, with_digest, refusals),
                _header(at, one, refusals),
                least,
                most,
            )
        )
    _together(found, refusals)
    return tuple(sorted(found, key=lambda each: each.number))


def _names(at: str, one: Mapping[str, Any], refusals: Refusals) -> None:
    for key in one:
        if key not in ModelVersionArgs.__annotations__:
            allowed = ", ".join(sorted(ModelVersionArgs.__annotations__))
            refusals.say(f"{at}.{key}", f"is not known here; allowed: {allowed}")


def _digest(at: str, one: Mapping[str, Any], needed: bool, refusals: Refusals) -> str:
    digest = one.get("package_digest", "")
    if not needed:
        if digest:
            refusals.say(f"{at}.package_digest", "is for package_source 'image'; leave it out")
        return ""
    if not (isinstance(digest, str) and _DIGEST.match(digest)):
        refusals.add(
            f"{at}.package_digest", digest or None, "sha256: and 64 of 0-9 and a-f",
            "it is the digest of the package's image in the registry; a tag could be moved",
        )  # fmt: skip
    return str(digest)


def _header(at: str, one: Mapping[str, Any], refusals: Refusals) -> str:
    header = one.get("header", "")
    if header and not (isinstance(header, str) and _HEADER.match(header)):
        refusals.add(f"{at}.header", header, "a word of at most 63 letters, digits, '.', '_', '-'")
        return ""
    return str(header)


def _together(found: Sequence[Version], refusals: Refusals) -> None:
    """What has to hold for all of them."""
    for what in ("number", "header"):
        values = [getattr(each, what) for each in found if getattr(each, what)]
        for value in sorted({each for each in values if values.count(each) > 1}, key=str):
            name = "version" if what == "number" else what
            refusals.add("versions", f"{name} {value} twice", f"each {name} once")
    total = sum(each.weight for each in found)
    if found and total != 100:
        refusals.add(
            "versions", f"weights that add up to {total}", "100",
            "the weights are shares in percent; give the stable version what is left",
        )  # fmt: skip
