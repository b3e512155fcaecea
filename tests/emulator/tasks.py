"""Single legal tasks from numbers: every register written, defaults as in docs/reference/engine-h13.md appendix A."""

from __future__ import annotations

import numpy as np

import hexane
from hexane import isa, kernels
from hexane.image import Image

X, Y, Z = 4, 5, 6
"""Channels: source 1, result, source 2."""


def blank(unit: str) -> isa.Task:
    """A task of a unit with all registers written and nothing switched on."""
    task = isa.Task("h13")
    for block in task._family.table.blocks:
        for register in block.registers:
            for index in range(register.words):
                name = f"{block.name}.{register.name}" + (f"[{index}]" if register.count else "")
                task.set(name, 0)
    defaults = {
        "Header[0].EON": 1,
        "Common.InDepth.Din": 1,
        "Common.OutDepth.Dout": 1,
        "Common.ConvCfg": 0x5000A021,
        "Common.ConvCfg3d": 0x2041,
        "Common.GroupConvCfg": 0x10001,
        "Common.Cfg.One": 1,
        "TileDMASrc.Fmt": 0x01000000,
        "TileDMADst.Fmt": 0x01000000,
        "L2.SourceCfg.DMAInterleave": 1,
        "L2.ResultCfg.DMAInterleave": 1,
        "L2.ResultCfg.DMAFmt": 1,
    }
    if unit == "NE":
        defaults |= {"Common.TaskInfo": 0x100000, "Common.ChCfg": 0x22, "NE.KernelCfg": 0x82, "NE.MACCfg": 0x101C00}
        defaults |= {"NE.PostScale.PostScale": 0x3C00, "Header[8].ENE": 1}
    else:
        defaults |= {"PE.BiasScale": 0x3C000000, "PE.PreScale": 0x3C000000, "PE.FinalScale": 0x3F800000}
        defaults |= {"NE.KernelCfg": 0x80, "NE.MACCfg": 0x100000, "Common.ChCfg": 0x22}
    put(task, defaults)
    return task


def put(task: isa.Task, fields: dict[str, int]) -> None:
    """Set several fields."""
    for name, value in fields.items():
        task.set(name, value)


def dimensions(task: isa.Task, groups: int, cin: int, hin: int, win: int, cout: int, hout: int, wout: int) -> None:
    """Sizes; channels per group."""
    put(
        task,
        {
            "Common.GroupConvCfg.NumGroups": groups,
            "Common.Cin.Cin": cin,
            "Common.InDim.Hin": hin,
            "Common.InDim.Win": win,
            "Common.Cout.Cout": cout,
            "Common.OutDim.Hout": hout,
            "Common.OutDim.Wout": wout,
            "Common.TileCfg.TileHeight": hout,
        },
    )


