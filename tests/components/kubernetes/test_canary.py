"""Who decides between a stable version and its canary: what stands for it, and what it may do."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest

from falaj.components.kubernetes._objects import Manifest
from falaj.workloads.rollout.command import parser
from tests.components.kubernetes.cluster_parts import same_as_golden, shown
from tests.components.kubernetes.serving_services import (
    DIGEST,
    GPU,
    KEYS,
    PLACES,
    by_key,
    pod_of,
    service,
)
from tests.components.kubernetes.test_inference_service import judged

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
PUBLIC = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----\n"
PRIVATE = "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n"
JUDGE: dict[str, Any] = {"key_secret": "acme/publishing-keys", "registry_cidrs": ["10.20.0.5/32"]}
CANARY: dict[str, Any] = {
    "model": "credit-risk@candidate",
    "share": 10,
    "verify_key": PUBLIC,
    "judge": JUDGE,
}
ONE = [{"version": 7, "weight": 100, "package_digest": DIGEST, "keys_digest": KEYS}]
NAME = "credit-risk-judge"


def tried(
    place: str = "existing", *, judge: dict[str, Any] | None = None, **changes: Any
) -> list[Manifest]:
    given = {"key_secret": "acme--publishing-keys"} if place == "aks" else {}
    canary = {**CANARY, "judge": {**JUDGE, **given, **(judge or {})}}
    return service(place=place, canary=canary, **changes)


def job_of(listed: list[Manifest]) -> Manifest:
    return by_key(listed)[f"Job/{NAME}-v8"]


def _with(**changes: Any) -> dict[str, Any]:
    return {"canary": {**CANARY, **changes}}


def _judge(**changes: Any) -> dict[str, Any]:
    return _with(judge={**JUDGE, **changes})


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"canary": "credit-risk@candidate"},
        "canary: given 'credit-risk@candidate'; allowed: an obj",
    ),
    ({"canary": {}}, "canary.model: missing"),
    (_with(verify_key=None), "canary.verify_key: missing"),
    (_with(verify_key=PRIVATE), "canary.verify_key: given"),
    (_with(model="credit-risk"), "canary.model: given 'credit-risk'; allowed: MODEL@ALIAS"),
    (_with(model="credit-risk@v1.2"), "MODEL@ALIAS, such as credit@candidate"),
    (_with(model="other@candidate"), "an alias of the service's own model: credit-risk@…"),
    (_with(model="credit-risk@production"), "canary.stable: given 'production'; allowed: another"),
    (_with(stable="v 1"), "canary.stable"),
    (_with(share=0), "canary.share: given 0"),
    (_with(share=50), "canary.share: given 50"),
    (_with(share=20), "but versions have [10, 90]"),
    (_with(sahre=20), "canary.sahre"),
    (_with(steps=[]), "canary.steps"),
    (_with(steps=[50]), "canary.steps[0]: given 50"),
    (_with(steps=[10]), "canary.steps: given [10]; allowed: shares that grow"),
    (_with(steps=[30, 20]), "canary.steps: given [30, 20]; allowed: shares that grow"),
    (_with(steps=[20], judge=None), "canary.steps: are taken as a judge finds"),
    (_with(share=5, steps=[20]), "but versions have [10, 90]"),
    (_with(record=0), "canary.record: given 0"),
    ({**_with(), "package_name": "models/other"}, "canary: follows aliases of models/<model>"),
    ({**_with(), **GPU}, "canary: is for a service with a route"),
    (_with(judge="me"), "canary.judge: given 'me'"),
    (_with(judge={}), "canary.judge.key_secret: missing"),
    (_judge(key_secret="bank/keys"), "canary.judge.key_secret: given 'bank/keys'"),
    (_judge(registry_cidrs=["8.8.8.8/32"]), "canary.judge.registry_cidrs[0]"),
    (
        _judge(registry_authority=PRIVATE),
        "canary.judge.registry_authority: has to be certificates",
    ),
    (_judge(window_minutes=0), "canary.judge.window_minutes: given 0"),
    (_judge(window_minutes=90, deadline_hours=1), "at most the 1 hours of deadline_hours"),
    (_judge(least_requests=1), "canary.judge.least_requests: given 1"),
    (_judge(most_error_rise=-1), "canary.judge.most_error_rise"),
    (_judge(most_latency_rise="a"), "canary.judge.most_latency_rise"),
    (_judge(least_likeness=101), "canary.judge.least_likeness"),
]


@pytest.mark.parametrize(("changes", "reason"), REFUSED, ids=[each[1] for each in REFUSED])
def test_what_cannot_be_is_refused_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        service(**changes)
    assert reason in str(refused.value)


def test_no_other_service_is_called_as_what_stands_beside_one() -> None:
    with pytest.raises(pulumi.InputPropertiesError, match="no '-judge' at the end"):
        service(NAME)


def test_keys_that_a_rotation_left_valid_are_taken() -> None:
    rotated = service(canary={**CANARY, "verify_key": f"{PUBLIC}{PUBLIC}"})
    assert by_key(rotated) == by_key(tried())


@pytest.mark.parametrize("place", sorted(PLACES))
def test_every_rule_of_every_pack_is_met(place: str) -> None:
    login = {"registry_secret": "acme--robot" if place == "aks" else "acme/robot"}
    assert judged(tried(place, judge={**login, "registry_authority": PEM})) == []


def test_nothing_stands_beside_a_service_that_nobody_judges() -> None:
    plain = by_key(service())
    assert by_key(service(canary={**CANARY, "judge": None})) == plain
    alone = by_key(service(versions=ONE, canary=CANARY))
    assert alone == by_key(service(versions=ONE)), "one version alone has nothing to be judged"
    more = by_key(tried())
    assert {each for each in plain if plain[each] != more[each]} == {
        "NetworkPolicy/credit-risk", "AuthorizationPolicy/credit-risk",
    }  # fmt: skip


def test_a_canary_that_is_tried_once_more_is_judged_once_more() -> None:
    once, again = (by_key(service(canary={**CANARY, "record": each})) for each in (5, 7))
    assert [each for each in once if once[each] != again[each]] == [f"Job/{NAME}-v8"]
    templates = [each[f"Job/{NAME}-v8"]["spec"]["template"] for each in (once, again)]
    assert templates[0] != templates[1], "which no Job changes: it is another"


def test_with_each_share_it_is_told_the_next_and_with_the_last_none() -> None:
    def told(share: int, *steps: int) -> int | None:
        listed = service(canary={**CANARY, "share": share, "steps": [*steps]})
        (judge,) = job_of(listed)["spec"]["template"]["spec"]["containers"]
        return parser().parse_args(judge["command"][3:]).next_share

    # What the file's versions have is 10 %.
    assert told(10, 20, 40) == 20
    assert told(5, 10, 40) == 40
    assert told(2, 5, 10) is None
    assert parser().parse_args(
        job_of(tried())["spec"]["template"]["spec"]["containers"][0]["command"][3:]
    ).next_share is None  # fmt: skip


def test_it_has_no_right_in_the_cluster() -> None:
    listed = tried()
    kinds = {each["kind"] for each in listed}
    assert not kinds & {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
    assert by_key(listed)[f"ServiceAccount/{NAME}"]["automountServiceAccountToken"] is False
    pod = job_of(listed)["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == NAME
    assert pod["automountServiceAccountToken"] is False
    assert not [each for each in pod["volumes"] if "projected" in each]


def test_it_reaches_the_servers_and_the_registry_alone_and_nobody_it() -> None:
    objects = by_key(tried())
    policy = objects[f"NetworkPolicy/{NAME}"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policy
    names, servers, registry = policy["egress"]
    assert {each["port"] for each in names["ports"]} == {53}
    assert servers["to"] == [{"podSelector": {"matchLabels": {
        "app.kubernetes.io/name": "credit-risk", "app.kubernetes.io/component": "inference",
    }}}]  # fmt: skip
    assert registry == {
        "to": [{"ipBlock": {"cidr": "10.20.0.5/32"}}],
        "ports": [{"port": 443, "protocol": "TCP"}],
    }
    # The servers let it in by address and by identity, and its labels are none of theirs.
    labels = job_of(tried())["spec"]["template"]["metadata"]["labels"]
    own = objects["NetworkPolicy/credit-risk"]["spec"]["ingress"][1]
    assert own["from"] == [{"podSelector": policy["podSelector"]}]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert not servers["to"][0]["podSelector"]["matchLabels"].items() <= labels.items()
    (rule,) = objects["AuthorizationPolicy/credit-risk"]["spec"]["rules"]
    assert f"cluster.local/ns/acme-serving/sa/{NAME}" in rule["from"][1]["source"]["principals"]
    assert "15008" not in str(by_key(tried(mesh=False))[f"NetworkPolicy/{NAME}"])


def test_it_finds_every_replica_and_shows_the_certificate_that_observes() -> None:
    objects = by_key(tried())
    headless = objects[f"Service/{NAME}"]["spec"]
    assert headless["clusterIP"] == "None"
    for version in ("credit-risk-v7", "credit-risk-v8"):
        labels = objects[f"Deployment/{version}"]["spec"]["template"]["metadata"]["labels"]
        assert headless["selector"].items() <= labels.items()
    pod = job_of(tried())["spec"]["template"]["spec"]
    (observer,) = [each["secret"] for each in pod["volumes"] if each["name"] == "observer"]
    assert (
        observer["secretName"] == objects["Certificate/credit-risk-scraper"]["spec"]["secretName"]
    )


def test_only_it_has_the_key_that_signs() -> None:
    listed = tried(judge={"registry_secret": "acme/robot", "registry_authority": PEM})
    entry = by_key(listed)[f"ExternalSecret/{NAME}-keys"]["spec"]["data"][0]["remoteRef"]["key"]
    assert entry == "acme/publishing-keys"
    for version in ("credit-risk-v7", "credit-risk-v8"):
        assert "judge" not in str(pod_of(listed, version))
    pod = job_of(listed)["spec"]["template"]["spec"]
    (keys,), (judge,) = pod["initContainers"], pod["containers"]
    assert keys["command"][-1] == "--signs"
    assert [each["mountPath"] for each in judge["volumeMounts"]] == [
        "/run/falaj/keys", "/run/falaj/observer", "/tmp", "/run/falaj/registry",
        "/run/falaj/authority",
    ]  # fmt: skip
    assert {"name": "SSL_CERT_FILE", "value": "/run/falaj/authority/registry.pem"} in judge["env"]


def test_what_it_is_told_is_what_the_program_takes() -> None:
    listed = tried(judge={"registry_secret": "acme/robot", "least_requests": 5_000_000})
    (judge,) = job_of(listed)["spec"]["template"]["spec"]["containers"]
    assert judge["command"][:3] == ["python", "-m", "falaj.workloads.rollout"]
    told = parser().parse_args(judge["command"][3:])
    assert (told.stable, told.canary) == (7, 8)
    assert (told.stable_alias, told.canary_alias) == ("production", "candidate")
    assert told.servers == f"{NAME}.acme-serving.svc:8443"
    assert told.server_name == "credit-risk.acme-serving.svc"
    assert told.to == "registry.acme.example/falaj/models"
    assert str(told.login) == "/run/falaj/registry/config.json"
    assert (told.window_minutes, told.least_requests, told.most_error_rise) == (60, 5_000_000, 0.1)


def test_faults_are_tried_again_and_refusals_end_it() -> None:
    spec = job_of(tried(judge={"deadline_hours": 2}))["spec"]
    assert spec["backoffLimit"] > 0
    assert spec["activeDeadlineSeconds"] == 4 * 3600
    assert [each["action"] for each in spec["podFailurePolicy"]["rules"]] == [
        "Ignore", "FailJob", "Ignore",
    ]  # fmt: skip
    assert spec["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"] == [2]
    assert job_of(tried())["metadata"]["annotations"]["pulumi.com/skipAwait"] == "true"


def test_what_stands_beside_it_is_as_reviewed() -> None:
    before = by_key(service())
    more = [each for key, each in by_key(tried()).items() if key not in before]
    same_as_golden("canary-existing.yaml", shown(more))
