"""Apple's decoded programs whose words the compiler does not give, by target, each with what differs and why.

They are compiled and run all the same. A program that is not named here and differs fails a test; so does one that is
named and differs no more.
"""

from __future__ import annotations

L2_CHAIN = "a chain of elementwise tasks stays in L2; ours goes through memory"
NAMES = "order of the surfaces, whose names are not recorded; all else is equal"

DIFFERENT: dict[str, dict[str, str]] = {
    "h13": {
        "conv_c256_n256_k3x3_s2_g256_1500x64_bias": "§7.5: kernels per core of a depthwise convolution in tiles",
        "conv_probe_k3_c256_n256_s64_st1_g1_bias0_same": "§7.5: width ring and half a map of c256 3x3 at 64x64",
        "encoder_slice_lastdim": "§4.3.1: work-unit shape of the crop of 749 to 375 columns",
        "norm_layer_norm_ax3_1x64x8x8": "§7.3: the difference stands first in L2, at 128x16x16 the map does",
        "reduce_max_axes_2_3": "§16: duration of a maximum over 8x8",
    },
    "h14": {
        "env_chain_creadout_h16_s128": L2_CHAIN,
        "gasel_rrb_1x8x375x375": "the condition is kept and read again, results lie interleaved by eight in scratch",
    },
    "h15": {},
    "h16": {},
    "h16g": {
        "conv_probe_k1_c64_n64_s128_st1_g1_bias0_same": "row stride in L2 of half a row, which the record has alone",
        "conv_probe_k3_c256_n256_s64_st1_g256_bias0_same": "tile height of a depthwise convolution that fills L2",
        "conv_probe_k3_c512_n512_s64_st1_g512_bias0_same": "tile height of a depthwise convolution that fills L2",
        "rrmm_r2rr_m256_k256_n256_tx0_ty0": NAMES,
    },
    "h17": {},
    "h18": {},
    "h17g": {"conv_k1_c768_n50257_s1_st1_g1_bias0": "a wide head in one task; ours takes two"},
}

LAYERS = {
    "h14": {
        "garms_chain_c128": L2_CHAIN,
        "garms_chain_c2048_gamma": L2_CHAIN,
    },
    "h16g": {
        "chain_softmax_parts_s128": "the map is brought once for two views; ours brings it as rows and keeps it",
    },
}
"""Of all decoded programs of several layers, those of all sets that differ, by target, each with the reason."""
