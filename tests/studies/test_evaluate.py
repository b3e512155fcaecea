"""``hexane evaluate``: metrics and intervals against others', odd data, the same figures however divided."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hexane
from hexane.arithmetic.fast.workers import thread_count
from hexane.errors import HexaneError, UsageError
from hexane.formats.strict_json import strict_json
from hexane.graph import Graph, GraphBuilder
from hexane.program.segment import Port
from hexane.studies.evaluation import intervals
from hexane.studies.evaluation.data import open_data
from hexane.studies.evaluation.evaluate import MOST_IN_PIECE, Course, Until
from hexane.studies.evaluation.figures import difference
from hexane.studies.evaluation.metrics import metric_named
from hexane.studies.pieces import Piece, Store, Workers, results, started

CLASSES = 4


def network(batch: int = 1, second: bool = False) -> Graph:
    b = GraphBuilder()
    x = b.input("x", (batch, 6), "fp32")
    rng = np.random.default_rng(3)
    weight = rng.standard_normal((CLASSES, 6)).astype(np.float16)
    scores = b.linear(x=b.cast(x=x, dtype="fp16"), weight=weight)
    if second:
        scores = b.add(x=scores, y=b.cast(x=b.input("y", (batch, CLASSES), "fp32"), dtype="fp16"))
    b.output(b.cast(x=scores, dtype="fp32", name="scores"))
    return b.graph


def samples(count: int = 80) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((count, 6)).astype(np.float32)
    return {"x": x, "label": rng.integers(0, CLASSES, count)}


def right(outputs: dict, label: object) -> bool:
    return int(np.argmax(outputs["scores"])) == int(label)  # type: ignore[call-overload]


def test_top1_is_that_of_the_outputs_themselves() -> None:
    graph, data = network(), samples()
    found = hexane.evaluate(graph, data).as_dict()
    program = hexane.compile(graph)
    for side, run in (("float32", graph.evaluate), ("engine", program.run)):
        answers = [int(np.argmax(run({"x": x[None]})["scores"])) for x in data["x"]]
        assert found[side]["metric"] == np.mean(np.array(answers) == data["label"])
    assert found["samples"] == 80 and found["float32_by"] == "reference"


def test_changed_samples_are_those_whose_class_changes() -> None:
    graph, data = network(), samples(300)
    found = hexane.evaluate(graph, data, weights="palette1", layers=4)
    program = hexane.compile(hexane.compress(graph, "palette1"))
    top = lambda run: [int(np.argmax(run({"x": x[None]})["scores"])) for x in data["x"]]  # noqa: E731
    wanted = np.flatnonzero(np.array(top(graph.evaluate)) != np.array(top(program.run)))
    row = found.rows[0]
    assert wanted.size and sorted(row.changed) == list(wanted)
    assert list(row.apart) == sorted(row.apart, reverse=True)
    assert row.layers and all(layer.error[0] <= layer.error[1] <= layer.error[3] for layer in row.layers)


def test_intervals_are_scipys() -> None:
    stats = pytest.importorskip("scipy.stats")
    for successes, count in ((0, 10), (7, 10), (1990, 2000)):
        wanted = stats.binomtest(successes, count).proportion_ci(0.95, "wilson")
        assert intervals.wilson(successes, count) == pytest.approx((wanted.low, wanted.high), abs=1e-12)
    values = np.random.default_rng(0).gamma(2.0, size=50)
    wanted = stats.t.interval(0.95, 49, values.mean(), stats.sem(values))
    assert intervals.of_ratio(values, np.ones(50)) == pytest.approx(wanted, rel=1e-12)


def test_metrics_are_those_of_others() -> None:
    measures = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(5)
    logits, label = rng.standard_normal((1, 3, 6, 7)), rng.integers(0, 3, (6, 7))
    found = metric_named("iou").judge({"y": logits}, label)
    assert found.above == pytest.approx(
        measures.jaccard_score(label.ravel(), logits[0].argmax(0).ravel(), average="macro")
    )
    a, b = rng.standard_normal(20), rng.standard_normal(20)
    cosine = measures.pairwise.cosine_similarity(a[None], b[None])[0, 0]
    assert metric_named("cosine").judge({"y": a}, b).above == pytest.approx(cosine, rel=1e-6)


def test_word_errors_of_a_decoded_sequence() -> None:
    steps = [0, 1, 1, 0, 1, 3, 2, 2, 0]  # blank is 0: "a", "a", " ", "b"
    scores = np.eye(4)[steps][None]
    metric = metric_named("wer", alphabet=("a", "b", " "))
    assert metric.judge({"y": scores}, np.str_("aa b")).above == 0
    assert metric.judge({"y": scores}, np.str_("aa bb c")).above == 2
    assert metric.judge({"y": scores}, np.array([1, 1, 3, -1])).above == 1


def test_without_labels_float32_is_the_truth() -> None:
    found = hexane.evaluate(network(), {"x": samples()["x"]}, "cosine").as_dict()
    assert found["metric"]["against"] == "float32" and found["float32"]["metric"] == 1.0
    assert 0.999 < found["engine"]["metric"] <= 1.0


def test_a_network_of_a_batch_gives_the_same() -> None:
    data = samples(30)  # no multiple of 8
    one, eight = (hexane.evaluate(network(batch), data, layers=0).as_dict() for batch in (1, 8))
    assert one["engine"] == eight["engine"] and one["changed"] == eight["changed"]


def test_several_inputs_and_a_metric_of_the_users() -> None:
    data = samples(40) | {"y": np.zeros((40, CLASSES), np.float32)}
    graph = network(second=True)
    assert hexane.evaluate(graph, data, f"{__name__}:right").rows[0].engine.metric == (
        hexane.evaluate(graph, data).rows[0].engine.metric
    )


def broken(outputs: dict, label: object) -> float:
    raise ZeroDivisionError("no luck")


def nan_at(index: int) -> dict[str, np.ndarray]:
    data = samples()
    data["x"][index, 2] = np.nan
    return data


@pytest.mark.parametrize(
    ("data", "options", "said"),
    [
        ({"x": np.zeros((0, 6), np.float32)}, {}, "empty"),
        ({"z": np.zeros((3, 6), np.float32)}, {}, "no input 'z'"),
        ({"label": np.zeros(3, int)}, {}, "'x' is missing"),
        ({"x": np.zeros((3, 5), np.float32)}, {}, r"samples of \(5,\)"),
        ({"x": np.zeros((3, 6), np.float32), "label": np.zeros(4, int)}, {}, "different lengths"),
        (nan_at(17), {}, "sample 17: input 'x' has NaN"),
        (samples(), {"metric": f"{__name__}:broken"}, "sample .* raises ZeroDivisionError: no luck"),
        (samples(), {"metric": "top5"}, "no metric 'top5'"),
        (samples(), {"until": "soon"}, "no width"),
        (samples(), {"limit": 0}, "limit of 0"),
        (samples(), {"weights": "int3"}, "no weight format"),
    ],
)
def test_what_does_not_fit_is_said(data: dict, options: dict, said: str) -> None:
    with pytest.raises(HexaneError, match=said):
        hexane.evaluate(network(), data, **options)


def test_a_network_without_classes() -> None:
    b = GraphBuilder()
    b.output(b.relu(x=b.input("x", (1, 1), "fp16")))
    with pytest.raises(UsageError, match="no classes"):
        hexane.evaluate(b.graph, {"x": np.ones((3, 1), np.float32), "label": np.zeros(3, int)})


def test_an_interval_that_is_tight_enough_ends_it() -> None:
    found = hexane.evaluate(network(), samples(2000), until="5%", layers=0)
    row = found.rows[0]
    assert row.stopped and 32 <= row.samples < 2000 and row.saved_seconds > 0
    low, high = row.engine.interval or (0, 1)
    assert high - low <= 0.1
    early = hexane.evaluate(network(), samples(2000), until="difference:2%", layers=0).rows[0]
    assert early.samples < row.samples


def _often(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    draw = rng.random(6000)
    return np.select([draw < 0.01, draw > 0.98], [1.0, -1.0]), -0.01


def _seldom(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    return (rng.random(6000) < 0.004).astype(float), 0.004


def _skewed(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    return np.where(rng.random(6000) < 0.06, rng.exponential(0.25, 6000) - 0.03, 0), 0.06 * 0.22


@pytest.mark.parametrize("drawn", [_often, _seldom, _skewed])
def test_intervals_of_courses_that_stop_hold_the_truth(drawn: Callable[..., tuple[np.ndarray, float]]) -> None:
    """The differences of 300 data sets whose mean is known."""
    rng, inside, stopped, top1 = np.random.default_rng(7), 0, 0, metric_named("top1", None, ())
    blocks = [np.arange(first, first + 20) for first in range(0, 6000, 20)]
    for _ in range(300):
        gap, mean = drawn(rng)
        course = Course(None, None, None, top1, Until.parse("difference:1%"), blocks)  # type: ignore[arg-type]
        for number, block in enumerate(blocks):
            zeros, ones = np.zeros(20), np.ones(20)
            plain, engine = ({"above": above, "below": ones, "seconds": np.zeros(())} for above in (zeros, gap[block]))
            course.take(number, plain, engine)
        count = 20 * course.used
        plain, engine = ({"above": above, "below": np.ones(count)} for above in (np.zeros(count), gap[:count]))
        low, high = difference(plain, engine).interval or (0.0, 0.0)
        inside += low <= mean <= high
        stopped += course.stopped
    assert stopped > 280 and inside >= 0.9 * 300, (stopped, inside)


def test_finished_pieces_are_not_computed_again(tmp_path: Path) -> None:
    first, second = Workers(), Workers()
    one = hexane.evaluate(network(), samples(), where=first, keep=tmp_path)
    two = hexane.evaluate(network(), samples(), where=second, keep=tmp_path)
    assert first.counts.computed and not second.counts.computed
    assert strict_json(one.as_dict()) == strict_json(two.as_dict())
    for kept in sorted(tmp_path.rglob("*.npz")):
        kept.write_bytes(b"PK damaged")
        third = Workers()
        row, whole = hexane.evaluate(network(), samples(), where=third, keep=tmp_path).rows[0], one.rows[0]
        assert (row.float32, row.engine, row.changed) == (whole.float32, whole.engine, whole.changed)
        assert third.counts.computed == 1


def square(number: int) -> dict[str, np.ndarray]:
    if number < 0:
        raise UsageError("negative")
    return {"square": np.asarray(number * number)}


def test_processes_give_the_same_bits(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    data = samples(200)
    alone = hexane.evaluate(network(), data, weights="fp16,palette1", layers=2).as_dict()
    where = Workers(2)
    both = hexane.evaluate(network(), data, weights="fp16,palette1", layers=2, where=where, keep=tmp_path).as_dict()
    for found in (alone, both):
        for row in found["rows"]:
            del row["seconds"]
    assert strict_json(alone) == strict_json(both) and where.counts.computed and not where.counts.again


def test_a_block_goes_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed, sent = pytest.importorskip("distributed"), []
    submit = distributed.Client.submit

    def noted(self: object, *args: object, key: str, **options: object) -> object:
        sent.append(key)
        return submit(self, *args, key=key, **options)

    monkeypatch.setattr(distributed.Client, "submit", noted)
    hexane.evaluate(network(), samples(600), weights="fp16,int8,palette1", layers=0, where=Workers(2))
    shared = [key for key in sent if key.startswith("shared-")]
    blocks = -(-600 // MOST_IN_PIECE)
    assert len(shared) == len(set(shared)) == 1 + 3 + blocks  # the network, three programs
    assert sum(key.startswith("piece-") for key in sent) == 3 + (1 + 3) * blocks


def test_data_that_are_missing_start_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed, starts = pytest.importorskip("distributed"), []
    monkeypatch.setattr(distributed, "LocalCluster", lambda **options: starts.append(options))
    (tmp_path / "data.txt").write_text("1")
    for path, words in ((tmp_path / "none.npz", "no such file"), (tmp_path / "data.txt", "is no data set")):
        with pytest.raises(HexaneError, match=words):
            hexane.evaluate(network(), path, where=Workers(2))
    assert not starts


def threads(number: int) -> dict[str, np.ndarray]:
    return {"threads": np.asarray(thread_count()), "trim": np.asarray(os.environ["MALLOC_TRIM_THRESHOLD_"])}


def test_a_process_computes_on_one_thread_and_keeps_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.delenv("HEXANE_THREADS", raising=False)
    pieces = [Piece.of(threads, n, arguments=(n,)) for n in range(4)]
    where = Workers(2)
    with started(where):
        found = [outcome for _, outcome in results(pieces, Store(), where)]
        assert where.processes is not None
    assert where.processes is None
    assert all((int(one["threads"]), str(one["trim"])) == (1, str(1 << 28)) for one in found)


def test_processes_know_a_metric_of_the_users(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    network().save(tmp_path / "net.mil")
    np.savez(tmp_path / "data.npz", **samples(300))
    (tmp_path / "mine.py").write_text(
        "def rank(outputs, label):\n    scores = outputs['scores'].ravel()\n"
        "    return 1 / (1 + int((scores > scores[int(label)]).sum()))\n"
    )
    found = []
    for workers in ("1", "2"):
        line = [sys.executable, "-m", "hexane", "evaluate", "net.mil", "--data", "data.npz", "--metric", "mine:rank"]
        done = subprocess.run([*line, "--workers", workers, "--json"], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    assert found[0]["engine"] == found[1]["engine"] and found[0]["float32"] == found[1]["float32"]
    data, scores = samples(300), network().evaluate
    ranks = []
    for x, label in zip(data["x"], data["label"]):
        row = scores({"x": x[None]})["scores"].ravel()
        ranks.append(1 / (list(np.argsort(-row)).index(label) + 1))
    assert found[0]["float32"]["metric"] == pytest.approx(np.mean(ranks))


def test_an_error_of_a_piece_is_its_outcome() -> None:
    pieces = [Piece.of(square, n, arguments=(n,)) for n in (3, -1, 3)]
    where = Workers()
    outcomes = [outcome for _, outcome in results(pieces, Store(), where)]
    assert outcomes[0] == {"square": np.asarray(9)} and isinstance(outcomes[1], UsageError)
    assert (where.counts.computed, where.counts.kept) == (1, 1)


def test_folders_and_python_files(tmp_path: Path) -> None:
    data = samples(24)
    for index, (x, label) in enumerate(zip(data["x"], data["label"])):
        place = tmp_path / "set" / str(label)
        place.mkdir(parents=True, exist_ok=True)
        np.save(place / f"{index:03}.npy", x[None])
    np.savez(tmp_path / "set.npz", **data)
    code = "import numpy as np\ndef dataset():\n    d = np.load(%r)\n    return list(zip(d['x'], d['label']))\n"
    (tmp_path / "set.py").write_text(code % str(tmp_path / "set.npz"))
    found = [hexane.evaluate(network(), tmp_path / name, layers=0) for name in ("set", "set.npz", "set.py")]
    assert len({row.rows[0].engine.metric for row in found}) == 1


LAYOUTS = {
    "classes by number": (("3/a.npy", "3/b.npy", "1/c.npy"), "", {"a.npy": 3, "b.npy": 3, "c.npy": 1}),
    "classes by name": (("cat/a.npy", "cat/b.npy", "ant/c.npy"), "", {"a.npy": 1, "b.npy": 1, "c.npy": 0}),
    "a table": (("b.npy", "a.npy", "c.npy"), "file,class\nc.npy,2\na.npy,0\n", {"c.npy": 2, "a.npy": 0}),
    "a table without a head": (("a.npy", "b.npy"), "b.npy,1\na.npy,7\n", {"b.npy": 1, "a.npy": 7}),
    "files": (("a.npy", "b.npy", "notes.md"), None, {"a.npy": None, "b.npy": None}),
}
"""Files of a folder, its labels.csv, and the samples with their classes that it stands for."""


@pytest.mark.parametrize("layout", LAYOUTS)
def test_samples_of_a_folder(tmp_path: Path, layout: str) -> None:
    names, table, expected = LAYOUTS[layout]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        with open(tmp_path / name, "wb") as file:
            np.save(file, np.full((1, 6), ord(Path(name).name[0]), np.float32))
    if table:
        (tmp_path / "labels.csv").write_text(table)
    data = open_data(tmp_path, [Port("x", (1, 6), "fp32")])
    taken = data.take(np.arange(len(expected)))
    assert (data.count, data.batch, data.has_labels) == (len(expected), 1, table is not None)
    found = dict(zip(taken.inputs["x"][:, 0], taken.labels if table is not None else [None] * len(expected)))
    assert found == {ord(name[0]): label for name, label in expected.items()}


def open_picture_network(path: Path) -> None:
    """An ONNX network of pictures whose batch, height and width are open."""
    onnx = pytest.importorskip("onnx")
    rng = np.random.default_rng(4)
    weight = rng.standard_normal((CLASSES, 3, 3, 3)).astype(np.float32)
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w"], ["c"]),
        onnx.helper.make_node("GlobalAveragePool", ["c"], ["p"]),
        onnx.helper.make_node("Flatten", ["p"], ["scores"]),
    ]
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes, "g", [onnx.helper.make_tensor_value_info("x", kind, ["batch", 3, "height", "width"])],
        [onnx.helper.make_tensor_value_info("scores", kind, ["batch", CLASSES])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), path)


@pytest.mark.parametrize("kind", ["npz", "py", "mapping", "sequence"])
def test_open_shapes_are_those_of_the_data(tmp_path: Path, kind: str) -> None:
    open_picture_network(tmp_path / "net.onnx")
    rng = np.random.default_rng(5)
    arrays = {"x": rng.standard_normal((6, 3, 9, 14)).astype(np.float32), "label": np.arange(6) % CLASSES}
    np.savez(tmp_path / "data.npz", **arrays)
    code = "import numpy as np\ndef dataset():\n    d = np.load(%r)\n    return list(zip(d['x'], d['label']))\n"
    (tmp_path / "data.py").write_text(code % str(tmp_path / "data.npz"))
    given = {
        "npz": tmp_path / "data.npz", "py": tmp_path / "data.py", "mapping": arrays,
        "sequence": list(zip(arrays["x"], arrays["label"])),
    }[kind]  # fmt: skip
    bound = hexane.evaluate(tmp_path / "net.onnx", arrays, shapes={"x": (1, 3, 9, 14)}, layers=1).as_dict()
    found = hexane.evaluate(tmp_path / "net.onnx", given, layers=1).as_dict()
    assert found["float32"] == bound["float32"] and found["engine"] == bound["engine"]


def test_a_file_of_code_runs_once(tmp_path: Path) -> None:
    open_picture_network(tmp_path / "net.onnx")
    code = "import numpy\nopen(%r, 'a').write('x')\ndef dataset():\n    return [(numpy.ones((3, 9, 14)), 1)] * 3\n"
    (tmp_path / "data.py").write_text(code % str(tmp_path / "runs"))
    hexane.evaluate(tmp_path / "net.onnx", tmp_path / "data.py", layers=0)
    assert (tmp_path / "runs").read_text() == "x"


def test_open_shapes_without_arrays_are_asked_for(tmp_path: Path) -> None:
    open_picture_network(tmp_path / "net.onnx")
    with pytest.raises(UsageError, match="open dimensions"):
        hexane.evaluate(tmp_path / "net.onnx", {"y": np.zeros((2, 3))})


def test_the_command(tmp_path: Path) -> None:
    network().save(tmp_path / "net.mil")
    np.savez(tmp_path / "data.npz", **samples())
    files = {"--data": "data.npz", "--page": "p.html"}
    command = [
        sys.executable,
        "-m",
        "hexane",
        "evaluate",
        str(tmp_path / "net.mil"),
        "--metric",
        "top1",
        "--chip",
        "M1",
    ]
    command += [word for option, name in files.items() for word in (option, str(tmp_path / name))]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["schema"] == "hexane-evaluate/1" and set(found["engine"]) == {"metric", "interval"}
    assert isinstance(found["changed"], list) and "float32 and the engine" in (tmp_path / "p.html").read_text()
