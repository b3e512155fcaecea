"""The fake of the border: every method and function that :mod:`hexane.runtime.macos.border` declares.

It checks what the real side would punish without a word: classes of arguments, counts, pools, locks, memory outside
of a lock, evaluation of a model that did not compile. :meth:`FakeMac.left` says what a caller left or did wrong.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hexane.isa.granules import PAGE
from hexane.private_api.calls import QOS
from hexane.private_api.faults import NO_RESOURCES, ProcessCrash, RuntimeFault, inference_fault
from hexane.private_api.identifier import identifier
from hexane.rounding import align
from hexane.runtime.macos.border import (
    CORE_FOUNDATION,
    DESCRIPTOR,
    FUNCTIONS,
    IO_SURFACE,
    LIBRARIES,
    METHODS,
    MODEL,
    OBJC,
    REQUEST,
    SURFACE,
    ErrorSlot,
)
from hexane.runtime.macos.fake.daemon import Daemon, Slot
from hexane.runtime.macos.fake.heap import Heap, Thing
from hexane.runtime.macos.fake.settings import Settings

STRING, DATA, NUMBER, ARRAY, DICTIONARY, ERROR, CLASS, MEMORY, CONSTANT = (
    "NSString", "NSData", "NSNumber", "NSArray", "NSDictionary", "NSError", "Class", "IOSurface", "constant",
)  # fmt: skip
CANNOT_LOCK = -536870206  # kIOReturnCannotLock, 0xe00002c2 is another; as a signed word
IDENTIFIED = "hexStringIdentifier"
CLASS_METHODS = {
    DESCRIPTOR: ("modelWithMILText:weights:optionsPlist:",),
    MODEL: ("inMemoryModelWithDescriptor:",),
    REQUEST: (next(name for name in METHODS if name.startswith("requestWith")),),
    SURFACE: ("objectWithIOSurface:",),
}
OF_MODEL = (IDENTIFIED, "compiledModelExists", "compileWithQoS:options:error:", "loadWithQoS:options:error:",
            "evaluateWithQoS:options:request:error:", "unloadWithQoS:error:")  # fmt: skip
INSTANCE_METHODS = {MODEL: OF_MODEL, STRING: ("UTF8String",), ERROR: ("domain", "code", "localizedDescription")}


@dataclass
class FakeModel:
    """An in-memory model: what it was made of, and how far it is."""

    identifier: str
    state: str = "new"
    slot: Slot | None = None


@dataclass
class FakeMemory:
    """A surface: its bytes, its address, and what the host sees of it while it is locked."""

    data: np.ndarray
    address: int
    seen: np.ndarray | None = None
    read_only: bool = False


class FakeMac:
    """A Mac that is not there; ``daemon`` is its compiler and its engine."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.daemon = Daemon(self.settings)
        self.heap = Heap()
        self.calls = 0
        self.opened: list[str] = []
        self._classes: dict[str, int] = {}
        self._constants: dict[str, int] = {}

    # -- the border ----------------------------------------------------------------------------------------------------

    def open(self, path: str) -> None:
        if self._fails(path) or path not in LIBRARIES:
            raise OSError(f"dlopen({path}): no such file")
        self.opened.append(path)

    def find_class(self, name: str) -> int:
        if self._fails(name) or name not in CLASS_METHODS or LIBRARIES[-1] not in self.opened:
            return 0
        if name not in self._classes:
            self._classes[name] = self.heap.new(CLASS, name)
        return self._classes[name]

    def responds(self, receiver: int, selector: str) -> bool:
        if self._fails("class_respondsToSelector"):
            return False
        thing = self.heap.thing(receiver)
        if thing.kind == CLASS:
            return selector in CLASS_METHODS[thing.value]
        return selector in self._methods_of(thing)

    def send(self, receiver: int, selector: str, *arguments: Any) -> Any:
        form = METHODS[selector]
        self._check(selector, form.arguments, arguments)
        if not receiver:
            return _nothing(form.result)
        thing = self.heap.thing(receiver)
        methods = CLASS_METHODS[thing.value] if thing.kind == CLASS else self._methods_of(thing)
        if selector not in methods:
            name = thing.value if thing.kind == CLASS else thing.kind
            raise ProcessCrash(f"NSInvalidArgumentException: {name} does not know {selector}")
        if self._fails(selector):
            return self._failed(form.result, arguments)
        method: Callable[..., Any] = getattr(self, f"_{selector.split(':')[0]}")
        return method(thing, *arguments)

    def call(self, function: str, *arguments: Any) -> Any:
        form = FUNCTIONS[function]
        self._check(function, form.arguments, arguments)
        library = {"o": OBJC, "C": CORE_FOUNDATION, "I": IO_SURFACE}[function[0]]
        if library not in self.opened:
            raise ProcessCrash(f"dlsym: {function} of a library that is not open")
        never = form.result == "void" or function in ("objc_autoreleasePoolPush", "objc_retain")
        if not never and self._fails(function):
            return CANNOT_LOCK if form.result == "i32" else _nothing(form.result)
        answer: Callable[..., Any] = getattr(self, f"_{function}")
        return answer(*arguments)

    def constant(self, name: str) -> int:
        if name not in self._constants:
            self._constants[name] = self.heap.new(CONSTANT, name.removeprefix("k"))
        return self._constants[name]

    def address(self, name: str) -> int:
        return self.constant(name)

    def memory(self, address: int, size: int) -> np.ndarray:
        for thing in self.heap.things.values():
            if thing.kind == MEMORY and thing.value.address == address:
                view: np.ndarray | None = thing.value.seen
                if view is None:
                    raise ProcessCrash("the memory of a surface was used outside of its lock")
                if size > view.size:
                    raise ProcessCrash(f"{size} bytes of a surface of {view.size} were used")
                return view[:size]
        raise ProcessCrash("EXC_BAD_ACCESS: memory of nothing was used")

    def again(self) -> list[str]:
        settings = asdict(self.settings) | {"folder": str(self.daemon.cache), "fails_at": -1}
        return ["fake", json.dumps(settings)]

    # -- what is left --------------------------------------------------------------------------------------------------

    def left(self) -> list[str]:
        """Remains of a caller that is done: objects, programs, pools, and what it did wrong."""
        leaks = [f"a {t.kind} ({t.count} times)" for t in self.heap.things.values() if t.kind not in (CLASS, CONSTANT)]
        leaks += ["a loaded program"] * len(self.daemon.loaded)
        leaks += ["an autorelease pool"] * sum(map(len, self.heap.pools.values()))
        return leaks + self.heap.complaints

    def close(self) -> None:
        """End this Mac."""
        self.daemon.close()

    # -- calls that fail -----------------------------------------------------------------------------------------------

    def _fails(self, name: str) -> bool:
        number = self.calls
        self.calls += 1
        if name == self.settings.dies_at:
            os._exit(9)
        first = self.settings.fails_at
        return first >= 0 and first <= number < first + self.settings.fails_times

    def _failed(self, result: str, arguments: tuple[Any, ...]) -> Any:
        if arguments and isinstance(arguments[-1], ErrorSlot):
            return self._no(inference_fault(NO_RESOURCES), arguments[-1])
        return _nothing(result)

    def _no(self, fault: RuntimeFault, slot: ErrorSlot) -> bool:
        slot.value = self.heap.passing(ERROR, fault)
        return False

    def _check(self, name: str, forms: tuple[str, ...], arguments: tuple[Any, ...]) -> None:
        if len(forms) != len(arguments):
            raise ProcessCrash(f"{name} takes {len(forms)} arguments, {len(arguments)} were given")
        for form, value in zip(forms, arguments):
            if not isinstance(value, ACCEPTS[form]) or (isinstance(value, bool) and form != "bool"):
                raise ProcessCrash(f"{name} takes a {form}, a {type(value).__name__} was given")

    def _methods_of(self, thing: Thing) -> tuple[str, ...]:
        more = ("modelAttributes",) if thing.kind == MODEL and self.settings.tells_symbols else ()
        return (*INSTANCE_METHODS.get(thing.kind, ()), *more)

    # -- libobjc, CoreFoundation ---------------------------------------------------------------------------------------

    def _objc_autoreleasePoolPush(self) -> int:
        return self.heap.push()

    def _objc_autoreleasePoolPop(self, token: int) -> None:
        self._ended(self.heap.pop(token))

    def _objc_retain(self, pointer: int) -> int:
        return self.heap.retain(pointer)

    def _objc_release(self, pointer: int) -> None:
        self._ended(self.heap.release(pointer))

    def _CFRelease(self, pointer: int) -> None:
        self._ended(self.heap.release(pointer))

    def _ended(self, things: list[Thing]) -> None:
        for thing in things:
            if thing.kind == MODEL and thing.value.slot is not None:
                self.heap.complaints.append("a model was released while its program was loaded")
                self.daemon.unload(thing.value.slot)

    def _CFStringCreateWithBytes(self, _: int, data: bytes, size: int, encoding: int, external: bool) -> int:
        if encoding != 0x08000100 or external:
            return 0
        return self.heap.new(STRING, data[:size].decode())

    def _CFDataCreate(self, _: int, data: bytes, size: int) -> int:
        return self.heap.new(DATA, data[:size])

    def _CFNumberCreate(self, _: int, kind: int, data: bytes) -> int:
        return self.heap.new(NUMBER, struct.unpack("<q", data)[0]) if kind == 4 else 0

    def _CFArrayCreate(self, _: int, items: list[int], count: int, callbacks: int) -> int:
        self._callbacks(callbacks, "CFTypeArrayCallBacks")
        return self.heap.new(ARRAY, tuple(items[:count]), tuple(items[:count]))

    def _CFDictionaryCreate(
        self, _: int, keys: list[int], values: list[int], count: int, of_keys: int, of_values: int
    ) -> int:
        self._callbacks(of_keys, "CFTypeDictionaryKeyCallBacks")
        self._callbacks(of_values, "CFTypeDictionaryValueCallBacks")
        entries = {self.heap.value(key, STRING, CONSTANT): value for key, value in zip(keys[:count], values[:count])}
        return self.heap.new(DICTIONARY, entries, (*keys[:count], *values[:count]))

    def _callbacks(self, address: int, name: str) -> None:
        if self.heap.value(address, CONSTANT) != name:
            raise ProcessCrash(f"a container without {name} does not retain what it holds")

    def _CFArrayGetCount(self, array: int) -> int:
        return len(self.heap.value(array, ARRAY))

    def _CFArrayGetValueAtIndex(self, array: int, index: int) -> int:
        return int(self.heap.value(array, ARRAY)[index])

    def _CFDictionaryGetValue(self, dictionary: int, key: int) -> int:
        return int(self.heap.value(dictionary, DICTIONARY).get(self.heap.value(key, STRING), 0))

    # -- IOSurface -----------------------------------------------------------------------------------------------------

    def _IOSurfaceCreate(self, properties: int) -> int:
        properties_read = {
            key: self.heap.value(value, NUMBER) for key, value in self.heap.value(properties, DICTIONARY).items()
        }
        size = properties_read.get("IOSurfaceAllocSize", 0)
        flat = (
            properties_read.get("IOSurfaceWidth"),
            properties_read.get("IOSurfaceBytesPerRow"),
            properties_read.get("IOSurfaceHeight"),
        )
        if size < 1 or flat != (size, size, 1) or properties_read.get("IOSurfaceBytesPerElement") != 1:
            return 0
        return self.heap.new(MEMORY, FakeMemory(np.zeros(size, np.uint8), self.heap.room(align(size, PAGE))))

    def _IOSurfaceGetAllocSize(self, surface: int) -> int:
        return int(self.heap.value(surface, MEMORY).data.size)

    def _IOSurfaceGetBaseAddress(self, surface: int) -> int:
        return int(self.heap.value(surface, MEMORY).address)

    def _IOSurfaceLock(self, surface: int, options: int, _: int) -> int:
        memory = self.heap.value(surface, MEMORY)
        if memory.seen is not None:
            return CANNOT_LOCK
        memory.seen, memory.read_only = memory.data.copy(), options == 1
        return 0

    def _IOSurfaceUnlock(self, surface: int, options: int, _: int) -> int:
        memory = self.heap.value(surface, MEMORY)
        if memory.seen is None or memory.read_only != (options == 1):
            return CANNOT_LOCK
        if not memory.read_only:
            memory.data[:] = memory.seen
        elif not np.array_equal(memory.data, memory.seen):
            self.heap.complaints.append("a surface that was locked for reading was written")
        memory.seen = None
        return 0

    # -- the private classes -------------------------------------------------------------------------------------------

    def _modelWithMILText(self, _: Thing, text: int, weights: int, __: int) -> int:
        if self.heap.thing(text).kind == STRING:
            raise ProcessCrash("the text is an NSString: the class wants NSData (restriction T1)")
        data: bytes = self.heap.value(text, DATA)
        if not weights and b"BLOBFILE" in data:
            raise ProcessCrash("weights are nil for a text with weight files (restriction W1)")
        files = {}
        for path, entry in (self.heap.value(weights, DICTIONARY) if weights else {}).items():
            parts = self.heap.value(entry, DICTIONARY)
            if "offset" not in parts or "data" not in parts:
                raise ProcessCrash("a weight needs offset and data")
            files[path] = self.heap.value(parts["data"], DATA)
        return self.heap.passing(DESCRIPTOR, identifier(data, files))

    def _inMemoryModelWithDescriptor(self, _: Thing, descriptor: int) -> int:
        return self.heap.passing(MODEL, FakeModel(self.heap.value(descriptor, DESCRIPTOR)), (descriptor,))

    def _hexStringIdentifier(self, model: Thing) -> int:
        return self.heap.passing(STRING, model.value.identifier)

    def _compiledModelExists(self, model: Thing) -> bool:
        return self.daemon.exists(model.value.identifier)

    def _compileWithQoS(self, model: Thing, qos: int, options: int, slot: ErrorSlot) -> bool:
        self._called(qos, options)
        try:
            self.daemon.compile(model.value.identifier)
        except RuntimeFault as fault:
            model.value.state = "failed"
            return self._no(fault, slot)
        model.value.state = "compiled"
        return True

    def _loadWithQoS(self, model: Thing, qos: int, options: int, slot: ErrorSlot) -> bool:
        self._called(qos, options)
        self._usable(model.value)
        if model.value.slot is not None:
            raise ProcessCrash("a model that is loaded was loaded again")
        try:
            model.value.slot = self.daemon.load(model.value.identifier)
        except RuntimeFault as fault:
            return self._no(fault, slot)
        return True

    def _evaluateWithQoS(self, model: Thing, qos: int, options: int, request: int, slot: ErrorSlot) -> bool:
        self._called(qos, options)
        self._usable(model.value)
        inputs, outputs = self.heap.value(request, REQUEST)
        if model.value.slot is None:
            return self._no(inference_fault(0x16), slot)
        try:
            self.daemon.evaluate(model.value.slot, self._memories(inputs), self._memories(outputs))
        except RuntimeFault as fault:
            return self._no(fault, slot)
        return True

    def _unloadWithQoS(self, model: Thing, qos: int, slot: ErrorSlot) -> bool:
        self._called(qos)
        if model.value.slot is None:
            return self._no(inference_fault(0x16), slot)
        self.daemon.unload(model.value.slot)
        model.value.slot = None
        return True

    def _modelAttributes(self, model: Thing) -> int:
        if model.value.slot is None:
            return 0
        names = {}
        for key, symbols in zip(
            ("kANEFModelInputSymbolsArrayKey", "kANEFModelOutputSymbolsArrayKey"), self.daemon.symbols(model.value.slot)
        ):
            strings = tuple(self.heap.passing(STRING, symbol) for symbol in symbols)
            names[key] = self.heap.passing(ARRAY, strings, strings)
        description = self.heap.passing(DICTIONARY, names, tuple(names.values()))
        return self.heap.passing(DICTIONARY, {"ANEFModelDescription": description}, (description,))

    def _objectWithIOSurface(self, _: Thing, surface: int) -> int:
        self.heap.thing(surface, MEMORY)
        return self.heap.passing(SURFACE, surface, (surface,))

    def _requestWithInputs(
        self, _: Thing, inputs: int, i: int, outputs: int, o: int, weights: int, stats: int, procedure: int
    ) -> int:
        if weights or stats or self.heap.value(procedure, NUMBER) != 0:
            raise ProcessCrash("a request of another form than the public runners make")
        sides = []
        for wrappers, indices in ((inputs, i), (outputs, o)):
            numbers = [self.heap.value(number, NUMBER) for number in self.heap.value(indices, ARRAY)]
            items = self.heap.value(wrappers, ARRAY)
            if numbers != list(range(len(items))):
                raise ProcessCrash(f"indices {numbers} of {len(items)} surfaces")
            sides.append(tuple(self.heap.value(item, SURFACE) for item in items))
        return self.heap.passing(REQUEST, tuple(sides), (inputs, outputs))

    def _memories(self, surfaces: tuple[int, ...]) -> list[np.ndarray]:
        memories = [self.heap.value(surface, MEMORY) for surface in surfaces]
        if any(memory.seen is not None for memory in memories):
            self.heap.complaints.append("a surface was locked by the host during an evaluation")
        return [memory.data for memory in memories]

    def _called(self, qos: int, options: int | None = None) -> None:
        if qos not in QOS:
            raise ProcessCrash(f"a quality of service of {qos}, which nobody tried")
        if options is not None and self.heap.value(options, DICTIONARY):
            raise ProcessCrash("options that nobody needs")
        if not self.heap.own_pools:
            self.heap.complaints.append("a method was called with no autorelease pool in place")

    @staticmethod
    def _usable(model: FakeModel) -> None:
        if model.state == "failed":
            raise ProcessCrash("NSInvalidArgumentException: getUUID of a model whose compilation failed")

    # -- errors, strings, the device -----------------------------------------------------------------------------------

    def _UTF8String(self, string: Thing) -> bytes:
        return str(string.value).encode()

    def _domain(self, error: Thing) -> int:
        return self.heap.passing(STRING, error.value.domain)

    def _code(self, error: Thing) -> int:
        return int(error.value.code)

    def _localizedDescription(self, error: Thing) -> int:
        return self.heap.passing(STRING, error.value.words)


ACCEPTS: dict[str, tuple[type, ...]] = {
    "id": (int,), "address": (int,), "bool": (bool,), "u32": (int,), "i32": (int,), "long": (int,), "size": (int,),
    "bytes": (bytes,), "ids": (list,), "error": (ErrorSlot,),
}  # fmt: skip


def _nothing(result: str) -> Any:
    return {"void": None, "text": None, "bool": False}.get(result, 0)


__all__ = ["FakeMac", "FakeMemory", "FakeModel"]
