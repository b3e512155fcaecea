"""Networks that Apple's compiler takes minutes for, refuses, or leaves off the engine without a word, as published."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hexane.chips import Evidence
from hexane.graph.compressed import is_fixed
from hexane.graph.ir import Op, Value
from hexane.graph.macs import macs_of
from hexane.graph.registry import has
from hexane.graph.traits import ELEMENTWISE, MOVES, PICKS
from hexane.graph.types import StateType, TensorType
from hexane.restrictions.objections import is_of_state
from hexane.restrictions.reports import PublishedReport, Severity, fails, refused, runs, slow
from hexane.restrictions.rule import Found, core_ml_rule, hit
from hexane.restrictions.subject import Statement, Subject, unconverted

compiler_rule = partial(core_ml_rule, evidence=Evidence.APPLE)
"""Declare a rule that Apple's compiler or runtime said itself."""
PLANE = 5568 * 5568
MOST_WEIGHT_BYTES, MUCH_WEIGHT_BYTES = 2_147_483_648, 1_000_000_000
CPU_MACS_PER_US, ENGINE_MACS_PER_US = 364_500, 6_000_000
LEAST_SAVING_US = 250
"""Of docs/reference/limits.md: BNNS and engine on M1's table, and twice the price of a segment."""


@compiler_rule(
    "C1",
    "cut the picture into tiles",
    refused("coremltools 2247", "", None, note="a picture of 5568x5568: ANECCompile() FAILED"),
)
def large_plane(subject: Subject) -> Found:
    """{value} has planes of {found}, and 5568x5568 is published not to compile"""
    for statement in subject.statements:
        for value in (*statement.op.operands(), *statement.op.outputs):
            if isinstance(value.type, TensorType) and value.rank >= 4 and None not in value.shape:
                height, width = value.shape[-2:]
                if height * width >= PLANE:
                    yield hit(statement.place, value=value.name, limit="5568x5568", found=f"{height}x{width}")
                    return


@compiler_rule(
    "C2",
    "cut the network into several of less than 1 GB, or store weights in 4 or 8 bits",
    refused("coremltools 2593", "", None, note="2,525,476,480 bytes exceed the maximum of 2,147,483,648"),
)
def many_weights(subject: Subject) -> Found:
    """the weights take {found} bytes{known}; the engine's compiler takes {limit} in a file"""
    total, heaviest, most, counted = 0, None, -1, set[object]()
    shrink = 1 if unconverted(subject.graph) is None else 2
    for statement in subject.statements:
        here = 0
        for value in statement.op.operands():
            key = value.constant and (value.constant.source or id(value.constant))
            if isinstance(value.type, TensorType) and key is not None and key not in counted:
                counted.add(key)
                here += value.type.nbytes // (shrink if value.dtype == "fp32" else 1)
        total += here
        if here > most:
            heaviest, most = statement, here
    if heaviest is None or total <= MUCH_WEIGHT_BYTES:
        return
    refuses = total > MOST_WEIGHT_BYTES
    remark = "" if refuses else ", and models of 1.0 to 1.4 GB are published to leave the engine"
    reports = None if refuses else _LEAVES
    yield hit(heaviest.place, reports=reports, limit=MOST_WEIGHT_BYTES, found=int(total), known=remark)


_LEAVES = (
    slow("VivaDicta 68", "", None, note="Whisper large leaves the engine, medium runs there"),
    runs("coremltools 2593", "", None, note="up to 2 GiB by its message"),
)


BATCH_IN_MESSAGE = 4096


@compiler_rule(
    "C15",
    "cut the batch into parts of 4,096, or make it another axis",
    refused("Apple's message, 2023", "", None, note="anec.add: N of 1 to 4096"),
    runs("table of Apple's compiler", "", None, note="N of 1 to 65536 from H13 on"),
    runs("executorch 7907", "A16", None, note="anec.transpose, N of 1 to 65536 by its message"),
    contested=True,
)
def batch_of_additions(subject: Subject) -> Found:
    """{op} over a batch of {found}: a message of Apple's compiler names {limit}, its table 65536"""
    for statement in subject.calls("add", "sub"):
        shape = statement.op.outputs[0].shape
        if len(shape) >= 4 and shape[0] is not None and shape[0] > BATCH_IN_MESSAGE:
            yield hit(statement.place, op=statement.type, limit=BATCH_IN_MESSAGE, found=shape[0])


