"""Ranks in the order of the machines' own indices.

PyTorch's dynamic rendezvous ranks machines by their addresses, sorted as texts: ``10.0.0.10`` goes
before ``10.0.0.9``, and pods have whatever address was free. A scheduler that placed the pods of a
job by their completion index, neighbours beside neighbours, did so for nothing then. Here the
machines tell each other their indices after each round, and rank by these.

The store that the processes meet at is made anew for each round, on the machine of rank 0. That of
PyTorch 2.15 (``DynamicRendezvousHandler.next_rendezvous``) is made in the first round only: its
address isn't told to machines that come later, which wait for it in vain, and what the processes
of one round wrote there is read by those of the next.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Sequence

from torch.distributed import (
    DistError,
    PrefixStore,  # pyright: ignore[reportPrivateImportUsage] - public: pytorch.org/docs
    Store,  # pyright: ignore[reportPrivateImportUsage]
    TCPStore,  # pyright: ignore[reportPrivateImportUsage]
)
from torch.distributed.elastic.rendezvous import RendezvousHandler
from torch.distributed.elastic.rendezvous.api import RendezvousInfo, RendezvousStoreInfo
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

from falaj.workloads.errors import WorkloadError

#: Variable of PyTorch by which a rendezvous makes no store for the processes.
_NO_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
_UNKNOWN = "none"
#: How many machines have read the indices of a round.
_READ = "read"
_READ_SECONDS = 10.0


class OrderedRendezvous(RendezvousHandler):
    """A rendezvous whose ranks are in the order of the machines' indices.

    Args:
        inner: brings the machines together; its own ranks only tell them apart.
        index: of this machine; None where nobody gave it one. Then all ranks are ``inner``'s.
        address: of this machine, as the others reach it; None: by its host name.
        unique: whether two machines with one index are a mistake. They aren't where a machine is
            replaced while the others train: its end is noticed later than its successor.
    """

    def __init__(
        self, inner: RendezvousHandler, index: int | None, address: str | None, *, unique: bool
    ) -> None:
        os.environ[_NO_STORE] = "1"
        self._inner = inner
        self._index = index
        self._address = address
        self._unique = unique
        self._server: TCPStore | None = None

    @property
    def use_agent_store(self) -> bool:
        """See base class."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Meet the others.

        Raises:
            WorkloadError: two machines have one index.
            DistError: one of them was lost before it told its index.
        """
        self._server = None  # the processes of the last round have ended
        met = self._inner.next_rendezvous()
        store = PrefixStore("falaj", met.store)
        rank = rank_of(store, met.rank, met.world_size, self._index, unique=self._unique)
        if rank == 0:
            self._server = TCPStore(
                self._address or "localhost", 0, is_master=True, wait_for_workers=False
            )
        port = self._server.port if self._server is not None else None
        where = RendezvousStoreInfo.build(rank, store, self._address, server_port=port)
        return RendezvousInfo(met.store, rank, met.world_size, where)

    def get_backend(self) -> str:
        """See base class."""
        return self._inner.get_backend()

    def is_closed(self) -> bool:
        """See base class."""
        return self._inner.is_closed()

    def set_closed(self) -> None:
        """See base class."""
        self._inner.set_closed()

    def num_nodes_waiting(self) -> int:
        """See base class."""
        return self._inner.num_nodes_waiting()

    def get_run_id(self) -> str:
        """See base class."""
        return self._inner.get_run_id()

    def shutdown(self) -> bool:
        """See base class."""
        return self._inner.shutdown()

    def fall_silent(self) -> None:
        """Stop telling the others that this machine is there; the rendezvous stays open.

        PyTorch's thread for it would go on until the interpreter ends, which it ends with
        ``abort`` (status 134) where it is at the store just then: for long where the machine that
        hosts the store left first.
        """
        if isinstance(self._inner, DynamicRendezvousHandler):
            self._inner._stop_heartbeats()  # pyright: ignore[reportPrivateUsage]


def rank_of(store: Store, met: int, count: int, index: int | None, *, unique: bool) -> int:
    """This machine's rank, once all have told their indices.

    Args:
        store: of this round alone.
        met: this machine's place in the rendezvous.
        count: of machines.
        index: of this machine.
        unique: as of `ordered`.

    Raises:
        WorkloadError: two machines have one index.
        DistError: a machine was lost before it told its own.
    """
    store.set(f"index/{met}", _UNKNOWN if index is None else str(index))
    values = store.multi_get([f"index/{each}" for each in range(count)])
    store.add(_READ, 1)
    indices = [None if each == _UNKNOWN.encode() else int(each) for each in values]
    try:
        return ordered(indices, unique=unique)[met]
    except WorkloadError:
        _wait_for_readers(store, count)
        raise


def _wait_for_readers(store: Store, count: int) -> None:
    """Stay until the other machines have read what is refused.

    The store goes with the process that hosts it: who hadn't read yet would take it for lost, and
    have everything started again.
    """
    until = time.monotonic() + _READ_SECONDS
    with contextlib.suppress(DistError):  # the host was sooner: all have read
        while store.add(_READ, 0) < count and time.monotonic() < until:
            time.sleep(0.1)


def ordered(indices: Sequence[int | None], *, unique: bool) -> list[int]:
    """The rank of each machine, given its index.

    Args:
        indices: of the machines; if one has none, they keep the order that they stand in.
        unique: whether each may be there only once.

    Raises:
        WorkloadError: one is there twice.
    """
    known = [each for each in indices if each is not None]
    if len(known) < len(indices):
        return list(range(len(indices)))
    twice = {index: count for index, count in Counter(known).items() if count > 1}
    if twice and unique:
        index, count = min(twice.items())
        raise WorkloadError(
            f"PET_NODE_RANK {index} is that of {count} machines: each needs a number of its own, "
            "from 0; in a cluster, its completion index"
        )
    places = sorted(range(len(known)), key=lambda place: (known[place], place))
    ranks = [0] * len(places)
    for rank, place in enumerate(places):
        ranks[place] = rank
    return ranks
