"""What an inference service in a cluster renders, and what it refuses."""

from __future__ import annotations

from typing import Any, cast

import pulumi
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from falaj.components.kubernetes._objects import Manifest, key_of, type_of
from falaj.components.kubernetes.inference_service import InferenceServiceArgs, check
from falaj.components.kubernetes.inference_service.arguments import PORT
from falaj.policies.model import Stack
from falaj.policies.model.judge import Judge
from falaj.policies.model.settings import Settings
from falaj.policies.rules import all_rules
from tests.components.kubernetes.cluster_parts import difference, same_as_golden, shown
from tests.components.kubernetes.serving_services import (
    DIGEST,
    GPU,
    KEYS,
    OVERFLOW,
    PLACES,
    TEXTS,
    arguments,
    by_key,
    pod_of,
    service,
)
from tests.policies.cases import resource_of

#: A site and registries that aren't the clouds' own are named once in the packs' settings.
SETTINGS = Settings(
    allowed_sites=("abu-dhabi-1",),
    allowed_registries=("registry.acme.example/falaj", "acmeuaenorth.azurecr.io/falaj"),
)
ONE = [{"version": 7, "weight": 100, "package_digest": DIGEST, "keys_digest": KEYS}]
#: What is refused: changed arguments, the argument that is named, and words of the reason.
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"tier": "tpu"}, "tier", "cpu, gpu"),
    ({"tier": "gpu"}, "flavor", "needed where tier is 'gpu'"),
    ({**GPU, "overflow_from": None, "flavor": "l4-time-slicing-4", "data_class": "restricted"},
     "flavor", "share its memory unprotected"),
    ({**GPU, "overflow_from": None, "overflow": OVERFLOW}, "overflow", "is for tier 'cpu'"),
    ({"overflow_from": "credit-risk"}, "overflow_from", "another InferenceService"),
    ({**GPU, "gateway": "team/own"}, "gateway", "is for a service with a route"),
    ({**GPU, "host_names": ["models.acme.example"]}, "host_names", "leave it out"),
    ({"kind": "chat"}, "kind", "predictive, language"),
    ({"kind": "language"}, "host_names", "paths below /v1 name no model"),
    ({"kind": "language", "host_names": []}, "host_names", "paths below /v1 name no model"),
    ({**GPU, "kind": "language"}, "kind", "is for a service with a route"),
    ({**TEXTS, "host_names": None}, "host_names", "paths below /v1 name no model"),
    ({**TEXTS, "flavor": None}, "flavor", "needed where tier is 'gpu'"),
    ({**TEXTS, "flavor": "l4-time-slicing-4"}, "flavor", "by time-slicing"),
    ({**TEXTS, "flavor": "h200-mig-1g.18gb", "gpus": 2}, "gpus", "among whole GPUs"),
    ({**TEXTS, "gpus": 3}, "gpus", "one of 1, 2, 4, 8"),
    ({**TEXTS, "grpc": True}, "grpc", "goes on with texts alone"),
    ({**TEXTS, "max_batch": 8}, "max_batch", "is Triton's"),
    ({**TEXTS, "gpu_memory_utilization": 1.0}, "gpu_memory_utilization", "from 0.1 to 0.98"),
    ({**TEXTS, "max_model_length": 8}, "max_model_length", "from 9 to 32769"),
    ({**TEXTS, "precision": "int8"}, "precision", "bfloat16, float16, float32"),
    ({"precision": "float32"}, "precision", "is for kind 'language' of tier 'gpu'"),
    ({**GPU, "max_model_length": 99}, "max_model_length", "is for kind 'language' of tier 'gpu'"),
    ({"kind": "language", "overflow_from": "other"}, "kind", "is for a service with a route"),
    ({"max_tokens": 0}, "max_tokens", "from 1 to 100000"),
    ({"max_tokens": 100_001}, "max_tokens", "from 1 to 100000"),
    ({"gpus": 2}, "gpus", "is for tier 'gpu'"),
    ({"modle": "x"}, "modle", "did you mean 'model'?"),
    ({"model": "../etc"}, "model", "1 to 64 letters"),
    ({"package_source": "hub"}, "package_source", "image, claim"),
    ({"package_name": "https://hub.example/m"}, "package_name", "below the registry"),
    ({"package_path": "a"}, "package_path", "is for package_source 'claim'"),
    ({"package_source": "claim", "package_path": "../.."}, "package_path", "a folder"),
    ({"versions": []}, "versions", "1 to 8"),
    ({"versions": "7"}, "versions", "1 to 8"),
    ({"versions": [{**ONE[0], "weight": 90}]}, "versions",
     "add up to 90"),
    ({"versions": [*ONE, {**ONE[0], "weight": 0}]}, "versions",
     "version 7 twice"),
    ({"versions": [{**ONE[0], "keys_digest": "v7.keys.1"}]}, "versions[0].keys_digest",
     "sha256:"),
    ({"versions": [{"version": 7, "weight": 100, "package_digest": DIGEST}]},
     "versions[0].keys_digest", "`falaj models pin` writes them"),
    ({"package_source": "claim", "package_name": "models",
      "versions": [{"version": 7, "weight": 100, "keys_digest": DIGEST}]},
     "versions[0].keys_digest", "is for package_source 'image'"),
    ({"versions": [{**ONE[0], "package_digest": "latest"}]}, "versions[0].package_digest",
     "a tag could be moved"),
    ({"versions": [{**ONE[0], "wieght": 1}]}, "versions[0].wieght", "did you mean 'weight'?"),
    ({"versions": [{**ONE[0], "header": "a b"}]}, "versions[0].header", "a word"),
    ({"min_replicas": 1}, "min_replicas", "from 2"),
    ({"min_replicas": 5, "max_replicas": 4}, "max_replicas", "from 5"),
    ({"scale_to_zero": True, "hours": {"start": "0 7 * * *", "end": "0 19 * * *"}},
     "scale_to_zero", "false in production"),
    ({"scale_to_zero": True, "environment": "test"}, "scale_to_zero", "nothing would ever wake"),
    ({"environment": "test", "scale_to_zero": True, "hours": {"start": "7", "end": "0 19 * * *"}},
     "hours.start", "five fields of cron"),
    ({"hours": {"start": "0 7 * * *", "end": "0 19 * * *"}}, "hours", "scale_to_zero"),
    ({"overflow": {**OVERFLOW, "to": "credit-risk"}}, "overflow.to", "another InferenceService"),
    ({"overflow": {**OVERFLOW, "above": 1}}, "overflow.above", "did you mean 'above_ms'?"),
    ({"callers": [{"namespace": "*", "service_account": "a"}]}, "callers[0]", "without wildcards"),
    ({"callers": [{"namespace": "a"}]}, "callers[0]", "namespace and service_account"),
    ({"gateway": "falaj"}, "gateway", "namespace/name"),
    ({"host_names": ["a b"]}, "host_names", "a DNS name"),
    ({"key_secret": "globex/model-keys"}, "key_secret", "entries of the tenant: acme/…"),
    ({"key_secret": "acmeglobex/model-keys"}, "key_secret", "entries of the tenant: acme/…"),
    ({"token_keys": "{}"}, "token_keys", "a JWK set"),
    ({"token_keys": '{"keys":[{"kty":"oct","k":"x"}]}'}, "token_keys", "of another kind"),
    ({"token_keys": '{"keys":[{"kty":"OKP","crv":"Ed25519","x":"a","d":"b"}]}'}, "token_keys",
     "could make tokens"),
    ({"target_queue_ms": float("nan")}, "target_queue_ms", "a number from"),
    ({"prometheus": "file:///etc"}, "prometheus", "an address"),
    ({"cpus": 0}, "cpus", "0.5"),
    ({"grpc": "on"}, "grpc", "true or false"),
    ({"batching": 1}, "batching", "true or false"),
    ({"batching": True, "tier": "gpu", "flavor": "l4"}, "batching", "Triton batches by itself"),
    ({"drift": False}, "drift", "an object with alpha, enabled"),
    ({"images": {}}, "images.falaj-inference", "falaj images"),
]  # fmt: skip


