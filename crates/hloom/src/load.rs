//! From a file to a module: which format it is in, reading it, verifying it.
//!
//! The source text stays beside the module, because a diagnostic is about both. A [`Rejected`] always holds at least one
//! error.

use hloom_formats::hlo_text::{self, SourceMap};
use hloom_formats::proto;
use hloom_ir::diagnostic::codes::io;
use hloom_ir::diagnostic::{Blame, Diagnostic, Place, Severity, Span};
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::infer::MixedPrecision;
use hloom_ir::module::Module;
use hloom_ir::verify::{self, Invalid, VerifiedModule, VerifyOptions};
use hloom_plan::dump::ASSIGNMENT_HEAD;
use hloom_stablehlo::{Translation, bytecode, read_bytecode, read_text};
use std::fmt;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// The formats of programs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Format {
    /// HLO text.
    HloText,
    /// An `HloProto`: the module as XLA dumps it.
    HloProto,
    /// A bare `HloModuleProto`.
    HloModuleProto,
    /// StableHLO as MLIR text.
    StableHlo,
    /// StableHLO as MLIR bytecode.
    StableHloBytecode,
}

impl Format {
    /// The format that a file of that name has by its ending, if it says.
    pub fn of_path(path: &str) -> Option<Format> {
        match Path::new(path).extension()?.to_str()? {
            "hlo" | "txt" => Some(Format::HloText),
            "pb" => Some(Format::HloProto),
            "mlir" => Some(Format::StableHlo),
            "mlirbc" | "bc" => Some(Format::StableHloBytecode),
            _ => None,
        }
    }

    /// The format that these bytes are most likely in.
    pub fn of_bytes(bytes: &[u8]) -> Format {
        if bytes.starts_with(bytecode::MAGIC) {
            return Format::StableHloBytecode;
        }
        if stablehlo_text(bytes) {
            return Format::StableHlo;
        }
        // A text with a stray control character in it is still a text: its reader says where that is.
        let start = bytes.trim_ascii_start();
        let is_text = [&b"HloModule"[..], b"ENTRY", b"//", b"/*"].iter().any(|prefix| start.starts_with(prefix));
        if !is_text && proto::detect(bytes) { Format::HloProto } else { Format::HloText }
    }
}

/// The bytes of a program and where they came from.
#[derive(Clone, Debug)]
pub struct Source {
    /// What to call it: a path, or `<stdin>`.
    pub name: String,
    /// The bytes.
    pub bytes: Arc<Vec<u8>>,
    /// The format they are in.
    pub format: Format,
    /// Where the parts of the module are in the text; empty for protos.
    pub positions: SourceMap,
}

impl Source {
    /// The bytes of the text that `place` means; `None` where there is no text to point at.
    pub fn resolve(&self, place: &Place) -> Option<Span> {
        match self.format {
            Format::HloText => self.positions.resolve(&self.bytes, place),
            Format::HloProto | Format::HloModuleProto | Format::StableHloBytecode => None,
            // The table has whole operations; their parts are not looked for.
            Format::StableHlo => match *place {
                Place::Span(span) => Some(span),
                Place::Instruction(id, _) => self.positions.instruction(id),
                _ => None,
            },
        }
    }
}

/// A module that was read.
#[derive(Debug)]
pub struct Loaded {
    /// Where it was read from.
    pub source: Source,
    /// The module.
    pub module: Module,
    /// Warnings.
    pub diagnostics: Vec<Diagnostic>,
}

/// A module that was read and verified.
#[derive(Debug)]
pub struct Verified {
    /// Where it was read from.
    pub source: Source,
    /// The module.
    pub module: VerifiedModule,
    /// Warnings.
    pub diagnostics: Vec<Diagnostic>,
}

