"""relu_w77.hwx out of the values in this file: a task's fields, two surfaces, the paths of the identification."""

from __future__ import annotations

import pytest

import hexane
from facts import fact_params
from hexane.image import Ident, Surface
from hexane.isa import Task, link

WIDTH = 77
ROW_UNITS = 3  # a row of 77 halfwords takes 192 bytes, three units of 64
L2_UNITS = 10  # and 160 bytes of L2, ten units of 16

WRITTEN = {
    "KernelDMASrc": (
        "MasterConfig AlignedCoeffSizePerCh CoeffDMAConfig*16 CoeffBaseAddr*16 CoeffBfrSize*16 "
        "SideDMAConfig*4 SideBaseAddr*4 SideBfrSize*4"
    ),
    "Common": (
        "InDim InDepth ChCfg Cin Cout OutDim OutDepth ConvCfg ConvCfg3d GroupConvCfg TileCfg PatchCfg PECfg Cfg "
        "TaskInfo DPE"
    ),
    "TileDMASrc": (
        "DMAConfig Src2DMAConfig BaseAddr RowStride PlaneStride DepthStride GroupStride Src2BaseAddr Src2RowStride "
        "Src2PlaneStride Src2DepthStride Src2GroupStride Spare0 Spare1 Fmt Src2Fmt Unk13840 Unk13844 Unk13848 "
        "Unk1384c PixelOffset*4 Unk13860 Unk13864 Unk13868 Unk1386c"
    ),
    "L2": (
        "L2Cfg SourceCfg SourceBase SourceChannelStride SourceRowStride SourceDepthStride SourceGroupStride Src2Base "
        "Src2ChannelStride Src2RowStride Src2DepthStride Src2GroupStride ResultCfg ResultBase ConvResultChannelStride "
        "ConvResultRowStride ConvResultDepthStride ConvResultGroupStride"
    ),
    "PE": "Cfg BiasScale PreScale FinalScale",
    "NE": "KernelCfg MACCfg MatrixVectorBias AccBias PostScale",
    "TileDMADst": "DMAConfig BaseAddr RowStride PlaneStride DepthStride GroupStride Fmt",
}
"""Registers that the early compiler writes into every task, most of them 0."""


def every_register() -> list[str]:
    names = []
    for block, registers in WRITTEN.items():
        for register in registers.split():
            name, _, count = register.partition("*")
            names += [f"{block}.{name}[{i}]" for i in range(int(count))] if count else [f"{block}.{name}"]
    return names


