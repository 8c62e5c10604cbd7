"""What the workloads' options may be: each bound, list of words, form of texts and fixed number,
stated once.

Whoever calls a workload learns them from a file that this module writes, and that a test
compares with it::

    python -m falaj.workloads.bounds > components/specification/workload_bounds.json
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from falaj.workloads.errors import WorkloadError


class Allowance(ABC):
    """What an option may be."""

    @property
    @abstractmethod
    def description(self) -> str:
        """The same in words."""

    @abstractmethod
    def allows(self, value: object) -> bool:
        """Tell whether a value is allowed."""

    def check(self, option: str, given: object) -> None:
        """Refuse what isn't.

        Args:
            option: its name, as in ``--epochs``.
            given: its value.

        Raises:
            WorkloadError: names the option, what was given and what is allowed.
        """
        if not self.allows(given):
            raise WorkloadError(f"{option} is {given!r}: allowed is {self.description}")


@dataclass(frozen=True)
class Bound(Allowance):
    """A number from ``low`` to ``high``, both included.

    Attributes:
        low: the least.
        high: the most.
        whole: whether it has to be a whole number.
        default: what holds where none is given; None: that isn't always the same.
    """

    low: float
    high: float
    whole: bool = True
    default: float | None = None

    @property
    def usual(self) -> float:
        """The default.

        Raises:
            ValueError: there is none.
        """
        if self.default is None:
            raise ValueError("this option has no default of its own")
        return self.default

    @property
    def description(self) -> str:
        """The bound, as in "allowed is 1 to 4,096"."""
        return f"{_plain(self.low)} to {_plain(self.high)}"

    def allows(self, value: object) -> bool:
        """Tell whether a value is a number of the kind and within the bound."""
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        return math.isfinite(value) and self.low <= value <= self.high


@dataclass(frozen=True)
class Choice(Allowance):
    """One of a few words.

    Attributes:
        words: all of them.
        default: the one that holds where none is given.
    """

    words: tuple[str, ...]
    default: str

    @property
    def argument(self) -> dict[str, Any]:
        """What `argparse.ArgumentParser.add_argument` is told."""
        return {"choices": self.words, "default": self.default}

    @property
    def description(self) -> str:
        """All of them, as in "allowed is one of auto, never"."""
        return f"one of {', '.join(self.words)}"

    def allows(self, value: object) -> bool:
        """Tell whether a value is one of the words."""
        return value in self.words


@dataclass(frozen=True)
class Form(Allowance):
    """Texts of a form.

    Attributes:
        pattern: regular expression of the whole text, without anchors, that Python, JavaScript and
            Rust read alike.
        rule: the same in words, as in "allowed is 1 to 64 small letters".
        example: a text of the form.
        default: what holds where none is given; None: that isn't always the same.
    """

    pattern: str
    rule: str
    example: str
    default: str | None = None

    @property
    def description(self) -> str:
        """The rule and the example."""
        return f"{self.rule}, such as {self.example}"

    def allows(self, value: object) -> bool:
        """Tell whether a value is a text of the form."""
        return isinstance(value, str) and re.fullmatch(self.pattern, value) is not None


def _plain(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else repr(value)


#: What every library that draws random numbers takes, with a trial's number added to it.
_SEED = Bound(0, 2**31 - 1)

DATASET = {"seed": _SEED, "holdout": Bound(0.05, 0.5, whole=False),
           "context": Bound(8, 32_768, default=128), "vocabulary": Bound(256, 65_536)}  # fmt: skip
"""Of ``python -m falaj.workloads.training dataset``. A vocabulary of tokens has one for each byte
at least."""

PICTURES_IN_MEMORY = 50_000
"""Pictures of a folder that are read into memory as a whole; those of a folder with more are
streamed from shards."""

FEATURES = {
    "within_days": Bound(0.001, 36_500, whole=False),
    "delay_hours": Bound(0, 87_600, whole=False, default=0),
}
"""Of feature tables: how old what is known may be, and how late it is known."""

_LAYERS, _HEADS = Bound(1, 256, default=4), Bound(1, 256, default=4)

DECODER = {"layers": _LAYERS, "heads": _HEADS, "key_value_heads": replace(_HEADS, default=2)}
"""Of the language model: its layers, the heads of each, and those of keys and values, each of
which serves as many of the others."""
NUMBERS_OF_A_TURN = 2
"""A head's numbers are a multiple of this, as rotary positions turn pairs of them."""

