"""What ``falaj up``, ``preview``, ``refresh``, ``down``, ``shell`` and ``status`` do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from falaj.engine import backend
from falaj.engine.commands import INTERRUPTED, LEFT
from falaj.engine.files import data_home
from falaj.sandbox import activation
from falaj.stacks.command import (
    cloud,
    first_key,
    first_version,
    kubeconfig,
    operation,
    project,
    service,
    stand_in,
    testplane,
)
from falaj.stacks.command.call import Call
from falaj.stacks.command.cloud import bring_up_upstream, closing, prepare_cloud
from falaj.stacks.command.console import complain, confirmed, is_terminal, say, step
from falaj.stacks.command.hints import hints, passphrase_hint
from falaj.stacks.command.judged import judged
from falaj.stacks.command.operation import Outcome, label_of_urn
from falaj.stacks.command.project import StackFile
from falaj.stacks.command.pulumi import Pulumi, resources_of
from falaj.stacks.command.remains import notices
from falaj.stacks.command.summary import summary
from falaj.stacks.command.workspace import forget_stack, renew
from falaj.stacks.errors import StackError
from falaj.stacks.placement import choose
from falaj.stacks.sandbox_guard import FIRST_KEY, PHASE_VARIABLE, STORES
from falaj.stacks.settings import (
    CloudSettings,
    Settings,
    SmbSettings,
    is_local,
    is_workloads,
)
from falaj.stacks.settings.cloud import InClusterSettings
from falaj.workloads.errors import IntegrityError, WorkloadError

if TYPE_CHECKING:
    from falaj.stacks.command import phases
    from falaj.stacks.settings import WorkloadsSettings

# What ``falaj down`` is about to destroy, in words.

#: Kinds of resources that hold what can't be made again, by the last part of their type, in the
#: order of what people miss most.
_PRECIOUS = (
    "KeyRing", "Key", "Vault", "Dataset", "Bucket", "BucketV2", "StorageAccount", "FileSystem",
    "LustreFileSystem", "Volume", "PersistentVolumeClaim", "TrainingRun", "ModelPackage",
    "BatchInference", "Repository", "Registry", "Cluster", "ManagedCluster", "Trail", "Database",
    "Instance", "Namespace",
)  # fmt: skip
_MOST_NAMED = 12


def what_goes(stack: StackFile, resources: Sequence[Mapping[str, Any]], *, sandbox: bool) -> str:
    """What goes with a stack: keys, data and models by name, all else by number.

    Args:
        stack: the stack.
        resources: as its state holds them.
        sandbox: whether all of it is made up.
    """
    real = [each for each in resources if each.get("custom") and not _is_provider(each)]
    lines = [f"This destroys stack {stack.name}: {len(real)} resources."]
    if sandbox:
        lines[0] += " It is in the sandbox: nothing real is lost."
    precious = [each for kind in _PRECIOUS for each in real if _kind(each) == kind]
    named = [label_of_urn(str(each["urn"])) for each in precious]
    lines += [f"  {name}" for name in named[:_MOST_NAMED]]
    if len(named) > _MOST_NAMED:
        lines.append(f"  and {len(named) - _MOST_NAMED} more of these kinds")
    if rest := len(real) - len(precious):
        lines.append(f"  and {rest} others: networks, rights, certificates, services and so on")
    kept = [
        label_of_urn(str(each["urn"]))
        for each in real
        if each.get("retainOnDelete") or each.get("protect")
    ]
    if kept and not sandbox:
        lines.append(f"It is told to keep, or not to touch: {', '.join(kept[:_MOST_NAMED])}")
    if stack.site.exists():
        lines.append(
            f"Files of this machine that go: {stack.site} ({_size(stack.site)}; keys, data, "
            "models, logs)"
        )
    return "\n".join(lines)


def _kind(resource: Mapping[str, Any]) -> str:
    return str(resource.get("type", "")).rpartition(":")[2]


def _is_provider(resource: Mapping[str, Any]) -> bool:
    return str(resource.get("type", "")).startswith("pulumi:")


def _size(folder: Path) -> str:
    total = sum(entry.lstat().st_size for entry in folder.rglob("*") if entry.is_file())
    return f"{total / 2**20:.1f} MiB"


# What a local stack may leave on the disk when it goes.


def remove_leftovers(pulumi: Pulumi, stack: StackFile, *, retain: bool) -> None:
    """Remove the stack's folder unless it is retained, and the backend with its last stack.

    What still runs in the folder is ended first: a state that was lost knows of no program.
    """
    _end_programs(stack)
    if not retain:
        _remove_site(stack)
    if not pulumi.other_stacks():
        _remove_backend(pulumi, stack)


def _end_programs(stack: StackFile) -> None:
    if not stack.site.exists():
        return
    from falaj.components.local.machine import LocalError  # noqa: PLC0415 - an extra
    from falaj.components.local.provider.handler import Site  # noqa: PLC0415 - as above
    from falaj.components.local.provider.service import end_leftovers  # noqa: PLC0415 - as above

    try:
        ended = end_leftovers(Site(stack.site))
    except LocalError as error:
        raise StackError(str(error)) from None
    if ended:
        say(f"  processes of {stack.site} that the stack's state didn't know, ended: {ended}")


def _remove_site(stack: StackFile) -> None:
    """The folder of a workspace whose creation was interrupted before it was recorded.

    One with keys in it was kept because the stack retained them when it was last brought up, even
    if its file says otherwise by now.
    """
    if stack.site.exists() and not (stack.site / "keyring").exists():
        shutil.rmtree(stack.site)
    _remove_empty(stack.site.parent)


def _remove_backend(pulumi: Pulumi, stack: StackFile) -> None:
    """The embedded backend and its passphrase, when no stack is left in them."""
    home = data_home()
    if pulumi.environment.get("PULUMI_BACKEND_URL") != (home / "backend").as_uri():
        return
    if "secure:" in stack.path.read_text(encoding="utf-8"):
        say(f"  kept {home / 'passphrase'}: {stack.path.name} holds values encrypted with it")
        return
    shutil.rmtree(home / "backend", ignore_errors=True)
    (home / "passphrase").unlink(missing_ok=True)
    stack.forget_passphrase()
    _remove_empty(home)


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


# Runs an update again where all that keeps it is a cluster that isn't ready to count yet.
#
# A quota on a kind of resource that is new to a cluster, such as job sets, is refused as unknown
# until Kubernetes' quota controller has looked for new kinds, which it does every few minutes:
# https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go

#: Seconds between two tries.
PAUSE: Final = 30.0
#: Seconds for which an update is tried again: new kinds are looked for every five minutes.
PATIENCE: Final = 330.0
_UNKNOWN: Final = re.compile(r"status unknown for quota: ([^,\s]+), resources: ([^\s]+)")


def not_counted(outcome: Outcome) -> tuple[str, str] | None:
    """The quota and the resources that the cluster doesn't count yet; None where it isn't that.

    An update that ended well, that was interrupted, or that a policy stopped is never tried again.
    """
    if outcome.status == 0 or outcome.was_interrupted or outcome.violations:
        return None
    found = _UNKNOWN.search(outcome.printed)
    return (found[1], found[2]) if found else None


def until_counted(
    update: Callable[[], Outcome],
    *,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Run an update, and again while a quota isn't counted yet; returns how the last one ended.

    Args:
        update: runs it.
        pause: waits for some seconds.
        clock: seconds that pass.
    """
    began = clock()
    while True:
        outcome = update()
        waiting = not_counted(outcome)
        if waiting is None:
            return outcome
        quota, resources = waiting
        if clock() - began + PAUSE > PATIENCE:
            say(
                f"      the cluster doesn't count {resources} (quota {quota}) after "
                f"{clock() - began:.0f} s; look at its quota controller "
                "(kubectl -n kube-system logs, kube-controller-manager), then run this again"
            )
            return outcome
        say(
            f"      the cluster doesn't count {resources} yet (quota {quota}): waiting "
            f"{PAUSE:.0f} s, then going on; it does within five minutes"
        )
        pause(PAUSE)


