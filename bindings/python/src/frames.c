/* The frames of goroutines of Python, for dumps and traces of the library: frames.rs adds a hook there.

   The hook runs at any moment: in a goroutine that is being traced, or while the world is stopped, for goroutines that
   wait, and for a goroutine that has lost its P and computes on. So it takes no lock, not the GIL either, allocates
   nothing, and leaves all counts of references alone. A goroutine that has left Python keeps its frames, with their code
   and strings, until it enters again: they are read as they are. Of any other goroutine all is copied by the system,
   which says if an address is none. */
#include "cpython/cpython.h"
#include "interpreter.h"
#include <gosched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- Reading ---- */

static int read_own(void *to, const void *from, size_t size)
{
    memcpy(to, from, size);
    return 0;
}

static int read_any(void *to, const void *from, size_t size)
{
    struct iovec local = {to, size}, remote = {(void *)from, size};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)size ? 0 : -1;
}

/* Room for what is copied of one goroutine, which stays until as many other calls of the hook have had theirs. */
struct room {
    size_t used;
    char text[8192];
    union {
        PyBytesObject bytes;
        char room[16384];
    } lines;
};
#define ROOMS 4
static struct room rooms[ROOMS];
static _Atomic unsigned next_room;

/* The text of a string object if it has it in UTF-8; else NULL. room: to copy it to, or NULL if it stays. */
static const char *text_of(PyObject *string, struct room *room, cpython_reader *read)
{
    PyASCIIObject head;
    const char *text;
    Py_ssize_t length;
    if (!string || read(&head, string, sizeof head) < 0 || head.ob_base.ob_type != &PyUnicode_Type || !head.state.compact)
        return NULL;
    if (head.state.ascii) {
        text = (const char *)string + sizeof head;
        length = head.length;
    } else {
        PyCompactUnicodeObject compact;
        if (read(&compact, string, sizeof compact) < 0 || !compact.utf8)
            return NULL;
        text = compact.utf8;
        length = compact.utf8_length;
    }
    if (!room)
        return text;
    if (length < 0 || (size_t)length >= sizeof room->text - room->used)
        return NULL;
    char *copy = room->text + room->used;
    if (read(copy, text, (size_t)length) < 0)
        return NULL;
    copy[length] = '\0';
    room->used += (size_t)length + 1;
    return copy;
}

/* The line of an instruction. PyCode_Addr2Line reads the code object and its table of lines, and nothing else. */
static int line_of(PyCodeObject *code, PyCodeObject *copy, int lasti, struct room *room, cpython_reader *read)
{
    int line;
    if (lasti < 0)
        return copy->co_firstlineno;
    if (!room) {
        line = PyCode_Addr2Line(code, lasti);
    } else {
        PyBytesObject *lines = &room->lines.bytes;
        const size_t head = offsetof(PyBytesObject, ob_sval);
        if (read(lines, CPYTHON_LINES(copy), head) < 0 || Py_TYPE(lines) != &PyBytes_Type || Py_SIZE(lines) < 0 ||
            (size_t)Py_SIZE(lines) >= sizeof room->lines - head ||
            read(lines->ob_sval, (char *)CPYTHON_LINES(copy) + head, (size_t)Py_SIZE(lines)) < 0)
            return copy->co_firstlineno;
        CPYTHON_LINES(copy) = (PyObject *)lines;
        CPYTHON_UNMONITOR(copy);
        line = PyCode_Addr2Line(copy, lasti);
    }
    return line < 0 ? 0 : line;
}

/* A code object's function, file and line. 0: it is no code object. */
static int describe(gs_frame *to, const void *object, int lasti, struct room *room, cpython_reader *read)
{
    PyCodeObject code;
    if (!object || read(&code, object, sizeof code) < 0 || Py_TYPE(&code) != &PyCode_Type)
        return 0;
    *to = (gs_frame){
        .function = text_of(CPYTHON_NAME(&code), room, read),
        .file = text_of(code.co_filename, room, read),
        .line = line_of((PyCodeObject *)object, &code, lasti, room, read),
    };
    if (!to->function)
        to->function = "?";
    return 1;
}

/* The most frames that are looked at, hidden ones included. */
#define MOST_LOOKS 4096

/* The function of a goroutine that is about to be made, by its callable. */
size_t gosched_frames_of_new(PyObject *f, gs_frame *to)
{
    if (Py_IS_TYPE(f, &PyMethod_Type))
        f = PyMethod_GET_FUNCTION(f);
    if (PyFunction_Check(f))
        return (size_t)describe(to, PyFunction_GET_CODE(f), -1, NULL, read_own);
    *to = (gs_frame){.function = PyCFunction_Check(f) ? ((PyCFunctionObject *)f)->m_ml->ml_name : Py_TYPE(f)->tp_name};
    return 1;
}

/* The folder of the package, with a slash at its end; empty: not set. Written once, before a bubble begins. */
static char package[4096];

/* From now on the calls within the package that a goroutine is in are not shown: what is shown first is the caller. */
void gosched_frames_hide(const char *folder, size_t length)
{
    if (length < sizeof package)
        memcpy(package, folder, length);
}

static int is_in_package(const gs_frame *frame)
{
    return package[0] && frame->file && strncmp(frame->file, package, strlen(package)) == 0;
}

static size_t frames_from(const void *frame, int hides, gs_frame *frames, size_t room, struct room *copies, cpython_reader *read)
{
    size_t n = 0;
    for (int looks = 0; frame && n < room && looks < MOST_LOOKS; looks++) {
        struct cpython_place place;
        if (cpython_read_frame(&place, frame, read) < 0)
            break;
        size_t used = copies ? copies->used : 0;
        if (!place.is_hidden && describe(&frames[n], place.code, place.lasti, copies, read)) {
            if (hides && n == 0 && is_in_package(&frames[n])) {
                if (copies)
                    copies->used = used;
            } else {
                n++;
            }
        }
        frame = place.previous;
    }
    return n;
}

/* The frames of the goroutine with this owner: see interpreter.h. */
size_t gosched_frames_of(void *owner, gs_frame *frames, size_t room)
{
    const void *frame;
    int is_away = gosched_side_is_away(owner);
    cpython_reader *read = is_away ? read_own : read_any;
    struct room *copies = NULL;
    if (!is_away) {
        copies = &rooms[atomic_fetch_add(&next_room, 1) % ROOMS];
        copies->used = 0;
    }
    if (gosched_side_first_frame(owner, &frame, read) < 0)
        return 0;
    size_t n = frames_from(frame, 1, frames, room, copies, read);
    /* A goroutine of the package's own. */
    return n ? n : frames_from(frame, 0, frames, room, copies, read);
}
