"""What `falaj.components.local.InferenceService` takes."""

from typing import Annotated, Final, NotRequired, TypedDict

from falaj.components.local.arguments import NAME, PATH, REPLACES, SupervisedArgs
from falaj.components.specification.answers import AnswersArgs
from falaj.components.specification.arguments import Default, Input, SameAs
from falaj.components.specification.described import described
from falaj.components.specification.drift import DriftArgs
from falaj.components.specification.limits import PORT
from falaj.components.specification.model_names import VERSION
from falaj.components.specification.workload_bounds import (
    bound,
    choice,
    experiment_key,
    form,
)

_KEEP_HOURS: Final = bound("jobs", "keep_hours")
_MOST_JOBS: Final = bound("jobs", "most_jobs")
_MOST_BYTES: Final = bound("jobs", "most_bytes")
_COPIED: Final = bound("shadow", "percent")
_SHARE: Final = bound("experiment", "share")
_TIMEOUT: Final = bound("experiment", "timeout_ms")
_SCOPES: Final = choice("service", "scopes")
_BODY: Final = bound("service", "max_body_bytes")
_KEPT: Final = bound("service", "keep_seconds")
_ALIAS: Final = "production"
DRAIN: Final = bound("service", "drain_seconds")


class ShadowArgs(TypedDict):
    """What a shadow is given, and when a version is one."""

    percent: NotRequired[Annotated[float, _COPIED, Default(_COPIED.default)]]
    """Of the answered requests, how many are copied, in percent."""
    first: NotRequired[Annotated[bool, Default(value=False)]]
    """A new version is the shadow first, where another one serves, until ``falaj shadow promote``
    or the watch has it serve."""


class ExperimentArgs(TypedDict):
    """Which requests an experiment's candidate answers."""

    key: Annotated[str, experiment_key()]
    """Name of the header, such as ``x-customer``; requests without it are for the version that
    serves."""
    share: NotRequired[Annotated[float, _SHARE, Default(_SHARE.default)]]
    """Of its values, how many the candidate answers, in per cent. Those of a smaller share are
    among those of a greater one."""
    name: NotRequired[Annotated[str | None, form("experiment", "name")]]
    """What the values are drawn by beside themselves. Default: the model and the candidate's
    version, so that another candidate draws anew."""
    timeout_ms: NotRequired[Annotated[int, _TIMEOUT, Default(_TIMEOUT.default)]]
    """Milliseconds that the candidate is waited for, before the version that serves answers."""
    first: NotRequired[Annotated[bool, Default(value=False)]]
    """A new version is the candidate first, where another one serves, until
    ``falaj experiment promote`` has it serve."""


class JobArgs(TypedDict):
    """What is kept of requests to all models that are answered later."""

    keep_hours: NotRequired[Annotated[int, _KEEP_HOURS, Default(_KEEP_HOURS.default)]]
    """Hours that an answer is kept for, and a request that nobody got to run."""
    most_jobs: NotRequired[Annotated[int, _MOST_JOBS, Default(_MOST_JOBS.default)]]
    """Most jobs that are kept."""
    most_bytes: NotRequired[Annotated[int, _MOST_BYTES, Default(_MOST_BYTES.default)]]
    """Most bytes of their requests and answers."""