_STORES: Final = "[3/3] phase 1 of 3: stores"
_PUBLISH: Final = "[3/3] phase 2 of 3: the model's package"


def up(
    call: Call,
    *,
    details: bool,
    source: str | None = None,
    patience: float = first_version.PATIENCE,
) -> int:
    """Validate the settings, get the engine, and bring the stack to what its file says.

    Args:
        call: the stack.
        details: show what the engine shows.
        source: the stack of one machine whose model a tier in a cloud serves first.
        patience: minutes for which the first version of a service is waited for that a training
            of the same stack publishes; 0 for not at all.

    Raises:
        StackError: the settings were refused, a source was named for another kind of stack, or
            the training failed that is waited for.
    """
    settings = call.settings()
    stack = call.stack
    if follows_aliases(call, settings):
        settings = call.settings()
    _require_tier(stack, settings, source)
    _provide_packages(stack, settings)
    if isinstance(settings, CloudSettings):
        prepare_cloud(
            stack, settings, sandbox=call.sandboxed(settings), stores=_may_lack(call, settings)
        )
    with step(1, 3, "engine"):
        pulumi = call.engine(settings)
        say(f"      pulumi {pulumi.engine.version} ({pulumi.engine.source}): {pulumi.engine.path}")
    with step(2, 3, "backend"):
        pulumi.ensure_stack()
        if is_local(settings):
            pulumi.settle_interrupted(pulumi.exported())
        say(f"      {pulumi.environment.get('PULUMI_BACKEND_URL', 'as logged in')}")
    if isinstance(settings, CloudSettings):
        if not pulumi.sandbox:
            pulumi.refuse_made_up()
        bring_up_upstream(pulumi, settings)
    if pulumi.sandbox:
        cloud.forget(stack)
    run, title = Updating(call, pulumi, details), f"[3/3] pulumi up of stack {stack.name}"
    if (status := _before(run, settings, source)) is not None:
        return status
    if isinstance(settings, SmbSettings):
        settings = call.settings()
    status = run.update(settings, title)
    if status == 0 and is_workloads(settings) and settings.awaited:
        status = _first_versions(run, settings, title, patience)
    if status != 0:
        return status
    say()
    if is_local(settings):
        say(summary(pulumi.outputs(), stack))
    else:
        say(closing(pulumi.outputs(), stack, sandbox=pulumi.sandbox))
    return 0


