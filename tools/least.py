"""Every command in an environment without extras: it works, or says which extra it needs; never a traceback.

    python tools/least.py FOLDER

Runs with the Python of an environment in which ``pip install .`` was all; works in FOLDER. Standard library only.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

ABSENT = ("onnx", "coremltools", "torch", "matplotlib", "onnxruntime", "PIL", "jinja2")
"""Packages of the extras; one that is here makes the check worthless."""
NETWORK = """program(1.3)
{
    func main<ios18>(tensor<fp16, [1, 64, 64, 64]> x) {
        tensor<fp16, [1, 64, 64, 64]> y = relu(x = x)[name = string("y")];
    } -> (y);
}
"""
WORK = [
    ["compile", "net.mil", "-o", "net.hwx"],
    ["info", "net.hwx"],
    ["disasm", "net.hwx"],
    ["emulate", "net.hwx", "--input", "x=x.npy"],
    ["estimate", "net.mil"],
    ["run", "net.mil", "--random", "1"],
    ["doctor"],
]
"""Commands that need no extra, and must succeed."""
NEEDING = [
    (["compile", "net.onnx", "-o", "other.hwx"], "onnx"),
    (["run", "net.onnx"], "onnx"),
    (["convert", "net.mil", "net2.onnx"], "onnx"),
    (["convert", "net.mil", "net.mlpackage"], "coreml"),
    (["demo"], "report"),
]
"""Commands that need one, and must name it: ``hexane[name]`` or a package to install."""


def hexane(folder: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "hexane", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    present = [name for name in ABSENT if importlib.util.find_spec(name)]
    if present:
        sys.exit(f"not an environment without extras: it has {', '.join(present)}")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net.mil").write_text(NETWORK)
    (folder / "net.onnx").write_bytes(b"\x08\x08")
    header = "{'descr': '<f2', 'fortran_order': False, 'shape': (1, 64, 64, 64), }".ljust(117) + "\n"
    (folder / "x.npy").write_bytes(b"\x93NUMPY\x01\x00\x76\x00" + header.encode() + bytes(2 * 64**3))
    bad = []

    def check(arguments: list[str], fits: bool, code: int, said: str) -> None:
        if not fits or "Traceback" in said:
            bad.append(f"hexane {' '.join(arguments)}: status {code}\n{said[-600:]}")

    code, said = hexane(folder, "--help")
    commands = sorted(set(re.findall(r"^(?:│ |  )([a-z][a-z0-9-]+) ", said, re.M)))
    check(["--help"], code == 0 and len(commands) > 15, code, said)
    for name in commands:
        check([name, "--help"], (result := hexane(folder, name, "--help"))[0] == 0, *result)
        result = hexane(folder, name)  # without arguments: a usage error, or the command's work
        check([name], result[0] in (0, 1, 2), *result)
    for arguments in WORK:
        result = hexane(folder, *arguments)
        check(arguments, result[0] == 0, *result)
    result = hexane(folder, "check", "net.mil")
    check(["check", "net.mil"], result[0] in (0, 1) and "rejected" in result[1], *result)  # 1 is a verdict
    for arguments, extra in NEEDING:
        code, said = hexane(folder, *arguments)
        check(arguments, code != 0 and bool(re.search(rf"pip install.*{extra}", said.replace("\n", " "))), code, said)
    print(json.dumps({"commands": len(commands), "work": len(WORK), "needing an extra": len(NEEDING), "bad": len(bad)}))
    print("\n".join(bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
