"""Frameworks, classes and selectors."""

from __future__ import annotations

from hexane.private_api.rows import APPLE, INFERRED, SILICON, Row

ROOT = "/System/Library/PrivateFrameworks"
FRAMEWORK = f"{ROOT}/AppleNeuralEngine.framework/AppleNeuralEngine"
NEURAL, ESPRESSO = "AppleNeuralEngine", "Espresso"
ALL = "maderix, Orion, Espresso, libane, dev-erik"

DESCRIPTOR, MODEL, REQUEST, SURFACE = (
    "_ANEInMemoryModelDescriptor",
    "_ANEInMemoryModel",
    "_ANERequest",
    "_ANEIOSurfaceObject",
)
CLIENT, ON_DISK, PROGRAM = "_ANEClient", "_ANEModel", "_ANEProgramForEvaluation"

FRAMEWORKS = (
    Row("framework", NEURAL, f"the classes below; {FRAMEWORK}. The file stands in the shared cache only: dlopen works, "
        "stat does not. 67 classes on M4, 34 of them exported on M5", SILICON, "macOS 13 to 27", ALL),
    Row(
        "framework", "ANECompiler",
        f"{ROOT}/ANECompiler.framework: ANECCompile",
        SILICON, "macOS 11 to 27", "tinygrad",
    ),
    Row("framework", "ANEServices", f"{ROOT}/ANEServices.framework: C++ classes of namespace H11ANE", SILICON,
        "macOS 11 to 12.4 used, 26 seen", "tinygrad, ane-guide"),
    Row("framework", ESPRESSO, f"{ROOT}/Espresso.framework: e5rt_* functions, MLE5 classes", SILICON, "macOS 14 to 27",
        "ANEForge, dev-erik"),
)  # fmt: skip

CLASSES = (
    Row(
        "class", DESCRIPTOR,
        "text and weights of a program; made for any text, even nonsense",
        SILICON, "macOS 13 to 27", ALL,
    ),
    Row(
        "class", MODEL,
        "compile, load, run; leaks, so that about 119 compilations fit one process",
        SILICON, "macOS 13 to 27", ALL,
    ),
    Row(
        "class", ON_DISK,
        "a model in a folder or a compiled file",
        SILICON, "macOS 13 to 27", "Espresso, freedomtan, q38",
    ),
    Row("class", CLIENT, "the connection to the daemon", SILICON, "macOS 13 to 27", "Espresso, maderix issue 54"),
    Row(
        "class", REQUEST,
        "one evaluation: wrapped surfaces and their indices; fixed once made",
        SILICON, "macOS 13 to 27", ALL,
    ),
    Row("class", SURFACE, "wrapper of an IOSurface", SILICON, "macOS 13 to 27", ALL),
    Row(
        "class", PROGRAM,
        "lower level; its intermediateBufferHandle is 0 for in-memory programs",
        SILICON, "macOS 15", "dev-erik",
    ),
    Row(
        "class", "_ANEPerformanceStats",
        "hwExecutionTime stays 0 and counters nil unless the mask is set before loading; no source shows "
        "reliable values",
        SILICON, "macOS 15", "dev-erik, Espresso",
    ),
    Row("class", "_ANEDeviceInfo", "class methods on the machine", SILICON, "macOS 13 to 27", "all"),
    Row(
        "class", "_ANEChainingRequest",
        "several programs as one submission; validate says YES, preparing fails",
        SILICON, "macOS 15, 26", "dev-erik, Espresso, libane",
    ),
    Row("class", "_ANEBuffer", "a surface with a symbol index and a source (0 engine, 1 output), for chaining", SILICON,
        "macOS 15, 26", "dev-erik, Espresso"),
    Row(
        "class", "_ANEIOSurfaceOutputSets",
        "output surfaces and a statistics surface of 64 bytes or more, which must not be NULL",
        SILICON, "macOS 15, 26", "dev-erik, Espresso",
    ),
    Row("class", "_ANEInputBuffersReady", "tells a chain that inputs are there", APPLE, "macOS 15, 26", "dev-erik"),
    Row("class", "_ANEOutputSetEnqueue", "hands an output set to a chain", APPLE, "macOS 15, 26", "dev-erik"),
    Row(
        "class", "_ANESharedSignalEvent",
        "made from Metal or IOSurface events; the standard path ignores or hangs",
        SILICON, "macOS 15, 26", "dev-erik, Espresso",
    ),
    Row("class", "_ANESharedWaitEvent", "the same to wait for", SILICON, "macOS 15, 26", "dev-erik, Espresso"),
    Row("class", "_ANEProgramIOSurfacesMapper", "maps surfaces beforehand; not for in-memory models (0x12)", SILICON,
        "macOS 15", "dev-erik"),
    Row("class", "_ANEVirtualClient", "its initialisers give nil", SILICON, "macOS 15", "dev-erik"),
    Row(
        "class", "_ANEMILCompiler",
        "in ANECompilerService.xpc: compileModelAt: turns a MIL folder into model.hwx in process",
        SILICON, "macOS 26", "libane",
    ),
    Row("class", "MLE5Engine", "Core ML's engine: program library from MIL text, predictions; needs a Core ML model as "
        "container with the same inputs and outputs", SILICON, "macOS 15", "dev-erik", ESPRESSO),
)  # fmt: skip

