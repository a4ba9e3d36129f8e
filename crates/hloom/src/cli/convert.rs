//! `hloom convert`: the same module in another format.

use super::args::ConvertArgs;
use super::{Outcome, Result, Stop, input, output, progress, usage_error};
use hloom::formats::hlo_text::{self, PrintOptions};
use hloom::formats::proto::{self, Container};
use hloom::{Format, Loaded};

pub(crate) fn run(args: &ConvertArgs) -> Result {
    let to = match args.to {
        Some(to) => to.into(),
        None => Format::of_path(&args.output).ok_or_else(|| {
            usage_error(&format!("`{}` does not say which format to write; name it with --to", args.output))
        })?,
    };
    let loaded = input::load(&args.input, args.from.map(Into::into))?;
    let bytes = {
        let _progress = progress::start(format!("converting {}", loaded.source.name));
        match to {
            Format::HloText => hlo_text::print(&loaded.module, &PrintOptions::default()).into_bytes(),
            Format::HloProto => write_proto(&loaded, Container::Proto)?,
            Format::HloModuleProto => write_proto(&loaded, Container::Module)?,
            Format::StableHlo => write_stablehlo(&loaded)?,
            Format::StableHloBytecode => {
                return Err(usage_error("StableHLO is written as text (.mlir) only"));
            }
        }
    };
    output::to_path(&args.output, &bytes)?;
    Ok(Outcome::Well)
}

fn write_stablehlo(loaded: &Loaded) -> Result<Vec<u8>> {
    hloom::stablehlo::from_hlo(&loaded.module).map(String::into_bytes).map_err(|diagnostic| {
        output::show(&loaded.source, Some(&loaded.module), &[*diagnostic]);
        Stop(Outcome::InputAtFault)
    })
}

fn write_proto(loaded: &Loaded, container: Container) -> Result<Vec<u8>> {
    proto::write(&loaded.module, container).map_err(|diagnostics| {
        output::show(&loaded.source, Some(&loaded.module), &diagnostics);
        Stop(Outcome::InputAtFault)
    })
}
