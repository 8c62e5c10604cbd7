"""Who is let in, what the page shows and does, and what it says when something is wrong."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID
from onnx import TensorProto

from falaj.stacks.command.project import StackFile
from falaj.stacks.page.caller import NOBODY, is_foreign, user_in
from falaj.stacks.page.server import MOST_BYTES as MOST_OF_AN_ANSWER
from falaj.workloads.registry import rotation
from tests.ports import free_port
from tests.stacks.page.site import Running, make_stack, serving
from tests.workloads.inference import languages, models
from tests.workloads.inference.serving import Server, Site

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
HOSTILE = "<img src=x onerror=alert(1)>\"'\u202egnp"


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    text: str


class Visitor:
    """A browser without a window: it keeps the cookie, and says where it comes from."""

    def __init__(self, running: Running, *, enter: bool = True) -> None:
        self.running = running
        self.port = running.door.port
        self.cookie = ""
        if enter:
            running.door.token = "again"
            self.cookie = self.get("/enter?token=again").headers["Set-Cookie"].partition(";")[0]

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self, method: str, path: str, body: bytes | None = None, **headers: str | None
    ) -> Answer:
        sent = {"Host": f"127.0.0.1:{self.port}", "Cookie": self.cookie}
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for key, value in {**sent, **named}.items():
            if value:
                connection.putheader(key, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        connection.close()
        return Answer(answer.status, answer.headers, text)

    def get(self, path: str, **headers: str | None) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, fields: dict[str, str], **headers: str | None) -> Answer:
        own = {"Origin": self.origin, **FORM}
        return self.ask("POST", path, urlencode(fields).encode(), **{**own, **headers})


class Elements(HTMLParser):
    """Every element of a page with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def plain(text: str) -> str:
    return " ".join(" ".join(Elements(text).texts).split())


def require_harmless(text: str) -> None:
    """No element, script or address but the page's own, whatever came from outside."""
    for tag, attributes in Elements(text).found:
        assert tag not in {"img", "iframe", "object", "embed", "style", "base"}, tag
        if tag == "script":
            assert attributes == {"src": "/static/page.js", "defer": None}
        for name, value in attributes.items():
            assert not name.startswith("on"), name
            assert name != "style"
            if name in {"href", "src", "action"}:
                assert re.match(r"[/#](?!/)", value or ""), value
    assert "\u202e" not in text


