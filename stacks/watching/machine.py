"""The world of a watch on one machine: a stack's file, its server, its registry, and its `up`."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from falaj.engine.backend import is_locked
from falaj.engine.commands import INTERRUPTED
from falaj.engine.errors import EngineError
from falaj.engine.guard import guarded
from falaj.policies.reading.hosts import is_private
from falaj.stacks.command import service
from falaj.stacks.command.project import StackFile
from falaj.stacks.errors import StackError
from falaj.stacks.settings import LocalSettings
from falaj.stacks.settings.paths import resolved
from falaj.stacks.settings.watching import (
    ROLL_BACK,
    TELL,
    DemandsSettings,
    MailSettings,
    WatchSettings,
    refused_host,
)
from falaj.stacks.watching.aliases import alias_of, second_alias, store_of
from falaj.stacks.watching.data import newest
from falaj.stacks.watching.server import Server
from falaj.wire.documents import is_mapping, mapping
from falaj.workloads.bounds import FORMS
from falaj.workloads.errors import WorkloadError
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.rollout.pairs import Outcomes
from falaj.workloads.watching.beside import Standing
from falaj.workloads.watching.exchange import NoAnswerError, UndeliveredError
from falaj.workloads.watching.ladder import NoDataError, Source, Updated
from falaj.workloads.watching.mail import Mail, password_of
from falaj.workloads.watching.memory import Carrier, Pending, WatchError
from falaj.workloads.watching.report import Report
from falaj.workloads.watching.webhook import Webhook, own_signing_key

_DATASET: Final = "falaj:dataset"
_FOLLOWS_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 600.0
_ROLL_BACK_SECONDS: Final = 120.0
#: What `up` says of a model that isn't worth serving, and of another run on the stack.
_NOT_WORTH: Final = "the model isn't worth serving"
_BUSY: Final = "another run is working on stack"
_WORKS: Final = "another run is working on the stack"
_LONGEST: Final = 2_000
_NAMES: Final = FORMS["registry"]["model"]
_FAILED: Final = ("failed", "refused", "unlike")
"""What a server says of copies that came to nothing."""


@dataclass
class Machine:
    """What a watch looks at and acts on, of a stack of the platform ``local``.

    Attributes:
        stack: its file.
        folder: the watch's own.
        stop: set when the watch is to end.
        further: name of the further model that is looked at; it is told of, and put back where
            that can be done, and no more. Default: the first model is.
    """

    stack: StackFile
    folder: Path
    stop: threading.Event = field(default_factory=threading.Event)
    further: str | None = None
    _settings: LocalSettings | None = None

    def settings(self) -> WatchSettings | None:
        """What the stack's file asks of the watch now.

        Raises:
            WatchError: the file can't be used, or is a stack's in a cloud.
        """
        try:
            found = self.stack.settings()
        except StackError as error:
            raise WatchError(str(error)) from None
        if not isinstance(found, LocalSettings):
            raise WatchError(
                f"stack {self.stack.name} is in a cloud; allowed: a stack of the platform local"
            )
        self._settings = found
        if found.watch is None or self.further is None:
            return found.watch
        steps = [each for each in found.watch.steps if each in (TELL, ROLL_BACK)]
        return found.watch.model_copy(update={"steps": steps})

    def _known(self) -> LocalSettings:
        if self._settings is None:
            self.settings()
        assert self._settings is not None  # noqa: S101 - read above
        return self._settings

    def _config(self) -> dict[str, Any]:
        try:
            return service.require_config(self.stack)
        except StackError as error:
            raise NoAnswerError(str(error)) from None

    def _own(self) -> Mapping[str, Any]:
        """What the server was told of the model that is looked at."""
        try:
            return service.config_of(self._config(), self.further)
        except StackError as error:
            raise NoAnswerError(str(error)) from None

    def others(self) -> dict[str, Machine]:
        """The same of each further model whose drift the server looks at, by its name."""
        if self._known().watch is None:
            return {}
        try:
            config = self._config()
        except NoAnswerError:
            return {}
        if mapping(config.get("drift")).get("enabled") is False:
            return {}
        return {
            name: replace(self, further=name)
            for name, each in mapping(config.get("models")).items()
            # No server takes another name, and no folder is made of one.
            if _NAMES.allows(name) and mapping(each).get("drift") is not False
        }

    def origin(self) -> str:
        """Who makes a further model, in words."""
        return f"{self._maker} makes it, and has to have it learn from newer data"

    @property
    def _maker(self) -> str:
        asked = self._known().service.models.get(self.further or "")
        stack = asked.stack if asked is not None else None
        return f"stack {stack}" if stack is not None else "who publishes it"

    def report(self) -> Report:
        """The server's report on drift."""
        return Server(self._config(), self.further).report()

    def alpha(self) -> float:
        """How seldom a version may be called worse where it isn't."""
        watch = self._known().watch
        return (watch or WatchSettings()).alpha

    def failures(self, version: int) -> Outcomes:
        """Requests of a version, and those that the server failed."""
        return Server(self._config(), self.further).failures(version)

    def previous(self) -> int | None:
        """The version that a rollback would go to."""
        with contextlib.suppress(WorkloadError, NoAnswerError, OSError):
            config = self._own()
            versions = set(store_of(config).versions(str(config["model"])))
            alias = alias_of(config)
            back = alias.rolled_back(versions.__contains__) if alias else None
            return back.version if back else None
        return None

    def served(self) -> int | None:
        """The version that the server says it serves."""
        with contextlib.suppress(StackError, NoAnswerError):
            state = service.read_account(Path(str(self._config()["state"])))
            of = state if self.further is None else mapping(state.get("models")).get(self.further)
            version = mapping(of).get("version")
            return int(version) if isinstance(version, int | str) else None
        return None

    def barred(self) -> str:
        """Why the model's alias can't be changed by this stack; or nothing."""
        if self.further is None:
            return ""
        try:
            config = self._own()
            folder, keyring = Path(str(config["registry"])), KeyRing.open(Path(config["keyring"]))
        except (NoAnswerError, WorkloadError, OSError) as error:
            return f"{self._maker} has to do it, as {error}"
        if not keyring.signs:
            return f"{self._maker} has to do it, as the keys {keyring.path} sign nothing here"
        own = folder / self.further
        if not os.access(own, os.W_OK):
            return f"{self._maker} has to do it, as this stack may not write {own}"
        return ""

    def roll_back(self, version: int) -> str:
        """Serve the one before a version, and wait until the server does; why not, or nothing."""
        try:
            config = self._own()
            command = [*service.rollback_arguments(config), "--expected", str(version)]
            alias = alias_of(config)
        except (NoAnswerError, WorkloadError, OSError) as error:
            return str(error)
        if alias is None or alias.version != version:
            # Somebody published or promoted meanwhile: going back would be from theirs.
            there = f"version {alias.version}" if alias else "no version"
            return f"{config['alias']} stands for {there} by now, and not for version {version}"
        before = self.served()
        return _ran(command) or self._followed(before)

    def demands(self) -> DemandsSettings:
        """What is demanded of a shadow."""
        watch = self._known().watch
        return (watch or WatchSettings()).shadow

    def standing(self) -> Standing | None:
        """The version that gets copies of requests, and what the server says of them."""
        config = self._config()
        if (name := second_alias(config)) is None:
            return None
        try:
            alias = alias_of(config, name)
            state = service.read_account(Path(str(config["state"])))
        except (WorkloadError, StackError, OSError) as error:
            raise NoAnswerError(str(error)) from None
        return standing_of(alias.version, state.get("shadow")) if alias is not None else None

    def promote(self, version: int) -> str:
        """Have the shadow serve, and be none any more; why not, or nothing."""
        return self._turned(version, "promote")

    def withdraw(self, version: int) -> str:
        """Have the shadow be none any more; why not, or nothing."""
        return self._turned(version, "withdraw")

    def _turned(self, version: int, what: str) -> str:
        """Do what ``falaj shadow`` does, unless somebody made another version the shadow."""
        try:
            standing, config = self.standing(), self._config()
        except NoAnswerError as error:
            return str(error)
        name = second_alias(config)
        if name is None or standing is None or standing.version != version:
            return f"version {version} isn't the shadow any more"
        before = self.served()
        if what == "promote":
            turn = service.registry_arguments(
                "promote", config, str(config["alias"]), "--version", str(version)
            )
            if (refused := _ran(turn)) or (refused := self._followed(before)):
                return refused
        return _ran(service.registry_arguments("withdraw", config, name))

    def _followed(self, before: int | None) -> str:
        """Wait until the server serves another version; why it doesn't, or nothing."""
        deadline = time.monotonic() + _FOLLOWS_SECONDS
        while self.served() == before and time.monotonic() < deadline:
            if self.stop.wait(0.1):
                break
        if self.served() == before:
            return f"the server didn't follow within {_FOLLOWS_SECONDS:.0f} s"
        return ""

    def source(self, report: Report, now: float) -> Source:
        """What could be learned from: the newest table."""
        del report
        if self.further is not None:
            raise NoDataError(self.origin())
        settings = self._known()
        root = self.stack.project.root
        if not settings.is_table(root):
            raise NoDataError(f"the dataset {settings.dataset} is no table")
        folder = settings.watch.data if settings.watch else None
        table = newest(root, Path(settings.dataset_source(root)), folder, now)
        return Source(str(table.path), table.digest, table.given)

    def learned(self) -> str:
        """Digest of the file that the stack learned from, as its state has it."""
        from falaj.stacks.command.pulumi import Pulumi  # noqa: PLC0415 - the engine, when needed

        try:
            pulumi = Pulumi(self.stack, plugins=False)
            if not pulumi.exists():
                raise NoDataError(
                    f"the backend {pulumi.environment.get('PULUMI_BACKEND_URL')} knows no stack "
                    f"{self.stack.name}; bring it up with the same PULUMI_BACKEND_URL"
                )
            if is_locked(
                pulumi.environment.get("PULUMI_BACKEND_URL", ""),
                self.stack.project.name, self.stack.name,
            ):  # fmt: skip
                # Before the stack's file is touched, which that run may be reading.
                raise NoDataError(_WORKS)
            resources = pulumi.resources()
        except (StackError, EngineError) as error:
            raise NoDataError(f"the stack's state can't be read: {error}") from None
        if (found := learned_from(resources)) is None:
            raise NoDataError(f"stack {self.stack.name} has no dataset yet")
        return found

    def dataset(self) -> str | None:
        """What the stack's file says of its dataset."""
        from falaj.stacks.settings import edit  # noqa: PLC0415

        with contextlib.suppress(StackError):
            return str(edit.value_of(self.stack.path, self.stack.project.root, _DATASET))
        return None

    def set_dataset(self, given: str) -> None:
        """Have the stack's file say another dataset; its comments stay."""
        from falaj.stacks.settings import edit  # noqa: PLC0415

        try:
            edit.set_values(self.stack.path, self.stack.project.root, {_DATASET: given})
        except StackError as error:
            raise WatchError(str(error)) from None

    def retrain(self, source: Source, report: Report, signal: str) -> Updated:
        """Bring the stack up with a table."""
        del report, signal
        if source.given is not None:
            self.set_dataset(source.given)
        return self.up()

    def put_back(self, pending: Pending) -> None:
        """Have the stack's file say what it said before, unless somebody changed it since."""
        if pending.given is None or pending.dataset is None:
            return
        if self.dataset() == pending.given:
            self.set_dataset(pending.dataset)

    def follow(self, *, drifted: bool) -> str:
        """Nothing: a retraining here is one's own, and is waited for."""
        del drifted
        return ""

    def up(self) -> Updated:
        """Bring the stack up in a process of its own, as a person does; its output is kept."""
        command = [
            sys.executable, "-P", "-m", "falaj.stacks.command", "up",
            "--stack", self.stack.name, "--project", str(self.stack.project.root),
        ]  # fmt: skip
        path = self.folder / "up.log"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as log:
            process = subprocess.Popen(
                guarded(command), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                cwd=self.stack.project.root, start_new_session=True,
            )  # fmt: skip
            status = self._follow(process)
        return judged(status, path.read_text(encoding="utf-8", errors="replace"), path)

    def _follow(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for its end; asked to end, have it stop in order."""
        asked = None
        while True:
            try:
                return process.wait(0.2)
            except subprocess.TimeoutExpired:
                if asked is None and self.stop.is_set():
                    asked = time.monotonic()
                    process.terminate()
                elif asked is not None and time.monotonic() - asked > _STOP_SECONDS:
                    process.kill()

    def send(self, message: Mapping[str, Any], delivery: str, now: float, *, by: Carrier) -> None:
        """Send to the webhook or by mail, if that is still asked for."""
        watch = self._known().watch
        if watch is not None and by == "mail" and watch.mail is not None:
            self._mail(watch.mail, watch.allowed_hosts).send(message, delivery, now)
            return
        if watch is None or by != "webhook" or watch.webhook is None:
            raise UndeliveredError(f"there is no {by} any more", for_good=True)
        authority, allowed = watch.webhook_authority, watch.allowed_hosts
        Webhook(
            watch.webhook,
            lambda host: refused_host(host, allowed),
            is_private,
            resolved(authority, self.stack.project.root) if authority else None,
            lambda: own_signing_key(self.folder / "webhook.key"),
        ).send(message, delivery, now)

    def _mail(self, asked: MailSettings, allowed: list[str]) -> Mail:
        root = self.stack.project.root
        secret = resolved(asked.password_file, root) if asked.password_file else None
        return Mail(
            asked.server, asked.port, asked.security, asked.sender, asked.recipients, asked.user,
            lambda: password_of(secret) if secret else "",
            lambda host: refused_host(host, allowed),
            is_private,
            resolved(asked.authority, root) if asked.authority else None,
        )  # fmt: skip


def _ran(arguments: list[str]) -> str:
    """Run a command of the registry; why it wasn't done, or nothing."""
    try:
        done = subprocess.run(
            guarded([sys.executable, "-P", "-m", *arguments]), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", check=False,
            timeout=_ROLL_BACK_SECONDS, start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"the registry took more than {_ROLL_BACK_SECONDS:.0f} s"
    if done.returncode != 0:
        return _last_words(done.stderr) or f"the registry ended with {done.returncode}"
    return ""


def standing_of(version: int, reported: object) -> Standing:
    """What a server says of its shadow, where it is this version; read with suspicion."""
    if not is_mapping(reported) or reported.get("version") != version:
        return Standing(version)
    counts = mapping(reported.get("requests"))

    def count(of: Mapping[str, Any], name: str) -> int:
        found = of.get(name)
        return found if type(found) is int and found >= 0 else 0

    since, agreement, why = (
        reported.get("since"),
        reported.get("agreement"),
        mapping(reported.get("why")),
    )
    return Standing(
        version=version,
        since=float(since) if isinstance(since, int | float) else None,
        compared=count(counts, "compared"),
        failed=sum(count(counts, each) for each in _FAILED),
        rows=count(reported, "rows"),
        agreement=float(agreement) if isinstance(agreement, int | float) else None,
        why=next((str(why[each]) for each in _FAILED if each in why), ""),
    )


def learned_from(resources: Sequence[Mapping[str, Any]]) -> str | None:
    """Digest of the file that a stack's model learned from.

    An `up` that fails in training leaves a dataset behind that nothing was published from, so that
    the model's own dataset counts.

    Args:
        resources: of the stack's state.

    Returns:
        The digest; empty where the state has the model's dataset no more, None without any.
    """

    def of_type(name: str) -> list[Mapping[str, Any]]:
        end = f":index:{name}"
        return [each for each in resources if str(each.get("type", "")).endswith(end)]

    packages = of_type("ModelPackage")
    used = {str(mapping(each.get("inputs")).get("dataset")) for each in packages}
    found = of_type("Dataset")
    for each in found:
        if str(mapping(each.get("outputs")).get("path")) in used:
            return str(mapping(each.get("inputs")).get("sourceSha256"))
    return "" if found else None


def judged(status: int, printed: str, log: Path) -> Updated:
    """What an `up` came to."""
    if status == 0:
        return Updated("done")
    if _BUSY in printed:
        return Updated("busy", _WORKS)
    if status in (INTERRUPTED, -15, 128 + 15):
        return Updated("stopped", "it was asked to end")
    if _NOT_WORTH in printed:
        reason = printed.partition(_NOT_WORTH)[2].partition("a difference counts")[0]
        text = " ".join(reason.partition("published:")[2].split())
        return Updated("refused", (text or _NOT_WORTH)[:_LONGEST])
    return Updated("failed", f"{_last_words(printed)} (exit {status}; all of it: {log})")


def _last_words(printed: str) -> str:
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return " ".join((errors or lines)[-3:])[:_LONGEST]
