"""What a site refuses of a coordinator that asks for less privacy than the site takes."""

from __future__ import annotations

import json
import math
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.errors import WorkloadError
from falaj.workloads.federation import coordinator, site
from falaj.workloads.federation.coordinator import LateError, Rounds, Rules
from falaj.workloads.federation.floor import (
    Floor,
    asked,
    decode_refusal,
    encode_refusal,
)
from falaj.workloads.federation.plan import Aggregation, Plan, Task
from falaj.workloads.federation.secure.member import Member
from falaj.workloads.federation.transport import Link
from falaj.workloads.federation.updates import MessageError, Update
from falaj.workloads.training.progress import Progress
from falaj.workloads.training.snapshot import Dataset, open_dataset
from falaj.workloads.training.stopping import StopRequest
from tests.workloads.federation.federations import TOKENS, tables
from tests.workloads.federation.sessions import People

NAMES = tuple(TOKENS)
A, B, C = NAMES
FLOOR = Floor(least_noise=1.0, most_clip=2.0, least_sites=3)
#: The coordinator adds the noise: the plan says that there is some.
PLAN = Plan(4, 1, 32, 2e-3, 1.0, True, 0)
SECURE = replace(PLAN, secure=Aggregation(NAMES, 3, 1.1))
GOOD = {"noise": 1.1, "clip": 1.0, "leastSites": 3}


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("noise", 0.99, "noise 0.99: this site takes 1.0 or more"),
        ("noise", 0, "noise 0: this site"),
        ("noise", -1.1, "noise -1.1: this site"),
        ("noise", math.nan, "noise nan: this site"),
        ("noise", math.inf, "noise inf: this site"),
        ("noise", None, "noise None: this site"),
        ("noise", True, "noise True: this site"),
        ("noise", "1.1", "noise '1.1': this site"),
        ("noise", [1.1], r"noise \[1.1\]: this site"),
        ("noise", "\n\x1b[31m" + "9" * 99, "noise '.n.x1b.31m9*...: this site"),
        ("clip", 2.01, "clip 2.01: this site takes 2.0 or less"),
        ("clip", 0, r"clip 0 \(any norm\): this site"),
        ("clip", -1.0, "clip -1.0: this site"),
        ("clip", math.nan, "clip nan: this site"),
        ("clip", None, "clip None: this site"),
        ("clip", 10**400, "clip 10*[.]{3}: this site"),
        ("leastSites", 2, "leastSites 2: this site takes 3 or more"),
        ("leastSites", -3, "leastSites -3: this site"),
        ("leastSites", {}, "leastSites {}: this site"),
    ],
)
def test_a_round_that_asks_for_less_is_refused_by_name(name: str, value: Any, shown: str) -> None:
    plan = replace(PLAN, clip=value) if name == "clip" else PLAN
    assert FLOOR.refuses(PLAN, GOOD) == []
    (reason, *_) = FLOOR.refuses(plan, {**GOOD, name: value})
    assert re.match(shown, reason), reason
    (absent, *_) = FLOOR.refuses(PLAN, {key: each for key, each in GOOD.items() if key != name})
    assert absent.startswith(f"{name} isn't said: this site takes ")
    # Whoever has no floor takes the coordinator's word, as ever.
    assert Floor().refuses(PLAN, {name: value}) == []


def test_a_round_that_says_otherwise_than_the_task_is_refused() -> None:
    """Enough for this site, and not what it trains by."""
    for plan, asks, reason in (
        (PLAN, {**GOOD, "clip": 0.5}, "clip 0.5, where the coordinator's task says 1.0"),
        (SECURE, {**GOOD, "noise": 1.2}, "noise 1.2, where the coordinator's task says 1.1"),
        (SECURE, {**GOOD, "leastSites": 4}, "leastSites 4, where the coordinator's task says 3"),
        # Rows would be told, which the noise isn't made for.
        (replace(PLAN, equal=False), GOOD, "noise 1.1, where the coordinator's task says 0.0"),
    ):
        assert FLOOR.refuses(plan, asks) == [reason]
        only_clip = Floor(most_clip=2.0)
        assert only_clip.refuses(plan, {}) != []


