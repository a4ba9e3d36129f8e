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
    /// Bytes that all operands and results of a loop may have before it takes a second window.
    window_bytes: rate,
    /// Bytes of fast memory that the windows of one instruction may take.
    scoped_bytes: rate,
    /// Bytes of operands and results of a single unfused instruction up to which there is one window.
    single_limit: number,

    /// Share of the main memory's bandwidth that copies of windows reach, one after another.
    stream: share,
    /// How many times as fast a loop's operands come from fast memory.
    fast_stream: rate,
    /// Cycles to start copying an operand's window for a product.
    operand_start: number,
    /// Cycles to start copying a window back, and to start a window of a loop.
    window_start: number,
    /// Cycles for each window of a loop besides.
    window_step: number,

    /// Cycles for a simple operation on 1024 elements.
    simple: number,
    /// The same for elements of fewer than 32 bits.
    narrow: number,
    /// Cycles for an exponential, a root and the like on 1024 elements.
    transcendental: number,
    /// Cycles to convert 1024 elements.
    convert: number,
    /// Cycles to reduce 1024 elements that lie in registers.
    reduce: number,
    /// Cycles to bring 1024 elements to another place.
    displace: number,

    /// Cycles to fill and empty the matrix units, for each window.
    matmul_start: number,
    /// Rows that go through the matrix units in no less time than this many.
    matmul_rows: number,
    /// Cycles to load 1024 elements of the second operand into the matrix units, where they wait for it.
    matmul_weights: number,
    /// Cycles to add up 1024 elements of the result over the windows of what is summed.
    matmul_accumulate: number,
    /// How many operands of 8 bits the matrix units take at once for one of 16.
    matmul_bytes: number,
    /// Cycles to reduce 1024 elements beside a product.
    matmul_reduce: number,
    /// Cycles for a multiplication and addition on 1024 elements where each feature is by itself.
    matmul_tap: number,

    /// Cycles for each window of a transpose that moves the fastest dimension.
    transpose_start: number,
}
