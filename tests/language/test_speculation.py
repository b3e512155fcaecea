"""Speculative decoding: the large model's own tokens, whatever the draft says; the command that shows and prices it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hexane.cli.main import app
from hexane.errors import UsageError
from hexane.language import Decoder
from hexane.language.speculation import DraftModel
from language import reference


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reference.folder(tmp_path_factory.mktemp("llama"), *reference.model("llama"))


@pytest.fixture(scope="module")
def model(folder: Path) -> Decoder:
    return Decoder.from_pretrained(folder)


@pytest.mark.parametrize("proposed", [3, 7])
def test_tokens_are_those_of_the_model_alone(folder: Path, model: Decoder, proposed: int, tmp_path: Path) -> None:
    """Drafts: itself, coarse weights of itself, and a model of another seed."""
    wanted = tuple(model.generate([1, 2, 3], 24))
    coarse = Decoder.from_pretrained(folder, weights="palette4")
    stranger = Decoder.from_pretrained(reference.folder(tmp_path, *reference.model("llama", seed=5)))
    runs = [DraftModel(draft, proposed).speculate(model, [1, 2, 3], 24) for draft in (model, coarse, stranger)]
    assert [run.tokens for run in runs] == [wanted] * 3
    assert runs[0].chance == 1 and runs[0].calls == -(-23 // (proposed + 1))
    assert runs[1].chance > runs[2].chance
    assert all(run.calls + run.accepted >= 23 for run in runs)


def test_the_engine_gives_the_same_as_the_graph(model: Decoder) -> None:
    runs = [DraftModel(model, 3).speculate(model, [5, 6], 8, "M1", level) for level in ("graph", "engine")]
    assert runs[0] == runs[1]


def test_a_sequence_may_end_where_the_model_ends(model: Decoder) -> None:
    length = model.context_for(1 << 20)
    ids = [i % 50 for i in range(length - 6)]
    assert DraftModel(model, 4).speculate(model, ids, 7).tokens == tuple(model.generate(ids, 7))
    with pytest.raises(UsageError, match="do not fit"):
        DraftModel(model, 4).speculate(model, ids, 8)


def test_other_words_and_counts_are_refused(model: Decoder, tmp_path: Path) -> None:
    other = Decoder.from_pretrained(reference.folder(tmp_path, *reference.model("llama", vocab_size=64)))
    with pytest.raises(UsageError, match="the draft has 64 words"):
        DraftModel(other).speculate(model, [1], 2)
    for proposed in (0, 8):
        with pytest.raises(UsageError, match="words proposed"):
            DraftModel(model, proposed)


def test_the_command_shows_and_prices_a_draft(folder: Path) -> None:
    call = [
        "llm",
        str(folder),
        "--draft",
        str(folder),
        "--ids",
        "1,2",
        "--tokens",
        "6",
        "--chip",
        "M4,M5",
        "--context",
        "64",
    ]
    printed = CliRunner().invoke(app, [*call, "--json"])
    assert printed.exit_code == 0, printed.output
    answer = json.loads(printed.stdout)
    entry = answer["speculation"]
    assert entry["shown"]["tokens"] == answer["tokens"] and entry["shown"]["chance"] == 1
    assert [cycle["chip"] for cycle in entry["cycles"]] == ["M4", "M5"]
    assert all(cycle["low"] < cycle["rate"] < cycle["high"] for cycle in entry["cycles"])
    words = CliRunner().invoke(app, [*call, "--accepted", "0.7", "--proposed", "2"]).stdout
    assert "with a draft" in words and "chance 1.00" in words
