"""The page of a server with several models: which one is shown, and that each keeps to itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from falaj.stacks.page.account import Account
from tests.stacks.page.site import make_stack, serving
from tests.stacks.page.test_page import Elements, Visitor, plain, require_harmless
from tests.workloads.inference import models
from tests.workloads.inference.serving import Server, Site
from tests.workloads.inference.test_further_models import Other


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Other:
    """Another stack's registry, with a table's model in two versions."""
    found = Other(tmp_path_factory.mktemp("other") / "registry")
    for run in ("one", "two"):
        fields = models.fields(models.table(), run) | {"classes": None}
        files = {"model.onnx": models.table()}
        version = found.store.publish("price", files, fields, found.keyring).version
        found.store.promote("price", version)
    return found


@pytest.fixture(scope="module")
def place(
    home: Path, other: Other, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Visitor, Site, Server]]:
    """A page, and a server of a first model and of one more; a third is never there."""
    del home
    stack, site = make_stack(tmp_path_factory.mktemp("several"), "mlp")
    site.write(models={"price": other.further(), "gone": other.further()})
    site.publish(models.mlp())
    server = Server(site)
    try:
        server.serving(1)
        with serving(stack) as running:
            yield Visitor(running), site, server
    finally:
        server.kill()


Place = tuple[Visitor, Site, Server]


def choice(text: str) -> dict[str, str | None]:
    """The addresses of models that a page offers, and which of them is the page itself."""
    links = [each for tag, each in Elements(text).found if tag == "a"]
    found = {each.get("href") or "": each.get("aria-current") for each in links}
    return {
        address: current
        for address, current in found.items()
        if address.startswith("/?model=") and "#" not in address
    }


def test_a_model_is_chosen_and_all_of_the_page_is_its_own(place: Place) -> None:
    visitor, _, _ = place
    first, price = visitor.get("/"), visitor.get("/?model=price")
    for answer, of in ((first, "mlp"), (price, "price")):
        require_harmless(answer.text)
        assert choice(answer.text) == {
            f"/?model={each}": "page" if each == of else None for each in ("mlp", "price", "gone")
        }
    text = plain(price.text)
    for answer in (first, price):
        assert 'id="drift"' in answer.text
        assert "Drift isn't watched" in plain(answer.text), "its package says nothing of rows"
    assert "Go back to version 1" in text
    assert "token --model price" in text
    assert "/v2/models/price/openapi.json" in text
    assert "token --model" not in plain(first.text)
    names = [each.get("for") for tag, each in Elements(price.text).found if tag == "label"]
    assert {"i0", "i1"} <= set(names)
    gone = visitor.get("/?model=gone")
    require_harmless(gone.text)
    assert "The registry has no version of this model." in gone.text
    assert "unavailable" in visitor.get("/live?model=gone").text


def test_why_drift_of_a_model_is_off_is_said_by_its_setting(tmp_path: Path) -> None:
    site, place = Site(tmp_path / "site"), {"registry": "/r", "keyring": "/k"}
    site.write(models={"price": place | {"drift": False}, "other": place})
    found = {name: Account(site.config, name).drift_off for name in ("mlp", "price", "other")}
    assert found == {"mlp": None, "price": "falaj:service.models.price.drift", "other": None}
    site.write(drift={"enabled": False})
    assert Account(site.config, "other").drift_off == "falaj:service.drift.enabled"


@pytest.mark.parametrize(
    "name", ["ghost", "", "../mlp", "<img src=x>", "price&model=mlp", "p" * 5000]
)
def test_a_model_that_is_not_there_is_said_with_those_that_are(place: Place, name: str) -> None:
    answer = place[0].get(f"/?{urlencode({'model': name})}")
    assert answer.status == 404
    require_harmless(answer.text)
    assert "it has: mlp, price, gone" in plain(answer.text)
    assert len(answer.text) < 2000


def test_a_row_goes_to_its_model(place: Place) -> None:
    visitor = place[0]
    for part in (None, "1"):
        row = {"i0": "12,5", "i1": "x"}
        answer = visitor.post("/predict?model=price", row, **{"X-Part": part})
        assert answer.status == 200
        assert "12.5" in plain(answer.text)
        assert "version 2 answered" in plain(answer.text)
    refused = visitor.post("/predict?model=gone", {"i0": "1"}, **{"X-Part": "1"})
    assert refused.status >= 400


def test_going_back_is_of_the_model_alone(place: Place, other: Other) -> None:
    visitor, site, server = place
    asked = visitor.get("/rollback?model=price")
    assert "Serve version 1 again?" in asked.text
    assert 'action="/rollback?model=price"' in asked.text
    assert visitor.get("/rollback").status == 409, "the first has no version before"
    done = visitor.post("/rollback?model=price", {"current": "2"})
    assert (done.status, done.headers["Location"]) == (303, "/?model=price#versions")
    assert other.store.resolve("price") == 1
    assert site.store.resolve("mlp") == 1
    server.wait(lambda state: state["models"]["price"]["version"] == 1, "it didn't follow")
    said = visitor.get("/live?model=price&version=2").text
    assert "Version 1 is served by now" in said
    assert 'href="/?model=price"' in said