TRAINING = {
    "epochs": Bound(1, 100_000),
    "batch_size": Bound(1, 1_000_000),
    "learning_rate": Bound(1e-9, 10, whole=False),
    "weight_decay": Bound(0, 10, whole=False),
    "patience": Bound(1, 100_000),
    "gradient_clip": Bound(0, 1_000_000, whole=False, default=1.0),
    "label_smoothing": Bound(0, 0.5, whole=False),
    "accumulation": Bound(1, 10_000),
    "seed": replace(_SEED, default=0),
    "processes": Bound(1, 1_024, default=1),
    "width": Bound(1, 16_384),
    **DECODER,
    "checkpoint_every": Bound(1, 100_000, default=1),
    "checkpoint_steps": Bound(1, 1_000_000_000),
    "threads": Bound(1, 1_024),
    "read_ahead": Bound(1, 10_000),
    "shard": Bound(1, 1_024, default=1),
    "tensor": Bound(1, _HEADS.high, default=1),
    "pipeline": Bound(1, _LAYERS.high, default=1),
    "distil_temperature": Bound(1, 100, whole=False, default=2.0),
    "distil_weight": Bound(0, 1, whole=False, default=0.7),
    "prune": Bound(0, 0.9, whole=False, default=0),
    "lora_rank": Bound(1, 1_024),
    "lora_alpha": Bound(0.01, 10_000, whole=False),
}
"""Of ``python -m falaj.workloads.training run``. A gradient clip of 0 doesn't clip."""

REGISTRY = {
    "version": Bound(1, 10**9 - 1),
    "record": Bound(1, 10**10 - 1),
    "share": Bound(1, 49),
}
"""Of the registry of models: numbers of versions, and of records of an alias; percent of the
requests that a canary has, which is the smaller of two versions."""
VERSION_NUMBER = rf"[1-9][0-9]{{0,{len(str(REGISTRY['version'].high)) - 1}}}"
"""Regular expression of a version's number, as files, folders, tags and keys are named by one."""
RECORD_DIGITS = len(str(REGISTRY["record"].high))
"""A record's number has as many in its tag."""
TUNING = {"seconds": Bound(5, 3_600, whole=False, default=60)}
"""Of what measures settings of a training before it begins."""

OPTIMIZATION = {
    "max_accuracy_drop": Bound(0, 100, whole=False, default=0.5),
    "least_accuracy": Bound(0, 1, whole=False),
    "most_rmse": Bound(0, 1e12, whole=False),
    "most_nats": Bound(0, 100, whole=False),
    "threads": Bound(1, 1_024),
}
"""Of ``python -m falaj.workloads.optimization``: percentage points, a share, the unit of what is
predicted, nats of a character, and the threads that latencies are measured with."""

SERVICE = {
    "workers": Bound(1, 256),
    "threads": Bound(1, 256),
    "max_body_bytes": Bound(1_024, 2**30, default=8 * 2**20),
    "max_rows": Bound(1, 2**20, default=1_024),
    "max_tokens": Bound(1, 100_000, default=1_024),
    "tokens_per_minute": Bound(1, 1_000_000_000),
    "keep_seconds": Bound(0, 3_600, default=600),
    "drain_seconds": Bound(0, 600, whole=False, default=10),
    "grpc_memory_bytes": Bound(128 * 2**20, 2**36),
    "models_memory_bytes": Bound(2**20, 2**44),
}
"""Of ``service.json``. A gRPC process has 26 MiB of data before the first call on a machine of two
cores, and 39 MiB on one of 64, measured."""

