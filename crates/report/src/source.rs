//! Where in the user's program an instruction came from.

use hloom_ir::metadata::Metadata;
use hloom_ir::module::Module;

/// The file and line of the user's program: as the metadata says, or as its innermost stack frame does; an empty name if
/// nothing does.
pub fn source_position<'a>(module: &'a Module, metadata: &'a Metadata) -> (&'a str, i32) {
    if !metadata.source_file.is_empty() {
        return (&metadata.source_file, metadata.source_line);
    }
    let by_id = |id: i32| usize::try_from(id).ok()?.checked_sub(1);
    let frames = &module.stack_frames;
    let location = by_id(metadata.stack_frame_id)
        .and_then(|i| frames.frames.get(i))
        .and_then(|frame| frames.file_locations.get(by_id(frame.file_location_id)?));
    match location {
        Some(l) => (by_id(l.file_name_id).and_then(|i| frames.file_names.get(i)).map_or("", |name| &**name), l.line),
        None => ("", 0),
    }
}
