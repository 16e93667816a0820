"""sqlite3 under patch_all: its calls wait in other threads, and other goroutines go on."""

import sys

import pytest
from helpers import FREE_THREADED
from patched import PRELUDE, run

pytest.importorskip("sqlite3", reason="this Python has no sqlite3")

procs = pytest.mark.parametrize("procs", [1, 2, 8])

COMMON = """
import itertools, sqlite3, sys, threading, time
path = sys.argv[1]
# Counts for a while, in SQLite alone.
SLOW = "with recursive n(x) as (select 1 union all select x + 1 from n where x < %d) select count(*) from n"
def raises(error, fn, *args):
    try:
        fn(*args)
    except error as e:
        return str(e)
    raise AssertionError("no %s" % error.__name__)
def until(condition):
    while not condition():
        gosched.sleep(0.001)
"""


@pytest.fixture
def check(tmp_path):
    def check(code, procs, *args, prelude=PRELUDE, **kwargs):
        return run(code, tmp_path / "db", *args, prelude=prelude + COMMON, env={"GOSCHED_PROCS": str(procs)}, **kwargs)

    return check


@procs
def test_others_go_on_while_one_waits_for_a_lock(check, procs):
    """The one that has it gives it back only after the other has waited for a while."""
    check("""
        holder = sqlite3.connect(path)
        holder.execute("create table t (n)")
        holder.commit()
        holder.execute("insert into t values (1)")
        ticks, begun = [], []
        def tick():
            while len(ticks) < 100:
                gosched.sleep(0.001)
                ticks.append(1)
        def write(n):
            with sqlite3.connect(path, timeout=60) as db:
                begun.append(n)
                db.execute("insert into t values (?)", (n,))
            db.close()
            assert len(ticks) == 100
        writers = [gosched.go(write, n) for n in (2, 3)]
        writers.append(threading.Thread(target=write, args=(4,)))
        writers[-1].start()
        until(lambda: len(begun) == 3)
        gosched.go(tick).join()
        assert not writers[0].done() and not writers[1].done() and writers[2].is_alive()
        holder.commit()
        for writer in writers:
            writer.join()
        assert sorted(holder.execute("select n from t")) == [(1,), (2,), (3,), (4,)]
        holder.close()
    """, procs)


@procs
def test_others_go_on_while_one_computes(check, procs):
    """The computation ends only when another goroutine has gone on."""
    check("""
        from gosched._originals import sleep
        db = sqlite3.connect(":memory:")
        db.execute("create table b (n)")
        def compute(*_):
            end = beside.ticks + 5
            while beside.ticks < end:
                sleep(0.001)
            return 1
        db.create_function("compute", 0, compute)
        calls = [
            lambda: db.execute("create table a as select compute()"),
            lambda: db.execute("select 1 union all select 2 union all select compute()").fetchone(),
            lambda: db.execute("select 1 union all select compute()").fetchmany(5),
            lambda: db.execute("select 1 union all select compute()").fetchall(),
            lambda: list(db.execute("select 1 union all select compute()")),
            lambda: db.executemany("insert into b select compute() where ?", [(1,)] * 3),
            lambda: db.executescript("create table c as select compute()"),
            lambda: (db.commit(), db.backup(sqlite3.connect(":memory:"), progress=compute)),
        ]
        with Beside() as beside:
            for call in calls:
                call()
        db.close()
    """, procs, options=("-W", "ignore::ResourceWarning"))


@procs
def test_many_goroutines_on_one_connection(check, procs):
    """One call at a time is under way on it."""
    check("""
        db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        db.execute("create table t (n)")
        def work(n):
            for i in range(20):
                db.execute("insert into t values (?)", (100 * n + i,))
                rows = db.execute("select n from t where n between ? and ?", (100 * n, 100 * n + 99)).fetchall()
                assert len(rows) == i + 1, (n, i, rows)
                assert db.total_changes > 0 and not db.in_transaction
                if i == 10:
                    db.create_function("f%d" % n, 0, lambda: n)
        for g in [gosched.go(work, n) for n in range(10)]:
            g.result()
        assert db.execute("select count(distinct n) from t").fetchone() == (200,)
        db.close()
    """, procs)