def _provide_packages(stack: StackFile, settings: Settings) -> None:
    """Install what a model of one's own needs: a training is told of no package index.

    Raises:
        WorkloadError: they can't be had.
    """
    if is_local(settings) and settings.training.code is not None:
        from falaj.stacks.settings.paths import resolved  # noqa: PLC0415
        from falaj.workloads.training.own_code import provide_packages  # noqa: PLC0415

        provide_packages(resolved(settings.training.code, stack.project.root))


def _require_tier(stack: StackFile, settings: Settings, source: str | None) -> None:
    if source is not None and not isinstance(settings, SmbSettings):
        raise StackError(
            f"--model-from: given {source!r}, but stack {stack.name} serves no model of its own; "
            "allowed: for a stack of the blueprint smb"
        )


def follows_aliases(call: Call, settings: Settings) -> bool:
    """Write what the aliases stand for that services follow; whether the file may be another now.

    A registry that is away, or an alias that expired, keeps nobody from deploying what the file
    says. A record that isn't its signer's, or a registry behind what was seen, does.

    Raises:
        StackError: the registry is behind, or a service doesn't say what it follows.
        IntegrityError: a record or a package isn't what the trusted key signed.
    """
    if not is_workloads(settings) or not _asks_registries(call, settings):
        return False
    from falaj.stacks.command.pinned import follow_in  # noqa: PLC0415 - registries' programs

    try:
        done = follow_in(call.stack, dry_run=False)
    except IntegrityError:
        raise
    except WorkloadError as error:
        complain(f"aliases aren't followed now, and versions stay as the file says: {error}")
        return False
    for each in done:
        say(each.text)
    return bool(done)


def _asks_registries(call: Call, settings: Settings) -> bool:
    """Whether there is a registry to ask: the sandbox has none but beside real machines."""
    return not call.sandboxed(settings) or testplane.registry() is not None


def _first_versions(
    run: Updating, settings: WorkloadsSettings, title: str, patience: float
) -> int:
    """Wait for first versions that trainings publish, and serve those that came."""
    if not _asks_registries(run.call, settings):
        say("SANDBOX: no pod runs here that publishes: services without versions are left out")
        return 0
    before = settings.awaited
    waiting = first_version.Waiting(run.call, settings, follows_aliases)
    left = waiting.wait(patience)
    if left != before:
        # The sandbox works on a copy of the file, which was made before the version came into it.
        renew(run.call.stack)
        status = run.update(waiting.settings, title)
        if status != 0:
            return status
    if not left:
        return 0
    for name, trainer in left.items():
        say(f"service {name} isn't there: {trainer} has published no first version yet")
    say(f"once it has: {run.call.again('up')}")
    return LEFT


