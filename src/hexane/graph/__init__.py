"""The network: a static dataflow graph in the MIL vocabulary, type rules, float32 reference."""

from hexane.graph import ops as _ops  # noqa: F401  declares the vocabulary
from hexane.graph.builder import GraphBuilder, builder_before
from hexane.graph.constants import BlobReference, Constant, constant_from
from hexane.graph.ir import Block, Function, Graph, Names, Op, Problem, Value
from hexane.graph.registry import UNKNOWN, OpSpec, Param, all_specs, is_known, lookup, op, spec_of
from hexane.graph.rewrite import fold_constants, function_of, names_of, remove_dead, replace_op, replace_uses
from hexane.graph.types import DTYPES, BufferType, DType, ListType, StateType, TensorType, Type, dtype_name

__all__ = [
    "DTYPES",
    "UNKNOWN",
    "BlobReference",
    "Block",
    "BufferType",
    "Constant",
    "DType",
    "Function",
    "Graph",
    "GraphBuilder",
    "ListType",
    "Names",
    "Op",
    "OpSpec",
    "Param",
    "Problem",
    "StateType",
    "TensorType",
    "Type",
    "Value",
    "all_specs",
    "builder_before",
    "constant_from",
    "dtype_name",
    "fold_constants",
    "function_of",
    "is_known",
    "lookup",
    "names_of",
    "op",
    "remove_dead",
    "replace_op",
    "replace_uses",
    "spec_of",
]
