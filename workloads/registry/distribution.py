"""Asks a registry of images, and sends to it, as far as a publishing pod needs.

By https://github.com/opencontainers/distribution-spec/blob/main/spec.md, with the two ways in
which registries know their clients: a password (Basic, RFC 7617), or a token that a password buys
(https://distribution.github.io/distribution/spec/auth/token/). A password goes to the registry's
own host alone: not to a token server or a store of blobs that it names elsewhere.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, cast
from urllib.parse import parse_qsl, quote, urlencode, urljoin, urlsplit, urlunsplit

from falaj.workloads.errors import NotThereError, RegistryError, WorkloadError
from falaj.workloads.files import read_bytes
from falaj.workloads.hosts import is_loopback
from falaj.workloads.registry.oci_layout import DIGEST, MANIFEST_TYPE, MAX_DOCUMENT_BYTES

SECONDS: Final = 120
"""For which an answer, or the next piece of one, is waited for."""
PAUSES: Final = (1.0, 2.0, 4.0, 8.0)
"""Seconds before each further try of what found nobody, a registry in trouble, or broke off."""
_PAGE: Final = 1000
"""Tags that are asked for at once; registries may give fewer."""
_MOST_PAGES: Final = 1000
_OK, _CREATED, _ACCEPTED, _PARTIAL = 200, 201, 202, 206
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_UNAUTHORIZED, _FORBIDDEN, _MISSING, _NOT_ALLOWED, _TOO_MANY = 401, 403, 404, 405, 429
_TROUBLE: Final = 500
_ACCEPT: Final = f"{MANIFEST_TYPE}, application/vnd.oci.image.index.v1+json"
_REFERENCE: Final = re.compile(
    r"(?P<host>[A-Za-z0-9.-]+(?::\d{1,5})?|\[[0-9a-fA-F:]+\](?::\d{1,5})?)/(?P<name>[a-z0-9._/-]+)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127})"
    rf"|@(?P<digest>{DIGEST.pattern}))?"
)
_CHALLENGE: Final = re.compile(r'([a-z_]+)="([^"]*)"')


@dataclass(frozen=True)
class Login:
    """What a registry is told of who asks."""

    basic: str = field(default="", repr=False)
    """User and password, joined by a colon, in base64."""
    refresh: str = field(default="", repr=False)
    """A token of the registry's, which it exchanges for one for a repository, as ACR's."""

    def header(self) -> str:
        """The value of ``Authorization`` for who asks for a token, or is asked for a password."""
        return f"Basic {self.basic}" if self.basic else ""


def read_login(path: Path, host: str) -> Login:
    """The login for a host in a file in the form of ``~/.docker/config.json``.

    Raises:
        WorkloadError: it can't be read, isn't of that form, or has no login for this host.
    """
    allowed = (
        '{"auths": {"HOST": {"auth": "<USER:PASSWORD in base64>"}}}, or "username" and '
        '"password", or "identitytoken", in the place of auth'
    )
    data = read_bytes(path, "the file of the registry's login")
    try:
        document: Any = json.loads(data)
        entries = cast("dict[str, dict[str, Any]]", document["auths"])
        by_host = {_host_of_entry(name): entry for name, entry in entries.items()}
        login = _login(by_host[host]) if host in by_host else None
    except (ValueError, KeyError, TypeError, AttributeError):
        # What is in the file isn't said: it is secret.
        raise WorkloadError(
            f"{path} has no logins of registries, as config.json of container tools; allowed: "
            f"{allowed}"
        ) from None
    if login is None:
        have = ", ".join(sorted(by_host)) or "none"
        raise WorkloadError(f"{path} has no login for {host}; it has: {have}")
    return login


def _host_of_entry(name: str) -> str:
    return urlsplit(name if "//" in name else f"//{name}").netloc


def _login(entry: Mapping[str, Any]) -> Login:
    if entry.get("identitytoken"):
        return Login(refresh=str(entry["identitytoken"]))
    if "auth" in entry:
        text = str(entry["auth"])
        if b":" not in base64.b64decode(text, validate=True):
            raise ValueError("no password")
        return Login(text)
    plain = f"{entry['username']}:{entry['password']}"
    return Login(base64.b64encode(plain.encode()).decode())


@dataclass(frozen=True)
class _Reference:
    host: str
    name: str
    which: str
    """Tag or digest; empty for the repository itself."""

    @classmethod
    def of(cls, text: str) -> _Reference:
        found = _REFERENCE.fullmatch(text)
        if found is None:
            raise WorkloadError(
                f"given {text!r}; allowed: HOST[:PORT]/REPOSITORY, with :TAG or @sha256:… after it"
            )
        return cls(found["host"], found["name"], found["tag"] or found["digest"] or "")


@dataclass
class Answer:
    """An answer whose body is read by whoever asked; its connection ends with it."""

    connection: http.client.HTTPConnection
    response: http.client.HTTPResponse
    url: str

    @property
    def status(self) -> int:
        """HTTP's."""
        return self.response.status

    def header(self, name: str) -> str:
        """One of its headers; empty where it has none of the name."""
        return self.response.getheader(name) or ""

    def read(self, most: int, what: str) -> bytes:
        """The body, if it has no more than ``most`` bytes."""
        try:
            found = self.response.read(most + 1)
        except (OSError, http.client.HTTPException) as error:
            raise RegistryError(f"{what}: the answer broke off ({error}); run again") from error
        if len(found) > most:
            raise RegistryError(f"{what} has more than {most} bytes, as allowed")
        return found

    def close(self) -> None:
        """End its connection, whatever is left of the body."""
        self.connection.close()

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RegistryClient:
    """A `falaj.workloads.registry.shelf.Client` that speaks to registries itself.

    By TLS with certificates that this system trusts (``SSL_CERT_FILE`` names others), but on this
    machine's own addresses.
    """

    def __init__(
        self, logins: Mapping[str, Login] | None = None, *, pauses: Sequence[float] = PAUSES
    ) -> None:
        """``logins`` are by host; ``pauses`` are in seconds, before each further try."""
        self._logins = dict(logins or {})
        self._tokens: dict[tuple[str, str], str] = {}
        self._context = ssl.create_default_context()
        self.pauses = tuple(pauses)

    def digest(self, reference: str) -> str | None:
        """The digest that a reference stands for; None where there is no such image.

        Raises:
            RegistryError: the registry can't be asked.
        """
        at = _Reference.of(reference)
        with self._ask("HEAD", at, f"manifests/{at.which}", Accept=_ACCEPT) as answer:
            if answer.status == _MISSING:
                return None
            self._require(answer, reference, _OK)
            reported = answer.header("Docker-Content-Digest")
        if DIGEST.fullmatch(reported):
            return reported
        data = self.manifest_bytes(reference, MAX_DOCUMENT_BYTES)
        return f"sha256:{hashlib.sha256(data).hexdigest()}"

    def manifest_bytes(self, reference: str, most: int) -> bytes:
        """The manifest of an image, byte for byte.

        Raises:
            RegistryError: the registry can't be asked, has no such image, or one of more than
                ``most`` bytes.
        """
        at = _Reference.of(reference)
        with self._ask("GET", at, f"manifests/{at.which}", Accept=_ACCEPT) as answer:
            self._require(answer, reference, _OK)
            return answer.read(most, reference)

    def blob(self, reference: str, size: int) -> bytes:
        """A layer of ``size`` bytes by its digest, ``repository@sha256:…``; no more is read.

        Raises:
            RegistryError: the registry can't be asked, or has another.
        """
        at = _Reference.of(reference)
        with self.part(reference) as answer:
            found = answer.read(size, reference)
        if len(found) != size or f"sha256:{hashlib.sha256(found).hexdigest()}" != at.which:
            raise RegistryError(f"{reference}: the registry gave something else; don't use it")
        return found

    def part(self, reference: str, start: int = 0) -> Answer:
        """A layer by its digest from a byte on, from wherever the registry keeps it.

        Raises:
            RegistryError: the registry can't be asked, hasn't it, or can't begin there.
        """
        at = _Reference.of(reference)
        wanted = {"Range": f"bytes={start}-"} if start else {}
        url = f"{_origin(at.host)}/v2/{at.name}/blobs/{at.which}"
        answer = self._tried("GET", url, at, headers=wanted)
        if answer.status in _REDIRECTS:
            answer.close()
            url = urljoin(answer.url, answer.header("Location"))
            if urlsplit(url).scheme != urlsplit(answer.url).scheme:
                raise RegistryError(f"{reference}: kept at {urlsplit(url).netloc} without TLS")
            # Whoever keeps it learns nothing of whoever asks.
            answer = self._sent_until_taken("GET", url, wanted)
        try:
            if start and answer.status == _OK:
                raise RegistryError(
                    f"{at.host} can't go on with {reference} where it broke off; run again"
                )
            self._require(answer, reference, _PARTIAL if start else _OK)
        except RegistryError:
            answer.close()
            raise
        return answer

    def tags(self, repository: str) -> list[str]:
        """The tags of a repository; none where there is no such repository.

        Raises:
            RegistryError: the registry can't be asked.
        """
        at = _Reference.of(repository)
        try:
            return [
                str(each)
                for page in self._pages(at, f"/v2/{at.name}/tags/list", repository)
                for each in page.get("tags") or ()
            ]
        except NotThereError:
            return []

    def repositories(self, host: str) -> list[str]:
        """The repositories of a registry, as far as it says so.

        Raises:
            RegistryError: it can't be asked.
            NotThereError: it keeps its catalogue to itself.
        """
        pages = self._pages(_Reference(host, "", ""), "/v2/_catalog", host)
        return [str(each) for page in pages for each in page.get("repositories") or ()]

    def push(self, folder: Path, reference: str) -> None:
        """Send the one image of an OCI layout, parts that are there already left out.

        Raises:
            RegistryError: the registry refused, or can't be reached.
        """
        at = _Reference.of(reference)
        index: Any = json.loads((folder / "index.json").read_bytes())
        [described] = index["manifests"]
        manifest = _blob_of(folder, described["digest"]).read_bytes()
        parts: Any = json.loads(manifest)
        for part in (parts["config"], *parts["layers"]):
            self._send_blob(at, _blob_of(folder, part["digest"]), part["digest"])
        with self._ask(
            "PUT", at, f"manifests/{at.which}", body=manifest, Content_Type=MANIFEST_TYPE
        ) as answer:
            self._require(answer, reference, _CREATED)

    def _send_blob(self, at: _Reference, path: Path, digest: str) -> None:
        what = f"{at.host}/{at.name}@{digest}"
        with self._ask("HEAD", at, f"blobs/{digest}") as answer:
            # A registry that keeps blobs elsewhere says where this one is.
            if answer.status == _OK or answer.status in _REDIRECTS:
                return
            if answer.status != _MISSING:
                self._require(answer, what, _OK)
        for pause in (*self.pauses, None):
            # A session that was given up isn't gone on with: another one takes its place.
            with self._ask("POST", at, "blobs/uploads/", body=b"") as answer:
                self._require(answer, what, _ACCEPTED)
                place = urljoin(answer.url, answer.header("Location"))
            if urlsplit(place)[:2] != urlsplit(answer.url)[:2]:
                raise RegistryError(
                    f"{at.host} wants {what} sent to {urlsplit(place).netloc}: only the "
                    "registry's own host gets anything"
                )
            try:
                with (
                    path.open("rb") as file,
                    self._once("PUT", _with(place, digest=digest), at, body=file) as answer,
                ):
                    if pause is None or not _may_pass(answer.status):
                        self._require(answer, what, _CREATED)
                        return
            except _UnreachableError:
                if pause is None:
                    raise
            time.sleep(pause)

    def _pages(self, at: _Reference, path: str, what: str) -> Iterator[dict[str, Any]]:
        url: str | None = f"{_origin(at.host)}{path}?n={_PAGE}"
        for _ in range(_MOST_PAGES):
            with self._tried("GET", url, at) as answer:
                if answer.status == _NOT_ALLOWED:
                    raise NotThereError(f"{what}: the registry doesn't say that")
                self._require(answer, what, _OK)
                text = answer.read(MAX_DOCUMENT_BYTES, what)
                url = _next(answer)
            try:
                page: Any = json.loads(text)
                yield cast("dict[str, Any]", {**page})
            except (ValueError, TypeError) as error:
                raise RegistryError(f"{what}: {at.host} answered something else") from error
            if url is None:
                return
            if urlsplit(url)[:2] != urlsplit(_origin(at.host))[:2]:
                raise RegistryError(f"{what}: the list goes on at {urlsplit(url).netloc}")
        raise RegistryError(f"{what}: the list has no end")

    def _ask(
        self, method: str, at: _Reference, path: str, *, body: bytes | None = None, **headers: str
    ) -> Answer:
        """Ask about a repository; headers by their names with ``_``."""
        url = f"{_origin(at.host)}/v2/{at.name}/{path}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._tried(method, url, at, body=body, headers=named)

    def _tried(
        self, method: str, url: str, at: _Reference, *, body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:  # fmt: skip
        """Ask again where nobody was found, or the registry was in trouble."""
        return self._until_taken(lambda: self._once(method, url, at, body=body, headers=headers))

    def _sent_until_taken(self, method: str, url: str, headers: Mapping[str, str]) -> Answer:
        return self._until_taken(lambda: self._send(method, url, headers, None))

    def _until_taken(self, ask: Callable[[], Answer]) -> Answer:
        for pause in self.pauses:
            with contextlib.suppress(_UnreachableError):
                answer = ask()
                if not _may_pass(answer.status):
                    return answer
                answer.close()
            time.sleep(pause)
        return ask()

    def _once(
        self, method: str, url: str, at: _Reference, *, body: bytes | IO[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:  # fmt: skip
        """Ask once; again with a token where the registry asks for one."""
        headers = dict(headers or {})
        if body is not None:
            headers.setdefault("Content-Type", "application/octet-stream")
        scope = _scope(method, at)
        login = self._logins.get(at.host, Login())
        token = self._tokens.get((at.host, scope))
        shown = f"Bearer {token}" if token is not None else login.header()
        answer = self._send(method, url, _shown(headers, shown), body)
        challenge = answer.header("WWW-Authenticate")
        if answer.status != _UNAUTHORIZED or not challenge.lower().startswith("bearer "):
            return answer
        answer.close()
        # Also where there is a token: it may have ended since.
        token = self._tokens[at.host, scope] = self._bought(at.host, challenge, scope)
        return self._send(method, url, _shown(headers, f"Bearer {token}"), body)

    def _bought(self, host: str, challenge: str, scope: str) -> str:
        """A token for a scope, from the server that the registry names."""
        parameters = dict(cast("list[tuple[str, str]]", _CHALLENGE.findall(challenge)))
        place = parameters.get("realm", "")
        realm = urlsplit(place)
        origin = urlsplit(_origin(host))
        if (realm.scheme, realm.netloc) != (origin.scheme, origin.netloc):
            raise RegistryError(
                f"{host} sends its clients to {realm.netloc or 'nowhere'} for tokens: a password "
                "goes to the registry's own host alone; use a registry that gives tokens itself"
            )
        login = self._logins.get(host, Login())
        wanted = {"service": parameters.get("service", host), "scope": scope}
        if login.refresh:
            # https://distribution.github.io/distribution/spec/auth/oauth/
            form = urlencode({
                **wanted, "grant_type": "refresh_token", "client_id": _AGENT,
                "refresh_token": login.refresh,
            })  # fmt: skip
            kind = {"Content-Type": "application/x-www-form-urlencoded"}
            answer = self._send("POST", place, kind, form.encode())
        else:
            headers = _shown({}, login.header())
            answer = self._send("GET", _with(place, **wanted), headers, None)
        with answer:
            self._require(answer, f"a token for {scope}", _OK)
            text = answer.read(MAX_DOCUMENT_BYTES, f"the token of {host}")
        try:
            document: Any = json.loads(text)
            return str(document.get("token") or document["access_token"])
        except (ValueError, KeyError, AttributeError):
            raise RegistryError(f"{host} gave no token for {scope}") from None

    def _send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | IO[bytes] | None
    ) -> Answer:
        parts = urlsplit(url)
        host = parts.netloc
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(host, timeout=SECONDS, context=self._context)
        else:
            connection = http.client.HTTPConnection(host, timeout=SECONDS)
        headers = {"User-Agent": _AGENT, **headers}
        if body is not None and not isinstance(body, bytes):
            # Registries take no chunks without a length.
            headers["Content-Length"] = str(body.seek(0, 2))
            body.seek(0)
        target = urlunsplit(("", "", parts.path, parts.query, ""))
        try:
            connection.request(method, target, body=body, headers=headers)
            return Answer(connection, connection.getresponse(), url)
        except ssl.SSLCertVerificationError as error:
            connection.close()
            raise RegistryError(
                f"{host} shows a certificate that isn't trusted here ({error.verify_message}); "
                "add its authority to the system's certificates, or name it in SSL_CERT_FILE"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise _UnreachableError(
                f"{host} can't be reached ({error or type(error).__name__}); look at the name and "
                "at what the network lets through, then run again: what was sent stays"
            ) from error

    def _require(self, answer: Answer, what: str, wanted: int) -> None:
        """Raise what an answer of another status means."""
        if answer.status == wanted:
            return
        host = urlsplit(answer.url).netloc
        reason = _message(answer.response.read(_LONGEST))
        if answer.status in (_UNAUTHORIZED, _FORBIDDEN):
            raise RegistryError(
                f"{host} refused access to {what} (it answers {answer.status}): look at the login "
                f"that was given for it, and at what that may do there\n  {reason}"
            )
        if answer.status == _MISSING:
            raise NotThereError(f"{host} has no {what}\n  {reason}")
        raise RegistryError(f"{what}: {host} answers {answer.status}\n  {reason}")


class _UnreachableError(RegistryError):
    """Nobody answered: the next try may find somebody."""


_AGENT: Final = "falaj"
_LONGEST: Final = 2_000


def _shown(headers: Mapping[str, str], authorization: str) -> dict[str, str]:
    return {**headers, **({"Authorization": authorization} if authorization else {})}


def _scope(method: str, at: _Reference) -> str:
    """What a token is asked for: no more than is needed."""
    if not at.name:
        return "registry:catalog:*"
    return f"repository:{at.name}:{'pull' if method in {'GET', 'HEAD'} else 'pull,push'}"


def _message(text: bytes) -> str:
    """What a registry says of a refusal: its own words, by the specification's error codes."""
    try:
        document: Any = json.loads(text)
        errors = document["errors"]
        return "; ".join(f"{each['code']}: {each.get('message', '')}" for each in errors)
    except (ValueError, KeyError, TypeError):
        return text[:200].decode(errors="replace").strip() or "no reason given"


def _may_pass(status: int) -> bool:
    """Whether the same request may be taken a little later."""
    return status == _TOO_MANY or status >= _TROUBLE


def _origin(host: str) -> str:
    return f"{'http' if _is_here(host) else 'https'}://{host}"


def _is_here(host: str) -> bool:
    """Whether a registry is this machine's own: nothing leaves it."""
    return is_loopback(urlsplit(f"//{host}").hostname or "")


def _with(url: str, **more: str) -> str:
    """A URL with further words in its query."""
    parts = urlsplit(url)
    query = urlencode([*parse_qsl(parts.query, keep_blank_values=True), *more.items()],
                      quote_via=quote)  # fmt: skip
    return urlunsplit(parts._replace(query=query))


def _next(answer: Answer) -> str | None:
    """Where a list goes on: ``Link: <…>; rel="next"``, RFC 8288."""
    found = re.match(r'<([^>]*)>\s*;\s*rel="?next"?', answer.header("Link"))
    return urljoin(answer.url, found[1]) if found else None


def _blob_of(folder: Path, digest: str) -> Path:
    return folder / "blobs" / digest.replace(":", "/")
