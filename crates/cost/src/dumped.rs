//! What a compiler wrote into `backend_config`: its own estimate of an instruction's cycles, and the windows it chose.

use hloom_ir::instruction::Instruction;

/// The windows that a compiler cut an instruction into, in tiles of the array's layout.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct WindowConfig {
    /// Tiles of the result's window along each dimension.
    pub output: Vec<u64>,
    /// Tiles of the first operand's window.
    pub input: Vec<u64>,
    /// Tiles of the second operand's window.
    pub kernel: Vec<u64>,
    /// How many windows along each dimension.
    pub iterations: Vec<u64>,
}

impl WindowConfig {
    /// How many windows there are.
    pub fn count(&self) -> f64 {
        self.iterations.iter().map(|&n| n.max(1) as f64).product()
    }
}

/// The compiler's estimate of the instruction's cycles, where it carries one.
pub fn estimated_cycles(instruction: &Instruction) -> Option<u64> {
    number_after(config(instruction)?, "\"estimated_cycles\":")
}

/// The windows that the compiler chose, where it says so.
pub fn window_config(instruction: &Instruction) -> Option<WindowConfig> {
    let text = config(instruction)?.split_once("\"window_config\":")?.1;
    let iterations = list_after(text, "\"iteration_bounds\":")?;
    if iterations.is_empty() {
        return None;
    }
    let list = |key: &str| list_after(text, key).unwrap_or_default();
    Some(WindowConfig {
        output: list("\"output_window_bounds\":"),
        input: list("\"input_window_bounds\":"),
        kernel: list("\"kernel_window_bounds\":"),
        iterations,
    })
}

fn config(instruction: &Instruction) -> Option<&str> {
    std::str::from_utf8(instruction.common.backend_config.as_deref()?).ok()
}

/// The number after a key, in quotes or without.
fn number_after(text: &str, key: &str) -> Option<u64> {
    let rest = text.split_once(key)?.1.trim_start();
    let rest = rest.strip_prefix('"').unwrap_or(rest);
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// The list of numbers after a key: `["4","32"]`.
fn list_after(text: &str, key: &str) -> Option<Vec<u64>> {
    let rest = text.split_once(key)?.1.trim_start().strip_prefix('[')?;
    let inner = &rest[..rest.find(']')?];
    inner.split(',').map(|n| n.trim().trim_matches('"')).filter(|n| !n.is_empty()).map(|n| n.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_lists_are_found() {
        let text = r#"{"window_config":{"output_window_bounds":["4","32"],"estimated_cycles":"362528","iteration_bounds":["112","1"]}}"#;
        assert_eq!(number_after(text, "\"estimated_cycles\":"), Some(362_528));
        assert_eq!(list_after(text, "\"output_window_bounds\":"), Some(vec![4, 32]));
        assert_eq!(list_after(text, "\"kernel_window_bounds\":"), None);
        assert_eq!(number_after(r#"{"estimated_cycles":17}"#, "\"estimated_cycles\":"), Some(17));
        for damaged in [r#""iteration_bounds":["#, r#""iteration_bounds":[x]"#, r#""estimated_cycles":"#] {
            assert_eq!(
                (list_after(damaged, "\"iteration_bounds\":"), number_after(damaged, "\"estimated_cycles\":")),
                (None, None)
            );
        }
    }
}
