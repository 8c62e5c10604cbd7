"""Federated training: a coordinator and sites in the country; rows stay where they are.

The pods of a federation: a coordinator or a site, its certificates, who may reach it.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, NotRequired

import pulumi

from falaj.components.kubernetes._load_balancer import checked_address, private_load_balancer
from falaj.components.kubernetes._objects import Manifest, declare, metadata, token
from falaj.components.kubernetes._peers import in_namespace
from falaj.components.kubernetes._placed import PROTECTED
from falaj.components.kubernetes._validation import cidr, is_private, object_name
from falaj.components.kubernetes.gpu_queues.queues import BURST_QUEUE
from falaj.components.kubernetes.training.arguments import RESTARTS, KeyedRunArgs, KeyRing, Run
from falaj.components.kubernetes.training.jobs import (
    add_key_ring,
    network_policy,
    queue_labels,
    ring_arguments,
    ring_secret,
    selector,
)
from falaj.components.kubernetes.training.pods import DATA, RUNS, gang, gang_pods, template
from falaj.components.kubernetes.training_job import check_arguments, checked_ring, checked_run
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.limits import OBJECT, POSITIVE, Between, OneOf
from falaj.components.specification.workload_bounds import WorkloadChoice, bound, choice, form

PORT: Final = 8470
_TLS: Final = "/etc/falaj/tls"
_SITES: Final = "/etc/falaj/sites"
_SITES_FILE: Final = f"{_SITES}/sites.json"
_TOKEN: Final = "/etc/falaj/token"  # noqa: S105 - a folder
_MODE: Final = 0o440


@dataclass(frozen=True)
class Peers:
    """Who talks to whom."""

    coordinator: str
    """``host:port`` that a site calls; empty for the coordinator."""
    ranges: tuple[str, ...]
    """Private ranges of the other side, in other clusters."""
    namespaces: tuple[str, ...]
    """Namespaces of the other side in this cluster."""
    address: str = ""
    """Private address of the coordinator's load balancer; empty: any."""


@dataclass(frozen=True, kw_only=True)
class FederatedTrainingSpec:
    """The arguments of `FederatedTraining`, checked."""

    run: Run
    role: str
    mode: str
    peers: Peers
    certificate_secret: Annotated[str, OBJECT]
    token_secret: str
    sites: Mapping[str, str]
    """By the name of each site: of the coordinator, the SHA-256 of its token; of a site with
    secure aggregation, the SHA-256 of its public key or ``authority``."""
    options: tuple[str, ...]
    """Of the coordinator: how long, limits; of a site, what it takes; of both, secure
    aggregation."""
    max_restarts: int
    key_ring: KeyRing | None


def objects(spec: FederatedTrainingSpec) -> list[Manifest]:
    """The job, who may reach it, its keys, and the coordinator's Service and list of sites."""
    found = [_network_policy(spec), _job_set(spec)]
    if spec.key_ring is not None:
        found.append(ring_secret(spec.run, spec.key_ring))
    if spec.sites:
        found.append(_sites_file(spec))
    return [*found, _service(spec)] if spec.role == "coordinator" else found


def _job_set(spec: FederatedTrainingSpec) -> Manifest:
    run = spec.run
    pod = template(run, _command(spec), (), {})
    mounts = {"tls": _TLS}
    mounts |= {"sites": _SITES} if spec.sites else {}
    mounts |= {"token": _TOKEN} if spec.role == "site" else {}
    (container,) = pod["spec"]["containers"]
    container["volumeMounts"] += [
        {"name": name, "mountPath": path, "readOnly": True} for name, path in mounts.items()
    ]
    volumes = [{"name": "tls", "secret": {"secretName": spec.certificate_secret,
                                          "defaultMode": _MODE}}]  # fmt: skip
    if spec.role == "coordinator":
        container["ports"] = [{"name": "federation", "containerPort": PORT}]
    if spec.sites:
        volumes.append({"name": "sites", "configMap": {"name": run.name}})
    if spec.role == "site":
        secret = {"secretName": spec.token_secret, "defaultMode": _MODE}
        volumes.append({"name": "token", "secret": secret})
    pod["spec"]["volumes"] += volumes
    if spec.key_ring is not None:
        add_key_ring(pod, run, spec.key_ring)
    job: dict[str, Any] = {
        "completionMode": "Indexed",
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 0,
        "podFailurePolicy": gang_pods(),
        "template": pod,
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata(
            run.placed, run.name, run.name, run.namespace, labels=queue_labels(run)
        ),
        "spec": {
            "failurePolicy": gang(spec.max_restarts),
            "replicatedJobs": [{"name": spec.role, "replicas": 1, "template": {"spec": job}}],
        },
    }


