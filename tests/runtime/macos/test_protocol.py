"""The protocol against the fake: the order of calls, binding, faults at every call, and nothing left behind."""

from __future__ import annotations

import gc
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import hexane
from hexane.errors import HexaneError, UnsupportedError
from hexane.formats.mil import parse_mil
from hexane.graph import GraphBuilder
from hexane.private_api.budget import RAISE, CompileBudget
from hexane.private_api.faults import ProcessCrash, RuntimeFault
from hexane.program.load import load_program
from hexane.runtime.devices.macos import MacEngine
from hexane.runtime.macos.border import BorderError, ErrorSlot
from hexane.runtime.macos.fake.border import FakeMac
from hexane.runtime.macos.foundation import Objects
from hexane.runtime.macos.model import MemoryModel, SubmissionWay
from hexane.runtime.macos.segments import SegmentText, as_text, source_of
from report.networks import mixed, small
from runtime.macos.programs import convolution, difference, difference_text, mac, run, staged, values
from runtime.macos.transcript import Recorder

GOLDEN = Path(__file__).with_name("transcript.txt")


def test_the_order_of_calls_is_the_golden_one(tmp_path: Path) -> None:
    recorder = Recorder(mac(tmp_path))
    source = convolution()
    run(recorder, source, tmp_path, values(source))
    assert recorder.text() == GOLDEN.read_text()


@pytest.mark.parametrize("tells", [True, False])
def test_surfaces_are_bound_by_name_never_by_declared_order(tmp_path: Path, tells: bool) -> None:
    source = difference("b", "a")
    given = {"b": np.full((1, 64, 1, 64), 3, np.float16), "a": np.full((1, 64, 1, 64), 1, np.float16)}
    side = mac(tmp_path, tells_symbols=tells)
    found = run(side, source, tmp_path, given)
    assert (found["y"] == 2).all() and side.left() == [] and staged(tmp_path) == []


@pytest.mark.parametrize("network", [small, mixed])
def test_a_program_gives_the_emulator_s_bits(network) -> None:
    program = hexane.compile(network())
    shape = program.inputs[0].shape
    x = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float16)}
    wanted = program.run(x)["out"]
    side = FakeMac()
    with program.on(MacEngine(side)) as session:
        for _ in range(2):
            assert np.array_equal(session.run(x)["out"], wanted)
    engine = sum(segment.image is not None for segment in program.segments)
    assert side.left() == [] and side.daemon.evaluations == 2 * engine and side.daemon.compiles == engine
    assert np.array_equal(program.run(x, device="virtual:macos")["out"], wanted)


def test_surfaces_are_views_of_their_memory(tmp_path: Path) -> None:
    side, source = mac(tmp_path), difference("a", "b")
    model = MemoryModel(side, source, SubmissionWay(root=tmp_path / "tmp"))
    model.compile()
    model.load()
    with model.view("a") as a, model.view("b") as b:
        a[...], b[...] = 5, 2
    kept = a
    model.run()
    kept[...] = 0  # the lock is over: this reaches nothing
    with model.view("y", read_only=True) as y:
        assert (y == 3).all() and y.shape == (1, 64, 1, 64)
    model.unload()
    with pytest.raises(BorderError, match="not loaded"):
        model.run()
    model.load()  # what is compiled can be loaded again
    assert (model.evaluate({"a": np.ones((1, 64, 1, 64)), "b": np.ones((1, 64, 1, 64))})["y"] == 0).all()
    model.close()
    assert side.left() == [] and staged(tmp_path) == [] and side.daemon.compiles == 1


def test_a_fault_at_every_call_ends_clearly_and_leaves_nothing(tmp_path: Path) -> None:
    source = convolution()
    given = values(source)
    whole = mac(tmp_path)
    wanted = run(whole, source, tmp_path, given)["y"]
    calls, survived = whole.calls, 0
    assert calls > 60
    for number in range(calls):
        side = mac(tmp_path, fails_at=number, shares_cache=False)
        side.daemon._made = dict(whole.daemon._made)  # compiled before, so that the sweep is quick
        try:
            found = run(side, source, tmp_path, given)["y"]
        except HexaneError as error:
            assert not isinstance(error, ProcessCrash) and len(str(error)) > 20, (number, error)
        else:  # a call that may be answered with no: load is tried twice, symbols have an order of their own
            assert np.array_equal(found, wanted), number
            survived += 1
        assert side.left() == [] and staged(tmp_path) == [], (number, side.left())
    assert 0 < survived < calls / 2


