"""The contents of the stand-in cloud: one crash-safe SQLite file.

Each change is one transaction: the resource, its names, its instances and its entry in the call log are written
together or not at all. Write-ahead logging survives `kill -9`. A power failure can lose the last change but never
leaves a partial one.

Resources are keyed by type, region and ID, as in a cloud. A resource's engine URN is used for the call log and to find
orphans. A real cloud does not store it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuinfra_rehearsal.cloud.core import wire

CLOCK = "clock"
"""Kind of the entry that contains the time of object changes."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS resources (
  type TEXT NOT NULL, region TEXT NOT NULL, id TEXT NOT NULL,
  inputs TEXT NOT NULL, outputs TEXT NOT NULL,
  operation TEXT NOT NULL, urn TEXT NOT NULL, created REAL NOT NULL, changed REAL NOT NULL,
  PRIMARY KEY (type, region, id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS names (
  scope TEXT NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL, region TEXT NOT NULL, id TEXT NOT NULL,
  PRIMARY KEY (scope, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS things (
  kind TEXT NOT NULL, id TEXT NOT NULL, data TEXT NOT NULL, PRIMARY KEY (kind, id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS objects (
  bucket TEXT NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL, etag TEXT NOT NULL, modified REAL NOT NULL,
  meta TEXT NOT NULL, PRIMARY KEY (bucket, key)
);
CREATE TABLE IF NOT EXISTS calls (
  n INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, operation TEXT NOT NULL, verb TEXT NOT NULL,
  type TEXT NOT NULL, id TEXT NOT NULL, urn TEXT NOT NULL, error TEXT
);
"""


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource. `inputs` and `outputs` keep their secret envelopes."""

    type: str
    region: str
    id: str
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    operation: str = ""
    urn: str = ""
    created: float = 0.0

    @property
    def plain(self) -> dict[str, Any]:
        """The inputs without secret envelopes."""
        return wire.plain(self.inputs)

    def changed(self, **values: Any) -> Resource:
        """Return the resource with values in its inputs and its outputs, so that a refresh finds the change."""
        return replace(self, inputs={**self.inputs, **values}, outputs={**self.outputs, **values})


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object in a bucket."""

    bucket: str
    key: str
    body: bytes
    etag: str
    modified: float
    meta: dict[str, Any]


class Taken(Exception):
    """Raised if another resource already uses the name or the ID."""

    def __init__(self, name: str, holder_type: str, holder_id: str) -> None:
        super().__init__(f"{name} is taken by {holder_type} {holder_id}")
        self.name, self.holder_type, self.holder_id = name, holder_type, holder_id


class Store:
    """The contents of a cloud. One lock serializes all changes, which are short."""

    def __init__(self, path: Path, *, operation: str = "") -> None:
        self.operation = operation
        self._lock = threading.RLock()
        self._depth = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(_SCHEMA)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @contextmanager
    def change(self) -> Iterator[None]:
        """Open a transaction. A nested transaction joins the outer one."""
        with self._lock:
            if self._depth == 0:
                self._db.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield
            except BaseException:
                self._depth -= 1
                if self._depth == 0:
                    self._db.execute("ROLLBACK")
                raise
            self._depth -= 1
            if self._depth == 0:
                self._db.execute("COMMIT")

    def _rows(self, sql: str, *args: Any) -> list[tuple]:
        with self._lock:
            return self._db.execute(sql, args).fetchall()

    def _run(self, sql: str, *args: Any) -> int:
        with self.change():
            return self._db.execute(sql, args).rowcount

    # Resources

    def insert(self, resource: Resource) -> None:
        """Add a resource. Raises Taken if its ID exists in that region."""
        now = time.time()
        try:
            self._run(
                "INSERT INTO resources VALUES (?,?,?,?,?,?,?,?,?)",
                resource.type, resource.region, resource.id, _dump(resource.inputs), _dump(resource.outputs),
                self.operation, resource.urn, resource.created or now, now,
            )  # fmt: skip
        except sqlite3.IntegrityError as error:
            raise Taken(resource.id, resource.type, resource.id) from error

    def update(self, resource: Resource) -> None:
        self._run(
            "UPDATE resources SET inputs=?, outputs=?, changed=? WHERE type=? AND region=? AND id=?",
            _dump(resource.inputs), _dump(resource.outputs), time.time(), resource.type, resource.region, resource.id,
        )  # fmt: skip

    def remove(self, resource: Resource) -> None:
        """Remove a resource and its unique names."""
        key = (resource.type, resource.region, resource.id)
        with self.change():
            self._run("DELETE FROM resources WHERE type=? AND region=? AND id=?", *key)
            self._run("DELETE FROM names WHERE type=? AND region=? AND id=?", *key)

    def find(self, type: str, id: str, region: str | None = None) -> Resource | None:
        """Return one resource. Without a region, returns the only resource with that ID."""
        where, args = ("", ()) if region is None else (" AND region=?", (region,))
        rows = self._rows(f"SELECT {_COLUMNS} FROM resources WHERE type=? AND id=?{where}", type, id, *args)
        return _resource(rows[0]) if rows else None

    def list(self, type: str | None = None) -> list[Resource]:
        """Return all resources, or all resources of one type, oldest first."""
        where, args = ("", ()) if type is None else (" WHERE type=?", (type,))
        return [
            _resource(row) for row in self._rows(f"SELECT {_COLUMNS} FROM resources{where} ORDER BY created, id", *args)
        ]

    def where(self, type: str, **inputs: Any) -> list[Resource]:
        """Return all resources of a type whose inputs have these values, oldest first."""
        return [one for one in self.list(type) if all(one.plain.get(key) == value for key, value in inputs.items())]

    def claim(self, scope: str, name: str, resource: Resource) -> None:
        """Reserve a name within its scope. Raises Taken."""
        try:
            self._run("INSERT INTO names VALUES (?,?,?,?,?)", scope, name, resource.type, resource.region, resource.id)
        except sqlite3.IntegrityError as error:
            holder = self._rows("SELECT type, id FROM names WHERE scope=? AND name=?", scope, name)[0]
            raise Taken(name, *holder) from error

    # Counters and other data

    def next(self, name: str) -> int:
        """Return the next number of a series, starting at 1. Numbers are never reused."""
        with self.change():
            self._run("INSERT INTO counters VALUES (?, 0) ON CONFLICT(name) DO NOTHING", name)
            self._run("UPDATE counters SET value = value + 1 WHERE name=?", name)
            return int(self._rows("SELECT value FROM counters WHERE name=?", name)[0][0])

    def reset(self, name: str) -> None:
        """Restart a series at 1."""
        self._run("DELETE FROM counters WHERE name=?", name)

    def put(self, kind: str, id: str, data: Any) -> None:
        """Store data that is not a Pulumi resource: an instance, an activity or a credential."""
        self._run(
            "INSERT INTO things VALUES (?,?,?) ON CONFLICT(kind, id) DO UPDATE SET data=excluded.data",
            kind,
            id,
            _dump(data),
        )

    def get(self, kind: str, id: str) -> Any | None:
        rows = self._rows("SELECT data FROM things WHERE kind=? AND id=?", kind, id)
        return json.loads(rows[0][0]) if rows else None

    def drop(self, kind: str, id: str) -> None:
        self._run("DELETE FROM things WHERE kind=? AND id=?", kind, id)

    def all(self, kind: str) -> dict[str, Any]:
        return {
            id: json.loads(data)
            for id, data in self._rows("SELECT id, data FROM things WHERE kind=? ORDER BY id", kind)
        }

    # Objects

    def now(self) -> float:
        """Return the time of object changes: the current time, unless the control interface set another time."""
        return float((self.get(CLOCK, CLOCK) or {}).get("at") or time.time())

    def put_object(self, bucket: str, key: str, body: bytes, meta: dict[str, Any] | None = None) -> StoredObject:
        etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
        stored = StoredObject(bucket, key, body, etag, self.now(), dict(meta or {}))
        self._run(
            "INSERT INTO objects VALUES (?,?,?,?,?,?) ON CONFLICT(bucket, key) DO UPDATE SET"
            " body=excluded.body, etag=excluded.etag, modified=excluded.modified, meta=excluded.meta",
            bucket, key, body, etag, stored.modified, _dump(stored.meta),
        )  # fmt: skip
        return stored

    def object(self, bucket: str, key: str) -> StoredObject | None:
        rows = self._rows(
            "SELECT bucket, key, body, etag, modified, meta FROM objects WHERE bucket=? AND key=?", bucket, key
        )
        return StoredObject(*rows[0][:5], meta=json.loads(rows[0][5])) if rows else None

    def objects(self, bucket: str, prefix: str = "") -> list[tuple[str, int, str, float]]:
        """Return (key, size, etag, modified), sorted by the bytes of the keys as in object stores."""
        rows = self._rows("SELECT key, length(body), etag, modified FROM objects WHERE bucket=?", bucket)
        return sorted((row for row in rows if row[0].startswith(prefix)), key=lambda row: row[0].encode())

    def remove_object(self, bucket: str, key: str) -> None:
        self._run("DELETE FROM objects WHERE bucket=? AND key=?", bucket, key)

    # Call log

    def log(self, verb: str, type: str, id: str, urn: str, error: str | None = None) -> None:
        self._run(
            "INSERT INTO calls (at, operation, verb, type, id, urn, error) VALUES (?,?,?,?,?,?,?)",
            time.time(), self.operation, verb, type, id, urn, error,
        )  # fmt: skip

    def calls(self, since: int = 0) -> list[dict[str, Any]]:
        names = ("n", "at", "operation", "verb", "type", "id", "urn", "error")
        rows = self._rows(f"SELECT {', '.join(names)} FROM calls WHERE n > ? ORDER BY n", since)
        return [dict(zip(names, row, strict=True)) for row in rows]


_COLUMNS = "type, region, id, inputs, outputs, operation, urn, created"


def _resource(row: tuple) -> Resource:
    return Resource(row[0], row[1], row[2], json.loads(row[3]), json.loads(row[4]), *row[5:])


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)
