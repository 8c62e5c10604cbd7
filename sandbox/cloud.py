"""One cloud of the sandbox: what its provider does, with plain values in and out."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from falaj.engine.errors import EngineError
from falaj.sandbox import faults, properties, property_types, urns
from falaj.sandbox.charts.groups import Capabilities
from falaj.sandbox.checker import Checker
from falaj.sandbox.clouds.kubernetes import cluster_of
from falaj.sandbox.clouds.model import CloudModel, GenericModel, Made, Problem, Properties
from falaj.sandbox.errors import ModelError, SandboxError
from falaj.sandbox.properties import filled, leaves, plausible, previewed, without_nulls
from falaj.sandbox.schema import Property, Tables
from falaj.sandbox.store import Store
from falaj.wire import UNKNOWN, has_unknown
from falaj.wire.values import PropertyChange

# A provider's own settings: the engine sends what is no text as JSON in a text.

# Added by the engine itself; they belong to no provider's schema.
_OF_THE_ENGINE: Final = ("version", "pluginDownloadURL", "pluginChecksums")

_CREDENTIALS: Final = {
    "aws": ("accessKey", "secretKey", "token"),
    "azure-native": (
        "clientCertificatePassword",
        "clientSecret",
        "oidcRequestToken",
        "oidcToken",
    ),
}


def decode_settings(tables: Tables, given: Properties) -> dict[str, Any]:
    """Settings with their JSON read; what can't be read stays a text, for the checker to say."""
    found = tables.resource(tables.provider_token)
    known: Mapping[str, Property] = {} if found is None else found.inputs.properties
    settings: dict[str, Any] = {}
    for name, value in given.items():
        if value is None or name in _OF_THE_ENGINE:
            continue
        is_text = name not in known or known[name].type == property_types.STRING
        settings[name] = value if is_text else _read(value)
    return settings


def refuse_credentials(package: str, given: Properties) -> list[Problem]:
    """Real credentials among a provider's settings: they have no place in the sandbox's state."""
    return [
        Problem(
            name,
            "real credentials were given to the sandbox, which needs none and would keep them in "
            "its state; take the setting away, or run this stack without the sandbox",
        )
        for name in _CREDENTIALS.get(package, ())
        if given.get(name) is not None
    ]


