"""Federated training in clusters: what is refused, who may reach whom, which command runs."""

from __future__ import annotations

import json
from typing import Any

import pulumi
import pytest

from falaj.components.kubernetes import federated_training
from falaj.components.kubernetes._objects import Manifest
from falaj.workloads.federation.command import build_parser
from falaj.workloads.parameter_server import command as parameter_server
from tests.components.kubernetes.cluster_parts import difference, same_as_golden, shown
from tests.components.kubernetes.training_jobs import (
    CPU,
    PLACES,
    arguments,
    container_of,
    findings,
    pod_of,
    the,
)

COORDINATOR: dict[str, Any] = {
    "role": "coordinator", "certificate_secret": "federation-tls",
    "sites": {"dubai": "a" * 64, "sharjah": "b" * 64}, "peer_ranges": ["10.60.0.0/16"],
    "address": "10.50.0.9",
}  # fmt: skip
SITE: dict[str, Any] = {
    "role": "site", "certificate_secret": "dubai-tls", "token_secret": "dubai-token",
    "coordinator": "federation.acme.example:8470", "peer_ranges": ["10.50.0.0/24"],
}  # fmt: skip

SERVED: dict[str, Any] = {
    **COORDINATOR, "mode": "local", "epochs": 40, "staleness": 5, "gather": 2, "local_steps": 20,
    "compression": "top",
}  # fmt: skip
WORKER: dict[str, Any] = {**SITE, "mode": "asynchronous"}
SECURE: dict[str, Any] = {
    **COORDINATOR, "secure_aggregation": True, "least_sites": 2,
    "sites": {"dubai": "a" * 64, "sharjah": "b" * 64, "ajman": "c" * 64},
}  # fmt: skip
SECURE_SITE: dict[str, Any] = {
    **SITE, "secure_aggregation": True,
    "site_keys": {"dubai": "d" * 64, "sharjah": "authority", "ajman": "authority"},
}  # fmt: skip


FLOOR: dict[str, Any] = {"least_noise": 1.05, "most_clip": 2, "least_sites": 3}


def rendered(place: str = "existing", **changes: Any) -> list[Manifest]:
    given: Any = {**arguments(place, **CPU), **changes}
    return federated_training.manifests(federated_training.check("claims", given))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({**COORDINATOR, "role": "leader"}, "coordinator, site"),
        ({**COORDINATOR, "sites": {}}, "digest of each site's token"),
        ({**COORDINATOR, "sites": {"dubai": "the-token-itself"}}, "never the token itself"),
        ({**COORDINATOR, "peer_ranges": ["0.0.0.0/0"]}, "private ranges"),
        ({**COORDINATOR, "peer_ranges": []}, "say where the other side is"),
        ({**COORDINATOR, "least_sites": 3}, "from 1 to 2"),
        ({**COORDINATOR, "address": None}, "needed on an existing cluster: a private address"),
        ({**COORDINATOR, "address": "8.8.8.8"}, "address: given '8.8.8.8'; allowed: a private"),
        ({**COORDINATOR, "peer_ranges": [], "peer_namespaces": ["acme"]}, "is for peer_ranges"),
        ({**COORDINATOR, "token_secret": "x"}, "is a site's"),
        ({**COORDINATOR, "noise": -1}, "a number above 0"),
        ({**COORDINATOR, "mode": "slow"}, "rounds, asynchronous, local"),
        ({**COORDINATOR, "staleness": 5}, "staleness: is for another mode (asynchronous, local)"),
        ({**COORDINATOR, "compression": "top"}, "compression: is for another mode"),
        ({**SERVED, "noise": 1.0}, "noise: is for another mode (rounds)"),
        ({**SERVED, "rounds": 5}, "rounds: is for another mode (rounds)"),
        ({**SERVED, "mode": "asynchronous"}, "local_steps: is for mode 'local'"),
        ({**SERVED, "staleness": -1}, "staleness: given -1"),
        ({**SERVED, "compression": "zip"}, "none, float16, bfloat16, top"),
        ({**WORKER, "gather": 2}, "gather: is the coordinator's"),
        ({**COORDINATOR, "flavor": "h200"}, "sites train on CPUs"),
        ({**SITE, "coordinator": "federation.acme.example"}, "host:port"),
        ({**SITE, "coordinator": None}, "coordinator: missing"),
        ({**SITE, "token_secret": None}, "token_secret"),
        ({**SITE, "rounds": 3}, "is the coordinator's"),
        ({**COORDINATOR, "least_noise": 1.0}, "least_noise: is a site's"),
        ({**COORDINATOR, "most_clip": 1.0}, "most_clip: is a site's"),
        ({**WORKER, "least_noise": 1.0}, "least_noise: is for another mode (rounds)"),
        ({**SITE, "least_noise": 0}, "least_noise: given 0; allowed: a number from 1e-06 to 1"),
        ({**SITE, "least_noise": float("nan")}, "least_noise: given nan"),
        ({**SITE, "most_clip": -1}, "most_clip: given -1"),
        ({**SITE, "most_clip": "any"}, "most_clip: given 'any'"),
        ({**SITE, "least_sites": 1}, "least_sites: given 1; allowed: a whole number from 2"),
        ({**SECURE_SITE, "least_sites": 4}, "least_sites: given 4; allowed: a whole number fro"),
        ({**SITE, "address": "10.50.0.9"}, "is the coordinator's"),
        ({**SITE, "dataset": None}, "dataset: missing"),
        ({**SITE, "key_secret": "bank/training-keys"}, "entries of the tenant: acme/"),
        ({**COORDINATOR, "secret_store": "falaj"}, "is where key_secret is"),
        ({**COORDINATOR, "secure_aggregation": True}, "3 to 100 sites with secure_aggregation"),
        (
            {**SECURE, "least_sites": 1},
            "least_sites: given 1; allowed: a whole number from 2 to 3",
        ),
        ({**SECURE, "site_keys": {"dubai": "authority"}}, "site_keys: is a site's"),
        ({**SERVED, "secure_aggregation": True}, "there is no sum to hide it in"),
        ({**SECURE, "secure_aggregation": "yes"}, "secure_aggregation: given 'yes'"),
        ({**SITE, "secure_aggregation": True}, "site_keys: missing; a site with"),
        ({**SITE, "site_keys": {"dubai": "authority"}}, "is for secure_aggregation: true"),
        ({**SECURE_SITE, "mode": "asynchronous"}, "there is no sum to hide it in"),
        ({**SECURE_SITE, "site_keys": {"a": "authority", "b": "authority"}}, "of two, each would"),
        (
            {**SECURE_SITE, "site_keys": {**SECURE_SITE["site_keys"], "dubai": "D" * 64}},
            "site_keys['dubai']: given 'DDDD",
        ),
        (
            {**SECURE_SITE, "site_keys": {**SECURE_SITE["site_keys"], "a b": "authority"}},
            "site_keys: given 'a b'; allowed: 1 to 63 letters",
        ),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        rendered(**given)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [{**COORDINATOR, "noise": 1.5}, SITE, SERVED, WORKER, SECURE, {**SECURE_SITE, **FLOOR}],
)
def test_arguments_take_back_nothing_that_the_component_says(given: dict[str, Any]) -> None:
    """The last of two options counts: a site would send its token elsewhere, say."""
    command = container_of(rendered(**given))["command"]
    ours = [each for each in command if each.startswith("--")]
    assert len(ours) > 5
    for option in (*ours, "--keyring"):
        for short in (option, option[:-1], f"{option}=x"):
            with pytest.raises(pulumi.InputPropertiesError, match="arguments: given '--"):
                rendered(**given, arguments=[short, "x"])
    own = ["--seed", "3"] if given["role"] == "coordinator" else ["--patience-seconds", "60"]
    assert container_of(rendered(**given, arguments=own))["command"] == [*command, *own]


