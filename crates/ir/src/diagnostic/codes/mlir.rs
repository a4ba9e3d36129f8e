//! Codes of the StableHLO readers, the translation to and from HLO, and checked programs.

super::codes! {
    901 NOT_BYTECODE "not MLIR bytecode",
        "MLIR bytecode starts with the four bytes 4D 4C EF 52. This file does not, and it is no text either.",
        "hloom verify photo.mlirbc";
    902 DAMAGED_BYTECODE "the bytecode is cut off or damaged",
        "A part of the bytecode ends too early, refers to an entry that does not exist, or has a form that it cannot have. The message says which part it is.",
        "a portable artifact without its last byte";
    903 NEWER_BYTECODE "the bytecode is newer than this version reads",
        "The version of the container, of an operation, or the code of an attribute or type is not known. Write the artifact for an older StableHLO version, or use a newer hloom.",
        "a portable artifact with vhlo.add_v9";
    904 TOO_DEEP "regions, types or attributes nest too deeply",
        "Nesting is limited, so that no input can exhaust the stack. Real programs stay far below the limit.",
        "300 while operations, each in the body of the one before";
    905 SYNTAX "MLIR text that cannot be read",
        "The text is not what MLIR's syntax asks for at this place.",
        "%0 = stablehlo.add %a %b : tensor<4xf32>";
    906 UNDEFINED_VALUE "a value that is not defined",
        "A value is used that nothing before it defines, or that belongs to another region.",
        "%1 = stablehlo.negate %nobody : tensor<4xf32>";
    907 REDEFINED "a name is defined twice",
        "Two values of one region, two functions of a module, or two aliases have the same name.",
        "two functions named @f";
    908 UNKNOWN_OPERATION "an unknown operation or dialect",
        "hloom reads StableHLO, CHLO, func, check and sdy. An operation of another dialect, or one that these dialects do not have, has no translation to HLO.",
        "%0 = arith.addi %a, %b : i32";
    909 UNSUPPORTED_TYPE "a type that HLO cannot say",
        "HLO has arrays of the types that XLA knows, tuples, tokens and buffers. Quantized types, unranked tensors, vectors and the like must be lowered first.",
        "tensor<4x!quant.uniform<i8:f32, 0.5>>";
    910 BAD_ATTRIBUTE "an attribute is missing or has the wrong form",
        "The operation needs an attribute that it does not have, or has it with a value of another kind.",
        "\"stablehlo.transpose\"(%x) : (tensor<2x3xf32>) -> tensor<3x2xf32>";
    911 BAD_OPERANDS "operands, results or regions do not fit the operation",
        "The operation takes or gives another number of values, or has another number of regions, or a region takes other arguments.",
        "\"stablehlo.add\"(%x) : (tensor<f32>) -> tensor<f32>";
    912 UNKNOWN_FUNCTION "a function that does not exist",
        "A call, a composite or a custom call names a function that the module does not have, or only declares.",
        "call @nobody() : () -> ()";
    913 RECURSIVE_CALL "functions that call each other in a circle",
        "HLO has no recursion: a computation cannot call itself, directly or through others.",
        "func.func @f() { call @f() : () -> () return }";
    914 DYNAMIC_SHAPE "a shape that is not known before the program runs",
        "HLO needs the size, or a bound, of every dimension. Sizes that follow from constants and from the shapes of arguments are worked out; this one does not.",
        "func.func @main(%x: tensor<?xf32>)";
    915 NO_ENTRY "no function to start with",
        "A module needs a function named main, or exactly one public function.",
        "module {}";
    916 CAPTURED_VALUE "a function per element uses a value from outside",
        "The bodies of reduce, sort, map, scatter and the collectives become computations of their own, which see only their parameters and constants.",
        "a reduce whose body adds a value of the function around it";
    917 BAD_LITERAL "a literal does not fit its type",
        "A dense literal has more or fewer elements than its type, a shape of its own that differs, or an element that the type does not have.",
        "dense<[1, 2]> : tensor<3xi32>";
    918 TOO_LARGE "a small input stands for too large a module",
        "The input claims sizes that would take more memory than any real program needs.",
        "a splat constant of 2^40 elements in a dense attribute";
    919 UNKNOWN_ALIAS "an alias that is not defined",
        "A name that starts with # or ! and has no dot stands for an attribute or type defined elsewhere in the file.",
        "%0 = stablehlo.negate %x : !nobody";
    920 NO_HLO_FORM "an operation that HLO cannot say",
        "The operation is known, but used in a way that has no counterpart in HLO.",
        "stablehlo.uniform_quantize";
    921 EXPECTATION "an expectation does not hold",
        "A check.expect_* operation compares what the program computed with what it should have. The first element that differs is shown.",
        "check.expect_eq_const %x, dense<1> : tensor<i32>";
    922 CANNOT_WRITE "StableHLO has no way to say this",
        "The module has an operation that exists in HLO only.",
        "a fusion";
    923 ELIDED_CONSTANT "a constant that the printer left out",
        "The value dense_resource<__elided__> stands for data that are not in the file. Print the module without elision.",
        "stablehlo.constant dense_resource<__elided__> : tensor<4xf32>";
    924 UNKNOWN_RESOURCE "a resource that is not in the file",
        "dense_resource<key> names data that follow the module in the dictionary of resources.",
        "stablehlo.constant dense_resource<nobody> : tensor<4xf32>";
}