def test_a_connection_is_for_the_goroutine_that_has_made_it(check):
    check("""
        db = sqlite3.connect(":memory:")
        cursor = db.execute("select 1 union select 2 union select 3")
        uses = [db.cursor, db.commit, db.rollback, db.close, lambda: db.execute("select 1"), cursor.fetchone,
                cursor.fetchall, cursor.close, lambda: db.create_function("f", 0, int), lambda: next(cursor),
                lambda: db.backup(sqlite3.connect(":memory:")), lambda: db.__exit__(None, None, None),
                lambda: setattr(db, "isolation_level", None)]
        for use in uses:
            text = gosched.go(raises, sqlite3.ProgrammingError, use).result()
            assert "The object was created in thread id %d" % threading.get_ident() in text, text
            found = []
            thread = threading.Thread(target=lambda: found.append(raises(sqlite3.ProgrammingError, use)))
            thread.start()
            thread.join()
            assert "this is thread id %d." % thread.ident in found[0], found
        cursor.close()
        gosched.go(db.interrupt).result()  # that's for all
        cursor = db.execute("select 3")
        assert cursor.fetchone() == (3,)
        db.close()
        shared = sqlite3.connect(":memory:", check_same_thread=False)
        assert gosched.go(lambda: shared.execute("select 4").fetchall()).result() == [(4,)]
        shared.close()
        # One that a thread of the system has made.
        from gosched._originals import start_new_thread
        made = []
        start_new_thread(lambda: made.append(sqlite3.connect(":memory:")), ())
        until(lambda: made)
        raises(sqlite3.ProgrammingError, made[0].cursor)
    """, 2, options=("-W", "ignore::ResourceWarning"))


@pytest.mark.skipif(FREE_THREADED, reason="goroutines run on several threads there")
def test_where_threading_is_not_patched(check):
    """There all goroutines are one thread to sqlite3 as well."""
    check("""
        db = sqlite3.connect(path, timeout=60)
        db.execute("create table t (n)")
        db.commit()
        assert gosched.go(lambda: db.execute("select 1").fetchone()).result() == (1,)
        other = sqlite3.connect(path)
        other.execute("insert into t values (1)")
        with Beside() as beside:
            g = gosched.go(db.execute, "insert into t values (2)")
            until(lambda: beside.ticks > 50)
            other.commit()
            g.result()
        db.close(), other.close()
    """, 2, prelude=PRELUDE.replace("patch.patch_all()", "patch.patch_all(threading=False, queue=False)"))


