"""Nothing that a program can give makes the model fail, for any type of the SDK."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from falaj.sandbox.clouds.aws import MODEL
from falaj.sandbox.clouds.aws.model import kinds
from falaj.sandbox.inprocess import Sandbox
from falaj.wire import UNKNOWN
from tests.examples import examples
from tests.sandbox.aws.plausible import CHAIN, REGION, Made, build, cloud

URN = "urn:pulumi:s::p::t::n"
SCALARS = (
    st.none()
    | st.just(UNKNOWN)
    | st.booleans()
    | st.integers(-5, 70000)
    | st.floats(allow_nan=True)
    | st.sampled_from(["", "10.0.0.0/16", "10.0.0.1/8", "::/0", "arn:aws:x", "{", "vpc-1", "{}"])
    | st.text(max_size=6)
)
ANY = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=5,
)
TOKENS = sorted(kinds())


@pytest.fixture(scope="module")
def world() -> tuple[Sandbox, Made]:
    sandbox = cloud()
    return sandbox, build(sandbox)


@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_no_inputs_make_the_model_fail(world: tuple[Sandbox, Made], data: st.DataObject) -> None:
    store = world[0].cloud.store
    _, token, inputs = data.draw(st.sampled_from(CHAIN))
    broken: dict[str, Any] = dict(inputs)
    for key in data.draw(st.lists(st.sampled_from(sorted(inputs)), max_size=3)) if inputs else ():
        broken[key] = data.draw(ANY)
    _ask(token, broken, store)


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(token=st.sampled_from(TOKENS), data=st.data())
def test_no_value_of_any_property_makes_the_model_fail(
    world: tuple[Sandbox, Made], token: str, data: st.DataObject
) -> None:
    known = world[0].cloud.tables.resource(token)
    assert known is not None
    names = sorted(known.inputs.properties)
    inputs = data.draw(st.dictionaries(st.sampled_from(names), ANY, max_size=6))
    _ask(token, inputs, world[0].cloud.store)


def _ask(token: str, inputs: dict[str, Any], store: Any) -> None:
    config = {"region": REGION}
    inputs = {**MODEL.defaults(token, "n", inputs, config, URN), **inputs}
    problems = [
        *MODEL.problems(token, inputs, config),
        *MODEL.conflicts(token, inputs, config, store, None),
    ]
    assert all(isinstance(problem.reason, str) and problem.reason for problem in problems)
    id = MODEL.identity(token, "n", inputs, config, URN)
    assert isinstance(id, str)
    assert id
    assert isinstance(MODEL.outputs(token, id, inputs, config, store), dict)


def test_every_type_of_the_sdk_gets_an_id_and_an_arn(world: tuple[Sandbox, Made]) -> None:
    store = world[0].cloud.store
    config = {"region": REGION}
    tokens = world[0].cloud.tables.tokens()
    # One of each service is enough for the form; all of them take half a minute to read.
    services = {token.split("/", 1)[0]: token for token in tokens}
    for token in services.values():
        inputs = dict(MODEL.defaults(token, "thing", {}, config, URN))
        id = MODEL.identity(token, "thing", inputs, config, URN)
        outputs = MODEL.outputs(token, id, inputs, config, store)
        assert id
        if isinstance(outputs.get("arn"), str):
            assert re.fullmatch(r"arn:aws:[a-z0-9-]+:[a-z0-9-]*:\d*:.+", outputs["arn"]), token
        assert MODEL.problems("aws:unknown/thing:Thing", {}, config) == []
