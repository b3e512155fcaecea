"""Table of ONNX ops: one translator per op, in the files of ``hexane/formats/onnx/ops``."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

Translator = Callable[..., Any]

MAIN = ""
MICROSOFT = "com.microsoft"
ML = "ai.onnx.ml"

_TRANSLATORS: dict[tuple[str, str], Translator] = {}


def onnx_op(*names: str, domain: str = MAIN) -> Callable[[Translator], Translator]:
    """Declare the translator of one or more ops. It gets a node's context and returns its outputs."""

    def declare(translator: Translator) -> Translator:
        for name in names:
            if (domain, name) in _TRANSLATORS:
                raise ValueError(f"{domain or 'ai.onnx'}.{name} has two translators")
            _TRANSLATORS[domain, name] = translator
        return translator

    return declare


def one_op(name: str, op: str, operands: str, *, domain: str = MAIN, **defaults: Any) -> None:
    """Declare a node that is one op.

    ``operands`` are its inputs by the op's words in order (``bias?`` may be left out); ``defaults`` its attributes,
    which the op has under the same names, where a node is silent. None leaves an attribute out.
    """
    words = operands.split()

    def translate(c: Any) -> Any:
        arguments = {
            word.rstrip("?"): c.need(index)
            for index, word in enumerate(words)
            if not word.endswith("?") or c.has(index)
        }
        for attribute, default in defaults.items():
            content = c.attr(attribute, default)
            if content is not None:
                arguments[attribute] = bool(content) if isinstance(default, bool) else content
        return c.ops.op(op, **arguments)

    onnx_op(name, domain=domain)(translate)


def translators() -> dict[tuple[str, str], Translator]:
    """All of them, by domain and op."""
    if not _TRANSLATORS:
        package = import_module("hexane.formats.onnx.ops")
        for module in sorted(iter_modules(package.__path__), key=lambda module: module.name):
            import_module(f"{package.__name__}.{module.name}")
    return _TRANSLATORS


def domain_of(name: str) -> str:
    """The domain's short name; the default one is spelled two ways."""
    return MAIN if name in ("", "ai.onnx") else name
