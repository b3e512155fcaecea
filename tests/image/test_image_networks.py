"""Fields of the real programs against the networks that they were compiled from (their property lists)."""

from __future__ import annotations

import plistlib
from pathlib import Path
from typing import Any

import pytest

import hexane
from facts import fact_params
from hexane.rounding import align

FP16_BYTES = 2
SOURCES = fact_params("hwx/*.hwx")


def network(path: Path) -> dict[str, Any]:
    document = plistlib.loads(path.with_suffix(".plist").read_bytes())
    return document[document["Networks"][0]]


def bottoms(unit: dict[str, Any]) -> list[str]:
    bottom = unit["Bottom"]
    return [bottom] if isinstance(bottom, str) else list(bottom)


def shape_of(net: dict[str, Any], name: str) -> tuple[int, int, int, int]:
    """N, C, H, W of an input or of a unit's result."""
    entry = net[name]
    if "InputWidth" in entry:
        return (
            entry.get("BatchSize", 1),
            entry["InputChannels"],
            entry["InputHeight"],
            entry["InputWidth"],
        )
    sources = [shape_of(net, source) for source in bottoms(entry)]
    n, c, h, w = sources[0]
    if entry.get("Type") == "Concat":
        c = sum(shape[1] for shape in sources)
    return (n, entry.get("OutputChannels", c), h, w)


@pytest.mark.parametrize("path", SOURCES)
def test_surfaces(path: Path) -> None:
    net, image = network(path), hexane.open_image(path)
    assert [s.name for s in image.inputs] == net["Inputs"]
    assert [s.name for s in image.outputs] == net["Outputs"]
    for surface in image.surfaces:
        shape = shape_of(net, surface.name)
        row = align(shape[3] * FP16_BYTES, 64)
        assert surface.shape == shape
        assert surface.strides == (shape[1] * shape[2] * row, shape[2] * row, row, FP16_BYTES)
        assert surface.dtype == "float16"
    channels = {s.name: s.channel for s in image.surfaces}
    order = [*net["Outputs"], *net["Inputs"]]  # the early compiler numbers outputs first
    assert channels == {name: 4 + i for i, name in enumerate(order)}


@pytest.mark.parametrize("path", SOURCES)
def test_tasks(path: Path) -> None:
    net, image = network(path), hexane.open_image(path)
    unit = net[net["Units"][0]]
    channel = {s.name: s.channel for s in image.surfaces}
    (output,) = image.outputs
    sources = bottoms(unit)
    per_task = [[name] for name in sources] if unit["Type"] == "Concat" else [sources]
    assert len(image.tasks) == len(per_task)
    base = 0
    for task, names in zip(image.tasks, per_task):
        _, c, h, w = shape_of(net, names[0])
        result = (c, h, w) if unit["Type"] == "Concat" else output.shape[1:]
        common, source, target = task.Common, task.TileDMASrc, task.TileDMADst
        assert (common.Cin.Cin, common.InDim.Hin, common.InDim.Win) == (c, h, w)
        assert (common.Cout.Cout, common.OutDim.Hout, common.OutDim.Wout) == result
        assert (common.ChCfg.InFmt, common.ChCfg.OutFmt) == (2, 2)
        kernel = unit["Params"] if unit["Type"] == "Conv" else {"KernelHeight": 1, "KernelWidth": 1}
        assert (common.ConvCfg.Kh, common.ConvCfg.Kw) == (kernel["KernelHeight"], kernel["KernelWidth"])
        row = align(w * FP16_BYTES, 64)
        assert 64 * source.RowStride.Stride == row
        assert 64 * source.PlaneStride.PlaneStride == h * row
        assert 64 * source.DepthStride.Stride == c * h * row
        assert 64 * target.RowStride.RowStride == output.strides[2]
        assert 64 * target.PlaneStride.PlaneStride == output.strides[1]
        assert 64 * target.DepthStride.DepthStride == output.bytes_per_batch
        assert 64 * target.BaseAddr.Addr == base
        assert task.Header[8].RBase0 == channel[names[0]]
        assert task.Header[8].WBase == channel[output.name]
        if unit["Type"] == "ScaledElementWise":
            assert task.Header[8].RBase1 == channel[names[1]]
            assert common.TaskInfo.NID == 0 and common.Cfg.PEKind == 3
        else:
            assert common.TaskInfo.NID == 1
        kinds = {"ReLU": 1, "Sigmoid": 2}
        assert task.NE.MACCfg.NonlinearMode == kinds.get(unit.get("Params", {}).get("Type"), 0)
        base += c * h * row


@pytest.mark.parametrize("path", SOURCES)
def test_kernel_sizes(path: Path) -> None:
    net, image = network(path), hexane.open_image(path)
    unit = net[net["Units"][0]]
    if unit["Type"] == "Conv":
        cin, cout = shape_of(net, bottoms(unit)[0])[1], unit["OutputChannels"]
        cores = min(16, cout)
        each = align(-(-cout // cores) * cin * FP16_BYTES, 64)
        (kernel,) = image.kernels
        assert [(c.core, c.size) for c in kernel.chunks] == [(i, each) for i in range(cores)]
        assert len(image.const) == each * cores
    elif unit.get("Params", {}).get("Type") == "Sigmoid":
        (kernel,) = image.kernels
        assert kernel.kind == "table" and kernel.size == len(image.const) == 128
    else:
        assert image.kernels == []
        assert image.const == bytes(0x4000)
