"""A round with secure aggregation: what sites and collector refuse, and sums for any drop-outs."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.errors import WorkloadError
from falaj.workloads.federation.secure import messages
from falaj.workloads.federation.secure.collector import Collector
from falaj.workloads.federation.secure.identities import (
    Directory,
    Identity,
    IdentityError,
    fingerprint,
    read_pins,
)
from falaj.workloads.federation.secure.masking import Numbers, stream
from falaj.workloads.federation.secure.messages import (
    Advertised,
    Session,
    Wanted,
    encode_numbers,
)
from falaj.workloads.federation.secure.participant import Participant, UntrueError
from falaj.workloads.federation.secure.sharing import SharingError
from falaj.workloads.federation.updates import MessageError
from tests.workloads.federation.federations import Authority
from tests.workloads.federation.sessions import People, summed

NAMES = tuple(f"site-{letter}" for letter in "abcdefgh")
FEDERATION = "f" * 64
COUNT = 5


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> People:
    return People.of(tmp_path_factory.mktemp("people") / "pki", NAMES)


def _numbers(names: tuple[str, ...]) -> dict[str, Numbers]:
    return {name: stream(bytes([place] * 32), COUNT) for place, name in enumerate(names, 1)}


def _collector(people: People, count: int, threshold: int, number: int = 0) -> Collector:
    return Collector(FEDERATION, number, people.directory(NAMES[:count]), threshold, COUNT)


class Round:
    """Three sites and a collector, of which a test plays as much as it wants."""

    def __init__(self, people: People, number: int = 0) -> None:
        self.sites = people.participants(3, 2)
        self.it = _collector(people, 3, 2, number)
        self.session = self.it.session

    def keys(self) -> None:
        for name, site in self.sites.items():
            self.it.take(name, site.begin(self.session))
        self.it.advance()

    def shares(self) -> None:
        self.keys()
        for name, site in self.sites.items():
            self.it.take(name, site.share(self.session, self.it.tell(name)))
        self.it.advance()

    def masked(self, *without: str) -> None:
        self.shares()
        numbers = _numbers(NAMES[:3])
        for name, site in self.sites.items():
            sent = site.mask(self.session, self.it.tell(name), numbers[name])
            if name not in without:
                self.it.take(name, encode_numbers(sent))
        self.it.advance()


def _ask(seeds: tuple[str, ...], keys: tuple[str, ...] = ()) -> bytes:
    return Wanted(seeds, keys).to_bytes()


A, B, C = NAMES[:3]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (_ask((A, B, C), (B,)), "asks for both secrets of site-b: it could read that site's"),
        (_ask((A, B, C), (A, B, C)), "asks for both secrets of site-a, site-b, site-c"),
        (_ask((A,), (B, C)), "1 site.s. are in the sum: 2 are needed"),
        (_ask((A, B)), "other sites than took part"),
        (_ask((A, B, C, NAMES[3])), "other sites than took part"),
        (_ask((B, C), (A,)), "says that this site dropped out, which it didn't"),
        (_ask(()), "other sites than took part"),
        (b'{"seeds": ["site-a", "site-a"], "keys": []}', "names one twice"),
        (b'{"seeds": "site-a", "keys": []}', "list of sites is none"),
        (b'{"seeds": []}', "a JSON object of keys, seeds"),
        (b"\xff", "can't be read"),
    ],
)
def test_a_site_tells_nothing_that_shows_a_single_update(
    people: People, asked: bytes, reason: str
) -> None:
    it = Round(people)
    it.masked()
    with pytest.raises(WorkloadError, match=reason):
        it.sites[A].open(it.session, asked)
    # Nor afterwards: the stage was its one answer.
    with pytest.raises(UntrueError):
        it.sites[A].open(it.session, _ask((A, B, C)))


def test_a_site_tells_once_in_a_round_how_masks_come_off(people: People) -> None:
    it = Round(people)
    it.masked()
    it.sites[A].open(it.session, _ask((A, B, C)))
    with pytest.raises(UntrueError, match="isn't under way"):
        it.sites[A].open(it.session, _ask((A, B), (C,)))
    with pytest.raises(UntrueError, match="round 0 was summed before"):
        it.sites[A].begin(Session(FEDERATION, 0, "b" * 32))
    with pytest.raises(UntrueError, match="was there before"):
        it.sites[A].begin(it.session)


def test_stages_come_one_after_the_other_and_once(people: People) -> None:
    it = Round(people)
    with pytest.raises(UntrueError, match="isn't under way"):
        it.sites[A].open(it.session, _ask((A, B, C)))
    it.keys()
    with pytest.raises(UntrueError, match="comes too soon"):
        it.sites[A].mask(it.session, b"{}", _numbers(NAMES)[A])
    listed = it.it.tell(A)
    it.sites[A].share(it.session, listed)
    with pytest.raises(UntrueError, match="was answered"):
        it.sites[A].share(it.session, listed)


def _spoiled(at: str, change: Callable[[list[dict[str, Any]]], None], people: People) -> None:
    """A list of keys that the coordinator changed on its way to a site."""
    it = Round(people)
    it.keys()
    listed: list[dict[str, Any]] = json.loads(it.it.tell(at))
    change(listed)
    it.sites[at].share(it.session, json.dumps(listed).encode())


def test_keys_that_the_coordinator_puts_in_their_place_are_refused(people: People) -> None:
    def other_key(listed: list[dict[str, Any]]) -> None:
        listed[1]["channel"] = listed[2]["channel"]

    def own_key(listed: list[dict[str, Any]]) -> None:
        listed[0]["mask"] = listed[1]["mask"]

    def same_key(listed: list[dict[str, Any]]) -> None:
        who = people.identities[B]
        session = Session(FEDERATION, 0, "0" * 32)
        made = Advertised.of(session, who, b"1" * 32, b"2" * 32, b"3" * 32)
        listed[1] = made.to_json()

    def another_name(listed: list[dict[str, Any]]) -> None:
        listed[1]["name"] = NAMES[5]

    def swapped_certificate(listed: list[dict[str, Any]]) -> None:
        listed[1]["certificate"] = listed[2]["certificate"]

    def twice(listed: list[dict[str, Any]]) -> None:
        listed[1] = listed[2]

    def alone(listed: list[dict[str, Any]]) -> None:
        del listed[1:]

    def short(listed: list[dict[str, Any]]) -> None:
        listed[1]["mask"] = "AAAA"

    for change, reason in (
        (other_key, "aren't signed by it for this round"),
        (own_key, "this site's keys aren't as it sent them"),
        (same_key, "or of another round"),
        (another_name, "'site-f' is no site of --site-keys"),
        (swapped_certificate, "the certificate for site-b is of 'site-c'"),
        (twice, "names a site twice"),
        (alone, "1 site.s. have sent keys: 2 are needed"),
        (short, "has 3 bytes"),
    ):
        with pytest.raises(WorkloadError, match=reason):
            _spoiled(A, change, people)


def test_keys_of_an_earlier_round_are_refused(people: People) -> None:
    earlier = Round(people)
    earlier.keys()
    old: dict[str, Any] = json.loads(earlier.it.tell(A))[1]
    later = Round(people, number=1)
    later.keys()
    listed: list[dict[str, Any]] = json.loads(later.it.tell(A))
    listed[1] = old
    with pytest.raises(IdentityError, match="or of another round"):
        later.sites[A].share(later.session, json.dumps(listed).encode())
    with pytest.raises(IdentityError, match="or of another round"):
        _collector(people, 3, 2, 1).take(B, json.dumps(old).encode())


def test_shares_that_were_changed_or_are_of_others_are_refused(people: People) -> None:
    for change, reason in (
        (lambda s: {**s, B: s[C]}, "shares of site-b were changed on their way"),
        (lambda s: {**s, B: "A" * 8 + s[B][8:]}, "shares of site-b were changed"),
        (lambda s: {**s, NAMES[4]: s[B]}, "of a site that sent no keys"),
        (lambda s: {**s, A: s[B]}, "of a site that sent no keys"),
        (lambda _: {}, "1 site.s. have sent shares"),
        (lambda s: {**s, B: "?"}, "no base64"),
        (lambda s: {**s, B: "AAAA"}, "has 3 bytes"),
        (lambda _: [], "no JSON object"),
    ):
        it = Round(people)
        it.shares()
        spoiled = change(json.loads(it.it.tell(A)))
        with pytest.raises(WorkloadError, match=reason):
            it.sites[A].mask(it.session, json.dumps(spoiled).encode(), _numbers(NAMES)[A])


def test_the_collector_refuses_what_is_no_answer_to_its_stage(people: People) -> None:
    it = Round(people)
    with pytest.raises(MessageError, match="there is nothing for site-a at stage keys"):
        it.it.tell(A)
    sent = it.sites[B].begin(it.session)
    with pytest.raises(MessageError, match="keys of another name"):
        it.it.take(A, sent)
    it.sites[B] = people.participants(3, 2)[B]
    it.keys()
    with pytest.raises(MessageError, match="other sites than sent keys"):
        it.it.take(A, b"{}")
    it = Round(people)
    it.shares()
    vector = it.sites[A].mask(it.session, it.it.tell(A), _numbers(NAMES)[A])
    for wrong in (encode_numbers(vector)[:-8], encode_numbers(vector) + bytes(8), b""):
        with pytest.raises(MessageError, match="the model's has 40"):
            it.it.take(A, wrong)
    it.it.take(A, encode_numbers(vector))
    with pytest.raises(MessageError, match="has answered"):
        it.it.take(A, encode_numbers(vector))
    it = Round(people)
    it.masked()
    with pytest.raises(MessageError, match="other shares than were asked for"):
        it.it.take(A, messages.encode_opened({}, {}))
    with pytest.raises(SharingError, match="0 sites have told how masks come off: 2"):
        it.it.sum()


@pytest.mark.parametrize("without", [(), (C,)])
def test_a_share_that_a_site_changed_is_found_and_said_whose(
    people: People, without: tuple[str, ...]
) -> None:
    it = Round(people)
    it.masked(*without)
    for name in (A, B):
        seeds, keys = messages.decode_opened(it.sites[name].open(it.session, it.it.tell(name)))
        if name == A:
            part = keys if without else seeds
            part[C] = (int.from_bytes(part[C]) ^ 1).to_bytes(66)
        it.it.take(name, messages.encode_opened(seeds, keys))
    what = "mask key" if without else "seed"
    with pytest.raises(SharingError, match=f"site-c's ({what} was changed|secret)"):
        it.it.sum()


def test_a_site_refuses_a_threshold_that_two_groups_could_reach(people: People) -> None:
    for count, threshold in ((3, 1), (4, 2), (8, 4), (3, 4)):
        with pytest.raises(UntrueError, match="would do for the coordinator"):
            people.participants(count, threshold)


def test_pins_authorities_and_names_decide_whose_keys_are_taken(
    people: People, tmp_path: Path
) -> None:
    who = people.identities[A]
    pinned = Directory(people.authority.certificate, {A: fingerprint(who.certificate)})
    pinned.check(A, who.certificate, b"text", who.sign(b"text"))
    renewed = Identity.read(*people.authority.issue(A))
    stranger = Identity.read(*Authority(tmp_path / "other").issue(A))
    people.directory().check(A, renewed.certificate, b"text", renewed.sign(b"text"))
    for directory, name, identity, text, reason in (
        (pinned, A, renewed, b"text", "isn't the one of --site-keys"),
        (people.directory(), A, stranger, b"text", "isn't issued by"),
        (people.directory(), A, who, b"other", "aren't signed by it"),
        (people.directory(), B, who, b"text", "is of 'site-a'"),
        (people.directory((B, C, NAMES[3])), A, who, b"text", "is no site"),
    ):
        with pytest.raises(IdentityError, match=reason):
            directory.check(name, identity.certificate, text, identity.sign(b"text"))
    with pytest.raises(IdentityError, match="can't be read"):
        people.directory().check(A, b"no certificate", b"text", b"signature")
    with pytest.raises(IdentityError, match="isn't the one"):
        Participant(renewed, pinned, 1)


def test_a_pin_is_what_openssl_makes_of_a_certificate(people: People, tmp_path: Path) -> None:
    """By the command of the page."""
    path, secret = people.authority.issue(A, folder=tmp_path)
    key = subprocess.run(
        ["openssl", "x509", "-in", path, "-noout", "-pubkey"], capture_output=True, check=True
    ).stdout
    der = subprocess.run(
        ["openssl", "pkey", "-pubin", "-outform", "der"],
        input=key, capture_output=True, check=True,
    ).stdout  # fmt: skip
    expected = hashlib.sha256(der).hexdigest()
    assert fingerprint(Identity.read(path, secret).certificate) == expected


@pytest.mark.parametrize(
    "secret",
    [ed25519.Ed25519PrivateKey.generate(), rsa.generate_private_key(65537, 2048)],
    ids=["ed25519", "rsa"],
)
def test_certificates_of_other_kinds_of_keys_sign_as_well(
    secret: ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey, people: People, tmp_path: Path
) -> None:
    who = Identity.read(*people.authority.issue(A, secret, tmp_path))
    people.directory().check(A, who.certificate, b"text", who.sign(b"text"))
    with pytest.raises(IdentityError, match="aren't signed by it"):
        people.directory().check(A, who.certificate, b"other", who.sign(b"text"))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([], "must be a JSON object"),
        ({"a": "authority", "b": "authority"}, "is 2: allowed is 3 to 100"),
        ({"a": "authority", "b": "authority", "c": "AB"}, "the key of c in .* or authority"),
        ({"a": "authority", "b": "authority", "c d": "authority"}, "the name of a site in"),
        ({"a": "authority", "b": "authority", "c": 3}, "the key of c"),
    ],
)
def test_a_list_of_sites_that_cannot_be_is_refused(
    value: object, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(WorkloadError, match=reason):
        read_pins(path)


@given(st.data())
def test_the_sum_is_that_of_those_who_delivered_for_any_drop_outs(
    people: People, data: st.DataObject
) -> None:
    """Before each stage any site may go; with fewer than the threshold there is no sum."""
    count = data.draw(st.integers(3, 6))
    threshold = data.draw(st.integers(count // 2 + 1, count))
    names = NAMES[:count]
    stage = st.sampled_from(["keys", "shares", "masked", "opening", "never", "never"])
    leaves = {name: data.draw(stage) for name in names}
    gone = {
        f"before_{each}": [name for name in names if leaves[name] == each]
        for each in ("keys", "shares", "masked", "opening")
    }
    numbers = _numbers(names)
    delivered = [name for name in names if leaves[name] in ("opening", "never")]
    stays = [name for name in names if leaves[name] == "never"]
    sites, it = people.participants(count, threshold), _collector(people, count, threshold)
    if len(stays) < threshold:
        with pytest.raises((UntrueError, SharingError)):
            summed(sites, it, numbers, **gone)
        return
    expected = np.zeros(COUNT, np.uint64)
    for name in delivered:
        expected = expected + numbers[name]
    assert np.array_equal(summed(sites, it, numbers, **gone), expected)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(people: People, data: bytes) -> None:
    for read in (
        messages.decode_keys, messages.decode_sealed, messages.decode_opened,
        messages.decode_advertised, Wanted.from_bytes,
    ):  # fmt: skip
        try:
            read(data)
        except MessageError:
            continue
        assert data.strip() in (b"[]", b"{}")
