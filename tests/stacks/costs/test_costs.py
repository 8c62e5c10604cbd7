"""Lines, amounts and totals, of stacks made by hand and of the shipped ones."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from falaj.components import catalogue
from falaj.stacks import costs
from falaj.stacks.costs import Costs, Line
from falaj.stacks.errors import StackError
from falaj.stacks.resources import of_export, of_preview
from tests.policies.strategies import values
from tests.stacks.in_mocks import shipped
from tests.stacks.states import ALL, Form, declared, place, resource, states

AUTHORITY = "aws:acmpca/certificateAuthority:CertificateAuthority"
AWS, AZURE = "aws/me-central-1", "azure/uaenorth"
H200 = catalogue.parse(AWS).machine("p5en.48xlarge").usd_per_hour or Decimal(0)
D4 = catalogue.parse(AZURE).machine("Standard_D4as_v6").usd_per_hour or Decimal(0)
AWS_PROVIDER = {
    "urn": "urn:pulumi:dev::shop::pulumi:providers:aws::uae",
    "type": "pulumi:providers:aws",
    "custom": True,
    "id": "p",
    "inputs": {"region": "me-central-1"},
}


def aws(kind: str, name: str = "it", /, **inputs: Any) -> dict[str, Any]:
    return {
        **resource(kind, name, **inputs),
        "provider": f"{AWS_PROVIDER['urn']}::p",
    }


def azure(kind: str, name: str = "it", /, **inputs: Any) -> dict[str, Any]:
    return resource(kind, name, location="uaenorth", **inputs)


def of(*states: dict[str, Any], prices: costs.Prices = costs.NO_PRICES) -> Costs:
    return costs.of([AWS_PROVIDER, *states], "", prices)


def one(found: Costs, meter: str) -> Line:
    (line,) = [each for each in found.lines if each.charge.meter == meter]
    return line


def ends(found: Costs, meter: str) -> tuple[Decimal | None, Decimal | None]:
    amount = one(found, meter).charge.amount
    return amount.least, amount.most


def template(**inputs: Any) -> dict[str, Any]:
    return {**aws("aws:ec2/launchTemplate:LaunchTemplate", "lt", **inputs), "id": "lt-1"}


def group(**inputs: Any) -> dict[str, Any]:
    given = {"minSize": 1, "maxSize": 3, "launchTemplate": {"id": "lt-1"}, "name": "workers"}
    return aws("aws:autoscaling/group:Group", "workers", **{**given, **inputs})


# Pools


@pytest.mark.parametrize("form", ["state", "preview", "unknown"])
def test_the_clusters_pools_cost_what_the_catalogue_says(form: Form) -> None:
    found = costs.of(states("azure-cluster", form), AZURE)
    pools = {
        each.charge.machines[0]: (each.least, each.most)
        for each in found.lines
        if each.charge.is_machines
    }
    sizes = {
        "Standard_ND96isr_H200_v5": (0, 4),
        "Standard_NC40ads_H100_v5": (0, 4),
        "Standard_NV12ads_A10_v5": (0, 8),
        "Standard_D4als_v6": (2, 6),
        "Standard_D4as_v6": (3, 3),
    }
    prices = {name: catalogue.parse(AZURE).machine(name).usd_per_hour or 0 for name in sizes}
    assert pools == {
        name: (least * prices[name], most * prices[name]) for name, (least, most) in sizes.items()
    }
    assert found.total.least == sum(least for least, _ in pools.values() if least)
    assert found.total.most == sum(most for _, most in pools.values() if most)


@pytest.mark.parametrize(
    "form",
    [
        "unknown",
        *(pytest.param(each, marks=pytest.mark.thorough) for each in ("state", "preview")),
    ],
)
def test_the_same_stack_costs_the_same_in_every_form(form: Form) -> None:
    for stack in ("aws-cluster", "aws-smb", "azure-smb"):
        whole, other = (costs.of(states(stack, each), place(stack)) for each in ("state", form))
        assert other.as_text() == whole.as_text()


def test_a_private_authority_is_a_line_and_the_shipped_tier_has_none() -> None:
    shipped = costs.of(states("aws-smb", "state"), place("aws-smb"))
    assert not [each for each in shipped.lines if each.charge.resource.kind == AUTHORITY]
    authority = aws(AUTHORITY, "authority", usageMode="GENERAL_PURPOSE")
    line = one(of(authority), "authority")
    assert line.charge.meter == "authority"
    assert line.charge.variant == ("GENERAL_PURPOSE",)
    assert line.why_unknown == "no price file states it"


def test_machines_of_a_node_group_are_those_of_its_launch_template() -> None:
    node_group = aws(
        "aws:eks/nodeGroup:NodeGroup", "gpu", launchTemplate={"id": "lt-1", "version": "1"},
        scalingConfig={"minSize": 0, "maxSize": 4, "desiredSize": 0}, capacityType="ON_DEMAND",
    )  # fmt: skip
    found = of(template(instanceType="p5en.48xlarge"), node_group)
    line = one(found, "node group")
    assert line.charge.machines == ("p5en.48xlarge",)
    assert (line.least, line.most) == (0, 4 * H200)


def test_a_preview_finds_the_launch_template_by_what_the_property_was_made_from() -> None:
    made = template(instanceType="p5en.48xlarge")
    del made["id"]
    node_group = aws(
        "aws:eks/nodeGroup:NodeGroup", "gpu",
        launchTemplate={"id": "04da6b54-80e4-46f7-96ec-b56ff0331ba9"},
        scalingConfig={"minSize": 1, "maxSize": 2},
    )  # fmt: skip
    node_group["propertyDependencies"] = {"launchTemplate": [made["urn"]]}
    assert one(of(made, node_group), "node group").least == H200


def test_a_node_group_that_names_nothing_has_the_services_default() -> None:
    found = of(aws("aws:eks/nodeGroup:NodeGroup", scalingConfig={"minSize": 1, "maxSize": 2}))
    assert one(found, "node group").charge.machines == ("t3.medium",)
    assert ends(found, "storage") == (20, 40)


def test_spot_machines_have_no_price_but_none_costs_nothing() -> None:
    spot = {
        "instanceTypes": ["p5en.48xlarge"], "capacityType": "SPOT",
        "scalingConfig": {"minSize": 0, "maxSize": 4},
    }  # fmt: skip
    line = one(of(aws("aws:eks/nodeGroup:NodeGroup", **spot)), "node group")
    assert (line.least, line.most) == (0, None)
    assert "spot" in line.why_unknown


@pytest.mark.parametrize(
    ("given", "capacity"),
    [
        ({"instanceMarketOptions": {"marketType": "spot"}}, "spot"),
        ({"instanceMarketOptions": {"marketType": "capacity-block"}}, "capacity-block"),
        (
            {"capacityReservationSpecification": {"capacityReservationTarget": {
                "capacityReservationId": "cr-1"}}},
            "reservation",
        ),
        ({"capacityReservationSpecification": {"capacityReservationPreference": "none"}},
         "on-demand"),
    ],
)  # fmt: skip
def test_how_machines_are_bought_is_in_the_launch_template(
    given: dict[str, Any], capacity: str
) -> None:
    found = of(template(instanceType="p5en.48xlarge", **given), group())
    line = one(found, "Auto Scaling group")
    assert line.charge.capacity == capacity
    assert (line.least is None) == (capacity != "on-demand")


def test_several_machine_types_cost_between_the_cheapest_and_the_dearest() -> None:
    types = ["p5en.48xlarge", "g6.12xlarge"]
    small = catalogue.parse(AWS).machine("g6.12xlarge").usd_per_hour or Decimal(0)
    node_group = aws(
        "aws:eks/nodeGroup:NodeGroup", instanceTypes=types,
        scalingConfig={"minSize": 1, "maxSize": 2},
    )  # fmt: skip
    line = one(of(node_group), "node group")
    assert (line.least, line.most) == (small, 2 * H200)
    types.append("c7i.large")
    line = one(of(node_group), "node group")
    assert (line.least, line.most) == (None, None)


def test_windows_and_own_hosts_have_no_list_price() -> None:
    windows = aws(
        "aws:eks/nodeGroup:NodeGroup", instanceTypes=["p5en.48xlarge"],
        amiType="WINDOWS_FULL_2022_x86_64", scalingConfig={"minSize": 1, "maxSize": 1},
    )  # fmt: skip
    assert one(of(windows), "node group").least is None
    alone = aws("aws:ec2/instance:Instance", instanceType="p5en.48xlarge", tenancy="dedicated")
    assert one(of(alone), "machine").least is None
    shared = aws("aws:ec2/instance:Instance", instanceType="p5en.48xlarge", tenancy="default")
    assert one(of(shared), "machine").least == H200


def test_schedules_move_both_ends_of_a_group() -> None:
    night = aws(
        "aws:autoscaling/schedule:Schedule", "night", autoscalingGroupName="workers",
        minSize=0, maxSize=-1, desiredCapacity=0,
    )  # fmt: skip
    peak = aws(
        "aws:autoscaling/schedule:Schedule", "peak", autoscalingGroupName="workers", maxSize=9
    )
    found = of(template(instanceType="p5en.48xlarge"), group(), night, peak)
    assert ends(found, "Auto Scaling group") == (0, 9)


def test_mixed_groups_are_partly_spot() -> None:
    policy = {
        "launchTemplate": {"launchTemplateSpecification": {"launchTemplateId": "lt-1"}},
        "instancesDistribution": {
            "onDemandBaseCapacity": 2, "onDemandPercentageAboveBaseCapacity": 25,
        },
    }  # fmt: skip
    given = group(minSize=1, maxSize=10, mixedInstancesPolicy=policy, launchTemplate=None)
    found = of(template(instanceType="p5en.48xlarge"), given)
    shares = {
        each.charge.capacity: (each.charge.amount.least, each.charge.amount.most)
        for each in found.lines
        if each.charge.is_machines
    }
    # 2 of the base and a quarter of the 8 above it.
    assert shares == {"on-demand": (1, 4), "spot": (0, 6)}


def test_weighted_groups_have_an_unknown_number_of_machines() -> None:
    policy = {
        "launchTemplate": {
            "launchTemplateSpecification": {"launchTemplateId": "lt-1"},
            "overrides": [{"instanceType": "p5en.48xlarge", "weightedCapacity": "8"}],
        }
    }
    given = group(minSize=8, mixedInstancesPolicy=policy, launchTemplate=None)
    found = of(template(instanceType="g6.12xlarge"), given)
    assert ends(found, "Auto Scaling group") == (None, None)


def test_a_machine_type_of_another_stack_is_unknown_and_named() -> None:
    found = of(group(launchTemplate={"id": "lt-of-others"}))
    line = one(found, "Auto Scaling group")
    assert line.charge.machines == ()
    assert line in found.unknown
    assert "workers" in found.summary()


def test_agent_pools_and_profiles_are_counted_once() -> None:
    cluster = azure(
        "azure-native:containerservice:ManagedCluster", "aks", resourceName="aks",
        agentPoolProfiles=[
            {"name": "system", "vmSize": "Standard_D4as_v6", "count": 3},
            {"name": "gpu", "vmSize": "Standard_D4as_v6", "count": 1},
        ],
    )  # fmt: skip
    pool = azure(
        "azure-native:containerservice:AgentPool", "gpu", resourceName="aks",
        agentPoolName="gpu", vmSize="Standard_D4as_v6", enableAutoScaling=True, minCount=0,
        maxCount=8,
    )  # fmt: skip
    found = costs.of([cluster, pool])
    assert (found.total.least, found.total.most) == (3 * D4, 11 * D4)


def test_autoscaling_moves_both_ends_of_a_scale_set() -> None:
    scale_set = {
        **azure(
            "azure-native:compute:VirtualMachineScaleSet", "set",
            sku={"name": "Standard_D4as_v6", "capacity": 3},
        ),
        "id": "/subscriptions/s/virtualMachineScaleSets/set",
    }  # fmt: skip
    setting = azure(
        "azure-native:monitor:AutoscaleSetting", "scaling",
        targetResourceUri="/subscriptions/s/virtualMachineScaleSets/set",
        profiles=[{"capacity": {"minimum": "0", "maximum": "5", "default": "1"}}],
    )  # fmt: skip
    assert ends(costs.of([scale_set]), "scale set") == (3, 3)
    assert ends(costs.of([scale_set, setting]), "scale set") == (0, 5)
    windows = {"osProfile": {"windowsConfiguration": {}}}
    scale_set["inputs"]["virtualMachineProfile"] = windows
    assert one(costs.of([scale_set]), "scale set").least is None


def test_containers_cost_by_their_replicas() -> None:
    app = azure(
        "azure-native:app:ContainerApp",
        template={
            "containers": [
                {"resources": {"cpu": 2, "memory": "4Gi"}},
                {"resources": {"cpu": 0.5, "memory": "1Gi"}},
            ],
            "scale": {"minReplicas": 1, "maxReplicas": 3},
        },
    )
    found = costs.of([app])
    vcpus = [each.charge.amount for each in found.lines if each.charge.meter == "vCPUs"]
    memory = [each.charge.amount for each in found.lines if each.charge.meter == "memory"]
    assert [(each.least, each.most) for each in vcpus] == [
        (2, 6),
        (Decimal("0.5"), Decimal("1.5")),
    ]
    assert [(each.least, each.most) for each in memory] == [(4, 12), (1, 3)]
    del app["inputs"]["template"]["scale"]
    found = costs.of([app])
    assert found.lines[0].charge.amount.least == 0


def test_disks_of_machines_are_charged_with_what_is_beyond_gp3() -> None:
    mappings = [
        {"ebs": {"volumeSize": 200, "volumeType": "gp3", "iops": 6000, "throughput": 500}},
        {"ebs": {"volumeSize": 50, "volumeType": "gp3", "iops": 3000, "throughput": 125}},
    ]
    found = of(template(instanceType="g6e.xlarge", blockDeviceMappings=mappings), group())
    storage = [each.charge.amount for each in found.lines if each.charge.meter == "storage"]
    assert [(each.least, each.most) for each in storage] == [(200, 600), (50, 150)]
    assert ends(found, "further operations") == (3000, 9000)
    assert ends(found, "further throughput") == (375, 1125)


# Other charges


def test_an_endpoint_costs_in_each_zone_and_a_gateway_endpoint_nothing() -> None:
    given = {"serviceName": "com.amazonaws.me-central-1.logs", "subnetIds": ["a", "b", "c"]}
    kind = "aws:ec2/vpcEndpoint:VpcEndpoint"
    assert ends(of(aws(kind, vpcEndpointType="Interface", **given)), "endpoint in a zone") == (
        3,
        3,
    )
    for free in ({"vpcEndpointType": "Gateway"}, {}):
        found = of(aws(kind, **free, serviceName="com.amazonaws.me-central-1.s3"))
        assert (found.lines, found.free) == ((), 1)


def test_what_cant_be_seen_may_cost_nothing_or_something() -> None:
    unknown = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
    found = of(
        aws("aws:ec2/vpcEndpoint:VpcEndpoint", vpcEndpointType=unknown, subnetIds=["a", "b"])
    )
    assert ends(found, "endpoint in a zone") == (0, 2)


def test_a_key_costs_more_when_it_has_been_rotated_twice() -> None:
    key = "aws:kms/key:Key"
    rotated = of(aws(key, enableKeyRotation=True))
    assert ends(rotated, "key and its rotations") == (1, 3)
    assert ends(of(aws(key)), "key and its rotations") == (1, 1)


def test_sizes_are_read_in_the_units_that_they_are_billed_in() -> None:
    pool = azure("azure-native:netapp:CapacityPool", size=2199023255552, serviceLevel="Ultra")
    assert ends(costs.of([pool]), "pool") == (2048, 2048)
    claim = resource(
        "kubernetes:core/v1:PersistentVolumeClaim",
        apiVersion="v1", kind="PersistentVolumeClaim",
        spec={"resources": {"requests": {"storage": "2Ti"}}, "storageClassName": "fast"},
    )  # fmt: skip
    assert ends(costs.of([claim]), "volume") == (2048, 2048)
    claim["inputs"]["spec"]["volumeName"] = "made-elsewhere"
    assert costs.of([claim]).lines == ()


def test_a_claim_template_makes_a_volume_for_each_replica() -> None:
    database = resource(
        "kubernetes:apps/v1:StatefulSet", apiVersion="apps/v1", kind="StatefulSet",
        spec={
            "replicas": 3,
            "volumeClaimTemplates": [
                {"spec": {"resources": {"requests": {"storage": "10Gi"}}}},
            ],
        },
    )  # fmt: skip
    assert ends(costs.of([database]), "volumes") == (30, 30)


@pytest.mark.parametrize(("kind", "balancers"), [("LoadBalancer", 1), ("ClusterIP", 0)])
def test_services_cost_where_they_make_a_load_balancer(kind: str, balancers: int) -> None:
    service = resource(
        "kubernetes:core/v1:Service", apiVersion="v1", kind="Service", spec={"type": kind}
    )
    found = costs.of([service], AWS)
    assert len([each for each in found.lines if each.charge.meter == "load balancer"]) == balancers
    assert "cluster's machines" in found.summary()


def test_patches_of_what_others_made_cost_nothing() -> None:
    patch = resource(
        "kubernetes:core/v1:ServicePatch", apiVersion="v1", kind="Service",
        spec={"type": "LoadBalancer"},
    )  # fmt: skip
    found = costs.of([patch])
    assert (found.lines, found.unclassified, found.free) == ((), (), 1)


def test_shares_cost_by_their_account() -> None:
    share = azure("azure-native:storage:FileShare", accountName="homes", shareQuota=256)
    premium = azure(
        "azure-native:storage:StorageAccount", "a", accountName="homes", kind="FileStorage"
    )
    other = azure(
        "azure-native:storage:StorageAccount", "a", accountName="Homes", kind="StorageV2"
    )
    assert ends(costs.of([share, premium]), "share") == (256, 256)
    assert one(costs.of([share, other]), "share").is_by_use
    assert ends(costs.of([share]), "share") == (0, 256)


def test_the_free_tier_of_a_control_plane_costs_nothing() -> None:
    kind = "azure-native:containerservice:ManagedCluster"
    free = costs.of([azure(kind), azure(kind, "b", sku={"tier": "Free"})])
    assert not [each for each in free.lines if each.charge.meter == "control plane"]
    paid = costs.of([azure(kind, sku={"name": "Base", "tier": "Standard"})])
    assert one(paid, "control plane").charge.variant == ("Standard",)


def test_an_addon_of_a_seller_may_cost() -> None:
    kind = "aws:eks/addon:Addon"
    assert of(aws(kind, addonName="vpc-cni")).lines == ()
    assert one(of(aws(kind, addonName="seller_thing")), "add-on of a seller").is_by_use


# What is left out, and what isn't


def test_a_type_that_nobody_knows_is_named() -> None:
    found = of(resource("oci:Core/instance:Instance", "web"))
    assert [each.type for each in found.unclassified] == ["oci:Core/instance:Instance"]
    assert "Not known whether they cost: oci:Core/instance:Instance" in found.summary()
    assert "web" in found.as_text()


def test_what_is_only_read_is_paid_by_others() -> None:
    read = {**aws("aws:ec2/natGateway:NatGateway"), "external": True}
    assert of(read).lines == ()
    assert of(aws("aws:ec2/natGateway:NatGateway")).lines != ()


def test_what_is_on_its_way_out_costs_no_more() -> None:
    gone = {**aws("aws:ec2/natGateway:NatGateway"), "delete": True}
    assert of(gone).lines == ()


def test_prices_of_one_place_are_not_taken_for_another() -> None:
    abroad = aws("aws:ec2/instance:Instance", instanceType="p5en.48xlarge", region="us-east-1")
    line = one(costs.of([AWS_PROVIDER, abroad], AWS), "machine")
    assert line.least is None
    assert "aws/us-east-1" in line.why_unknown


def test_components_are_their_parts() -> None:
    component = {**resource("my:index:Thing"), "custom": False}
    assert costs.of([component]) == Costs("dev", "", (), (), 0)


def test_nothing_costs_nothing() -> None:
    assert costs.of([]).summary() == "USD 0.00 per hour (0 per month)"


@pytest.mark.parametrize("wrong", [[{}], [{"urn": 1, "type": "x"}], [None], ["x"]])
def test_what_isnt_a_resource_is_refused(wrong: Any) -> None:
    with pytest.raises(StackError, match="can't be read") as caught:
        costs.of(wrong)
    assert "pulumi stack export" in str(caught.value)


# What is said


@pytest.mark.parametrize("stack", ALL)
@pytest.mark.parametrize("width", [40, 80, 120])
def test_texts_fit_and_name_every_resource_that_costs(stack: str, width: int) -> None:
    found = costs.of(states(stack), place(stack))
    text = found.as_text(width)
    assert max(map(len, text.splitlines())) <= width
    joined = "".join(text.split())
    for each in found.lines:
        assert each.charge.resource.name.replace(" ", "") in joined
        assert each.charge.meter.replace(" ", "") in joined


def test_the_total_is_said_as_people_say_it() -> None:
    pools = [
        aws("aws:ec2/instance:Instance", "a", instanceType="p5en.48xlarge"),
        aws("aws:fsx/lustreFileSystem:LustreFileSystem", "files", storageCapacity=2400),
    ]
    said = of(*pools).summary()
    month = f"{H200 * 730:,.0f}"
    assert said.startswith(f"at least USD {H200:.2f} per hour ({month} per month), plus 2 prices")
    assert "FSx storage, 2,400 GiB: files" in said


def test_plain_data_is_json_and_exact() -> None:
    found = costs.of(states("azure-cluster"), AZURE)
    data = json.loads(json.dumps(found.as_json()))
    assert Decimal(data["total"]["perHour"]["most"]) == found.total.most
    assert Decimal(data["total"]["perMonth"]["least"]) == found.total.monthly_least
    assert len(data["lines"]) == len(found.lines)
    assert data["unknownPrices"] > 0
    assert {each["place"] for each in data["lines"]} <= {AZURE, "global"}


def test_costs_are_told_by_who_pays() -> None:
    config = shipped("azure-cluster")
    config["falaj:costCenter"] = "research"
    found = costs.of(declared(config, "azure-cluster"), AZURE)
    shares = found.by_cost_center()
    assert shares["research"].most == found.total.most
    tagged = aws("aws:ec2/instance:Instance", "a", instanceType="p5en.48xlarge", tags={
        "cost-center": "sales"})  # fmt: skip
    plain = aws("aws:ec2/instance:Instance", "b", instanceType="p5en.48xlarge")
    assert {name: each.most for name, each in of(tagged, plain).by_cost_center().items()} == {
        "": H200, "sales": H200,
    }  # fmt: skip
    listed = group(tags=[{"key": "falaj:cost-center", "value": "ml", "propagateAtLaunch": True}])
    shares = of(template(instanceType="p5en.48xlarge"), listed).by_cost_center()
    assert shares["ml"].most == 3 * H200


def test_names_cant_steer_the_terminal() -> None:
    evil = aws("aws:ec2/natGateway:NatGateway", "a\x1b[2J\u202eb\n\u0000c")
    text = of(evil).as_text()
    assert not {each for each in text if each != "\n" and not each.isprintable()}


# Documents


def test_resources_of_a_preview_are_what_will_be() -> None:
    urn = "urn:pulumi:dev::shop::aws:ec2/natGateway:NatGateway::gate"
    state = {"urn": urn, "type": "aws:ec2/natGateway:NatGateway", "custom": True, "inputs": {}}
    document = {
        "steps": [
            {"op": "create-replacement", "newState": {**state, "inputs": {"a": 1}}},
            {"op": "replace", "newState": {**state, "inputs": {"a": 2}}},
            {"op": "delete-replaced", "oldState": state},
            {"op": "delete", "newState": {**state, "urn": f"{urn}2"}},
        ]
    }
    assert [each["inputs"] for each in of_preview(document)] == [{"a": 2}]
    for wrong in (None, [], {"steps": {}}):
        with pytest.raises(StackError, match="preview"):
            of_preview(wrong)


def test_resources_of_an_export_are_those_of_its_deployment() -> None:
    assert of_export({"deployment": {"resources": [{"urn": "u"}]}}) == [{"urn": "u"}]
    assert of_export({"deployment": {}}) == []
    for wrong in (None, [], {}, {"deployment": {"resources": {}}}):
        with pytest.raises(StackError, match="stack export"):
            of_export(wrong)


PROPERTIES = values(
    st.sampled_from([
        "vmSize", "minCount", "maxCount", "enableAutoScaling", "launchTemplate", "id", "tags",
        "mixedInstancesPolicy", "launchTemplate", "overrides", "scalingConfig", "minSize", "spec",
        "agentPoolProfiles", "computeResources", "rootBlockDevice", "ebsBlockDevices",
        "volumeSize", "template", "containers", "resources", "scale", "storageCapacity",
        "instancesDistribution", "blockDeviceMappings", "ebs", "iops", "sku", "capacity", "size",
    ])
)  # fmt: skip


@given(
    st.lists(
        st.tuples(
            st.sampled_from([
                "aws:autoscaling/group:Group", "aws:eks/nodeGroup:NodeGroup",
                "aws:ec2/instance:Instance", "aws:ec2/launchTemplate:LaunchTemplate",
                "aws:ebs/volume:Volume", "aws:batch/computeEnvironment:ComputeEnvironment",
                "azure-native:containerservice:AgentPool", "azure-native:app:ContainerApp",
                "azure-native:containerservice:ManagedCluster", "azure-native:compute:Disk",
                "azure-native:compute:VirtualMachineScaleSet", "azure-native:storage:FileShare",
                "azure-native:monitor:AutoscaleSetting", "aws:dynamodb/table:Table",
                "kubernetes:apps/v1:StatefulSet", "kubernetes:core/v1:Service", "x:y:Z",
                "azure-native:machinelearningservices:Compute", "aws:ec2/fleet:Fleet",
            ]),
            st.dictionaries(st.text(max_size=12), PROPERTIES, max_size=4) | PROPERTIES,
        ),
        max_size=5,
    )
)  # fmt: skip
def test_any_resource_has_costs(given: list[tuple[str, Any]]) -> None:
    made = [
        {**resource(kind, f"r{number}"), "inputs": inputs}
        for number, (kind, inputs) in enumerate(given)
    ]
    found = costs.of(made, AWS)
    assert found.total.least <= found.total.most
    assert json.loads(json.dumps(found.as_json()))["summary"] == found.summary()
    assert max(map(len, found.as_text().splitlines())) <= 80 + 2
    for each in found.lines:
        assert each.least is None or each.most is None or each.least <= each.most
    assert yaml.safe_load(found.as_price_file())["prices"] is not None


def test_this_package_knows_no_price() -> None:
    """Prices come from the catalogue or a file; none hides in the tables or the code."""
    folder = Path(costs.__file__).parent
    for path in (*folder.glob("*.py"), *folder.glob("tables/*.yaml")):
        text = path.read_text(encoding="utf-8")
        assert "usd_per_hour=" not in text
        assert not re.search(r"\$ ?\d", text), path
