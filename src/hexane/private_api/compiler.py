"""The compiler's functions and numbers, and classes around the client, as the first notes on the engine name them."""

from __future__ import annotations

from hexane.private_api.rows import INFERRED, SILICON, Row

SEEN, BY = "macOS 11", "tinygrad"
"""Names of functions and enumerations are read off a debugger and the library's symbols, not off a document."""

_FUNCTIONS = {
    "ANECompiler": (
        ("ANECCompileProcedure", "compiles one procedure of a network; what ANECCompile comes to"),
        ("ZinAneCreateIr", "net.plist to the compiler's graph"),
        ("ZinParseNeuronUnit", "reads a unit of type Neuron"),
        ("ZinAneCoreCompile", "passes, placement and allocation"),
        ("ZinAneCodeGeneration", "graph to task descriptors"),
        ("ZinIrCodegenHandleKernels", "weights to kernel streams"),
        ("ZinIrTargetH13::CodegenTds", "the tasks of an H13"),
        ("ZinIrCacheHintTable", "cache hints of a task's reads and writes"),
        ("ZinIrCodegenHandleTds_v7", "task descriptors of version 7, which is H13"),
        ("ZinIrCodegenHandleTdsMakeList<7u>", "the order of the tasks"),
        ("ZinAneTd<7u>::HandleEngineLayer", "one layer to one task descriptor"),
        ("ZinAneInstruction::HandleTdHeader", "the header words of a task"),
        ("ZinAneInstruction::HandleCommonConfig", "the common block: sizes, formats, convolution"),
        ("HandleNELayer<7u>", "the neural cores' block"),
        ("CalculateSizeInBytesFromRegCount", "a block of n+1 registers takes 4 n + 4 bytes"),
        ("AddReloc", "what a task refers to: surfaces, kernels"),
        ("ZinIrRegBitPrintOutDebug_7u_", "prints every field of a task by its name (`hexane registers`)"),
        ("ZinMirActivationV7::GetSignLut", "the table of sign; each function has one such"),
        ("ZinMirActivationV7::PrintLut", "prints a look-up table (ane_nonlinear_lut_v7up_t)"),
        ("GetKernelFormat<6u>", "the formats of kernels that an engine of version 6 takes"),
        ("ZinComputeProgramMake", "in the driver: the compiled file to a program"),
    ),
    "ANEServices": (
        ("H11ANEDeviceOpen", "opens the driver; called from -[_ANEDeviceController start]"),
        ("H11ANEProgramProcessRequestDirect", "one request; called from _ANEProgramForEvaluation processRequest:..."),
    ),
    "AppleH11ANEInterface": (
        ("AppleH11ANEInterface", "the kernel driver; wants com.apple.ane.iokit-user-access of a direct client"),
        ("ANE_ProgramCreate_gated", "makes a program; logs the compiler's arguments, `hexane info` prints them too"),
    ),
    "Espresso": (
        ("ANECompilerEngine", "calls the compiler"),
        ("Espresso::ANERuntimeEngine::compiler::build_segment", "a part of a network for the engine, at load"),
        ("Espresso::ANERuntimeEngine::compiler::__forward_segment", "the same part, at a prediction"),
        ("espresso_plan_execute_sync", "a prediction of a network"),
    ),
}
COMPILER_SYMBOLS = tuple(
    Row("symbol", name, text, SILICON, SEEN, BY, owner) for owner, rows in _FUNCTIONS.items() for name, text in rows
) + (
    Row(
        "daemon", "com.apple.ANECompilerService.allow",
        "an entitlement's name in AppleNeuralEngine, seen where ANECompilerService is called; its effect is not known",
        INFERRED, SEEN, BY,
    ),
)  # fmt: skip

