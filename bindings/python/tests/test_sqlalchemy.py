"""SQLAlchemy, unmodified under patch_all: its pool, transactions, the ORM and asyncio, with PostgreSQL and SQLite."""

import patched
import pytest
from test_clients import postgres  # noqa: F401  (a fixture)

pytest.importorskip("sqlalchemy", reason="SQLAlchemy isn't installed")


def run(code, *args):
    # SQLAlchemy's pools are left to the end of the program.
    patched.run(code, *args, options=("-W", "ignore::ResourceWarning", "-W", "ignore::DeprecationWarning"))


@pytest.fixture(params=["psycopg", "psycopg2"])
def url(request, postgres):  # noqa: F811
    pytest.importorskip(request.param, reason="%s isn't installed" % request.param)
    return address(request.param, postgres)


def address(driver, dsn):
    found = dict(part.split("=") for part in dsn.split())
    return "postgresql+%s://%s@%s:%s/%s" % (driver, found["user"], found["host"], found["port"], found["dbname"])


ENGINE = """
    import sys, threading, time
    from sqlalchemy import create_engine, event, exc, text

    url = sys.argv[1]

    def pool(size, overflow=0, **options):
        return create_engine(url, pool_size=size, max_overflow=overflow, **options)
"""


def test_goroutines_share_a_pool(url):
    run(ENGINE + """
    engine = pool(10, 5, pool_pre_ping=True, pool_recycle=3600)
    busy = most = 0

    def work(n):
        global busy, most
        with engine.connect() as connection:
            busy += 1
            most = max(most, busy)
            row = connection.execute(text("select pg_sleep(0.01), cast(:n as int)"), {"n": n}).fetchone()
            busy -= 1
            return row[1]

    with Beside():
        goroutines = [gosched.go(work, n) for n in range(200)]
        assert [g.result() for g in goroutines] == list(range(200))
        # Threads are goroutines too.
        threads = [threading.Thread(target=work, args=(n,)) for n in range(50)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    assert 5 < most <= 15, most
    assert 5 < engine.pool.checkedin() <= 10 and engine.pool.checkedout() == 0, engine.pool.status()
    engine.dispose()
    """, url)


def test_a_full_pool_times_out(url):
    run(ENGINE + """
    engine = pool(1, pool_timeout=0.1)
    with engine.connect():
        try:
            gosched.go(engine.connect).result()
        except exc.TimeoutError as error:
            assert "QueuePool limit" in str(error)
        else:
            assert False

    # A goroutine gets the connection in time; another is cancelled while it waits for the pool.
    engine = pool(1, pool_timeout=30)
    with engine.connect():
        late = gosched.go(lambda: engine.connect().close())
        given_up = gosched.go(engine.connect)
        gosched.sleep(0.05)
        given_up.cancel()
        assert given_up.join() and given_up.cancelled() and not late.done()
    late.result()
    with engine.connect() as connection:
        assert connection.execute(text("select 1")).scalar() == 1
    assert engine.pool.checkedout() == 0
    """, url)


def test_a_transaction_is_cancelled(url):
    run(ENGINE + """
    engine = pool(2)
    with engine.begin() as connection:
        connection.execute(text("drop table if exists cancelled"))
        connection.execute(text("create table cancelled (n int)"))
    waits = gosched.Event()

    def insert():
        with engine.begin() as connection:
            connection.execute(text("insert into cancelled values (1)"))
            waits.set()
            connection.execute(text("select pg_sleep(3600)"))

    def count():
        with engine.connect() as connection:
            return connection.execute(text("select count(*) from cancelled")).scalar()

    g = gosched.go(insert)
    waits.wait()
    assert count() == 0
    g.cancel()
    assert g.join() and g.cancelled()
    assert count() == 0 and engine.pool.checkedout() == 0

    waits.clear()
    try:
        with gosched.Timeout(0.1):
            insert()
    except gosched.Timeout:
        pass
    else:
        assert False
    assert count() == 0 and engine.pool.checkedout() == 0

    # The locks that they held are free.
    with engine.begin() as connection:
        connection.execute(text("drop table cancelled"))
    """, url)


def test_transactions_wait_for_locks(url):
    run(ENGINE + """
    from sqlalchemy import orm, select

    Base = orm.declarative_base()

    class Account(Base):
        __tablename__ = "accounts"
        id = orm.mapped_column(__import__("sqlalchemy").Integer, primary_key=True)
        balance = orm.mapped_column(__import__("sqlalchemy").Integer)

    engine = pool(20)
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    Session = orm.sessionmaker(engine)
    scoped = orm.scoped_session(Session)
    with Session.begin() as session:
        session.add_all([Account(id=1, balance=100), Account(id=2, balance=0)])

    def transfer(amount):
        with Session.begin() as session:
            # In this order, for all.
            one, two = (session.get(Account, n, with_for_update=True) for n in (1, 2))
            one.balance -= amount
            two.balance += amount

    def look(n):
        # A session of each goroutine's own.
        mine = scoped()
        try:
            gosched.sleep(0.01)
            assert scoped() is mine
            return sum(account.balance for account in scoped.scalars(select(Account)))
        finally:
            scoped.remove()

    with Beside():
        transfers = [gosched.go(transfer, 1) for _ in range(50)]
        looks = [gosched.go(look, n) for n in range(50)]
        for g in transfers: g.result()
        assert {g.result() for g in looks} == {100}
    with Session() as session:
        assert [a.balance for a in session.scalars(select(Account).order_by(Account.id))] == [50, 50]
    """, url)


