"""Goroutines in gdb: commands that show the goroutines of a program that uses libgosched.

    info goroutines       lists them
    goroutine 5 bt        runs a command of gdb in the context of one
    goroutine all bt      or of each
    goroutine-gcore FILE  writes a core file that has their stacks

This works for live processes and for core files, with gdb 13 or newer. It needs no debug information
of the library, writes no register and no memory, and calls nothing in the program: it reads the
library's table of facts (src/capi/layout.rs), and an unwinder goes from a thread's frame to the
frames of a goroutine that is on no thread.

gdb finds this text in the library, and asks its auto-load safe-path whether to run it. Where gdb
declines, `source` this file, or write into ~/.config/gdb/gdbinit what gdb's warning says:
    add-auto-load-safe-path /usr/local/lib/libgosched.so.1.1.0
"""

import gdb


def load_gosched():
    """Defines the commands. All names are in here: the scripts that gdb loads share one module."""
    import bisect
    import os
    import re
    import struct
    import time

    from gdb.unwinder import Unwinder

    VERSION = 1  # of the table of facts
    MOST_FRAMES = 1000  # how deep a stack is searched for the user's code

    class Lost(gdb.GdbError):
        """Says why something can't be shown; gdb prints the text alone."""

    # ---- The program's memory ----

    def read(at, size):
        try:
            return bytes(gdb.selected_inferior().read_memory(at, size))
        except gdb.MemoryError:
            raise Lost("Cannot read the library's memory at 0x%x: is the core file complete?" % at) from None

    def word(at, form="Q"):
        return struct.unpack("<" + form, read(at, struct.calcsize(form)))[0]

    def words(at, count):
        return struct.unpack("<%dQ" % count, read(at, 8 * count))

    def text(at):
        """A C string of the program."""
        out = b""
        while at:
            # No read goes over the end of a page: the next page may not be there.
            part = read(at, 64 - at % 64)
            out += part.split(b"\0")[0]
            if b"\0" in part or len(out) > 4096:
                break
            at += len(part)
        return out.decode(errors="replace")

    def symbol(at):
        """What is at an address: "f in section ..." as gdb says it, without the section; None: gdb does not know."""
        said = gdb.execute("info symbol 0x%x" % at, to_string=True)
        found = re.match(r"(.+?) in section ", said)
        return found and found.group(1)

    def place(pc):
        """The line of the call that returns to `pc`; else the function and an offset, as gdb prints it."""
        line = gdb.find_pc_line(pc - 1)
        if line.symtab and line.line:
            return "%s:%d" % (line.symtab.filename, line.line)
        return symbol(pc) or "0x%x" % pc

    class Facts:
        """The library's table of facts, and what can be read with it."""

        def __init__(self):
            try:
                said = gdb.execute("info address gs_debug_layout", to_string=True)
            except gdb.error:
                raise Lost(
                    "No libgosched here, or a version older than this script, or statically linked and stripped: "
                    "there is no symbol gs_debug_layout."
                ) from None
            if gdb.selected_thread() is None:
                raise Lost("The program is not being run.")
            self.at = int(re.search(r"0x[0-9a-f]+", said).group(), 16)
            version, count = struct.unpack("<II", read(self.at, 8))
            if version != VERSION:
                raise Lost("This libgosched has layout %d, and this script knows layout %d." % (version, VERSION))
            self.facts = self.table(word(self.at + 8), count)
            self.vec = words(self["Vec"], 2)
            self.library = gdb.solib_name(self.at)  # None: linked statically
            self.states = {self["Status." + s]: s.lower() for s in ("Runnable", "Running", "Waiting", "Syscall")}
            self.reasons = [text(at) for at in words(self["reasons.at"], self["reasons"])]
            self.registers = self.table(self["Context.at"], self["Context"])

        @staticmethod
        def table(at, count):
            pairs = words(at, 2 * count)
            return {text(pairs[i]): pairs[i + 1] for i in range(0, 2 * count, 2)}

        def __getitem__(self, name):
            try:
                return self.facts[name]
            except KeyError:
                raise Lost("This script needs a libgosched that says '%s' in gs_debug_layout." % name) from None

        def field(self, at, name, form="Q"):
            return word(at + self[name], form)

        def items(self, at):
            """Pointer and length of a vector."""
            if self.vec == (0, 0):
                return 0, 0
            return word(at + self.vec[0]), word(at + self.vec[1])

        def vector(self, at):
            """The words of a vector of words."""
            first, count = self.items(at)
            return words(first, count) if count else ()

        def runtime(self):
            at = word(self["RUNTIME"])
            if not at:
                raise Lost("No runtime: no gs_init or gs_run yet, or gs_shutdown has ended it.")
            return at

        def objects(self, kind, node, chunks):
            """Addresses and bytes of all objects that a node's pool has made or will make."""
            size = self[kind]
            for chunk in self.vector(node + self[chunks]):
                whole = read(chunk, self["chunk"])
                for at in range(0, len(whole) - size + 1, size):
                    yield chunk + at, whole[at : at + size]

        def goroutines(self):
            """All goroutines: those that have an id by their ids, then those that have not begun."""
            runtime = self.runtime()
            first, count = self.items(runtime + self["Runtime.nodes"])
            machines = Machines(self, runtime)
            old, new = [], []
            for node in range(count):
                at = first + node * self["Node"]
                for g, data in self.objects("G", at, "Node.gs"):
                    if data[self["G.status"]] != self["Status.Dead"]:
                        old.append(Goroutine(self, machines, g, data))
                for n, data in self.objects("Newborn", at, "Node.newborns"):
                    if any(data[self["Newborn.f"] :][:8]):
                        new.append(Newborn(self, data, node))
            return sorted(old, key=lambda g: g.id) + new

        def now(self):
            """The time on the library's clock: the last that a core file has, at least."""
            connection = getattr(gdb.selected_inferior(), "connection", None)
            if connection and connection.type == "native":
                return time.monotonic_ns()
            return word(self["NOW"], "q")

        def is_library(self, frame, pc):
            """Whether a frame is the library's, or of the functions that gosched.h inlines."""
            name = frame.name() or ""
            if re.fullmatch(r"gs_\w+_inline", name):
                return True
            if self.library:
                return gdb.solib_name(pc) == self.library
            # Rust's symbols have the crate's name, whatever function was inlined there.
            name = symbol(pc) or ""
            return "gosched" in name or name.startswith("gs_")

    class Machines:
        """The M's, which are threads that run goroutines."""

        def __init__(self, facts, runtime):
            self.facts = facts
            ps = facts.vector(runtime + facts["Runtime.all_ps"])[: word(runtime + facts["Runtime.made_ps"])]
            self.nodes = [facts.field(p, "P.node", "H") for p in ps]
            self.running = {}
            for m in facts.vector(runtime + facts["Runtime.ms"]):
                g = facts.field(m, "M.curg")
                if g:
                    self.running[g] = m
            self.threads = {t.ptid[1]: t for t in gdb.selected_inferior().threads()}

        def node(self, p):
            return self.nodes[p] if p < len(self.nodes) else 0

        def thread(self, m, bounds):
            """gdb's thread of the M: by its number, or, where the program is in a container, by its stack."""
            found = self.threads.get(self.facts.field(m, "M.tid", "i"))
            if found:
                return found
            with Selection():
                for thread in self.threads.values():
                    thread.switch()
                    if bounds[0] <= register(gdb.newest_frame(), "sp") <= bounds[1]:
                        return thread
            return None

    # ---- Goroutines ----

    class Newborn:
        """A goroutine that has not begun, and has neither an id nor a stack."""

        id = 0
        since = 0
        name = ""
        state = "runnable"
        segments = ()

        def __init__(self, facts, data, node):
            self.facts = facts
            self.node = node
            get = lambda name: struct.unpack_from("<Q", data, facts["Newborn." + name])[0]
            self.f, self.pc, self.creator = get("f"), get("pc"), get("creator")

        def where(self):
            return unborn(self)

    class Goroutine:
        """A goroutine that has a descriptor."""

        def __init__(self, facts, machines, at, data):
            self.facts = facts
            self.machines = machines
            self.at = at
            get = lambda name, form="Q": struct.unpack_from("<" + form, data, facts["G." + name])[0]
            self.id, self.f, self.pc, self.creator = get("id"), get("f"), get("pc"), get("creator")
            self.context = get("context")
            self.flags = get("flags", "I")
            self.node = machines.node(get("last_p", "H"))
            self.name = text(get("name"))
            self.m = machines.running.get(at)
            status = get("status", "B")
            state = facts.states.get(status, "status %d" % status)
            self.since = get("since", "q") if state in ("waiting", "syscall") else 0
            why = get("why", "B")
            if state == "waiting" and why < len(facts.reasons):
                state = facts.reasons[why]
            elif self.is_("INTERRUPTED"):
                state = "preempted"
            elif state == "running" and self.m and self.lost_p():
                state = "running, without a P"
            self.state = state
            self.bounds = (0, 0)
            if self.is_("ATTACHED"):
                m = get("bound_m")
                attachment = m and facts.field(m, "M.attachment")
                if attachment:
                    lo = facts.field(attachment, "Attachment.bounds")
                    self.bounds = (lo, lo + facts.field(attachment, "Attachment.size"))
            else:
                stack = facts["G.stack"]
                base = struct.unpack_from("<Q", data, stack + facts["Stack.base"])[0]
                if base:
                    size = 1 << data[stack + facts["Stack.class"]]
                    self.bounds = (base + facts["Stack.guard"], base + size)

        def is_(self, flag):
            return bool(self.flags & self.facts["flags." + flag])

        def lost_p(self):
            hold = self.facts.field(self.m, "M.hold", "B")
            return hold in (self.facts["Hold." + s] for s in ("Taken", "Lent", "GoesOn"))

        def is_unborn(self):
            if self.is_("UNBORN"):
                return True
            return not self.m and self.context and pc_of(self.at_rest()) == self.facts["start"]

        def at_rest(self):
            """The registers of the goroutine, which is on no thread."""
            return {name: word(self.context + at) for name, at in self.facts.registers.items()}

        def used(self):
            """The lowest and highest address of the stack that are in use; of a running goroutine: of the stack."""
            lo, hi = self.bounds
            if self.context and not self.m:
                sp = min(self.context, sp_of(self.at_rest()))
                lo = sp if lo <= sp < hi else lo
            return lo, hi

        @property
        def segments(self):
            """The pieces that the goroutine's frames are in, innermost first."""
            if self.is_unborn():
                return []
            found = []
            if self.m:
                thread = self.machines.thread(self.m, self.bounds)
                if thread is None:
                    raise Lost("Goroutine %d runs on a thread that gdb does not see." % self.id)
                blocking = self.facts.field(self.m, "M.blocking")
                found.append(OnThread(self.facts, thread, self.is_("INTERRUPTED"), blocking))
                if not blocking:
                    return found
            if self.context:
                found.append(AtRest(self.at_rest()))
            return found

        def where(self):
            """The innermost function outside the library, with its arguments and its line."""
            if self.is_unborn():
                return unborn(self)
            for segment in self.segments:
                with segment as base:
                    frame = segment.first_of_user(base, self.facts)
                    if frame is None:
                        continue
                    name = frame.name() or symbol(frame.pc()) or "0x%x" % frame.pc()
                    sal = frame.find_sal()
                    at = " at %s:%d" % (sal.symtab.filename, sal.line) if sal.symtab and sal.line else ""
                    return name + " ()" + at
            return "?"

    def unborn(g):
        creator = "goroutine %d" % g.creator if g.creator else "a thread"
        spawned = "spawned by %s at %s" % (creator, place(g.pc)) if g.pc else "spawned by the library"
        return "%s (), not begun, %s" % (symbol(g.f) or "0x%x" % g.f, spawned)

    # ---- Frames ----

    def register(frame, name):
        return int(frame.read_register(name)) & 0xFFFFFFFFFFFFFFFF

    class Selection:
        """Gives the user's thread and frame back at the end of `with`."""

        def __enter__(self):
            self.thread = gdb.selected_thread()
            self.level = gdb.selected_frame().level()

        def __exit__(self, *_):
            if not (self.thread and self.thread.is_valid()):
                return
            self.thread.switch()
            frame = gdb.newest_frame()
            while frame.level() < self.level and frame.older():
                frame = frame.older()
            frame.select()

    def pc_of(registers):
        """The address at which a context at rest goes on: gdb's names of the registers are those of the CPU."""
        return registers["pc" if "pc" in registers else "rip"]

    def sp_of(registers):
        """The stack pointer of a context at rest."""
        return registers["sp" if "sp" in registers else "rsp"]

    class FrameId:
        def __init__(self, sp, pc):
            self.sp, self.pc = sp, pc

    class Switched(Unwinder):
        """Lets the frames of a goroutine at rest follow a thread's newest frame. Changes nothing in the program."""

        def __init__(self):
            super().__init__("libgosched goroutine")
            self.registers = None
            self.at = None

        def __call__(self, pending):
            if self.registers is None:
                return None
            sp, pc = pending.read_register("sp"), pending.read_register("pc")
            if (int(sp), int(pc)) != self.at:
                return None
            # gdb wants each frame's stack pointer to be higher than that of the frame before.
            below = gdb.Value(sp_of(self.registers) - 16).cast(sp.type)
            info = pending.create_unwind_info(FrameId(below, pc))
            for name, value in self.registers.items():
                info.add_saved_register(name, gdb.Value(value).cast(pending.read_register(name).type))
            return info

        def show(self, registers):
            """From here on a goroutine's frames are behind the newest frame; None: no more."""
            self.registers = None
            gdb.invalidate_cached_frames()
            if registers:
                frame = gdb.newest_frame()
                self.at = (int(frame.read_register("sp")), int(frame.read_register("pc")))
                self.registers = registers
                gdb.invalidate_cached_frames()

    switched = Switched()

    class Segment:
        """Frames that follow each other in one stack. `with` shows them to gdb, and gives the first frame's level."""

        last = None  # the level of the last frame; None: as far as it goes

        def frame(self, level):
            """The frame of this level, or None."""
            found = gdb.newest_frame()
            while found is not None and found.level() < level:
                found = found.older()
            return found if self.last is None or level <= self.last else None

        def count(self, base):
            """The number of frames."""
            found, n = self.frame(base), 0
            while found is not None and n < MOST_FRAMES and (self.last is None or found.level() <= self.last):
                found, n = found.older(), n + 1
            return n

        def first_of_user(self, base, facts):
            found = self.frame(base)
            for _ in range(MOST_FRAMES):
                if found is None or self.last is not None and found.level() > self.last:
                    return None
                if not facts.is_library(found, found.pc()):
                    return found
                found = found.older()
            return None

    class AtRest(Segment):
        """The frames of a goroutine that is on no thread."""

        def __init__(self, registers):
            self.registers = registers

        def __enter__(self):
            if not pc_of(self.registers):
                raise Lost(
                    "The core file lacks the goroutine's stack, as those of gdb's gcore do: use goroutine-gcore instead, or "
                    "let the kernel write the core file."
                )
            switched.show(self.registers)
            wanted = (sp_of(self.registers), pc_of(self.registers))
            # The newest frame may be several: functions that were inlined have frames too.
            frame = gdb.newest_frame().older()
            while frame is not None:
                try:
                    if (register(frame, "sp"), register(frame, "pc")) == wanted:
                        return frame.level()
                except gdb.error:
                    pass
                frame = frame.older()
            switched.show(None)
            raise Lost("gdb cannot go to the goroutine's frames from this thread; select another thread.")

        def __exit__(self, *_):
            switched.show(None)

    class OnThread(Segment):
        """The frames of a goroutine on its thread."""

        def __init__(self, facts, thread, interrupted, blocking):
            self.facts, self.thread = facts, thread
            self.interrupted, self.blocking = interrupted, blocking

        def __enter__(self):
            switched.show(None)
            self.thread.switch()
            base = gdb.newest_frame()
            if self.interrupted:
                # Behind the frame of the signal handler, in which the goroutine waits for a P.
                frame = base
                while frame is not None and frame.type() != gdb.SIGTRAMP_FRAME:
                    frame = frame.older()
                base = frame and frame.older() or base
            elif self.blocking:
                self.last = self.last_of_call(base)
            return base.level()

        def __exit__(self, *_):
            pass

        def last_of_call(self, frame):
            """In gs_blocking: the level of the last frame before those of the library's own loop on this thread."""
            inside = []
            while frame is not None and len(inside) < MOST_FRAMES:
                inside.append(self.facts.is_library(frame, frame.pc()))
                frame = frame.older()
            while inside and not inside[-1]:
                inside.pop()
            while inside and inside[-1]:
                inside.pop()
            return max(len(inside), 1) - 1

    # ---- Commands ----

    levels = {}  # the frame that a goroutine's commands have selected, since the program has stopped

    def forget(_):
        levels.clear()

    gdb.events.cont.connect(forget)

    def age(ns):
        if ns < 1_000_000_000:
            return "%d ms" % (ns // 1_000_000)
        seconds = ns // 1_000_000_000
        for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
            if seconds >= 2 * size:
                return "%d %s" % (seconds // size, unit)
        return "%d s" % seconds

    def title(g, now):
        since = ", " + age(max(now - g.since, 0)) if g.since else ""
        name = ' "%s"' % g.name if g.name else ""
        return "goroutine %s [%s%s]%s" % (g.id or "-", g.state, since, name)

    class InfoGoroutines(gdb.Command):
        """List the goroutines of a program that uses libgosched.

    Usage: info goroutines [ID]...

    A line for each goroutine: its id, what it does or waits for, for how long it has waited, the NUMA
    node where it last ran, its name, and the innermost function outside the library. A '*' marks those
    that are on a thread. A goroutine that has not begun has no id yet, and a '-' instead.

    In a core file the time ends with the last look of the library's own thread at the clock."""

        def __init__(self):
            super().__init__("info goroutines", gdb.COMMAND_STATUS)

        def invoke(self, argument, _tty):
            self.dont_repeat()
            facts = Facts()
            with Selection():
                all_of_them = facts.goroutines()
                chosen = [named(all_of_them, word) for word in argument.split()] or all_of_them
                now = max([facts.now()] + [g.since for g in all_of_them])
                rows = [("", "Id", "State", "Time", "Node", "Name")]
                for g in chosen:
                    since = age(now - g.since) if g.since else ""
                    on = "*" if getattr(g, "m", None) else ""
                    rows.append((on, str(g.id or "-"), g.state, since, str(g.node), g.name))
                width = [max(len(row[i]) for row in rows) for i in range(6)]
                form = "%%-1s %%%ds  %%-%ds  %%%ds  %%%ds  %%-%ds  %%s\n" % tuple(width[1:])
                gdb.write(form % (rows[0] + ("Where",)))
                for g, row in zip(chosen, rows[1:]):
                    try:
                        where = g.where()
                    except gdb.error as e:
                        where = "? (%s)" % e
                    except Lost as e:
                        where = "? (%s)" % e
                    gdb.write(form % (row + (where,)))

    def named(all_of_them, number):
        """The goroutine with an id."""
        try:
            wanted = int(number)
        except ValueError:
            raise Lost("'%s' is no id of a goroutine; see 'help goroutine'." % number) from None
        for g in all_of_them:
            if g.id == wanted and wanted:
                return g
        raise Lost("No goroutine %d; 'info goroutines' lists them." % wanted)

    class GoroutineCommand(gdb.Command):
        """Run a command of gdb in the context of a goroutine, or of all.

    Usage: goroutine ID[,ID]... [COMMAND]
           goroutine all [COMMAND]

    COMMAND is any command that looks at frames: bt, frame 2, up, info locals, print x. The frame that
    frame, up or down selects is kept for the next command of that goroutine, until the program goes on.
    Without COMMAND: a line about the goroutine, and its frame.

    A goroutine that is on a thread has the frames of its thread. If it was preempted, or is in
    gs_blocking, the library's frames on the thread are left out."""

        def __init__(self):
            super().__init__("goroutine", gdb.COMMAND_STACK)

        def invoke(self, argument, _tty):
            self.dont_repeat()
            which, _, command = argument.strip().partition(" ")
            command = command.strip()
            if not which:
                raise gdb.GdbError("Usage: goroutine ID|all COMMAND; see 'help goroutine'.")
            facts = Facts()
            with Selection():
                all_of_them = facts.goroutines()
                chosen = all_of_them if which == "all" else [named(all_of_them, n) for n in which.split(",")]
                now = max([facts.now()] + [g.since for g in all_of_them])
                for i, g in enumerate(chosen):
                    if len(chosen) > 1 or not command:
                        gdb.write("%s%s\n" % ("\n" if i else "", title(g, now)))
                    try:
                        run(g, command or "frame")
                    except gdb.error as e:
                        if len(chosen) == 1:
                            raise gdb.GdbError(str(e)) from None
                        gdb.write("%s\n" % e)
                    except gdb.GdbError as e:
                        if len(chosen) == 1:
                            raise
                        gdb.write("%s\n" % e)

    class GoroutineCore(gdb.Command):
        """Write a core file of the program, with the goroutines' stacks: for gcore, which leaves them out.

    Usage: goroutine-gcore [FILE]

    gdb's gcore gives a mapping up at the first page that it can't read, such as the guard page of a
    goroutine's stack. This command calls gcore, and then adds the stacks to the file."""

        def __init__(self):
            super().__init__("goroutine-gcore", gdb.COMMAND_FILES, gdb.COMPLETE_FILENAME)

        def invoke(self, argument, _tty):
            self.dont_repeat()
            facts = Facts()
            file = argument.strip() or "core.%d" % gdb.selected_inferior().pid
            gdb.execute("gcore " + file)
            with Selection(), open(os.path.expanduser(file), "r+b") as core:
                segments = loaded(core)
                for g in facts.goroutines():
                    if getattr(g, "bounds", (0, 0)) != (0, 0):
                        add(core, segments, *g.used())

    def loaded(core):
        """The segments of a core file: address, size, and where in the file."""
        header = struct.unpack("<16sHHIQQQIHHHHHH", core.read(64))
        at, size, count = header[5], header[9], header[10]
        if count == 0xFFFF:
            # Too many for the field: the first section says how many.
            core.seek(header[6] + 44)
            count = struct.unpack("<I", core.read(4))[0]
        found = []
        for i in range(count):
            core.seek(at + i * size)
            kind, _, offset, address, _, stored = struct.unpack("<IIQQQQ", core.read(40))
            if kind == 1 and stored:
                found.append((address, stored, offset))
        return sorted(found)

    def add(core, segments, lo, hi):
        """Copies memory of the program into the file, but for pages of zeros."""
        first = max(bisect.bisect_right(segments, (lo, 1 << 64)) - 1, 0)
        for address, size, offset in segments[first:]:
            if address >= hi:
                break
            begin, end = max(lo, address), min(hi, address + size)
            while begin < end:
                part = read(begin, min(4096 - begin % 4096, end - begin))
                if any(part):
                    core.seek(offset + begin - address)
                    core.write(part)
                begin += len(part)

    def run(g, command):
        segments = g.segments
        if not segments:
            if g.f == 0:
                raise Lost("Goroutine %s has no frames." % (g.id or "-"))
            gdb.write("#0  %s\n" % unborn(g))
            return
        verb, _, rest = command.partition(" ")
        if verb in ("bt", "backtrace", "where"):
            backtrace(segments, rest.strip())
        elif verb in ("up", "down") and re.fullmatch(r"\d*", rest.strip()):
            by = int(rest or 1)
            select(g, segments, levels.get(g.at, 0) + (by if verb == "up" else -by), verb)
            within(segments, levels[g.at], "frame")
        elif verb in ("frame", "f") and re.fullmatch(r"\d+", rest.strip()):
            select(g, segments, int(rest), verb)
            within(segments, levels[g.at], "frame")
        elif verb in ("frame", "f") and rest.strip():
            # frame would print gdb's number of the frame itself.
            levels[g.at] = within(segments, levels.get(g.at, 0), "select-frame " + rest)
            within(segments, levels[g.at], "frame")
        else:
            levels[g.at] = within(segments, levels.get(g.at, 0), command)

    def select(g, segments, level, verb):
        """Selects a frame by its number in the goroutine."""
        total = 0
        for segment in segments:
            with segment as base:
                total += segment.count(base)
        if verb in ("frame", "f"):
            if level >= total:
                raise Lost("No frame at level %d." % level)
        elif level < 0 and levels.get(g.at, 0) == 0:
            raise Lost("Bottom (innermost) frame selected; you can't go down.")
        elif level >= total and levels.get(g.at, 0) == total - 1:
            raise Lost("Initial frame selected; you can't go up.")
        levels[g.at] = min(max(level, 0), total - 1)

    def within(segments, level, command):
        """Runs a command in the goroutine's frame of this number. Returns the number of the frame that is selected then."""
        before = 0
        for segment in segments:
            with segment as base:
                frame = segment.frame(base + level - before)
                if frame is not None:
                    frame.select()
                    write(gdb.execute(command, to_string=True), before - base)
                    selected = gdb.selected_frame().level()
                    return selected - base + before if segment.frame(selected) is not None and selected >= base else level
                before += segment.count(base)
        raise Lost("The goroutine has no frame %d now." % level)

    def backtrace(segments, rest):
        """`bt` for all pieces, with its arguments: a number counts the frames of all."""
        count = re.search(r"(^|\s)(-?\d+)$", rest)
        options = rest[: count.start()] if count else rest
        lines = []
        before = 0
        for segment in segments:
            with segment as base:
                most = MOST_FRAMES if not count or int(count.group(2)) < 0 else base + int(count.group(2))
                said = gdb.execute("bt %s %s" % (options, "" if most == MOST_FRAMES else most), to_string=True)
                number = -1
                for line in said.splitlines():
                    found = re.match(r"#(\d+)", line)
                    number = int(found.group(1)) if found else number
                    if number < base or segment.last is not None and number > segment.last:
                        continue
                    lines.append((number - base + before, line))
                before += segment.count(base) if len(segments) > 1 else 0
        if count:
            n = int(count.group(2))
            least = max((number for number, _ in lines), default=0) + 1 + n if n < 0 else 0
            lines = [(i, line) for i, line in lines if i >= least and (n < 0 or i < n)]
        for number, line in lines:
            gdb.write(re.sub(r"^#\d+\s+", lambda _: ("#%d" % number).ljust(4), line) + "\n")

    def write(said, by):
        """Prints what gdb has said, with the numbers of frames changed."""
        for line in said.splitlines(True):
            change = lambda found: ("#%d" % (int(found.group(1)) + by)).ljust(4)
            gdb.write(re.sub(r"^#(\d+)\s+", change, line))

    gdb.unwinder.register_unwinder(None, switched)
    InfoGoroutines()
    GoroutineCommand()
    GoroutineCore()


# The text may be loaded twice: from the library, and from a file.
if not hasattr(gdb, "gosched_is_loaded"):
    gdb.gosched_is_loaded = True
    load_gosched()
