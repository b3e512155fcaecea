"""Write unknown.hwx, the program of docs/unknown-program.md. Read this last: the page finds out what it computes."""

import numpy as np

import hexane
from hexane.graph import GraphBuilder

b = GraphBuilder()
x = b.input("a", (1, 1, 32, 48), "fp16")
k = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], np.float16)
y = b.conv(x=x, weight=np.stack([k, k.T])[:, None], pad_type="same")
y = b.reduce_sum(x=b.mul(x=y, y=y), axes=[1], keep_dims=True)
b.output(b.sqrt(x=y), name="b")
hexane.compile(b.graph, chip="M1").save("unknown.hwx")