GRPC = {"max_body_bytes": Bound(SERVICE["max_body_bytes"].low, 255 * 2**20)}
"""Of ``service.json`` where gRPC is answered: a call's message goes from one process to another in
one piece."""

DRIFT = {
    "window_rows": Bound(200, 1_000_000, default=1_000),
    "window_seconds": Bound(1, 604_800, whole=False, default=3_600),
    "alpha": Bound(1e-9, 0.1, whole=False, default=0.001),
}
"""Of ``drift`` in ``service.json``: rows and seconds of a window, and the chance of a false alarm
in one."""

JOBS = {
    "keep_hours": Bound(1, 720, default=24),
    "most_jobs": Bound(1, 10_000, default=1_000),
    "most_bytes": Bound(2**20, 2**40, default=2**30),
}
"""Of ``jobs`` in ``service.json``: how long answers are kept, and how many jobs and bytes."""

SHADOW = {"percent": Bound(0.01, 100, whole=False, default=10)}
"""Of ``shadow`` in ``service.json``: of the answered requests, how many are copied."""

EXPERIMENT = {
    "share": Bound(0.01, 99, whole=False, default=10),
    "timeout_ms": Bound(1, 60_000, default=1_000),
}
"""Of ``experiment`` in ``service.json``: of the keys, per cent that a candidate answers, and how
long it is waited for before the version that serves answers in its stead."""

HEADERS = {
    "header_length": "Inference-Header-Content-Length",
    "idempotency_key": "Idempotency-Key",
    "request_id": "x-request-id",
    "mark": "falaj-overflowed",
    "arm": "falaj-arm",
}
"""Headers of the server's own that requests may have."""
EXPERIMENT_TAKEN = tuple(
    sorted(
        {
            "authorization", "content-length", "content-encoding", "transfer-encoding", "expect",
            "host", *map(str.lower, HEADERS.values()),
        }
    )
)  # fmt: skip
"""Headers that mean something to the server, of which none is an experiment's key."""

BATCH = {"threads": Bound(1, 256), "shards": Bound(1, 1_000)}
"""Of ``python -m falaj.workloads.batch``."""

REPAIR = {
    "sick_minutes": Bound(0, 1_440, whole=False, default=5),
    "healthy_minutes": Bound(0, 1_440, whole=False, default=10),
    "drain_minutes": Bound(0, 10_080, whole=False, default=60),
    "pass_seconds": Bound(1, 300, default=15),
    "lease_seconds": Bound(3, 300, default=30),
    "most_nodes": Bound(1, 5_000),
    "most_percent": Bound(1, 100, default=10),
}
"""Of ``python -m falaj.workloads.repair``; ``most_out`` is a number of nodes or a percentage. No
cluster of Kubernetes is made for more nodes than 5,000:
https://kubernetes.io/docs/setup/best-practices/cluster-large/"""

ROLLOUT = {
    "window_minutes": Bound(1, 10_080, whole=False, default=60),
    "deadline_hours": Bound(1, 720, whole=False, default=24),
    "least_requests": Bound(100, 1_000_000_000, default=2_000),
    "most_error_rise": Bound(0, 100, whole=False, default=0.1),
    "most_latency_rise": Bound(0, 10_000, whole=False, default=25),
    "least_likeness": Bound(0, 100, whole=False, default=95),
}
"""Of ``python -m falaj.workloads.rollout``: percentage points of requests that fail, per cent of
a time, per cent of the answers."""


WATCH = {
    "interval_seconds": Bound(1, 86_400, default=60),
    "cool_down_hours": Bound(0, 720, whole=False, default=24),
    "most_retrainings_per_week": Bound(1, 100, default=2),
}
"""Of ``python -m falaj.workloads.watching``: between two looks at reports on drift, after a
retraining before the next, and of those that were begun within seven days."""


