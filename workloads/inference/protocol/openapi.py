"""What the server takes and answers, as an OpenAPI 3.1 document of the model that it serves.

Paths, methods and scopes are those of the routes, tensors those of the model, so that nothing is
said twice: a route without its words here fails. https://spec.openapis.org/oas/v3.1.1.html
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from falaj.workloads.chat import ROLES
from falaj.workloads.inference.connections import codings, http
from falaj.workloads.inference.connections.header_names import ARM, HEADER_LENGTH, IDEMPOTENCY_KEY
from falaj.workloads.inference.drift import labels
from falaj.workloads.inference.errors import OPENAI
from falaj.workloads.inference.experiment.arms import ARMS
from falaj.workloads.inference.jobs import store as jobs
from falaj.workloads.inference.language import chats, completions
from falaj.workloads.inference.language.likelihoods import MOST_LOGPROBS
from falaj.workloads.inference.protocol import extensions, oip, routes
from falaj.workloads.inference.protocol.oip import NUMPY_TYPES, Schema, TensorSpec
from falaj.workloads.inference.settings import Limits

Document = dict[str, Any]

_JSON: Final = http.JSON.decode()
_BINARY: Final = http.BINARY.decode()
_TEXT: Final = "text/plain"
_ANY_OBJECT: Final[Document] = {"type": "object"}
_NAME: Final[Document] = {"type": "string"}
_COUNT: Final[Document] = {"type": "integer", "minimum": 0}
_FLAG: Final[Document] = {"type": "boolean"}
_BYTES: Final[Document] = {"type": "string", "format": "binary"}
"""As tools know bytes, which OpenAPI 3.1 would let stand without a schema."""


class _Words(NamedTuple):
    """What is said of a route: what it does, what it answers, and what it is sent."""

    summary: str
    answer: Document
    body: Document | None = None
    kind: str = _JSON
    statuses: tuple[int, ...] = (200,)
    """With which the answer comes; others are errors."""
    deleted: Document | None = None
    """What is answered to DELETE, where that is another thing."""
    headers: Document | None = None
    """Of the answer, but not of DELETE's."""


def describe(
    places: Mapping[str, routes.Route],
    schema: Schema,
    *,
    certificates: bool,
    most_tokens: int = Limits.max_tokens,
    key: str | None = None,
) -> Document:
    """Return the document.

    Args:
        places: of a `routes.Router`: paths and their routes.
        schema: of the served model.
        certificates: whether callers may show a client certificate instead of a token.
        most_tokens: that a request may ask a language model for.
        key: header that an experiment goes by; None: there is none.
    """
    words = _words(schema, most_tokens)
    means: Document = {"bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}}
    if certificates:
        means["certificate"] = {"type": "mutualTLS"}
    paths = {
        path: _path(path, route, words[route.name], list(means))
        for path, route in sorted(places.items())
    }
    if key is not None:
        paths[f"/v2/models/{schema.name}/infer"]["post"]["parameters"] += [
            _header(key, _NAME, "Whose the request is: one value always meets one version."),
            _header(ARM.decode(), {"enum": [*ARMS]}, "For testers: which version is to answer."),
        ]  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"Model {schema.name}",
            "version": schema.version,
            "description": f"Version {schema.version} of {schema.name}, by the Open Inference "
            "Protocol v2. Beside each way to prove who calls stands the scope that it needs, "
            f"which may be held for this model alone, as in predict:{schema.name}.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": means,
            "schemas": {
                "Error": _object({"error": _NAME}),
                "LanguageError": _LANGUAGE_ERROR,
                "InferRequest": _request(schema),
                "InferAnswer": _answer(schema),
                **_values(schema.inputs.values()),
            },
            "responses": {
                name: {
                    "description": "What was wrong, and what to do.",
                    "headers": _OF_ERRORS,
                    "content": {_JSON: {"schema": _ref(name)}},
                }
                for name in ("Error", "LanguageError")
            },
        },
    }


# -- paths ---------------------------------------------------------------------------------