def _command(spec: FederatedTrainingSpec) -> list[str]:
    run = spec.run
    coordinates = spec.role == "coordinator"
    if spec.mode == ROUNDS:
        program = ["federation", spec.role]
        listed, called = "--sites", "--coordinator"
    else:
        program = ["parameter_server", "server" if coordinates else "worker"]
        listed, called = "--workers", "--server"
    common = [
        "python", "-m", f"falaj.workloads.{program[0]}", program[1],
        "--dataset", f"{DATA}/{run.dataset}",
        "--authority", f"{_TLS}/ca.crt",
        "--certificate", f"{_TLS}/tls.crt",
        "--key", f"{_TLS}/tls.key",
        "--progress", "json",
        *ring_arguments(spec.key_ring),
    ]  # fmt: skip
    if not coordinates:
        call = [called, spec.peers.coordinator, "--token", f"{_TOKEN}/token"]
        return [*common, *call, *spec.options, *run.arguments]
    serve = [
        "--output", f"{RUNS}/{run.name}",
        "--listen", f"$(POD_IP):{PORT}",
        listed, _SITES_FILE,
    ]  # fmt: skip
    return [*common, *serve, *spec.options, *run.arguments]


def _sites_file(spec: FederatedTrainingSpec) -> Manifest:
    run = spec.run
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(run.placed, run.name, run.name, run.namespace, labels=PROTECTED),
        "data": {"sites.json": json.dumps(dict(sorted(spec.sites.items())), indent=2)},
    }


