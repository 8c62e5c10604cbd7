"""The component classes: names, types, arguments and outputs, without an engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pulumi
import pytest

from falaj.components import local
from falaj.components.local.provider.resources import HANDLERS
from falaj.components.specification.property_names import camel, snake
from tests.loops import own_loop

ARGS: dict[str, dict[str, Any]] = {
    "Workspace": {"path": "/s", "ports": [8443], "retain": None},
    "KeyRing": {"site": "/s", "rotation": 2},
    "CertificateAuthority": {"site": "/s", "common_name": "ours"},
    "Certificate": {
        "site": "/s",
        "file_name": "server",
        "common_name": "localhost",
        "authority_fingerprint": "f",
        "names": ["a.ae"],
    },
    "Dataset": {"site": "/s", "source": "digits", "target": None},
    "TrainingRun": {"site": "/s", "dataset": "/d", "dataset_digest": "x", "batch_size": 8},
    "ModelPackage": {"site": "/s", "model": "m", "run": "/r", "dataset": "/d", "keep_versions": 3},
    "Daemon": {"site": "/s", "name": "watch", "command": ["/bin/true"]},
    "InferenceService": {
        "site": "/s",
        "name": "m",
        "model": "m",
        "version": 1,
        "keyring": "/k",
        "port": 8443,
        "certificate": "/c",
        "private_key": "/p",
        "client_ca": "/a",
        "certificate_fingerprint": "f",
        "issuer": "i",
        "audience": "a",
        "clients": {"operator": ["predict"]},
    },
}


class Mocks(pulumi.runtime.Mocks):
    """Answers each resource with its inputs and a value for every output."""

    def __init__(self) -> None:
        self.made: list[pulumi.runtime.MockResourceArgs] = []

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[Any, Any]]:
        self.made.append(args)
        handlers = {f"falaj-local:index:{h.type_name}": h for h in HANDLERS}
        handler = handlers.get(args.typ)
        outputs = {key: f"made {key}" for key in handler.outputs} if handler else {}
        return f"{args.name}-id", {**args.inputs, **outputs}

    def call(self, args: pulumi.runtime.MockCallArgs) -> dict[Any, Any]:
        raise AssertionError(f"nothing is to be called: {args.token}")


@pytest.fixture
def mocks() -> Iterator[Mocks]:
    made = Mocks()
    with own_loop():
        pulumi.runtime.set_mocks(made, preview=False)
        yield made


@pytest.mark.parametrize("type_name", sorted(ARGS))
def test_every_output_is_filled_in(mocks: Mocks, type_name: str) -> None:
    component = getattr(local, type_name)
    names = [name for name in component.__annotations__ if not name.startswith("_")]
    seen: dict[str, Any] = {}

    @pulumi.runtime.test
    def check() -> Any:
        made = component("thing", ARGS[type_name])
        values = pulumi.Output.all(**{name: getattr(made, name) for name in names})
        return values.apply(seen.update)

    check()
    assert sorted(seen) == sorted(names)
    missing = [name for name, value in seen.items() if value is None]
    assert missing == []
    types = [made.typ for made in mocks.made]
    assert types == [f"falaj:local:{type_name}", f"falaj-local:index:{type_name}"]


@pytest.mark.parametrize("type_name", sorted(ARGS))
def test_arguments_reach_the_resource_in_its_own_spelling(mocks: Mocks, type_name: str) -> None:
    @pulumi.runtime.test
    def check() -> Any:
        return getattr(local, type_name)("thing", ARGS[type_name])._resource.urn

    check()
    given = {camel(k): v for k, v in ARGS[type_name].items() if v is not None}
    resource = next(made for made in mocks.made if made.typ.startswith("falaj-local:"))
    assert resource.inputs == given


@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.type_name)
def test_arguments_and_the_providers_inputs_are_the_same(handler: Any) -> None:
    arguments = getattr(local, f"{handler.type_name}Args").__annotations__
    computed = {"sourceSha256", "inputsSha256", "codeSha256", "teacherSha256", "startSha256",
                "vocabularyOfSha256", "featuresSha256"}  # fmt: skip
    assert {camel(name) for name in arguments} == handler.table.keys() - computed
    required = getattr(local, f"{handler.type_name}Args").__required_keys__
    assert {camel(k) for k in required} == {k for k, f in handler.table.items() if f.required}


def test_the_provider_is_explicit(mocks: Mocks) -> None:
    @pulumi.runtime.test
    def check() -> Any:
        return local.LocalProvider("local", {"site": "/s"}).urn

    check()
    assert mocks.made[0].typ == "pulumi:providers:falaj-local"


@pytest.mark.parametrize("name", ["site", "max_body_bytes", "accuracy_int8", "latency_float"])
def test_spellings_come_back(name: str) -> None:
    assert snake(camel(name)) == name
