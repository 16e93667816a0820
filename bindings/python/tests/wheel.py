"""Looks at what a wheel needs: python tests/wheel.py WHEEL, with the Python that it is for.

Its libraries may need libc and gcc's runtime, and give other programs nothing but gs_ functions.
Then it imports the package where hwloc, udev, cargo and the sources can't be seen, if this machine
lets a process have mounts of its own.
"""

import glob
import os
import re
import subprocess
import sys
import tempfile
import zipfile

NEEDED = {"libgosched.so.1", "libc.so.6", "libgcc_s.so.1", "libm.so.6", "libpthread.so.0", "libdl.so.2"}
#: What that of musl may need: auditwheel gives it gcc's runtime, by a name of its own.
NEEDED_OF_MUSL = re.compile(r"libgosched\.so\.1|libc\.musl-\w+\.so\.1|libgcc_s-\w+\.so\.1")
#: Functions that musl has from 1.2.3 or later on. No Alpine with musl 1.2 has an older one than 1.2.2.
NEWER_OF_MUSL = {"pthread_getname_np", "qsort_r", "statx", "preadv2", "pwritev2"}
#: The newest version of glibc whose symbols a wheel may need, that of manylinux_2_28.
NEWEST = (2, 28)
FILES = ["gosched/lib/libgosched.so.1", "gosched/lib/libgosched.so", "gosched/include/gosched.h", "gosched/py.typed"]
PROGRAM = r"""
import os, re, subprocess, sys
sys.path.insert(0, sys.argv[1])
import gosched
assert gosched.__file__.startswith(sys.argv[1]), gosched.__file__
maps = open("/proc/self/maps").read()
assert maps.count("libgosched.so.1") and sys.argv[1] in maps
assert "hwloc" not in maps and "udev" not in maps, maps
assert len(set(re.findall(r"/(libc\.so\.6|libc-2\.\d+\.so|ld-musl-.*|libc\.musl-.*|libc\.so)$", maps, re.M))) == 1, maps
assert len({line.split()[-1] for line in maps.splitlines() if "libgosched" in line}) == 1
print(gosched.__version__)
"""


def tool(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main(wheel):
    with tempfile.TemporaryDirectory() as directory:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(directory)
        for name in FILES:
            assert os.path.exists(os.path.join(directory, name)), "the wheel lacks " + name
        [module] = glob.glob(directory + "/gosched/_gosched.*.so")
        library = directory + "/gosched/lib/libgosched.so.1"
        for path in (module, library):
            needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", tool("readelf", "-d", path)))
            if "musllinux" in os.path.basename(wheel):
                more = {name for name in needed if not NEEDED_OF_MUSL.fullmatch(name)}
                assert not more, "{} needs {}".format(path, more)
                newer = NEWER_OF_MUSL & set(tool("nm", "-D", "--undefined-only", path).split())
                assert not newer, "{} needs {}, which musl 1.2.2 lacks".format(path, newer)
                continue
            more = {name for name in needed - NEEDED if not name.startswith("ld-linux")}
            assert not more, "{} needs {}".format(path, more)
            symbols = re.findall(r"(\S+)@GLIBC_(\d+)\.(\d+)", tool("nm", "-D", "--undefined-only", path))
            newer = ["{}@GLIBC_{}.{}".format(*symbol) for symbol in symbols if tuple(map(int, symbol[1:])) > NEWEST]
            assert symbols and not newer, "{} needs {} (lib/glibc)".format(path, newer or "no symbol of glibc")
        assert re.search(r"\[\$ORIGIN/lib[\]:]", tool("readelf", "-d", module))
        names = {line.split()[-1].split("@")[0] for line in tool("nm", "-D", "--defined-only", library).splitlines()}
        assert not {name for name in names if not name.startswith(("gs_", "GOSCHED_"))}, names

        run = [sys.executable, "-I", "-X", "dev", "-c", PROGRAM, directory]
        env = {"PATH": "/nonexistent"}
        done = subprocess.run(run, capture_output=True, text=True, env=env, cwd="/")
        assert done.returncode == 0, done.stderr
        print("plain:", done.stdout.strip())
        hidden = [path for pattern in ("*hwloc*", "*udev*") for path in glob.glob("/usr/lib/*/lib" + pattern + ".so*")]
        repository = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
        # Neither the sources nor what was built from them, but the wheel and Python itself may be anywhere.
        hide = "".join("mount --bind /dev/null '{}'\n".format(os.path.realpath(path)) for path in hidden)
        built = repository + "/target"
        here = [directory, os.path.abspath(sys.executable), sys.base_prefix]
        hide += "" if any(path.startswith(built) for path in here) else "mount -t tmpfs none '{}'\n".format(built)
        script = hide + 'exec "$@"'
        if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0:
            print("hidden: left out, no namespaces here")
            return
        done = subprocess.run(["unshare", "-rm", "sh", "-ec", script, "sh", *run], capture_output=True, text=True, cwd="/")
        assert done.returncode == 0, done.stderr
        print("hidden: {} ({} files hidden)".format(done.stdout.strip(), len(hidden)))


main(sys.argv[1])
