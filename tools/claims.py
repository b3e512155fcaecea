"""Recomputes numbers that README and docs state, from the data in the repository: ``make claims``.

    python tools/claims.py [--all] [--json]

Prints claim, stated, found. Exit status 0: all are equal, 1: some differ. ``--all`` adds those that take minutes.
A claim is a record: the page, a pattern whose groups are what it states, and a function that gives the same anew.
Errors of whole networks may differ by a tenth: their yardstick is float32, whose last bits are the processor's.
"""

from __future__ import annotations

import argparse
import json
import math
import operator
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests"), str(ROOT / "tools")]

NUMBER = r"([\d.]+)"


@dataclass(frozen=True)
class Claim:
    """``pattern``: a regular expression whose groups are the stated values; ``find`` gives as many strings."""

    name: str
    page: str
    pattern: str
    find: Callable[[], Iterable[object]]
    slow: bool = False
    agrees: Callable[[tuple[str, ...], tuple[str, ...]], bool] = operator.eq

    def stated(self) -> tuple[str, ...]:
        """What the page says; empty where it says nothing of the kind."""
        match = re.search(self.pattern, (ROOT / self.page).read_text(), re.MULTILINE)
        return tuple(" ".join(group.split()) for group in match.groups()) if match else ()

    def found(self) -> tuple[str, ...]:
        return tuple(" ".join(str(value).split()) for value in self.find())


def cells(*columns: str) -> str:
    """The pattern of a line of a table; a column is text as it stands, or a pattern in brackets."""
    return "^\\| " + r" \| ".join(c if c.startswith("(") else re.escape(c) for c in columns)


@cache
def parity() -> dict[str, Any]:
    from parity import DIFFERENT, Result

    return {target: Result(target) for target in DIFFERENT}


def parity_of(target: str) -> tuple[int, int, int]:
    result = parity()[target]
    return result.same, result.programs, result.tasks


@cache
def timing() -> dict[str, dict[str, Any]]:
    """The errors of the shipped constants and of the roofline over the rows of ``calibration.csv``, and beside it."""
    from facts import fact_folder
    from hexane.timing.calibrate import errors, published_samples, read_rows, samples_of
    from hexane.timing.measured import predict_case, values
    from hexane.timing.roofline import roofline_us

    path = fact_folder() / "perf" / "calibration.csv"
    samples, extra = samples_of(read_rows(path)), published_samples(path.parent)
    return {
        "fitted": errors(samples, [math.log(predict_case(s.case, values(s.case.chip)) / s.us) for s in samples]),
        "plain roofline": errors(samples, [math.log(roofline_us(s.case) / s.us) for s in samples]),
        "the same, fitted": errors(extra, [math.log(predict_case(s.case, values(s.case.chip)) / s.us) for s in extra]),
    }


def timing_row(name: str) -> list[str]:
    e = timing()[name]
    return [str(e["rows"]), *(f"{e[key]:.3f}" for key in ("mean_factor", "median", "p90", "cells_mean"))]


def timing_group(by: str, key: str) -> list[str]:
    rows, fitted = timing()["fitted"][by][key]
    return [str(rows), f"{fitted:.3f}", f"{timing()['plain roofline'][by][key][1]:.3f}"]


def times_row(name: str) -> list[str]:
    """A line of the table of other people's networks: rows, mean factor, median, share within the range."""
    import times

    e = times.errors(times.others() if name == "other networks" else times.calibration())
    return [str(e["rows"]), f"{e['mean_factor']:.3f}", f"{e['median']:.3f}", f"{e['inside']:.1%}"]


@cache
def language() -> dict[str, Any]:
    from facts import fact_folder
    from hexane.chips.measured import _data
    from hexane.timing.language_fit import fit_language

    return fit_language(fact_folder() / "perf" / "llm.csv", _data())


