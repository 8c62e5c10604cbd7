"""Hosts that programs are told to talk to: in their settings, their arguments and their scripts.

A text names a host as a URL, with a port (``kafka.example.com:9092``, ``203.0.113.7:443``,
``[2001:db8::1]:443``), or as the far end of a copy by SSH (``ops@host:/folder``). Whether data may
go there is `services.may_reach`'s to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from falaj.policies.reading.commands import ADDRESS, NAME, connected, keyed

URL: Final = re.compile(r"\b([a-z][a-z0-9+.:-]{1,40})://[^\s\"'<>|,;()`{}\\]+", re.IGNORECASE)
_WITH_PORT: Final = re.compile(
    rf"(?<![\w.@/:-])({NAME}|{ADDRESS}|\[[0-9a-f:.]+\]):\d{{2,5}}(?![\w.:-])", re.IGNORECASE
)
# scp x ops@host:/in, git@host:team/x; ssh ops@host, where a mail's address would look the same.
_FAR_END: Final = re.compile(
    rf"(?<![\w.@/:-])[\w.%+-]+@({NAME}|{ADDRESS}):(?=[/~.\w])"
    rf"|\b(?:ssh|scp|sftp|rsync|rclone|ncat|nc)\b[^\n;|&]{{0,400}}?[\s\"'][\w.%+-]+@({NAME}|{ADDRESS})",
    re.IGNORECASE,
)
# curl -T x https://host, curl --data @x …; wget --post-file=x: what is sent, rather than fetched.
_COMMANDS: Final = re.compile(r"[\n;|&]")
_CLIENT: Final = re.compile(r"\b(?:curl|wget|https?)\s", re.IGNORECASE)
_SENDING: Final = re.compile(
    r"\s(?:-T|--upload-file|-F|--form|-d|--data[\w-]*|--post-(?:file|data)"
    r"|(?:-X|--request)[\s=]?(?:POST|PUT|PATCH))(?![\w-])"
)
#: Schemes of what is no host: files, images (which have rules of their own), claims.
NO_HOSTS: Final = frozenset({
    "file", "pvc", "oci", "oci+native", "docker", "unix", "unixgram", "vsock", "jdbc:sqlite",
    "sqlite", "env", "secret", "config", "spiffe", "urn", "model", "runs", "models", "dir",
    "containerd",
})  # fmt: skip
_LINK: Final = (
    r"(?:DOCS?|DOCUMENTATION|HELP|SUPPORT|SCHEMA|LICEN[CS]E|HOMEPAGE|LOGO|TERMS|PRIVACY"
    r"|PRIVACY_POLICY|REFERENCE|README)"
)
#: Settings whose URLs are shown or compared, not called: by their whole name, for any word may be
#: a part of one's own.
_LINKS: Final = re.compile(
    rf"{_LINK}|(?:\w+_)?{_LINK}_(?:UR[IL]|LINK|PAGE)|(?:\w+_)?(?:AUDIENCE|NAMESPACE_URI"
    r"|CORS_(?:ALLOW(?:ED)?_)?ORIGINS?|ALLOWED_ORIGINS?|ROOT_URL|PUBLIC_URL|EXTERNAL_URL"
    r"|FRONTEND_URL|SELF_URL)",
    re.IGNORECASE,
)
_PAGE: Final = re.compile(r"https?://[^@\s]+|\*", re.IGNORECASE)


def is_link(name: str, value: str) -> bool:
    """Whether a setting only names a page for people, or who may call.

    >>> is_link("DOCS_URL", "https://x.example.com"), is_link("DOCTOR_URL", "https://x.example.com")
    (True, False)
    """
    return bool(_LINKS.fullmatch(name) and all(map(_PAGE.fullmatch, value.split(","))))


#: Settings that name where customers are, rather than machines.
_MARKET: Final = re.compile(
    r"(?i)(?:^|[_.-])(?:sales?|market(?:ing)?|customers?|billing|tax|shipping|delivery|pric(?:e|ing))"
    r"[_.-]?(?:region|location)s?$"
)


def is_market(name: str, value: str) -> bool:
    """Whether a setting names a market as people write it; the id of a region is none.

    >>> is_market("SALES_REGION", "West Europe"), is_market("SALES_REGION", "eu-west-1")
    (True, False)
    """
    return bool(_MARKET.search(name)) and (value != value.lower() or " " in value)


def far_ends(value: str) -> Iterator[str]:
    """Hosts that a text copies to, or opens a shell on, by SSH and its like, URLs that it uploads
    to, and hosts that its commands connect to.

    >>> list(far_ends("scp /data/x ops@drop.example.com:/in"))
    ['drop.example.com']
    """
    yield from dict.fromkeys((*_far_ends(value), *connected(value)))


def _far_ends(value: str) -> Iterator[str]:
    if "@" in value:
        for found in _FAR_END.finditer(value):
            yield found[1] or found[2]
    for command in _COMMANDS.split(value) if "://" in value else ():
        if "://" in command and _CLIENT.search(command) and _SENDING.search(command):
            yield from (each[0] for each in URL.finditer(command) if "$" not in each[0])


def in_pieces(command: str) -> Iterator[str]:
    """Far ends of a command that is told in pieces, of which an option and its value are two.

    >>> list(in_pieces("serve --db-host db.example.com"))
    ['db.example.com']
    """
    yield from far_ends(command)
    yield from keyed(command)


def without_scheme(value: str) -> Iterator[str]:
    """Hosts with a port, as ``//host``, those of connection strings, and the far ends of commands.

    >>> list(without_scheme("a.example.com:9092,[2001:db8::1]:443 x.py"))
    ['//a.example.com', '//[2001:db8::1]']
    """
    if ":" in value:
        for found in _WITH_PORT.finditer(value):
            yield f"//{found[1]}"
    yield from (f"//{each}" for each in keyed(value))
    yield from (f"//{each}" for each in far_ends(value) if "://" not in each)
