"""The parts of `service.json` that name other servers: the model's runtime, and the next tier."""

from __future__ import annotations

import re
from dataclasses import dataclass

from falaj.workloads.inference.section import Section

_LOOPBACK = re.compile(r"http://(127\.0\.0\.1|localhost|\[::1\]):\d{1,5}")
_TLS = re.compile(r"https://[A-Za-z0-9]([A-Za-z0-9.-]{0,252})?(:\d{1,5})?")


@dataclass(frozen=True)
class UpstreamSettings:
    """A server on the loopback interface that runs the model, and that only this one reaches."""

    url: str
    timeout_seconds: float
    connections: int


@dataclass(frozen=True)
class SpillSettings:
    """A server that takes requests over when the queue here is too long."""

    url: str
    version: int
    above_seconds: float
    timeout_seconds: float
    connections: int


def upstream_settings(section: Section | None) -> UpstreamSettings | None:
    """Read ``upstream``. Without TLS nothing but the loopback interface is allowed.

    Raises:
        InferenceError: a key is unknown or wrong.
    """
    if section is None:
        return None
    url = section.text("url")
    if not _LOOPBACK.fullmatch(url):
        raise section.error("url", url, "http://127.0.0.1 with a port: it is neither "
                            "encrypted nor authenticated")  # fmt: skip
    settings = UpstreamSettings(
        url,
        section.seconds("timeout_seconds", 0.01, 3600, 60),
        section.whole("connections", 1, 4096, 128),
    )
    section.finish(tuple(UpstreamSettings.__dataclass_fields__))
    return settings


def spill_settings(section: Section | None) -> SpillSettings | None:
    """Read ``spill``: TLS always, with the server's own certificate as the client's.

    Raises:
        InferenceError: a key is unknown or wrong.
    """
    if section is None:
        return None
    url = section.text("url")
    if not _TLS.fullmatch(url):
        raise section.error("url", url, "https:// with a host and a port")
    settings = SpillSettings(
        url,
        section.whole("version", 1, 999_999_999),
        section.seconds("above_seconds", 0.0001, 600, 0.05),
        section.seconds("timeout_seconds", 0.001, 600, 1),
        section.whole("connections", 1, 4096, 64),
    )
    section.finish(tuple(SpillSettings.__dataclass_fields__))
    return settings
