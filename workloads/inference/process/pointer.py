"""Which version an alias of a registry stands for, asked again where something has changed."""

from __future__ import annotations

from typing import cast

from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import fingerprint
from falaj.workloads.inference.settings import Settings
from falaj.workloads.registry.alias_list import ALIASES
from falaj.workloads.registry.keyring import VERIFIES, KeyRing
from falaj.workloads.registry.store import AUDIT, Store


class Pointer:
    """Asks the registry for which version the alias stands, where something has changed.

    Args:
        seen: the highest numbers of lists that a master before this one has seen, by model: each
            has its own count. None: none.
    """

    def __init__(self, seen: object) -> None:
        known = cast("dict[str, object]", seen) if isinstance(seen, dict) else {}
        self.numbers = {model: each for model, each in known.items() if type(each) is int}
        self._asked: tuple[object, ...] = ()
        self._none: tuple[object, ...] = ()
        self._version = 0

    def optional(self, wanted: Settings, alias: str) -> int | None:
        """Return the version that another alias than the service's stands for; None: it has none.

        A list that isn't what was signed is told of where the service's own alias is asked for.
        """
        asked = self._asks(wanted, alias)
        if asked == self._none:
            return None
        try:
            return self.version(wanted, alias)
        except WorkloadError:
            self._none = asked
            return None

    def version(self, wanted: Settings, alias: str | None = None) -> int:
        """Return the version that the service's alias, or another one, stands for.

        Raises:
            WorkloadError: the list of aliases is missing, isn't what was signed, or is older than
                the log of changes or than what was seen.
        """
        alias = alias or wanted.alias
        asked = self._asks(wanted, alias)
        if asked != self._asked:
            self._asked = ()
            found = Store(wanted.registry).trusted(
                wanted.model, alias, KeyRing.open(wanted.keyring),
                seen=self.numbers.get(wanted.model, 0),
            )  # fmt: skip
            self.numbers[wanted.model] = found.number
            self._version, self._asked = found.version, asked
        return self._version

    @staticmethod
    def _asks(wanted: Settings, alias: str) -> tuple[object, ...]:
        """What an alias's version depends on."""
        files = (
            wanted.registry / wanted.model / ALIASES,
            wanted.registry / AUDIT,
            wanted.keyring / VERIFIES,
        )
        return (wanted.registry, wanted.model, alias, wanted.keyring, *map(fingerprint, files))
