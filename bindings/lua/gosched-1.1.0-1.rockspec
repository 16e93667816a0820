rockspec_format = "3.0"
package = "gosched"
version = "1.1.0-1"
source = {
   -- For `luarocks make` in this directory, which builds what is here.
   url = "file://gosched-1.1.0.tar.gz",
}
description = {
   summary = "Goroutines, channels and blocking I/O on all processors",
   detailed = [[
      Go's scheduler for Lua: each goroutine has a Lua state of its own, so Lua code runs on all
      processors at once. Channels, select, mutexes, wait groups, TCP, UDP, files, processes.
      Needs libgosched: `make install` in the project's directory, or
      luarocks make GOSCHED_INCDIR=../../include GOSCHED_LIBDIR=$PWD/../../target/release]],
   license = "MIT OR Apache-2.0",
}
supported_platforms = { "linux" }
dependencies = { "lua >= 5.4, < 5.5" }
external_dependencies = {
   GOSCHED = { header = "gosched.h", library = "gosched" },
}
build = {
   type = "builtin",
   modules = {
      gosched = {
         sources = {
            "src/coroutines.c", "src/files.c", "src/frames.c", "src/globals.c", "src/goroutines.c",
            "src/heap.c", "src/inspect.c", "src/main.c", "src/messages.c", "src/objects.c", "src/order.c", "src/pack.c", "src/pool.c",
            "src/preload.c", "src/processes.c", "src/results.c", "src/sockets.c", "src/state.c",
            "src/sync.c", "src/testing.c", "src/turns.c", "src/unpack.c", "src/values.c", "src/watch.c",
         },
         libraries = { "gosched", "pthread" },
         incdirs = { "$(GOSCHED_INCDIR)" },
         libdirs = { "$(GOSCHED_LIBDIR)" },
      },
   },
}
