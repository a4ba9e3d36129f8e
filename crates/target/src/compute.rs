//! What a device computes with: its clock, cores and lanes, its rates by element type, its caches, and what starting
//! work costs.
//!
//! Rates are operations a second of one device, all of its cores together. A peak is the data sheet's; what programs
//! reach of it is a share beside it, so that utilisation is counted against the peak and time against what is reached.

use crate::description::Target;
use crate::entries::{Wrong, at_least, each, number, rate, share, text, unknown};
use crate::text::{Entry, Table};
use hloom_ir::ElementType;
use hloom_ir::diagnostic::codes::plan::MISSING_RATE;
use hloom_ir::diagnostic::{Blame, Diagnostic};

/// What a device computes with. Absent numbers are not known.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Compute {
    /// Cycles a second.
    pub clock_hz: Option<f64>,
    /// Cores that share the work of one device: threads of a CPU, multiprocessors of a GPU, TensorCores of a TPU.
    pub cores: Option<i64>,
    /// Devices on one chip.
    pub devices_per_chip: i64,
    /// Bytes of a vector register.
    pub vector_bytes: Option<i64>,
    /// Elements of 32 bits that one vector instruction works on, of which a row is [`Compute::lanes`] long.
    pub lanes: Option<i64>,
    /// Rows of such a vector.
    pub sublanes: Option<i64>,
    /// Columns and rows of a matrix unit: contracted and output dimensions are filled up to it.
    pub matrix_unit: Option<i64>,
    /// The block of a product's result that one core computes at a time, where work is spread over cores by blocks.
    pub tile_rows: Option<i64>,
    /// See [`Compute::tile_rows`].
    pub tile_columns: Option<i64>,
    /// Seconds to start a kernel when the device is busy with the one before.
    pub launch_seconds: f64,
    /// The same inside of a loop, on a machine that compiles loops as a whole; as anywhere else, unless it is said.
    pub loop_launch_seconds: Option<f64>,
    /// Seconds until what a plain operation makes can be used by the next; not known where it is 0.
    pub operation_seconds: f64,
    /// Seconds to start a program.
    pub dispatch_seconds: f64,
    /// Seconds to hand a part of some work to another thread and hear that it is done.
    pub thread_seconds: f64,
    /// Bytes that must be in flight for the memory to be busy: smaller kernels do not reach its bandwidth.
    pub saturating_bytes: f64,
    /// The rates by element type.
    pub rates: Vec<Rate>,
    /// From the nearest to the farthest.
    pub caches: Vec<Cache>,
}

/// What a device does in a second with elements of one type.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rate {
    /// The type. `f8e4m3fn` stands for all f8 types, `f4e2m1fn` for f4 and f6.
    pub element_type: ElementType,
    /// Multiplications and additions of matrix products, at the precision that the machine uses by default.
    pub matmul: Option<f64>,
    /// What products reach of it.
    pub matmul_efficiency: f64,
    /// The same for products at the highest precision, where they are slower.
    pub matmul_highest: Option<f64>,
    /// Element-wise operations.
    pub vector: Option<f64>,
    /// Exponentials, logarithms, roots and the like.
    pub transcendental: Option<f64>,
}

/// A cache.
#[derive(Clone, PartialEq, Debug)]
pub struct Cache {
    /// 1 for the nearest.
    pub level: i64,
    /// Its size.
    pub bytes: i64,
    /// Whether all cores share it; otherwise each has one of that size.
    pub is_shared: bool,
    /// Bytes a second, all cores together.
    pub bandwidth: Option<f64>,
    /// Bytes of a line.
    pub line_bytes: i64,
}

