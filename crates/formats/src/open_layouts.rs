//! Layouts of the entry that a program leaves open for the compiler to choose.
//!
//! HLO has no text for them: XLA takes what has no layout for row-major. So they travel as an attribute of the module
//! for frontends, which lists the leaves that are open: `p2` is leaf 2 of all parameters, `o0` leaf 0 of the result.

use hloom_ir::module::ModuleConfig;
use hloom_ir::shape::{ArrayShape, ProgramShape, Shape};
use std::fmt::Write;

const ATTRIBUTE: &str = "hloom.open_layouts";

/// What a file says of a program's layouts: none is open there.
#[derive(Debug)]
pub(crate) struct WrittenLayouts {
    /// With row-major layouts in place of those that are open.
    pub(crate) shape: ProgramShape,
    /// The attribute that lists these, by name and value.
    pub(crate) attribute: Option<(Box<str>, Box<str>)>,
}

fn is_open(array: &ArrayShape) -> bool {
    array.layout.is_none() && array.rank() > 0
}

/// Takes the open layouts of a header apart from the others.
pub(crate) fn written(shape: &ProgramShape) -> WrittenLayouts {
    let mut list = String::new();
    let mut note = |kind: char, shapes: &[Shape]| {
        let leaves = shapes.iter().flat_map(|s| s.leaves()).enumerate();
        for (n, _) in leaves.filter(|(_, (_, leaf))| leaf.as_array_or_buffer().is_some_and(is_open)) {
            let comma = if list.is_empty() { "" } else { "," };
            let _infallible = write!(list, "{comma}{kind}{n}");
        }
    };
    note('p', &shape.parameters);
    note('o', std::slice::from_ref(&shape.result));
    let closed = ProgramShape {
        parameters: shape.parameters.iter().map(Shape::with_default_layout).collect(),
        result: shape.result.with_default_layout(),
    };
    WrittenLayouts { shape: closed, attribute: (!list.is_empty()).then(|| (ATTRIBUTE.into(), list.into())) }
}

/// Opens the layouts that the attribute lists, and takes it away.
pub(crate) fn reopen(config: &mut ModuleConfig) {
    let Some(list) = config.frontend_attributes.remove(ATTRIBUTE) else { return };
    let Some(shape) = &mut config.entry_layout else { return };
    let leaf = |kind: char| list.split(',').filter_map(move |word| word.strip_prefix(kind)?.parse::<usize>().ok());
    let open = |kind: char, shapes: &mut [Shape]| {
        let listed: std::collections::BTreeSet<usize> = leaf(kind).collect();
        let mut number = 0;
        for shape in shapes {
            let of_array = |n: usize, a: &ArrayShape| match listed.contains(&n) {
                true => a.without_layout(),
                false => a.clone(),
            };
            // Leaves that are no arrays count, too.
            let arrays: Vec<usize> = shape
                .leaves()
                .iter()
                .enumerate()
                .filter(|(_, (_, leaf))| leaf.as_array_or_buffer().is_some())
                .map(|(n, _)| number + n)
                .collect();
            number += shape.leaf_count();
            let mut arrays = arrays.into_iter();
            *shape = shape.map_arrays(&mut |a| of_array(arrays.next().unwrap_or(usize::MAX), a));
        }
    };
    open('p', &mut shape.parameters);
    open('o', std::slice::from_mut(&mut shape.result));
}

#[cfg(test)]
mod tests {
    use crate::hlo_text::{self, PrintOptions};
    use crate::proto;
    use hloom_ir::module::Module;

    const TEXT: &str = "HloModule m, entry_computation_layout={((token[], f32[4,8]{0,1}), f32[4,8]{1,0})->(f32[4,8]{1,0}, f32[])}, frontend_attributes={hloom.open_layouts=\"p2,o0\",mine=\"1\"}

ENTRY e {
  a = (token[], f32[4,8]) parameter(0)
  b = f32[4,8] parameter(1)
  c = f32[] constant(1)
  ROOT t = (f32[4,8], f32[]) tuple(b, c)
}
";

    fn header(module: &Module) -> String {
        let text = hlo_text::print(module, &PrintOptions { elide_constants: false });
        text.lines().next().unwrap_or_default().to_owned()
    }

    #[test]
    fn open_layouts_are_read_back() {
        let module = hlo_text::read(TEXT.as_bytes()).module.expect("it can be read");
        let layout = module.config.entry_layout.as_ref().expect("it has a header");
        let is_open = |shape: &hloom_ir::shape::Shape| shape.as_array().is_some_and(|a| a.layout.is_none());
        assert!(is_open(&layout.parameters[1]), "{layout:?}");
        let result = layout.result.as_tuple().expect("a tuple");
        assert!(is_open(&result[0]), "{layout:?}");
        assert!(!is_open(layout.parameters[0].at(&[1]).expect("an array")), "{layout:?}");
        assert_eq!(module.config.frontend_attributes.len(), 1);
        assert_eq!(header(&module), TEXT.lines().next().unwrap_or_default());
        let bytes = proto::write(&module, proto::Container::Proto).expect("it can be written");
        let back = proto::read(&bytes).expect("it can be read");
        assert_eq!(header(&back), header(&module));
    }
}