def rates() -> list[str]:
    """What the page says of decoding: rows, mean factor, mean factor with a model left out, and the table."""
    facts = language()
    return [str(facts["rows"]), f"{facts['mean_factor']:.3f}", f"{facts['mean_factor_left_out']:.3f}"]


def programs_of(generation: str) -> list[int]:
    """The decoded programs of a generation, of the first two sets."""
    from codegen.programs import every_program

    return [len(every_program(generation))]


def fates() -> list[int]:
    """Programs with a recorded fate, those that ran, those that failed, those that sources dispute.

    A program that ran and is refused, or failed and meets no rule, is not counted.
    """
    from facts import fact_folder
    from restrictions.test_corpus import ACCEPTED, FAILING, WRONG, findings, records

    folder = fact_folder()
    corpus = [(record["status"], findings(folder, record)) for record in records(folder)]
    ran = [s for s, found in corpus if s in ACCEPTED and not any(f.severity in ("rejected", "fails") for f in found)]
    failed = [s for s, found in corpus if s in (*WRONG, *FAILING) and found]
    disputed = [s for s, found in corpus if s == "disputed" and found]
    return [len(corpus), len(ran), len(failed), len(disputed)]


def whole_page(function: Callable[[], str], page: str) -> list[str]:
    """Whether a page is what its generator writes."""
    lines = zip(function().splitlines(), (ROOT / page).read_text().splitlines())
    differ = [number for number, (a, b) in enumerate(lines, 1) if a != b]
    return [] if differ else [(ROOT / page).read_text().splitlines()[0]]


def timing_page() -> str:
    from hexane.timing.docs import page

    return page()


@cache
def tests_pass(*paths: str) -> None:
    """AssertionError with the end of what they print where one fails; run once for all claims that rest on them."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "slow or not slow", *paths], cwd=ROOT, capture_output=True
    )
    if done.returncode:
        raise AssertionError(done.stdout.decode()[-500:])


def by_tests(said: Iterable[object], *paths: str) -> Iterable[object]:
    """What is said holds if tests pass, all of them."""
    tests_pass(*paths)
    return said


def calibrated() -> list[str]:
    """Every constant fitted anew, every series left out once; minutes."""
    from facts import fact_folder
    from hexane.timing.calibrate import calibrate

    with tempfile.TemporaryDirectory() as folder:
        result = calibrate(fact_folder() / "perf" / "calibration.csv", Path(folder) / "measured.json", workers=2)
    e = result["provenance"]["cross_validated"]
    return [str(e["rows"]), *(f"{e[key]:.3f}" for key in ("mean_factor", "median", "p90", "cells_mean"))]


class Missing(Exception):
    """What a claim is recomputed from is not on this machine."""


@cache
def network_lines(name: str) -> tuple[str, str, str]:
    """A network's lines in three tables of docs/networks.md: placement, predicted times, verdict."""
    from network_list import NETWORKS
    from networks import lines_of

    try:
        return lines_of(next(network for network in NETWORKS if network.name == name))
    except (FileNotFoundError, ImportError) as error:
        raise Missing(str(error)) from None


def network_line(name: str, number: int) -> list[str]:
    """One of them."""
    return [network_lines(name)[number]]


def verdicts_agree(stated: tuple[str, ...], found: tuple[str, ...]) -> bool:
    """True where two lines of the table of verdicts say the same but for the last bits of float32.

    Network, verdict, output and decisions are equal; both errors and that of the layer which adds most differ by no
    more than a tenth or 0.02 points; the order of layers that add the same is left alone.
    """
    ours, theirs = ([cell.strip() for cell in line.strip("| ").split(" |")] for line in (stated[0], found[0]))
    errors = [[re.findall(r"([\d.]+) %", cells[i])[:1] for i in (3, 4, 6)] for cells in (ours, theirs)]
    same = [cells[:3] + cells[5:6] for cells in (ours, theirs)]
    pairs = [(float(a[0]), float(b[0])) for a, b in zip(*errors) if a and b]
    shape = [list(map(bool, row)) for row in errors]
    return same[0] == same[1] and shape[0] == shape[1] and all(abs(a - b) <= max(a / 10, 0.0201) for a, b in pairs)


