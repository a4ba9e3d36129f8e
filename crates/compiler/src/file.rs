//! Compiled modules in files.
//!
//! A file holds the scheduled module with its code, and the source that it was made of. It is loaded without compiling
//! anything; one that was saved by another version or for another machine, or that is not as it was written, is refused
//! with the reason, and the source inside can be compiled anew.

use crate::backend::{Backend, signature};
use crate::compiled::CompiledModule;
use crate::error::CompileError;
use crate::options::CompileOptions;
use crate::report::CompileReport;
use hloom_analysis::devices::DeviceGrid;
use hloom_formats::proto::{self, Container};
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use serde::{Deserialize, Serialize};
use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;
use std::sync::Arc;

/// How every file begins.
pub const MAGIC: &[u8; 16] = b"hloom compiled\n\x01";

/// Why a file was not loaded.
#[derive(Debug)]
pub struct Refused {
    /// The reason.
    pub reason: String,
    /// The source, where the file has it whole: it can be compiled anew.
    pub source: Option<Box<VerifiedModule>>,
}

/// What is said before the modules and the code.
#[derive(Serialize, Deserialize)]
struct Header {
    backend: String,
    version: String,
    target: String,
    machine: Vec<String>,
    replicas: u64,
    partitions: u64,
    fill_constants: bool,
}

/// All of a file but its beginning.
#[derive(Serialize, Deserialize)]
struct Body<'b> {
    #[serde(borrow)]
    header: &'b [u8],
    #[serde(borrow)]
    source: &'b [u8],
    #[serde(borrow)]
    scheduled: &'b [u8],
    #[serde(borrow)]
    code: &'b [u8],
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// The file of a module that `backend` compiled from `source`.
pub fn save(
    backend: &dyn Backend,
    compiled: &CompiledModule,
    source: &VerifiedModule,
) -> Result<Vec<u8>, CompileError> {
    let failed = |found| CompileError::of_source("save", found);
    let header = Header {
        backend: backend.name().to_owned(),
        version: backend.version(),
        target: compiled.target.clone(),
        machine: backend.machine(),
        replicas: compiled.grid.replicas as u64,
        partitions: compiled.grid.partitions as u64,
        fill_constants: compiled.fill_constants,
    };
    let code = compiled.code.serialize();
    let code = code.ok_or_else(|| CompileError::bug("save", "the code of this backend cannot be saved"))?;
    let encode = |bytes: Result<Vec<u8>, postcard::Error>| bytes.map_err(|e| CompileError::bug("save", e.to_string()));
    let header = encode(postcard::to_stdvec(&header))?;
    let source = proto::write(source.module(), Container::Module).map_err(failed)?;
    let scheduled = proto::write(compiled.module.module(), Container::Module).map_err(failed)?;
    let body = Body { header: &header, source: &source, scheduled: &scheduled, code: &code };
    let body = encode(postcard::to_stdvec(&body))?;
    Ok([&MAGIC[..], &checksum(&body).to_le_bytes(), &body].concat())
}

/// Loads what [`save`] wrote.
pub fn load(backend: &dyn Backend, bytes: &[u8]) -> Result<CompiledModule, Refused> {
    let refused = |reason: &str| Refused { reason: reason.to_owned(), source: None };
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| refused("it is no compiled module, or of another format"))?;
    let (sum, body) = rest.split_first_chunk::<8>().ok_or_else(|| refused("it ends in its middle"))?;
    if u64::from_le_bytes(*sum) != checksum(body) {
        return Err(refused("it is not as it was written: it was cut short or changed"));
    }
    let body: Body<'_> = postcard::from_bytes(body).map_err(|_| refused("it is of another version"))?;
    let with_source = |reason: String| {
        let module = proto::read(body.source).ok();
        Refused { reason, source: module.and_then(|m| verify(m, &VerifyOptions::default()).ok()).map(Box::new) }
    };
    let header: Header = match postcard::from_bytes(body.header) {
        Ok(header) => header,
        Err(_) => return Err(with_source("it is of another version".into())),
    };
    let own = (backend.name(), backend.version());
    if (header.backend.as_str(), &header.version) != (own.0, &own.1) {
        let of = format!("{} {}", header.backend, header.version);
        return Err(with_source(format!("it is of another version: {of}, not {} {}", own.0, own.1)));
    }
    let here = backend.machine();
    if let Some(missing) = header.machine.iter().find(|f| !here.contains(f)) {
        return Err(with_source(format!("it is for another machine: this one has no {missing}")));
    }
    let compiled = restore(backend, &header, &body);
    compiled.map_err(|error| with_source(error.to_string()))
}

fn restore(backend: &dyn Backend, header: &Header, body: &Body<'_>) -> Result<CompiledModule, CompileError> {
    let failed = |found| CompileError::of_source("load", found);
    let scheduled = proto::read(body.scheduled).map_err(failed)?;
    let scheduled = verify(scheduled, &VerifyOptions::default()).map_err(|invalid| failed(invalid.diagnostics))?;
    let scheduled = Arc::new(scheduled);
    let count = |n: u64| usize::try_from(n).unwrap_or(1).max(1);
    let grid = DeviceGrid { replicas: count(header.replicas), partitions: count(header.partitions) };
    let options = CompileOptions { fill_constants: header.fill_constants, ..CompileOptions::new(grid) };
    let mut report = CompileReport::default();
    let code = backend.deserialize(&scheduled, &options, body.code, &mut report)?;
    let (parameters, results) = signature(scheduled.module());
    Ok(CompiledModule {
        backend: backend.name(),
        target: header.target.clone(),
        module: scheduled,
        grid,
        parameters,
        results,
        fill_constants: header.fill_constants,
        report,
        code,
    })
}

/// The source inside of a file, whatever it was compiled for.
pub fn source(bytes: &[u8]) -> Option<Box<VerifiedModule>> {
    let (_, body) = bytes.strip_prefix(MAGIC)?.split_first_chunk::<8>()?;
    let body: Body<'_> = postcard::from_bytes(body).ok()?;
    verify(proto::read(body.source).ok()?, &VerifyOptions::default()).ok().map(Box::new)
}
