"""The types of each package's resources, read once from the installed SDK's hints and kept."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import json
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from falaj.engine.errors import EngineError
from falaj.engine.extras import OF_PROVIDERS
from falaj.engine.files import cache_home, replace_file
from falaj.sandbox import sdks
from falaj.sandbox.property_types import (
    STRING,
    Choice,
    Either,
    ListOf,
    MapOf,
    ObjectType,
    Property,
    Reference,
    ResourceType,
    Scalar,
    Type,
)
from falaj.sandbox.sdks import SDKS, UTILITIES
from falaj.wire import PROVIDER


def listed(value: Any, values: Sequence[Any], *, any_case: bool) -> Any:
    """The one of a list's values that is meant; what was given where none is.

    Args:
        any_case: whether a text means the one that differs in letter case alone.
    """
    for one in values:
        if type(value) is type(one) and value == one:
            return one
    if any_case and isinstance(value, str):
        folded = value.casefold()
        for one in values:
            if isinstance(one, str) and one.casefold() == folded:
                return one
    return value


# Tables of a package's types.

_FUNCTION: Final = re.compile(r"pulumi\.runtime\.invoke\(\s*'([^']+)'")
_ARGUMENT: Final = re.compile(r"__args__\['([^']+)'\]")


@dataclass(frozen=True)
class Package:
    """An installed SDK: the program's own where it has one, else ours.

    Raises:
        EngineError: the SDK isn't installed, or isn't one that we know.
    """

    name: str
    folder: Path = field(init=False)
    module: str = field(init=False)
    """The SDK's top module."""
    version: str = field(init=False)

    def __post_init__(self) -> None:
        found = sdks.of_program(self.name) or self._ours()
        object.__setattr__(self, "folder", found.folder)
        object.__setattr__(self, "module", found.module)
        object.__setattr__(self, "version", found.version)

    def _ours(self) -> sdks.Sdk:
        module = SDKS.get(self.name) or UTILITIES.get(self.name)
        if module is None:
            other = sdks.installed().get(self.name)
            if other is not None:
                return other
            raise EngineError(
                f"{self.name!r} is no cloud that the sandbox stands in for, and has no SDK where "
                f"the program runs; allowed: {', '.join((*SDKS, *UTILITIES))}, and others whose "
                "SDK is installed there"
            )
        spec = importlib.util.find_spec(module)
        if (spec is None or spec.origin is None) and self.name in UTILITIES:
            raise EngineError(
                f"the Python SDK {module} isn't installed; install it with `pip install {module}`"
            )
        if spec is None or spec.origin is None:
            raise EngineError(
                f"the Python SDK {module} isn't installed; install Falaj's extra "
                f"{OF_PROVIDERS[self.name]!r} with `python engine/environment.py --extra "
                f"{OF_PROVIDERS[self.name]}`"
            )
        version = metadata.version(module)
        return sdks.Sdk(self.name, module, version, Path(spec.origin).parent)

    @cached_property
    def classes(self) -> Mapping[str, tuple[str, str]]:
        """The module and the class of each resource type's token."""
        text = (self.folder / "__init__.py").read_text(encoding="utf-8")
        found: dict[str, tuple[str, str]] = {}
        listed = re.search(r'resource_modules="""(.*?)"""', text, re.DOTALL)
        for entry in json.loads(listed.group(1)) if listed else ():
            for token, class_name in entry["classes"].items():
                found[token] = (entry["fqn"], class_name)
        return found

    def provider_class(self) -> type:
        """The class of the provider's own settings."""
        return _arguments_class(importlib.import_module(f"{self.module}.provider"))

    def resource_class(self, token: str) -> type:
        """The class of a resource; imports its part of the SDK. Raises KeyError."""
        module, class_name = self.classes[token]
        return getattr(importlib.import_module(module), class_name)

    def arguments_class(self, resource: type) -> type:
        """The class of a resource's arguments."""
        return _arguments_class(sys.modules[resource.__module__])

    def function_arguments(self, token: str) -> frozenset[str] | None:
        """The names of a query's arguments; None for a query that the SDK doesn't have."""
        found = self._function(token)
        return None if found is None else frozenset(_ARGUMENT.findall(found[1]))

    def function_results(self, token: str) -> Mapping[str, Type]:
        """What a query answers, by the engine's names; nothing for one that the SDK doesn't have.

        Imports its part of the SDK.
        """
        found = self._function(token)
        if found is None:
            return {}
        inner = found[0].relative_to(self.folder).with_suffix("").parts
        module = module_named(".".join((self.module, *inner)))
        # The class of the answer comes before the one by which it can be awaited.
        name = next((each for each in module.__all__ if each.endswith("Result")), "")
        from falaj.sandbox import hints  # noqa: PLC0415 - loads the Pulumi SDK

        read = hints.hints_of(getattr(module, name)) if name else {}
        return {each: hints.shape(hint) for each, hint in read.items()}

    def _function(self, token: str) -> tuple[Path, str] | None:
        """The file of a query, and its text; None for one that the SDK doesn't have."""
        # aws:ec2/getSubnet:getSubnet, azure-native:authorization:getClientConfig
        parts = token.split(":")
        if len(parts) != 3:
            return None
        section, name = parts[1].split("/")[0], parts[2]
        folder = self.folder if section == "index" else self.folder / section
        for source in (folder / f"{_snake(name)}.py", self.folder / f"{_snake(name)}.py"):
            if source.is_file():
                text = source.read_text(encoding="utf-8")
                if token in _FUNCTION.findall(text):
                    return source, text
        return None


