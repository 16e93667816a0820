"""pandas and NumPy in goroutines: computing, files and queries, one after the other and in other threads, with 1, 2 and 8 P's."""

import pytest
from patched import need, run

need("numpy", "pandas")

PROCS = pytest.mark.parametrize("procs", ["1", "2", "8"])

PRELUDE = """
import gosched
gosched.patch_all()

import io, os, sys, threading, time
import numpy as np
import pandas as pd

class Beside:
    "A goroutine beside what it's wrapped around, which must have run meanwhile."
    def run(self):
        while self.running:
            self.ticks += 1
            gosched.sleep(0.0005)
    def __enter__(self):
        self.ticks, self.running = 0, True
        self.goroutine = gosched.go(self.run)
        return self
    def __exit__(self, *exc):
        self.running = False
        self.goroutine.join()
        if exc[0] is None:
            assert self.ticks > 1, "no tick: the thread was held up"

def frame(n, rows=1000):
    random = np.random.default_rng(n)
    return pd.DataFrame({
        "key": random.integers(0, 10, rows),
        "value": random.random(rows),
        "name": [("n%d" % (i % 7)) for i in range(rows)],
        "when": pd.date_range("2026-01-01", periods=rows, freq="min"),
    })

def all_of(fn, count):
    return [g.result() for g in [gosched.go(fn, n) for n in range(count)]]
"""


def pandas(code, *args, procs="2", **options):
    """Runs a program with goroutines, NumPy and pandas; it has to end well, and quietly."""
    # NumPy's BLAS: more threads than one, wherever the tests run.
    env = {"GOSCHED_PROCS": procs, "OPENBLAS_NUM_THREADS": "4", "OMP_NUM_THREADS": "4", "GOSCHED_WATCHDOG": ""}
    run(code, *args, prelude=PRELUDE, env=env, **options)


@PROCS
def test_goroutines_compute(procs):
    pandas("""
        def compute(n):
            data = frame(n)
            gosched.yield_()
            grouped = data.groupby("key")["value"].agg(["sum", "count"])
            gosched.sleep(0.001)
            merged = data.merge(grouped, left_on="key", right_index=True)
            hourly = data.set_index("when")["value"].resample("1h").mean()
            gosched.yield_()
            assert merged["count"].groupby(merged["key"]).first().sum() == len(data)
            with pd.option_context("mode.copy_on_write", True) if pd.__version__ < "3" else gosched.Lock():
                pivot = data.pivot_table(index="key", columns="name", values="value", aggfunc="sum")
            return float(pivot.sum().sum()), float(hourly.iloc[0]), data["value"].sum()

        with Beside():
            results = all_of(compute, 30)
        for n, (total, first, wanted) in enumerate(results):
            assert np.isclose(total, wanted) and np.isclose(first, frame(n)["value"][:60].mean())
    """, procs=procs)


@PROCS
def test_errors_and_options_are_each_goroutines_own(procs):
    pandas("""
        def divide(how):
            with np.errstate(divide=how):
                gosched.sleep(0.01)
                try:
                    return np.float64(1) / np.zeros(1)
                except FloatingPointError:
                    return "raised"

        ways = [gosched.go(divide, how) for how in ["raise", "ignore"] * 20]
        assert [g.result() == "raised" for g in ways] == [True, False] * 20
    """, procs=procs)


@PROCS
def test_files(procs, tmp_path):
    pandas("""
        directory = sys.argv[1]

        def csv(n):
            path = os.path.join(directory, "%d.csv" % n)
            data = frame(n)
            data.to_csv(path, index=False)
            gosched.yield_()
            found = pd.read_csv(path, parse_dates=["when"])
            pd.testing.assert_frame_equal(found, data, check_dtype=False)
            pieces = []
            for piece in pd.read_csv(path, chunksize=300):
                pieces.append(piece)
                gosched.yield_()
            assert pd.concat(pieces).shape == data.shape
            return len(found)

        with Beside():
            assert all_of(csv, 20) == [1000] * 20

        def in_thread(n):
            return gosched.blocking(csv, n)

        with Beside():
            assert all_of(in_thread, 20) == [1000] * 20
    """, tmp_path, procs=procs)


@PROCS
def test_parquet(procs, tmp_path):
    need("pyarrow")
    pandas("""
        directory = sys.argv[1]

        def parquet(n):
            path = os.path.join(directory, "%d.parquet" % n)
            data = frame(n)
            data.to_parquet(path)
            gosched.sleep(0.001)
            found = pd.read_parquet(path)
            pd.testing.assert_frame_equal(found, data, check_dtype=False)
            return len(found)

        with Beside():
            assert all_of(parquet, 20) == [1000] * 20
    """, tmp_path, procs=procs)


