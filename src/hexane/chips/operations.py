"""MIL operations that Apple's compiler takes, by generation (docs/reference/limits.md 2.2), as a table."""

from __future__ import annotations

from dataclasses import dataclass

from hexane.chips.evidence import Evidence
from hexane.chips.generations import GENERATIONS
from hexane.chips.table import Chip

NATIVE, BRIDGED, REFUSED, UNKNOWN = "native", "bridged", "refused", "unknown"
NO_SOURCE = "no source speaks of it"
_LETTERS = {"y": NATIVE, "b": BRIDGED, "-": REFUSED}
_NAMES = [generation.name for generation in GENERATIONS]
_COLUMNS = {name: min(i, 3) for i, name in enumerate(_NAMES[_NAMES.index("h13") :])}


@dataclass(frozen=True)
class Support:
    """Answer of Apple's compiler to an op: ``native``, ``bridged`` (decomposed, another route) or ``refused``.

    ``unknown`` is every op of A12 and A13, of which no source speaks.
    """

    verdict: str
    evidence: Evidence
    remark: str = ""


_TABLE: tuple[tuple[str, str, str], ...] = (
    # ops, verdict on H13 H14 H15 H16+, remark
    ("conv conv_transpose matmul linear einsum", "yyyy", ""),
    ("avg_pool max_pool l2_pool", "yyyy", ""),
    ("add sub mul maximum minimum", "yyyy", ""),
    ("real_div pow floor_div", "yyyy", "runs through tables"),
    ("abs square sqrt rsqrt inverse exp exp2 log erf sign floor ceil round atan", "yyyy", ""),
    ("equal not_equal less less_equal greater greater_equal select logical_not", "yyyy", "bool results and conditions"),
    ("logical_and logical_or logical_xor", "---y", "reports differ on H16"),
    (
        "relu relu6 leaky_relu clamped_relu thresholded_relu elu prelu sigmoid sigmoid_hard tanh scaled_tanh gelu silu "
        "softplus softplus_parametric softsign linear_activation threshold",
        "yyyy",
        "",
    ),
    ("clip", "byyy", "refused as an op on H13; a maximum and a minimum there"),
    ("softmax", "yyyy", ""),
    ("layer_norm", "byyy", "with gamma and beta refused by the bare compiler on H13 and H14"),
    ("instance_norm batch_norm l2_norm", "yyyy", ""),
    ("local_response_norm", "yyyy", "at most 15 channels on H13"),
    (
        "reduce_sum reduce_mean reduce_max reduce_min reduce_l1_norm reduce_l2_norm reduce_log_sum reduce_log_sum_exp "
        "reduce_sum_square",
        "yyyy",
        "",
    ),
    ("reduce_prod cumsum", "----", ""),
    ("reduce_argmax reduce_argmin", "bbbb", "by another route than MIL; axis up to 2048"),
    ("reshape squeeze expand_dims transpose concat split stack slice_by_size slice_by_index identity", "yyyy", ""),
    ("pad", "byyy", "constant padding rides in a convolution on H13; other modes need the texture engine"),
    ("tile", "yyyy", "factors 2, 3, 4, 8"),
    ("depth_to_space space_to_depth pixel_shuffle pixel_unshuffle", "yyyy", "factors 2, 3, 4, 8"),
    ("space_to_batch batch_to_space", "yyyy", "factors 2, 3, 4, 8"),
    ("gather gather_along_axis gather_nd", "byyy", "constant indices"),
    ("upsample_nearest_neighbor upsample_bilinear resize resize_bilinear resize_nearest_neighbor", "byyy", ""),
    ("crop_resize resample affine crop", "-yyy", "texture engine"),
    ("topk argsort", "-yyy", "k = 3 and 4 always fail"),
    ("sin cos", "--yy", ""),
    ("tan asin acos sinh cosh atanh", "----", ""),
    ("random_uniform", "--yy", ""),
    ("random_normal random_bernoulli random_categorical", "----", ""),
    ("scaled_dot_product_attention", "yyyy", "wrong results from 512 keys on (reports)"),
    (
        "scatter scatter_nd scatter_along_axis "
        "one_hot non_zero band_part shape sliding_windows reverse_sequence reverse "
        "mod rnn "
        "lstm gru onnx.LSTM onnx.GRU onnx.RNN "
        "range_1d fill fill_like non_maximum_suppression cond while_loop make_list list_read list_write "
        "list_gather list_scatter list_length",
        "----",
        "",
    ),
    ("quantize dequantize cast", "yyyy", ""),
    ("read_state write_state coreml_update_state", "yyyy", "by the tables; no published success from text"),
    ("slice_update", "yyyy", "on a state: a decoder of Core ML is placed with it (CoreML-LLM, LFM2; rule C16)"),
)  # fmt: skip

_SUPPORT = {op: (letters, remark) for ops, letters, remark in _TABLE for op in ops.split()}


def support(op_type: str, chip: Chip) -> Support:
    """Answer of Apple's compiler to ``op_type`` on ``chip``; an op that no source speaks of counts as refused
    where the others are known.

    This is the placement of an app's compiler, not of hexane's own (see ``hexane.codegen``).
    """
    column = _COLUMNS.get(chip.generation_name)
    entry = _SUPPORT.get(op_type)
    if column is None:
        return Support(UNKNOWN, Evidence.INFERRED)
    if op_type.startswith("constexpr_") or op_type == "const":
        return Support(NATIVE, Evidence.APPLE, "folded")
    if entry is None:
        return Support(REFUSED, Evidence.INFERRED, NO_SOURCE)
    letters, remark = entry
    measured = chip.generation_name in ("h13", "h14", "h16")
    return Support(_LETTERS[letters[column]], Evidence.APPLE if measured else Evidence.INFERRED, remark)
