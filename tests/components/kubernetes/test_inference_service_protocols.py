"""gRPC and drift of inference services: the same words as on one machine, and the server's own."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import orjson
import pulumi
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.components.hosting import DescribedComponents
from falaj.components.kubernetes.inference_service import InferenceService
from falaj.components.local.provider.resources.inference_service import InferenceServiceHandler
from falaj.components.specification.arguments import arguments_of
from falaj.components.specification.drift import DriftArgs
from falaj.components.specification.property_names import camel
from falaj.stacks.errors import SettingsError
from falaj.stacks.settings import validate
from falaj.stacks.settings.local import DriftSettings
from falaj.workloads.bounds import DRIFT, SERVICE
from falaj.workloads.inference import configuration, settings
from tests.components.kubernetes.serving_services import GPU, OVERFLOW, pod_of, service
from tests.stacks.in_mocks import shipped

ROOT = Path(__file__).resolve().parents[3]
MIB = 1024 * 1024
#: Wrong values of drift, by key as a stack writes it.
WRONG: list[tuple[Any, str]] = [
    ({"windowRows": 199}, "windowRows"),
    ({"windowRows": 1_000_001}, "windowRows"),
    ({"windowRows": "many"}, "windowRows"),
    ({"windowRows": 250.5}, "windowRows"),
    ({"windowRows": True}, "windowRows"),
    ({"windowSeconds": 0}, "windowSeconds"),
    ({"windowSeconds": 604_801}, "windowSeconds"),
    ({"alpha": 0}, "alpha"),
    ({"alpha": 0.2}, "alpha"),
    ({"alpha": float("nan")}, "alpha"),
    ({"alpha": float("inf")}, "alpha"),
    ({"alpha": [0.01]}, "alpha"),
    ({"enabled": "no"}, "enabled"),
    ({"enabled": 1}, "enabled"),
    ({"windowrows": 1_000}, "windowrows"),
    ({"window": 1_000}, "window"),
]


def configured(pod: dict[str, Any]) -> settings.Settings:
    """What the server makes of the command that writes its configuration, by its own parser."""
    [command] = [each["command"] for each in pod["initContainers"] if each["name"] == "configure"]
    assert command[:4] == ["python", "-m", "falaj.workloads.inference", "configure"]
    parser = argparse.ArgumentParser()
    configuration.add_options(parser)
    document = configuration.document(parser.parse_args(command[4:]))
    return settings.parse(Path("service.json"), orjson.dumps(document))


def memory(pod: dict[str, Any]) -> int:
    """What the server's container may take, in MiB; it is promised as much."""
    resources = pod["containers"][0]["resources"]
    assert resources["requests"]["memory"] == resources["limits"]["memory"]
    return int(resources["limits"]["memory"].removesuffix("Mi"))


def refusal(config: dict[str, Any], at: str) -> list[str]:
    """What a stack is refused with, without the path that leads to the section."""
    with pytest.raises(SettingsError) as refused:
        validate(config, ROOT, stack="dev")
    lines = [line.strip() for line in str(refused.value).splitlines() if at in line]
    assert lines, str(refused.value)
    return [line.partition(at)[2] for line in lines]


def in_cluster(drift: Any, **more: Any) -> dict[str, Any]:
    credit = {
        "model": "credit", "packageName": "models/credit", "keySecret": "acme/model-keys",
        "tokenIssuer": "https://login.example.ae", "drift": drift, **more,
        "versions": [{"version": 7, "weight": 100}],
    }  # fmt: skip
    return {**shipped("onprem-workloads"), "falaj:inferenceServices": {"credit": credit}}


def on_one_machine(drift: Any, **more: Any) -> dict[str, Any]:
    return {"falaj:platform": "local", "falaj:service": {"drift": drift, **more}}


