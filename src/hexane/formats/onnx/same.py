"""Nodes that ONNX and MIL compute alike: one table, by which they are read, written and told their shapes."""

from __future__ import annotations

UNARY = {
    "Abs": "abs", "Acos": "acos", "Asin": "asin", "Atan": "atan", "Atanh": "atanh", "Ceil": "ceil",
    "Cos": "cos", "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor",
    "Not": "logical_not", "Round": "round", "Sign": "sign",
    "Sin": "sin", "Sinh": "sinh", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
    "Relu": "relu", "Sigmoid": "sigmoid", "Softplus": "softplus", "Softsign": "softsign",
    "Acosh": "onnx.Acosh", "Asinh": "onnx.Asinh", "BitwiseNot": "onnx.BitwiseNot", "IsNaN": "onnx.IsNaN",
}  # fmt: skip
"""Element-wise, of one operand; an op ``onnx.*`` is the node's own."""

BINARY = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "real_div",
    "And": "logical_and", "Or": "logical_or", "Xor": "logical_xor",
    "Equal": "equal", "Greater": "greater", "GreaterOrEqual": "greater_equal",
    "Less": "less", "LessOrEqual": "less_equal",
    "BitwiseAnd": "onnx.BitwiseAnd", "BitwiseOr": "onnx.BitwiseOr", "BitwiseXor": "onnx.BitwiseXor",
}  # fmt: skip
"""Element-wise, of two operands, which broadcast as in NumPy from op set 7 on."""

REDUCTIONS = {
    "ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min",
    "ReduceProd": "prod", "ReduceL1": "l1_norm", "ReduceL2": "l2_norm", "ReduceLogSum": "log_sum",
    "ReduceLogSumExp": "log_sum_exp", "ReduceSumSquare": "sum_square",
}  # fmt: skip
"""``reduce_sum`` ... without ``reduce_``."""
