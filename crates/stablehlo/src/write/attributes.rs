//! What stands beside an operation: annotations, locations, and the attributes of products, windows and collectives.

use super::types::{array, dictionary, list, matrix, quoted};
use super::{Writer, Written};
use hloom_formats::hlo_text::print_sharding;
use hloom_ir::attributes::{ConvDimensionNumbers, Precision, PrecisionConfig, Window};
use hloom_ir::device_list::ReplicaGroups;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::op::Collective;

impl Writer<'_> {
    /// ` {tf.aliasing_output = 0 : i32}` of an argument of the entry, or nothing.
    pub(super) fn argument_attributes(&self, id: InstructionId, number: usize) -> String {
        let config = &self.m.config;
        let mut attributes = Vec::new();
        for alias in &config.input_output_alias {
            if alias.parameter == number as i64 && alias.parameter_index.is_empty() && alias.output_index.len() <= 1 {
                let output = alias.output_index.first().copied().unwrap_or(0);
                attributes.push(format!("tf.aliasing_output = {output} : i32"));
            }
        }
        if config.buffer_donors.iter().any(|d| d.parameter == number as i64 && d.parameter_index.is_empty()) {
            attributes.push("jax.buffer_donor = true".to_owned());
        }
        self.annotations(id, &mut attributes);
        if attributes.is_empty() { String::new() } else { format!(" {{{}}}", attributes.join(", ")) }
    }

    /// The sharding and the frontend attributes of an instruction.
    pub(super) fn annotations(&self, id: InstructionId, attributes: &mut Vec<String>) {
        let common = &self.m[id].common;
        if let Some(rare) = &common.rare
            && !rare.frontend_attributes.is_empty()
        {
            attributes.push(format!("mhlo.frontend_attributes = {}", dictionary(&rare.frontend_attributes)));
        }
        if let Some(sharding) = &common.sharding {
            attributes.push(format!("mhlo.sharding = {}", quoted(print_sharding(sharding).as_bytes())));
        }
    }

    /// ` loc(…)`, or nothing.
    pub(super) fn location(&self, id: InstructionId) -> String {
        let Some(metadata) = &self.m[id].common.metadata else { return String::new() };
        let place = if metadata.source_file.is_empty() {
            String::new()
        } else {
            let file = quoted(metadata.source_file.as_bytes());
            format!("{file}:{}:{}", metadata.source_line.max(0), metadata.source_column.max(0))
        };
        match (metadata.op_name.is_empty(), place.is_empty()) {
            (true, true) => String::new(),
            (true, false) => format!(" loc({place})"),
            (false, true) => format!(" loc({})", quoted(metadata.op_name.as_bytes())),
            (false, false) => format!(" loc({}({place}))", quoted(metadata.op_name.as_bytes())),
        }
    }

    pub(super) fn precision(&self, precision: &PrecisionConfig) -> Option<String> {
        let one = |p: &Precision| match p {
            Precision::Default | Precision::PackedNibble => "DEFAULT",
            Precision::High => "HIGH",
            Precision::Highest => "HIGHEST",
        };
        if precision.operand_precision.is_empty() {
            return None;
        }
        let words: Vec<String> =
            precision.operand_precision.iter().map(|p| format!("#stablehlo<precision {}>", one(p))).collect();
        Some(format!("[{}]", words.join(", ")))
    }

    pub(super) fn window(&self, window: &Window, attributes: &mut Vec<String>, names: &WindowNames) {
        let pick = |f: fn(&hloom_ir::attributes::WindowDim) -> i64| -> DimVec { window.dims.iter().map(f).collect() };
        if let Some(name) = names.size {
            attributes.push(format!("{name} = {}", array(&pick(|d| d.size))));
        }
        attributes.push(format!("window_strides = {}", array(&pick(|d| d.stride))));
        if let Some(name) = names.base {
            attributes.push(format!("{name} = {}", array(&pick(|d| d.base_dilation))));
        }
        if let Some(name) = names.dilation {
            attributes.push(format!("{name} = {}", array(&pick(|d| d.window_dilation))));
        }
        let padding: Vec<Vec<i64>> = window.dims.iter().map(|d| vec![d.padding_low, d.padding_high]).collect();
        attributes.push(format!("padding = {}", matrix(&padding, 2)));
    }

    pub(super) fn convolution_numbers(&self, d: &ConvDimensionNumbers) -> String {
        format!(
            "#stablehlo.conv<raw input_batch_dimension = {}, input_feature_dimension = {}, \
             input_spatial_dimensions = [{}], kernel_output_feature_dimension = {}, kernel_input_feature_dimension = {}, \
             kernel_spatial_dimensions = [{}], output_batch_dimension = {}, output_feature_dimension = {}, \
             output_spatial_dimensions = [{}]>",
            d.input_batch,
            d.input_feature,
            list(&d.input_spatial),
            d.kernel_output_feature,
            d.kernel_input_feature,
            list(&d.kernel_spatial),
            d.output_batch,
            d.output_feature,
            list(&d.output_spatial),
        )
    }

    /// The groups and the channel of a collective.
    pub(super) fn collective(
        &self,
        id: InstructionId,
        collective: &Collective,
        attributes: &mut Vec<String>,
    ) -> Written<()> {
        attributes.push(format!("replica_groups = {}", self.groups(id, &collective.replica_groups)?));
        if let Some(channel) = collective.channel_id {
            attributes.push(channel_handle(channel, 1));
        }
        if collective.use_global_device_ids {
            attributes.push("use_global_device_ids".to_owned());
        }
        Ok(())
    }

    fn groups(&self, id: InstructionId, groups: &ReplicaGroups) -> Written<String> {
        let Some(mut rows) = groups.expand() else { return Err(self.refuse(id, "over groups that do not fit")) };
        let width = rows.iter().map(Vec::len).max().unwrap_or(0);
        // Shorter groups are filled up with -1.
        rows.iter_mut().for_each(|r| r.resize(width, -1));
        Ok(matrix(&rows, width))
    }
}

/// `channel_handle = …` with the kind of transfer.
pub(super) fn channel_handle(channel: i64, kind: i64) -> String {
    format!("channel_handle = #stablehlo.channel_handle<handle = {channel}, type = {kind}>")
}

/// What the parts of a window are called, where the operation has them.
#[derive(Default)]
pub(super) struct WindowNames {
    pub(super) size: Option<&'static str>,
    pub(super) base: Option<&'static str>,
    pub(super) dilation: Option<&'static str>,
}
