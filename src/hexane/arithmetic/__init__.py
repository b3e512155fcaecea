"""Arithmetic of each unit of the engine, bit by bit: a plain statement and a fast kernel that gives the same bits."""

from hexane.arithmetic.convolution import conv2d
from hexane.arithmetic.elementwise import elementwise, lookup
from hexane.arithmetic.function_tables import FUNCTIONS, LN_2, LOG2_E, function_table
from hexane.arithmetic.hypotheses import assume, chosen
from hexane.arithmetic.integer import mac_integer
from hexane.arithmetic.mac import mac, mac_int8, matmul

__all__ = [
    "FUNCTIONS",
    "LN_2",
    "LOG2_E",
    "assume",
    "chosen",
    "conv2d",
    "elementwise",
    "function_table",
    "lookup",
    "mac",
    "mac_int8",
    "mac_integer",
    "matmul",
]