/// A program that cannot be used.
#[derive(Debug)]
pub struct Rejected {
    /// Where it was read from.
    pub source: Source,
    /// The module, as far as there is one: diagnostics may speak of its instructions.
    pub module: Option<Box<Module>>,
    /// Why; at least one of them is an error.
    pub diagnostics: Vec<Diagnostic>,
}

/// Reads the program at `path` (`-` is standard input) in `format`, or in the one its content shows.
pub fn load(path: &str, format: Option<Format>) -> Result<Loaded, Box<Rejected>> {
    let bytes = read_bytes(path)?;
    load_bytes(display_name(path), bytes, format)
}

/// What to call the program at `path`.
pub fn display_name(path: &str) -> &str {
    if path == "-" { "<stdin>" } else { path }
}

/// The bytes at `path` (`-` is standard input).
pub fn read_bytes(path: &str) -> Result<Vec<u8>, Box<Rejected>> {
    let bytes = if path == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(crate::paths::to_path(path))
    };
    bytes.map_err(|error| {
        let name = display_name(path);
        let message = format!("cannot read `{name}`: {}", plain_reason(&error));
        let diagnostic = Diagnostic::error(&io::CANNOT_READ, message).blame(Blame::Data);
        reject(name, Arc::default(), Format::HloText, vec![diagnostic])
    })
}

/// Reads a program from memory; `name` is what diagnostics call it.
pub fn load_bytes(name: &str, bytes: impl Into<Arc<Vec<u8>>>, format: Option<Format>) -> Result<Loaded, Box<Rejected>> {
    load_watched(name, bytes.into(), format, &AtomicUsize::new(0))
}

/// The same; meanwhile another thread sees in `position` how many bytes were read, where the format lets one tell.
pub fn load_watched(
    name: &str,
    bytes: Arc<Vec<u8>>,
    format: Option<Format>,
    position: &AtomicUsize,
) -> Result<Loaded, Box<Rejected>> {
    let may_be_proto = format.is_none_or(|f| matches!(f, Format::HloProto | Format::HloModuleProto));
    let (bytes, format) = match may_be_proto && proto::is_text_form(&bytes) {
        true => match proto::from_text_form(&bytes) {
            Ok(binary) => (Arc::new(binary), Some(Format::HloProto)),
            // The place of the error is one in the text.
            Err(diagnostic) => return Err(reject(name, bytes, Format::HloText, vec![diagnostic])),
        },
        false => (bytes, format),
    };
    let format = format.unwrap_or_else(|| Format::of_bytes(&bytes));
    if bytes.iter().all(u8::is_ascii_whitespace) {
        let diagnostic = Diagnostic::error(&io::EMPTY_FILE, format!("`{name}` is empty: there is no module in it"));
        return Err(reject(name, bytes, format, vec![diagnostic]));
    }
    if format == Format::HloText && bytes.starts_with(ASSIGNMENT_HEAD.as_bytes()) {
        let message = format!("`{name}` is a buffer assignment, and no module");
        let help = "`hloom memory MODULE --check FILE` judges it beside the module that it is of";
        let diagnostic = Diagnostic::error(&io::NO_MODULE, message).blame(Blame::Data).help(help);
        return Err(reject(name, bytes, format, vec![diagnostic]));
    }
    let (module, positions, diagnostics) = match format {
        Format::HloText => {
            let result = hlo_text::read_watched(&bytes, position);
            (result.module, result.positions, result.diagnostics)
        }
        Format::HloProto | Format::HloModuleProto => {
            let (module, diagnostics) = match proto::read(&bytes) {
                Ok(module) => (Some(module), Vec::new()),
                Err(diagnostics) => (None, diagnostics),
            };
            (module, SourceMap::default(), diagnostics)
        }
        Format::StableHlo => translated(read_text(&bytes).and_then(|m| hloom_stablehlo::translate(&m))),
        Format::StableHloBytecode => translated(read_bytecode(&bytes).and_then(|m| hloom_stablehlo::translate(&m))),
    };
    let source = Source { name: name.to_owned(), bytes, format, positions };
    match module {
        Some(module) if !has_error(&diagnostics) => Ok(Loaded { source, module, diagnostics }),
        module => Err(Box::new(Rejected { source, module: module.map(Box::new), diagnostics })),
    }
}