def _read(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


MARK: Final = "__falajSandbox"
"""Output of everything that the sandbox made; the engine keeps it and shows it nowhere."""
MADE_UP: Final = "nothing real was made"
"""Its value for what exists in the sandbox's file alone."""
MADE_IN: Final = "test control plane"
"""How its value begins for what exists in a control plane; which one comes after it."""

BANNER: Final = (
    "SANDBOX: nothing real is made, changed or paid for; these resources exist only in a file "
    "on this machine"
)

# A resource gets a new automatic name with each replacement that overlaps the one before.
_GENERATIONS_LOOKED_AT: Final = 4

Result = TypeVar("Result")


class Cloud:
    """Checks, makes, changes and removes resources of one package.

    Args:
        model: what this cloud knows beyond its SDK's types.
        store: what exists.
    """

    #: What is said loudly when a run begins.
    banner = BANNER
    #: Whether operations take time, and so must not be done one after the other.
    waits = False

    def __init__(self, model: CloudModel, store: Store) -> None:
        self.package = model.package
        self.tables = Tables(model.package)
        self.checker = Checker(self.tables)
        self.store = store
        self.config: dict[str, Any] = {}
        # Ids of Kubernetes objects are the same in every cluster.
        self._place = ""
        self._model = model
        self.is_modelled = type(model) is not GenericModel
        """Whether more is known of it than the types of its SDK."""

    # The provider's own settings

    def check_settings(self, given: Properties) -> list[Problem]:
        """What is wrong with the provider's own settings."""
        settings = decode_settings(self.tables, given)
        if not self.is_modelled:
            # A vendor's provider passes over what it doesn't know, such as settings of before.
            return []
        return [
            *refuse_credentials(self.package, settings),
            *(
                self.checker.settings(settings)
                or self._ask(lambda: self._model.check_configuration(settings), "its settings")
            ),
        ]

    def configure(self, given: Properties) -> None:
        """Take over the provider's own settings."""
        self.config = decode_settings(self.tables, given)
        if self.package == "kubernetes":
            self._place = cluster_of(self.config)

    # Resources

    def check(
        self, urn: str, inputs: Properties, old: Properties
    ) -> tuple[dict[str, Any], list[Problem]]:
        """The inputs with what the provider fills in, and what is wrong with them."""
        token, name = urns.token(urn), urns.name(urn)
        given = without_nulls(inputs)
        problems = self.checker.resource(token, given)
        if problems:
            return given, problems
        checked = self._filled(token, name, urn, given, old)
        problems = self._ask(lambda: self._model.problems(token, checked, self.config), name)
        return checked, problems

    def difference(
        self,
        urn: str,
        old: Properties,
        new: Properties,
        id: str,
        ignored: list[str],
    ) -> tuple[list[PropertyChange], bool]:
        """What differs, and whether the old must go before a new one can be made."""
        token, name = urns.token(urn), urns.name(urn)
        changes = properties.compare(old, new, self._replacements(token), ignored)
        if not any(change.replaces for change in changes) or has_unknown(new):
            return changes, False
        other = _of_generation(urn, self._generation(urn))
        return changes, self._identity(token, name, new, other) == id

    def refuse_foreign(self, urn: str, id: str, state: Properties) -> None:
        """Refuse a state that the sandbox didn't write. Raises EngineError."""
        self._own(urns.token(urn), id, state)

    def preview_create(self, urn: str, inputs: Properties) -> dict[str, Any]:
        """The outputs as far as they are known before a resource is made."""
        found = self.tables.resource(urns.token(urn))
        computed = {} if found is None else dict.fromkeys(found.outputs, UNKNOWN)
        return {**computed, **previewed(inputs)}

    def of(self, token: str) -> Cloud:
        """The cloud that resources of a type are in: this one, but for exceptions."""
        del token
        return self

    def capabilities(self) -> Capabilities:
        """What charts are told of the cluster."""
        return Capabilities(str(self.config.get("namespace") or "default"))

    def cancel(self) -> None:
        """Stop waiting: the engine was told to stop. Nothing here takes long enough."""

    def refuse_new(self, urn: str, inputs: Properties) -> None:
        """Refuse of a request that makes a resource what only one that exists may be asked for.

        Not of a prediction, nor of a program without an engine: these say what stands in the end,
        whatever requests that takes.

        Raises:
            SandboxError: the cloud would refuse it.
        """
        token, name = urns.token(urn), urns.name(urn)
        problems = self._ask(
            lambda: self._model.creation_problems(token, inputs, self.config), name
        )
        if problems:
            raise SandboxError(problems, f"{name} can't be made")

    def create(
        self, urn: str, inputs: Properties, *, seconds: float = 0.0
    ) -> tuple[str, dict[str, Any]]:
        """Make a resource: its id and outputs.

        Args:
            seconds: how long it may take to become ready; 0 for the usual time. What exists in
                the sandbox alone is ready at once, here and below.

        Raises:
            SandboxError: the cloud would refuse it.
            FaultError: a fault was asked for.
        """
        del seconds
        token, name = urns.token(urn), urns.name(urn)
        fault = faults.meet(self.store, "create", token, name)
        if fault is not None and not fault.timed_out:
            raise fault
        made = self._added(urn, inputs)
        if fault is not None:
            raise fault.with_state(made.id, made.outputs, inputs)
        return made.id, dict(made.outputs)

    def add(self, urn: str, inputs: Properties, id: str = "") -> Made:
        """Add a resource that exists outside of every run; checked as one that is made is.

        Args:
            id: its own; empty for one that the sandbox makes up.

        Raises:
            SandboxError: the inputs are wrong, or the cloud would refuse them.
        """
        checked, problems = self.check(urn, inputs, {})
        if problems:
            raise SandboxError(problems, f"{urns.name(urn)} can't be added")
        return self._added(urn, checked, id)

    def read(
        self, urn: str, id: str, state: Properties, inputs: Properties | None = None
    ) -> Made | None:
        """What is true of a resource now; None when it is gone, or never was (an import).

        Args:
            inputs: the last ones; none for an import.
        """
        del inputs
        token, name = urns.token(urn), urns.name(urn)
        fault = faults.meet(self.store, "read", token, name)
        if fault is not None:
            raise fault
        return self._own(token, id, state)

    def preview_update(
        self, urn: str, id: str, state: Properties, old: Properties, new: Properties
    ) -> dict[str, Any]:
        """The outputs as far as they are known before a resource is changed."""
        del urn, id
        kept = {name: value for name, value in state.items() if name not in old or name in new}
        return {**kept, **previewed(new)}

    def update(
        self,
        urn: str,
        id: str,
        state: Properties,
        inputs: Properties,
        *,
        seconds: float = 0.0,
    ) -> dict[str, Any]:
        """Change a resource: its new outputs. Raises SandboxError, FaultError."""
        del seconds
        token, name = urns.token(urn), urns.name(urn)
        fault = faults.meet(self.store, "update", token, name)
        if fault is not None and not fault.timed_out:
            raise fault
        with self.store.transaction():
            if self._own(token, id, state) is None:
                raise SandboxError(
                    [Problem("", f"{token} {id!r} no longer exists; run `pulumi refresh`")],
                    f"{name} can't be changed",
                )
            self._refuse(token, name, inputs, id, "changed")
            made = self._made(urn, token, id, inputs)
            self.store.change(dataclasses.replace(made, id=self._kept(id)))
        if fault is not None:
            raise fault.with_state(id, made.outputs, inputs)
        return dict(made.outputs)

    def delete(
        self,
        urn: str,
        id: str,
        state: Properties,
        *,
        seconds: float = 0.0,
    ) -> None:
        """Remove a resource; one that is gone already is no mistake. Raises as `update` does."""
        del seconds
        token, name = urns.token(urn), urns.name(urn)
        fault = faults.meet(self.store, "delete", token, name)
        if fault is not None and not fault.timed_out:
            raise fault
        with self.store.transaction():
            made = self._own(token, id, state)
            if made is not None:
                blockers = self._ask(
                    lambda: self._model.delete_blockers(token, made, self.store), name
                )
                if blockers:
                    raise SandboxError(blockers, f"{name} can't be deleted")
                for each in self._model.taken_along(token, made, self.store):
                    self.store.remove(each.token, each.id)
                self.store.remove(token, self._kept(id), urn)
        if fault is not None:
            raise fault

    def invoke(self, token: str, arguments: Properties) -> dict[str, Any]:
        """The answer to a query. Raises SandboxError for one that isn't known or is refused."""
        problems = self.checker.query(token, arguments)
        if problems:
            raise SandboxError(problems, f"{token} can't be asked")
        if not self.is_modelled:
            return self.made_up(token)
        try:
            return dict(
                self._ask(
                    lambda: self._model.invoke(token, arguments, self.config, self.store), token
                )
            )
        except LookupError as error:
            reason = str(error.args[0]) if error.args else "the sandbox doesn't know this query"
            raise SandboxError([Problem("", reason)], f"{token} can't be answered") from error

    def made_up(self, token: str) -> dict[str, Any]:
        """An answer to a query that has the form which the SDK promises, and means nothing."""
        short = token.rpartition(":")[2]
        results = self.tables.package.function_results(token)
        return {name: plausible(kind, f"{short}-{name}") for name, kind in results.items()}

    def imagined(self, token: str, id: str) -> dict[str, Any]:
        """Outputs of something that only the program knows of, in the form that the SDK promises:
        texts that mean nothing, and empty lists and mappings, as the engine reads no unknowns."""
        found = self.tables.resource(token)
        outputs: Mapping[str, Property] = {} if found is None else found.outputs
        values = {name: plausible(each.type, f"{id}-{name}") for name, each in outputs.items()}
        if self.package == "kubernetes" and "metadata" in values:
            namespace, _, name = id.rpartition("/")
            values["metadata"] = {"name": name, "namespace": namespace or "default"}
        return {**values, MARK: MADE_UP}

    def without_guesses(
        self, urn: str, inputs: Properties, outputs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Outputs of which no list or mapping is guessed: of a type that the model doesn't know
        an empty one would say that nothing is in it, where that can't be known."""
        if not self._model.is_guessed(urns.token(urn)):
            return dict(outputs)
        return {
            key: UNKNOWN if key not in inputs and value in ([], {}) else value
            for key, value in outputs.items()
        }

    # Parts of the above

    def _filled(
        self, token: str, name: str, urn: str, given: Properties, old: Properties
    ) -> dict[str, Any]:
        """Inputs with what the provider fills in; automatic names stay while the resource does.

        The engine checks a resource that is to be replaced as if there were no old one: it gets
        the name of the next generation, so that both can exist for a while.
        """

        def asked(generation: int) -> Properties:
            own = _of_generation(urn, generation)
            return self._ask(
                lambda: self._model.defaults(token, name, given, self.config, own), name
            )

        if not old:
            return filled(given, asked(self._generation(urn)))
        first = asked(0)
        was = leaves(old)
        if any(was.get(path) != value for path, value in leaves(first).items()):
            for generation in range(1, _GENERATIONS_LOOKED_AT):
                other = asked(generation)
                own = leaves(other).items() - leaves(first).items()
                if own and own <= was.items():
                    return filled(given, other)
        return filled(given, first)

    def _replacements(self, token: str) -> frozenset[str]:
        """Property paths a change of which replaces a resource of this type."""
        return self._model.replacements(token)

    def _generation(self, urn: str) -> int:
        """The number of a new resource of this URN: 0 unless others of it still exist."""
        taken = self.store.generations(urn)
        return next(number for number in range(len(taken) + 1) if number not in taken)

    def _identity(self, token: str, name: str, inputs: Properties, own: str) -> str:
        found = self._ask(
            lambda: self._model.identity(token, name, inputs, self.config, own), name
        )
        digest = hashlib.sha256(f"{token}|{own}".encode()).hexdigest()[:17]
        return found or f"{name}-{digest}"

    def _added(self, urn: str, inputs: Properties, id: str = "") -> Made:
        token, name = urns.token(urn), urns.name(urn)
        with self.store.transaction():
            generation = self._generation(urn)
            own = _of_generation(urn, generation)
            self._refuse(token, name, inputs, None, "made")
            made_id = id or self._identity(token, name, inputs, own)
            is_there = self.store.by_id(token, self._kept(made_id)) is not None
            if is_there and not self._model.is_shared(token):
                raise SandboxError(
                    [Problem("", f"{token} {made_id!r} already exists; choose another name")],
                    f"{name} can't be made",
                )
            made = self._made(urn, token, made_id, inputs)
            kept = dataclasses.replace(made, id=self._kept(made_id))
            if is_there:
                self.store.share(kept)
            else:
                self.store.add(kept, generation)
        return made

    def _made(
        self,
        urn: str,
        token: str,
        id: str,
        inputs: Properties,
    ) -> Made:
        name = urns.name(urn)
        answered = self._ask(
            lambda: self._model.outputs(token, id, inputs, self.config, self.store), name
        )
        outputs: dict[str, Any] = {**inputs, **answered}
        found = self.tables.resource(token)
        promised: Mapping[str, Property] = {} if found is None else found.outputs
        for output, known in promised.items():
            if known.required and outputs.get(output) is None and output != "id":
                outputs[output] = plausible(known.type, f"{name}-{output}")
        outputs = {key: value for key, value in outputs.items() if value is not None}
        outputs[MARK] = MADE_UP
        region = outputs.get("region") or outputs.get("location") or self.config.get("region")
        return Made(urn, token, id, dict(inputs), outputs, str(region or ""), urns.stack(urn))

    def _refuse(
        self,
        token: str,
        name: str,
        inputs: Properties,
        id: str | None,
        what: str,
    ) -> None:
        # What was unknown in the preview is checked for the first time here.
        found = self.checker.resource(token, inputs) or self._ask(
            lambda: [
                *self._model.problems(token, inputs, self.config),
                *self._model.conflicts(token, inputs, self.config, self.store, id),
            ],
            name,
        )
        if found:
            raise SandboxError(found, f"{name} can't be {what}")

    def _own(
        self,
        token: str,
        id: str,
        state: Properties,
    ) -> Made | None:
        """The resource, unless it is gone.

        Raises:
            EngineError: its state wasn't written by the sandbox.
        """
        if state and MARK not in state:
            raise EngineError(
                f"{token} {id!r} was not made in the sandbox: its state comes from a real cloud "
                "or another provider, and the sandbox touches nothing of the kind; run this stack "
                "without the sandbox, or take the resource out of this state with "
                "`pulumi state delete`"
            )
        if state and str(state[MARK]).startswith(MADE_IN):
            made = f"{token} {id!r} was made in a {state[MARK]}, which this run doesn't use"
            raise SandboxError(
                [Problem("", f"{made}; set FALAJ_SANDBOX_CLUSTER to its kubeconfig")]
            )
        return self.store.by_id(token, self._kept(id))

    def _kept(self, id: str) -> str:
        """The id under which a resource is kept, beside those of other clusters."""
        return f"{id}@{self._place}" if self._place else id

    def _ask(self, question: Callable[[], Result], about: str) -> Result:
        """Ask the model; its own mistakes are told as such, without a trace."""
        try:
            return question()
        except EngineError:
            raise
        except Exception as error:
            if type(error) is LookupError:  # a query that isn't known; a missing key is a mistake
                raise
            raise ModelError(self.package, about, error) from error


def _of_generation(urn: str, generation: int) -> str:
    return urn if generation == 0 else f"{urn}#{generation}"