class Layout:
    """A surface of (g, c, h, w) with free strides, and the registers that describe it."""

    def __init__(self, shape: tuple[int, int, int, int], pads: tuple[int, int, int, int], interleave: int = 1) -> None:
        groups, channels, rows, columns = shape
        blocks = -(-channels // interleave)
        self.shape, self.interleave = shape, interleave
        self.base = 64 * pads[0]
        self.row = -(-2 * columns * interleave // 64) * 64 + 64 * pads[1]
        self.plane = self.row * rows + 64 * pads[2]
        self.group = self.plane * blocks + 64 * pads[3]
        self.size = self.base + self.group * groups

    def surface(self, name: str, role: str, channel: int) -> dict:
        """As bytes of one row, so that the tests see padding too."""
        strides = (self.size, self.size, self.size, 1)
        shape = (1, 1, 1, self.size)
        return {"name": name, "role": role, "shape": shape, "dtype": "uint8", "strides": strides, "channel": channel}

    def _index(self) -> np.ndarray:
        g, c, h, w = np.ogrid[tuple(slice(n) for n in self.shape)]
        at = self.base + g * self.group + c // self.interleave * self.plane + h * self.row
        return (at + 2 * (w * self.interleave + c % self.interleave)) // 2

    def to_bytes(self, values: np.ndarray) -> np.ndarray:
        """Elements to the surface's bytes; padding is 0x7f."""
        raw = np.full(self.size, 0x7F, np.uint8).view(np.uint16)
        raw[self._index()] = values.view(np.uint16)
        return raw.view(np.uint8)

    def of_bytes(self, raw: np.ndarray) -> np.ndarray:
        """The elements among the surface's bytes."""
        return raw.view(np.uint16)[self._index()].view(np.float16)

    def source(self, task: isa.Task, second: bool = False) -> None:
        """Source by DMA, streamed."""
        two = "Src2" if second else ""
        put(
            task,
            {
                f"TileDMASrc.{two}BaseAddr.Addr": self.base >> 6,
                f"TileDMASrc.{two}RowStride.Stride": self.row >> 6,
                f"TileDMASrc.{two}PlaneStride.PlaneStride": self.plane >> 6,
                f"TileDMASrc.{two}DepthStride.Stride": self.group >> 6,
                f"TileDMASrc.{two}GroupStride.Stride": self.group >> 6,
                "TileDMASrc.DMAConfig.En": 1,
                "Header[6].SrcLoc": 1,
            },
        )
        if second:
            put(task, {"TileDMASrc.Src2Fmt": 0x2030, "L2.SourceCfg.Src2Dma": 1, "Common.Cfg.Src2Dma": 1})
            put(task, {"Header[8].RBase1": Z, "Header[8].RBE1": 1, "Common.ChCfg.Src2InFmt": 2})
        else:
            put(task, {"TileDMASrc.Fmt": 0x2031 | self.interleave << 24, "L2.SourceCfg.DMAInterleave": self.interleave})
            put(task, {"Header[8].RBase0": X, "Header[8].RBE0": 1, "L2.SourceCfg.DMAFmt": 1})
            put(task, {"L2.SourceCfg.SourceType": 2})

    def result(self, task: isa.Task) -> None:
        """Result by DMA through the automatic buffer."""
        put(
            task,
            {
                "TileDMADst.BaseAddr.Addr": self.base >> 6,
                "TileDMADst.RowStride.RowStride": self.row >> 6,
                "TileDMADst.PlaneStride.PlaneStride": self.plane >> 6,
                "TileDMADst.DepthStride.DepthStride": self.group >> 6,
                "TileDMADst.GroupStride.GroupStride": self.group >> 6,
                "TileDMADst.DMAConfig.En": 1,
                "TileDMADst.DMAConfig.L2BfrMode": 1,
                "TileDMADst.Fmt": 0x00302031 | self.interleave << 24,
                "L2.ResultCfg.ResultType": 2,
                "L2.ResultCfg.L2BfrMode": 2,
                "L2.ResultCfg.DMAInterleave": self.interleave,
                "L2.ResultBase.Addr": 0x1E0000 >> 4,
                "Header[6].DstLoc": 1,
                "Header[8].WBase": Y,
                "Header[8].WBE": 1,
            },
        )


def region(task: isa.Task, name: str, base: int, channels: int, width: int, pads: tuple[int, int] = (0, 0)) -> None:
    """An L2 region of whole rows: [row][channel][x], with pads in units of 16 bytes behind channel and row."""
    channel = -(-2 * width // 16) + pads[0]
    prefix = {"Source": "L2.Source", "Src2": "L2.Src2", "Result": "L2.ConvResult"}[name]
    put(
        task,
        {
            ("L2.ResultBase.Addr" if name == "Result" else f"{prefix}Base.Addr"): base >> 4,
            f"{prefix}ChannelStride.Stride": channel,
            f"{prefix}RowStride.Stride": channels * channel + pads[1],
            f"{prefix}DepthStride.Stride": channels * channel,
            f"{prefix}GroupStride.Stride": channels * channel,
        },
    )


def kernel(task: isa.Task, packed: kernels.PackedKernel, *, sparse: bool = False) -> None:
    """Switch the kernel DMA on for a packed kernel at the start of the constants."""
    put(task, {"KernelDMASrc.MasterConfig.MasterEnable": 1, "Header[9].KBase0": 1, "Header[9].KBE0": 1})
    put(task, {"KernelDMASrc.MasterConfig.SparseFmt": int(sparse), "NE.KernelCfg.SparseFmt": int(sparse)})
    for core, (offset, size) in enumerate(zip(*packed.registers())):
        task.set(f"KernelDMASrc.CoeffDMAConfig[{core}].En", 1)
        task.set(f"KernelDMASrc.CoeffBaseAddr[{core}].Addr", offset)
        task.set(f"KernelDMASrc.CoeffBfrSize[{core}].MemBfrSize", size)


def program(tasks: list[isa.Task], const: bytes, surfaces: list[dict]) -> Image:
    """An image of these tasks, linked."""
    return hexane.build_image(tasks, const or bytes(0x4000), surfaces, "h13")