@compiler_rule(
    "C3",
    "give the input one shape, or a package for every shape",
    slow("coremltools 2370", "", None, note="a range runs on the engine with its default shape alone"),
    slow("coremltools 835", "", None, note="A12X: only the default shape"),
)
def flexible_input(subject: Subject) -> Found:
    """an input may have other shapes ({found}): the engine takes {limit}"""
    allowed = subject.graph.metadata.get("shapes", {})
    first = next(iter(subject.statements), None)
    for name, shapes in allowed.items():
        if first is not None and "range" in shapes:
            yield hit(first.place, limit="the default shape", found=f"{name}: a range")
        norms = [s for s in subject.statements if s.type in ("layer_norm", "instance_norm")]
        if "enumerated" in shapes and norms:
            reason = f"{name}: {len(shapes['enumerated'])} shapes, and {norms[0].type}"
            yield hit(norms[0].place, reports=_ENUMERATED, limit="a fixed shape beside norms", found=reason)


_ENUMERATED = (slow("coremltools 1909", "", None, note="175 ms; 20 ms without layer_norm or with a range"),)


@compiler_rule(
    "C4",
    "give it more work: fuse it with its neighbours, or batch calls",
    slow("M6 study", "M4", 27, note="isolated ops are placed on the CPU: a segment costs 0.125 ms at either edge"),
    slow("Vx 436", "", None, note="a matmul of 4x4x4 is eligible and runs on the CPU"),
)
def too_little_work(subject: Subject) -> Found:
    """the whole network saves {found} us on the engine, and Core ML asks for {limit}: it is likely to run on the CPU"""
    macs = sum(_macs(statement) for statement in subject.statements)
    saved = macs / CPU_MACS_PER_US - macs / ENGINE_MACS_PER_US
    first = next(iter(subject.statements), None)
    if first is not None and saved < LEAST_SAVING_US and not any(s.op.blocks for s in subject.statements):
        yield hit(first.place, limit=LEAST_SAVING_US, found=round(saved, 1))


@compiler_rule(
    "C5",
    "join element-wise ops into fewer, or cut the network",
    slow("M6 study", "M6", 27, note="512 element-wise layers take 179 s to compile, growing with n^3.5"),
)
def long_chain(subject: Subject) -> Found:
    """{found} element-wise ops in a row: compilation time grows with the power 3.5 of their number"""
    depth: dict[object, int] = {}
    for statement in subject.statements:
        if not has(statement.op, ELEMENTWISE):
            continue
        below = max((depth.get(v, 0) for v in statement.op.operands()), default=0)
        for value in statement.op.outputs:
            depth[value] = below + 1
        if below + 1 == 512:
            yield hit(statement.place, limit=511, found=512)


@compiler_rule(
    "C6",
    "two convolutions with smaller kernels",
    refused("M6 study", "M4, M6", 27, note="16x16 needs more than 8 GiB of memory to compile, 17x17 is refused"),
)
def square_kernel(subject: Subject) -> Found:
    """a kernel of {found} takes more than 8 GiB of memory to compile"""
    for statement in subject.calls("conv"):
        shape = statement.shape("weight")
        if len(shape) == 4 and min(shape[-2:]) >= 16:
            yield hit(statement.place, limit="15x15", found=f"{shape[-2]}x{shape[-1]}")


@compiler_rule(
    "C7",
    "a batch of 1, or matmul in place of the convolution",
    refused("ane-guide", "", None, note="batch 1 runs; with 2 the compiler service crashes"),
)
def batched_runtime_weight(subject: Subject) -> Found:
    """a convolution with computed weights over a batch of {found}: the compiler service crashes"""
    for statement in subject.calls("conv"):
        shape, weight = statement.shape("x"), statement.value("weight")
        if weight is not None and not is_fixed(weight) and shape and shape[0] is not None and shape[0] > 1:
            yield hit(statement.place, limit=1, found=shape[0])