def test_rows_are_streamed(url):
    run(ENGINE + """
    engine = pool(5)

    def stream(n):
        with engine.connect().execution_options(yield_per=100) as connection:
            rows = connection.execute(text("select generate_series(1, 2000)"))
            return sum(value for value, in rows)

    with Beside():
        assert {g.result() for g in [gosched.go(stream, n) for n in range(10)]} == {2001000}
    """, url)


ASYNC = """
    import asyncio, logging, sys
    import gosched.asyncio

    # Callbacks that are slow, on a machine that is.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    from sqlalchemy import exc, text
    from sqlalchemy.ext.asyncio import create_async_engine

    url = sys.argv[1]

    async def queries(n, query):
        engine = create_async_engine(url, pool_size=3, max_overflow=2)
        async def one(i):
            async with engine.connect() as connection:
                return (await connection.execute(text(query), {"i": i})).scalar()
        try:
            return await asyncio.gather(*(one(i) for i in range(n)))
        finally:
            await engine.dispose()
"""


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_asyncio(driver, postgres):  # noqa: F811
    pytest.importorskip("greenlet", reason="greenlet isn't installed")
    pytest.importorskip(driver, reason="%s isn't installed" % driver)
    run(ASYNC + """
    query = "select cast(:i as int), pg_sleep(0.005)"
    wanted = list(range(20))
    with Beside():
        assert gosched.asyncio.run(queries(20, query)) == wanted
        assert asyncio.run(queries(20, query)) == wanted
        # Loops in several goroutines, and several goroutines on one loop.
        loops = [gosched.go(gosched.asyncio.run, queries(20, query)) for _ in range(5)]
        calls = [gosched.go(gosched.run_coroutine, queries(20, query)) for _ in range(5)]
        assert all(g.result() == wanted for g in loops + calls)

    async def timeouts():
        engine = create_async_engine(url, pool_size=1, max_overflow=0, pool_timeout=0.1)
        async with engine.connect() as connection:
            try:
                await engine.connect()
            except exc.TimeoutError:
                pass
            else:
                assert False
        async with engine.connect() as connection:
            try:
                async with asyncio.timeout(0.1) if sys.version_info >= (3, 11) else gosched_timeout(0.1):
                    await connection.execute(text("select pg_sleep(3600)"))
            except asyncio.TimeoutError:
                pass
            else:
                assert False
        async with engine.connect() as connection:
            assert (await connection.execute(text("select 1"))).scalar() == 1
            # A plain function, in a greenlet of SQLAlchemy's.
            assert await connection.run_sync(lambda c: c.execute(text("select 2")).scalar()) == 2
        await engine.dispose()

    class gosched_timeout:
        def __init__(self, seconds):
            self.seconds = seconds
        async def __aenter__(self):
            task = asyncio.current_task()
            self.timer = asyncio.get_running_loop().call_later(self.seconds, task.cancel)
        async def __aexit__(self, kind, *args):
            self.timer.cancel()
            if kind is asyncio.CancelledError:
                raise asyncio.TimeoutError

    gosched.run_coroutine(timeouts())
    """, address(driver, postgres))


def test_sqlite(tmp_path):
    run(ENGINE + """
    engine = create_engine(url, connect_args={"timeout": 60})
    with engine.begin() as connection:
        connection.execute(text("create table log (n int)"))

    def insert(n):
        with engine.begin() as connection:
            connection.execute(text("insert into log values (:n)"), {"n": n})

    with Beside():
        for g in [gosched.go(insert, n) for n in range(30)]: g.result()
    with engine.connect() as connection:
        assert connection.execute(text("select count(*), sum(n) from log")).fetchone() == (30, 435)
    engine.dispose()

    # One connection for all goroutines.
    from sqlalchemy.pool import StaticPool
    engine = create_engine("sqlite://", connect_args={"check_same_thread": False}, poolclass=StaticPool)
    with engine.connect() as connection:
        assert gosched.go(lambda: engine.connect().execute(text("select 7")).scalar()).result() == 7
    engine.dispose()
    """, "sqlite:///%s" % (tmp_path / "db"))


def test_sqlite_in_asyncio(tmp_path):
    pytest.importorskip("greenlet", reason="greenlet isn't installed")
    pytest.importorskip("aiosqlite", reason="aiosqlite isn't installed")
    run(ASYNC + """
    with Beside():
        assert gosched.asyncio.run(queries(20, "select :i")) == list(range(20))
        assert gosched.run_coroutine(queries(20, "select :i")) == list(range(20))
    """, "sqlite+aiosqlite:///%s" % (tmp_path / "db"))