def test_the_name_is_part_of_names_of_objects() -> None:
    for name in ("", "Credit", "a" * 41, "9a", "a-"):
        with pytest.raises(pulumi.InputPropertiesError, match="name: given"):
            service(name)


@pytest.mark.parametrize(("changes", "argument", "words"), REFUSED)
def test_refused_with_the_argument_and_what_is_allowed(
    changes: dict[str, Any], argument: str, words: str
) -> None:
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        service(**changes)
    found = {
        str(error["property_path"]): str(error["reason"])
        for error in cast("list[dict[str, str]]", refused.value.errors)
    }
    assert argument in found, found
    assert words in found[argument], found


@given(
    st.dictionaries(
        st.sampled_from(sorted(InferenceServiceArgs.__annotations__)),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text()
        | st.lists(st.text() | st.none() | st.dictionaries(st.text(), st.integers()))
        | st.dictionaries(st.text(), st.text()),
        max_size=4,
    )
)  # fmt: skip
@example({"distribution": True})
@example({"zones": [None], "environment": 1})
def test_any_input_is_rendered_or_refused(changes: dict[str, Any]) -> None:
    try:
        rendered = service(**changes)
    except pulumi.InputPropertiesError:
        return
    assert by_key(rendered)


def judged(listed: list[Manifest], namespace: str = "acme-serving") -> list[tuple[str, str, Any]]:
    """What all rules of all packs find in the objects, in a namespace as `Tenant` makes it."""
    around: list[dict[str, Any]] = [
        {
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {
                "name": namespace,
                "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
            },
        },
        {
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": "default-deny", "namespace": namespace},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
        },
    ]  # fmt: skip
    stack = Stack(
        tuple(
            resource_of({"type": type_of(each), "name": key_of(each), "properties": dict(each)})
            for each in (*around, *listed)
        ),
        name="service",
    )
    return [
        (each.rule.id, str(each.resource), each.findings)
        for each in Judge(all_rules(), SETTINGS).evaluate_stack(stack)
        if each.findings
    ]


