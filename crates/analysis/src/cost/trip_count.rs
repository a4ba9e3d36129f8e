//! How often a loop runs, where its `backend_config` says.

use hloom_ir::instruction::Instruction;

/// The `known_trip_count` of a while: `backend_config={"known_trip_count":{"n":"5"},…}`.
pub fn known_trip_count(instruction: &Instruction) -> Option<u64> {
    let config = std::str::from_utf8(instruction.common.backend_config.as_deref()?).ok()?;
    let object = config.split_once("\"known_trip_count\"")?.1;
    let object = object.trim_start().strip_prefix(':')?.trim_start().strip_prefix('{')?;
    let object = &object[..object.find('}')?];
    let number = object.split_once("\"n\"")?.1.trim_start().strip_prefix(':')?.trim_start();
    let number = number.strip_prefix('"').unwrap_or(number);
    let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    number[..end].parse().ok()
}