_OP_CODES = (
    "CONV", "POOL", "SCALE_BIAS", "TERNARY_DYNAMIC_GOC", "BINARY_DYNAMIC_GOC", "ACTIVATION", "EW", "SCALED_EW",
    "CONCAT", "SPLIT", "COPY", "FLATTEN", "UNFLATTEN", "CROSS_CORRELATION", "KERNEL_RASTERIZER", "ARG_MIN_MAX",
    "MATRIX_MULT", "BROADCAST", "FLATTEN_COMPOSITE", "UNFLATTEN_COMPOSITE", "KERNEL_RASTERIZER_COMPOSITE",
    "CROSS_CORRELATION_COMPOSITE", "LIVE_IN", "CONST_IN", "LIVE_OUT", "REDUCTION", "ALIAS", "TYPECAST", "RESHAPE",
    "VIEW", "TRANSPOSE", "SPACE_TO_BATCH", "BATCH_TO_SPACE", "SOFTMAX", "INSTANCE_NORM", "L2_NORM", "MINMAX_NORM",
    "LRN", "COST_VOLUME", "PIXEL_SHUFFLE", "FPS", "RS", "PEFUSED_ELEMENTWISE", "PEFUSED_POOL", "PEFUSED_GOC",
    "NEFUSED_CONV", "NEFUSED_POOL", "NEFUSED_EW", "NEFUSED_BYPASS",
)  # fmt: skip
_NEURONS = (
    "NONE", "RELU", "SIGMOID", "SIGMOID_HIGH_PRECISION", "TANH", "CLAMPED_RELU", "PRELU", "DIRAC", "INT", "FRAC",
    "SQRT", "RSQRT", "INV", "SQR", "LOG2", "EXP2", "ELU", "SIGN", "EQUAL_ZERO", "NON_ZERO",
    "LESS_THAN_ZERO", "LESS_EQUAL_ZERO",
    "GREATER_EQUAL_ZERO", "GREATER_THAN_ZERO", "CUSTOM_LUT", "C_DIM_CONCAT", "C_DIM_STRIDED_CONCAT", "H_DIM_CONCAT",
    "W_DIM_CONCAT", "D_DIM_CONCAT", "N_DIM_CONCAT", "H_DIM_STRIDED_CONCAT",
)  # fmt: skip
_CODES = {
    "op code": _OP_CODES,
    "neuron code": _NEURONS,
    "cache hint": ("ALLOC", "NOALLOC", "DROP", "DEPRI"),
    "kind of convolution": ("regular", "channelwise", "grouped"),
    "tensor format": ("UInt8", "Int8", "Float16"),
}
"""Enumerations in the order of their numbers, from 0."""
_UNSURE = "tensor format"
CODES = tuple(
    Row(
        "code", name, f"{what} {number}{' (guessed from programs)' if what == _UNSURE else ''}",
        INFERRED if what == _UNSURE else SILICON, SEEN, BY, what,
    )
    for what, names in _CODES.items() for number, name in enumerate(names)
)  # fmt: skip

_MEMBERS = {
    "_ANEClient": (
        ("evaluateWithModel:options:request:qos:error:", "through the daemon"),
        ("enqueueSetsWithModel:", "outputs of a chain; its further arguments are not noted"),
        ("buffersReadyWithModel:", "inputs of a chain; its further arguments are not noted"),
    ),
    "_ANEModel": (
        ("+modelAtURL:key:modelAttributes:", "a compiled model on disk"),
        ("mapper", "the object that binds surfaces"),
    ),
    "_ANEInputBuffersReady": (
        ("+inputBuffersWithProcedureIndex:inputBufferInfoIndex:inputFreeValue:executionDelay:", "for chains"),
    ),
    "_ANEOutputSetEnqueue": (
        ("+outputSetWithProcedureIndex:setIndex:signalValue:signalNotRequired:isOpenLoop:", "for chains"),
    ),
    "_ANEProgramIOSurfacesMapper": (
        ("+mapperWithProgramHandle:", "works with _ANEModel alone, not with models in memory"),
        ("+mapperWithController:", "the same"),
    ),
    "_ANESharedSignalEvent": (
        ("+signalEventWithValue:symbolIndex:eventType:sharedEvent:", "wants an IOSurfaceSharedEvent"),
    ),
    "_ANESharedWaitEvent": (("+waitEventWithValue:sharedEvent:", "wants an IOSurfaceSharedEvent"),),
    "_ANEDaemonConnection": (
        ("loadModel:sandboxExtension:", "a load as aned gets it; its further arguments are not noted"),
    ),
}  # fmt: skip
_CLASSES = (
    ("NSObject", "the hierarchy: each class of the framework in this map descends from it directly"),
    ("IOSurfaceSharedEvent", "the event that signal and wait events are made of"),
    ("_ANEModelInstanceParameters", "parameters of one instance of a model; no use of it is known"),
    ("_ANEDeviceController", "opens the driver: start calls H11ANEDeviceOpen"),
    ("_ANEQoSMapper", "by its name, quality of service to the driver's priorities; no use of it is known"),
    ("_ANEDaemonConnection", "the connection to aned"),
)
MORE_CLASSES = tuple(Row("class", name, text, SILICON, "macOS 15, 26", "maderix") for name, text in _CLASSES)
MORE_SELECTORS = tuple(
    Row("selector", name, text, SILICON, "macOS 15, 26", "maderix", owner)
    for owner, rows in _MEMBERS.items() for name, text in rows
)  # fmt: skip