@pytest.fixture(scope="module")
def place(home: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[StackFile, Site]:
    del home
    return make_stack(tmp_path_factory.mktemp("table"), "table")


@pytest.fixture(scope="module")
def server(place: tuple[StackFile, Site]) -> Iterator[Server]:
    """A real server of a table: the number `age` and the text `city`."""
    _, site = place
    for run in ("one", "two"):
        fields = models.fields(models.table(), run) | {
            "classes": None,
            "data_class": "confidential",
            "statistics": {"features": {
                "age": {"kind": "numeric", "minimum": 18, "maximum": 80, "edges": [41.0]},
                "city": {"kind": "text", "categories": {"دبي": 5, HOSTILE: 2}, "others": 0},
            }},
        }  # fmt: skip
        site.publish(models.table(), fields=fields)
    started = Server(site)
    try:
        yield started.serving(2)
        assert started.stop() == 0
    finally:
        started.kill()


@pytest.fixture(scope="module")
def running(place: tuple[StackFile, Site], server: Server) -> Iterator[Running]:
    del server
    with serving(place[0]) as found:
        yield found


@pytest.fixture(scope="module")
def visitor(running: Running) -> Visitor:
    return Visitor(running)


# -- who is let in -------------------------------------------------------------------------


def test_a_token_is_worth_one_visit(running: Running) -> None:
    stranger = Visitor(running, enter=False)
    running.door.token = "secret-once"
    assert stranger.get("/enter?token=secret").status == 403
    assert stranger.get("/enter").status == 403
    entered = stranger.get("/enter?token=secret-once")
    assert (entered.status, entered.headers["Location"]) == (303, "/")
    cookie = entered.headers["Set-Cookie"]
    assert cookie.startswith(f"falaj-{running.door.port}=")
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Max-Age" not in cookie
    again = stranger.get("/enter?token=secret-once")
    assert again.status == 403
    assert "falaj open" in again.text
    # Who is in already and follows the link again comes to the page.
    stranger.cookie = cookie.partition(";")[0]
    assert stranger.get("/enter?token=secret-once").status == 303


def test_looking_ahead_uses_no_token_up(running: Running) -> None:
    stranger = Visitor(running, enter=False)
    running.door.token = "kept"
    assert stranger.get("/enter?token=kept", Sec_Purpose="prefetch;prerender").status == 503
    assert stranger.ask("HEAD", "/enter?token=kept").status == 405
    assert running.door.token == "kept"


def test_who_comes_from_a_file_is_sent_on_by_the_page_itself(running: Running) -> None:
    """Along a redirect that another site began, a browser keeps a strict cookie back."""
    stranger = Visitor(running, enter=False)
    running.door.token = "kept"
    entered = stranger.get("/enter?token=kept", Sec_Fetch_Site="cross-site")
    assert entered.status == 200
    assert 'http-equiv="refresh" content="0; url=/"' in entered.text
    assert "Set-Cookie" in entered.headers


PATHS = ["/", "/live", "/metrics", "/rollback", "/card/1", "/nothing"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("cookie", ["", "falaj-{port}=x", "falaj-{port}=", "other={port}"])
def test_nobody_sees_anything_without_the_cookie(running: Running, path: str, cookie: str) -> None:
    stranger = Visitor(running, enter=False)
    stranger.cookie = cookie.format(port=running.door.port)
    answer = stranger.get(path)
    assert answer.status == 403
    assert "works\nonce" in answer.text or "works once" in " ".join(answer.text.split())
    assert "دبي" not in answer.text


@pytest.mark.parametrize("path", [*PATHS, "/enter?token=x", "/static/page.css"])
@pytest.mark.parametrize(
    "host",
    ["evil.example:{port}", "127.0.0.1", "127.0.0.1.evil.example:{port}", "[::1]:{port}",
     "127.0.0.1:1", "localhost.:{port}", None],
)  # fmt: skip
def test_it_answers_to_its_own_names_alone(visitor: Visitor, path: str, host: str | None) -> None:
    """A name of somebody else's may be made to lead here: DNS rebinding."""
    answer = visitor.get(path, Host=host and host.format(port=visitor.port))
    assert answer.status in (400, 421)
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": None}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "http://localhost:{port}"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Cookie": None}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "multipart/form-data; boundary=x"}, 415),
        ({"Content-Type": "application/json"}, 415),
    ],
)
@pytest.mark.parametrize("path", ["/predict", "/rollback"])
def test_what_another_page_sends_changes_nothing(
    visitor: Visitor, place: tuple[StackFile, Site], path: str,
    headers: dict[str, str | None], status: int,
) -> None:  # fmt: skip
    given = {key: value and value.format(port=visitor.port) for key, value in headers.items()}
    assert visitor.post(path, {"current": "2", "i0": "1"}, **given).status == status
    assert place[1].store.resolve("table") == 2


ASK = """
import os, socket, sys
port, path, cookie = sys.argv[1:]
os.setgid(65534); os.setuid(65534)
with socket.socket() as asking:
    asking.connect(("127.0.0.1", int(port)))
    lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Cookie: {cookie}", "", ""]
    asking.sendall("\\r\\n".join(lines).encode())
    print(asking.recv(65536).split()[1].decode())
"""


