"""The coordinator's side of a secure aggregation: it passes on, adds up and takes masks off."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from falaj.workloads.federation.secure import messages, sharing
from falaj.workloads.federation.secure.identities import Directory
from falaj.workloads.federation.secure.masking import Numbers, stream
from falaj.workloads.federation.secure.messages import (
    KEYS,
    MASKED,
    SHARES,
    STAGES,
    UNMASKING,
    Advertised,
    Session,
    Wanted,
)
from falaj.workloads.federation.secure.sharing import SharingError
from falaj.workloads.federation.updates import MessageError


class Collector:
    """One session of a round. Not for several threads at once.

    Args:
        federation: digest of the task.
        number: of the round.
        directory: the sites, whose keys are looked at before they are passed on.
        threshold: fewest sites of a sum.
        numbers: of a masked vector.
    """

    def __init__(
        self, federation: str, number: int, directory: Directory, threshold: int, numbers: int
    ) -> None:
        self.session = Session(federation, number, secrets.token_hex(16))
        self.stage = KEYS
        self._directory, self._threshold, self._numbers = directory, threshold, numbers
        self._keys: dict[str, Advertised] = {}
        self._sealed: dict[str, dict[str, bytes]] = {}
        self._delivered: list[str] = []
        self._sum: Numbers = np.zeros(numbers, np.uint64)
        self._opened: dict[str, tuple[dict[str, bytes], dict[str, bytes]]] = {}

    @property
    def sites(self) -> list[str]:
        """Those whose updates are in the sum, once masked vectors came."""
        return sorted(self._delivered)

    def answered(self, site: str) -> bool:
        """Whether a site has nothing to send at this stage: it did, or dropped out before."""
        return site not in self._expected or site in self._here

    def most_bytes(self) -> int:
        """Of what a site sends at this stage."""
        return messages.most_bytes(self.stage, len(self._directory.pins), self._numbers)

    def take(self, site: str, data: bytes) -> None:
        """What a site sends at this stage.

        Raises:
            MessageError: it is something else, or was sent before.
            IdentityError: keys aren't the site's.
        """
        if self.answered(site):
            raise MessageError(f"{site} has answered, or dropped out before stage {self.stage}")
        if self.stage == KEYS:
            self._take_keys(site, data)
        elif self.stage == SHARES:
            self._take_sealed(site, data)
        elif self.stage == MASKED:
            # What one site sent is added at once, and not kept.
            self._sum = self._sum + messages.decode_numbers(data, self._numbers)
            self._delivered.append(site)
        else:
            self._take_opened(site, data)

    def tell(self, site: str) -> bytes:
        """What a site needs to answer this stage.

        Raises:
            MessageError: it dropped out, or the stage needs nothing.
        """
        if site not in self._expected or self.stage == KEYS:
            raise MessageError(f"there is nothing for {site} at stage {self.stage}")
        if self.stage == SHARES:
            return messages.encode_keys(self._keys)
        if self.stage == MASKED:
            return messages.encode_sealed(
                {name: each[site] for name, each in self._sealed.items() if name != site}
            )
        return self._wanted().to_bytes()

    def is_complete(self) -> bool:
        """Whether nobody needs to be waited for at this stage."""
        if self.stage == UNMASKING:
            return self.is_enough()
        return len(self._here) == len(self._expected)

    def is_enough(self) -> bool:
        """Whether those that answered are enough to go on."""
        return len(self._here) >= self._threshold

    def advance(self) -> None:
        """The next stage: who hasn't answered has dropped out."""
        self.stage = STAGES[STAGES.index(self.stage) + 1]

    def sum(self) -> Numbers:
        """The sum of the numbers of all sites that delivered, without masks.

        Raises:
            SharingError: too few shares came, or one was changed, which says of whom.
        """
        if not (self.stage == UNMASKING and self.is_enough()):
            raise SharingError(
                f"{len(self._opened)} sites have told how masks come off: {self._threshold} "
                "have to"
            )
        wanted, total = self._wanted(), self._sum.copy()
        places = {name: place for place, name in enumerate(sorted(self._keys))}
        for name in wanted.seeds:
            seed = self._joined(
                name, {places[by]: seeds[name] for by, (seeds, _) in self._opened.items()}
            )
            shown = messages.commitment(self.session, name, seed)
            if not hmac.compare_digest(shown, self._keys[name].commitment):
                raise SharingError(f"a share of {name}'s seed was changed")
            total -= stream(seed, self._numbers)
        for name in wanted.keys:
            raw = self._joined(
                name, {places[by]: keys[name] for by, (_, keys) in self._opened.items()}
            )
            key = X25519PrivateKey.from_private_bytes(raw)
            if not hmac.compare_digest(messages.public(key), self._keys[name].mask):
                raise SharingError(f"a share of {name}'s mask key was changed")
            for other in wanted.seeds:
                shared = messages.mask_key(self.session, key, name, other, self._keys[other].mask)
                mask = stream(shared, self._numbers)
                # The other one added it where its name comes first.
                total = total - mask if other < name else total + mask
        return total

    @property
    def _here(self) -> Mapping[str, object] | list[str]:
        return {
            KEYS: self._keys, SHARES: self._sealed, MASKED: self._delivered,
            UNMASKING: self._opened,
        }[self.stage]  # fmt: skip

    @property
    def _expected(self) -> Mapping[str, object] | list[str]:
        return {
            KEYS: self._directory.pins, SHARES: self._keys, MASKED: self._sealed,
            UNMASKING: self._delivered,
        }[self.stage]  # fmt: skip

    def _wanted(self) -> Wanted:
        dropped = self._sealed.keys() - set(self._delivered)
        return Wanted(tuple(self.sites), tuple(sorted(dropped)))

    def _joined(self, name: str, shares: Mapping[int, bytes]) -> bytes:
        try:
            return sharing.join(shares, self._threshold)
        except SharingError as error:
            raise SharingError(f"the shares of {name}'s secret: {error}") from error

    def _take_keys(self, site: str, data: bytes) -> None:
        keys = messages.decode_advertised(data)
        if keys.name != site:
            raise MessageError(f"{site} sends keys of another name")
        keys.check(self.session, self._directory)
        self._keys[site] = keys

    def _take_sealed(self, site: str, data: bytes) -> None:
        sealed = messages.decode_sealed(data)
        if sealed.keys() != self._keys.keys() - {site}:
            raise MessageError(f"{site} sends shares for other sites than sent keys")
        self._sealed[site] = sealed

    def _take_opened(self, site: str, data: bytes) -> None:
        seeds, keys = messages.decode_opened(data)
        wanted = self._wanted()
        if seeds.keys() != set(wanted.seeds) or keys.keys() != set(wanted.keys):
            raise MessageError(f"{site} sends other shares than were asked for")
        self._opened[site] = (seeds, keys)