class FurtherModelArgs(TypedDict):
    """A model that is served beside the first, under its own name and with scopes of its own.

    It is verified as the first is. Jobs are taken for all models; a shadow and an experiment are
    of the first alone.
    """

    registry: Annotated[str, PATH]
    """Folder of its registry."""
    keyring: Annotated[str, PATH]
    """Folder of the key ring that it was signed and encrypted with."""
    alias: NotRequired[Annotated[str, form("registry", "alias"), Default(_ALIAS)]]
    """Which of its versions is served; where it comes to stand for another one, that is followed.
    """
    max_rows: NotRequired[Annotated[int | None, bound("service", "max_rows")]]
    """Most rows in a request. Default: as many as of the first model."""
    max_body_bytes: NotRequired[Annotated[int | None, bound("service", "max_body_bytes")]]
    """Largest request, in bytes, not more than the service reads. Default: as large as that."""
    batching: NotRequired[Annotated[bool, Default(value=False)]]
    """Run requests for it that wait together, as with ``batching`` of the service."""
    priorities: NotRequired[Annotated[bool, Default(value=False)]]
    """Requests for it may say how urgent they are, as with ``priorities`` of the service."""
    drift: NotRequired[Annotated[bool, Default(value=True)]]
    """Compare requests and answers with its training data, where ``drift`` of the service does so
    for the first model, in windows of the same length."""


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
    """Port to listen on, one of its own for each service of a machine; another one restarts the
    server."""
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
    models: NotRequired[Annotated[dict[str, FurtherModelArgs], Default({})]]
    """Further models by their names in their registries. Each worker has all of them in memory,
    and they share its threads. One that can't be served is unavailable, with the reason in the
    index of models, and keeps no other from answering. Default: none."""
    models_memory_bytes: NotRequired[
        Annotated[Input[int] | None, bound("service", "models_memory_bytes")]
    ]
    """Bytes that further models may take of all workers together, as it is estimated from their
    packages. One that there is no room for is unavailable, or stays at the version that serves.
    Default: half of the machine's memory."""
    workers: NotRequired[Annotated[Input[int], bound("service", "workers"), Default(1)]]
    """Worker processes, each with the models."""
    threads: NotRequired[Annotated[Input[int], bound("service", "threads"), Default(1)]]
    """Threads of each worker."""
    clients: NotRequired[Annotated[dict[str, list[str]], _SCOPES, Default({})]]
    """What each client certificate may do: scopes by common name. By default certificates grant
    nothing, and tokens are needed."""
    max_body_bytes: NotRequired[Annotated[Input[int], _BODY, Default(_BODY.default)]]
    """Largest request, in bytes; with ``grpc`` 255 MiB at most."""
    max_rows: NotRequired[Annotated[Input[int], SameAs(AnswersArgs, "max_rows")]]
    max_tokens: NotRequired[Annotated[Input[int], SameAs(AnswersArgs, "max_tokens")]]
    tokens_per_minute: NotRequired[
        Annotated[Input[int] | None, SameAs(AnswersArgs, "tokens_per_minute")]
    ]
    keep_seconds: NotRequired[
        Annotated[Input[int], Default(_KEPT.default), SameAs(AnswersArgs, "keep_seconds")]
    ]
    """It takes no more memory than texts that are being generated may."""
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
    drift: NotRequired[Annotated[Input[bool], SameAs(DriftArgs, "enabled")]]
    drift_window_rows: NotRequired[Annotated[Input[int], SameAs(DriftArgs, "window_rows")]]
    drift_window_seconds: NotRequired[Annotated[Input[int], SameAs(DriftArgs, "window_seconds")]]
    drift_alpha: NotRequired[Annotated[Input[float], SameAs(DriftArgs, "alpha")]]
    shadow: NotRequired[Annotated[Input[bool], Default(value=False)]]
    """Give a second version copies of requests, once one was promoted to the alias ``shadow``."""
    shadow_percent: NotRequired[Annotated[Input[float], SameAs(ShadowArgs, "percent")]]
    """With ``shadow`` alone, as the following."""
    shadow_first: NotRequired[Annotated[Input[bool], SameAs(ShadowArgs, "first")]]
    experiment_key: NotRequired[Annotated[Input[str] | None, SameAs(ExperimentArgs, "key")]]
    """Have a second version answer the requests of a share of its values, once one was promoted to
    the alias ``candidate``. Default: there is no experiment."""
    experiment_share: NotRequired[Annotated[Input[float], SameAs(ExperimentArgs, "share")]]
    """With ``experimentKey`` alone, as the following."""
    experiment_name: NotRequired[Annotated[Input[str] | None, SameAs(ExperimentArgs, "name")]]
    experiment_timeout_ms: NotRequired[Annotated[Input[int], SameAs(ExperimentArgs, "timeout_ms")]]
    experiment_first: NotRequired[Annotated[Input[bool], SameAs(ExperimentArgs, "first")]]
    jobs: NotRequired[Annotated[Input[bool], Default(value=False)]]
    """Take requests that are answered later; else what was kept is removed."""
    jobs_keep_hours: NotRequired[Annotated[Input[int], SameAs(JobArgs, "keep_hours")]]
    """With ``jobs`` alone, as the following."""
    jobs_most: NotRequired[Annotated[Input[int], SameAs(JobArgs, "most_jobs")]]
    jobs_most_bytes: NotRequired[Annotated[Input[int], SameAs(JobArgs, "most_bytes")]]