PARAMETER_SERVER = {
    "gather": Bound(1, 1_024),
    "staleness": Bound(0, 100_000, default=10),
    "staleness_power": Bound(0, 10, whole=False, default=0.5),
    "local_steps": Bound(1, 100_000, default=50),
    "outer_rate": Bound(1e-6, 10, whole=False, default=0.7),
    "outer_momentum": Bound(0, 0.999, whole=False, default=0.5),
    "top": Bound(1e-4, 0.5, whole=False, default=0.01),
    "explosion": Bound(1, 1_000_000, whole=False, default=20),
    "steps": Bound(1, 1_000_000_000),
    "target_loss": Bound(0, 1_000_000, whole=False),
    "requests_per_second": Bound(1, 100_000, default=1_000),
    "checkpoint_seconds": Bound(1, 86_400, default=30),
    "patience_seconds": Bound(1, 604_800, default=600),
}
"""Of ``python -m falaj.workloads.parameter_server``: updates that are gathered before a step, the
versions that an update may be behind and the power by which it then counts less, batches between
two of a worker's updates and the optimiser of their mean, the share of an update's numbers that
travels, how many times the usual norm is refused, the batches or the validation loss at which it
ends, what one worker may ask for, and seconds between checkpoints and without the server."""

FEDERATION = {
    "rounds": Bound(1, 100_000),
    "epochs": Bound(1, 1_000),
    "batch_size": TRAINING["batch_size"],
    "learning_rate": TRAINING["learning_rate"],
    "clip": Bound(0, 1_000_000, whole=False),
    "noise": Bound(0, 1_000, whole=False),
    "seed": _SEED,
    "round_seconds": Bound(1, 604_800, whole=False),
    "patience": Bound(0, 10_000),
    "secure_sites": Bound(3, 100),
    "least_noise": Bound(1e-6, 1_000, whole=False),
    "most_clip": Bound(1e-9, 1_000_000, whole=False),
    "least_sites": Bound(2, 10_000),
}
"""Of ``python -m falaj.workloads.federation``: what the coordinator may be told, and sites take
from it (a clip or noise of 0 is none); sites of a secure aggregation, and what a site may
set as the least privacy that it takes. Of two sites, each would learn the other's update from the
sum and its own; what each sends grows with their number."""

IMAGE_NETWORKS = {"mobilenet": 16, "efficientnet": 32}
"""Light networks that a training of images may take, and how many channels the first convolution
of each has where nothing else is said, which are the papers' own."""

ENGINES = ("onnxruntime", "openvino")
"""Programs that run a model; the first runs every one."""

DECIMALS: dict[str, Literal[".", ","]] = {"point": ".", "comma": ","}
"""What may stand before the decimals of a number in a CSV file, by its name."""

LANGUAGE = "language"
"""The task of texts: to say which token follows."""

