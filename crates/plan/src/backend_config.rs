//! What a TPU compiler's `backend_config` tells of memory: which operands a result may be written over, and how it was
//! when memory was assigned.
//!
//! Code generation adds to it afterwards: windows, algorithms, retries, and which scoped memory was used. A configuration
//! that says nothing else was not there yet.

/// What code generation adds.
const ADDED: [&str; 4] =
    ["window_config", "collective_algorithm_config", "convolution_algorithm_config", "retry_config"];
/// Of this it fills in the contents.
const FILLED: &str = "used_scoped_memory_configs";

/// The configuration without what came later; empty where nothing is left. Text that is not a JSON object stays.
pub(crate) fn before_code_generation(config: &[u8]) -> Vec<u8> {
    let Some(members) = std::str::from_utf8(config).ok().and_then(members) else { return config.to_vec() };
    let mut kept: Vec<(&str, &str)> = Vec::new();
    let mut was_added = false;
    for (key, value) in members {
        match key {
            key if ADDED.contains(&key) => was_added = true,
            FILLED => {
                was_added |= value != "[]";
                kept.push((key, "[]"));
            }
            _ => kept.push((key, value)),
        }
    }
    if was_added && kept.iter().all(|(_, value)| matches!(*value, "[]" | "{}")) {
        return Vec::new();
    }
    let members: Vec<String> = kept.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
    format!("{{{}}}", members.join(",")).into_bytes()
}

/// What newer compilers say of an instruction with that many operands: which operand and which leaf of the result may lie
/// in the same place. `None` where nothing is said, an empty list where there are none.
pub(crate) fn shared_places(config: &[u8], operands: usize) -> Option<Vec<(usize, usize)>> {
    let find = |text, key| Some(members(text)?.into_iter().find(|(k, _)| *k == key)?.1);
    let lists = find(find(std::str::from_utf8(config).ok()?, "aliasing_operands")?, "lists")?;
    let mut places = Vec::new();
    for list in lists.split("\"indices\":[").skip(1) {
        let numbers: Vec<usize> =
            list.split(']').next()?.split(',').filter_map(|n| n.trim().trim_matches('"').parse().ok()).collect();
        let leaves = || numbers.iter().filter_map(|n| n.checked_sub(operands));
        places.extend(numbers.iter().filter(|&&n| n < operands).flat_map(|&o| leaves().map(move |leaf| (o, leaf))));
    }
    Some(places)
}

/// The members of a JSON object without white space between them, values as written; `None` if it is none.
fn members(text: &str) -> Option<Vec<(&str, &str)>> {
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut members = Vec::new();
    let (mut depth, mut quoted, mut escaped, mut start) = (0u32, false, false, 0);
    for (at, byte) in inner.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                members.push(member(inner.get(start..at)?)?);
                start = at + 1;
            }
            _ => {}
        }
    }
    if depth != 0 || quoted {
        return None;
    }
    if start < inner.len() {
        members.push(member(inner.get(start..)?)?);
    }
    Some(members)
}

fn member(text: &str) -> Option<(&str, &str)> {
    let (key, value) = text.trim().strip_prefix('"')?.split_once("\":")?;
    Some((key, value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before(config: &str) -> String {
        String::from_utf8(before_code_generation(config.as_bytes())).unwrap()
    }

    #[test]
    fn what_code_generation_adds_is_taken_away() {
        let config = r#"{"a":{"b":"},"},"window_config":{"x":["1"]},"used_scoped_memory_configs":[{"size":"4"}]}"#;
        assert_eq!(before(config), r#"{"a":{"b":"},"},"used_scoped_memory_configs":[]}"#);
        assert_eq!(before(r#"{"flag_configs":[],"window_config":{"x":["1"]},"used_scoped_memory_configs":[]}"#), "");
    }

    #[test]
    fn numbers_count_the_operands_and_then_the_leaves_of_the_result() {
        let places = |text: &str| shared_places(text.as_bytes(), 3);
        let some = r#"{"a":[],"aliasing_operands":{"lists":[{"indices":["0","3"]},{"indices":["1","2","5"]}]}}"#;
        assert_eq!(places(some), Some(vec![(0, 0), (1, 2), (2, 2)]));
        assert_eq!(places(r#"{"aliasing_operands":{"lists":[]}}"#), Some(vec![]));
        assert_eq!(places(r#"{"lists":[]}"#), None);
        assert_eq!(places("{"), None);
    }

    #[test]
    fn other_text_stays_as_it_is() {
        for text in ["plain", r#"{"a":1"#, r#"{"a":[}"#, r#"{"a":"1"}"#] {
            assert_eq!(before(text), text);
        }
    }
}