@pytest.mark.parametrize("place", sorted(PLACES))
def test_every_rule_of_every_pack_is_met(place: str) -> None:
    assert judged(service(place=place, overflow=OVERFLOW, grpc=True)) == []
    assert judged(service("credit-risk-gpu", place, **GPU)) == []


def test_what_rules_look_for_is_found_when_it_is_missing() -> None:
    listed = [dict(each) for each in service(place="eks")]
    deployment = next(each for each in listed if each["kind"] == "Deployment")
    deployment["spec"]["template"]["spec"]["nodeSelector"] = {}
    deployment["spec"]["template"]["spec"]["containers"][0]["securityContext"] = {}
    found = {rule for rule, _, _ in judged(listed)}
    assert {"kubernetes-placement-pinned", "kubernetes-read-only-root"} <= found


def test_keys_are_mounted_for_the_container_that_checks_the_package_alone() -> None:
    listed = service(versions=ONE)
    assert judged(listed) == []
    pod = pod_of(listed, "credit-risk-v7")
    volumes = {each["name"]: each for each in pod["volumes"]}
    repository = "registry.acme.example/falaj/models/credit-risk"
    assert volumes["package"]["image"]["reference"] == f"{repository}@{DIGEST}"
    assert volumes["package-keys"]["image"]["reference"] == f"{repository}@{KEYS}"
    mounting = {
        container["name"]: mount
        for container in (*pod["initContainers"], *pod["containers"])
        for mount in container["volumeMounts"]
        if mount["name"] == "package-keys"
    }
    assert mounting == {
        "package": {"name": "package-keys", "mountPath": "/package-keys", "readOnly": True}
    }


def test_requests_go_by_header_first_then_by_weight() -> None:
    route = by_key(service())["HTTPRoute/credit-risk"]
    by_header, by_weight = route["spec"]["rules"]
    (match,) = by_header["matches"]
    assert match["headers"] == [{"type": "Exact", "name": "Falaj-Variant", "value": "next"}]
    assert [each["name"] for each in by_header["backendRefs"]] == ["credit-risk-v8"]
    shares = {each["name"]: each["weight"] for each in by_weight["backendRefs"]}
    assert shares == {"credit-risk-v7": 90, "credit-risk-v8": 10}
    assert "headers" not in by_weight["matches"][0]
    for rule in route["spec"]["rules"]:
        assert rule["matches"][0]["path"]["value"] == "/v2/models/credit-risk"