def test_rows(check):
    """However they are read, they come in their order, once, and then no more; with what an error in their midst does."""
    check("""
        db = sqlite3.connect(":memory:")
        db.execute("create table t (n integer)")
        db.executemany("insert into t values (?)", [(n,) for n in range(2000)])
        def wrong(n):
            if n == 700:
                raise ValueError
            return n
        db.create_function("wrong", 1, wrong)
        def the_rest(cursor):
            try:
                return cursor.fetchmany(-1)
            except ValueError:
                # From some release of 3.14 on a negative size isn't for all rows.
                assert cursor.fetchmany(0) == []
                return cursor.fetchmany(10**6)
        import random
        r = random.Random(1)
        for round in range(60):
            cursor = db.execute("select n from t order by n")
            cursor.arraysize = 7
            rows = []
            while len(rows) < 2000:
                how = r.randrange(6)
                if how == 0:
                    rows.append(cursor.fetchone())
                elif how == 1:
                    rows += cursor.fetchmany(r.choice([1, 2, 10, 300]))
                elif how == 2:
                    rows += cursor.fetchmany()
                elif how == 3:
                    rows += itertools.islice(cursor, r.choice([1, 3, 100, 500]))
                elif how == 4 and r.random() < 0.1:
                    rows += r.choice([cursor.fetchall, lambda: list(cursor), lambda: the_rest(cursor)])()
            assert rows == [(n,) for n in range(2000)]
            assert cursor.fetchone() is None and cursor.fetchall() == cursor.fetchmany(3) == list(cursor) == []

        cursor = db.execute("select wrong(n) from t")
        rows = []
        text = raises(sqlite3.OperationalError, rows.extend, cursor)
        # Some versions lose the row before.
        plain = patch.get_original("_sqlite3", "connect")(":memory:")
        plain.execute("create table t (n integer)")
        plain.executemany("insert into t values (?)", [(n,) for n in range(2000)])
        plain.create_function("wrong", 1, wrong)
        expected = []
        assert text == raises(sqlite3.OperationalError, expected.extend, plain.execute("select wrong(n) from t"))
        assert rows == expected and len(rows) in (699, 700), len(rows)
        assert cursor.fetchone() is None
        for rest in (lambda: cursor.fetchall(), lambda: cursor.fetchmany(1000)):
            cursor = db.execute("select wrong(n) from t")
            for n in range(40):
                assert cursor.fetchone() == (n,)
            raises(sqlite3.OperationalError, rest)
            assert cursor.fetchone() is None

        # What is read ahead is not had from a closed cursor or connection, nor after another query.
        cursor = db.execute("select n from t")
        for n in range(20):
            cursor.fetchone()
        cursor.execute("select 'other'")
        assert cursor.fetchall() == [("other",)]
        for close in ("cursor", "connection"):
            cursor = db.execute("select n from t")
            for n in range(20):
                cursor.fetchone()
            (cursor if close == "cursor" else db).close()
            for read in (cursor.fetchone, cursor.fetchall, lambda: cursor.fetchmany(2), lambda: next(cursor)):
                assert "closed" in raises(sqlite3.ProgrammingError, read)
        assert "closed" in raises(sqlite3.ProgrammingError, db.execute, "select 1")
    """, 2)


@procs
def test_cancel_and_timeout(check, procs):
    """The call goes on. Nothing is lost: the next call waits for its end, and rows that came are there."""
    check("""
        db = sqlite3.connect(path, timeout=60)
        db.execute("create table t (n)")
        db.commit()
        other = sqlite3.connect(path)
        other.execute("insert into t values (1)")
        def late(fn, *args):
            try:
                with gosched.Timeout(0.05):
                    fn(*args)
            except gosched.Timeout:
                return True
        assert late(db.execute, "insert into t values (2)")
        g = gosched.go(lambda: (gosched.sleep(0.05), other.interrupt()))
        other.commit()
        assert db.execute("select n from t order by n").fetchall() == [(1,), (2,)]
        assert db.in_transaction
        db.commit()
        g.join()

        cursor = db.cursor()
        go_on = threading.Event()
        db.create_function("wait", 1, lambda n: n < 5 or go_on.wait() and n)
        cursor.execute("select n, wait(n) from (select value as n from json_each('[1, 2, 3, 4, 5, 6, 7]'))")
        rows = []
        assert late(rows.extend, cursor), rows
        go_on.set()
        rows += cursor
        assert [n for n, _ in rows] == [1, 2, 3, 4, 5, 6, 7], rows

        # A goroutine that is cancelled; and before its call has begun.
        def mine():
            with sqlite3.connect(path, timeout=60) as db:
                begun.set()
                db.execute("insert into t values (3)")
        for when in ("waits", "begins"):
            other.execute("insert into t values (1)")
            begun = gosched.Event()
            g = gosched.go(mine)
            if when == "waits":
                begun.wait()
                gosched.sleep(0.05)
            g.cancel()
            gosched.yield_()
            other.rollback()
            g.join()
            assert g.cancelled()
        assert db.execute("select n from t order by n").fetchall() == [(1,), (2,)]

        # close() doesn't wait for a query without end. Other calls do; anyone may interrupt it.
        assert late(db.execute, SLOW % 10**12)
        gosched.go(lambda: (gosched.sleep(0.05), db.interrupt()))
        with Beside():
            db.rollback()
        assert late(db.execute, SLOW % 10**12)
        with Beside():
            db.close()
        other.close()
    """, procs, options=("-W", "ignore::ResourceWarning"))


