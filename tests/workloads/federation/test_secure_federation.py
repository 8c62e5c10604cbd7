"""Secure aggregation between a coordinator and sites over mutual TLS, and what both must agree on.

The roles run in threads of one process; `test_federation` has a round whose site is killed.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from falaj.workloads.errors import WorkloadError
from falaj.workloads.federation import command, coordinator, site, updates
from falaj.workloads.federation.coordinator import Rules
from falaj.workloads.federation.floor import Floor
from falaj.workloads.federation.plan import FORMAT, Aggregation, Plan, Task
from falaj.workloads.federation.secure.member import Member, join
from falaj.workloads.federation.secure.rounds import SecureRounds
from falaj.workloads.federation.transport import Link, client_context, server_context
from falaj.workloads.federation.updates import MessageError, Update
from falaj.workloads.training import checkpoint
from falaj.workloads.training.progress import Progress
from falaj.workloads.training.snapshot import open_dataset
from falaj.workloads.training.stopping import StopRequest
from tests.workloads.federation.federations import TOKENS, tables
from tests.workloads.federation.sessions import People

NAMES = tuple(TOKENS)
A, B, C = NAMES
SECURE = Aggregation(NAMES, 2, 0.0)
PLAN = Plan(2, 1, 32, 2e-3, 5.0, False, 0, SECURE)
QUIET = Progress("json", False, lambda: None)


class Rounds(Progress):
    """Keeps what is told of each round."""

    def __init__(self) -> None:
        super().__init__("json", False, lambda: None)
        self.told: list[dict[str, Any]] = []
        self.refused: list[str] = []

    def emit(self, event: str, message: str, **fields: Any) -> None:
        self.told += [fields] if event == "round" else []
        self.refused += [message] if event == "refused" else []


class Died(BaseException):
    """What ends a site on the spot, as a signal would."""


@dataclass(frozen=True)
class Mortal(Link):
    """A link that the site doesn't outlive, where ``dies`` says so of a request."""

    dies: Callable[[str, str], bool] = lambda method, path: False

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        if self.dies(method, path):
            raise Died
        return super().ask(method, path, body)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> People:
    return People.of(tmp_path_factory.mktemp("people") / "pki", NAMES)