def test_texts_go_by_header_and_weight_as_well_under_a_host_of_their_own() -> None:
    hosts = ["notes.acme.example.ae"]
    made = by_key(service(
        kind="language", host_names=hosts, max_tokens=50, tokens_per_minute=700, keep_seconds=60
    ))  # fmt: skip
    route = made["HTTPRoute/credit-risk"]["spec"]
    assert route["hostnames"] == hosts
    for rule in route["rules"]:
        paths = [each["path"] for each in rule["matches"]]
        assert paths == [
            {"type": "PathPrefix", "value": value} for value in ("/v2/models/credit-risk", "/v1")
        ]
    by_header, by_weight = route["rules"]
    assert all(each["headers"] for each in by_header["matches"])
    assert not [each for each in by_weight["matches"] if "headers" in each]
    said = shown([made["Deployment/credit-risk-v7"]]).replace("\n", " ")
    assert "--max-tokens, '50'" in said
    assert "--tokens-per-minute, '700'" in said
    assert "--keep-seconds, '60'" in said
    for name in ("tokens_per_minute", "keep_seconds"):
        with pytest.raises(pulumi.InputPropertiesError, match=f"{name}: is for kind: language"):
            service(**{name: 700})


def test_a_new_version_leaves_the_old_one_as_it_was_and_a_rollback_is_weights_alone() -> None:
    before = by_key(service(versions=ONE))
    second = {**ONE[0], "version": 8, "weight": 20}
    during = by_key(service(versions=[{**ONE[0], "weight": 80}, second]))
    after = by_key(service(versions=[ONE[0], {**second, "weight": 0}]))
    changed = {name for name in before if before[name] != during[name]}
    assert changed == {
        "HTTPRoute/credit-risk", "BackendTLSPolicy/credit-risk", "Certificate/credit-risk-tls",
    }  # fmt: skip
    assert {name for name in during if during[name] != after[name]} == {"HTTPRoute/credit-risk"}


