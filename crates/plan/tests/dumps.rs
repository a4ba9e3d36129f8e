//! Dumps of XLA's own compilers, where there are any: a folder `shared` beside the checkout, or in `HLOOM_SHARED`.
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use hloom_formats::hlo_text;
use hloom_ir::layout::memory::{MemoryForm, element_bits};
use hloom_ir::shape::ArrayShape;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_plan::check::{Assignment, check};
use hloom_plan::dump::{Part, dump_a, dump_b};
use hloom_plan::dump_checker::check_dump;
use hloom_plan::plan;
use hloom_target::Target;
use std::fs;
use std::path::{Path, PathBuf};

/// A folder below `shared`; `None`, with a word about it, where there is none.
fn shared(name: &str) -> Option<PathBuf> {
    let named = std::env::var_os("HLOOM_SHARED").map(PathBuf::from);
    let ancestors = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|a| a.join("shared"));
    let found = named.into_iter().chain(ancestors).map(|s| s.join(name)).find(|f| f.is_dir());
    if found.is_none() {
        eprintln!("skipped: there is no {name} in a folder `shared` beside the checkout, nor in HLOOM_SHARED");
    }
    found
}

fn read(path: &Path) -> VerifiedModule {
    let result = hlo_text::read(&fs::read(path).expect("it can be read"));
    let module = result.module.expect("it is a module");
    verify(module, &VerifyOptions { devices: None }).unwrap_or_else(|e| panic!("{:?}", e.diagnostics))
}

/// The seed whose name begins with that number.
fn seed(folder: &Path, number: &str) -> PathBuf {
    let mut files = fs::read_dir(folder).expect("it can be listed").filter_map(|f| Some(f.ok()?.path()));
    files.find(|f| f.file_name().is_some_and(|n| n.to_string_lossy().starts_with(number))).expect("the seed is there")
}

/// Shows where two texts part.
fn first_difference(ours: &str, theirs: &str) -> String {
    let mut lines = ours.lines().zip(theirs.lines()).enumerate();
    match lines.find(|(_, (a, b))| a != b) {
        Some((n, (a, b))) => format!("line {}:\n  ours   {a}\n  theirs {b}", n + 1),
        None => format!("{} lines for {}", ours.lines().count(), theirs.lines().count()),
    }
}

/// The array of a dump's `value:` line, with the size that the dump gives it; `None` for tuples.
fn sized_array(line: &str) -> Option<(ArrayShape, i64)> {
    let (head, shape) = line.strip_prefix(" value: ")?.split_once("): ")?;
    let size = head.split_once("(size=")?.1.split(',').next()?.parse().ok()?;
    let text = format!("HloModule m\nENTRY e {{\n  ROOT p = {shape} parameter(0)\n}}\n");
    let module = hlo_text::read(text.as_bytes()).module.unwrap_or_else(|| panic!("{shape} is not read"));
    let root = module.root(module.entry()?)?;
    Some((module[root].shape.as_array()?.clone(), size))
}

#[test]
fn the_map_from_elements_to_memory_gives_the_sizes_of_the_founding_dumps() {
    let Some(seeds) = shared("seeds") else { return };
    for (number, least) in [("003", 40), ("004", 15)] {
        let text = fs::read_to_string(seed(&seeds, number)).unwrap();
        let mut compared = 0;
        for (array, size) in text.lines().filter_map(sized_array) {
            let form = MemoryForm::of(&array).unwrap_or_else(|| panic!("{array} has no memory"));
            let tiled = array.layout.as_ref().is_some_and(|l| !l.tiles.is_empty());
            let space = array.layout.as_ref().map_or(0, |l| l.memory_space);
            let bytes = match (tiled, space) {
                // Semaphores are four bytes, whatever their tiles.
                (_, 2) => 4,
                (false, 0 | 4) => (form.count * element_bits(&array) / 8 + 4095) / 4096 * 4096,
                _ => form.count * element_bits(&array) / 8,
            };
            assert_eq!(bytes, size, "{number}: {array}");
            compared += 1;
        }
        assert!(compared >= least, "{number}: only {compared} arrays");
    }
}

