"""Objections that keep an op off an engine: one function per limit (``rule.limit``); docs/limits.md is made of them.

A limit returns None where it has nothing against the op, else the words that fill its docstring. Limits are those of a
generation (docs/reference/limits.md 1, 3; docs/reference/generations.md 1); a limit never speaks of the code generator,
which has reasons of its own.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from hexane.chips import Chip, Evidence
from hexane.chips.operations import BRIDGED, NO_SOURCE, REFUSED, UNKNOWN, support
from hexane.graph import Op, Value
from hexane.graph.compressed import changes_along_inputs, is_fixed, kernel_of
from hexane.graph.ops.onnx_foreign import CONTROL, FOREIGN, kind_of, reason_on_host
from hexane.graph.registry import has
from hexane.graph.traits import CONVOLVES, POOLS
from hexane.graph.types import FLOATS, INTS, STRINGS, TensorType
from hexane.graph.whole import inner
from hexane.restrictions.advice import instead_of, instead_of_foreign
from hexane.restrictions.bounds import LARGEST_HALF, LEAST_INFINITY, beyond_half
from hexane.restrictions.reports import PublishedReport, wrong
from hexane.restrictions.rule import RULES, Words, limit


@dataclass(frozen=True)
class Objection:
    """A limit that an op breaks, in words; ``limit`` and ``found`` are what is allowed and what is there."""

    rule: str
    reason: str
    advice: str
    evidence: Evidence
    source: str = ""
    limit: float | int | str = ""
    found: str = ""
    reports: tuple[PublishedReport, ...] = ()


@dataclass(frozen=True)
class OpPlacement:
    """Place of an op by Apple's compiler: "engine", "host" or "unknown", why, and what would bring it on."""

    where: str
    reason: str
    evidence: Evidence
    advice: str = ""
    rules: tuple[str, ...] = ()


_MEASURES = ("value", "size", "axis", "rank", "dtype", "width", "height", "groups", "length", "window", "k", "factor",
             "channels", "mode", "param")  # fmt: skip
"""Words of a rule that say what is there."""


def objections(op: Op, chip: Chip) -> list[Objection]:
    """Every limit that speaks against the op on the chip, in the order of this file."""
    answers = []
    for entry in LIMITS:
        words = None if entry.op_test is None else entry.op_test(op, chip)
        if words is None:
            continue
        evidence = words.pop("evidence", entry.evidence)
        there = ", ".join(f"{name} {word}" for name, word in words.items() if name in _MEASURES)
        words = {"chip": chip.name, "op": kind_of(op), **words}
        reason, advice = entry.says.format(**words), entry.remedy.format(**words)
        allowed = words.get("limit", f"no {kind_of(op)}")
        here = there or kind_of(op)
        answers.append(Objection(entry.id, reason, advice, evidence, entry.source, allowed, here, entry.reports))
    return answers


def placed_by_apple(op: Op, chip: Chip) -> OpPlacement:
    """Place by Apple's compiler of an op of a network as it was given; every command asks here.

    The operations of the compiler and the limits of the generation decide (docs/reference/limits.md).
    """
    if op.inside is not None:
        return placed_by_apple(inner(op), chip)
    if op.type == FOREIGN:
        return OpPlacement("host", reason_on_host(op), Evidence.INFERRED, instead_of_foreign(kind_of(op)))
    row = support(op.type, chip)
    if row.verdict == UNKNOWN:
        return OpPlacement("unknown", f"no source says what Apple's compiler places on {chip.name}", row.evidence)
    against = objections(op, chip)
    whole = [objection for objection in against if objection.rule.endswith("operation")]
    types = [objection for objection in against if objection.rule in ("element_type", "float_type", "text")]
    against = whole or against  # of an op that the compiler lacks, types and extents are beside the point
    if against:
        helps = types if whole else against  # written with other ops it would have the same types
        advice = "; ".join(dict.fromkeys(objection.advice for objection in helps or against))
        first = against[0]
        return OpPlacement("host", first.reason, first.evidence, advice, tuple(o.rule for o in against))
    if row.verdict == BRIDGED:
        form = row.remark or "taken apart into other ops"
        return OpPlacement("engine", f"Apple's compiler has {op.type} in another form: {form}", row.evidence)
    remark = f" ({row.remark})" if row.remark else ""
    reason = f"{chip.name} has {op.type}{remark}, and its shapes and types are within the limits"
    return OpPlacement("engine", reason, row.evidence)


def _tensors(op: Op) -> list[Value]:
    """Computed tensors that go in and come out."""
    values = [v for v in (*op.operands(), *op.outputs) if not v.is_constant]
    return [v for v in values if isinstance(v.type, TensorType)]