@procs
def test_queries_without_their_goroutines(check, procs):
    """Cursors that are dropped, and connections that are closed, beside a query under way."""
    check("""
        import random
        def work(n):
            r = random.Random(n)
            for _ in range(60):
                db = sqlite3.connect(":memory:")
                db.execute("create table t as select 1 union select 2")
                kept = [db.execute("select * from t") for _ in range(3)]
                cursor = db.cursor()
                try:
                    with gosched.Timeout(r.random() * 0.003):
                        (cursor if r.random() < 0.5 else db).execute(SLOW % 300_000)
                except gosched.Timeout:
                    pass
                if r.random() < 0.5:
                    kept.clear()
                if r.random() < 0.5:
                    del cursor
                if r.random() < 0.8:
                    db.close()
        for g in [gosched.go(work, n) for n in range(4)]:
            g.result()
    """, procs, options=("-W", "ignore::ResourceWarning"))


def test_functions_that_sqlite_calls(check):
    """They run in the call's thread, for the goroutine: they may use its connections, and wait for others."""
    check("""
        db, second = sqlite3.connect(":memory:"), sqlite3.connect(":memory:")
        db.execute("create table t (n)")
        db.executemany("insert into t values (?)", [(n,) for n in range(5)])
        db.create_function("ask", 1, lambda n: second.execute("select ? + 1", (n,)).fetchone()[0])
        assert db.execute("select ask(41)").fetchone() == (42,)
        db.create_function("again", 1, lambda n: db.execute("select ? + 1", (n,)).fetchone()[0])
        assert db.execute("select again(41)").fetchone() == (42,)
        channel = gosched.Channel()
        db.create_function("receive", 0, channel.recv)
        g = gosched.go(lambda: [channel.send(n) for n in range(3)])
        assert [db.execute("select receive()").fetchone()[0] for _ in range(3)] == [0, 1, 2]
        def numbers():
            for n in range(3):
                channel.send(n)
                gosched.sleep(0.001)
        g = gosched.go(numbers)
        db.executemany("insert into t values (?)", ((channel.recv(),) for _ in range(3)))
        assert db.execute("select count(*) from t").fetchone() == (8,)
        db.row_factory = lambda cursor, row: {d[0]: v for d, v in zip(cursor.description, row)}
        assert db.execute("select 1 as one, 2 as two").fetchone() == {"one": 1, "two": 2}
        steps = []
        db.commit()
        db.backup(second, pages=1, progress=lambda *args: steps.append(args))
        assert steps and second.execute("select count(*) from t").fetchone() == (8,)
        context = __import__("contextvars").ContextVar("context")
        context.set("mine")
        second.create_function("context", 0, context.get)
        assert second.execute("select context()").fetchone() == ("mine",)
        db.close(), second.close()
    """, 2)


def test_two_backups_that_cross(check):
    check("""
        a = sqlite3.connect(":memory:", check_same_thread=False)
        b = sqlite3.connect(":memory:", check_same_thread=False)
        for db in (a, b):
            db.execute("create table t as " + SLOW % 1000)
            db.commit()
        for _ in range(20):
            both = [gosched.go(a.backup, b), gosched.go(b.backup, a)]
            for g in both:
                g.result()
        a.close(), b.close()
    """, 2)


