"""mysqlclient under patch_all: its calls wait in other threads, and other goroutines go on."""

import pytest
from patched import PRELUDE, run
from test_clients import mysql_port  # noqa: F401: a fixture

pytest.importorskip("MySQLdb", reason="mysqlclient isn't installed")

procs = pytest.mark.parametrize("procs", [1, 2, 8])

COMMON = """
import sys, threading
import MySQLdb, MySQLdb.cursors
from MySQLdb.cursors import DictCursor, SSCursor, SSDictCursor
def connect(**kwargs):
    return MySQLdb.connect(host="127.0.0.1", port=int(sys.argv[1]), user="root", **kwargs)
def raises(error, fn, *args):
    try:
        fn(*args)
    except error as e:
        return e
    raise AssertionError("no %s" % error.__name__)
def query(db, sql, *args, cursor=None):
    with db.cursor(cursor) as cursor:
        cursor.execute(sql, args)
        return cursor.fetchall()
def wait_for_a_lock():
    "Of the server's: the one that has it gives it back only after another goroutine has gone on."
    holder, db = connect(), connect()
    query(holder, "select get_lock('it', 0)")
    g = gosched.go(query, db, "select get_lock('it', 3600)")
    for _ in range(100):
        gosched.sleep(0.001)
    assert not g.done()
    query(holder, "select release_lock('it')")
    assert g.result() == ((1,),)
    holder.close(), db.close()
def numbers(count):
    "A connection with a table of that many."
    db = connect(autocommit=True)
    query(db, "create database if not exists numbers")
    db.select_db("numbers")
    query(db, "drop table if exists t")
    query(db, "create table t (seq int primary key)")
    with db.cursor() as cursor:
        cursor.executemany("insert into t values (%s)", [(n,) for n in range(count)])
    return db
"""


@pytest.fixture
def check(mysql_port):  # noqa: F811
    def check(code, procs, prelude=PRELUDE):
        run(code, mysql_port, prelude=prelude + COMMON, env={"GOSCHED_PROCS": str(procs)}, timeout=120)

    return check


@procs
def test_others_go_on(check, procs):
    """While queries are under way; and one of them ends by what a goroutine does meanwhile."""
    check("""
        busy = most = 0
        def work(n):
            global busy, most
            db = connect()
            busy += 1
            most = max(most, busy)
            ((_, answer),) = query(db, "select sleep(0.5), %s", n)
            busy -= 1
            db.close()
            return answer
        with Beside():
            threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2)]
            for thread in threads:
                thread.start()
            assert sorted(g.result() for g in [gosched.go(work, n) for n in range(8)]) == list(range(8))
            for thread in threads:
                thread.join()
        assert most == 10, most

        wait_for_a_lock()
    """, procs)


def test_calls_that_wait(check):
    check("""
        db = connect(autocommit=True, charset="utf8mb4")
        query(db, "create database if not exists gosched")
        db.select_db("gosched")
        query(db, "create table t (n int, s varchar(20)) engine=innodb")
        with db.cursor() as cursor:
            assert cursor.executemany("insert into t values (%s, %s)", [(n, str(n)) for n in range(5000)]) == 5000
        other = connect(db="gosched")
        with other.cursor() as cursor:
            cursor.execute("update t set s = 'x' where n = 1")
            assert cursor.rowcount == other.affected_rows() == 1
        other.rollback()
        assert query(db, "select s from t where n = 1") == (("1",),)
        query(other, "update t set s = 'y' where n = 1")
        other.commit()
        assert query(db, "select s from t where n = 1", cursor=DictCursor) == ({"s": "y"},)
        assert "Uptime" in str(db.stat()) and db.ping() is None
        db.set_character_set("latin1"), db.change_user(user="root", passwd="", db="gosched")
        # Several results.
        with db.cursor() as cursor:
            cursor.execute("select 1; select 2; select 3")
            found = [cursor.fetchall()]
            while cursor.nextset():
                found.append(cursor.fetchall())
        assert found == [((1,),), ((2,),), ((3,),)]
        error = raises(MySQLdb.ProgrammingError, db.query, "select from nowhere")
        assert error.args[0] == 1064, error
        assert db.errno() == 1064 and "SQL syntax" in db.error()
        # Underneath.
        db.query("select 4")
        result = db.store_result()
        assert result.num_rows() == 1 and result.fetch_row(0)[0][0] in (4, "4")
        db.send_query("select sleep(0.05), 5")
        with Beside():
            db.read_query_result()
        assert db.store_result().fetch_row(0)[0][1] in (5, "5")
        again = connect()
        again.kill(db.thread_id())
        error = raises(MySQLdb.OperationalError, query, db, "select 1")
        assert error.args[0] in (2006, 2013, 1927), error
        db.close()
        assert raises(MySQLdb.Error, query, db, "select 1")
        query(again, "drop database gosched")
        again.close(), other.close()
        error = raises(MySQLdb.OperationalError, lambda: connect(db="nonsense"))
        assert error.args[0] == 1049, error
    """, 2)


