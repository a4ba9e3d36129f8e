//! `metadata={…}`, and the floats of attributes.

use super::Printer;
use hloom_ir::attributes::ResultAccuracy;
use hloom_ir::metadata::Metadata;
use hloom_numerics::format::{format_g, write_f32, write_f64};

/// Digits that XLA prints for floats in attributes, whatever they lose.
const ATTRIBUTE_DIGITS: usize = 6;

impl Printer<'_> {
    /// Whether the metadata says something; for XLA's dumps a line without a file does not.
    pub(super) fn is_worth_printing(&self, metadata: &Metadata) -> bool {
        if !self.options.elide_constants {
            return *metadata != Metadata::default();
        }
        !metadata.op_type.is_empty()
            || !metadata.op_name.is_empty()
            || !metadata.source_file.is_empty()
            || metadata.stack_frame_id != 0
            || metadata.rare.as_ref().is_some_and(|r| !r.scheduling_name.is_empty() || r.payload.is_some())
    }

    /// The fields that are set, separated by spaces.
    pub(super) fn metadata(&mut self, metadata: &Metadata) {
        let start = self.out.len();
        for (name, value) in [
            (" op_type=", &metadata.op_type),
            (" op_name=", &metadata.op_name),
            (" source_file=", &metadata.source_file),
        ] {
            self.metadata_string(start, name, value);
        }
        for (name, value) in [
            (" source_line=", metadata.source_line),
            (" source_end_line=", metadata.source_end_line),
            (" source_column=", metadata.source_column),
            (" source_end_column=", metadata.source_end_column),
        ] {
            self.metadata_int(start, name, value);
        }
        if let Some(rare) = &metadata.rare {
            if !rare.profile_types.is_empty() {
                self.metadata_name(start, " profile_type=");
                let types: Vec<i64> = rare.profile_types.iter().map(|&t| t.into()).collect();
                self.braced_list(&types);
            }
            self.metadata_string(start, " deduplicated_name=", &rare.deduplicated_name);
            self.metadata_string(start, " scheduling_name=", &rare.scheduling_name);
        }
        self.metadata_int(start, " stack_frame_id=", metadata.stack_frame_id);
        if let Some(payload) = metadata.rare.as_ref().and_then(|r| r.payload.as_ref()) {
            self.metadata_name(start, " metadata_payload=");
            self.quoted("", payload);
        }
    }

    /// The name, without its leading space if it is the first after `start`.
    fn metadata_name(&mut self, start: usize, name: &str) {
        self.text(if self.out.len() == start { name.trim_start() } else { name });
    }

    fn metadata_string(&mut self, start: usize, name: &str, value: &str) {
        if !value.is_empty() {
            self.metadata_name(start, name);
            self.quoted("", value.as_bytes());
        }
    }

    fn metadata_int(&mut self, start: usize, name: &str, value: i32) {
        if value != 0 {
            self.metadata_name(start, name);
            self.int(value.into());
        }
    }

    pub(super) fn result_accuracy(&mut self, accuracy: ResultAccuracy) {
        match accuracy {
            ResultAccuracy::Default => {}
            ResultAccuracy::Highest => self.text(", result_accuracy={mode=highest}"),
            ResultAccuracy::Tolerance { atol, rtol, ulps } => {
                self.text(", result_accuracy={tolerance={atol=");
                self.attribute_f64(f64::from_bits(atol));
                self.text(",rtol=");
                self.attribute_f64(f64::from_bits(rtol));
                self.int_attribute(",ulps=", ulps);
                self.text("}}");
            }
        }
    }

    pub(super) fn attribute_f64(&mut self, value: f64) {
        let start = self.out.len();
        format_g(&mut self.out, value, ATTRIBUTE_DIGITS);
        if !self.options.elide_constants && self.out.get(start..).and_then(|text| text.parse().ok()) != Some(value) {
            self.out.truncate(start);
            write_f64(&mut self.out, value);
        }
    }

    pub(super) fn attribute_f32(&mut self, value: f32) {
        if self.options.elide_constants {
            format_g(&mut self.out, value.into(), ATTRIBUTE_DIGITS);
        } else {
            write_f32(&mut self.out, value);
        }
    }
}
