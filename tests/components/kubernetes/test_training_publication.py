"""What becomes of a model after its gang: who has which key, who reaches what, what ends it."""

from __future__ import annotations

import re
from typing import Any

import pulumi
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes.training_job import check
from falaj.components.specification.model_names import ALIAS, PUBLISHED_MODEL
from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization.__main__ import build_parser
from falaj.workloads.registry.__main__ import parser
from falaj.workloads.registry.package import check_alias
from falaj.workloads.registry.shelf import check_repository
from tests.components.kubernetes.training_jobs import (
    CPU,
    HOROVOD,
    OTHER_DIGEST,
    REGISTRY,
    arguments,
    findings,
    job,
    the,
)

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
PRIVATE = "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n"
PUBLISH: dict[str, Any] = {
    "model": "fraud",
    "key_secret": "acme/publishing-keys",
    "registry_cidrs": ["10.20.0.5/32"],
}
JOB: dict[str, Any] = {**CPU, "key_secret": "acme/training-keys"}


def publishing(place: str = "existing", **changes: Any) -> list[Manifest]:
    return job(place, **{**JOB, "publish": {**PUBLISH, **changes}})


def role(objects: list[Manifest], name: str) -> dict[str, Any]:
    (found,) = [
        each for each in the("JobSet", objects)["spec"]["replicatedJobs"] if each["name"] == name
    ]
    return found


def pod(objects: list[Manifest]) -> dict[str, Any]:
    return role(objects, "publish")["template"]["spec"]["template"]["spec"]


def containers(objects: list[Manifest]) -> dict[str, dict[str, Any]]:
    spec = pod(objects)
    return {each["name"]: each for each in (*spec["initContainers"], *spec["containers"])}


def sources(objects: list[Manifest], container: str) -> dict[str, dict[str, Any]]:
    """What a container has at each place."""
    volumes = {each["name"]: each for each in pod(objects)["volumes"]}
    mounts = containers(objects)[container]["volumeMounts"]
    return {each["mountPath"]: {**volumes[each["name"]], **each} for each in mounts}


def _with(**changes: Any) -> dict[str, Any]:
    return {**JOB, "publish": {**PUBLISH, **changes}}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({**_with(), "key_secret": None}, "publish: needs key_secret"),
    ({**_with(), "elastic": {"min_nodes": 1, "max_nodes": 2}}, "in a gang; leave out 'elastic'"),
    ({**JOB, **HOROVOD, "publish": PUBLISH}, "Falaj's own training in a gang"),
    ({**JOB, "publish": "fraud"}, "publish: given 'fraud'; allowed: an object with accept, alias"),
    ({**JOB, "publish": {}}, "publish.model: missing"),
    ({**JOB, "publish": {"model": "fraud"}}, "publish.key_secret: missing"),
    (_with(modle="x"), "publish.modle"),
    (_with(model="Fraud"), "publish.model: given 'Fraud'; allowed: 1 to 64 lower-case letters"),
    (_with(model=""), "publish.model: given ''; allowed: 1 to 64 lower-case letters"),
    (_with(model="a/b"), "publish.model"),
    (_with(model="a" * 65), "publish.model"),
    (_with(alias="v1.2"), "publish.alias"),
    (_with(key_secret="bank/publishing-keys"), "publish.key_secret: given 'bank/publishing-keys'"),
    (_with(registry_secret="bank/robot"), "publish.registry_secret"),
    (_with(registry_secret=""), "publish.registry_secret"),
    (_with(registry_cidrs=[]), "publish.registry_cidrs: given []; allowed: at least one range"),
    (_with(registry_cidrs=["0.0.0.0/0"]), "publish.registry_cidrs[0]"),
    (_with(registry_cidrs=["8.8.8.8/32"]), "private ranges"),
    (_with(registry_authority=PRIVATE), "certificates in PEM form"),
    (
        _with(registry_authority=PEM + PRIVATE),
        "certificates in PEM form and nothing else",
    ),
    (_with(least_accuracy=90), "publish.least_accuracy: given 90; allowed: a number from 0 to 1"),
    (_with(most_rmse=-1), "publish.most_rmse"),
    (_with(least_accuracy=0.5, most_rmse=2), "is for regressions"),
    (_with(most_nats=101), "publish.most_nats: given 101; allowed: a number from 0 to 100"),
    (
        _with(most_rmse=2, most_nats=2),
        "publish.most_nats: most_rmse is for regressions, most_nats is for language models",
    ),
    (_with(quantise="always"), "publish.quantise"),
    (_with(accept="all"), "publish.accept"),
    (_with(flavor="h200"), "publish.flavor: given 'h200'; allowed: nodes without GPUs"),
    ({**_with(), "flavor": "h200"}, "publish.flavor: given 'h200'; allowed: nodes without GPUs"),
    (_with(cpus=0), "publish.cpus"),
    (_with(scratch_gib=0), "publish.scratch_gib"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "reason"), REFUSED, ids=[each[1] for each in REFUSED])