def test_only_the_gateway_prometheus_and_named_callers_get_in() -> None:
    objects = by_key(service())
    policy = objects["NetworkPolicy/credit-risk"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "egress" not in policy
    named, probes = policy["ingress"]
    spaces = [
        each["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
        for each in named["from"]
    ]
    assert spaces == ["acme-apps", "envoy-gateway-system", "monitoring"]
    assert [each["port"] for each in named["ports"]] == [PORT, 15008]
    assert probes["from"] == [{"ipBlock": {"cidr": "169.254.7.127/32"}}]
    (rule,) = objects["AuthorizationPolicy/credit-risk"]["spec"]["rules"]
    assert rule["from"][1]["source"]["principals"] == ["cluster.local/ns/acme-apps/sa/scoring"]
    strict = objects["PeerAuthentication/credit-risk"]["spec"]
    assert strict["mtls"] == {"mode": "STRICT"}
    bare = by_key(service(mesh=False))
    assert not {"AuthorizationPolicy/credit-risk", "PeerAuthentication/credit-risk"} & set(bare)
    assert "15008" not in str(bare["NetworkPolicy/credit-risk"])


@pytest.mark.parametrize("mesh", [True, False])
def test_callers_of_its_own_namespace_are_let_out_to_it(mesh: bool) -> None:
    neighbours = [{"namespace": "acme-serving", "service_account": "scoring"}]
    objects = by_key(service(callers=neighbours, mesh=mesh))
    policy = objects["NetworkPolicy/credit-risk-callers"]["spec"]
    assert policy["policyTypes"] == ["Egress"]
    assert policy["podSelector"] == {}
    (rule,) = policy["egress"]
    assert rule["ports"] == objects["NetworkPolicy/credit-risk"]["spec"]["ingress"][0]["ports"]
    (to,) = rule["to"]
    assert set(to) == {"podSelector"}
    selected = to["podSelector"]["matchLabels"].items()
    assert selected <= objects["Deployment/credit-risk-v7"]["metadata"]["labels"].items()
    assert "NetworkPolicy/credit-risk-callers" not in by_key(service())


def test_a_tier_that_overflows_reaches_the_other_and_nothing_else() -> None:
    here = by_key(service(overflow=OVERFLOW))["NetworkPolicy/credit-risk"]["spec"]["egress"]
    assert [each["port"] for each in here[0]["ports"]] == [53, 53]
    other = here[1]["to"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/name"]
    assert other == "credit-risk-gpu"
    there = by_key(service("credit-risk-gpu", **GPU))
    source = there["NetworkPolicy/credit-risk-gpu"]["spec"]["ingress"][1]["from"][0]
    assert source["podSelector"]["matchLabels"]["app.kubernetes.io/name"] == "credit-risk"
    (rule,) = there["AuthorizationPolicy/credit-risk-gpu"]["spec"]["rules"]
    assert "cluster.local/ns/acme-serving/sa/inference" in rule["from"][1]["source"]["principals"]


def test_a_tier_that_takes_overflow_has_no_way_in_from_outside() -> None:
    there = by_key(service("credit-risk-gpu", **GPU))
    assert not [name for name in there if name.startswith(("HTTPRoute", "BackendTLSPolicy"))]
    assert "envoy-gateway-system" not in str(there)
    # It believes the tokens that the other tier was shown.
    for pod in (
        pod_of(list(there.values()), "credit-risk-gpu-v7"),
        pod_of(service(), "credit-risk-v7"),
    ):
        (command,) = [
            each["command"] for each in pod["initContainers"] if each["name"] == "configure"
        ]
        assert command[command.index("--audience") + 1] == "falaj:acme:credit-risk"


def test_triton_listens_on_the_loopback_interface_only_and_shares_nothing() -> None:
    pod = pod_of(service("credit-risk-gpu", **GPU), "credit-risk-gpu-v7")
    triton = pod["initContainers"][-1]
    assert (triton["name"], triton["restartPolicy"]) == ("triton", "Always")
    command = triton["command"]
    assert "--http-address=127.0.0.1" in command
    assert "--allow-grpc=false" in command
    assert "--model-control-mode=explicit" in command
    (restricted,) = [each for each in command if each.startswith("--http-restricted-api=")]
    assert {"shared-memory", "model-repository"} <= set(
        restricted.partition("=")[2].partition(":")[0].split(",")
    )
    assert "ports" not in triton
    assert triton["resources"]["limits"]["nvidia.com/gpu"] == "1"
    (models,) = [each for each in triton["volumeMounts"] if each["name"] == "models"]
    assert models["readOnly"]
    volume = next(each for each in pod["volumes"] if each["name"] == "models")
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "1088Mi"}


@pytest.mark.parametrize(
    ("flavor", "resource"),
    [
        ("h200", "nvidia.com/gpu"),
        ("h200-mig-1g.18gb", "nvidia.com/mig-1g.18gb"),
        ("l4-time-slicing-4", "nvidia.com/gpu.shared"),
        ("h200-mig-1g.18gb-spot", "nvidia.com/mig-1g.18gb"),
    ],
)
def test_the_flavor_says_which_part_of_a_gpu(flavor: str, resource: str) -> None:
    pod = pod_of(service(**{**GPU, "overflow_from": None, "flavor": flavor}), "credit-risk-v7")
    assert pod["initContainers"][-1]["resources"]["limits"][resource] == "1"
    assert pod["nodeSelector"]["falaj.io/flavor"] == flavor


def test_scaling_follows_the_queue_and_what_fills_up() -> None:
    cpu = by_key(service())["ScaledObject/credit-risk-v8"]["spec"]
    assert (cpu["minReplicaCount"], cpu["maxReplicaCount"]) == (2, 10)
    assert [each["type"] for each in cpu["triggers"]] == ["prometheus", "cpu"]
    query = cpu["triggers"][0]["metadata"]["query"]
    assert 'pod=~"credit-risk-v8-.*"' in query
    gpu = by_key(service("credit-risk-gpu", **GPU, environment="test", scale_to_zero=True))
    spec = gpu["ScaledObject/credit-risk-gpu-v7"]["spec"]
    assert spec["minReplicaCount"] == 0
    queries = [each["metadata"]["query"] for each in spec["triggers"]]
    assert "DCGM_FI_PROF_GR_ENGINE_ACTIVE" in queries[1]
    assert "falaj_inference_overflow_wanted_total" in queries[2]


ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


@pytest.mark.parametrize(
    ("place", "changes", "wanted"),
    [
        ("eks", {}, {ZONE: "DoNotSchedule", HOST: "ScheduleAnyway"}),
        ("aks", {}, {ZONE: "DoNotSchedule", HOST: "ScheduleAnyway"}),
        ("aks", {"region": "uaecentral"}, {HOST: "ScheduleAnyway"}),
        ("existing", {}, {HOST: "ScheduleAnyway"}),
        ("existing", {"zones": ["a", "b"]}, {ZONE: "DoNotSchedule", HOST: "ScheduleAnyway"}),
        ("existing", {**GPU, "overflow_from": None}, {HOST: "ScheduleAnyway"}),
        (
            "existing", {**GPU, "overflow_from": None, "zones": ["a"]},
            {ZONE: "ScheduleAnyway", HOST: "ScheduleAnyway"},
        ),
    ],
)  # fmt: skip
def test_replicas_spread_over_what_nodes_carry(
    place: str, changes: dict[str, Any], wanted: dict[str, str]
) -> None:
    """A node without the label of a zone gets no pod that has to be spread over zones."""
    pod = pod_of(service(place=place, versions=ONE, **changes), "credit-risk-v7")
    found = {
        each["topologyKey"]: each["whenUnsatisfiable"] for each in pod["topologySpreadConstraints"]
    }
    assert found == wanted
    if "zones" in changes:  # all nodes that it may be on have the label
        assert ZONE in str(pod["affinity"]["nodeAffinity"])


def test_a_replica_leaves_in_order() -> None:
    pod = pod_of(service(drain_seconds=60), "credit-risk-v7")
    (server,) = pod["containers"]
    pause = server["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > pause + 60
    assert server["startupProbe"]["failureThreshold"] * 5 == 300


def test_texts_on_gpus_are_vllm_s_behind_the_server() -> None:
    made = service(
        "texts", **TEXTS, gpus=2, max_model_length=1025, gpu_memory_utilization=0.85,
        precision="float32",
    )  # fmt: skip
    pod = pod_of(made, "texts-v7")
    steps = {each["name"]: each for each in pod["initContainers"]}
    assert "triton" not in steps
    vllm = steps["vllm"]
    assert vllm["image"].endswith(f"@{DIGEST}")
    for option in (
        "--host=127.0.0.1", "--tensor-parallel-size=2", "--max-model-len=1025", "--dtype=float32",
        "--gpu-memory-utilization=0.85", "--load-format=safetensors", "--no-enable-log-requests",
    ):  # fmt: skip
        assert option in vllm["command"]
    assert vllm["resources"]["limits"]["nvidia.com/gpu"] == "2"
    told = {each["name"]: each["value"] for each in vllm["env"]}
    assert told["VLLM_NO_USAGE_STATS"] == told["HF_HUB_OFFLINE"] == told["DO_NOT_TRACK"] == "1"
    # What is open lies in memory; the other container only reads it.
    mounted = {each["name"]: each for each in vllm["volumeMounts"]}
    assert mounted["models"]["readOnly"] is True
    found = {each["name"]: each for each in pod["volumes"]}
    assert found["models"]["emptyDir"]["medium"] == "Memory"
    assert steps["unseal"]["command"][-4:] == ["--layout", "vllm", "--max-length", "1025"]
    asked = steps["configure"]["command"]
    assert asked[asked.index("--upstream-context") + 1] == "1024"
    assert judged(made) == []


def test_texts_on_gpus_differ_from_the_cpu_tier_as_reviewed() -> None:
    one = {"kind": "language", "host_names": TEXTS["host_names"], "versions": ONE}
    cpu, gpu = service(**one), service(**{**TEXTS, "versions": ONE})
    same_as_golden("serving-texts-gpu.diff", difference(shown(cpu), shown(gpu)))


def test_arguments_are_the_component_s_for_other_languages() -> None:
    spec = check("credit-risk", cast("InferenceServiceArgs", arguments(cpus=2.0, max_rows=16.0)))
    assert (spec.size.cpus, spec.operation.max_rows) == (2.0, 16)


def test_the_same_service_on_every_platform_reads_as_reviewed() -> None:
    here = shown(service(versions=ONE))
    same_as_golden("serving-existing.yaml", here)
    for place in ("eks", "aks"):
        there = shown(service(place=place, versions=ONE))
        same_as_golden(f"serving-{place}.diff", difference(here, there))


def test_the_gpu_tier_differs_from_the_cpu_tier_as_reviewed() -> None:
    cpu, gpu = service(versions=ONE), service(versions=ONE, **{**GPU, "overflow_from": None})
    same_as_golden("serving-gpu.diff", difference(shown(cpu), shown(gpu)))


def test_grpc_changes_the_server_s_options_and_its_memory_alone() -> None:
    plain, asked = service(versions=ONE), service(versions=ONE, grpc=True)
    same_as_golden("serving-grpc.diff", difference(shown(plain), shown(asked)))
