"""The add-on that repairs nodes: options, what the controller is told, and what it may do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pulumi
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.components.catalogue.clusters import GPU_ERROR_TAINT, NODE_REPAIR
from falaj.components.catalogue.gpu_errors import CONTAINED, XIDS
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes.addons.alerts import GPU_HEALTH
from falaj.components.kubernetes.addons.alerts import NODE_REPAIR as ALERTS
from falaj.components.kubernetes.addons.installation import installations, manifests
from falaj.components.kubernetes.addons.node_repair import PORT, controller_settings
from falaj.workloads.repair import command
from falaj.workloads.repair.settings import parse_settings
from falaj.workloads.repair.watching import Metrics
from tests.components.kubernetes.platforms import spec, values

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"most_out": 0}, "most_out: given 0; allowed: 1 to 5000, or 1% to 100%"),
    ({"most_out": "200%"}, "most_out: given '200%'"),
    ({"most_out": "ten"}, "most_out: given 'ten'"),
    ({"conditions": ["Ready"]}, "conditions[0]: given 'Ready'; allowed: TYPE=True or"),
    ({"conditions": "XIDErrors=True"}, "a list of texts"),
    ({"taints": [GPU_ERROR_TAINT]}, "keys of taints that only sick nodes have"),
    ({"taints": ["nvidia.com/gpu"]}, "keys of taints that only sick nodes have"),
    ({"taints": ["a b"]}, "taints[0]: given 'a b'"),
    ({"sick_minutes": -1}, "sick_minutes: given -1; allowed: a whole number from 0 to 1440"),
    ({"drain_minutes": 1.5}, "drain_minutes: given 1.5"),
    ({"healthy_minutes": 9999}, "healthy_minutes: given 9999"),
    ({"dry_run": "yes"}, "dry_run: given 'yes'"),
    ({"reset": "reboot"}, "is not an option of node-repair"),
]


@pytest.mark.parametrize(("options", "said"), WRONG)
def test_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        spec("existing", {NODE_REPAIR: options})
    assert said in str(refused.value)


def test_eks_has_its_own() -> None:
    with pytest.raises(pulumi.InputPropertiesError, match="can't be installed on eks"):
        spec("eks", {NODE_REPAIR: True})


def test_nothing_is_evicted_where_nobody_asked() -> None:
    for place in ("aks", "existing"):
        assert not spec(place).has(NODE_REPAIR)


def objects(place: str = "existing", **options: Any) -> list[Manifest]:
    found = spec(place, {NODE_REPAIR: options or True})
    (addon,) = [each for each in installations(found) if each.addon == NODE_REPAIR]
    return list(addon.after)


def the(kind: str, name: str = NODE_REPAIR, **options: Any) -> dict[str, Any]:
    (found,) = [
        each
        for each in objects(**options)
        if each["kind"] == kind and each["metadata"]["name"] == name
    ]
    return dict(found)


OPTIONS = st.fixed_dictionaries({}, optional={
    "most_out": st.integers(1, 5000) | st.integers(1, 100).map(lambda n: f"{n}%"),
    "sick_minutes": st.integers(0, 1440), "healthy_minutes": st.integers(0, 1440),
    "drain_minutes": st.integers(0, 10080), "dry_run": st.booleans(),
    "evict_unmanaged": st.booleans(), "read_gpus": st.booleans(),
    "conditions": st.just(["XIDErrors=True"]), "taints": st.just(["example.com/sick"]),
})  # fmt: skip


@given(st.sampled_from(["aks", "existing"]), OPTIONS)
def test_the_controller_takes_whatever_the_add_on_tells_it(
    place: str, options: dict[str, Any]
) -> None:
    of = spec(place, {NODE_REPAIR: options})
    read = parse_settings(json.loads(json.dumps(controller_settings(of))))
    for option in ("sick_minutes", "healthy_minutes", "drain_minutes", "dry_run",
                   "evict_unmanaged"):  # fmt: skip
        if option in options:
            assert getattr(read, option) == options[option]
    if "most_out" in options:
        assert read.most_out == str(options["most_out"])
    assert (read.exporters is not None) is options.get("read_gpus", True)
    assert bool(read.xids) is (read.exporters is not None)


def test_conditions_are_of_what_writes_them() -> None:
    on_aks = controller_settings(spec("aks", {NODE_REPAIR: True}))
    assert on_aks["conditions"] == ["GPUMissing=True", "NVLinkStatusInactive=True"]
    assert controller_settings(spec("existing", {NODE_REPAIR: True}))["conditions"] == []


def test_without_the_operator_nothing_is_read() -> None:
    given_ = {NODE_REPAIR: True, "gpu-operator": False, "network-operator": False}
    assert "exporters" not in controller_settings(spec("existing", given_))


def test_its_rights_are_these_and_no_others() -> None:
    rules = {
        (each["kind"], each["metadata"].get("namespace", "")): [
            (rule["resources"], rule["verbs"], rule.get("resourceNames")) for rule in each["rules"]
        ]
        for each in objects()
        if each["kind"] in {"Role", "ClusterRole"}
    }
    assert rules == {
        ("ClusterRole", ""): [
            (["nodes"], ["get", "list", "patch"], None),
            (["nodes/status"], ["patch"], None),
            (["pods"], ["list"], None),
            (["pods/eviction"], ["create"], None),
        ],
        ("Role", NODE_REPAIR): [
            (["leases"], ["create"], None),
            (["leases"], ["get", "update"], [command.LEASE]),
        ],
        ("Role", "default"): [(["events"], ["create"], None)],
    }


def test_its_pods_call_the_command_as_it_is() -> None:
    pod = the("Deployment")["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["python", "-m", "falaj.workloads.repair"]
    options = command.build_parser().parse_args(container["args"])
    assert options.namespace == NODE_REPAIR
    assert options.listen == f"0.0.0.0:{PORT}"
    (mount,) = container["volumeMounts"]
    assert options.settings == Path(mount["mountPath"]) / next(iter(the("ConfigMap")["data"]))
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert pod["spec"]["securityContext"]["runAsUser"] == 65532


def test_other_settings_start_its_pods_anew() -> None:
    notes = [
        the("Deployment", **options)["spec"]["template"]["metadata"]["annotations"]
        for options in ({}, {"drain_minutes": 7})
    ]
    assert notes[0] != notes[1]


def test_it_reaches_the_exporters_and_they_let_it_in() -> None:
    def policies(**asked: Any) -> set[tuple[str, str]]:
        return {
            (each["metadata"]["namespace"], each["metadata"]["name"])
            for each in manifests(spec("existing", asked))
            if each["kind"] == "NetworkPolicy"
        }

    both = {(NODE_REPAIR, "allow-to-gpu-operator"), ("gpu-operator", f"allow-from-{NODE_REPAIR}")}
    assert policies(**{NODE_REPAIR: True}) >= both
    assert not policies() & both
    assert (NODE_REPAIR, "allow-to-gpu-operator") not in policies(
        **{NODE_REPAIR: {"read_gpus": False}}
    )


def test_agents_stay_on_nodes_that_are_taken_out() -> None:
    found = values(spec("existing"))["gpu-operator"]
    keys = [each["key"] for each in found["daemonsets"]["tolerations"]]
    assert GPU_ERROR_TAINT in keys
    worker = found["node-feature-discovery"]["worker"]["tolerations"]
    assert GPU_ERROR_TAINT in [each["key"] for each in worker]


def test_alerts_ask_for_what_the_controller_reports() -> None:
    lines = Metrics().render().decode().splitlines()
    served = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    asked = {name for each in ALERTS for name in re.findall(r"falaj_node_repair_\w+", each.expr)}
    assert asked
    assert asked <= served


def test_the_alert_and_the_repair_go_by_the_same_errors() -> None:
    (alert,) = [each for each in GPU_HEALTH if each.name == "GpuFatalError"]
    found = re.search(r'xid=~"([0-9|]+)"', alert.expr)
    assert found is not None
    assert {int(each) for each in found[1].split("|")} == {*XIDS, CONTAINED}
    assert {str(each) for each in XIDS} == set(
        controller_settings(spec("existing", {NODE_REPAIR: True}))["xids"]
    )
