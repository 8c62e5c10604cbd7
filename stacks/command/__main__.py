"""``falaj``: bring stacks up and down, and look after what they serve."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from falaj.engine.errors import EngineError
from falaj.engine.sandbox.__main__ import main as sandbox_command
from falaj.engine.short_lived import collect_rarely
from falaj.policies.model import PolicyError
from falaj.stacks.command import check, lifecycle, policies, reference, service
from falaj.stacks.command.console import complain
from falaj.stacks.command.images import images_command
from falaj.stacks.command.lifecycle import Call
from falaj.stacks.command.preflight import preflight
from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.command.pulumi import INTERRUPTED
from falaj.stacks.command.testplane import use_cluster
from falaj.stacks.errors import StackError

_COMMANDS: dict[str, tuple[str, Callable[[Call, argparse.Namespace], int]]] = {
    "up": (
        "bring a stack to what its file says",
        lambda call, _: lifecycle.up(call),
    ),
    "preview": (
        "show what `up` would change, and change nothing",
        lambda call, _: lifecycle.preview(call),
    ),
    "refresh": (
        "read what is really there, so that the next `up` mends drift",
        lambda call, _: lifecycle.refresh(call),
    ),
    "down": (
        "destroy everything of a stack (what it retains stays)",
        lambda call, _: lifecycle.down(call),
    ),
    "shell": (
        "open a shell in which plain `pulumi` commands work",
        lambda call, _: lifecycle.shell(call),
    ),
    "new": (
        "make a stack's file from a template",
        lambda call, options: lifecycle.new(call, options.template),
    ),
    "status": (
        "show what runs and where",
        lambda call, _: lifecycle.status(call),
    ),
    "demo": (
        "send held-out samples to the served model",
        lambda call, _: service.demo(call.stack),
    ),
    "token": (
        "print an authorisation header for the served model",
        lambda call, options: service.token(call.stack, options.scope, options.minutes),
    ),
    "rollback": (
        "serve the model's previous version again",
        lambda call, _: service.rollback(call.stack),
    ),
    "logs": (
        "show the server's latest log lines",
        lambda call, options: service.logs(call.stack, options.lines),
    ),
    "preflight": (
        "ask the real cloud whether a stack could be deployed; changes nothing",
        lambda call, options: preflight(call.stack, health=options.health),
    ),
    "settings": (
        "describe the keys of a stack file: their meaning, what is allowed, the defaults",
        lambda _, options: reference.settings(options.asked, options.schema),
    ),
}
#: Commands about the policies, which know no single stack.
_JUDGING: dict[str, tuple[str, Callable[[Project, argparse.Namespace], int]]] = {
    "check": (
        "judge stacks by the policy packs: previews in the sandbox, exported states, live stacks",
        check.check,
    ),
    "report": (
        "write the evidence of a check: one HTML file, by control",
        check.report,
    ),
    "policies": (
        "list the rules, the types they know, and what to suppress in other scanners",
        policies.policies,
    ),
}
#: Commands that read their own options, `--help` among them.
_OWN_PARSERS: dict[str, Callable[[list[str]], int]] = {
    "sandbox": sandbox_command,
    "images": images_command,
}
#: Commands that can go to the sandbox.
_SANDBOXED = ("up", "preview", "refresh", "down", "shell", "status")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status: 0 done, 1 failed, 2 refused, 130 interrupted."""
    collect_rarely()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given and given[0] in _OWN_PARSERS:
            return _OWN_PARSERS[given[0]](given[1:])
        options = _parser().parse_args(given)
        folder = getattr(options, "project", None)
        project = Project.find(Path(folder) if folder else None)
        if options.command in _JUDGING:
            return _JUDGING[options.command][1](project, options)
        stack = StackFile(getattr(options, "stack", "local"), project)
        call = Call(stack, getattr(options, "sandbox", False))
        cluster = getattr(options, "cluster", None)
        if cluster is not None:
            use_cluster(cluster, sandbox=call.sandbox)
        return _COMMANDS[options.command][1](call, options)
    except (StackError, EngineError, PolicyError) as error:
        complain(str(error))
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output left (`falaj status | head`): nobody is there to be told.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="falaj", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (help_text, _) in _COMMANDS.items():
        command = commands.add_parser(name, help=help_text, description=help_text)
        if name != "settings":
            command.add_argument(
                "--stack", default="local", help="the stack's name (default: local)"
            )
            command.add_argument(
                "--project",
                metavar="FOLDER",
                help="folder with the Pulumi.yaml (default: the working folder if it has one, "
                "else Falaj's own)",
            )
        if name == "settings":
            command.add_argument(
                "asked",
                nargs="?",
                default="",
                metavar="KEY",
                help="a kind of stack (smb), a key (falaj:service.port) or a part of one "
                "(default: all)",
            )
            command.add_argument(
                "--schema",
                nargs="?",
                const="-",
                metavar="FILE",
                help="write the JSON Schema of stack files instead (default: to the output)",
            )
        if name in _SANDBOXED:
            command.add_argument(
                "--sandbox",
                action="store_true",
                default=os.environ.get("SANDBOX") == "1",
                help="let stand-ins answer for the cloud: no credentials, no network, nothing "
                "real (also SANDBOX=1, or falaj:sandbox in the stack's file)",
            )
            command.add_argument(
                "--cluster",
                nargs="?",
                const="",
                metavar="KUBECONFIG",
                help="in the sandbox, apply Kubernetes objects to a test control plane (default: "
                "the one that `make cluster` started)",
            )
        if name == "new":
            command.add_argument("--template", default="local", help="default: local")
        if name == "token":
            command.add_argument(
                "--scope",
                action="append",
                choices=["predict", "observe", "admin"],
                help="may be given more than once (default: predict)",
            )
            command.add_argument(
                "--minutes", type=int, default=60, help="how long it is valid (default: 60)"
            )
        if name == "preflight":
            command.add_argument(
                "--health",
                action="store_true",
                help="ask AWS Health as well, which answers from another country only",
            )
        if name == "logs":
            command.add_argument("--lines", type=int, default=20, help="default: 20")
    for name, (help_text, _) in _JUDGING.items():
        command = commands.add_parser(name, help=help_text, description=help_text)
        if name == "policies":
            policies.add_options(command)
            continue
        check.add_options(command)
        if name == "check":
            check.add_formats(command)
        else:
            command.add_argument(
                "--from",
                dest="result",
                metavar="FILE",
                help="what `falaj check --json FILE` wrote (default: check now)",
            )
            command.add_argument("--out", default="evidence.html", help="default: evidence.html")
    # Read by parsers of their own; here for `falaj --help`.
    commands.add_parser(
        "images",
        help="list, pin, mirror and build what clusters run (try: falaj images --help)",
    )
    commands.add_parser(
        "sandbox",
        help="look at the sandbox's cloud, change it, make it fail (try: falaj sandbox --help)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
