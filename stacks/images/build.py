"""Builds our images with the builder that the machine has: buildah, podman, or docker's buildx.

Each writes an OCI layout, so that signing and pushing are the same whatever built it.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

import falaj
from falaj.components.nearest import nearest
from falaj.engine.guard import guarded
from falaj.stacks.errors import StackError
from falaj.stacks.images.archive import layout_digest
from falaj.stacks.images.items import Item
from falaj.stacks.images.layers import WheelsLayer, put_wheels
from falaj.stacks.images.wheels import Wheel, as_requirements, fetch, pinned
from falaj.workloads.bounds import IMAGE

# What is in an image, as CycloneDX JSON: its base and every wheel with its hashes.
#
# https://cyclonedx.org/specification/overview/


def sbom(image: Item, base: str, wheels: Sequence[Wheel], *, epoch: int) -> str:
    """A list of contents, the same bytes for the same contents.

    Args:
        image: what is built.
        base: reference of the image it runs on.
        wheels: what is installed.
        epoch: time of the build, seconds since 1970.

    Raises:
        StackError: the library that writes it isn't installed.
    """
    # The library's decorators hide its constructors from type checkers.
    try:
        model: Any = import_module("cyclonedx.model")
        boms: Any = import_module("cyclonedx.model.bom")
        components: Any = import_module("cyclonedx.model.component")
        output: Any = import_module("cyclonedx.output.json")
        purls: Any = import_module("packageurl")
    except ImportError:
        raise StackError(
            "lists of contents are written by cyclonedx-python-lib, which isn't installed; run: "
            "python3 engine/environment.py --extra kubernetes"
        ) from None
    container = components.ComponentType.CONTAINER
    root = components.Component(
        name=image.mirror, version=image.tag, type=container, bom_ref=image.name
    )
    under, _, digest = base.partition("@")
    known = digest.partition(":")[2]
    parts = [
        components.Component(
            name=under, type=container, bom_ref=base,
            hashes=[model.HashType(alg=model.HashAlgorithm.SHA_256, content=known)]
            if known else None,
        )
    ]  # fmt: skip
    for each in wheels:
        name = each.name.lower().replace("_", "-")
        parts.append(
            components.Component(
                name=each.name, version=each.version, type=components.ComponentType.LIBRARY,
                purl=purls.PackageURL("pypi", None, name, each.version),
                bom_ref=f"{each.name}=={each.version}",
                properties=[
                    model.Property(name="falaj:wheel-sha256", value=value)
                    for value in each.hashes
                ],
            )
        )  # fmt: skip
    # Named after its contents, not by chance.
    listed = "\n".join(sorted(f"{each.name} {each.version} {each.hashes}" for each in wheels))
    bom = boms.Bom(
        components=parts,
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"{image.name}\n{base}\n{listed}"),
        metadata=boms.BomMetaData(component=root, timestamp=datetime.fromtimestamp(epoch, UTC)),
    )
    bom.register_dependency(root, parts)
    return str(output.JsonV1Dot6(bom).output_as_string(indent=1)) + "\n"


# Which images are built here, and of what.

ROOT: Final = Path(__file__).resolve().parents[2]
"""What holds our packages: the project's folder in a clone, ``falaj`` in an installation."""
FOLDER: Final = ROOT / "workloads" / "images"
OPENVINO_REQUIREMENTS: Final = "openvino.txt"
"""What is added to an image by its option, with the same pins of what both ask for."""
MAY_HAVE_OPENVINO: Final = ("falaj-inference",)
"""Images that run models as the service does."""
BUILD_BASE: Final = "base-build"
"""Short name of the image that wheels are installed in."""


