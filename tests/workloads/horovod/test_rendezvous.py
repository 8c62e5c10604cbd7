"""The rendezvous: what Horovod asks of it, and what it makes of anything else."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falaj.workloads.errors import WorkloadError
from falaj.workloads.horovod import store
from falaj.workloads.horovod.store import MOST_BYTES, Rendezvous
from falaj.workloads.horovod.world import Contact, Machines
from tests.examples import examples
from tests.ports import free_port


@pytest.fixture(scope="module")
def server() -> Iterator[Rendezvous]:
    with Rendezvous("127.0.0.1", free_port(), Machines(2, "0")) as found:
        yield found


def ask(server: Rendezvous, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(method, path, body)
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_a_value_is_there_until_its_process_is_connected(server: Rendezvous) -> None:
    assert ask(server, "PUT", "/global/rank_3", b"host") == (200, b"")
    assert ask(server, "PUT", "/global/3", bytes(range(256))) == (200, b"")
    assert ask(server, "GET", "/global/3") == (200, bytes(range(256)))
    assert ask(server, "GET", "/global/rank_3") == (200, b"host")
    assert ask(server, "DELETE", "/global/3") == (200, b"")
    assert ask(server, "GET", "/global/3")[0] == 404
    assert ask(server, "GET", "/global/rank_3")[0] == 404
    assert ask(server, "DELETE", "/global/3") == (200, b"")


def test_scopes_of_process_sets_are_apart(server: Rendezvous) -> None:
    scope = "local_node-0_process_set_hash_1fa2"
    ask(server, "PUT", f"/{scope}/1", b"one")
    assert ask(server, "GET", f"/{scope}/1") == (200, b"one")
    assert ask(server, "GET", "/local_node-0/1")[0] == 404


def test_who_asks_early_is_answered_as_soon_as_the_value_is_there(
    server: Rendezvous, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LONGEST_WAIT", 3_600.0)
    found: list[tuple[int, bytes]] = []
    asking = threading.Thread(
        target=lambda: found.append(ask(server, "GET", "/early/0")), daemon=True
    )
    asking.start()
    time.sleep(0.2)
    ask(server, "PUT", "/early/0", b"now")
    asking.join(60)
    assert found == [(200, b"now")]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/", b"", 400),
        ("GET", "/global", b"", 400),
        ("GET", "/global/1/2", b"", 400),
        ("PUT", "/../etc/passwd", b"", 400),
        ("PUT", "/global/" + "k" * 300, b"", 400),
        ("POST", "/machines/one", b'{"attempt": "0", "ended": null}', 400),
        ("POST", "/machines/1", b"[]", 400),
        ("POST", "/machines/1", b'{"attempt": "0", "ended": "yes"}', 400),
        ("POST", "/machines/1", b"\xff", 400),
        ("POST", "/machines/1", b'{"attempt": "7", "ended": null}', 409),
        ("POST", "/machines/2", b'{"attempt": "0", "ended": null}', 409),
        ("PATCH", "/global/1", b"", 501),
    ],
)
def test_anything_else_is_refused(
    server: Rendezvous, method: str, path: str, body: bytes, status: int
) -> None:
    assert ask(server, method, path, body)[0] == status


@pytest.mark.parametrize("length", ["-1", "many", "", "²", str(MOST_BYTES + 1)])
def test_a_length_that_cannot_be_is_refused(server: Rendezvous, length: str) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
        head = f"PUT /global/9 HTTP/1.1\r\nContent-Length: {length}\r\n\r\n"
        connection.sendall(head.encode("latin-1"))
        assert connection.recv(100).split()[1] == b"400"


@given(noise=st.binary(min_size=1, max_size=200))
@settings(max_examples=examples(40), deadline=None)
def test_it_outlives_any_noise(server: Rendezvous, noise: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
        connection.sendall(noise)
    ask(server, "PUT", "/noise/0", noise)
    assert ask(server, "GET", "/noise/0") == (200, noise)


def test_a_port_that_is_taken_is_named(server: Rendezvous) -> None:
    with pytest.raises(WorkloadError, match=rf"127.0.0.1:{server.server_port}: Address already"):
        Rendezvous("127.0.0.1", server.server_port, Machines(1, "0"))


def test_machines_know_of_each_other_how_they_ended() -> None:
    machines = Machines(3, "1")
    assert machines.tell(0, "1", None, 10.0) == {"present": 1, "ended": {}, "ages": {"0": 0.0}}
    machines.tell(1, "1", 71, 11.0)
    machines.tell(1, "1", 1, 12.0)  # the first word counts
    state = machines.tell(2, "1", None, 14.0)
    assert state == {"present": 3, "ended": {"1": 71}, "ages": {"0": 4.0, "2": 0.0}}
    assert machines.tell(3, "1", None, 14.0) is None
    assert machines.tell(0, "0", None, 14.0) is None


def test_a_silent_machine_is_noticed_and_one_that_has_ended_is_not_silent(
    server: Rendezvous,
) -> None:
    contact, other = Contact(0, "0"), Contact(1, "0")
    port = server.server_port
    try:
        contact.reach("127.0.0.1", port)
        other.reach("127.0.0.1", port)
        assert json.loads(ask(server, "POST", "/machines/0", _well())[1])["present"] == 2
        other.end(75)
        until = time.monotonic() + 10
        while not contact.failures():
            assert time.monotonic() < until
            time.sleep(0.05)
        assert contact.failures() == {1: 75}
        assert contact.silence(contact.reached + 3.0) == pytest.approx(3.0)
    finally:
        contact.close()
        other.close()


def _well() -> bytes:
    return json.dumps({"attempt": "0", "ended": None}).encode()