def _path(path: str, route: routes.Route, words: _Words, means: Sequence[str]) -> Document:
    found: Document = {}
    for method in (each.decode().lower() for each in route.methods):
        operation: Document = {
            "operationId": re.sub(r"\W+", "_", f"{method}{path}"),
            "summary": words.summary,
            "security": [{each: [route.scope]} for each in means] if route.scope else [],
            "responses": _responses(route, words, method, _error_at(path)),
        }
        if parameters := _parameters(path, route, words):
            operation["parameters"] = parameters
        if words.body is not None:
            operation["requestBody"] = {
                "required": route.name not in routes.BODY_OPTIONAL,
                "content": _contents(words.body, binary=route.name in _WITH_TENSORS),
            }
        found[method] = operation
    return found


def _error_at(path: str) -> str:
    return "LanguageError" if path.encode().startswith(OPENAI) else "Error"


def _responses(route: routes.Route, words: _Words, method: str, error: str) -> Document:
    headers = {} if words.headers is None else {"headers": words.headers}
    if method == "head":
        # RFC 9110, 9.3.2: as GET's, without the content.
        plain = {"description": "As of GET, without a body."}
        found = {str(status): plain | headers for status in words.statuses}
        return found | {"default": plain | {"headers": _OF_ERRORS}}
    answer: Document = {
        "description": words.summary,
        "content": _contents(words.answer, words.kind, binary=route.name in _WITH_TENSORS_BACK),
        **headers,
    }
    if route.name in (routes.COMPLETIONS, routes.CHATS):
        answer["content"][http.EVENTS.decode()] = {"schema": _NAME}
    if method == "delete" and words.deleted is not None:
        answer = {"description": "It is removed.", "content": {_JSON: {"schema": words.deleted}}}
    found = {str(status): answer for status in words.statuses}
    return found | {"default": {"$ref": f"#/components/responses/{error}"}}


def _contents(schema: Document, kind: str = _JSON, *, binary: bool) -> Document:
    found: Document = {kind: {"schema": schema}}
    return found | {_BINARY: {"schema": _BYTES}} if binary else found


_WITH_TENSORS: Final = frozenset({routes.INFER, routes.JOBS})
"""Routes that are sent tensors, in JSON or in binary."""
_WITH_TENSORS_BACK: Final = frozenset({routes.INFER, routes.JOB_RESULT})
"""Routes that answer them."""

_LENGTH_MEANS: Final = (
    "Of a body with binary tensors: how many of its bytes, counted without a content coding, are "
    "JSON; 0: all of it is the data of the model's one input."
)


def _said(schema: Document, means: str, *, required: bool = False) -> Document:
    """The description of an answer's header."""
    return {"schema": schema, "description": means, "required": required}


_LATER: Final = "Seconds after which to ask again."
_OF_ERRORS: Final[Document] = {
    "Retry-After": _said(_COUNT, f"{_LATER} Where it is worth it."),
    "WWW-Authenticate": _said(_NAME, "With 401 and 403: how to prove who calls."),
    "Allow": _said(_NAME, "With 405: the methods that the path takes."),
    "Accept-Encoding": _said(_NAME, "With 415: how a body may be compressed."),
}
_OF_TENSORS: Final[Document] = {
    HEADER_LENGTH: _said(_COUNT, _LENGTH_MEANS),
    "Falaj-Served-By": _said(_NAME, "The tier that answered, where it was another one."),
}
_OF_ACCEPTED: Final[Document] = {
    "Location": _said(
        {"type": "string", "format": "uri-reference"}, "Path of the job.", required=True
    ),
    "Retry-After": _said(_COUNT, _LATER, required=True),
}


def _parameters(path: str, route: routes.Route, words: _Words) -> list[Document]:
    found: list[Document] = [
        {"name": each, "in": "path", "required": True, "schema": _NAME}
        for each in re.findall(r"{(\w+)}", path)
    ]
    if words.body is None:
        return found
    known = ", ".join(codings.CODINGS)
    found += [
        _header("Content-Encoding", {"enum": [*codings.CODINGS, codings.IDENTITY]},
                f"How the body is compressed: {known}. Default: not."),
    ]  # fmt: skip
    if route.name in _WITH_TENSORS:
        found += [
            _header(HEADER_LENGTH, _COUNT, _LENGTH_MEANS),
            _header("X-Request-Id", _NAME, "The name of a request without an id."),
        ]
    if route.name == routes.JOBS:
        found.append(_header(IDEMPOTENCY_KEY, _KEY, _KEY_MEANS))
    return found


