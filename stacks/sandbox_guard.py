"""Keeps the sandbox and real clouds apart: what is for the one is refused in the other."""

from __future__ import annotations

import os
from typing import Any

from pydantic.alias_generators import to_camel

from falaj.components import catalogue
from falaj.stacks.settings import CloudSettings, ClusterSettings, SmbSettings
from falaj.stacks.settings.cloud import PACKAGE_PINS
from falaj.stacks.settings.problems import Drop, Finding, Put, RefusedSettingsError

#: What stands for things that only a real account has: no subscription has this id.
_MADE_UP_VAULT = (
    "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/made-up/providers/"
    "Microsoft.KeyVault/vaults/made-up/secrets"
)
#: A part of the ARN; AWS's documentation has this account for examples.
_MADE_UP_CERTIFICATE = "111122223333:certificate/11111111-1111-1111-1111-111111111111"
_MADE_UP_DIGEST = "sha256:" + "0" * 64


PHASE_VARIABLE = "FALAJ_PHASE"
"""What an update is asked for beside all that the stack's file says, in words with commas."""
STORES = "stores"
"""A stack makes what it stands on, its registry among it, and no more: what a tier's machines
serve is published into that afterwards."""
FIRST_KEY = "first-key"
"""Azure's registry is made with a key of its own first (`RegistryArgs.first_key`)."""


def is_phase(wanted: str) -> bool:
    """Whether the program is asked for that phase: `STORES`, `FIRST_KEY`."""
    return wanted in os.environ.get(PHASE_VARIABLE, "").split(",")


def check_sandbox_guard(settings: CloudSettings, *, sandboxed: bool, stores: bool = False) -> None:
    """Refuse a stack that is not meant for where it is about to be deployed.

    Args:
        settings: the stack's settings.
        sandboxed: whether the providers are the sandbox's.
        stores: whether this is the phase `STORES`, before anything was published.

    Raises:
        SettingsError: names the key and what to do.
    """
    if sandboxed:
        return
    found: list[Finding] = []
    if settings.sandbox:
        found.append(
            Finding(
                ("sandbox",),
                "given true, but this engine would use the real cloud; allowed: the sandbox; run "
                "it with `falaj up --sandbox` or in `falaj shell --sandbox`, or remove the key "
                "for a real deployment",
                (Drop(("sandbox",)),),
            )
        )
    accepted = settings.acknowledge_degraded
    if accepted is not None and accepted.purpose == "sandbox":
        path = ("acknowledgeDegraded", "for")
        found.append(
            Finding(
                path,
                f"given 'sandbox' for {accepted.region}, but this would be a real deployment; "
                "allowed: deployment; confirm the region's health with the cloud (`falaj "
                "preflight` asks it), then set it",
                (Put(path, "deployment"),),
            )
        )
    if isinstance(settings, ClusterSettings):
        found += _without_administrators(settings)
    if isinstance(settings, SmbSettings) and not stores:
        found += _unpublished(settings)
    if found:
        raise RefusedSettingsError.of(settings.provenance, found)


#: Who may administer a cluster, by cloud.
_PRINCIPALS = {
    "aws": "ARNs of roles or users, such as arn:aws:iam::ACCOUNT:role/platform",
    "azure": "object ids of Entra groups",
}


def _without_administrators(settings: ClusterSettings) -> list[Finding]:
    """Only the sandbox has no use for somebody who may do something in a cluster."""
    if settings.cluster.model_dump()["administrators"]:
        return []
    clouds = {place.partition("/")[0] for place in settings.places}
    allowed = "; ".join(f"on {each}, {_PRINCIPALS[each]}" for each in sorted(clouds))
    return [
        Finding(
            ("cluster", "administrators"),
            "missing, and who makes a cluster gets no rights in it: nobody could use it; "
            f"allowed: one or more, {allowed}",
        )
    ]


def _unpublished(settings: SmbSettings) -> list[Finding]:
    """What only somebody who published can say; the sandbox makes it up."""
    model = settings.inference.model_dump()["model"]
    found: list[Finding] = []
    if settings.inference.image_digest is None:
        found.append(
            Finding(
                ("inference", "imageDigest"),
                "missing; allowed: the digest of an image in your registry, as sha256:…; push the "
                "inference image to the repository `inference` and set what was printed",
            )
        )
    if getattr(settings.inference, PACKAGE_PINS[0]) is None:
        found.append(
            Finding(
                ("inference", to_camel(PACKAGE_PINS[0])),
                f"missing; allowed: a version of {model} that was published: `falaj up` makes the "
                "registry first, where this stack makes its own; then `falaj publish REGISTRY "
                f"--for {settings.provenance.stack} --pin` sends it there and writes this key",
            )
        )
    return found


def made_up(settings: CloudSettings, place: catalogue.Place) -> dict[str, Any]:
    """What the sandbox makes up for a tier that leaves out what only a real account has.

    Args:
        settings: the stack's settings.
        place: where it stands.
    """
    if not isinstance(settings, SmbSettings):
        return {}
    wanted: dict[str, Any] = {
        "image_digest": _MADE_UP_DIGEST,
        "version": 1,
        "package_digest": _MADE_UP_DIGEST,
        "keys_digest": _MADE_UP_DIGEST,
    }
    if place.cloud == "azure":
        wanted["certificate_id"] = f"{_MADE_UP_VAULT}/certificate"
        wanted["keyring_secret_id"] = f"{_MADE_UP_VAULT}/keyring"
    elif not settings.inference.model_dump()["private_authority"]:
        wanted["certificate_id"] = f"arn:aws:acm:{place.region}:{_MADE_UP_CERTIFICATE}"
    return {
        name: value for name, value in wanted.items() if getattr(settings.inference, name) is None
    }
