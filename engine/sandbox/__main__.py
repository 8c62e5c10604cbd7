"""`python -m falaj.engine.sandbox`: look at the sandbox's cloud, change it, make it fail."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable

from falaj.engine.errors import EngineError
from falaj.engine.sandbox import activation, faults, models
from falaj.engine.sandbox.charts import library, modules
from falaj.engine.sandbox.clouds.model import Made
from falaj.engine.sandbox.drift import lose, set_property
from falaj.engine.sandbox.store import Store


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0 done, 2 it cannot be done."""
    given = _parser().parse_args(arguments)
    try:
        if given.command == "serve":
            from falaj.engine.sandbox.serving import serve  # noqa: PLC0415 - gRPC takes half a second

            serve(given.package, given.engine_address)
            return 0
        if given.command == "charts":
            _charts(given)
            return 0
        path = given.cloud or activation.cloud_file()
        store = Store(path)
        try:
            _COMMANDS[given.command](store, given)
        finally:
            store.close()
    except EngineError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m falaj.engine.sandbox", description=__doc__)
    parser.add_argument(
        "--cloud",
        metavar="FILE",
        help=f"the cloud's file (default: {activation.CLOUD_VARIABLE}, else Falaj's own)",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    serve = commands.add_parser("serve", help="stand in for a provider; started by the engine")
    serve.add_argument("package", choices=models.PACKAGES)
    serve.add_argument("engine_address", metavar="ENGINE_ADDRESS")
    # The engine passes its logging and tracing flags on to every plugin.
    serve.add_argument("--tracing", help=argparse.SUPPRESS)
    serve.add_argument("--logtostderr", action="store_true", help=argparse.SUPPRESS)
    serve.add_argument("-v", help=argparse.SUPPRESS)

    listed = commands.add_parser("list", help="list what exists")
    listed.add_argument("--type", help="only resources of this type, as aws:ec2/vpc:Vpc")
    listed.add_argument("--json", action="store_true", help="print one JSON array")

    show = commands.add_parser("show", help="print a resource's inputs and outputs as JSON")
    show.add_argument("resource", metavar="URN_OR_NAME")

    change = commands.add_parser("set", help="change a property behind the engine's back")
    change.add_argument("resource", metavar="URN_OR_NAME")
    change.add_argument("path", help="such as tags.owner or rules[0].port")
    change.add_argument("value", help="JSON, or else text; null takes the property away")

    gone = commands.add_parser("lose", help="remove a resource behind the engine's back")
    gone.add_argument("resource", metavar="URN_OR_NAME")

    fault = commands.add_parser("fault", help="make an operation fail")
    actions = fault.add_subparsers(dest="fault", required=True, metavar="ACTION")
    add = actions.add_parser("add", help="add a fault")
    add.add_argument("--on", required=True, choices=faults.ACTIONS)
    add.add_argument("--type", help="type of the resources meant (default: every type)")
    add.add_argument("--name", help="name of the resource meant (default: every one)")
    add.add_argument("--nth", type=int, default=1, help="which matching operation (default: 1)")
    add.add_argument("--timeout", action="store_true", help="the work is done, the answer late")
    add.add_argument("--always", action="store_true", help="every one from the n-th on, too")
    actions.add_parser("list", help="list the faults")
    actions.add_parser("clear", help="forget the faults")

    charts = commands.add_parser("charts", help="the charts that this machine has")
    ways = charts.add_subparsers(dest="charts", required=True, metavar="ACTION")
    ways.add_parser("list", help="list the charts in the folder, and where it is")
    add = ways.add_parser("add", help="put charts that lie in Go modules into the folder")
    add.add_argument("chart", nargs="*", metavar="NAME", help="such as kueue (default: all)")

    commands.add_parser("reset", help="empty the cloud and forget the faults")
    return parser


def _list(store: Store, given: argparse.Namespace) -> None:
    found = store.all(given.type)
    if given.json:
        fields = [{"urn": m.urn, "type": m.token, "id": m.id, "region": m.region} for m in found]
        _say(json.dumps(fields, indent=2))
        return
    if not found:
        _say("nothing exists in the sandbox")
    for made in found:
        _say(f"{made.stack}  {made.token}  {_name(made)}  {made.id}")


def _show(store: Store, given: argparse.Namespace) -> None:
    made = store.named(given.resource)
    fields = {
        "urn": made.urn,
        "id": made.id,
        "inputs": dict(made.inputs),
        "outputs": dict(made.outputs),
    }
    _say(json.dumps(fields, indent=2, ensure_ascii=False))


def _set(store: Store, given: argparse.Namespace) -> None:
    try:
        value = json.loads(given.value)
    except ValueError:
        value = given.value
    made = set_property(store, given.resource, given.path, value)
    _say(f"{_name(made)}: {given.path} changed; `pulumi refresh` finds it")


def _lose(store: Store, given: argparse.Namespace) -> None:
    made = lose(store, given.resource)
    _say(f"{_name(made)} is gone; `pulumi refresh` finds it")


def _fault(store: Store, given: argparse.Namespace) -> None:
    if given.fault == "add":
        fault = faults.Fault(
            given.on, given.type, given.name, given.nth, given.timeout, given.always
        )
        _say(str(faults.add(store, fault)))
    elif given.fault == "clear":
        _say(f"{faults.clear(store)} faults forgotten")
    else:
        for fault in faults.listed(store):
            _say(str(fault))


def _charts(given: argparse.Namespace) -> None:
    folder = library.folder()
    found = modules.add(given.chart, folder) if given.charts == "add" else library.listed(folder)
    _say(f"{len(found)} charts in {folder}")
    for chart in found:
        _say(f"{chart.name} {chart.version}")


def _reset(store: Store, given: argparse.Namespace) -> None:
    del given
    count = store.clear()
    _say(f"{count} resources gone; `pulumi refresh` drops them from their stacks")


def _name(made: Made) -> str:
    return made.urn.split("::", 3)[-1]


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


_COMMANDS: dict[str, Callable[[Store, argparse.Namespace], None]] = {
    "list": _list,
    "show": _show,
    "set": _set,
    "lose": _lose,
    "fault": _fault,
    "reset": _reset,
}


if __name__ == "__main__":
    sys.exit(main())
