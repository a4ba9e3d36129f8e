//! Codes of costs and simulations.

super::codes! {
    1301 UNKNOWN_COST "what an instruction costs is not known",
        "A call to the outside takes as long as whatever is called. hloom has formulas for the libraries that dumps call; for others, say what it costs: `--cost NAME=12us`, where NAME is the call's target or the instruction's name. Cycles, flops (at the machine's rate), `memory` (its traffic) and `attention` are taken, too.",
        "hloom simulate m.hlo --target gpu-h100";
    1302 UNKNOWN_TRIP_COUNT "how often a loop runs is not known",
        "A loop is simulated once and counted as often as it runs. Its `backend_config` does not say how often that is, and it does not count from one constant to another. Say it: `--trip-count NAME=N`, where NAME is the loop's name.",
        "hloom simulate m.hlo --trip-count while.3=100";
    1303 NO_DUMPED_CYCLES "an instruction carries no estimate of its cycles",
        "`--cycles dump` takes the cycles that a compiler wrote into `backend_config` as `estimated_cycles`. An instruction that does work has none, so the module was dumped before code generation, or by another compiler. `--cycles model` computes them.",
        "hloom simulate before_codegen.txt --target tpu-v6e --cycles dump";
    1304 WRONG_DEVICES "a program does not fit the devices",
        "The number of devices in the topology must be that which the program is for: the counts in its header, or the largest id in its replica groups.",
        "hloom simulate m.hlo --target tpu-v6e --topology 2x4";
    1305 MEMORY_EXCEEDED "a program does not fit into memory",
        "The program's plan takes more bytes of a memory than the target has. The message says how many more; `hloom memory --summary` tells what is in use at the peak, and what would make it less.",
        "hloom simulate large.hlo --target tpu-v5e";
    1306 WRONG_GENERATION "a module is for another machine",
        "The module uses memories that the target does not have, so it was compiled for another generation. Name the target that it was compiled for.",
        "hloom simulate for_v4.txt --target tpu-v6e";
    1307 NO_SUCH_NAME "an option names what the module lacks",
        "`--trip-count` and `--cost` name loops, calls and instructions of the module. The message names the nearest that there is.",
        "hloom simulate m.hlo --trip-count whlie=3";
}
