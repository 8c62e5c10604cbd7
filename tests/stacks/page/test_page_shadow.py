"""A shadow beside the version that serves, as the page shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.stacks.page.form import NOTHING
from falaj.stacks.page.shadow import mean_runs, shadow_of
from tests.stacks.conftest import wait_for
from tests.stacks.page.site import make_stack, serving
from tests.stacks.page.test_page import HOSTILE, Visitor, plain, require_harmless
from tests.workloads.inference import models
from tests.workloads.inference.serving import Server, Site

SAID: dict[str, Any] = {
    "version": 2, "state": "ready", "percent": 25.0, "error": None,
    "requests": {"compared": 3, "failed": 1}, "rows": 12, "agreement": 0.75,
    "outputs": {HOSTILE: {"agreement": 0.75, "mean_difference": 0.0123456}, "y": {}},
    "mean_run_seconds": 0.002, "why": {"failed": "<b>it ended"},
}  # fmt: skip


def test_what_is_said_of_a_shadow() -> None:
    found = shadow_of(SAID)
    assert found is not None
    assert (found.version, found.state, found.percent) == ("2", "ready", "25")
    assert found.requests == (("compared", "3"), ("failed", "1"))
    assert found.agreement == "75.0 % of 12 rows"
    assert found.outputs == ((HOSTILE, "75.0 %", "0.0123"), ("y", NOTHING, NOTHING))
    new = shadow_of(SAID | {"agreement": None, "rows": 0, "mean_run_seconds": None})
    assert new is not None
    assert new.agreement == "no rows were compared until now"
    assert new.seconds is None
    assert shadow_of(None) is None


documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*SAID, "mean_difference"]), inner, max_size=6)
    ),
    max_leaves=20,
)


@given(documents)
def test_no_account_breaks_it(document: object) -> None:
    shadow_of(document)


def test_runs_are_counted_by_version() -> None:
    name = "falaj_inference_compute_duration_seconds"
    text = "".join(
        f'{name}_{part}{{model="m",version="{version}"}} {value}\n'
        for version, total, count in (("1", 3.0, 2), ("2", 0.0, 0))
        for part, value in (("sum", total), ("count", count))
    )
    assert mean_runs(text) == mean_runs(text, "m") == {"1": 1.5}
    assert mean_runs(text, "further") == {}
    with pytest.raises(ValueError, match=r"."):
        mean_runs(f"{name}_sum{{ nothing\n")


def publish(site: Site) -> int:
    """A version that serves, and another one as its shadow; the first one's number."""
    model = site.document["model"]
    site.write(shadow={"percent": 100, "alias": "shadow"})
    for run in ("one", "two"):
        fields = models.fields(models.table(), run) | {"classes": None}
        site.publish(models.table(), fields=fields, promote=run == "one")
    site.store.promote(model, 2, alias="shadow")
    return 1


@pytest.fixture(scope="module")
def visitor(home: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    """Two versions of a table's model; the second one is the shadow."""
    del home
    stack, site = make_stack(tmp_path_factory.mktemp("shadow"), "table")
    publish(site)
    server = Server(site)
    try:
        server.serving(1)
        server.wait(lambda state: (state["shadow"] or {}).get("state") == "ready", "no shadow")
        with serving(stack) as running:
            yield Visitor(running)
    finally:
        server.kill()


def test_a_shadow_stands_beside_what_is_live(visitor: Visitor) -> None:
    shown = visitor.get("/")
    require_harmless(shown.text)
    assert "Shadow: version 2 ready" in plain(shown.text)
    assert "no rows were compared until now" in plain(shown.text)
    row = {"i0": "30", "i1": "x"}
    assert visitor.post("/predict", row, X_Part="1").status == 200
    wait_for(lambda: "100.0 % of 1 rows" in plain(visitor.get("/live").text), "a comparison")
    said = plain(visitor.get("/live").text)
    assert "1 compared" in said
    assert "falaj shadow promote" in said
