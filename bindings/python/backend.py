"""What pip calls to build the package: maturin, and two things that it doesn't do.

- A wheel says on which Linux it runs (manylinux, musllinux), where maturin says only that it is for one: what it
  carries needs nothing but libc, of the version that its symbols name, or musl 1.2.
- An archive of the sources has those of libgosched, which are beside this directory, in libgosched/, and those of all
  crates in vendor/: no network is needed to build from it, apart from maturin itself.

python backend.py WHEEL... names wheels anew that maturin has built; python backend.py --sdist DIRECTORY makes an
archive there.
"""

import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import maturin
from maturin import (  # noqa: F401
    build_editable,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

HERE = Path(__file__).resolve().parent
# What the library is built from: build.rs looks for it there.
LIBRARY = ["src", "lib", "include", "tools/header", "tools/gosched-trace", "Cargo.toml", "Cargo.lock", "Makefile", "cbindgen.toml"]
LIBRARY += ["README.md", "LICENSE-MIT", "LICENSE-APACHE"]
# Cargo.toml names it, and cargo refuses a manifest whose files are missing.
LIBRARY += ["tests/programs.rs"]

# For which the crates of the archive are kept: those for other systems are empty.
TARGETS = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"]

# What each Linux with glibc has (PEP 600), and what the wheel carries.
EVERYWHERE = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1", "libgcc_s.so.1"}
OWN = {"libgosched.so.1"}
# musl, as Alpine calls it; auditwheel knows it by this name only.
MUSL = f"libc.musl-{platform.machine()}.so.1"


def _needs(content):
    """The libraries that a shared object needs, and the newest version of glibc whose symbols it uses."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        said = subprocess.run(["readelf", "-dVW", file.name], capture_output=True, text=True, check=True).stdout
    libraries = set(re.findall(r"\(NEEDED\).*\[(.+)\]", said))
    versions = re.findall(r"Name: GLIBC_(\d+)\.(\d+)", said)
    return libraries, max([tuple(map(int, version)) for version in versions], default=(2, 5))


def _platform(wheel):
    """The tag of the wheel's platform, or None and why it has none."""
    newest, is_musl = (2, 17), False
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            if not content.startswith(b"\x7fELF"):
                continue
            libraries, version = _needs(content)
            is_musl = is_musl or MUSL in libraries
            everywhere = {MUSL} if MUSL in libraries else EVERYWHERE
            foreign = {n for n in libraries - everywhere - OWN if not n.startswith("ld-linux")}
            if foreign:
                return None, f"{name} needs {', '.join(sorted(foreign))}"
            newest = max(newest, version)
    if is_musl:
        return f"musllinux_1_2_{platform.machine()}", None
    return "manylinux_%d_%d_%s" % (*newest, platform.machine()), None


def tag(wheel):
    """Names a wheel after the platform on which it runs; gives its path."""
    found, why = _platform(wheel)
    if found is None:
        print(f"backend: {wheel.name} is for this machine only: {why}", file=sys.stderr)
        return wheel
    command = [sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", found, str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"backend: wheel tags failed:\n{done.stderr}")
    return wheel.parent / done.stdout.split()[-1]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = maturin.build_wheel(wheel_directory, config_settings, metadata_directory)
    return tag(Path(wheel_directory) / name).name


def _library():
    """Where the library's sources are: beside this directory, or in it, where this is an archive."""
    for root in (HERE.parent.parent, HERE / "libgosched"):
        if (root / "src" / "capi").is_dir() and (root / "include" / "gosched.h").exists():
            return root
    raise SystemExit(
        "backend: the sources of libgosched are missing: an archive is made in bindings/python of its repository"
    )


def _cargo(*arguments):
    command = [os.environ.get("CARGO", "cargo"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE)
    if done.returncode:
        raise SystemExit(f"backend: {' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


def _vendor(root, to):
    """Copies the crates from which everything is built into a directory, and gives cargo's configuration for it."""
    configuration = _cargo("vendor", "--locked", "--sync", root / "Cargo.toml", to)
    used = set()
    for manifest in (HERE / "Cargo.toml", root / "Cargo.toml"):
        for target in TARGETS:
            said = _cargo("metadata", "--locked", "--format-version=1", "--filter-platform", target, "--manifest-path", manifest)
            used |= {(package["name"], package["version"]) for package in json.loads(said)["packages"]}
    for crate in to.iterdir():
        manifest = (crate / "Cargo.toml").read_text()
        package = manifest[manifest.index("[package]") :]
        name, version = (re.search(rf'^{key} = "(.*)"$', package, re.MULTILINE)[1] for key in ("name", "version"))
        if (name, version) in used:
            continue
        # cargo looks for it, and never builds it.
        checksum = json.loads((crate / ".cargo-checksum.json").read_text())["package"]
        shutil.rmtree(crate)
        (crate / "src").mkdir(parents=True)
        (crate / "src" / "lib.rs").touch()
        (crate / "Cargo.toml").write_text(manifest)
        (crate / ".cargo-checksum.json").write_text(json.dumps({"files": {}, "package": checksum}))
    return configuration.replace(str(to), "vendor")


def build_sdist(sdist_directory, config_settings=None):
    root = _library()
    name = maturin.build_sdist(sdist_directory, config_settings)
    path = Path(sdist_directory) / name
    top = name[: -len(".tar.gz")]
    made = io.BytesIO()
    with tarfile.open(path) as old, tarfile.open(fileobj=made, mode="w:gz") as new:
        for member in old:
            if not member.name.startswith(f"{top}/libgosched/"):
                new.addfile(member, old.extractfile(member) if member.isfile() else None)

        def nobodys(member):
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            return member

        def kept(member):
            return None if "target" in member.name.split("/") else nobodys(member)

        for part in LIBRARY:
            new.add(root / part, f"{top}/libgosched/{part}", filter=kept)
        with tempfile.TemporaryDirectory() as directory:
            crates, config = Path(directory) / "vendor", Path(directory) / "config.toml"
            config.write_text(_vendor(root, crates))
            new.add(crates, f"{top}/vendor", filter=nobodys)
            new.add(config, f"{top}/.cargo/config.toml", filter=nobodys)
    path.write_bytes(made.getvalue())
    return name


if __name__ == "__main__":
    if sys.argv[1:2] == ["--sdist"] and len(sys.argv) == 3:
        directory = os.path.abspath(sys.argv[2])
        os.chdir(HERE)
        print(build_sdist(directory))
    elif sys.argv[1:] and not sys.argv[1].startswith("-"):
        for argument in sys.argv[1:]:
            print(tag(Path(argument)))
    else:
        sys.exit(__doc__)
