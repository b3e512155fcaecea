"""Assembly text of whole programs: same bytes back, errors at line and column."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hexane
from facts import fact_params
from hexane.errors import HexaneError, SyntaxProblem, UsageError
from hexane.image import to_anec
from hexane.image.text import assemble_image, disassemble_image
from hexane.image.text.data import DataReader, data_lines
from hexane.isa.assembly import assemble
from image.hostile import small_program


@pytest.mark.parametrize("path", fact_params("hwx/*.hwx"))
@pytest.mark.parametrize("comments", [True, False])
def test_real_files_come_back(path, comments) -> None:
    image = hexane.open_image(path)
    text = disassemble_image(image, comments)
    assert ".container zin4" in text
    assert "; " in text if comments else ";" not in text
    assert assemble_image(text).rebuild() == path.read_bytes()


@pytest.mark.parametrize("path", fact_params("hwx/*.hwx"))
def test_packages_come_back(path) -> None:
    package = to_anec(hexane.open_image(path))
    assert assemble_image(disassemble_image(package)).rebuild() == package.rebuild()


def test_parts_that_no_rule_gives_are_listed() -> None:
    data = bytearray(small_program())
    data[0x3000:0x3003] = b"abc"
    data[8] = 12  # a generation whose tasks are not known
    image = hexane.open_image(bytes(data))
    text = disassemble_image(image)
    assert ".container parts" in text and ".remainder 12288" in text and ".text" in text
    assert assemble_image(text).rebuild() == bytes(data)


def test_changes_in_the_text_arrive() -> None:
    text = disassemble_image(hexane.open_image(small_program()))
    changed = text.replace("Win=9", "Win=900").replace(".surface x ", ".surface renamed ")
    image = assemble_image(changed)
    assert image.tasks[1].Common.InDim.Win == 900
    assert image.surface("renamed").shape == (1, 3, 4, 5)


@given(
    st.binary(max_size=400)
    | st.builds(
        lambda a, n, b: a * n + b, st.binary(min_size=2, max_size=2), st.integers(0, 300), st.binary(max_size=80)
    )
)
@settings(deadline=None, max_examples=60)
def test_data_lines(content: bytes) -> None:
    reader = DataReader()
    buffer = reader.start()
    assemble("\n".join(data_lines(content)), "h13", reader.handlers())
    assert bytes(buffer) == content


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (".container zin99", "zin99"),
        (".surface x sideways shape=[1, 1, 1, 1]", "sideways"),
        (".surface x input shape=[1, 1, 1]", "shape"),
        (".surface x input", "takes shape"),
        (".kernel 123", "takes one name"),
        ('.kernel "0123"', "64 upper-case hex digits"),
        ('.hex "00"', "no section is open"),
        (".const 3", "takes nothing"),
        (".part Nothing", "structure"),
        (".part Header magick=3", "no field magick"),
        (".part Header magic=0x100000000", "32 bits"),
        (".part Section name=a", "behind a Segment"),
        (".relocations [1]", "behind a Segment"),
        (".scratch -1", "takes one number"),
        (".ident paths=[1]", "texts"),
        (".nothing", "unknown directive"),
    ],
)
def test_errors_have_line_and_column(line: str, message: str) -> None:
    with pytest.raises(SyntaxProblem, match=message) as caught:
        assemble_image(f"; a comment\n{line}\n", "program.hxs")
    assert caught.value.line == 2
    assert "program.hxs:2:1" in str(caught.value)


def test_huge_counts_are_refused() -> None:
    for line in (".zero 1000000000000", ".half 0 count=100000000000"):
        with pytest.raises(SyntaxProblem):
            assemble_image(f".const\n{line}\n")
    with pytest.raises(UsageError):
        assemble_image(".container parts\n.file 99999999999999\n.part Header magic=1\n")


TEXTS = [disassemble_image(hexane.open_image(small_program()), comments) for comments in (True, False)]
TEXTS.append(disassemble_image(to_anec(hexane.open_image(small_program()))))
EDITS = st.tuples(
    st.integers(0, 1 << 30),
    st.sampled_from(["delete", "insert", "repeat", "swap", "number"]),
    st.sampled_from('0189abcxyz[]"=.,; -+()*<|\\\ud800é\0'),
)


@given(st.sampled_from(TEXTS), st.lists(EDITS, min_size=1, max_size=4))
@settings(deadline=None, max_examples=60)
def test_spoiled_texts(text: str, edits: list) -> None:
    """A text with typing mistakes gives a program or an error of ours."""
    lines = text.split("\n")
    for number, kind, character in edits:
        at = number % len(lines)
        line = lines[at]
        column = number // 7 % (len(line) + 1)
        if kind == "delete":
            lines[at] = line[:column] + line[column + 1 :]
        elif kind == "insert":
            lines[at] = line[:column] + character + line[column:]
        elif kind == "repeat":
            lines.insert(at, line)
        elif kind == "swap":
            lines[at], lines[number % 7] = lines[number % 7], lines[at]
        else:
            lines[at] = line[:column] + str(number**3) + line[column:]
    with suppress(HexaneError):
        assemble_image("\n".join(lines)).to_bytes()


def test_a_mark_in_front_and_line_ends_of_windows(tmp_path) -> None:
    from hexane.files import read_text

    text = ".generation h13\ntask a:\n    Common.InDim Win=3\n"
    path = tmp_path / "a.hxs"
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert assemble_image(read_text(path)).to_bytes() == assemble_image(text).to_bytes()


@pytest.mark.parametrize("value", ["9" * 100_000, "0x" + "f" * 100_000, "x" * 100_000])
def test_messages_stay_short(value) -> None:
    with pytest.raises(SyntaxProblem) as caught:
        assemble_image(f".generation h13\ntask a:\n    Common.InDim Win={value}\n", "a.hxs")
    assert len(str(caught.value)) < 10_000
    assert (caught.value.line, caught.value.column) == (3, 22)


def test_what_does_not_hold_together_names_the_file() -> None:
    with pytest.raises(UsageError, match=r"a\.hxs: a program needs at least one task"):
        assemble_image("", "a.hxs")
    surface = ".surface x input shape=[1, 1, 1, 8]\n"
    with pytest.raises(UsageError, match=r"a\.hxs: two surfaces are called 'x'"):
        assemble_image(f".generation h13\n{surface}{surface}task a:\n    Common.InDim Win=3\n", "a.hxs")