@dataclass(frozen=True)
class Updating:
    """Updates of a stack by the engine, one after the other."""

    call: Call
    pulumi: Pulumi
    details: bool

    def update(self, settings: Settings, title: str, phase: str = "") -> int:
        """One update, judged by the packs; returns the exit status."""
        name = self.call.stack.name
        say(title)
        # Always said, so that the caller's own environment chooses no phase.
        asked = {PHASE_VARIABLE: phase}
        waivers = first_key.waivers() if FIRST_KEY in phase else ()

        def update() -> operation.Outcome:
            with judged(self.call.stack, settings, self.pulumi, waivers=waivers) as (
                packs,
                variables,
            ):
                arguments = ["up", "--yes", *(packs or ["--skip-preview"]), "-s", name]
                return _run(
                    self.pulumi,
                    arguments,
                    "updating",
                    {**variables, **asked},
                    details=self.details,
                )

        outcome = until_counted(update)
        if outcome.status != 0:
            return not_finished(self.call, "up", outcome)
        if outcome.changes:
            say(f"      resources: {operation.counted(outcome.changes, planned=False)}")
        say(f"{title}: done in {outcome.seconds:.1f} s")
        return 0


def _before(run: Updating, settings: Settings, source: str | None) -> int | None:
    """What comes before all of the stack: the exit status where it ends here, else None."""
    if is_workloads(settings) and settings.awaited:
        first_version.require_none_served(settings, run.pulumi.resources())
    asked = first_key.phase(settings, run.pulumi) if isinstance(settings, CloudSettings) else None
    if asked and (status := run.update(settings, first_key.TITLE, asked)) != 0:
        return status
    return before_machines(run, settings, source) if isinstance(settings, SmbSettings) else None


def _may_lack(call: Call, settings: Settings) -> bool:
    """Whether a stack can begin without what its machines need: it makes its own registry."""
    if call.sandboxed(settings) or not isinstance(settings, SmbSettings):
        return False
    return settings.foundation is None


def before_machines(run: Updating, settings: SmbSettings, source: str | None) -> int | None:
    """The phases before a tier's machines: its stores, and the package that they serve.

    Args:
        run: updates of its stack.
        settings: what its file says.
        source: the stack of one machine that a package comes from, if somebody named one.

    Returns:
        The exit status where it ends here; None: its machines can come.

    Raises:
        StackError: its file lacks what it needs, though its registry is there; the source serves
            something else; or the registry can't be reached.
    """
    from falaj.stacks.command import phases  # noqa: PLC0415 - only such a tier has them

    place = choose(settings).place
    tier = phases.Tier(run.call.stack, settings, place, source or phases.DEFAULT_SOURCE)
    if run.pulumi.sandbox:
        return _in_the_sandbox(run, tier)
    if not tier.lacking:
        return None
    if settings.foundation is not None or _has_machines(run.pulumi):
        # Its registry is there, and what runs would be destroyed: say what its file has to name.
        prepare_cloud(run.call.stack, settings, sandbox=False)
    status = run.update(settings, _STORES, STORES)
    if status != 0:
        return status
    outputs = run.pulumi.outputs()
    if not tier.is_published:
        say(_PUBLISH)
        tier.publish(outputs)
        found = run.call.settings()
        tier = replace(tier, settings=found) if isinstance(found, SmbSettings) else tier
    if not tier.lacking:
        return None
    say(tier.next_steps(outputs))
    return LEFT


def _has_machines(pulumi: Pulumi) -> bool:
    """Whether any of a tier's machines was made: a phase without them would take them down."""
    return any(_kind(each) == "CpuInferenceTier" for each in pulumi.resources())


def _in_the_sandbox(run: Updating, tier: phases.Tier) -> int | None:
    """As `before_machines`; where nobody serves the model, digests are made up."""
    if tier.is_published:
        return None
    served = tier.served()
    if served is None:
        make = project.command("up", tier.stack.sibling(tier.source))
        say(
            f"SANDBOX: stack {tier.source} serves no model {tier.model}, and its digests are made "
            f"up; for a package that is really sent and taken, first: {make}"
        )
        return None
    from falaj.stacks.command import phases  # noqa: PLC0415 - as above

    if not phases.has_registry():
        return None
    if tier.settings.foundation is None and not _has_machines(run.pulumi):
        status = run.update(tier.settings, _STORES, STORES)
        if status != 0:
            return status
    say(_PUBLISH)
    tier.publish_in_sandbox(served)
    return None


