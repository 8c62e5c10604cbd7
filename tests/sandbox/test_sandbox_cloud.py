"""Resources are checked, made, changed, replaced and removed as a cloud would."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from falaj.engine.errors import EngineError
from falaj.sandbox import faults, urns
from falaj.sandbox.cloud import MARK, Cloud
from falaj.sandbox.clouds.model import GenericModel, Made, Problem, Properties, World
from falaj.sandbox.errors import FaultError, ModelError, SandboxError
from falaj.sandbox.faults import Fault
from falaj.sandbox.store import Store
from falaj.wire import UNKNOWN, Unknown

TOPIC = "aws:sns/topic:Topic"
QUEUE = "aws:sqs/queue:Queue"


class TinyModel(GenericModel):
    """Topics with automatic names that are their ids; no two of one display name."""

    def __init__(self) -> None:
        super().__init__("aws")

    def defaults(
        self, token: str, name: str, inputs: Properties, config: Properties, urn: str
    ) -> Properties:
        return {"name": f"{name}-{len(urn)}-{urn[-2:]}", "tags": config.get("tags", {})}

    def problems(self, token: str, inputs: Properties, config: Properties) -> list[Problem]:
        name = inputs["name"]
        if isinstance(name, Unknown) or "bad" not in name:
            return []
        return [Problem("name", f"{name!r} is a bad name")]

    def conflicts(
        self, token: str, inputs: Properties, config: Properties, world: World, id: str | None
    ) -> list[Problem]:
        shown = inputs.get("displayName")
        taken = [made for made in world.find(token, displayName=shown) if made.id != id]
        return [Problem("displayName", "taken")] if shown and taken else []

    def delete_blockers(self, token: str, made: Made, world: World) -> list[Problem]:
        return [Problem("", f"{q.id} still needs it") for q in world.all(QUEUE)]

    def identity(
        self, token: str, name: str, inputs: Properties, config: Properties, urn: str
    ) -> str:
        return str(inputs["name"]) if token == TOPIC else ""

    def is_shared(self, token: str) -> bool:
        del token
        return False

    def replacements(self, token: str) -> frozenset[str]:
        return frozenset({"name", "fifoTopic"})

    def invoke(self, token: str, args: Properties, config: Properties, world: World) -> Properties:
        if token == "aws:index/getRegion:getRegion":
            return {"region": config["region"]}
        raise LookupError(f"nobody knows {token}")


@pytest.fixture
def cloud() -> Cloud:
    made = Cloud(TinyModel(), Store(":memory:"))
    made.configure({"region": "me-central-1"})
    return made


def urn(name: str, token: str = TOPIC) -> str:
    return urns.make("dev", "proj", token, name)


def make(
    cloud: Cloud, name: str, token: str = TOPIC, /, **inputs: Any
) -> tuple[str, dict[str, Any]]:
    checked, problems = cloud.check(urn(name, token), inputs, {})
    assert not problems
    return cloud.create(urn(name, token), checked)


# What is refused


def test_model_is_not_asked_about_inputs_of_wrong_types(cloud: Cloud) -> None:
    _, problems = cloud.check(urn("t"), {"name": ["bad"]}, {})
    assert [problem.path for problem in problems] == ["name"]
    assert "expected a string" in problems[0].reason


def test_model_refuses_at_check_also_in_previews(cloud: Cloud) -> None:
    _, problems = cloud.check(urn("t"), {"name": "bad", "displayName": UNKNOWN}, {})
    assert [str(problem) for problem in problems] == ["name: 'bad' is a bad name"]


def test_what_was_unknown_in_the_preview_is_refused_when_it_is_made(cloud: Cloud) -> None:
    checked, problems = cloud.check(urn("t"), {"name": UNKNOWN, "fifoTopic": UNKNOWN}, {})
    assert not problems
    with pytest.raises(SandboxError, match="t can't be made: name: 'bad' is a bad name"):
        cloud.create(urn("t"), {**checked, "name": "bad", "fifoTopic": True})
    with pytest.raises(SandboxError, match="fifoTopic: expected true or false"):
        cloud.create(urn("t"), {**checked, "name": "good", "fifoTopic": "yes"})
    assert cloud.store.all() == []


def test_name_that_is_taken_is_refused(cloud: Cloud) -> None:
    make(cloud, "one", name="same")
    with pytest.raises(SandboxError, match=r"aws:sns/topic:Topic 'same' already exists"):
        make(cloud, "two", name="same")


def test_conflicts_spare_the_resource_itself(cloud: Cloud) -> None:
    made, outputs = make(cloud, "one", displayName="A")
    with pytest.raises(SandboxError, match="two can't be made: displayName: taken"):
        make(cloud, "two", displayName="A")
    inputs = {**cloud.store.all()[0].inputs, "displayName": "A"}
    assert cloud.update(urn("one"), made, outputs, inputs)["displayName"] == "A"


def test_deletion_in_the_wrong_order_is_refused(cloud: Cloud) -> None:
    topic, outputs = make(cloud, "t")
    queue, queue_outputs = make(cloud, "q", QUEUE)
    with pytest.raises(SandboxError, match=f"t can't be deleted: {queue} still needs it"):
        cloud.delete(urn("t"), topic, outputs)
    cloud.store.remove(QUEUE, queue)
    cloud.delete(urn("q", QUEUE), queue, queue_outputs)  # gone already: no mistake
    cloud.delete(urn("t"), topic, outputs)
    assert cloud.store.all() == []


@pytest.mark.parametrize("act", ["read", "update", "delete", "refuse_foreign"])
def test_state_of_a_real_resource_is_refused(cloud: Cloud, act: str) -> None:
    made, outputs = make(cloud, "t")
    real = {key: value for key, value in outputs.items() if key != MARK}
    more = [{}] if act == "update" else []
    arguments = [urn("t"), made, real, *more]
    with pytest.raises(EngineError, match="was not made in the sandbox"):
        getattr(cloud, act)(*arguments)
    assert cloud.store.by_id(TOPIC, made) is not None


def test_change_of_what_is_gone_is_refused(cloud: Cloud) -> None:
    made, outputs = make(cloud, "t")
    cloud.store.clear()
    with pytest.raises(SandboxError, match="no longer exists; run `pulumi refresh`"):
        cloud.update(urn("t"), made, outputs, {"name": made})


def test_query_that_is_not_known_or_misspelt_is_refused(cloud: Cloud) -> None:
    with pytest.raises(SandboxError, match="can't be answered: nobody knows aws:x/y:z"):
        cloud.invoke("aws:x/y:z", {})
    with pytest.raises(SandboxError, match="unknown property 'regoin'; did you mean 'region'"):
        cloud.invoke("aws:index/getRegion:getRegion", {"regoin": "x"})
    assert cloud.invoke("aws:index/getRegion:getRegion", {}) == {"region": "me-central-1"}


def test_mistake_of_the_model_is_told_as_a_bug_without_a_trace(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TinyModel, "problems", lambda *_: {}["x"])
    with pytest.raises(ModelError, match=r"aws, at t: KeyError: .x.; this is a bug"):
        cloud.check(urn("t"), {}, {})


# What is made


def test_outputs_hold_inputs_and_a_value_for_each_promise(cloud: Cloud) -> None:
    _, outputs = make(cloud, "t", displayName="A")
    assert outputs["displayName"] == "A"
    assert outputs["beginningArchiveTime"] == "t-beginningArchiveTime"
    assert outputs["tagsAll"] == {}
    assert outputs[MARK]


def test_preview_leaves_computed_outputs_unknown(cloud: Cloud) -> None:
    checked, _ = cloud.check(urn("t"), {"displayName": "A"}, {})
    outputs = cloud.preview_create(urn("t"), checked)
    assert outputs["displayName"] == "A"
    assert outputs["name"] == checked["name"]
    assert isinstance(outputs["arn"], Unknown)
    assert cloud.store.all() == []


def test_same_program_gives_the_same_ids_in_each_run(cloud: Cloud) -> None:
    other = Cloud(TinyModel(), Store(":memory:"))
    assert make(cloud, "t", QUEUE)[0] == make(other, "t", QUEUE)[0]
    assert make(cloud, "t2", QUEUE)[0] != make(cloud, "t3", QUEUE)[0]


def test_nulls_are_left_out_at_any_depth_and_defaults_fill_in(cloud: Cloud) -> None:
    cloud.configure({"region": "r", "tags": {"owner": "x", "tier": "y"}})
    checked, _ = cloud.check(
        urn("t"), {"displayName": None, "tags": {"owner": "me", "z": None}}, {}
    )
    assert "displayName" not in checked
    assert checked["tags"] == {"owner": "me", "tier": "y"}


def test_preview_of_an_update_drops_what_is_no_longer_given(cloud: Cloud) -> None:
    state = {"name": "n", "displayName": "A", "arn": "arn"}
    found = cloud.preview_update(
        urn("t"), "id", state, {"name": "n", "displayName": "A"}, {"name": "n"}
    )
    assert found == {"name": "n", "arn": "arn"}


# Replacement


def test_replacement_gets_a_name_of_its_own_while_both_exist_and_keeps_it(cloud: Cloud) -> None:
    old, old_outputs = make(cloud, "t")
    checked, _ = cloud.check(urn("t"), {"fifoTopic": True}, {})  # as the engine asks: no old one
    changes, delete_first = cloud.difference(
        urn("t"), cloud.store.all()[0].inputs, checked, old, []
    )
    assert {change.path for change in changes if change.replaces} == {"fifoTopic", "name"}
    assert not delete_first
    new, outputs = cloud.create(urn("t"), checked)
    assert new != old
    cloud.delete(urn("t"), old, old_outputs)
    for fifo in (True, False):
        kept, _ = cloud.check(urn("t"), {"fifoTopic": fifo}, checked)
        assert kept["name"] == checked["name"] == outputs["name"]


def test_replacement_under_a_given_name_deletes_first(cloud: Cloud) -> None:
    old, _ = make(cloud, "t", name="mine")
    inputs = {"name": "mine", "tags": {}, "fifoTopic": True}
    _, delete_first = cloud.difference(urn("t"), {"name": "mine", "tags": {}}, inputs, old, [])
    assert delete_first
    unknown = {"name": UNKNOWN, "tags": {}}
    assert cloud.difference(urn("t"), inputs, unknown, old, [])[1] is False


def test_old_automatic_name_does_not_outlive_a_given_one(cloud: Cloud) -> None:
    checked, _ = cloud.check(urn("t"), {}, {"name": "given-before", "tags": {}})
    assert checked["name"] == cloud.check(urn("t"), {}, {})[0]["name"]


# Faults


def test_nth_creation_of_a_type_fails_once(cloud: Cloud) -> None:
    faults.add(cloud.store, Fault("create", TOPIC, nth=2))
    make(cloud, "a")
    make(cloud, "q", QUEUE)
    with pytest.raises(FaultError, match=r"the create of b \(aws:sns/topic:Topic\) failed"):
        make(cloud, "b")
    assert [made.urn for made in cloud.store.all(TOPIC)] == [urn("a")]
    make(cloud, "b")
    assert [fault.spent for fault in faults.listed(cloud.store)] == [True]


def test_fault_that_fails_some_times_with_the_clouds_answer(cloud: Cloud) -> None:
    faults.add(cloud.store, Fault("create", TOPIC, nth=2, times=2, answer="PrincipalNotFound"))
    make(cloud, "a")
    for _ in range(2):
        with pytest.raises(FaultError, match=r"^PrincipalNotFound: the create of b "):
            make(cloud, "b")
    make(cloud, "b")
    (fault,) = faults.listed(cloud.store)
    assert str(fault) == (
        f"fault 1: the 2. create of {TOPIC} fails, and 1 after it, with PrincipalNotFound (done)"
    )


def test_a_cloud_of_before_takes_faults(tmp_path: Path) -> None:
    path = tmp_path / "cloud.sqlite"
    before = Store(path)
    for column in ("times", "answer"):
        before.connection.execute(f"ALTER TABLE faults DROP COLUMN {column}")
    before.connection.execute(
        "INSERT INTO faults (action, nth, timeout, always) VALUES ('read', 1, 0, 0)"
    )
    before.close()
    (fault,) = faults.listed(Store(path))
    assert (fault.times, fault.answer) == (1, "")


def test_fault_of_a_name_that_always_fails(cloud: Cloud) -> None:
    faults.add(cloud.store, Fault("create", name="b", always=True))
    make(cloud, "a")
    for _ in range(2):
        with pytest.raises(FaultError):
            make(cloud, "b")
    assert faults.clear(cloud.store) == 1
    make(cloud, "b")


def test_creation_that_times_out_leaves_what_was_made(cloud: Cloud) -> None:
    faults.add(cloud.store, Fault("create", timeout=True))
    with pytest.raises(FaultError, match="timed out") as caught:
        make(cloud, "t")
    assert caught.value.state is not None
    assert caught.value.state[0] == cloud.store.all()[0].id


@pytest.mark.parametrize("timeout", [False, True])
def test_update_and_delete_can_fail(cloud: Cloud, timeout: bool) -> None:
    made, outputs = make(cloud, "t")
    inputs = {**cloud.store.all()[0].inputs, "displayName": "B"}
    for action in ("update", "delete"):
        faults.add(cloud.store, Fault(action, TOPIC, timeout=timeout))
    with pytest.raises(FaultError, match="update of t"):
        cloud.update(urn("t"), made, outputs, inputs)
    assert ("displayName" in cloud.store.all()[0].inputs) is timeout
    with pytest.raises(FaultError, match="delete of t"):
        cloud.delete(urn("t"), made, outputs)
    assert bool(cloud.store.all()) is not timeout


def test_read_can_fail(cloud: Cloud) -> None:
    made, outputs = make(cloud, "t")
    faults.add(cloud.store, Fault("read"))
    with pytest.raises(FaultError, match="read of t"):
        cloud.read(urn("t"), made, outputs)
    found = cloud.read(urn("t"), made, outputs)
    assert found is not None
    assert found.id == made


@pytest.mark.parametrize(
    ("fault", "text"),
    [(Fault("destroy"), "no operation 'destroy'; allowed: create"), (Fault("create", nth=0), "0")],
)
def test_fault_that_is_none_is_refused(cloud: Cloud, fault: Fault, text: str) -> None:
    with pytest.raises(EngineError, match=text):
        faults.add(cloud.store, fault)


# The store


def test_two_processes_see_each_others_resources(tmp_path: Path) -> None:
    file = tmp_path / "cloud" / "it.sqlite"
    one, two = Cloud(TinyModel(), Store(file)), Cloud(TinyModel(), Store(file))
    made, outputs = make(one, "t", displayName="A")
    assert two.store.by_id(TOPIC, made) == one.store.by_id(TOPIC, made)
    with pytest.raises(SandboxError, match="taken"):
        make(two, "t2", displayName="A")
    inputs = {**one.store.all()[0].inputs, "displayName": "B"}
    two.update(urn("t"), made, outputs, inputs)
    assert [m.outputs["displayName"] for m in one.store.find(TOPIC, displayName="B")] == ["B"]
    assert file.parent.stat().st_mode & 0o077 == 0
    one.store.close()
    assert Store(file).all() == two.store.all()


_WRITER = """
import sys
from falaj.sandbox.clouds.model import Made
from falaj.sandbox.store import Store
sys.stdin.read()  # until all are there
store = Store(sys.argv[1])
for number in range(20):
    with store.transaction():
        seen = len(store.all("t"))
        store.add(Made("u", "t", f"{sys.argv[2]}-{number}", {}, {"seen": seen}, "", "p/s"), 0)
