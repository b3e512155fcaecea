"""MIL text: names, constants, dialects, mistakes with their place, damaged programs."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hexane
from blobs import blob_bytes
from hexane.errors import FormatError, HexaneError, SyntaxProblem, UsageError
from hexane.formats.mil import WeightCollector, decode, encode, to_text
from hexane.graph import GraphBuilder, TensorType
from hexane.graph.compare import difference

HEAD = 'program(1.3)\n[buildInfo = dict<string, string>({{"coremlc-version", "3505.4.1"}})]\n{\n'
SMALL = (
    HEAD
    + """    func main<ios18>(tensor<fp16, [1, 4, 1, 8]> x) {
        string m = const()[name = string("m"), val = string("EXACT")];
        tensor<fp16, [4, 1, 1]> c = const()[val = tensor<fp16, [4, 1, 1]>([0x1p-3, 1, -0x1.8p+1, 2.5e-1])];
        tensor<fp16, [1, 4, 1, 8]> a = add(x = x, y = c)[name = string("a")];
        tensor<fp16, [1, 4, 1, 8]> y = gelu(mode = m, x = a)[name = string("y")];
    } -> (y);
}
"""
)


@given(st.text(max_size=12) | st.text("_0x5f2/aé.", max_size=10))
@settings(deadline=None, max_examples=300)
def test_every_name_can_be_spelled(name):
    spelled = encode(name)
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", spelled)
    assert decode(spelled) == name


@given(st.from_regex(r"[A-Za-z_][A-Za-z0-9_.]{0,10}", fullmatch=True))
@settings(deadline=None, max_examples=300)
def test_a_name_of_the_text_is_read_as_itself_or_printed_as_itself(text):
    name = decode(text)
    assert name == text or encode(name) == text


def test_the_small_program():
    graph = hexane.parse_mil(SMALL).verify()
    x = np.linspace(-1, 1, 32).reshape(1, 4, 1, 8)
    shifted = (x.astype(np.float16) + np.float32([0.125, 1, -3, 0.25]).reshape(4, 1, 1)).astype(np.float64)
    from math import erf

    wanted = np.vectorize(lambda v: v * (1 + erf(v / np.sqrt(2))) / 2)(shifted)
    np.testing.assert_allclose(graph.evaluate({"x": x})["y"], wanted, rtol=2e-3, atol=1e-3)
    assert graph.version == "1.3" and graph.main.opset == "ios18"


VALUES = {
    "fp16": st.floats(width=16, allow_nan=True),
    "fp32": st.floats(width=32, allow_nan=True),
    "fp64": st.floats(allow_nan=True),
    "int8": st.integers(-128, 127),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "int4": st.integers(-8, 7),
    "uint3": st.integers(0, 7),
    "bool": st.booleans(),
    "string": st.text(max_size=6),
}


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_constants_survive(data):
    dtype = data.draw(st.sampled_from(sorted(VALUES)))
    shape = tuple(data.draw(st.lists(st.integers(0, 3), max_size=3)))
    count = int(np.prod(shape))
    items = data.draw(st.lists(VALUES[dtype], min_size=count, max_size=count))
    b = GraphBuilder()
    carrier = TensorType(dtype).carrier
    array = np.array(items, dtype=carrier if carrier.kind != "U" else str).reshape(shape)
    b.output(b.const(array, dtype, name=data.draw(st.text(max_size=5))))
    graph = b.graph
    for version in ("1.0", "1.3"):
        again = hexane.parse_mil(graph.to_mil(version=version))
        assert difference(graph, again) is None
        text = again.to_mil()
        assert hexane.parse_mil(text).to_mil() == text


def test_control_flow_and_states_round_trip():
    b = GraphBuilder()
    x = b.input("x", (3,), "fp32")
    n = b.input("n", (), "int32")
    s = b.state("s", (3,), "fp32")
    b.op("write_state", data=b.add(x=b.read_state(input=s), y=x), input=s)
    zero = b.const(0)
    with b.subblock({"i": n.type, "v": x.type}) as condition:
        condition.set_outputs([b.less(x=condition.inputs[0], y=n)])
    with b.subblock({"j": n.type, "w": x.type}) as body:
        body.set_outputs([b.add(x=body.inputs[0], y=1), b.mul(x=body.inputs[1], y=2.0)])
    _, doubled = b.op("while_loop", loop_vars=(zero, b.read_state(input=s)), blocks=(condition, body))
    with b.subblock() as yes:
        yes.set_outputs([b.add(x=doubled, y=100.0)])
    with b.subblock() as no:
        no.set_outputs([b.identity(x=doubled)])
    b.output(b.op("cond", pred=b.greater(x=n, y=2), blocks=(yes, no), name="out"))
    graph = b.graph.verify()
    again = hexane.parse_mil(graph.to_mil()).verify()
    assert difference(graph, again) is None
    assert again.to_mil() == hexane.parse_mil(again.to_mil()).to_mil()
    state = np.ones(3, np.float32)
    for g in (graph, again, graph.clone().verify()):
        state[:] = 1
        assert g.evaluate({"x": [1, 2, 3], "n": 3, "s": state})["out"].tolist() == [116, 124, 132]
        assert state.tolist() == [2, 3, 4]
        assert g.evaluate({"x": [1, 2, 3], "n": 1})["out"].tolist() == [2, 4, 6]


def test_constexpr_forms_of_both_op_sets():
    q = np.arange(-6, 6, dtype=np.int8).reshape(4, 3)
    for opset, version in (("ios16", "1.0"), ("ios18", "1.3")):
        b = GraphBuilder(opset=opset)
        x = b.input("x", (2, 3), "fp16")
        scale = np.float16([1, 2, 4, 8])
        if opset == "ios16":
            w = b.constexpr_affine_dequantize(quantized_data=q, zero_point=np.int8(1), scale=scale, axis=0)
        else:
            w = b.constexpr_blockwise_shift_scale(data=q, scale=scale.reshape(4, 1), offset=np.ones((4, 1), np.int8))
        b.output(b.matmul(x=x, y=w, transpose_y=True, name="y"))
        graph = b.graph.verify()
        text = graph.to_mil()
        assert text.startswith(f"program({version})")
        assert ("constexpr_affine_dequantize()[" in text) == (opset == "ios16")
        again = hexane.parse_mil(text).verify()
        assert difference(graph, again) is None
        x_ = np.arange(6.0).reshape(2, 3)
        wanted = x_ @ ((q.astype(float) - 1) * scale.reshape(4, 1)).T
        np.testing.assert_allclose(again.evaluate({"x": x_})["y"], wanted)


def test_weights_go_to_a_file_and_come_back():
    b = GraphBuilder()
    x = b.input("x", (1, 5), "fp32")
    w = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    b.output(b.linear(x=x, weight=w, bias=np.float32([1, 2, 3]), name="y"))
    collector = WeightCollector("@model_path/w.bin")
    text = to_text(b.graph, weights=collector)
    assert text.count("BLOBFILE") == 1
    graph = hexane.parse_mil(text, {"@model_path/w.bin": collector.writer.to_bytes()})
    assert graph.equals(b.graph)
    assert graph.to_mil() == text.replace("\r", "")
    bare = hexane.parse_mil(text)
    assert bare.outputs == graph.outputs
    with pytest.raises(UsageError, match=r"w\.bin' is not given"):
        bare.evaluate({"x": np.zeros((1, 5))})


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("func main", "fun main", 4, "'fun' does not belong"),
        ("gelu(mode", "gelu(mode mode", 8, "does not belong here"),
        ("x = a)", "x = b)", 8, "'b' is not defined"),
        ("-> (y)", "-> (z)", 9, "never defined"),
        ("[4, 1, 1]>([", "[5, 1, 1]>([", 6, "given as"),
        ("0x1p-3, 1,", "0x1p-3,", 6, "3 elements given"),
        ('string("EXACT")', "string(3)", 5, "string is needed"),
        ("<fp16, [1, 4, 1, 8]> x", "<fp16, [1, 4, 1, 8]] x", 4, "does not belong"),
        ("<fp16, [1, 4, 1, 8]> x", "<fp16, [10000000, 40000, 1, 8]> x", 4, "elements"),
        ("ios18", "macos", 4, "op set"),
        ("val = string", "value = string", 5, "attribute val"),
        ("} -> (y);\n}\n", "", 8, "ends too early"),
        ("0x1p-3", "[" * 80 + "1" + "]" * 80, 6, "nest"),
    ],
)
def test_mistakes_have_a_place(old, new, line, message):
    with pytest.raises(SyntaxProblem, match=message) as caught:
        hexane.parse_mil(SMALL.replace(old, new, 1))
    assert caught.value.line == line
    assert "^" in str(caught.value)


def test_contradictions_are_noted_and_refused_later():
    graph = hexane.parse_mil(SMALL.replace("8]> a = add", "9]> a = add"))
    assert len(graph.problems) == 2 and graph.problems[0].line == 7
    with pytest.raises(HexaneError, match="declared"):
        graph.verify()
    with pytest.raises(HexaneError, match="declared"):
        graph.evaluate({"x": np.zeros((1, 4, 1, 8))})
    graph = hexane.parse_mil(SMALL.replace("gelu(", "frobnicate("))
    assert "frobnicate" in repr(graph.problems[0])
    assert hexane.parse_mil(graph.to_mil()).outputs == graph.outputs
    with pytest.raises(HexaneError, match="frobnicate"):
        graph.evaluate({"x": np.zeros((1, 4, 1, 8))})
    twice = SMALL.replace("> a = add", "> x = add").replace("x = a)", "x = x)")
    graph = hexane.parse_mil(twice)
    assert [problem.rule for problem in graph.problems] == ["T7"]
    graph.verify().evaluate({"x": np.zeros((1, 4, 1, 8))})


BLOB = SMALL.replace("([0x1p-3, 1, -0x1.8p+1, 2.5e-1])", '(BLOBFILE(path = string("w.bin"), offset = uint64(64)))')


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"", "no weight file"),
        (lambda data: data[:100], "no record fits|outside"),
        (lambda data: data[:130], "outside the file"),
        (lambda data: data[:4] + b"\3" + data[5:], "version 3"),
        (lambda data: data[:64] + b"\0" + data[65:], "no metadata record"),
        (lambda data: data[:72] + b"\x06" + data[73:], "holds 6 bytes"),
        (lambda data: data[:80] + b"\xff" * 8 + data[88:], "outside the file"),
        (lambda data: data[:68] + b"\x63" + data[69:], "type code 99"),
    ],
)
def test_bad_weight_files(change, message):
    data = blob_bytes([(np.float16([1, 2, 3, 4]).reshape(4, 1, 1), "fp16")])
    assert hexane.parse_mil(BLOB, {"w.bin": data}).evaluate({"x": np.zeros((1, 4, 1, 8))})["y"][0, 1, 0, 0] > 1.9
    with pytest.raises(FormatError, match=message):
        hexane.parse_mil(BLOB, {"w.bin": change(data)})


def test_offsets_outside_and_paths_outside(tmp_path):
    for offset in (0, 65, 128, 1 << 40, (1 << 64) - 64):
        with pytest.raises(FormatError):
            hexane.parse_mil(
                BLOB.replace("uint64(64)", f"uint64({offset})"), {"w.bin": bytes([0, 0, 0, 0, 2]) + bytes(300)}
            )
    (tmp_path / "secret.bin").write_bytes(blob_bytes([(np.float16([1, 2, 3, 4]), "fp16")]))
    (tmp_path / "model").mkdir()
    target = tmp_path / "model" / "m.mil"
    for path in ("@model_path/../secret.bin", "../secret.bin", str(tmp_path / "secret.bin")):
        target.write_text(BLOB.replace('"w.bin"', f'"{path}"'))
        try:
            graph = hexane.load(target)
        except FormatError as error:
            assert "leaves" in str(error)
        else:  # an absolute path is looked up inside the folder, where it is not
            with pytest.raises(UsageError):
                graph.evaluate({"x": np.zeros((1, 4, 1, 8))})


TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|[A-Za-z_][\w.]*|[-+]?(?:0x[0-9a-fA-F.]+(?:p[-+]?\d+)?|\d[\d.]*(?:e[-+]?\d+)?)|->|\S'
)


def damaged(text, rng):
    """The text with one token dropped, and with the same token doubled."""
    tokens = list(TOKEN.finditer(text))
    token = rng.choice(tokens)
    yield text[: token.start()] + text[token.end() :]
    yield text[: token.end()] + " " + token[0] + text[token.end() :]


def survey(paths, count, seed=0):
    """How many damaged programs are refused, and how many are read; every refusal shows its place."""
    rng = random.Random(seed)
    refused = read = 0
    for path in paths:
        text = path.read_text()
        for _ in range(count):
            for bad in damaged(text, rng):
                try:
                    graph = hexane.parse_mil(bad)
                except SyntaxProblem as error:
                    assert error.line >= 1 and error.column >= 1 and "^" in str(error)
                    refused += 1
                else:
                    assert hexane.parse_mil(graph.to_mil()).to_mil() == graph.to_mil()
                    read += 1
    return refused, read


def test_one_token_dropped_or_doubled(facts):
    paths = sorted((facts / "mil").glob("*.mil"))[::12]
    refused, read = survey(paths, 4)
    print(f"{refused} refused, {read} read")
    assert refused + read == 8 * len(paths) and refused > 0.9 * (refused + read)


@pytest.mark.slow
def test_one_token_dropped_or_doubled_everywhere(facts):
    refused, read = survey(sorted((facts / "mil").glob("*.mil")), 10, 1)
    print(f"{refused} refused, {read} read")
    assert refused > 0.9 * (refused + read)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_text_raises_our_errors(seed):
    rng = random.Random(seed)
    for _ in range(150):
        text = list(SMALL if rng.random() < 0.5 else BLOB)
        for _ in range(rng.randint(1, 6)):
            place = rng.randrange(len(text))
            action = rng.random()
            if action < 0.4:
                text[place] = chr(rng.choice([0, 10, 34, 40, 41, 44, 60, 62, 91, 93, 123, 125, 48, 57, 0xE9, 0x10FFFF]))
            elif action < 0.7:
                del text[place : place + rng.randint(1, 30)]
            else:
                start = rng.randrange(len(text))
                text[place:place] = text[start : start + rng.randint(1, 60)]
        try:
            graph = hexane.parse_mil("".join(text), {"w.bin": blob_bytes([(np.zeros((4, 1, 1), np.float16), "fp16")])})
            graph.evaluate({name: np.zeros(type_.shape) for name, type_ in graph.inputs.items()})
            graph.to_mil()
        except HexaneError:
            pass


def test_hostile_texts_are_refused():
    constant = SMALL.replace("[0x1p-3, 1, -0x1.8p+1, 2.5e-1]", "NUMBER")
    for text in (
        constant.replace("NUMBER", "[0x1p99999, 1, 2, 3]"),
        constant.replace("NUMBER", "[0x, 1, 2, 3]"),
        constant.replace("NUMBER", "[" + "9" * 5000 + ", 1]"),
        constant.replace("NUMBER", "9" * 5000),
        constant.replace("NUMBER", "[" + "9" * 400 + ", 1, 2, 3]"),
        HEAD + "func main<ios18>(tensor<fp16, [" + "9" * 5000 + "]> x) {} -> (x); }",
        HEAD + "func main<ios18>(list<fp16, " + "9" * 5000 + "> x) {} -> (x); }",
        "",
        "program(1.3)",
        "\0" * 1000,
        "program(1.0)[a = " + "tensor<fp16, [1]>(" + "(" * 5000,
        "program(1.0)[a = " + "fp16(" * 5000 + ")" * 5000 + "]{func main<ios18>() {} -> (); }",
        "program(1.0)[a = " + "tuple<" * 5000 + ">" * 5000 + "()]{func main<ios18>() {} -> (); }",
        HEAD + "func main<ios18>(" + "list<" * 3000 + "bool" + ", 1>" * 3000 + " x) {} -> (); }",
        HEAD + "func main<ios18>(" + "state<" * 3000 + "bool" + ">" * 3000 + " x) {} -> (); }",
        HEAD + "func main<ios18>() { tensor<fp16, [999999999]> x = fill(shape = a); } -> (x); }",
        HEAD + "func main<ios18>(tensor<fp16, [" + "1, " * 500 + "1]> x) {} -> (x); }",
        HEAD + "func main<ios18>(tensor<fp16, [99999999999999999999999]> x) {} -> (x); }",
        HEAD + "func main<ios18>(list<list<fp16, 3>, 2> x) {} -> (x); func main<ios18>() {} -> (); }",
        HEAD + "func main<ios18>(fp16 x) {} -> (x, x); }",
    ):
        with pytest.raises(SyntaxProblem):
            hexane.parse_mil(text)


def test_a_long_program_is_read_in_one_pass():
    b = GraphBuilder()
    y = b.input("x", (1, 8, 4, 4), "fp16")
    for index in range(10_000):
        y = b.relu(x=y, name=f"value_number_{index}")
    b.output(y)
    text = b.graph.to_mil()
    assert len(text) > 1_000_000
    assert difference(b.graph, hexane.parse_mil(text)) is None


RARE = """program(1.5)
[buildInfo = dict<tensor<string, []>, tensor<string, []>>({{"coremlc-version", "3505.4.1"}}),
 tag = tuple<int32, list<string, 2>>((3, ["a", "b"]))]
{
    // a comment
    func main_ane<ios17>(tensor_buffer<fp16, shape=[1, 4], strides=[32, 1], interleave_factors=[1, 1]> b,
                         state<tensor<fp16, [1, 4]>> s [Private = bool(true)])
        [Launch_ane_ms = fp64(0x1p-3), FlexibleShapeInformation = tuple<tuple<string, dict<string, tensor<int32, [?]>>>>
            ((("DefaultShapes", {{"x", [1, 3]}})))] {
        tensor<fp16, [1, 4]> x = tensor_buffer_to_tensor<ios17>(input = b)[name = string("x")];
        tensor<int32, [2]> shape = const()[name = string("other"), val = tensor<int32, [2]>([1, 4])];
        list<string, 2> words = const()[val = list<string, 2>(["p \\"q\\"", "r\\n"])];
        (tensor<fp16, [1, 2]> l, tensor<fp16, [1, 2]> r) = split(axis = int32(1), num_splits = int32(2), x = x);
        tensor<fp16, [1, 4]> y = concat(axis = int32(1), interleave = false, values = (l, r,)) ;
        write_state(data = y, input = s);
        tensor<fp16, [1, 4]> v = read_state(input = s)[name = string("v")];
        tensor<fp16, []> half = const()[val = fp16(-inf)];
        tensor<fp16, [1, 4]> w = maximum(x = v, y = half);
        uint8 one = const()[val = uint8(1)];
        tensor_buffer<fp16, shape=[1, 4], strides=[32, 1], interleave_factors=[1, 1]> out =
            tensor_to_tensor_buffer<ios17>(input = w, strides = tensor<int64, [2]>([32, 1]),
                                           interleave_factors = tensor<uint8, [2]>([[1, 1]]));
    } -> (out, words, shape);
    func other<ios18>(bool p) {} -> (p);
}
"""


def test_rare_constructs():
    graph = hexane.parse_mil(RARE.replace("(l, r,)", "(l, r)")).verify()
    assert list(graph.functions) == ["main_ane", "other"] and graph.version == "1.5"
    text = graph.to_mil()
    again = hexane.parse_mil(text)
    assert difference(graph, again) is None and again.to_mil() == text
    for part in ("FlexibleShapeInformation", "Launch_ane_ms = fp64(0.125)", "tensor_buffer<fp16", "<ios17>(input = b)"):
        assert part in text
    assert [problem.rule for problem in graph.problems] == ["T5"]
    state = np.zeros((1, 4), np.float16)
    out = graph.evaluate({"b": [[1, 2, 3, 4]], "s": state})
    assert out["out"].tolist() == [[1, 2, 3, 4]] == state.tolist()
    assert out["words"].tolist() == ['p "q"', "r\n"] and out["shape"].tolist() == [1, 4]
    assert graph.evaluate({"p": True}, function="other")["p"]
    with pytest.raises(SyntaxProblem, match="does not belong"):
        hexane.parse_mil(RARE)


@pytest.mark.parametrize("number", ["1234567890", "0x12345678", "1234.5678", "1.5e-10", "inf"])
def test_a_long_list_that_does_not_end_well_is_refused_at_once(number):
    """The tokens are such that no text makes the lexer try over and over."""
    for tail in ("x", "", ",", "]]", '"'):
        with pytest.raises(SyntaxProblem):
            hexane.parse_mil(SMALL.replace("[0x1p-3, 1, -0x1.8p+1, 2.5e-1]", "[" + f"{number}, " * 3000 + tail))


def finely(text):
    """The text with a comment in every constant's statement, which the terminal for whole statements does not take."""
    return text.replace("const()", "const(//\n)")


