"""Restrictions on single operations."""

from __future__ import annotations

from collections.abc import Iterator

from hexane.graph.ir import Value
from hexane.graph.registry import has
from hexane.graph.traits import RESHAPES
from hexane.restrictions.forms import SLICES
from hexane.restrictions.reports import fails, refused, runs, wrong
from hexane.restrictions.rule import Found, hit, rule
from hexane.restrictions.subject import Subject


@rule(
    "O1",
    "return several outputs in place of one joined tensor",
    refused("Orion", "M4 Max", 15),
    refused("q38", "M5 Max", 26),
    refused("iphone", "A17 Pro", 26),
    fails("maderix issue 47", "M1", 26),
    runs("maderix", "M4", 15, note="tap kernels of 4 to 6 tensors"),
    runs("dev-erik", "M4 Max, M1 Pro, M1 Max", 15),
    runs("Espresso", "M3 Max", 15, note="12 and more tensors"),
    runs("ANEForge", "M5"),
    orion=1,
    contested=True,
)
def concat(subject: Subject) -> Found:
    """concat is refused by some compilers; incomplete arguments (T8) explain part of the reports"""
    for statement in subject.calls("concat"):
        yield hit(statement.place)


@rule(
    "O2",
    "write the tanh form: x * 0.5 * (1 + tanh(0.79788456 * (x + 0.044715 * x^3)))",
    refused("Orion", "M4 Max", 15),
    refused("iphone", "A17 Pro", 26),
    runs("ANEForge", "M5"),
    orion=10,
)
def gelu(subject: Subject) -> Found:
    """gelu as one op is refused"""
    for statement in subject.calls("gelu"):
        yield hit(statement.place)


@rule(
    "O3",
    "leave the bias out and add it afterwards",
    refused("Orion", "M4 Max", 15),
    runs("M6 study", "M4", 27, note="coremlc's text for a convolution with bias"),
    orion=13,
)
def conv_bias(subject: Subject) -> Found:
    """{op} takes a bias"""
    for statement in subject.calls("conv"):
        if "bias" in statement.call.arguments:
            yield hit(statement.place_of("bias"), op=statement.type)


@rule(
    "O4",
    "write it out: matmul of query and key, add of the mask, softmax, matmul with value",
    wrong("maderix", "M4", 15, note="inline, file and runtime masks"),
    wrong("Orion", "M4 Max", 15),
    orion=6,
)
def attention_mask(subject: Subject) -> Found:
    """the mask of scaled_dot_product_attention is ignored: the result is the one without it"""
    for statement in subject.calls("scaled_dot_product_attention"):
        if "attn_mask" in statement.call.arguments:
            yield hit(statement.place_of("attn_mask"))


@rule(
    "O5",
    "write pow(x, -0.5), or sqrt and real_div",
    refused("Orion", "M4 Max", 15),
    refused("Orion", "M4", 26),
    refused("Espresso", "M3 Max", 15),
    refused("q38", "M5 Max", 26),
    refused("iphone", "A17 Pro", 26),
    runs("ANEForge", "M5"),
    runs("Core ML's plan", "M4", 27),
    runs("libane", "M3", 26, note="inputs clamped at 7.6e-6"),
)
def rsqrt(subject: Subject) -> Found:
    """rsqrt is refused by some compilers; a left out epsilon (T10) may be why"""
    for statement in subject.calls("rsqrt"):
        yield hit(statement.place)


@rule(
    "O6",
    "multiply by a 1x1 convolution whose weights are 1/C, or reduce over the width",
    refused("Espresso", "M3 Max", 15, note="reduce_mean"),
    fails("q38", "M5 Max", 26, note="mean over 512 channels at width 32"),
    runs("q38", "M5 Max", 26, note="sum over 128 channels at width 6144"),
    runs("Orion", "M4 Max", 15, note="layer norm with reduce_mean"),
    contested=True,
)
def channel_mean(subject: Subject) -> Found:
    """{op} over the channels"""
    for statement in subject.calls("reduce_mean"):
        axes = statement.constant("axes")
        rank = len(statement.shape("x"))
        whole = range(rank) if axes is None else [axis % rank for axis in axes if rank]
        if 1 in whole and rank >= 3:
            yield hit(statement.place, op=statement.type)