@compiler_rule(
    "C8",
    "two transposed convolutions whose strides multiply to it",
    refused("coremltools 2450", "", None, note="kernel and stride 16: the program is not made"),
)
def transposed_stride(subject: Subject) -> Found:
    """conv_transpose with a stride of {found}; 16 is published to be refused, {limit} run"""
    for statement in subject.calls("conv_transpose"):
        strides = statement.constant("strides") or ()
        if any(stride >= 16 for stride in strides):
            yield hit(statement.place, limit=8, found=max(strides))


@core_ml_rule(
    "C9",
    "pad the state's innermost extent to a multiple of 32",
    fails("coremltools 2631", "M4", 15, note="270 fails, 256 runs"),
)
def state_of_odd_width(subject: Subject) -> Found:
    """a state is {found} wide, and the engine wants a multiple of {limit}"""
    for statement in subject.calls("read_state"):
        value = statement.op.inputs.get("input")
        type_ = None if value is None or isinstance(value, tuple) else value.type
        shape = statement.op.outputs[0].shape
        if isinstance(type_, StateType) and shape and shape[-1] and shape[-1] % 32:
            yield hit(statement.place, limit=32, found=shape[-1])


@core_ml_rule(
    "C13",
    "keep all of it in one state and cut that up, or pass the second as an input and an output",
    fails("CoreML-LLM, LFM2", "", 26, note="0x1d at predict; one state runs, nine forms of two do not"),
)
def several_states(subject: Subject) -> Found:
    """the program has {found} states and writes to them: it compiles, and {limit} is published to run"""
    states = subject.graph.main.states
    touching = list(subject.calls("read_state", "write_state", "coreml_update_state"))
    if len(states) > 1 and any(statement.type != "read_state" for statement in touching):
        yield hit(touching[0].place, limit="one state", found=len(states))


@core_ml_rule(
    "C14",
    "write the new row at its place: slice_update, or K * (1 - m) + k * m with a mask",
    fails("CoreML-LLM, D5", "", 15, note="-14 at load, a sliding cache beside a second state; padding did not help"),
)
def shifted_state(subject: Subject) -> Found:
    """{op} writes a state's own elements {found} places further along axis {axis}, joined with what is new"""
    for statement in subject.calls("write_state", "coreml_update_state"):
        names = ("state", "value") if statement.type == "coreml_update_state" else ("input", "data")
        state, value = map(statement.value, names)
        for join in _joins(value):
            axis = int(join.arg("axis")) % join.outputs[0].rank
            shifts, offset = [], 0
            for part in join.inputs["values"]:
                begin = _begins_in(state, part, axis)
                shifts += [begin - offset] if begin not in (None, offset) else []
                offset += part.shape[axis] or 0
            if shifts:
                place = next(other.place for other in subject.statements if other.op is join)
                yield hit(place, op=statement.type, limit="none", found=shifts[0], axis=axis)
                break


_IN_NO_DECODER = (
    "16 April 2026: said to be on the engine, in no decoder of theirs; the one with 7,294 of 7,310 ops there has its "
    "caches as inputs and outputs"
)


@compiler_rule(
    "C16",
    "look at Core ML's plan on the phone; K * (1 - m) + k * m with a mask is the form of the decoders with most on it",
    runs("CoreML-LLM, LFM2", "", 26, note="970 of 992 ops, slice_update of its one state not among the others"),
    PublishedReport("CoreML-LLM, list of ops", Severity.DISPUTED, systems=(26,), note=_IN_NO_DECODER),
    contested=True,
)
def written_at_a_place(subject: Subject) -> Found:
    """{value} of a state changes by slice_update; that decoders are 99.8 to 100 % on the engine with it is disputed"""
    for statement in subject.calls("slice_update"):
        x = statement.value("x")
        if x is not None and is_of_state(x):
            yield hit(statement.place, value=x.name, limit="97.8 to 99.8 %", found="slice_update")


SHORT_CHANNELS = 1024
"""Channels of the short convolution that is published to run on the CPU."""