def test_constants_read_in_one_piece_are_those_of_the_finer_rules(facts):
    for path in sorted((facts / "mil").glob("*.mil"))[::9]:
        text = path.read_text()
        whole, fine = hexane.parse_mil(text), hexane.parse_mil(finely(text))
        assert whole.equals(fine) and whole.to_mil() == fine.to_mil()
        assert [(p.message, p.column) for p in whole.problems] == [(p.message, p.column) for p in fine.problems]


@pytest.mark.parametrize(
    ("type_", "payload"),
    [
        ("tensor<int32, [2]>", "[1]"),
        ("tensor<int32, [2]>", '"text"'),
        ("tensor<int32, [2]>", "[1, 0x1p99999]"),
        ("tensor<fp16, [99999999999, 99999999999]>", "[1]"),
        ("fp16", "true"),
        ("string", "3"),
        ("tensor<fp16, [2]>", 'BLOBFILE(path = string("w"), offset = uint64(-64))'),
        ("tensor<fp16, [2]>", 'BLOBFILE(path = string("w"), offset = uint64(1.5))'),
    ],
)
def test_wrong_constants_show_the_same_place_either_way(type_, payload):
    text = f"""program(1.3)
{{
    func main<ios18>(tensor<fp16, [2]> x) {{
        {type_} c = const()[name = string("c"), val = {type_}({payload})];
        tensor<fp16, [2]> y = relu(x = x)[name = string("y")];
    }} -> (y);
}}
"""
    found = []
    for variant in (text, text.replace("const()[", "const() // no more\n[")):
        with pytest.raises(SyntaxProblem) as caught:
            hexane.parse_mil(variant)
        line, column = caught.value.line, caught.value.column
        found.append((caught.value.message.split("\n")[0], variant.split("\n")[line - 1][column - 1 :][:5]))
    assert found[0] == found[1]


