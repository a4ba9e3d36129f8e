//! What an instruction costs on a machine whose compiler cuts it into windows: pieces that are copied into fast memory,
//! computed on and copied back, the copies of the next behind the arithmetic of this one.
//!
//! The numbers are cycles, bytes, or shares of what the memory and the matrix units do by the data sheet, so that a
//! description with twice the bandwidth is a machine with twice the bandwidth. `hloom-cost` has the formulas.

use crate::entries::{Wrong, each, number, rate, share, unknown};
use crate::text::Table;

macro_rules! window_model {
    ($($(#[$doc:meta])* $name:ident: $check:ident),+ $(,)?) => {
        /// The constants of the window formulas.
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub struct WindowModel { $($(#[$doc])* pub $name: f64),+ }

        impl WindowModel {
            pub(crate) fn read(table: &Table) -> Result<WindowModel, Wrong> {
                let mut read = WindowModel { $($name: f64::NAN),+ };
                each(table, |entry| {
                    match entry.key.as_str() {
                        $(stringify!($name) => read.$name = $check(entry)?,)+
                        _ => return Err(unknown(entry, "of windows")),
                    }
                    Ok(())
                })?;
                $(if read.$name.is_nan() {
                    return Err((table.line, format!("`[windows]` needs `{}`", stringify!($name))));
                })+
                Ok(read)
            }
        }
    };
}

window_model! {
    /// Bytes that all operands and results of an instruction may have before it takes a second window.
    window_bytes: rate,
    /// Bytes of fast memory that the windows of one instruction may take.
    scoped_bytes: rate,

    /// A loop fusion: cycles to start it.
    loop_start: number,
    /// Cycles for each further window.
    loop_window: number,
    /// Share of the main memory's bandwidth that it reaches, both directions together.
    loop_stream: share,
    /// Cycles for each simple operation on 1024 elements.
    loop_simple: number,
    /// How many simple operations a transcendental one is.
    loop_transcendental: number,
    /// How many simple operations a conversion is.
    loop_convert: number,
    /// Cycles to reduce 1024 elements.
    loop_reduce: number,

    /// A single unfused instruction: cycles to start each window.
    single_start: number,
    /// Cycles to start the only window of a small one.
    single_first: number,
    /// Share of the main memory's bandwidth of one stream.
    single_stream: share,
    /// Bytes of operands and results up to which there is one window.
    single_limit: number,
    /// Cycles for each tile when every element has 32 bits.
    single_tile: number,
    /// Cycles for each tile otherwise.
    single_narrow_tile: number,

    /// A product or convolution: cycles to start the copies of its operands.
    matmul_operand_start: number,
    /// Cycles to finish the copies of its result.
    matmul_result_start: number,
    /// Cycles to fill and empty the matrix units.
    matmul_fill: number,
    /// What it reaches of the matrix units' rate.
    matmul_share: share,
    /// Share of the main memory's bandwidth for operands.
    matmul_operand_stream: share,
    /// Share of the main memory's bandwidth for results.
    matmul_result_stream: share,
    /// Cycles for each tile of a result that is not f32.
    matmul_narrow_tile: number,
    /// Cycles for each element-wise operation on 1024 elements that is fused with it.
    matmul_elementwise: number,
    /// Cycles for each tile of the result and each further window.
    matmul_accumulate: number,
    /// Cycles to convert 1024 elements of f32 operands.
    matmul_convert: number,

    /// Of a large product, whose windows are searched: cycles to start it.
    search_start: number,
    /// Share of the main memory's bandwidth.
    search_stream: share,
    /// Cycles for each tile of a result that is not f32.
    search_narrow_tile: number,
    /// Bytes of operands and results from which windows are searched.
    search_from: number,

    /// A copy to another layout: cycles to start it.
    relayout_start: number,
    /// Share of the main memory's bandwidth; both directions together.
    relayout_stream: rate,
    /// Cycles for each tile of the result.
    relayout_tile: number,
}