def module_named(name: str) -> ModuleType:
    """A module of an SDK; its package is loaded first.

    SDKs load their packages when something of them is asked for. One that an import of its own
    module loads doesn't get that module's names: the module is half loaded then.

    Raises:
        ModuleNotFoundError: there is none.
    """
    package, _, own = name.rpartition(".")
    # Whether it is there or not: what is asked for loads the package.
    hasattr(importlib.import_module(package), own)
    return importlib.import_module(name)


def _arguments_class(module: ModuleType) -> type:
    # The module of a resource lists its arguments' class first, then the resource's.
    name = next(name for name in module.__all__ if name.endswith("Args"))
    return getattr(module, name)


def _snake(name: str) -> str:
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return split.lower()


def dump(resource: ResourceType, objects: Mapping[str, ObjectType]) -> dict[str, Any]:
    """A resource's type and every object type that it needs."""
    return {
        "token": resource.token,
        "inputs": resource.inputs.name,
        "outputs": _dump_properties(resource.outputs),
        "objects": {name: _dump_properties(kind.properties) for name, kind in objects.items()},
    }


def load(document: Mapping[str, Any]) -> tuple[ResourceType, dict[str, ObjectType]]:
    """What `dump` wrote.

    Raises:
        KeyError, TypeError, ValueError: the document was written by something else.
    """
    objects = {
        name: ObjectType(name, _load_properties(properties))
        for name, properties in document["objects"].items()
    }
    outputs = _load_properties(document["outputs"])
    return ResourceType(document["token"], objects[document["inputs"]], outputs), objects


def _dump_properties(properties: Mapping[str, Property]) -> dict[str, Any]:
    return {
        name: [_dump_type(each.type), each.required, each.python_name]
        for name, each in properties.items()
    }


def _load_properties(document: Mapping[str, Any]) -> dict[str, Property]:
    return {
        name: Property(_load_type(kind), required, python_name)
        for name, (kind, required, python_name) in document.items()
    }


def _dump_type(kind: Type) -> Any:
    match kind:
        case Scalar(name):
            return name
        case Choice(name, values, is_open):
            return ["choice", name, list(values), is_open]
        case ListOf(item):
            return ["list", _dump_type(item)]
        case MapOf(item):
            return ["map", _dump_type(item)]
        case Reference(name):
            return ["object", name]
        case Either(members):
            return ["either", *(_dump_type(member) for member in members)]


def _load_type(document: Any) -> Type:
    match document:
        case str():
            return Scalar(document)
        case ["choice", name, values, is_open]:
            return Choice(name, tuple(values), is_open)
        case ["list", item]:
            return ListOf(_load_type(item))
        case ["map", item]:
            return MapOf(_load_type(item))
        case ["object", name]:
            return Reference(name)
        case ["either", *members]:
            return Either(tuple(_load_type(member) for member in members))
        case _:
            raise ValueError(f"no type: {document!r}")


# kubernetes:karpenter.sh/v1:NodePool
_CUSTOM: Final = re.compile(r"kubernetes:[a-z0-9.-]+\.[a-z0-9-]+/v[0-9a-z]+:[A-Z][A-Za-z0-9]*")