def networks() -> list[str]:
    """The names of all networks of the page."""
    from network_list import NETWORKS

    return [network.name for network in NETWORKS]


def network_begins() -> tuple[str, ...]:
    """What follows a network's name in each of these lines."""
    from networks import BEGINS

    return BEGINS


def training_rows() -> Iterator[tuple[str, str, str]]:
    """Shape, chip and way of renewing weights of the rows of docs/training.md."""
    page = (ROOT / "docs" / "training.md").read_text()
    for shape, rows in re.findall(r"<!-- shapes: (.*?) -->(.*?)<!-- end -->", page, re.DOTALL):
        for chip, way in re.findall(r"^\| ([^|]+) \| (\w+) \|", rows, re.MULTILINE):
            yield shape, chip, way


def training_row(shape: str, chip: str, way: str) -> list[str]:
    """A line of docs/training.md on a published shape; a minute of a processor, and 2 GB."""
    from training_shapes import line_of

    return [line_of(shape, chip, way)]


def characters(weights: str) -> list[str]:
    """Perplexity of the character model of examples/manual on the engine and in float32, and equal first choices."""
    sys.path.insert(0, str(ROOT / "examples"))
    import manual

    engine, exact, same = manual.perplexity(weights, 24)
    return [f"{engine:.4f}", f"{exact:.4f}", f"{same:.1%}"]


