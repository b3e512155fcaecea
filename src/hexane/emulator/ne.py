"""The neural cores: convolution, maximum, product, bypass; then scale and non-linearity (spec/engine-h13 §8.1, §8.2).

``out = f((combined inputs + bias + AccBias) * PostScale)``; what "combined" means is NE.MACCfg.OpMode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hexane.arithmetic import conv2d, lookup
from hexane.arithmetic.counters import product_losses, table_ends
from hexane.arithmetic.formats import canonical
from hexane.arithmetic.multiply import Activation, activate, multiply_inputs, scale_input
from hexane.emulator.pointwise import pointwise
from hexane.emulator.registers import Registers
from hexane.emulator.task import Task
from hexane.emulator.trace import Computation
from hexane.kernels import Kernel

SUM, PRODUCT, MAXIMUM, BYPASS = 0, 2, 3, 4


@dataclass(frozen=True)
class Window:
    """Kernel size, stride and padding along height and width; outputs produced per step along the width."""

    kh: int
    kw: int
    sy: int
    sx: int
    top: int
    left: int
    columns: int

    @property
    def plain(self) -> bool:
        """One pixel in, one pixel out."""
        return (self.kh, self.kw, self.sy, self.sx, self.top, self.left, self.columns) == (1, 1, 1, 1, 0, 0, 1)


def run(task: Task, x: np.ndarray, kernel: Kernel | None, *, observe: bool = False) -> Computation:
    """Execute an NE task on source 1, float16 with axes (g, d, c, h, w). ``observe`` counts events for the trace."""
    r = task.registers
    window = _window(r)
    _require_consistent(task, window)
    mode = r.one_of("NE.MACCfg.OpMode", tuple(_MODES), "how inputs combine")
    return _MODES[mode](task, x, kernel, window, observe)


def _window(r: Registers) -> Window:
    for name in ("Common.ConvCfg.Kw", "Common.ConvCfg.Kh"):
        if r[name] == 0:
            raise r.error("size 0 hangs the engine", name)
    if r["Common.ConvCfg.Ox"] == 2 and (r["Common.ConvCfg.Sx"] != 2 or r.flag("NE.MACCfg.KernelMode")):
        raise r.error("two outputs per step are known for kernels with steps of two only", "Common.ConvCfg.Ox")
    return Window(
        kh=r["Common.ConvCfg.Kh"],
        kw=r["Common.ConvCfg.Kw"],
        sy=r.one_of("Common.ConvCfg.Sy", (1, 2), "stride"),
        sx=r.one_of("Common.ConvCfg.Sx", (1, 2), "stride"),
        top=r["Common.ConvCfg.Py"],
        left=r["Common.ConvCfg.Px"],
        columns=r.one_of("Common.ConvCfg.Ox", (1, 2), "outputs per step"),
    )


def _require_consistent(task: Task, window: Window) -> None:
    """What hangs or has no rule: a mode that wants a kernel and has none, channel counts that do not fit."""
    r = task.registers
    r.one_of("NE.MACCfg.NonlinearMode", (0, 1, 2), "non-linearity")
    if r["NE.MACCfg.OpMode"] != SUM and not r.flag("NE.MACCfg.KernelMode"):
        raise r.error("this mode with a kernel stream has no known effect", "NE.MACCfg.KernelMode")
    if r.flag("Common.GroupConvCfg.ElemMultMode") != (r["NE.MACCfg.OpMode"] == PRODUCT):
        raise r.error("set exactly when NE.MACCfg.OpMode multiplies inputs", "Common.GroupConvCfg.ElemMultMode")
    if r["L2.L2Cfg.PaddingMode"] != (r["NE.MACCfg.OpMode"] == MAXIMUM):
        raise r.error("1 in a maximum, 0 in all else", "L2.L2Cfg.PaddingMode")
    unicast, per_output = r.flag("Common.GroupConvCfg.UnicastEn"), r["Common.GroupConvCfg.UnicastCin"]
    if unicast and task.cin != task.cout * per_output:
        raise r.error(f"{task.cout} outputs of {per_output} inputs each do not use {task.cin} inputs", "Common.Cin.Cin")
    if not unicast and (per_output != 1 or r["NE.MACCfg.OpMode"] != SUM):
        raise r.error("has no known effect without unicast", "Common.GroupConvCfg.UnicastCin")
    if task.depth != 1 and not (window.plain and unicast):
        raise r.error("a depth has no known effect in a convolution", "Common.InDepth.Din")
    if r["Common.OutDepth.Dout"] != r["Common.InDepth.Din"]:
        raise r.error("differs from the input's depth, which has no known effect", "Common.OutDepth.Dout")
    _require_reach(task, window)


def _require_reach(task: Task, window: Window) -> None:
    """Windows cover the input: less padding than a window at either end, less than a stride left over."""
    r = task.registers
    columns, sx = task.wout * window.columns, window.sx // window.columns
    for name, outputs, size, kernel, stride, pad in (
        ("Hout", task.hout, task.hin, window.kh, window.sy, window.top),
        ("Wout", columns, task.win, window.kw, sx, window.left),
    ):
        if pad >= max(kernel, 2):
            raise r.error("padding as large as the window has no known effect", f"Common.ConvCfg.P{name[0].lower()}")
        behind = (outputs - 1) * stride + kernel - pad - size
        if not -stride < behind < max(kernel, 1):
            raise r.error(
                f"{outputs} outputs of window {kernel}, stride {stride}, padding {pad} do not fit an input of {size}",
                f"Common.OutDim.{name}",
            )


def _half(r: Registers, name: str) -> float:
    """A register's halfword as the fp16 number that it is."""
    return float(np.uint16(r[name]).view(np.float16))


