//! Locations of MLIR as metadata of instructions and a table of stack frames.
//!
//! A name around a location is the name of the framework's operation, `jit(f)/mul`; its last part is what the
//! instruction is called. The innermost frame is the line of the user's program. Every location is worked out once, and
//! chains of frames of any length without recursion.

use crate::mlir::{self, Attr, AttrId, FileRange, Location};
use hloom_ir::metadata::{FileLocation, Metadata, StackFrame, StackFrames};
use hloom_ir::names::sanitize;
use rustc_hash::FxHashMap;
use std::rc::Rc;
use std::sync::Arc;

/// What instructions made at one location carry.
#[derive(Default)]
pub(super) struct Info {
    pub(super) name: Option<Box<str>>,
    pub(super) metadata: Option<Box<Metadata>>,
}

/// What was worked out so far.
pub(super) struct Cache {
    infos: Vec<Option<Rc<Info>>>,
    frames: FxHashMap<AttrId, i32>,
    files: FxHashMap<Box<[u8]>, (i32, Arc<str>)>,
    functions: FxHashMap<Box<[u8]>, i32>,
    table: StackFrames,
}

/// How many parts of a fused location, or names around one, are looked at.
const MAX_PARTS: usize = 64;

/// Beyond this length a chain of frames is cut off: it is a hint for people, not part of the program.
const MAX_FRAMES: usize = 4096;

impl Cache {
    pub(super) fn new(m: &mlir::Module<'_>) -> Cache {
        Cache {
            infos: vec![None; m.attrs.len()],
            frames: FxHashMap::default(),
            files: FxHashMap::default(),
            functions: FxHashMap::default(),
            table: StackFrames::default(),
        }
    }

    pub(super) fn into_frames(self) -> StackFrames {
        self.table
    }

    pub(super) fn info(&mut self, m: &mlir::Module<'_>, location: AttrId) -> Rc<Info> {
        if let Some(Some(info)) = self.infos.get(location.index()) {
            return info.clone();
        }
        let info = Rc::new(self.make(m, location));
        if let Some(slot) = self.infos.get_mut(location.index()) {
            *slot = Some(info.clone());
        }
        info
    }

    fn make(&mut self, m: &mlir::Module<'_>, location: AttrId) -> Info {
        let mut names: Vec<&[u8]> = Vec::new();
        let mut file = None;
        let mut frame = 0;
        let mut stack = vec![location];
        let mut looked_at = 0;
        while let Some(id) = stack.pop() {
            looked_at += 1;
            if looked_at > MAX_PARTS {
                break;
            }
            let Attr::Location(part) = m.attr(id) else { continue };
            match part {
                Location::Unknown => {}
                Location::File(f) => file = file.or(Some(&**f)),
                Location::Name(name, child) => {
                    // A name around a place in a file is also the function that the place is in.
                    let child_file = child.and_then(|c| innermost_file(m, c));
                    if child_file.is_some() {
                        if frame == 0 {
                            let is_place =
                                child.is_some_and(|c| matches!(m.attr(c), Attr::Location(Location::File(_))));
                            frame = if is_place { self.frame(m, id) } else { child.map_or(0, |c| self.frame(m, c)) };
                        }
                        file = file.or(child_file);
                    } else if let Some(child) = child {
                        stack.push(*child);
                    }
                    names.push(name);
                }
                Location::CallSite { callee, .. } => {
                    if frame == 0 {
                        frame = self.frame(m, id);
                    }
                    stack.push(*callee);
                }
                Location::Fused(parts) => stack.extend(parts.iter().rev()),
            }
        }
        if names.is_empty() && file.is_none() {
            return Info::default();
        }
        let op_name = match names[..] {
            [] => String::new(),
            [one] => String::from_utf8_lossy(one).into_owned(),
            _ => {
                let texts: Vec<_> = names.iter().map(|n| String::from_utf8_lossy(n)).collect();
                if names.len() > 1 && matches!(m.attr(location), Attr::Location(Location::Fused(_))) {
                    texts.join(";")
                } else {
                    texts[0].clone().into_owned()
                }
            }
        };
        let name = short_name(&op_name);
        let mut metadata = Metadata { op_name: op_name.into(), stack_frame_id: frame, ..Metadata::default() };
        if let Some(f) = file {
            let line = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
            metadata.source_file = self.file(&f.file).1;
            metadata.source_line = line(f.line);
            metadata.source_end_line = line(f.end_line);
            metadata.source_column = line(f.column);
            metadata.source_end_column = line(f.end_column);
        }
        Info { name, metadata: Some(Box::new(metadata)) }
    }

