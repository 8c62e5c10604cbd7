"""Preflight against answers of the clouds: botocore's stubber, and a local Resource Manager."""

from __future__ import annotations

import dataclasses
import datetime
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from falaj.components import catalogue
from falaj.components.catalogue.clusters import EKS_ADDONS
from falaj.components.specification.limits import DEFAULT_KUBERNETES_VERSION
from falaj.stacks.command import __main__ as command
from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.preflight import (
    Finding,
    Need,
    NotAskedError,
    aws,
    azure,
    exit_status,
    kubernetes_version,
    needs,
)
from falaj.stacks.settings import CloudSettings
from falaj.stacks.settings.cloud import ClusterSettings

UAE = catalogue.place("aws", "me-central-1")
DUBAI = catalogue.place("azure", "uaenorth")
H200 = Need("h200", UAE.machine("p5en.48xlarge"), ("mec1-az1",), 4)
ND = Need("h200", DUBAI.machine("Standard_ND96isr_H200_v5"), ("1",), 2)


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "ARM_SUBSCRIPTION_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("AZURE_SUBSCRIPTION_ID", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def test_without_credentials_it_says_that_nothing_was_confirmed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command.main(["preflight", "--stack", "azure-cluster"]) == 2
    printed = capsys.readouterr().out
    assert "Azure could not be asked: no subscription is named" in printed
    assert "nothing was confirmed" in printed
    assert "pool h200: at most 4 x Standard_ND96isr_H200_v5, USD 485.06 per hour" in printed


def test_aws_without_credentials() -> None:
    with pytest.raises(NotAskedError, match="there are no credentials"):
        aws.connect("me-central-1")


def test_a_local_stack_has_no_preflight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: own\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config:\n  falaj:platform: local\n")
    monkeypatch.chdir(tmp_path)
    assert command.main(["preflight", "--stack", "dev"]) == 2
    assert "is of the platform local; allowed: stacks in a cloud" in capsys.readouterr().err


Answers = dict[str, list[tuple[str, dict[str, Any], dict[str, Any] | str]]]


def clients(answers: Answers) -> Callable[[str], Any]:
    """Clients that give the answers, each call once; a text is an error of the service."""

    def make(service: str) -> Any:
        client = boto3.client(
            service,  # type: ignore[call-overload]
            region_name="me-central-1",
            aws_access_key_id="none",
            aws_secret_access_key="none",
        )
        stubber = Stubber(client)
        for method, expected, answer in answers.get(service, []):
            if isinstance(answer, str):
                stubber.add_client_error(method, answer, service_message="not allowed")
            else:
                stubber.add_response(method, answer, expected)
        answers[service] = answers.get(service, [])[1:] if service == "ec2" else []
        stubber.activate()
        return client

    return make


CALLER = ("get_caller_identity", {}, {
    "Account": "111122223333", "UserId": "x",
    "Arn": "arn:aws:sts::111122223333:assumed-role/deploy/session",
})  # fmt: skip


def zone(id: str, state: str = "available") -> dict[str, Any]:
    return {"ZoneId": id, "ZoneName": f"me-{id}", "State": state, "OptInStatus": "opted-in"}


ZONES = ("describe_availability_zones", {"AllAvailabilityZones": True}, {
    "AvailabilityZones": [zone("mec1-az1"), zone("mec1-az2", "impaired")],
})  # fmt: skip


