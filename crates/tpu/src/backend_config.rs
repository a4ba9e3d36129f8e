//! The compiler's notes on an instruction (`backend_config`), typed, and as the dumps print them.
//!
//! Every note has the same frame: flags first, then what is particular, in a fixed order, numbers as strings. Notes that
//! code generation adds come last.

use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use std::fmt::Write;

/// What is noted on an instruction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BackendConfig {
    /// The windows that an operation's arrays are cut into, and what it is estimated to take.
    pub windows: Option<WindowNote>,
    /// The barrier at which devices meet before a collective.
    pub barrier: Option<i64>,
    /// Memory that is reserved while it runs: a space and a size.
    pub scoped: Vec<(i64, i64)>,
    /// Which operands and results of a continuation are the fusion's own.
    pub continuation: Option<Continuation>,
    /// How an exchange is carried out.
    pub collective_algorithm: Option<CollectiveAlgorithm>,
    /// Which parameters of the body are the flags of an exchange; -1 where there are none.
    pub async_flags: Option<(i64, i64)>,
    /// Memory that it turned out to use: a space and a size.
    pub used_scoped: Vec<(i64, i64)>,
    /// Whether code generation has been through it.
    pub is_generated: bool,
    /// The routine that a convolution is made by.
    pub convolution_emitter: Option<&'static str>,
}

/// Windows in tiles, and how many there are along each dimension.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct WindowNote {
    pub kernel: Vec<i64>,
    pub output: Vec<i64>,
    pub input: Vec<i64>,
    pub cycles: i64,
    pub iterations: Vec<i64>,
}

/// Operands and results of a fusion that carries an exchange along, as ranges with both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct Continuation {
    pub outputs: (i64, i64),
    pub operands: (i64, i64),
}

/// The routine of an exchange, with what it says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct CollectiveAlgorithm {
    pub emitter: &'static str,
    pub debug: String,
}

impl BackendConfig {
    /// Writes the note onto an instruction.
    pub fn set(&self, module: &mut Module, i: InstructionId) {
        module.instruction_mut(i).common.backend_config = Some(self.to_string().into_bytes().into());
    }
}

impl std::fmt::Display for BackendConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = String::from("{\"flag_configs\":[]");
        if let Some(w) = &self.windows {
            let _ = write!(
                out,
                ",\"window_config\":{{\"kernel_window_bounds\":{},\"output_window_bounds\":{},\"input_window_bounds\":{},\
                 \"estimated_cycles\":\"{}\",\"iteration_bounds\":{}}}",
                list(&w.kernel),
                list(&w.output),
                list(&w.input),
                w.cycles,
                list(&w.iterations)
            );
        }
        if let Some(id) = self.barrier {
            let _ = write!(out, ",\"barrier_config\":{{\"barrier_type\":\"CUSTOM\",\"id\":\"{id}\"}}");
        }
        let _ = write!(out, ",\"scoped_memory_configs\":{}", memories(&self.scoped));
        if let Some(c) = &self.continuation {
            let _ = write!(
                out,
                ",\"continuation_config\":{{\"output_tuple_original_start\":\"{}\",\"output_tuple_original_end\":\"{}\",\
                 \"operand_original_start\":\"{}\",\"operand_original_end\":\"{}\"}}",
                c.outputs.0, c.outputs.1, c.operands.0, c.operands.1
            );
        }
        if let Some(a) = &self.collective_algorithm {
            let _ = write!(
                out,
                ",\"collective_algorithm_config\":{{\"emitter\":\"{}\",\"debug\":\"{}\"}}",
                a.emitter,
                a.debug.replace('\n', "\\n")
            );
        }
        if let Some((start, end)) = self.async_flags {
            let _ = write!(
                out,
                ",\"async_collective_fusion_config\":{{\"flag_start\":\"{start}\",\"flag_end\":\"{end}\"}}"
            );
        }
        let _ = write!(out, ",\"used_scoped_memory_configs\":{}", memories(&self.used_scoped));
        if self.is_generated {
            out.push_str(",\"retry_config\":{\"retry_count\":\"0\"}");
        }
        if let Some(emitter) = self.convolution_emitter {
            let _ = write!(out, ",\"convolution_algorithm_config\":{{\"emitter\":\"{emitter}\"}}");
        }
        out.push('}');
        f.write_str(&out)
    }
}

fn list(numbers: &[i64]) -> String {
    let quoted: Vec<String> = numbers.iter().map(|n| format!("\"{n}\"")).collect();
    format!("[{}]", quoted.join(","))
}

fn memories(all: &[(i64, i64)]) -> String {
    let one =
        |(space, size): &(i64, i64)| format!("{{\"memory_space\":\"{space}\",\"offset\":\"0\",\"size\":\"{size}\"}}");
    format!("[{}]", all.iter().map(one).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collective_is_noted_in_the_order_of_the_dumps() {
        let config = BackendConfig { barrier: Some(0), scoped: vec![(0, 67_108_864)], ..BackendConfig::default() };
        assert_eq!(
            config.to_string(),
            "{\"flag_configs\":[],\"barrier_config\":{\"barrier_type\":\"CUSTOM\",\"id\":\"0\"},\
             \"scoped_memory_configs\":[{\"memory_space\":\"0\",\"offset\":\"0\",\"size\":\"67108864\"}],\
             \"used_scoped_memory_configs\":[]}"
        );
    }

    #[test]
    fn what_code_generation_adds_comes_last() {
        let windows = WindowNote { output: vec![4, 32], cycles: 7, iterations: vec![112, 1], ..WindowNote::default() };
        let config = BackendConfig {
            windows: Some(windows),
            used_scoped: vec![(1, 3_145_728)],
            is_generated: true,
            convolution_emitter: Some("EmitAllBatchInSublanes"),
            ..BackendConfig::default()
        };
        assert!(config.to_string().ends_with(
            "\"used_scoped_memory_configs\":[{\"memory_space\":\"1\",\"offset\":\"0\",\"size\":\"3145728\"}],\
             \"retry_config\":{\"retry_count\":\"0\"},\
             \"convolution_algorithm_config\":{\"emitter\":\"EmitAllBatchInSublanes\"}}"
        ));
    }
}
