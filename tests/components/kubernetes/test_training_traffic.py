"""What encrypts traffic between a job's pods: stated, kept to, demanded for restricted data."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest

from falaj.components.kubernetes._objects import Manifest
from tests.components.kubernetes.training_jobs import CPU, env_of, findings, job, the

RESTRICTED: dict[str, Any] = {"data_class": "restricted", "nodes": 2}
REASON = "CISO, 2026-11-02: machines and switch stand in one locked cage"
SEVERAL: dict[str, dict[str, Any]] = {
    "gang": {"nodes": 2},
    "elastic": {"nodes": 1, "elastic": {"min_nodes": 1, "max_nodes": 2}},
    "servers": {
        "framework": "parameter-server", "nodes": 1, "dataset": None,
        "program": ["python", "t.py"], "image": "team/tf@sha256:" + "1" * 64,
    },
}  # fmt: skip


def notes(manifests: list[Manifest]) -> dict[str, str]:
    """What the job's object says of its traffic."""
    (found,) = [each for each in manifests if each["kind"] in ("JobSet", "Job")]
    annotations: dict[str, str] = found["metadata"]["annotations"]
    return {
        key: value for key, value in annotations.items()
        if key.partition("/")[2] in ("peer-encryption", "plain-traffic")
    }  # fmt: skip


def refusal(**changes: Any) -> str:
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        job(**changes)
    return str(refused.value)


@pytest.mark.parametrize("several", SEVERAL.values(), ids=SEVERAL)
def test_restricted_data_needs_encryption_between_pods_or_a_reason(
    several: dict[str, Any],
) -> None:
    given = {**CPU, **several, "data_class": "restricted"}
    said = refusal(**given)
    assert "peer_encryption: missing" in said
    assert "plain_traffic with the reason" in said
    assert notes(job(**given, peer_encryption="network")) == {
        "falaj.io/peer-encryption": "network"
    }
    assert notes(job(**given, plain_traffic=REASON)) == {
        "falaj.io/peer-encryption": "none", "falaj.io/plain-traffic": REASON,
    }  # fmt: skip


@pytest.mark.parametrize("several", SEVERAL.values(), ids=SEVERAL)
def test_what_is_not_encrypted_is_said_of_other_data(several: dict[str, Any]) -> None:
    assert notes(job(**{**CPU, **several})) == {"falaj.io/peer-encryption": "none"}


def test_one_pod_has_no_traffic_to_others() -> None:
    assert notes(job(**CPU, data_class="restricted")) == {}
    assert "is for several pods" in refusal(**CPU, peer_encryption="network")
    assert "plain_traffic: is for several pods" in refusal(
        **CPU, data_class="restricted", plain_traffic=REASON
    )


@pytest.mark.parametrize("place", ["existing", "eks", "aks"])
def test_pods_keep_to_the_network_that_encrypts(place: str) -> None:
    made = job(place, nodes=2, gpus_per_node=8, peer_encryption="network")
    env = env_of(made)
    assert (env["NCCL_NET"], env["NCCL_IB_DISABLE"]) == ("Socket", "1")
    assert findings(made) == []
    plain = env_of(job(place, nodes=2, gpus_per_node=8))
    assert not {"NCCL_NET", "NCCL_IB_DISABLE"} & plain.keys()


@pytest.mark.parametrize(
    ("place", "fabric"), [("existing", "infiniband"), ("aks", "infiniband"), ("eks", "efa")]
)
def test_a_fabric_goes_past_it(place: str, fabric: str) -> None:
    given = {"nodes": 2, "gpus_per_node": 8, "fabric": fabric}
    said = refusal(place=place, **given, peer_encryption="network")
    assert f"fabric: given '{fabric}'; allowed: none, with peer_encryption 'network'" in said
    restricted = {**given, "data_class": "restricted"}
    assert "peer_encryption: missing" in refusal(place=place, **restricted)
    kept = notes(job(place, **restricted, plain_traffic=REASON))
    assert kept["falaj.io/plain-traffic"] == REASON


@pytest.mark.parametrize("name", ["NCCL_NET", "NCCL_IB_DISABLE"])
def test_variables_take_nothing_back(name: str) -> None:
    given: dict[str, Any] = {"nodes": 2, "env": {name: "0"}}
    assert f"env['{name}']: is set by peer_encryption" in refusal(
        **CPU, **given, peer_encryption="network"
    )
    assert env_of(job(**CPU, **given))[name] == "0"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"peer_encryption": "tls"}, "peer_encryption: given 'tls'; allowed: network, none"),
        ({"plain_traffic": ""}, "plain_traffic: given ''; allowed: the reason"),
        ({"plain_traffic": "because"}, "a line of 10 to 500 characters"),
        ({"plain_traffic": "x" * 501}, "a line of 10 to 500 characters"),
        ({"plain_traffic": "allowed by\nour CISO"}, "a line of 10 to 500 characters"),
        ({"plain_traffic": REASON, "peer_encryption": "network"}, "no encryption between them"),
        ({"plain_traffic": REASON, "data_class": "confidential"}, "with data of class 'restri"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], said: str) -> None:
    assert said in refusal(**{**CPU, **RESTRICTED, **changes})


def test_a_mistake_elsewhere_is_told_beside_it() -> None:
    said = refusal(**{**CPU, **RESTRICTED, "flavor": "Not A Flavor", "env": "text"})
    assert "flavor" in said


def test_the_job_is_changed_in_place_by_what_it_says() -> None:
    """A reason that is written later starts no training again."""
    spec = the("JobSet", job(**CPU, nodes=2))["spec"]
    assert "peer-encryption" not in str(spec)