CHOICES = {
    "dataset": {"task": Choice(("auto", "classification", "regression", LANGUAGE), "auto")},
    "training": {
        "model": Choice(("auto", "network", *IMAGE_NETWORKS), "auto"),
        "precision": Choice(("auto", "float32", "bfloat16", "float16"), "auto"),
        "device": Choice(("auto", "cpu", "cuda"), "auto"),
        "class_weights": Choice(("auto", "tempered", "balanced", "none"), "auto"),
        "recompute": Choice(("none", "layers"), "none"),
        "compile": Choice(("auto", "always", "never"), "auto"),
        "compression": Choice(("none", "float16", "bfloat16", "powersgd"), "none"),
        "lora_matrices": Choice(("all", "attention", "units"), "all"),
    },
    "sweep": {"pruner": Choice(("median", "hyperband", "none"), "median")},
    "optimization": {
        "quantise": Choice(("auto", "never", "int8", "int4"), "auto"),
        "engine": Choice(("auto", *ENGINES), "auto"),
        "accept": Choice(("better", "any"), "better"),
        "data_class": Choice(("public", "internal", "confidential", "restricted"), "internal"),
    },
    "parameter_server": {
        "mode": Choice(("asynchronous", "local"), "asynchronous"),
        "rows": Choice(("shared", "own"), "shared"),
        "compression": Choice(("none", "float16", "bfloat16", "top"), "none"),
        "weights": Choice(("float32", "float16", "bfloat16"), "float32"),
    },
    "batch": {"format": Choice(("csv", "jsonl", "parquet"), "csv")},
    "service": {
        "scopes": Choice(("predict", "urgent", "observe", "feedback", "admin"), "predict")
    },
}
"""The words that options take, by workload. Of a training's ``model``, ``auto`` is of a table a
linear model, a network or gradient-boosted trees, as cross-validation says, and ``network`` the
network, whatever the data; the others are of images. Its ``recompute`` says what of a forward pass
is computed again instead of kept, its ``compile`` whether the network is compiled (``auto``: a
language model on GPUs), its ``compression`` what gradients travel as, and its ``lora_matrices``
those that low ranks are added to. ``quantise`` is
``auto`` for what is tried and has to gain, a number of bits for that alone, which need not be
faster, or ``never``. ``engine`` is ``auto`` for whichever is fastest where a package is made, if
it is installed. ``accept`` is
``better`` than guessing and not worse than what serves now, or ``any``. Data classes are stricter
upwards. A parameter server takes gradients from workers (``asynchronous``), or what steps of their
own changed (``local``); rows are a dataset that all of them have, or each one's own. Its
``compression`` is what updates travel as, of which ``top`` are the largest numbers alone, and its
``weights`` what the model does on its way back. ``scopes`` are what tokens and certificates let
their holders do at a server."""

MODELS_TAKEN = ("stats",)
"""Names that no further model of a server has: they are paths of the server's own."""

_LABEL_KEY = (
    r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?"
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
)

_NAMED = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"

_LIMITED = "|".join(each for each in CHOICES["service"]["scopes"].words if each != "admin")
"""Scopes that may be held for one model; who holds `admin` holds them all, of every model."""

FORMS = {
    "registry": {
        "model": Form(
            _NAMED,
            "1 to 64 letters, digits, '.', '_' and '-', first a letter or a digit",
            "credit",
        ),
        "published": Form(
            r"(?=.{1,64}$)[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*",
            "1 to 64 lower-case letters and digits, with single '.', '_' or '-' between them",
            "churn",
        ),
        "alias": Form(
            r"[a-z][a-z0-9-]{0,63}",
            "1 to 64 small letters, digits and '-', first a letter",
            "candidate",
        ),
    },
    "service": {
        "scope": Form(
            f"(?:{_LIMITED})(?::{_NAMED})?|admin",
            f"{', '.join(CHOICES['service']['scopes'].words)}, each but admin also for one model, "
            "as in predict:price",
            "predict:price",
        ),
    },
    "features": {
        "table": Form(
            r"[A-Za-z][A-Za-z0-9_-]{0,63}",
            "1 to 64 letters, digits, '_' and '-', first a letter",
            "payments",
        ),
    },
    "experiment": {
        "key": Form(
            r"[A-Za-z][A-Za-z0-9-]{0,63}",
            "1 to 64 letters, digits and '-', from a letter on, and no header that means "
            "something to the server",
            "x-customer",
        ),
        "name": Form(
            _NAMED,
            "1 to 64 letters, digits, '.', '_' and '-', from a letter or digit on",
            "prices-2027",
        ),
    },
    "tracking": {
        "server": Form(
            r"(?:https://[A-Za-z0-9\[][^\s@#?]{0,1999}"
            r"|http://(?:localhost|127\.[0-9.]+|\[::1\])(?::[0-9]{1,5})?(?:/[^\s@#?]*)?)",
            "an address that starts with https://, or of loopback with http://, without a name or "
            "password in it",
            "https://mlflow.example.ae",
        ),
        "experiment": Form(
            r"[A-Za-z0-9][A-Za-z0-9 ._/-]{0,199}",
            "1 to 200 letters, digits, blanks and . _ / -, first a letter or a digit",
            "churn",
            default="falaj",
        ),
    },
    "federation": {
        "site": Form(
            r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}",
            "1 to 63 letters, digits, '.', '_' and '-', first a letter or a digit",
            "dubai",
        ),
        "site_key": Form(
            r"[0-9a-f]{64}|authority",
            "the SHA-256 of its certificate's public key in lower-case hexadecimal, or authority: "
            "any certificate of its name that the federation's authority issued",
            "authority",
        ),
    },
    "watch": {
        "webhook": Form(
            r"https://[A-Za-z0-9\[][^\s@#]{0,1999}",
            "an address that starts with https://, without a name or password in it",
            "https://hooks.example.ae/falaj",
        ),
    },
    "repair": {
        "key": Form(_LABEL_KEY, "a key as labels of Kubernetes have it", "example.ae/broken"),
        "percentage": Form(r"[0-9]{1,3}%", "a whole number of percent", "10%"),
        "condition": Form(
            rf"{_LABEL_KEY}=(?:True|False)", "TYPE=True or TYPE=False", "GPUMissing=True"
        ),
    },
}
"""The form of texts, by workload. A model that is ``published`` has a name that registries take
for a repository's as well:
https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pulling-manifests
An alias is no number, so that it hides no version. Keys of labels and taints are Kubernetes':
https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/"""