_KEY: Final[Document] = {
    "type": "string", "minLength": 1, "maxLength": jobs.MAX_KEY_CHARACTERS,
    "pattern": "^[!-~]+$",
}  # fmt: skip
_KEY_MEANS: Final = (
    "Chosen by the caller for one request: sent again with the same key, it is the same job; "
    "another request with it is refused with 422."
)


def _header(name: str, schema: Document, means: str) -> Document:
    return {"name": name, "in": "header", "schema": schema, "description": means}


def _words(schema: Schema, most_tokens: int) -> Mapping[str, _Words]:
    ready = {routes.READY: {"live": _FLAG, "ready": _FLAG},
             routes.MODEL_READY: {"name": _NAME, "ready": _FLAG}}  # fmt: skip
    statistics = _Words("Counts and times of requests.", _STATISTICS)
    return {
        routes.LIVE: _Words("Whether the server runs.", _object({"live": _FLAG})),
        routes.READY: _Words(
            "Whether it answers.", _object(ready[routes.READY]), statuses=(200, 503)
        ),
        routes.MODEL_READY: _Words(
            "Whether the model answers.", _object(ready[routes.MODEL_READY]), statuses=(200, 503)
        ),
        routes.SERVER: _Words("What this server is.", _SERVER),
        routes.MODEL: _Words("The model's inputs and outputs.", _METADATA),
        routes.INFER: _Words(
            "What the model answers.", _ref("InferAnswer"), body=_ref("InferRequest"),
            headers=_OF_TENSORS,
        ),
        routes.JOBS: _Words(
            "What will be answered later, by a job.", _JOB, body=_ref("InferRequest"),
            statuses=(202,), headers=_OF_ACCEPTED,
        ),
        routes.JOB: _Words(
            "How far a job is.", _JOB, deleted=_REMOVED,
            headers={"Retry-After": _said(_COUNT, f"{_LATER} Until it is done.")},
        ),
        routes.JOB_RESULT: _Words(
            "What a job has answered.", _ref("InferAnswer"),
            headers={HEADER_LENGTH: _OF_TENSORS[HEADER_LENGTH]},
        ),
        routes.METRICS: _Words("Metrics for Prometheus.", _NAME, kind=_TEXT),
        routes.DRIFT: _Words("Whether requests and answers have drifted.", _ANY_OBJECT),
        routes.FEEDBACK: _Words(
            "How many labels were joined with answers.", _object(_JOINED), body=_FEEDBACK
        ),
        routes.STATISTICS: statistics,
        routes.VERSION_STATISTICS: statistics,
        routes.CONFIGURATION: _Words(f"How {schema.name} is served.", _CONFIGURATION),
        routes.INDEX: _Words(
            "The model's versions in the registry.", _INDEX,
            body={"type": "object", "properties": {"ready": _FLAG}},
        ),
        routes.OPENAPI: _Words("This document.", _ANY_OBJECT),
        routes.COMPLETIONS: _Words(
            "How the model goes on with texts: whole, or with stream as server-sent events.",
            _COMPLETION, body=_asked(schema.name, most_tokens),
        ),
        routes.CHATS: _Words(
            "What the model answers to a conversation: whole, or with stream as server-sent "
            "events.",
            _CHAT, body=_asked_in_chat(schema.name, most_tokens),
        ),
        routes.CARDS: _Words(
            "The language model that is served.",
            _object({"object": {"const": "list"}, "data": _list(_CARD)}),
        ),
        routes.CARD: _Words("The language model of this name.", _CARD),
    }  # fmt: skip


# -- schemas -------------------------------------------------------------------------------


def _ref(name: str) -> Document:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: Document, optional: Document | None = None) -> Document:
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **(optional or {})},
    }


def _or_null(schema: Document) -> Document:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(items: Document, **more: Any) -> Document:
    return {"type": "array", "items": items, **more}


