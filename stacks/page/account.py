"""What the disk of one machine says of a served model: versions, keys, certificates, records.

Nothing here asks the server, so that the page has it while the server is down.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from falaj.stacks.certificates import Certificate, certificate_of
from falaj.stacks.errors import StackError
from falaj.wire.documents import mapping, sequence
from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.inference import settings
from falaj.workloads.inference.process import logs
from falaj.workloads.inference.settings import Settings
from falaj.workloads.optimization import card_text
from falaj.workloads.registry.alias_list import Alias
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.package import Package
from falaj.workloads.registry.store import Store, read_events

MOST_VERSIONS: Final = 20
"""Versions that are shown, the newest first."""
MOST_COLUMNS: Final = 12
"""Columns that a version's card lists here; the card's own page lists all."""
MOST_NAME: Final = 120
"""Characters of a name that are shown; the rest is counted."""
AT_ONCE: Final = 32 * 2**20
"""Bytes of logs that are verified whenever the page is shown; more are verified when asked."""
_LOOKS: Final = 4
"""At logs into which a server may be writing a line and its record at this moment."""
_BETWEEN_LOOKS: Final = 0.25


@dataclass(frozen=True)
class Version:
    """A version in the registry.

    Attributes:
        number: its number.
        aliases: what stands for it.
        manifest: what was signed; empty where ``error`` says why it isn't to be believed.
        card: the card as pairs of what and how much; none in packages from before there were any.
        has_page: whether the package has the card as a page.
        digest: of the manifest, SHA-256.
        error: why it can't be used.
    """

    number: int
    aliases: tuple[str, ...]
    manifest: Mapping[str, Any] = field(default_factory=dict[str, Any])
    card: tuple[tuple[str, str], ...] = ()
    has_page: bool = False
    digest: str = ""
    error: str = ""

    @property
    def created(self) -> str:
        """When it was published, ISO 8601; empty where that isn't known."""
        return str(self.manifest.get("created", ""))


@dataclass(frozen=True)
class Finding:
    """What a check of a record came to."""

    what: str
    intact: bool | None
    """None: it wasn't checked."""
    text: str


class UnknownModelError(StackError):
    """A server hasn't the model that it was asked about."""

    def __init__(self, given: str, there_are: Sequence[str]) -> None:
        super().__init__(
            f"the server has no model {given[:MOST_NAME]!r}; it has: {', '.join(there_are)}"
        )


