"""Registers, task descriptors and assembly text: one declarative table per engine generation, everything else from it.

>>> from hexane.isa import decode_stream, encode_stream, Task, link
"""

from hexane.isa.generations import GENERATIONS, WRITTEN, table_of
from hexane.isa.program import cut, link
from hexane.isa.schema import FieldError
from hexane.isa.stream import decode_stream, encode_stream, next_offset, place, task_from_words, task_list
from hexane.isa.task import Task, TaskPlace

__all__ = [
    "GENERATIONS",
    "WRITTEN",
    "FieldError",
    "Task",
    "TaskPlace",
    "cut",
    "decode_stream",
    "encode_stream",
    "link",
    "next_offset",
    "place",
    "table_of",
    "task_from_words",
    "task_list",
]
