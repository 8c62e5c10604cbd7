"""Images of packages in a registry of images, read by their digests.

Speaks as much of the OCI distribution specification as reading needs
(https://github.com/opencontainers/distribution-spec/blob/main/spec.md), with the standard library:
machines that serve a model reach little else than the registry. Logins are those of the container
tools, in the form of Docker's ``config.json``. What comes is what its digest says, or refused.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, cast

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.files import read_json
from falaj.workloads.registry.oci_layout import (
    MANIFEST_TYPE,
    MAX_DOCUMENT_BYTES,
    Descriptor,
    ImageManifest,
    Reader,
    described,
    parse_image_manifest,
)

#: Registries of the distribution project give an image's manifest only to those who take an index
#: as well: https://github.com/distribution/distribution/blob/main/registry/handlers/manifests.go
_ACCEPT: Final = f"{MANIFEST_TYPE}, application/vnd.oci.image.index.v1+json"
_REPOSITORY: Final = re.compile(
    r"(?P<host>[A-Za-z0-9.-]+(?::\d{1,5})?|\[[0-9a-f:]+\](?::\d{1,5})?)"
    r"/(?P<name>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
)
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_SECONDS: Final = 60
#: Seconds before each further try, where a transfer broke off.
PAUSES: tuple[float, ...] = (1, 2, 4, 8)
_SAID_BYTES: Final = 2048
"""Of a refusal's text: registries give reasons in it."""
_PARAMETER: Final = re.compile(r'(\w+)="([^"]*)"')


class RegistryError(WorkloadError):
    """A registry that can't be asked, or that has or allows something else."""


class _BrokenOffError(Exception):
    """A connection that failed; another may do."""