@dataclass
class World:
    people: People
    data: dict[str, Path]
    folder: Path
    rounds: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    refused: list[str] = field(default_factory=list[str])

    def federation(
        self, plan: Plan, seconds: float, least: int = 3, noise: float = 0.0
    ) -> coordinator.Federation:
        if plan.secure:
            least, noise = plan.secure.threshold, plan.secure.noise
        rules = Rules(frozenset(NAMES), least, seconds, noise)
        make = partial(SecureRounds, directory=self.people.directory())
        return coordinator.federation(
            open_dataset(self.data["reference"], None), plan, rules, output=self.folder / "run",
            keyring=None, patience=0, rounds=make if plan.secure else coordinator.Rounds,
        )  # fmt: skip

    def learn(
        self, plan: Plan, seconds: float = 60, dies: Callable[[str, str], bool] | None = None, *,
        floor: Floor | None = None, least: int = 3, noise: float = 0.0,
    ) -> coordinator.Rounds:  # fmt: skip
        """A whole federation; ``dies`` and ``floor`` are of site-c, which takes part in no round
        with a floor. What the coordinator has at its end."""
        it = self.federation(plan, seconds, least, noise)
        certificate, key = self.people.authority.issue("coordinator")
        context = server_context(self.people.authority.certificate, certificate, key)
        shown = {n: hashlib.sha256(token.encode()).hexdigest() for n, token in TOKENS.items()}
        started, kept = threading.Event(), []

        def serve(task: Task, rounds: coordinator.Rounds, traffic: Path) -> coordinator.Server:
            server = coordinator.Server(
                ("127.0.0.1", 0), context, task, rounds, tokens=shown, traffic=traffic
            )
            kept.extend([server.server_address[1], rounds])
            started.set()
            return server

        stop = StopRequest()
        codes: dict[str, int | str] = {}
        progress = Rounds()

        def coordinate() -> None:
            codes["coordinator"] = coordinator.run(it, serve, stop, progress)

        def take_part(name: str) -> None:
            own = client_context(
                self.people.authority.certificate,
                self.people.authority.folder / f"{name}.pem",
                self.people.authority.folder / f"{name}.key",
            )
            of = {"dies": dies} if dies and name == C else {}
            link = Mortal("127.0.0.1", int(kept[0]), own, TOKENS[name], 30.0, **of)
            member = Member(self.people.identities[name], self.people.directory())
            try:
                codes[name] = site.take_part(
                    link, open_dataset(self.data[name], None), stop, QUIET,
                    member if plan.secure else None, floor=floor if name == C else None,
                )  # fmt: skip
            except Died:
                codes[name] = "died"

        threads = [threading.Thread(target=coordinate)]
        threads[0].start()
        assert started.wait(60)
        threads += [threading.Thread(target=take_part, args=[name]) for name in NAMES]
        for each in threads[1:]:
            each.start()
        for each in threads:
            each.join(120)
        assert codes == {"coordinator": 0, A: 0, B: 0, C: "died" if dies else 2 if floor else 0}
        self.rounds, self.refused = progress.told, progress.refused
        return kept[1]

    def traffic(self) -> list[dict[str, Any]]:
        lines = (self.folder / "run/traffic.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def world(people: People, data: dict[str, Path], tmp_path: Path) -> Iterator[World]:
    threads = torch.get_num_threads()
    yield World(people, data, tmp_path)
    torch.set_num_threads(threads)


def _plain(world: World, plan: Plan, names: tuple[str, ...]) -> dict[str, torch.Tensor]:
    """The first round's model as a coordinator that sees each update would make it."""
    it = world.federation(replace(plan, secure=None), 60)
    first = coordinator.Rounds(it.task, it.rules, world.folder / "plain", None)
    learned = [
        site.train(it.task, open_dataset(world.data[name], None), 0, first.message(0))
        for name in names
    ]
    mean = updates.mean(learned)
    return {name: each + mean[name] for name, each in first.model.items()}


def test_the_model_is_that_of_the_plain_weighted_mean_and_no_update_is_seen(
    world: World,
) -> None:
    plan = replace(PLAN, rounds=1)
    found = world.learn(plan).model
    expected = _plain(world, plan, NAMES)
    assert plan.grid is not None
    most = plan.grid.tolerance(rows=3 * 100, sites=3) + 1e-6  # and float32
    for name, each in expected.items():
        assert float((found[name] - each).abs().max()) <= most
    posts = [each for each in world.traffic() if each.get("method") == "POST"]
    stages = [each["path"].rpartition("/")[2] for each in posts if each["status"] == 200]
    for stage in ("keys", "shares", "masked"):
        assert stages.count(stage) == 3
    assert "update" not in stages
    numbers = sum(each.numel() for each in found.values()) + 2
    masked = {each["received"] for each in posts if each["path"].endswith("masked")}
    assert masked == {8 * numbers}  # of the same length whatever a site has


def test_a_site_that_dies_before_its_masked_update_is_left_out_of_the_sum(world: World) -> None:
    """It has given out shares: the others' masks with it come off by them."""
    plan = replace(PLAN, rounds=1)
    found = world.learn(plan, 8, lambda method, path: path.endswith("/masked")).model
    expected = _plain(world, plan, (A, B))
    for name, each in expected.items():
        assert float((found[name] - each).abs().max()) <= 1e-6
    assert [each["sites"] for each in world.rounds] == [[A, B]]


def test_a_site_that_dies_after_it_is_in_the_sum_and_noise_is_the_sites(world: World) -> None:
    plan = replace(PLAN, rounds=2, equal=True, secure=replace(SECURE, noise=0.01))
    sent: list[str] = []

    def once_it_was_sent(method: str, path: str) -> bool:
        if sent:
            return True
        sent.extend([path] if method == "POST" and path.endswith("/masked") else [])
        return False

    world.learn(plan, 8, once_it_was_sent)
    assert [each["sites"] for each in world.rounds] == [[A, B, C], [A, B]]
    # Their losses aren't told: those of the reference rows stand there.
    assert all(0 < each["loss"] < 5 for each in world.rounds)
    privacy = json.loads((world.folder / "run/privacy.json").read_text(encoding="utf-8"))
    assert privacy["noise_added_by"] == "sites"
    assert privacy["secure_aggregation"] == {
        "sites": 3, "threshold": 2, "site_deviation": pytest.approx(0.01 * 5 / 2**0.5),
    }  # fmt: skip


def test_a_site_refuses_rounds_below_its_floor_and_the_others_go_on_at_once(world: World) -> None:
    """The coordinator adds the noise here, which only a round says."""
    plan = replace(PLAN, rounds=2, equal=True, secure=None)
    world.learn(plan, 600, floor=Floor(least_noise=1.5), least=2, noise=0.01)
    assert [each["sites"] for each in world.rounds] == [[A, B], [A, B]]
    assert world.refused == [
        f"round {number}/2: site-c refuses it: noise 0.01: this site takes 1.5 or more"
        for number in (1, 2)
    ]
    of_c = {each["path"] for each in world.traffic() if each["site"] == C}
    assert of_c == {"/v1/task", "/v1/round", "/v1/rounds/0/refusal", "/v1/rounds/1/refusal"}


def _secure_rounds(world: World) -> SecureRounds:
    it = world.federation(PLAN, 60)
    it.output.mkdir(exist_ok=True)
    found = it.rounds(it.task, it.rules, it.output, None)
    assert isinstance(found, SecureRounds)
    return found


def _to_unmasking(rounds: SecureRounds, world: World, without: str = "") -> dict[str, bytes]:
    """A session up to its last stage; what each site answers there."""
    sites = world.people.participants(3, 2)
    grid = PLAN.grid
    assert grid is not None
    flat = torch.cat([each.double().reshape(-1) for each in rounds.model.values()]).numpy()
    vector = grid.whole(0.01 * flat / max(1, abs(flat).max()), 10, 0.5, bytes(32))
    session = rounds._collector.session
    opened: dict[str, bytes] = {}
    for stage in ("keys", "shares", "masked", "unmasking"):
        for name, each in sites.items():
            at = (rounds.number, session.id, stage)
            if stage == "keys":
                rounds.take(*at, name, each.begin(session))
            elif stage == "shares":
                rounds.take(*at, name, each.share(session, rounds.tell(*at, name)))
            elif stage == "masked" and name != without:
                numbers = each.mask(session, rounds.tell(*at, name), vector)
                rounds.take(*at, name, numbers.astype("<u8").tobytes())
            elif stage == "unmasking" and name != without:
                opened[name] = each.open(session, rounds.tell(*at, name))
        if stage != "unmasking":
            assert rounds.advance(timed_out=bool(without)) is True
    return opened


def test_a_round_whose_masks_were_asked_for_is_never_summed_again(world: World) -> None:
    rounds = _secure_rounds(world)
    before = {name: each.clone() for name, each in rounds.model.items()}
    opened = _to_unmasking(rounds, world, without=C)
    at = (0, rounds._collector.session.id, "unmasking")
    rounds.take(*at, A, opened[A])
    # The coordinator dies: it goes on with the next round, and the model is as it was.
    again = _secure_rounds(world)
    assert (again.number, again.resumed) == (1, True)
    assert all(torch.equal(again.model[name], each) for name, each in before.items())
    # Too few told in time: likewise.
    assert rounds.close(timed_out=False) is None
    assert rounds.number == 0
    assert rounds.close(timed_out=True) is None
    assert rounds.number == 1
    with pytest.raises(WorkloadError, match="isn't under way"):
        rounds.take(*at, B, opened[B])


def test_too_few_before_that_begin_the_round_anew(world: World) -> None:
    rounds = _secure_rounds(world)
    session = rounds._collector.session
    rounds.take(0, session.id, "keys", A, world.people.participants(3, 2)[A].begin(session))
    assert rounds.state(A) == {
        "round": 0, "answered": True, "session": session.id, "stage": "keys", "refused": False,
        "asks": {"noise": 0.0, "clip": 5.0, "leastSites": 2},
    }  # fmt: skip
    assert rounds.advance(timed_out=True) is False
    assert rounds.close(timed_out=True) is None
    assert rounds.number == 0
    assert rounds.state(A)["answered"] is False
    assert rounds.state(A)["session"] != session.id


def test_a_site_that_sends_what_it_should_not_ends_the_round_with_the_reason(
    world: World,
) -> None:
    rounds = _secure_rounds(world)
    opened = _to_unmasking(rounds, world)
    rounds._collector._sum[:] += 12345678901234567
    for name in (A, B):
        rounds.take(0, rounds._collector.session.id, "unmasking", name, opened[name])
    with pytest.raises(WorkloadError, match="round 1 of site-a, site-b, site-c has no sum"):
        rounds.close()


def test_updates_that_could_be_read_are_refused(world: World) -> None:
    rounds = _secure_rounds(world)
    with pytest.raises(MessageError, match="takes no update that it could read"):
        rounds.answer(0, A, updates.encode(rounds.model, rows=5, loss=0.1))
    it = world.federation(replace(PLAN, secure=None), 60)
    plain = coordinator.Rounds(it.task, it.rules, world.folder / "plain", None)
    for refused in (
        lambda: plain.take(0, "a" * 32, "masked", A, b""),
        lambda: plain.tell(0, "a" * 32, "shares", A),
    ):
        with pytest.raises(WorkloadError, match="updates are seen here"):
            refused()


def _never(number: int, data: bytes) -> Update:
    raise AssertionError("nothing is trained before both sides agree")


def test_both_sides_must_say_the_same(people: People) -> None:
    member = Member(people.identities[A], people.directory())
    others = Member(people.identities[A], people.directory((A, B, "site-d")))
    for plan, who, reason in (
        (PLAN, None, "has secure aggregation and this site hasn't: both sides must"),
        (replace(PLAN, secure=None), member, "the coordinator would see its updates"),
        (PLAN, others, "site-a, site-b, site-c, this site's --site-keys names site-a, site-b, s"),
        (replace(PLAN, secure=replace(SECURE, threshold=1)), member, "would do for the coord"),
        (replace(PLAN, clip=0.0), member, "limits can't be"),
        (replace(PLAN, secure=replace(SECURE, noise=-1.0)), member, "limits can't be"),
    ):
        with pytest.raises(WorkloadError, match=reason):
            join(plan, who, b"task", _never)
    assert join(replace(PLAN, secure=None), None, b"task", _never) is None


def test_a_plan_without_secure_aggregation_reads_as_before_there_was_any(world: World) -> None:
    """Federations are named by their task: one that goes on must keep its name."""
    for plan in (PLAN, replace(PLAN, secure=None)):
        task = world.federation(plan, 60).task
        assert Task.from_bytes(task.to_bytes()) == task
        assert ("secure" in json.loads(task.to_bytes())["plan"]) is (plan.secure is not None)
    wrong = json.loads(world.federation(PLAN, 60).task.to_bytes())
    wrong["plan"]["secure"] = {"sites": 3}
    with pytest.raises(WorkloadError, match="can't be read"):
        Task.from_bytes(json.dumps(wrong).encode())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rounds": 0}, "the rounds of the coordinator's plan is 0: allowed is 1 to 100,000"),
        ({"rounds": True}, "the rounds of the coordinator's plan is True: allowed is"),
        ({"epochs": 10**9}, "the epochs of the coordinator's plan is 1000000000: allowed is 1 to"),
        ({"batch_size": -1}, "the batch size of the coordinator's plan is -1: allowed is 1 to"),
        ({"batch_size": 1.5}, "the batch size of the coordinator's plan is 1.5: allowed is"),
        ({"learning_rate": "fast"}, "the learning rate of the coordinator's plan is 'fast'"),
        ({"learning_rate": math.nan}, "the learning rate of the coordinator's plan is nan"),
        ({"clip": -1}, "the clip of the coordinator's plan is -1: allowed is 0 to 1,000,000"),
        ({"clip": math.inf}, "the clip of the coordinator's plan is inf"),
        ({"seed": 2**31}, "the seed of the coordinator's plan is 2147483648: allowed is 0 to"),
        ({"equal": "yes"}, "can't be read: its 'equal' is neither true nor false"),
        ({"more": 1}, "can't be read"),
        ({"secure.sites": "abc"}, "can't be read: the sites of its secure aggregation are no"),
        ({"secure.sites": [A, B]}, "the number of sites of the coordinator's plan is 2: allowed"),
        ({"secure.sites": [A, B, B]}, "names a site twice: site-a, site-b, site-b"),
        ({"secure.sites": [A, B, ["c"]]}, "the name of a site of the coordinator's plan is ['c']"),
        (
            {"secure.sites": [A, B, "c\n"]},
            "the name of a site of the coordinator's plan is 'c\\n'",
        ),
        (
            {"secure.threshold": 4},
            "the threshold of the coordinator's plan is 4: allowed is 1 to 3",
        ),
        ({"secure.threshold": "3"}, "the threshold of the coordinator's plan is '3'"),
        ({"secure.noise": -0.5}, "the noise of the coordinator's plan is -0.5: allowed is 0 to"),
        ({"secure.noise": math.nan}, "the noise of the coordinator's plan is nan"),
    ],
)
def test_a_site_takes_no_plan_that_no_coordinator_makes(
    changed: dict[str, Any], said: str
) -> None:
    value = PLAN.to_json()
    value["secure"] = {**value["secure"], "sites": list(value["secure"]["sites"])}
    for key, given in changed.items():
        of, _, name = key.rpartition(".")
        (value[of] if of else value)[name] = given
    task = {"format": FORMAT, "plan": value}
    with pytest.raises(WorkloadError) as caught:
        Task.from_bytes(json.dumps(task).encode())
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("words", "sites", "reason"),
    [
        (["--clip", "1"], 2, "sites with --secure-aggregation is 2: allowed is 3 to 100"),
        ([], 3, "--secure-aggregation without --clip"),
        (["--clip", "1", "--least-sites", "2"], 4, "of 4 sites allowed is 3 to 4, more than half"),
        (["--clip", "1", "--noise", "-1"], 3, "--noise is -1"),
    ],
)
def test_what_does_not_go_with_it_is_refused(
    words: list[str], sites: int, reason: str, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path, people = world.folder, world.people
    path = tmp_path / "sites.json"
    path.write_text(json.dumps({f"s{n}": "a" * 64 for n in range(sites)}), encoding="utf-8")
    given = [
        "coordinator", "--dataset", "none", "--authority", str(people.authority.certificate),
        "--certificate", "c", "--key", "k", "--output", "o", "--sites", str(path),
        "--secure-aggregation", *words,
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("falaj.workloads.training.stopping.StopRequest.install", lambda _: None)
        patch.chdir(tmp_path)
        assert command.main(given) == 2
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "pins", "reason"),
    [
        (["--secure-aggregation"], None, "go together"),
        ([], NAMES, "go together"),
        (["--secure-aggregation"], (B, C, "site-d"), "must name this site, too"),
        (["--secure-aggregation"], (A, B), "is 2: allowed is 3 to 100"),
        (["--secure-aggregation", "--least-sites", "4"], NAMES, "each round would be refused"),
        (["--least-sites", "1"], None, "--least-sites is 1: allowed is 2 to 10,000"),
        (["--least-noise", "nan"], None, "--least-noise is nan: allowed is"),
        (["--least-noise", "-1"], None, "--least-noise is -1.0: allowed is"),
        (["--most-clip", "inf"], None, "--most-clip is inf: allowed is"),
        (["--most-clip", "0"], None, "--most-clip is 0.0: allowed is"),
    ],
)
def test_a_site_is_refused_whose_options_do_not_go_together(
    words: list[str], pins: tuple[str, ...] | None, reason: str, world: World,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    tmp_path, people = world.folder, world.people
    folder = people.authority.folder
    token = tmp_path / "token"
    token.write_text(TOKENS[A], encoding="utf-8")
    given = [
        "site", "--dataset", "none", "--authority", str(people.authority.certificate),
        "--certificate", str(folder / f"{A}.pem"), "--key", str(folder / f"{A}.key"),
        "--coordinator", "127.0.0.1:9", "--token", str(token), *words,
    ]  # fmt: skip
    if pins is not None:
        path = tmp_path / "keys.json"
        path.write_text(json.dumps(dict.fromkeys(pins, "authority")), encoding="utf-8")
        given += ["--site-keys", str(path)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("falaj.workloads.training.stopping.StopRequest.install", lambda _: None)
        assert command.main(given) == 2
    assert reason in capsys.readouterr().err


def test_what_a_coordinator_keeps_holds_no_update(world: World) -> None:
    rounds = _secure_rounds(world)
    _to_unmasking(rounds, world)
    kept = checkpoint.load(world.folder / "run/federation", None, rounds._context)
    assert set(kept) == {"number", "model"}