@pytest.mark.parametrize("path", ["/", "/enter?token=again", "/static/page.css"])
def test_another_user_of_the_machine_is_turned_away(visitor: Visitor, path: str) -> None:
    """Even with the cookie, which a browser shows to every port of loopback."""
    if os.geteuid() != 0:
        pytest.skip(
            "nobody but root can ask as somebody else; the table's reading is tested below"
        )
    visitor.running.door.token = "again"
    done = subprocess.run(
        [sys.executable, "-I", "-c", ASK, str(visitor.port), path, visitor.cookie],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "403", done.stderr
    assert visitor.running.door.token == "again"


TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1
   1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 2
   2: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 3
 short
"""


def test_the_kernels_table_says_whose_a_connection_is() -> None:
    assert user_in(TABLE, 0xC350, 0x1F90) == 1001
    assert user_in(TABLE, 0xC351, 0x1F90) is None
    assert user_in("", 1, 2) is None
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", ours)) as client:
            port = client.getsockname()[1]
            assert user_in(Path("/proc/net/tcp").read_text(), port, ours) == os.geteuid()
            assert not is_foreign(port, ours)
        # Whoever sent something and went is nobody, and not root, as the kernel has it.
        assert user_in(Path("/proc/net/tcp").read_text(), port, ours) == NOBODY
        assert is_foreign(port, ours)


@pytest.mark.parametrize(("method", "path"), [("PUT", "/"), ("DELETE", "/rollback"),
                                              ("GET", "/predict"), ("POST", "/live")])  # fmt: skip
def test_other_methods_are_refused(visitor: Visitor, method: str, path: str) -> None:
    assert visitor.ask(method, path, Origin=visitor.origin).status == 405


@pytest.mark.parametrize(
    "path", ["/", "/live", "/metrics", "/rollback", "/card/9", "/nothing", "/static/page.js",
             "/static/../app.py", "/static/%2e%2e%2fapp.py", "/card/0", "/card/1/../2",
             "/card/99999999999"],
)  # fmt: skip
def test_every_answer_keeps_others_out(visitor: Visitor, path: str) -> None:
    answer = visitor.get(path)
    assert answer.status < 500
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert answer.headers.get_all("Server") == ["falaj"]
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert "import annotations" not in answer.text


def test_what_is_too_long_is_refused(visitor: Visitor) -> None:
    assert visitor.post("/predict", {"i0": "1" * (1024 * 1024 + 1)}).status == 413
    many = {f"x{n}": "1" for n in range(5_000)}
    assert visitor.post("/predict", many).status in (400, 413)
    wrong = visitor.ask("POST", "/predict", b"i0=%ff%fe", Origin=visitor.origin, **FORM)
    assert wrong.status in (200, 400)


# -- what is shown -------------------------------------------------------------------------


def test_the_page_has_all_of_its_parts(visitor: Visitor) -> None:
    answer = visitor.get("/")
    assert answer.status == 200
    require_harmless(answer.text)
    found = Elements(answer.text).found
    ids = [attributes["id"] for tag, attributes in found if tag == "section"]
    assert ids == ["try", "live", "versions", "drift", "trust", "call"]
    assert [attributes["id"] for _, attributes in found if "id" in attributes] == list(
        dict.fromkeys(attributes["id"] for _, attributes in found if "id" in attributes)
    ), "ids are unique"
    text = plain(answer.text)
    assert "in training 18 to 80" in text
    assert "Version 2 serves production" in text
    assert "Go back to version 1" in text
    assert "This package has no card" in text
    assert "intact" in text
    assert "changed" not in text
    assert "confidential" in text
    assert "operator.crt" in text
    assert "/v2/models/table/infer" in text


def test_every_field_has_a_label(visitor: Visitor) -> None:
    found = Elements(visitor.get("/").text).found
    labelled = {attributes.get("for") for tag, attributes in found if tag == "label"}
    fields = [
        attributes for tag, attributes in found
        if tag in {"input", "select", "textarea"} and attributes.get("type") != "hidden"
    ]  # fmt: skip
    assert len(fields) >= 3
    assert {each["id"] for each in fields} <= labelled


def test_keys_and_tokens_stay_where_they_are(
    visitor: Visitor, place: tuple[StackFile, Site]
) -> None:
    keyring = place[1].keyring.path
    secrets = [
        *(path.read_text(errors="replace") for path in keyring.rglob("*.pem")),
        *(path.read_text(errors="replace") for path in place[1].pki.folder.glob("*.key")),
    ]
    lines = {
        line for each in secrets for line in each.splitlines() if "-----" not in line and line
    }
    public = set((keyring / "signing.pub.pem").read_text().splitlines())
    for path in ("/", "/live", "/metrics", "/rollback"):
        text = visitor.get(path).text
        assert not [line for line in lines - public if line in text], path
        assert "PRIVATE KEY" not in text
        assert "eyJ" not in text, "a token"


@pytest.mark.parametrize("part", [None, "1"])
def test_a_row_is_predicted(visitor: Visitor, part: str | None) -> None:
    answer = visitor.post("/predict", {"i0": "12,5", "i1": "c0"}, **{"X-Part": part})
    assert answer.status == 200
    require_harmless(answer.text)
    text = plain(answer.text)
    assert "دبي" in text
    assert "12.5" in text
    assert "version 2 answered" in text
    assert ("<h1>" in answer.text) is (part is None)


def test_what_was_written_stays_in_the_form(visitor: Visitor) -> None:
    answer = visitor.post("/predict", {"i0": "<b>x", "i1": "other", "i1.other": 'ع"<i>'})
    assert answer.status == 400
    require_harmless(answer.text)
    found = Elements(answer.text).found
    values = {attributes.get("id"): attributes for tag, attributes in found if tag == "input"}
    assert values["i0"]["value"] == "<b>x"
    assert values["i0"]["aria-invalid"] == "true"
    assert values["i1.other"]["value"] == 'ع"<i>'
    assert ("a", {"href": "#i0"}) in found
    assert "is no number" in answer.text


def test_a_hostile_category_comes_back_as_text(visitor: Visitor) -> None:
    answer = visitor.post("/predict", {"i0": "", "i1": "c1"})
    assert answer.status == 200
    require_harmless(answer.text)
    assert "<img src=x onerror=alert(1)>\"'\\u202egnp" in " ".join(Elements(answer.text).texts)


def test_metrics_are_handed_on_as_text(visitor: Visitor) -> None:
    answer = visitor.get("/metrics")
    assert answer.headers.get_content_type() == "text/plain"
    assert "falaj_inference_request_duration_seconds_bucket" in answer.text


def test_calls_work_when_pasted(visitor: Visitor) -> None:
    page = Elements(visitor.get("/").text)
    calls = [each for each in page.texts if "curl -sS --cacert" in each]
    assert len(calls) == 4
    said = [
        subprocess.run(["sh", "-c", each], capture_output=True, text=True, check=False)
        for each in calls
    ]
    predicted, described, listed, measured = (each.stdout for each in said)
    assert json.loads(predicted)["outputs"], said[0].stderr
    assert json.loads(described)["name"] == "table", said[1].stderr
    assert "/v2/models/table/infer" in json.loads(listed)["paths"], said[2].stderr
    assert "falaj_inference_rows_total" in measured, said[3].stderr


def test_live_figures_come_with_the_second_look(visitor: Visitor) -> None:
    visitor.get("/live")
    time.sleep(1.6)
    visitor.post("/predict", {"i0": "1", "i1": "c0"}, **{"X-Part": "1"})
    answer = visitor.get("/live?version=1")
    require_harmless(answer.text)
    assert "requests per second" in answer.text
    assert 'role="img" aria-label="Requests per second over the last 5 minutes' in answer.text
    assert "Version 2 is served by now" in answer.text
    assert "is served by now" not in visitor.get("/live?version=2").text


def test_going_back_asks_first_and_goes_one_step(
    visitor: Visitor, place: tuple[StackFile, Site], server: Server
) -> None:
    site = place[1]
    asked = visitor.get("/rollback")
    assert "Serve version 1 again?" in asked.text
    assert site.store.resolve("table") == 2, "a GET changes nothing"
    assert visitor.post("/rollback", {}).status == 409
    assert visitor.post("/rollback", {"current": "7"}).status == 409
    assert site.store.resolve("table") == 2
    try:
        done = visitor.post("/rollback", {"current": "2"})
        assert (done.status, done.headers["Location"]) == (303, "/#versions")
        assert site.store.resolve("table") == 1
        server.serving(1)
        # A second tab, which still shows the former state, goes no further back.
        late = visitor.post("/rollback", {"current": "2"})
        assert late.status == 409
        assert "Another version is served by now" in late.text
        nothing = visitor.get("/rollback")
        assert nothing.status == 409
        page = visitor.get("/").text
        assert "No version served before this one" in page
        assert "In the registry as well: version 2;" in page
        assert "no earlier version" not in page + nothing.text
    finally:
        site.store.promote("table", 2)
        server.serving(2)


def test_after_a_rotation_of_keys_the_page_knows_the_new_ones(
    visitor: Visitor, place: tuple[StackFile, Site]
) -> None:
    site = place[1]
    before = site.keyring.signing_key_id
    rotation.rotate(site.keyring, [site.root])
    page = visitor.get("/").text
    assert before in page
    assert site.keyring.signing_key_id in page
    assert "1 time" in page


# -- what is wrong -------------------------------------------------------------------------


@contextmanager
def another(
    root: Path, publish: Callable[[Site], object] = lambda site: site.publish(models.mlp())
) -> Iterator[tuple[Visitor, Site]]:
    """A page of a stack whose server isn't there."""
    stack, site = make_stack(root, "other")
    publish(site)
    site.write(port=free_port())
    with serving(stack) as found:
        yield Visitor(found), site


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of one test."""
    monkeypatch.setenv("FALAJ_HOME", str(tmp_path / "home"))
    return tmp_path


def test_a_server_that_is_down(apart: Path) -> None:
    with another(apart / "stack") as (visitor, site):
        page = visitor.get("/")
        assert page.status == 200
        assert "nothing answers at https://127.0.0.1:" in plain(page.text)
        assert "bring the server back:" in plain(page.text)
        assert " up" in plain(page.text)
        assert "Version 1" in plain(page.text)
        row = visitor.post("/predict", {"i0": " ".join(["0"] * 64)})
        assert row.status == 503
        assert "No answer" in plain(row.text)
        assert visitor.get("/metrics").status == 503
        assert visitor.get("/live").status == 200
        # The stack is taken down while the page is open.
        site.config.unlink()
        gone = visitor.get("/")
        assert gone.status == 503
        assert "serves nothing now; start it with:" in plain(gone.text)
        site.config.write_text("{")
        broken = visitor.get("/")
        assert broken.status == 503
        assert "is not JSON" in plain(broken.text)


def test_a_server_that_hangs_is_not_waited_for_twice(apart: Path) -> None:
    asked: list[str] = []
    with another(apart / "stack") as (visitor, site), junk(site) as server:
        server.hangs = asked
        visitor.running.page.server.patience = 0.3
        page = plain(visitor.get("/").text)
        assert "answer in time" in page
        assert asked == ["/metrics"]


def test_names_of_others_are_shown_and_do_nothing(apart: Path) -> None:
    long = "x" * 10_000

    def publish(site: Site) -> None:
        model = models.echo({HOSTILE: TensorProto.FLOAT, long: TensorProto.STRING})
        fields = models.fields(model) | {
            "classes": [HOSTILE, long], "data_class": HOSTILE,
            "dataset": {"digest": HOSTILE, "rows": HOSTILE, "source": [HOSTILE],
                        "features": [{"name": HOSTILE, "kind": "words"}, HOSTILE]},
            "metrics": {"worth": {"model": HOSTILE}, "card": {HOSTILE: 1}},
            "statistics": {"features": {long: {"categories": {HOSTILE: 1, long: 1},
                                               "others": 3}}},
        }  # fmt: skip
        site.publish(model, fields=fields)

    with another(apart / "stack", publish) as (visitor, _):
        page = visitor.get("/")
        assert page.status == 200
        require_harmless(page.text)
        assert "(10,000 characters)" in page.text
        assert "<img src=x onerror=alert(1)>\"'\\u202egnp" in plain(page.text)
        wrong = visitor.post("/predict", {"i0": HOSTILE, "i1": HOSTILE})
        assert wrong.status == 400
        require_harmless(wrong.text.replace("\u202e", ""))


def test_a_changed_package_and_a_changed_list_are_said(apart: Path) -> None:
    with another(apart / "stack") as (visitor, site):
        manifest = site.store.path("other", 1) / "manifest.json"
        manifest.write_bytes(manifest.read_bytes().replace(b"FP32", b"FP64"))
        page = plain(visitor.get("/").text)
        assert "damaged" in page
        assert "paste a row" in page
        aliases = site.root / "registry" / "other" / "aliases.json"
        aliases.write_text(aliases.read_text().replace('"version": 1', '"version": 7'))
        page = plain(visitor.get("/").text)
        assert "changed" in page
        shutil.rmtree(site.keyring.path)
        answer = visitor.get("/")
        assert answer.status == 200
        assert "keyring" in answer.text


def test_a_version_that_is_lost_or_none_at_all(apart: Path) -> None:
    with another(apart / "stack", lambda _: None) as (visitor, site):
        assert "The registry has no version of this model" in plain(visitor.get("/").text)
        assert visitor.get("/rollback").status == 409
        assert visitor.get("/card/1").status == 404
        site.publish(models.mlp())
        assert visitor.get("/card/1").status == 404
        assert "Version 1" in plain(visitor.get("/").text)


class Junk(BaseHTTPRequestHandler):
    """A server with the stack's certificate that answers whatever a test wants."""

    answers: tuple[int, dict[str, str], bytes] = (200, {}, b"")
    hangs: list[str] | None = None

    def do_GET(self) -> None:
        if type(self).hangs is not None:
            type(self).hangs.append(self.path)
            time.sleep(2)
            return
        status, headers, body = type(self).answers
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def junk(site: Site) -> Iterator[type[Junk]]:
    """Have another server in the stack's place."""

    class Handler(Junk):
        pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass

    server = Quiet(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(site.pki.folder / "server.crt", site.pki.folder / "server.key")
    context.load_verify_locations(site.pki.folder / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    server.socket = context.wrap_socket(server.socket, server_side=True)
    site.write(port=server.server_port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield Handler
    finally:
        server.shutdown()
        server.server_close()


ROW = {"i0": " ".join(["0"] * 64)}


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (200, {}, b""),
        (200, {}, b"<script>alert(1)</script>"),
        (200, {}, b"[" * 50_000),
        (200, {}, b'{"outputs": {"a": 1}, "state": ["<script>"]}'),
        (200, {}, json.dumps({"model_version": HOSTILE, "state": "drifted", "since": HOSTILE,
                              "outputs": [{"name": HOSTILE, "data": [HOSTILE, None, {}, []]},
                                          {"name": "label", "data": [HOSTILE]}, HOSTILE],
                              "features": [{"name": HOSTILE, "psi": HOSTILE, "state": HOSTILE}],
                              "labels": {"state": HOSTILE}, "window": {"rows": HOSTILE},
                              }).encode()),
        (200, {}, b"\xff" * 1_000),
        (500, {}, json.dumps({"error": HOSTILE + "y" * 20_000}).encode()),
        (500, {}, json.dumps({"error": {"a": 1}}).encode()),
        (302, {"Location": "https://evil.example/"}, b""),
        (200, {"Content-Length": "12"}, b"short"),
        (200, {}, b" " * (MOST_OF_AN_ANSWER + 1)),
        (404, {}, b"no"),
        (403, {}, b'{"error": "the scopes of operator are: none"}'),
        (999, {}, b"{}"),
    ],
)  # fmt: skip
def test_whatever_a_server_answers(
    apart: Path, status: int, headers: dict[str, str], body: bytes
) -> None:
    with another(apart / "stack") as (visitor, site), junk(site) as server:
        server.answers = (status, headers, body)
        for answer in (visitor.get("/"), visitor.get("/live"), visitor.post("/predict", ROW)):
            assert answer.status in (200, status, 502, 503)
            require_harmless(answer.text)
            assert len(answer.text) < 60_000
        assert visitor.get("/metrics").headers.get_content_type() in ("text/plain", "text/html")


def test_a_certificate_that_has_expired(apart: Path) -> None:
    with another(apart / "stack") as (visitor, site):
        site.pki.issue("server", "localhost", ExtendedKeyUsageOID.SERVER_AUTH, days=-1)
        with junk(site):
            page = plain(visitor.get("/").text)
            assert "has expired" in page
            assert "renew it:" in page
            assert "expired" in page
            assert "Renew:" in page


def test_the_operators_own_certificate_has_expired_or_is_gone(apart: Path) -> None:
    with another(apart / "stack") as (visitor, site):
        usage = ExtendedKeyUsageOID.CLIENT_AUTH
        site.pki.issue("operator", "operator", usage, days=-1)
        with junk(site):
            said = plain(visitor.get("/").text)
            assert "client certificate has expired" in said, said
        site.pki.issue("operator", "operator", usage)
        (site.pki.folder / "operator.key").write_text("damaged")
        assert "can't be used" in plain(visitor.get("/").text).replace("\u2019", "'")
        (site.pki.folder / "operator.key").unlink()
        assert "no client certificate" in plain(visitor.get("/").text)


def test_a_stranger_on_the_servers_port_gets_nothing(apart: Path) -> None:
    with another(apart / "stack") as (visitor, site):
        foreign = Site(apart / "foreign")
        with junk(foreign) as server:
            site.write(port=foreign.document["port"])
            server.answers = (200, {}, b"{}")
            answer = visitor.post("/predict", ROW)
        assert answer.status == 503
        assert "isn't the stack's server" in plain(answer.text).replace("\u2019", "'")


def test_the_call_of_a_language_model_can_be_pasted(
    home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    del home
    stack, site = make_stack(tmp_path_factory.mktemp("notes"), "notes")
    counts = {" ": 9, "a": 2, "b": 4}
    languages.publish(site, statistics={"features": {}, "target": {"counts": counts}})
    started = Server(site)
    try:
        started.serving(1)
        with serving(stack) as running:
            page = Visitor(running).get("/")
        assert page.status == 200
        calls = [each for each in Elements(page.text).texts if "curl -sS --cacert" in each]
        assert '"prompt":"b"' in calls[0]
        said = subprocess.run(["sh", "-c", calls[0]], capture_output=True, text=True, check=False)
        (choice,) = json.loads(said.stdout)["choices"]
        assert choice["text"] == languages.greedy("b", 64)
    finally:
        started.kill()
