//! Codes of shardings and of partitioning.

super::codes! {
    1201 BAD_SHARDING "a sharding does not fit its value",
        "A sharding names the axes of a mesh along which each dimension of a value is cut. The mesh and its axes must be there, an axis may be used once, and there is one list of axes for each dimension.",
        "sharding={mesh['x'=2], [{'y'}, {}]}";
    1202 CONFLICTING_SHARDINGS "two shardings cannot both hold",
        "Two annotations ask for different shardings of one value, or of a result and the parameter whose memory it takes, and neither leaves a choice. The notes say where each comes from.",
        "";
    1203 DIFFERENT_MESHES "shardings over different meshes meet",
        "The operands and results of an operation have shardings over meshes that differ in their axes or devices. All devices of a program take part in one mesh.",
        "";
    1204 BAD_PASS_OPTION "a pass does not have such an option",
        "Options of a pass are written after its name, as in `sdy-basic-propagate='keep-sharding-rules=true'`. The message names those that the pass has.",
        "hloom opt m.mlir --passes \"sdy-basic-propagate='keep=1'\"";
    1205 NOT_PROPAGATED "shardings could not be propagated",
        "Calls are written out in place before shardings are propagated, and loops get bodies of their own. A program that would become far larger by that is refused.",
        "";
    1206 UNEVEN_ARGUMENT "an argument or a result is not cut into equal parts",
        "Each device holds an equal part of an argument or a result. Values in between may be cut unevenly.",
        "";
}
