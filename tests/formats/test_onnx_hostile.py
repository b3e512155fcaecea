"""Models that make onnx's own C++ crash, abort or never end: one error in time, and the next model loads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexane
from hexane.errors import FormatError, HexaneError

onnx = pytest.importorskip("onnx")

from hexane.formats.onnx import library  # noqa: E402
from hexane.formats.onnx.importer import load_onnx  # noqa: E402

FLOAT, INT64 = 1, 7


def _value(name: str, shape: tuple[int, ...], kind: int = FLOAT) -> Any:
    return onnx.helper.make_tensor_value_info(name, kind, shape)


def _model(nodes: list[Any], inputs: list[Any], outputs: list[Any], opset: int = 20) -> Any:
    graph = onnx.helper.make_graph(nodes, "g", inputs, outputs)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8)


def _regex() -> Any:
    """Shape inference reads the pattern, which is not there."""
    return _model([onnx.helper.make_node("RegexFullMatch", ["a"], ["b"])], [], [])


def _map() -> Any:
    """The definition of SequenceMap copies types that the body does not have."""
    body = onnx.GraphProto(input=[onnx.ValueInfoProto()], output=[onnx.ValueInfoProto()])
    node = onnx.NodeProto(op_type="SequenceMap", input=["a"])
    node.attribute.add(name="body", g=body)
    return _model([node], [], [], 17)


def _split() -> Any:
    """More results than parts."""
    node = onnx.NodeProto(op_type="Split", input=["a"], output=["b", "c", "d", "e"])
    node.attribute.add(name="num_outputs", i=3)
    return _model([node], [_value("a", (6,))], [], 18)


def _einsum() -> Any:
    """An equation whose end is never found."""
    node = onnx.helper.make_node("Einsum", ["a"], ["b"], equation="=>")
    return _model([node], [_value("a", ())], [_value("b", ())], 13)


def _good() -> Any:
    return _model([onnx.helper.make_node("Relu", ["a"], ["b"])], [_value("a", (4,))], [_value("b", (4,))])


@pytest.mark.parametrize("make", [_regex, _map, _split, _einsum], ids=["regex", "map", "split", "einsum"])
def test_it_is_refused_and_the_next_model_loads(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "SECONDS", 1)
    with pytest.raises(FormatError, match=r"onnx crashes on this model|onnx needs more than 1 seconds"):
        load_onnx(make().SerializeToString())
    graph = load_onnx(_good().SerializeToString())
    assert graph.evaluate({"a": np.array([-1, 0, 1, 2], np.float32)})["b"].tolist() == [0, 0, 1, 2]


def test_the_process_is_kept_and_started_anew_when_it_is_gone() -> None:
    load_onnx(_good().SerializeToString())
    first = library._child
    load_onnx(_good().SerializeToString())
    assert first is not None and library._child is first
    first.process.kill()
    first.process.wait()
    load_onnx(_good().SerializeToString())
    assert library._child is not None and library._child is not first


def test_a_model_that_needs_too_much_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("resource")
    large = _good()
    large.doc_string = "x" * (64 << 20)
    content = large.SerializeToString()
    monkeypatch.setattr(library, "MEMORY", -15 * len(content))
    with pytest.raises(HexaneError, match=r"bad_alloc|MemoryError|crashes"):
        load_onnx(content)
    monkeypatch.undo()
    load_onnx(content)


def test_without_processes_onnx_runs_here(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    library._close()
    monkeypatch.setattr(library, "_child", None)
    monkeypatch.setattr(library, "_alone", False)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert load_onnx(_good().SerializeToString()).ops[0].type == "relu"
    assert "without limits" in caplog.text


def test_many_threads_get_their_own_answers() -> None:
    found: dict[int, tuple[int, ...]] = {}

    def load(extent: int) -> None:
        node = onnx.helper.make_node("Relu", ["a"], ["b"])
        model = _model([node], [_value("a", (extent,))], [_value("b", (extent,))])
        found[extent] = load_onnx(model.SerializeToString()).main.outputs[0].shape

    threads = [threading.Thread(target=load, args=(extent,)) for extent in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {extent: (extent,) for extent in range(1, 9)}


LEFT_ALONE = """
import sys, hexane
from hexane.formats.onnx import library
hexane.load(sys.argv[1])
print(library._child.process.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.name == "nt", reason="no kill there")
def test_the_process_ends_with_its_owner(tmp_path: Path) -> None:
    """Also when that is killed."""
    path = tmp_path / "good.onnx"
    path.write_bytes(_good().SerializeToString())
    command = [sys.executable, "-c", LEFT_ALONE, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        for _ in range(200):
            try:
                state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                break
            if state == "Z":
                break
            threading.Event().wait(0.05)
        else:
            pytest.fail("the process lives on")


def test_compiling_a_constant_output_ends() -> None:
    """An identity that carried a constant to an output was folded into another one, for ever."""
    split = onnx.helper.make_node("Split", ["a"], ["b", "c", "d"], num_outputs=3)
    model = _model([split], [_value("a", (1,))], [_value(n, (2,)) for n in "bcd"], 18)
    graph = load_onnx(model.SerializeToString())
    program = hexane.compile(graph)
    got = program.run({"a": np.array([3], np.float32)})
    assert {name: array.tolist() for name, array in got.items()} == {"b": [3.0], "c": [], "d": []}


def test_the_import_of_a_library_is_no_time_of_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its bytecode onnxscript takes longer to import than a model may."""
    pytest.importorskip("onnxscript")
    (tmp_path / "onnx_ir.py").write_text(
        "import sys, time\nwhile time.process_time() < 3: pass\n"
        f"sys.path.remove({str(tmp_path)!r}); del sys.modules['onnx_ir']; import onnx_ir\n"
    )
    library._close()
    monkeypatch.setattr(library, "SECONDS", 1)
    monkeypatch.syspath_prepend(str(tmp_path))
    model = _good().SerializeToString()
    assert onnx.ModelProto.FromString(library.call("fold", model, where="here")).graph.node[0].op_type == "Relu"
    library._close()
