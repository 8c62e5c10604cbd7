"""What `falaj.components.local.InferenceService` takes."""

from typing import Annotated, Final, NotRequired

from falaj.components.local.arguments import NAME, PATH, REPLACES, SupervisedArgs
from falaj.components.specification.arguments import Default, Input
from falaj.components.specification.described import described
from falaj.components.specification.drift import ALPHA, WINDOW_ROWS, WINDOW_SECONDS
from falaj.components.specification.limits import PORT, VERSION
from falaj.components.specification.workload_bounds import (
    bound,
    choice,
    experiment_key,
    experiment_name,
)

KEEP_HOURS: Final = bound("jobs", "keep_hours")
MOST_JOBS: Final = bound("jobs", "most_jobs")
MOST_BYTES: Final = bound("jobs", "most_bytes")
COPIED: Final = bound("shadow", "percent")
EXPERIMENT_KEY: Final = experiment_key()
EXPERIMENT_NAME: Final = experiment_name()
EXPERIMENT_SHARE: Final = bound("experiment", "share")
EXPERIMENT_TIMEOUT: Final = bound("experiment", "timeout_ms")
_SCOPES: Final = choice("service", "scopes")
_BODY: Final = bound("service", "max_body_bytes")
_ROWS: Final = bound("service", "max_rows")
_TOKENS: Final = bound("service", "max_tokens")
DRAIN: Final = bound("service", "drain_seconds")


@described
class InferenceServiceArgs(SupervisedArgs):
    """Arguments of `InferenceService`."""

    name: Annotated[Input[str], NAME, REPLACES]
    """Name of the service."""
    model: Input[str]
    """The model (``ModelPackage.model``)."""
    version: Annotated[Input[int], VERSION]
    """The version (``ModelPackage.version``); another one is rolled to without a failed request.
"""
    keyring: Annotated[Input[str], PATH]
    """Folder of the key ring (``KeyRing.path``)."""
    host: NotRequired[Annotated[Input[str], Default("127.0.0.1")]]
    """Address to listen on."""
    port: Annotated[Input[int], PORT]
    """Port to listen on; another one restarts the server."""
    certificate: Annotated[Input[str], PATH]
    """PEM file of the server's certificate."""
    private_key: Annotated[Input[str], PATH]
    """PEM file of its private key."""
    client_ca: Annotated[Input[str], PATH]
    """PEM file of the authority of client certificates."""
    certificate_fingerprint: Input[str]
    """Fingerprint of the certificate: a renewed one is rolled out."""
    issuer: Input[str]
    """Issuer of access tokens."""
    audience: Input[str]
    """Audience of access tokens."""
    workers: NotRequired[Annotated[Input[int], bound("service", "workers"), Default(1)]]
    """Worker processes, each with the model."""
    threads: NotRequired[Annotated[Input[int], bound("service", "threads"), Default(1)]]
    """Threads of each worker."""
    clients: NotRequired[Annotated[dict[str, list[str]], _SCOPES, Default({})]]
    """What each client certificate may do: scopes by common name. By default certificates grant
    nothing, and tokens are needed."""
    max_body_bytes: NotRequired[Annotated[Input[int], _BODY, Default(_BODY.default)]]
    """Largest request, in bytes; with ``grpc`` 255 MiB at most."""
    max_rows: NotRequired[Annotated[Input[int], _ROWS, Default(_ROWS.default)]]
    """Most rows in a request."""
    max_tokens: NotRequired[Annotated[Input[int], _TOKENS, Default(_TOKENS.default)]]
    """Most tokens that a language model adds to a text of a request."""
    tokens_per_minute: NotRequired[
        Annotated[Input[int] | None, bound("service", "tokens_per_minute")]
    ]
    """Most tokens that each caller may have of each worker in a minute, those of its prompts
    and those that a language model adds. Default: no limit."""
    drain_seconds: NotRequired[Annotated[Input[int], DRAIN, Default(DRAIN.default)]]
    """How long an old version may finish its requests, in seconds."""
    grpc: NotRequired[Annotated[Input[bool], Default(value=True)]]
    """Answer gRPC on the same port. It costs nothing before the first client that speaks it; then
    each worker has a process beside, of about 40 MiB."""
    batching: NotRequired[Annotated[Input[bool], Default(value=False)]]
    """Run requests that wait together. A model that a measurement when it is loaded shows to gain
    nothing by that runs them one by one."""
    priorities: NotRequired[Annotated[Input[bool], Default(value=False)]]
    """Requests may say how urgent they are: ``low``, or with the scope ``urgent`` ``high``. Less
    urgent ones wait, and are refused first where the queue is full."""
    drift: NotRequired[Annotated[Input[bool], Default(value=True)]]
    """Whether rows and answers are compared with what the package says."""
    drift_window_rows: NotRequired[
        Annotated[Input[int], WINDOW_ROWS, Default(WINDOW_ROWS.default)]
    ]
    """Rows that are judged together."""
    drift_window_seconds: NotRequired[
        Annotated[Input[int], WINDOW_SECONDS, Default(WINDOW_SECONDS.default)]
    ]
    """After how long fewer rows are judged, if there are 200."""
    drift_alpha: NotRequired[Annotated[Input[float], ALPHA, Default(ALPHA.default)]]
    """Chance of a false alarm in a window; drift is what two of three windows find."""
    shadow: NotRequired[Annotated[Input[bool], Default(value=False)]]
    """Give a second version copies of requests, once one was promoted to the alias ``shadow``."""
    shadow_percent: NotRequired[Annotated[Input[float], COPIED, Default(COPIED.default)]]
    """Of the answered requests, how many are copied; with ``shadow`` alone, as the following."""
    shadow_first: NotRequired[Annotated[Input[bool], Default(value=False)]]
    """Have a new version be the shadow, where another one serves, until it is promoted."""
    experiment_key: NotRequired[Annotated[Input[str] | None, EXPERIMENT_KEY]]
    """Have a second version answer the requests of a share of this header's values, once one was
    promoted to the alias ``candidate``. Default: there is no experiment."""
    experiment_share: NotRequired[
        Annotated[Input[float], EXPERIMENT_SHARE, Default(EXPERIMENT_SHARE.default)]
    ]
    """Of the values, how many are the candidate's, in per cent; with ``experimentKey`` alone, as
    the following."""
    experiment_name: NotRequired[Annotated[Input[str] | None, EXPERIMENT_NAME]]
    """Another name draws other values. Default: the model and the candidate's version."""
    experiment_timeout_ms: NotRequired[
        Annotated[Input[int], EXPERIMENT_TIMEOUT, Default(EXPERIMENT_TIMEOUT.default)]
    ]
    """How long the candidate is waited for, before the version that serves answers, in
    milliseconds."""
    experiment_first: NotRequired[Annotated[Input[bool], Default(value=False)]]
    """Have a new version be the candidate, where another one serves, until it is promoted."""
    jobs: NotRequired[Annotated[Input[bool], Default(value=False)]]
    """Take requests that are answered later; else what was kept is removed."""
    jobs_keep_hours: NotRequired[Annotated[Input[int], KEEP_HOURS, Default(KEEP_HOURS.default)]]
    """Hours that an answer is kept for, and a request that nobody got to run; with ``jobs`` alone,
    as the following."""
    jobs_most: NotRequired[Annotated[Input[int], MOST_JOBS, Default(MOST_JOBS.default)]]
    """Most jobs that are kept."""
    jobs_most_bytes: NotRequired[Annotated[Input[int], MOST_BYTES, Default(MOST_BYTES.default)]]
    """Most bytes of their requests and answers."""
