"""Asks a registry of images, and sends to it, as far as a publishing pod needs.

By https://github.com/opencontainers/distribution-spec/blob/main/spec.md, with the two ways in
which registries know their clients: a password (Basic, RFC 7617), or a token that a password buys
(https://distribution.github.io/distribution/spec/auth/token/). A password goes to the registry's
own host alone: not to a token server or a store of blobs that it names elsewhere.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import http.client
import ipaddress
import json
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, cast
from urllib.parse import parse_qsl, quote, urlencode, urljoin, urlsplit, urlunsplit

from falaj.workloads.errors import NotThereError, RegistryError, WorkloadError
from falaj.workloads.files import read_bytes
from falaj.workloads.registry.oci_layout import MANIFEST_TYPE, MAX_DOCUMENT_BYTES

SECONDS: Final = 120
"""For which an answer, or the next piece of one, is waited for."""
TRIES: Final = 4
"""Of a request that found nobody, or a registry in trouble; the last wait is 4 s."""
_PAGE: Final = 1000
"""Tags that are asked for at once; registries may give fewer."""
_MOST_PAGES: Final = 1000
_OK, _CREATED, _ACCEPTED = 200, 201, 202
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_UNAUTHORIZED, _FORBIDDEN, _MISSING, _NOT_ALLOWED, _TOO_MANY = 401, 403, 404, 405, 429
_TROUBLE: Final = 500
_ACCEPT: Final = f"{MANIFEST_TYPE}, application/vnd.oci.image.index.v1+json"
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_REFERENCE: Final = re.compile(
    r"(?P<host>[A-Za-z0-9.-]+(?::\d{1,5})?|\[[0-9a-fA-F:]+\](?::\d{1,5})?)/(?P<name>[a-z0-9._/-]+)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127})|@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_CHALLENGE: Final = re.compile(r'([a-z_]+)="([^"]*)"')


@dataclass(frozen=True)
class Login:
    """A user and a password for one host."""

    user: str
    password: str = field(repr=False)

    def header(self) -> str:
        """The value of ``Authorization``."""
        text = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        return f"Basic {text}"


def read_logins(path: Path) -> dict[str, Login]:
    """The logins of a file in the form of ``~/.docker/config.json``, by host.

    Raises:
        WorkloadError: it can't be read, isn't of that form, or has a host without a password.
    """
    allowed = (
        '{"auths": {"HOST": {"auth": "<USER:PASSWORD in base64>"}}}, or "username" and "password" '
        "in the place of auth"
    )
    try:
        document: Any = json.loads(read_bytes(path, "the registry's credentials"))
        entries = cast("dict[str, dict[str, Any]]", document["auths"])
        return {_host_of_entry(name): _login(entry) for name, entry in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
        # What is in the file isn't said: it is secret.
        raise WorkloadError(f"{path} has no logins of registries; allowed: {allowed}") from None


def _host_of_entry(name: str) -> str:
    return urlsplit(name if "//" in name else f"//{name}").netloc


def _login(entry: Mapping[str, Any]) -> Login:
    if "auth" in entry:
        text = base64.b64decode(str(entry["auth"]), validate=True).decode()
        user, colon, password = text.partition(":")
        if not colon:
            raise ValueError("no password")
        return Login(user, password)
    return Login(str(entry["username"]), str(entry["password"]))


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
class _Answer:
    """An answer whose body is read by whoever asked; its connection ends with it."""

    connection: http.client.HTTPConnection
    response: http.client.HTTPResponse
    url: str

    @property
    def status(self) -> int:
        return self.response.status

    def header(self, name: str) -> str:
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
        self.connection.close()

    def __enter__(self) -> _Answer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RegistryClient:
    """A `falaj.workloads.registry.shelf.Client` that speaks to registries itself.

    By TLS with certificates that this system trusts (``SSL_CERT_FILE`` names others), but on this
    machine's own addresses.
    """

    def __init__(self, logins: Mapping[str, Login] | None = None, *, wait: float = 1.0) -> None:
        """``logins`` are by host, and ``wait`` is in seconds, before the second try."""
        self._logins = dict(logins or {})
        self._tokens: dict[tuple[str, str], str] = {}
        self._context = ssl.create_default_context()
        self._wait = wait

    def digest(self, reference: str) -> str | None:
        """The digest that a reference stands for; None where there is no such image.

        Raises:
            RegistryError: the registry can't be asked.
        """
        at = _Reference.of(reference)
        with self._ask("HEAD", at, f"manifests/{at.which}", accept=_ACCEPT) as answer:
            if answer.status == _MISSING:
                return None
            self._require(answer, reference, _OK)
            said = answer.header("Docker-Content-Digest")
        if _DIGEST.fullmatch(said):
            return said
        data = self.manifest_bytes(reference, MAX_DOCUMENT_BYTES)
        return f"sha256:{hashlib.sha256(data).hexdigest()}"

    def manifest_bytes(self, reference: str, most: int) -> bytes:
        """The manifest of an image, byte for byte.

        Raises:
            RegistryError: the registry can't be asked, has no such image, or one of more than
                ``most`` bytes.
        """
        at = _Reference.of(reference)
        with self._ask("GET", at, f"manifests/{at.which}", accept=_ACCEPT) as answer:
            self._require(answer, reference, _OK)
            return answer.read(most, reference)

    def blob(self, reference: str, size: int) -> bytes:
        """A layer of ``size`` bytes by its digest, ``repository@sha256:…``; no more is read.

        Raises:
            RegistryError: the registry can't be asked, or has another.
        """
        at = _Reference.of(reference)
        with self._ask("GET", at, f"blobs/{at.which}") as answer:
            if answer.status in _REDIRECTS:
                found = self._elsewhere(answer, reference, size)
            else:
                self._require(answer, reference, _OK)
                found = answer.read(size, reference)
        if len(found) != size or f"sha256:{hashlib.sha256(found).hexdigest()}" != at.which:
            raise RegistryError(f"{reference}: the registry gave something else; don't use it")
        return found

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
            "PUT", at, f"manifests/{at.which}", body=manifest, content=MANIFEST_TYPE
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
        for attempt in range(TRIES):
            # A session that was given up isn't gone on with: another one takes its place.
            with self._ask("POST", at, "blobs/uploads/", body=b"") as answer:
                self._require(answer, what, _ACCEPTED)
                place = urljoin(answer.url, answer.header("Location"))
            if urlsplit(place)[:2] != urlsplit(answer.url)[:2]:
                raise RegistryError(
                    f"{at.host} wants {what} sent to {urlsplit(place).netloc}: only the "
                    "registry's own host gets anything"
                )
            with path.open("rb") as file:
                answer = self._once("PUT", _with(place, digest=digest), at, body=file)
            with answer:
                if not _may_pass(answer.status) or attempt == TRIES - 1:
                    self._require(answer, what, _CREATED)
                    return
            time.sleep(self._wait * 2**attempt)

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
        self, method: str, at: _Reference, path: str, *, body: bytes | None = None,
        accept: str = "", content: str = "application/octet-stream",
    ) -> _Answer:  # fmt: skip
        url = f"{_origin(at.host)}/v2/{at.name}/{path}"
        return self._tried(method, url, at, body=body, accept=accept, content=content)

    def _tried(
        self, method: str, url: str, at: _Reference, *, body: bytes | None = None,
        accept: str = "", content: str = "",
    ) -> _Answer:  # fmt: skip
        """Ask again where nobody was found, or the registry was in trouble."""
        for attempt in range(TRIES):
            last = attempt == TRIES - 1
            try:
                answer = self._once(method, url, at, body=body, accept=accept, content=content)
            except RegistryError:
                if last:
                    raise
            else:
                if last or not _may_pass(answer.status):
                    return answer
                answer.close()
            time.sleep(self._wait * 2**attempt)
        raise AssertionError("the last try returns or raises")

    def _once(
        self, method: str, url: str, at: _Reference, *, body: bytes | IO[bytes] | None = None,
        accept: str = "", content: str = "application/octet-stream",
    ) -> _Answer:  # fmt: skip
        """Ask once; again with a token where the registry asks for one."""
        headers = {"Accept": accept or "*/*", "User-Agent": "falaj"}
        if body is not None:
            headers["Content-Type"] = content
        scope = f"repository:{at.name}:pull,push" if at.name else "registry:catalog:*"
        login = self._logins.get(at.host)
        token = self._tokens.get((at.host, scope))
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        elif login is not None:
            headers["Authorization"] = login.header()
        answer = self._send(method, url, headers, body)
        challenge = answer.header("WWW-Authenticate")
        if answer.status != _UNAUTHORIZED or not challenge.lower().startswith("bearer "):
            return answer
        answer.close()
        # Also where there is a token: it may have ended since.
        token = self._tokens[at.host, scope] = self._bought(at.host, challenge, scope)
        if hasattr(body, "seek"):
            cast("IO[bytes]", body).seek(0)
        return self._send(method, url, {**headers, "Authorization": f"Bearer {token}"}, body)

    def _bought(self, host: str, challenge: str, scope: str) -> str:
        """A token for a scope, from the server that the registry names."""
        said = dict(_CHALLENGE.findall(challenge))
        realm = urlsplit(said.get("realm", ""))
        origin = urlsplit(_origin(host))
        if (realm.scheme, realm.netloc) != (origin.scheme, origin.netloc):
            raise RegistryError(
                f"{host} sends its clients to {realm.netloc or 'nowhere'} for tokens: a password "
                "goes to the registry's own host alone; use a registry that gives tokens itself"
            )
        url = _with(urlunsplit(realm), service=said.get("service", host), scope=scope)
        login = self._logins.get(host)
        headers = {"Accept": "application/json", "User-Agent": "falaj"}
        if login is not None:
            headers["Authorization"] = login.header()
        with self._send("GET", url, headers, None) as answer:
            self._require(answer, f"{host}: a token for {scope}", _OK)
            text = answer.read(MAX_DOCUMENT_BYTES, f"the token of {host}")
        try:
            document: Any = json.loads(text)
            return str(document.get("token") or document["access_token"])
        except (ValueError, KeyError, AttributeError):
            raise RegistryError(f"{host} gave no token for {scope}") from None

    def _elsewhere(self, answer: _Answer, what: str, size: int) -> bytes:
        """A blob from where the registry keeps it, which learns nothing of whoever asks."""
        url = urljoin(answer.url, answer.header("Location"))
        if urlsplit(url).scheme != urlsplit(answer.url).scheme:
            raise RegistryError(f"{what}: kept at {urlsplit(url).netloc}, without TLS")
        with self._send("GET", url, {"User-Agent": "falaj"}, None) as kept:
            self._require(kept, what, _OK)
            return kept.read(size, what)

    def _send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | IO[bytes] | None
    ) -> _Answer:
        parts = urlsplit(url)
        host = parts.netloc
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(host, timeout=SECONDS, context=self._context)
        else:
            connection = http.client.HTTPConnection(host, timeout=SECONDS)
        if body is not None and not isinstance(body, bytes):
            # Registries take no chunks without a length.
            headers = {**headers, "Content-Length": str(body.seek(0, 2))}
            body.seek(0)
        target = urlunsplit(("", "", parts.path, parts.query, ""))
        try:
            connection.request(method, target, body=body, headers=dict(headers))
            return _Answer(connection, connection.getresponse(), url)
        except ssl.SSLCertVerificationError as error:
            connection.close()
            raise RegistryError(
                f"{host} shows a certificate that isn't trusted here ({error.verify_message}); "
                "add its authority to the system's certificates, or name it in SSL_CERT_FILE"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise RegistryError(
                f"{host} can't be reached ({error or type(error).__name__}); look at the name and "
                "at what the network lets through, then run again: what was sent stays"
            ) from error

    def _require(self, answer: _Answer, what: str, wanted: int) -> None:
        """Raise what an answer of another status means."""
        if answer.status == wanted:
            return
        host = urlsplit(answer.url).netloc
        said = _message(answer.response.read(_LONGEST))
        if answer.status in (_UNAUTHORIZED, _FORBIDDEN):
            raise RegistryError(
                f"{host} refused access to {what}: look at the credentials that were given for "
                f"{host}, and at what they may do there\n  {said}"
            )
        if answer.status == _MISSING:
            raise NotThereError(f"{host} has no {what}\n  {said}")
        raise RegistryError(f"{what}: {host} answered {answer.status}\n  {said}")


_LONGEST: Final = 2_000


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
    name = urlsplit(f"//{host}").hostname or ""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _with(url: str, **more: str) -> str:
    """A URL with further words in its query."""
    parts = urlsplit(url)
    query = urlencode([*parse_qsl(parts.query, keep_blank_values=True), *more.items()],
                      quote_via=quote)  # fmt: skip
    return urlunsplit(parts._replace(query=query))


def _next(answer: _Answer) -> str | None:
    """Where a list goes on: ``Link: <…>; rel="next"``, RFC 8288."""
    found = re.match(r'<([^>]*)>\s*;\s*rel="?next"?', answer.header("Link"))
    return urljoin(answer.url, found[1]) if found else None


def _blob_of(folder: Path, digest: str) -> Path:
    return folder / "blobs" / digest.replace(":", "/")
