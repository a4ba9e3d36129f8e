//! Codes of the HLO text reader.

super::codes! {
    101 UNEXPECTED_TOKEN "unexpected text",
        "The reader found something other than what HLO's grammar allows at this place. The message says what was expected.",
        "HloModule m\nENTRY e {\n  ROOT c = f32[] constant 1\n}";
    102 UNEXPECTED_END "the text ends too early",
        "The file ends in the middle of a statement or a computation. It was probably cut off when it was copied or written.",
        "HloModule m\nENTRY e {";
    103 BAD_CHARACTER "a character that HLO text cannot have",
        "Outside of strings and comments HLO text is plain ASCII without control characters. A NUL byte usually means that the file is binary, for instance a serialised proto.",
        "HloModule m\nENTRY e {\n  ROOT \u{e9} = f32[] constant(1)\n}";
    104 UNTERMINATED_COMMENT "a comment that does not end",
        "A comment that starts with /* must end with */.",
        "HloModule m\n/* no end\nENTRY e {\n  ROOT c = f32[] constant(1)\n}";
    105 UNTERMINATED_STRING "a string that does not end",
        "A string ends at the next quote of the kind it starts with that has no backslash before it.",
        "HloModule m\nENTRY e {\n  ROOT c = f32[] custom-call(), custom_call_target=\"f\n}";
    106 BAD_ESCAPE "a wrong escape in a string",
        "Strings know the escapes of C: \\n \\r \\t \\a \\b \\f \\v \\\\ \\? \\\" \\' , octal \\101, hexadecimal \\x41 and \\u0041.",
        "HloModule m\nENTRY e {\n  ROOT c = f32[] custom-call(), custom_call_target=\"\\q\"\n}";
    107 NUMBER_OUT_OF_RANGE "a number that does not fit",
        "Whole numbers in HLO text have 64 bits (some attributes 32).",
        "HloModule m\nENTRY e {\n  ROOT c = f32[99999999999999999999] parameter(0)\n}";
    108 NOT_UTF8 "a string that is not UTF-8",
        "Names and metadata are kept as UTF-8. Bytes that are not were replaced by the replacement character.",
        "HloModule m, frontend_attributes={k=\"\\xff\"}\nENTRY e {\n  ROOT c = f32[] constant(1)\n}";
    109 TOO_DEEP "nested too deeply",
        "Shapes, literals, operands written in place and computations written in place may nest only so deep. No real program comes near the limit.",
        "HloModule m\nENTRY e {\n  ROOT t = ((((((((((((...))))))))))))) parameter(0)\n}";
    110 UNKNOWN_TYPE "an unknown element type",
        "The types are pred, s1 to s64, u1 to u64, f16, bf16, f32, f64, the f8, f6 and f4 families, c64, c128, token and opaque.",
        "HloModule m\nENTRY e {\n  ROOT p = g32[] parameter(0)\n}";
    111 BAD_DIMENSION "a size that a dimension cannot have",
        "A dimension is a number that is not negative, <= and a number for a dynamic one with a bound, or ? for one without.",
        "HloModule m\nENTRY e {\n  ROOT p = f32[-1] parameter(0)\n}";
    112 LAYOUT_RANK "a layout that does not fit its shape",
        "The list before the colon of a layout orders the dimensions of the shape from minor to major: it has each of them once.",
        "HloModule m\nENTRY e {\n  ROOT p = f32[2,3]{0} parameter(0)\n}";
    113 BAD_LAYOUT "a wrong property in a layout",
        "After the colon a layout may have, in this order: D(..) T(..) L(n) #(type) *(type) E(n) S(n) SC(..) P(shape) M(n).",
        "HloModule m\nENTRY e {\n  ROOT p = f32[2]{0:Q(1)} parameter(0)\n}";
    114 BAD_BUFFER "a buffer of something other than an array",
        "Only arrays can be buffers: b(f32[4]).",
        "HloModule m\nENTRY e {\n  ROOT p = b(token[]) parameter(0)\n}";
    115 SHAPE_REQUIRED "an operation whose shape must be written",
        "The shape of this operation's result does not follow from its operands and attributes alone, so it stands between = and the operation.",
        "HloModule m\nENTRY e {\n  ROOT p = parameter(0)\n}";
    120 UNKNOWN_OPCODE "an unknown operation",
        "There is no operation of that name in HLO.",
        "HloModule m\nENTRY e {\n  p = f32[] parameter(0)\n  ROOT a = f32[] ad(p, p)\n}";
    121 NO_ASYNC_FORM "an operation without that asynchronous form",
        "Most operations can be written with -start, -update and -done as a short form of async-start, async-update and async-done. all-gather, all-reduce, collective-permute, copy, send and recv have forms of their own instead: -start and -done (send and recv only -done), and no -update.",
        "HloModule m\nENTRY e {\n  t = token[] after-all()\n  ROOT r = (f32[], u32[], token[]) recv-start(t)\n}";
    122 OPERAND_COUNT "a wrong number of operands",
        "The operation takes another number of operands.",
        "HloModule m\nENTRY e {\n  p = f32[] parameter(0)\n  ROOT a = f32[] add(p)\n}";
    123 UNDEFINED_INSTRUCTION "an instruction that is not defined",
        "Operands and control predecessors are instructions that stand earlier in the same computation.",
        "HloModule m\nENTRY e {\n  ROOT a = f32[] negate(x)\n}";
    124 UNDEFINED_COMPUTATION "a computation that is not defined",
        "A computation that an instruction calls stands earlier in the file, or is written in place: to_apply={ ... }.",
        "HloModule m\nENTRY e {\n  p = f32[] parameter(0)\n  ROOT a = f32[] call(p), to_apply=f\n}";
    125 DUPLICATE_INSTRUCTION "an instruction defined twice",
        "Within one computation every instruction has a name of its own.",
        "HloModule m\nENTRY e {\n  p = f32[] parameter(0)\n  p = f32[] parameter(1)\n}";
    126 DUPLICATE_COMPUTATION "a computation defined twice",
        "Every computation has a name of its own.",
        "HloModule m\nf {\n  p = f32[] parameter(0)\n}\nf {\n  p = f32[] parameter(0)\n}";
    127 ILLEGAL_NAME "a name that an instruction cannot have",
        "The names of types are reserved, and names that start with __ (other than __xla_) belong to compilers.",
        "HloModule m\nENTRY e {\n  ROOT __p = f32[] parameter(0)\n}";
    128 OPERAND_SHAPE "a shape written on an operand that is not its shape",
        "A shape may be written before an operand's name. It is the shape of that instruction, layout aside.",
        "HloModule m\nENTRY e {\n  p = f32[2] parameter(0)\n  ROOT a = f32[2] negate(f32[3] p)\n}";
    129 SECOND_ENTRY "a second ENTRY",
        "A module has one entry computation.",
        "HloModule m\nENTRY e {\n  p = f32[] parameter(0)\n}\nENTRY f {\n  p = f32[] parameter(0)\n}";
    130 SECOND_ROOT "a second ROOT",
        "A computation has one result.",
        "HloModule m\nENTRY e {\n  ROOT p = f32[] parameter(0)\n  ROOT q = f32[] parameter(1)\n}";
    131 ROOT_SHAPE "a signature that is not the shape of the result",
        "The shape after -> in a computation's header is that of its root instruction, layout aside.",
        "HloModule m\nENTRY e (p: f32[]) -> f32[2] {\n  ROOT p = f32[] parameter(0)\n}";
    132 EMPTY_COMPUTATION "a computation without instructions",
        "A computation has at least one instruction: its result.",
        "HloModule m\nENTRY e {\n}";
    133 NO_COMPUTATION "a module without computations",
        "A module has at least one computation: its entry.",
        "HloModule m";
    134 EXTRA_TEXT "text after a single instruction",
        "A text that is neither a module nor a computation is a single instruction, and nothing may follow it.",
        "a = f32[2] negate(f32[2] x)\nb = f32[2] negate(a)";
    140 UNKNOWN_ATTRIBUTE "an attribute that does not belong here",
        "The operation (or the header, or the group in braces) has no attribute of that name.",
        "HloModule m\nENTRY e {\n  p = f32[2] parameter(0)\n  ROOT a = f32[2] negate(p), dimensions={0}\n}";
    141 DUPLICATE_ATTRIBUTE "an attribute given twice",
        "Each attribute is given at most once.",
        "HloModule m\nENTRY e {\n  p = f32[2] parameter(0)\n  ROOT a = f32[2] reverse(p), dimensions={0}, dimensions={0}\n}";
    142 MISSING_ATTRIBUTE "a required attribute is missing",
        "The operation cannot do without this attribute.",
        "HloModule m\nENTRY e {\n  p = f32[2] parameter(0)\n  ROOT a = f32[2] reverse(p)\n}";
    143 ATTRIBUTE_VALUE "an attribute with a wrong value",
        "The attribute takes one of a few words; the message lists them.",
        "HloModule m\nENTRY e {\n  p = f32[2] parameter(0)\n  ROOT a = pred[2] compare(p, p), direction=LESS\n}";
    144 LIST_LENGTH "a list of the wrong length",
        "The attribute needs another number of entries.",
        "HloModule m\nENTRY e {\n  p = f32[2] parameter(0)\n  ROOT a = s32[] get-dimension-size(p), dimensions={}\n}";
    145 NESTED_ATTRIBUTES "an operand written in place that needs attributes",
        "An instruction written in place of an operand cannot have attributes: give it a line of its own.",
        "HloModule m\nENTRY e {\n  p = f32[2] parameter(0)\n  ROOT a = f32[2] negate(f32[2] reverse(p))\n}";
    146 CONFLICTING_ATTRIBUTES "attributes that exclude each other",
        "The two attributes say the same thing in different ways; give one of them.",
        "HloModule m\nf {\n  p = f32[] parameter(0)\n}\nENTRY e {\n  p = f32[] parameter(0)\n  ROOT a = f32[] custom-call(p), custom_call_target=\"t\", to_apply=f, called_computations={f}\n}";
    150 LITERAL_TYPE "a value of another type",
        "Integer types take whole numbers, pred takes true, false or a whole number, complex types take (re, im).",
        "HloModule m\nENTRY e {\n  ROOT c = s32[] constant(1.5)\n}";
    151 LITERAL_RANGE "a value that the type cannot hold",
        "A number must be in the range of its type, a floating-point number must not become infinite; infinities are written inf and -inf.",
        "HloModule m\nENTRY e {\n  ROOT c = s8[] constant(300)\n}";
    152 LITERAL_SHAPE "a literal that does not have the shape",
        "Braces nest as deep as the shape has dimensions, and hold as many elements as the dimensions say.",
        "HloModule m\nENTRY e {\n  ROOT c = s32[2] constant({1, 2, 3})\n}";
    153 NAN_PAYLOAD "a NaN that the type does not have",
        "nan(0x7) gives the mantissa bits of a NaN. They must fit the type, and not every type has payloads or NaN at all.",
        "HloModule m\nENTRY e {\n  ROOT c = f8e4m3fn[] constant(nan(0x1))\n}";
    154 LITERAL_UNBOUNDED "a literal of unknown size",
        "A literal needs a shape with a known number of elements.",
        "HloModule m\nENTRY e {\n  ROOT c = s32[?] constant({1})\n}";
    155 SINGLE_VALUE "a single value for an array",
        "XLA reads constant(1) of an array shape as an array whose first element is 1 and whose other elements are 0. That is rarely what was meant: to fill an array, broadcast a scalar constant.",
        "HloModule m\nENTRY e {\n  ROOT c = f32[4] constant(1)\n}";
    160 BAD_WINDOW "a wrong window",
        "A window is written {size=3x3 stride=2x2 pad=1_1x0_1 lhs_dilate=1x2 rhs_dilate=2x2 rhs_reversal=0x1}; every part has as many dimensions as size.",
        "HloModule m\nENTRY e {\n  p = f32[4] parameter(0)\n  ROOT a = f32[2] custom-call(p), custom_call_target=\"t\", window={size=2 stride=2x2}\n}";
    161 BAD_DIM_LABELS "wrong dimension labels",
        "dim_labels is written lhs_rhs->out, as b01f_01io->b01f: each dimension of each array by its label, the spatial ones numbered from 0.",
        "HloModule m\nENTRY e {\n  p = f32[4] parameter(0)\n  ROOT a = f32[2] custom-call(p), custom_call_target=\"t\", dim_labels=b01f_01io->b0f\n}";
    162 BAD_PADDING "a wrong padding",
        "Padding is written low_high or low_high_interior for each dimension, joined by x: 0_0x1_2_1.",
        "HloModule m\nENTRY e {\n  p = f32[4] parameter(0)\n  c = f32[] constant(0)\n  ROOT a = f32[5] pad(p, c), padding=1\n}";
    163 BAD_SLICE "a wrong slice range",
        "A range is written [start:limit] or [start:limit:stride], one for each dimension.",
        "HloModule m\nENTRY e {\n  p = f32[4] parameter(0)\n  ROOT a = f32[2] slice(p), slice={[2]}\n}";
    164 BAD_SHARDING "a wrong sharding",
        "A sharding is {replicated}, {maximal device=N}, {manual}, {unreduced}, {unknown}, {devices=[2,4]<=[8]} with perhaps last_tile_dim_replicate or last_tile_dims={..}, a named one {mesh['x'=2], [{'x'}]}, or a list of these in braces for a tuple.",
        "HloModule m\nENTRY e {\n  ROOT p = f32[4] parameter(0), sharding={devices=[2]0,1,2}\n}";
    165 BAD_DEVICE_LIST "a wrong list of devices",
        "Replica groups are {{0,1},{2,3}}, [2,4]<=[8], [2,4]<=[4,2]T(1,0) or mesh['x'=2] {'x'}. T orders each dimension once.",
        "HloModule m\nENTRY e {\n  p = f32[4] parameter(0)\n  ROOT a = f32[4] all-to-all(p), replica_groups=[2,4]<=[2,4]T(0,0), dimensions={0}\n}";
    166 BAD_MESH "a wrong mesh",
        "A mesh is written mesh['x'=2,'y'=4]; axes are named by name or number, and device_ids lists each device once.",
        "HloModule m\nENTRY e {\n  ROOT p = f32[4] parameter(0), sharding={mesh['x'=2], [{'y'}]}\n}";
    167 REPLICATION_LENGTH "a parameter_replication of the wrong length",
        "parameter_replication has one entry for each array of the parameter.",
        "HloModule m\nENTRY e {\n  ROOT p = (f32[], f32[]) parameter(0), parameter_replication={true}\n}";
    168 ASYNC_SHAPE "a shape that an asynchronous operation cannot have",
        "async-start and async-update give ((operand shapes), result shape, state ...).",
        "HloModule m\nf {\n  ROOT p = f32[] parameter(0)\n}\nENTRY e {\n  p = f32[] parameter(0)\n  ROOT a = f32[] async-start(p), calls=f\n}";
    169 ASYNC_CHAIN "an asynchronous operation that contradicts its start",
        "async-update and async-done belong to the operation that async-start began: operation, computation and thread are those of the start.",
        "HloModule m\nENTRY e {\n  p = f32[] parameter(0)\n  s = ((f32[]), f32[], u32[]) negate-start(p)\n  ROOT d = f32[] abs-done(s)\n}";
    170 TUPLE_INDEX "an element that the tuple does not have",
        "name#1 is element 1 of the tuple that name is, counted from 0.",
        "HloModule m\nENTRY e {\n  p = (f32[]) parameter(0)\n  ROOT a = f32[] negate(p#1)\n}";
    171 BAD_RECOVERY_MODULE "a wrong module in the recovery table",
        "Each entry of origin_recovery_table may have a module as a string; it has to be a module that can be read.",
        "HloModule m, origin_recovery_table={{\"a\"} : {\"b\"}, \"HloModule\"}\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}";
    172 BAD_SPARSITY "a wrong sparsity",
        "Sparsity is written {lhs={sparsity=2x4 dimension=1 stride=1 idx=2}}.",
        "HloModule m\nENTRY e {\n  p = f32[4,4] parameter(0)\n  ROOT a = f32[4,4] convolution(p, p), dim_labels=bf_io->bf, sparsity_config={lhs={sparsity=2}}\n}";
    173 UNSUPPORTED_DOMAIN "an unknown kind of domain",
        "The only kind of domain is \"sharding\".",
        "HloModule m\nENTRY e {\n  p = f32[] parameter(0)\n  ROOT a = f32[] domain(p), domain={kind=\"other\", entry={replicated}, exit={replicated}}\n}";
    199 TOO_MANY_ERRORS "too many errors",
        "Reading stopped because the text has too many errors. It is perhaps not HLO text at all.",
        "a long text in another language";
}