def test_known_readers_run_in_other_threads(tmp_path):
    # Many rows: where reading one file takes long, the others go on.
    pandas("""
        # What blocking="auto" does, without its watchdog, which would tell of slow machines.
        gosched._blocking.add_known()
        assert hasattr(pd.read_csv, "__gosched_blocking__") and hasattr(np.linalg.svd, "__gosched_blocking__")
        path = os.path.join(sys.argv[1], "large.csv")
        frame(1, 200_000).to_csv(path, index=False)
        with Beside() as beside:
            before = beside.ticks
            data = pd.read_csv(path)
            assert beside.ticks > before
            found = [g.result() for g in [gosched.go(pd.read_csv, path) for _ in range(3)]]
        assert all(each.equals(data) for each in found) and len(data) == 200_000
        matrix = np.random.default_rng(1).random((400, 400))
        with Beside() as beside:
            before = beside.ticks
            u, s, v = np.linalg.svd(matrix)
            assert beside.ticks > before
        assert np.allclose(u * s @ v, matrix)
    """, tmp_path)


def test_goroutines_have_the_stack_of_a_thread():
    # LAPACK takes half a MiB for each level of its recursion, far more than the guard below a smaller stack.
    pandas("""
        def nested(n):
            # Python's sort has its array of keys on the stack.
            return sorted([n], key=lambda n: nested(n - 1) and n if n else 0)

        sys.setrecursionlimit(3000)
        assert gosched.go(nested, 400).result() == [400]
        with gosched.Executor() as executor:
            assert executor.submit(nested, 400).result() == [400]

        matrix = np.random.default_rng(1).random((400, 400))
        # Stacks of others, beside.
        gate = gosched.Event()
        others = [gosched.go(gate.wait) for _ in range(40)]
        assert all(np.allclose(each @ matrix, np.eye(400)) for each in all_of(lambda n: np.linalg.inv(matrix), 5))
        gate.set()
        assert all(g.result() for g in others)
    """)


@PROCS
def test_threads_of_blas(procs):
    pandas("""
        random = np.random.default_rng(7)
        a, b = random.random((300, 300)), random.random((300, 300))
        wanted, inverse = a @ b, np.linalg.inv(a)

        def here(n):
            gosched.yield_()
            return np.allclose(a @ b, wanted) and np.allclose(np.linalg.inv(a), inverse)

        def there(n):
            return gosched.blocking(here_without_waits) and np.allclose(gosched.blocking(np.matmul, a, b), wanted)

        def here_without_waits():
            return np.allclose(a @ b, wanted) and np.allclose(np.linalg.inv(a), inverse)

        goroutines = [gosched.go(fn, n) for n in range(2) for fn in (here, there)]
        with Beside():
            assert all(g.result() for g in goroutines)

        # Threads of Python's, which are goroutines, and a pool of them.
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(8) as executor:
            assert all(executor.map(here, range(8)))

        # A child has threads of its own.
        pid = os.fork()
        if pid == 0:
            os._exit(0 if here_without_waits() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    """, procs=procs, options=("-W", "ignore:This process:DeprecationWarning"))


@PROCS
def test_sql(procs, tmp_path):
    pandas("""
        import sqlite3
        path = os.path.join(sys.argv[1], "db")

        def connect():
            return sqlite3.connect(path, timeout=60)

        def write(n):
            db = connect()
            try:
                frame(n, 100).assign(n=n).to_sql("data", db, if_exists="append", index=False)
                db.commit()
            finally:
                db.close()

        def read(n):
            db = connect()
            try:
                return len(pd.read_sql_query("select * from data where n = ?", db, params=(n,), parse_dates=["when"]))
            finally:
                db.close()

        write(0)
        with Beside():
            all_of(lambda n: write(n + 1), 9)
            assert all_of(read, 10) == [100] * 10
    """, tmp_path, procs=procs)


def test_sql_by_sqlalchemy(tmp_path):
    need("sqlalchemy")
    pandas("""
        import sqlalchemy
        engine = sqlalchemy.create_engine("sqlite:///" + os.path.join(sys.argv[1], "db"), connect_args={"timeout": 60})

        def write(n):
            frame(n, 100).to_sql("t%d" % n, engine, index=False)
            return len(pd.read_sql("t%d" % n, engine)), len(pd.read_sql("select * from t%d where value < 2" % n, engine))

        with Beside():
            assert all_of(write, 10) == [(100, 100)] * 10
        engine.dispose()
    """, tmp_path)
