"""Arguments of `KeyRing`."""

from typing import NotRequired

from components.specification.placed import PlacedArgs


class KeyRingArgs(PlacedArgs):
    """Arguments of `KeyRing`."""

    purposes: NotRequired[list[str]]
    """What keys are for. Default: ``data``, ``disks``, ``cluster``, ``logs``, ``registry``,
    ``state``: a key for each."""
    administrators: NotRequired[list[str]]
    """Principals that manage keys and can't use them: role ARNs, or Entra object ids. Default:
    whoever deploys."""
    rotation_days: NotRequired[int]
    """Days between two versions of a key, 90 to 2560. Default: 365."""
    deletion_window_days: NotRequired[int]
    """Days in which a deleted key can be had back, 7 to 30. Default: 30."""
    managed_hsm: NotRequired[bool]
    """Keys in a hardware module of one's own. Default: the cloud's shared modules (AWS KMS; Key
    Vault Premium). Azure only."""
