/* Processes: gosched.exec, and os.execute and io.popen of goroutines. */

#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The signals blocked in the program's main thread. The library's own threads block all signals. */
static sigset_t program_mask;

static int start_process(pid_t *pid, const char *file, char *const argv[], char *const envp[], const char *cwd,
                         const int fds[3])
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t defaults;
    int r = posix_spawn_file_actions_init(&actions);
    if (r != 0)
        return -r;
    if ((r = posix_spawnattr_init(&attributes)) != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return -r;
    }
    for (int i = 0; i < 3 && r == 0; i++)
        if (fds[i] >= 0)
            r = posix_spawn_file_actions_adddup2(&actions, fds[i], i);
    if (r == 0 && cwd)
        r = posix_spawn_file_actions_addchdir_np(&actions, cwd);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setsigmask(&attributes, &program_mask);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (r == 0)
        r = posix_spawnp(pid, file, &actions, &attributes, argv, envp);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return -r;
}

/* One of the three pipes of a process, served by a goroutine of its own. */
struct pump {
    int fd; /* our end; -1: there is none */
    bool writes;
    gs_g *g;
    const char *text; /* what to write */
    char *data;       /* what was read */
    size_t len, size;
    int error;
};

static void pump(void *arg)
{
    struct pump *p = arg;
    ssize_t r = 1;
    while (r > 0) {
        if (p->writes) {
            if (p->size == p->len)
                break;
            r = gs_write(p->fd, p->text + p->len, p->size - p->len, GS_FOREVER);
        } else {
            if (p->size - p->len < CHUNK / 2) {
                size_t size = p->size ? p->size * 2 : CHUNK;
                char *more = realloc(p->data, size);
                if (!more) {
                    r = -ENOMEM;
                    break;
                }
                p->data = more;
                p->size = size;
            }
            r = gs_read(p->fd, p->data + p->len, p->size - p->len, GS_FOREVER);
        }
        if (r > 0)
            p->len += (size_t)r;
    }
    /* A process need not read its input. */
    p->error = r < 0 && r != -EPIPE && r != -ECANCELED ? (int)r : 0;
    gs_close(p->fd);
    p->fd = -1;
}

struct process {
    struct pump pumps[3];
    int ends[3]; /* the process's ends */
    pid_t pid;
    int status;
};

static void close_ends(struct process *p)
{
    for (int i = 0; i < 3; i++) {
        if (p->ends[i] >= 0)
            close(p->ends[i]);
        p->ends[i] = -1;
    }
}

/* Runs a process until it has ended and its pipes are closed. At the deadline the process is killed. */
static int run_process(struct process *p, const char *file, char *const argv[], char *const envp[], const char *cwd,
                       gs_deadline deadline)
{
    int r = 0, fds[2];
    for (int i = 0; i < 3; i++)
        p->ends[i] = p->pumps[i].fd = -1;
    for (int i = 0; i < 3 && r == 0; i++) {
        if (pipe2(fds, O_CLOEXEC) != 0) {
            r = -errno;
            break;
        }
        p->pumps[i].writes = i == 0;
        p->ends[i] = fds[i != 0];
        p->pumps[i].fd = fds[i == 0];
    }
    if (r == 0)
        r = start_process(&p->pid, file, argv, envp, cwd, p->ends);
    close_ends(p);
    if (r != 0) {
        for (int i = 0; i < 3; i++)
            if (p->pumps[i].fd >= 0)
                close(p->pumps[i].fd);
        return r;
    }
    for (int i = 0; i < 3; i++) {
        int s = gs_spawn_with(pump, &p->pumps[i], NULL, &p->pumps[i].g);
        if (s != 0) {
            r = s;
            gs_close(p->pumps[i].fd);
        }
    }
    for (int i = 1; i < 3 && r == 0; i++)
        r = gs_join(p->pumps[i].g, deadline);
    if (r == 0)
        r = gs_waitpid(p->pid, &p->status, 0, deadline);
    bool ended = r > 0;
    gs_cancel_disable();
    if (!ended) {
        kill(p->pid, SIGKILL);
        gs_waitpid(p->pid, &p->status, 0, GS_FOREVER);
    }
    /* The process's children may still have the pipes. */
    for (int i = 0; i < 3; i++) {
        if (p->pumps[i].g) {
            gs_cancel(p->pumps[i].g);
            gs_join(p->pumps[i].g, GS_FOREVER);
            gs_release(p->pumps[i].g);
        }
    }
    gs_cancel_enable();
    for (int i = 0; i < 3 && ended; i++)
        if (p->pumps[i].error)
            r = p->pumps[i].error;
    return r;
}