_SHAPE: Final = _list({"type": "integer"})
_DURATION: Final = _object({"count": _COUNT, "ns": _COUNT})
_TENSORS: Final = _list(_object({"name": _NAME, "datatype": _NAME, "shape": _SHAPE}))
_CONFIGURED: Final = _list(_object({"name": _NAME, "data_type": _NAME, "dims": _SHAPE}))
_SERVER: Final = _object(
    {
        "name": _NAME, "version": _NAME, "extensions": _list({"enum": [*extensions.ANNOUNCED]}),
    }
)  # fmt: skip
_METADATA: Final = _object(
    {
        "name": _NAME, "versions": _list(_NAME), "platform": _NAME, "inputs": _TENSORS,
        "outputs": _TENSORS,
    }
)  # fmt: skip
_STATISTICS: Final = _object(
    {
        "model_stats": _list(
            _object(
                {
                    "name": _NAME, "version": _NAME, "last_inference": _COUNT,
                    "inference_count": _COUNT,
                    "inference_stats": _object(
                        {"success": _DURATION, "fail": _DURATION, "queue": _DURATION},
                        {"compute_infer": _DURATION},
                    ),
                },
                {
                    "execution_count": _COUNT,
                    "batch_stats": _list(
                        _object({"batch_size": _COUNT, "compute_infer": _DURATION})
                    ),
                },
            )
        )
    }
)  # fmt: skip
_CONFIGURATION: Final = _object(
    {
        "name": _NAME, "max_batch_size": _COUNT, "input": _CONFIGURED, "output": _CONFIGURED,
        "version_policy": _ANY_OBJECT,
    },
    {
        "backend": _NAME, "instance_group": _list(_ANY_OBJECT), "parameters": _ANY_OBJECT,
        "dynamic_batching": _ANY_OBJECT,
    },
)  # fmt: skip
_INDEX: Final = _list(
    _object(
        {
            "name": _NAME, "version": _NAME, "state": {"enum": ["READY", "UNAVAILABLE"]},
            "reason": _NAME,
        }
    )
)  # fmt: skip
_JOB: Final = _object(
    {
        "id": _NAME, "state": {"enum": [*jobs.STATES]},
        "created": {"type": "string", "format": "date-time"},
        "expires": {"type": "string", "format": "date-time"},
    },
    {"error": _NAME},
)  # fmt: skip
_REMOVED: Final = _object({"id": _NAME, "state": {"const": "removed"}})
_LABEL: Final[Document] = {"type": ["string", "number", "boolean"]}
_FEEDBACK: Final = _object(
    {
        "labels": _list(
            _object(
                {
                    "id": {"type": "string", "minLength": 1, "maxLength": oip.MAX_ID_CHARACTERS},
                    "label": {"anyOf": [_LABEL, _list({"anyOf": [_LABEL, {"type": "null"}]})]},
                }
            ),
            minItems=1, maxItems=labels.MAX_LABELS,
        )
    }
)  # fmt: skip
_JOINED: Final[Document] = dict.fromkeys(("received", *labels.OUTCOMES), _COUNT)


_LANGUAGE_ERROR: Final = _object(
    {
        "error": _object(
            {
                "message": _NAME, "type": _NAME, "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            }
        )
    }
)  # fmt: skip
_CARD: Final = _object(
    {"id": _NAME, "object": {"const": "model"}, "created": _COUNT, "owned_by": _NAME}
)
_LOGPROB: Final = {"type": "number", "maximum": 0}
_LOGPROBS: Final = _object(
    {
        "tokens": _list(_NAME),
        "token_logprobs": _list({"type": ["number", "null"], "maximum": 0}),
        "top_logprobs": _list({"type": ["object", "null"], "additionalProperties": _LOGPROB}),
        "text_offset": _list(_COUNT),
    }
)
_OF_CHAT: Final = {
    "token": _NAME, "logprob": _LOGPROB, "bytes": _list(_COUNT | {"maximum": 255}),
}  # fmt: skip
_CHAT_LOGPROBS: Final = _object(
    {
        "content": _list(_object({**_OF_CHAT, "top_logprobs": _list(_object(_OF_CHAT))})),
        "refusal": {"type": "null"},
    }
)


def _completed(kind: str, said: Document, logprobs: Document) -> Document:
    """The schema of an answer with texts."""
    return _object(
        {
            "id": _NAME, "object": {"const": kind}, "created": _COUNT, "model": _NAME,
            "system_fingerprint": _NAME,
            "choices": _list(
                _object(
                    {
                        "index": _COUNT, **said, "logprobs": _or_null(logprobs),
                        "finish_reason": {"enum": ["stop", "length", None]},
                    }
                )
            ),
        },
        {
            "usage": _object(
                dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), _COUNT)
                | {"prompt_tokens_details": _object({"cached_tokens": _COUNT})}
            )
        },
    )  # fmt: skip


