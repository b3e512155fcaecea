"""The nine tables of Apple's compiler that are known, as the engine loads them.

Source: docs/reference/engine-h13.md appendix B.

The same bytes serve H13 and H14, and gelu's also M6. Not known: erf, sin, cos, atan, softplus, softsign, elu.
"""

from __future__ import annotations

import numpy as np

from hexane.errors import UnsupportedError

_CONTENT = {
    "sigmoid": (
        "c8f8 4829 0000 3c00",
        "0d7f 1087 1377 1626 1910 1c2b 1eda 21a0 249b 2781 2a12 2cdb 2fa1 31d6 344e 360a 3800 "
        "38fb 39d9 3a8a 3b0c 3b65 3b9f 3bc4 3bdb 3be9 3bf2 3bf8 3bfb 3bfd 3bfe 3bff 3bff",
        "09ac 170c 163e 3be6",
        1,
        0x01,
    ),
    "tanh": (
        "0000 4400 0000 3c00",
        "0000 2ff5 33d6 35bc 3765 3870 3915 39a2 3a18 3a79 3ac9 3b0a 3b3e 3b67 3b88 3ba2 3bb6 "
        "3bc6 3bd3 3bdd 3be5 3beb 3bef 3bf3 3bf6 3bf8 3bfa 3bfb 3bfc 3bfd 3bfe 3bfe 3bff",
        "0000 0000 0000 3c00",
        3,
        0x60,
    ),
    "gelu": (
        "c466 7c00 0000 7c00",
        "0000 8e8a 9230 9757 9bf0 a011 a3bf a6ec a9bf ac75 ae67 b03d b11e b184 b104 aecf 922d "
        "3098 357e 389f 3ab8 3c78 3d9a 3eb9 3fd2 4072 40f8 417c 41fe 427f 4300 4380 4400",
        "0000 0000 3c00 0000",
        2,
        0x01,
    ),
    "silu": (
        "c91a 7c00 0000 7c00",
        "98cd 9c5e 9e65 a0ef a37b a5a9 a83b aa45 ac8e ae85 b088 b210 b3a9 b470 b460 b284 96fb "
        "34be 39d0 3ce4 3f0b 409f 41b7 42cc 43dc 4473 44f8 457a 45fc 467e 46fe 477f 47ff",
        "945d a191 3c00 9c00",
        1,
        0x01,
    ),
    "exp2": (
        "ce40 4c00 0000 7c00",
        "3c00 3c16 3c2d 3c45 3c5d 3c75 3c8e 3ca8 3cc2 3cdc 3cf8 3d14 3d30 3d4d 3d6b 3d89 3da8 "
        "3dc8 3de8 3e09 3e2b 3e4e 3e71 3e95 3eba 3ee0 3f06 3f2e 3f56 3f7f 3fa9 3fd4 4000",
        "0000 0000 0000 0000",
        5,
        0x0A,
    ),
    "log2": (
        "0000 7c00 fc00 0000",
        "bc00 bba5 bb4d baf7 baa4 ba53 ba04 b9b7 b96d b924 b8dd b897 b853 b811 b79f b720 b6a4 "
        "b62a b5b3 b53e b4cb b45a b3d8 b2ff b22a b159 b08b af83 adf6 ac6f a9dd a5d1 0000",
        "0000 0000 0000 0000",
        6,
        0xC9,
    ),
    "sqrt": (
        "0000 7c00 0000 7c00",
        "0000 0000 0000 0000 0000 0000 0000 0000 39a8 3a00 3a53 3aa2 3aee 3b36 3b7c 3bbf 3c00 "
        "3c20 3c3e 3c5c 3c79 3c95 3cb1 3ccc 3ce6 3d00 3d19 3d32 3d4b 3d63 3d7a 3d91 3da8",
        "0000 0000 0000 0000",
        4,
        0xC5,
    ),
    "rsqrt": (
        "0000 7c00 7c00 0000",
        "0000 0000 0000 0000 0000 0000 0000 0000 3da8 3d55 3d0f 3cd3 3c9e 3c70 3c47 3c22 3c00 "
        "3bc3 3b8b 3b57 3b28 3afc 3ad3 3aac 3a88 3a66 3a47 3a29 3a0c 39f1 39d8 39bf 39a8",
        "0000 0000 0000 0000",
        4,
        0xC6,
    ),
    "recip": (
        "0000 7c00 7c00 0000",
        "4000 3fc2 3f88 3f50 3f1c 3eeb 3ebd 3e90 3e66 3e3e 3e18 3df4 3dd1 3db0 3d91 3d72 3d55 "
        "3d39 3d1f 3d05 3cec 3cd5 3cbe 3ca8 3c92 3c7e 3c6a 3c57 3c44 3c32 3c21 3c10 3c00",
        "0000 0000 0000 0000",
        6,
        0x67,
    ),
}

FUNCTIONS = tuple(_CONTENT)
"""Names of the functions with a known table."""


def function_table(name: str) -> np.ndarray:
    """The 64 halfwords (uint16) of a function's table.

    `exp2` behind post-scale `LOG2_E` is exp, `log2` times `LN_2` is log; gelu serves both of its modes.
    """
    if name not in _CONTENT:
        raise UnsupportedError(f"the look-up table of {name!r} is not known", hint=f"known are {', '.join(FUNCTIONS)}")
    limits, nodes, lines, spacing, mode = _CONTENT[name]
    table = np.zeros(64, np.uint16)
    table[:41] = [int(h, 16) for h in f"{limits} {nodes} {lines}".split()]
    table[41], table[42] = spacing, mode
    return table


LOG2_E = float(np.uint16(0x3DC5).view(np.float16))
"""The post-scale that makes exp of the 2^x table (docs/reference/numerics.md 3.5)."""

LN_2 = float(np.float16(0.6931471805599453))
"""The planar scale that makes log of the log2 table (docs/reference/numerics.md 8)."""