    fn file(&mut self, name: &[u8]) -> (i32, Arc<str>) {
        if let Some((id, text)) = self.files.get(name) {
            return (*id, text.clone());
        }
        let text: Arc<str> = String::from_utf8_lossy(name).into();
        self.table.file_names.push(text.as_ref().into());
        let entry = (self.table.file_names.len() as i32, text);
        self.files.insert(name.into(), entry.clone());
        entry
    }

    /// The frame of a location with its callers; 0 if there is no place in it.
    fn frame(&mut self, m: &mlir::Module<'_>, location: AttrId) -> i32 {
        // From the innermost outward, until one is known or there is no caller.
        let mut chain = Vec::new();
        let mut at = Some(location);
        let mut parent = 0;
        while let Some(id) = at {
            if let Some(&known) = self.frames.get(&id) {
                parent = known;
                break;
            }
            if chain.len() >= MAX_FRAMES {
                break;
            }
            match m.attr(id) {
                Attr::Location(Location::CallSite { callee, caller }) => {
                    chain.push((id, *callee));
                    at = Some(*caller);
                }
                _ => {
                    chain.push((id, id));
                    at = None;
                }
            }
        }
        for (id, callee) in chain.into_iter().rev() {
            let mut function: &[u8] = b"";
            let mut part = callee;
            let mut place = None;
            for _ in 0..MAX_PARTS {
                match m.attr(part) {
                    Attr::Location(Location::Name(name, Some(child))) => {
                        function = if function.is_empty() { name } else { function };
                        part = *child;
                    }
                    Attr::Location(Location::File(f)) => {
                        place = Some(f);
                        break;
                    }
                    _ => break,
                }
            }
            if let Some(f) = place {
                parent = self.push_frame(f, function, parent);
            }
            self.frames.insert(id, parent);
        }
        parent
    }

    fn push_frame(&mut self, f: &FileRange<'_>, function: &[u8], parent_frame_id: i32) -> i32 {
        let function_name_id = match self.functions.get(function) {
            Some(&id) => id,
            None => {
                self.table.function_names.push(String::from_utf8_lossy(function).into());
                let id = self.table.function_names.len() as i32;
                self.functions.insert(function.into(), id);
                id
            }
        };
        let line = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
        let file_name_id = self.file(&f.file).0;
        self.table.file_locations.push(FileLocation {
            file_name_id,
            function_name_id,
            line: line(f.line),
            end_line: line(f.end_line),
            column: line(f.column),
            end_column: line(f.end_column),
        });
        let file_location_id = self.table.file_locations.len() as i32;
        self.table.frames.push(StackFrame { file_location_id, parent_frame_id });
        self.table.frames.len() as i32
    }
}

/// The innermost place in a file.
fn innermost_file<'m, 'a>(m: &'m mlir::Module<'a>, location: AttrId) -> Option<&'m FileRange<'a>> {
    let mut at = location;
    for _ in 0..MAX_PARTS {
        match m.attr(at) {
            Attr::Location(Location::File(f)) => return Some(f),
            Attr::Location(Location::Name(_, Some(child))) => at = *child,
            Attr::Location(Location::CallSite { callee, .. }) => at = *callee,
            Attr::Location(Location::Fused(parts)) => at = *parts.first()?,
            _ => return None,
        }
    }
    None
}

/// The last part of `jit(f)/scope/mul`, as a name that HLO text can write.
fn short_name(op_name: &str) -> Option<Box<str>> {
    let last = op_name.rsplit(['/', ';']).find(|part| !part.is_empty())?;
    Some(sanitize(last))
}