def test_faults_that_stay_end_clearly_too(tmp_path: Path) -> None:
    source = convolution()
    given = values(source)
    whole = mac(tmp_path)
    run(whole, source, tmp_path, given)
    for number in range(0, whole.calls, 3):
        side = mac(tmp_path, fails_at=number, fails_times=10**6, shares_cache=False)
        side.daemon._made = dict(whole.daemon._made)
        with pytest.raises(HexaneError) as caught:
            run(side, source, tmp_path, given)
        assert not isinstance(caught.value, ProcessCrash)
        left = [what for what in side.left() if "program" not in what and "model was released" not in what]
        assert left == [] and staged(tmp_path) == []  # a program that cannot be unloaded goes with its model


def test_a_compiler_that_refuses_is_told_with_a_remedy(tmp_path: Path) -> None:
    side = mac(tmp_path)
    bad = difference()
    broken = type(bad)(bad.text.replace(b"sub(", b"gather("), {}, bad.inputs, bad.outputs)
    with pytest.raises(RuntimeFault, match="InvalidMILProgram") as caught:
        run(side, broken, tmp_path, values(bad))
    assert caught.value.code == 1 and "hexane check" in str(caught.value)
    assert side.left() == [] and staged(tmp_path) == []


def test_the_fake_ends_what_the_real_one_would_end(tmp_path: Path) -> None:
    side, source = mac(tmp_path), difference()
    model = MemoryModel(side, source, SubmissionWay(root=tmp_path / "tmp"))
    (model.folder / "model.mil").write_text("nonsense")  # type: ignore[operator]
    with pytest.raises(RuntimeFault):
        model.compile()
    side = mac(tmp_path)
    model = MemoryModel(side, source, SubmissionWay(root=tmp_path / "tmp"))
    pointer = next(address for address, t in side.heap.things.items() if t.kind == "_ANEInMemoryModel")
    side.heap.things[pointer].value.state = "failed"
    model.is_loaded = True
    side.heap.push()
    with pytest.raises(ProcessCrash, match="getUUID"):
        side.send(pointer, "evaluateWithQoS:options:request:error:", 21, Objects(side).dictionary({}), 0, ErrorSlot())
    with pytest.raises(ProcessCrash, match="takes a u32"):
        side.send(pointer, "compileWithQoS:options:error:", "21", 0, 0)
    with pytest.raises(ProcessCrash, match="does not know"):
        side.send(pointer, "UTF8String")
    with pytest.raises(ProcessCrash, match="EXC_BAD_ACCESS"):
        side.call("CFRelease", 12345)


def test_counts_are_kept(tmp_path: Path) -> None:
    sources = [difference("b", name) for name in ("a", "c", "d")]
    side = mac(tmp_path, most_compiles=2)
    run(side, sources[0], tmp_path, values(sources[0]))
    run(side, sources[1], tmp_path, values(sources[1]))
    with pytest.raises(RuntimeFault, match="start a new one") as caught:
        run(side, sources[2], tmp_path, values(sources[2]))
    assert caught.value.rule == "R1"
    with pytest.raises(RuntimeFault) as caught:
        run(mac(tmp_path), sources[2], tmp_path, values(sources[2]), budget=CompileBudget(1, RAISE, used=1))
    side = mac(tmp_path, most_loaded=1)
    first, second = (MemoryModel(side, source, SubmissionWay(root=tmp_path / "tmp")) for source in sources[:2])
    first.compile(), first.load(), second.compile()
    with pytest.raises(RuntimeFault, match="unload some") as caught:
        second.load()
    assert caught.value.status == 0x50004
    first.close()
    assert side.left() == []


def test_two_models_of_one_text_share_a_folder(tmp_path: Path) -> None:
    side, source = mac(tmp_path), difference("a", "b")
    first, second = (MemoryModel(side, source, SubmissionWay(root=tmp_path / "tmp")) for _ in range(2))
    first.compile()
    first.close()
    assert len([name for name in staged(tmp_path) if not name.endswith(".lock")]) == 1  # a lock lies beside it
    second.compile()
    second.load()
    assert second.evaluate(values(source))["y"].any()
    second.close()
    assert staged(tmp_path) == [] and side.left() == []


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    program = hexane.compile(small())
    with pytest.raises(UnsupportedError, match="macOS only"):
        program.run({"x": np.zeros((1, 16, 8, 8), np.float16)}, device="macos")
    program.save(tmp_path / "p.hexane")
    x = {"x": np.zeros((1, 16, 8, 8), np.float16)}
    with pytest.raises(UnsupportedError, match="its own compiler"):
        load_program(tmp_path / "p.hexane").run(x, device="virtual:macos")
    side = mac(tmp_path)
    with pytest.raises(HexaneError, match="leads outside"):
        source = difference()
        MemoryModel(side, type(source)(source.text, {"@model_path/../w.bin": b""}, source.inputs, source.outputs),
                    SubmissionWay(root=tmp_path / "tmp"))  # fmt: skip
    assert side.left() == [] and staged(tmp_path) == []


