"""The neural cores: convolution, maximum, product, bypass; then scale and non-linearity.

Source: docs/reference/engine-h13.md 8.1, 8.2.

``out = f((combined inputs + bias + AccBias) * PostScale)``; what "combined" means is NE.MACCfg.OpMode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from hexane.arithmetic import convolution
from hexane.arithmetic.convolution_results import ConvolutionCall
from hexane.arithmetic.counters import may_overflow, product_losses, table_ends
from hexane.arithmetic.elementwise import Pointwise, behind_sums
from hexane.arithmetic.formats import canonical
from hexane.arithmetic.integer import prepare_scaled
from hexane.arithmetic.multiply import Activation, multiply_inputs, scale_input
from hexane.arithmetic.plain_convolution import PlainConvolution
from hexane.arithmetic.pooling import largest_in_windows
from hexane.chips import winograd_on
from hexane.emulator.kernel_fetch import TABLE, Fetched
from hexane.emulator.once import once
from hexane.emulator.registers import Registers
from hexane.emulator.task import EngineTask
from hexane.emulator.work import Events, Operands, UnitWork
from hexane.isa.numbers import fp16_value
from hexane.kernels import KernelLayout, KernelStreams

if TYPE_CHECKING:
    from hexane.arithmetic.fast.jobs import CompiledJob

SUM, PRODUCT, MAXIMUM, BYPASS = 0, 2, 3, 4


@dataclass(frozen=True)
class SourceWindow:
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


def prepare(task: EngineTask, fetched: Fetched) -> UnitWork:
    """An NE task, checked and ready for source 1."""
    r = task.registers
    window = _window(r)
    return _MODES[r["NE.MACCfg.OpMode"]](task, fetched, window)


@once
def _window(r: Registers) -> SourceWindow:
    """The window of a task whose registers agree with each other."""
    for name in ("Common.ConvCfg.Kw", "Common.ConvCfg.Kh"):
        if r[name] == 0:
            raise r.error("size 0 hangs the engine", name)
    if r["Common.ConvCfg.Ox"] == 2 and (r["Common.ConvCfg.Sx"] != 2 or r.flag("NE.MACCfg.KernelMode")):
        raise r.error("two outputs per step are known for kernels with steps of two only", "Common.ConvCfg.Ox")
    window = SourceWindow(
        kh=r["Common.ConvCfg.Kh"],
        kw=r["Common.ConvCfg.Kw"],
        sy=r.one_of("Common.ConvCfg.Sy", (1, 2), "stride"),
        sx=r.one_of("Common.ConvCfg.Sx", (1, 2), "stride"),
        top=r["Common.ConvCfg.Py"],
        left=r["Common.ConvCfg.Px"],
        columns=r.one_of("Common.ConvCfg.Ox", (1, 2), "outputs per step"),
    )
    _require_consistent(r, window)
    r.one_of("NE.MACCfg.OpMode", tuple(_MODES), "how inputs combine")
    return window


def _require_consistent(r: Registers, window: SourceWindow) -> None:
    """Checks for tasks that hang or have no rule: a mode without its kernel, channel counts that do not fit."""
    r.one_of("NE.MACCfg.NonlinearMode", (0, 1, 2), "non-linearity")
    if r["NE.MACCfg.OpMode"] != SUM and not r.flag("NE.MACCfg.KernelMode"):
        raise r.error("this mode with a kernel stream has no known effect", "NE.MACCfg.KernelMode")
    if r.flag("Common.GroupConvCfg.ElemMultMode") != (r["NE.MACCfg.OpMode"] == PRODUCT):
        raise r.error("set exactly when NE.MACCfg.OpMode multiplies inputs", "Common.GroupConvCfg.ElemMultMode")
    if r["L2.L2Cfg.PaddingMode"] != (r["NE.MACCfg.OpMode"] == MAXIMUM):
        raise r.error("1 in a maximum, 0 in all else", "L2.L2Cfg.PaddingMode")
    cin, cout = r["Common.Cin.Cin"], r["Common.Cout.Cout"]
    unicast, per_output = r.flag("Common.GroupConvCfg.UnicastEn"), r["Common.GroupConvCfg.UnicastCin"]
    copies = not r.linked and r["NE.MACCfg.OpMode"] == BYPASS and cin == cout
    if unicast and not copies and cin != cout * per_output:
        raise r.error(f"{cout} outputs of {per_output} inputs each do not use {cin} inputs", "Common.Cin.Cin")
    neutral = 1 if r.linked else r.neutral("Common.GroupConvCfg.UnicastCin")
    if not unicast and (per_output != neutral or r["NE.MACCfg.OpMode"] != SUM):
        raise r.error("has no known effect without unicast", "Common.GroupConvCfg.UnicastCin")
    if r["Common.InDepth.Din"] != 1 and not (window.plain and unicast):
        raise r.error("a depth has no known effect in a convolution", "Common.InDepth.Din")
    if r["Common.OutDepth.Dout"] != r["Common.InDepth.Din"]:
        raise r.error("differs from the input's depth, which has no known effect", "Common.OutDepth.Dout")
    _require_reach(r, window)


def _require_reach(r: Registers, window: SourceWindow) -> None:
    """Windows cover the input: less padding than a window at either end, less than a stride left over."""
    columns, sx = r["Common.OutDim.Wout"] * window.columns, window.sx // window.columns
    for name, outputs, size, kernel, stride, pad in (
        ("Hout", r["Common.OutDim.Hout"], r["Common.InDim.Hin"], window.kh, window.sy, window.top),
        ("Wout", columns, r["Common.InDim.Win"], window.kw, sx, window.left),
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
    return fp16_value(r[name])


def _activation(r: Registers, kernel: KernelStreams | None) -> Activation:
    mode = r["NE.MACCfg.NonlinearMode"]
    if mode == 2:
        assert kernel is not None and kernel.table is not None  # kernel_fetch refuses a table task without one
        return np.frombuffer(kernel.table, "<u2")
    return "relu" if mode == 1 else None


_SUFFIXES = ("", " + relu", " + table")


def _bypass(task: EngineTask, fetched: Fetched, window: SourceWindow) -> UnitWork:
    """OpMode 4: ``f(PostScale * in)``, one input per output."""
    r = task.registers
    # From H14 on a copy that transposes counts here the channels that a core takes at a time; on H13 it takes one.
    if task.cin != task.cout or not r.flag("Common.GroupConvCfg.UnicastEn"):
        raise r.error("a bypass has one input per output", "Common.GroupConvCfg.UnicastCin")
    if not window.plain:
        raise r.error("a window in a bypass has no known effect", "Common.ConvCfg")
    r.one_of("NE.MACCfg.BinaryPoint", (r.roles.fp16_point, 0), "fixed point")
    if r["NE.AccBias.AccBias"]:
        raise r.error("a constant in a bypass has no known effect", "NE.AccBias.AccBias")
    return _pointwise(r, fetched, "copy", ())


Combined = Callable[[np.ndarray, np.ndarray | None, np.ndarray], "CompiledJob | None"]


def _same(x: np.ndarray) -> np.ndarray:
    return x


def _pointwise(
    r: Registers,
    fetched: Fetched,
    name: str,
    rests_on: tuple[str, ...],
    combine: Callable[[np.ndarray], np.ndarray] = _same,
    combined: Combined | None = None,
) -> UnitWork:
    """Constant, scale and non-linearity of single values (docs/reference/numerics.md 3.5, 3.6), behind what
    ``combine`` gives; ``combined`` is both as a job, of halfwords, with a table of the function's results or none."""
    scale, add = _half(r, "NE.PostScale.PostScale"), _half(r, "NE.AccBias.AccBias")
    suffix = _SUFFIXES[r["NE.MACCfg.NonlinearMode"]]

    def follows(kernel: KernelStreams | None) -> Pointwise | None:
        activation = _activation(r, kernel)
        if scale == 1.0 and not add and activation is None:
            return None
        key = activation.tobytes() if isinstance(activation, np.ndarray) else activation
        return Pointwise(lambda v: scale_input(v, scale, add, activation), "ne", scale, add, key)

    follow = fetched.when_read(follows)

    def compute(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        function = follow()
        return combine(x) if function is None else function(combine(x), out)

    def tabulate() -> None:
        function = follow() if fetched.constant else None
        if function is not None:
            function.tabulate()

    def events(operands: Operands, values: np.ndarray, observe: bool) -> Events:
        source, counters = combine(operands[0]), {}
        special = scale != 1.0 and (np.isinf(source).any() or np.isnan(source).any())
        if observe and r["NE.MACCfg.NonlinearMode"] == TABLE:
            activation = _activation(r, fetched.read())
            assert isinstance(activation, np.ndarray)
            counters["table ends hit"] = table_ends(activation, scale_input(source, scale, add))
        return Events(("scalar-exponent-31",) if special else (), counters)

    def job(operands: Operands, target: np.ndarray) -> CompiledJob | None:
        from hexane.arithmetic.fast import planar_job

        x, out = operands[0].view(np.uint16), target.view(np.uint16)
        if not fetched.constant or (combine is not _same and combined is None):
            return None
        function = follow()
        if combined is not None:
            lacks = function is not None and function.results is None
            return None if lacks else combined(x, None if function is None else function.results, out)
        if x.shape != out.shape:
            return None
        if function is None:
            return planar_job.copied(x, out)
        return None if function.results is None else planar_job.look_up(function.results, x, out)

    name += f" * {scale:g}" * (scale != 1.0) + f" + {add:g}" * bool(add)
    return UnitWork(name + suffix, rests_on, compute, events, tabulate=tabulate, job=job, in_place=combine is _same)


def _sum(task: EngineTask, fetched: Fetched, window: SourceWindow) -> UnitWork:
    """OpMode 0: a convolution with the kernel stream, or with a kernel of ones (KernelMode 1)."""
    r = task.registers
    unicast = r.flag("Common.GroupConvCfg.UnicastEn")
    per_output = r["Common.GroupConvCfg.UnicastCin"] if unicast else task.cin
    ones = r.flag("NE.MACCfg.KernelMode")
    if ones:
        r.one_of("NE.MACCfg.BinaryPoint", (r.roles.fp16_point,), "fixed point")
        if unicast and per_output == 1 and window.plain:
            return _pointwise(r, fetched, "pass", ("acc-bias",))
    add, scale = _half(r, "NE.AccBias.AccBias"), _half(r, "NE.PostScale.PostScale")
    if add and r.flag("NE.MACCfg.BiasMode"):
        raise r.error("a constant beside a bias row has no known effect", "NE.AccBias.AccBias")
    batch, groups = (task.groups, task.cout) if unicast else (1, task.groups)
    place = _place(task, window)
    form = "winograd" if _transforms(r, unicast, ones) else "direct"

    def weights(kernel: KernelStreams | None) -> tuple[np.ndarray, np.ndarray | None]:
        if ones:
            values, bias = np.ones((task.groups * task.cout, per_output, window.kh, window.kw), np.float16), None
        else:
            values, bias = _weights(kernel)
        if add:
            bias = np.full(values.shape[0], add, np.float16)
        if unicast:
            values, bias = values[: task.cout], None if bias is None else bias[: task.cout]
        return values, bias

    integers = fetched.layout is not None and _of_integers(fetched.layout, scale)

    def work_of(kernel: KernelStreams | None, activation: Activation) -> PlainConvolution:
        values, bias = weights(kernel)
        shape = (values.shape[1] * groups, task.hin, task.win)
        if integers or (kernel is not None and kernel.scales is not None):
            assert kernel is not None
            scales = np.full(values.shape[0], scale) if kernel.scales is None else kernel.scales.astype(np.float64)
            raw = kernel.weights if integers and kernel.weights is not None else values
            return prepare_scaled(shape, raw, scales, bias, **place, groups=groups, activation=activation)
        return convolution.prepare(
            shape, values, bias, **place, groups=groups, post_scale=scale, activation=activation, form=form
        )

    ready = fetched.when_read(lambda kernel: work_of(kernel, _activation(r, kernel)))

    def source(x: np.ndarray) -> np.ndarray:
        return x[:, 0].reshape(batch, -1, task.hin, task.win)

    last: list[np.ndarray | None] = [None, None]  # where the result went, and that as images; the same in every run

    def compute(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        if out is not last[0]:
            last[:] = out, out[:, 0] if out is not None and len(out) == batch else None
        target = last[1]
        values = ready()(source(x), target)
        if out is not None and values is target:
            return out
        return values.reshape(task.groups, 1, task.cout, *values.shape[2:])

    def events(operands: Operands, values: np.ndarray, observe: bool) -> Events:
        """A sum that met its limit rests on the order of the terms."""
        infinite = (values.view(np.uint16) & 0x7FFF) == 0x7C00
        return Events(("sum-order",) if infinite.any() else ())

    def observed(operands: Operands) -> tuple[np.ndarray, Events]:
        """The sums once: what follows them is a function of their halves."""
        x, kernel = source(operands[0]), fetched.read()
        activation, (w, bias) = _activation(r, kernel), weights(kernel)
        unscaled = not integers and (kernel is None or kernel.scales is None)
        plain = form == "direct" and unscaled
        if activation is None or (plain and isinstance(activation, str) and not may_overflow(x, w, bias, scale)):
            values = before = compute(operands[0])
        else:
            before = work_of(kernel, None)(x)
            values = behind_sums(before, activation).reshape(task.groups, 1, task.cout, *before.shape[2:])
        rounded, dropped = product_losses(
            x, w, strides=place["strides"], pads=(window.top, window.left),
            output=values.shape[-2:], groups=groups,
        )  # fmt: skip
        met = int(np.isinf(before).sum())
        counters = {"products rounded": rounded, "products dropped": dropped, "sums overflowed": met}
        if isinstance(activation, np.ndarray):
            counters["table ends hit"] = table_ends(activation, before)
        whole = ConvolutionCall(x, w, bias, place["strides"], place["pads"], groups, scale, activation, form)
        return values, Events(("sum-order",) if met else (), counters, whole if unscaled else None)

    def job(operands: Operands, target: np.ndarray) -> CompiledJob | None:
        make = getattr(ready(), "job", None) if fetched.constant else reading()
        if make is None:
            return None
        x, out = operands[0].view(np.uint16)[:, 0], target.view(np.uint16)[:, 0]
        work: CompiledJob | None = make(x[:, None], out[:, :, None]) if unicast else make(x[None], out[None])
        return work

    def reading() -> Callable[[np.ndarray, np.ndarray], CompiledJob | None] | None:
        """Maker of a job that reads the kernel in every run; the same rules with other weights say how."""
        places, kernel = fetched.places(), fetched.read()
        if places is None or kernel is None or r["NE.MACCfg.NonlinearMode"] == TABLE:
            return None
        like = work_of(replace(kernel, weights=np.ones(places.index.shape, np.float16)), _activation(r, None))
        make = getattr(like, "reading", None)
        return None if make is None else partial(make, places)

    runtime = not ones and not fetched.constant
    suffix = _SUFFIXES[r["NE.MACCfg.NonlinearMode"]]
    rests_on = _sum_rests_on(r, fetched.layout, window, ones=ones, add=add, scale=scale)
    if form == "winograd" and window.kw == 3 and window.kh in (1, 3) and (window.sx, window.sy) == (1, 1):
        rests_on += ("winograd-groups",) * (groups > 1) + ("winograd-bias",) * r["NE.MACCfg.BiasMode"]
    name = _name(window, unicast, ones, runtime=runtime) + suffix
    return UnitWork(
        name, rests_on, compute, events, (lambda: ready().keep()) if fetched.constant else lambda: 0, job=job,
        observed=observed,
    )  # fmt: skip


def _transforms(r: Registers, unicast: bool, ones: bool) -> bool:
    """True where the cores compute a window of three columns in Winograd form, where its shape lets them.

    From H18 on a bit asks for it; H17 has no bit and does it always (measured on M5 Pro, docs/reference/numerics.md 6).
    """
    if unicast or ones or not winograd_on(r.generation) or r["NE.KernelCfg.KernelFmt"] != FP16:
        return False
    if r["NE.KernelCfg.SparseFmt"]:  # zeros are skipped, nothing is transformed (docs/reference/limits.md 6.4)
        return False
    return r.flag("Common.Cfg.Winograd1D") if r.has("Common.Cfg.Winograd1D") else True


FP16 = 2
"""NE.KernelCfg.KernelFmt of half-precision weights."""


def _place(task: EngineTask, window: SourceWindow) -> dict[str, Any]:
    """Strides and pads as `hexane.arithmetic.convolution` takes them."""
    sy, sx, wout = window.sy, window.sx, task.wout
    if window.columns == 2:  # two output columns per step of two (docs/reference/engine-h13.md 9.8)
        sx, wout = 1, 2 * wout
    pads = (
        window.left,
        window.top,
        (wout - 1) * sx + window.kw - task.win - window.left,
        (task.hout - 1) * sy + window.kh - task.hin - window.top,
    )
    return {"strides": (sy, sx), "pads": pads}


def _sum_rests_on(
    r: Registers, layout: KernelLayout | None, window: SourceWindow, *, ones: bool, add: float, scale: float
) -> tuple[str, ...]:
    """The hypotheses of a sum, and what its kernel's format asks for."""
    rests_on: tuple[str, ...] = ("window-without-kernel",) if ones and not window.plain else ()
    if not ones:
        assert layout is not None  # kernel_fetch refuses a sum without a kernel
        fmt = layout.dtype
        if fmt in ("uint8", "e4m3"):
            raise r.error(f"a kernel of {fmt} has no known effect", "NE.KernelCfg.KernelFmt")
        point = r.roles.fp16_point if fmt == "float16" else 0
        r.one_of("NE.MACCfg.BinaryPoint", (point,), f"fixed point of a {fmt} kernel")
        if layout.scales and (add or scale != 1.0):
            name = "NE.AccBias.AccBias" if add else "NE.PostScale.PostScale"
            raise r.error("a constant beside a scale for each output has no known effect", name)
        if layout.scales or _of_integers(layout, scale):
            rests_on += ("integer-scale",) + (("scaled-bias",) if layout.bias else ())
        elif fmt == "int8":
            rests_on += ("int8-kernel",)
    rests_on += ("acc-bias",) if add else ()
    rests_on += ("post-scale",) if scale != 1.0 and "integer-scale" not in rests_on else ()
    return rests_on + (("table-input",) if r["NE.MACCfg.NonlinearMode"] == TABLE else ())


def _of_integers(layout: KernelLayout, scale: float) -> bool:
    """True where products are formed with integers and the sums are scaled; +1 and -1 without a scale are masks."""
    return layout.dtype == "int8" and (layout.scales or scale != 1.0)


def _weights(kernel: KernelStreams | None) -> tuple[np.ndarray, np.ndarray | None]:
    """The kernel as float16; an int8 kernel is read as if it were (hypothesis ``int8-kernel``)."""
    assert kernel is not None and kernel.weights is not None  # kernel_fetch refuses a sum without a kernel
    return kernel.weights.astype(np.float16, copy=False), kernel.bias


def _name(window: SourceWindow, unicast: bool, ones: bool, *, runtime: bool) -> str:
    size = f"{window.kh}x{window.kw}"
    kind = "sum" if ones else "depthwise" if unicast else "runtime product" if runtime else "conv"
    return f"{kind} {size}" + (f" /{window.sy}x{window.sx}" if (window.sy, window.sx) != (1, 1) else "")


def _maximum(task: EngineTask, fetched: Fetched, window: SourceWindow) -> UnitWork:
    """OpMode 3: the largest of an output's inputs; what lies outside the map never wins (PaddingMode 1)."""
    r = task.registers
    r.one_of("NE.MACCfg.BinaryPoint", (r.roles.fp16_point,), "fixed point")

    def largest(x: np.ndarray) -> np.ndarray:
        source = x.reshape(*x.shape[:2], task.cout, -1, task.hin, task.win)
        several = source.shape[3] > 1
        source = canonical(source).astype(np.float32).max(3).astype(np.float16) if several else source[:, :, :, 0]
        if window.plain:
            return canonical(source)
        shape = (window.kh, window.kw), (window.sy, window.sx), (window.top, window.left)
        return largest_in_windows(source, *shape, (task.hout, task.wout))

    def as_job(x: np.ndarray, table: np.ndarray | None, out: np.ndarray) -> CompiledJob | None:
        from hexane.arithmetic.fast import windows_job

        each = x.shape[2] // task.cout
        if each > 1 and window.plain and x.shape[1] == 1 and out.shape[1:] == (1, task.cout, task.hin, task.win):
            # Channels that an output compares, as the rows of a map: axes (g, output, row, channel, column).
            g, _, _, h, w = x.shape
            group, _, channel, row, column = x.strides
            maps = as_strided(x, (g, task.cout, h, each, w), (group, each * channel, row, channel, column))
            return windows_job.job(maps, (each, 1), (1, 1), (0, 0), table, out[:, 0, :, :, None])
        if x.shape[2:] != (task.cout, task.hin, task.win) or out.shape[:3] != x.shape[:3]:
            return None
        shape = (window.kh, window.kw), (window.sy, window.sx), (window.top, window.left)
        return windows_job.job(x, *shape, table, out)

    rests_on = ("maximum-mode",) if window.plain else ("maximum-mode", "window-without-kernel")
    return _pointwise(r, fetched, "maximum", rests_on, largest, as_job)


def _product(task: EngineTask, fetched: Fetched, window: SourceWindow) -> UnitWork:
    """OpMode 2: the product of two inputs (pow: log2 of the base times the exponent)."""
    r = task.registers
    if r["Common.GroupConvCfg.UnicastCin"] != 2 or not window.plain:
        raise r.error("a product of other than two inputs has no known effect", "Common.GroupConvCfg.UnicastCin")
    r.one_of("NE.MACCfg.BinaryPoint", (r.roles.fp16_point,), "fixed point")
    return _pointwise(r, fetched, "product", ("product-mode",), lambda x: multiply_inputs(x[:, :, 0::2], x[:, :, 1::2]))


_MODES = {SUM: _sum, PRODUCT: _product, MAXIMUM: _maximum, BYPASS: _bypass}