_COMPLETION: Final = _completed(completions.Completion.kind, {"text": _NAME}, _LOGPROBS)
_CHAT: Final = _completed(
    chats.ChatCompletion.kind,
    {
        "message": _object(
            {"role": {"const": "assistant"}, "content": _NAME, "refusal": {"type": "null"}}
        )
    },
    _CHAT_LOGPROBS,
)


def _text_or_list(most: int, **of_text: Any) -> Document:
    text = {"type": "string", **of_text}
    return {"anyOf": [text, _list(text, minItems=1, maxItems=most)]}


def _of_texts(most_tokens: int) -> Document:
    """What requests for texts may say alike."""
    known = completions
    low, high = known.SEEDS
    return {
        "max_tokens": {"type": "integer", "minimum": 1, "maximum": most_tokens},
        "temperature": {"type": "number", "minimum": 0, "maximum": known.MOST_TEMPERATURE},
        "top_p": {"type": "number", "minimum": 0, "maximum": 1},
        "n": {"type": "integer", "minimum": 1, "maximum": known.MOST_CHOICES},
        "stream": _FLAG,
        "stream_options": {
            "type": "object", "properties": {
                "include_usage": _or_null(_FLAG), known.OBFUSCATION: {"enum": [False, None]},
            },
            "additionalProperties": False,
        },
        "stop": _text_or_list(
            known.MOST_STOPS, minLength=1, maxLength=known.MOST_STOP_CHARACTERS
        ),
        "seed": {"type": "integer", "minimum": low, "maximum": high},
    }  # fmt: skip


_FEW: Final[Document] = {"type": "integer", "minimum": 0, "maximum": MOST_LOGPROBS}


def _closed(required: Document, optional: Document) -> Document:
    """The schema of a request with no other members, of which some may be null."""
    described = _object(required, {name: _or_null(each) for name, each in optional.items()})
    return described | {"additionalProperties": False}


def _asked(model: str, most_tokens: int) -> Document:
    """The schema of a request to go on with texts."""
    prompt = _text_or_list(completions.MOST_PROMPTS)
    more: Document = {"echo": _FLAG, "logprobs": _FEW, "user": _NAME}
    return _closed({"model": {"const": model}, "prompt": prompt}, _of_texts(most_tokens) | more)


def _asked_in_chat(model: str, most_tokens: int) -> Document:
    """The schema of a request to answer a conversation."""
    text = _object({"type": {"const": "text"}, "text": _NAME}) | {"additionalProperties": False}
    parts = _list(text, minItems=1, maxItems=chats.MOST_PARTS)
    message = _object(
        {
            "role": {"enum": [*ROLES, chats.DEVELOPER]},
            "content": {"anyOf": [_NAME, parts]},
        }
    )
    messages = _list(message, minItems=1, maxItems=chats.MOST_MESSAGES)
    common = _of_texts(most_tokens)
    more: Document = {
        "max_completion_tokens": common["max_tokens"], "logprobs": _FLAG, "top_logprobs": _FEW,
        **dict.fromkeys(chats.OF_CALLER, _NAME),
    }  # fmt: skip
    return _closed({"model": {"const": model}, "messages": messages}, common | more)


_FP32_ENDS: Final = 2.0**128 - 2.0**103


def _element(spec: TensorSpec, *, nullable: bool) -> Document:
    """The schema of one value in JSON."""
    kind, limits = "number", {}
    if spec.datatype == "BOOL":
        kind = "boolean"
    elif spec.datatype == "BYTES":
        kind = "string"
    elif spec.dtype.kind in "iu":
        known = np.iinfo(NUMPY_TYPES[spec.datatype])
        kind, limits = "integer", {"minimum": int(known.min), "maximum": int(known.max)}
    elif spec.datatype == "FP32":
        # Below it a number becomes FP32's largest, as which 3.4028235e38 is written.
        limits = {"exclusiveMinimum": -_FP32_ENDS, "exclusiveMaximum": _FP32_ENDS}
    return {"type": [kind, "null"] if nullable else kind, **limits}


