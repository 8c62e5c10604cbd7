"""``falaj status``, ``demo``, ``token``, ``rollback`` and ``logs``."""

from __future__ import annotations

from pathlib import Path

import click

from falaj.stacks.command import service, testplane
from falaj.stacks.command.options import (
    model_option,
    models_here,
    sandbox_options,
    stack_option,
    the_stack,
)
from falaj.workloads.bounds import CHOICES


@click.command()
@stack_option
@sandbox_options
def status(stack: str | None, project: Path | None, sandbox: bool, cluster: str | None) -> int:
    """Show what runs and where; of a stack in a cloud, what it last came to.

    Of workloads in a cluster, what their pods are doing, by your own rights there.

    The exit status is 1 where a model should be served and isn't.
    """
    found = the_stack(stack, project)
    if not found.is_in_cloud:
        return service.status(found)
    from falaj.stacks.command import lifecycle  # noqa: PLC0415 - it loads the settings' models
    from falaj.stacks.command.call import Call  # noqa: PLC0415 - so does it

    if cluster is not None:
        testplane.use_cluster(cluster, sandbox=sandbox)

    return lifecycle.status(Call(found, sandbox))


@click.command()
@stack_option
@model_option("Which of the server's models, that a stack of the project makes")
def demo(stack: str | None, project: Path | None, model: str | None) -> int:
    """Send held-out samples to the served model; print predictions beside the truth."""
    return service.demo(the_stack(stack, project), model)


@click.command()
@stack_option
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="SCOPE[:MODEL]",
    help=f"Out of {', '.join(CHOICES['service']['scopes'].words)}; each but admin also for one "
    "model, as in predict:price. May be given more than once (default: predict).",
)
@click.option(
    "--model",
    metavar="NAME",
    shell_complete=models_here,
    help="Of the server's models, the only one that all the scopes are for (default: all).",
)
@click.option(
    "--minutes", type=int, default=60, show_default=True, help="How long the token is valid."
)
def token(
    *,
    stack: str | None,
    project: Path | None,
    scopes: tuple[str, ...],
    model: str | None,
    minutes: int,
) -> int:
    """Print `Authorization: Bearer …` for requests to the endpoint."""
    return service.token(the_stack(stack, project), scopes, minutes, model)


@click.command()
@stack_option
@model_option("Which of the server's models")
def rollback(stack: str | None, project: Path | None, model: str | None) -> int:
    """Serve the model's previous version again; the server follows without a pause.

    Of a further model the alias is in its own registry: whoever else follows it goes back too.
    """
    return service.rollback(the_stack(stack, project), model)


@click.command()
@click.argument("workload", required=False)
@stack_option
@sandbox_options
@click.option("--lines", type=int, default=20, show_default=True, help="Of each log.")
def logs(
    *,
    workload: str | None,
    stack: str | None,
    project: Path | None,
    sandbox: bool,
    cluster: str | None,
    lines: int,
) -> int:
    """Show the last lines of the server's logs; of a stack in a cluster, of its pods'.

    WORKLOAD is the name of one training job, sweep, federated training, batch inference, pipeline,
    service or workspace of the stack; all by default. Logs are read by your own rights in the
    cluster, and what keeps a pod from writing any is said in their place.
    """
    found = the_stack(stack, project)
    if not found.is_in_cloud:
        service.refuse_workload(workload)
        return service.logs(found, lines)
    from falaj.stacks.command import lifecycle  # noqa: PLC0415 - it loads the settings' models
    from falaj.stacks.command.call import Call  # noqa: PLC0415 - so does it

    if cluster is not None:
        testplane.use_cluster(cluster, sandbox=sandbox)
    return lifecycle.logs(Call(found, sandbox), workload, lines)