@pytest.mark.parametrize("given", [COORDINATOR, SITE, {**COORDINATOR, "noise": 1.5}])
def test_the_commands_are_those_that_the_workload_understands(given: dict[str, Any]) -> None:
    command = container_of(rendered(**given))["command"]
    assert command[:3] == ["python", "-m", "falaj.workloads.federation"]
    options = build_parser().parse_args(command[3:])
    assert options.role == given["role"]
    if "noise" in given:
        assert (options.noise, options.clip) == (1.5, 1.0)


def test_both_sides_are_told_of_secure_aggregation_and_a_site_whose_keys_it_takes() -> None:
    options = build_parser().parse_args(container_of(rendered(**SECURE))["command"][3:])
    assert options.secure_aggregation is True
    assert (options.clip, options.noise, options.least_sites) == (1.0, 0.0, 2)
    objects = rendered(**SECURE_SITE)
    options = build_parser().parse_args(container_of(objects)["command"][3:])
    assert options.secure_aggregation is True
    assert str(options.site_keys) == "/etc/falaj/sites/sites.json"
    kept = the("ConfigMap", objects)["data"]["sites.json"]
    assert json.loads(kept) == SECURE_SITE["site_keys"]
    mounts = {each["name"] for each in container_of(objects)["volumeMounts"]}
    assert {"tls", "sites", "token"} <= mounts
    assert {each["name"] for each in pod_of(objects)["spec"]["volumes"]} >= mounts
    for plain in (COORDINATOR, SITE):
        assert "--secure-aggregation" not in container_of(rendered(**plain))["command"]


def test_a_site_is_told_the_least_privacy_that_it_takes_to_the_last_digit() -> None:
    for given in (SITE, SECURE_SITE):
        command = container_of(rendered(**given, **FLOOR))["command"]
        options = build_parser().parse_args(command[3:])
        assert (options.least_noise, options.most_clip, options.least_sites) == (1.05, 2.0, 3)
    command = container_of(rendered(**SITE, least_noise=1.0000001))["command"]
    assert command[command.index("--least-noise") + 1] == "1.0000001"
    plain = build_parser().parse_args(container_of(rendered(**SITE))["command"][3:])
    assert (plain.least_noise, plain.most_clip, plain.least_sites) == (None, None, None)