def test_the_text_of_a_segment_is_of_the_chip_s_dialect() -> None:
    for chip, version in (("M1", "program(1.0)"), ("M2", "program(1.0)"), ("M3", "program(1.3)")):
        program = hexane.compile(small(), chip=chip)
        text = as_text(program.segments[0], chip)
        assert text.source.text.decode().startswith(version)
        assert not [f for f in text.findings if f.spoils and f.rule != "S4"]  # 8 columns
        assert list(text.source.inputs) == sorted(text.source.inputs)


def test_m1_gets_a_file_for_every_constant_where_it_may() -> None:
    def layers(count: int, chip: str) -> SegmentText:
        b = GraphBuilder()
        x = b.input("x", (1, 16, 4, 32), "fp16")
        for number in range(count):
            x = b.relu(x=b.conv(x=x, weight=np.full((16, 16, 1, 1), (number + 1) / 64, np.float16)))
        b.output(x)
        return as_text(hexane.compile(b.graph, chip=chip).segments[0], chip)

    few, later, many = layers(3, "M1"), layers(3, "M2"), layers(20, "M1")
    assert len(few.source.weights) == 3 and not [f for f in few.findings if f.rule == "W7"]
    assert list(later.source.weights) == list(many.source.weights) == ["@model_path/weights/weight.bin"]
    assert any(f.rule == "W7" for f in many.findings)


def test_mil_model_on_the_fake() -> None:
    text = difference_text("b", "a")
    given = {name: np.random.default_rng(i).standard_normal((1, 64, 1, 64)).astype(np.float16)
             for i, name in enumerate("ab")}  # fmt: skip
    with hexane.mil.Model(text, chip="M1") as model:
        wanted = model.evaluate(given)["y"]
    side = FakeMac()
    with hexane.mil.Model(text, chip="M1", device=side) as model:
        assert model.level == "macos" and np.array_equal(model.evaluate(given)["y"], wanted)
        with pytest.raises(UnsupportedError, match="W8"):
            model.update({})
    assert side.left() == [] and model.state == "new"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with hexane.mil.Model(text, chip="M4", device="virtual:macos") as model:
            assert model.evaluate(given)["y"].shape == wanted.shape
    with pytest.raises(UnsupportedError, match="macOS only"):
        hexane.mil.Model(text, chip="M1", device="macos").compile()


def test_source_of_keeps_names() -> None:
    source = source_of(difference_text("b", "a"), {})
    assert list(source.inputs) == ["b", "a"] and list(source.outputs) == ["y"]
    assert parse_mil(source.text.decode()).main.inputs[0].name == "b"


def _tables(b, x):
    """Functions that the compiler makes one table of its own op, with the numbers around them."""
    swish = b.mul(x=x, y=b.sigmoid_hard(x=x, alpha=np.float16(1 / 6), beta=np.float16(0.5)))
    mish = b.mul(x=swish, y=b.tanh(x=b.softplus(x=swish)))
    moved = b.add(x=b.mul(x=b.sigmoid(x=mish), y=np.float16(0.37)), y=np.float16(0.25))
    return b.real_div(x=b.silu(x=b.gelu(x=moved, mode="EXACT")), y=np.float16(3))


