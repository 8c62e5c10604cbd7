"""Arguments of `Workspace`, and what a workspace is once they were checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, NotRequired, TypedDict

from falaj.components.catalogue.clusters import CERTIFICATE_ISSUER, SECRET_STORE
from falaj.components.kubernetes._objects import metadata
from falaj.components.kubernetes._placed import HOME_PREFIX, InCluster
from falaj.components.kubernetes.storage_classes import BLOCK
from falaj.components.kubernetes.training.arguments import Placement, PodSize, SizedArgs
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.limits import OBJECT, WORKSPACE_ENDING, Between, OneOf

IMAGE: Final = "falaj-workspace"
_PRIORITIES: Final = ("falaj-low", "falaj-normal")


class PackageMirrorArgs(TypedDict):
    """A mirror of Python packages in the country."""

    url: str
    """Its index, as pip takes it: ``https://packages.acme.example/simple``."""
    cidrs: list[str]
    """Its private addresses, such as ``10.20.3.0/28``: network policies know no names."""


@described
class WorkspaceArgs(SizedArgs):
    """Arguments of `Workspace`."""

    user: str
    """Whose it is: one person's name as the API server knows it. Nobody else gets in."""
    token_secret: str
    """Entry of the secret store with the token that the server asks for, 32 or more letters and
    digits: ``acme/workspace-alice``, on AKS ``acme--workspace-alice``."""
    home_gib: NotRequired[Annotated[int, Between(1, 1_000), Default(20)]]
    """Size of the home, which can grow where the class allows it."""
    storage_class: NotRequired[Annotated[str, OBJECT, Default(BLOCK)]]
    """Class of the home's volume."""
    data: NotRequired[Annotated[str, OBJECT]]
    """Name of a volume claim of the team's with datasets, mounted read-only at ``/data``. Default:
    none."""
    idle_minutes: NotRequired[Annotated[int, Between(5, 480), Default(60)]]
    """Minutes without use after which it ends. Use is code that runs in a kernel, input of a
    terminal, or a document that is saved; a page that is open is none."""
    hours: NotRequired[Annotated[int, Between(1, 24), Default(12)]]
    """Hours after which it ends in any case."""
    session: NotRequired[Annotated[int, Between(1, 999_999_999), Default(1)]]
    """Number of the session: another one starts the workspace again."""
    priority: NotRequired[Annotated[str, OneOf(_PRIORITIES), Default(_PRIORITIES[0])]]
    """``falaj-low`` makes room for any other job of the tenant."""
    package_mirror: NotRequired[PackageMirrorArgs]
    """Where ``pip`` gets packages. Default: nowhere; what is in the image is there."""
    namespace: NotRequired[Annotated[str, OBJECT]]
    """Namespace of the pod. Default: the tenant's, ``<tenant>-training``."""
    secret_store: NotRequired[Annotated[str, OBJECT, Default(SECRET_STORE)]]
    """ClusterSecretStore that the token is fetched from."""
    certificate_issuer: NotRequired[Annotated[str, OBJECT, Default(CERTIFICATE_ISSUER)]]
    """ClusterIssuer of the server's certificate."""


@dataclass(frozen=True)
class Mirror:
    """A mirror of packages, checked."""

    url: str
    cidrs: tuple[str, ...]
    port: int


@dataclass(frozen=True, kw_only=True)
class WorkspaceSpec:
    """The arguments of `Workspace`, checked."""

    placed: InCluster
    name: str
    namespace: str
    user: Mapping[str, str]
    """The subject of the binding."""
    image: str
    size: PodSize
    placement: Placement
    priority: str
    home_gib: int
    storage_class: str
    data: str
    """Claim with datasets; empty for none."""
    idle_minutes: int
    hours: int
    session: int
    token_secret: str
    secret_store: str
    certificate_issuer: str
    mirror: Mirror | None

    @property
    def base(self) -> str:
        """Name of the pod, and of most of its objects."""
        return f"{self.name}{WORKSPACE_ENDING}"

    @property
    def home(self) -> str:
        """Name of the claim."""
        return f"{HOME_PREFIX}{self.name}"

    @property
    def host(self) -> str:
        """The server's name: browsers resolve what ends in ``.localhost`` to loopback by
        themselves, and cookies are kept apart by it, as they aren't by ports.
        https://www.rfc-editor.org/rfc/rfc6761#section-6.3"""
        return f"{self.name}.{self.namespace}.localhost"

    def metadata(
        self, name: str, labels: Mapping[str, str] | None = None, **notes: str
    ) -> dict[str, Any]:
        """Metadata of one of its objects."""
        return metadata(
            self.placed, self.base, name, self.namespace, labels=labels, annotations=notes
        )