/* The strings of the list at index as argv, in a userdata that it pushes. */
static char **strings(lua_State *L, int index, const char *what)
{
    size_t n = (size_t)lua_rawlen(L, index);
    char **all = lgs_userdata(lgs_state(L), L, (n + 1) * sizeof *all, 0);
    for (size_t i = 0; i < n; i++) {
        if (lua_rawgeti(L, index, (lua_Integer)i + 1) != LUA_TSTRING)
            luaL_error(L, "%s: string expected at %d, got %s", what, (int)i + 1, luaL_typename(L, -1));
        all[i] = (char *)lua_tostring(L, -1);
        if (strlen(all[i]) != lua_rawlen(L, -1))
            luaL_error(L, "%s: the string at %d has a zero byte", what, (int)i + 1);
        lua_pop(L, 1); /* the list keeps the string */
    }
    all[n] = NULL;
    return all;
}

/* The environment with the changes in the table at index: a list of "NAME=value", pushed as by strings(). */
static char **environment(lua_State *L, int index)
{
    lua_newtable(L);
    int all = lua_gettop(L);
    for (char **e = environ; *e; e++) {
        const char *eq = strchr(*e, '=');
        if (eq) {
            lua_pushlstring(L, *e, (size_t)(eq - *e));
            lua_pushstring(L, eq + 1);
            lua_rawset(L, all);
        }
    }
    lua_pushnil(L);
    while (lua_next(L, index)) {
        bool none = lua_isboolean(L, -1) && !lua_toboolean(L, -1);
        if (lua_type(L, -2) != LUA_TSTRING || (lua_type(L, -1) != LUA_TSTRING && !none))
            luaL_error(L, "exec: 'env' is a table of names and strings (false: none)");
        if (lua_rawlen(L, -2) == 0 || strchr(lua_tostring(L, -2), '='))
            luaL_error(L, "exec: 'env' has no name '%s'", lua_tostring(L, -2));
        if (strlen(lua_tostring(L, -2)) != lua_rawlen(L, -2) || (!none && strlen(lua_tostring(L, -1)) != lua_rawlen(L, -1)))
            luaL_error(L, "exec: the variable '%s' of 'env' has a zero byte", lua_tostring(L, -2));
        lua_pushvalue(L, -2);
        lua_pushvalue(L, -2);
        lua_rawset(L, all);
        lua_pop(L, 1);
    }
    lua_newtable(L);
    int list = lua_gettop(L);
    lua_Integer n = 0;
    lua_pushnil(L);
    while (lua_next(L, all)) {
        if (lua_type(L, -1) == LUA_TSTRING) {
            lua_pushfstring(L, "%s=%s", lua_tostring(L, -2), lua_tostring(L, -1));
            lua_rawseti(L, list, ++n);
        }
        lua_pop(L, 1);
    }
    return strings(L, list, "exec: env");
}

