"""``python -m falaj.workloads.inference serve|configure|token|revoke|status|audit``."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import orjson
import psutil
import uvloop

from falaj.workloads.errors import WorkloadError
from falaj.workloads.inference import auth, configuration, settings
from falaj.workloads.inference.process import logs
from falaj.workloads.inference.process.master import Master


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="falaj.workloads.inference", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="serve a model until SIGTERM")
    serve.add_argument("--config", type=Path, required=True, help="the service.json")
    configuration.add_options(commands.add_parser("configure", help="write a service.json"))
    token = commands.add_parser("token", help="make a bearer token")
    token.add_argument("--key", type=Path, required=True, help="the token key (tokens.pem)")
    token.add_argument("--issuer", required=True)
    token.add_argument("--audience", required=True)
    token.add_argument("--subject", required=True, help="whom the logs shall name")
    token.add_argument(
        "--scope", action="append", required=True, help=f"one of {', '.join(settings.SCOPES)}"
    )
    token.add_argument("--minutes", type=float, default=60, help="validity (default 60)")
    token.add_argument(
        "--long-lived", action="store_true",
        help=f"allow more than {auth.USUAL_MINUTES} minutes, for services that do",
    )  # fmt: skip
    token.add_argument(
        "--header", action="store_true", help="print the whole Authorization header"
    )
    revoke = commands.add_parser("revoke", help="end tokens before their time")
    revoke.add_argument("--list", type=Path, required=True, help="the service's auth.revoked")
    which = revoke.add_mutually_exclusive_group(required=True)
    which.add_argument("--subject", help="whose tokens of up to now end")
    which.add_argument(
        "--token", action="store_true", help="read one token from the standard input"
    )
    status = commands.add_parser("status", help="tell what a service does")
    status.add_argument("--config", type=Path, required=True, help="the service.json")
    status.add_argument("--json", action="store_true", help="one JSON object on the last line")
    check = commands.add_parser("audit", help="verify the audit log and what it covers")
    check.add_argument("--logs", type=Path, required=True, help="the folder of the logs")
    check.add_argument("--json", action="store_true", help="one JSON object on the last line")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns its exit status."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except WorkloadError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _run(options: argparse.Namespace) -> int:
    if options.command == "serve":
        return _serve(options.config)
    if options.command == "configure":
        made = configuration.configure(options)
        print(made.decode() if options.json else f"wrote {options.config}")
        return 0
    if options.command == "token":
        minted = auth.mint(
            options.key,
            issuer=options.issuer,
            audience=options.audience,
            subject=options.subject,
            scopes=options.scope,
            minutes=options.minutes,
            long_lived=options.long_lived,
        )
        print(f"Authorization: Bearer {minted}" if options.header else minted)
        return 0
    if options.command == "revoke":
        # Not on the command line: others of the machine read those.
        token = sys.stdin.read().strip() if options.token else None
        given = token.rpartition(" ")[2] if token is not None else None
        print(f"revoked {auth.revoke(options.list, token=given, subject=options.subject)}")
        return 0
    if options.command == "status":
        return _status(options.config, as_json=options.json)
    report = logs.verify(options.logs)
    print(json.dumps(report) if options.json else logs.format_report(report))
    return 0


def _serve(config: Path) -> int:
    async def run() -> int:
        return await Master(config.absolute()).run()

    return uvloop.run(run())


def _is_server(pid: object) -> bool:
    """Tell whether the process still is the server, and not another one with its number."""
    try:
        return (
            isinstance(pid, int) and "falaj.workloads.inference" in psutil.Process(pid).cmdline()
        )
    except psutil.Error:
        return False


def _status(config: Path, *, as_json: bool) -> int:
    known = settings.read(config)
    state: dict[str, Any] = {"status": "stopped", "error": None, "workers": []}
    with contextlib.suppress(OSError, orjson.JSONDecodeError):
        state = orjson.loads(known.state.read_bytes())
    running = _is_server(state.get("pid"))
    report = {**state, "name": known.name, "running": running}
    if not running:
        report |= {"status": "stopped" if state["status"] != "failed" else "failed", "workers": []}
    if as_json:
        print(json.dumps(report))
        return 0
    print(f"{known.name}: {report['status']}", end="")
    if running:
        print(f", version {report['version']} of {report['model']} on {known.host} "
              f"port {report['port']}, process {report['pid']}", end="")  # fmt: skip
    print(f"\n{report['error']}" if report.get("error") else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
