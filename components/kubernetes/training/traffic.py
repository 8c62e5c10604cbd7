"""What encrypts the traffic between a job's pods: gradients tell of the rows they come from.

Neither gloo nor NCCL encrypts: PyTorch's wheels have no TLS for gloo, and NCCL has none at all. So
it is done below them, by the network, and only for what goes through it: RDMA doesn't.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.limits import OneOf
from falaj.components.specification.node_pools import PREFIX

NETWORK: Final = "network"
NONE: Final = "none"
ENCRYPTION: Final = OneOf((NETWORK, NONE))
"""What may encrypt it."""
_RESTRICTED: Final = "restricted"
_REASON: Final = range(10, 501)
"""Characters of a reason."""
#: Keeps NCCL on sockets, even where a node has InfiniBand:
#: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
_SOCKETS_ALONE: Final = {"NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1"}


@dataclass(frozen=True)
class Traffic:
    """What is known of the traffic between a job's pods."""

    peers: bool
    """Whether there is any."""
    encryption: str
    """``network`` or ``none``."""
    reason: str
    """Why restricted data may do without; empty for other data and for what is encrypted."""

    @property
    def annotations(self) -> dict[str, str]:
        """Of the job's object, for who audits the cluster."""
        if not self.peers:
            return {}
        reason = {f"{PREFIX}plain-traffic": self.reason} if self.reason else {}
        return {f"{PREFIX}peer-encryption": self.encryption, **reason}

    @property
    def environment(self) -> dict[str, str]:
        """Variables that keep pods on the network that encrypts."""
        return dict(_SOCKETS_ALONE) if self.encryption == NETWORK else {}


def checked(
    given: Mapping[str, Any], way: str, data_class: str, fabric: str, errors: ArgumentErrors, *,
    peers: bool,
) -> Traffic:  # fmt: skip
    """The arguments ``peer_encryption`` and ``plain_traffic``.

    Args:
        given: the component's arguments.
        way: ``peer_encryption``, checked.
        data_class: of the stack.
        fabric: that pods use.
        errors: gets what is wrong.
        peers: whether the job has more than one pod.
    """
    reason = str(given.get("plain_traffic", "")).strip()
    needed = peers and data_class == _RESTRICTED
    if way == NETWORK and not peers:
        errors.say("peer_encryption", "is for several pods, and the job has one; leave it out")
    if way == NETWORK and fabric != "none":
        errors.add(
            "fabric", fabric, "none, with peer_encryption 'network'",
            "RDMA goes past what the network encrypts",
        )  # fmt: skip
    if way == NETWORK:
        env: object = given.get("env")
        names = set(cast(Mapping[str, object], env)) if isinstance(env, Mapping) else set[str]()
        for name in sorted(names & _SOCKETS_ALONE.keys()):
            errors.say(f"env[{name!r}]", "is set by peer_encryption 'network'; leave it out")
    if "plain_traffic" in given:
        if not needed or way == NETWORK:
            errors.say(
                "plain_traffic",
                "is for several pods with data of class 'restricted' and no encryption between "
                "them; leave it out",
            )
        elif len(reason) not in _REASON or not reason.isprintable():
            errors.add(
                "plain_traffic", given["plain_traffic"],
                f"the reason, a line of {_REASON.start} to {_REASON.stop - 1} characters",
                "who allowed it, and what protects the data instead",
            )  # fmt: skip
    elif needed and way == NONE:
        errors.say(
            "peer_encryption",
            "missing: pods exchange what they learnt of data of class 'restricted', and neither "
            "gloo nor NCCL encrypts it; set 'network' where the cluster's network encrypts "
            "between its nodes (WireGuard, IPsec, MACsec), or plain_traffic with the reason for "
            "which it needn't, or train in one pod",
        )
    return Traffic(peers, way, reason)
