"""What ``falaj up`` prints at its end: the endpoint, how to call it, figures, how to go on."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from falaj.stacks.command import installation, project
from falaj.stacks.command.console import table
from falaj.stacks.command.project import StackFile
from falaj.stacks.command.service import read_account, text_endpoint
from falaj.stacks.errors import StackError
from falaj.stacks.watching.aliases import alias_of, second_alias
from falaj.wire.documents import is_mapping, is_sequence
from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization import card_text
from falaj.workloads.registry.layout import manifest_of

#: Columns that are listed; the page in the package lists all.
_SHOWN: Final = 12
#: Values of a row that are written out, even where all are the same: those of a digit are 64.
_LONG: Final = 64


def summary(outputs: Mapping[str, Any], stack: StackFile) -> str:
    """The closing text for a local stack, from its outputs."""
    request = _example(outputs)
    endpoint = str(outputs["endpoint"])
    is_chat = "messages" in request
    is_text = is_chat or "prompt" in request
    if is_text:
        endpoint = text_endpoint(endpoint, is_chat=is_chat)
    return "\n".join(
        [
            f"Serving {outputs['model']} version {served(outputs, stack)} at {endpoint}",
            "",
            _figures(outputs),
            "",
            *_card(outputs),
            "Call it with curl:",
            f"  {curl(_token(stack), outputs['caCertificate'], endpoint, request)}",
            "",
            *([] if is_text else _triton(outputs, request, stack)),
            f"See it work:   {project.command('demo', stack)}",
            f"In a browser:  {project.command('open', stack)}",
            f"What runs:     {project.command('status', stack)}",
            f"Change it:     edit {stack.shown_path}, then {project.command('up', stack)}",
            f"Go back:       {project.command('rollback', stack)}",
            f"Remove it all: {project.command('down', stack)}",
        ]
    )


def served(outputs: Mapping[str, Any], stack: StackFile) -> str:
    """The version that answers now, and why it is not the newest one where it is not."""
    config = read_account(Path(outputs["serviceConfig"]))
    state = read_account(Path(config["state"]))
    now, newest = state.get("version"), outputs["version"]
    if now == newest:
        return str(newest)
    figures = f"the figures below are those of version {newest}"
    seconds = ("shadow", "shadow"), ("experiment", "candidate")
    asked = [(*each, alias) for each in seconds if (alias := second_alias(config, each[0]))]
    if not asked:
        return f"{now} (rolled back; {figures})"
    word, noun, alias = asked[0]
    try:
        second = alias_of(config, alias)
    except WorkloadError as error:
        raise StackError(str(error)) from None
    if second is None or second.version != newest:
        return f"{now} ({figures}, which doesn't serve)"
    promote = project.falaj(f"{word} promote", stack)
    return f"{now} ({figures}, its {noun}, which serves after: {promote})"


def _figures(outputs: Mapping[str, Any]) -> str:
    evaluation = cast("dict[str, Any]", outputs["evaluation"])
    metric = str(evaluation["metric"])
    # What an earlier version of the software left has no 4 bits; only language models do.
    models = {"float": evaluation["float"], "INT8": evaluation["int8"]}
    if evaluation.get("int4", {}).get("metric") is not None:
        models["INT4"] = evaluation["int4"]
    rows: list[tuple[str, ...]] = [("held-out rows", *models, "")]
    rows.append((metric, *(_metric(metric, each) for each in models.values()), ""))
    rows.append(("size", *map(_bytes, models.values()), ""))
    rows.append(("latency, one thread", *map(_latency, models.values()), ""))
    accepted = str(evaluation["accepted"])
    served = accepted if accepted == "float" else accepted.upper()
    return table(rows) + f"\n  served: {served} ({evaluation['reason']})"


def _card(outputs: Mapping[str, Any]) -> list[str]:
    """What the newest version is worth, beside guessing, and what it was made of."""
    model, version = str(outputs["model"]), str(outputs["version"])
    manifest = read_account(manifest_of(outputs["registry"], model, version))
    found = card_text.lines(manifest, most=_SHOWN)
    return [table([("what it is worth", ""), *found]), ""] if found else []


def _metric(name: str, figures: Mapping[str, Any]) -> str:
    if figures.get("metric") is None:
        return "-"
    value = float(figures["metric"])
    return f"{value:.2%}" if name == "accuracy" else f"{value:.5g}"


def _bytes(figures: Mapping[str, Any]) -> str:
    return (
        "-" if figures.get("sizeBytes") is None else f"{int(figures['sizeBytes']) / 1024:.1f} KiB"
    )


def _latency(figures: Mapping[str, Any]) -> str:
    return "-" if figures.get("latencyUs") is None else f"{float(figures['latencyUs']):.1f} µs"


def _example(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """A request body that the model accepts: a digit, the table's typical row, or a beginning."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "falaj.workloads.demo", "--example",
         "--config", outputs["serviceConfig"], "--dataset", outputs["dataset"],
         "--keyring", outputs["keyring"]],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise StackError(f"no example request could be made: {done.stderr.strip()}")
    return cast("dict[str, Any]", json.loads(done.stdout))


