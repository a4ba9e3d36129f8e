//! Constant arrays that a kernel reads, in its own text.

use crate::emit::ir::Ir;
use hloom_loops::graph::Data;
use inkwell::AddressSpace;
use inkwell::values::PointerValue;
use rustc_hash::FxHashMap;

/// The address space of memory that all threads see.
pub(super) const GLOBAL: u16 = 1;

/// The constant arrays of a module, by their data.
#[derive(Default)]
pub(super) struct Constants<'c> {
    globals: FxHashMap<Data, PointerValue<'c>>,
}

impl<'c> Constants<'c> {
    pub(super) fn pointer(&mut self, ir: &Ir<'c>, data: &Data) -> PointerValue<'c> {
        if let Some(&p) = self.globals.get(data) {
            return p;
        }
        let array = ir.context.const_string(data.bytes(), false);
        let name = format!("constant{}", self.globals.len());
        let global = ir.module.add_global(array.get_type(), Some(AddressSpace::from(GLOBAL)), &name);
        global.set_initializer(&array);
        global.set_constant(true);
        global.set_linkage(inkwell::module::Linkage::Internal);
        global.set_alignment(16);
        let pointer = global.as_pointer_value();
        self.globals.insert(data.clone(), pointer);
        pointer
    }
}