@pytest.mark.parametrize(("drift", "key"), WRONG)
def test_a_stack_is_refused_with_the_same_words_as_on_one_machine(drift: Any, key: str) -> None:
    there = refusal(in_cluster(drift), "falaj:inferenceServices.credit.drift")
    here = refusal(on_one_machine(drift), "falaj:service.drift")
    assert there == here
    assert any(key in line for line in there)


@pytest.mark.parametrize("drift", [True, "off", [], 7, {"": 1}])
def test_drift_is_a_section_in_both(drift: Any) -> None:
    assert refusal(in_cluster(drift), "credit.drift") == refusal(
        on_one_machine(drift), "service.drift"
    )


@pytest.mark.parametrize("grpc", ["yes", 1, [], {}])
def test_grpc_is_true_or_false_in_both(grpc: Any) -> None:
    [there, _] = refusal(in_cluster({}, grpc=grpc), "credit.grpc")
    [here, _] = refusal(on_one_machine({}, grpc=grpc), "service.grpc")
    # Not the second, a command that writes the default, which is another one.
    assert there == here
    assert "true" in here


@pytest.mark.parametrize("batching", ["yes", 1, [], {}])
def test_batching_is_true_or_false_in_both(batching: Any) -> None:
    there, *_ = refusal(in_cluster({}, batching=batching), "credit.batching")
    here, *_ = refusal(on_one_machine({}, batching=batching), "service.batching")
    assert there == here
    assert "true" in here


def test_requests_run_together_where_that_is_asked_for() -> None:
    assert not configured(pod_of(service(), "credit-risk-v7")).batching
    assert configured(pod_of(service(batching=True), "credit-risk-v7")).batching
    assert service(batching=False) == service()


