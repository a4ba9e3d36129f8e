//! The values that options take: words that stand for one of several things.

use clap::ValueEnum;
use hloom::Engine;
use hloom::compiler::{Emit, ExcessPrecision};

/// The engines by their names on the command line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EngineParser;

impl clap::builder::TypedValueParser for EngineParser {
    type Value = Engine;
    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> std::result::Result<Engine, clap::Error> {
        let names = clap::builder::PossibleValuesParser::new(Engine::ALL.map(Engine::name));
        let name = names.parse_ref(command, argument, value)?;
        Ok(Engine::ALL.into_iter().find(|e| e.name() == name).unwrap_or_default())
    }
    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = clap::builder::PossibleValue> + '_>> {
        Some(Box::new(Engine::ALL.into_iter().map(|e| clap::builder::PossibleValue::new(e.name()))))
    }
}

/// Which bf16 values keep the digits of f32.
#[derive(Clone, Copy, PartialEq, Eq, Default, ValueEnum, Debug)]
pub(crate) enum ExcessPrecisionArg {
    /// None: every operation rounds
    Never,
    /// Those that the program converts to f32 at once, as in XLA; none where a compiler has scheduled it
    #[default]
    Converted,
    /// Those between operations of a chain of arithmetic
    Arithmetic,
}

impl From<ExcessPrecisionArg> for ExcessPrecision {
    fn from(which: ExcessPrecisionArg) -> ExcessPrecision {
        match which {
            ExcessPrecisionArg::Never => ExcessPrecision::Never,
            ExcessPrecisionArg::Converted => ExcessPrecision::Converted,
            ExcessPrecisionArg::Arithmetic => ExcessPrecision::Arithmetic,
        }
    }
}

/// How much time code is worth.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(crate) enum EffortArg {
    /// Little: the program is to run once
    Quick,
    /// What makes it fast
    Full,
    /// All that is known
    Best,
}

/// A stage by its name on the command line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EmitArg(pub(crate) Emit);

#[derive(Clone, Copy, Debug)]
pub(crate) struct EmitParser;

impl clap::builder::TypedValueParser for EmitParser {
    type Value = EmitArg;
    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> std::result::Result<EmitArg, clap::Error> {
        let names = clap::builder::PossibleValuesParser::new(Emit::ALL.map(Emit::name));
        let name = names.parse_ref(command, argument, value)?;
        Ok(EmitArg(Emit::ALL.into_iter().find(|e| e.name() == name).unwrap_or(Emit::Schedule)))
    }
    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = clap::builder::PossibleValue> + '_>> {
        Some(Box::new(Emit::ALL.into_iter().map(|e| clap::builder::PossibleValue::new(e.name()))))
    }
}

/// The formats by their names on the command line.
#[derive(Clone, Copy, ValueEnum, Debug)]
pub(crate) enum FormatArg {
    /// HLO text
    Hlo,
    /// HloProto, as XLA dumps it
    Pb,
    /// A bare HloModuleProto
    ModulePb,
    /// StableHLO text
    Mlir,
    /// StableHLO bytecode (read only)
    Mlirbc,
}

impl From<FormatArg> for hloom::Format {
    fn from(format: FormatArg) -> hloom::Format {
        match format {
            FormatArg::Hlo => hloom::Format::HloText,
            FormatArg::Pb => hloom::Format::HloProto,
            FormatArg::ModulePb => hloom::Format::HloModuleProto,
            FormatArg::Mlir => hloom::Format::StableHlo,
            FormatArg::Mlirbc => hloom::Format::StableHloBytecode,
        }
    }
}

/// Where cycles come from, by their names on the command line.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Default, Debug)]
pub(crate) enum CyclesArg {
    /// The cost model
    #[default]
    Model,
    /// What the compiler wrote into the dump
    Dump,
}

/// The schedulers by their names on the command line.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(crate) enum SchedulerArg {
    /// Keep as little memory live at once as can be found
    Memory,
    /// Any order that dependencies allow
    Topological,
}

/// The packers by their names on the command line.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(crate) enum PackerArg {
    /// As XLA's compilers do, byte for byte
    Reference,
    /// As small as is found in a few seconds, never larger than the reference
    Best,
}

/// The forms of dumps by their names on the command line.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(crate) enum DialectArg {
    /// One text with everything
    A,
    /// Three texts
    B,
}

/// The parts of a dump in dialect b.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(crate) enum PartArg {
    /// The allocations
    Allocations,
    /// The values that have a place
    Values,
    /// The schedule, the live ranges and the peak
    LiveRange,
}
