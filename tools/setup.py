# ruff: noqa: UP031
"""Set up an environment for the Makefile: ``setup.py FOLDER EXTRA``, with the interpreter that runs this.

Written so that an old Python can read it and say what is wrong. An environment that an interrupted run left, or that
belongs to another Python, is made anew; a folder that this did not make is never removed.
"""

import os
import shutil
import subprocess
import sys

LEAST = (3, 11)
NAMES = ("python3.14", "python3.13", "python3.12", "python3.11")
STAMPS = (".unfinished", ".demo", ".dev")
"""Files that this leaves in an environment."""


def stop(text):
    """End with a message."""
    sys.exit("hexane: " + text)


def runs(name):
    """Whether there is an interpreter of a name, and not just a shim that says which others there are."""
    path = shutil.which(name)
    return path is not None and subprocess.call([path, "-c", ""], stderr=subprocess.DEVNULL) == 0


def check_interpreter():
    """End where this interpreter is too old or cannot make environments."""
    if sys.version_info < LEAST:
        newer = [name for name in NAMES if runs(name)]
        remedy = "run `make PYTHON=%s`" % newer[0] if newer else "install one, then `make PYTHON=python3.13`"
        found = sys.executable, ".".join(map(str, sys.version_info[:3]))
        stop("%s is Python %s, and 3.11 or newer is needed; %s" % (found + (remedy,)))
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        stop("this Python cannot make environments; on Debian and Ubuntu: apt install python3-venv")


def version_of(python):
    """The version of an environment's interpreter that runs and has pip, else None."""
    check = "import sys, pip; print(*sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", check], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return None
    return tuple(map(int, done.stdout.split())) if done.returncode == 0 else None


def environment(folder, python):
    """Make the environment where there is none that can be used."""
    own = any(os.path.exists(os.path.join(folder, stamp)) for stamp in STAMPS)
    version = version_of(python)
    whole = not os.path.exists(os.path.join(folder, STAMPS[0]))
    if whole and version and (version == sys.version_info[:2] or (not own and version >= LEAST)):
        return
    if os.path.isdir(folder) and os.listdir(folder) and not own:
        stop(
            "%s has no Python 3.11 or newer with pip, and was not made here; remove it, or use `make VENV=...`" % folder
        )
    print("making the environment %s with Python %d.%d" % ((folder,) + sys.version_info[:2]), flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    open(os.path.join(folder, STAMPS[0]), "w").close()
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)


def main(folder, extra):
    """Install hexane with an extra into an environment."""
    check_interpreter()
    python = os.path.join(folder, "Scripts" if os.name == "nt" else "bin", "python")
    environment(folder, python)
    unfinished = os.path.join(folder, STAMPS[0])
    open(unfinished, "w").close()
    print("installing hexane[%s] into %s" % (extra, folder), flush=True)
    # Modules are compiled when they are first imported: most of them never are.
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-compile", "-q"]
    if subprocess.run(pip + ["-e", ".[%s]" % extra]).returncode:
        stop("pip could not install hexane[%s], its messages say why; the next `make` begins anew" % extra)
    os.unlink(unfinished)
    for stamp in STAMPS[1:] if extra == "dev" else STAMPS[1:2]:
        open(os.path.join(folder, stamp), "w").close()


if __name__ == "__main__":
    main(*sys.argv[1:])