/* gosched.exec({"program", "argument"...}[, {stdin =, cwd =, env =, timeout =}]) */
static int l_exec(lua_State *L)
{
    struct state *S = lgs_state(L);
    struct process p = {0};
    char **envp = environ;
    const char *cwd = NULL;
    gs_deadline deadline = GS_FOREVER;
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 2);
    char **argv = strings(L, 1, "exec");
    luaL_argcheck(L, argv[0] != NULL, 1, "it names no program");
    if (!lua_isnil(L, 2)) {
        luaL_checktype(L, 2, LUA_TTABLE);
        lua_pushnil(L);
        while (lua_next(L, 2)) {
            const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
            if (strcmp(key, "stdin") && strcmp(key, "cwd") && strcmp(key, "env") && strcmp(key, "timeout"))
                return luaL_error(L, "exec: unknown option '%s': there are stdin, cwd, env and timeout",
                                  luaL_tolstring(L, -2, NULL));
            lua_pop(L, 1);
        }
        if (lua_getfield(L, 2, "stdin") != LUA_TNIL) {
            if (lua_type(L, -1) != LUA_TSTRING)
                return luaL_error(L, "exec: 'stdin' is a string, got %s", luaL_typename(L, -1));
            p.pumps[0].text = lua_tolstring(L, -1, &p.pumps[0].size);
        }
        if (lua_getfield(L, 2, "cwd") != LUA_TNIL) {
            if (lua_type(L, -1) != LUA_TSTRING)
                return luaL_error(L, "exec: 'cwd' is a string, got %s", luaL_typename(L, -1));
            cwd = lua_tostring(L, -1);
            if (strlen(cwd) != lua_rawlen(L, -1))
                return luaL_error(L, "exec: 'cwd' has a zero byte");
        }
        if (lua_getfield(L, 2, "timeout") == LUA_TSTRING)
            return luaL_error(L, "exec: 'timeout' is a number of seconds, got string");
        deadline = lgs_timeout_option(L, "exec");
        if (lua_getfield(L, 2, "env") != LUA_TNIL) {
            if (!lua_istable(L, -1))
                return luaL_error(L, "exec: 'env' is a table, got %s", luaL_typename(L, -1));
            envp = environment(L, lua_gettop(L));
        }
    }
    lgs_leave(S, false);
    int r = run_process(&p, argv[0], argv, envp, cwd, deadline);
    lgs_enter(S, false);
    /* Hands the bytes read to the state, in case Lua has no memory for them. */
    size_t out = p.pumps[1].len, err = p.pumps[2].len;
    bool kept = r >= 0 && lgs_scratch(S, out + err + 1, false);
    if (kept && out)
        memcpy(S->scratch, p.pumps[1].data, out);
    if (kept && err)
        memcpy(S->scratch + out, p.pumps[2].data, err);
    free(p.pumps[1].data);
    free(p.pumps[2].data);
    if (r < 0)
        return lgs_fail(S, L, r);
    if (!kept)
        return luaL_error(L, "not enough memory");
    lua_createtable(L, 0, 4);
    lua_pushlstring(L, S->scratch, out);
    lua_setfield(L, -2, "out");
    lua_pushlstring(L, S->scratch + out, err);
    lua_setfield(L, -2, "err");
    lgs_scratch_done(S);
    lua_pushinteger(L, WIFEXITED(p.status) ? WEXITSTATUS(p.status) : WTERMSIG(p.status));
    lua_setfield(L, -2, WIFEXITED(p.status) ? "code" : "signal");
    return 1;
}

/* ---- os.execute and io.popen of goroutines ----

   Lua's own functions would give the process the thread's signal mask, which blocks all signals, and would
   block the thread in the wait. */

static int push_status(lua_State *L, int status)
{
    bool exited = WIFEXITED(status);
    int code = exited ? WEXITSTATUS(status) : WTERMSIG(status);
    if (exited && code == 0)
        lua_pushboolean(L, 1);
    else
        lua_pushnil(L);
    lua_pushstring(L, exited ? "exit" : "signal");
    lua_pushinteger(L, code);
    return 3;
}