class Account:
    """What the disk says now; made anew for each look, so that nothing old is shown.

    Args:
        config: the service's ``service.json``.
        model: which of the server's models it is about. Default: the first.

    Raises:
        UnknownModelError: the server has no such model.
        WorkloadError: the file can't be read, or says what the server wouldn't take.
    """

    def __init__(self, config: Path, model: str | None = None) -> None:
        found = settings.read(config)
        self.models: tuple[str, ...] = (found.model, *found.models)
        if model is not None and model not in self.models:
            raise UnknownModelError(model, self.models)
        self.is_first: bool = model in (None, found.model)
        self.settings: Settings = (
            found if model is None or self.is_first else settings.of_further(found, model)
        )
        self._first = found

    @property
    def model(self) -> str:
        """The model's name."""
        return self.settings.model

    @property
    def drift_off(self) -> str | None:
        """The setting by which drift isn't watched of the model; None: it is watched."""
        if self.settings.drift.enabled:
            return None
        if self._first.drift.enabled:
            return f"falaj:service.models.{self.model}.drift"
        return "falaj:service.drift.enabled"

    @property
    def store(self) -> Store:
        """The registry."""
        return Store(self.settings.registry)

    @cached_property
    def keyring(self) -> KeyRing:
        """The key ring.

        Raises:
            WorkloadError: it is gone, or damaged.
        """
        return KeyRing.open(self.settings.keyring)

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        reported = self.state.get("port")
        return self.settings.port or (reported if isinstance(reported, int) else 0)

    # -- the server's own account -------------------------------------------------------------

    @cached_property
    def state(self) -> Mapping[str, Any]:
        """What the server wrote about itself; empty where that can't be read."""
        try:
            found: Any = json.loads(self.settings.state.read_bytes())
        except (OSError, ValueError):
            return {}
        return mapping(found)

    @property
    def standing(self) -> Mapping[str, Any]:
        """What the server said of this model: version, state, error."""
        if self.is_first:
            return {**self.state, "state": self.state.get("status", "unknown")}
        return mapping(mapping(self.state.get("models")).get(self.model))

    @property
    def served(self) -> int | None:
        """The version that the server said that it serves, else the one that is to be served."""
        number = self.standing.get("version")
        if isinstance(number, int) and not isinstance(number, bool):
            return number
        alias = self.aliases.get(self.settings.alias)
        return alias.version if alias else None

    # -- versions -----------------------------------------------------------------------------

    @cached_property
    def _list(self) -> tuple[Mapping[str, Alias], str]:
        try:
            return self.store.checked_list(self.model, self.keyring).aliases, ""
        except WorkloadError as error:
            return {}, str(error)

    @property
    def aliases(self) -> Mapping[str, Alias]:
        """What each alias stands for; none where the list isn't what was signed."""
        return self._list[0]

    @property
    def list_error(self) -> str:
        """Why the list of aliases isn't to be believed; empty where it is."""
        return self._list[1]

    @cached_property
    def numbers(self) -> list[int]:
        """All versions, the newest first."""
        try:
            return self.store.versions(self.model)[::-1]
        except (WorkloadError, OSError):
            return []

    def versions(self) -> list[Version]:
        """The newest `MOST_VERSIONS`, and the one that is served."""
        shown = self.numbers[:MOST_VERSIONS]
        served = self.served
        if served is not None and served in self.numbers and served not in shown:
            shown.append(served)
        return [self.version(each) for each in shown]

    def version(self, number: int) -> Version:
        """One version, whose signature was verified; with an error where that failed."""
        aliases = tuple(name for name, each in self.aliases.items() if each.version == number)
        try:
            package = self.package(number)
        except WorkloadError as error:
            return Version(number, aliases, error=str(error))
        manifest = package.manifest
        return Version(
            number, aliases, manifest, _card(manifest), card_text.FILE in package.names,
            package.digest,
        )  # fmt: skip

    def package(self, number: int) -> Package:
        """A version's package, its signature verified.

        Raises:
            WorkloadError: there is no such version, or it isn't what was signed.
        """
        return self.store.load(self.model, number, self.keyring, self.keyring.verify_key())

    def page_of(self, number: int) -> bytes:
        """The card of a version as the page that is in its package.

        Raises:
            WorkloadError: there is none, or it isn't what was signed.
        """
        return self.package(number).read(card_text.FILE)

    @property
    def before(self) -> int | None:
        """The version that a roll-back would go to; None where there is none."""
        alias = self.aliases.get(self.settings.alias)
        back = alias.rolled_back(set(self.numbers).__contains__) if alias else None
        return back.version if back else None

    # -- keys, certificates, records ----------------------------------------------------------

    @property
    def pki(self) -> Path:
        """The folder of certificates."""
        return self.settings.tls.certificate.parent

    def certificates(self) -> list[Certificate]:
        """The certificates beside the server's."""
        server = self.settings.tls.certificate
        found = sorted({server, *self.pki.glob("*.crt")})
        return [certificate_of(each) for each in found]

    def caller(self, *scopes: str) -> str | None:
        """The name of a client certificate here that has scopes; None: there is none."""
        for name, held in self._first.auth.clients.items():
            there = "/" not in name and (self.pki / f"{name}.key").is_file()
            if there and set(scopes) <= held:
                return name
        return None

    def keys(self) -> list[tuple[str, str]]:
        """Ids of the keys, and since when they are there, as pairs of what and which.

        Raises:
            WorkloadError: the key ring is gone, or damaged.
        """
        ring = self.keyring
        verifies = ring.verify_key()
        rotations = int(ring.primary) - 1
        found = [
            ("encrypts packages", f"key {ring.primary} of {len(ring.versions)} kept"),
            ("signs packages", verifies.ids[0]),
            ("signs tokens", ring.token_key_id),
            ("rotated", "never" if rotations == 0 else f"{rotations} times"),
        ]
        found += [("signed packages before", each) for each in verifies.ids[1:]]
        return found

    def findings(self, *, everything: bool) -> list[Finding]:
        """Whether the registry's log of changes and the server's logs are intact.

        Args:
            everything: verify the server's logs however long they are.
        """
        return [self._registry_log(), self._server_logs(everything=everything)]

    def _registry_log(self) -> Finding:
        def look() -> str:
            events = read_events(self.settings.registry, whole=False)
            self.store.checked_list(self.model, self.keyring)
            return f"{len(events)} changes, each follows from the one before; aliases as signed"

        return _finding("changes of models", look)

    def _server_logs(self, *, everything: bool) -> Finding:
        what, folder = "requests", self.settings.logs
        size = sum(map(_size, folder.glob("*")))
        if size > AT_ONCE and not everything:
            return Finding(what, None, f"{size / 2**20:.0f} MiB of logs were not verified now")

        def look() -> str:
            report = logs.verify(folder)
            return (
                f"{report['records']:,} records cover {report['access_lines']:,} answered requests"
            )

        return _finding(what, look)


def _size(path: Path) -> int:
    """Bytes of a file; of one that was just set aside none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _finding(what: str, look: Callable[[], str]) -> Finding:
    """Look a few times: a server writes a line first, then the record that covers it."""
    for left in reversed(range(_LOOKS)):
        try:
            return Finding(what, True, look())
        except IntegrityError as error:
            if not left:
                return Finding(what, False, str(error))
            time.sleep(_BETWEEN_LOOKS)
        except (WorkloadError, OSError) as error:
            return Finding(what, None, str(error))
    raise AssertionError("the last look has an answer")


def _card(manifest: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The card's lines; none where an earlier software's package has another form."""
    try:
        return tuple(card_text.lines(manifest, most=MOST_COLUMNS))
    except (KeyError, TypeError, AttributeError, ValueError):
        return ()


def data_of(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a version was trained on, as pairs of what and which, as its manifest says."""
    dataset = mapping(manifest.get("dataset"))
    rows = mapping(dataset.get("rows"))
    source = mapping(dataset.get("source"))
    found = [
        ("class of data", manifest.get("data_class")),
        ("training data", source.get("name")),
        ("digest of the training data", dataset.get("digest")),
        ("rows", _rows(rows)),
        ("columns left out", len(sequence(dataset.get("excluded"))) or None),
    ]
    return [(what, str(which)) for what, which in found if which is not None]


def _rows(rows: Mapping[str, Any]) -> str | None:
    train, held_out = rows.get("train"), rows.get("held_out")
    if not isinstance(train, int) or not isinstance(held_out, int):
        return None
    return f"{train:,} for training, {held_out:,} held out"
