"""Remarks on what costs time and gives right numbers."""

from __future__ import annotations

from hexane.restrictions.reports import slow
from hexane.restrictions.rule import INTERFACES, Found, hit, rule
from hexane.restrictions.subject import Subject


@rule(
    "P1",
    "write a 1x1 convolution: the constant is its weight",
    slow("maderix", "M4", 15, note="about 3 times"),
    slow("Orion", "M4 Max", 15, note="about 3 times"),
    interfaces=INTERFACES,
    orion=17,
)
def matmul_by_a_constant(subject: Subject) -> Found:
    """matmul by the constant {name} takes about three times as long as a 1x1 convolution"""
    for statement in subject.calls("matmul"):
        x, y = statement.value("x"), statement.value("y")
        for value, param in ((x, "x"), (y, "y")):
            if value is not None and (value.is_constant or (value.op and value.op.type.startswith("constexpr_"))):
                shape = "x".join(map(str, value.shape))
                yield hit(
                    statement.place_of(param), name=value.name, limit="computed operands", found=f"constant {shape}"
                )
                break


@rule("P2", "give and take fp16", slow("maderix", "M4", 15, note="37 %"))
def single_precision_border(subject: Subject) -> Found:
    """{name} is fp32 at the border, which costs about a third of the time of a small program"""
    for port in (*subject.inputs, *subject.outputs):
        if port.type.dtype == "fp32":
            yield hit(port.place, name=port.name)
            return


@rule("P3", "put more work into one program: a call costs 0.03 to 0.1 ms by itself", slow("maderix", "M4", 15))
def one_small_op(subject: Subject) -> Found:
    """the program is one element-wise {op}, and a call costs more than that"""
    work = [s for s in subject.statements if s.type != "cast" and not s.type.startswith("constexpr_")]
    if len(work) == 1 and work[0].type in ("add", "sub", "mul", "relu", "sigmoid", "tanh", "maximum", "minimum"):
        yield hit(work[0].place, op=work[0].type)