class TlsRedirects(urllib.request.HTTPRedirectHandler):
    """Follows registries to where they keep their layers, and never to an open connection."""

    def redirect_request(  # noqa: PLR0917 - the library's own signature
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """The next request. Raises RegistryError where it would leave TLS."""
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise RegistryError(
                f"{req.host} sends to {urllib.parse.urlsplit(newurl).netloc} without TLS; "
                "allowed: https"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@dataclass(frozen=True)
class Login:
    """What a registry is told of who asks; in a form of Docker's ``config.json``."""

    basic: str = ""
    """User and password, joined by a colon, in base64."""
    refresh: str = ""
    """A token of the registry's, which it exchanges for one for a repository."""


def read_login(path: Path, host: str) -> Login:
    """The login for ``host`` in a file that has the form of Docker's ``config.json``.

    Raises:
        WorkloadError: it isn't in that form, or has no login for this registry.
    """
    document: Any = read_json(path, "the file of the registry's login")
    logins: Any = cast("dict[str, Any]", document).get("auths") if _is_object(document) else None
    if not _is_object(logins):
        raise WorkloadError(
            f"{path} must hold a JSON object with 'auths', as Docker's config.json"
        )
    entry: Any = logins.get(host)
    if not _is_object(entry):
        have = ", ".join(sorted(logins)) or "none"
        raise WorkloadError(f"{path} has no login for {host}; it has: {have}")
    return Login(str(entry.get("auth") or ""), str(entry.get("identitytoken") or ""))


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


class Repository:
    """A repository of a registry, which is asked over TLS; this machine's own without."""

    def __init__(self, name: str, login: Path | None = None) -> None:
        """Read the login; the registry is asked later.

        Args:
            name: host and path, as in ``registry.example.ae/models/churn``.
            login: a file with the registry's login. Default: none is shown.

        Raises:
            WorkloadError: the name is none, or the file has no login for it.
        """
        match = _REPOSITORY.fullmatch(name)
        if match is None:
            raise WorkloadError(
                f"--repository: given {name!r}; allowed: host and path without a tag, as in "
                "registry.example.ae/models/churn"
            )
        self.name = name
        self._host = match["host"]
        scheme = "http" if _is_own(self._host) else "https"
        self._origin = f"{scheme}://{self._host}"
        self._base = f"{self._origin}/v2/{match['name']}"
        self._path = match["name"]
        self._login = Login() if login is None else read_login(login, self._host)
        self._shown = ""
        self._opener = urllib.request.build_opener(TlsRedirects())

    def image(self, digest: str, option: str) -> RemoteImage:
        """One of its images; ``option`` is who gave the digest.

        Raises:
            WorkloadError: it isn't a digest.
        """
        if not _DIGEST.fullmatch(digest):
            raise WorkloadError(
                f"{option}: given {digest!r}; allowed: sha256: and 64 of 0-9 and a-f, as "
                "`falaj publish` prints it"
            )
        return RemoteImage(self, digest)

    def document(self, digest: str) -> bytes:
        """A manifest.

        Raises:
            RegistryError: it isn't there, or can't be had.
            IntegrityError: the registry sent another.
        """
        for pause in (*PAUSES, None):
            try:
                with self._ask(f"manifests/{digest}", {"Accept": _ACCEPT}) as answer:
                    data = _some(answer, MAX_DOCUMENT_BYTES + 1)
                break
            except _BrokenOffError as error:
                self._wait(pause, error)
        else:  # pragma: no cover - the last pause raises
            raise AssertionError
        found = described(data).digest
        if found != digest:
            raise IntegrityError(f"{self._host} sent {found} for {self.name}@{digest}")
        return data

    @contextmanager
    def blob(self, blob: Descriptor) -> Generator[Reader]:
        """A layer or configuration, from its beginning; a transfer that breaks off goes on."""
        reader = _Resuming(self._part, blob.digest, blob.size, self._wait)
        try:
            yield reader
        finally:
            reader.close()

    def _part(self, digest: str, start: int) -> http.client.HTTPResponse:
        wanted = {"Range": f"bytes={start}-"} if start else {}
        answer = self._ask(f"blobs/{digest}", wanted)
        if start and answer.status != http.HTTPStatus.PARTIAL_CONTENT:
            answer.close()
            raise RegistryError(
                f"{self._host} can't go on with {self.name}@{digest} where it broke off; run again"
            )
        return answer

    def _wait(self, pause: float | None, error: _BrokenOffError) -> None:
        if pause is None:
            raise RegistryError(
                f"{self._host} can't be reached: {error}; look at the name, the private endpoint "
                "and the rules of the network"
            ) from error
        time.sleep(pause)

    def _ask(self, path: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        """Get ``path``, with a login once the registry asks for one, and anew once it ends."""
        url = f"{self._base}/{path}"
        try:
            return self._get(url, headers, self._shown)
        except urllib.error.HTTPError as refusal:
            if refusal.code != http.HTTPStatus.UNAUTHORIZED:
                raise self._explained(refusal) from None
            self._shown = self._authorization(refusal)
        try:
            return self._get(url, headers, self._shown)
        except urllib.error.HTTPError as refusal:
            raise self._explained(refusal) from None

    def _get(
        self, url: str, headers: dict[str, str], shown: str, body: bytes | None = None
    ) -> http.client.HTTPResponse:
        request = urllib.request.Request(url, body, headers)  # noqa: S310 - https, or this machine
        if shown:
            # Not sent on: layers come from a storage address with a signature of its own.
            request.add_unredirected_header("Authorization", shown)
        try:
            return self._opener.open(request, timeout=_SECONDS)
        except urllib.error.HTTPError as refusal:
            if refusal.code < http.HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            raise _BrokenOffError(f"it answers {refusal.code}: {_said(refusal)}") from refusal
        except (OSError, http.client.HTTPException) as error:
            raise _BrokenOffError(str(getattr(error, "reason", error))) from error

    def _authorization(self, refusal: urllib.error.HTTPError) -> str:
        """What to show, as the registry's refusal asks for it.

        https://distribution.github.io/distribution/spec/auth/token/
        """
        challenge = str(refusal.headers.get("WWW-Authenticate", ""))
        refusal.close()
        scheme, _, rest = challenge.partition(" ")
        if scheme.lower() == "basic" and self._login.basic:
            return f"Basic {self._login.basic}"
        asked = dict(_PARAMETER.findall(rest))
        realm = urllib.parse.urlsplit(asked.get("realm", ""))
        if scheme.lower() != "bearer" or not realm.netloc:
            raise RegistryError(
                f"{self._host} wants a login ({scheme or 'of no kind that it names'}), and there "
                "is none for it; name a file that has one with --login"
            )
        if f"{realm.scheme}://{realm.netloc}" != self._origin:
            # A login is for the registry; whoever answers in its place could ask for it elsewhere.
            raise RegistryError(
                f"{self._host} wants its login to be sent to {realm.netloc}; allowed: itself"
            )
        return f"Bearer {self._token(realm.geturl(), asked.get('service', self._host))}"

    def _token(self, realm: str, service: str) -> str:
        wanted = {"service": service, "scope": f"repository:{self._path}:pull"}
        try:
            if self._login.refresh:
                # https://distribution.github.io/distribution/spec/auth/oauth/
                form = {
                    **wanted, "grant_type": "refresh_token", "client_id": "falaj",
                    "refresh_token": self._login.refresh,
                }  # fmt: skip
                answer = self._get(realm, {}, "", urllib.parse.urlencode(form).encode())
            else:
                basic = f"Basic {self._login.basic}" if self._login.basic else ""
                answer = self._get(f"{realm}?{urllib.parse.urlencode(wanted)}", {}, basic)
        except urllib.error.HTTPError as refusal:
            raise self._explained(refusal) from None
        with answer:
            data = _some(answer, MAX_DOCUMENT_BYTES)
        try:
            found: Any = json.loads(data)
            return str(found.get("access_token") or found["token"])
        except (ValueError, AttributeError, KeyError, TypeError):
            raise RegistryError(f"{self._host} gives no token for {self.name}") from None

    def _explained(self, refusal: urllib.error.HTTPError) -> RegistryError:
        said = _said(refusal)
        about = f"{self._host} answers {refusal.code} to {urllib.parse.urlsplit(refusal.url).path}"
        match refusal.code:
            case http.HTTPStatus.UNAUTHORIZED | http.HTTPStatus.FORBIDDEN:
                todo = f"whoever asks needs a login, and the right to pull from {self.name}"
            case http.HTTPStatus.NOT_FOUND:
                todo = (
                    f"{self.name} has no such image: send the package there with `falaj publish`, "
                    "or give the digests that it printed"
                )
            case _:
                todo = "it doesn't do what registries of images do"
        return RegistryError(f"{about}: {todo}\n  {said}")


@dataclass(frozen=True)
class RemoteImage:
    """One image of a repository, by its digest."""

    repository: Repository
    digest: str

    def __str__(self) -> str:
        """Return its reference."""
        return f"{self.repository.name}@{self.digest}"

    def manifest(self, kind: str) -> ImageManifest:
        """Its manifest.

        Raises:
            IntegrityError: it is of another kind, or none of ours.
            RegistryError: it can't be had.
        """
        found = parse_image_manifest(self.repository.document(self.digest), str(self))
        if found.kind != kind:
            raise IntegrityError(f"{self} is {found.kind!r}; needed: {kind!r}")
        return found

    def open(self, blob: Descriptor) -> AbstractContextManager[Reader]:
        """One of its parts; see `Repository.blob`."""
        return self.repository.blob(blob)


class _Resuming:
    """The content of a blob, which is asked for again from where a connection broke off."""

    def __init__(
        self,
        ask: Callable[[str, int], http.client.HTTPResponse],
        digest: str,
        size: int,
        wait: Callable[[float | None, _BrokenOffError], None],
    ) -> None:
        self._ask = ask
        self._digest = digest
        self._size = size
        self._wait = wait
        self._at = 0
        self._answer: http.client.HTTPResponse | None = None
        self._pauses = iter((*PAUSES, None))

    def read(self, count: int, /) -> bytes:
        """The next bytes, fewer only at the end of what the manifest names."""
        wanted = min(count, self._size - self._at)
        parts: list[bytes] = []
        while wanted > 0:
            try:
                data = self._some(wanted)
            except _BrokenOffError as error:
                self.close()
                self._wait(next(self._pauses), error)
                continue
            parts.append(data)
            self._at += len(data)
            wanted -= len(data)
        return b"".join(parts)

    def _some(self, wanted: int) -> bytes:
        if self._answer is None:
            self._answer = self._ask(self._digest, self._at)
        data = _some(self._answer, wanted)
        if not data:
            raise _BrokenOffError(f"{self._digest} ended after {self._at} of {self._size} bytes")
        # What comes is a sign that going on helps.
        self._pauses = iter((*PAUSES, None))
        return data

    def close(self) -> None:
        """Let go of the connection."""
        if self._answer is not None:
            self._answer.close()
            self._answer = None


def _some(answer: http.client.HTTPResponse, most: int) -> bytes:
    try:
        return answer.read(most)
    except http.client.IncompleteRead as error:
        return error.partial
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenOffError(str(error)) from error


def _said(refusal: urllib.error.HTTPError) -> str:
    try:
        return refusal.read(_SAID_BYTES).decode(errors="replace").strip() or "it says nothing more"
    except (OSError, http.client.HTTPException):
        return "it broke off"


def _is_own(host: str) -> bool:
    """Whether a registry's address is this machine's own, from which nothing leaves it."""
    name = re.sub(r":\d+$", "", host).strip("[]")
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
