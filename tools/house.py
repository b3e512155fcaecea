"""Counts of what repeats in ``src`` where one statement would do, and of names that say nothing.

    python tools/house.py [COMMIT ...]           one column for each commit, the last for the working tree
    python tools/house.py --places COUNT         where the working tree has them, one a line

``COUNT`` is a part of a row's name. Sources are parsed, never imported, so that any commit can be counted. Lists of ops
are guessed: a literal of three or more strings of which nine in ten are names that ``graph/ops`` declares.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import tarfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "src/hexane/"

Tree = Mapping[str, list[ast.AST]]
"""The nodes of each file."""
Place = tuple[str, int, str]

GENERATION = re.compile(r"h1[1-9]|h2\d")
NAMES_GENERATIONS = ("chips/", "isa/", "codegen/targets/")
"""Packages that are tables by generation."""
NAMES_OPS = ("graph/", "chips/operations.py", "formats/", "numerics/rules", "numerics/reductions")
"""The vocabulary, its translations and its arithmetic."""

HARDWARE = {
    16384: "extent, or page of memory",
    65536: "extent",
    65504: "largest fp16",
    32768: "contraction",
    2364: "clock",
    2160: "clock",
    2172: "clock",
    4096: "multiply-accumulates a cycle, or batch",
    127: "queue depth",
}
HARDWARE_STATED = ("chips/", "isa/")

PARTICIPLES = frozenset(
    "found made given known kept wanted held seen taken moved turned asked left read_already done chosen named stored"
    " used written joined cut shown told tried passed said drawn brought".split()
)
MOST_PARAMETERS = 6
QUESTION = re.compile(r"(What|How|Whether|Which|Where)\b")


def working_tree() -> dict[str, str]:
    files = sorted((ROOT / PACKAGE).rglob("*.py"))
    return {path.relative_to(ROOT / PACKAGE).as_posix(): path.read_text("utf-8") for path in files}


def tree_of(commit: str) -> dict[str, str]:
    packed = subprocess.run(["git", "archive", commit, PACKAGE], cwd=ROOT, check=True, capture_output=True).stdout
    sources = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.name.endswith(".py") else None
            if stream is not None:
                sources[member.name.removeprefix(PACKAGE)] = stream.read().decode("utf-8")
    return sources


def parsed(sources: Mapping[str, str]) -> Tree:
    return {file: list(ast.walk(ast.parse(text))) for file, text in sources.items()}


def nodes(tree: Tree, without: tuple[str, ...] = ()) -> Iterator[tuple[str, ast.AST]]:
    for file, inside in tree.items():
        if not without or not file.startswith(without):
            yield from ((file, node) for node in inside)


def is_generation(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(GENERATION.fullmatch(node.value))


def compared_generations(tree: Tree) -> Iterator[Place]:
    """Comparisons of which a side is the name of a generation, or a literal of such names."""
    for file, node in nodes(tree, NAMES_GENERATIONS):
        if isinstance(node, ast.Compare) and any(is_generation(part) for part in ast.walk(node)):
            yield file, node.lineno, ast.unparse(node)


def named_generations(tree: Tree) -> Iterator[Place]:
    """Strings that are the name of a generation."""
    for file, node in nodes(tree, NAMES_GENERATIONS):
        if isinstance(node, ast.Constant) and is_generation(node):
            yield file, node.lineno, repr(node.value)


def op_names(tree: Tree) -> set[str]:
    names: set[str] = set()
    for file, node in nodes(tree):
        if (
            file.startswith("graph/ops/")
            and isinstance(node, ast.Call)
            and ast.unparse(node.func) == "op"
            and node.args
        ):
            names.update(
                part.value
                for part in ast.walk(node.args[0])
                if isinstance(part, ast.Constant) and type(part.value) is str
            )
    return names


def op_lists(tree: Tree) -> Iterator[Place]:
    """Literals of three or more names of ops."""
    known = op_names(tree)
    for file, node in nodes(tree, NAMES_OPS):
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            members: list[ast.expr] = node.elts
        elif isinstance(node, ast.Dict):
            members = [key for key in node.keys if key is not None]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".split") and not node.args:
            text = node.func.value if isinstance(node.func, ast.Attribute) else None
            value = text.value if isinstance(text, ast.Constant) else ""
            members = [ast.Constant(word) for word in value.split()] if isinstance(value, str) else []
        else:
            continue
        words = [member.value for member in members if isinstance(member, ast.Constant)]
        ops = [word for word in words if isinstance(word, str) and word in known]
        if len(ops) >= 3 and len(ops) >= 0.9 * len(members):
            yield file, node.lineno, f"{len(ops)}: {' '.join(ops[:6])}"


def restated(tree: Tree) -> Iterator[Place]:
    """Numbers of the hardware, as literals."""
    for file, node in nodes(tree, HARDWARE_STATED):
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value in HARDWARE:
            yield file, node.lineno, f"{node.value} ({HARDWARE[int(node.value)]}?)"


def same_constants(tree: Tree) -> Iterator[Place]:
    """Module constants of one name and one literal value in several files."""
    places = defaultdict(list)
    for file, inside in tree.items():
        for node in inside[0].body if isinstance(inside[0], ast.Module) else ():
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                for target in node.targets:
                    if isinstance(target, ast.Name) and target.id.isupper():
                        places[target.id, node.value.value].append((file, node.lineno, ast.unparse(node)))
    for found in places.values():
        if len(found) > 1:
            yield from found


def context_variables(tree: Tree) -> Iterator[Place]:
    for file, node in nodes(tree):
        if isinstance(node, ast.Call) and re.match(r"(contextvars\.)?ContextVar\b", ast.unparse(node.func)):
            yield file, node.lineno, ast.unparse(node)


def participles(tree: Tree) -> Iterator[Place]:
    """Assignments to names that are bare participles; parameters too."""
    for file, node in nodes(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id.strip("_") in PARTICIPLES:
            yield file, node.lineno, node.id
        elif isinstance(node, ast.arg) and node.arg in PARTICIPLES:
            yield file, node.lineno, node.arg


def classes_of_one_name(tree: Tree) -> Iterator[Place]:
    """Public classes whose name another module uses too."""
    places = defaultdict(list)
    for file, node in nodes(tree):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            places[node.name].append((file, node.lineno))
    for name, found in sorted(places.items()):
        if len({file for file, _ in found}) > 1:
            yield found[0][0], found[0][1], f"{name}: {', '.join(file for file, _ in found)}"


def unread_fields(tree: Tree) -> Iterator[Place]:
    """Fields of ``chips.Generation``, ``chips.Chip`` and ``isa.Family`` that no code reads as an attribute."""
    read = {node.attr for _, node in nodes(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}
    for file, node in nodes(tree):
        if isinstance(node, ast.ClassDef) and file.startswith(("chips/", "isa/generations")):
            for field in node.body:
                if (
                    isinstance(field, ast.AnnAssign)
                    and isinstance(field.target, ast.Name)
                    and field.target.id not in read
                ):
                    yield file, field.lineno, f"{node.name}.{field.target.id}"


def many_parameters(tree: Tree) -> Iterator[Place]:
    for file, node in nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            count = len([name for name in names if name not in ("self", "cls")])
            if count > MOST_PARAMETERS:
                yield file, node.lineno, f"{node.name}: {count}"


def question_docstrings(tree: Tree) -> Iterator[Place]:
    """Docstrings that begin with what, how, whether, which or where."""
    for file, node in nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and QUESTION.match(text):
                yield file, getattr(node, "lineno", 1), text.splitlines()[0]


def ceilings(tree: Tree) -> Iterator[Place]:
    """``-(-a // b)`` and ``-(a // -b)``: divisions that round up, written out."""
    for file, node in nodes(tree):
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.BinOp):
            inner = node.operand
            sides = (inner.left, inner.right)
            if isinstance(inner.op, ast.FloorDiv) and any(
                isinstance(side, ast.UnaryOp) and isinstance(side.op, ast.USub) for side in sides
            ):
                yield file, node.lineno, ast.unparse(node)