def demo() -> list[str]:
    """What the demonstration prints of its two networks; needs the extra ``demo`` and the networks."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "hexane", "demo", "--json", "-o", folder]
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    found: list[object] = []
    for part in json.loads(said)["parts"]:
        program, rows = part["run"]["program"], part["run"]["agreement"]
        found += [part["text"], f"{program['tasks']} tasks"]
        found += [f"{row['largest']:.3g}, cosine {row['cosine']:.6f}" for row in rows]
    return found


def claims() -> Iterator[Claim]:
    """Every claim, in the order of the pages."""
    from codegen.parity import DIFFERENT
    from hexane.chips.measured import provenance

    error = r"[\s\S]*?largest error (.*) against"
    text = r"^found +(.*)$[\s\S]*?^engine +(.*tasks)" + error
    yield Claim("demo: what it prints", "README.md", text + r"[\s\S]*?" + text + 2 * error, demo, slow=True)
    for name in networks():
        for number, (table, begin) in enumerate(zip(("placement", "times", "verdict"), network_begins())):
            line = rf"^(\| {re.escape(name)} \| {begin}.*)$"
            agrees = verdicts_agree if table == "verdict" else operator.eq
            yield Claim(f"{name}: {table}", "docs/networks.md", line, partial(network_line, name, number), True, agrees)
    for target in DIFFERENT:
        pattern = cells(target, "[^|]*", NUMBER, NUMBER, NUMBER).replace(re.escape("[^|]*"), "[^|]*")
        yield Claim(f"parity, {target}: same, programs, tasks", "docs/parity.md", pattern, partial(parity_of, target))
    page = "docs/timing-error.md"
    yield Claim("timing: page", page, r"\A(.*)$", partial(whole_page, timing_page, page))
    for name in ("fitted", "plain roofline", "the same, fitted"):
        pattern = cells(name, *[NUMBER] * 5)
        yield Claim(f"timing: {name}", page, pattern, partial(timing_row, name))
    for by in ("by_chip", "by_kind"):
        for key in provenance()["fitted"][by]:
            pattern = cells(key, NUMBER, "[^|]*", NUMBER, NUMBER).replace(re.escape("[^|]*"), "[^|]*") + r" \|$"
            yield Claim(f"timing, {key}: rows, fitted, roofline", page, pattern, partial(timing_group, by, key))
    for name in ("other networks", "calibration"):
        pattern = cells(name, *[NUMBER] * 3, r"([\d.]+%)")
        yield Claim(f"timing, {name}: rows, mean, median, inside", "docs/timing.md", pattern, partial(times_row, name))
    yield Claim("timing: held out", page, cells("held out", *[NUMBER] * 5), calibrated, slow=True)
    pattern = rf"{NUMBER} rows, mean factor {NUMBER}\s+fitted, {NUMBER} with every row of a model left out"
    yield Claim("language models: rows, mean factor, left out", page, pattern, rates)
    for shape, chip, name in training_rows():
        pattern = rf"<!-- shapes: {shape} -->[\s\S]*?^(\| {chip} \| {name} \|.*)$"
        yield Claim(f"training, {shape}, {chip}, {name}", "docs/training.md", pattern,
                    partial(training_row, shape, chip, {"constants": "patch"}.get(name, name)), slow=True)  # fmt: skip
    for weights in ("fp16", "int8", "palette6", "palette4"):
        yield Claim(f"character model, {weights}: perplexity, float32's, same", "docs/language-models.md",
                    cells(weights, NUMBER, NUMBER, r"([\d.]+%)"), partial(characters, weights), slow=True)  # fmt: skip
    for generation in ("h13", "h14", "h15", "h16", "h16g"):
        pattern = cells(generation.upper(), NUMBER, NUMBER)
        yield Claim(f"emulator, {generation}: programs", "docs/emulator.md", cells(generation.upper(), NUMBER),
                    partial(programs_of, generation))  # fmt: skip
        right = partial(by_tests, [*programs_of(generation) * 2],
                        "tests/emulator/test_apple_programs.py")  # fmt: skip
        yield Claim(f"emulator, {generation}: programs, right", "docs/emulator.md", pattern, right, slow=True)
    yield Claim("MIL corpus: programs, ran, failed, disputed", "docs/mil.md",
                r"^(\d+) programs with a recorded fate: none of the (\d+) that ran[^;]*; each of the (\d+) "
                r"that[^;]*; of the (\d+) that sources dispute", fates)  # fmt: skip
    yield Claim("arithmetic: measured rows and checksums", "docs/numerics-open.md",
                r"(every row of `dev.csv` and every checksum of `dev_oracles.json`)",
                partial(by_tests, ["every row of `dev.csv` and every checksum of `dev_oracles.json`"],
                        "tests/arithmetic/test_dev_rows.py", "tests/arithmetic/test_oracles.py"),
                slow=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="also what takes minutes")
    parser.add_argument("--json", action="store_true", help="print JSON (schema hexane-claims/1)")
    args = parser.parse_args()
    rows = []
    for claim in claims():
        if claim.slow and not args.all:
            continue
        stated = claim.stated()
        try:
            found = claim.found()
        except Missing as error:
            print(f"not here   {claim.name:50}  {error}", file=sys.stderr, flush=True)
            continue
        except Exception as error:  # what cannot be recomputed is no reason to leave the others out
            found = (f"{type(error).__name__}: {error}",)
        rows.append((claim.name, claim.page, stated, found, bool(stated) and claim.agrees(stated, found)))
        if not args.json:
            mark = "equal" if rows[-1][-1] else "DIFFERENT"
            print(f"{mark:9}  {claim.name:50}  {', '.join(stated) or '-'}  |  {', '.join(found) or '-'}", flush=True)
    good = sum(row[-1] for row in rows)
    if args.json:
        keys = ("claim", "page", "stated", "found", "equal")
        print(json.dumps({"schema": "hexane-claims/1", "claims": [dict(zip(keys, row)) for row in rows]}))
    else:
        print(f"{good} of {len(rows)} claims are equal")
    sys.exit(good != len(rows))


if __name__ == "__main__":
    main()