@compiler_rule(
    "C17",
    "look at Core ML's plan on the phone; three shifted maps, each times a number per channel, added up",
    slow("CoreML-LLM, LFM2", "", 26, note="ten depthwise kernels of 1x3 over 1,024 channels on the CPU, 5 ms each"),
    runs("Anemll/anemll-forge", "M6", 27, note="the short convolutions of its 48 delta layers, all on the engine"),
    contested=True,
)
def short_depthwise(subject: Subject) -> Found:
    """a depthwise convolution of 1x3 over {found} channels: one project finds those of {limit} on the CPU"""
    for statement in subject.calls("conv"):
        shape, channels = statement.shape("weight"), statement.shape("x")[1:2]
        if shape[1:] == (1, 1, 3) and channels == (statement.constant("groups"),) and channels[0] >= SHORT_CHANNELS:
            yield hit(statement.place, limit=SHORT_CHANNELS, found=channels[0])


def _joins(value: Value | None) -> Iterator[Op]:
    """Each ``concat`` whose elements come to a value with their numbers, through ops that only move them."""
    todo, visited = [value], set()
    while todo:
        op = None if (value := todo.pop()) is None else value.op
        if op is None or op in visited:
            continue
        visited.add(op)
        if op.type == "concat":
            yield op
        if has(op, MOVES | PICKS) or op.type == "slice_update":
            todo += op.operands()


def _begins_in(state: Value | None, value: Value, axis: int) -> int | None:
    """The place along an axis at which a slice of a state's contents begins; None for anything else."""
    begin = 0
    while (op := value.op) is not None and op.type in ("slice_by_index", "slice_by_size", "slice_update"):
        value = op.inputs["x"]
        if op.type == "slice_update":
            continue
        first, extents = op.arg("begin"), value.shape
        by_index = op.type == "slice_by_index"
        opens, squeezes = (op.arg(name) if by_index else None for name in ("begin_mask", "squeeze_mask"))
        axis = [a for a in range(value.rank) if squeezes is None or not squeezes[a]][axis]
        if hasattr(first, "is_constant") or not extents[axis]:
            return None
        begin += 0 if opens is not None and opens[axis] else int(first[axis]) % extents[axis]
    return begin if op is not None and state in tuple(op.operands()) else None


@core_ml_rule(
    "C10",
    "cut the product into blocks",
    fails("pytorch 110975", "", 14, note="16384x16384x16384 in fp16: Program Inference timeout"),
)
def endless_product(subject: Subject) -> Found:
    """{op} takes {found} multiply-accumulates, and {limit} is published to run into the time limit"""
    for statement in subject.calls("matmul", "linear"):
        macs = _macs(statement)
        if macs >= 2**42:
            yield hit(statement.place, op=statement.type, limit=2**42, found=macs)


@compiler_rule(
    "C11",
    "make the package for iOS 17 (palettes without scales), or scale the result",
    refused("coremltools 2688", "M4", 26, note="mps.dequantize: failed verification when the engine loads it"),
)
def scaled_palette(subject: Subject) -> Found:
    """a palette with scales (constexpr_blockwise_shift_scale of constexpr_lut_to_dense) is not loaded"""
    for statement in subject.calls("constexpr_blockwise_shift_scale"):
        data = statement.value("data")
        if data is not None and data.op is not None and data.op.type == "constexpr_lut_to_dense":
            yield hit(statement.place, limit="no scales", found="palette with scales")


@compiler_rule(
    "C12",
    "convert with compute_precision=FLOAT16",
    slow("Vx 436, 437", "", None, note="no product or attention of fp32 was placed on the engine"),
)
def float32_product(subject: Subject) -> Found:
    """{op} computes in {found}, and the engine in {limit}: Core ML runs it on the CPU or GPU"""
    if subject.graph.metadata.get("format") not in ("mil", "coreml"):
        return
    for statement in subject.calls("conv", "matmul", "linear", "scaled_dot_product_attention"):
        value = statement.op.outputs[0]
        if isinstance(value.type, TensorType) and value.dtype == "fp32":
            yield hit(statement.place, op=statement.type, limit="fp16", found="fp32")
            return


def _macs(statement: Statement) -> int:
    shapes = [v.shape for v in (*statement.op.operands(), *statement.op.outputs) if isinstance(v.type, TensorType)]
    return 0 if any(None in shape for shape in shapes) else int(macs_of(statement.op))