OPEN_CHOICES: Final = frozenset(
    {
        # Lists that the SDK shows as examples; the services take what they sell today.
        "pulumi_aws._enums.Region",
        "pulumi_aws.ec2._enums.InstanceType",
        "pulumi_aws.iam._enums.ManagedPolicy",
        "pulumi_aws.lambda_._enums.Runtime",
        "pulumi_aws.rds._enums.EngineType",
        "pulumi_aws.rds._enums.InstanceType",
        "pulumi_azure_native.compute._enums.VirtualMachineSizeTypes",
        "pulumi_azure_native.hybridnetwork._enums.VirtualMachineSizeTypes",
    }
)


class Tables:
    """Types of the resources, queries and settings of one package.

    Raises:
        EngineError: the package's SDK isn't installed.
    """

    def __init__(self, package: str) -> None:
        self.package = Package(package)
        self.objects: dict[str, ObjectType] = {}
        self._resources: dict[str, ResourceType] = {}

    def resource(self, token: str) -> ResourceType | None:
        """What a resource takes and gives; None for a type that the SDK doesn't have."""
        found = self._resources.get(token)
        if found is None and (token in self.package.classes or token == self.provider_token):
            found = self._resources[token] = self._load(token) or self._read(token)
        return found

    def custom(self, token: str) -> ResourceType | None:
        """The type of a Kubernetes object that no SDK has, of a group of its own; else None.

        Its metadata is typed, the rest is what its definition in the cluster says.
        """
        if self.package.name != "kubernetes" or not _CUSTOM.fullmatch(token):
            return None
        if any(
            known.split("/")[0] == token.split("/", maxsplit=1)[0]
            for known in self.package.classes
        ):
            return None  # a group of the API server itself: the kind is misspelt
        found = self.resource("kubernetes:core/v1:ConfigMap")
        if found is None:
            return None
        typed = {name: found.inputs.properties[name] for name in ("metadata",)}
        text = Property(STRING, True, "api_version")
        typed |= {"apiVersion": text, "kind": Property(STRING, True, "kind")}
        return ResourceType(token, ObjectType(token, typed, open=True))

    @property
    def provider_token(self) -> str:
        """The token of the provider's own settings."""
        return f"{PROVIDER}{self.package.name}"

    def tokens(self) -> list[str]:
        """Every type of resource that the SDK has."""
        return sorted(self.package.classes)

    def _read(self, token: str) -> ResourceType:
        with warnings.catch_warnings():
            # An SDK warns of each of its old classes when they are imported, used or not.
            warnings.simplefilter("ignore", DeprecationWarning)
            return self._read_sdk(token)

    def _read_sdk(self, token: str) -> ResourceType:
        from falaj.sandbox.hints import HintReader  # noqa: PLC0415 - loads the Pulumi SDK

        reader = HintReader(OPEN_CHOICES.__contains__)
        if token == self.provider_token:
            inputs = reader.input_object(self.package.provider_class())
            found = ResourceType(token, inputs)
        else:
            cls = self.package.resource_class(token)
            inputs = reader.input_object(self.package.arguments_class(cls))
            found = ResourceType(token, inputs, reader.outputs(cls))
        self.objects |= reader.objects
        self._save(found, reader.objects)
        return found

    def _load(self, token: str) -> ResourceType | None:
        try:
            document = json.loads(self._file(token).read_text(encoding="utf-8"))
            found, objects = load(document)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # not there yet, or damaged: it is read again and replaced
        self.objects |= objects
        return found

    def _save(self, found: ResourceType, objects: dict[str, ObjectType]) -> None:
        # Without a folder to write to, each process reads the SDK anew.
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps(dump(found, objects), separators=(",", ":"))
            replace_file(self._file(found.token), text, 0o600)

    def _file(self, token: str) -> Path:
        return self._folder / (token.replace(":", "-").replace("/", "-") + ".json")

    @cached_property
    def _folder(self) -> Path:
        version = f"{self.package.module}-{self.package.version}-{_reader_digest()}"
        return cache_home() / "sandbox" / "schema" / version


@cache
def _reader_digest() -> str:
    """Changes whenever the code changes that reads the types, or writes them."""
    own = Path(__file__)
    files = (own, own.with_name("hints.py"))
    return hashlib.sha256(b"".join(each.read_bytes() for each in files)).hexdigest()[:12]
