"""``falaj status``, ``demo``, ``token``, ``rollback``, ``logs``: a served model, looked after."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import psutil

from falaj.stacks.command import project
from falaj.stacks.command.console import say, table
from falaj.stacks.command.project import StackFile
from falaj.stacks.errors import StackError
from falaj.stacks.watching.seen import seen
from falaj.wire.documents import is_mapping, mapping, sequence
from falaj.workloads.bounds import FORMS

COMPLETIONS: Final = "v1/completions"
"""Where a server continues texts."""
ADMIN: Final = "admin"
"""The scope that is for all models."""
CHATS: Final = "v1/chat/completions"
"""Where it answers to conversations."""


def status(stack: StackFile) -> int:
    """Print what runs and where; exit status 1 when a model should be served and is not."""
    config = _config(stack)
    if config is None:
        say(f"stack {stack.name} is not up; start it with: {project.command('up', stack)}")
        return 0
    state = read_account(Path(config["state"]))
    running = _alive(state.get("pid"))
    served = running and state.get("status") == "serving"
    rows: list[tuple[str, ...]] = [
        ("what", "state", "where"),
        ("stack", stack.name, str(stack.site)),
        (
            "endpoint",
            "open" if served else "closed",
            _called_at(config, state.get("version")),
        ),
        ("model", f"{config['model']} version {state.get('version')}", str(config["registry"])),
        ("server", state.get("status", "unknown") if running else "stopped", _process(state)),
    ]
    for worker in sequence(state.get("workers")) if running else []:
        name = f"worker (version {worker['version']})"
        # Of a server that an earlier version of the software started, it isn't known.
        engine = f", {worker['engine']}" if worker.get("engine") else ""
        rows.append((name, worker["state"], f"process {worker['pid']}{engine}"))
    further = mapping(state.get("models") if running else None)
    room = state.get("models_room_bytes")
    rows += [(f"model {name}", *_further(mapping(each), room)) for name, each in further.items()]
    if running and is_mapping(state.get("shadow")):
        rows.append(("shadow", *beside(state["shadow"])))
    if running and is_mapping(state.get("experiment")):
        rows += experiment(state["experiment"])
    certificate = Path(config["tls"]["certificate"])
    rows.append(("certificate", _expiry(certificate), str(certificate)))
    watched = (seen(stack.site), *(seen(stack.site, name) for name in further))
    rows += [each for each in watched if each is not None]
    rows.append(("logs", _size(Path(config["logs"])), str(config["logs"])))
    rows.append(("disk", _size(stack.site), str(stack.site)))
    say(table(rows))
    if state.get("error"):
        say(f"\nthe server says: {state['error']}")
    if not served:
        say(f"\nbring it back with: {project.command('up', stack)}")
    away = [name for name, each in further.items() if mapping(each).get("version") is None]
    return 0 if served and not away else 1


def _further(said: Mapping[str, Any], room: int | None) -> tuple[str, str]:
    """What a server says of a further model: which version, and where it is from, or why not.

    Args:
        said: by the server.
        room: bytes of each worker that all further models may take; None: that isn't known.
    """
    version, error = said.get("version"), said.get("error")
    state = "unavailable" if version is None else f"version {version}"
    held = f"about {said.get('memory_bytes', 0) / 2**20:,.1f} MiB of each worker"
    if room is not None:
        held += f", where further models may take {room / 2**20:,.1f} MiB"
    return state, str(error) if error else f"{said.get('registry')}, {held}"


def beside(shadow: Mapping[str, Any]) -> tuple[str, str]:
    """What a server says of its shadow, in words: how it is, and what came of its copies."""
    state = f"version {shadow.get('version')}: {shadow.get('state')}"
    if shadow.get("error"):
        return state, str(shadow["error"])
    counts = mapping(shadow.get("requests"))
    figures = [f"{count:,} {name}" for name, count in counts.items() if count]
    agreement = shadow.get("agreement")
    if isinstance(agreement, int | float):
        figures.insert(0, f"{agreement:.1%} of {shadow.get('rows', 0):,} rows agree")
    copied = f"{shadow.get('percent', 0):g} % of the requests are copied"
    return state, "; ".join([", ".join(figures), copied] if figures else [copied])


def experiment(said: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What a server says of an experiment, in words: how it is, and how each arm fares."""
    state = f"version {said.get('version')}: {said.get('state')}"
    if said.get("error"):
        return [("experiment", state, str(said["error"]))]
    share = f"{said.get('share', 0):g} % of the values of {said.get('key')}"
    fell = {k: n for k, n in mapping(said.get("fallbacks")).items() if n}
    if fell:
        share += "; answered by the version that serves: " + ", ".join(
            f"{count:,} {reason}" for reason, count in fell.items()
        )
    rows = [("experiment", state, share)]
    for arm, each in mapping(said.get("arms")).items():
        found = mapping(each)
        figures = [f"{found.get('errors', 0):,} errors", f"{found.get('refused', 0):,} refused"]
        mean = found.get("mean_seconds")
        if isinstance(mean, int | float):
            figures.append(f"{1000 * mean:.3g} ms in the mean")
        if labelled := found.get("labelled"):
            wrong, rmse = found.get("wrong"), found.get("rmse")
            of = f"of {labelled:,} labelled rows"
            figures.append(
                f"{wrong / labelled:.1%} wrong {of}" if wrong is not None
                else f"an RMSE {of} of {'none' if rmse is None else format(rmse, '.4g')}"
            )  # fmt: skip
        rows.append((f"arm {arm}", f"{found.get('requests', 0):,} requests", ", ".join(figures)))
    return rows


