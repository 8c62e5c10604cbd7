"""Sites and a collector of a secure aggregation in one process, without TLS between them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from falaj.workloads.federation.secure.collector import Collector
from falaj.workloads.federation.secure.identities import AUTHORITY, Directory, Identity
from falaj.workloads.federation.secure.masking import Numbers
from falaj.workloads.federation.secure.messages import encode_numbers
from falaj.workloads.federation.secure.participant import Participant
from tests.workloads.federation.federations import Authority


@dataclass(repr=False)
class People:
    """Identities of sites, and the directory that all of them have."""

    authority: Authority
    names: tuple[str, ...]
    identities: dict[str, Identity] = field(default_factory=dict[str, Identity])

    @classmethod
    def of(cls, folder: Path, names: tuple[str, ...]) -> People:
        authority = Authority(folder)
        return cls(
            authority, names, {each: Identity.read(*authority.issue(each)) for each in names}
        )

    def directory(self, names: tuple[str, ...] | None = None) -> Directory:
        return Directory(self.authority.certificate, dict.fromkeys(names or self.names, AUTHORITY))

    def participants(self, count: int, threshold: int) -> dict[str, Participant]:
        names = self.names[:count]
        directory = self.directory(names)
        return {each: Participant(self.identities[each], directory, threshold) for each in names}


def summed(
    sites: Mapping[str, Participant],
    it: Collector,
    numbers: Mapping[str, Numbers],
    *,
    before_keys: Collection[str] = (),
    before_shares: Collection[str] = (),
    before_masked: Collection[str] = (),
    before_opening: Collection[str] = (),
) -> Numbers:
    """A whole session; sites drop out before the stages that are named. Errors are the roles'."""
    gone = set(before_keys)
    for name, site in sites.items():
        if name not in gone:
            it.take(name, site.begin(it.session))
    it.advance()
    gone |= set(before_shares)
    for name, site in sites.items():
        if name not in gone:
            it.take(name, site.share(it.session, it.tell(name)))
    it.advance()
    gone |= set(before_masked)
    for name, site in sites.items():
        if name not in gone:
            masked = site.mask(it.session, it.tell(name), numbers[name])
            it.take(name, encode_numbers(masked))
    it.advance()
    gone |= set(before_opening)
    for name, site in sites.items():
        if name not in gone:
            it.take(name, site.open(it.session, it.tell(name)))
    return it.sum()