def test_a_plan_is_refused_by_what_it_says_itself() -> None:
    assert FLOOR.refuses_plan(PLAN) == []
    assert FLOOR.refuses_plan(SECURE) == []
    for plan, reason in (
        (replace(PLAN, clip=2.5), "clip 2.5: this site takes 2.0 or less"),
        (replace(PLAN, clip=math.nan), "clip nan: this site takes 2.0 or less"),
        (replace(PLAN, equal=False), "noise 0.0: this site takes 1.0 or more"),
        (replace(SECURE, secure=Aggregation(NAMES, 2, 1.1)), "leastSites 2: this site takes 3 or"),
        (replace(SECURE, secure=Aggregation(NAMES, 3, 0.2)), "noise 0.2: this site takes 1.0 or"),
    ):
        (found,) = FLOOR.refuses_plan(plan)
        assert found.startswith(reason)


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(GOOD, _ANY | st.floats(0, 4))))
def test_whatever_a_round_says_only_enough_is_taken_and_the_reasons_arrive(
    asks: dict[str, Any],
) -> None:
    asks = json.loads(json.dumps(asks))
    reasons = FLOOR.refuses(PLAN, asks)
    if reasons:
        assert decode_refusal(encode_refusal(reasons)) == reasons
    else:
        assert asks["noise"] >= 1.0
        assert 0 < asks["clip"] <= 2.0
        assert asks["leastSites"] >= 3


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"null", b'"no"', b"\xff", b"[" * 4000, b'{"reasons": []}',
        b'{"reasons": "no"}', b'{"reasons": [1]}', b'{"reasons": ["a\\nb"]}',
        b'{"reasons": ["\\u001b[31m"]}', b'{"reasons": ["a"], "more": 1}',
        encode_refusal(["a"] * 7), encode_refusal(["a" * 201]), encode_refusal(["a" * 5000]),
    ],
)  # fmt: skip
def test_what_is_no_refusal_never_reaches_the_coordinators_log(data: bytes) -> None:
    with pytest.raises(MessageError, match="a refusal has 1 to 6 reasons"):
        decode_refusal(data)


# A site and a coordinator that lies.


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return tables(tmp_path_factory.mktemp("tables"))


def _task(data: dict[str, Path], plan: Plan, folder: Path) -> Task:
    reference = open_dataset(data["reference"], None)
    rules = Rules(frozenset(NAMES), 2, 60, 1.1)
    it = coordinator.federation(reference, plan, rules, output=folder, keyring=None, patience=0)
    return it.task


def test_no_federation_goes_on_with_other_noise(data: dict[str, Path], tmp_path: Path) -> None:
    """Its `privacy.json` would say of all rounds what the last ones had."""
    reference = open_dataset(data["reference"], None)

    def identity(noise: float, least: int = 2) -> str:
        rules = Rules(frozenset(NAMES), least, 60, noise)
        return coordinator.federation(
            reference, PLAN, rules, output=tmp_path, keyring=None, patience=0
        ).identity

    assert len({identity(0.0), identity(1.0), identity(2.0)}) == 3
    assert identity(1.0) == identity(1.0, least=3)


@dataclass(frozen=True)
class Liar(Link):
    """A coordinator that says the task, and then of each round what ``rounds`` has."""

    task: bytes = b""
    rounds: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    requests: list[str] = field(default_factory=list[str])
    bodies: list[bytes] = field(default_factory=list[bytes])

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        if path != "/v1/round":
            self.requests.append(f"{method} {path}")
            self.bodies.append(body or b"")
        if path == "/v1/task":
            return 200, self.task
        if path != "/v1/round":
            return 200, b"model"
        return (200, json.dumps(self.rounds.pop(0)).encode()) if self.rounds else (410, b"")


class Told(Progress):
    """Keeps what people are told."""

    def __init__(self) -> None:
        super().__init__("json", False, lambda: None)
        self.texts: list[str] = []

    def emit(self, event: str, message: str, **fields: Any) -> None:
        self.texts.append(message)


@dataclass
class Site:
    link: Liar
    told: Told
    dataset: Dataset
    trained: list[int] = field(default_factory=list[int])

    def take_part(self, floor: Floor | None, member: Member | None = None) -> int:
        return site.take_part(
            self.link, self.dataset, StopRequest(), self.told, member, floor=floor
        )


