"""Mails of a watch: to a server that was judged, over TLS alone, with a password from a file."""

from __future__ import annotations

import email
import email.policy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.errors import WorkloadError
from falaj.workloads.watching import mail as mails
from falaj.workloads.watching.mail import Mail, MailError, password_of
from tests.workloads.inference.serving import Pki
from tests.workloads.watching.smtp import MailServer

MESSAGE = {"event": "drift", "stack": "shop", "text": "shop version 3 drifted: عمر", "version": 3}


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki") / "pki")


def _mail(server: MailServer, **changes: Any) -> Mail:
    given: dict[str, Any] = {
        "host": "localhost", "port": server.port, "security": server.security,
        "sender": "falaj@shop.ae", "recipients": ["one@shop.ae", "two@shop.ae"],
        "user": None, "password": lambda: "", "refused": lambda _: None,
        "is_private": lambda _: True, "authority": server.pki.folder / "ca.crt",
    }  # fmt: skip
    return Mail(**(given | changes))


def _refused(mail: Mail) -> MailError:
    with pytest.raises(MailError) as raised:
        mail.send(MESSAGE, "a-b-c", 1_800_000_000.0)
    return raised.value


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_a_mail_is_taken_over_tls(pki: Pki, security: str) -> None:
    with MailServer(pki, security, users={"falaj": "p w"}) as server:
        _mail(server, user="falaj", password=lambda: "p w").send(MESSAGE, "a-b-c", 1_800_000_000.0)
    ((sender, recipients, content),) = server.mails
    assert (sender, recipients) == ("falaj@shop.ae", ["one@shop.ae", "two@shop.ae"])
    found = email.message_from_bytes(content, policy=email.policy.default)
    assert found["Subject"] == "[falaj] shop: drift"
    assert found["Message-ID"] == "<a-b-c@shop.ae>"
    assert found["Date"] == "Fri, 15 Jan 2027 08:00:00 -0000"
    assert found["Auto-Submitted"] == "auto-generated"
    text, _, figures = found.get_content().replace("\r\n", "\n").partition("\n\n")
    assert text == MESSAGE["text"]
    assert json.loads(figures) == MESSAGE
    before_tls = [each for each in server.heard if each.endswith(" plain")]
    assert before_tls == (["EHLO plain", "STARTTLS plain"] if security == "starttls" else [])


def test_without_tls_nothing_is_said(pki: Pki) -> None:
    with MailServer(pki, "none", users={"falaj": "secret"}) as server:
        error = _refused(
            _mail(server, security="starttls", user="falaj", password=lambda: "secret")
        )
        assert "offers no STARTTLS; nothing was sent" in str(error)
        assert not error.for_good
        assert {each.split()[0] for each in server.heard} <= {"EHLO", "QUIT"}
        assert "TLS failed" in str(_refused(_mail(server, security="tls")))
        assert server.mails == []


def test_a_stranger_is_told_nothing(pki: Pki, tmp_path: Path) -> None:
    other = Pki(tmp_path / "other")
    with MailServer(pki) as server:
        error = _refused(_mail(server, authority=other.folder / "ca.crt"))
        assert "its certificate isn't trusted" in str(error)
        assert server.mails == []
        assert not any(each.startswith(("AUTH", "MAIL")) for each in server.heard)


def test_a_host_abroad_gets_no_connection(pki: Pki) -> None:
    with MailServer(pki) as server:
        abroad = _mail(server, refused=lambda host: f"given the host {host}; allowed: others")
        error = _refused(abroad)
        assert (error.for_good, server.heard) == (True, [])
        assert "no mail is sent to localhost: given the host" in str(error)
        led_away = _mail(server, is_private=lambda name: name == "localhost")
        assert "which isn't of them" in str(_refused(led_away))
        assert server.heard == []


@pytest.mark.parametrize(
    ("replies", "says", "for_good"),
    [
        ({"DATA": "554 spam"}, "it says 554 spam", True),
        ({"DATA": "452 full"}, "it says 452 full", False),
        ({"MAIL": "550 not you"}, "it says 550 not you", True),
        ({"RCPT": "550 nobody"}, "refuses every recipient (550)", True),
        ({"RCPT": "450 later"}, "refuses every recipient (450)", False),
        ({"greeting": "421 closing"}, "it says 421 closing", False),
        ({"greeting": "hello"}, "it says -1 ", False),
        ({"EHLO": "502 no", "HELO": "502 no"}, "it says 502 no", True),
    ],
)
def test_what_a_server_refuses(
    pki: Pki, replies: dict[str, str], says: str, *, for_good: bool
) -> None:
    with MailServer(pki, replies=replies) as server:
        error = _refused(_mail(server))
    assert says in str(error)
    assert error.for_good == for_good
    assert server.mails == []


def test_one_refused_recipient_is_named(pki: Pki) -> None:
    with MailServer(pki, refused={"two@shop.ae"}) as server:
        error = _refused(_mail(server))
    assert "took the mail, but not for two@shop.ae" in str(error)
    assert error.for_good
    assert [each[1] for each in server.mails] == [["one@shop.ae"]]


def test_a_wrong_password_is_no_part_of_what_is_said(pki: Pki, tmp_path: Path) -> None:
    with MailServer(pki, users={"falaj": "right"}) as server:
        error = _refused(_mail(server, user="falaj", password=lambda: "hunter2"))
        assert "it says 535 wrong" in str(error)
        assert "hunter2" not in str(error)
        assert error.for_good
        secret = tmp_path / "secret"
        missing = _refused(_mail(server, user="falaj", password=lambda: password_of(secret)))
        assert "the mail's password is missing: there is no file" in str(missing)
        assert not missing.for_good


def test_a_server_that_never_ends_is_cut_off(pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mails, "_ALL_SECONDS", 0.3)
    endless = "\r\n".join(["250-more"] * 10)
    with MailServer(pki, replies={"EHLO": endless}) as server:
        error = _refused(_mail(server))
    assert "no end within 0.3 s" in str(error)
    assert not error.for_good
    closed = _refused(_mail(server))
    assert "can't be reached" in str(closed)


def test_a_password_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("p w\nmore\n")
    path.chmod(0o640)
    with pytest.raises(WorkloadError, match="chmod 600"):
        password_of(path)
    path.chmod(0o600)
    assert password_of(path) == "p w"
    path.write_text("\n")
    with pytest.raises(WorkloadError, match="is empty"):
        password_of(path)


@given(st.text(max_size=80), st.text(max_size=80))
def test_no_text_makes_another_header(stack: str, text: str) -> None:
    """Names of columns and stacks are others' words."""
    mail = Mail(
        "localhost",
        25,
        "tls",
        "a@b.ae",
        ["c@d.ae"],
        None,
        str,
        lambda _: None,
        lambda _: True,
        None,
    )
    message = {"event": "drift", "stack": stack, "text": text.encode("utf-8", "replace").decode()}
    written = bytes(mail.written(message, "id", 0.0))
    found = email.message_from_bytes(written, policy=email.policy.default)
    assert set(found.keys()) == {
        "From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "Content-Type",
        "Content-Transfer-Encoding", "MIME-Version",
    }  # fmt: skip
    assert found["To"] == "c@d.ae"