@rule(
    "O7",
    "repeat the tensor on the host, or let an element-wise op broadcast it",
    fails("field guide", "M3 Max", 26, note="a right first answer, then 0x1d for every evaluation of the process"),
    refused("q38", "M5 Max", 26),
    runs("ANEForge", "M5"),
    runs("Core ML's plan", "M4", 27),
)
def tile(subject: Subject) -> Found:
    """tile spoils the process: evaluations after it fail with 0x1d"""
    for statement in subject.calls("tile"):
        yield hit(statement.place)


@rule(
    "O8",
    "multiply by 1",
    wrong("q38", "M5 Max", 26, note="NaN where it is the only work"),
    refused("Espresso", "M3 Max", 15, note="before several outputs"),
    runs("Orion", "M4 Max", 15),
    runs("dev-erik", "M4 Max", 15),
    contested=True,
)
def identity(subject: Subject) -> Found:
    """identity"""
    for statement in subject.calls("identity"):
        yield hit(statement.place)


@rule(
    "O9",
    "pad the axis with -65504 up to a power of two",
    refused("Espresso", "M3 Max", 15, note="257"),
    runs("maderix", "M4", 15, note="32000"),
    runs("Orion", "M4 Max", 15, note="32000"),
)
def softmax_extent(subject: Subject) -> Found:
    """softmax over {extent} elements, which is no power of two"""
    for statement in subject.calls("softmax"):
        shape, axis = statement.shape("x"), statement.constant("axis")
        if not shape or axis is None or not -len(shape) <= axis < len(shape):
            continue
        extent = shape[axis]
        if extent & (extent - 1):
            yield hit(statement.place, extent=extent)


@rule("O10", "use slice_by_size", refused("Espresso", "M3 Max", 15), runs("Orion", "M4 Max", 15))
def slice_of_an_input(subject: Subject) -> Found:
    """slice_by_index of the input {name} in a program that also multiplies matrices"""
    if not any(subject.calls("conv", "matmul", "linear", "conv_transpose")):
        return
    for statement in subject.calls("slice_by_index"):
        value = statement.value("x")
        if value is not None and subject.is_input(value):
            yield hit(statement.place, name=value.name)


@rule("O11", "pad the contracted axis with zeros to a multiple of 32", wrong("maderix issue 47", "M1", 26))
def contraction_of_32(subject: Subject) -> Found:
    """matmul sums over {extent} elements, and M1 gives zeros where that is no multiple of 32"""
    if not subject.system.is_on("h13"):
        return
    for statement in subject.calls("matmul"):
        shape = statement.shape("x")
        if len(shape) >= 2:
            extent = shape[-2 if statement.constant("transpose_x") else -1]
            if extent % 32:
                yield hit(statement.place, extent=extent)


@rule("O12", "take int8 and dequantize, or convert on the host", refused("Espresso", "M3 Max", 15))
def cast_of_bytes(subject: Subject) -> Found:
    """a cast of {dtype} to {target} is refused"""
    for statement in subject.calls("cast"):
        value, target = statement.value("x"), statement.constant("dtype")
        if value is not None and value.dtype == "uint8" and target in ("fp16", "fp32"):
            yield hit(statement.place, dtype=value.dtype, target=target)


@rule(
    "O13",
    "return a second result, or join it with another",
    refused("rustane", "M3 Ultra", 26),
    runs("maderix", "M4", 15, note="backward of the classifier"),
)
def lone_matmul_reshape(subject: Subject) -> Found:
    """a matmul followed by a reshape is the only work of a program with one output"""
    work = [s for s in subject.statements if not s.type.startswith("constexpr_")]
    if len(subject.outputs) != 1 or not work or not has(work[-1].op, RESHAPES):
        return
    products = [s for s in work if s.type == "matmul"]
    source = work[-1].value("x")
    only_views = all(has(s.op, RESHAPES) or s.type in ("transpose", "matmul") for s in work)
    if only_views and len(products) == 1 and source is not None and source.op is products[0].op:
        yield hit(products[0].place)