def test_what_cannot_be_is_refused_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        check("fraud", arguments(**changes))
    said = str(refused.value)
    assert reason in said
    assert "PRIVATE KEY" not in said


def test_no_other_job_is_called_as_what_stands_beside_one() -> None:
    with pytest.raises(pulumi.InputPropertiesError, match="may not end in '-publish'"):
        check("fraud-publish", arguments())


def test_it_runs_once_the_gang_is_done_and_fails_alone() -> None:
    objects = publishing()
    spec = the("JobSet", objects)["spec"]
    assert role(objects, "publish")["dependsOn"] == [{"name": "node", "status": "Complete"}]
    first = spec["failurePolicy"]["rules"][0]
    assert (first["action"], first["targetReplicatedJobs"]) == ("FailJobSet", ["publish"])
    own = role(objects, "publish")["template"]["spec"]
    assert own["backoffLimit"] > 0
    actions = [each["action"] for each in own["podFailurePolicy"]["rules"]]
    assert actions == ["Ignore", "FailJob", "Ignore"]
    assert own["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"] == [2]


def test_who_trains_has_no_key_that_signs() -> None:
    objects = publishing()
    gang = role(objects, "node")["template"]["spec"]["template"]["spec"]
    secrets = {each["secret"]["secretName"] for each in gang["volumes"] if "secret" in each}
    assert secrets == {"fraud-keys"}
    assert "fraud-publish-keys" not in str(gang)


def test_who_reads_the_data_has_no_key_that_signs_and_who_signs_no_data() -> None:
    objects = publishing(registry_secret="acme/robot", registry_authority=PEM)
    optimise, publish = sources(objects, "optimise"), sources(objects, "publish")
    assert optimise["/runs"]["readOnly"]
    assert optimise["/data"]["readOnly"]
    assert optimise["/run/falaj/keys"]["name"] == "keys"
    assert not {"/run/falaj/registry", "/run/falaj/secret"} & optimise.keys()
    assert publish["/run/falaj/keys"]["name"] == "signing-keys"
    assert not {"/runs", "/data", "/run/falaj/secret"} & publish.keys()
    # Where the one leaves the sealed model for the other.
    assert optimise["/scratch"]["name"] == publish["/scratch"]["name"]
    names = [each["name"] for each in pod(objects)["initContainers"]]
    assert names == ["keys", "optimise", "signing-keys"]
    for name, secret, packed in (
        ("keys", "fraud-keys", "acme/training-keys"),
        ("signing-keys", "fraud-publish-keys", "acme/publishing-keys"),
    ):
        unpacks = sources(objects, name)
        assert unpacks["/run/falaj/secret"]["secret"]["secretName"] == secret
        assert unpacks["/run/falaj/keys"]["emptyDir"]["medium"] == "Memory"
        [entry] = [
            each for each in objects
            if each["kind"] == "ExternalSecret" and each["metadata"]["name"] == secret
        ]  # fmt: skip
        assert entry["spec"]["data"][0]["remoteRef"]["key"] == packed
        assert entry["metadata"]["labels"]["falaj.io/protected"] == "true"
        assert ("--signs" in containers(objects)[name]["command"]) == (name == "signing-keys")
    assert pod(objects)["automountServiceAccountToken"] is False


