"""Where a result comes from: who asked for it, on what machine, and from which commit."""

from __future__ import annotations

from typing import Final

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

CONFIG: Final = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=CONFIG)
class Revision:
    """What version control says of the project whose program and settings were read.

    Attributes:
        commit: its id; empty where `problem` says why it isn't known.
        changed: whether files differ from that commit, or are not in it.
        problem: why git could not tell, in its words.
    """

    commit: str
    changed: bool = False
    problem: str = ""


@dataclass(frozen=True, config=CONFIG)
class CiRun:
    """The run of a CI system, as its variables describe it; what they don't say is empty.

    Attributes:
        system: the system's name.
        run: the run's number.
        url: where it can be seen.
        actor: who started it.
        commit: the commit that it was started for.
        repository: address of the repository.
    """

    system: str
    run: str = ""
    url: str = ""
    actor: str = ""
    commit: str = ""
    repository: str = ""


@dataclass(frozen=True, config=CONFIG)
class Provenance:
    """Who ran a check, and with what.

    Attributes:
        user: the account that ran it.
        host: the machine's own name.
        python_version: of the Python that ran it.
        revision: of the project; None where it isn't under version control, or none was read.
        ci: the CI's run; None where no known system ran it.
    """

    user: str
    host: str
    python_version: str
    revision: Revision | None = None
    ci: CiRun | None = None
