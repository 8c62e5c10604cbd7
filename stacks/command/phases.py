"""The phases in which a tier that serves a model comes up: stores, the model's package, machines.

Machines name the package that they serve by its digest. So the registry that has it comes before
them, and what was published into it in between. In the sandbox a registry of this machine stands
in for the cloud's: the package is really sent there and taken from there, and its digests are
those that the made-up machines get.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from falaj.components import catalogue
from falaj.components.catalogue.clusters import MODEL_REPOSITORIES
from falaj.components.specification.cpu_inference_tier import host_name
from falaj.engine.errors import EngineError
from falaj.engine.guard import guarded
from falaj.engine.oci import ensure
from falaj.stacks.command import project, service
from falaj.stacks.command.console import say
from falaj.stacks.command.pinned import pin_into
from falaj.stacks.command.project import StackFile
from falaj.stacks.command.publish import Served, send
from falaj.stacks.command.workspace import Published, keep_published
from falaj.stacks.errors import StackError
from falaj.stacks.images.crane import Crane, packs_settings, require_in_country
from falaj.stacks.models.pinning import Pin
from falaj.stacks.sandbox_guard import made_up
from falaj.stacks.settings import SmbSettings
from falaj.stacks.settings.cloud import PACKAGE_PINS
from falaj.workloads.registry import sending
from falaj.workloads.registry.shelf import Shelf

DEFAULT_SOURCE: Final = "local"
"""The stack of one machine whose model is published, if no other is named."""
_SERVING: Final = re.compile(r"serving on port (\d+)")


@dataclass(frozen=True)
class Tier:
    """A stack that serves one model in a cloud, and where its first package comes from."""

    stack: StackFile
    settings: SmbSettings
    place: catalogue.Place
    source: str = DEFAULT_SOURCE
    """Stack of one machine."""

    @property
    def model(self) -> str:
        """Name of the model."""
        return str(self.settings.inference.model_dump()["model"])

    @property
    def lacking(self) -> list[str]:
        """What its machines need and its file doesn't say, by the names of arguments."""
        return list(made_up(self.settings, self.place))

    @property
    def is_published(self) -> bool:
        """Whether its file says which package is served."""
        return PACKAGE_PINS[0] not in self.lacking

    def served(self) -> Served | None:
        """What the source serves, where it is this model.

        Raises:
            StackError: the source was named, and serves nothing.
        """
        stack = self.stack.sibling(self.source)
        if self.source == DEFAULT_SOURCE and not service.serves(stack):
            return None
        served = Served(service.require_config(stack))
        if served.model == self.model:
            return served
        if self.source != DEFAULT_SOURCE:
            raise StackError(
                f"--model-from: stack {self.source} serves {served.model!r}, and "
                f"falaj:inference.model of stack {self.stack.name} is {self.model!r}"
            )
        return None

    def publish(self, outputs: Mapping[str, Any]) -> None:
        """Send what the source serves to the stack's registry, and name it in the stack's file.

        Args:
            outputs: of the stack, once its stores are there.

        Raises:
            StackError: the registry can't be reached, or refuses.
        """
        served = self.served()
        if served is None:
            return
        judged = packs_settings(self.stack.project, self.stack.name)
        shelf = Shelf(
            require_in_country(self._registry(outputs), *judged), MODEL_REPOSITORIES, Crane()
        )
        done = send(served, shelf, say=say)
        wanted = Pin(done.version, done.package_digest, done.keys_digest, 100)
        say(pin_into(self.stack, self.model, None, wanted, dry_run=False).text)

    def publish_in_sandbox(self, served: Served) -> None:
        """Send it to a registry of this machine, and take it from there as machines will.

        Raises:
            StackError: the registry refuses, or a machine would.
            EngineError: there is no registry's program, and it can't be built.
        """
        with (
            tempfile.TemporaryDirectory(prefix="falaj-registry-") as folder,
            running(Path(folder)) as address,
        ):
            say(f"      SANDBOX: {address} stands in for the registry while this runs")
            shelf = Shelf(address, MODEL_REPOSITORIES, Crane())
            # No alias: its numbers count over all registries, and this one goes with the sandbox.
            sent = sending.push(
                shelf, served.store, served.model, served.alias, served.trust, say=say
            )
            version = sent.package.version
            digests = (sent.package.itself.digest, sent.keys.itself.digest)
            _take(shelf.repository(served.model), served, version, digests)
        keep_published(self.stack, Published(served.model, version, *digests))
        say(
            f"      SANDBOX: {served.model} version {version} was sent there, and taken from "
            f"there by its digests as machines do: {digests[0]}"
        )

    def next_steps(self, outputs: Mapping[str, Any]) -> str:
        """What is left to do before its machines can come."""
        address = self._registry(outputs)
        urls: Mapping[str, str] = outputs["repositoryUrls"]
        name = self.stack.name
        ways = {
            "image_digest": f"push the inference image to {urls['inference']}, and set\n"
            "      falaj:inference.imageDigest to the digest that was printed",
            PACKAGE_PINS[0]: f"falaj publish {address} --for {name} --pin\n"
            f"      sends what stack {self.source} serves, which has to be {self.model}",
            "keyring_secret_id": "put what the server needs of the key ring into a secret of a "
            "Key Vault, and set\n      falaj:inference.keyringSecretId to its id",
            "certificate_id": self._certificate(),
        }
        lacking = self.lacking
        steps = [f"  {at}. {ways[each]}" for at, each in enumerate(
            (each for each in ways if each in lacking), start=1
        )]  # fmt: skip
        return "\n".join(
            (
                f"What stack {name} stands on is there. Its machines come with the next",
                f"{project.command('up', self.stack)}, once its file says what they need:",
                *steps,
            )
        )

    def _certificate(self) -> str:
        given = self.settings.inference.model_dump()
        host = host_name(given["host_name"], str(self.settings.tenant))
        if self.place.cloud == "azure":
            return (
                f"put a certificate of {host} into a Key Vault, and set\n"
                "      falaj:inference.certificateId to its secret's id"
            )
        return (
            f"import a certificate of {host}, by an authority that callers trust, with\n"
            "      aws acm import-certificate --certificate fileb://tls.crt --private-key "
            "fileb://tls.key\n"
            f"      --certificate-chain fileb://chain.crt --region {self.place.region}\n"
            "      and set falaj:inference.certificateId to the ARN that is printed"
        )

    def _registry(self, outputs: Mapping[str, Any]) -> str:
        """The address below which the stack's registry has the model's packages.

        Raises:
            StackError: it has no repository for them.
        """
        urls: Mapping[str, str] = outputs.get("repositoryUrls") or {}
        ending = f"/models/{self.model}"
        found = next((url for url in urls.values() if url.endswith(ending)), None)
        if found is None:
            raise StackError(
                f"the registry of stack {self.stack.name} has no repository models/{self.model}; "
                f"it has: {', '.join(sorted(urls)) or 'none'}"
            )
        return found.removesuffix(ending)


