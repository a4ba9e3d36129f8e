//! Writing custom calls.

use super::types::{list, quoted, symbol};
use super::{Val, Writer, Written};
use hloom_ir::Shape;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::CustomCall;

impl Writer<'_> {
    /// Writes a custom call: its attributes as StableHLO names them.
    pub(super) fn custom_call(&mut self, id: InstructionId, call: &CustomCall) -> Written<Val> {
        if call.window.is_some() || call.conv_dims.is_some() || call.literal.is_some() {
            return Err(self.refuse(id, "a custom-call with a window or a literal"));
        }
        let mut attributes = vec![format!("api_version = {} : i32", call.api_version.proto_number())];
        if let Some(config) = &self.m[id].common.backend_config {
            // A dictionary is text of MLIR already.
            let is_dictionary = call.api_version == hloom_ir::attributes::CustomCallApiVersion::TypedFfi
                && config.starts_with(b"{")
                && crate::text::is_attribute(config);
            let text = if is_dictionary { String::from_utf8_lossy(config).into_owned() } else { quoted(config) };
            attributes.push(format!("backend_config = {text}"));
        }
        if !call.called_computations.is_empty() {
            let names: Vec<String> =
                call.called_computations.iter().map(|&c| format!("@{}", symbol(&self.function_name(c)))).collect();
            attributes.push(format!("called_computations = [{}]", names.join(", ")));
        }
        if call.has_side_effect {
            attributes.push("has_side_effect = true".to_owned());
        }
        let shape = self.m[id].shape.clone();
        if let Some(layouts) = &call.operand_layouts {
            attributes.push(format!("operand_layouts = [{}]", layout_list(layouts)));
            let results: Vec<Shape> = shape.leaves().into_iter().map(|(_, s)| s.clone()).collect();
            attributes.push(format!("result_layouts = [{}]", layout_list(&results)));
        }
        if !call.output_operand_aliasing.is_empty() {
            let aliases: Vec<String> = call.output_operand_aliasing.iter().map(|a| {
                format!(
                    "#stablehlo.output_operand_alias<output_tuple_indices = [{}], operand_index = {}, operand_tuple_indices = [{}]>",
                    list(&a.output_index),
                    a.operand,
                    list(&a.operand_index)
                )
            }).collect();
            attributes.push(format!("output_operand_aliases = [{}]", aliases.join(", ")));
        }
        let operands = self.operand_names(id)?.join(", ");
        let (value, results) = self.results(&shape);
        let tail = self.tail(id, attributes, &shape)?;
        self.line(&format!("{results}stablehlo.custom_call @{}({operands}){tail}", symbol(&call.target)));
        Ok(value)
    }
}

fn layout_list(shapes: &[Shape]) -> String {
    let one = |s: &Shape| {
        let order = s.as_array_or_buffer().map(|a| a.minor_to_major().to_vec()).unwrap_or_default();
        match order.len() {
            0 => "dense<> : tensor<0xindex>".to_owned(),
            n => format!("dense<[{}]> : tensor<{n}xindex>", list(&order)),
        }
    };
    let texts: Vec<String> = shapes.iter().map(one).collect();
    texts.join(", ")
}
