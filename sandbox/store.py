"""What exists in the sandbox: one SQLite file that several provider processes share.

Every change is one transaction, so a check against what exists and the change that follows it
can't be torn apart by another process.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from falaj.components.nearest import nearest
from falaj.engine.errors import EngineError
from falaj.engine.files import make_private
from falaj.sandbox.clouds.model import Made

_BUSY_TIMEOUT_MS: Final = 30_000
_RETRY_SECONDS: Final = 0.01
_FORMAT: Final = 1

_TABLES: Final = """
CREATE TABLE resources (
    token TEXT NOT NULL, id TEXT NOT NULL, urn TEXT NOT NULL, stack TEXT NOT NULL,
    generation INTEGER NOT NULL, region TEXT NOT NULL,
    inputs TEXT NOT NULL, outputs TEXT NOT NULL,
    revision INTEGER NOT NULL DEFAULT 0, place INTEGER PRIMARY KEY AUTOINCREMENT,
    UNIQUE (token, id)
);
CREATE INDEX resources_by_urn ON resources (urn);
CREATE TABLE runs (run TEXT PRIMARY KEY);
CREATE TABLE faults (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    action TEXT NOT NULL, token TEXT, name TEXT, nth INTEGER NOT NULL,
    timeout INTEGER NOT NULL, always INTEGER NOT NULL,
    seen INTEGER NOT NULL DEFAULT 0, spent INTEGER NOT NULL DEFAULT 0
);
"""

#: What faults have beyond the columns above; clouds of before lack them.
_OF_FAULTS: Final = {"times": "INTEGER NOT NULL DEFAULT 1", "answer": "TEXT NOT NULL DEFAULT ''"}

#: Resources that several stacks set, each with those that do.
_SHARERS: Final = """
CREATE TABLE IF NOT EXISTS sharers (
    token TEXT NOT NULL, id TEXT NOT NULL, urn TEXT NOT NULL, stack TEXT NOT NULL,
    UNIQUE (token, id, urn)
)
"""


class Store:
    """The sandbox's cloud, and the world that its models look at.

    Args:
        path: the SQLite file, or ``:memory:``.

    Raises:
        EngineError: the file can't be used.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        self._known: dict[int, tuple[int, Made]] = {}
        self._alone = threading.RLock()
        try:
            if self._path != ":memory:":
                make_private(Path(path).parent)
            # The servicer's event loop and the caller's threads may differ.
            self.connection = sqlite3.connect(
                self._path, isolation_level=None, check_same_thread=False
            )
            self.connection.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
            self._write_ahead()
            # The file may lose its last moments when the machine loses power, never its order.
            self.connection.execute("PRAGMA synchronous = OFF")
            with self.transaction():
                self._ensure_tables()
        except (OSError, sqlite3.Error) as error:
            raise EngineError(
                f"the sandbox's cloud in {self._path} can't be used: {error}; remove the file to "
                "start with an empty one (`pulumi refresh` then drops what was in it)"
            ) from error

    def _write_ahead(self) -> None:
        """Keep a log of what is written, which readers don't wait for.

        Who is first changes the file for that, and SQLite lets nobody wait meanwhile, whatever the
        timeout: https://www.sqlite.org/wal.html#activating_and_configuring_wal_mode
        """
        deadline = time.monotonic() + _BUSY_TIMEOUT_MS / 1000
        while True:
            try:
                self.connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_SECONDS)
            else:
                return

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    @contextlib.contextmanager
    def transaction(self) -> Generator[None]:
        """All or nothing of what is done inside; other threads and processes wait."""
        with self._alone:
            if self.connection.in_transaction:
                yield
                return
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self.connection.execute("ROLLBACK")
                # Revisions that never were may come again with other contents.
                self._known.clear()
                raise
            self.connection.execute("COMMIT")

    # What models see (the protocol World)

    def by_id(self, token: str, id: str) -> Made | None:
        """The resource of that type and id; None when there is none."""
        return next(iter(self._made("WHERE token = ? AND id = ?", (token, id))), None)

    def all(self, token: str | None = None) -> list[Made]:
        """Every resource, or every one of a type, in the order in which they were made."""
        if token is None:
            return self._made("", ())
        return self._made("WHERE token = ?", (token,))

    def find(self, token: str, **equal: Any) -> list[Made]:
        """The resources of a type whose outputs equal all that is given."""
        return [
            made
            for made in self.all(token)
            if all(made.outputs.get(name) == value for name, value in equal.items())
        ]

    # What the sandbox itself needs

    def named(self, resource: str) -> Made:
        """The one resource of that URN, id, name, or kind and name as ``Bucket store-models``.

        Raises EngineError for none, or several.
        """
        found = [
            made
            for made in self.all()
            if resource in (made.urn, made.id, made.urn.split("::", 3)[-1], _label(made))
        ]
        if len(found) == 1:
            return found[0]
        if found:
            labels = [_label(made) for made in found]
            # Of two stacks' resources only the URN says which.
            alone = len(set(labels)) == len(labels)
            names = [f"'{each}'" for each in labels] if alone else [each.urn for each in found]
            listed = "\n  ".join(names)
            raise EngineError(
                f"{len(found)} resources are called {resource!r}; give one of:\n  {listed}"
            )
        near = nearest(resource, (made.urn.split("::", 3)[-1] for made in self.all()), most=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise EngineError(
            f"nothing in the sandbox is called {resource!r}{hint}; "
            "`falaj sandbox list` shows what is there"
        )

    def is_first(self, run: str) -> bool:
        """Whether this is asked for the first time of a run of the engine."""
        with self.transaction():
            done = self.connection.execute("INSERT OR IGNORE INTO runs (run) VALUES (?)", (run,))
            self.connection.execute(
                "DELETE FROM runs WHERE rowid <= (SELECT max(rowid) FROM runs) - 100"
            )
            return done.rowcount > 0

    def generations(self, urn: str) -> list[int]:
        """Which numbers the resources of this URN have that exist now."""
        rows = self.connection.execute(
            "SELECT generation FROM resources WHERE urn = ? ORDER BY generation", (urn,)
        )
        return [row[0] for row in rows]

    def add(self, made: Made, generation: int) -> None:
        """Make a resource; its type and id must be new."""
        self.connection.execute(
            "INSERT INTO resources (token, id, urn, stack, generation, region, inputs, outputs) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                made.token,
                made.id,
                made.urn,
                made.stack,
                generation,
                made.region,
                _dump(made.inputs),
                _dump(made.outputs),
            ),
        )

    def change(self, made: Made) -> None:
        """Set a resource's inputs, outputs and region."""
        self.connection.execute(
            "UPDATE resources SET inputs = ?, outputs = ?, region = ?, urn = ?, stack = ?, "
            "revision = revision + 1 WHERE token = ? AND id = ?",
            (
                _dump(made.inputs),
                _dump(made.outputs),
                made.region,
                made.urn,
                made.stack,
                made.token,
                made.id,
            ),
        )

    def share(self, made: Made) -> None:
        """Set a resource that another stack, or another resource of this one, has made.

        It is the last one's who set it, until that one leaves it (see `remove`).
        """
        before = self.by_id(made.token, made.id)
        for each in (before, made):
            if each is not None:
                self.connection.execute(
                    "INSERT OR IGNORE INTO sharers (token, id, urn, stack) VALUES (?, ?, ?, ?)",
                    (each.token, each.id, each.urn, each.stack),
                )
        self.change(made)

    def remove(self, token: str, id: str, urn: str = "") -> bool:
        """Remove a resource; whether it was there.

        Where it is given whose it is (``urn``), one that others share is left to them.
        """
        self.connection.execute(
            "DELETE FROM sharers WHERE token = ? AND id = ? AND urn = ?", (token, id, urn)
        )
        other = self.connection.execute(
            "SELECT urn, stack FROM sharers WHERE token = ? AND id = ? ORDER BY rowid DESC",
            (token, id),
        ).fetchone()
        if urn and other is not None:
            self.connection.execute(
                "UPDATE resources SET urn = ?, stack = ?, revision = revision + 1 "
                "WHERE token = ? AND id = ? AND urn = ?",
                (*other, token, id, urn),
            )
            return True
        self.connection.execute("DELETE FROM sharers WHERE token = ? AND id = ?", (token, id))
        done = self.connection.execute(
            "DELETE FROM resources WHERE token = ? AND id = ?", (token, id)
        )
        return done.rowcount > 0

    def forget(self, prefix: str) -> None:
        """Remove whatever has a URN that begins so; what others share is left to them."""
        with self.transaction():
            shared = self.connection.execute(
                "SELECT token, id, urn FROM sharers WHERE substr(urn, 1, ?) = ?",
                (len(prefix), prefix),
            ).fetchall()
            own = [(made.token, made.id, made.urn) for made in self.all()]
            for token, id, urn in [*shared, *(each for each in own if each[2].startswith(prefix))]:
                self.remove(token, id, urn)

    def clear(self) -> int:
        """Remove everything, faults too; how many resources there were."""
        with self.transaction():
            self.connection.execute("DELETE FROM faults")
            self.connection.execute("DELETE FROM sharers")
            return self.connection.execute("DELETE FROM resources").rowcount

    def _made(self, where: str, values: Iterable[Any]) -> list[Made]:
        """Rows as objects; each revision of a row is read and decoded once."""
        heads = self.connection.execute(
            f"SELECT place, revision FROM resources {where} ORDER BY place",  # noqa: S608
            tuple(values),
        ).fetchall()
        found: list[Made] = []
        for place, revision in heads:
            known = self._known.get(place)
            if known is None or known[0] != revision:
                row = self.connection.execute(
                    "SELECT urn, token, id, inputs, outputs, region, stack FROM resources "
                    "WHERE place = ?",
                    (place,),
                ).fetchone()
                if row is None:  # gone between the two queries
                    continue
                urn, token, made_id, inputs, outputs, region, stack = row
                made = Made(
                    urn, token, made_id, json.loads(inputs), json.loads(outputs), region, stack
                )
                known = self._known[place] = (revision, made)
            found.append(known[1])
        return found

    def _ensure_tables(self) -> None:
        self.connection.execute(_SHARERS)
        (version,) = self.connection.execute("PRAGMA user_version").fetchone()
        if version == 0:
            for statement in _TABLES.split(";"):
                self.connection.execute(statement)
            self.connection.execute(f"PRAGMA user_version = {_FORMAT}")
        elif version != _FORMAT:
            raise EngineError(
                f"the sandbox's cloud in {self._path} has format {version}, this Falaj writes "
                f"{_FORMAT}; destroy its stacks with the Falaj that made them, or remove the file"
            )
        there = {row[1] for row in self.connection.execute("PRAGMA table_info(faults)")}
        for column, kind in _OF_FAULTS.items():
            if column not in there:
                self.connection.execute(f"ALTER TABLE faults ADD COLUMN {column} {kind}")


def _dump(values: Mapping[str, Any]) -> str:
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False)


def _label(made: Made) -> str:
    """A resource's kind and name, as commands show it: ``Bucket store-models``."""
    return f"{made.token.rpartition(':')[2]} {made.urn.split('::', 3)[-1]}"


def copy_without_faults(cloud: Path, copy: Path) -> None:
    """Copy what exists in the sandbox, without the faults that somebody asked for."""
    original, target = Store(cloud), Store(copy)
    try:
        original.connection.backup(target.connection)
        target.connection.execute("DELETE FROM faults")
    finally:
        original.close()
        target.close()
