"""docs/limits.md, from the tables of generations, operations and rules."""

from __future__ import annotations

from hexane.chips import CHIPS, GENERATIONS
from hexane.chips.operations import _TABLE
from hexane.restrictions.advice import INSTEAD
from hexane.restrictions.objections import LIMITS

INTRO = """# Limits

Generated from the tables that `hexane check` runs on (`make docs`). What hexane itself cannot do is at the end.

## What an engine can hold

Evidence: the table inside Apple's compiler (APPLE); for sources see `hexane.chips.generations`.
"""

OURS = """
## What hexane cannot do

* Code is generated, and programs are emulated, for H13 to H18 (A14 to A19, M1 to M5; `docs/parity.md` says how near to
  Apple's). Convolutions, reductions and norms for H18 (A19) follow H17's plans: no program of Apple's shows them.
  Programs of H11, H12 and H19 are read, shown, changed and written back; for M6 `--level graph` computes with its
  arithmetic on the network.
* Nothing of it was run on an engine by this project. Rules carry their evidence (`docs/evidence.md`).
* Long reductions, and what stands on them, rest on named hypotheses (`docs/numerics-open.md`); every report says so.
* Shapes are fixed at load time. Control flow, integer arithmetic and what depends on data run on the host, in float32.
* The host part of a program is hexane's float32 reference, written to be right, not fast.
* Under Linux programs run through the open drivers (M1 and M2 families; written from their source, tried on virtual
  devices only: `docs/devices.md`). M3 and later have no Linux driver: the engine sits behind a coprocessor that nobody
  drives. Under macOS own engine programs cannot be loaded: networks go through Apple's compiler.
* Time and energy are estimated by a model fitted to published measurements (`docs/timing.md`).
"""


def limits_page() -> str:
    """The page as Markdown."""
    lines = [
        INTRO,
        "| | " + " | ".join(g.name.upper() for g in GENERATIONS) + " |",
        "|---|" + "---|" * len(GENERATIONS),
    ]
    chips = [", ".join(c.name for c in CHIPS if c.generation_name == g.name) for g in GENERATIONS]
    lines.append("| chips | " + " | ".join(chips) + " |")
    for label, field in (
        ("width", "max_width"), ("height", "max_height"), ("depth", "max_depth"), ("channels", "max_channels"),
        ("batch", "max_batch"), ("groups", "max_groups"), ("pooling window", "max_pool_window"),
        ("L2, bytes", "l2_bytes"), ("kernel bytes per core", "kernel_bytes_per_core"),
    ):  # fmt: skip
        lines.append(f"| {label} | " + " | ".join(f"{getattr(g, field):,}" for g in GENERATIONS) + " |")
    widths = [str(g.kernel_width_measured or f"{g.kernel_width_fp16[0]} (table)") for g in GENERATIONS]
    lines.append("| kernel width, fp16 | " + " | ".join(widths) + " |")
    lines.append("| kernel height | " + " | ".join(str(g.kernel_height[0]) for g in GENERATIONS) + " |")
    lines.append("| texture engine | " + " | ".join("yes" if g.texture_engine else "no" for g in GENERATIONS) + " |")
    lines += [
        "",
        "## Rules of `hexane check`",
        "",
        "| rule | what it says | what to do | source | evidence |",
        "|---|---|---|---|---|",
    ]
    for rule in LIMITS:
        source = "; otherwise ".join((rule.source, *(report.describe() for report in rule.reports)))
        lines.append(f"| {rule.id} | {rule.says} | {rule.remedy} | {source} | {rule.evidence} |")
    lines += ["", "## Operations of Apple's compiler", "",
              "y: native, b: in another form or by another route, -: refused. For H13 hexane's own compiler decides "
              "([its recipes](recipes.md)).", "",
              "| operations | H13 | H14 | H15 | H16 and later | remark |", "|---|---|---|---|---|---|"]  # fmt: skip
    for ops, letters, remark in _TABLE:
        lines.append(f"| {', '.join(ops.split())} | {' | '.join(letters)} | {remark} |")
    lines += ["", "## What to write instead", "", "| operation | instead |", "|---|---|"]
    lines += [f"| {op} | {text} |" for op, text in INSTEAD.items()]
    return "\n".join(lines) + "\n" + OURS