def test_it_reaches_the_registry_and_nothing_else() -> None:
    objects = publishing()
    policies = {
        each["metadata"]["name"]: each["spec"]
        for each in objects
        if each["kind"] == "NetworkPolicy"
    }
    own = policies["fraud-publish"]
    assert own["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in own
    resolver, registry = own["egress"]
    assert {each["port"] for each in resolver["ports"]} == {53}
    assert registry == {
        "to": [{"ipBlock": {"cidr": "10.20.0.5/32"}}],
        "ports": [{"port": 443, "protocol": "TCP"}],
    }
    template = role(objects, "publish")["template"]["spec"]["template"]
    labels = template["metadata"]["labels"]
    assert own["podSelector"]["matchLabels"].items() <= labels.items()
    assert not policies["fraud"]["podSelector"]["matchLabels"].items() <= labels.items()


def test_the_registry_s_own_port_is_let_through() -> None:
    objects = job(**{**JOB, "publish": PUBLISH, "registry": "registry.acme.example:8443/falaj"})
    [own] = [
        each for each in objects
        if each["kind"] == "NetworkPolicy" and each["metadata"]["name"] == "fraud-publish"
    ]  # fmt: skip
    assert own["spec"]["egress"][1]["ports"] == [{"port": 8443, "protocol": "TCP"}]


def test_its_commands_are_those_of_the_workloads() -> None:
    objects = publishing(
        registry_secret="acme/robot", least_accuracy=0.9, max_accuracy_drop=1, alias="next",
        quantise="never", accept="any",
    )  # fmt: skip
    optimise = containers(objects)["optimise"]["command"]
    assert optimise[:3] == ["python", "-m", "falaj.workloads.optimization"]
    read = build_parser().parse_args(optimise[3:])
    assert (str(read.run), str(read.dataset)) == ("/runs/fraud", "/data/digits/3fa0")
    assert (read.least_accuracy, read.max_accuracy_drop, read.quantise) == (0.9, 1.0, "never")
    assert (read.data_class, read.accept) == ("confidential", "any")
    publish = containers(objects)["publish"]["command"]
    sent = parser().parse_args(publish[3:])
    assert sent.command == "deliver"
    assert (sent.model, sent.alias, sent.to) == ("fraud", "next", f"{REGISTRY}/models")
    assert sent.source == read.output
    assert str(sent.login) == "/run/falaj/registry/config.json"


def test_a_gang_on_gpus_is_published_by_a_pod_without() -> None:
    objects = job(**{**JOB, "flavor": "h200", "publish": {**PUBLISH, "flavor": "cpu-x86-64"}})
    spec = pod(objects)
    assert spec["nodeSelector"]["falaj.io/flavor"] == "cpu-x86-64"
    for each in containers(objects).values():
        assert each["image"].endswith(OTHER_DIGEST)
        assert "nvidia.com/gpu" not in each["resources"]["limits"]
    assert "nvidia.com/gpu" not in str(spec["tolerations"])


def test_an_authority_of_one_s_own_is_trusted_by_who_publishes() -> None:
    objects = publishing(registry_authority=PEM)
    assert the("ConfigMap", objects)["data"]["registry.pem"] == PEM
    env = {each["name"]: each.get("value") for each in containers(objects)["publish"]["env"]}
    mounted = sources(objects, "publish")["/run/falaj/authority"]
    assert env["SSL_CERT_FILE"] == "/run/falaj/authority/registry.pem"
    assert mounted["configMap"]["name"] == "fraud-publish-authority"
    assert "SSL_CERT_FILE" not in str(containers(objects)["optimise"])


@pytest.mark.parametrize("place", ["eks", "aks", "existing"])
def test_the_packs_find_nothing(place: str) -> None:
    separator = "--" if place == "aks" else "/"
    changes = {
        **JOB,
        "key_secret": f"acme{separator}training-keys",
        "publish": {
            **PUBLISH,
            "key_secret": f"acme{separator}publishing-keys",
            "registry_secret": f"acme{separator}robot",
            "registry_authority": PEM,
        },
    }
    assert findings(job(place, **changes)) == []


def test_without_it_nothing_of_it_is_there() -> None:
    assert "fraud-publish" not in str(job(**JOB))


@given(st.from_regex(re.compile(r"[a-zA-Z0-9._/-]{0,70}"), fullmatch=True))
def test_models_are_called_as_registries_take_them(name: str) -> None:
    try:
        allowed = bool(check_repository(name))
    except WorkloadError:
        allowed = False
    assert PUBLISHED_MODEL.allows(name) == allowed


@given(st.from_regex(re.compile(r"[a-zA-Z0-9._-]{0,70}"), fullmatch=True))
def test_aliases_are_called_as_records_take_them(name: str) -> None:
    try:
        allowed = bool(check_alias(name))
    except WorkloadError:
        allowed = False
    assert ALIAS.allows(name) == allowed
