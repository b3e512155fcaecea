"""Around the classes: daemons, entitlements, symbols, IOKit, structures, ways to run, and what failed."""

from __future__ import annotations

from hexane.private_api import entitlement
from hexane.private_api.rows import APPLE, INFERRED, SILICON, Row

DAEMONS = (
    Row("daemon", "aned", "/usr/libexec/aned: cache of compiled programs, loading", APPLE, "macOS 13 to 27", "all"),
    Row("daemon", "aneuserd", "/usr/libexec/aneuserd: the same per user", APPLE, "macOS 13 to 27", "all"),
    Row(
        "daemon", "ANECompilerService.xpc",
        "inside AppleNeuralEngine.framework; compiles; keeps deleted inputs open until it exits (178 GiB once)",
        SILICON, "macOS 26", "libane, cadamcat",
    ),
    Row(
        "daemon", "cache",
        "on disk, by text and weights, outlives processes; 127 of 127 hits in a second process; not seen "
        "to be reused on A18 Pro",
        SILICON, "macOS 13 to 27", "field guide, qwen-ane, anedvd",
    ),
)  # fmt: skip

ENTITLEMENTS = (
    Row(
        "entitlement", "none",
        "the in-memory class and _ANEClient work in any unsandboxed process (not from the App Store)",
        SILICON, "macOS 13 to 27", "all",
    ),
    Row(
        "entitlement", "com.apple.ane.iokit-user-access",
        "opening the driver directly; restricted: AMFI kills a binary that carries it unless it is "
        "Apple's, provisioned, or AMFI is off",
        SILICON, "macOS 11 to 26", "tinygrad, ane-guide",
    ),
    Row(
        "entitlement", "com.apple.ane.allow-dataChaining-access",
        "with the other one, in the one report of a direct create",
        SILICON, "macOS 26", "ane-compiler",
    ),
    Row("entitlement", "com.apple.ane.hardware-counters", "per-task counters, with anedebug=1 and AMFI off", SILICON,
        "macOS 15", "freedomtan"),
    Row(
        "entitlement", "amfi_get_out_of_my_way=1",
        "boot argument; ends code-signing checks for every program, needs SIP without NVRAM protection",
        SILICON, "macOS 11 to 26", "tinygrad",
    ),
)  # fmt: skip

CHOICES = tuple(
    Row("entitlement", name, cost, SILICON if name == "disable amfid" else INFERRED, "macOS 11", "tinygrad", "choices")
    for name, cost in entitlement.CHOICES
)
_DEVICE = "H11ANE::H11ANEDevice"
SYMBOLS = (
    Row("symbol", "ANECCompile", "int (CFDictionary io, CFDictionary flags, unsigned long 0); io: InputNetworks, "
        "OutputFilePath, OutputFileName; flags: TargetArchitecture (an unknown name means the host)", SILICON,
        "macOS 11 to 27", "tinygrad, ANEForge", "ANECompiler"),
    Row(
        "symbol", "H11ANEDeviceController",
        "made with a callback that gets each engine; SetupDeviceController()",
        SILICON, "macOS 11 to 12.4", "tinygrad", "ANEServices",
    ),
    *(Row("symbol", name, text, SILICON, "macOS 11 to 12.4", "tinygrad", _DEVICE) for name, text in (
        ("EnableDeviceMessages", "before opening"),
        ("H11ANEDeviceOpen", "0x90 zero bytes, usage 2 compile, 1 with program, 0 without"),
        ("ANE_PowerOn", "result ignored"),
        ("ANE_ProgramCreate", "an HWX image in memory to a program handle"),
        ("ANE_ProgramPrepare", "makes it ready"),
        ("ANE_ProgramSendRequest", "a request and a port; one Mach message answers"),
    )),
    Row(
        "symbol", "e5rt_*",
        "compiler, library, function main, ports, buffers, stream of Espresso",
        SILICON, "macOS 14 to 27", "ANEForge", "Espresso",
    ),
)  # fmt: skip

IOKIT = (
    *(
      Row("iokit", f"selector {number}", text, SILICON, "macOS 26", "ane-guide, m4max", "direct-path client")
      for number, text in enumerate((
        "open (104 in, 104 out)", "close", "send request (1 scalar, 2376 / 40, asynchronous)",
        "output set enqueue (40)",
        "inputs ready (3104)", "memory map (2080, 1 scalar out)", "memory unmap (2080)", "hint (16 / 24)",
        "set active procedure (32)"))),
    Row(
        "iokit", "H11ANEIn",
        "service class on every chip to date; types 1 and 4 open from an unsigned process on M4 Max, and "
        "its own programs are refused 0xe00002e2",
        SILICON, "macOS 26", "m4max, mdaiter",
    ),
    Row("iokit", "0xe00002c1", "not privileged", SILICON, "macOS 26", "ane-guide"),
    Row("iokit", "0xe00002c2", "size or pointer wrong: sizes are exact", SILICON, "macOS 26", "ane-guide"),
    Row("iokit", "0xe00002c7", "unsupported: a stub, or no entitlement", SILICON, "macOS 26", "ane-guide"),
    Row("iokit", "0xe00002e2", "not permitted: the program is rejected at load", SILICON, "macOS 26", "m4max"),
    Row(
        "iokit", "0xe00002f0",
        "not found; also what open answers without the entitlement",
        SILICON, "macOS 26", "mdaiter",
    ),
    Row(
        "iokit", "0xe00002be, 0xe00002d0, 0xe00002eb, 0xe0000404",
        "no resources, not ready, aborted, firmware timeout",
        APPLE, "macOS 26", "ane-guide",
    ),
)  # fmt: skip

