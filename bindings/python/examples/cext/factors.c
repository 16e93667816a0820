/* An extension whose goroutines, in C, factor numbers on all processors. They get the numbers from
 * Python's goroutines over one channel and answer over another. */
#define PY_SSIZE_T_CLEAN
#include <gosched_python.h>
#include <errno.h>
#include <stdatomic.h>

static const gosched_python *gosched;

typedef struct {
    gosched_chan *jobs, *results;
    atomic_int left; /* workers that have not ended */
} pool;

typedef struct {
    int64_t number, factor; /* as struct's "qq" */
} result;

static int64_t least_factor(int64_t number)
{
    for (int64_t factor = 2; factor <= number / factor; factor++)
        if (number % factor == 0)
            return factor;
    return number;
}

/* A goroutine without Python: it runs on any P, beside all others and beside Python. */
static void worker(void *arg)
{
    pool *p = arg;
    int64_t number;
    while (gs_chan_recv(p->jobs->chan, &number, GS_FOREVER) == 0) {
        result found = {number, least_factor(number)};
        if (gs_chan_send(p->results->chan, &found, GS_FOREVER) != 0)
            break;
    }
    if (atomic_fetch_sub(&p->left, 1) == 1) {
        gs_chan_close(p->results->chan);
        gosched->chan_put(p->jobs);
        gosched->chan_put(p->results);
        free(p);
    }
}

/* start(jobs, results, workers): the channels are Channel(format="q") and Channel(format="qq"). */
static PyObject *start(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *jobs, *results;
    int workers;
    if (!PyArg_ParseTuple(args, "OOi:start", &jobs, &results, &workers))
        return NULL;
    if (workers < 1) {
        PyErr_SetString(PyExc_ValueError, "at least one worker");
        return NULL;
    }
    pool *p = calloc(1, sizeof *p);
    if (!p)
        return PyErr_NoMemory();
    if (!(p->jobs = gosched->chan_get(jobs, "q")) || !(p->results = gosched->chan_get(results, "qq"))) {
        gosched->chan_put(p->jobs);
        free(p);
        return NULL;
    }
    atomic_init(&p->left, workers);
    int started = 0, error = 0;
    gosched_left left;
    gosched->leave(&left); /* gs_spawn may switch */
    while (started < workers && (error = gs_spawn(worker, p)) == 0)
        started++;
    gosched->enter(&left);
    if (error) { /* those that have started end when jobs is closed */
        int missing = workers - started;
        if (atomic_fetch_sub(&p->left, missing) == missing) {
            gosched->chan_put(p->jobs);
            gosched->chan_put(p->results);
            free(p);
        }
        PyErr_SetString(PyExc_MemoryError, gs_strerror(error));
        return NULL;
    }
    Py_RETURN_NONE;
}

/* total(channel): the sum of a Channel(format="q"), received here until it is closed. Other goroutines
 * of Python run meanwhile. */
static PyObject *total(PyObject *module, PyObject *channel)
{
    (void)module;
    gosched_chan *c = gosched->chan_get(channel, "q");
    if (!c)
        return NULL;
    int64_t sum = 0, number;
    int got;
    while ((got = gosched_chan_recv(gosched, c, &number, GS_FOREVER)) == 0)
        sum += number;
    gosched->chan_put(c);
    if (got == -EINTR) /* cancelled, Ctrl-C: the exception is set */
        return NULL;
    return PyLong_FromLongLong(sum);
}

static PyMethodDef methods[] = {
    {"start", start, METH_VARARGS, "start(jobs, results, workers): goroutines in C that factor numbers"},
    {"total", total, METH_O, "total(channel): the sum of all numbers until it is closed"},
    {0},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "factors", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit_factors(void)
{
    gosched = gosched_python_import();
    return gosched ? PyModule_Create(&definition) : NULL;
}