COUNTS: dict[str, Callable[[Tree], Iterator[Place]]] = {
    "comparisons with generation names": compared_generations,
    "generation names outside tables": named_generations,
    "hand-kept lists of ops": op_lists,
    "numbers of the hardware outside chips and isa": restated,
    "constants of one name and value in several files": same_constants,
    "divisions that round up, written out": ceilings,
    "ContextVars": context_variables,
    "names that are participles": participles,
    "public class names in several modules": classes_of_one_name,
    "unread fields of chips and families": unread_fields,
    f"functions of more than {MOST_PARAMETERS} parameters": many_parameters,
    "docstrings that are questions": question_docstrings,
}


def table(columns: Mapping[str, Mapping[str, str]]) -> str:
    """Counts by column as text."""
    rows: dict[str, list[int]] = defaultdict(list)
    for sources in columns.values():
        tree = parsed(sources)
        rows["files"].append(len(sources))
        rows["lines"].append(sum(text.count("\n") for text in sources.values()))
        for name, count in COUNTS.items():
            rows[name].append(sum(1 for _ in count(tree)))
    width = max(map(len, rows))
    head = " " * width + "".join(f"{column[:10]:>12}" for column in columns)
    return "\n".join([head, *(f"{name:{width}}" + "".join(f"{n:>12}" for n in row) for name, row in rows.items())])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("commits", nargs="*", help="commits to count beside the working tree")
    parser.add_argument("--places", metavar="COUNT", help="list the places of one row")
    asked = parser.parse_args()
    if asked.places is None:
        print(table({**{commit: tree_of(commit) for commit in asked.commits}, "now": working_tree()}))
        return 0
    counts = [count for name, count in COUNTS.items() if asked.places in name]
    if len(counts) != 1:
        parser.error(f"{asked.places!r} is no part of just one of: {', '.join(COUNTS)}")
    tree = parsed(working_tree())
    for file, line, text in counts[0](tree):
        print(f"{PACKAGE}{file}:{line}: {text}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
