"""The types of one SDK, by token, read when they are first asked for.

Importing `pulumi_aws.ec2` takes more than a second and loading its subnet's type from a file takes
one millisecond. A provider starts anew with each command of the engine, so what was read once is
kept under the cache folder, by the SDK's version and by the code that reads it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import warnings
from functools import cache, cached_property
from pathlib import Path
from typing import Final

from falaj.engine.files import replace_file
from falaj.engine.folders import cache_home
from falaj.sandbox.schema import codec, types
from falaj.sandbox.schema.hints import HintReader
from falaj.sandbox.schema.packages import Package

# kubernetes:karpenter.sh/v1:NodePool
_CUSTOM: Final = re.compile(r"kubernetes:[a-z0-9.-]+\.[a-z0-9-]+/v[0-9a-z]+:[A-Z][A-Za-z0-9]*")

_HERE: Final = Path(__file__).parent

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
        self.objects: dict[str, types.ObjectType] = {}
        self._resources: dict[str, types.ResourceType] = {}

    def resource(self, token: str) -> types.ResourceType | None:
        """What a resource takes and gives; None for a type that the SDK doesn't have."""
        found = self._resources.get(token)
        if found is None and (token in self.package.classes or token == self.provider_token):
            found = self._resources[token] = self._load(token) or self._read(token)
        return found

    def custom(self, token: str) -> types.ResourceType | None:
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
        text = types.Property(types.STRING, True, "api_version")
        typed |= {"apiVersion": text, "kind": types.Property(types.STRING, True, "kind")}
        return types.ResourceType(token, types.ObjectType(token, typed, open=True))

    @property
    def provider_token(self) -> str:
        """The token of the provider's own settings."""
        return f"pulumi:providers:{self.package.name}"

    def tokens(self) -> list[str]:
        """Every type of resource that the SDK has."""
        return sorted(self.package.classes)

    def _read(self, token: str) -> types.ResourceType:
        with warnings.catch_warnings():
            # An SDK warns of each of its old classes when they are imported, used or not.
            warnings.simplefilter("ignore", DeprecationWarning)
            return self._read_sdk(token)

    def _read_sdk(self, token: str) -> types.ResourceType:
        reader = HintReader(OPEN_CHOICES.__contains__)
        if token == self.provider_token:
            inputs = reader.input_object(self.package.provider_class())
            found = types.ResourceType(token, inputs)
        else:
            cls = self.package.resource_class(token)
            inputs = reader.input_object(self.package.arguments_class(cls))
            found = types.ResourceType(token, inputs, reader.outputs(cls))
        self.objects |= reader.objects
        self._save(found, reader.objects)
        return found

    def _load(self, token: str) -> types.ResourceType | None:
        try:
            document = json.loads(self._file(token).read_text(encoding="utf-8"))
            found, objects = codec.load(document)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # not there yet, or damaged: it is read again and replaced
        self.objects |= objects
        return found

    def _save(self, found: types.ResourceType, objects: dict[str, types.ObjectType]) -> None:
        # Without a folder to write to, each process reads the SDK anew.
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps(codec.dump(found, objects), separators=(",", ":"))
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
    digest = hashlib.sha256()
    for source in sorted(_HERE.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]