impl Compute {
    /// Takes an entry of the description's head; says whether it is one of these.
    pub(crate) fn set(&mut self, entry: &Entry) -> Result<bool, String> {
        match entry.key.as_str() {
            "clock_hz" => self.clock_hz = Some(rate(entry)?),
            "cores" => self.cores = Some(at_least(entry, 1)?),
            "devices_per_chip" => self.devices_per_chip = at_least(entry, 1)?,
            "vector_bytes" => self.vector_bytes = Some(at_least(entry, 1)?),
            "lanes" => self.lanes = Some(at_least(entry, 1)?),
            "sublanes" => self.sublanes = Some(at_least(entry, 1)?),
            "matrix_unit" => self.matrix_unit = Some(at_least(entry, 1)?),
            "tile_rows" => self.tile_rows = Some(at_least(entry, 1)?),
            "tile_columns" => self.tile_columns = Some(at_least(entry, 1)?),
            "launch_us" => self.launch_seconds = number(entry)? * 1e-6,
            "loop_launch_us" => self.loop_launch_seconds = Some(number(entry)? * 1e-6),
            "operation_us" => self.operation_seconds = number(entry)? * 1e-6,
            "dispatch_us" => self.dispatch_seconds = number(entry)? * 1e-6,
            "thread_us" => self.thread_seconds = number(entry)? * 1e-6,
            "saturating_bytes" => self.saturating_bytes = number(entry)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(crate) fn add_rate(&mut self, table: &Table) -> Result<(), Wrong> {
        let mut element_type = None;
        let mut read = Rate {
            element_type: ElementType::F32,
            matmul: None,
            matmul_efficiency: 1.0,
            matmul_highest: None,
            vector: None,
            transcendental: None,
        };
        each(table, |entry| {
            match entry.key.as_str() {
                "type" => {
                    let name = text(entry)?;
                    let known = ElementType::from_name(name.as_bytes());
                    element_type = Some(known.ok_or_else(|| format!("there is no element type \"{name}\""))?);
                }
                "matmul" => read.matmul = Some(rate(entry)?),
                "matmul_efficiency" => read.matmul_efficiency = share(entry)?,
                "matmul_highest" => read.matmul_highest = Some(rate(entry)?),
                "vector" => read.vector = Some(rate(entry)?),
                "transcendental" => read.transcendental = Some(rate(entry)?),
                _ => return Err(unknown(entry, "of a rate")),
            }
            Ok(())
        })?;
        let Some(element_type) = element_type else { return Err((table.line, "a rate needs a `type`".into())) };
        if self.rates.iter().any(|r| r.element_type == element_type) {
            return Err((table.line, format!("the rate of {element_type} is given twice")));
        }
        self.rates.push(Rate { element_type, ..read });
        Ok(())
    }

    pub(crate) fn add_cache(&mut self, table: &Table) -> Result<(), Wrong> {
        let mut cache = Cache { level: 0, bytes: 0, is_shared: false, bandwidth: None, line_bytes: 64 };
        each(table, |entry| {
            match entry.key.as_str() {
                "level" => cache.level = at_least(entry, 1)?,
                "bytes" => cache.bytes = at_least(entry, 1)?,
                "shared" => cache.is_shared = crate::entries::flag(entry)?,
                "bandwidth" => cache.bandwidth = Some(rate(entry)?),
                "line_bytes" => cache.line_bytes = at_least(entry, 1)?,
                _ => return Err(unknown(entry, "of a cache")),
            }
            Ok(())
        })?;
        if cache.level == 0 || cache.bytes == 0 {
            return Err((table.line, "a cache needs a `level` and `bytes`".into()));
        }
        if self.caches.iter().any(|c| c.level == cache.level) {
            return Err((table.line, format!("the cache of level {} is described twice", cache.level)));
        }
        self.caches.push(cache);
        self.caches.sort_by_key(|c| c.level);
        Ok(())
    }

    /// The rate whose numbers count for elements of that type: its own, that of its family (f8, f6 and f4), that of the
    /// parts of a complex number, or, for integers without one, that of the next wider integer type.
    fn rate(&self, element_type: ElementType, has: impl Fn(&Rate) -> bool) -> Option<&Rate> {
        let mut wanted = Some(element_type);
        while let Some(of) = wanted {
            if let Some(rate) = self.rates.iter().find(|r| r.element_type == of && has(r)) {
                return Some(rate);
            }
            wanted = stands_for(of);
        }
        None
    }
}

/// The type whose rate counts for one that has none of its own.
fn stands_for(element_type: ElementType) -> Option<ElementType> {
    use ElementType::*;
    Some(match element_type {
        F8e5m2 | F8e4m3b11fnuz | F8e5m2fnuz | F8e4m3fnuz | F8e4m3 | F8e3m4 | F8e8m0fnu => F8e4m3fn,
        F6e3m2fn | F6e2m3fn => F4e2m1fn,
        F4e2m1fn => F8e4m3fn,
        F8e4m3fn => Bf16,
        F16 => Bf16,
        C64 => F32,
        C128 => F64,
        S1 | S2 | U1 | U2 | U4 => S4,
        S4 | Pred | U8 => S8,
        S8 | U16 => S16,
        S16 | U32 => S32,
        U64 => S64,
        _ => return None,
    })
}

impl Target {
    fn missing(&self, what: &str, key: &str) -> Diagnostic {
        Diagnostic::error(&MISSING_RATE, format!("the description of `{}` does not say {what}", self.name))
            .blame(Blame::Data)
            .help(format!("give it in a description of your own, or with `--set {key}=…`"))
    }

    /// Cycles a second.
    pub fn clock(&self) -> Result<f64, Diagnostic> {
        self.compute.clock_hz.ok_or_else(|| self.missing("how fast its clock is", "clock_hz"))
    }

    /// Bytes a second of a memory, by its data sheet.
    pub fn bandwidth(&self, memory_space: i64) -> Result<f64, Diagnostic> {
        let known = self.space(memory_space).and_then(|s| s.bandwidth);
        known.ok_or_else(|| {
            self.missing(
                &format!("the bandwidth of memory {memory_space}"),
                &format!("memory.{memory_space}.bandwidth"),
            )
        })
    }

    /// Bytes a second that programs reach of a memory.
    pub fn reached_bandwidth(&self, memory_space: i64) -> Result<f64, Diagnostic> {
        Ok(self.bandwidth(memory_space)? * self.space(memory_space).map_or(1.0, |s| s.efficiency))
    }

    /// Operations a second of products of such elements, by the data sheet; `highest` for those at the highest precision.
    pub fn matmul_rate(&self, element_type: ElementType, highest: bool) -> Result<f64, Diagnostic> {
        Ok(self.matmul(element_type, highest)?.0)
    }

    /// Operations a second that products of such elements reach.
    pub fn reached_matmul_rate(&self, element_type: ElementType, highest: bool) -> Result<f64, Diagnostic> {
        let (peak, efficiency) = self.matmul(element_type, highest)?;
        Ok(peak * efficiency)
    }

    fn matmul(&self, element_type: ElementType, highest: bool) -> Result<(f64, f64), Diagnostic> {
        let own = self.compute.rate(element_type, |r| r.matmul.is_some());
        let found = own.and_then(|r| {
            let peak = if highest { r.matmul_highest.or(r.matmul) } else { r.matmul };
            Some((peak?, r.matmul_efficiency))
        });
        // A machine without matrix units makes products as it makes everything else.
        let plain = || Some((self.compute.rate(element_type, |r| r.vector.is_some())?.vector? * 2.0, 1.0));
        found.or_else(plain).ok_or_else(|| {
            self.missing(
                &format!("how fast it multiplies matrices of {element_type}"),
                &format!("rate.{element_type}.matmul"),
            )
        })
    }

    /// Element-wise operations a second on such elements.
    pub fn vector_rate(&self, element_type: ElementType) -> Result<f64, Diagnostic> {
        let known = self.compute.rate(element_type, |r| r.vector.is_some()).and_then(|r| r.vector);
        known.ok_or_else(|| {
            let what = format!("how fast it computes with {element_type} element by element");
            self.missing(&what, &format!("rate.{element_type}.vector"))
        })
    }

    /// Exponentials and the like a second on such elements; an eighth of the element-wise rate where it is not said.
    pub fn transcendental_rate(&self, element_type: ElementType) -> Result<f64, Diagnostic> {
        let known = self.compute.rate(element_type, |r| r.transcendental.is_some()).and_then(|r| r.transcendental);
        match known {
            Some(rate) => Ok(rate),
            None => Ok(self.vector_rate(element_type)? / 8.0),
        }
    }
}
