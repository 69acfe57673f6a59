"""The work of a run on disk: rows screened so far, and what was decided about them.

SQLite keeps millions of rows and their signatures in bounded memory, and a process
that is killed at any point leaves the last committed state.
"""

import contextlib
import dataclasses
import json
import pathlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rows(
    n INTEGER PRIMARY KEY, id TEXT, key BLOB, level_source TEXT, record TEXT,
    reasons TEXT, repairs TEXT, overlap TEXT, bands BLOB);
CREATE TABLE IF NOT EXISTS late(
    n INTEGER, reason TEXT, evidence TEXT, other INTEGER,
    PRIMARY KEY(n, reason)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pairs(
    kept INTEGER, other INTEGER, kind TEXT, similarity REAL,
    PRIMARY KEY(kept, other)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS bands(
    hash INTEGER, n INTEGER, PRIMARY KEY(hash, n)) WITHOUT ROWID;
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A screened row as it is stored.

    Attributes:
      id: the row's id.
      key: what exact duplicates share.
      level_source: the scale of its level, or None.
      record: the repaired row, JSON.
      reasons: reason -> evidence, JSON.
      repairs: names, JSON.
      overlap: what it shares with evaluation problems, JSON.
      bands: int64 band hashes, as bytes; empty for a row with reasons.
    """

    id: str
    key: bytes
    level_source: str | None
    record: str
    reasons: str
    repairs: str
    overlap: str
    bands: bytes


class Store:
    """Rows of one run, by their number in reading order.

    Args:
      path: the database file; created if it is not there.
    """

    def __init__(self, path: pathlib.Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute("PRAGMA cache_size=-131072")
        self._db.executescript(_SCHEMA)

    def close(self) -> None:
        """Closes the file."""
        self._db.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All of what happens inside is kept, or none of it."""
        with self._db:
            yield

    def get(self, key: str) -> str | None:
        """A remembered value, or None."""
        found = self._db.execute("SELECT value FROM meta WHERE key=?", (key,))
        row = found.fetchone()
        return row[0] if row else None

    def put(self, key: str, value: str) -> None:
        """Remembers a value."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def add(self, first: int, entries: Iterable[Entry]) -> None:
        """Appends screened rows, numbered from `first`."""
        self._db.executemany(
            "INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (first + i, e.id, e.key, e.level_source, e.record, e.reasons)
                + (e.repairs, e.overlap, e.bands)
                for i, e in enumerate(entries)
            ),
        )

    def index(self) -> None:
        """Prepares look-ups by key and id, once all rows are in."""
        self._db.execute("CREATE INDEX IF NOT EXISTS by_key ON rows(key, n)")
        self._db.execute("CREATE INDEX IF NOT EXISTS by_id ON rows(id, n)")

    def scales(self) -> list[tuple[str, int]]:
        """(scale, surviving rows with a level on it), most rows first."""
        return self._db.execute(
            "SELECT level_source, count(*) FROM rows WHERE reasons = '{}'"
            " AND level_source IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1"
        ).fetchall()

    def overlaps(self) -> Iterator[tuple[int, str]]:
        """(n, overlap) of rows that share anything with an evaluation problem."""
        yield from self._db.execute(
            "SELECT n, overlap FROM rows WHERE overlap != '{}' ORDER BY n"
        )

    def first_overlaps(self) -> Iterator[str]:
        """The overlap of the first row of each text that has one."""
        for (overlap,) in self._db.execute(
            "SELECT overlap FROM rows AS r WHERE overlap != '{}' AND n ="
            " (SELECT min(n) FROM rows WHERE key = r.key) ORDER BY n"
        ):
            yield overlap

    def repeated(self) -> Iterator[tuple[bytes, list[int]]]:
        """(key, row numbers) of texts that occur more than once."""
        keys = self._db.execute(
            "SELECT key FROM rows GROUP BY key HAVING count(*) > 1 ORDER BY min(n)"
        ).fetchall()
        for (key,) in keys:
            found = self._db.execute(
                "SELECT n FROM rows WHERE key=? ORDER BY n", (key,)
            )
            yield key, [n for (n,) in found]

    def survives(self, n: int) -> bool:
        """Whether nothing speaks against the row so far."""
        found = self._db.execute(
            "SELECT reasons = '{}' AND NOT EXISTS"
            " (SELECT 1 FROM late WHERE late.n = rows.n) FROM rows WHERE n=?",
            (n,),
        )
        return bool(found.fetchone()[0])

    def survivors(self, scale: str | None) -> list[int]:
        """Rows that nothing speaks against: those with a level on `scale` first."""
        found = self._db.execute(
            "SELECT n FROM rows WHERE reasons = '{}' AND NOT EXISTS"
            " (SELECT 1 FROM late WHERE late.n = rows.n)"
            " ORDER BY level_source IS NOT ?, n",
            (scale,),
        )
        return [n for (n,) in found]

    def record(self, n: int) -> dict:
        """The repaired row."""
        found = self._db.execute("SELECT record FROM rows WHERE n=?", (n,))
        return json.loads(found.fetchone()[0])

    def level_source(self, n: int) -> str | None:
        """The scale of the row's level."""
        found = self._db.execute("SELECT level_source FROM rows WHERE n=?", (n,))
        return found.fetchone()[0]

    def band_hashes(self, n: int) -> list[int]:
        """The row's band hashes."""
        found = self._db.execute("SELECT bands FROM rows WHERE n=?", (n,))
        return np.frombuffer(found.fetchone()[0], np.int64).tolist()

    def meet(self, hashes: Sequence[int]) -> list[int]:
        """Kept rows that share a band with these hashes."""
        marks = ",".join("?" * len(hashes))
        found = self._db.execute(
            f"SELECT DISTINCT n FROM bands WHERE hash IN ({marks}) ORDER BY n", hashes
        )
        return [n for (n,) in found]

    def keep(self, n: int, hashes: Sequence[int]) -> None:
        """Enters a kept row for later rows to meet."""
        self._db.executemany(
            "INSERT OR IGNORE INTO bands VALUES (?, ?)", ((h, n) for h in hashes)
        )

    def drop(
        self, n: int, reason: str, evidence: str, other: int | None = None
    ) -> None:
        """Adds a reason that only the whole run could give."""
        self._db.execute(
            "INSERT OR IGNORE INTO late VALUES (?, ?, ?, ?)",
            (n, reason, evidence, other),
        )

    def pair(self, kept: int, other: int, kind: str, score: float) -> None:
        """Remembers how a dropped row relates to the one that was kept."""
        self._db.execute(
            "INSERT OR IGNORE INTO pairs VALUES (?, ?, ?, ?)",
            (kept, other, kind, round(score, 4)),
        )

    def contested(self) -> Iterator[tuple[int, int, int]]:
        """(kept row, duplicates that agree, duplicates that contradict it)."""
        yield from self._db.execute(
            "SELECT kept, sum(kind = 'same'), sum(kind = 'conflict') FROM pairs"
            " GROUP BY kept HAVING sum(kind = 'conflict') > 0 ORDER BY kept"
        )

    def all(self) -> Iterator[tuple[int, str, str, dict, dict, list]]:
        """(n, id, record, reasons, late reasons, repairs) of every row, in order.

        Late reasons map a reason to (evidence, other row or None).
        """
        late = _grouped(
            self._db.execute("SELECT n, reason, evidence, other FROM late ORDER BY n")
        )
        for n, name, record, reasons, repairs in self._db.execute(
            "SELECT n, id, record, reasons, repairs FROM rows ORDER BY n"
        ):
            yield (
                n,
                name,
                record,
                json.loads(reasons),
                late(n),
                json.loads(repairs),
            )

    def id_of(self, n: int) -> str:
        """The row's id."""
        return self._db.execute("SELECT id FROM rows WHERE n=?", (n,)).fetchone()[0]

    def is_first_of_its_id(self, n: int, name: str) -> bool:
        """Whether no earlier row bears this id."""
        found = self._db.execute("SELECT min(n) FROM rows WHERE id=?", (name,))
        return found.fetchone()[0] == n


def _grouped(cursor: sqlite3.Cursor):
    """A function from an ascending n to its late reasons, read in one pass."""
    waiting = cursor.fetchone()

    def late(n: int) -> dict[str, tuple[str, int | None]]:
        nonlocal waiting
        found = {}
        while waiting is not None and waiting[0] == n:
            found[waiting[1]] = (waiting[2], waiting[3])
            waiting = cursor.fetchone()
        return found

    return late
