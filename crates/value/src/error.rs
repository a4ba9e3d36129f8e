//! Why an operation could not be carried out. The interpreter adds where ([`ExecutionError::at`]).

use hloom_ir::diagnostic::{Blame, Code, Diagnostic, Part, codes};
use hloom_ir::entity::InstructionId;

/// Why an operation could not be carried out.
#[derive(Clone, Debug)]
pub struct ExecutionError(Box<Diagnostic>);

impl ExecutionError {
    /// A fault of the program.
    pub fn new(code: &'static Code, message: impl Into<String>) -> ExecutionError {
        ExecutionError(Box::new(Diagnostic::error(code, message)))
    }

    /// What a diagnostic says.
    pub fn from_diagnostic(diagnostic: Box<Diagnostic>) -> ExecutionError {
        ExecutionError(diagnostic)
    }

    /// Memory that cannot be had; `usize::MAX` stands for more than can be counted.
    pub fn out_of_memory(bytes: usize) -> ExecutionError {
        let message = match bytes {
            usize::MAX => "more bytes of memory than can be counted cannot be had".to_owned(),
            _ => format!("{bytes} bytes ({:.2} GiB) of memory cannot be had", bytes as f64 / (1u64 << 30) as f64),
        };
        ExecutionError(Box::new(Diagnostic::error(&codes::eval::OUT_OF_MEMORY, message).blame(Blame::Machine)))
    }

    /// A state that a verified module cannot lead to: a bug of ours.
    pub fn bug(message: impl Into<String>) -> ExecutionError {
        ExecutionError(Box::new(Diagnostic::error(&codes::eval::INTERNAL, message).blame(Blame::Hloom)))
    }

    /// What would be a bug of ours, were `what` checked before it runs, is a fault of the program.
    pub fn of_program(self, what: &str) -> ExecutionError {
        match self.0.blame {
            Blame::Hloom => {
                let message = format!("{what}: {}", self.0.message);
                ExecutionError::new(&codes::eval::CUSTOM_CALL_FAILED, message)
            }
            _ => self,
        }
    }

    /// The same with the fault elsewhere.
    pub fn blame(mut self, blame: Blame) -> ExecutionError {
        self.0.blame = blame;
        self
    }

    /// The same with one more fact.
    pub fn note(mut self, message: impl Into<String>) -> ExecutionError {
        *self.0 = self.0.note(message);
        self
    }

    /// The same with advice.
    pub fn help(mut self, message: impl Into<String>) -> ExecutionError {
        *self.0 = self.0.help(message);
        self
    }

    /// The diagnostic, at `instruction` unless it already has a place: the innermost instruction is where it happened.
    pub fn at(mut self, instruction: InstructionId) -> ExecutionError {
        if self.0.place == hloom_ir::diagnostic::Place::None {
            *self.0 = self.0.at_instruction(instruction, Part::Opcode);
        }
        self
    }

    /// What to show.
    pub fn into_diagnostic(self) -> Diagnostic {
        *self.0
    }

    /// What it is.
    pub fn diagnostic(&self) -> &Diagnostic {
        &self.0
    }
}