def relu() -> Task:
    task = Task("h13")
    for name in every_register():
        task.set(name, 0)
    header = task.Header
    header[2].LogEvents = 0x422
    header[4].DebugLogEvents = 0xFFF86A
    for flag in ("SPL", "TSR", "TSE", "SrcLoc", "DstLoc"):
        setattr(header[6], flag, 1)
    header[8].RBase0, header[8].RBE0 = 5, 1
    header[8].WBase, header[8].WBE = 4, 1
    header[8].ENE = 1
    kernel = task.KernelDMASrc
    for core in range(16):
        kernel.CoeffDMAConfig[core].CacheHint = 2
        kernel.CoeffBfrSize[core].MemBfrSize = 1
    for side in range(4):
        kernel.SideDMAConfig[side].CacheHint = 2
    common = task.Common
    common.InDim.Win, common.InDim.Hin, common.InDepth.Din = WIDTH, 1, 1
    common.OutDim.Wout, common.OutDim.Hout, common.OutDepth.Dout = WIDTH, 1, 1
    common.Cin.Cin = common.Cout.Cout = 1
    common.ChCfg.InFmt = common.ChCfg.OutFmt = "fp16"
    for field in ("Kw", "Kh", "Sx", "Sy", "Ox", "Oy"):
        setattr(common.ConvCfg, field, 1)
    for field in ("Kd", "Sz", "Oz"):
        setattr(common.ConvCfg3d, field, 1)
    for field in ("NumGroups", "UnicastEn", "UnicastCin"):
        setattr(common.GroupConvCfg, field, 1)
    common.TileCfg.TileHeight = 1
    for field in ("One", "ShPref", "ShMax", "AccDoubleBufEn"):
        setattr(common.Cfg, field, 1)
    common.TaskInfo.NID = 1
    source = task.TileDMASrc
    source.DMAConfig.En, source.DMAConfig.CacheHint = 1, 2
    source.DMAConfig.CacheHintReuse, source.DMAConfig.CacheHintNoReuse = 14, 12
    for field in ("CacheHint", "CacheHintReuse", "CacheHintNoReuse"):
        setattr(source.Src2DMAConfig, field, 2)
    source.RowStride.Stride = source.PlaneStride.PlaneStride = source.DepthStride.Stride = ROW_UNITS
    target = task.TileDMADst
    target.DMAConfig.En, target.DMAConfig.CacheHint, target.DMAConfig.L2BfrMode = 1, 3, 1
    target.RowStride.RowStride = target.PlaneStride.PlaneStride = target.DepthStride.DepthStride = ROW_UNITS
    for fmt in (source.Fmt, target.Fmt):
        fmt.FmtMode, fmt.Truncate, fmt.MemFmt, fmt.Interleave = 1, 3, 2, 1
    target.Fmt.ZeroPadLast = target.Fmt.ZeroPadFirst = 1
    source.Unk13840.Bit8 = 1
    l2 = task.L2
    for config in (l2.SourceCfg, l2.ResultCfg):
        for field in ("AliasConvSrc", "AliasConvRslt", "AliasPlanarSrc", "AliasPlanarRslt", "DMAFmt", "DMAInterleave"):
            setattr(config, field, 1)
    l2.SourceCfg.SourceType = l2.ResultCfg.ResultType = l2.ResultCfg.L2BfrMode = 2
    for name in ("SourceChannelStride", "SourceRowStride", "SourceDepthStride", "SourceGroupStride"):
        getattr(l2, name).Stride = L2_UNITS
    l2.ResultBase.Addr = L2_UNITS
    task.NE.KernelCfg.PalettizedBits = 8
    task.NE.MACCfg.OpMode = "bypass"
    task.NE.MACCfg.KernelMode = task.NE.MACCfg.Bit20 = 1
    task.NE.MACCfg.NonlinearMode = "relu"
    task.NE.PostScale.PostScale = 0x3C00  # 1.0
    return task


@pytest.mark.parametrize("path", fact_params("hwx/relu_w77.hwx"))
def test_relu_from_nothing(path) -> None:
    image = hexane.build_image(
        link([relu()]),
        b"",
        [Surface("image", "input", (1, 1, 1, WIDTH)), Surface("probs@output", "output", (1, 1, 1, WIDTH))],
        "h13",
        dialect="zin4",
        ident=Ident("./simple/neuron.plist", "./model.hwx"),
    )
    assert image.to_bytes() == path.read_bytes()


def test_another_relu_parses() -> None:
    """The same task over other surfaces: everything around it is laid out anew."""
    surfaces = [
        {"name": "a_longer_name_than_before", "role": "input", "shape": (1, 40, 30, 500), "dtype": "fp16"},
        {"name": "z", "role": "output", "shape": (1, 40, 30, 500), "strides": (1 << 22, 1 << 16, 1 << 11, 2)},
    ]
    for dialect in ("zin4", "default"):
        made = hexane.build_image(link([relu()]), b"", surfaces, "h13", scratch_bytes=1, dialect=dialect)
        image = hexane.open_image(made.to_bytes())
        assert not image.parts.remainders
        assert image.rebuild() == made.to_bytes()
        assert image.tasks == [relu()] or image.tasks == link([relu()])
        assert [s.shape for s in image.surfaces] == [(1, 40, 30, 500)] * 2
        assert image.surface("z").strides == (40 << 16, 1 << 16, 1 << 11, 2)
        assert image.scratch_bytes == 0x4000
        first, second = sorted(image.surfaces, key=lambda s: s.address)
        assert first.address + first.nbytes <= second.address
