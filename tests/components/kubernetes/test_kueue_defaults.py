"""The platform's Kueue and that of the test control plane are configured alike."""

from __future__ import annotations

from pathlib import Path

import yaml

from falaj.components.kubernetes.addons.installation import installations
from falaj.components.kubernetes.addons.kueue import FRAMEWORKS, GATES
from falaj.engine.controlplane.controllers import PORTS, configuration, known, platforms
from tests.components.kubernetes.kueue_defaults import FILE, document
from tests.components.kubernetes.platforms import spec


def test_the_engines_file_is_what_the_add_on_renders() -> None:
    assert FILE.read_text(encoding="utf-8") == document(), (
        "write it again: python -m tests.components.kubernetes.kueue_defaults"
    )


def test_a_plain_control_plane_configures_kueue_as_the_chart_does() -> None:
    """But for addresses and certificates, and for where the feature gates stand."""
    (chart,) = [
        chart
        for each in installations(spec("existing"))
        for chart in each.charts
        if chart.release == "kueue"
    ]
    values = chart.values
    rendered = yaml.safe_load(values["managerConfig"]["controllerManagerConfigYaml"])
    gates = values["controllerManager"]["featureGates"]
    started = configuration(known(list(range(PORTS)))["kueue"], platforms("kueue"), Path())
    own = {
        "health", "metrics", "webhook", "leaderElection", "clientConnection",
        "internalCertManagement", "namespace", "featureGates",
    }  # fmt: skip
    assert {key: started[key] for key in started.keys() - own} == {
        key: rendered[key] for key in rendered.keys() - own
    }
    assert {each["name"]: each["enabled"] for each in gates} == {
        gate: started["featureGates"][gate] for gate in GATES
    }


def test_jobs_are_gangs_there() -> None:
    """Kueue by itself manages no JobSet, so that it would stop its jobs one by one."""
    found = platforms("kueue")
    assert set(FRAMEWORKS) == set(found["integrations"]["frameworks"])
    assert found["manageJobsWithoutQueueName"] is True


def test_other_controllers_have_no_configuration_of_the_platforms() -> None:
    assert platforms("jobset") == platforms("trainer") == {}