def _ports() -> dict[str, tuple]:
    """Name -> (what builds the outputs, inputs): ports of every kind that an engine segment has."""
    map_ = (1, 8, 4, 32)
    return {
        "bool out": (lambda b, x, y: b.less(x=x, y=y), {"x": (map_, "fp16"), "B": (map_, "fp16")}),
        "bytes in": (lambda b, x: b.relu(x=b.cast(x=x, dtype="fp16")), {"x": (map_, "uint8")}),
        "float32": (lambda b, x: b.relu(x=x), {"x": (map_, "fp32")}),
        "several": (
            lambda b, x, y: (b.add(x=x, y=y, name="zz"), b.sub(x=x, y=y, name="Aa"), b.less(x=x, y=y, name="mm")),
            {"x": (map_, "fp16"), "B": (map_, "fp16")},
        ),
        "own tables": (_tables, {"x": (map_, "fp16")}),
        "rank 1": (lambda b, x: b.relu(x=x), {"x": ((64,), "fp16")}),
        "rank 5": (lambda b, x: b.relu(x=x), {"x": ((1, 2, 3, 4, 32), "fp16")}),
        "scalar": (lambda b, x: b.relu(x=x), {"x": ((), "fp16")}),
        "odd names": (lambda b, x: b.relu(x=x, name="o/ut:0"), {"in;1": (map_, "fp16")}),
        "taken names": (lambda b, x: b.relu(x=x, name="port_o0000"), {"port_i0000": (map_, "fp16")}),
    }


@pytest.mark.parametrize("kind", _ports())
def test_ports_of_every_kind(kind: str) -> None:
    build, inputs = _ports()[kind]
    b = GraphBuilder()
    made = build(b, *(b.input(name, shape, dtype) for name, (shape, dtype) in inputs.items()))
    b.output(*(made if isinstance(made, tuple) else (made,)))
    program = hexane.compile(b.graph)
    random = np.random.default_rng(0)
    dtypes = {"fp16": np.float16, "fp32": np.float32, "uint8": np.uint8}
    given = {name: (random.random(shape) * 50).astype(dtypes[dtype]) for name, (shape, dtype) in inputs.items()}
    wanted, found = program.run(given), program.run(given, device="virtual:macos")
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype and np.array_equal(found[name], array)


def test_threads_share_a_session() -> None:
    program = hexane.compile(small())
    inputs = [{"x": np.full((1, 16, 8, 8), k / 7, np.float16)} for k in range(4)]
    wanted = [program.run(x)["out"] for x in inputs]
    side, wrong = FakeMac(), []
    with program.on(MacEngine(side)) as session:
        session.run(inputs[0])

        def work(k: int) -> None:
            wrong.extend(k for _ in range(20) if not np.array_equal(session.run(inputs[k])["out"], wanted[k]))

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong and side.left() == []


def test_several_programs_at_once_and_a_session_that_nobody_closed() -> None:
    first, second = hexane.compile(small()), hexane.compile(mixed())
    x = {"x": np.ones((1, 16, 8, 8), np.float16)}
    y = {"x": np.ones((1, 4, 8, 8), np.float16)}
    side, wrong = FakeMac(), []
    device = MacEngine(side)
    sessions = [(first.on(device), x, first.run(x)["out"]), (second.on(device), y, second.run(y)["out"])]
    for session, given, _ in sessions:
        session.run(given)

    def work(session, given, wanted) -> None:
        wrong.extend(1 for _ in range(10) if not np.array_equal(session.run(given)["out"], wanted))

    threads = [threading.Thread(target=work, args=one) for one in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(side.daemon.loaded) == 3
    del session, sessions, threads
    gc.collect()
    assert side.left() == []


@pytest.mark.slow
@pytest.mark.parametrize("network", ["text", "melody"])
def test_real_networks_give_the_emulator_s_bits(network: str) -> None:
    """The text detector and the note detector, segment by segment as MIL text."""
    folder = Path(__file__).parents[3] / "models"
    file, shapes, dialect = {
        "text": ("rapidocr-onnxruntime/ch_PP-OCRv4_det_infer.onnx", {"x": (1, 3, 96, 96)}, "default"),
        "melody": ("basic-pitch/nmp.onnx", {}, "apple"),
    }[network]
    if not (folder / file).is_file():
        pytest.skip("the networks are not here: make models")
    graph = hexane.load(folder / file, shapes=shapes)
    program = hexane.compile(graph, dialect=dialect)
    given = {p.name: np.random.default_rng(0).standard_normal(p.shape).astype(np.float32) for p in program.inputs}
    if dialect == "apple":  # lines longer than Apple's compiler takes are the default's alone
        with pytest.raises(RuntimeFault, match=r'S9: .* extent .*compile with dialect="apple"'):
            hexane.compile(graph).run(given, device="virtual:macos")
    wanted, found = program.run(given), program.run(given, device="virtual:macos")
    assert all(wanted[name].tobytes() == found[name].tobytes() for name in wanted)