def test_modes_that_wait_for_nobody_run_a_parameter_server_and_its_workers() -> None:
    command = container_of(rendered(**SERVED))["command"]
    assert command[:4] == ["python", "-m", "falaj.workloads.parameter_server", "server"]
    options = parameter_server.build_parser().parse_args(command[3:])
    assert (options.mode, options.rows, options.compression) == ("local", "own", "top")
    assert (options.epochs, options.staleness, options.gather, options.local_steps) == (
        40,
        5,
        2,
        20,
    )
    command = container_of(rendered(**WORKER))["command"]
    options = parameter_server.build_parser().parse_args(command[3:])
    assert (options.role, options.server) == ("worker", SITE["coordinator"])
    # All else is as of rounds.
    for other in (COORDINATOR, SITE):
        same: dict[str, Any] = {**other, "mode": "local"}
        ours, theirs = rendered(**other), rendered(**same)
        container_of(ours)["command"] = container_of(theirs)["command"] = []
        assert ours == theirs


def test_only_the_other_side_is_reached_and_on_one_port() -> None:
    policy = the("NetworkPolicy", rendered(**COORDINATOR))["spec"]
    assert policy["ingress"] == [
        {
            "from": [{"ipBlock": {"cidr": "10.60.0.0/16"}}],
            "ports": [{"port": 8470, "protocol": "TCP"}],
        }
    ]
    assert [rule["ports"][0]["port"] for rule in policy["egress"]] == [53]
    policy = the("NetworkPolicy", rendered(**SITE))["spec"]
    assert policy["ingress"] == []
    assert [rule["ports"][0]["port"] for rule in policy["egress"]] == [53, 8470]


def test_the_coordinator_has_a_private_address_only_where_others_need_one() -> None:
    service = the("Service", rendered("eks", **COORDINATOR))
    assert service["spec"]["type"] == "LoadBalancer"
    assert service["spec"]["loadBalancerSourceRanges"] == ["10.60.0.0/16"]
    assert "internal" in str(service["metadata"]["annotations"])
    near = {**COORDINATOR, "peer_ranges": [], "peer_namespaces": ["acme-training"],
            "address": None}  # fmt: skip
    assert the("Service", rendered(**near))["spec"]["type"] == "ClusterIP"
    assert not [each for each in rendered(**SITE) if each["kind"] == "Service"]


def test_secrets_are_mounted_and_never_written() -> None:
    for given in (COORDINATOR, SITE):
        volumes = {each["name"]: each for each in pod_of(rendered(**given))["spec"]["volumes"]}
        assert volumes["tls"]["secret"]["defaultMode"] == 0o440
        assert not [each for each in rendered(**given) if each["kind"] == "Secret"]


@pytest.mark.parametrize("given", [COORDINATOR, SITE], ids=["coordinator", "site"])
def test_each_side_has_its_key_ring_in_memory(given: dict[str, Any]) -> None:
    objects = rendered(**given, key_secret="acme/training-keys")
    [data] = the("ExternalSecret", objects)["spec"]["data"]
    assert data["remoteRef"]["key"] == "acme/training-keys"
    pod = pod_of(objects)["spec"]
    [first] = pod["initContainers"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert volumes["keys"]["emptyDir"]["medium"] == "Memory"
    assert volumes["secret"]["secret"]["secretName"] == "claims-keys"
    assert "secret" not in {each["name"] for each in container_of(objects)["volumeMounts"]}
    assert first["image"] == container_of(objects)["image"]
    options = build_parser().parse_args(container_of(objects)["command"][3:])
    assert str(options.keyring) == "/run/falaj/keys/keyring"
    assert findings(objects) == []
    assert (
        build_parser().parse_args(container_of(rendered(**given))["command"][3:]).keyring is None
    )


@pytest.mark.parametrize("place", PLACES)
def test_the_network_policy_sees_the_addresses_of_sites(place: str) -> None:
    service = the("Service", rendered(place, **COORDINATOR))
    assert service["spec"]["externalTrafficPolicy"] == "Local"
    if place == "eks":
        assert service["spec"]["loadBalancerClass"] == "service.k8s.aws/nlb"
        assert "preserve_client_ip.enabled=true" in str(service["metadata"]["annotations"])


def test_the_manifests_are_the_reviewed_ones_and_platforms_differ_where_they_must() -> None:
    here = shown(rendered(**COORDINATOR))
    same_as_golden("federation-coordinator-existing.yaml", here)
    same_as_golden("federation-site.diff", difference(here, shown(rendered(**SITE))))
    for place in ("eks", "aks"):
        for role, given in (("coordinator", COORDINATOR), ("site", SITE)):
            found = difference(shown(rendered(**given)), shown(rendered(place, **given)))
            same_as_golden(f"federation-{role}-{place}.diff", found)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("given", [COORDINATOR, SITE, SERVED, WORKER, SECURE, SECURE_SITE])
def test_every_policy_pack_is_met(place: str, given: dict[str, Any]) -> None:
    assert findings(rendered(place, **given)) == []
