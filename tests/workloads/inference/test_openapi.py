"""The OpenAPI document: well-formed, of the routes that there are, and of what is really taken.

Judges are `openapi-spec-validator` for the document and `jsonschema` for what it says of bodies;
they are imported where they are asked: that takes seconds, of each process that collects tests.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import orjson
import pytest
from onnx import TensorProto

from falaj.workloads.inference.errors import RequestError
from falaj.workloads.inference.models.model import Model
from falaj.workloads.inference.protocol import openapi, routes
from falaj.workloads.inference.settings import SCOPES
from tests.waiting import wait_for
from tests.workloads.inference import models
from tests.workloads.inference.oip import ECHO, MLP, TABLE, echo_request, loaded
from tests.workloads.inference.serving import Server, Site, call, row

ODD = loaded(models.echo({"حقل with / odd~0 name": TensorProto.INT8}, ()))
MODELS = {
    **ECHO, "mlp": MLP, "table": TABLE, "odd": ODD, "classifier": loaded(models.classifier()),
    "fixed": loaded(models.echo({"x": TensorProto.FLOAT}, (2, "wide"))),
}  # fmt: skip


def described(served: Model, *, certificates: bool = True) -> dict[str, Any]:
    places = routes.Router(served.name, served.version).places
    return openapi.describe(places, served.schema, certificates=certificates)


def judge(document: Mapping[str, Any]) -> Any:
    from openapi_spec_validator import OpenAPIV31SpecValidator

    return OpenAPIV31SpecValidator(document)


def fits(document: Mapping[str, Any], schema: Mapping[str, Any], value: Any) -> bool:
    import jsonschema

    whole = {"components": document["components"], **schema}
    return jsonschema.Draft202012Validator(whole).is_valid(value)


@pytest.mark.parametrize("name", MODELS)
def test_the_document_is_an_openapi_document(name: str) -> None:
    import jsonschema

    document = described(MODELS[name])
    judge(document).validate()
    for each in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(each)


@pytest.mark.parametrize("name", MODELS)
def test_makers_of_clients_can_read_it(name: str) -> None:
    """They want a schema of every body, and take none that leads back to itself."""
    document = described(MODELS[name])
    bodies = [
        kind
        for operations in document["paths"].values()
        for operation in operations.values()
        for each in (operation.get("requestBody", {}), *operation["responses"].values())
        for kind in each.get("content", {}).values()
    ]
    assert bodies
    assert all("schema" in each for each in bodies)
    schemas = document["components"]["schemas"]

    def walk(schema: Any, above: tuple[str, ...]) -> None:
        for key, each in schema.items() if isinstance(schema, dict) else enumerate(schema):
            if key == "$ref":
                inner = each.rpartition("/")[2]
                assert inner not in above
                walk(schemas[inner], (*above, inner))
            elif isinstance(each, dict | list):
                walk(each, above)

    for inner, schema in schemas.items():
        walk(schema, (inner,))


def test_the_judge_would_find_a_mistake() -> None:
    document = described(MLP)
    document["paths"]["/v2/{unknown}"] = copy.deepcopy(document["paths"]["/v2"])
    assert list(judge(document).iter_errors())
    document = described(MLP)
    del document["paths"]["/v2"]["get"]["responses"]["200"]["description"]
    assert list(judge(document).iter_errors())


@pytest.mark.parametrize("model", ["mlp", "stats", "versions", "v2"])
def test_its_paths_are_the_routes(model: str) -> None:
    router = routes.Router(model, "3")
    document = openapi.describe(router.places, MLP.schema, certificates=False)
    assert set(document["paths"]) == set(router.places)
    found: dict[str, set[tuple[bytes, ...]]] = {}
    for path, operations in document["paths"].items():
        route = router.find(path.encode())
        assert route is not None
        assert router.find(path.encode() + b"/") is route
        methods = tuple(each.upper().encode() for each in operations)
        found.setdefault(route.name, set()).add(methods)
        for operation in operations.values():
            scopes = [scope for each in operation["security"] for scope in each["bearer"]]
            assert scopes == ([route.scope] if route.scope else [])
            assert ("requestBody" in operation) == (route.name in routes.WITH_BODY)
    assert found == {route.name: {route.methods} for route in routes.ROUTES}


def test_an_experiments_headers_are_described_where_they_mean_something() -> None:
    places = routes.Router("mlp", "1").places
    document = openapi.describe(places, MLP.schema, certificates=False, key="x-customer")
    assert [*judge(document).iter_errors()] == []
    named = {
        path: [each["name"] for each in document["paths"][path]["post"]["parameters"]]
        for path in ("/v2/models/mlp/infer", "/v2/models/mlp/versions/1/infer")
    }
    assert named["/v2/models/mlp/infer"][-2:] == ["x-customer", "falaj-arm"]
    assert "x-customer" not in named["/v2/models/mlp/versions/1/infer"]


def test_a_route_that_nobody_describes_fails() -> None:
    places = {"/v2/new": routes.Route("new", (b"GET",), "predict")}
    with pytest.raises(KeyError):
        openapi.describe(places, MLP.schema, certificates=False)


def test_certificates_are_named_where_they_are_taken() -> None:
    for certificates in (True, False):
        document = described(MLP, certificates=certificates)
        means = document["components"]["securitySchemes"]
        assert ("certificate" in means) == certificates
        infer = document["paths"]["/v2/models/mlp/infer"]["post"]
        assert [list(each) for each in infer["security"]] == [[each] for each in means]


# -- bodies ----------------------------------------------------------------------------------


def is_taken(served: Model, request: Any) -> bool:
    try:
        served.schema.read(orjson.dumps(request), None)
    except RequestError:
        return False
    return True


def table(age: Any = 1.5, city: Any = "Dubai", rows: int = 1, **more: Any) -> dict[str, Any]:
    inputs = [
        {"name": "age", "datatype": "FP32", "shape": [rows, 1], "data": [age] * rows},
        {"name": "city", "datatype": "BYTES", "shape": [rows, 1], "data": [city] * rows},
    ]
    return {"inputs": inputs, **more}


def changed(**changes: Any) -> dict[str, Any]:
    request = table()
    request["inputs"][0] |= changes
    return request


TAKEN: dict[str, tuple[str, Any]] = {
    "a row": ("mlp", row()),
    "a nested row": ("mlp", {"inputs": [row()["inputs"][0] | {"data": [[0.5] * 64]}]}),
    "rows, nested": ("mlp", {"inputs": [row()["inputs"][0] | {
        "shape": [2, 64], "data": [[0.5] * 64] * 2}]}),
    "whole numbers": ("mlp", row([1] * 64)),
    "null where it is taken": ("table", table(None, None)),
    "the largest of FP32, in few digits": ("table", table(-3.4028235e38)),
    "rows": ("table", table(rows=32)),
    "the other way round": ("table", {"inputs": table()["inputs"][::-1]}),
    "an id": ("table", table(id="a" * 1024)),
    "an output": ("table", table(outputs=[{"name": "score"}])),
    "binary output": (
        "table", table(outputs=[{"name": "label", "parameters": {"binary_data": True}}])
    ),
    "all in binary": ("table", table(parameters={"binary_data_output": True})),
    "what is unknown": ("table", table(other=1)),
    **{
        f"{name} {value}": (name, echo_request(name, [value, value]))
        for name, values in {
            "BOOL": [True], "UINT8": [0, 255], "INT8": [-128, 127], "INT32": [-(2**31)],
            "UINT64": [2**64 - 1], "INT64": [-(2**63)], "FP64": [1e300], "BYTES": ["", None],
        }.items()
        for value in values
    },
}  # fmt: skip
REFUSED: dict[str, tuple[str, Any]] = {
    "nothing": ("table", {}),
    "no object": ("table", []),
    "null": ("table", None),
    "no inputs": ("table", {"inputs": []}),
    "an input is missing": ("table", {"inputs": table()["inputs"][:1]}),
    "an input too many": ("table", {"inputs": [*table()["inputs"], table()["inputs"][0]]}),
    "half nested": ("mlp", {"inputs": [row()["inputs"][0] | {
        "shape": [2, 64], "data": [[0.5] * 64, *[0.5] * 64]}]}),
    "nested too deep": ("mlp", {"inputs": [row()["inputs"][0] | {"data": [[[0.5] * 64]]}]}),
    "another name": ("table", changed(name="Age")),
    "another datatype": ("table", changed(datatype="FP64")),
    "no shape": ("table", changed(shape=None)),
    "another rank": ("table", changed(shape=[1])),
    "another size": ("table", changed(shape=[1, 2])),
    "no rows": ("table", changed(shape=[0, 1], data=[])),
    "too many rows": ("table", table(rows=33)),
    "no data": ("table", changed(data=None)),
    "a text for a number": ("table", table("1")),
    "a number for a text": ("table", table(city=1)),
    "true for a number": ("table", table(True)),
    "beyond FP32": ("table", table(1e39)),
    "just beyond FP32": ("table", table(3.4028235677973366e38)),
    "null where it isn't taken": ("mlp", row([None] * 64)),
    "a long id": ("table", table(id="a" * 1025)),
    "a number as id": ("table", table(id=1)),
    "an unknown output": ("table", table(outputs=[{"name": "other"}])),
    "an output of no name": ("table", table(outputs=[{}])),
    "no list of outputs": ("table", table(outputs={})),
    "a word for a flag": ("table", table(parameters={"binary_data_output": "yes"})),
    "no parameters": ("table", table(parameters=[])),
    "FP16 in JSON": ("FP16", echo_request("FP16", [1, 2])),
    **{
        f"{name} {value}": (name, echo_request(name, [value, value]))
        for name, values in {
            "BOOL": [1, None], "UINT8": [-1, 256, 0.5, True, None], "INT8": [128, "1"],
            "INT32": [2**31], "UINT64": [-1], "INT64": [2**63], "FP64": ["1", None],
            "BYTES": [1, True],
        }.items()
        for value in values
    },
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_what_the_server_takes_is_described(name: str) -> None:
    model, request = TAKEN[name]
    document = described(MODELS[model])
    assert is_taken(MODELS[model], request)
    assert fits(document, {"$ref": "#/components/schemas/InferRequest"}, request)


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_server_refuses_is_not(name: str) -> None:
    model, request = REFUSED[name]
    document = described(MODELS[model])
    assert not is_taken(MODELS[model], request)
    assert not fits(document, {"$ref": "#/components/schemas/InferRequest"}, request)


# -- the server ------------------------------------------------------------------------------


def test_who_may_infer_may_read_it(running: Server, token: str) -> None:
    connection = running.connect()
    status, document = call(connection, "GET", "/v2/openapi.json", token=token)
    assert (status, document["openapi"]) == (200, "3.1.0")
    judge(document).validate()
    # Of what is answered here: these settings have drift watched, and no jobs taken.
    assert "/v2/models/mlp/drift" in document["paths"]
    assert not [path for path in document["paths"] if "/jobs" in path]
    assert call(connection, "GET", "/v2/openapi.json")[0] == 401
    other = running.site.token("observe")
    status, answer = call(connection, "GET", "/v2/openapi.json", token=other)
    assert (status, "predict" in answer["error"]) == (403, True)


BODIES = {routes.INFER: row(), routes.JOBS: row(), routes.INDEX: {"ready": True},
          routes.FEEDBACK: {"labels": [{"id": "a", "label": "1"}]}}  # fmt: skip


PLAIN = {"Date", "Content-Type", "Content-Length", "Connection"}
"""Headers that HTTP itself has, of which nothing is to be said."""


def sent(
    connection: Any, method: str, path: str, token: str = "", body: Any = None
) -> tuple[int, dict[str, str], Any]:
    """Send a request; returns the status, the headers and what the body says."""
    connection.request(
        method, path, body=None if body is None else orjson.dumps(body),
        headers={"Authorization": f"Bearer {token}"} if token else {},
    )  # fmt: skip
    answer = connection.getresponse()
    content = answer.read()
    if content and answer.headers["Content-Type"] == "application/json":
        content = orjson.loads(content)
    return answer.status, dict(answer.headers), content


def described_headers(
    document: Mapping[str, Any], operation: Mapping[str, Any], status: int
) -> dict[str, Any]:
    response = operation["responses"].get(str(status), operation["responses"]["default"])
    if "$ref" in response:
        response = document["components"]["responses"][response["$ref"].rpartition("/")[2]]
    return response.get("headers", {})


def assert_headers(
    document: Mapping[str, Any], operation: Mapping[str, Any], status: int, given: dict[str, str]
) -> None:
    """What is answered is described, and what is promised is answered."""
    said = described_headers(document, operation, status)
    assert given.keys() - PLAIN <= said.keys()
    assert {name for name, each in said.items() if each.get("required")} <= given.keys()
    for name in given.keys() & said.keys():
        schema = said[name]["schema"]
        value = int(given[name]) if schema["type"] == "integer" else given[name]
        assert fits(document, schema, value), (name, value)


def test_what_is_accepted_says_where_it_is_and_when_to_ask() -> None:
    document = described(MLP)
    for path in ("/v2/models/mlp/jobs", f"/v2/models/mlp/versions/{MLP.version}/jobs"):
        said = described_headers(document, document["paths"][path]["post"], 202)
        assert {name for name, each in said.items() if each["required"]} == {
            "Location", "Retry-After"
        }  # fmt: skip
    job = document["paths"]["/v2/models/mlp/jobs/{id}"]
    for method in ("get", "head"):
        assert not described_headers(document, job[method], 200)["Retry-After"]["required"]
    assert described_headers(document, job["delete"], 200) == {}
    infer = document["paths"]["/v2/models/mlp/infer"]["post"]
    for status, name in ((401, "WWW-Authenticate"), (405, "Allow"), (415, "Accept-Encoding"),
                         (429, "Retry-After"), (503, "Retry-After")):  # fmt: skip
        assert name in described_headers(document, infer, status)


def test_every_path_answers_as_it_is_described(site: Site, start: Callable[..., Server]) -> None:
    site.write(jobs={"keep_hours": 24})
    server = start(site).serving(site.publish(models.mlp()))
    token, connection = site.token(*SCOPES), server.connect()

    def job() -> str:
        """A new one that is done."""
        told = call(connection, "POST", "/v2/models/mlp/jobs", token=token, body=row())[1]
        place = f"/v2/models/mlp/jobs/{told['id']}"
        wait_for(
            lambda: call(connection, "GET", place, token=token)[1]["state"] == "done",
            "the job to be done",
        )
        return told["id"]

    _, document = call(connection, "GET", "/v2/openapi.json", token=token)
    names = {path: route.name for path, route in routes.Router("mlp", "1").places.items()}
    for template, operations in document["paths"].items():
        path = template.format(id=job()) if "{id}" in template else template
        # What removes comes last.
        for method, operation in sorted(operations.items(), key=lambda each: each[0] == "delete"):
            body = BODIES.get(names[template])
            if method == "head":
                status, told, answer = sent(connection, "HEAD", path, token)
                assert (status, answer) == (200, b"")
                assert_headers(document, operation, status, told)
                continue
            if operation["security"]:
                status, told, _ = sent(connection, method.upper(), path, body=body)
                assert status == 401
                assert_headers(document, operation, status, told)
            if body is not None:
                said = operation["requestBody"]["content"]["application/json"]["schema"]
                assert fits(document, said, body)
                assert not fits(document, said, [])
            status, told, answer = sent(connection, method.upper(), path, token, body)
            assert 200 <= status < 300, (path, answer)
            assert_headers(document, operation, status, told)
            ((kind, content), *_) = operation["responses"][str(status)]["content"].items()
            if kind == "text/plain":
                answer = answer.decode()
            assert fits(document, content["schema"], answer), (path, answer)
            assert not fits(document, content["schema"], 1)
        status, told, answer = sent(connection, "PUT", path, token)
        assert status == 405
        assert_headers(document, next(iter(operations.values())), status, told)
        assert fits(document, {"$ref": "#/components/schemas/Error"}, answer)
    assert server.stop() == 0