def _token(stack: StackFile) -> str:
    return project.command("token", stack, quiet=True)


def curl(
    token: str, authority: str, address: str, request: Mapping[str, Any] | None = None
) -> str:
    """A call of the server by curl, to be pasted into a shell.

    Args:
        token: the command that prints the token's header.
        authority: the certificate file of the stack's authority.
        address: what to ask for.
        request: what to send, as JSON. Default: nothing, it is a GET.
    """
    # The token goes through a pipe: a command line can be read by other users of the machine.
    call = f"{token} | curl -sS --cacert {shlex.quote(authority)} -H @- \\\n    {address}"
    if request is None:
        return call
    if any(_is_of_one_value(entry["data"]) for entry in request.get("inputs", ())):
        program = f"import json; print(json.dumps({_written(request)}))"
        return f'{call} \\\n    -d "$({installation.python()} -c {shlex.quote(program)})"'
    body = json.dumps(request, separators=(",", ":"), ensure_ascii=False)
    return f"{call} \\\n    -d {shlex.quote(body)}"


def _written(value: Any) -> str:
    """A value in Python, without single quotes; a long list of the same is written shortly."""
    if is_mapping(value):
        known = (f"{_written(key)}: {_written(each)}" for key, each in value.items())
        return "{" + ", ".join(known) + "}"
    if is_sequence(value) and _is_of_one_value(value):
        return f"[{_written(value[0])}] * {len(value)}"
    if is_sequence(value):
        return f"[{', '.join(map(_written, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _is_of_one_value(data: Any) -> bool:
    return len(data) > _LONG and data.count(data[0]) == len(data)


def _triton(outputs: Mapping[str, Any], request: Mapping[str, Any], stack: StackFile) -> list[str]:
    return ["Call it with tritonclient:", _tritonclient(outputs, request, stack), ""]


def _tritonclient(outputs: Mapping[str, Any], request: Mapping[str, Any], stack: StackFile) -> str:
    address = str(outputs["endpoint"]).removeprefix("https://").partition("/")[0]
    fields = ("name", "datatype", "shape", "data")
    tensors = ", ".join(
        f"({', '.join(_written(entry[field]) for field in fields)})" for entry in request["inputs"]
    )
    token = shlex.split(_token(stack))
    return f"""{installation.python()} - <<'EOF'
import subprocess, numpy as np, tritonclient.http as triton
from tritonclient.utils import triton_to_np_dtype
header = subprocess.check_output({token!r}, text=True).strip()
client = triton.InferenceServerClient({address!r}, ssl=True,
    ssl_options={{'ca_certs': {outputs["caCertificate"]!r}}})
inputs = []
for name, datatype, shape, data in [{tensors}]:
    tensor = triton.InferInput(name, shape, datatype)
    kind = object if datatype == 'BYTES' else triton_to_np_dtype(datatype)
    tensor.set_data_from_numpy(np.array(data, dtype=kind).reshape(shape))
    inputs.append(tensor)
result = client.infer({outputs["model"]!r}, inputs,
    headers=dict([header.split(': ', 1)]))
for output in result.get_response()['outputs']:
    print(output['name'], result.as_numpy(output['name']))
EOF"""