"""


def test_who_comes_while_another_begins_the_file_waits(tmp_path: Path) -> None:
    file = tmp_path / "it.sqlite"
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    later = threading.Timer(0.3, other.close)
    later.start()
    store = Store(file)
    later.join()
    assert store.all() == []
    assert store.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "cloud" / "it.sqlite"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(file), str(number)], stdin=subprocess.PIPE
        )
        for number in range(4)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.close()
    assert [writer.wait(timeout=60) for writer in writers] == [0] * 4
    # Each saw exactly what was there before its own: nobody looked while another wrote.
    assert [made.outputs["seen"] for made in Store(file).all("t")] == list(range(80))


def test_what_is_undone_is_seen_by_nobody(cloud: Cloud) -> None:
    made, _ = make(cloud, "t")
    before = cloud.store.by_id(TOPIC, made)
    assert before is not None

    def fail() -> None:
        with cloud.store.transaction():
            cloud.store.change(Made(**{**vars(before), "outputs": {"x": 1}}))
            assert cloud.store.all()[0].outputs == {"x": 1}
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert cloud.store.all() == [before]
    cloud.store.change(Made(**{**vars(before), "outputs": {"x": 2}}))
    assert cloud.store.all()[0].outputs == {"x": 2}


def test_file_that_is_no_cloud_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "c.sqlite"
    file.write_text("this is no database, and long enough to be read as none" * 20)
    with pytest.raises(EngineError, match=r"c.sqlite can't be used: file is not a database"):
        Store(file)
    other = sqlite3.connect(tmp_path / "d.sqlite")
    other.execute("PRAGMA user_version = 99")
    other.close()
    with pytest.raises(EngineError, match="format 99, this Falaj writes 1"):
        Store(tmp_path / "d.sqlite")


@pytest.mark.parametrize("text", ["", "vpc", "urn:pulumi:dev::p::t", "x::y::z::w"])
def test_text_that_is_no_urn_is_refused(text: str) -> None:
    with pytest.raises(EngineError, match="is no URN"):
        urns.token(text)


def test_parts_of_a_urn() -> None:
    text = "urn:pulumi:dev::proj::a:b:C$aws:sns/topic:Topic::na::me"
    assert (urns.token(text), urns.name(text), urns.stack(text)) == (TOPIC, "na::me", "proj/dev")
