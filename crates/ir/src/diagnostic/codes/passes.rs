//! Codes of passes.

super::codes! {
    701 UNKNOWN_PASS "there is no pass of that name",
        "Passes are run by their names. `hloom opt --list` names them all, each with what it does.",
        "hloom opt m.hlo --passes fold-everything";
    702 NO_LIST "there are no passes for a target",
        "hloom compiles for some of the targets that it plans memory for. For the others there is no list of passes; single passes can still be run by name.",
        "hloom opt m.hlo --target mine.toml";
    703 BROKEN_MODULE "a pass left a module that is not valid",
        "The module was valid before the pass and is not afterwards: a bug in hloom, whatever the program. The errors that follow say what the verifier found.",
        "";
    704 CANNOT_PARTITION "a program cannot be partitioned",
        "A program of several partitions says how its arrays are spread over the devices, in a way that does not fit the arrays, the devices, or what hloom can do so far. The message says what does not fit.",
        "";
    709 NO_NATIVE_CODE "an instruction has no native code",
        "The engine has no kernel for this instruction on elements of this type or of sizes known at run time only. Without `--strict` the evaluator carries it out, which is slower, and hloom warns of it.",
        "hloom run m.hlo --strict";
}
