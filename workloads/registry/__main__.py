"""``python -m falaj.workloads.registry``: key rings, packages, versions and aliases."""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import write_atomic
from falaj.workloads.registry import audit, rotation
from falaj.workloads.registry.adoption import adopt
from falaj.workloads.registry.arguments import parser
from falaj.workloads.registry.intake import DEFAULT_FILES, read_fields, read_files
from falaj.workloads.registry.keyring import KeyRing, shred_keyring
from falaj.workloads.registry.keyring_archive import pack, unpack
from falaj.workloads.registry.listing import describe, describe_version
from falaj.workloads.registry.memory_files import require_memory
from falaj.workloads.registry.signing import read_public_key
from falaj.workloads.registry.store import Moved, Store

Answer = tuple[dict[str, Any], str]
"""What a command did: for machines, and for people."""

DONE, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 75
MAX_BATCH = 4096


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; a person's mistake never shows a trace."""
    options = parser().parse_args(arguments)
    name = f"keyring {options.action}" if options.command == "keyring" else options.command
    try:
        answer, text = _COMMANDS[name](options)
        print(json.dumps(answer, ensure_ascii=False) if options.json else text, flush=True)
    except WorkloadError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print("interrupted; what was finished is kept, run it again", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output left (``… | head``). Nothing more can be said to it.
        sys.stderr.close()
        return FAILED
    except OSError as error:
        print(f"error: {error.filename or name}: {error.strerror or error}", file=sys.stderr)
        return REFUSED
    return DONE


def _keyring_create(options: argparse.Namespace) -> Answer:
    return _shown(KeyRing.create(options.path))


def _keyring_show(options: argparse.Namespace) -> Answer:
    return _shown(KeyRing.open(options.path))


def _keyring_rotate(options: argparse.Namespace) -> Answer:
    keyring = KeyRing.open(options.path)
    done = rotation.rotate(keyring, options.rewrap)
    answer, text = _shown(keyring)
    more = (
        f"{done.rewrapped} files wrapped anew; keys retired: {', '.join(done.retired) or 'none'}"
    )
    return {**answer, "rewrapped": done.rewrapped, "retired": done.retired}, f"{text}\n{more}"


def _keyring_shred(options: argparse.Namespace) -> Answer:
    shred_keyring(options.path)
    return {"path": str(options.path), "shredded": True}, f"shredded the keys in {options.path}"


def _keyring_pack(options: argparse.Namespace) -> Answer:
    data = pack(KeyRing.open(options.path))
    encoded = base64.b64encode(data).decode()
    if options.to is None:
        return {"path": str(options.path), "keyring": encoded}, encoded
    write_atomic(options.to, data)
    return {"path": str(options.path), "to": str(options.to)}, f"packed into {options.to}"


def _keyring_unpack(options: argparse.Namespace) -> Answer:
    keyring = unpack(options.source, options.path)
    answer = {"path": str(keyring.path), "versions": keyring.versions}
    return answer, f"key ring {keyring.path}: versions {', '.join(keyring.versions)}"


def _shown(keyring: KeyRing) -> Answer:
    answer: dict[str, Any] = {
        "path": str(keyring.path),
        "primary": keyring.primary,
        "versions": keyring.versions,
        "signing_key_id": keyring.signing_key_id,
        "token_key_id": keyring.token_key_id,
    }
    versions = ", ".join(keyring.versions)
    text = f"key ring {keyring.path}: primary {keyring.primary} of {versions}"
    return (
        answer,
        f"{text}\nsigning key {keyring.signing_key_id}\ntoken key {keyring.token_key_id}",
    )


def _publish(options: argparse.Namespace) -> Answer:
    keyring = KeyRing.open(options.keyring)
    fields = read_fields(options.fields)
    names: list[str] = options.files or list(DEFAULT_FILES)
    files = read_files(options.source, names, fields, keyring, options.context)
    done = Store(options.registry).publish(options.model, files, fields, keyring)
    answer: dict[str, Any] = {
        "model": done.model,
        "version": done.version,
        "path": str(done.path),
        "digest": done.digest,
        "created": done.created,
    }
    verb = "published" if done.created else "was published already:"
    return answer, f"{verb} {done.model} version {done.version} ({done.path})"


def _verify(options: argparse.Namespace) -> Answer:
    keyring = KeyRing.open(options.keyring)
    trusted = read_public_key(options.verify_key) if options.verify_key else keyring.verify_key()
    which: int | str = options.alias if options.version is None else options.version
    package = Store(options.registry).verify(options.model, which, keyring, trusted)
    answer: dict[str, Any] = {
        "model": package.model,
        "version": package.version,
        "digest": package.digest,
        "signer": package.contents.signer,
        "files": {name: entry.size for name, entry in package.contents.files.items()},
        "verified": True,
    }
    files = ", ".join(f"{name} ({size} bytes)" for name, size in answer["files"].items())
    text = (
        f"{package.model} version {package.version} is what key {package.contents.signer} signed"
    )
    return answer, f"{text}: {files}"


def _import(options: argparse.Namespace) -> Answer:
    keyring = KeyRing.open(options.keyring)
    trusted = read_public_key(options.verify_key) if options.verify_key else keyring.verify_key()
    store = Store(options.registry)
    package = adopt(
        store, options.model, options.version, options.source, keys=keyring, verify_key=trusted
    )
    store.promote(options.model, options.version, options.alias)
    answer: dict[str, Any] = {
        "model": package.model,
        "version": package.version,
        "digest": package.digest,
        "alias": options.alias,
    }
    text = f"{package.model} version {package.version} is {options.alias}, as signed by"
    return answer, f"{text} {package.contents.signer}"


def _unseal(options: argparse.Namespace) -> Answer:
    # Triton's layout needs ONNX, which nothing else here does.
    from falaj.workloads.registry.triton_layout import Running, write_repository  # noqa: PLC0415

    if not options.allow_disk:
        require_memory(options.to)
    if not 1 <= options.max_batch <= MAX_BATCH or options.gpus < 0:
        raise WorkloadError(f"--max-batch must be 1 to {MAX_BATCH}, and --gpus 0 or more")
    keyring = KeyRing.open(options.keyring)
    trusted = read_public_key(options.verify_key) if options.verify_key else keyring.verify_key()
    which: int | str = options.alias if options.version is None else options.version
    package = Store(options.registry).load(options.model, which, keyring, trusted)
    running = Running(options.max_batch, options.gpus, options.accelerator)
    folder = write_repository(package, options.to, running)
    answer = {"model": package.model, "version": package.version, "path": str(folder)}
    return answer, f"{package.model} version {package.version} lies open in {folder}"


def _verify_if_asked(options: argparse.Namespace) -> bool:
    if options.keyring is not None:
        _verify(options)
    elif options.verify_key is not None:
        raise WorkloadError("--verify-key was given without --keyring; verifying needs both")
    return options.keyring is not None


def _show(options: argparse.Namespace) -> Answer:
    verified = _verify_if_asked(options)
    store = Store(options.registry)
    alias = options.version is None
    version = store.resolve(options.model, options.alias) if alias else options.version
    answer = describe_version(store, options.model, version)
    if "error" in answer:
        raise WorkloadError(answer["error"])
    answer["verified"] = verified
    return answer, json.dumps(answer, indent=2, ensure_ascii=False)


def _list(options: argparse.Namespace) -> Answer:
    return describe(Store(options.registry), options.model)


def _promote(options: argparse.Namespace) -> Answer:
    _verify_if_asked(options)
    return _moved(Store(options.registry).promote(options.model, options.version, options.alias))


def _rollback(options: argparse.Namespace) -> Answer:
    return _moved(Store(options.registry).rollback(options.model, options.alias))


def _moved(moved: Moved) -> Answer:
    answer: dict[str, Any] = {
        "model": moved.model,
        "alias": moved.alias,
        "version": moved.version,
        "previous": moved.previous,
    }
    before = "nothing" if moved.previous is None else f"version {moved.previous}"
    return answer, f"{moved.alias} of {moved.model}: version {moved.version}, before: {before}"


def _prune(options: argparse.Namespace) -> Answer:
    store = Store(options.registry)
    removed = store.prune(options.model, options.keep, options.protect)
    answer: dict[str, Any] = {
        "model": options.model,
        "removed": removed,
        "kept": store.versions(options.model),
    }
    gone = ", ".join(map(str, removed)) or "none"
    return answer, f"{options.model}: removed versions {gone}; kept {answer['kept']}"


def _audit(options: argparse.Namespace) -> Answer:
    events = audit.read(options.registry)
    lines = [json.dumps(event, ensure_ascii=False) for event in events]
    return {"events": events, "intact": True}, "\n".join([*lines, f"{len(lines)} events, intact"])


_COMMANDS: dict[str, Callable[[argparse.Namespace], Answer]] = {
    "keyring create": _keyring_create,
    "keyring show": _keyring_show,
    "keyring rotate": _keyring_rotate,
    "keyring shred": _keyring_shred,
    "keyring pack": _keyring_pack,
    "keyring unpack": _keyring_unpack,
    "import": _import,
    "unseal": _unseal,
    "publish": _publish,
    "verify": _verify,
    "show": _show,
    "list": _list,
    "promote": _promote,
    "rollback": _rollback,
    "prune": _prune,
    "audit": _audit,
}

if __name__ == "__main__":
    sys.exit(main())
