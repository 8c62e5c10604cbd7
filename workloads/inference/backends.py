"""What runs a package's model: this process, a runtime beside it, and at times the next tier."""

from __future__ import annotations

import asyncio
import traceback
from dataclasses import dataclass

from falaj.workloads.inference import model, relayed
from falaj.workloads.inference.model import Model
from falaj.workloads.inference.relayed import RelayedModel
from falaj.workloads.inference.remote import Remote, client_context
from falaj.workloads.inference.service import Service
from falaj.workloads.inference.settings import Settings
from falaj.workloads.inference.spill import Spill
from falaj.workloads.registry.package import Package

WATCH_SECONDS = 1.0


@dataclass(frozen=True)
class Backends:
    """Who runs the model."""

    model: Model | RelayedModel
    upstream: Remote | None
    spill: Spill | None


def backends_of(configuration: Settings, package: Package) -> Backends:
    """Load the model, or prepare the calls to who runs it instead.

    With a runtime beside, the package isn't opened here: its signed manifest says what requests
    have to be.

    Raises:
        WorkloadError: the package, its model or a certificate can't be used.
    """
    name, version = package.model, str(package.version)
    limits = configuration.limits
    upstream = configuration.upstream
    if upstream is not None:
        schema = relayed.schema_of(name, version, package.manifest, limits)
        remote = Remote(
            upstream.url,
            schema,
            timeout_seconds=upstream.timeout_seconds,
            connections=upstream.connections,
        )
        return Backends(RelayedModel(schema), remote, None)
    loaded = model.load(
        package.read(model.MODEL_FILE),
        name=name,
        version=version,
        manifest=package.manifest,
        threads=configuration.threads,
        limits=limits,
    )
    spill = configuration.spill
    if spill is None:
        return Backends(loaded, None, None)
    there = Remote(
        spill.url,
        relayed.schema_of(name, str(spill.version), package.manifest, limits),
        timeout_seconds=spill.timeout_seconds,
        connections=spill.connections,
        context=client_context(configuration.tls),
    )
    return Backends(loaded, None, Spill(there, spill.above_seconds))


async def watch_runtime(service: Service) -> None:
    """Keep the readiness and the queue of a runtime beside up to date."""
    upstream = service.runs.upstream
    if upstream is None:
        return
    count, seconds = 0, 0.0
    while True:
        try:
            service.runtime_ready = await upstream.is_ready()
            seen = await upstream.statistics() if service.runtime_ready else None
            if seen is not None:
                # A runtime that was started anew counts from zero.
                more, longer = seen[0] - count, seen[1] - seconds
                if more > 0 and longer >= 0:
                    service.counters.queued(longer, more)
                count, seconds = seen
        except Exception:  # what is watched must not end the watching
            traceback.print_exc()
        await asyncio.sleep(WATCH_SECONDS)