def _activation(r: Registers, kernel: Kernel | None) -> Activation:
    mode = r["NE.MACCfg.NonlinearMode"]
    if mode == 2:
        assert kernel is not None and kernel.table is not None  # kernel_fetch refuses a table task without one
        return np.frombuffer(kernel.table, "<u2")
    return "relu" if mode == 1 else None


def _suffix(activation: Activation) -> str:
    return "" if activation is None else " + relu" if isinstance(activation, str) else " + table"


def _bypass(task: Task, x: np.ndarray, kernel: Kernel | None, window: Window, observe: bool) -> Computation:
    """OpMode 4: ``f(PostScale * in)``, one input per output."""
    r = task.registers
    if r["Common.GroupConvCfg.UnicastCin"] != 1 or not r.flag("Common.GroupConvCfg.UnicastEn"):
        raise r.error("a bypass has one input per output", "Common.GroupConvCfg.UnicastCin")
    if not window.plain:
        raise r.error("a window in a bypass has no known effect", "Common.ConvCfg")
    r.one_of("NE.MACCfg.BinaryPoint", (0x1C, 0), "fixed point")
    if r["NE.AccBias.AccBias"]:
        raise r.error("a constant in a bypass has no known effect", "NE.AccBias.AccBias")
    return _pointwise(r, x, kernel, "copy", (), observe)


def _pointwise(
    r: Registers, x: np.ndarray, kernel: Kernel | None, name: str, rests_on: tuple[str, ...], observe: bool
) -> Computation:
    """Constant, scale and non-linearity of single values (spec/numerics §3.5, §3.6)."""
    scale, add, activation = _half(r, "NE.PostScale.PostScale"), _half(r, "NE.AccBias.AccBias"), _activation(r, kernel)
    if scale != 1.0:
        name += f" * {scale:g}"
        if np.isinf(x).any() or np.isnan(x).any():
            rests_on += ("scalar-exponent-31",)
    if add:
        name += f" + {add:g}"
    before = x
    if scale != 1.0 or add:
        before = pointwise(lambda v: scale_input(v, scale, add), x, "scale", scale, add)
    return _activated(before, activation, name, rests_on, {}, observe)


