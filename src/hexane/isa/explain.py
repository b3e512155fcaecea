"""Meaning of a register's value, in words for the disassembler's comments. One small rule each.

Source: docs/reference/engine-h13.md 4.

A rule takes the register's fields by name and returns a phrase, or an empty one where there is nothing to add.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import pairwise

from hexane.counts import counted
from hexane.isa.kinds import CONDITION, ELEMENT, NE_NONLINEAR, NE_OP, PE_KIND, PE_NONLINEAR, PE_OP, REDUCE
from hexane.isa.schema import LOG2, UNKNOWN, Register, Unit, Values

Fields = Mapping[str, int]

ABSOLUTE = "code of an absolute value"
"""Beside the fields of PE.Cfg: what Cond is then, which differs between generations."""


def explain(name: str, register: Register, words: list[int]) -> str:
    """A comment for one line of assembly text: what the values come to, or at least what the register is."""
    parts = [register.meaning.partition(";")[0]] if register.meaning else []
    if register.evidence is UNKNOWN and not register.meaning:
        parts.append("meaning unknown")
    rule = _RULES.get(name)
    if rule and len(words) == 1:
        fields = {row.name: words[0] >> row.low & row.limit for row in register.fields}
        kinds = (row.kind for row in register.fields if row.name == "Cond")
        fields[ABSOLUTE] = next((kind.value("abs") or 0 for kind in kinds if isinstance(kind, Values)), 0)
        phrase = rule(defaultdict(int, fields))  # a generation may not have every field that a rule reads
        return phrase or ", ".join(parts)
    for row in register.fields:
        values = [word >> row.low & row.limit for word in words]
        if isinstance(row.kind, Unit) and row.kind.scale > 1:
            parts.append(_bytes([value * row.kind.scale for value in values]))
        elif row.kind is LOG2 and values[0]:
            parts.append(f"{row.meaning} {1 << values[0]}")
    return ", ".join(parts)


def _bytes(values: list[int]) -> str:
    if len(set(values)) == 1:
        return f"{values[0]} bytes"
    steps = {after - before for before, after in pairwise(values)}
    if len(steps) > 1:
        return f"up to {max(values)} bytes"
    return f"{values[0]} to {values[-1]} bytes in steps of {steps.pop()}"


def _channels(f: Fields) -> str:
    channels = (("source 1", "RBase0", "RBE0"), ("source 2", "RBase1", "RBE1"), ("result", "WBase", "WBE"))
    return ", ".join(f"{what} is channel {f[base]}" for what, base, enable in channels if f[enable])


def _kernel_channel(f: Fields) -> str:
    return f"kernel is channel {f['KBase0']}" if f["KBE0"] else ""


def _group(f: Fields) -> str:
    ends = {(1, 1): "alone in its L2 group", (1, 0): "first of an L2 group", (0, 1): "last of an L2 group"}
    parts = [ends.get((f["SPL"], f["TSR"]), "inside an L2 group")]
    parts += ["reads memory"] * f["SrcLoc"] + ["writes memory"] * f["DstLoc"]
    return ", ".join(parts)


def _format_list(f: Fields) -> str:
    second = f" and {ELEMENT.name(f['Src2InFmt'])}" if f["Src2InFmt"] else ""
    return f"{ELEMENT.name(f['InFmt']) or '?'}{second} in, {ELEMENT.name(f['OutFmt']) or '?'} out"


def _window(f: Fields) -> str:
    text = f"{f['Kh']} x {f['Kw']} window, stride {f['Sy']} x {f['Sx']}"
    return text + (f", {f['Py']} rows above and {f['Px']} columns left are padding" if f["Px"] or f["Py"] else "")


def _groups(f: Fields) -> str:
    groups = f["NumGroups"]
    text = "one group" if groups == 1 else f"{groups} groups"
    if not f["UnicastEn"]:
        return f"{text}, every output sees every input"
    how = "multiplied" if f["ElemMultMode"] else "combined"
    return f"{text}, every output sees {f['UnicastCin']} of the inputs" + (f", {how}" if f["UnicastCin"] > 1 else "")


def _kind(f: Fields) -> str:
    if f["PEKind"]:
        return f"planar engine, {PE_KIND.name(f['PEKind']) or '?'}"
    cores = 1 << f["ActiveNE"]
    most = f["ShMax"]
    patch = f", patches of up to {128 >> most} x {1 << most} pixels" if most <= 4 else ""
    return f"{counted(cores, 'core')}{patch}"


def _planar(f: Fields) -> str:
    first = "-source 1" if f["FirstSrc"] == 1 else "source 1"
    second = {2: "source 2", 3: "-source 2"}.get(f["SecSrc"])
    text = f"{first} {PE_OP.name(f['OpMode']) or '?'} {second}" if second else first
    parts = [text + (" squared" if not second and f["OpMode"] == 4 else "")]
    parts += ["absolute value" if f["Cond"] == f[ABSOLUTE] else CONDITION.name(f["Cond"]) or "?"] if f["Cond"] else []
    parts += [f"reductions take the {REDUCE.name(f['ReduceMode'])}"] if f["ReduceMode"] else []
    parts += [PE_NONLINEAR.name(f["NonlinearMode"]) or "?"] if f["NonlinearMode"] else []
    return ", ".join([*parts, *["relu"] * f["ReluEn"]])


def _multiply(f: Fields) -> str:
    parts = [NE_OP.name(f["OpMode"]) or "?"]
    parts += ["kernel of ones"] if f["KernelMode"] and f["OpMode"] != 4 else []
    parts += ["bias"] * f["BiasMode"]
    return ", then ".join([*parts, *([NE_NONLINEAR.name(f["NonlinearMode"]) or "?"] if f["NonlinearMode"] else [])])


def _source(f: Fields) -> str:
    ways = ("already in L2", "by DMA, kept whole", "by DMA, streamed", "strips of the task before")
    follows = {1: ", right behind the NE task before", 2: ", right behind the PE task before"}
    return ways[f["SourceType"]] + follows.get(f["Dependent"], "")


def _result(f: Fields) -> str:
    return ("stays in L2", "kept and sent by DMA", "streamed out by DMA", "strips for the task behind")[f["ResultType"]]


def _element(f: Fields) -> str:
    formats = {(1, 2): "fp16", (0, 0): "8-bit", (0, 1): "int8", (3, 3): "fp32"}
    kind = formats.get((f["FmtMode"], f["MemFmt"]), "")
    wide = f.get("Interleave", 0)
    return ", ".join(filter(None, [kind, f"{wide} channels side by side" if wide > 1 else ""]))


_RULES: dict[str, Callable[[Fields], str]] = {
    "h13 Header[6]": _group,
    "h13 Header[8]": _channels,
    "h13 Header[9]": _kernel_channel,
    "Common.ChCfg": _format_list,
    "Common.ConvCfg": _window,
    "Common.GroupConvCfg": _groups,
    "Common.Cfg": _kind,
    "PE.Cfg": _planar,
    "NE.MACCfg": _multiply,
    "L2.SourceCfg": _source,
    "L2.ResultCfg": _result,
    "TileDMASrc.Fmt": _element,
    "TileDMADst.Fmt": _element,
}
