"""``hexane.coreml.MLModel`` against torch and NumPy, on models that coremltools itself wrote."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexane
from hexane.errors import FormatError, UnsupportedError, UsageError
from hexane.formats.coreml import pipeline as pipeline_reader

warnings.simplefilter("ignore")
ct = pytest.importorskip("coremltools")
from coremltools.converters.mil import mil  # noqa: E402
from coremltools.converters.mil.mil import Builder as mb  # noqa: E402
from coremltools.models import datatypes  # noqa: E402
from coremltools.models.pipeline import Pipeline, PipelineClassifier, PipelineRegressor  # noqa: E402

UNITS = ("CPU_ONLY", "ALL")


def saved(model: Any, folder: Path) -> str:
    path = str(folder / ("m.mlpackage" if model.is_package else "m.mlmodel"))
    model.save(path)
    return path


def linear(name: str, weight: np.ndarray, out: str, to: str) -> Any:
    program = mil.Program()
    with mil.Function({name: mb.placeholder(shape=weight.shape[1:])}) as function:
        function.set_outputs([mb.linear(x=function.inputs[name], weight=weight, name=out)])
        program.add_function("main", function)
    return ct.convert(program, convert_to=to, skip_model_load=True)


@pytest.fixture(scope="module")
def rng() -> np.random.Generator:
    return np.random.default_rng(16)


@pytest.mark.parametrize("units", UNITS)
def test_a_program_with_flexible_shapes(units: str, tmp_path: Path, rng: np.random.Generator) -> None:
    """One program for each size that is met, none for a size that is not."""

    @mb.program(input_specs=[mb.TensorSpec(shape=(1, 2, ct.RangeDim(3, 9).symbol, 4))], opset_version=ct.target.iOS16)
    def doubled(x: Any) -> Any:
        return mb.relu(x=mb.add(x=x, y=x), name="y")

    inputs = [ct.TensorType(name="x", shape=(1, 2, ct.RangeDim(3, 9, default=5), 4))]
    model = hexane.coreml.MLModel(
        saved(ct.convert(doubled, inputs=inputs, skip_model_load=True, minimum_deployment_target=ct.target.iOS16),
              tmp_path),
        compute_units=units,
    )  # fmt: skip
    assert model.report.sizes == ()
    for height in (5, 3, 9, 3):
        x = rng.standard_normal((1, 2, height, 4)).astype(np.float16).astype(np.float32)
        np.testing.assert_allclose(model.predict({"x": x})["y"], np.maximum(2 * x, 0), rtol=1e-3)
    assert [row.shapes["x"][2] for row in model.report.sizes] == [5, 3, 9]
    assert (model.report.sizes[0].tasks > 0) == (units == "ALL")
    with pytest.raises(UsageError, match=r"the model allows 1x2x3\.\.9x4"):
        model.predict({"x": np.zeros((1, 2, 10, 4))})
    with pytest.raises(UsageError, match="no input 'z'"):
        model.predict({"z": 0})
    with pytest.raises(UsageError, match="'x' is missing"):
        model.predict({})


@pytest.mark.parametrize("units", UNITS)
def test_states_stay_between_predictions(units: str, tmp_path: Path) -> None:
    @mb.program(
        input_specs=[mb.TensorSpec((1, 4), dtype=ct.converters.mil.mil.types.fp16),
                     mb.StateTensorSpec((1, 4), dtype=ct.converters.mil.mil.types.fp16)],
        opset_version=ct.target.iOS18,
    )  # fmt: skip
    def counter(x: Any, total: Any) -> Any:
        grown = mb.add(x=mb.read_state(input=total), y=x)
        return mb.mul(x=mb.coreml_update_state(state=total, value=grown), y=np.float16(2), name="y")

    converted = ct.convert(counter, skip_model_load=True, minimum_deployment_target=ct.target.iOS18)
    model = hexane.coreml.MLModel(saved(converted, tmp_path), compute_units=units)
    state, other, x = model.make_state(), model.make_state(), np.full((1, 4), 0.5)
    got = [float(model.predict({"x": x}, state=state)["y"][0, 0]) for _ in range(3)]
    assert got == [1.0, 2.0, 3.0]
    assert float(model.predict({"x": x}, state=other)["y"][0, 0]) == 1.0
    (name,) = state.arrays
    state.write_state(name, np.full((1, 4), 8.0))
    assert float(model.predict({"x": x}, state=state)["y"][0, 0]) == 17.0 and state.read_state(name)[0, 0] == 8.5
    with pytest.raises(UsageError, match="make_state"):
        model.predict({"x": x})
    with pytest.raises(UsageError, match="no state 'z'"):
        state.read_state("z")


def test_a_function_by_its_name(tmp_path: Path, rng: np.random.Generator) -> None:
    weights = [rng.standard_normal((3, 4)).astype(np.float32) for _ in range(2)]
    descriptor = ct.utils.MultiFunctionDescriptor()
    for number, weight in enumerate(weights):
        path = str(tmp_path / f"m{number}.mlpackage")
        linear("x", weight, "y", "mlprogram").save(path)
        descriptor.add_function(path, "main", f"f{number}")
    descriptor.default_function_name = "f1"
    ct.utils.save_multifunction(descriptor, str(tmp_path / "both.mlpackage"))
    x = rng.standard_normal(4).astype(np.float32)
    for name, weight in ((None, weights[1]), ("f0", weights[0]), ("f1", weights[1])):
        model = hexane.coreml.MLModel(str(tmp_path / "both.mlpackage"), function_name=name)
        np.testing.assert_allclose(model.predict({"x": x})["y"], weight @ x, atol=1e-2)
    with pytest.raises(UsageError, match="no function 'f2'"):
        hexane.coreml.MLModel(str(tmp_path / "both.mlpackage"), function_name="f2")


@pytest.mark.parametrize("kinds", [("mlprogram", "neuralnetwork"), ("neuralnetwork", "mlprogram"), ("mlprogram",) * 2])
def test_a_pipeline_of_networks(kinds: tuple[str, str], tmp_path: Path, rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((5, 8)).astype(np.float32), rng.standard_normal((2, 5)).astype(np.float32)
    pipeline = ct.utils.make_pipeline(linear("x", a, "h", kinds[0]), linear("h", b, "y", kinds[1]))
    path = saved(pipeline, tmp_path)
    x = rng.standard_normal(8).astype(np.float32)
    np.testing.assert_allclose(hexane.load(path).evaluate({"x": x})["y"], b @ (a @ x), atol=1e-2)
    model = hexane.coreml.MLModel(path)
    np.testing.assert_allclose(model.predict({"x": x})["y"], b @ (a @ x), atol=3e-2)
    assert model.report.sizes[0].host_ops == 0


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("kind", ["mlprogram", "neuralnetwork"])
def test_models_without_weights_are_saved_as_coremltools_saves_them(kind: str, several: bool, tmp_path: Path) -> None:
    """A folder for a program and a pipeline of programs, a file for other models."""

    def relu(name: str, out: str) -> Any:
        program = mil.Program()
        with mil.Function({name: mb.placeholder(shape=(4,))}) as function:
            function.set_outputs([mb.relu(x=function.inputs[name], name=out)])
            program.add_function("main", function)
        return ct.convert(program, convert_to=kind, skip_model_load=True)

    theirs = ct.utils.make_pipeline(relu("x", "h"), relu("h", "y")) if several else relu("x", "y")
    hexane.coreml.MLModel(saved(theirs, tmp_path)).save(tmp_path / "again")
    assert (tmp_path / "again.mlpackage").is_dir() == theirs.is_package
    assert (tmp_path / "again.mlmodel").is_file() != theirs.is_package


def message(kind: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
    """A small model's message with features of these kinds: an int or a shape is an array, a type is a number."""
    model = ct.proto.Model_pb2.Model()
    model.specificationVersion = 4
    for features, rows in ((inputs, model.description.input), (outputs, model.description.output)):
        for name, size in features.items():
            feature = rows.add()
            feature.name = name
            if size is float:
                feature.type.doubleType.SetInParent()
            else:
                feature.type.multiArrayType.dataType = 65600
                feature.type.multiArrayType.shape.extend([size] if isinstance(size, int) else size)
    getattr(model, kind).SetInParent()
    return model


