//! Codes of targets and memory planning.

super::codes! {
    601 UNKNOWN_TARGET "there is no target of that name",
        "Targets are descriptions of machines. Those that come with hloom have names; any other is given by the path to a description file.",
        "hloom memory m.hlo --target tpu-v99";
    602 BAD_TARGET "a target's description is wrong",
        "A description holds `key = value` lines and `[[memory]]` headings. The message names the line and what was expected there.",
        "alignment = 0";
    603 SHARED_COMPUTATION "a computation is called from several places",
        "Each parameter and result of a called computation has one place in memory, so a computation that runs as part of the program's flow may be called from one place only. The pass flatten-call-graph gives each caller its own copy; `hloom memory` does so by itself.",
        "a = f32[] call(x), to_apply=f\nb = f32[] call(y), to_apply=f";
    604 MIXED_CALLS "a computation is both called and applied",
        "A computation that is part of the program's flow (call, while, conditional) has its own memory; one that is applied to elements (reduce, map, sort) has none. The same computation cannot be both.",
        "a = f32[] call(x, y), to_apply=add\nb = f32[] reduce(z, x), dimensions={0}, to_apply=add";
    605 TOO_LARGE "a size does not fit",
        "A value, or all of them together, takes more than 2^63 bytes, or an array's dimension has no bound, so no memory can be planned for it.",
        "x = f32[4611686018427387904,4] parameter(0)";
    606 NOT_SCHEDULED "the module has no schedule",
        "When a value is needed depends on the order of the instructions. The module does not say that its order is a schedule, so one is made that keeps little memory live at once. `--schedule` chooses how, and `hloom opt --passes schedule` writes the scheduled module.",
        "HloModule m";
    607 NEEDS_COPY "values that must share memory are needed at the same time",
        "What goes into a loop, what is carried round it and what comes out share one place, and so do the operand and the result of an in-place operation. Here one of them is still needed after another was written there. A copy before the operation solves it. The pass copy-insertion adds those; `hloom memory` does so by itself, and says how many.",
        "u = f32[8] dynamic-update-slice(x, y, i)\nr = f32[8] add(u, x)";
    610 BAD_DUMP "a buffer assignment cannot be read",
        "The text is not a dump of a buffer assignment in a form that hloom knows. The message names the line.",
        "hloom memory m.hlo --check not-a-dump.txt";
    611 DUMP_NAMES "a buffer assignment is of another module",
        "The dump speaks of an instruction that the module lacks, of a part that its shape lacks, or does not place a value that the module needs.",
        "";
    612 OVERLAP "two values that are needed at the same time share memory",
        "The assignment puts both values into the same bytes, and each is needed when the other already is: one of them is lost.",
        "";
    613 OUT_OF_BOUNDS "a value does not lie within its allocation",
        "A value begins before or ends after the allocation that it is assigned to.",
        "";
    614 WRONG_SIZE "a value is given the wrong number of bytes",
        "The assignment gives a value fewer bytes than its shape takes on the target.",
        "";
    615 MISALIGNED "a value begins at an address that its memory does not allow",
        "Values begin at multiples of their memory's alignment.",
        "";
    616 SPLIT_ALIAS "values that must share memory lie in different places",
        "The values are the same memory by the meaning of the program: what a loop carries, an in-place operation's operand and result, a result and the parameter it is aliased with. The assignment gives them different places.",
        "";
    617 WRONG_KIND "an allocation is not of the kind that its values need",
        "Parameters and constants may not be written, so nothing else may lie there unless the parameter is donated; a result's memory must outlive the run; memory spaces must agree.",
        "";
    618 SHORT_RANGE "a live range does not cover the time in which a value is needed",
        "A value's memory may be given to another outside of its live range. The assignment states one that begins after the value is made or ends before it is read for the last time.",
        "";
    620 MISSING_RATE "a target's description lacks a number",
        "What a program costs is computed from a machine's rates: bandwidths, operations a second by element type, its clock, its links. The message names the one that the description does not give. Give it in a description of your own, or for one run with `--set`.",
        "hloom simulate m.hlo --target my.toml";
    621 BAD_TOPOLOGY "devices cannot be joined so",
        "A topology is sizes with `x` between them: `2x2` for a torus, `64x8` for 64 hosts of 8 devices each. Its dimensions must fit the target's links, and its devices the program.",
        "hloom simulate m.hlo --target tpu-v6e --topology 2x2x2";
}
