"""Contents of an engine program that do not follow from the network (docs/reference/engine-h13.md 2.8, 2.13)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hexane import __version__
from hexane.errors import UsageError

ZIN4_OPTIONS = (
    "-t {target}",
    "--fdram-allocator=ffreuse",
    "--fdram-tensor-priority=sizethenliverange",
    "--fl2-allocator=ffreuse",
    "--fl3-allocator=ffreuse",
    "--fl2-cache-mode=resident",
    "--fsignature=ident",
    "--memcache-strategy=",
    "--memcache-size=4194304",
    "--fspatial-split=disabled",
    "--fkernel-rewind=enabled",
    "--Wl-undefined=fvmlib",
    "-i {input_path}",
    "-o {output_path}",
)
"""Lines of the identification text of compiler v4.2.1, in order."""

ZIN4_HEAD = ("ANEC v1", "zin_ane_compiler v4.2.1")

_KERNEL_NAME = re.compile(r"[0-9A-F]{64}")


@dataclass(frozen=True)
class Ident:
    """Identification of a program; none of it changes what the engine computes.

    Parameters
    ----------
    input_path, output_path : the two paths that the compiler records.
    kernel_names : one name of 64 upper-case hex digits per kernel, in task order; where the tuple is too short the
        SHA-256 of the kernel's bytes takes the place.
    target : the ``-t`` option; empty for the generation's own name.
    text : the whole identification text, where it is not the dialect's own.
    """

    input_path: str = "./net.plist"
    output_path: str = "./model.hwx"
    kernel_names: tuple[str, ...] = ()
    target: str = ""
    text: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernel_names", tuple(self.kernel_names))
        for name in self.kernel_names:
            if not _KERNEL_NAME.fullmatch(name):
                raise UsageError(f"kernel name {name!r}", hint="a kernel name has 64 upper-case hex digits")
        for path in (self.input_path, self.output_path, self.target):
            if "\0" in path or "\n" in path:
                raise UsageError(f"{path!r} has a line break or NUL in it", where="ident")

    def written_by_zin4(self, generation: str) -> str:
        """The text of LC 8 as compiler v4.2.1 writes it."""
        if self.text is not None:
            return self.text
        values = {"target": self.target or generation, "input_path": self.input_path, "output_path": self.output_path}
        return "\n".join((*ZIN4_HEAD, *("\t" + option.format(**values) for option in ZIN4_OPTIONS), ""))

    def written_by_hexane(self, generation: str) -> str:
        """The text of LC 8 of a program in today's dialect: it names hexane, the target and the two paths."""
        if self.text is not None:
            return self.text
        options = (f"-t {self.target or generation}", f"-i {self.input_path}", f"-o {self.output_path}")
        return "\n".join((f"hexane v{__version__}", *("\t" + option for option in options), ""))


def parse_ident(text: str, generation: str, kernel_names: tuple[str, ...] = ()) -> Ident:
    """The identification that gives this text; paths and target apart where it is one of the known forms."""
    matches = {key: re.search(rf"^\t-{key} (.*)$", text, re.MULTILINE) for key in "tio"}
    if all(matches.values()):
        target, source, output = (match.group(1) for match in matches.values() if match)
        ident = Ident(source, output, kernel_names, "" if target == generation else target)
        if text in (ident.written_by_zin4(generation), ident.written_by_hexane(generation)):
            return ident
    return Ident(kernel_names=kernel_names, text=text)