static int os_execute(lua_State *L)
{
    struct state *S = lgs_state(L);
    const char *command = luaL_optstring(L, 1, NULL);
    if (!command) {
        lua_pushboolean(L, system(NULL));
        return 1;
    }
    char *argv[] = {(char *)"sh", (char *)"-c", (char *)command, NULL};
    pid_t pid;
    int status = 0;
    lgs_leave(S, false);
    int r = start_process(&pid, "/bin/sh", argv, environ, NULL, (const int[3]){-1, -1, -1});
    if (r == 0 && (r = gs_waitpid(pid, &status, 0, GS_FOREVER)) < 0) {
        gs_cancel_disable();
        kill(pid, SIGKILL);
        gs_waitpid(pid, &status, 0, GS_FOREVER);
        gs_cancel_enable();
    }
    lgs_enter(S, false);
    if (r < 0)
        return lgs_fail(S, L, r);
    return push_status(L, status);
}

/* A file of io.popen's: the struct that Lua's own functions for files expect, and the process behind it. */
struct popen_file {
    luaL_Stream stream;
    pid_t pid;
};

static int popen_close(lua_State *L)
{
    struct popen_file *p = luaL_checkudata(L, 1, LUA_FILEHANDLE);
    struct state *S = lgs_state_of(L);
    int status = 0;
    lgs_leave(S, false);
    fclose(p->stream.f);
    int r = gs_waitpid(p->pid, &status, 0, GS_FOREVER);
    lgs_enter(S, false);
    return r < 0 ? lgs_fail(S, L, r) : push_status(L, status);
}

static int io_popen(lua_State *L)
{
    struct state *S = lgs_state(L);
    const char *command = luaL_checkstring(L, 1), *mode = luaL_optstring(L, 2, "r");
    luaL_argcheck(L, (mode[0] == 'r' || mode[0] == 'w') && mode[1] == '\0', 2, "invalid mode");
    bool reads = mode[0] == 'r';
    struct popen_file *p = lua_newuserdatauv(L, sizeof *p, 0);
    p->stream.closef = NULL; /* marked closed for now */
    p->stream.f = NULL;
    luaL_setmetatable(L, LUA_FILEHANDLE);
    char *argv[] = {(char *)"sh", (char *)"-c", (char *)command, NULL};
    int fds[2], ends[3] = {-1, -1, -1};
    fflush(NULL);
    lgs_leave(S, false);
    int r = pipe2(fds, O_CLOEXEC) != 0 ? -errno : 0;
    if (r == 0) {
        ends[reads] = fds[reads];
        r = start_process(&p->pid, "/bin/sh", argv, environ, NULL, ends);
        close(fds[reads]);
        p->stream.f = r == 0 ? fdopen(fds[!reads], mode) : NULL;
        if (!p->stream.f)
            close(fds[!reads]);
    }
    lgs_enter(S, false);
    if (r == 0 && !p->stream.f)
        r = -ENOMEM;
    if (r < 0) {
        lgs_fail(S, L, r);
        lua_pushfstring(L, "%s: %s", command, lua_tostring(L, -2));
        lua_replace(L, -3);
        return 3;
    }
    p->stream.closef = popen_close;
    return 1;
}

void lgs_processes_replace(struct state *S, lua_State *L)
{
    const struct {
        const char *library, *name;
        lua_CFunction f;
    } ours[] = {{"os", "execute", os_execute}, {"io", "popen", io_popen}};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        lua_getglobal(L, ours[i].library);
        lua_pushlightuserdata(L, S);
        lua_pushcclosure(L, ours[i].f, 1);
        lua_setfield(L, -2, ours[i].name);
        lua_pop(L, 1);
    }
}

static const luaL_Reg functions[] = {{"exec", l_exec}, {NULL, NULL}};

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void note_mask(void)
{
    pthread_sigmask(SIG_SETMASK, NULL, &program_mask);
}

void lgs_processes_open(struct state *S, lua_State *L)
{
    pthread_once(&once, note_mask);
    lua_pushlightuserdata(L, S);
    luaL_setfuncs(L, functions, 1);
}