def test_a_pipeline_of_small_models(rng: np.random.Generator) -> None:
    """Vectorizer, imputer, scaler, normaliser, linear regressor: scikit-learn's formulas in NumPy."""
    vector = message("featureVectorizer", {"a": float, "b": 3}, {"v": 4})
    for name, size in (("a", 1), ("b", 3)):
        column = vector.featureVectorizer.inputList.add()
        column.inputColumn, column.inputDimensions = name, size
    imputer = message("imputer", {"v": 4}, {"i": 4})
    imputer.imputer.imputedDoubleArray.vector.extend([1, 2, 3, 4])
    imputer.imputer.replaceDoubleValue = float("nan")
    scaler = message("scaler", {"i": 4}, {"s": 4})
    scaler.scaler.shiftValue.extend([1, -1, 0.5, 0])
    scaler.scaler.scaleValue.append(0.5)
    normal = message("normalizer", {"s": 4}, {"n": 4})
    normal.normalizer.normType = 2
    regressor = message("glmRegressor", {"n": 4}, {"y": float})
    weight = rng.standard_normal(4)
    regressor.glmRegressor.weights.add().value.extend(weight.tolist())
    regressor.glmRegressor.offset.append(0.25)
    pipeline = PipelineRegressor([("a", datatypes.Double()), ("b", datatypes.Array(3))], "y")
    for one in (vector, imputer, scaler, normal, regressor):
        pipeline.add_model(one)
    model = hexane.coreml.MLModel(pipeline.spec)
    found = model.predict({"a": 2.0, "b": [0.5, float("nan"), -1]})["y"]
    row = (np.array([2, 0.5, 3, -1]) + [1, -1, 0.5, 0]) * 0.5
    assert isinstance(found, float)
    assert found == pytest.approx(row / np.linalg.norm(row) @ weight + 0.25, abs=4e-3)


