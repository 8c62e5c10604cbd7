"""The sandbox inside a test's own process: called itself, or behind `pulumi.runtime.set_mocks`."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pulumi

from falaj.sandbox import models, urns
from falaj.sandbox.cloud import Cloud
from falaj.sandbox.clouds.model import CloudModel, Problem
from falaj.sandbox.errors import SandboxError
from falaj.sandbox.store import Store
from falaj.wire import ARCHIVE, ASSET, PROVIDER, SECRET, SIGNATURE, UNKNOWN, has_unknown
from falaj.wire.documents import is_mapping, is_sequence
from falaj.wire.values import UNKNOWN_TEXT


class Sandbox:
    """Checks, makes and queries in plain Python.

    Args:
        cloud: ``aws``, ``azure-native`` (``azure`` for short) or ``kubernetes``.
        store: a `Store`, shared by several clouds, or the path of one; in memory by default.
        config: the provider's own settings, such as its region; none by default.
        model: what is known of the cloud; by default the sandbox's own model of it.

    Raises:
        EngineError: the cloud is none of these, or its SDK isn't installed.
    """

    def __init__(
        self,
        cloud: str,
        store: Store | Path | str = ":memory:",
        config: Mapping[str, Any] | None = None,
        model: CloudModel | None = None,
    ) -> None:
        package = "azure-native" if cloud == "azure" else cloud
        self.store = store if isinstance(store, Store) else Store(store)
        self.cloud = Cloud(model or models.load(package), self.store)
        if config is not None:
            self.cloud.configure(config)

    def check(
        self, token: str, name: str, inputs: Mapping[str, Any], urn: str | None = None
    ) -> tuple[dict[str, Any], list[Problem]]:
        """The inputs with the provider's defaults, and all that is wrong with them."""
        return self.cloud.check(urn or _urn(token, name), inputs, {})

    def create(
        self, token: str, name: str, inputs: Mapping[str, Any], urn: str | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Check and make a resource: its id and outputs.

        Raises:
            SandboxError: the inputs are wrong, or the cloud would refuse them.
            FaultError: a fault was asked for.
        """
        own = urn or _urn(token, name)
        checked, problems = self.cloud.check(own, inputs, {})
        if problems:
            raise SandboxError(problems, f"{token} {name}")
        return self.cloud.create(own, checked)

    def invoke(self, token: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a query. Raises SandboxError when it isn't known or is refused."""
        return self.cloud.invoke(token, args)


def _urn(token: str, name: str) -> str:
    return urns.make("stack", "project", token, name)


@dataclass(frozen=True)
class Declared:
    """A resource as a program declared it, and as the sandbox made it."""

    type: str
    name: str
    inputs: Mapping[str, Any]
    """As given, with the engine's names; secrets in plain, unknown ones as `wire.UNKNOWN`."""
    provider: str
    """The reference of the explicit provider, ``URN::id``; empty for the default one."""
    id: str
    outputs: Mapping[str, Any]
    custom: bool = True
    """False for a component."""


class SandboxMocks(pulumi.runtime.Mocks):
    """Answers for every package of the sandbox; records all that is declared.

    A resource whose inputs a cloud would refuse fails as the program's own error, with the
    property's path. Resources of other packages, and components, are recorded as they are.

    Args:
        config: settings of default providers by package, such as ``{"aws": {"region": …}}``;
            explicit providers bring their own.
        preview: as given to `set_mocks`: null inputs then count as unknown, because the mock
            monitor turns the one into the other, and nothing is really made.
    """

    def __init__(
        self, config: Mapping[str, Mapping[str, Any]] | None = None, preview: bool = False
    ) -> None:
        self.resources: list[Declared] = []
        self.queries: list[tuple[str, Mapping[str, Any]]] = []
        self.store = Store(":memory:")
        self._config = dict(config or {})
        self._preview = preview
        self._sandboxes: dict[str, Sandbox] = {}
        self._settings: dict[str, Mapping[str, Any]] = {}
        self._names: Counter[tuple[str, str]] = Counter()
        # The mock monitor calls from several threads at once.
        self._alone = threading.Lock()

    def named(self, name: str) -> Declared:
        """The one resource of that name. Raises KeyError when there is none, or several."""
        found = [each for each in self.resources if each.name == name]
        if len(found) != 1:
            names = ", ".join(sorted({each.name for each in self.resources}))
            raise KeyError(f"{len(found)} resources are named {name!r}; declared: {names}")
        return found[0]

    def of_type(self, token: str) -> list[Declared]:
        """The resources of a type, in the order in which they were declared."""
        return [each for each in self.resources if each.type == token]

    def new_resource(
        self, args: pulumi.runtime.MockResourceArgs
    ) -> tuple[str | None, dict[Any, Any]]:
        """Make a resource. Raises SandboxError when a cloud would refuse it."""
        with self._alone:
            return self._new_resource(args)

    def _new_resource(
        self, args: pulumi.runtime.MockResourceArgs
    ) -> tuple[str | None, dict[Any, Any]]:
        inputs: dict[str, Any] = self._plain(cast("Any", args).inputs)
        package = args.typ.split(":")[0]
        if args.typ.startswith(PROVIDER):
            made, outputs = self._provider(args.typ.removeprefix(PROVIDER), args.name, inputs)
        elif package in models.PACKAGES and args.custom is not False:
            made, outputs = self._resource(package, args, inputs)
        else:
            made, outputs = f"{args.name}-id", dict(inputs)
        custom = args.custom is not False
        self.resources.append(
            Declared(args.typ, args.name, inputs, args.provider or "", made, outputs, custom)
        )
        # Unknown outputs stay away, which the SDK takes for unknown in a preview.
        return made, {key: value for key, value in outputs.items() if not has_unknown(value)}

    def call(
        self, args: pulumi.runtime.MockCallArgs
    ) -> tuple[dict[Any, Any], list[tuple[str, str]]]:
        """Answer a query. Raises SandboxError when it isn't known or is refused."""
        with self._alone:
            return self._call(args)

    def _call(
        self, args: pulumi.runtime.MockCallArgs
    ) -> tuple[dict[Any, Any], list[tuple[str, str]]]:
        arguments: dict[str, Any] = self._plain(cast("Any", args).args)
        self.queries.append((args.token, arguments))
        package = args.token.split(":")[0]
        if package not in models.PACKAGES:
            return {}, []
        sandbox = self._sandbox(package, args.provider or "")
        return sandbox.invoke(args.token, arguments), []

    def _provider(
        self, package: str, name: str, inputs: dict[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        made = f"{name}-id"
        if package in models.PACKAGES:
            problems = self._of(package).cloud.check_settings(inputs)
            if problems:
                raise SandboxError(problems, f"provider {name}")
            self._settings[made] = inputs
        return made, dict(inputs)

    def _resource(
        self, package: str, args: pulumi.runtime.MockResourceArgs, inputs: dict[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        sandbox = self._sandbox(package, args.provider or "")
        if args.resource_id:
            found = self.store.by_id(args.typ, args.resource_id)
            return args.resource_id, dict(found.outputs) if found else dict(inputs)
        # Resources of one name may have different parents, which mocks aren't told.
        self._names[args.typ, args.name] += 1
        count = self._names[args.typ, args.name]
        own = urns.make(
            "stack", "project", args.typ, args.name + (f"-{count}" if count > 1 else "")
        )
        checked, problems = sandbox.cloud.check(own, inputs, {})
        if problems:
            raise SandboxError(problems, f"{args.typ} {args.name}")
        if self._preview:
            return "", sandbox.cloud.preview_create(own, checked)
        return sandbox.cloud.create(own, checked)

    def _sandbox(self, package: str, provider: str) -> Sandbox:
        """The package's sandbox with the settings of the provider that is referred to."""
        sandbox = self._of(package)
        settings = self._settings.get(provider.rpartition("::")[2])
        sandbox.cloud.configure(self._config.get(package, {}) if settings is None else settings)
        return sandbox

    def _of(self, package: str) -> Sandbox:
        if package not in self._sandboxes:
            self._sandboxes[package] = Sandbox(package, self.store)
        return self._sandboxes[package]

    def _plain(self, value: Any) -> Any:  # noqa: PLR0911 - one for each kind of value
        """Values without the marks of secrets, with `UNKNOWN` where the SDK says so."""
        if is_mapping(value):
            if value.get(SIGNATURE) == SECRET:
                return self._plain(value["value"])
            return {key: self._plain(each) for key, each in value.items()}
        if is_sequence(value):
            return [self._plain(each) for each in value]
        if isinstance(value, float) and value.is_integer():
            return int(value)  # numbers travel as floats
        if isinstance(value, pulumi.output.Unknown):
            return UNKNOWN
        if isinstance(value, pulumi.Asset | pulumi.Archive):
            return self._file(value)
        is_unknown = value == UNKNOWN_TEXT if isinstance(value, str) else False
        return UNKNOWN if is_unknown or (value is None and self._preview) else value

    def _file(self, value: pulumi.Asset | pulumi.Archive) -> dict[str, Any]:
        """What the engine sends for a file or a folder."""
        mark = ASSET if isinstance(value, pulumi.Asset) else ARCHIVE
        given = {name: getattr(value, name, None) for name in ("path", "text", "uri", "assets")}
        return {
            SIGNATURE: mark,
            **{name: self._plain(each) for name, each in given.items() if each is not None},
        }
