//! Codes of the proto reader and writer.

super::codes! {
    201 NOT_A_PROTO "not an HloModuleProto or HloProto",
        "The bytes cannot be decoded as protobuf, or hold neither an HloModuleProto nor an HloProto nor an HloSnapshot.",
        "hloom verify photo.pb";
    202 DAMAGED "the proto is cut off or damaged",
        "A message inside the proto cannot be decoded: it ends too early, a number is too long, a field has another type than the one it is declared with, or text is not UTF-8. The message says which part it is.",
        "an HloModuleProto without its last byte";
    203 TOO_DEEP "messages nest too deeply",
        "Shapes, literals, shardings or recovery modules nest deeper than any program's do. Protobuf itself allows 100 messages inside one another.",
        "a tuple shape inside 200 others";
    204 MISSING_FIELD "a field is missing",
        "An instruction, computation or module lacks a field that it cannot do without: a name, an opcode, a shape, the dimension of a concatenate and so on.",
        "an HloInstructionProto with opcode \"concatenate\" and no dimensions";
    205 UNKNOWN_OPCODE "unknown opcode",
        "The opcode of an instruction is none that HLO has. It may be newer than this version.",
        "an HloInstructionProto with opcode \"frobnicate\"";
    206 BAD_VALUE "a field has a value it cannot have",
        "A number stands for no member of its enumeration, a name is not one of those the field may have, or a count does not fit what it counts.",
        "an HloInstructionProto with opcode \"fft\" and fft_type 9";
    207 BAD_SHAPE "a shape is malformed",
        "The shape has an unknown element type, flags for other than all of its dimensions, or parts that its type does not have.",
        "a ShapeProto of element type BUFFER with two inner shapes";
    208 BAD_LITERAL "a literal does not fit its shape",
        "A literal has more or fewer elements than its shape asks for, or another shape than the constant it belongs to.",
        "a LiteralProto of shape s32[3] with two elements";
    209 UNKNOWN_ID "an id that refers to nothing",
        "An operand, control predecessor, called computation, root or entry is named by an id that nothing has, or that something has which comes later: what is used comes first in a proto.",
        "an HloInstructionProto whose operand_ids name itself";
    210 DUPLICATE_ID "an id is used twice",
        "Two computations of the module, or two instructions of a computation, have the same id (of an instruction's id the lower 32 bits count).",
        "two HloComputationProtos with id 3";
    211 BAD_SCHEDULE "the schedule does not fit the computation",
        "The schedule of a computation must list each of its instructions once, every one after its operands and control predecessors.",
        "an InstructionSequence that lists one instruction twice";
    212 BAD_SHARDING "a sharding is malformed",
        "The parts of a sharding contradict each other or its type, or refer to mesh axes that do not exist.",
        "an OpSharding of type MAXIMAL with two devices";
    213 TOO_LARGE "a small proto stands for too large a module",
        "Payloads or shardings that a proto gives once and refers to often would take more memory than any real module needs.",
        "a payload of a megabyte that a million instructions refer to";
    220 CANNOT_ENCODE "protos have no way to say this",
        "The module has something that XLA's messages have no field for, or that other programs would refuse to read.",
        "a shape of tuples nested 120 deep";
}
