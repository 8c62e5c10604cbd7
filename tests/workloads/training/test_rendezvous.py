"""The variables that join machines, and the statuses that tell faults apart."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from falaj.workloads.errors import WorkloadError, worst
from falaj.workloads.training import distributed
from falaj.workloads.training.progress import Exporter, listening
from falaj.workloads.training.stopping import StopRequest
from tests.ports import free_port

TWO = {"PET_NNODES": "2", "PET_RDZV_ENDPOINT": "host-0.jobs:29400", "PET_NODE_RANK": "1"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"PET_NNODES": "0"}, "PET_NNODES is '0'"),
        ({"PET_NNODES": "4:2"}, "the fewest and the most"),
        ({"PET_NNODES": "two"}, "PET_NNODES is 'two'"),
        ({"PET_RDZV_ENDPOINT": ""}, "where they meet"),
        ({"PET_RDZV_ENDPOINT": "host:0"}, "a port from 1 to 65535"),
        ({"PET_RDZV_ENDPOINT": "host:70000"}, "a port from 1 to 65535"),
        ({"PET_RDZV_ENDPOINT": "http://host:1"}, "host:port"),
        ({"PET_NODE_RANK": "-1"}, "PET_NODE_RANK is '-1'"),
        ({"PET_NPROC_PER_NODE": "many"}, "PET_NPROC_PER_NODE is 'many'"),
        ({"PET_NPROC_PER_NODE": "0"}, "a whole number from 1"),
        ({"PET_MAX_RESTARTS": "x"}, "PET_MAX_RESTARTS is 'x'"),
        ({"PET_RDZV_CONF": "last_call=5"}, "last_call_timeout"),
        ({"PET_RDZV_CONF": "timeout=soon"}, "whole seconds"),
    ],
)
def test_a_variable_that_cannot_be_understood_is_refused(
    changes: dict[str, str], reason: str
) -> None:
    with pytest.raises(WorkloadError, match=reason):
        distributed.from_environment({**TWO, **changes}, 1)


def test_one_machine_has_no_rendezvous() -> None:
    assert distributed.from_environment({}, 4) is None
    assert distributed.from_environment({"PET_NNODES": "1"}, 4) is None


def test_trainer_and_torchrun_say_the_same() -> None:
    """Kubeflow Trainer's static variables name the same place as torchrun's."""
    found = distributed.from_environment(
        {
            "PET_NNODES": "2", "PET_NPROC_PER_NODE": "auto", "PET_NODE_RANK": "0",
            "PET_MASTER_ADDR": "job-node-0-0.job", "PET_MASTER_PORT": "29500",
        },
        8,
    )  # fmt: skip
    assert found is not None
    assert (found.endpoint, found.processes, found.index) == ("job-node-0-0.job:29500", 8, 0)
    assert not found.elastic
    elastic = distributed.from_environment({**TWO, "PET_NNODES": "1:3"}, 1)
    assert elastic is not None
    assert elastic.elastic
    assert elastic.timeouts["last_call_timeout"] == 5


@given(st.dictionaries(st.sampled_from([*TWO, "PET_RDZV_CONF", "PET_MASTER_ADDR"]), st.text()))
def test_any_text_is_understood_or_refused(environ: dict[str, str]) -> None:
    try:
        found = distributed.from_environment({**TWO, **environ}, 1)
    except WorkloadError:
        return
    assert found is None or 1 <= found.least <= found.most


def test_a_restart_never_begins_afresh() -> None:
    found = distributed.from_environment(TWO, 1)
    assert found is not None
    for words in (["run", "--resume", "never"], ["run", "--resume=never"]):
        with pytest.raises(WorkloadError, match="choose a new --output"):
            distributed.take_part(words, found, StopRequest())


@pytest.mark.parametrize("text", ["0", "soon", "-3", "1e3", "100000"])
def test_a_grace_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(WorkloadError, match="FALAJ_GRACE_SECONDS"):
        distributed.grace(text)


def test_the_processes_stop_before_the_machine_is_killed() -> None:
    assert distributed.grace("120") == 115
    assert distributed.grace(None) == 25
    assert distributed.grace("3") == 1


@pytest.mark.parametrize(
    ("codes", "status"),
    [
        ({1, 74}, 1),
        ({2, 74, -9}, 2),
        ({71, 74}, 71),
        ({75, 74}, 75),
        ({-9}, 74),
        ({74}, 74),
        ({-11, 75}, 75),
    ],
)
def test_the_cause_goes_before_its_effects(codes: set[int], status: int) -> None:
    assert worst(codes) == status


@pytest.mark.parametrize("place", ["9464", ":9464", "host:9464", "1.2.3.4:0", "1.2.3:80", "::1:x"])
def test_a_place_to_listen_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(WorkloadError, match="--metrics"):
        listening(place)


def test_a_port_in_use_is_refused() -> None:
    place = f"127.0.0.1:{free_port()}"
    first = Exporter(place, dict)
    try:
        with pytest.raises(WorkloadError, match="choose another port"):
            Exporter(place, dict)
    finally:
        first.close()
    Exporter(place, dict).close()  # and free again


@pytest.mark.parametrize(("code", "status"), [(71, 71), (-9, 74), (74, 74), (1, 1), (2, 2)])
def test_processes_that_are_lost_again_and_again_are_no_refusal(
    code: int,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A pod of several GPUs, one of which is broken, must not end its job for good."""
    started: list[tuple[str, ...]] = []

    def launcher(*_: Any) -> Any:
        def start(*words: str) -> None:
            started.append(words)
            failure = ProcessFailure(local_rank=0, pid=1, exitcode=code, error_file="<none>")
            raise ChildFailedError("trainer", {0: failure})

        return start

    monkeypatch.setattr("torch.distributed.launcher.api.elastic_launch", launcher)
    monkeypatch.setattr(distributed, "terminate_when_orphaned", lambda _: None)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert distributed.launch(["run"], 2, StopRequest()) == status
    assert len(started) == (1 if status in (1, 2) else 3)
    assert ("were lost 3 times" in capsys.readouterr().err) == (status > 2)
