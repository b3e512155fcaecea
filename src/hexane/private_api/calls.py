"""Calls of the classes: order, options, surfaces, errors, limits. What ``hexane.mil`` does comes from here."""

from __future__ import annotations

from hexane.private_api.rows import APPLE, INFERRED, SILICON, Fault, Row

COMPILER, RUNTIME = "com.apple.appleneuralengine.compiler", "com.apple.appleneuralengine"

COMPILE_FAILED = Fault(
    "compile failed", COMPILER, 1, "_ANECompiler : ANECCompile() FAILED",
    "Details: InvalidMILProgram (parse, type, op), CompilationFailure (code generation) or nothing (R1); "
    "no line, no op",
    "macOS 13 to 27", "all",
)  # fmt: skip
INFERENCE_FAILED = Fault(
    "inference failed", RUNTIME, 8,
    "ANEProgramProcessRequestDirect() Failed with status=STATUS : Program Inference error",
    "0x1d: surfaces too small or too few, or a spoiled process; 0x9: narrow surfaces; 0x16; 0x5: no engine resources",
)  # fmt: skip
LOAD_FAILED = Fault(
    "load failed", RUNTIME, 8, "createProgramInstanceForModel: Program load failure (STATUS)",
    "0x50004: too many programs; 0x20004: too large", "macOS 26", "mlxfast, q38, DS4, iphone",
)  # fmt: skip
CHAINING_FAILED = Fault(
    "chaining failed", RUNTIME, 15, "prepareChainingWithModel: fails for all parameters", "nobody made it work",
    "macOS 15, 26", "dev-erik, Espresso, libane",
)  # fmt: skip
NOT_MAPPED = Fault(
    "no mapping", RUNTIME, 0x12, "surface mapping is not available for in-memory models",
    "pre-mapping needs a model loaded from disk", "macOS 15", "dev-erik",
)  # fmt: skip
FAULTS = (COMPILE_FAILED, INFERENCE_FAILED, LOAD_FAILED, CHAINING_FAILED, NOT_MAPPED)

QUEUE_DEPTH = 127
COMPILES_PER_PROCESS = 119
PROGRAMS_LOADED = 126
BYTES_LOADED = 3_500_000_000
QOS = (0, 1, 5, 9, 10, 21, 33, 47, 63)
DEFAULT_QOS = 21

LIMITS = (
    Row(
        "limit", "compilations per process",
        f"about {COMPILES_PER_PROCESS}, then every one fails without words (restriction "
        "R1)",
        SILICON, "macOS 15, 26", "maderix, Orion",
    ),
    Row(
        "limit", "programs loaded",
        f"{PROGRAMS_LOADED} on M4 Max, 127 on M5 Max, 237 on M5, 238 on A17 Pro (R3)",
        SILICON, "macOS 26", "mlxfast, q38, DS4, iphone",
    ),
    Row("limit", "bytes loaded", "about 3.5 GB of compiled programs (R4)", SILICON, "macOS 26.3.1", "field guide"),
    Row("limit", "queue depth", f"{QUEUE_DEPTH} requests", SILICON, "macOS 15, 26", "Espresso, ane-as"),
    Row(
        "limit", "quality of service",
        f"{', '.join(map(str, QOS))} all work and take the same time; {DEFAULT_QOS} is usual; "
        "0 paid 15.6 ms at the first load",
        SILICON, "macOS 15, 26", "maderix, iphone",
    ),
    Row(
        "limit", "client threads",
        "1, 2, 4, 8: 4,000 to 5,000 calls per second in all, latency grows with them",
        SILICON, "macOS 26", "ane-as",
    ),
)  # fmt: skip