@rule(
    "O14",
    "shape the operands as [1, heads, S, D]",
    refused("iphone", "A17 Pro", 26),
    runs("iphone", "A17 Pro", 26, note="[1, heads, S, D]"),
    contested=True,
)
def matmul_of_rows(subject: Subject) -> Found:
    """matmul of {shape}, whose third extent is 1"""
    for statement in subject.calls("matmul"):
        for param in ("x", "y"):
            shape = statement.shape(param)
            if len(shape) == 4 and shape[0] == 1 and shape[2] == 1 and shape[1] > 1 and statement.is_computed(param):
                yield hit(statement.place_of(param), shape=list(shape))
                break


@rule(
    "O16",
    "write x / (1 + exp(-x)) where 1e-3 is too much: 7e-4 relative",
    wrong("q38", "M5 Max", 26),
    wrong("mlxfast", "M4 Max", 26, note="1e-3 to 4e-2 relative"),
    runs("maderix", "M4", 15, note="trains with it"),
    runs("dev-erik", "M4 Max", 15, note="trains with it"),
    contested=True,
)
def sigmoid_table(subject: Subject) -> Found:
    """{op} comes from a table: relative errors of 1e-3 to 4e-2"""
    if subject.system.is_from("h16"):
        for statement in subject.calls("silu", "sigmoid"):
            yield hit(statement.place, op=statement.type)
            return


@rule(
    "O17",
    "write it with reshape, concat, mul, reduce_sum and slices",
    refused("q38", "M5 Max", 26),
    runs("ANEForge", "M5", note="stack and l2_norm"),
    runs("Core ML's plan", "M4", 27, note="gather by constant indices"),
)
def op_refused_raw(subject: Subject) -> Found:
    """{op} is refused in raw text"""
    for statement in subject.calls("stack", "l2_norm", "gather"):
        yield hit(statement.place, op=statement.type)


@rule(
    "O18",
    "give both operands one shape, and name the inputs in byte order (S7)",
    fails("field guide", "M3 Max", 26),
    runs("field guide", "M3 Max", 26, note="the same shapes with names in byte order"),
    contested=True,
)
def batch_broadcast(subject: Subject) -> Found:
    """mul broadcasts along the batch axis"""
    for statement in subject.calls("mul"):
        x, y = statement.shape("x"), statement.shape("y")
        if len(x) == len(y) == 4 and x[0] != y[0] and statement.is_computed("x") and statement.is_computed("y"):
            yield hit(statement.place)


@rule(
    "O19",
    "rotate by a constant permutation matrix: one matmul",
    refused("rustane", "M3 Ultra", 26),
    refused("rustane", "M2 Max", 26),
    runs("maderix", "M4", 15),
    runs("maderix", "M5 Max", 26),
)
def rotation_on_width(subject: Subject) -> Found:
    """slices of the innermost axis are joined again along it, as rotary embeddings do"""
    for statement in subject.calls("concat"):
        axis, values = statement.constant("axis"), statement.op.inputs.get("values", ())
        if not isinstance(values, tuple) or not values or axis is None:
            continue
        rank = values[0].rank
        if axis % rank == rank - 1 and all(_is_slice_of_width(value) for value in values):
            yield hit(statement.place)


def _is_slice_of_width(value: Value) -> bool:
    """True where element-wise work on a slice of the innermost axis gives the value."""
    for source in _sources(value):
        if source.op is not None and source.op.type in SLICES:
            x = source.op.inputs.get("x")
            if isinstance(x, Value) and x.rank == source.rank and x.shape[-1:] != source.shape[-1:]:
                return True
    return False


def _sources(value: Value, depth: int = 4) -> Iterator[Value]:
    """The value and what it is computed from by element-wise ops, a few steps up."""
    yield value
    if depth and value.op is not None and value.op.type in ("mul", "add", "sub", "reshape"):
        for operand in value.op.operands():
            if not operand.is_constant:
                yield from _sources(operand, depth - 1)


@rule(
    "R5",
    "give every weight record its own payload position (W3), or use one program per function",
    wrong("mlxfast", "M4 Max", 26, note="only main dispatches"),
    runs("q38", "M5 Max", 26, note="all dispatch"),
    runs("oMLX", "M4 Max", 26),
    contested=True,
)
def several_functions(subject: Subject) -> Found:
    """the program has {count} functions, and some in-memory models dispatch only main"""
    if len(subject.tree.functions) > 1:
        yield hit(subject.tree.functions[1].place, count=len(subject.tree.functions))
