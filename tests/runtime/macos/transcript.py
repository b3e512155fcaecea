"""A border that writes down what goes over it: calls, arguments, order. Golden files keep the order honest."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from hexane.runtime.macos.border import FUNCTIONS, METHODS, ErrorSlot, SystemBorder

_WORDS = {
    "CFStringCreateWithBytes": "string", "CFDataCreate": "data", "CFNumberCreate": "number", "CFArrayCreate": "array",
    "CFDictionaryCreate": "dictionary", "IOSurfaceCreate": "surface", "IOSurfaceGetBaseAddress": "memory",
    "objc_autoreleasePoolPush": "pool", "modelWithMILText": "descriptor", "inMemoryModelWithDescriptor": "model",
    "hexStringIdentifier": "identifier", "objectWithIOSurface": "wrapper", "requestWithInputs": "request",
    "modelAttributes": "attributes", "CFDictionaryGetValue": "value", "CFArrayGetValueAtIndex": "item",
}  # fmt: skip
"""What a call returns, in a word."""
MOST = 100_000


class Recorder:
    """The calls that reach ``border``, one line each, objects by the order of their making."""

    def __init__(self, border: SystemBorder) -> None:
        self.border = border
        self.lines: list[str] = []
        self._names: dict[int, str] = {0: "nil"}
        self._counts: Counter[str] = Counter()

    def text(self) -> str:
        """All lines."""
        return "\n".join([*self.lines, ""])

    def open(self, path: str) -> None:
        self._say(f"dlopen {path}")
        self.border.open(path)

    def find_class(self, name: str) -> int:
        reference = self.border.find_class(name)
        self._names[reference] = name if reference else "nil"
        self._say(f"objc_getClass {name} -> {'found' if reference else 'nil'}")
        return reference

    def responds(self, receiver: int, selector: str) -> bool:
        answer = self.border.responds(receiver, selector)
        self._say(f"responds {self._name(receiver)} {selector} -> {'YES' if answer else 'NO'}")
        return answer

    def send(self, receiver: int, selector: str, *arguments: Any) -> Any:
        argument_text = self._arguments(METHODS[selector].arguments, arguments)
        result = self.border.send(receiver, selector, *arguments)
        self._say(f"[{self._name(receiver)} {selector}]({argument_text})" + self._result(selector, METHODS, result))
        return result

    def call(self, function: str, *arguments: Any) -> Any:
        argument_text = self._arguments(FUNCTIONS[function].arguments, arguments)
        if function == "CFNumberCreate":
            argument_text = argument_text.replace("8 bytes", str(int.from_bytes(arguments[2], "little", signed=True)))
        result = self.border.call(function, *arguments)
        self._say(f"{function}({argument_text})" + self._result(function, FUNCTIONS, result))
        return result

    def constant(self, name: str) -> int:
        reference = self.border.constant(name)
        self._names[reference] = name
        return reference

    def address(self, name: str) -> int:
        reference = self.border.address(name)
        self._names[reference] = name
        return reference

    def memory(self, address: int, size: int) -> np.ndarray:
        self._say(f"view of {size} bytes at {self._name(address)}")
        return self.border.memory(address, size)

    def again(self) -> list[str]:
        return self.border.again()

    def _say(self, line: str) -> None:
        if len(self.lines) < MOST:
            self.lines.append(line)

    def _name(self, pointer: int) -> str:
        return self._names.get(pointer, "?")

    def _arguments(self, forms: tuple[str, ...], arguments: tuple[Any, ...]) -> str:
        return ", ".join(self._argument(form, value) for form, value in zip(forms, arguments))

    def _argument(self, form: str, value: Any) -> str:
        if isinstance(value, ErrorSlot):
            return "&error"
        if isinstance(value, list):
            return "{" + ", ".join(map(self._name, value)) + "}"
        if isinstance(value, bytes):
            plain = 0 < len(value) <= 64 and 0 not in value and value.isascii() and value.decode().isprintable()
            return repr(value.decode()) if plain else f"{len(value)} bytes"
        if form in ("id", "address"):
            return self._name(value)
        return ("NO", "YES")[value] if isinstance(value, bool) else str(value)

    def _result(self, name: str, forms: Any, result: Any) -> str:
        form = forms[name].result
        if form == "void":
            return ""
        if form in ("id", "address"):
            if result and result not in self._names:
                word = _WORDS.get(name.partition(":")[0], "object")
                self._counts[word] += 1
                self._names[result] = f"{word}{self._counts[word]}"
            return f" -> {self._name(result)}"
        if form == "text":
            return " -> a C string" if result is not None else " -> NULL"
        return " -> " + (("NO", "YES")[result] if isinstance(result, bool) else str(result))