ENDINGS = {
    "tables": (".csv", ".parquet"), "texts": (".txt", ".md"), "conversations": (".jsonl",),
}  # fmt: skip
"""Of the names of files that datasets are made of: tables, and what a language model learns from,
texts and conversations."""

IMAGE = {"user": 65532, "server_port": 8443}
"""Of Falaj's images: whom containers run as, who is nobody that a node knows, and where the server
listens, which a server without privileges can."""

GANG = {"rendezvous_port": 29400, "most_horovod_processes": 256}
"""Fixed numbers of processes that start together. The port is where they meet unless another one
is named, torchrun's default: https://docs.pytorch.org/docs/stable/elastic/run.html. Of Horovod
every process connects to each other one, and asks the rendezvous twice for each: 163,000 requests
for 256, of which it answers some 1,600 a second on one core."""
MARGIN_SECONDS = 5
"""Of a gang's grace, kept for ending what didn't stop."""
CAUSE_FIRST_SECONDS = 10.0
"""That a machine which only lost its peers waits before it says so: a scheduler, which judges by
the first failure, is to see the cause first."""


def document() -> str:
    """Return all of it as JSON, by workload and option."""
    bounds = {
        "dataset": DATASET,
        "features": FEATURES,
        "training": TRAINING,
        "optimization": OPTIMIZATION,
        "registry": REGISTRY,
        "service": SERVICE,
        "grpc": GRPC,
        "drift": DRIFT,
        "jobs": JOBS,
        "shadow": SHADOW,
        "experiment": EXPERIMENT,
        "batch": BATCH,
        "repair": REPAIR,
        "rollout": ROLLOUT,
        "watch": WATCH,
        "parameter_server": PARAMETER_SERVER,
        "federation": FEDERATION,
    }
    found: dict[str, dict[str, object]] = {
        of: {name: _entry(each) for name, each in options.items()}
        for of, options in bounds.items()
    }
    for of, choices in CHOICES.items():
        found.setdefault(of, {}).update({name: asdict(each) for name, each in choices.items()})
    for of, forms in FORMS.items():
        found.setdefault(of, {}).update({name: _entry(each) for name, each in forms.items()})
    fixed = {
        "endings": ENDINGS, "decimals": list(DECIMALS), "image": IMAGE, "gang": GANG,
        "experiment_taken": EXPERIMENT_TAKEN,
    }  # fmt: skip
    return json.dumps({**found, **fixed}, indent=1) + "\n"


def _entry(option: Bound | Form) -> dict[str, object]:
    return {key: value for key, value in asdict(option).items() if value is not None}


if __name__ == "__main__":
    print(document(), end="")