def refresh(call: Call, *, details: bool) -> int:
    """Read what is really there into the stack's state, so that the next ``up`` mends drift."""
    settings = call.settings()
    pulumi = call.engine(settings)
    _say_what_answers(pulumi)
    pulumi.ensure_stack()
    # Nobody is asked before it: a preview would read everything twice.
    arguments = ["refresh", "--yes", "--skip-preview", "-s", call.stack.name]
    outcome = _run(pulumi, arguments, "reading", details=details)
    if outcome.status != 0:
        return not_finished(call, "refresh", outcome)
    if operation.is_change(outcome.changes):
        say(f"drift: {operation.counted(outcome.changes, planned=False)}")
        say(f"mend it with: {call.again('up')}")
    elif outcome.changes:
        say("no drift: everything is as the stack's state says")
    return 0


def down(call: Call, *, details: bool, is_agreed: bool) -> int:
    """Destroy everything of the stack, then forget the stack; what it retains stays.

    Args:
        call: the stack.
        details: show what the engine shows.
        is_agreed: don't ask.
    """
    stack = call.stack
    if not stack.path.exists():
        say(f"stack {stack.name} has no file; nothing runs")
        return 0
    settings = _settings_or_none(stack)
    local = settings if is_local(settings) else None
    sandboxed = call.sandbox or (settings is not None and call.sandboxed(settings))
    clouds = isinstance(settings, CloudSettings)
    pulumi = Pulumi(stack, sandbox=sandboxed, plugins=clouds)
    _say_what_answers(pulumi)
    pulumi.ensure_stack()
    exported = pulumi.exported()
    if not isinstance(settings, CloudSettings) and not sandboxed:
        pulumi.settle_interrupted(exported)
    resources = resources_of(exported)
    if not is_agreed and is_terminal() and resources:
        say(what_goes(stack, resources, sandbox=pulumi.sandbox))
        if not confirmed(f"Destroy stack {stack.name}? It can't be undone."):
            say("nothing was destroyed")
            return 1
    if pulumi.sandbox:
        # Nothing real is kept in the sandbox; on a cloud a person lifts the protection.
        pulumi.release(exported)
    arguments = ["destroy", "--yes", "--skip-preview", "-s", stack.name]
    outcome = _run(pulumi, arguments, "destroying", details=details, expected=len(resources))
    if outcome.status != 0:
        return not_finished(call, "down", outcome)
    pulumi.capture(["stack", "rm", stack.name, "--yes", "--preserve-config"])
    if pulumi.sandbox:
        forget_stack(stack, activation.cloud_file(pulumi.environment))
        cloud.forget(stack)
        _remove_what_was_made_for(call, settings)
    if not isinstance(settings, CloudSettings) and not pulumi.sandbox:
        # A file that became invalid must not stop its stack from being destroyed; keep the data.
        remove_leftovers(pulumi, stack, retain=local is None or local.retain)
    say(f"stack {stack.name} is down")
    if not pulumi.sandbox:
        for line in notices(resources):
            say(f"  {line}")
    if stack.site.exists():
        why = "retained, as the stack says" if local is None or local.retain else "kept, with keys"
        say(f"  {why}: {stack.site}")
    return 0


def status(call: Call) -> int:
    """Show what runs and where; of a stack in a cloud, what it last came to."""
    settings = _settings_or_none(call.stack)
    if not isinstance(settings, CloudSettings):
        return service.status(call.stack)
    pulumi = call.engine(settings)
    outputs = pulumi.outputs() if pulumi.exists() else {}
    if not outputs:
        say(f"stack {call.stack.name} is not up; start it with: {call.again('up')}")
        return 0
    say(closing(outputs, call.stack, sandbox=pulumi.sandbox))
    if is_workloads(settings) and (not pulumi.sandbox or testplane.is_used()):
        # The official client, half a second.
        from falaj.stacks.command import in_cluster  # noqa: PLC0415

        say()
        in_cluster.say_status(call, settings)
    if is_workloads(settings) and _asks_registries(call, settings):
        _say_moved_aliases(call)
    return 0