@dataclass(frozen=True)
class Recipe:
    """How one image is built."""

    name: str
    """Its short name in the bill of materials."""
    containerfile: str
    """File below ``workloads/images``."""
    requirements: str
    """Hashed requirements, file below ``requirements``."""
    packages: tuple[str, ...]
    """Packages and modules below ``workloads`` that are copied."""
    run_base: str
    """Short name of the image that it runs on."""
    has_gpus: bool = True
    """Whether it may run on GPUs; else what only they need is left out."""
    has_openvino: bool = False
    """Whether OpenVINO is added to what its requirements name."""

    def wheels(self, machine: str) -> list[Wheel]:
        """What is installed in it on a machine, ``amd64`` or ``arm64``.

        Raises:
            StackError: the requirements can't be read.
        """
        found = pinned(ROOT / "requirements" / self.requirements, machine)
        if self.has_openvino:
            known = {each.name for each in found}
            added = pinned(ROOT / "requirements" / OPENVINO_REQUIREMENTS, machine)
            found += [each for each in added if each.name not in known]
        return found if self.has_gpus else [each for each in found if not _of_gpus(each.name)]


def _of_gpus(package: str) -> bool:
    """Whether a package is of CUDA; what reads GPUs' metrics is plain Python, and finds none."""
    return package != "nvidia-ml-py" and package.startswith(("cuda-", "nvidia-", "triton"))


#: What every workload may import: all modules at the top but the client of the demonstration.
_COMMON: Final = (
    *sorted(each.name for each in (ROOT / "workloads").glob("*.py") if each.name != "demo.py"),
    "registry",
)
#: The smallest image: for Horovod's launcher in pods of a team's own, the repair of nodes,
#: rehearsals of restores, judges of canaries, watches of drift, starters of pipelines, and for
#: holding other images on nodes.
_SERVING: Final = (
    *_COMMON, "inference", "rollout", "horovod", "repair", "restoring", "prefetch", "pipelines",
    "watching",
)  # fmt: skip
_TRAINING: Final = (
    *_SERVING,
    "batch",
    "federation",
    "optimization",
    "parameter_server",
    "training",
)
RECIPES: Final[Mapping[str, Recipe]] = {
    each.name: each
    for each in (
        Recipe(
            "falaj-inference", "inference.Containerfile", "image-inference.txt", _SERVING,
            "base-distroless",
        ),
        Recipe(
            "falaj-training", "training.Containerfile", "image-training.txt", _TRAINING,
            "base-training",
        ),
        Recipe(
            "falaj-training-cpu", "training-cpu.Containerfile", "image-training.txt", _TRAINING,
            "base-distroless", has_gpus=False,
        ),
        Recipe(
            "falaj-workspace", "workspace.Containerfile", "image-workspace.txt",
            (*_TRAINING, "workspace"), "base-training",
        ),
    )
}  # fmt: skip


def recipes(names: Sequence[str], *, openvino: bool = False) -> list[Recipe]:
    """Recipes by name; all where no name is given.

    Args:
        names: of images.
        openvino: whether those that serve models get OpenVINO.

    Raises:
        StackError: there is none of such a name, or none of them may have OpenVINO.
    """
    for each in names:
        if each not in RECIPES:
            near = nearest(each, RECIPES)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise StackError(
                f"name: given {each!r}, which isn't built here; allowed: "
                f"{', '.join(RECIPES)}{hint}"
            )
    wanted = [RECIPES[each] for each in names or RECIPES]
    if not openvino:
        return wanted
    if not any(each.name in MAY_HAVE_OPENVINO for each in wanted):
        raise StackError(
            f"--openvino: given for {', '.join(names)}; allowed with "
            f"{', '.join(MAY_HAVE_OPENVINO)}"
        )
    return [
        replace(each, has_openvino=True) if each.name in MAY_HAVE_OPENVINO else each
        for each in wanted
    ]


# The folder that an image is built from: sources, wheels, list of contents, all with one time.
#
# Nothing else gets into a build, and a build needs no network.

_SUFFIXES: Final = frozenset({".py", ".json", ".yaml"})