def has_registry() -> bool:
    """Whether there is a program for the sandbox's registry; if not, it is said why."""
    try:
        ensure("crane")
    except EngineError as error:
        say(f"SANDBOX: no package is published, and its digests are made up: {error}")
        return False
    return True


@contextmanager
def running(folder: Path) -> Generator[str]:
    """The address of a registry on the loopback interface that keeps its content in ``folder``.

    Raises:
        StackError: it doesn't start.
        EngineError: there is no program for it, and it can't be built.
    """
    command = [str(ensure("crane")), "registry", "serve", "--address", "127.0.0.1:0"]
    with subprocess.Popen(
        guarded([*command, "--disk", str(folder)]),
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        try:
            lines = process.stderr or ()
            port = next((found[1] for line in lines if (found := _SERVING.search(line))), None)
            if port is None:
                raise StackError("the sandbox's registry (crane registry serve) doesn't start")
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


def _take(repository: str, served: Served, version: int, digests: tuple[str, str]) -> None:
    """Take a package over as machines do, into a folder that is removed again."""
    with tempfile.TemporaryDirectory(prefix="falaj-machine-") as folder:
        done = subprocess.run(
            [
                sys.executable, "-P", "-m", "falaj.workloads.registry", "import",
                "--registry", folder, "--keyring", str(served.keyring.path),
                "--model", served.model, "--version", str(version), "--repository", repository,
                "--package-digest", digests[0], "--keys-digest", digests[1],
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode != 0:
        raise StackError(f"a machine wouldn't take what was sent: {done.stderr.strip()}")