def test_in_threads_of_the_system(check):
    check("""
        from gosched._originals import start_new_thread
        def work(n):
            db = sqlite3.connect(path, timeout=60)
            db.create_function("again", 1, lambda n: db.execute("select ?", (n,)).fetchone()[0])
            with db:
                db.execute("insert into t values (again(?))", (n,))
            rows = list(db.execute("select * from t"))
            db.close()
            return rows
        db = sqlite3.connect(path)
        db.execute("create table t (n)")
        db.commit()
        done = []
        for n in range(5):
            start_new_thread(lambda n: done.append(work(n)), (n,))
        more = [gosched.go(work, n) for n in range(5, 10)]
        until(lambda: len(done) == 5)
        for g in more:
            g.result()
        assert sorted(db.execute("select n from t")) == [(n,) for n in range(10)]
        db.close()
    """, 2)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="sqlite3.Blob comes with Python 3.11")
def test_blobs(check):
    check("""
        db = sqlite3.connect(":memory:")
        db.execute("create table t (b)")
        db.execute("insert into t values (zeroblob(10))")
        with db.blobopen("t", "b", 1) as blob:
            assert isinstance(blob, sqlite3.Blob) and len(blob) == 10
            blob.write(b"hello")
            blob[5] = 33
            assert blob[:6] == b"hello!" and blob.tell() == 5 and blob.read(2) == b"!\\0"
            assert "created in thread" in gosched.go(raises, sqlite3.ProgrammingError, blob.read).result()
        assert "closed" in raises(sqlite3.ProgrammingError, blob.read)
        raises(TypeError, sqlite3.Blob)
        db.close()
    """, 2)


def test_when_it_was_imported_before(check, tmp_path):
    (tmp_path / "early_bird.py").write_text("from sqlite3 import connect, Connection\nimport sqlite3.dbapi2 as sql\n")
    check("""
        import sqlite3, warnings
        sys.path.insert(0, sys.argv[2])
        import early_bird, gosched
        from gosched import patch
        old = sqlite3.connect(path)
        was = sqlite3.connect
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            patch.patch_all()
        (text,) = [str(w.message) for w in said if "early_bird" in str(w.message)]
        assert "early_bird" in text and "sqlite3.connect" in text and "sqlite3.Connection" in text, text
        assert sqlite3.connect is sqlite3.dbapi2.connect is early_bird.sql.connect is not was
        assert patch.get_original("sqlite3", "connect") is was
        old.execute("create table t (n)")
        old.commit()
        assert not isinstance(old, sqlite3.Connection)
        # A class that was made before is C's own.
        class Mine(early_bird.Connection):
            pass
        mine = sqlite3.connect(path, factory=Mine)
        assert isinstance(mine, Mine) and mine.execute("select 1").fetchone() == (1,)
        class Now(sqlite3.Connection):
            def cursor(self, factory=sqlite3.Cursor):
                used.append(1)
                return super().cursor(factory)
        used = []
        now = sqlite3.connect(path, factory=Now)
        assert now.execute("select 1").fetchone() == (1,) and used
        old.close(), mine.close(), now.close()
    """, 2, tmp_path, prelude="")


def test_left_out(check):
    check("""
        import sqlite3
        import gosched
        from gosched import patch
        was = sqlite3.connect, sqlite3.Connection
        patch.patch_all(sqlite3=False)
        assert (sqlite3.connect, sqlite3.Connection) == was and not patch.is_patched("sqlite3")
        patch.patch_sqlite3()
        assert sqlite3.Connection is not was[1]
    """, 2, prelude="")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="these warnings come with Python 3.12")
def test_warnings_name_the_place_in_the_program(check):
    check("""
        import datetime, warnings
        db = sqlite3.connect(":memory:")
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            db.execute("select ?", (datetime.date(2020, 1, 1),))
            here = sys._getframe().f_lineno - 1
        assert [(w.filename, w.lineno, w.category) for w in given] == [("<string>", here, DeprecationWarning)], given
        db.close()
    """, 2)
