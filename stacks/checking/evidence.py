"""Writes the evidence of a check, signs it, and verifies what somebody signed."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from falaj.engine.files import replace_file
from falaj.policies.model import PolicyError
from falaj.policies.reports.evidence import evidence
from falaj.policies.reports.result import CheckResult
from falaj.policies.reports.signature import (
    LockedKeyError,
    fingerprint,
    private_key,
    public_key,
    verify,
)
from falaj.policies.reports.wording import Language
from falaj.stacks.command.console import say
from falaj.stacks.errors import StackError

#: Added to a page's name for that of its signature.
SUFFIX: Final = ".sig"
#: Name the file with the passphrase of an encrypted key, or hold it.
PASSPHRASE_FILE: Final = "FALAJ_SIGN_PASSPHRASE_FILE"  # noqa: S105 - a variable's name
PASSPHRASE: Final = "FALAJ_SIGN_PASSPHRASE"  # noqa: S105 - a variable's name
GOOD, NOT_GOOD = 0, 1


@dataclass(frozen=True)
class Signer:
    """A key that signs, which is shown to nobody."""

    key: Ed25519PrivateKey = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """Of the public key, SHA-256 as hexadecimal digits."""
        return fingerprint(self.key.public_key())


def signer_of(path: Path, environ: MutableMapping[str, str] | None = None) -> Signer:
    """The signer whose private key is in a file; its passphrase is where variables say.

    To be called before anything is checked: a key that can't be used is known at once, and the
    variables are taken away, so that no program that is previewed inherits them.

    Args:
        path: the key in PEM, PKCS#8.
        environ: variables. Default: ours.

    Raises:
        StackError: the key can't be read, isn't Ed25519, or its passphrase is missing or wrong.
    """
    variables = os.environ if environ is None else environ
    file, passphrase = variables.pop(PASSPHRASE_FILE, ""), variables.pop(PASSPHRASE, "")
    if file and passphrase:
        raise StackError(f"{PASSPHRASE_FILE} and {PASSPHRASE} exclude each other; set one")
    opens = passphrase.encode("utf-8", "surrogateescape")
    if file:
        opens = _secret(Path(file), PASSPHRASE_FILE).removesuffix(b"\n").removesuffix(b"\r")
    try:
        return Signer(private_key(_secret(path, "--sign-key"), opens or None))
    except LockedKeyError as error:
        raise StackError(
            f"--sign-key: {path}: {error}\n  let {PASSPHRASE_FILE} name a file that holds it, or "
            f"{PASSPHRASE} hold it"
        ) from None
    except PolicyError as error:
        raise StackError(f"--sign-key: {path}: {error}") from None


def write_evidence(
    result: CheckResult, path: Path, *, language: Language = "en", signer: Signer | None = None
) -> None:
    """Write the page, its signature beside it where somebody signs, and say so.

    A signature that is there from before doesn't fit the new page, and goes.

    Raises:
        StackError: a file can't be written.
    """
    beside = signature_of(path)
    page = evidence(
        result, language=language, signed_by=signer.fingerprint if signer else ""
    ).encode()
    stale = beside.exists()
    try:
        beside.unlink(missing_ok=True)
    except OSError as error:
        raise StackError(f"{beside} can't be removed: {error.strerror}") from None
    put(path, page)
    say(f"evidence of {len(result.stacks)} stacks: {path}")
    if signer:
        put(beside, signer.key.sign(page))
        say(f"signed by the key sha256:{signer.fingerprint}: {beside}")
    elif stale:
        say(f"{beside} was of the page before, and is removed: this one isn't signed")


def verify_evidence(page: str, key: str | None) -> int:
    """Say whether a page is as the owner of a key signed it; returns 0 where it is, else 1.

    Args:
        page: the page's path; its signature is in the file of the same name with `SUFFIX`.
        key: path of the public key in PEM.

    Raises:
        StackError: no key is named, or a file can't be read or isn't what it should be.
    """
    if not key:
        raise StackError("--verify: no --key; name the public key of who signed: --key PUB.pem")
    path = Path(page)
    beside = signature_of(path)
    try:
        public = public_key(_content(Path(key), "--key"))
    except PolicyError as error:
        raise StackError(f"--key: {key}: {error}") from None
    try:
        found = verify(_content(path, "--verify"), _content(beside, "--verify"), public)
    except PolicyError as error:
        raise StackError(f"--verify: {beside}: {error}") from None
    if found.good:
        say(f"good: {path} is as it was signed, by the key sha256:{found.key}")
        return GOOD
    if found.named == found.key:
        say(
            f"changed: {path} or {beside} is not as the key sha256:{found.key} made it; "
            "don't rely on the page"
        )
    elif found.named:
        say(
            f"wrong key: {path} names the key sha256:{found.named}, and {key} is "
            f"sha256:{found.key}; whether the page was changed is not known"
        )
    else:
        say(
            f"not verified: {path} names no key, and {beside} doesn't fit it by the key "
            f"sha256:{found.key}: the page was changed, or somebody else signed it"
        )
    return NOT_GOOD


def signature_of(page: Path) -> Path:
    """Where a page's signature is."""
    return page.with_name(page.name + SUFFIX)


def put(path: Path, content: bytes) -> None:
    """Write a file whole or not at all. Raises StackError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)
    except OSError as error:
        raise StackError(f"{path} can't be written: {error.strerror}") from None


def _secret(path: Path, option: str) -> bytes:
    """The content of a file that nobody else should read; a person is told where others can."""
    content = _content(path, option)
    mode = path.stat().st_mode
    if os.name == "posix" and mode & 0o044:
        say(
            f"WARNING: {option}: {path} can be read by others (mode {mode & 0o777:04o}); "
            f"close it with: chmod 600 {path}"
        )
    return content


def _content(path: Path, option: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StackError(f"{option}: {path} can't be read: {error.strerror}") from None