def demo(stack: StackFile, model: str | None = None) -> int:
    """Send held-out samples to the endpoint and print predictions beside the truth.

    Raises:
        StackError: there is no such model, or no stack of the project has learned it.
    """
    config = require_config(stack)
    own = config_of(config, model)
    learned = stack if own is config else _maker(stack, own)
    return run_workload(
        ["falaj.workloads.demo", "--config", str(config_path(stack)),
         "--dataset", str(_dataset(learned)), "--keyring", str(config["keyring"]),
         *(() if own is config else
           ("--model", str(own["model"]), "--dataset-keyring", str(own["keyring"])))]
    )  # fmt: skip


def _maker(stack: StackFile, own: Mapping[str, Any]) -> StackFile:
    """The stack of the project whose registry a further model is from.

    Raises:
        StackError: none is.
    """
    registry = Path(str(own["registry"])).resolve()
    for name in stack.project.stack_names:
        found = stack.sibling(name)
        if registry.is_relative_to(found.site.resolve()):
            return found
    raise StackError(
        f"--model: given {own['model']!r}, which is from {registry}: no stack of this project "
        "has its data, so that nothing held out can be sent; allowed: models that a stack of the "
        "project makes (falaj:service.models.NAME.stack)"
    )


def token(
    stack: StackFile, scopes: Sequence[str] | None, minutes: int, model: str | None = None
) -> int:
    """Print ``Authorization: Bearer …`` for a request to the endpoint.

    Args:
        stack: whose server is asked.
        scopes: of the token. Default: to predict.
        minutes: that it holds.
        model: for which alone it is. Default: the scopes say so, or it is for all.

    Raises:
        StackError: a scope is none, or there is no such model.
    """
    config = require_config(stack)
    if model is not None:
        config_of(config, model)
        scopes = [_scope_of(scope, model) for scope in scopes or ["predict"]]
    for scope in scopes or ():
        _require_scope(scope, models_of(config))
    arguments = [
        "falaj.workloads.inference", "token", "--header",
        "--key", str(Path(config["keyring"]) / "tokens.pem"),
        "--issuer", str(config["auth"]["issuer"]),
        "--audience", str(config["auth"]["audience"]),
        "--subject", f"{stack.name}-operator",
        "--minutes", str(minutes),
    ]  # fmt: skip
    for scope in scopes or ["predict"]:
        arguments += ["--scope", scope]
    return run_workload(arguments)