@pytest.mark.parametrize(("models", "levels"), [(3, 2), (4, 2), (3, 1), (2, 2)])
def test_models_and_levels_of_a_pipeline_are_limited(
    models: int, levels: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A pipeline counts as a model; what it holds is a level below it."""
    monkeypatch.setattr(pipeline_reader, "MOST_MODELS", models)
    monkeypatch.setattr(pipeline_reader, "MOST_LEVELS", levels)
    inner = Pipeline([("x", datatypes.Array(2))], [("y", datatypes.Array(2))])
    scaler = message("scaler", {"x": 2}, {"y": 2})
    scaler.scaler.scaleValue.append(2)
    inner.add_model(scaler)
    outer = Pipeline([("x", datatypes.Array(2))], [("y", datatypes.Array(2))])
    outer.add_model(inner.spec)
    path = saved(ct.models.MLModel(outer.spec, skip_model_load=True), tmp_path)
    if models >= 3 and levels >= 2:
        assert hexane.load(path).evaluate({"x": np.ones(2, np.float32)})["y"].tolist() == [2, 2]
    else:
        with pytest.raises(FormatError, match=f"more than {models} models or {levels} levels"):
            hexane.load(path)


@pytest.mark.parametrize("shape", [(6,), (2, 3), (3, 1, 2)])
def test_small_models_take_arrays_of_any_rank(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    """Elements count in the order of a row, after those of the input before."""
    given = {"a": rng.standard_normal(2).astype(np.float32), "b": rng.standard_normal(shape).astype(np.float32)}
    row = np.concatenate([array.ravel() for array in given.values()])
    sizes = {"a": 2, "b": shape}
    extractor = message("arrayFeatureExtractor", sizes, {"y": 3})
    extractor.arrayFeatureExtractor.extractIndex.extend([7, 0, 4])
    regressor = message("glmRegressor", sizes, {"y": float})
    weight = rng.standard_normal(8)
    regressor.glmRegressor.weights.add().value.extend(weight.tolist())
    for one, wanted in ((extractor, row[[7, 0, 4]]), (regressor, weight @ row)):
        features = [(name, datatypes.Array(*array.shape)) for name, array in given.items()]
        out = datatypes.Double() if one is regressor else datatypes.Array(3)
        pipeline = Pipeline(features, [("y", out)])
        pipeline.add_model(one)
        model = hexane.coreml.MLModel(pipeline.spec, compute_units="CPU_ONLY")
        np.testing.assert_allclose(model.predict(given)["y"], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("encoding", "rows"), [(0, 1), (0, 2), (1, 3)])
def test_a_pipeline_classifier(encoding: int, rows: int, rng: np.random.Generator) -> None:
    glm = message("glmClassifier", {"x": 4}, {})
    labels = [7, 8, 9][: rows + (encoding == 0)]
    weight = rng.standard_normal((rows, 4))
    for row in weight:
        glm.glmClassifier.weights.add().value.extend(row.tolist())
    glm.glmClassifier.offset.extend([0.0] * rows)
    glm.glmClassifier.classEncoding = encoding
    glm.glmClassifier.int64ClassLabels.vector.extend(labels)
    outputs = [("label", datatypes.Int64()), ("p", datatypes.Dictionary(datatypes.Int64()))]
    pipeline = PipelineClassifier([("x", datatypes.Array(4))], labels, outputs)
    for part in (glm, pipeline.spec):
        part.description.predictedFeatureName, part.description.predictedProbabilitiesName = "label", "p"
    for feature in pipeline.spec.description.output:
        glm.description.output.add().CopyFrom(feature)
    pipeline.add_model(glm)
    model = hexane.coreml.MLModel(pipeline.spec, compute_units="CPU_ONLY")
    x = rng.standard_normal(4)
    found = model.predict({"x": x})
    scores = weight @ x
    if encoding:
        each = 1 / (1 + np.exp(-scores))
        wanted = each / each.sum()
    else:
        e = np.exp(np.concatenate([[0], scores]))
        wanted = e / e.sum()
    assert found["label"] == labels[int(wanted.argmax())]
    assert list(found["p"]) == labels
    np.testing.assert_allclose(list(found["p"].values()), wanted, atol=1e-5)


def test_pipelines_that_cannot_run_say_why() -> None:
    tree = message("treeEnsembleRegressor", {"x": 4}, {"y": 1})
    pipeline = Pipeline([("x", datatypes.Array(4))], [("y", datatypes.Array(1))])
    pipeline.add_model(tree)
    with pytest.raises(UnsupportedError, match=r"model 0 \(treeEnsembleRegressor\)"):
        hexane.coreml.MLModel(pipeline.spec)
    scaler = message("scaler", {"x": 4}, {"z": 4})
    broken = Pipeline([("x", datatypes.Array(4))], [("y", datatypes.Array(1))])
    broken.add_model(scaler)
    with pytest.raises(FormatError, match="makes the output 'y'"):
        hexane.coreml.MLModel(broken.spec)
    cut = Pipeline([("w", datatypes.Array(4))], [("z", datatypes.Array(4))])
    cut.add_model(scaler)
    with pytest.raises(FormatError, match="takes 'x', which nothing before it makes"):
        hexane.coreml.MLModel(cut.spec)
    with pytest.raises(UsageError, match="compute_units"):
        hexane.coreml.MLModel(cut.spec, compute_units="GPU")
    with pytest.raises(UsageError, match="no Core ML model"):
        hexane.coreml.MLModel(3)


def test_what_is_edited_is_saved_as_coremltools_reads_it(tmp_path: Path, rng: np.random.Generator) -> None:
    """The common round: a package, its message edited, a model of both, saved; coremltools reads it back."""
    weight = rng.standard_normal((64, 64)).astype(np.float32)
    x = rng.standard_normal(64).astype(np.float32)
    model = hexane.coreml.MLModel(saved(linear("x", weight, "y", "mlprogram"), tmp_path), False, None, True)
    assert Path(model.weights_dir).is_dir() and model.load_duration_in_nano_seconds is None
    spec = model.get_spec()
    ct.utils.rename_feature(spec, "x", "features")
    edited = hexane.coreml.MLModel(spec, weights_dir=model.weights_dir, compute_units=ct.ComputeUnit.CPU_ONLY)
    assert edited.load_duration_in_nano_seconds > 0 and edited.last_predict_duration_in_nano_seconds is None
    edited.author, edited.version, edited.user_defined_metadata["k"] = "someone", "1.2", "v"
    edited.input_description["features"] = "sixty-four numbers"
    with pytest.raises(UsageError, match="no feature 'x'"):
        edited.input_description["x"] = "gone"
    edited.save(tmp_path / "edited")
    back = ct.models.MLModel(str(tmp_path / "edited.mlpackage"), skip_model_load=True)
    assert (back.author, back.version, back.user_defined_metadata["k"]) == ("someone", "1.2", "v")
    assert back.input_description["features"] == "sixty-four numbers"
    again = hexane.coreml.MLModel(back, compute_units="CPU_ONLY")  # coremltools' own model, in memory
    for one in (edited, again):
        np.testing.assert_allclose(one.predict({"features": x})["y"], weight @ x, atol=0.02)
    assert again.last_predict_duration_in_nano_seconds > 0
    with pytest.raises(FormatError, match=r"weights_dir=model\.weights_dir"):
        hexane.coreml.MLModel(spec)
    with pytest.raises(UsageError, match=r"is a folder \.mlpackage"):
        edited.save(tmp_path / "edited.mlmodel")
    with pytest.raises(UnsupportedError, match="only Core ML makes"):
        edited.get_compiled_model_path()


def test_a_file_model_is_saved_as_a_file(tmp_path: Path, rng: np.random.Generator) -> None:
    weight = rng.standard_normal((3, 4)).astype(np.float32)
    model = hexane.coreml.MLModel(saved(linear("x", weight, "y", "neuralnetwork"), tmp_path))
    assert model.weights_dir is None
    model.short_description = "three rows"
    model.save(tmp_path / "again.mlmodel")
    assert ct.models.MLModel(str(tmp_path / "again.mlmodel"), skip_model_load=True).short_description == "three rows"
    with pytest.raises(UsageError, match=r"'\.zip'"):
        model.save(tmp_path / "again.zip")


def test_coremltools_compresses_a_model_of_ours(tmp_path: Path, rng: np.random.Generator) -> None:
    """``ct.optimize`` takes it as it takes its own; the result runs here."""
    weight = rng.standard_normal((64, 64)).astype(np.float32)
    model = hexane.coreml.MLModel(saved(linear("x", weight, "y", "mlprogram"), tmp_path))
    assert model.compute_unit is ct.ComputeUnit.ALL
    linear8 = ct.optimize.coreml.OpLinearQuantizerConfig(weight_threshold=64)
    small = ct.optimize.coreml.linear_quantize_weights(model, ct.optimize.coreml.OptimizationConfig(linear8))
    x = rng.standard_normal(64).astype(np.float32)
    found = hexane.coreml.MLModel(small).predict({"x": x})["y"]
    difference = np.abs(found - weight @ x).max()
    assert 0.003 < difference < 0.25  # of int8 weights: half a step of up to 4/127 in each of 64 products


@pytest.mark.parametrize("units", UNITS)
def test_whole_numbers_are_whole(units: str, tmp_path: Path) -> None:
    """Floats stand for whole numbers, as Core ML takes them (apple/coremltools issues 194 and 1498); others do not."""

    @mb.program(input_specs=[mb.TensorSpec(shape=(3,), dtype=mil.types.int32)])
    def doubled(ids: Any) -> Any:
        return mb.add(x=ids, y=ids, name="y")

    model = hexane.coreml.MLModel(saved(ct.convert(doubled, skip_model_load=True), tmp_path), compute_units=units)
    for ids in ([1, 2, -3], [1.0, 2.0, -3.0], np.int64([1, 2, -3])):
        np.testing.assert_array_equal(model.predict({"ids": ids})["y"], [2, 4, -6])
    for ids, reason in (([4.5, 1, 2], "fractions"), ([np.nan, 1, 2], "fractions"), ([1 << 40, 1, 2], "outside int32")):
        with pytest.raises(UsageError, match=reason):
            model.predict({"ids": ids})


def test_the_constructor_is_coremltools_own(tmp_path: Path, rng: np.random.Generator) -> None:
    import inspect

    for ours, theirs in (
        (hexane.coreml.MLModel, ct.models.MLModel), (hexane.coreml.CompiledMLModel, ct.models.CompiledMLModel),
    ):  # fmt: skip
        wanted = [name for name in inspect.signature(theirs).parameters if name != "asset"]
        assert list(inspect.signature(ours).parameters)[: len(wanted)] == wanted
    absent = {name for name in dir(ct.models.MLModel) if name[0] != "_" and not hasattr(hexane.coreml.MLModel, name)}
    assert absent <= {"load_duration_in_nano_seconds", "last_predict_duration_in_nano_seconds", "weights_dir"}
    path = saved(linear("x", rng.standard_normal((3, 4)), "y", "neuralnetwork"), tmp_path)
    with pytest.raises(UsageError, match="compute_units= goes by name"):
        hexane.coreml.MLModel(path, ct.ComputeUnit.ALL)
    found = hexane.coreml.CompiledMLModel(path, ct.ComputeUnit.CPU_ONLY, optimization_hints={"any": True})
    assert found.optimization_hints == {"any": True} and found.report.compute_units == "CPU_ONLY"
    kinds = [type(one).__name__ for one in hexane.coreml.MLModel.get_available_compute_devices()]
    assert kinds == ["MLCPUComputeDevice", "MLNeuralEngineComputeDevice"]