def _activated(
    before: np.ndarray,
    activation: Activation,
    name: str,
    rests_on: tuple[str, ...],
    counters: dict[str, int],
    observe: bool,
) -> Computation:
    if observe and isinstance(activation, np.ndarray):
        counters = {**counters, "table ends hit": table_ends(activation, before)}
    if isinstance(activation, np.ndarray):
        after = lookup(activation, before)
    else:
        after = pointwise(lambda v: activate(v, activation), before, "relu") if activation else before
    return Computation(after, name + _suffix(activation), rests_on, counters)


def _sum(task: Task, x: np.ndarray, kernel: Kernel | None, window: Window, observe: bool) -> Computation:
    """OpMode 0: a convolution with the kernel stream, or with a kernel of ones (KernelMode 1)."""
    r = task.registers
    unicast = r.flag("Common.GroupConvCfg.UnicastEn")
    per_output = r["Common.GroupConvCfg.UnicastCin"] if unicast else task.cin
    ones = r.flag("NE.MACCfg.KernelMode")
    if ones and unicast and per_output == 1 and window.plain:
        r.one_of("NE.MACCfg.BinaryPoint", (0x1C,), "fixed point")
        return _pointwise(r, x, kernel, "pass", ("acc-bias",), observe)
    if ones:
        r.one_of("NE.MACCfg.BinaryPoint", (0x1C,), "fixed point")
        weights = np.ones((task.groups * task.cout, per_output, window.kh, window.kw), np.float16)
        bias = None
        rests_on: tuple[str, ...] = () if window.plain else ("window-without-kernel",)
    else:
        assert kernel is not None and kernel.weights is not None  # kernel_fetch refuses a sum without a kernel
        weights, bias, rests_on = _weights(r, kernel)
    add, scale, activation = _half(r, "NE.AccBias.AccBias"), _half(r, "NE.PostScale.PostScale"), _activation(r, kernel)
    if add:
        if bias is not None:
            raise r.error("a constant beside a bias row has no known effect", "NE.AccBias.AccBias")
        bias, rests_on = np.full(weights.shape[0], add, np.float16), (*rests_on, "acc-bias")
    if scale != 1.0:
        rests_on += ("post-scale",)
    if isinstance(activation, np.ndarray):
        rests_on += ("table-input",)
    batch, groups = 1, task.groups
    if unicast:
        batch, groups = task.groups, task.cout
        weights, bias = weights[: task.cout], None if bias is None else bias[: task.cout]
    sy, sx, wout = window.sy, window.sx, task.wout
    if window.columns == 2:  # two output columns per step of two (spec/engine-h13 §9.8)
        sx, wout = 1, 2 * wout
    pads = (
        window.left,
        window.top,
        (wout - 1) * sx + window.kw - task.win - window.left,
        (task.hout - 1) * sy + window.kh - task.hin - window.top,
    )
    source = x[:, 0].reshape(batch, -1, task.hin, task.win)
    options: dict[str, Any] = {"strides": (sy, sx), "pads": pads, "groups": groups, "post_scale": scale}
    shape = (task.groups, 1, task.cout, task.hout, wout)
    name = _name(window, unicast, ones, runtime=r.flag("NE.KernelCfg.KernelAlign"))
    if not observe:
        values = conv2d(source, weights, bias, activation=activation, **options)
        if _has_infinity(values):  # a sum that met its limit; then the order of the terms counts
            rests_on += ("sum-order",)
        return Computation(values.reshape(shape), name + _suffix(activation), rests_on)
    before = conv2d(source, weights, bias, **options)
    if _has_infinity(before):
        rests_on += ("sum-order",)
    rounded, dropped = product_losses(
        source, weights, strides=(sy, sx), pads=(window.top, window.left), output=(task.hout, wout), groups=groups
    )
    counters = {
        "products rounded": rounded,
        "products dropped": dropped,
        "sums overflowed": int(np.isinf(before).sum()),
    }
    done = _activated(before, activation, name, rests_on, counters, observe)
    return Computation(done.values.reshape(shape), done.operation, rests_on, done.counters)


