"""The bill of materials, and from short names to references in the in-country registry."""

from __future__ import annotations

import re

import pytest

from falaj.components.kubernetes._placed import InCluster
from falaj.components.kubernetes.bill_of_materials import charts, images, resolve
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.limits import DIGEST
from falaj.policies.reading.images import parse

PLACED = InCluster(
    distribution="existing",
    region="site-1",
    zones=(),
    registry="registry.example.ae/falaj",
    tenant="acme",
    owner="a@example.ae",
    data_class="internal",
    cost_center="cc",
    environment="production",
)
ONE = "sha256:" + "1" * 64
UNKNOWN = next(name for name, each in images().items() if each.digest is None)
KNOWN = next(name for name, each in images().items() if each.digest is not None)
_REPOSITORY = re.compile(r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*")


def resolved(names: list[str], given: object) -> tuple[dict[str, str], str]:
    errors = ArgumentErrors("Thing 'x'")
    found = resolve(PLACED, names, given, errors)  # type: ignore[arg-type]
    try:
        errors.raise_if_any()
    except Exception as error:
        return found, str(error)
    return found, ""


def test_a_given_digest_comes_before_the_bill_of_materials() -> None:
    image = images()[KNOWN]
    found, said = resolved([KNOWN], {KNOWN: ONE})
    assert not said
    assert found == {KNOWN: f"registry.example.ae/falaj/{image.mirror}:{image.tag}@{ONE}"}


def test_a_known_digest_needs_nothing_given() -> None:
    found, said = resolved([KNOWN], None)
    assert not said
    assert found[KNOWN].endswith(f"@{images()[KNOWN].digest}")


def test_what_is_resolved_is_pinned_and_below_the_registry() -> None:
    found, _ = resolved(list(images()), dict.fromkeys(images(), ONE))
    assert found.keys() == images().keys()
    for each in found.values():
        image = parse(each)
        assert image.is_pinned
        assert image.host == "registry.example.ae"
        assert image.repository.startswith("falaj/")


def test_one_lock_serves_all_components() -> None:
    assert resolved([KNOWN], {UNKNOWN: ONE})[1] == ""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, f"images.{UNKNOWN}: no digest of"),
        ({}, "falaj images pin"),
        ({UNKNOWN: "v1"}, "given 'v1'; allowed: sha256: and 64"),
        ({UNKNOWN: ONE[:-1]}, "allowed: sha256: and 64"),
        ({UNKNOWN: ONE + "\n"}, "allowed: sha256: and 64"),
        ({UNKNOWN[:-1] + "x": ONE}, "is not the name of an image; did you mean"),
        ({"quite-another-thing": ONE}, "`falaj images list` shows them all"),
        ({UNKNOWN: 1}, "allowed: texts by name"),
        ([UNKNOWN], "allowed: texts by name"),
    ],
)
def test_what_can_not_be_resolved_is_refused_with_what_to_do(given: object, said: str) -> None:
    found, refused = resolved([UNKNOWN], given)
    assert said in refused
    assert found == {}


def test_an_image_that_is_built_here_is_not_mirrored() -> None:
    assert "falaj images build --push" in resolved(["falaj-inference"], None)[1]


@pytest.mark.parametrize("name", images())
def test_every_image_is_described(name: str) -> None:
    image = images()[name]
    assert image.tag
    assert "latest" not in image.tag
    assert image.licence
    assert image.used_by
    assert _REPOSITORY.fullmatch(image.mirror)
    assert (image.digest is None) == (image.digest_source is None)
    assert image.digest is None or DIGEST.allows(image.digest)
    if image.source:
        assert parse(image.source).host in image.source, "the registry is written out"


@pytest.mark.parametrize("name", charts())
def test_every_chart_is_described(name: str) -> None:
    chart = charts()[name]
    assert chart.source.startswith(("oci://", "https://"))
    assert re.fullmatch(r"v?\d+\.\d+\.\d+", chart.version)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", chart.seen)
    assert chart.licence
    assert chart.digest is None or DIGEST.allows(chart.digest)


def test_no_two_share_a_place_in_the_mirror() -> None:
    places = [f"{each.mirror}:{each.tag}" for each in images().values()]
    places += [f"{each.mirror}:{each.version}" for each in charts().values()]
    assert len(places) == len(set(places))


def test_nothing_comes_from_where_it_must_not() -> None:
    sources = [each.source for each in (*images().values(), *charts().values())]
    assert not [each for each in sources if "bitnami" in each or "minio" in each]