def _takes_null(spec: TensorSpec) -> bool:
    return spec.missing or spec.datatype == "BYTES"


def _values_name(spec: TensorSpec, depth: int = 1) -> str:
    name = f"{spec.datatype}_or_null" if _takes_null(spec) else spec.datatype
    return name if depth == 1 else f"{name}_{depth}"


def _values(specs: Iterable[TensorSpec]) -> Document:
    """The schemas of inputs' data: lists, and lists of lists as deep as a shape asks for.

    One that holds itself would be shorter, but makers of clients don't take it.
    """
    found: Document = {}
    for spec in specs:
        if spec.datatype == "FP16":
            continue
        found[_values_name(spec)] = _list(_element(spec, nullable=_takes_null(spec)))
        for depth in range(2, len(spec.shape) + 1):
            found[_values_name(spec, depth)] = _list(_ref(_values_name(spec, depth - 1)))
    return found


def _data(spec: TensorSpec) -> Document:
    """The schema of an input's data, flat or nested."""
    flat, depth = _ref(_values_name(spec)), len(spec.shape)
    return {"anyOf": [flat, _ref(_values_name(spec, depth))]} if depth > 1 else flat


def _sizes(spec: TensorSpec, most_rows: int | None) -> Document:
    """The schema of a shape; of an output whose graph doesn't state one, any."""
    if most_rows is None and not spec.shape:
        return _SHAPE
    sizes: list[Document] = []
    for place, size in enumerate(spec.shape):
        free: Document = {"type": "integer", "minimum": 0 if most_rows is None else 1}
        if place == 0 and most_rows is not None:
            free["maximum"] = most_rows
        sizes.append({"const": size} if size != -1 else free)
    found: Document = {"type": "array", "minItems": len(sizes), "maxItems": len(sizes)}
    return found | {"prefixItems": sizes} if sizes else found


def _tensor(spec: TensorSpec, data: Document, shape: Document) -> Document:
    """The schema of a tensor with its data in JSON, or in binary behind it."""
    known: Document = {
        "name": {"const": spec.name}, "datatype": {"const": spec.datatype}, "shape": shape,
    }  # fmt: skip
    binary: Document = {"parameters": _object({"binary_data_size": _COUNT})}
    if spec.datatype == "FP16":  # has no form in JSON
        return {"title": spec.name, **_object(known | binary)}
    return {
        "title": spec.name,
        **_object(known, {"data": data, "parameters": _ANY_OBJECT}),
        "anyOf": [{"required": ["data"]}, {"required": ["parameters"], "properties": binary}],
    }


def _request(schema: Schema) -> Document:
    inputs = [
        _tensor(spec, _data(spec), _sizes(spec, schema.max_rows))
        for spec in schema.inputs.values()
    ]
    output = _object(
        {"name": {"enum": schema.output_names}},
        {"parameters": {"type": "object", "properties": {"binary_data": _FLAG}}},
    )
    parameters: Document = {"binary_data_output": _FLAG}
    if schema.takes_timeout:
        parameters["timeout"] = {"type": "integer", "minimum": 0, "maximum": oip.MOST_TIMEOUT}
    if schema.takes_priority:
        parameters["priority"] = {"enum": [*oip.PRIORITIES, *range(len(oip.PRIORITIES) + 1)]}
    return _object(
        {"inputs": _list({"anyOf": inputs}, minItems=len(inputs), maxItems=len(inputs))},
        {
            "id": {"type": ["string", "null"], "maxLength": oip.MAX_ID_CHARACTERS},
            "outputs": _list(output),
            "parameters": {
                "type": "object",
                "properties": parameters,
                "additionalProperties": {"type": ["string", "number", "boolean"]},
            },
        },
    )


def _answer(schema: Schema) -> Document:
    """The schema of answers; a tier that took a request over names its own version."""
    outputs = [
        _tensor(spec, _list(_element(spec, nullable=spec.dtype.kind == "f")), _sizes(spec, None))
        for spec in schema.outputs.values()
    ]
    return _object(
        {
            "model_name": {"const": schema.name},
            "model_version": {"type": "string", "examples": [schema.version]},
            "outputs": _list({"anyOf": outputs}),
        },
        {"id": _NAME},
    )
