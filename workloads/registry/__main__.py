"""``python -m falaj.workloads.registry``: key rings, packages, versions and aliases."""

from __future__ import annotations

import argparse
import base64
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from falaj.workloads.errors import LOST, REFUSED, RegistryError, WorkloadError
from falaj.workloads.files import require_memory, write_atomic
from falaj.workloads.registry import rotation
from falaj.workloads.registry.aliases import NothingSeen, Signer
from falaj.workloads.registry.delivery import Content, deliver
from falaj.workloads.registry.keyring import KeyRing, pack, read_public_key, shred_keyring, unpack
from falaj.workloads.registry.oci_layout import Image
from falaj.workloads.registry.publishing import (
    DEFAULT_CONTEXT,
    DEFAULT_FILES,
    import_images,
    import_package,
    read_fields,
    read_files,
)
from falaj.workloads.registry.reaching import add_options, client_of, shelf_at
from falaj.workloads.registry.remote import Repository, check_repository_name
from falaj.workloads.registry.store import (
    PRODUCTION,
    Moved,
    Store,
    describe,
    describe_version,
    read_events,
)

_DESCRIPTION = """\
Signed and encrypted model packages, the keys that protect them, and their versions.

Exit codes: 0 done; 2 refused, the reason is on stderr; 74 a registry of images couldn't be asked
or refused, try again; 75 interrupted, run it again; 1 an error in the program."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``python -m falaj.workloads.registry``."""
    top = argparse.ArgumentParser(
        prog="python -m falaj.workloads.registry",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _keyring(commands.add_parser("keyring", help="make, show, rotate or shred a key ring"))
    _files_options(
        _of_model(commands.add_parser("publish", help="encrypt, sign and add a version"))
    )
    deliver = commands.add_parser(
        "deliver", help="encrypt, sign and send the next version to a registry of images"
    )
    deliver.add_argument("--model", required=True, help="the model's name")
    _json(deliver)
    _deliver_options(_files_options(deliver))
    verify = commands.add_parser("verify", help="check a version, reading every file of it")
    _which(_of_model(verify))
    _keys(verify, required=True)
    show = commands.add_parser("show", help="print a version's manifest")
    _which(_of_model(show))
    _keys(show, required=False)
    listing = commands.add_parser("list", help="list models, versions and aliases (unverified)")
    _registry(listing)
    listing.add_argument("--model", help="only this one; default: all")
    _json(listing)
    promote = commands.add_parser("promote", help="let an alias stand for a version")
    _of_model(promote).add_argument("--version", type=int, required=True, help="the version")
    _alias(promote)
    _keys(promote, required=False)
    rollback = commands.add_parser("rollback", help="let an alias stand for its previous version")
    _alias(_of_model(rollback))
    rollback.add_argument(
        "--expected", type=int, metavar="VERSION",
        help="refuse unless it stands for this one; default: whichever it stands for",
    )  # fmt: skip
    _signing(rollback)
    withdraw = commands.add_parser("withdraw", help="let an alias stand for nothing any more")
    _of_model(withdraw).add_argument("--alias", required=True, help="the alias")
    _signing(withdraw)
    prune = commands.add_parser("prune", help="remove old versions, never one an alias needs")
    _of_model(prune).add_argument(
        "--keep", type=int, required=True, help="how many of the newest stay"
    )
    prune.add_argument(
        "--protect",
        type=int,
        action="append",
        default=[],
        metavar="VERSION",
        help="a version that stays, whatever its age; may be repeated",
    )
    _import_options(
        _of_model(commands.add_parser("import", help="take over a version made elsewhere"))
    )
    _unseal_options(
        _of_model(commands.add_parser("unseal", help="open a version for another server"))
    )
    log = commands.add_parser("audit", help="check the log of changes and print it")
    _registry(log)
    log.add_argument(
        "--keyring", type=Path, metavar="DIR",
        help="whose signature lists of aliases have to have; default: they are held against the "
        "log alone",
    )  # fmt: skip
    _json(log)
    return top


def _keyring(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in (
        ("create", "make a key ring; one that is there is kept"),
        ("show", "print versions and key ids"),
        ("rotate", "make new keys of every kind"),
        ("shred", "overwrite and remove every key: all that they protect is lost"),
        ("pack", "write what opens packages as one file, without the keys that sign"),
        ("unpack", "lay out such a file as a key ring"),
    ):
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument("--path", type=Path, required=True, help="the key ring's folder")
        _json(action)
        if name == "pack":
            action.add_argument(
                "--to", type=Path, metavar="FILE", help="default: in base64 on the output"
            )
        if name == "unpack":
            action.add_argument(
                "--from", dest="source", type=Path, required=True, metavar="FILE",
                help="the packed key ring",
            )  # fmt: skip
        if name in {"pack", "unpack"}:
            action.add_argument(
                "--signs", action="store_true",
                help="with the private key that signs packages, for who publishes; default: "
                "without it",
            )  # fmt: skip
        if name == "rotate":
            action.add_argument(
                "--rewrap",
                type=Path,
                action="append",
                default=[],
                metavar="DIR",
                help="wrap the keys of every package and *.sealed file below DIR anew, then "
                "shred the old keys: name every folder that uses them; may be repeated; "
                "default: nothing is wrapped anew and old keys are kept",
            )
            action.add_argument(
                "--rewrap-expiring", type=Path, action="append", default=[], metavar="DIR",
                help="likewise, of files that go by themselves, as a service's jobs: one that no "
                "key opens any more is named and passed over",
            )  # fmt: skip
            action.add_argument(
                "--distrust", action="store_true",
                help="believe nothing that the former keys signed, as after a theft: publish, "
                "promote and make tokens again; default: packages and, for a day, tokens go on",
            )  # fmt: skip


def _files_options(command: argparse.ArgumentParser) -> argparse.ArgumentParser:
    _keys(command, required=True, verify_key=False)
    command.add_argument(
        "--from",
        dest="source",
        type=Path,
        required=True,
        metavar="DIR",
        help="where the files lie",
    )
    command.add_argument(
        "--fields", type=Path, required=True, metavar="FILE", help="JSON: what the model is"
    )
    command.add_argument(
        "--file",
        dest="files",
        action="append",
        metavar="NAME",
        help=f"a file in DIR, without .sealed; may be repeated; default: {DEFAULT_FILES[0]}",
    )
    command.add_argument(
        "--context",
        default=DEFAULT_CONTEXT,
        help="what sealed files were sealed for; {run} is lineage.run of the fields, {name} the "
        "file's name; default: %(default)s",
    )
    return command


def _deliver_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--alias", help="that is to stand for it; default: none")
    add_options(command)


def _import_options(command: argparse.ArgumentParser) -> None:
    _keys(command, required=True)
    _alias(command)
    command.add_argument("--version", type=int, required=True, help="the version that it is")
    command.add_argument(
        "--from", dest="source", type=Path, metavar="DIR",
        help="the package's folder; it is copied, and the copy checked byte by byte",
    )  # fmt: skip
    command.add_argument(
        "--keys", type=Path, metavar="FILE",
        help="the package's wrapped keys; default: keys.json in DIR",
    )  # fmt: skip
    command.add_argument(
        "--repository", metavar="HOST/NAME",
        help="instead of --from: a repository in a registry of images, with both digests",
    )  # fmt: skip
    command.add_argument(
        "--package-digest", metavar="sha256:…", help="with --repository: the package's image"
    )
    command.add_argument(
        "--keys-digest", metavar="sha256:…", help="with --repository: that of its wrapped keys"
    )
    command.add_argument(
        "--login", type=Path, metavar="FILE",
        help="with --repository: the registry's login, as Docker's config.json has it; default: "
        "none",
    )  # fmt: skip


def _unseal_options(command: argparse.ArgumentParser) -> None:
    _which(command)
    _keys(command, required=True)
    command.add_argument(
        "--to", type=Path, required=True, metavar="DIR", help="where to, in a memory file system"
    )
    command.add_argument(
        "--layout", choices=("triton", "vllm"), required=True,
        help="whose folders and files to make; vllm: of a language model, as Llama's",
    )  # fmt: skip
    command.add_argument(
        "--max-length", type=int, metavar="TOKENS",
        help="of vllm: tokens that a text may have; default: as many as the model looks back on, "
        "and one",
    )  # fmt: skip
    command.add_argument(
        "--max-batch", type=int, default=32, metavar="ROWS",
        help="most rows that are run together; default: %(default)s",
    )  # fmt: skip
    command.add_argument(
        "--gpus", type=int, default=1, help="GPUs; 0 for the CPU; default: %(default)s"
    )
    command.add_argument(
        "--accelerator", choices=("none", "tensorrt", "tensorrt-fp16"), default="none",
        help="default: %(default)s",
    )  # fmt: skip
    command.add_argument(
        "--allow-disk", action="store_true", help="write to any file system; default: memory only"
    )


def _of_model(command: argparse.ArgumentParser) -> argparse.ArgumentParser:
    _registry(command)
    command.add_argument("--model", required=True, help="the model's name")
    _json(command)
    return command


def _registry(command: argparse.ArgumentParser) -> None:
    command.add_argument("--registry", type=Path, required=True, help="the registry's folder")


def _json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print one JSON object")


def _alias(command: argparse.ArgumentParser) -> None:
    command.add_argument("--alias", default=PRODUCTION, help="default: %(default)s")


def _which(command: argparse.ArgumentParser) -> None:
    which = command.add_mutually_exclusive_group()
    which.add_argument("--version", type=int, help="default: what --alias stands for")
    which.add_argument("--alias", default=PRODUCTION, help="default: %(default)s")


def _keys(command: argparse.ArgumentParser, *, required: bool, verify_key: bool = True) -> None:
    what = "" if required else "; default: nothing is verified"
    command.add_argument(
        "--keyring", type=Path, required=required, metavar="DIR", help=f"the key ring{what}"
    )
    if verify_key:
        command.add_argument(
            "--verify-key",
            type=Path,
            metavar="FILE",
            help="trusted public key, PEM; default: the key ring's signing.pub.pem",
        )


def _signing(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--keyring", type=Path, metavar="DIR",
        help="signs the list of aliases; default: it isn't signed",
    )  # fmt: skip


Answer = tuple[dict[str, Any], str]
"""What a command did: for machines, and for people."""

DONE, FAILED, INTERRUPTED = 0, 1, 75
MAX_BATCH = 4096


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; a person's mistake never shows a trace."""
    options = parser().parse_args(arguments)
    name = f"keyring {options.action}" if options.command == "keyring" else options.command
    try:
        answer, text = _COMMANDS[name](options)
        print(json.dumps(answer, ensure_ascii=False) if options.json else text, flush=True)
    except RegistryError as error:
        print(f"error: {error}", file=sys.stderr)
        return LOST
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
    done = rotation.rotate(
        keyring, options.rewrap, expiring=options.rewrap_expiring, distrust=options.distrust
    )
    answer, text = _shown(keyring)
    more = (
        f"{done.rewrapped} files wrapped anew; keys retired: {', '.join(done.retired) or 'none'}"
    )
    skipped = [f"passed over, for no key opens it: {each}" for each in done.damaged]
    facts = {"rewrapped": done.rewrapped, "retired": done.retired, "damaged": done.damaged}
    return answer | facts, "\n".join((text, more, *skipped))


def _keyring_shred(options: argparse.Namespace) -> Answer:
    shred_keyring(options.path)
    return {"path": str(options.path), "shredded": True}, f"shredded the keys in {options.path}"


def _keyring_pack(options: argparse.Namespace) -> Answer:
    data = pack(KeyRing.open(options.path), signs=options.signs)
    encoded = base64.b64encode(data).decode()
    if options.to is None:
        return {"path": str(options.path), "keyring": encoded}, encoded
    write_atomic(options.to, data)
    return {"path": str(options.path), "to": str(options.to)}, f"packed into {options.to}"


def _keyring_unpack(options: argparse.Namespace) -> Answer:
    keyring = unpack(options.source, options.path, signs=options.signs)
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


def _deliver(options: argparse.Namespace) -> Answer:
    shelf = shelf_at(str(options.to), options.login)
    keyring = KeyRing.open(options.keyring)
    fields = read_fields(options.fields)
    names: list[str] = options.files or list(DEFAULT_FILES)
    files = read_files(options.source, names, fields, keyring, options.context)
    with tempfile.TemporaryDirectory(prefix="falaj-delivery-") as staging:
        done = deliver(
            shelf, Content(options.model, files, fields),
            Signer(keyring, NothingSeen(), options.days), alias=options.alias,
            staging=Path(staging), say=lambda line: print(line, file=sys.stderr, flush=True),
        )  # fmt: skip
    answer: dict[str, Any] = {
        "model": options.model,
        "version": done.package.version,
        "reference": f"{shelf.repository(options.model)}@{done.package.itself.digest}",
        "packageDigest": done.package.itself.digest,
        "keysDigest": done.keys.itself.digest,
        "created": done.created,
        "alias": options.alias,
    }
    verb = "delivered" if done.created else "was delivered already:"
    return answer, f"{verb} {options.model} version {answer['version']} ({answer['reference']})"


def _wanted(store: Store, options: argparse.Namespace, keyring: KeyRing) -> int:
    if options.version is not None:
        return int(options.version)
    return store.trusted(options.model, options.alias, keyring).version


def _verify(options: argparse.Namespace) -> Answer:
    keyring = KeyRing.open(options.keyring)
    trusted = read_public_key(options.verify_key) if options.verify_key else keyring.verify_key()
    store = Store(options.registry)
    package = store.verify(options.model, _wanted(store, options, keyring), keyring, trusted)
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
    images = _images(options)
    keyring = KeyRing.open(options.keyring)
    trusted = read_public_key(options.verify_key) if options.verify_key else keyring.verify_key()
    store = Store(options.registry, keyring)
    if images is None:
        package = import_package(
            store, options.model, options.version, options.source, keys=keyring,
            verify_key=trusted, wrapped_keys=options.keys,
        )  # fmt: skip
    else:
        package = import_images(
            store, options.model, options.version, images, keys=keyring, verify_key=trusted
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


def _images(options: argparse.Namespace) -> tuple[Image, Image] | None:
    """The package's image and that of its keys in a registry of images; None: it is in a folder.

    Raises WorkloadError where the options don't say one of both, wholly.
    """
    here = {"--from": options.source, "--keys": options.keys}
    there = {
        "--repository": options.repository,
        "--package-digest": options.package_digest,
        "--keys-digest": options.keys_digest,
        "--login": options.login,
    }
    mine, theirs = (
        [n for n, value in each.items() if value is not None] for each in (here, there)
    )
    if mine and theirs:
        raise WorkloadError(
            f"{mine[0]} and {theirs[0]}: given together; a package comes from a folder (--from) "
            "or from a registry of images (--repository): give one of both"
        )
    if theirs:
        missing = [name for name in there if name not in (*theirs, "--login")]
    else:
        missing = [] if "--from" in mine else ["--from"]
    if missing:
        raise WorkloadError(
            f"{', '.join(missing)}: missing; a package comes from --from DIR, or from "
            "--repository with --package-digest and --keys-digest"
        )
    if not theirs:
        return None
    host = check_repository_name(options.repository)
    kept = Repository(options.repository, client_of(host, options.login))
    return (
        kept.image(options.package_digest, "--package-digest"),
        kept.image(options.keys_digest, "--keys-digest"),
    )


def _unseal(options: argparse.Namespace) -> Answer:
    # The layouts need ONNX, which nothing else here does.
    from falaj.workloads.registry.llama_layout import write_folder  # noqa: PLC0415
    from falaj.workloads.registry.triton_layout import Running, write_repository  # noqa: PLC0415

    if not options.allow_disk:
        require_memory(options.to)
    if not 1 <= options.max_batch <= MAX_BATCH or options.gpus < 0:
        raise WorkloadError(f"--max-batch must be 1 to {MAX_BATCH}, and --gpus 0 or more")
    keyring = KeyRing.open(options.keyring)
    trusted = read_public_key(options.verify_key) if options.verify_key else keyring.verify_key()
    store = Store(options.registry)
    package = store.load(options.model, _wanted(store, options, keyring), keyring, trusted)
    if options.layout == "vllm":
        folder = write_folder(package, options.to, options.max_length)
    else:
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
    store = _signing_store(options)
    return _moved(store.promote(options.model, options.version, options.alias))


def _rollback(options: argparse.Namespace) -> Answer:
    store = _signing_store(options)
    return _moved(store.rollback(options.model, options.alias, options.expected))


def _withdraw(options: argparse.Namespace) -> Answer:
    moved = _signing_store(options).withdraw(options.model, options.alias)
    answer: dict[str, Any] = {
        "model": moved.model, "alias": moved.alias, "version": None, "previous": moved.previous,
    }  # fmt: skip
    text = f"{moved.alias} of {moved.model}: nothing any more, before: version {moved.previous}"
    return answer, text


def _signing_store(options: argparse.Namespace) -> Store:
    return Store(options.registry, KeyRing.open(options.keyring) if options.keyring else None)


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
    events = read_events(options.registry)
    keyring = KeyRing.open(options.keyring) if options.keyring else None
    store = Store(options.registry)
    lists = {model: store.checked_list(model, keyring).number for model in store.models()}
    lines = [json.dumps(event, ensure_ascii=False) for event in events]
    lines += [f"{len(events)} events, intact; the lists of aliases are what they lead to"]
    return {"events": events, "intact": True, "lists": lists}, "\n".join(lines)


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
    "deliver": _deliver,
    "verify": _verify,
    "show": _show,
    "list": _list,
    "promote": _promote,
    "rollback": _rollback,
    "withdraw": _withdraw,
    "prune": _prune,
    "audit": _audit,
}

if __name__ == "__main__":
    sys.exit(main())