def _scope_of(scope: str, model: str) -> str:
    """A scope for one model alone."""
    if scope == ADMIN:
        raise StackError(
            f"--scope: given {scope!r} with --model, but it is for all models always; leave "
            "--model out, or take another scope"
        )
    of = scope.partition(":")[2]
    if of not in ("", model):
        raise StackError(
            f"--scope: given {scope!r}, which is for another model than --model {model}; leave "
            "one of both out"
        )
    return scope if of else f"{scope}:{model}"


def _require_scope(scope: str, served: Sequence[str]) -> None:
    """Refuse what is no scope, or is one for a model that isn't served."""
    form = FORMS["service"]["scope"]
    if not form.allows(scope):
        raise StackError(f"--scope: given {scope!r}; allowed: {form.rule}")
    of = scope.partition(":")[2]
    if of and of not in served:
        raise StackError(
            f"--scope: given {scope!r}, but no model {of} is served; served: {', '.join(served)}"
        )


def rollback(stack: StackFile, model: str | None = None) -> int:
    """Point the model's alias at its previous version; the server follows without a pause."""
    done = roll_back(stack, model)
    if done.returncode == 0:
        say(done.stdout.rstrip())
        say(f"the server follows within about a second; see: {project.command('status', stack)}")
    else:
        sys.stderr.write(done.stderr)
    return done.returncode


def roll_back(stack: StackFile, model: str | None = None) -> subprocess.CompletedProcess[str]:
    """Point the model's alias at its previous version; what it prints is handed back.

    Args:
        stack: whose server has the model.
        model: which. Default: the first. The alias of a further one is in its own registry, so
            that whoever else follows it goes back as well.

    Raises:
        StackError: the stack serves nothing, or no such model.
    """
    arguments = rollback_arguments(config_of(require_config(stack), model))
    return subprocess.run(
        [sys.executable, "-P", "-m", *arguments], capture_output=True, text=True, check=False
    )


def rollback_arguments(config: Mapping[str, Any]) -> list[str]:
    """The workload, and its arguments, that let a server's alias stand for the version before."""
    return registry_arguments("rollback", config, str(config["alias"]))


def registry_arguments(verb: str, config: Mapping[str, Any], alias: str, *more: str) -> list[str]:
    """The workload, and its arguments, that change what an alias of the model stands for."""
    return [
        "falaj.workloads.registry", verb, "--registry", str(config["registry"]),
        "--model", str(config["model"]), "--alias", alias, "--keyring", str(config["keyring"]),
        *more,
    ]  # fmt: skip


def logs(stack: StackFile, lines: int) -> int:
    """Print the last lines of the server's logs."""
    config = require_config(stack)
    for path in sorted(Path(config["logs"]).glob("*")):
        if path.suffix in {".log", ".jsonl"}:
            say(f"==> {path}")
            with path.open(encoding="utf-8", errors="replace") as file:
                for line in deque(file, maxlen=max(lines, 0)):
                    say("  " + line.rstrip("\n"))
    return 0


def refuse_workload(workload: str | None) -> None:
    """Refuse a name. Raises StackError: a stack of one machine serves one model."""
    if workload is not None:
        raise StackError(
            f"WORKLOAD: given {workload!r}; allowed: nothing, as a stack of one machine serves "
            "one model"
        )


def config_path(stack: StackFile) -> Path:
    """Where what the stack's server was told stands; no such file if it serves nothing."""
    return next(iter(sorted(stack.site.glob("service/*/service.json"))), stack.site / "service")


def _config(stack: StackFile) -> dict[str, Any] | None:
    path = config_path(stack)
    return read_account(path) if path.is_file() else None


def serves(stack: StackFile) -> bool:
    """Whether the stack's server was told to serve something."""
    return _config(stack) is not None


