"""A convolution of few pixels as a job: its input packed, the product with the kept weights, its result in place."""

from __future__ import annotations

import numpy as np
from numba import carray

from hexane.arithmetic.fast import matrix, packing, product
from hexane.arithmetic.fast.call import call_body, call_pack, pointer
from hexane.arithmetic.fast.compiled import compiled
from hexane.arithmetic.fast.jobs import (
    KERNELS,
    MORE,
    NOTHING,
    SOURCE,
    TARGET,
    CompiledJob,
    Phase,
    address_of,
    array_numbers,
    halves_of,
    numbers_at,
    pieces_for,
    record_of,
)
from hexane.arithmetic.fast.product_record import PackedRows, ProductRecord
from hexane.arithmetic.fast.targets import VectorKernels

(
    KERNEL_Y, KERNEL_X, PIXELS, TERMS, OUTPUTS, PACK, MULTIPLY, PRODUCT,
    RESULT, VALUES, EXPONENTS, NORMS, PASS_LEAST, PASS_NORMS,
) = range(MORE, MORE + 14)  # fmt: skip
"""Places in a record; ``PRODUCT`` is the address of a `product.Record`; from ``RESULT`` on, places in the room."""

PRODUCTS_PER_NS = 6.0


@compiled(inner=True)
def _pack(n, room):
    x, width, kh, kw = halves_of(n, SOURCE), n[TARGET + 5], n[KERNEL_Y], n[KERNEL_X]
    source = carray(pointer(room), (n[PIXELS], n[TERMS]), np.uint16)
    inner = x.shape[2]
    for p in range(n[PIXELS]):
        k = 0
        for c in range(x.shape[1] * inner):
            for y in range(kh):
                for j in range(kw):
                    source[p, k] = x[0, c // inner, c % inner, p // width + y, p % width + j]
                    k += 1
    call_pack(
        n[PACK], n[KERNELS], room, n[PIXELS], n[TERMS], 1, 0, n[PIXELS],
        room + n[VALUES], room + n[EXPONENTS], room + n[NORMS], room + n[PASS_LEAST], room + n[PASS_NORMS],
    )  # fmt: skip


@compiled(inner=True)
def _put(n, room):
    out, outputs, width = halves_of(n, TARGET), n[OUTPUTS], n[TARGET + 5]
    products = carray(pointer(room + n[RESULT]), (n[PIXELS], outputs), np.uint16)
    for p in range(n[PIXELS]):
        for c in range(outputs):
            out[0, 0, c, p // width, p % width] = products[p, c]


def body(record, phase, first, last, room):
    """Three phases: pack, multiply, put."""
    n = numbers_at(record)
    if phase == 0:
        _pack(n, room)
    elif phase == 1:
        call_body(n[MULTIPLY], n[PRODUCT], 0, first, last, room)
    else:
        _put(n, room)


def job(
    x: np.ndarray,
    out: np.ndarray,
    columns: matrix.Columns,
    kernel: tuple[int, int],
    start: np.ndarray,
    finish: matrix.Finish,
    use: VectorKernels,
) -> CompiledJob:
    """A convolution without padding and strides whose weights are the columns of the product: x (1, groups, channels,
    H, W) halfwords, in whatever groups, ``kernel`` its window's height and width, out (1, 1, outputs, OH, OW), the
    kernels' tile one row high."""
    pixels, depth, outputs = out.shape[3] * out.shape[4], columns.values.shape[1], out.shape[2]
    cost = pixels * depth * outputs / PRODUCTS_PER_NS
    tiles, blocks = matrix.blocks_of(use, pixels, outputs, pieces_for(cost))
    places, room = matrix.places_of((2 * depth, 2 * outputs, *matrix.panel_bytes(depth, 1)), pixels)
    numbers = ProductRecord(
        **matrix.numbers_of(use, tiles, finish), **matrix.start_numbers(matrix.NO_START, start),
        **dict(zip(PackedRows._fields, places[2:])), panels=pixels, depth=depth, extent=outputs, rows_in_room=1,
        **matrix.columns_numbers(columns), out=places[1], channels=pixels, plane=2 * outputs, line=2 * outputs,
        pitch=outputs, width=outputs, height=1, out_in_room=1,
    )  # fmt: skip
    multiply = np.array(numbers, np.int64)
    record = record_of(
        use.addresses, *array_numbers(x), *NOTHING, *array_numbers(out),
        *kernel, pixels, depth, outputs, packing.address(), product.address(), address_of(multiply), *places[1:],
    )  # fmt: skip
    buffers = x, out, columns, start, finish, use, multiply
    return CompiledJob(body, record, (Phase(1, 0.0), Phase(blocks, cost / blocks), Phase(1, 0.0)), room, buffers)
