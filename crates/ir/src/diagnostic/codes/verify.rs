//! Codes of the verifier.

super::codes! {
    401 NO_ENTRY "no entry computation",
        "A module needs one computation where it starts. In HLO text it is marked with ENTRY.",
        "HloModule m";
    402 EMPTY_COMPUTATION "a computation is empty",
        "A computation needs at least one instruction: its root is its result.",
        "HloModule m\nENTRY e {\n}";
    403 OPERAND_ELSEWHERE "an operand belongs to another computation",
        "Instructions see only values of their own computation. Pass the value in as a parameter of the computation.",
        "a (instructions of computation a)\nb = f32[] negate(x_of_a)";
    404 CONTROL_ELSEWHERE "a control predecessor belongs to another computation",
        "Control dependencies order the instructions of one computation among each other.",
        "ROOT n = f32[] negate(x), control-predecessors={y_of_another_computation}";
    405 CYCLE "instructions need each other in a circle",
        "Following operands and control predecessors leads from an instruction back to itself, so none of them can be \
         the first to run. Only a module read from a proto, or edited, can have this.",
        "a = f32[] negate(b)\nb = f32[] negate(a)";
    406 UNKNOWN_COMPUTATION "a called computation does not exist",
        "An instruction calls a computation that is not, or no longer, in the module.",
        "ROOT c = f32[] call(x), to_apply=removed";
    407 RECURSION "a computation calls itself",
        "HLO has no recursion: a computation may not call itself, directly or through others. Repetition is written \
         with while.",
        "f {\n  p = f32[] parameter(0)\n  ROOT c = f32[] call(p), to_apply=f\n}";
    408 PARAMETER_NUMBER "parameters are not numbered 0, 1, 2, …",
        "The parameters of a computation have the numbers from 0 on, each once; callers pass values by these numbers.",
        "x = f32[] parameter(0)\ny = f32[] parameter(2)";
    410 SHARED_BODY "a body has more than one caller",
        "The body of an asynchronous operation is a part of that instruction: nothing else may call it. The same holds \
         for the body of a fusion, though there it is only a warning, as the meaning is clear. Give each caller a copy.",
        "f1 = f32[4] fusion(x), kind=kLoop, calls=body\nf2 = f32[4] fusion(y), kind=kLoop, calls=body";
    411 ENTRY_CALLED "the entry is the body of a fusion or asynchronous operation",
        "The entry computation runs by itself; it cannot be a part of another instruction as well.",
        "ROOT f = f32[] fusion(x), kind=kLoop, calls=main";
    412 SCHEDULE_ORDER "an instruction is scheduled before what it needs",
        "In a module with is_scheduled=true the order in which instructions are listed is the order in which they run, \
         so operands and control predecessors come first.",
        "HloModule m, is_scheduled=true\n… b = f32[] negate(a) listed before a";
    413 INCONSISTENT "the module is inconsistent",
        "A list that hloom keeps about the module is wrong: a bug of hloom. Please report it with the input.",
        "none: no input gives this";
    430 NEGATIVE_SIZE "a size is negative",
        "The sizes of an array's dimensions are 0 or more.",
        "x = f32[-1] parameter(0)";
    431 SHAPE_TOO_LARGE "an array is too large",
        "The number of elements and of bytes of every array must be less than 2^63.",
        "x = f32[999999999999,999999999999] parameter(0)";
    432 SHAPE_TOO_DEEP "tuples are nested too deeply",
        "Tuples may hold tuples, but only 128 deep; real programs stay below ten.",
        "x = ((((… f32[] …)))) parameter(0)";
    440 LAYOUT_ORDER "a layout does not fit its array",
        "The list of dimensions in a layout, from the fastest-varying to the slowest, names each dimension once.",
        "x = f32[2,3]{1,1} parameter(0)";
    441 LAYOUT_TILE "a tile size is not positive",
        "Tiles in a layout, as in T(8,128), have sizes of at least 1 (or `*`, which combines two dimensions).",
        "x = f32[8,128]{1,0:T(0,128)} parameter(0)";
    442 LAYOUT_PROPERTY "a property of a layout cannot be",
        "Memory spaces, element sizes, paddings, splits and the like are within limits: a memory space is 0 or more, \
         an element takes at most 1024 bits, a dimension is split inside of it.",
        "x = s4[8]{0:E(-4)} parameter(0)";
    443 ENTRY_LAYOUT "entry_computation_layout does not fit the entry",
        "The header repeats the shapes of the entry's parameters and result, to give them layouts. Types and sizes must \
         be those of the entry itself.",
        "HloModule m, entry_computation_layout={(f32[4])->f32[4]}\nENTRY e { ROOT p = f32[8] parameter(0) }";
    454 EXECUTION_THREAD "a computation is called on another thread than its own",
        "Fusions, loops and branches run on the thread of their caller, asynchronous operations on the thread they \
         name. The called computation must say the same thread.",
        "ROOT f = f32[4] fusion(x), kind=kLoop, calls=body_for_thread_parallel";
    455 OUTPUT_ALIAS "output_to_operand_aliasing names something wrong",
        "Each entry `{output part}: (operand, {operand part})` names parts that exist and have the same shape.",
        "c = f32[4] custom-call(x), custom_call_target=\"f\", output_to_operand_aliasing={{}: (1, {})}";
    470 PARAMETER_REPLICATION "parameter_replication does not fit the parameter",
        "parameter_replication says for each leaf of a parameter whether all replicas get the same value: one entry per \
         leaf.",
        "p = (f32[], f32[]) parameter(0), parameter_replication={true}";
    471 RESULT_ACCURACY "result_accuracy cannot be",
        "Only operations that round, such as exponential or tanh, take a result_accuracy, and tolerances are 0 or more.",
        "n = f32[] negate(x), result_accuracy={mode=highest}";
    472 COMPARISON_TYPE "the type of a comparison does not fit its operands",
        "type=FLOAT or TOTALORDER compares floating-point numbers, SIGNED signed and UNSIGNED unsigned integers and pred. \
         Where it does not fit, the operands are compared as their own type wants it.",
        "x = s32[] parameter(0)\nROOT c = pred[] compare(x, x), direction=LT, type=UNSIGNED";
    490 ASYNC_NOT_DONE "something is started and never finished",
        "Every start (all-reduce-start, copy-start, send, async-start, …) must be finished by the done of its kind.",
        "s = (f32[4], f32[4], u32[]) copy-start(x)";
    491 ASYNC_DONE_TWICE "something is finished twice",
        "A start is finished by one done only. Use the result of that done as often as you like.",
        "s = … copy-start(x)\na = f32[4] copy-done(s)\nb = f32[4] copy-done(s)";
    492 ASYNC_DONE_OPERAND "a done does not take a start of its kind",
        "copy-done takes what copy-start gives, async-done what async-start or async-update gives, and so on.",
        "d = f32[4] copy-done(all_reduce_start)";
    493 ASYNC_USE "something is used before it is finished",
        "What a start gives can only be finished, or carried along in tuples and loops. Use the result of the done.",
        "s = f32[4] all-reduce-start(x), to_apply=add\nn = f32[4] negate(s)";
    494 ASYNC_CHANNEL "the two ends of a transfer differ",
        "A send and its send-done (a recv and its recv-done) have the same channel_id and is_host_transfer.",
        "s = … send(x, t), channel_id=1\nd = token[] send-done(s), channel_id=2";
    510 DEVICE_COUNTS "the numbers of devices cannot be",
        "replica_count and num_partitions are at least 1; their product is the number of devices that the program is \
         for, and it runs on that many.",
        "HloModule m, replica_count=0";
    511 ALIAS_PART "input_output_alias or buffer_donor names something that is not there",
        "Each entry names an array: a parameter of the entry, or a part of a tuple parameter, and a part of the result.",
        "HloModule m, input_output_alias={ {}: (7, {}) }";
    512 ALIASED_TWICE "memory is given away twice",
        "A part of the result shares memory with one parameter, a parameter with one part of the result, and a donor \
         with nothing.",
        "HloModule m, input_output_alias={ {0}: (0, {}), {1}: (0, {}) }";
    513 ALIAS_SHAPE "what shares memory has different sizes",
        "A parameter and a result that share memory have the same shape (must-alias) or at least the same size.",
        "HloModule m, input_output_alias={ {}: (0, {}, must-alias) } … f32[4] and f32[8]";
    514 STACK_FRAME "a stack frame is not in the table",
        "The metadata of an instruction names a stack frame that the module's table does not have. The program runs all \
         the same, but its positions are lost.",
        "metadata={stack_frame_id=9}";
    515 ORIGIN_FORM "an origin does not have the form of the shape",
        "origin={…} says for each leaf of the result which value of the source program it is, in the form of the shape. \
         The program runs all the same, but its values cannot be traced back.",
        "x = (f32[], f32[]) tuple(a, b), origin={{\"v\"}}";
    516 RECOVERY_MODULE "a wrong module in the recovery table",
        "origin_recovery_table may hold a small program for each value that was replaced; it is a module like any other \
         and must be valid.",
        "origin_recovery_table={ {\"a\"} : {\"b\"}, \" HloModule m … reshape() … \" }";
    530 REPLICA_GROUPS "replica groups name the wrong devices",
        "Groups are not empty, name no device twice, are of one size (but for reductions), and together name every \
         device where the number of devices is known.",
        "HloModule m, replica_count=4\n… all-gather(x), replica_groups={{0,1},{2}}, dimensions={0}";
    531 GROUP_MODE "use_global_device_ids without a channel",
        "Ids are global, counted over replicas and partitions, only for collectives with a channel_id.",
        "all-reduce(x), replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add";
    533 SOURCE_TARGET_PAIRS "source_target_pairs name the wrong devices",
        "Each device sends at most once and receives at most once, and exists.",
        "collective-permute(x), source_target_pairs={{0,1},{2,1}}";
    550 SHARDING "a sharding does not fit",
        "A sharding has one part per leaf of a tuple, one tile count per dimension of the array, as many devices as \
         tiles, no device twice, and only devices and mesh axes that exist.",
        "x = f32[8,8] parameter(0), sharding={devices=[2]0,1}";
}