_SELECTORS: dict[str, tuple[tuple[str, str], ...]] = {
    DESCRIPTOR: (
        ("+modelWithMILText:weights:optionsPlist:", "NSData, dictionary of paths, NSData or nil"),
    ),
    MODEL: (
        ("+inMemoryModelWithDescriptor:", "a model; nothing is compiled yet"),
        ("hexStringIdentifier", "three SHA-256: text, options, weights; names the staging folder"),
        ("localModelPath", "the staging folder"),
        ("compileWithQoS:options:error:", "the compiler service reads the staged files; 11 to 450 ms"),
        ("loadWithQoS:options:error:", "2 to 17 ms after a cached compilation; 4 to 30 otherwise"),
        ("evaluateWithQoS:options:request:error:", "synchronous; 0.1 ms and more"),
        ("unloadWithQoS:error:", "0.2 to 0.5 ms; frees the slot"),
        ("compiledModelExists", "whether the cache has it"),
        ("purgeCompiledModel", "takes it out of the cache"),
        ("setQueueDepth:", "127 is what the public runners set"),
        ("setModelURL:", "with load and no compile: reconnects to a slot that the daemon holds, 0.72 ms"),
        ("isMILModel", "YES for text"),
        ("saveModelFiles", "for Espresso nets; spoils MIL models"),
        ("perfStatsMask", "set before loading, or statistics stay 0"),
        ("programHandle", "of the loaded program"),
        ("program", "its _ANEProgramForEvaluation"),
    ),
    ON_DISK: (
        ("+modelAtURL:key:", "a folder with model.mil, or a compiled file"),
        ("getUUID", "unknown to the in-memory class: chaining an in-memory model crashes on it"),
        ("modelAttributes", "symbols, procedures, live inputs and outputs: bind by these names"),
        ("inputSymbolIndicesForProcedureIndex:", "which symbols a procedure reads"),
        ("outputSymbolIndicesForProcedureIndex:", "which it writes"),
        ("procedureInfoForProcedureIndex:", "of one function"),
    ),
    CLIENT: (
        ("+sharedConnection", "one per process"),
        ("compileModel:options:qos:error:", "a folder with model.mil; the same refusals as in memory"),
        ("loadModel:options:qos:error:", "loads it"),
        ("compiledModelExistsFor:", "whether the cache has it"),
        ("purgeCompiledModel:", "takes it out"),
        ("evaluateRealTimeWithModel:options:request:error:", "0.09 ms for a small program, no faster at real sizes"),
        ("doEvaluateDirectWithModel:options:request:qos:error:", "0.225 ms for the same"),
        ("prepareChainingWithModel:options:chainingReq:qos:error:", "code 15 for all parameters that were tried"),
        ("beginRealTimeTask", "returns NO"),
        ("endRealTimeTask", "returns NO"),
    ),
    REQUEST: (
        ("+requestWithInputs:inputIndices:outputs:outputIndices:weightsBuffer:perfStats:procedureIndex:",
         "arrays of wrapped surfaces, indices from 0 on; the weights buffer is ignored"),
        ("setCompletionHandler:", "fires on the calling thread behind the synchronous call"),
    ),
    SURFACE: (("+objectWithIOSurface:", "wraps a surface"),),
    PROGRAM: (
        ("+programWithHandle:intermediateBufferHandle:queueDepth:", "the lower level"),
        ("processRequest:model:qos:qIndex:modelStringID:options:returnValue:error:", "0.131 ms for a small program"),
    ),
    "_ANEPerformanceStats": (
        ("+statsWithHardwareExecutionNS:", "an object for a request"),
        ("driverMaskForANEFMask:", "translates masks"),
        ("hwExecutionTime", "nanoseconds; 0 without the mask"),
        ("performanceCounters", "nil without the mask"),
    ),
    "_ANEDeviceInfo": (
        ("+aneArchitectureType", '"h15g" on M3, "h16g" on M4, "h17" on M5 Max'),
        ("+numANEs", "engines"),
        ("+numANECores", "cores"),
        ("+aneSubType", "subtype of the architecture"),
        ("+productName", "of the machine"),
        ("+hasANE", "whether there is one"),
    ),
    "_ANEChainingRequest": (
        ("+chainingRequestWithInputs:outputSets:lbInputSymbolId:lbOutputSymbolId:procedureIndex:signalEvents:"
         "transactionHandle:fwEnqueueDelay:memoryPoolId:", "validate says YES of it"),
    ),
    "_ANEBuffer": (("+bufferWithIOSurfaceObject:symbolIndex:source:", "source 0 engine, 1 output"),),
    "_ANEIOSurfaceOutputSets": (("+objectWithstatsSurRef:outputBuffer:", "statistics surface and outputs"),),
}  # fmt: skip

_WHO = {
    MODEL: ("macOS 13 to 27", ALL),
    DESCRIPTOR: ("macOS 13 to 27", ALL),
    ON_DISK: ("macOS 15, 26", "Espresso, q38, freedomtan"),
    CLIENT: ("macOS 15, 26", "Espresso, maderix issue 54"),
    "_ANEDeviceInfo": ("macOS 13 to 27", "maderix, Orion, ANEForge"),
}

SELECTORS = tuple(
    Row("selector", name, text, SILICON, *_WHO.get(owner, ("macOS 15, 26", "dev-erik, Espresso")), owner)
    for owner, pairs in _SELECTORS.items()
    for name, text in pairs
)

__all__ = ["CLASSES", "FRAMEWORK", "FRAMEWORKS", "INFERRED", "SELECTORS"]