def offers(*zones: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    found = [{"InstanceType": "p5en.48xlarge", "Location": zone} for zone in zones]
    wanted = {"LocationType": "availability-zone-id", "Filters": ANY}
    return ("describe_instance_type_offerings", wanted, {"InstanceTypeOfferings": found})


def quota(value: float) -> tuple[str, dict[str, Any], dict[str, Any]]:
    answer = {"Quota": {"Value": value, "QuotaName": "Running On-Demand P instances"}}
    return ("get_service_quota", {"ServiceCode": "ec2", "QuotaCode": "L-417A185B"}, answer)


def allowed(**decisions: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    wanted = {
        "PolicySourceArn": "arn:aws:iam::111122223333:role/deploy",
        "ActionNames": ANY,
    }
    results = [
        {"EvalActionName": name.replace("_", ":"), "EvalDecision": decision}
        for name, decision in decisions.items()
    ]
    return ("simulate_principal_policy", wanted, {"EvaluationResults": results})


def ask_aws(
    answers: Answers, need: Need = H200, version: str | None = None, *, health: bool = False
) -> list[Finding]:
    return list(aws.ask(clients(answers), UAE, [need], kubernetes_version=version, health=health))


def texts(findings: list[Finding], level: str) -> str:
    return "\n".join(f"{f.subject}: {f.text}" for f in findings if f.level == level)


def test_aws_says_all_that_would_fail() -> None:
    found = ask_aws(
        {
            "sts": [CALLER],
            "ec2": [ZONES, offers("mec1-az3")],
            "service-quotas": [quota(192)],
            "iam": [allowed(ec2_CreateVpc="allowed", kms_CreateKey="implicitDeny")],
        }
    )
    problems = texts(found, "problem")
    assert "zone mec1-az2: state impaired" in problems
    assert "zone mec1-az3: this account doesn't see it" in problems
    assert "p5en.48xlarge is sold in mec1-az3; wanted: mec1-az1" in problems
    assert "192 vCPUs, the stack may need 768; ask for more" in problems
    assert "permissions: missing: kms:CreateKey" in problems
    assert "health: AWS Health was not asked" in texts(found, "unknown")
    assert exit_status(found) == 1


def test_aws_says_what_is_fine() -> None:
    found = ask_aws(
        {
            "sts": [CALLER],
            "ec2": [ZONES, offers("mec1-az1", "mec1-az3")],
            "service-quotas": [quota(768)],
            "iam": [allowed(ec2_CreateVpc="allowed")],
        }
    )
    fine = texts(found, "ok")
    assert "account: 111122223333 as arn:aws:sts::111122223333:assumed-role/deploy" in fine
    assert "p5en.48xlarge is sold in mec1-az1, mec1-az3" in fine
    assert "768 vCPUs, the stack may need 768" in fine


def test_a_refused_question_is_unknown_not_fine() -> None:
    found = ask_aws(
        {
            "sts": [CALLER],
            "ec2": [ZONES, offers("mec1-az1")],
            "service-quotas": [("get_service_quota", {}, "AccessDenied")],
            "iam": [("simulate_principal_policy", {}, "AccessDenied")],
        }
    )
    unknown = texts(found, "unknown")
    assert "quota: AWS did not answer: " in unknown
    assert "permissions: AWS did not answer: " in unknown


def test_refused_credentials_end_the_preflight() -> None:
    with pytest.raises(NotAskedError, match="AWS could not be asked"):
        ask_aws({"sts": [("get_caller_identity", {}, "ExpiredToken")]})


@pytest.mark.parametrize(
    ("state", "free", "level"),
    [("active", 4, "ok"), ("active", 3, "problem"), ("expired", 4, "problem")],
)
def test_a_reservation_has_to_hold_what_the_pool_may_need(
    state: str, free: int, level: str
) -> None:
    reserved = ("describe_capacity_reservations", {"CapacityReservationIds": ["cr-1"]}, {
        "CapacityReservations": [{
            "State": state, "AvailableInstanceCount": free, "TotalInstanceCount": 4,
            "InstanceType": "p5en.48xlarge", "AvailabilityZoneId": "mec1-az1",
        }],
    })  # fmt: skip
    need = Need("h200", H200.machine, ("mec1-az1",), 4, reservation_id="cr-1")
    found = ask_aws(
        {
            "sts": [CALLER],
            "ec2": [ZONES, offers("mec1-az1"), reserved],
            "service-quotas": [quota(768)],
            "iam": [allowed(ec2_CreateVpc="allowed")],
        },
        need,
    )
    assert f"cr-1 is {state}: {free} of 4" in texts(found, level)


def test_health_is_asked_only_when_wished() -> None:
    event = {
        "service": "EC2", "eventTypeCode": "AWS_EC2_OPERATIONAL_ISSUE", "statusCode": "open",
        "startTime": datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC),
    }  # fmt: skip
    found = ask_aws(
        {
            "sts": [CALLER],
            "ec2": [ZONES, offers("mec1-az1")],
            "service-quotas": [quota(768)],
            "iam": [allowed(ec2_CreateVpc="allowed")],
            "health": [("describe_events", {"filter": ANY}, {"events": [event]})],
        },
        health=True,
    )
    assert "EC2: AWS_EC2_OPERATIONAL_ISSUE since 2026-03-01, open" in texts(found, "problem")


def addon(name: str, *versions: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    compatible = [{"clusterVersion": "1.35", "defaultVersion": True}]
    answer = {"addons": [{
        "addonName": name,
        "addonVersions": [
            {"addonVersion": each, "compatibilities": compatible} for each in versions
        ],
    }]}  # fmt: skip
    return ("describe_addon_versions", {"addonName": name, "kubernetesVersion": "1.35"}, answer)


@pytest.mark.parametrize(("late", "level"), [("aws-fsx-csi-driver", "problem"), (None, "ok")])
def test_add_ons_have_a_version_for_the_cluster(late: str | None, level: str) -> None:
    found = ask_aws(
        {
            "sts": [CALLER],
            "ec2": [ZONES, offers("mec1-az1")],
            "service-quotas": [quota(768)],
            "iam": [allowed(ec2_CreateVpc="allowed")],
            "eks": [
                addon(name, *(() if name == late else ("v1.0.0-eksbuild.1",)))
                for name in EKS_ADDONS
            ],
        },
        version="1.35",
    )
    told = texts(found, level)
    if late:
        assert f"add-ons: EKS has no default version for Kubernetes 1.35 in {UAE.region}" in told
        assert f"of {late}; take another kubernetesVersion" in told
    else:
        assert f"add-ons: EKS has all {len(EKS_ADDONS)} for Kubernetes 1.35" in told


def test_which_stacks_make_a_cluster() -> None:
    def settings(name: str) -> Any:
        return StackFile(name, Project.find(Path(__file__).parents[2])).settings()

    assert kubernetes_version(settings("aws-cluster")) == DEFAULT_KUBERNETES_VERSION
    assert kubernetes_version(settings("aws-foundation")) is None


@pytest.fixture
def resource_manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Answers by the path's end; a path without an answer is refused."""
    answers: dict[str, Any] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            found = next((a for end, a in answers.items() if path.endswith(end)), None)
            body = json.dumps(found if found is not None else {"error": {"code": "No"}}).encode()
            self.send_response(200 if found is not None else 403)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("ARM_SUBSCRIPTION_ID", "sub")
    answers["endpoint"] = f"http://127.0.0.1:{server.server_port}"
    yield answers
    server.shutdown()
    server.server_close()
    thread.join()


def ask_azure(answers: dict[str, Any], need: Need = ND) -> list[Finding]:
    subscription, get = azure.connect(object(), answers.pop("endpoint"))
    return list(azure.ask(subscription, get, DUBAI, [need]))


def sku(*restrictions: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": ND.machine.name, "resourceType": "virtualMachines", "family": "StandardNDv5",
        "locationInfo": [{"zones": ["1", "2"]}], "restrictions": list(restrictions),
    }  # fmt: skip


def usage(limit: int, used: int) -> dict[str, Any]:
    return {"name": {"value": "standardNDv5"}, "limit": limit, "currentValue": used}


def test_azure_says_all_that_would_fail(resource_manager: dict[str, Any]) -> None:
    closed = {"type": "Zone", "restrictionInfo": {"zones": ["1"]}}
    resource_manager |= {
        "/sub": {"displayName": "Lab", "state": "Disabled"},
        "/skus": {"value": [sku(closed)]},
        "/usages": {"value": [usage(100, 8)]},
        "/EncryptionAtHost": {"properties": {"state": "NotRegistered"}},
        "/permissions": {"value": [{"actions": ["*/read"], "notActions": []}]},
    }
    problems = texts(ask_azure(resource_manager), "problem")
    assert "subscription: Lab is Disabled" in problems
    assert "Standard_ND96isr_H200_v5 is open in zones 2; wanted: 1" in problems
    assert "92 vCPUs free of 100, the stack may need 192; ask for more" in problems
    assert "az feature register --namespace Microsoft.Compute --name EncryptionAtHost" in problems
    assert "missing: Microsoft.Resources/subscriptions/resourceGroups/write" in problems


def test_azure_says_what_is_fine(resource_manager: dict[str, Any]) -> None:
    rest = [{"actions": ["*"], "notActions": ["Microsoft.Billing/*"]}]
    own = "/subscriptions/sub/resourceGroups/NetworkWatcherRG/providers/Microsoft.Network"
    watcher = {"id": f"{own}/networkWatchers/NetworkWatcher_uaenorth", "location": "uaenorth"}
    resource_manager |= {
        "/sub": {"displayName": "Lab", "state": "Enabled"},
        "/skus": {"value": [sku()]},
        "/usages": {"value": [usage(192, 0)]},
        "/EncryptionAtHost": {"properties": {"state": "Registered"}},
        "/permissions": {"value": rest},
        "/networkWatchers": {"value": [{"id": "/elsewhere", "location": "westeurope"}, watcher]},
    }
    found = ask_azure(resource_manager)
    assert exit_status(found) == 0
    assert "network watcher is where Azure makes it" in texts(found, "ok")
    assert "is open in zones 1, 2" in texts(found, "ok")


def test_azure_asks_for_what_infiniband_needs(resource_manager: dict[str, Any]) -> None:
    resource_manager |= {
        "/EncryptionAtHost": {"properties": {"state": "Registered"}},
        "/AKSInfinibandSupport": {"properties": {"state": "NotRegistered"}},
        "/networkWatchers": {"value": [{"id": "/other/watcher", "location": "uaenorth"}]},
    }
    endpoint = resource_manager["endpoint"]
    linked = dataclasses.replace(ND, fabric="infiniband")
    said = texts(ask_azure(resource_manager, linked), "problem")
    assert "--namespace Microsoft.ContainerService --name AKSInfinibandSupport" in said
    assert "az provider register --namespace Microsoft.ContainerService" in said
    resource_manager["endpoint"] = endpoint
    found = ask_azure(resource_manager)
    assert not texts(found, "problem")
    assert "/other/watcher: say so in falaj:network.networkWatcherId" in texts(found, "ok")


def test_what_an_update_makes_first_is_asked_for_too() -> None:
    settings = StackFile("aws-cluster", Project.find()).settings()
    assert isinstance(settings, ClusterSettings)
    surging = settings.gpu_pools["h200"].model_copy(update={"max_surge": 2})
    changed = settings.model_copy(update={"gpu_pools": {**settings.gpu_pools, "h200": surging}})
    for before, after in zip(needs(settings, UAE), needs(changed, UAE), strict=True):
        assert after.most == before.most + (2 if after.name == "h200" else 0)


@pytest.mark.parametrize(
    ("stack", "place", "changes", "surge"),
    [
        # Two in each zone, or as many as are drained at once.
        ("aws-cluster", UAE, {"zones": [each.id for each in UAE.zones]}, 6),
        ("aws-cluster", UAE, {"zones": [UAE.zones[0].id]}, 2),
        ("aws-cluster", UAE, {"max_unavailable": 9}, 9),
        # A third, rounded up.
        ("azure-cluster", DUBAI, {"max_nodes": 10}, 4),
        ("azure-cluster", DUBAI, {"max_nodes": 10, "max_unavailable": 2}, 2),
        ("azure-cluster", DUBAI, {"max_nodes": 2, "max_unavailable": 9}, 2),
        ("azure-cluster", DUBAI, {"max_nodes": 10, "capacity": "spot"}, 0),
    ],
)
def test_cpu_pools_are_asked_for_with_what_updates_make_first(
    stack: str, place: catalogue.Place, changes: dict[str, Any], surge: int
) -> None:
    settings = StackFile(stack, Project.find()).settings()
    assert isinstance(settings, ClusterSettings)
    name, pool = next(iter(settings.cpu_pools.items()))
    pools = {**settings.cpu_pools, name: pool.model_copy(update=changes)}
    found = needs(settings.model_copy(update={"cpu_pools": pools}), place)
    need = next(each for each in found if each.name == name)
    most = {"max_nodes": 3, **pool.model_dump(exclude_none=True), **changes}["max_nodes"]
    assert (need.surge, need.most) == (surge, most + surge)


def test_azure_zones_of_the_systems_machines(resource_manager: dict[str, Any]) -> None:
    settings = StackFile("azure-cluster", Project.find()).settings()
    assert isinstance(settings, CloudSettings)
    system, *_ = needs(settings, DUBAI)
    assert (system.name, system.machine.name) == ("system", "Standard_D4as_v6")
    assert (system.zones, system.most, system.surge) == (("1", "2", "3"), 4, 1)
    closed = {"type": "Zone", "restrictionInfo": {"zones": ["2"]}}
    resource_manager["/skus"] = {
        "value": [
            {
                "name": "Standard_D4as_v6", "resourceType": "virtualMachines",
                "family": "StandardDasv6Family", "locationInfo": [{"zones": ["1", "2", "3"]}],
                "restrictions": [closed],
            }
        ]
    }  # fmt: skip
    said = texts(ask_azure(resource_manager, system), "problem")
    assert "is open in zones 1, 3; wanted: 1, 2, 3; name open ones in 'zones' of falaj:net" in said


def test_azure_closed_to_the_subscription_or_not_sold(resource_manager: dict[str, Any]) -> None:
    closed = {"type": "Location", "reasonCode": "NotAvailableForSubscription"}
    endpoint = resource_manager["endpoint"]
    resource_manager["/skus"] = {"value": [sku(closed)]}
    said = texts(ask_azure(resource_manager), "problem")
    assert "is closed to this subscription (NotAvailableForSubscription)" in said
    resource_manager |= {"endpoint": endpoint, "/skus": {"value": []}}
    assert "is not sold in uaenorth" in texts(ask_azure(resource_manager), "problem")


def test_azure_that_refuses_everything_is_unknown(resource_manager: dict[str, Any]) -> None:
    found = ask_azure(resource_manager)
    assert exit_status(found) == 2
    assert not texts(found, "ok")