@pytest.fixture
def at(data: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Site A, which notes in which rounds it computed something of its rows."""
    threads = torch.get_num_threads()
    context = ssl.create_default_context()
    found = Site(
        Liar("127.0.0.1", 9, context, "", 5, task=_task(data, PLAN, tmp_path).to_bytes()),
        Told(), open_dataset(data[A], None),
    )  # fmt: skip

    def train(task: Task, dataset: Dataset, number: int, received: bytes) -> Update:
        found.trained.append(number)
        return Update({}, 0, 0.5)

    monkeypatch.setattr(site, "train", train)
    monkeypatch.setattr(site, "_PAUSE_SECONDS", 0)
    yield found
    torch.set_num_threads(threads)


def _round(number: int, **changes: Any) -> dict[str, Any]:
    return {"round": number, "answered": False, "asks": {**GOOD, **changes}}


def test_a_coordinator_that_asks_for_less_in_a_later_round_gets_nothing_of_it(at: Site) -> None:
    at.link.rounds.extend([
        _round(0), _round(1, noise=0.1), {**_round(1, noise=0.1), "refused": True},
        _round(2, clip=100.0), {"round": 3, "answered": False}, _round(3),
    ])  # fmt: skip
    assert at.take_part(FLOOR) == 0
    assert at.trained == [0, 3]
    assert at.link.requests == [
        "GET /v1/task", "GET /v1/rounds/0/model", "POST /v1/rounds/0/update",
        "POST /v1/rounds/1/refusal", "POST /v1/rounds/2/refusal", "POST /v1/rounds/3/refusal",
        "GET /v1/rounds/3/model", "POST /v1/rounds/3/update",
    ]  # fmt: skip
    assert decode_refusal(at.link.bodies[3]) == ["noise 0.1: this site takes 1.0 or more"]
    assert at.told.texts[0] == (
        "this site takes rounds of noise 1.0 or more, clip 2.0 or less, leastSites 3 or more"
    )
    refused = [each for each in at.told.texts if "refused" in each]
    assert refused[:2] == [
        "round 2/4 refused: noise 0.1: this site takes 1.0 or more",
        "round 3/4 refused: clip 100.0: this site takes 2.0 or less; clip 100.0, where the "
        "coordinator's task says 1.0",
    ]
    assert len(refused) == 3  # each once, however often the coordinator is asked


def test_a_site_that_refused_every_round_says_so_by_its_exit_status(at: Site) -> None:
    at.link.rounds.extend([_round(0, noise=None), _round(1, leastSites=1)])
    assert at.take_part(FLOOR) == 2
    assert at.trained == []
    assert "took part in none" in at.told.texts[-1]


def test_without_a_floor_the_coordinators_word_is_taken(at: Site) -> None:
    at.link.rounds.extend([_round(0, noise=0.1), {"round": 1, "answered": False, "asks": "none"}])
    assert at.take_part(None) == 0
    assert at.trained == [0, 1]


def test_a_task_below_the_floor_ends_the_site_and_the_coordinator_is_told(at: Site) -> None:
    """Also where its rounds would ask for more: the site trains by the task."""
    at.link.rounds.append(_round(2))
    with pytest.raises(WorkloadError, match=r"clip 1\.0: this site takes 0.5 or less; noth"):
        at.take_part(Floor(most_clip=0.5))
    assert at.link.requests == ["GET /v1/task", "POST /v1/rounds/2/refusal"]
    assert decode_refusal(at.link.bodies[1]) == ["clip 1.0: this site takes 0.5 or less"]


def test_a_round_that_asks_for_less_between_its_stages_gets_no_masked_update(
    at: Site, data: dict[str, Path], tmp_path: Path
) -> None:
    """With secure aggregation: taken at first, and lowered before the updates are sent."""
    people = People.of(tmp_path / "pki", NAMES)
    at.link = replace(at.link, task=_task(data, SECURE, tmp_path / "run").to_bytes())
    staged = {**_round(0), "session": "a" * 32, "stage": "keys"}
    lower = {**staged, "stage": "masked", "asks": {**GOOD, "noise": 0.0}}
    at.link.rounds.extend([lower, staged, {**staged, "answered": True}, lower])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "falaj.workloads.federation.secure.member.SecureSite._prepare", lambda *_: True
        )
        member = Member(people.identities[A], people.directory())
        assert at.take_part(FLOOR, member) == 2
    session = "/v1/rounds/0/" + "a" * 32
    assert at.link.requests == [
        "GET /v1/task", "POST /v1/rounds/0/refusal", f"POST {session}/keys",
        "POST /v1/rounds/0/refusal",
    ]  # fmt: skip


def test_a_coordinator_waits_for_nobody_that_refuses_and_takes_who_thinks_again(
    data: dict[str, Path], tmp_path: Path
) -> None:
    task = _task(data, PLAN, tmp_path)
    rounds = Rounds(task, Rules(frozenset(NAMES), 1, 60, 1.1), tmp_path, None)
    refusal = encode_refusal(["noise 1.1: this site takes 2.0 or more"])
    update = coordinator.updates.encode(
        {name: torch.zeros_like(each) for name, each in rounds.model.items()}, rows=0, loss=0.5
    )
    with pytest.raises(LateError, match="round 1 isn't open"):
        rounds.refuse(1, A, refusal)
    with pytest.raises(MessageError):
        rounds.refuse(0, A, b"{}")
    assert rounds.state(A) == {
        "round": 0, "answered": False, "refused": False, "asks": asked(PLAN, 1.1, 1),
    }  # fmt: skip
    for _ in range(3):  # told once
        rounds.refuse(0, A, refusal)
    assert [(each.number, each.site) for each in rounds.refusals()] == [(0, A)]
    assert rounds.refusals() == []
    rounds.refuse(0, B, refusal)
    rounds.refuse(0, C, refusal)
    assert rounds.wait(0) is False  # a mean of none
    rounds.answer(0, C, update)  # started again with another floor
    assert rounds.state(A)["refused"] is True
    assert rounds.state(C)["refused"] is False
    assert rounds.refusing() == [A, B]
    with pytest.raises(LateError, match="has answered"):
        rounds.refuse(0, C, refusal)
    assert rounds.wait(0) is True
    closed = rounds.close()
    assert closed is not None
    assert closed["sites"] == [C]
    assert rounds.refusing() == []
    assert rounds.state(A)["refused"] is False
