"""The `LanguageRuntime` service that the engine calls, and the commands that it runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tomllib
from collections.abc import AsyncIterator, Coroutine, Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf import empty_pb2, json_format

from falaj import __version__
from falaj.engine.languagehost.children import Children
from falaj.engine.languagehost.execute import REPORTED
from falaj.engine.languagehost.interpreter import (
    Interpreter,
    Package,
    RuntimeOptionError,
    installed,
    python_version,
    resolve,
    steps,
)
from falaj.wire.protocol import language_pb2, language_pb2_grpc, plugin_pb2

# The command lines of what a language host runs: programs, plugins and policy packs.

EXECUTE = Path(__file__).with_name("execute.py")
SERVE_PACK = Path(__file__).with_name("own_server.py")
OWN_SERVER = "ownServer"
"""The option of a policy pack that answers the engine itself: it starts without the SDK, whose
helper for packs it has no use for. Hosts that don't know the option start it as any other."""


def program_command(
    request: language_pb2.RunRequest, interpreter: Interpreter, engine_address: str
) -> list[str]:
    """How to run the stack program of `request`."""
    info = request.info
    # The entry point is relative to the program's folder; "." is the folder itself.
    program = Path(info.program_directory) / (info.entry_point or ".")
    spec: dict[str, Any] = {
        "project": request.project,
        "stack": request.stack,
        "organization": request.organization,
        "parallel": request.parallel,
        "dry_run": request.dryRun,
        "monitor": request.monitor_address,
        "engine": engine_address,
        "root": info.root_directory,
        "pwd": request.pwd or info.program_directory,
        "program": str(program),
        "args": list(request.args),
    }
    return [str(interpreter.python), "-u", str(EXECUTE), json.dumps(spec)]


def program_environment(
    request: language_pb2.RunRequest, interpreter: Interpreter, base: Mapping[str, str]
) -> dict[str, str]:
    """The variables of the program of `request`; configuration travels in them, not in argv."""
    env = interpreter.environment(base)
    env["PULUMI_CONFIG"] = json.dumps(dict(request.config))
    env["PULUMI_CONFIG_SECRET_KEYS"] = json.dumps(list(request.configSecretKeys))
    return env


def plugin_command(request: language_pb2.RunPluginRequest, interpreter: Interpreter) -> list[str]:
    """How to run the plugin of `request`: a policy pack, a runnable folder or a package."""
    python = [str(interpreter.python), "-u"]
    folder = Path(request.info.program_directory)
    arguments = list(request.args)
    if request.kind == "analyzer":
        # `python -m pulumi.policy ENGINE_ADDRESS PACK`: the address comes last in the request.
        *flags, address = arguments
        if _options(request.info).get(OWN_SERVER):
            return [*python, str(SERVE_PACK), str(folder), address, *flags]
        return [*python, "-m", "pulumi.policy", *flags, address, str(folder)]
    entry = folder / (request.info.entry_point or ".")
    runnable = not entry.is_dir() or (entry / "__main__.py").exists()
    if not runnable and (name := _distribution_name(entry)):
        return [*python, "-m", "pulumi.run.plugin", name, *arguments]
    return [*python, str(entry), *arguments]


def _distribution_name(folder: Path) -> str | None:
    """The name in the folder's pyproject.toml, when it is a Python package."""
    try:
        with (folder / "pyproject.toml").open("rb") as file:
            name = tomllib.load(file)["project"]["name"]
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError):
        return None
    return name if isinstance(name, str) else None


PROGRAM_GRACE_SECONDS = 4.0
"""How long a cancelled program has; the engine kills a host 5 s after asking it to leave."""
PLUGIN_GRACE_SECONDS = 15.0
"""How long a cancelled plugin has: it may be waiting for a trainer that writes a checkpoint."""

CANCELLED = 130
"""What a program that was cancelled counts as: 128 + SIGINT, as in a shell."""

Context = grpc.aio.ServicerContext[Any, Any]


# ruff: noqa: N802  the names of the calls are the protocol's


class LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """Runs Python programs, plugins and policy packs for one engine."""

    def __init__(self, engine_address: str, children: Children) -> None:
        self._engine_address = engine_address
        self._children = children
        self._programs: set[asyncio.Task[int]] = set()

    async def Handshake(
        self, request: language_pb2.LanguageHandshakeRequest, context: Context
    ) -> language_pb2.LanguageHandshakeResponse:
        """Take the engine's address."""
        self._engine_address = request.engine_address or self._engine_address
        return language_pb2.LanguageHandshakeResponse()

    async def GetPluginInfo(
        self, request: empty_pb2.Empty, context: Context
    ) -> plugin_pb2.PluginInfo:
        """Say which version this host has."""
        return plugin_pb2.PluginInfo(version=__version__)

    async def Run(
        self, request: language_pb2.RunRequest, context: Context
    ) -> language_pb2.RunResponse:
        """Run a stack program; its output goes to ours, which the engine shows."""
        streams: set[str] = set()

        def show(stream: str, data: bytes) -> None:
            streams.add(stream)
            target = sys.stdout.buffer if stream == "stdout" else sys.stderr.buffer
            with contextlib.suppress(OSError):  # the engine is gone: our watch ends us
                target.write(data)
                target.flush()

        try:
            interpreter = _interpreter(request.info)
            command = program_command(request, interpreter, self._engine_address)
            env = program_environment(request, interpreter, os.environ)
            code = await self._cancellable(
                self._children.run(command, request.pwd or ".", env, show, PROGRAM_GRACE_SECONDS)
            )
        except RuntimeOptionError as error:
            return language_pb2.RunResponse(error=str(error))
        except OSError as error:
            return language_pb2.RunResponse(error=f"the program could not be started: {error}")
        if code == 0:
            return language_pb2.RunResponse()
        if code in (REPORTED, CANCELLED) or "stderr" in streams:
            # The person knows already: to say more would only hide it.
            return language_pb2.RunResponse(bail=True)
        return language_pb2.RunResponse(error=f"the program ended with exit code {code}")

    async def RunPlugin(
        self, request: language_pb2.RunPluginRequest, context: Context
    ) -> AsyncIterator[language_pb2.RunPluginResponse]:
        """Run a plugin or policy pack: its output, then its exit code."""
        try:
            interpreter = _interpreter(request.info)
            command = plugin_command(request, interpreter)
            given = dict(entry.split("=", 1) for entry in request.env if "=" in entry)
            async for item in self._children.stream(
                command,
                request.pwd or ".",
                interpreter.environment(given or os.environ),
                PLUGIN_GRACE_SECONDS,
            ):
                if isinstance(item, int):
                    yield language_pb2.RunPluginResponse(exitcode=item)
                elif item[0] == "stdout":
                    yield language_pb2.RunPluginResponse(stdout=item[1])
                else:
                    yield language_pb2.RunPluginResponse(stderr=item[1])
        except (RuntimeOptionError, OSError) as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))

    async def GetRequiredPackages(
        self, request: language_pb2.GetRequiredPackagesRequest, context: Context
    ) -> language_pb2.GetRequiredPackagesResponse:
        """Name the provider plugins that the installed Python packages belong to."""
        packages = await self._packages(request.info, context)
        return language_pb2.GetRequiredPackagesResponse(
            packages=[plugin for package in packages if (plugin := package.provider_plugin())]
        )

    async def GetProgramDependencies(
        self, request: language_pb2.GetProgramDependenciesRequest, context: Context
    ) -> language_pb2.GetProgramDependenciesResponse:
        """Name the Python packages of the program."""
        packages = await self._packages(request.info, context)
        return language_pb2.GetProgramDependenciesResponse(
            dependencies=[
                language_pb2.DependencyInfo(name=package.name, version=package.version)
                for package in packages
                if request.transitiveDependencies or not package.needed_by_others
            ]
        )

    async def _packages(self, info: language_pb2.ProgramInfo, context: Context) -> list[Package]:
        try:
            return await installed(_interpreter(info))
        except (RuntimeOptionError, OSError) as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            raise

    async def About(
        self, request: language_pb2.AboutRequest, context: Context
    ) -> language_pb2.AboutResponse:
        """Say which Python runs the program."""
        try:
            interpreter = _interpreter(request.info)
            version = await python_version(interpreter)
        except (RuntimeOptionError, OSError) as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            raise
        return language_pb2.AboutResponse(
            executable=str(interpreter.python),
            version=version,
            metadata={"toolchain": interpreter.toolchain, "language host": f"falaj {__version__}"},
        )

    async def InstallDependencies(
        self, request: language_pb2.InstallDependenciesRequest, context: Context
    ) -> AsyncIterator[language_pb2.InstallDependenciesResponse]:
        """Make the virtual environment and install the requirements, showing the output."""
        try:
            options, root = _options(request.info), Path(request.info.root_directory)
            folder = Path(request.directory or request.info.program_directory)
            for step in steps(options, root, folder):
                async for item in self._children.stream(
                    step.command, str(step.folder), step.environment(), PROGRAM_GRACE_SECONDS
                ):
                    if isinstance(item, int):
                        if item != 0:
                            await context.abort(
                                grpc.StatusCode.ABORTED,
                                f"`{' '.join(step.command)}` failed with exit code {item}",
                            )
                    elif item[0] == "stdout":
                        yield language_pb2.InstallDependenciesResponse(stdout=item[1])
                    else:
                        yield language_pb2.InstallDependenciesResponse(stderr=item[1])
        except (RuntimeOptionError, OSError) as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))

    async def RuntimeOptionsPrompts(
        self, request: language_pb2.RuntimeOptionsRequest, context: Context
    ) -> language_pb2.RuntimeOptionsResponse:
        """Ask nothing during `pulumi new`: the template's own options stand."""
        return language_pb2.RuntimeOptionsResponse()

    async def Cancel(self, request: empty_pb2.Empty, context: Context) -> empty_pb2.Empty:
        """Stop the programs that run.

        Plugins are left to the engine: each receives its own Cancel and then the end of its
        `RunPlugin` stream, so that a provider can record what it was doing.
        """
        for task in self._programs:
            task.cancel()
        return empty_pb2.Empty()

    async def _cancellable(self, program: Coroutine[Any, Any, int]) -> int:
        """Await `program`; CANCELLED when the Cancel call stopped it."""
        task = asyncio.create_task(program)
        self._programs.add(task)
        try:
            # gather does not pass a cancelled child on as our own cancellation.
            (result,) = await asyncio.gather(task, return_exceptions=True)
        finally:
            self._programs.discard(task)
        if isinstance(result, asyncio.CancelledError):
            return CANCELLED
        if isinstance(result, BaseException):
            raise result
        return result


def _options(info: language_pb2.ProgramInfo) -> dict[str, Any]:
    return json_format.MessageToDict(info.options)


def _interpreter(info: language_pb2.ProgramInfo) -> Interpreter:
    return resolve(_options(info), Path(info.root_directory))
