"""Set up an environment for the Makefile: ``setup.py FOLDER EXTRA``, with the interpreter that runs this.

Written so that an old Python can read it and say what is wrong. What an interrupted run left is thrown away.
"""

import os
import shutil
import subprocess
import sys

LEAST = (3, 11)
NAMES = ("python3.14", "python3.13", "python3.12", "python3.11")


def stop(text):
    """End with a message."""
    sys.exit("hexane: " + text)


def checked_interpreter():
    """End where this interpreter is too old or cannot make environments."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < LEAST:
        others = [name for name in NAMES if shutil.which(name)]
        remedy = (
            "run `make PYTHON=%s ...`" % others[0] if others else "install one and run `make PYTHON=python3.13 ...`"
        )
        stop("%s is Python %s, and Python 3.11 or newer is needed; %s" % (sys.executable, version, remedy))
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        stop("this Python cannot make environments; on Debian and Ubuntu: apt install python3-venv")


def is_usable(python):
    """Whether an environment's interpreter runs, has pip and is of this version."""
    check = "import sys, pip; print(sys.version_info[:2])"
    try:
        said = subprocess.run([python, "-c", check], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return False
    return said.returncode == 0 and said.stdout.decode().strip() == str(sys.version_info[:2])


def main(folder, extra):
    """Make the environment where it is missing or broken, and install hexane with an extra into it."""
    checked_interpreter()
    python = os.path.join(folder, "Scripts" if os.name == "nt" else "bin", "python")
    unfinished = os.path.join(folder, ".unfinished")
    if os.path.exists(unfinished) or not is_usable(python):
        print("making the environment %s with Python %d.%d" % ((folder,) + sys.version_info[:2]), flush=True)
        if os.path.isdir(folder) and not os.path.islink(folder):
            shutil.rmtree(folder)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    open(unfinished, "w").close()
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-compile", "--progress-bar", "off", "-q"]
    print("installing hexane[%s] into %s" % (extra, folder), flush=True)
    if subprocess.run([*pip, "-e", ".[%s]" % extra]).returncode:
        stop("pip could not install hexane[%s]; its messages say why; the next `make` begins anew" % extra)
    os.unlink(unfinished)
    for stamp in ("demo", "dev") if extra == "dev" else (extra,):
        open(os.path.join(folder, "." + stamp), "w").close()


if __name__ == "__main__":
    main(*sys.argv[1:])