def _constant(op: Op, param: str) -> bool:
    operand = op.inputs.get(param)
    return operand is None or isinstance(operand, tuple) or is_fixed(operand)


@limit(
    "write it as ops without control flow (unroll the loop, compute both branches and select), or keep it on the host",
    "docs/reference/limits.md 2.2",
)
def control_flow(op: Op, chip: Chip) -> Words:
    """{op} is control flow that depends on data, and the engine runs a fixed list of tasks"""
    return {} if _is_control(op) else None


def _is_control(op: Op) -> bool:
    return bool(op.blocks) or kind_of(op) in CONTROL


@limit("fix the shape when the model is exported or loaded (--shape NAME=1x3x224x224)", "docs/reference/limits.md 9")
def static_shape(op: Op, chip: Chip) -> Words:
    """the shape of {value} depends on data, and every shape in an engine program is fixed"""
    for value in _tensors(op):
        if None in value.shape:
            return {"value": value.name, "limit": "fixed extents"}
    return None


_POSITIONS = ("indices", "begin", "end", "stride", "size")
"""Operands that say where to read: another rule speaks of them."""


@limit("leave text to the host, or make numbers of it before the network", "docs/reference/limits.md 1.3")
def text(op: Op, chip: Chip) -> Words:
    """{value} is text, and the engine computes with numbers"""
    inputs = [v for v in op.operands() if not v.is_constant and isinstance(v.type, TensorType)]
    return next(({"value": value.name} for value in inputs if value.dtype in STRINGS), None)


@limit(
    "leave work on indices to the host, or end the engine part before it (fp16 holds every integer up to 2048 only)",
    "docs/reference/limits.md 1.3",
)
def element_type(op: Op, chip: Chip) -> Words:
    """{value} is {dtype}, and the engine computes in fp16 (8-bit integers and booleans at the edges)"""
    return _of_type(op, INTS - {"int8", "uint8"})


@limit("convert it to fp16", "docs/reference/limits.md 1.3")
def float_type(op: Op, chip: Chip) -> Words:
    """{value} is {dtype}, and the engine computes in fp16"""
    return _of_type(op, FLOATS - {"fp16", "fp32"})


def _of_type(op: Op, dtypes: Set[str]) -> Words:
    positions = [v for name in _POSITIONS if isinstance(v := op.inputs.get(name), Value)]
    for value in _tensors(op):
        if value.dtype in dtypes and value not in positions:
            return {"value": value.name, "dtype": value.dtype, "limit": "fp16"}
    return None


@limit(
    "use -10000 (or -30000) where a mask hides something, and numbers within 65504",
    "docs/reference/limits.md 1.3",
    reports=(wrong("cactus 734", "M4 Pro", None, note="masks of -1e9: NaN and infinities", tested=True),),
)
def float32_constant(op: Op, chip: Chip) -> Words:
    """a constant of {op} is {value}, beyond {limit}: coremltools leaves the op in float32, which no engine computes"""
    for value in op.operands():
        number = beyond_half(value)
        if number is not None and abs(number) < LEAST_INFINITY:
            return {"value": f"{number:g}", "limit": LARGEST_HALF}
    return None


@limit(
    "reshape: merge neighbouring axes that the op treats alike, so that at most five are left",
    "docs/reference/limits.md 1.1",
)
def rank(op: Op, chip: Chip) -> Words:
    """{value} has rank {rank}, and the engine has five axes"""
    for value in _tensors(op):
        if value.rank > 5:
            return {"value": value.name, "rank": value.rank, "limit": 5}
    return None


@limit(
    "keep x in a state (read_state, slice_update, write_state), or write x * (1 - mask) + update * mask",
    "docs/reference/mil.md 5.8",
    Evidence.INFERRED,
)
def update_of_no_state(op: Op, chip: Chip) -> Words:
    """{op} changes {value}, which is no state, and no source says that the engine does that"""
    x = op.inputs.get("x")
    if op.type != "slice_update" or not isinstance(x, Value):
        return None
    return None if is_of_state(x) else {"value": x.name, "limit": "states"}


def is_of_state(x: Value) -> bool:
    """True where a value is what a state holds, perhaps with parts written by ``slice_update``."""
    while x.op is not None and x.op.type == "slice_update":
        x = x.op.arg("x")
    return x.op is not None and x.op.type in ("read_state", "coreml_update_state")


@limit("leave out the empty tensor", "docs/reference/limits.md 1.2")
def no_elements(op: Op, chip: Chip) -> Words:
    """{value} has no elements, and an axis of size 0 is refused"""
    for value in _tensors(op):
        if 0 in value.shape:
            return {"value": value.name, "limit": 1, "size": 0}
    return None


