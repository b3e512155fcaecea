"""docs/restrictions.md, from the rules themselves."""

from __future__ import annotations

import re

from hexane.chips import Evidence
from hexane.restrictions.every import PLACES, RULES
from hexane.restrictions.fixes import is_fixable
from hexane.restrictions.lowerings import LOWERINGS
from hexane.restrictions.reports import Severity, System
from hexane.restrictions.rule import INTERFACES, MLE5, Rule

INTRO = """# Restrictions on MIL programs

Generated from the rules that `hexane check PROGRAM.mil` and `hexane.check_mil` run (`make docs`). MIL text goes to the
engine's compiler as it is: there is no host part that could take over, and the compiler names neither a line nor an op.
Each rule below is one published restriction, with the reports it rests on.

A verdict is that of the closest reports: those on the same chip and system release, else on the same generation of the
engine, else all. Where they contradict each other the verdict is `disputed`, and the message names both sides. A source
that tried the very point outweighs programs that merely break the rule and were used.

| severity | meaning |
|---|---|
| rejected | compilation fails |
| fails | it compiles, and evaluation returns an error (or spoils the process) |
| silently wrong | it runs, and the numbers are not those of the program |
| slow | it runs and costs more than it has to |
| disputed | sources contradict each other |

The rules of *Numbers* and of *Compilation and placement by Core ML* hold for any network that goes through Core ML:
`hexane check NETWORK` says them of every file that it reads, as remarks on the ops ([errata](errata.md) has a network
for each).

Rules of docs/limits.md (extents, kernel sizes, operations that a chip lacks) are checked with them; their ids begin
with `L-`. Nothing here was tried on an engine by this project.

| source | what it is, where it ran |
|---|---|
| maderix, "issue n" | training on the engine through the private classes; M4, M5 and others; issues by its users |
| dev-erik | fork of it with the dialect of M1 and M2 and a study of the interface; M4 Max |
| Orion | training and inference, arXiv 2603.06728; M4 Max, macOS 15; its list of twenty restrictions |
| Espresso | generators for language models; M3 Max, macOS 15 |
| field guide | programs with weights read at run time; M3 Max, macOS 26.3.1 |
| q38, ane-as | language models; M5 Max, macOS 26 |
| mlxfast, oMLX | quantised weights; M4 Max, macOS 26 |
| rustane | training; M3 Ultra, M2 Max |
| libane, anedvd, iphone, DS4, ANEForge | M3; A18 Pro; A17 Pro; M5; M1 to M6 |
| mil-hwx-compiler | what Apple's bare compiler accepts for a named chip; compiled, not run |
| M6 study, Core ML's plan | which ops Core ML offers to the engine on M4 and M6 |

Orion's list in its order: {orion}.
"""

TITLES = {
    "text": "Text",
    "weights": "Weights",
    "operations": "Operations",
    "ranges": "Ranges",
    "numbers": "Numbers",
    "forms": "Forms of ops",
    "compiling": "Compilation and placement by Core ML",
    "shapes": "Shapes and surfaces",
    "speed": "Speed",
    "runtime": "The runtime",
}
_GAP = re.compile(r"\{(\w+)(?::[^}]*)?\}")


def restrictions_page() -> str:
    """The page as Markdown."""
    orion = sorted((rule for rule in RULES.values() if rule.orion), key=lambda rule: rule.orion or 0)
    lines = [INTRO.format(orion=", ".join(f"{rule.orion} {rule.id}" for rule in orion))]
    for place in PLACES:
        module = place.__name__
        title = TITLES[module.rpartition(".")[2]]
        lines += [f"## {title}", ""]
        if title == "The runtime":
            lines += ["No text shows these; `hexane.mil.Model` keeps them.", ""]
        for rule in RULES.values():
            if rule.module == module:
                lines += _section(rule)
    return "\n".join([*lines, *_lowerings()]).rstrip() + "\n"


LOWERED = """## How Apple's compiler takes ops apart

What `--as apple` computes otherwise than hexane's own program (`hexane.restrictions.lowerings`): the forms of Apple's
compiler whose numbers were published, in ops whose arithmetic is known, on the graph and in the tasks of dialect
`apple` alike. Rows by coremltools are what its passes (9.0, observed by running them) make of a network before Apple's
compiler has it: a Core ML package has them behind it, other files (`.onnx`, torch, StableHLO) get them here. A test
runs both ways, by coremltools and by hexane, and compares the bits (`tests/session/test_converter.py`).

| rule | what | ops | generations | systems | seen by | status |
|---|---|---|---|---|---|---|"""


def _lowerings() -> list[str]:
    lines = [LOWERED]
    for row in LOWERINGS:
        where = ", ".join(row.generations) or "all"
        rule = RULES.get(row.rule)
        status = None if rule is None else System(None).verdict(rule.reports, contested=rule.contested)
        inferred = row.hypothesis or (rule and rule.evidence is Evidence.INFERRED and not row.converter)
        word = "disputed" if status is Severity.DISPUTED else "inferred" if inferred else "confirmed"
        sources = [f"coremltools: {row.converter} ({Evidence.APPLE})"] if row.converter else []
        systems = "by coremltools 9.0" if row.converter else "not stated"
        if rule is not None:
            releases = sorted({release for report in rule.reports for release in report.systems})
            if releases and not row.converter:
                systems = ", ".join(f"macOS {release}" for release in releases)
            sources.append(f"{'; '.join(report.describe() for report in rule.reports)} ({rule.evidence})")
        cells = (row.rule, row.does, ", ".join(row.ops), where, systems, "; ".join(sources), word)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _section(rule: Rule) -> list[str]:
    says = _GAP.sub(lambda match: f"*{match[1]}*", rule.says)
    orion = f", Orion's number {rule.orion}" if rule.orion else ""
    everywhere, core_ml = set(rule.interfaces) == set(INTERFACES), MLE5 in rule.interfaces
    where = "" if everywhere else "; through Core ML" if core_ml else "; raw text only"
    contested = "; disputed in any case" if rule.contested else ""
    fix = " `--fix` does it." if is_fixable(rule.id) else ""
    lines = [
        f"### {rule.id}: {rule.name}",
        "",
        f"{', '.join(map(str, rule.effects))} ({rule.evidence}{orion}{where}{contested})",
        "",
        f"> {says}",
        "",
        f"Remedy: {rule.remedy}.{fix}",
        "",
    ]
    return [*lines, *(f"* {report.describe()}" for report in rule.reports), ""]
