"""Restrictions on the text of a program: header, dialect, arguments, types."""

from __future__ import annotations

from itertools import pairwise

from hexane.chips import Evidence
from hexane.formats.mil.tree import TextPlace
from hexane.graph.registry import opset_number
from hexane.graph.types import TensorType
from hexane.restrictions.reports import refused, runs
from hexane.restrictions.rule import INTERFACES, Found, hit, rule
from hexane.restrictions.subject import Subject

EARLY = ("h11", "h12", "h13", "h14")
"""Generations whose systems are reported to take the older dialect only."""


@rule(
    "T2",
    "add [buildInfo = dict<string, string>({{...}})] behind program(...); its versions need not match the system",
    refused("field guide", "M3 Max", 26),
    refused("q38", "M5 Max", 26),
)
def buildinfo_missing(subject: Subject) -> Found:
    """the program has no buildInfo attribute, and the engine's compiler refuses it without a word"""
    if "buildInfo" not in subject.tree.attributes and not any(port.is_buffer for port in subject.inputs):
        yield hit(subject.header)


@rule(
    "T3",
    "write the 1.0 dialect, tensor<int32, []>(1), which every system takes",
    refused("maderix issue 6", "M1"),
    runs("mil-hwx-compiler", "M1 Ultra", 26, note="compiled for h13, not run"),
    contested=True,
)
def newer_dialect(subject: Subject) -> Found:
    """types without tensor<...> around them ({spelling}) belong to the 1.3 dialect, which M1 is reported to refuse"""
    if not subject.system.is_on(*EARLY):
        return
    for function in subject.tree.functions:
        for call in function.body.statements:
            spelling = _bare_scalar(subject, call.place.line)
            if spelling:
                yield hit(call.place, spelling=spelling)
                return


def _bare_scalar(subject: Subject, line: int) -> str:
    """The first bare scalar constructor on a line: ``int32(``."""
    words = subject.text.split("\n")[line - 1].replace("=", " ").replace("(", " (").split()
    scalars = ("bool", "string", "fp16", "fp32", "int32", "uint64", "int8", "uint8")
    scalars_used = [a for a, b in pairwise(words) if a in scalars and (b.startswith("(") or b[0].isalpha())]
    return scalars_used[0] if scalars_used else ""


_CAST = (refused("maderix issue 6", "M1"), refused("dev-erik", "M1, M2"))


@rule(
    "T4",
    "give and take fp16, and convert on the host",
    *_CAST,
    runs("mil-hwx-compiler", "M1 Ultra", 26, note="bool to fp16, compiled for h13, not run"),
    contested=True,
)
def cast_at_the_border(subject: Subject) -> Found:
    """a cast from {source} to {target} is refused on M1 and M2"""
    if not subject.system.is_on(*EARLY):
        return
    for statement in subject.calls("cast"):
        value = statement.value("x")
        source, target = (value.dtype if value else "?"), statement.constant("dtype") or "?"
        float_pair = {source, target} <= {"fp16", "fp32"}
        yield hit(statement.place, source=source, target=target, reports=_CAST if float_pair else None)


@rule(
    "T5",
    'name the flag: bool f = const()[name = string("f"), val = bool(false)], then transpose_x = f',
    refused("Orion", "M4 Max", 15),
    runs("maderix", "M4", 15),
    runs("dev-erik", "M4 Max", 15),
    runs("private runner", "M4 Max", note="typed inline bool(false)"),
    orion=12,
    contested=True,
)
def bare_flag(subject: Subject) -> Found:
    """{parameter} of {op} is a bare {value}, and not a named constant"""
    for statement in subject.statements:
        for name, operand in statement.call.arguments.items():
            if operand.kind == "literal" and isinstance(operand.content, bool):
                value = "true" if operand.content else "false"
                yield hit(operand.place, parameter=name, op=statement.type, value=value)


@rule("T6", "return values that the program computes", refused("Orion", "M4 Max", 15), orion=14)
def dead_result(subject: Subject) -> Found:
    """{name} is returned, and is a constant: no work of the program gives it"""
    for (name, place), value in zip(subject.main.body.outputs, subject.graph.main.outputs):
        if value.is_constant:
            yield hit(place, name=name)


@rule(
    "T7",
    "give every value a name of its own",
    refused("Espresso", "M3 Max", 15, note="one program, which also breaks W5"),
    evidence=Evidence.INFERRED,
)
def name_defined_twice(subject: Subject) -> Found:
    """{name} is defined twice"""
    for function in subject.tree.functions:
        names = {parameter.name for parameter in function.inputs}
        for call in function.body.statements:
            for result in call.results:
                if result.name in names:
                    yield hit(result.place, name=result.name)
                names.add(result.name)


@rule(
    "T8",
    "write concat(values = (a, b), axis = int32 scalar, interleave = bool constant)",
    refused("dev-erik", "M4 Max", 15),
)
def concat_arguments(subject: Subject) -> Found:
    """concat {what}"""
    for statement in subject.calls("concat"):
        arguments = statement.call.arguments
        if "values" not in arguments:
            yield hit(statement.place, what="takes x and y in place of values")
        elif "interleave" not in arguments:
            yield hit(statement.place, what="leaves out interleave, which has to be written")
        elif statement.shape("axis"):
            yield hit(statement.place_of("axis"), what="has an axis of rank 1, and a scalar is needed")


