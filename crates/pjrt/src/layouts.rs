//! The extension for layouts: in which order the elements of arrays lie. Row-major is the default.

use crate::abi::{Deleter, Entry, ExtensionBase, Handle, c_structs_for_extensions as c_structs, entry, slice};
use crate::buffer::Buffer;
use crate::client::Client;
use crate::executable::Executable;
use crate::status::Status;
use crate::topology::TopologyDescription;
use hloom_ir::Shape;
use std::ffi::c_void;
use std::fmt::Write;

/// A layout, as text.
pub struct Layout(String);

impl Layout {
    /// That with dimensions in this order, the fastest first.
    pub fn new(minor_to_major: impl IntoIterator<Item = i64>) -> Layout {
        let mut text = String::from("{");
        for (n, d) in minor_to_major.into_iter().enumerate() {
            let _ = write!(text, "{}{d}", if n > 0 { "," } else { "" });
        }
        text.push('}');
        Layout(text)
    }

    /// Of an array of that rank, row-major.
    pub fn row_major(rank: usize) -> Layout {
        Layout::new((0..rank as i64).rev())
    }

    /// Of a value of that shape.
    pub fn of(shape: &Shape) -> Layout {
        Layout::new(shape.as_array().map(|a| a.entry_layout().minor_to_major).unwrap_or_default())
    }
}

c_structs! {
    DestroyArgs[24] { layout: Handle<Layout> = 16 }
    SerializeArgs[56] {
        layout: Handle<Layout> = 16, serialized_bytes: *const u8 = 24, serialized_bytes_size: usize = 32,
        serialized_layout: *mut c_void = 40, serialized_layout_deleter: Option<Deleter> = 48,
    }
    ClientDefaultArgs[56] {
        client: Handle<Client> = 16, type_: i32 = 24, dims: *const i64 = 32, num_dims: usize = 40,
        layout: Handle<Layout> = 48,
    }
    TopologyDefaultArgs[56] {
        topology: Handle<TopologyDescription> = 16, type_: i32 = 24, dims: *const i64 = 32, num_dims: usize = 40,
        layout: Handle<Layout> = 48,
    }
    BufferLayoutArgs[32] { buffer: Handle<Buffer> = 16, layout: Handle<Layout> = 24 }
    ExecutableLayoutsArgs[40] {
        executable: Handle<Executable> = 16, num: usize = 24, layouts: *const Handle<Layout> = 32,
    }
}

/// The extension.
#[repr(C)]
pub struct Layouts {
    base: ExtensionBase,
    functions: [Entry; 7],
}

const _: () = assert!(size_of::<Layouts>() == 80);

// SAFETY: never changed, and neither is what it points to.
unsafe impl Sync for Layouts {}

impl Layouts {
    /// The extension, followed by `next`.
    pub const fn new(next: *const ExtensionBase) -> Layouts {
        Layouts {
            base: ExtensionBase { struct_size: size_of::<Layouts>(), type_: 4, next: next.cast_mut() },
            functions: [
                entry!(DestroyArgs, destroy),
                entry!(SerializeArgs, serialize),
                entry!(ClientDefaultArgs, client_default),
                entry!(BufferLayoutArgs, buffer_layout),
                entry!(TopologyDefaultArgs, topology_default),
                entry!(ExecutableLayoutsArgs, output_layouts),
                entry!(ExecutableLayoutsArgs, parameter_layouts),
            ],
        }
    }
}

fn destroy(args: &mut DestroyArgs) -> Result<(), Status> {
    drop(args.layout.take());
    Ok(())
}

fn serialize(args: &mut SerializeArgs) -> Result<(), Status> {
    let text = args.layout.get()?.0.clone().into_bytes();
    let (bytes, size, object, deleter) = crate::topology::give_bytes(text);
    (args.serialized_bytes, args.serialized_bytes_size) = (bytes, size);
    (args.serialized_layout, args.serialized_layout_deleter) = (object, deleter);
    Ok(())
}

fn client_default(args: &mut ClientDefaultArgs) -> Result<(), Status> {
    args.client.get()?;
    args.layout = Handle::give(Layout::row_major(args.num_dims));
    Ok(())
}

fn topology_default(args: &mut TopologyDefaultArgs) -> Result<(), Status> {
    args.topology.get()?;
    // SAFETY: the caller's list.
    let dims = unsafe { slice(args.dims, args.num_dims) };
    args.layout = Handle::give(Layout::row_major(dims.len()));
    Ok(())
}

fn buffer_layout(args: &mut BufferLayoutArgs) -> Result<(), Status> {
    args.layout = Handle::give(Layout::new(args.buffer.get()?.minor_to_major().iter().copied()));
    Ok(())
}

fn output_layouts(args: &mut ExecutableLayoutsArgs) -> Result<(), Status> {
    let layouts = &args.executable.get()?.0.output_layouts;
    (args.layouts, args.num) = (layouts.as_ptr(), layouts.len());
    Ok(())
}

fn parameter_layouts(args: &mut ExecutableLayoutsArgs) -> Result<(), Status> {
    let layouts = &args.executable.get()?.0.parameter_layouts;
    (args.layouts, args.num) = (layouts.as_ptr(), layouts.len());
    Ok(())
}