def _has_infinity(values: np.ndarray) -> bool:
    return bool(((values.view(np.uint16) & 0x7FFF) == 0x7C00).any())


def _weights(r: Registers, kernel: Kernel) -> tuple[np.ndarray, np.ndarray | None, tuple[str, ...]]:
    """The kernel as float16; an int8 kernel is read as if it were (hypothesis ``int8-kernel``)."""
    assert kernel.weights is not None
    fmt = kernel.layout.dtype
    if fmt == "uint8":
        raise r.error("a kernel of uint8 has no known effect", "NE.KernelCfg.KernelFmt")
    r.one_of("NE.MACCfg.BinaryPoint", (0x1C,) if fmt == "float16" else (0,), f"fixed point of a {fmt} kernel")
    if fmt == "int8":
        return kernel.weights.astype(np.float16), kernel.bias, ("int8-kernel",)
    return kernel.weights, kernel.bias, ()


def _name(window: Window, unicast: bool, ones: bool, *, runtime: bool) -> str:
    size = f"{window.kh}x{window.kw}"
    kind = "sum" if ones else "depthwise" if unicast else "runtime product" if runtime else "conv"
    return f"{kind} {size}" + (f" /{window.sy}x{window.sx}" if (window.sy, window.sx) != (1, 1) else "")


def _maximum(task: Task, x: np.ndarray, kernel: Kernel | None, window: Window, observe: bool) -> Computation:
    """OpMode 3: the largest of an output's inputs; what lies outside the map never wins (PaddingMode 1)."""
    r = task.registers
    r.one_of("NE.MACCfg.BinaryPoint", (0x1C,), "fixed point")
    source = canonical(x).astype(np.float32)
    groups, depth = source.shape[:2]
    source = source.reshape(groups, depth, task.cout, -1, task.hin, task.win).max(3)
    rests_on: tuple[str, ...] = ("maximum-mode",)
    if not window.plain:
        source = _largest_in_windows(source, task, window)
        rests_on += ("window-without-kernel",)
    return _pointwise(r, source.astype(np.float16), kernel, "maximum", rests_on, observe)


def _largest_in_windows(source: np.ndarray, task: Task, window: Window) -> np.ndarray:
    rows = max((task.hout - 1) * window.sy + window.kh, window.top + task.hin)
    columns = max((task.wout - 1) * window.sx + window.kw, window.left + task.win)
    padded = np.full((*source.shape[:3], rows, columns), -np.inf, np.float32)
    padded[..., window.top : window.top + task.hin, window.left : window.left + task.win] = source
    taps = (
        padded[..., ky :: window.sy, kx :: window.sx][..., : task.hout, : task.wout]
        for ky in range(window.kh)
        for kx in range(window.kw)
    )
    largest = next(taps).copy()
    for tap in taps:
        np.maximum(largest, tap, out=largest)
    return largest


def _product(task: Task, x: np.ndarray, kernel: Kernel | None, window: Window, observe: bool) -> Computation:
    """OpMode 2: the product of two inputs (pow: log2 of the base times the exponent)."""
    r = task.registers
    if r["Common.GroupConvCfg.UnicastCin"] != 2 or not window.plain:
        raise r.error("a product of other than two inputs has no known effect", "Common.GroupConvCfg.UnicastCin")
    r.one_of("NE.MACCfg.BinaryPoint", (0x1C,), "fixed point")
    product = multiply_inputs(x[:, :, 0::2], x[:, :, 1::2])
    return _pointwise(r, product, kernel, "product", ("product-mode",), observe)


_MODES = {SUM: _sum, PRODUCT: _product, MAXIMUM: _maximum, BYPASS: _bypass}
