"""Assembly text (``.hxs``): every bit of a task stream in words that a person can read and change.

A file is a list of lines; ``;`` starts a comment.

::

    .generation h13

    task relu:                          ; #0 NE bypass relu, 1x1x77 -> 1x1x77, 157 words
        Header[0]      EON=1
        Common.InDim   Win=77 Hin=1     ; input map
        NE.MACCfg      OpMode=bypass KernelMode=1 NonlinearMode=relu Bit20=1
        NE.PostScale   PostScale=fp16(1.0)
        L2.ResultBase  Addr=bytes(0xa0)
        KernelDMASrc.CoeffDMAConfig[0..15]  CacheHint=noalloc
        KernelDMASrc.CoeffBaseAddr[0..3]    Addr=[0, 9, 18, 27]
        zero PE.Cfg, PE.BiasScale, PE.PreScale, PE.FinalScale

* A *register line* names a register that the task writes, and its fields; a field that is not named is 0, and
  ``Block.Register = value`` gives the whole word. ``[0..3]`` stands for several elements of an array, and a list gives
  each its own value. ``zero`` lists registers written 0. A register that is not named is not written. Header words
  always exist; one that is not named is 0, and the size in the header word 0 of H14 and later is filled in.
* A *value* is an expression of numbers, names of the field's values (``bypass``), ``fp16(x)``, ``fp32(x)``, ``f19(x)``,
  ``bytes(n)`` (n bytes in a field that counts 16 or 64), ``offset(label)`` and ``words(label)`` of a task.
* *Record lines* ``dense``, ``scatter`` and ``address SLOT`` fix which record the registers below them share. Without
  any, a task gets the records of a new task (docs/reference/engine-h13.md 4.1); with them, every register stands under
  one.
* *Directives* of this language: ``.generation NAME``, ``.org OFFSET`` (where the next task starts, when not by
  rule), ``.frame W W W W`` (words in front of the first task) and ``.tail N`` (zero bytes behind the last). A caller
  adds its own: ``assemble(text, directives={"surface": take})`` calls ``take(directive)`` at each ``.surface`` line,
  with arguments and options as Python values (see ``Directive``). ``format_directive`` writes such a line.

Errors are ``SyntaxProblem`` with line, column and the line with a caret.
"""

from hexane.isa.assembly.assembler import Assembly, assemble
from hexane.isa.assembly.printer import disassemble, format_directive
from hexane.isa.assembly.syntax import Directive

__all__ = ["Assembly", "Directive", "assemble", "disassemble", "format_directive"]
