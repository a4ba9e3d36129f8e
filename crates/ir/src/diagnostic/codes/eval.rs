//! Codes of running a program.

super::codes! {
    1001 OUT_OF_MEMORY "not enough memory",
        "The program needs more memory at once than there is. The message names the size and the instruction that asked for it, before anything was allocated for it.",
        "hloom run huge.hlo --seed 0";
    1002 INTERNAL "a bug of ours",
        "hloom came to a state that a verified program cannot lead to. Please report it with the program.",
        "";
    1003 UNSUPPORTED "not supported by the evaluator",
        "The operation, or this use of it, is not one that the evaluator can carry out.",
        "";
    1004 CANCELLED "cancelled",
        "The run was ended from outside (Ctrl-C, or another device failed).",
        "";
    1005 TOO_MANY_STEPS "the limit of steps is reached",
        "The program executed as many instructions as --max-steps allows. It may contain an endless loop.",
        "hloom run loop.hlo --max-steps 1000";
    1006 ELIDED_CONSTANT "a constant's value is not in the dump",
        "The dump was written without large constants ({...}), so the program cannot be computed. Dump again with --xla_dump_large_constants, or run with --fill-constants to use made-up values.",
        "c = f32[100]{0} constant({...})";
    1007 BAD_INPUT "an input array does not fit the program",
        "The program's parameters and the given arrays differ in number, type or shape.",
        "hloom run p.hlo --input wrong.npz";
    1008 UNKNOWN_CUSTOM_CALL "a custom call that nobody provides",
        "The program calls code that is not part of it. hloom knows the library calls found in XLA dumps; others can be provided in Rust with CustomCalls::register.",
        "r = f32[4] custom-call(x), custom_call_target=\"my_kernel\"";
    1009 COLLECTIVE "a collective cannot complete",
        "Devices that should meet in a collective disagree, or some of them never arrive. The message names the instruction, the group and the absent devices.",
        "";
    1010 DEVICE_COUNT "the program is for another number of devices",
        "The header of the module names replica_count or num_partitions, and the number of devices asked for cannot be arranged to fit.",
        "hloom run four_partitions.hlo --devices 6";
    1011 NOT_A_NUMBER "a value is not finite",
        "With --check-nan the run ends at the first instruction that made a NaN or an infinity out of finite operands. The message names it, its operands and its source line.",
        "hloom run p.hlo --seed 0 --check-nan";
    1012 CUSTOM_CALL_FAILED "a custom call failed",
        "Code that the program calls, and that is not part of it, says that it could not do what it was asked for.",
        "";
    1013 PADDING "a result depends on padding",
        "A layout with tiles leaves places in memory that belong to no element, and what they hold is not defined. Here a \
         bitcast reads such places as elements, and something computes with them: the program has no defined result.",
        "x = f32[5]{0:T(8)} parameter(0)\nb = f32[8]{0} bitcast(x)\nROOT n = f32[8]{0} negate(b)";
    1014 RANKS "the ranks of a job cannot work together",
        "Under mpirun or srun every rank runs some of the program's devices. A rank never started, died, was stopped, failed or \
         was given another program, or there is no MPI library for it. The message names the ranks.",
        "mpirun -n 4 hloom run four_devices.hlo --seed 0";
    1020 DISAGREES "a value is not what was expected",
        "With --compare-with the results, and the values of instructions that the file names, are held against those given. The message names the first instruction that goes wrong and its source line.",
        "hloom run p.hlo --seed 0 --compare-with other.npz";
    1030 LIBRARY_MISSING "a library of the machine is missing",
        "The engine needs a driver or a library that is not on this machine, or is of a version that lacks something. The \
         message names it, and says where it was looked for.",
        "hloom run p.hlo --seed 0 --engine cuda";
    1031 DEVICE_FAILED "the device failed",
        "A call of the driver or of a library of the device did not succeed. The message names the call and what was \
         answered.",
        "";
}
