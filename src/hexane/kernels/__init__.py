"""Weights and look-up tables to and from the engine's kernel streams."""

from hexane.kernels.exact_tables import (
    clip_table,
    fraction_table,
    integer_table,
    is_zero_table,
    leaky_relu_table,
    less_than_zero_table,
    limited_line_table,
    not_zero_table,
    scaled_table,
    sign_table,
    step_table,
    two_line_table,
)
from hexane.kernels.fit import FittedTable, fit_table, measure_table
from hexane.kernels.functions import fitted_table
from hexane.kernels.layout import KernelLayout, Pass
from hexane.kernels.packing import KernelStreams, PackedKernel, pack, unpack
from hexane.kernels.registers import (
    Streams,
    StreamWindow,
    is_runtime,
    layout_from,
    layout_of,
    read_kernel,
    replace_kernel,
    side_table,
    windows_of,
)
from hexane.kernels.tables import LookupMode, LookupTable, known_table

__all__ = [
    "FittedTable",
    "KernelLayout",
    "KernelStreams",
    "LookupMode",
    "LookupTable",
    "PackedKernel",
    "Pass",
    "StreamWindow",
    "Streams",
    "clip_table",
    "fit_table",
    "fitted_table",
    "fraction_table",
    "integer_table",
    "is_runtime",
    "is_zero_table",
    "known_table",
    "layout_from",
    "layout_of",
    "leaky_relu_table",
    "less_than_zero_table",
    "limited_line_table",
    "measure_table",
    "not_zero_table",
    "pack",
    "read_kernel",
    "replace_kernel",
    "scaled_table",
    "side_table",
    "sign_table",
    "step_table",
    "two_line_table",
    "unpack",
    "windows_of",
]
