"""Functions that block their thread or compute for long: under patch_all(blocking="auto") they run in other threads.

None of them cares on which thread it runs.
"""

import functools
import importlib

from . import _gosched
from . import _third_party

#: module -> its functions, and "Class.method" for classes written in Python
KNOWN = {
    # the standard library
    "bz2": ("compress", "decompress"),
    "fcntl": ("flock", "lockf"),
    "getpass": ("getpass",),
    "hashlib": ("pbkdf2_hmac", "scrypt", "file_digest"),
    "lzma": ("compress", "decompress"),
    "os": ("fdatasync", "fsync", "sync"),
    "shutil": ("copyfile", "copytree", "make_archive", "rmtree", "unpack_archive"),
    "tarfile": ("TarFile.extractall", "TarFile.add"),
    "xml.etree.ElementTree": ("parse",),
    "zipfile": ("ZipFile.extractall", "ZipFile.testzip", "ZipFile.write"),
    # passwords
    "argon2.low_level": ("hash_secret", "hash_secret_raw", "verify_secret"),
    "bcrypt": ("checkpw", "hashpw", "kdf"),
    "nacl.pwhash": ("verify",),
    "nacl.pwhash.argon2id": ("kdf", "str", "verify"),
    # databases
    "cx_Oracle": ("connect",),
    "ibm_db": ("connect", "exec_immediate", "execute", "fetch_row", "pconnect"),
    "pymssql": ("connect",),
    "pyodbc": ("connect",),
    # numbers, tables, pictures
    "numpy": ("load", "loadtxt", "save", "savetxt", "savez", "savez_compressed"),
    "numpy.linalg": ("det", "eig", "eigh", "inv", "lstsq", "pinv", "qr", "solve", "svd"),
    "pandas": ("read_csv", "read_excel", "read_feather", "read_json", "read_parquet", "read_xml"),
    "PIL.Image": ("Image.convert", "Image.resize", "Image.rotate", "Image.save", "Image.thumbnail"),
    "pyarrow.csv": ("read_csv", "write_csv"),
    "pyarrow.parquet": ("read_table", "write_table"),
}


def _in_thread(fn):
    @functools.wraps(fn)
    def call(*args, **kwargs):
        return _gosched.blocking(fn, *args, **kwargs)

    call.__gosched_blocking__ = fn
    return call


def _change(names, must, module):
    for name in names:
        *path, last = name.split(".")
        try:
            owner = functools.reduce(getattr, path, module)
            fn = getattr(owner, last)
        except AttributeError:
            if must:
                raise AttributeError("module %r has no %r" % (module.__name__, name)) from None
            continue  # not in this version
        if not hasattr(fn, "__gosched_blocking__"):
            setattr(owner, last, _in_thread(fn))


def add(module, names, must):
    """Has these functions of a module run in other threads: at once, or when the module is imported."""
    _third_party.add(module, functools.partial(_change, names, must))


def add_known():
    for module, names in KNOWN.items():
        add(module, names, must=False)


def add_blocking(module, *names):
    """Has functions run in other threads when goroutines call them, as if each call were gosched.blocking(function,
    ...). module: its name; it may be imported already, or later. names: functions of the module, and "Class.method"
    for classes that are written in Python.

    >>> import gosched
    >>> gosched.patch.add_blocking("textwrap", "dedent")
    >>> import textwrap
    >>> textwrap.dedent("  in another thread")
    'in another thread'
    """
    if not names:
        raise TypeError("add_blocking() wants names of functions")
    if not isinstance(module, str) or not all(isinstance(name, str) for name in names):
        raise TypeError("add_blocking() wants names: of a module, and of its functions")
    add(module, names, must=True)