def require_config(stack: StackFile) -> dict[str, Any]:
    """What the stack's server was told. Raises StackError: the stack serves nothing."""
    config = _config(stack)
    if config is None:
        raise StackError(
            f"stack {stack.name} serves nothing; start it with: {project.command('up', stack)}"
        )
    return config


def models_of(config: Mapping[str, Any]) -> list[str]:
    """The names of a server's models, the first one first."""
    return [str(config["model"]), *mapping(config.get("models"))]


def config_of(config: Mapping[str, Any], model: str | None) -> Mapping[str, Any]:
    """What a server was told, as it holds for one of its models: name, registry, keys, alias.

    Args:
        config: what it was told.
        model: which. Default: the first; for that, the same ``config`` is returned.

    Raises:
        StackError: it has no such model.
    """
    if model in (None, config["model"]):
        return config
    further = mapping(config.get("models"))
    if model not in further:
        raise StackError(
            f"--model: given {model!r}, which the server hasn't; allowed: "
            f"{', '.join(models_of(config))}"
        )
    return {**config, **mapping(further[model]), "model": model}


def _dataset(stack: StackFile) -> Path:
    from falaj.stacks.command.pulumi import Pulumi  # noqa: PLC0415 - finding the engine takes time

    outputs = Pulumi(stack).outputs()
    if "dataset" not in outputs:
        raise StackError(
            f"stack {stack.name} is not complete; finish it with: {project.command('up', stack)}"
        )
    return Path(outputs["dataset"])


def run_workload(arguments: Sequence[str]) -> int:
    """Run a workload's command line with what is seen here; returns its exit status.

    Raises:
        KeyboardInterrupt: it was interrupted, and has ended in its own way.
    """
    process = subprocess.Popen([sys.executable, "-P", "-m", *arguments])
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.terminate()  # a terminal has interrupted it as well, others have not
        process.wait()
        raise
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def read_account(path: Path) -> dict[str, Any]:
    """A JSON file that the service keeps about itself; empty when there is none.

    Raises:
        StackError: it can't be read.
    """
    try:
        return cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise StackError(f"{path} cannot be read: {error}") from None


def _alive(pid: int | None) -> bool:
    return pid is not None and psutil.pid_exists(pid)


def _process(state: dict[str, Any]) -> str:
    pid = state.get("pid")
    if not _alive(pid):
        return "no process"
    memory = sum(
        process.memory_info().rss
        for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    )
    return f"process {pid}, {memory / 2**20:.0f} MiB with its workers"


def endpoint(host: str, port: int, model: str) -> str:
    """The address at which a server predicts."""
    return f"https://{host}:{port}/v2/models/{model}/infer"


def text_endpoint(endpoint: str, *, is_chat: bool) -> str:
    """The address at which a server continues a text, or answers to a conversation."""
    return f"{endpoint.partition('/v2/')[0]}/{CHATS if is_chat else COMPLETIONS}"


def _called_at(config: Mapping[str, Any], version: object) -> str:
    """The address that a caller of the version that serves asks."""
    # Only `status` looks into packages.
    from falaj.workloads.chat import described_template  # noqa: PLC0415
    from falaj.workloads.registry.layout import manifest_of  # noqa: PLC0415
    from falaj.workloads.training.record import LANGUAGE  # noqa: PLC0415

    found = endpoint(config["host"], config["port"], config["model"])
    manifest = read_account(manifest_of(config["registry"], config["model"], version))
    if manifest.get("task") != LANGUAGE:
        return found
    is_chat = described_template(manifest.get("dataset")) is not None
    return text_endpoint(found, is_chat=is_chat)


def _expiry(path: Path) -> str:
    # Only `status` reads certificates.
    from falaj.stacks.certificates import certificate_of  # noqa: PLC0415

    days = certificate_of(path).days
    return "missing" if days is None else f"{days} days left"


def _size(path: Path) -> str:
    total = sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file())
    return f"{total / 2**20:.1f} MiB"
