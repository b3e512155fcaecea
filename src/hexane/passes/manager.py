"""The order of the passes, and how they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING

from hexane.errors import UsageError
from hexane.graph.rewrite import remove_dead
from hexane.graph.verify import refuse_broken
from hexane.restrictions.subject import unconverted

if TYPE_CHECKING:
    from hexane.graph.ir import Function, Graph
    from hexane.lowering.compilation import Compilation

Pass = Callable[["Function", "Compilation"], int]
"""Changes a function in place; returns how many ops it changed. Its docstring says what for."""

OnPass = Callable[[str, "Graph", int], None]


def always(rewrite: Callable[[Function], int]) -> Pass:
    """A pass that does the same in every compilation."""

    @wraps(rewrite)
    def run(function: Function, _: Compilation) -> int:
        return rewrite(function)

    return run


def available() -> dict[str, Pass]:
    """Every pass by name, in the order in which they run."""
    from hexane.passes import (
        activations,
        apple_forms,
        attention,
        attention_biases,
        columns,
        common,
        contractions,
        convolutions,
        cuts,
        decompose,
        folding,
        identities,
        layouts,
        lifting,
        masked_rows,
        normalization,
        padded_keys,
        padding,
        pooling,
        precision,
        products,
        quantised,
        resampling,
        reshapes,
        rows,
        scaling,
        signals,
        single_tables,
        transposed,
        views,
        volumes,
    )

    return {
        "fold_constants": always(folding.fold_constants),
        "remove_identities": always(identities.remove_identities),
        "recognise_activations": always(activations.recognise_activations),
        "mask_rows": always(masked_rows.mask_rows),
        "recognise_norms": normalization.recognise_norms,
        "fold_norms": always(normalization.fold_norms),
        "fold_scales": scaling.fold_scales,
        "fold_padding": always(padding.fold_padding),
        "leave_to_host": apple_forms.leave_to_host,
        "apple_forms": apple_forms.apple_forms,
        "single_tables": single_tables.single_tables,
        "scaled_tables": single_tables.scaled_tables,
        "decompose_activations": always(activations.decompose_activations),
        "decompose": decompose.decompose,
        "contractions": always(contractions.legalise_contractions),
        "volumes": always(volumes.legalise_volumes),
        "pools": always(pooling.legalise_pools),
        "resampling": always(resampling.legalise_resampling),
        "transposed_convolutions": always(transposed.legalise_transposed),
        "products": always(products.legalise_products),
        "rows_in_parts": products.rows_in_parts,
        "attention_biases": attention_biases.drop_biases,
        "padded_keys": padded_keys.pad_keys,
        "features_as_channels": columns.features_as_channels,
        "attention": attention.turn_attention,
        "signals": signals.legalise_signals,
        "quantised": always(quantised.legalise_quantised),
        "convolutions": convolutions.legalise_convolutions,
        "views": always(views.legalise_views),
        "layouts": layouts.choose_layouts,
        "cut_early": cuts.cut_early,
        "keep_rows_as_channels": rows.keep_rows_as_channels,
        "affine_maps": single_tables.affine_maps,
        "batch_norms": single_tables.batch_norms,
        "cancel": always(reshapes.cancel_moves),
        "lift_functions": lifting.lift_functions,
        "shuffle_weights": lifting.shuffle_weights,
        "fold_constants_again": always(folding.fold_constants),
        "common_subexpressions": always(common.share_common),
        "half_precision": always(precision.to_half),
        "remove_identities_again": always(identities.remove_identities),
        "own_chains": signals.own_chains,
        "bytes_of_convolutions": always(quantised.bytes_of_convolutions),
    }


def run(
    graph: Graph, compilation: Compilation, passes: Iterable[str] | None = None, on_pass: OnPass | None = None
) -> Graph:
    """A copy of the graph after the passes; the graph itself stays as it is.

    Parameters
    ----------
    graph : any graph; functions are treated one by one.
    compilation : the chip whose prices decide, and the transformations that are on.
    passes : names from ``available()``, all of them in their order when None.
    on_pass : called after each pass with its name, the graph so far and how many ops changed (``--dump-passes``).

    Raises
    ------
    UsageError : a name that no pass has.
    """
    table = available()
    names = list(table) if passes is None else list(passes)
    unknown = [name for name in names if name not in table]
    if unknown:
        raise UsageError(f"there is no pass {unknown[0]!r}", hint=f"there are {', '.join(table)}")
    refuse_broken(graph)
    if compilation.as_apple:
        compilation = replace(compilation, nodes=unconverted(graph))
    result = graph.clone()
    for function in result.functions.values():
        remove_dead(function)
    for name in names:
        changed = 0
        for function in result.functions.values():
            count = table[name](function, compilation)
            if count:
                remove_dead(function)
            changed += count
        if on_pass is not None:
            on_pass(name, result, changed)
    return result