def _service(spec: FederatedTrainingSpec) -> Manifest:
    """Within the cluster, or with a private address for those that are elsewhere."""
    run = spec.run
    ports = [{"name": "federation", "port": PORT, "targetPort": "federation"}]
    body: dict[str, Any] = {"selector": selector(run), "ports": ports, "type": "ClusterIP"}
    annotations: Mapping[str, str] = {}
    if spec.peers.ranges:
        balancer = private_load_balancer(
            run.placed.distribution, spec.peers.ranges, address=spec.peers.address
        )
        body |= balancer.fields
        annotations = balancer.annotations
    about = metadata(run.placed, run.name, run.name, run.namespace, annotations=annotations)
    return {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": body}


def _network_policy(spec: FederatedTrainingSpec) -> Manifest:
    """Only the other side, on the one port; a coordinator calls nobody, a site isn't called."""
    policy: dict[str, Any] = dict(network_policy(spec.run, peers=False))
    peers: list[dict[str, Any]] = [{"ipBlock": {"cidr": cidr}} for cidr in spec.peers.ranges]
    peers += [in_namespace(each) for each in spec.peers.namespaces]
    port = PORT if spec.role == "coordinator" else int(spec.peers.coordinator.rpartition(":")[2])
    ports = [{"port": port, "protocol": "TCP"}]
    rules = dict(policy["spec"])
    if spec.role == "coordinator":
        rules["ingress"] = [*rules["ingress"], {"from": peers, "ports": ports}]
    else:
        rules["egress"] = [*rules["egress"], {"to": peers, "ports": ports}]
    return {**policy, "spec": rules}


ROLES: Final = ("coordinator", "site")
ROUNDS: Final = "rounds"
_SERVED: Final = choice("parameter_server", "mode").words
MODE: Final = WorkloadChoice((ROUNDS, *_SERVED), default=ROUNDS)
_UPDATES: Final = choice("parameter_server", "compression")
_STALENESS: Final = bound("parameter_server", "staleness")
_GATHER: Final = bound("parameter_server", "gather")
_LOCAL_STEPS: Final = bound("parameter_server", "local_steps")
_DIGEST: Final = re.compile(r"^[0-9a-f]{64}$")
_SITE: Final = form("federation", "site")
_SITE_KEY: Final = form("federation", "site_key")
_SECURE_SITES: Final = bound("federation", "secure_sites")
_LEAST_SITES: Final = bound("federation", "least_sites")
_PLACE: Final = re.compile(r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?:(\d{1,5})$")
#: Options that `_command` writes: who may reach what, and what was promised to the sites.
_OURS: Final = (
    "--dataset", "--authority", "--certificate", "--key", "--progress", "--coordinator", "--token",
    "--output", "--listen", "--sites", "--rounds", "--epochs", "--least-sites", "--round-seconds",
    "--clip", "--noise", "--workers", "--server", "--mode", "--rows", "--staleness", "--gather",
    "--local-steps", "--compression", "--steps", "--secure-aggregation", "--site-keys",
    "--least-noise", "--most-clip",
)  # fmt: skip
_OF_ROUNDS: Final = ("rounds", "clip", "noise", "least_sites", "round_seconds")
_OF_SERVED: Final = ("staleness", "gather", "local_steps", "compression")
_COORDINATORS_ALONE: Final = (
    "sites", "epochs", "address", "rounds", "clip", "noise", "round_seconds", *_OF_SERVED,
)  # fmt: skip
#: The least privacy that a site takes, of ``rounds``.
_FLOOR: Final = ("least_noise", "most_clip", "least_sites")


@described
class FederatedTrainingArgs(KeyedRunArgs):
    """Arguments of `FederatedTraining`. ``dataset`` is the site's rows; the coordinator's are
    reference rows, which prepare the columns and judge the model. Each side has a key ring of its
    own, if any: what crosses between them are models, by TLS."""

    role: Annotated[str, OneOf(ROLES)]
    """One component for each, in the cluster where it runs."""
    mode: NotRequired[Annotated[str, MODE, Default(MODE.default)]]
    """``rounds``: the coordinator averages the models of all sites, round by round.
    ``asynchronous`` and ``local`` wait for no site, for links that are slow or break and sites of
    unequal speed: sites send the gradient of each batch, or what ``local_steps`` batches changed.
    Both sides say the same."""
    certificate_secret: str
    """Name of the Secret with ``tls.crt``, ``tls.key`` and ``ca.crt``: one's own certificate and
    the federation's authority. The common name is the site's; the coordinator's certificate has
    its host name."""
    sites: NotRequired[dict[str, str]]
    """SHA-256 (hex) of each site's token by the site's name. The coordinator needs it."""
    token_secret: NotRequired[Annotated[str, OBJECT]]
    """Name of the Secret whose entry ``token`` a site shows. A site needs it."""
    coordinator: NotRequired[str]
    """``host:port`` of the coordinator. A site needs it."""
    peer_ranges: NotRequired[list[str]]
    """Private ranges of the other side in other clusters. A coordinator then has a load balancer
    with a private address. Default: none."""
    address: NotRequired[str]
    """Private address of the coordinator's load balancer. Needed on an ``existing`` cluster where
    there are ``peer_ranges``; on EKS it needs a load balancer in one subnet. Default: any of the
    cluster's subnets, on AKS of its network's ``balancers``."""
    peer_namespaces: NotRequired[list[str]]
    """Namespaces of the other side in this cluster. Default: none."""
    rounds: NotRequired[Annotated[int, Between(1, 100_000), Default(20)]]
    """How often models are averaged, of ``rounds``."""
    staleness: NotRequired[Annotated[int, _STALENESS, Default(_STALENESS.default)]]
    """Versions of the model that an update may be behind, of the other modes."""
    gather: NotRequired[Annotated[int, _GATHER]]
    """Updates of one step of the model, of the other modes. Default: 1; of ``local`` as many as
    there are sites."""
    local_steps: NotRequired[Annotated[int, _LOCAL_STEPS, Default(_LOCAL_STEPS.default)]]
    """Batches of a site between two updates, of ``local``."""
    compression: NotRequired[Annotated[str, _UPDATES, Default(_UPDATES.default)]]
    """What updates travel as, of the other modes: ``float16`` and ``bfloat16`` halve them, ``top``
    sends the largest numbers alone. What is left out goes into the next update."""
    epochs: NotRequired[Annotated[int, bound("training", "epochs")]]
    """Passes of a site over its rows: of ``rounds`` in each round (default: 2), else in all
    (default: by family and size)."""
    clip: NotRequired[Annotated[float, POSITIVE]]
    """Largest L2 norm of a site's update. Default: any, or 1 with ``noise`` or
    ``secure_aggregation``."""
    noise: NotRequired[Annotated[float, POSITIVE]]
    """Noise multiplier, which hides any one site among the others. Default: none."""
    least_sites: NotRequired[int]
    """Fewest that must answer in a round. Of the coordinator, default: all; with
    ``secure_aggregation`` more than half of the sites. Of a site, from 2: it refuses a round that
    may be of fewer; default: any."""
    least_noise: NotRequired[Annotated[float, bound("federation", "least_noise")]]
    """Noise multiplier below which a site refuses a round, whatever the coordinator agreed with
    others. Default: any, none too."""
    most_clip: NotRequired[Annotated[float, bound("federation", "most_clip")]]
    """Largest L2 norm of an update above which a site refuses a round. Default: any."""
    secure_aggregation: NotRequired[Annotated[bool, Default(value=False)]]
    """Sites send masked updates, of which the coordinator can read the sum alone, and add their
    share of ``noise`` themselves; of ``rounds``, three sites and more. Both sides say the same."""
    site_keys: NotRequired[dict[str, str]]
    """By the name of each site of the federation, one's own among them: SHA-256 (hex) of its
    certificate's public key, or ``authority``: any certificate of that name which the
    federation's authority issued. A site needs it with ``secure_aggregation``: the coordinator
    passes the sites' keys on, and can't put its own in their place."""
    round_seconds: NotRequired[Annotated[int, Between(1, 604_800), Default(600)]]
    """How long a round waits for the others once these did."""
    max_restarts: NotRequired[Annotated[int, RESTARTS, Default(10)]]
    """As in `TrainingJob`."""


def check(name: str, args: FederatedTrainingArgs) -> FederatedTrainingSpec:
    """Check the arguments of a `FederatedTraining`.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    errors = ArgumentErrors(f"FederatedTraining {name!r}")
    given: Mapping[str, Any] = {key: value for key, value in args.items() if value is not None}
    checked = errors.checked(given, FederatedTrainingArgs)
    role, mode = str(checked["role"]), str(checked["mode"])
    run = checked_run(name, given, checked, errors)
    check_arguments(given, errors, _OURS)
    ring = checked_ring(given, checked, run, errors)
    if run is not None and run.size.gpus:
        errors.add("flavor", run.placement.flavor, "one without GPUs: sites train on CPUs")
    if run is not None and run.queue == BURST_QUEUE:
        errors.add(
            "queue", run.queue, "a queue of this cluster",
            "the Service and the secrets of a federation aren't sent along",
        )  # fmt: skip
    sites: dict[str, str] = {}
    if role == "coordinator":
        sites = _sites(given, errors)
        for argument in ("token_secret", "coordinator", "site_keys", "least_noise", "most_clip"):
            if argument in given:
                errors.say(argument, "is a site's; leave it out")
    elif role == "site":
        errors.needed(given, ("token_secret",), "by a site")
        for argument in _COORDINATORS_ALONE:
            if argument in given:
                errors.say(argument, "is the coordinator's; leave it out")
        sites = _site_keys(given, checked, errors)
    peers = _peers(given, role, errors)
    if role == "coordinator":
        placed = run.placed if run is not None and peers.ranges else None
        peers = replace(peers, address=checked_address(placed, given.get("address"), errors))
        if peers.address and not peers.ranges:
            errors.say("address", "is for peer_ranges, which need a load balancer; leave it out")
    options = _options(given, checked, len(sites), errors)
    if checked["secure_aggregation"]:
        options = (*options, *_secure(role, mode, len(sites), errors))
    errors.raise_if_any()
    if run is None:
        raise AssertionError("what can't be used was refused")
    run = replace(run, telemetry=False)  # its figures are in the run's folder
    return FederatedTrainingSpec(
        run=run,
        role=role,
        mode=mode,
        peers=peers,
        certificate_secret=checked["certificate_secret"],
        token_secret=checked["token_secret"] or "",
        sites=sites,
        options=options,
        max_restarts=checked["max_restarts"],
        key_ring=ring,
    )


def _sites(given: Mapping[str, Any], errors: ArgumentErrors) -> dict[str, str]:
    sites = errors.mapping("sites", given.get("sites", {}))
    if not sites:
        errors.say("sites", "missing; the coordinator needs the digest of each site's token")
    for site, format_number in sites.items():
        if not _SITE.allows(site) or not _DIGEST.match(format_number):
            errors.add(
                f"sites[{site!r}]", "something else", "a token's SHA-256: 64 of 0-9 and a-f",
                "never the token itself: this lies open in a ConfigMap",
            )  # fmt: skip
    return sites


def _site_keys(
    given: Mapping[str, Any], checked: Mapping[str, Any], errors: ArgumentErrors
) -> dict[str, str]:
    if not checked["secure_aggregation"]:
        if "site_keys" in given:
            errors.say("site_keys", "is for secure_aggregation: true; leave it out")
        return {}
    keys = errors.mapping("site_keys", given.get("site_keys", {}))
    if not keys:
        errors.say(
            "site_keys", "missing; a site with secure_aggregation takes the others' keys by it"
        )
    for site, key in keys.items():
        if not _SITE.allows(site):
            errors.add("site_keys", site, _SITE.rule)
        if not _SITE_KEY.allows(key):
            errors.add(f"site_keys[{site!r}]", key, _SITE_KEY.rule)
    return keys


def _secure(role: str, mode: str, sites: int, errors: ArgumentErrors) -> list[str]:
    """The options of a side with secure aggregation."""
    if mode != ROUNDS:
        errors.say(
            "secure_aggregation",
            f"is for mode {ROUNDS!r}: in the others each update is applied by itself, and there "
            "is no sum to hide it in",
        )
    if sites and not _SECURE_SITES.allows(sites):
        errors.add(
            "sites" if role == "coordinator" else "site_keys", sites,
            f"{_SECURE_SITES.low:g} to {_SECURE_SITES.high:g} sites with secure_aggregation",
            "of two, each would learn the other's update from the sum and its own",
        )  # fmt: skip
    own = [] if role == "coordinator" else ["--site-keys", _SITES_FILE]
    return ["--secure-aggregation", *own]


def _peers(given: Mapping[str, Any], role: str, errors: ArgumentErrors) -> Peers:
    coordinator = ""
    if role == "site":
        coordinator = errors.text(given, "coordinator")
        found = _PLACE.match(coordinator)
        if coordinator and (not found or not 1 <= int(found[2]) <= 65535):
            errors.add("coordinator", coordinator, "host:port")
    ranges = errors.texts("peer_ranges", given.get("peer_ranges", ()))
    for position, text in enumerate(ranges):
        at = f"peer_ranges[{position}]"
        found_range = cidr(at, text, errors)
        if found_range is not None and not is_private(found_range):
            errors.add(at, text, "private ranges: sites are in one's own networks")
    namespaces = errors.texts("peer_namespaces", given.get("peer_namespaces", ()))
    for position, text in enumerate(namespaces):
        object_name(f"peer_namespaces[{position}]", text, errors)
    if role in ROLES and not ranges and not namespaces:
        errors.say(
            "peer_ranges", "missing; say where the other side is: peer_ranges or peer_namespaces"
        )
    return Peers(coordinator, ranges, namespaces)


def _options(
    given: Mapping[str, Any], checked: Mapping[str, Any], sites: int, errors: ArgumentErrors
) -> tuple[str, ...]:
    mode = str(checked["mode"])
    if checked["role"] == "site":
        return _floor(given, mode, sites, errors)
    others = _OF_SERVED if mode == ROUNDS else _OF_ROUNDS
    for argument in others:
        if argument in given:
            modes = ", ".join(_SERVED) if mode == ROUNDS else ROUNDS
            errors.say(argument, f"is for another mode ({modes}); leave it out")
    if mode == ROUNDS:
        return _of_rounds(given, checked, sites, errors)
    return _of_served(given, checked, errors)


def _floor(
    given: Mapping[str, Any], mode: str, sites: int, errors: ArgumentErrors
) -> tuple[str, ...]:
    """The options by which a site refuses rounds."""
    named = [argument for argument in _FLOOR if argument in given]
    if mode != ROUNDS:
        for argument in named:
            errors.say(argument, f"is for another mode ({ROUNDS}); leave it out")
        return ()
    if "least_sites" in given:
        most = sites or int(_LEAST_SITES.high)
        errors.whole("least_sites", given["least_sites"], int(_LEAST_SITES.low), most)
    # As it stands in the file: a rounded limit would be another one.
    pairs = [("--" + argument.replace("_", "-"), str(given[argument])) for argument in named]
    return tuple(word for pair in pairs for word in pair)


def _of_served(
    given: Mapping[str, Any], checked: Mapping[str, Any], errors: ArgumentErrors
) -> tuple[str, ...]:
    mode = str(checked["mode"])
    if "local_steps" in given and mode != "local":
        errors.say("local_steps", "is for mode 'local'; leave it out")
    found = ["--mode", mode, "--rows", "own"]
    found += ["--compression", str(checked["compression"])]
    for argument in ("epochs", "staleness", "gather", "local_steps"):
        if argument in given:
            found += ["--" + argument.replace("_", "-"), str(checked[argument])]
    return tuple(found)


_EPOCHS_OF_A_ROUND: Final = Between(1, 1_000)
_USUAL_EPOCHS: Final = 2


def _of_rounds(
    given: Mapping[str, Any], checked: Mapping[str, Any], sites: int, errors: ArgumentErrors
) -> tuple[str, ...]:
    every = max(1, sites)
    epochs = errors.within("epochs", given.get("epochs", _USUAL_EPOCHS), _EPOCHS_OF_A_ROUND)
    secure = bool(checked["secure_aggregation"])
    # More than half: no two groups without a common site are each enough.
    fewest = every // 2 + 1 if secure else 1
    least = errors.whole("least_sites", given.get("least_sites", every), fewest, every)
    found = [
        "--rounds", str(checked["rounds"]), "--epochs", str(epochs),
        "--least-sites", str(least), "--round-seconds", str(checked["round_seconds"]),
    ]  # fmt: skip
    if secure or "noise" in given or "clip" in given:
        noise: float = checked["noise"] or 0.0
        clip: float = 1.0 if checked["clip"] is None else checked["clip"]
        found += ["--clip", f"{clip:g}", "--noise", f"{noise:g}"]
    return tuple(found)


def manifests(spec: FederatedTrainingSpec) -> list[Manifest]:
    """The objects of a coordinator or a site."""
    return objects(spec)


class FederatedTraining(pulumi.ComponentResource):
    """Trains one model on the rows of several sites, none of which sends a row.

    Sites fetch the model, train it on their own rows and send what changed: tensors of the model
    and two numbers, which the coordinator averages. Both sides show certificates of one authority
    over TLS 1.3, and a site its token. With ``noise`` the sum of all rounds tells little of any
    one site; ``privacy.json`` in the run's folder says how little.
    """

    run_folder: pulumi.Output[str]
    """Folder of the run in the coordinator's claim of checkpoints."""

    def __init__(
        self, name: str, args: FederatedTrainingArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check(name, args)
        super().__init__(token("FederatedTraining"), name, None, opts)
        rendered = manifests(spec)
        jobs = [each for each in rendered if each["kind"] == "JobSet"]
        declare(self, name, [each for each in rendered if each["kind"] != "JobSet"])
        declare(self, name, jobs, replace_on_changes=["spec"], delete_before_replace=True)
        self.run_folder = pulumi.Output.from_input(spec.run.name)
        self.register_outputs({"run_folder": self.run_folder})
