"""Advice of experts for an op that the engine has not, and answers to the code generator's reasons."""

from __future__ import annotations

from hexane.errors import Reason

_INSTEAD = {
    "cumsum": "multiply by a constant triangular matrix of ones (matmul)",
    "reduce_prod": "for positive numbers use exp(reduce_sum(log(x)))",
    "reduce_argmax reduce_argmin": "end the engine part at the scores and take the maximum on the host",
    "topk argsort": "end the engine part at the scores and sort on the host",
    "gather gather_along_axis gather_nd": "with few possible indices, multiply by a one-hot matrix; else "
    "look up on the host and feed the rows",
    "scatter scatter_nd scatter_along_axis": "with constant indices, concat slices or select with a constant mask",
    "one_hot": "compare with a constant range (equal), or give the one-hot rows as an input",
    "band_part": "multiply by a constant mask of ones and zeros",
    "logical_and": "multiply the two 0/1 tensors, or use minimum",
    "logical_or": "use maximum of the two 0/1 tensors",
    "logical_xor": "use abs(a - b) of the two 0/1 tensors",
    "mod": "write x - floor_div(x, y) * y",
    "conv_transpose": "write it over two axes (expand_dims in front of it) with equal strides and a constant weight",
    "classify": "nothing to do: Core ML looks labels up on the host",
    "reverse reverse_sequence": "multiply by a constant exchange matrix (matmul)",
    "sliding_windows": "use a convolution with a constant 0/1 kernel",
    "range_1d fill fill_like shape": "give the values as a constant",
    "lstm gru rnn onnx.LSTM onnx.GRU onnx.RNN": "leave "
    "it to the host: 20 unrolled steps of 1,024 are predicted to take 6 to 7 times the CPU's time on the engine",
    "sin cos": "give sine and cosine as an input or a constant (position encodings), or use a polynomial",
    "tan": "write sin(x) / cos(x) where the chip has them",
    "sinh cosh": "write (exp(x) - exp(-x)) / 2, or with + for cosh",
    "asin acos atanh": "use a polynomial of mul and add",
    "non_zero non_maximum_suppression": "end the engine part before it; such post-processing belongs on the host",
    "random_normal random_bernoulli random_categorical random_uniform": "draw on the host and give it as an input",
    "crop_resize resample affine crop": "crop with a constant slice and resize by a fixed factor",
    "while_loop cond": "unroll the loop; compute both branches and select",
    "einsum": "write the contraction as transpose, reshape and matmul",
    "pad": "move the padding into the pad of the convolution behind it, or concat with constants",
    "clip": "write maximum and minimum",
    "layer_norm": "write the normalisation without gamma and beta, then mul and add",
    "list_read list_write list_gather list_scatter list_length make_list": "use plain tensors of fixed shape",
}

INTEGER_SUMS = frozenset("ConvInteger MatMulInteger DynamicQuantizeLinear".split())
"""Nodes of an ONNX file that was quantised with scales found at run time."""
OF_INTEGER_SUMS = (
    "take the file that is not quantised (hexane compress stores weights in few bits), or quantise with fixed scales "
    "(QuantizeLinear, DequantizeLinear): the engine has no sums of integers"
)

INSTEAD = {op: text for ops, text in _INSTEAD.items() for op in ops.split()}

_SPLIT = "split along that axis (slice, compute the parts, concat) or reshape"

_ANSWERS = {
    Reason.ELEMENT_TYPE: "convert the operand to fp16; work on indices beyond 2048 belongs on the host",
    Reason.SHAPE: "fix the shape when the model is exported or loaded (--shape NAME=1x3x224x224)",
    Reason.RANK: "reshape: merge neighbouring axes, so that at most four are left besides a batch of one",
    Reason.EXTENT: _SPLIT,
    Reason.MEMORY: "split the tensor (slice, compute the parts, combine), or reduce it in steps",
    Reason.COMPUTED: "make that operand a constant",
    Reason.CONSTANT: "fold the constant into its neighbour, or swap the operands",
    Reason.WINDOW: "split the kernel or window into smaller ones whose results are combined",
    Reason.DILATION: "use a dense kernel, or space_to_batch around an undilated one",
    Reason.STRIDE: "use stride 1 or 2, or two such ops behind one another",
    Reason.GROUPS: "pad the channels so that groups divide them evenly, or split into convolutions and concat",
    Reason.PADDING: "pad with zeros inside the convolution, or concat with constants before it",
    Reason.BROADCAST: "tile or reshape the smaller operand so that only axes of size 1 are stretched",
    Reason.BATCH: "run the network with a batch of one, or move the batch to another axis",
    Reason.LAYOUT: "transpose or reshape where the tensor is small, so that rows stay whole",
    Reason.SURFACES: "split the network so that each part has fewer inputs and outputs",
    Reason.STATE: "give the state as an input and return its new value as an output",
    Reason.EVIDENCE: "compile without --strict",
    Reason.CHIP: "compile for a chip that hexane writes programs for",
}


def instead_of(op_type: str) -> str:
    """Advice in place of an op."""
    return INSTEAD.get(op_type, "write it with ops that the engine has, or end the engine part before it")


def instead_of_foreign(kind: str) -> str:
    """Advice in place of a node that only onnxruntime runs."""
    quantised = "; use the form that is not quantised at run time" if "Dynamic" in kind else ""
    return f"write it with ops of the standard set, or end the engine part before it{quantised}"


def answer_to(code: str, op_type: str) -> str:
    """Advice on a refusal of the code generator: by the error's code, and by the op where it has no other."""
    has_substitute = op_type in INSTEAD and code in (Reason.COMPUTED, Reason.BATCH, Reason.LAYOUT)
    return instead_of(op_type) if has_substitute or code not in _ANSWERS else _ANSWERS[Reason(code)]
