"""The sandbox's command line: look, change behind the engine's back, make operations fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from falaj.sandbox import serving
from falaj.sandbox.__main__ import main
from falaj.sandbox.clouds.model import Made
from falaj.sandbox.inprocess import Sandbox
from falaj.sandbox.store import Store

TOPIC = "aws:sns/topic:Topic"


def made(name: str, stack: str = "dev") -> Made:
    urn = f"urn:pulumi:{stack}::proj::{TOPIC}::{name}"
    inputs = {"name": name, "tags": {"owner": "me", "a.b": "c"}}
    outputs = {**inputs, "arn": "arn:x"}
    return Made(urn, TOPIC, f"id-{name}-{stack}", inputs, outputs, "me-central-1", f"proj/{stack}")


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    file = tmp_path / "cloud.sqlite"
    monkeypatch.setenv("FALAJ_SANDBOX_CLOUD", str(file))
    store = Store(file)
    for one in (made("one"), made("two"), made("two", "prod")):
        store.add(one, 0)
    return store


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["show", "onne"], "nothing in the sandbox is called 'onne'; did you mean one?"),
        (["show", "two"], "2 resources are called 'two'; give one of:\n  urn:pulumi:dev::"),
        (["set", "one", "tgas.x", "1"], "has no property 'tgas'; allowed: applicationFailure"),
        (["set", "one", "tags.x", "1"], "tags.x: expected a string, given the number 1"),
        (["set", "one", "tags..x", "1"], "'tags..x' is no path of a property; allowed: such as"),
        (["set", "one", "", "1"], "'' is no path"),
        (["set", "one", "name.x", "1"], "name.x: there is no place 'x'"),
        (["set", "one", "tags[0]", "1"], "tags[0]: there is no place 0"),
        (["add", "aws:ec2/vpc:Vpc", "hub"], "hub can't be added; --region says where it is"),
        (
            ["add", "aws:ec2/vpc:Vpc", "hub", "x", "--region", "me-central-1"],
            "'x' is no PATH=VALUE",
        ),
        (
            ["add", "aws:ec2/vpc:Vpc", "hub", "cidrBlok=1", "--region", "me-central-1"],
            "did you mean 'cidrBlock'?",
        ),
        (["add", "kubernetes:core/v1:Pod", "p"], "no type of a cloud that things can be added to"),
        (["lose", "nobody"], "nothing in the sandbox is called 'nobody'"),
        (["fault", "add", "--on", "create", "--nth", "0"], "counted from 1, given 0"),
    ],
)
def test_mistakes_are_told(
    cloud: Store, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    before = cloud.all()
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert text in captured.err
    assert captured.err.startswith("error: ")
    assert captured.out == ""
    assert cloud.all() == before


@pytest.mark.parametrize("arguments", [[], ["list", "a"], ["fault"], ["frobnicate"]])
def test_unknown_commands_show_the_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert "Usage: falaj sandbox" in capsys.readouterr().err


def test_provider_outside_the_sandbox_refuses_to_serve(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FALAJ_SANDBOX", raising=False)
    assert serving.main(["aws", "127.0.0.1:1"]) == 2
    assert "FALAJ_SANDBOX=1 is missing" in capsys.readouterr().err


def test_list_and_show(cloud: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"proj/dev  {TOPIC}  one  id-one-dev",
        f"proj/dev  {TOPIC}  two  id-two-dev",
        f"proj/prod  {TOPIC}  two  id-two-prod",
    ]
    assert main(["list", "--type", TOPIC, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 3
    assert main(["show", "id-two-prod"]) == 0
    assert json.loads(capsys.readouterr().out)["outputs"]["arn"] == "arn:x"


def test_set_changes_outputs_and_inputs(cloud: Store) -> None:
    assert main(["set", "one", "tags.owner", "you"]) == 0
    assert main(["set", "one", 'tags["a.b"]', "null"]) == 0
    assert main(["set", "one", "displayName", "New"]) == 0
    assert main(["set", "one", "arn", "arn:y"]) == 0
    now = cloud.named("one")
    assert now.inputs == {"name": "one", "tags": {"owner": "you"}, "displayName": "New"}
    assert now.outputs == {**now.inputs, "arn": "arn:y"}


def test_set_in_a_list(cloud: Store) -> None:
    assert main(["set", "one", "tags", '{"list": "x"}']) == 0
    token = "aws:ec2/securityGroup:SecurityGroup"
    rules = [{"protocol": "tcp", "fromPort": 1, "toPort": 2}]
    urn = f"urn:pulumi:dev::proj::{token}::sg"
    cloud.add(Made(urn, token, "sg-1", {"ingress": rules}, {"ingress": rules}, "", "p/dev"), 0)
    assert main(["set", "sg", "ingress[0].toPort", "9"]) == 0
    assert cloud.named("sg").inputs["ingress"][0]["toPort"] == 9
    rule = '{"protocol": "udp", "fromPort": 1, "toPort": 2}'
    assert main(["set", "sg", "ingress[1]", rule]) == 0
    assert main(["set", "sg", "ingress[0]", "null"]) == 0
    assert [each["protocol"] for each in cloud.named("sg").outputs["ingress"]] == ["udp"]
    assert main(["set", "sg", "ingress[5]", rule]) == 2


def test_lose_and_reset(cloud: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lose", "one"]) == 0
    assert [each.id for each in cloud.all()] == ["id-two-dev", "id-two-prod"]
    assert main(["reset"]) == 0
    assert "2 resources gone" in capsys.readouterr().out
    assert main(["list"]) == 0
    assert capsys.readouterr().out == "nothing exists in the sandbox\n"


def test_faults_are_added_listed_and_cleared(
    cloud: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fault", "add", "--on", "create", "--type", TOPIC, "--nth", "2"]) == 0
    assert main(["fault", "add", "--on", "update", "--name", "one", "--timeout", "--always"]) == 0
    capsys.readouterr()
    assert main(["fault", "list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"fault 1: the 2. create of {TOPIC} fails (0 seen)",
        "fault 2: the 1. update of any type named one times out, and every one after it (0 seen)",
    ]
    assert main(["fault", "clear"]) == 0
    assert "2 faults forgotten" in capsys.readouterr().out


def test_file_can_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "other" / "cloud.sqlite"
    assert main(["--cloud", str(file), "list"]) == 0
    assert file.exists()
    assert "nothing exists" in capsys.readouterr().out


def test_what_exists_outside_of_every_stack_is_found_by_queries(
    cloud: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--region", "me-central-1"]
    block = "cidrBlock=10.0.0.0/16"
    hub = [
        "add",
        "aws:ec2/vpc:Vpc",
        "hub",
        block,
        "tags.Name=hub",
        "--id",
        "vpc-0123456789abcdef0",
    ]
    assert main([*hub, *where]) == 0
    assert main(["add", "aws:route53/zone:Zone", "shop", "name=shop.ae", *where]) == 0
    assert main(["add", "azure-native:resources:ResourceGroup", "net", "resourceGroupName=net",
                 "--region", "uaenorth"]) == 0  # fmt: skip
    network = ["resourceGroupName=net", "virtualNetworkName=hub"]
    network += ['addressSpace.addressPrefixes=["10.0.0.0/16"]']
    assert main(["add", "azure-native:network:VirtualNetwork", "hub", *network]) == 0
    assert "hub exists: vpc-0123456789abcdef0" in capsys.readouterr().out
    aws = Sandbox("aws", cloud, config={"region": "me-central-1"})
    by_name = {"tags": {"Name": "hub"}}
    assert aws.invoke("aws:ec2/getVpc:getVpc", by_name)["id"] == "vpc-0123456789abcdef0"
    assert aws.invoke("aws:route53/getZone:getZone", {"name": "shop.ae"})["name"] == "shop.ae"
    azure = Sandbox("azure", cloud, config={"location": "uaenorth"})
    asked = {"resourceGroupName": "net", "virtualNetworkName": "hub"}
    found = azure.invoke("azure-native:network:getVirtualNetwork", asked)
    assert found["location"] == "uaenorth"
    assert main([*hub, *where]) == 2
    assert "'hub' is there already" in capsys.readouterr().err
    assert main(["lose", "Zone shop"]) == 0
