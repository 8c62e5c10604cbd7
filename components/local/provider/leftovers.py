"""What an interrupted deployment has left running in a site."""

from __future__ import annotations

from falaj.components.local.machine import processes
from falaj.components.local.provider.service_process import services
from falaj.components.local.provider.site import Site
from falaj.components.local.supervision.choice import KINDS


def end_leftovers(site: Site) -> None:
    """End every service and every workload process of a site that is still there.

    Raises:
        LocalError: one doesn't end.
    """
    for service in services(site):
        for make in KINDS.values():
            make().remove(service.program())
    # The separator keeps a site whose name only begins like this one's out of it.
    words = ("workloads.", f"{site.path}/")
    for pid in processes.find(words):
        processes.end(pid, words, patience_s=60)


def holds_port(site: Site, port: int) -> bool:
    """Whether a service of this very site listens on the port."""
    return any(
        service.read_state().get("port") == port and service.master() is not None
        for service in services(site)
    )
