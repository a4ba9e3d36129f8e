//! Codes of shape inference.

super::codes! {
    301 OPERAND_COUNT "wrong number of operands",
        "An operation was given more or fewer operands than it takes.",
        "ROOT a = f32[] add(x)";
    302 NOT_AN_ARRAY "an operand is not an array",
        "The operation works on arrays, but this operand is a tuple, a token, an opaque value or a buffer. A tuple's \
         elements are taken out by get-tuple-element first.",
        "t = (f32[], f32[]) tuple(x, y)\nROOT n = f32[] negate(t)";
    303 ELEMENT_TYPE "the operation does not take this element type",
        "Each operation takes certain element types only: sine takes floating-point and complex ones, popcnt integers, \
         not integers and pred. A convert before the operation changes the type.",
        "x = s32[4] parameter(0)\nROOT s = s32[4] sine(x)";
    304 ELEMENT_TYPES_DIFFER "element types differ",
        "Operands that are combined element by element need one element type. HLO converts nothing by itself: put a \
         convert before the operation.",
        "x = f32[4] parameter(0)\ny = s32[4] parameter(1)\nROOT a = f32[4] add(x, y)";
    305 DIMENSIONS_DIFFER "dimensions differ",
        "Two shapes that must have the same dimensions do not. HLO broadcasts nothing by itself: put a broadcast before \
         the operation.",
        "x = f32[2,3] parameter(0)\ny = f32[3] parameter(1)\nROOT a = f32[2,3] add(x, y)";
    306 RANK "wrong number of dimensions",
        "An operand has more or fewer dimensions than the operation takes.",
        "x = f32[4] parameter(0)\nROOT c = f32[4] cholesky(x)";
    307 DIMENSION_OUT_OF_RANGE "no such dimension",
        "An attribute names a dimension that the array does not have. Dimensions count from 0 to one less than the \
         number of dimensions.",
        "x = f32[2,3] parameter(0)\nROOT r = f32[2,3] reverse(x), dimensions={2}";
    308 DIMENSION_REPEATED "a dimension is named twice or out of order",
        "An attribute that lists dimensions names one of them twice, or does not list them in the order it must.",
        "x = f32[2,3] parameter(0)\nROOT t = f32[2,2] transpose(x), dimensions={0,0}";
    309 ATTRIBUTE_LENGTH "an attribute has too many or too few entries",
        "Attributes such as slice, padding and dynamic_slice_sizes have one entry for each dimension of the operand; \
         others have as many as another attribute.",
        "x = f32[2,3] parameter(0)\nROOT s = f32[1] slice(x), slice={[0:1]}";
    310 SIZE_OUT_OF_RANGE "a size or bound does not fit the array",
        "A slice, window or size attribute reaches beyond the array, is negative, or has a step that is not positive.",
        "x = f32[4] parameter(0)\nROOT s = f32[8] slice(x), slice={[0:8]}";
    311 SIZE_OVERFLOW "a size is too large",
        "The size of a dimension of the result does not fit in 63 bits.",
        "x = f32[4611686018427387904] parameter(0)\nROOT c = concatenate(x, x), dimensions={0}";
    312 SHAPE_NEEDED "the shape has to be written",
        "What this operation makes does not follow from its operands and attributes, so its shape has to be given.",
        "x = f32[4] parameter(0)\nROOT r = reshape(x)";
    313 SHAPE_MISMATCH "the shape is not what the operation makes",
        "The shape written on the instruction differs from the one that follows from the operands and attributes. \
         Layouts, and whether a dimension is dynamic, are set aside in this comparison.",
        "x = f32[2,3] parameter(0)\nROOT t = f32[2,3] transpose(x), dimensions={1,0}";
    314 ELEMENT_COUNT "the number of elements changes",
        "Reshape and bitcast keep every element: the result must have as many as the operand (a bitcast as many bits).",
        "x = f32[2,3] parameter(0)\nROOT r = f32[5] reshape(x)";
    315 WINDOW "the window does not fit",
        "A window needs one entry for each dimension it moves over, sizes, strides and dilations of at least 1, and \
         padding that leaves no dimension negative.",
        "ROOT w = f32[4] reduce-window(x, zero), window={size=2 stride=0}, to_apply=add";
    316 DIMENSION_NUMBERS "the dimension numbers contradict each other or the shapes",
        "The dimension numbers of a dot, convolution, gather or scatter must give each dimension one role.",
        "ROOT d = f32[2] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={}";
    317 GROUP_COUNT "groups do not divide the dimension",
        "feature_group_count and batch_group_count must be positive, only one may exceed 1, and each must divide the \
         dimensions it splits.",
        "ROOT c = … convolution(x, k), window={size=3}, dim_labels=b0f_0io->b0f, feature_group_count=3";
    318 COMPUTATION_PARAMETERS "the called computation takes other parameters",
        "A computation that an operation calls must take the parameters the operation passes: their number, element \
         types and shapes.",
        "add { a = f32[] parameter(0) ROOT b = f32[] negate(a) }\nROOT r = f32[] reduce(x, zero), dimensions={0}, \
         to_apply=add";
    319 COMPUTATION_RESULT "the called computation has another result",
        "A computation that an operation calls must return what the operation makes use of: a scalar pred for a \
         condition or a comparison, the accumulator for a reduction, the loop state for a body.",
        "ROOT w = s32[] while(x), condition=returns_s32, body=b";
    320 NOT_A_TUPLE "not a tuple of the right form",
        "The operand (or the shape written) must be a tuple with certain elements here, and is not.",
        "x = f32[4] parameter(0)\nROOT g = f32[] get-tuple-element(x), index=0";
    321 TUPLE_INDEX "the tuple has no such element",
        "Elements count from 0 to one less than the number of elements.",
        "t = (f32[], f32[]) tuple(x, y)\nROOT g = f32[] get-tuple-element(t), index=2";
    322 NOT_A_TOKEN "a token is needed here",
        "Operations that keep an order take a token as an operand, made by after-all or by the operation before.",
        "x = f32[] parameter(0)\nROOT i = (f32[2], token[]) infeed(x)";
    323 NOT_A_SCALAR "a scalar is needed here",
        "The operand must be an array without dimensions.",
        "z = f32[1] parameter(1)\nROOT p = f32[6] pad(x, z), padding=1_1";
    324 ATTRIBUTE_VALUE "an attribute has a value that means nothing here",
        "The value of the attribute lies outside of what the operation can do.",
        "ROOT r = f32[4] reduce-precision(x), exponent_bits=0, mantissa_bits=7";
    325 MIXED_PRECISION "floating-point types are mixed",
        "Only some operations (dot, convolution, reduce-window, sort, collectives, calls and those that move data) take \
         operands of different floating-point types; the others need a convert first.",
        "x = f32[4] parameter(0)\ny = bf16[4] parameter(1)\nROOT a = f32[4] add(x, y)";
    326 LITERAL_SHAPE "the value has another shape than the constant",
        "The literal of a constant must have the shape written on the instruction.",
        "ROOT c = f32[3] constant({1, 2})";
    327 EMPTY_COMPUTATION "the called computation is empty",
        "A computation without instructions has no result.",
        "ROOT c = f32[] call(x), to_apply=nothing";
    328 DYNAMIC_DIMENSION "a dynamic dimension cannot be used here",
        "The operation cannot follow a dimension whose size is known only when the program runs.",
        "k = f32[3,<=4,8] parameter(1)\nROOT c = … convolution(x, k), window={size=3}, dim_labels=b0f_0oi->b0f";
    329 SHARD_COUNT "the groups and the shapes disagree about the number of shards",
        "All-gather multiplies a dimension by the number of devices in a group, reduce-scatter and all-to-all divide it.",
        "ROOT g = f32[8] all-gather(x), dimensions={0}, replica_groups={{0,1,2,3}}";
    330 FOREIGN_OPERAND "an operand belongs to another computation",
        "An instruction reads only instructions of its own computation; values come in from elsewhere as parameters.",
        "b.add(x, y) where y was made by another builder";
}
