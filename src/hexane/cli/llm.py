"""``hexane llm``: a language model from its folder: plan, rates, places, ranges, tokens."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hexane.cli.console import print_json, print_rows, title
from hexane.errors import UsageError
from hexane.files import read_text

if TYPE_CHECKING:
    from hexane.language.decoder import Decoder
    from hexane.language.layer_errors import LayerError
    from hexane.language.plan import DecoderPlan

SCHEMA = "hexane-llm/1"
USUAL_CONTEXT = 1024


def command(
    folder: Annotated[Path, typer.Argument(help="A folder with config.json and model.safetensors (or its index).")],
    chip: Annotated[str, typer.Option(help="Chips, separated by commas; the first computes tokens.")] = "M4",
    context: Annotated[
        str | None, typer.Option(help="Positions of the cache, multiples of 32, separated by commas; else 1024.")
    ] = None,
    weights: Annotated[str, typer.Option(help="Format of all weights: fp16, int8, palette4 ...")] = "fp16",
    prefill: Annotated[int, typer.Option(help="Rows of a prompt at a time.")] = 64,
    scale: Annotated[
        str, typer.Option(help="Power of two that the residual stream is carried times; auto: what the plan finds.")
    ] = "auto",
    divided_gates: Annotated[
        bool, typer.Option("--divided-gates", help="silu as x / (1 + exp(-x)): three ops more a layer, more exact.")
    ] = False,
    adapter: Annotated[
        str | None, typer.Option(help="Folders of adapters (LoRA, as PEFT writes them), separated by commas.")
    ] = None,
    adapter_form: Annotated[
        str, typer.Option(help="merged, beside (constants that are patched) or inputs.")
    ] = "beside",
    draft: Annotated[
        Path | None, typer.Option(help="Folder of a small model that proposes words (same tokens), in the same format.")
    ] = None,
    proposed: Annotated[
        int | None, typer.Option(help="Words proposed at a time, 1 to 7; else the best number.")
    ] = None,
    accepted: Annotated[
        float | None, typer.Option(help="Chance of a proposal; else what --ids or --prompt shows, or a table.")
    ] = None,
    prompt: Annotated[str | None, typer.Option(help="Text to go on with (needs the package tokenizers).")] = None,
    ids: Annotated[str | None, typer.Option(help="Tokens to go on with, as numbers with commas.")] = None,
    tokens: Annotated[int, typer.Option(help="How many tokens to make.")] = 16,
    level: Annotated[str, typer.Option(help="graph, engine (tasks, the same bits) or float32.")] = "graph",
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token.")] = 0.0,
    top_k: Annotated[int, typer.Option(help="Draw among so many of the likeliest; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Draw among the fewest with this share of the probability.")] = 1.0,
    seed: Annotated[int, typer.Option(help="What is drawn.")] = 0,
    eval_: Annotated[
        Path | None,
        typer.Option("--eval", metavar="FILE", help="A text, or tokens as numbers: scores beside float32."),
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Write a page: plan, rate over context, places; with --eval accuracy by layer.")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            help="Write the chunks as Core ML packages here (functions decode and prefill), for the first context; "
            "an adapter beside them is mutable, and each adapter gets its files."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help=f"Print JSON (schema {SCHEMA}).")] = False,
) -> None:
    """Plan a language model for the engine: programs, places, tokens per second, range; and let it answer.

    The plan is for every chip and context; tokens and scores are computed here, on the first chip's arithmetic.
    """
    from hexane import chips
    from hexane.language import Decoder
    from hexane.language.adapters import BESIDE
    from hexane.language.evaluation import evaluate_text
    from hexane.language.layer_errors import layer_errors
    from hexane.language.packages import save_adapter, save_packages
    from hexane.language.sampling import Sampling
    from hexane.language.speculation import CHANCES, DraftModel
    from hexane.language.swaps import swap_of, with_adapters

    decoder = Decoder.from_pretrained(folder, weights=weights, prefill_rows=prefill, divided_gates=divided_gates)
    beginning = _tokens(folder, prompt, ids)
    lengths = [decoder.context_for(USUAL_CONTEXT)] if context is None else _numbers(context, "--context")
    targets = chips.parse_list(chip)
    plans = [decoder.plan(target.name, length, beginning) for target in targets for length in lengths]
    decoder = decoder.with_scale(plans[0].scale if scale == "auto" else _number(scale))
    plans = [replace(plan, scale=decoder.scale) for plan in plans]
    answer: dict[str, Any] = {"schema": SCHEMA, "model": str(folder), **plans[0].as_dict()}
    answer["plans"] = [plan.as_dict() for plan in plans]
    sampling = Sampling(temperature, top_k, top_p)
    if beginning is not None:
        answers = list(decoder.stream(beginning, tokens, targets[0].name, level, seed, sampling))
        answer |= {"ids": beginning, "tokens": answers, "level": level}
        if prompt is not None:
            answer["text"] = _tokenizer(folder).decode(answers)
    if draft is not None:
        small = Decoder.from_pretrained(draft, weights=weights, prefill_rows=prefill, divided_gates=divided_gates)
        helper, chances = DraftModel(small, proposed), CHANCES if accepted is None else (accepted,)
        answer["speculation"] = {}
        if beginning is not None:
            run = helper.speculate(decoder, beginning, tokens, targets[0].name, level)
            answer["speculation"]["shown"] = run.as_dict()
            chances = (run.chance,) if accepted is None else chances
        answer["speculation"]["cycles"] = helper.cycles(plans, chances)
    errors: tuple[LayerError, ...] = ()
    if eval_ is not None:
        text = _read_tokens(folder, eval_)
        answer["scores"] = evaluate_text(decoder, text, targets[0].name, level).as_dict()
        errors = layer_errors(decoder, text, targets[0].name)
        answer["layer_errors"] = [asdict(error) for error in errors]
    models = [] if adapter is None else with_adapters(decoder, adapter.split(","), adapter_form)
    if save is not None:
        packages = save_packages(models[0] if models else decoder, save, lengths[0])
        answer["packages"] = [str(path) for path in packages]
    if adapter is not None:
        answer["adapters"] = []
        for model in models:
            needed = None if beginning is None else decoder.context_for(len(beginning) + tokens)
            entry = swap_of(model, targets[0].name, level, needed).as_dict()
            if save is not None and adapter_form == BESIDE:
                files = save_adapter(model, packages, save / entry["name"])
                entry["files"] = [str(file) for file in files if file is not None]
            if beginning is not None:
                entry["tokens"] = list(model.stream(beginning, tokens, targets[0].name, level, seed, sampling))
            if eval_ is not None:
                entry["scores"] = evaluate_text(model, text, targets[0].name, level).as_dict()
            answer["adapters"].append(entry)
    if page is not None:
        from hexane.report.llm_page import write_page

        write_page(page, plans, folder.resolve().name, decoder.architecture.positions, answer.get("scores"), errors,
                   answer.get("text"))  # fmt: skip
        answer["page"] = str(page)
    if json:
        print_json(answer)
        return
    _print(plans, decoder)
    for name in ("tokens", "text", "scores", "page", "packages"):
        if name in answer:
            typer.echo(f"{name}: {answer[name]}")
    if draft is not None:
        _print_cycles(answer["speculation"])
    if errors:
        _print_errors(errors)
    for entry in answer.get("adapters", ()):
        what = ", ".join(f"{name} {value}" for name, value in entry.items() if name not in ("name", "products"))
        typer.echo(f"adapter {entry['name']} of {', '.join(entry['products'])}: {what}")


def _print(plans: list[DecoderPlan], decoder: Decoder) -> None:
    plan, a = plans[0], decoder.architecture
    typer.echo(
        f"{a.family}: {a.layers} layers of {a.hidden}, {a.heads} heads ({a.kv_heads} of keys) of {a.head_dim}, "
        f"{a.words} words; {plan.parameters / 1e6:.1f} million weights as {plan.weights}"
    )
    title("programs (each with functions decode and prefill over the same weights and state)")
    rows = [[c.name, f"{c.weight_bytes:,}", f"{c.state_bytes * plan.context:,}"] for c in plan.chunks]
    print_rows(rows, ["program", "bytes of weights", f"bytes of state at {plan.context}"], right=(1, 2))
    title("tokens per second and energy on the engine's rail (predicted; one standard deviation of the rate)")
    rates = [
        [p.chip, p.context, *map(_rate, (p.decode_tok_s, p.decode_mj, p.prefill_tok_s, p.prefill_mj))] for p in plans
    ]
    head = ["chip", "context", "decode", "mJ a token", f"prefill, {plan.prefill_rows} rows", "mJ a token"]
    print_rows(rates, head, right=(1,))
    title(f"places on {plan.chip}")
    ops = [[p.function, p.program, p.op, p.count, p.apple, p.hexane, p.why] for p in plan.places]
    print_rows(ops, ["function", "program", "op", "count", "Apple", "hexane", "why"], right=(3,))
    title(f"a new row of one layer's cache on {plan.chip}, by the form of its write")
    writes = [
        [w.form, w.place, w.tasks, f"{w.us:.0f}", f"{w.host_bytes:,}", w.programs, w.note] for w in plan.cache_writes
    ]
    print_rows(writes, ["form", "place", "tasks", "us", "bytes of the host", "programs", ""], right=(2, 3, 4, 5))
    title("residual stream")
    peaks = [[f"layer {p.layer} {p.half}", f"{p.stream:.5g}", f"{p.change:.5g}"] for p in plan.residual_peak]
    print_rows(peaks, ["behind", "largest", "largest added"], right=(1, 2))
    typer.echo(f"scale {plan.scale:g}; norms: {plan.norms}")
    for entry in plan.warnings:
        typer.echo(f"{entry.rule}: {entry.says}; {entry.remedy} ({entry.source})")


def _print_cycles(entry: dict[str, Any]) -> None:
    title("with a draft (predicted; nothing of the host between the calls)")
    rows = [
        [c["chip"], c["context"], f"{c['accepted']:.2f}", c["proposed"], f"{c['draft_ms']:.1f}",
         f"{c['verify_ms']:.1f}", f"{c['words']:.2f}", f"{c['rate']:.4g} ({c['low']:.4g} to {c['high']:.4g})"]
        for c in entry["cycles"]
    ]  # fmt: skip
    head = ["chip", "context", "accepted", "words proposed", "draft, ms", "verification, ms", "words a cycle", "tok/s"]
    print_rows(rows, head, right=(1, 2, 3, 4, 5, 6))
    if "shown" in entry:
        run = entry["shown"]
        typer.echo(
            f"shown here: {run['accepted']} of {run['proposed']} words accepted in {run['calls']} calls, "
            f"chance {run['chance']:.2f}"
        )


def _print_errors(errors: tuple[LayerError, ...]) -> None:
    from hexane.language.layer_errors import DIFFERS, first_to_differ

    title("error of the residual stream, of the stream (root mean square)")
    rows = [[f"layer {e.layer} {e.half}", f"{e.stream:.3g}", f"{e.alone:.3g}"] for e in errors]
    print_rows(rows, ["behind", "with all before", "the layer alone"], right=(1, 2))
    first = first_to_differ(errors)
    where = "none" if first is None else f"layer {first.layer} {first.half}"
    typer.echo(f"first that is off by {DIFFERS:.0%}: {where}")


def _rate(rate: Any) -> str:
    return f"{rate.value:.4g} ({rate.low:.4g} to {rate.high:.4g})"


def _tokens(folder: Path, prompt: str | None, ids: str | None) -> list[int] | None:
    if prompt is not None and ids is not None:
        raise UsageError("--prompt and --ids are two beginnings", hint="leave one of them out")
    if ids is not None:
        return _numbers(ids, "--ids")
    return None if prompt is None else list(_tokenizer(folder).encode(prompt).ids)


def _read_tokens(folder: Path, file: Path) -> list[int]:
    text = read_text(file)
    if text.strip() and all(word.strip().isdigit() for word in text.replace(",", " ").split()):
        return _numbers(",".join(text.replace(",", " ").split()), str(file))
    return list(_tokenizer(folder).encode(text).ids)


def _tokenizer(folder: Path) -> Any:
    from hexane.language.text import tokenizer_of

    return tokenizer_of(folder)


def _numbers(text: str, what: str) -> list[int]:
    words = text.split(",")
    if not all(word.strip().isascii() and word.strip().isdigit() for word in words):
        raise UsageError(f"{what} {text[:60]!r}", hint="numbers from 0 on, with commas")
    return [int(word) for word in words]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--scale {text!r}", hint="auto, or a power of two, at most 1") from None