STEPS = (
    Row("step", "1 descriptor", "+modelWithMILText:weights:optionsPlist: with UTF-8 NSData and "
        '{"@model_path/weights/w.bin": {"offset": 0, "data": NSData}}, one entry per path; then the model'),
    Row(
        "step", "2 staging",
        "identifier = SHA256(text) _ SHA256(options) _ SHA256(weights); write "
        "$TMPDIR/<identifier>/model.mil and the weight files: the compiler reads these, the dictionary "
        "only enters the hash",
        SILICON, "macOS 15 to 27", "maderix issue 24, anedvd",
    ),
    Row(
        "step", "3 compile",
        "compileWithQoS:21 options:{} error:; afterwards the folder also holds net.plist and data",
    ),
    Row("step", "4 load", "loadWithQoS:21 options:{} error:; one wrapper tries again once after 100 ms"),
    Row(
        "step", "5 request",
        "surfaces, wrappers, indices 0..n-1; symbols are bound in byte order of names (of name@output for "
        "results)",
        INFERRED, "macOS 15, 26", "Orion, q38, libane, maderix issue 47",
    ),
    Row("step", "6 evaluate", "evaluateWithQoS:21 options:{} request: error:"),
    Row("step", "7 unload", "unloadWithQoS:21 error:, remove the folder"),
)  # fmt: skip

_OPTIONS = (
    ("kANEFModelType", "kANEFModelMIL, kANEFModelANECIR (net.plist), kANEFModelMLIR, kANEFModelLLIRBundle, "
     "kANEFModelCoreML, kANEFModelPreCompiled"),
    ("kANEFNetPlistFilenameKey", "model.mil, for _ANEClient"),
    ("kANEFInMemoryModelIdentifierKey", "set by the wrapper"),
    ("kANEFInMemoryModelIsCachedKey", "set by the wrapper"),
    ("kANEFAneInstanceHint", "1 to 4; accepted, no effect on a chip with one engine"),
    ("kANEFProcedureVariantHint", "accepted"),
    ("kANEFKeepModelMemoryWiredKey", "0 keeps loaded weights from being wired"),
    ("kANEFEnablePowerSavingKey", "accepted"),
    ("kANEFEnableLateLatchKey", "accepted"),
    ("kANEFSkipPreparePhaseKey", "accepted"),
    ("kANEFMemoryPoolIDKey", "accepted"),
    ("kANEFPerformanceStatsMask", "before loading"),
    ("kANEFCompilerOptionsFilenameKey", "a file of compiler options; an unknown option can make compilation fail"),
)  # fmt: skip
KEYS = (
    *(Row("key", name, text, SILICON, "macOS 15, 26", "Espresso, q38", "options") for name, text in _OPTIONS),
    Row("key", "ANEFModelDescription", "kANEFModelInputSymbolsArrayKey (names), kANEFModelOutputSymbolsArrayKey "
        "(name@output), ANEFModelProcedures, kANEFModelProcedureNameToIDMapKey", APPLE, "macOS 15, 26", "q38, Espresso",
        "modelAttributes"),
    Row(
        "key", "NetworkStatusList",
        "per procedure LiveInputList and LiveOutputList: Name, Width, Height, Channels, Type, RowStride, "
        "PlaneStride, DepthStride, BatchStride, Interleave",
        APPLE, "macOS 15, 26", "q38, Espresso", "modelAttributes",
    ),
)  # fmt: skip

SURFACES = (
    Row(
        "surface", "form",
        "one-dimensional: width = bytes per row = allocation = bytes, height 1, 1 byte per element, pixel "
        "format 0; lock for the host",
    ),
    Row(
        "surface", "content",
        "[N, C, H, W] packed in row-major order from byte 0 (S8); tensor_buffer parameters have their own "
        "strides, rows a multiple of 64 bytes",
        SILICON, "macOS 15, 26", "Orion, maderix, DS4",
    ),
    Row(
        "surface", "minimum",
        "49,152 bytes in some projects, 16,384 in one, none in others (S3)",
        SILICON, "macOS 15, 26", "Orion, Espresso, iphone; field guide, dev-erik",
    ),
    Row(
        "surface", "shared between programs",
        "one surface as output of A and input of B is coherent (saves 34 us); one report of 0x9",
        SILICON, "macOS 15, 26", "libane; Espresso",
    ),
    Row("surface", "Metal", "shared with Metal buffers without a copy", SILICON, "macOS 15, 26", "Espresso, oMLX"),
)  # fmt: skip