@limit(
    "split the tensor along that axis (slice, compute the parts, concat), or reshape so that the axis is shorter",
    "docs/reference/limits.md 1.2",
)
def extent(op: Op, chip: Chip) -> Words:
    """{value} has an extent of {size} along {axis}, and {chip} takes {limit}"""
    for value in _tensors(op):
        axes = "NCDHW" if value.rank == 5 else "NCHW"[-value.rank :] if value.rank else ""
        beyond = chip.generation.beyond({axis: size for axis, size in zip(axes, value.shape) if size is not None})
        if beyond is not None:
            axis, size, limit = beyond
            return {"value": value.name, "size": size, "axis": axis, "limit": limit}
    return None


@limit("{instead}", "docs/reference/limits.md 2.2")
def operation(op: Op, chip: Chip) -> Words:
    """Apple's compiler has no {op} for {chip}{remark}"""
    row = support(op.type, chip)
    if row.verdict != REFUSED or row.remark == NO_SOURCE or _is_control(op):
        return None
    remark = f" ({row.remark})" if row.remark else ""
    return {"remark": remark, "instead": instead_of(op.type), "evidence": row.evidence}


@limit("{instead}", "docs/reference/limits.md 2.2", Evidence.INFERRED)
def unlisted_operation(op: Op, chip: Chip) -> Words:
    """no source says that Apple's compiler has {op}"""
    refused = support(op.type, chip)
    return None if refused.remark != NO_SOURCE or _is_control(op) else {"instead": instead_of(op.type)}


@limit(
    "split the kernel into parts of at most {limit} taps whose results are added, or use a smaller one with dilation",
    "docs/reference/limits.md 3",
)
def kernel_width(op: Op, chip: Chip) -> Words:
    """the kernel is {width} wide, and {chip} takes {limit}"""
    if not has(op, CONVOLVES) or "weight" not in op.inputs:
        return None
    shape = op.arg("weight").shape
    width = shape[-1] if shape else 1
    limit = chip.generation.kernel_width_measured or chip.generation.kernel_width_fp16[0]
    return {"width": width, "limit": limit} if width > limit else None


@limit("split the kernel into parts of at most {limit} rows whose results are added", "docs/reference/limits.md 3")
def kernel_height(op: Op, chip: Chip) -> Words:
    """the kernel is {height} high, and {chip} takes {limit}"""
    if not has(op, CONVOLVES) or "weight" not in op.inputs or op.arg("weight").rank < 4:
        return None
    height, limit = op.arg("weight").shape[-2], chip.generation.kernel_height[0]
    return {"height": height, "limit": limit} if height > limit else None


@limit(
    "write it over two axes: convolutions, one per depth tap, whose results are added; pools over two axes, then over "
    "the third",
    "docs/reference/limits.md 2.2, 14",
)
def three_dimensional(op: Op, chip: Chip) -> Words:
    """a {op} over three spatial axes has no path on {chip}"""
    if not has(op, CONVOLVES) and op.type not in ("avg_pool", "max_pool"):
        return None
    rank = op.arg("x").rank
    return None if rank < 5 or chip.generation.feature_level >= 7 else {"rank": rank, "limit": 4}


@limit("use no more than {limit} groups", "docs/reference/limits.md 1.1")
def group_count(op: Op, chip: Chip) -> Words:
    """{groups} groups, and {chip} counts up to {limit}"""
    if not has(op, CONVOLVES):
        return None
    groups, limit = op.arg("groups") or 1, chip.generation.max_groups
    return {"groups": groups, "limit": limit} if groups > limit else None


@limit("make the weight a constant", "docs/reference/limits.md 2.2, 10.3")
def runtime_weight(op: Op, chip: Chip) -> Words:
    """the weight of the convolution is computed, and {chip} takes constants only"""
    if not has(op, CONVOLVES) or _constant(op, "weight"):
        return None
    return None if chip.generation.feature_level >= 7 else {"param": "weight", "limit": "constants"}


@limit("write it as matmul, which takes two computed operands", "docs/reference/mil.md 5.3")
def computed_matrix(op: Op, chip: Chip) -> Words:
    """the weight of linear is computed, and MIL's linear takes constants only"""
    return {"param": "weight", "limit": "constants"} if op.type == "linear" and not _constant(op, "weight") else None


