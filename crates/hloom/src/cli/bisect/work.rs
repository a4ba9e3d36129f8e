//! The folder in which a search keeps the best so far, so that it can be stopped and gone on with.
//!
//! `best.hlo` and `best.npz` are replaced whole, program and inputs under one number: whenever the search ends, by itself
//! or by force, the folder has a case that shows the fault. `state.json` names that number and what was asked.

use super::super::{Result, output};
use hloom::arrays;
use hloom::report::reduce::{Case, Progress};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// Where a search keeps what it has.
pub(super) struct WorkFolder {
    pub(super) path: PathBuf,
    /// What is asked of which program: another question does not go on with this one's answer.
    question: String,
    number: usize,
}

impl WorkFolder {
    /// The folder at `path`, made if it is not there.
    pub(super) fn new(path: &str, words: &str, original: &Case) -> Result<WorkFolder> {
        output::make_folder(path)?;
        let mut hasher = DefaultHasher::new();
        original.text().hash(&mut hasher);
        arrays::inputs_to_npz(&original.inputs).hash(&mut hasher);
        let question = format!("{words} {:016x}", hasher.finish());
        // Processes have their own folder to work in.
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| Path::new(path).to_owned());
        Ok(WorkFolder { path, question, number: 0 })
    }

    fn file(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    /// The best case of an earlier search that asked the same, if there is one; in words if it asked something else.
    pub(super) fn resume(&mut self) -> std::result::Result<Option<Case>, String> {
        let Ok(text) = std::fs::read_to_string(self.path.join("state.json")) else { return Ok(None) };
        let Ok(state) = serde_json::from_str::<serde_json::Value>(&text) else {
            return Err(format!("{} is damaged; take another folder", self.file("state.json")));
        };
        if state["question"] != self.question.as_str() {
            return Err(format!("the search in {} was for another program or question", self.path.display()));
        }
        let number = state["best"].as_u64().unwrap_or(0) as usize;
        let (program, input) = (self.file(&format!("best-{number}.hlo")), self.file(&format!("best-{number}.npz")));
        let case = || {
            let verified = hloom::load(&program, None).and_then(|l| l.verify(None)).ok()?;
            let devices = state["devices"].as_u64()? as usize;
            let inputs = arrays::read_inputs(verified.module.module(), devices, &std::fs::read(&input).ok()?)?;
            Some(Case { module: verified.module.into_module(), inputs })
        };
        self.number = number;
        case().map(Some).ok_or_else(|| format!("the best so far in {} cannot be read", self.path.display()))
    }

    /// Keeps a better case. The one before is removed only when this one is complete.
    pub(super) fn keep(&mut self, case: &Case, progress: Progress) -> Result<()> {
        let (old, new) = (self.number, self.number + 1);
        output::to_path(&self.file(&format!("best-{new}.hlo")), case.text().as_bytes())?;
        output::to_path(&self.file(&format!("best-{new}.npz")), &arrays::inputs_to_npz(&case.inputs))?;
        let state = serde_json::json!({
            "question": self.question,
            "best": new,
            "devices": case.inputs.len(),
            "instructions": case.module.instruction_count(),
            "tried": progress.tried,
        });
        output::to_path(&self.file("state.json"), format!("{state}\n").as_bytes())?;
        self.number = new;
        for name in [format!("best-{old}.hlo"), format!("best-{old}.npz")] {
            let _ = std::fs::remove_file(self.path.join(name));
        }
        Ok(())
    }
}
