"""Where models come from: stores of one's own, not a hub abroad."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Rule,
    Severity,
    format_value,
    get,
    is_unknown,
    items,
    rule,
    text,
)
from falaj.policies.reading.kubernetes import ANY_OBJECT
from falaj.policies.reading.pod_checks import each_container
from falaj.policies.reading.pods import Container

_OPTION: Final = re.compile(
    r"--?(?:hf-|served-)?(?:model|tokenizer|draft-model|speculative-model|lora-modules)"
    r"(?:[-_](?:id|name|path|name-or-path|name_or_path|repo))?(?:=(.*))?",
    re.I,
)
#: Options that name a model for its users only.
_SHOWN: Final = re.compile(r"--?(?:served-model-name|model[-_]name)(?:=.*)?", re.I)
#: A model of a hub: an organisation and a name.
_OF_HUB: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_FOLDERS: Final = frozenset({
    "model", "models", "mnt", "data", "weights", "checkpoints", "checkpoint", "opt", "srv", "var",
    "tmp", "home", "workspace", "cache", "artifacts",
})  # fmt: skip
_ELSEWHERE: Final = frozenset({
    "HF_ENDPOINT", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "VLLM_USE_MODELSCOPE",
})  # fmt: skip
_SETTINGS: Final = frozenset(
    {"MODEL_ID", "HF_MODEL_ID", "MODEL_NAME_OR_PATH", "HF_MODEL", "LLM_MODEL_ID"}
)


@rule(
    "kubernetes-model-hub",
    "Models aren't fetched from a hub abroad",
    Severity.MEDIUM,
    ANY_OBJECT,
    ("iso27001:A.5.21", "iso27001:A.8.12", "uae-ia:T6.3.1", "nist-800-207:5"),
    "Mount the model as an image volume or a claim and name its folder, or set HF_ENDPOINT to a "
    "mirror of your own.",
)
@each_container()
def model_hub(container: Container, context: Context) -> Iterator[Finding]:
    """A model named by organisation and name is fetched from Hugging Face by default.

    What is fetched isn't pinned, and the hub learns what runs here.
    """
    env = items(container.get("env"))
    names = {text(get(each, "name")) for each in env if isinstance(each, Mapping)}
    if names & _ELSEWHERE or is_unknown(container.get("env")):
        return
    for path, value in (*_arguments(container, "command"), *_arguments(container, "args")):
        yield from _judge(container, path, value)
    for index, each in enumerate(env):
        if text(get(each, "name")) in _SETTINGS:
            value = get(each, "value")
            path = f"env[{index}].value"
            if is_unknown(value):
                yield container.indeterminate(path, f"which model it is {value.reason}")
            yield from _judge(container, path, value)


def _arguments(container: Container, key: str) -> Iterator[tuple[str, Any]]:
    """Values of options that name a model, with their paths."""
    given = items(container.get(key))
    for index, each in enumerate(given):
        found = _OPTION.fullmatch(text(each))
        if found is None or _SHOWN.fullmatch(text(each)):
            continue
        if found[1] is not None:
            yield f"{key}[{index}]", found[1]
        elif index + 1 < len(given):
            yield f"{key}[{index + 1}]", given[index + 1]


def _judge(container: Container, path: str, value: Any) -> Iterator[Finding]:
    given = text(value) if value is not ABSENT else ""
    if _OF_HUB.fullmatch(given) and given.partition("/")[0].lower() not in _FOLDERS:
        yield container.violation(
            path,
            f"{format_value(given)} is fetched from huggingface.co, for HF_ENDPOINT isn't set",
        )


RULES: tuple[Rule, ...] = (model_hub,)
