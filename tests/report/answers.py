"""A call of every command that answers in JSON, on small networks: the answers that the schemas describe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from hexane.cli.main import app
from hexane.graph import GraphBuilder
from language import reference
from report.networks import mixed, saved, small

CALLS = {
    "private-api": ["api ANECCompile"], "chips": ["chips M1", "chips A12,M4,M6"],
    "registers": ["registers TID", "registers 0x128"],
    "checks": ["check net.mil --chip M1,M4,A12", "check net.onnx --random 1", "check mixed.mil --coreml",
               "check soft.onnx --chip M4 --as apple --random 1", "check net.onnx --baseline check.old",
               "check net.mlpackage", "check unit.plist",
               "check old.mlmodel", "check net.mlmodelc"],
    "fix": ["check soft.onnx --chip M4 --fix --random 1 -o fixed.onnx"],
    "estimates": ["estimate net.onnx --chip M1,M4", "estimate mixed.mil --as hexane", "estimate net.onnx --batch 4",
                  "estimate net.onnx --baseline estimate.old", "estimate net.onnx --path --chip M1,M4",
                  "estimate old.mlmodel", "estimate net.mlmodelc"],
    "run": ["run net.onnx --random 1", "run soft.onnx --random 1 --chip M4", "run p.hexane --random 1",
            "run net.onnx --random 1 --level graph", "run net.onnx --random 1 --autoscale --compare none",
            "run old.mlmodel --random 1 --autoscale", "run net.mlmodelc --random 1"],
    "compile": ["compile net.onnx -o q.hexane", "compile mixed.mil -o m.hexane --chip M4",
                "compile old.mlmodel -o o.hexane", "compile net.mlmodelc -o c.hexane"],
    "compress": ["compress net.onnx --weights int8 -o c.onnx", "compress net.onnx --budget error:5% -o d.onnx"],
    "convert": ["convert net.mil n.onnx", "convert net.mlpackage n.mil", "convert unit.plist u.mil",
                "convert old.mlmodel o.mil", "convert net.mlmodelc c.mil"],
    "show": ["show net.mil", "show net.onnx --ops --weights",
             "show net.mlpackage", "show unit.plist", "show old.mlmodel",
             "show net.mlmodelc"],
    "show-open": ["show open.onnx"], "info": ["info p.hexane", "info p.hwx", "info p.anec"],
    "disasm": ["disasm p.hwx", "disasm p.anec"],
    "diff": ["diff p.hwx p.hwx", "diff p.hwx r.hwx"], "kernels": ["kernels p.hwx"],
    "emulate": ["emulate p.hwx --random 1"], "difference": ["emulate p.hwx --random 1 --diff p.hwx"],
    "bench": ["bench net.mil --device emulator --calls 1 --warmup 0"],
    "verify": ["verify net.mil --device emulator --calls 1"], "doctor": ["doctor"],
    "pack": ["verify --pack questions --chip M1"],
    "compare": ["compare check.old check.new"], "probe-questions": ["probe --list"],
    "probe-asked": ["probe --device emulator --only post-scale -o answers.json"],
    "probe-sweep": ["probe p.hwx --sweep=0.NE.MACCfg.NonlinearMode --values=0..2"],
    "probe-reading": ["probe --read answers.json"],
    "evaluate": ["evaluate flat.mil --data data.npz --layers 1"], "example": ["example ex"],
    "llm": ["llm lm --chip M4 --context 128", "llm lm --chip M1,M4 --context 128 --ids 1,2 --tokens 2 --eval text.ids"],
    "report": ["report rep"], "comparison": ["report rep rep"],
    "demo": ["demo --no-fetch --models nothing -o shown"],
    "train": ["train job.toml --overwrite --no-page"],
}  # fmt: skip
"""Schema (without "hexane-" and version) -> command lines, each with ``--json``; files as ``prepare`` writes them."""


def prepare(folder: Path) -> None:
    """The networks, programs and older answers that the calls name."""
    import onnx

    saved(small("fp32"), folder), saved(small("fp32"), folder, "net.onnx"), saved(mixed(), folder, "mixed.mil")
    saved(small("fp32"), folder, "net.mlpackage"), saved(small(), folder, "unit.mil")
    (folder / "net.mlmodelc").mkdir()
    saved(small("fp32"), folder, "net.mlmodelc/model.mil")
    _write_old(folder / "old.mlmodel")
    helper = onnx.helper
    for name, kind, shape in ("open", "Relu", ["N", "H"]), ("soft", "Softplus", [1, 32]):
        info = [helper.make_tensor_value_info(value, 1, shape) for value in "xy"]
        graph = helper.make_graph([helper.make_node(kind, ["x"], ["y"])], "g", info[:1], info[1:])
        onnx.save(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / f"{name}.onnx"
        )
    b, rng = GraphBuilder(), np.random.default_rng(3)
    weight = rng.standard_normal((4, 6)).astype(np.float16)
    b.output(b.cast(x=b.linear(x=b.cast(x=b.input("x", (1, 6), "fp32"), dtype="fp16"), weight=weight), dtype="fp32"))
    saved(b.graph, folder, "flat.mil")
    np.savez(folder / "data.npz", x=rng.standard_normal((8, 6)).astype(np.float32), label=rng.integers(0, 4, 8))
    for line in ("run net.onnx --random 1 --report rep", "compile net.mil -o p.hexane", "compile net.mil -o p.hwx",
                 "compile mixed.mil -o r.hexane", "convert unit.mil unit.plist", "compile net.mil -o p.anec",
                 "edit p.hwx --set task[0].NE.MACCfg.NonlinearMode=none -o r.hwx"):  # fmt: skip
        called(line, folder)
    reference.folder(folder / "lm", *reference.llama_like("llama"))
    (folder / "text.ids").write_text(" ".join(map(str, range(1, 25))))
    (folder / "job.py").write_text(
        "from hexane.frontends.networks import load\n\ndef network(seed):\n"
        f"    return load({str(folder / 'trained.mil')!r})\n"
    )
    (folder / "job.toml").write_text(
        'network = "job.py"\ndata = "data.npz"\ntest = "data.npz"\nsteps = 2\nsave_every = 1\nwatch_every = 1\n'
        'seed = 3\nlevel = "graph"\n[optimizer]\nname = "adam"\nlr = 0.02\n'
    )
    t = GraphBuilder()
    t.output(t.linear(x=t.input("x", (4, 6), "fp16"), weight=t.const(weight, name="w")), name="y")
    saved(t.graph, folder, "trained.mil")
    for line, file in (
        ("check net.onnx", "check.old"),
        ("check mixed.mil", "check.new"),
        ("estimate net.onnx", "estimate.old"),
    ):
        (folder / file).write_text(called(f"{line} --json", folder))


def _write_old(path: Path) -> None:
    """A model of before ML programs, one layer, by Apple's own message types."""
    messages = pytest.importorskip("coremltools.proto.Model_pb2")
    model = messages.Model(specificationVersion=4)
    model.neuralNetwork.arrayInputShapeMapping = 1
    for name, feature in ("x", model.description.input.add()), ("y", model.description.output.add()):
        feature.name = name
        feature.type.multiArrayType.dataType = 65568
        feature.type.multiArrayType.shape.extend((1, 4, 6, 6))
    layer = model.neuralNetwork.layers.add(name="r", input=["x"], output=["y"])
    layer.activation.ReLU.SetInParent()
    path.write_bytes(model.SerializeToString())


def called(line: str, folder: Path) -> str:
    """Standard output of a command whose files are in a folder."""
    words = [str(folder / word) if (folder / word).exists() or ("." in word and "=" not in word) else word
             for word in line.split()]  # fmt: skip
    words = [str(folder / word) if word in ("ex", "questions", "rep", "nothing", "shown") else word for word in words]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code in (0, 1, 3), f"{line}: {result.output}"
    return result.stdout


def answer(line: str, folder: Path) -> Any:
    return json.loads(called(f"{line} --json", folder))