@pytest.mark.parametrize(
    ("drift", "path", "words"),
    [
        ({"window_rows": 199}, "drift.window_rows", "a whole number from 200 to 1000000"),
        ({"window_rows": "many"}, "drift.window_rows", "a whole number from 200 to 1000000"),
        ({"window_seconds": 0.5}, "drift.window_seconds", "a whole number from 1 to 604800"),
        ({"alpha": float("nan")}, "drift.alpha", "a number from 1e-09 to 0.1"),
        ({"alpha": "0.01"}, "drift.alpha", "a number from 1e-09 to 0.1"),
        ({"enabled": "no"}, "drift.enabled", "true or false"),
        ({"windowRows": 1_000}, "drift.windowRows", "did you mean 'window_rows'?"),
        (False, "drift", "an object with alpha, enabled, window_rows, window_seconds"),
        ([], "drift", "an object with"),
    ],
)
def test_a_program_is_refused_with_the_path(drift: Any, path: str, words: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        service(drift=drift)
    assert {path} == {str(each["property_path"]) for each in refused.value.errors or ()}
    assert words in str(refused.value)


@pytest.mark.parametrize("grpc", ["true", 1, []])
def test_a_program_says_grpc_by_a_truth_value(grpc: Any) -> None:
    with pytest.raises(pulumi.InputPropertiesError, match=r"grpc: given .*; allowed: true or f"):
        service(grpc=grpc)


def test_a_body_that_grpc_does_not_take_is_refused_with_grpc() -> None:
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        service(grpc=True, max_body_mib=256)
    assert "max_body_mib: given 256; allowed: a whole number from 1 to 255" in str(refused.value)
    found = configured(pod_of(service(max_body_mib=1024), "credit-risk-v7"))
    assert found.limits.max_body_bytes == SERVICE["max_body_bytes"].high


def test_bounds_and_defaults_are_the_server_s() -> None:
    known, here = settings.DriftSettings(), DriftSettings()
    table = InferenceServiceHandler.table
    for name, argument in arguments_of(DriftArgs).items():
        assert argument.default is not None
        default = getattr(known, name)
        assert argument.default.value == getattr(here, name) == default
        if name in DRIFT:
            limit, field = argument.limit, table[camel(f"drift_{name}")]
            assert (limit.low, limit.high) == (DRIFT[name].low, DRIFT[name].high)  # type: ignore[union-attr]
            assert field.default == default
    assert {*DRIFT, "enabled"} == set(arguments_of(DriftArgs))


def test_what_is_left_out_is_as_the_server_has_it_but_grpc_whose_memory_is_asked_for() -> None:
    found = configured(pod_of(service(), "credit-risk-v7"))
    assert found.drift == settings.DriftSettings()
    assert not found.grpc
    assert memory(pod_of(service(), "credit-risk-v7")) == 2048


@pytest.mark.parametrize("drift", [None, {}, {"enabled": None, "alpha": None}])
def test_nothing_is_as_what_is_left_out(drift: Any) -> None:
    assert service(drift=drift) == service()


def test_drift_that_is_not_watched_is_not_watched() -> None:
    changed = service(drift={"enabled": False, "window_rows": 500})
    found = configured(pod_of(changed, "credit-risk-v8"))
    assert not found.drift.enabled


@given(
    drift=st.fixed_dictionaries(
        {},
        optional={
            "window_rows": st.integers(200, 1_000_000),
            "window_seconds": st.integers(1, 604_800),
            "alpha": st.floats(1e-9, 0.1),
        },
    ),
    cpus=st.floats(0.5, 256),
    body=st.integers(1, 255),
    gpu=st.booleans(),
)
def test_the_server_takes_whatever_the_component_does(
    drift: dict[str, Any], cpus: float, body: int, gpu: bool
) -> None:
    tier: dict[str, Any] = GPU if gpu else {"overflow": OVERFLOW}
    name = "credit-risk-gpu" if gpu else "credit-risk"
    given: dict[str, Any] = {"cpus": cpus, "max_body_mib": body, "drift": drift, **tier}
    plain = pod_of(service(name, **given), f"{name}-v7")
    asked = pod_of(service(name, **given, grpc=True), f"{name}-v7")
    found = configured(asked)
    assert found.drift == settings.DriftSettings(**drift)
    assert found.grpc
    # What its processes can't go beyond is what the replica was given for them, all of them.
    ceiling = found.limits.grpc_memory_bytes
    assert ceiling is not None
    assert SERVICE["grpc_memory_bytes"].allows(ceiling)
    assert ceiling > 16 * found.limits.max_body_bytes
    assert (memory(asked) - memory(plain)) * MIB == found.workers * ceiling
    assert configured(plain).limits.grpc_memory_bytes is None


def test_the_ports_stay_and_probes_ask_by_http() -> None:
    """gRPC comes over the port of HTTP, in TLS: policies and services needn't know."""
    plain, asked = service(), service(grpc=True)
    kinds = ("NetworkPolicy", "Service", "HTTPRoute", "BackendTLSPolicy", "PodMonitor",
             "AuthorizationPolicy", "PeerAuthentication")  # fmt: skip
    assert [each for each in plain if each["kind"] in kinds] == [
        each for each in asked if each["kind"] in kinds
    ]
    server = pod_of(asked, "credit-risk-v7")["containers"][0]
    assert [port["containerPort"] for port in server["ports"]] == [8443]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert server[probe]["httpGet"]["scheme"] == "HTTPS"


def test_programs_in_other_languages_see_drift_with_its_types() -> None:
    host = DescribedComponents([InferenceService], "falaj-kubernetes", "1.0.0")
    schema: dict[str, Any] = json.loads(str(host.schema))
    inputs = schema["resources"]["falaj-kubernetes:index:InferenceService"]["inputProperties"]
    assert inputs["grpc"]["type"] == "boolean"
    options = schema["types"][inputs["drift"]["$ref"].removeprefix("#/types/")]["properties"]
    assert {name: each["type"] for name, each in options.items()} == {
        "enabled": "boolean", "windowRows": "integer", "windowSeconds": "integer",
        "alpha": "number",
    }  # fmt: skip
    # Limits are off for as long as the SDK reads them, and no longer.
    assert arguments_of(DriftArgs)["alpha"].limit is not None
    assert "Annotated" in str(DriftArgs.__annotations__["alpha"])