@limit(
    "use one table or scale for each output or group of outputs, or plain fp16 weights",
    "docs/reference/compressed.md 2",
    reports=(
        wrong("coreai-models 279", "A18 Pro", 27, note="8-bit blocks: cosine 0.367, palette 0.9975", tested=True),
        wrong("coreai-torch 93", "M5 Pro", 27, note="1,921 of 4,096 values, relative error 0.45", tested=True),
    ),
)
def weights_along_inputs(op: Op, chip: Chip) -> Words:
    """the tables or scales of the weights change along the inputs, and Apple's compiler takes those of outputs only"""
    kernel = kernel_of(op)
    along = kernel is not None and changes_along_inputs(*kernel)
    return {"axis": "inputs", "limit": "one per output"} if along else None


@limit("split the sum over K: slice both operands, multiply the parts, add the products", "docs/reference/limits.md 3")
def contraction(op: Op, chip: Chip) -> Words:
    """the product sums {length} terms, and {chip} takes {limit}"""
    if op.type == "linear":
        length = op.arg("x").shape[-1]
    elif op.type == "matmul":
        x = op.arg("x")
        length = x.shape[-2 if op.arg("transpose_x") and x.rank > 1 else -1]
    else:
        return None
    limit = chip.generation.max_contraction
    return {"length": length, "limit": limit} if length is not None and length > limit else None


@limit(
    "pool twice with smaller windows, or use reduce_mean or reduce_max when the window is the whole map",
    "docs/reference/limits.md 3",
)
def pool_window(op: Op, chip: Chip) -> Words:
    """a pooling window of {window}, and {chip} takes {limit} per axis"""
    if not has(op, POOLS):
        return None
    sizes, limit = op.arg("kernel_sizes") or (), chip.generation.max_pool_window
    return {"window": "x".join(map(str, sizes)), "limit": limit} if any(s > limit for s in sizes) else None


@limit("split the axis and compare the winners of the parts", "docs/reference/limits.md 3")
def sorted_axis(op: Op, chip: Chip) -> Words:
    """{op} over {length} elements, and the limit is 2048"""
    if op.type not in ("reduce_argmax", "reduce_argmin", "topk", "argsort"):
        return None
    x = op.arg("x")
    axis = op.arg("axis")
    length = x.shape[-1 if axis is None or not isinstance(axis, int) else axis]
    return {"length": length, "limit": 2048} if length is not None and length > 2048 else None


@limit("ask for 5 results and drop what is too much", "docs/reference/limits.md 10.2", Evidence.SILICON)
def topk_count(op: Op, chip: Chip) -> Words:
    """a topk of k = {k}, and k = 3 and 4 always fail"""
    k = op.arg("k") if op.type == "topk" else None
    return {"k": k, "limit": "k other than 3 and 4"} if k in (3, 4) else None


@limit("make the indices constant, or multiply by a one-hot matrix", "docs/reference/limits.md 2.2")
def runtime_indices(op: Op, chip: Chip) -> Words:
    """the {param} of {op} are computed, and the engine wants them constant"""
    for param in ("indices", "begin", "end", "stride", "size"):
        slices = op.type.startswith("slice_by") and param != "indices"
        if (slices or op.type.startswith("gather")) and not _constant(op, param):
            return {"param": param, "limit": "constants"}
    return None


@limit("use a factor of 2, 3, 4 or 8, or two such ops behind one another", "docs/reference/limits.md 10.2")
def shuffle_factor(op: Op, chip: Chip) -> Words:
    """a factor of {factor}, and {op} takes 2, 3, 4 and 8"""
    names = {
        "pixel_shuffle": "upscale_factor",
        "pixel_unshuffle": "downscale_factor",
        "depth_to_space": "block_size",
        "space_to_depth": "block_size",
    }
    if op.type not in names:
        return None
    factor = op.arg(names[op.type])
    return {"factor": factor, "limit": "2, 3, 4, 8"} if factor not in (1, 2, 3, 4, 8) else None


@limit("use fewer channels per normalisation, or a layer norm", "docs/reference/limits.md 10.2")
def response_norm_channels(op: Op, chip: Chip) -> Words:
    """a local response norm over {channels} channels, and {chip} takes {limit}"""
    limit = chip.generation.max_norm_channels
    if op.type != "local_response_norm" or limit is None:
        return None
    channels = op.arg("x").shape[1]
    return {"channels": channels, "limit": limit} if channels is not None and channels > limit else None


@limit("pad with constants, or build the border from slices and a concat", "docs/reference/limits.md 2.2")
def pad_mode(op: Op, chip: Chip) -> Words:
    """a pad of mode {mode} needs the texture engine, which {chip} has not"""
    if op.type != "pad" or chip.generation.texture_engine:
        return None
    mode = op.arg("mode")
    return {"mode": mode, "limit": "constant"} if mode != "constant" else None


LIMITS = tuple(rule for rule in RULES.values() if rule.op_test is not None)
"""The limits of docs/limits.md, in its order."""
