"""The documents' commands for clusters on this machine, simulated and real."""

from __future__ import annotations

import re

import pytest

from falaj.engine.controlplane import prerequisites
from tests.newcomer import documents
from tests.newcomer.machine import Machine

pytestmark = [pytest.mark.engine, pytest.mark.thorough, pytest.mark.timeout(1_800)]


def test_a_platform_on_a_control_plane_of_this_machine(machine: Machine) -> None:
    start, up, down, end = documents.commands("cluster")
    # With the definitions of whole charts the state is megabytes, and steps are hundreds: it is
    # written at the end of each run, not after every step.
    machine.variables["PULUMI_SKIP_CHECKPOINTS"] = "true"
    assert "ready: export KUBECONFIG=" in machine.run(start)
    assert re.search(r"\d{3} created", machine.run(up))
    assert "is down" in machine.run(down)
    assert "ended" in machine.run(end)
    assert machine.processes() == []


def test_real_machines_where_this_one_can_have_them(machine: Machine) -> None:
    start, up, down, end = documents.commands("real")
    machine.variables["PULUMI_SKIP_CHECKPOINTS"] = "true"
    if prerequisites.lacking():
        printed = machine.run(start, 2)
        assert "machines are simulated: this computer lacks" in printed
        assert "has no real machines, and simulated ones pull no images" in printed
    else:
        printed = machine.run(start)
        assert "real machines: real-1, real-2" in printed
        assert "4 digests written to" in printed
        assert re.search(r"\d{3} created", machine.run(up))
        assert "is down" in machine.run(down)
        assert machine.clean_status() == ""
    assert "ready: export KUBECONFIG=" in printed
    assert "ended" in machine.run(end)
    assert machine.processes() == []
