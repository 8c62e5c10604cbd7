"""An experiment beside the version that serves, as the page shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.stacks.page.experiment import experiment_of
from falaj.stacks.page.form import NOTHING
from tests.stacks.conftest import wait_for
from tests.stacks.page.site import make_stack, serving
from tests.stacks.page.test_page import HOSTILE, Visitor, plain, require_harmless
from tests.workloads.inference import models
from tests.workloads.inference.serving import Server

ARM: dict[str, Any] = {"requests": 1_200, "errors": 1, "refused": 2, "mean_seconds": 0.0012}
SAID: dict[str, Any] = {
    "version": 2, "state": "ready", "share": 12.5, "key": HOSTILE, "error": None,
    "arms": {"live": ARM, HOSTILE: {}, "more": ARM}, "fallbacks": {HOSTILE: 3, "away": 0},
    "outside": 7, "why": {"failed": "<b>it ended"},
}  # fmt: skip


def test_what_is_said_of_an_experiment() -> None:
    found = experiment_of(SAID)
    assert found is not None
    assert (found.version, found.state, found.share, found.key) == ("2", "ready", "12.5", HOSTILE)
    live, other = found.arms
    assert (live.requests, live.errors, live.refused, live.seconds) == ("1,200", "1", "2", 0.0012)
    assert live.labels == NOTHING
    for more, says in (
        ({"labelled": 40, "wrong": 3}, "7.5 % wrong of 40 rows"),
        ({"labelled": 40, "rmse": 1.23456}, "RMSE 1.235 of 40 rows"),
        ({"labelled": 40, "rmse": None}, f"RMSE {NOTHING} of 40 rows"),
    ):
        shown = experiment_of(SAID | {"arms": {"live": ARM | more}})
        assert shown is not None
        assert shown.arms[0].labels == says
    assert (other.name, other.requests, other.seconds) == (HOSTILE, "not a number", None)
    assert found.fallbacks == ((HOSTILE, "3"),)
    assert experiment_of(None) is None


documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*SAID, *ARM, "labelled", "wrong", "rmse"]), inner, max_size=6
        )
    ),
    max_leaves=20,
)


@given(documents)
def test_no_account_breaks_it(document: object) -> None:
    experiment_of(document)


@pytest.fixture(scope="module")
def visitor(home: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    """Two versions of a table's model; the second one is the candidate."""
    del home
    stack, site = make_stack(tmp_path_factory.mktemp("experiment"), "table")
    site.write(experiment={"key": "x-customer", "alias": "candidate"})
    for run in ("one", "two"):
        fields = models.fields(models.table(), run) | {"classes": None}
        site.publish(models.table(), fields=fields, promote=run == "one")
    site.store.promote(site.document["model"], 2, alias="candidate")
    server = Server(site)
    try:
        server.serving(1)
        server.wait(lambda state: (state["experiment"] or {}).get("state") == "ready", "none")
        with serving(stack) as running:
            yield Visitor(running)
    finally:
        server.kill()


def test_an_experiment_stands_beside_what_is_live(visitor: Visitor) -> None:
    shown = visitor.get("/")
    require_harmless(shown.text)
    assert "Experiment: version 2 ready" in plain(shown.text)
    # What the page asks has no key.
    row = {"i0": "30", "i1": "x"}
    assert visitor.post("/predict", row, X_Part="1").status == 200
    wait_for(lambda: "in no arm 1 " in plain(visitor.get("/live").text), "a request")
    said = plain(visitor.get("/live").text)
    assert "The candidate answers the requests of 10 % of the values of x-customer" in said
    assert "answered for the candidate none" in said
    assert "falaj experiment promote" in said
