"""Engine programs: sections, surfaces, symbols, tasks; read, build, link, edit.

>>> from hexane.image import Image, Surface, build_image
"""

from hexane.image.dialect import DIALECTS, Dialect
from hexane.image.diff import diff_images
from hexane.image.edit import edited
from hexane.image.files import open_image
from hexane.image.ident import Ident
from hexane.image.image import Image, build_image, to_anec, to_hwx
from hexane.image.kernels import Kernel
from hexane.image.linker import cut, link
from hexane.image.surface import Surface

__all__ = [
    "DIALECTS",
    "Dialect",
    "Ident",
    "Image",
    "Kernel",
    "Surface",
    "build_image",
    "cut",
    "diff_images",
    "edited",
    "link",
    "open_image",
    "to_anec",
    "to_hwx",
]