def test_rows_that_are_still_to_come(check):
    """Those of SSCursor: however they are read, they come in their order, once, and then no more."""
    check("""
        import itertools, random
        db = numbers(2000)
        sql = "select seq from t order by seq"
        r = random.Random(1)
        with Beside():
            for cls in (SSCursor, SSDictCursor):
                made = (lambda n: (n,)) if cls is SSCursor else (lambda n: {"seq": n})
                for round in range(20):
                    cursor = db.cursor(cls)
                    cursor.execute(sql)
                    rows = []
                    while len(rows) < 2000:
                        how = r.randrange(5)
                        if how == 0:
                            rows.append(cursor.fetchone())
                        elif how == 1:
                            rows += cursor.fetchmany(r.choice([1, 2, 10, 300]))
                        elif how == 2:
                            rows += itertools.islice(cursor, r.choice([1, 3, 100, 500]))
                        elif how == 3 and r.random() < 0.1:
                            rows += r.choice([cursor.fetchall, lambda: list(cursor)])()
                    assert rows == [made(n) for n in range(2000)]
                    assert cursor.fetchone() is None and not cursor.fetchall() and not cursor.fetchmany(3)
                    cursor.close()
            # What isn't read is out of the way of the next query, whether the cursor is closed or just dropped.
            for close in (True, False):
                cursor = db.cursor(SSCursor)
                cursor.execute(sql)
                assert [cursor.fetchone() for _ in range(5)] == [(n,) for n in range(5)]
                if close:
                    cursor.close()
                del cursor
                assert query(db, "select 7") == ((7,),)
            # An error among the rows.
            cursor = db.cursor(SSCursor)
            cursor.execute("select seq, if(seq < 500, 1, (select 1 union select 2)) from t order by seq")
            rows = []
            error = raises(MySQLdb.Error, rows.extend, cursor)
            assert error.args[0] == 1242 and rows == [(n, 1) for n in range(500)], (error, len(rows))
        db.close()
    """, 2)


@procs
def test_cancel_and_timeout(check, procs):
    """They end the connection: nothing waits for the answer."""
    check("""
        def late(fn):
            try:
                with gosched.Timeout(0.1):
                    fn()
            except gosched.Timeout:
                return True
        for cls in (None, SSCursor):
            db = connect()
            assert query(db, "select 1") == ((1,),)
            with Beside():
                assert late(lambda: query(db, "select sleep(3600)", cursor=cls))
                error = raises(MySQLdb.OperationalError, query, db, "select 2")
                assert error.args[0] == 2013 and "given up" in error.args[1], error
                db.close()
        def mine():
            with connect() as db:
                begun.set()
                query(db, "select sleep(3600)")
        begun = gosched.Event()
        g = gosched.go(mine)
        begun.wait()
        gosched.sleep(0.05)
        g.cancel()
        g.join()
        assert g.cancelled()
        # Before a call has begun nothing is lost.
        db = connect()
        g = gosched.go(query, db, "select 3")
        g.cancel()
        g.join()
        assert query(db, "select 4") == ((4,),)
        db.close()
    """, procs)


def test_goroutines_on_one_connection(check):
    """One call at a time: MySQL's clients allow no more."""
    check("""
        db = connect(autocommit=True)
        def work(n):
            for _ in range(20):
                db.ping()
                db.affected_rows(), db.errno()
                db.select_db("information_schema")
        for g in [gosched.go(work, n) for n in range(10)]:
            g.result()
        assert query(db, "select database()") == (("information_schema",),)
        db.close()
    """, 8)


def test_when_it_was_imported_before(check):
    check("""
        from gosched import patch
        patch.patch_all()
        class Beside:
            def __enter__(self):
                self.ticks, self.runs = 0, True
                self.goroutine = gosched.go(self.run)
                return self
            def run(self):
                while self.runs:
                    self.ticks += 1
                    gosched.sleep(0.001)
            def __exit__(self, *exc):
                self.runs = False
                self.goroutine.join()
        wait_for_a_lock()
        with Beside():
            db = connect(charset="utf8mb4")
            assert query(db, "select sleep(0.3), 1") == ((0, 1),)
            rows = query(numbers(300), "select seq, sleep(0.001) from t order by seq", cursor=SSCursor)
            assert [n for n, _ in rows] == list(range(300))
            try:
                with gosched.Timeout(0.1):
                    query(db, "select sleep(3600)")
            except gosched.Timeout:
                db.close()
        assert isinstance(db, MySQLdb.connections.Connection)
    """, 2, prelude="import MySQLdb.connections, gosched\n")
