//! The extension for shardings: how arguments and results of a program are spread over its devices.

use crate::abi::{Entry, ExtensionBase, Handle, c_structs_for_extensions as c_structs, entry};
use crate::executable::Executable;
use crate::status::Status;
use hloom_formats::proto::write_sharding;
use hloom_ir::module::Module;
use hloom_ir::sharding::{LeafSharding, Sharding, ShardingKind};
use std::ptr::null;
use std::sync::Arc;

c_structs! {
    ShardingsArgs[48] {
        executable: Handle<Executable> = 16, num: usize = 24, shardings: *const *const u8 = 32,
        sharding_sizes: *const usize = 40,
    }
}

/// `OpSharding`s of values, encoded.
#[derive(Default)]
pub struct Shardings {
    starts: Vec<*const u8>,
    sizes: Vec<usize>,
    _encoded: Vec<Vec<u8>>,
}

// SAFETY: the pointers are into what is kept beside them, and never changed.
unsafe impl Send for Shardings {}
// SAFETY: likewise.
unsafe impl Sync for Shardings {}

impl Shardings {
    fn new(shardings: impl Iterator<Item = Sharding>) -> Shardings {
        let encoded: Vec<Vec<u8>> = shardings.map(|s| write_sharding(&s)).collect();
        let starts = encoded.iter().map(|e| e.as_ptr()).collect();
        Shardings { starts, sizes: encoded.iter().map(Vec::len).collect(), _encoded: encoded }
    }

    /// Of values that lie as is said.
    pub fn of_kinds(kinds: impl Iterator<Item = ShardingKind>) -> Shardings {
        Shardings::new(kinds.map(|kind| Sharding::Leaf(Box::new(kind.canonical().into()))))
    }

    /// Of the arguments of a program, and of its results; values of which nothing is said are on all devices alike.
    pub fn of(module: &Module, outputs: usize) -> (Shardings, Shardings) {
        let Some(entry) = module.entry() else { return Default::default() };
        let replicated = || Sharding::Leaf(Box::new(LeafSharding::from(ShardingKind::Replicated)));
        // JAX reads tiles, and takes what is not decided for a mistake.
        let plain = |leaf: &LeafSharding| match leaf.kind.without_names() {
            Some(ShardingKind::Unknown) | None => replicated(),
            Some(kind) => Sharding::Leaf(Box::new(kind.canonical().into())),
        };
        let of = |sharding: &Option<Arc<Sharding>>| match sharding.as_deref() {
            Some(Sharding::Leaf(leaf)) => plain(leaf),
            Some(tuple) => tuple.clone(),
            None => replicated(),
        };
        let parameters = module.parameters(entry);
        let parameters = Shardings::new(parameters.iter().map(|&p| of(&module[p].common.sharding)));
        let root = module.root(entry).and_then(|root| module[root].common.sharding.as_deref());
        let leaves = root.map_or(&[][..], Sharding::leaves);
        let output = |i: usize| match leaves.get(i) {
            Some(leaf) => plain(leaf),
            None => replicated(),
        };
        (parameters, Shardings::new((0..outputs).map(output)))
    }
}

/// The extension.
#[repr(C)]
pub struct ShardingsExtension {
    base: ExtensionBase,
    functions: [Entry; 2],
}

const _: () = assert!(size_of::<ShardingsExtension>() == 40);

// SAFETY: never changed, and neither is what it points to.
unsafe impl Sync for ShardingsExtension {}

impl ShardingsExtension {
    /// The extension, followed by `next`.
    pub const fn new(next: *const ExtensionBase) -> ShardingsExtension {
        ShardingsExtension {
            base: ExtensionBase { struct_size: size_of::<ShardingsExtension>(), type_: 19, next: next.cast_mut() },
            functions: [entry!(ShardingsArgs, parameters), entry!(ShardingsArgs, outputs)],
        }
    }
}

/// Programs of one device have none, nor is there anything to say of no values.
fn show(args: &mut ShardingsArgs, shardings: impl Fn(&Executable) -> &Shardings) -> Result<(), Status> {
    let executable = args.executable.get()?;
    let shardings = shardings(executable);
    args.num = shardings.starts.len();
    (args.shardings, args.sharding_sizes) = match executable.0.program.options.partitions > 1 && args.num > 0 {
        true => (shardings.starts.as_ptr(), shardings.sizes.as_ptr()),
        false => (null(), null()),
    };
    Ok(())
}

fn parameters(args: &mut ShardingsArgs) -> Result<(), Status> {
    show(args, |e| &e.0.program.shardings.0)
}

fn outputs(args: &mut ShardingsArgs) -> Result<(), Status> {
    show(args, |e| &e.0.program.shardings.1)
}