def _say_moved_aliases(call: Call) -> None:
    """Say what services would serve by the aliases that they follow, where that is another."""
    from falaj.stacks.command.pinned import moved_in  # noqa: PLC0415 - registries' programs

    try:
        moved = moved_in(call.stack)
    except (StackError, WorkloadError) as error:
        complain(f"whether aliases have moved can't be told: {error}")
        return
    for each in moved:
        say(each)
    if moved:
        say(f"  serve it: {call.again('up')}")


def logs(call: Call, workload: str | None, lines: int) -> int:
    """Print the last lines of what pods of a stack in a cluster wrote."""
    settings = call.settings()  # which installs the official client, where it is missing
    from falaj.stacks.command import in_cluster  # noqa: PLC0415

    return in_cluster.logs(call, settings, workload, lines)


def shell(call: Call) -> int:
    """A shell in which plain ``pulumi up -s NAME`` works, and ``kubectl`` of the cluster."""
    settings = call.settings()
    pulumi = call.engine(settings)
    pulumi.ensure_stack()
    program = os.environ.get("SHELL") or "/bin/sh"
    say(
        f"pulumi {pulumi.engine.version} is ready for stack {call.stack.name}; try: pulumi preview"
    )
    if pulumi.sandbox:
        say(f"this shell is in the sandbox's copy of the project: {pulumi.folder}")
    say("leave with: exit")
    chosen = {"VIRTUAL_ENV": sys.prefix, "PULUMI_STACK": call.stack.name}
    environment = {**pulumi.environment, **chosen}
    before = environment["PATH"]
    with ExitStack() as entered:
        environment["PATH"] = entered.enter_context(
            stand_in.first_on_the_path(pulumi.engine.path, pulumi.folder, before)
        )
        if isinstance(settings, InClusterSettings):
            found = kubeconfig.variables(call.stack, settings, sandbox=pulumi.sandbox)
            environment |= entered.enter_context(found)
            if environment[kubeconfig.VARIABLE] != kubeconfig.NOWHERE:
                say("kubectl goes to the stack's cluster, by your own rights there")
        return subprocess.run(
            [program], cwd=pulumi.folder, env=environment, check=False
        ).returncode


def _say_what_answers(pulumi: Pulumi) -> None:
    if pulumi.sandbox:
        say("SANDBOX: nothing real is read or destroyed; stand-ins answer")


def _run(
    pulumi: Pulumi,
    arguments: list[str],
    verb: str,
    variables: Mapping[str, str] | None = None,
    *,
    details: bool,
    expected: int | None = None,
) -> operation.Outcome:
    if details:
        return operation.shown_by_the_engine(pulumi, arguments, variables)
    return operation.run(pulumi, arguments, verb, variables, expected=expected)


def not_finished(call: Call, verb: str, outcome: operation.Outcome) -> int:
    """Say why an operation didn't come to its end, and what to do; returns the exit status."""
    held = operation.lock_message(outcome.printed, call.stack.name)
    if held is not None:
        raise StackError(held)
    kept = operation.counted(outcome.made, planned=False)
    if outcome.was_interrupted:
        if verb != "preview" and outcome.made:
            say(f"stopped; {kept}, which is kept")
        else:
            say("stopped")
        say(f"run it again to go on from here: {call.again(verb)}")
        return INTERRUPTED
    done = f"; {kept} before that, which is kept" if outcome.made else ""
    for hint in hints(outcome.printed):
        say(hint)
    url = {**os.environ, **backend.ensure_backend()}.get("PULUMI_BACKEND_URL", "")
    if (hint := passphrase_hint(outcome.printed, call.stack, url)) is not None:
        say(hint)
    say(
        f"not finished (exit {outcome.status}){done}\n"
        f"put right what is named above, then run: {call.again(verb)}"
    )
    return outcome.status


def _remove_what_was_made_for(call: Call, settings: Settings | None) -> None:
    """Destroy what the sandbox made for the stack to stand on, once nobody stands on it."""
    name = settings.upstream if isinstance(settings, CloudSettings) else None
    if name is not None and cloud.leave(call.stack.sibling(name), call.stack.name):
        say(f"{name} was made for {call.stack.name} only: it goes as well")
        down(Call(call.stack.sibling(name), sandbox=True), details=False, is_agreed=True)


def _settings_or_none(stack: StackFile) -> Settings | None:
    try:
        return stack.settings()
    except StackError:
        return None
