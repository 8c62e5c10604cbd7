"""What the pack demands of data at rest, for every cloud, given readers of its types.

The demand by class of data: from ``internal`` up, a customer's own key; ``public`` data needs
encryption with any key, the service's own included. The class is the resource's tag
``falaj:data-class``, else the settings'; a class that nobody knows counts as more than public.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from falaj.policies.model import Finding, Resource, View, indeterminate, violation
from falaj.policies.rules.encryption.table import Part, Reader

Readers = Mapping[str, tuple[Reader, ...]]


def parts_of(resource: Resource, view: View, readers: Readers) -> Iterator[Part]:
    """Everything that a resource keeps, and what encrypts it."""
    for reader in readers.get(resource.kind, ()):
        yield from reader(resource, view)


def merged(*some: Readers) -> Readers:
    """Readers of several tables as one; a type may stand in more than one."""
    found: dict[str, tuple[Reader, ...]] = {}
    for each in some:
        for kind, of_kind in each.items():
            found[kind] = (*found.get(kind, ()), *of_kind)
    return found


def demands_customer_key(resource: Resource, view: View) -> bool:
    """Whether the class of the resource's data calls for a customer's own key."""
    return view.data_class(resource).strip().lower() != "public"


def unencrypted(parts: Iterable[Part]) -> Iterator[Finding]:
    """A finding for each part that isn't encrypted at all, or where that can't be seen."""
    for each in parts:
        if each.elsewhere:
            continue
        if each.state == "none":
            yield violation(each.switch, f"{each.why}; data at rest must be encrypted")
        elif each.state == "unknown" and not each.surely:
            yield indeterminate(each.switch, each.why)


def without_customer_key(
    resource: Resource, view: View, parts: Iterable[Part]
) -> Iterator[Finding]:
    """A finding for each part that no customer's key encrypts, where the class demands one."""
    if not demands_customer_key(resource, view):
        return
    for each in parts:
        if each.elsewhere or not each.takes_key:
            continue
        if each.state in {"none", "service key"}:
            data_class = view.data_class(resource)
            yield violation(
                each.path, f"{each.why}; {data_class} data needs a customer-managed key"
            )
        elif each.state == "unknown":
            yield indeterminate(each.path, each.why)