/// What the translation of a program from StableHLO gives: the module and the places of its instructions.
fn translated(result: Result<Translation, Box<Diagnostic>>) -> (Option<Module>, SourceMap, Vec<Diagnostic>) {
    match result {
        Ok(Translation { module, spans }) => {
            let mut positions = SourceMap::default();
            for (i, span) in spans.into_iter().enumerate().filter(|(_, s)| *s != Span::default()) {
                positions.set_instruction(InstructionId::from_index(i), span);
            }
            (Some(module), positions, Vec::new())
        }
        Err(diagnostic) => (None, SourceMap::default(), vec![*diagnostic]),
    }
}

/// Reads and verifies a program in HLO text.
pub fn parse(text: &str) -> Result<VerifiedModule, Box<Rejected>> {
    Ok(load_bytes("<text>", text.as_bytes().to_vec(), Some(Format::HloText))?.verify(None)?.module)
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, diagnostic) in self.diagnostics.iter().enumerate() {
            let separator = if n > 0 { "\n" } else { "" };
            write!(f, "{separator}{}: {diagnostic}", self.source.name)?;
        }
        Ok(())
    }
}

impl std::error::Error for Rejected {}

impl Loaded {
    /// Verifies the module, for `devices` devices where that is known.
    pub fn verify(self, devices: Option<i64>) -> Result<Verified, Box<Rejected>> {
        self.verify_by(|module| verify::verify(module, &VerifyOptions { devices }))
    }

    /// The same; floating-point types are mixed nowhere, even if a compiler seems to have optimised the module.
    pub fn verify_strictly(self, devices: Option<i64>) -> Result<Verified, Box<Rejected>> {
        self.verify_by(|module| verify::verify_precision(module, &VerifyOptions { devices }, MixedPrecision::Refused))
    }

    fn verify_by(
        self,
        verify: impl FnOnce(Module) -> Result<VerifiedModule, Invalid>,
    ) -> Result<Verified, Box<Rejected>> {
        let Loaded { source, module, mut diagnostics } = self;
        match verify(module) {
            Ok(module) => {
                diagnostics.extend_from_slice(module.warnings());
                Ok(Verified { source, module, diagnostics })
            }
            Err(invalid) => {
                diagnostics.extend(invalid.diagnostics);
                Err(Box::new(Rejected { source, module: Some(invalid.module), diagnostics }))
            }
        }
    }
}

fn reject(name: &str, bytes: Arc<Vec<u8>>, format: Format, diagnostics: Vec<Diagnostic>) -> Box<Rejected> {
    let source = Source { name: name.to_owned(), bytes, format, positions: SourceMap::default() };
    Box::new(Rejected { source, module: None, diagnostics })
}

fn has_error(diagnostics: &[Diagnostic]) -> bool {
    diagnostics.iter().any(|d| d.severity == Severity::Error)
}

/// Whether these bytes look like MLIR text: what they begin with after white space and comments.
fn stablehlo_text(bytes: &[u8]) -> bool {
    let mut rest = bytes.trim_ascii_start();
    while rest.starts_with(b"//") {
        let end = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
        rest = rest[end..].trim_ascii_start();
    }
    let starts: [&[u8]; 11] = [
        b"module @",
        b"module {",
        b"module attributes",
        b"func.func",
        b"sdy.mesh",
        b"builtin.module",
        b"\"builtin.module\"",
        b"\"func.func\"",
        b"#",
        b"!",
        b"{-#",
    ];
    starts.iter().any(|start| rest.starts_with(start))
}

/// The operating system's reason for `error`, without its number.
pub fn plain_reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}