@rule("T9", "give epsilon the dtype of gamma", refused("dev-erik", "M4 Max", 15), interfaces=INTERFACES)
def epsilon_dtype(subject: Subject) -> Found:
    """epsilon of the layer_norm is {epsilon}, and {other} is {dtype}"""
    for statement in subject.calls("layer_norm"):
        epsilon = statement.value("epsilon")
        other = "gamma" if statement.value("gamma") is not None else "x"
        value = statement.value(other)
        if epsilon is not None and value is not None and epsilon.dtype != value.dtype:
            place = statement.place_of("epsilon")
            yield hit(place, epsilon=epsilon.dtype, other=other, dtype=value.dtype)


@rule(
    "T10",
    "write the parameter: epsilon = a named fp16 constant",
    refused("iphone", "A17 Pro", 26, note="log without epsilon"),
    refused("Orion, Espresso, q38", "", None, note="every refused rsqrt left it out"),
    evidence=Evidence.INFERRED,
)
def epsilon_left_out(subject: Subject) -> Found:
    """{op} leaves out epsilon, and the engine's compiler fills in no default for it"""
    for statement in subject.calls("rsqrt", "log"):
        if "epsilon" not in statement.call.arguments:
            yield hit(statement.place, op=statement.type)


_IN_BRACKET = ("constexpr_affine_dequantize", "constexpr_cast")
_BY_OPSET = ("constexpr_lut_to_dense", "constexpr_sparse_to_dense")
_AS_ARGUMENTS = ("constexpr_blockwise_shift_scale", "constexpr_lut_to_sparse", "constexpr_sparse_blockwise_shift_scale")


@rule(
    "T11",
    "give parameters of ops up to iOS 17 in the square brackets, those of iOS 18 ops as arguments",
    refused("mlxfast", "M4 Max", 26),
    refused("ANEForge", "M5", note="the other spelling crashes its compiler"),
)
def constexpr_spelling(subject: Subject) -> Found:
    """the parameters of {op} stand {where}"""
    for function in subject.tree.functions:
        for call in function.body.statements:
            if not call.type.startswith("constexpr_"):
                continue
            opset = opset_number(call.opset or subject.graph.functions[function.name].opset)
            in_bracket = call.type in _IN_BRACKET or (call.type in _BY_OPSET and opset < 18)
            as_arguments = call.type in _AS_ARGUMENTS or (call.type in _BY_OPSET and opset >= 18)
            if in_bracket and call.arguments:
                yield hit(call.place, op=call.type, where="in the parentheses, and belong in the square brackets")
            elif as_arguments and set(call.attributes) - {"name"}:
                yield hit(call.place, op=call.type, where="in the square brackets, and belong in the parentheses")


@rule(
    "T12",
    "give all operands one dtype, and every constant a type",
    refused("dev-erik", "M4 Max", 15),
    interfaces=INTERFACES,
)
def operand_dtypes(subject: Subject) -> Found:
    """{what}"""
    for problem in subject.graph.problems:
        if problem.rule == "T12":
            yield hit(TextPlace(problem.line or 1, problem.column or 1), what=problem.message)
    for statement in subject.statements:
        for name, operand in statement.call.arguments.items():
            if operand.kind == "literal" and not isinstance(operand.content, bool):
                what = f"{name} of {statement.type} is a constant without a type"
                yield hit(operand.place, what=what)


@rule(
    "T13", "cast to fp16 right behind the inputs, and back right before the results", refused("mlxfast", "M4 Max", 26)
)
def single_precision(subject: Subject) -> Found:
    """{op} computes in fp32, and the engine has fp16 only"""
    for statement in subject.statements:
        if statement.type == "cast" or statement.type.startswith("constexpr_"):
            continue
        values = [v for v in (*statement.op.operands(), *statement.op.outputs) if not v.is_constant]
        if any(isinstance(v.type, TensorType) and v.dtype == "fp32" for v in values):
            yield hit(statement.place, op=statement.type)


@rule(
    "T14",
    "multiply the query by scale * sqrt(E) before it: the op divides by sqrt(E) itself",
    refused("a third party's generator"),
    interfaces=INTERFACES,
)
def attention_scale(subject: Subject) -> Found:
    """scaled_dot_product_attention takes no {parameter}"""
    for statement in subject.calls("scaled_dot_product_attention"):
        for name in statement.call.arguments:
            if name in ("scale", "scale_factor"):
                yield hit(statement.place_of(name), parameter=name)


@rule(
    "T0",
    "correct the statement; `hexane show` prints what each op takes",
    refused("all sources"),
    interfaces=INTERFACES,
)
def not_well_formed(subject: Subject) -> Found:
    """{what}"""
    lines = {s.place.line for s in subject.calls("scaled_dot_product_attention") if "scale" in s.call.arguments}
    lines |= {s.place.line for s in subject.calls("concat") if "values" not in s.call.arguments}
    for problem in subject.graph.problems:
        if problem.rule not in ("T5", "T7", "T12") and problem.line not in lines:
            yield hit(TextPlace(problem.line or 1, problem.column or 1), what=problem.message)