def stage(
    recipe: Recipe, folder: Path, wheels: Sequence[Wheel], *, epoch: int, bom: str, machine: str,
    source: Path | None,
) -> None:  # fmt: skip
    """Put together what an image is built from; without wheels none is asked for.

    Args:
        recipe: the image.
        folder: an empty folder.
        wheels: what is installed.
        epoch: time of all files, seconds since 1970.
        bom: list of contents, CycloneDX JSON.
        machine: ``amd64`` or ``arm64``.
        source: a folder with wheels. Default: pip's own index.

    Raises:
        StackError: wheels can't be had, or a source is missing.
    """
    stage_own(recipe, folder, wheels, bom=bom)
    if wheels:
        fetch(folder / "requirements.txt", folder / "wheels", machine, source)
    else:
        (folder / "wheels").mkdir()
    # One time and one mode for all: builders copy both.
    for path in (folder, *sorted(folder.rglob("*"))):
        path.chmod(0o755 if path.is_dir() else 0o644)
        os.utime(path, (epoch, epoch))


def stage_own(recipe: Recipe, folder: Path, wheels: Sequence[Wheel], *, bom: str) -> None:
    """Put together all that `stage` does but the wheels themselves, which their hashes name.

    Raises:
        StackError: a source is missing.
    """
    shutil.copyfile(FOLDER / recipe.containerfile, folder / "Containerfile")
    for script in ("finish.py", *(() if recipe.has_gpus else ("without_cuda.py",))):
        shutil.copyfile(FOLDER / script, folder / script)
    (folder / "requirements.txt").write_text(as_requirements(wheels), encoding="utf-8")
    (folder / "sbom.cdx.json").write_text(bom, encoding="utf-8")
    copy_sources(recipe, folder)


def copy_sources(recipe: Recipe, folder: Path) -> None:
    """Copy what the image runs to ``falaj`` in a folder; caches and other packages stay out.

    Raises:
        StackError: a source is missing.
    """
    source, target = ROOT / "workloads", folder / "falaj" / "workloads"
    target.mkdir(parents=True)
    shutil.copyfile(falaj.__file__, target.parent / "__init__.py")
    for name in recipe.packages:
        path = source / name
        if path.is_file():
            shutil.copyfile(path, target / name)
            continue
        if not path.is_dir():
            raise StackError(f"{path} is missing; {recipe.name} can't be built without it")
        for file in sorted(path.rglob("*")):
            if file.suffix in _SUFFIXES and "__pycache__" not in file.parts:
                copy = target / file.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)


TOOLS: Final = ("buildah", "podman", "docker")
SECONDS: Final = 2 * 3600
#: 1980-01-01, the earliest time that zip files hold; where neither git nor the caller has a time.
EARLIEST: Final = 315532800
NON_ROOT: Final = IMAGE["user"]
"""User and group of the images, as in distroless ones."""
Compression = Literal["gzip", "zstd"]
"""Of layers: https://github.com/opencontainers/image-spec/blob/main/layer.md"""


@dataclass(frozen=True)
class Built:
    """An image that was built."""

    name: str
    layout: Path
    """Folder with its OCI layout."""
    digest: str
    bom: Path
    """Its list of contents, CycloneDX JSON."""


def find_tool(wanted: str | None) -> str:
    """The builder to use.

    Raises:
        StackError: the wanted one, or any, isn't on the PATH.
    """
    for tool in [wanted] if wanted else TOOLS:
        if shutil.which(tool) and (tool != "docker" or _answers(["docker", "buildx", "version"])):
            return tool
    missing = f"{wanted} is not" if wanted else "none of buildah, podman and docker with buildx is"
    raise StackError(
        f"{missing} on the PATH, and images are built by one of these: install buildah, which "
        "needs no service and no root, or build on another machine"
    )


def own_storage(folder: Path) -> dict[str, str]:
    """Variables of a buildah or podman that keeps all it has in a folder.

    Raises:
        OSError: the folder can't be written.
    """
    storage = folder / "storage.conf"
    storage.write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n',
        encoding="utf-8",
    )
    return {
        "CONTAINERS_STORAGE_CONF": str(storage),
        # In a container that may make no networks of its own nothing else will do.
        "BUILDAH_ISOLATION": "chroot",
    }