#[test]
fn the_replicated_seed_is_dumped_byte_for_byte() {
    let Some(seeds) = shared("seeds") else { return };
    let target = Target::named("tpu-v6e").unwrap();
    let module = read(&seed(&seeds, "000"));
    let ours = dump_a(&plan(&module, &target).unwrap(), &target);
    let theirs = fs::read_to_string(seed(&seeds, "004")).unwrap();
    assert!(ours == theirs, "{}", first_difference(&ours, &theirs));
    assert_eq!(check_dump(&module, &target, &theirs), []);
}

#[test]
fn the_partitioned_seed_is_dumped_but_for_the_order_of_two_uses() {
    let Some(seeds) = shared("seeds") else { return };
    let target = Target::named("tpu-v6e").unwrap();
    let module = read(&seed(&seeds, "001"));
    let ours = dump_a(&plan(&module, &target).unwrap(), &target);
    let theirs = fs::read_to_string(seed(&seeds, "003")).unwrap();
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (ours_lines, theirs_lines) = (lines(&ours), lines(&theirs));
    assert_eq!(ours_lines.len(), theirs_lines.len(), "{}", first_difference(&ours, &theirs));
    let other: Vec<(&String, &String)> = ours_lines.iter().zip(&theirs_lines).filter(|(a, b)| a != b).collect();
    // In which order two instructions came to use `param` is the compiler's history, which the text does not tell.
    assert_eq!(other.len(), 2, "{}", first_difference(&ours, &theirs));
    assert_eq!((other[0].0, other[1].0), (other[1].1, other[0].1));
    assert_eq!(check_dump(&module, &target, &theirs), []);
}

/// Allocations without what depends on the compiler's history: their order and the numbers of values.
fn allocations(text: &str) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = Vec::new();
    for line in text.lines().skip(1) {
        match line.strip_prefix("allocation ") {
            Some(head) => all.push(vec![head.split_once(": ").expect("it has a head").1.to_owned()]),
            None => {
                let value = line.split_once('<').and_then(|(_, v)| v.split_once(' ')).expect("it is a value");
                all.last_mut().expect("it has an allocation").push(value.1.to_owned());
            }
        }
    }
    all.iter_mut().for_each(|a| a[1..].sort());
    all.sort();
    all
}

#[test]
fn cpu_assignments_are_those_of_xla() {
    let Some(folder) = shared("corpus/cpu_ba") else { return };
    let target = Target::named("cpu").unwrap();
    let mut wrong = Vec::new();
    let (mut cases, mut exact, mut ranges, mut values) = (0, 0, 0, 0);
    let mut folders: Vec<PathBuf> =
        fs::read_dir(&folder).unwrap().map(|f| f.unwrap().path()).filter(|f| f.is_dir()).collect();
    folders.sort();
    for case in folders {
        cases += 1;
        let module = read(&case.join("module.hlo"));
        let plan = plan(&module, &target).unwrap();
        let theirs = |name: &str| fs::read_to_string(case.join(name)).unwrap();
        let ours = dump_b(&plan, &target, Part::Allocations);
        let assignment = theirs("assignment.txt");
        if allocations(&ours) != allocations(&assignment) {
            let (a, b) = (allocations(&ours), allocations(&assignment));
            let ours_only: Vec<_> = a.iter().filter(|x| !b.contains(x)).collect();
            let theirs_only: Vec<_> = b.iter().filter(|x| !a.contains(x)).collect();
            wrong.push(format!("{}\n ours {ours_only:#?}\n theirs {theirs_only:#?}", case.display()));
        }
        exact += usize::from(ours == assignment);
        assert_eq!(check(&module, &target, &Assignment::from(&plan)), [], "{}", case.display());
        for part in ["assignment.txt", "assignment-values.txt", "live-range.txt"] {
            assert_eq!(check_dump(&module, &target, &theirs(part)), [], "{}: {part}", case.display());
        }
        let live = dump_b(&plan, &target, Part::LiveRange);
        if live != theirs("live-range.txt") {
            eprintln!("{}: {}", case.display(), first_difference(&live, &theirs("live-range.txt")));
        } else {
            ranges += 1;
        }
        let used = dump_b(&plan, &target, Part::Values);
        if used != theirs("assignment-values.txt") {
            eprintln!("{}: {}", case.display(), first_difference(&used, &theirs("assignment-values.txt")));
        } else {
            values += 1;
        }
    }
    eprintln!("of {cases}: {exact} byte for byte, {ranges} live ranges, {values} lists of values");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
