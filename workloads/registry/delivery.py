"""From optimised files to a signed version in a registry of images, and an alias for it.

What `falaj publish` does from one machine's folder of models, a pod does without one: which
version comes next is the registry's word. Whoever delivers has keys that sign; whoever trained
needn't.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from falaj.workloads.errors import IntegrityError, RegistryError
from falaj.workloads.registry.alias_record import check_days
from falaj.workloads.registry.aliases import Entry, Signer, promote
from falaj.workloads.registry.oci_layout import PACKAGE_TYPE, ImageManifest
from falaj.workloads.registry.package import check_alias, digests_of
from falaj.workloads.registry.sending import Pushed, Say, TakenError, Trust, push
from falaj.workloads.registry.shelf import Client, Shelf, check_repository, keys_number, tag_of
from falaj.workloads.registry.store import Store

LOOKED_AT: Final = 20
"""Newest versions among which the same content is looked for."""


@dataclass(frozen=True)
class Content:
    """What is to be a version of a model."""

    model: str
    files: Mapping[str, bytes]
    """By name."""
    fields: Mapping[str, Any]
    """See :data:`falaj.workloads.registry.package.FIELDS`."""


@dataclass(frozen=True)
class Delivered:
    """What stands in the registry now."""

    package: ImageManifest
    keys: ImageManifest
    alias: Entry | None
    created: bool
    """Whether the version wasn't there before."""


def deliver(
    shelf: Shelf[Client], content: Content, signer: Signer, *, alias: str | None, staging: Path,
    say: Say,
) -> Delivered:  # fmt: skip
    """Seal and sign files as the model's next version, send it, and let an alias stand for it.

    Files that one of the newest versions holds already, of the same run, are that version.

    Args:
        shelf: where to.
        content: the files and what they are.
        signer: signs package and record.
        alias: such as ``candidate``; None for none.
        staging: an empty folder, for the sealed package on its way.
        say: gets lines about what is done.

    Raises:
        RegistryError: the registry can't be asked or refused, or somebody else sent the same
            version meanwhile: the next try takes the next number.
        IntegrityError: the registry's versions aren't what this key ring signed.
        WorkloadError: a name or a field isn't allowed.
    """
    model = check_repository(content.model)
    if alias is not None:
        check_alias(alias)
        check_days(signer.days)
    known = shelf.tags(model)
    found = _same(shelf, known, content, signer)
    if found is not None:
        package, keys = found
        say(f"{model} version {package.version} has the same content of the same run already")
    else:
        sent = _send(shelf, content, signer, after=max(known, default=0), staging=staging, say=say)
        package, keys = sent.package, sent.keys
    entry = None
    if alias is not None:
        entry, is_new = promote(shelf, (model, package.version), alias, signer)
        say(f"{alias} {'stands' if is_new else 'stood'} for version {entry.record.version}")
    return Delivered(package, keys, entry, created=found is None)


def _same(
    shelf: Shelf[Client], known: Mapping[int, list[str]], content: Content, signer: Signer
) -> tuple[ImageManifest, ImageManifest] | None:
    """The newest version with the same content, as a store would find it, and its keys."""
    model, key = content.model, signer.keyring.verify_key()
    digests = digests_of(content.files)
    for number in reversed(sorted(known)[-LOOKED_AT:]):
        tags = known[number]
        if tag_of(number) not in tags:
            continue
        image = shelf.image(model, tag_of(number), PACKAGE_TYPE)
        try:
            contents = shelf.contents(image, key)
        except IntegrityError as error:
            raise IntegrityError(
                f"{shelf.at(model, tag_of(number))}: {error}\n"
                "  a model's versions are one signer's: deliver with the key ring that signed "
                "them, or under another name"
            ) from error
        # Without keys nobody opens it: whoever sent it was interrupted, and they are lost.
        newest = max(tags, key=keys_number)
        if contents.says_the_same(digests, content.fields) and keys_number(newest):
            return image, shelf.keys_at(newest, image)
    return None


def _send(
    shelf: Shelf[Client], content: Content, signer: Signer, *, after: int, staging: Path, say: Say
) -> Pushed:
    model, keyring, store = content.model, signer.keyring, Store(staging)
    done = store.publish(model, content.files, content.fields, keyring, after=after)
    say(f"signed as version {done.version}, by {keyring.signing_key_id}")
    trust = Trust(keyring.verify_key(), keyring)
    try:
        return push(shelf, store, model, done.version, trust, say=say)
    except TakenError as error:
        # The next try takes the next number.
        raise RegistryError(str(error)) from error