def source_date_epoch() -> int:
    """Time of everything in the image, seconds since 1970.

    $SOURCE_DATE_EPOCH, else the time of the last commit, else a fixed one:
    https://reproducible-builds.org/docs/source-date-epoch/
    """
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is not None:
        if not given.isdigit():
            raise StackError(
                f"SOURCE_DATE_EPOCH: given {given!r}; allowed: seconds since 1970, whole"
            )
        return int(given)
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"],
            capture_output=True, text=True, check=True, timeout=30,
        )  # fmt: skip
        return int(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return EARLIEST


def build_image(
    recipe: Recipe, image: Item, bases: Mapping[str, str], out: Path, *,
    tool: str, machine: str, epoch: int, wheels: Path | None, say: Callable[[str], None],
    variables: Mapping[str, str] | None = None, compression: Compression = "gzip",
    layer: WheelsLayer | None = None,
) -> Built:  # fmt: skip
    """Build one image into ``out/<name>``.

    Args:
        recipe: how.
        image: its entry in the bill of materials.
        bases: references of the bases by short name, with digests.
        out: folder of the results.
        tool: ``buildah``, ``podman`` or ``docker``.
        machine: ``amd64`` or ``arm64``.
        epoch: time of everything in it, seconds since 1970.
        wheels: a folder with wheels. Default: pip's own index.
        say: gets lines of progress.
        variables: of the builder, beside this process's.
        compression: of its layers. Default: gzip, which every registry and runtime knows.
        layer: of its wheels, from an image that was built with the same ones; then none is
            fetched or installed.

    Raises:
        StackError: something is missing, or the builder failed.
    """
    environment = {**os.environ, **(variables or {}), "SOURCE_DATE_EPOCH": str(epoch)}
    target = out / recipe.name
    target.mkdir(parents=True, exist_ok=True)
    installed = recipe.wheels(machine)
    bom = sbom(image, bases[recipe.run_base], installed, epoch=epoch)
    (target / "sbom.cdx.json").write_text(bom, encoding="utf-8")
    layout = target / "layout"
    shutil.rmtree(layout, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="falaj-build-") as folder:
        context = Path(folder)
        fetched = installed if layer is None else []
        if fetched:
            say(f"{recipe.name}: getting {len(fetched)} wheels of {recipe.requirements}")
        else:
            say(f"{recipe.name}: has the wheels of the image before it")
        stage(recipe, context, fetched, epoch=epoch, bom=bom, machine=machine, source=wheels)
        say(f"{recipe.name}: building with {tool}")
        tag = f"localhost/{image.mirror}:{image.tag}"
        options = build_options(recipe, image, bases, machine)
        has_network = environment.get("BUILDAH_ISOLATION") == "chroot"
        for command in _commands(
            tool, context, tag, layout, options=options, epoch=epoch, has_network=has_network,
            compression=compression,
        ):  # fmt: skip
            _run(command, environment)
    if layer is not None:
        put_wheels(layout, layer)
    return Built(recipe.name, layout, layout_digest(layout), target / "sbom.cdx.json")


def build_options(
    recipe: Recipe, image: Item, bases: Mapping[str, str], machine: str
) -> list[str]:
    """What a builder is told beside the folder that it builds from; as in `build_image`."""
    base = bases[recipe.run_base]
    arguments = {"BUILD_BASE": bases[BUILD_BASE], "RUN_BASE": base}
    options = ["--platform", f"linux/{machine}"]
    for flag, values in (("--build-arg", arguments), ("--label", _labels(image, base))):
        options += [part for name, value in values.items() for part in (flag, f"{name}={value}")]
    return options


def _labels(image: Item, base: str) -> dict[str, str]:
    """https://github.com/opencontainers/image-spec/blob/main/annotations.md"""
    name, _, digest = base.partition("@")
    about = {
        "title": image.name,
        "version": image.tag,
        "licenses": image.licence,
        "base.name": name,
        "base.digest": digest,
    }
    return {f"org.opencontainers.image.{key}": value for key, value in about.items() if value}


def _commands(
    tool: str, context: Path, tag: str, layout: Path, *, options: Sequence[str], epoch: int,
    has_network: bool, compression: Compression,
) -> list[list[str]]:  # fmt: skip
    options = ["--file", str(context / "Containerfile"), *options]
    if tool == "docker":
        output = f"type=oci,dest={layout},tar=false,rewrite-timestamp=true"
        if compression != "gzip":
            output += f",compression={compression},force-compression=true"
        return [
            ["docker", "buildx", "build", *options, "--network=none", "--provenance=false",
             "--output", output, str(context)],
        ]  # fmt: skip
    # In a container that may make no networks of its own buildah isolates by chroot; nothing in
    # the build asks for the network anyway.
    network = [] if has_network else ["--network=none"]
    verb = "build" if tool == "podman" else "bud"
    # A layer for each step, as docker has it, or all would be one: who has the wheels of a version
    # would get them anew with every change of the code.
    build_command = [tool, verb, *options, *network, "--layers=true", "--no-cache",
                     "--timestamp", str(epoch), "--tag", tag, str(context)]  # fmt: skip
    compressed = [] if compression == "gzip" else ["--compression-format", compression]
    return [build_command, [tool, "push", "--quiet", *compressed, tag, f"oci:{layout}"]]


def _run(command: list[str], environment: Mapping[str, str]) -> None:
    try:
        done = subprocess.run(
            guarded([shutil.which(command[0]) or command[0], *command[1:]]),
            capture_output=True, text=True, timeout=SECONDS, check=False,
            env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise StackError(f"{command[0]} took longer than {SECONDS // 3600} hours") from None
    if done.returncode != 0:
        output = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise StackError(f"`{' '.join(command[:2])}` failed:\n{output}")


def _answers(command: list[str]) -> bool:
    try:
        return (
            subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
        )
    except (OSError, subprocess.SubprocessError):
        return False


# Signs what was built: by cosign where the machine has it, else with a key of one's own.
#
# The signed text is the one that cosign signs ("simple signing"), so that either can be checked
# by the other: https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md


def payload(reference: str, digest: str) -> bytes:
    """The text that is signed for an image.

    Args:
        reference: registry and repository, without tag.
        digest: ``sha256:…``.
    """
    return json.dumps(
        {
            "critical": {
                "identity": {"docker-reference": reference},
                "image": {"docker-manifest-digest": digest},
                "type": "cosign container image signature",
            },
            "optional": None,
        },
        separators=(",", ":"),
    ).encode()


def sign(text: bytes, key: Path) -> str:
    """Base64 of a signature.

    Args:
        text: what `payload` made.
        key: a private key in PEM, ECDSA (P-256 as cosign's) or Ed25519, without a passphrase.

    Raises:
        StackError: the key can't be used.
    """
    try:
        private = serialization.load_pem_private_key(key.read_bytes(), None)
    except OSError as error:
        raise StackError(f"key {key} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise StackError(
            f"key {key}: allowed: a private key in PEM, ECDSA or Ed25519, without a passphrase; "
            "keys of cosign itself, which have one, need cosign on the PATH"
        ) from None
    if isinstance(private, ec.EllipticCurvePrivateKey):
        return base64.b64encode(private.sign(text, ec.ECDSA(hashes.SHA256()))).decode()
    if isinstance(private, ed25519.Ed25519PrivateKey):
        return base64.b64encode(private.sign(text)).decode()
    raise StackError(f"key {key}: given {type(private).__name__}; allowed: ECDSA or Ed25519")


def is_signed(text: bytes, signature: str, public_key: Path) -> bool:
    """Whether a signature is of this text, by the holder of the private key.

    Raises:
        StackError: the public key can't be used.
    """
    try:
        public = serialization.load_pem_public_key(public_key.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise StackError(f"key {public_key} cannot be used: {error}") from None
    try:
        raw = base64.b64decode(signature, validate=True)
        if isinstance(public, ec.EllipticCurvePublicKey):
            public.verify(raw, text, ec.ECDSA(hashes.SHA256()))
        elif isinstance(public, ed25519.Ed25519PublicKey):
            public.verify(raw, text)
        else:
            raise StackError(f"key {public_key}: allowed: ECDSA or Ed25519")
    except (InvalidSignature, ValueError):
        return False
    return True
