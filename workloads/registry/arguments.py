"""The command line's options."""

from __future__ import annotations

import argparse
from pathlib import Path

from falaj.workloads.registry.intake import DEFAULT_CONTEXT, DEFAULT_FILES
from falaj.workloads.registry.store import PRODUCTION

_DESCRIPTION = """\
Signed and encrypted model packages, the keys that protect them, and their versions.

Exit codes: 0 done; 2 refused, the reason is on stderr; 75 interrupted, run it again;
1 an error in the program."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``python -m falaj.workloads.registry``."""
    top = argparse.ArgumentParser(
        prog="python -m falaj.workloads.registry",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _keyring(commands.add_parser("keyring", help="make, show, rotate or shred a key ring"))
    _publish(_of_model(commands.add_parser("publish", help="encrypt, sign and add a version")))
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
    _import(_of_model(commands.add_parser("import", help="take over a version made elsewhere")))
    _unseal(_of_model(commands.add_parser("unseal", help="open a version for another server")))
    log = commands.add_parser("audit", help="check the log of changes and print it")
    _registry(log)
    _json(log)
    return top


def _keyring(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in (
        ("create", "make a key ring; one that is there is kept"),
        ("show", "print versions and key ids"),
        ("rotate", "make a new primary key"),
        ("shred", "overwrite and remove every key: all that they protect is lost"),
        ("pack", "write what opens packages, without the keys that sign, as one file"),
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


def _publish(command: argparse.ArgumentParser) -> None:
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


def _import(command: argparse.ArgumentParser) -> None:
    _keys(command, required=True)
    _alias(command)
    command.add_argument("--version", type=int, required=True, help="the version that it is")
    command.add_argument(
        "--from",
        dest="source",
        type=Path,
        required=True,
        metavar="DIR",
        help="the package's folder; it is copied, and the copy checked byte by byte",
    )


def _unseal(command: argparse.ArgumentParser) -> None:
    _which(command)
    _keys(command, required=True)
    command.add_argument(
        "--to", type=Path, required=True, metavar="DIR", help="where to, in a memory file system"
    )
    command.add_argument(
        "--layout", choices=("triton",), required=True, help="whose folders and files to make"
    )
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
