"""A kernel for Jupyter whose cells run as a goroutine, with the standard library patched.

    python -m gosched.ipykernel install --user

The options are those of ``python -m ipykernel install``. The kernel is called ``gosched`` unless ``--name`` says otherwise.
"""

import argparse
import shutil
import sys

_NAME = "gosched"


def install(kernel_spec_manager=None, user=False, kernel_name=_NAME, display_name=None, prefix=None, profile=None, env=None):
    """Installs the kernel's specification, as ipykernel.kernelspec.install does. Returns the directory."""
    from ipykernel import kernelspec
    from jupyter_client.kernelspec import KernelSpecManager

    argv = kernelspec.make_ipkernel_cmd(extra_arguments=["--profile", profile] if profile else None)
    # The debugger wants Python's own modules as files.
    argv[1:1] = ["-Xfrozen_modules=off", "-m", "gosched"]
    changes = {"argv": argv, "display_name": display_name or "Python %d (gosched)" % sys.version_info[0]}
    if env:
        changes["env"] = env
    path = kernelspec.write_kernel_spec(overrides=changes)
    try:
        manager = kernel_spec_manager or KernelSpecManager()
        return manager.install_kernel_spec(path, kernel_name=kernel_name, user=user, prefix=prefix)
    finally:
        shutil.rmtree(path)


def main(argv):
    parser = argparse.ArgumentParser(prog="python -m gosched.ipykernel", description="Jupyter's kernel with goroutines.")
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("install", help="install the kernel's specification").add_argument
    add("--user", action="store_true", help="for the current user, not for all of the system")
    add("--name", default=_NAME, help="the kernel's name (%(default)s)")
    add("--display-name", help="the name that is shown")
    add("--profile", help="an IPython profile to load")
    add("--prefix", help="where to install it, such as in an environment of conda")
    add("--sys-prefix", action="store_const", const=sys.prefix, dest="prefix", help="to install it into %s" % sys.prefix)
    add("--env", action="append", nargs=2, metavar=("NAME", "VALUE"), default=[], help="a variable of the kernel's environment")
    options = parser.parse_args(argv)
    try:
        where = install(
            user=options.user, kernel_name=options.name, display_name=options.display_name, prefix=options.prefix,
            profile=options.profile, env=dict(options.env),
        )
    except PermissionError as error:
        print("%s\nUse --user or --sys-prefix." % error, file=sys.stderr)
        return 1
    print("Installed the kernel %s in %s" % (options.name, where))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