STRUCTURES = (
    Row(
        "structure", "DeviceInfo",
        "104 bytes; 0 program handle u64, 8 authorisation, 16 sleep timer; kernel: 0 usage, 8 callback, "
        "0x10 context, 0x18 timeout; out 0x48 version, 0x50 engines, 0x60 CPU subtype",
        SILICON, "macOS 11 to 26", "tinygrad, ane-guide",
    ),
    Row(
        "structure", "CreateArgs",
        "56 bytes (the kernel gets 32); 0 pointer to the HWX image in 0x1000-aligned memory, 8 length, 48 "
        "has_signature",
        SILICON, "macOS 11 to 26", "tinygrad, ane-guide",
    ),
    Row("structure", "CreateOutput", "0 program handle u64; 0x8008 bytes reserved, 706,360 on macOS 26", SILICON,
        "macOS 11 to 26", "tinygrad, ane-guide"),
    Row(
        "structure", "PrepareArgs",
        "56 bytes; 0 handle, 8 flags 0x0000000100010001",
        SILICON, "macOS 11 to 12.4", "tinygrad",
    ),
    Row(
        "structure", "Request (macOS 11 and 12)",
        "0 handle; 0x20 u32 3 and 33; 0x28 inputs, 0x2c u8 indices, 0x12c u32 surface ids; 0x528 outputs, "
        "0x52c indices, 0x62c ids",
        INFERRED, "macOS 11 to 12.4", "tinygrad",
    ),
    Row(
        "structure", "Request (macOS 26)",
        "2376 bytes; 0 handle, 8 sequence, 0x10 (5, 21), 0x1c category 2, 0x20 surface ids; answer 40 "
        "bytes: 0 sequence, 8 token, 0x20 status",
        SILICON, "macOS 26", "ane-guide",
    ),
)  # fmt: skip

PATHS = (
    Row(
        "path", "_ANEInMemoryModel",
        "MIL text, Apple's compiler in the service; works everywhere; what hexane.mil models",
        SILICON, "macOS 13 to 27", "all",
    ),
    Row(
        "path", "_ANEClient compileModel:",
        "a folder with model.mil; the same refusals, no leak",
        SILICON, "macOS 15, 26", "maderix issue 54, higgs",
    ),
    Row(
        "path", "_ANEClient, kANEFModelPreCompiled",
        "a compiled .hwx of Apple's own compiler, on a machine with AMFI off",
        SILICON, "macOS 15", "freedomtan",
    ),
    Row(
        "path", "MLE5",
        "Core ML's engine with own text; ops that the engine lacks go to the CPU; writes caches",
        SILICON, "macOS 15", "dev-erik",
    ),
    Row("path", "e5rt", "C functions of Espresso", SILICON, "macOS 14 to 27", "ANEForge"),
    Row("path", "ANEServices", "own HWX files, macOS 11 to 12.4; no report from 13 on", SILICON, "macOS 11 to 12.4",
        "tinygrad"),
    Row(
        "path", "IOKit create",
        "one report of a handle with entitlements, SIP off, the file in the daemon's cache folder",
        SILICON, "macOS 26", "ane-compiler",
    ),
    Row("path", "Core ML", "public; a preference, not a command", SILICON, "macOS 13 to 27", "all"),
    Row("path", "entry points compared", "64 to 32 channels: standard 0.175 ms (second run 0.109), real-time 0.093, "
        "processRequest 0.131, direct 0.225; at 768 channels all 0.18 to 0.29", SILICON, "macOS 15", "dev-erik"),
)  # fmt: skip

TRIED = (
    Row(
        "tried", "chaining",
        "prepareChainingWithModel: fails with code 15 for all parameters, and crashes on in-memory models, "
        "which lack getUUID",
        SILICON, "macOS 15, 26", "dev-erik, Espresso, libane",
    ),
    Row("tried", "weightsBuffer", "ignored", SILICON, "macOS 15, 26", "dev-erik, DS4"),
    Row("tried", "patching weight files after compilation", "no effect for four projects, works for one (W8)", SILICON,
        "macOS 15, 26", "maderix, dev-erik, libane; Orion"),
    Row(
        "tried", "staged model.hwx",
        "a program put into the staging folder is used, or silently compiled again: its probes always "
        "computed what the text said",
        INFERRED, "macOS 26", "libane",
    ),
    Row(
        "tried", "shared events",
        "the standard path hangs or ignores them",
        SILICON, "macOS 15, 26", "dev-erik, Espresso",
    ),
    Row("tried", "faster entry points", "none is faster at real sizes", SILICON, "macOS 15", "dev-erik"),
    Row("tried", "statistics", "no reliable value from any mask", SILICON, "macOS 15", "dev-erik, Espresso"),
    Row(
        "tried", "pre-mapped surfaces, start offsets, output sets",
        "need an intermediate buffer handle, which in-memory programs have not",
        SILICON, "macOS 15", "dev-erik",
    ),
    Row(
        "tried", "own engine programs on macOS",
        "0xe00002e2 at load: the kernel checks signature, trust cache and caller",
        SILICON, "macOS 26", "m4max, ane-guide",
    ),
    Row("tried", "evaluating a model whose compilation failed", "an Objective-C exception (getUUID): catch it", SILICON,
        "macOS 26", "ane-as"),
)  # fmt: skip
