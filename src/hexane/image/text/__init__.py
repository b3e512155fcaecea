"""Whole engine programs as assembly text (``.hxs``): tasks as `hexane.isa.assembly` writes them, and the container.

A container that follows from its values needs few directives::

    .generation h13
    .container zin4
    .procedure net
    .ident input="./simple/neuron.plist" output="./model.hwx"
    .surface image input shape=[1, 1, 1, 77] dtype=float16 strides=[192, 192, 192, 2] channel=5
    .surface "probs@output" output shape=[1, 1, 1, 77] dtype=float16 strides=[192, 192, 192, 2] channel=4

    task t0:
        ...

    .const
    .zero 16384

* ``.container DIALECT`` says how it is laid out; ``.scratch BYTES``, ``.kernel NAME`` (a name of 64 hex digits per
  kernel) and ``.ident text="..."`` are optional.
* ``.const`` starts the constant section. ``.hex "..."`` are bytes, ``.half 0x3c00 count=8`` repeated halfwords,
  ``.zero N`` zeros.
* ``.kernels`` starts the section of weights and tables that H16 and later have besides the constants.
* Any other container lists its parts: ``.part Segment name=...`` and so on, one line per structure with all fields,
  in file order; data lines after a part are its content. Fields that are 0 or empty are left out.
"""

from hexane.image.text.reader import assemble_image
from hexane.image.text.writer import disassemble_image

__all__ = ["assemble_image", "disassemble_image"]