def program(body, inputs):
    return f"program(1.3)\n{{\n    func main<ios18>({inputs}) {{\n        {body}\n    }} -> (y);\n}}\n"


@pytest.mark.parametrize(
    ("body", "inputs", "feed"),
    [
        (
            'tensor<int32, [?]> y = range_1d(start = int32(0), end = k, step = int32(1))[name = string("y")];',
            "int32 k",
            {"k": 2_000_000_000},
        ),
        (
            'tensor<fp16, [?, ?]> y = fill(shape = k, value = fp16(1))[name = string("y")];',
            "tensor<int32, [2]> k",
            {"k": [2_000_000, 2_000_000]},
        ),
        (
            'tensor<fp16, [1, 8]> y = tile(x = k, reps = tensor<int32, [2]>([1, 1000000000]))[name = string("y")];',
            "tensor<fp16, [1, 8]> k",
            {"k": np.zeros((1, 8))},
        ),
    ],
)
def test_what_numbers_at_run_time_ask_for_is_bounded(body, inputs, feed):
    graph = hexane.parse_mil(program(body, inputs))
    with pytest.raises(HexaneError, match="the limit is"):
        graph.evaluate(feed)


def test_an_output_defined_twice_keeps_its_name():
    body = 'tensor<fp16, [2]> y = add(x = x, y = x)[name = string("a")]; tensor<fp16, [2]> y = neg(x = y);'
    body = body.replace("neg(x = y)", "mul(x = y, y = y)")
    graph = hexane.parse_mil(program(body, "tensor<fp16, [2]> x"))
    assert [problem.rule for problem in graph.problems] == ["T7"] and list(graph.outputs) == ["y"]
    assert graph.evaluate({"x": [1, 2]})["y"].tolist() == [4, 16]
    assert hexane.parse_mil(graph.to_mil()).equals(graph)
