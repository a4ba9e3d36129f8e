//! An assignment as a page to look at: one file of HTML that needs nothing else and asks no network.
//!
//! The page's markup, style and script are files in `page/`; what they show is put in as JSON. Values are columns of
//! numbers, sorted by the step at which they begin, and each text is stored once: twenty thousand buffers are a few
//! megabytes. Nothing from the module can end the script or become markup: `<` never appears in the data.

use super::describe;
use super::report::Report;
use hloom::ir::entity::InstructionId;
use hloom::plan::Plan;
use hloom::plan::assign::{Allocation, Place};
use hloom::plan::live_range::plain_bytes;
use rustc_hash::FxHashMap;
use serde::Serialize;

const HTML: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = concat!(
    include_str!("page/model.js"),
    include_str!("page/draw.js"),
    include_str!("page/panel.js"),
    include_str!("page/main.js")
);

/// What the script reads. The names are those in `page/model.js`.
#[derive(Serialize)]
struct Data<'a> {
    module: &'a str,
    target: &'a str,
    total: i128,
    steps: u32,
    strings: Vec<String>,
    spaces: Vec<Space<'a>>,
    allocations: Allocations,
    instructions: Instructions,
    operands: Lists,
    values: Values,
    users: Lists,
    advice: Vec<Advice<'a>>,
}

#[derive(Serialize)]
struct Space<'a> {
    colour: i64,
    name: &'a str,
    capacity: Option<i64>,
    total: i128,
}

#[derive(Serialize)]
struct Advice<'a> {
    colour: i64,
    bytes: i128,
    value: Option<u32>,
    text: &'a str,
}

#[derive(Serialize, Default)]
struct Allocations {
    colour: Vec<i64>,
    size: Vec<i64>,
    kind: Vec<u8>,
    parameter: Vec<u32>,
}

/// Those of the schedule first, in its order, so that their numbers are steps.
#[derive(Serialize, Default)]
struct Instructions {
    name: Vec<u32>,
    opcode: Vec<u32>,
    computation: Vec<u32>,
    source: Vec<u32>,
    op_name: Vec<u32>,
}

#[derive(Serialize, Default)]
struct Values {
    id: Vec<u32>,
    instruction: Vec<u32>,
    index: Vec<u32>,
    shape: Vec<u32>,
    allocation: Vec<u32>,
    offset: Vec<i64>,
    size: Vec<i64>,
    data: Vec<i64>,
    start: Vec<i64>,
    end: Vec<i64>,
}

/// For each of many things a list of instructions, one after another.
#[derive(Serialize)]
struct Lists {
    from: Vec<usize>,
    items: Vec<u32>,
}

impl Lists {
    fn new() -> Lists {
        Lists { from: vec![0], items: Vec::new() }
    }

    fn push(&mut self, list: impl IntoIterator<Item = u32>) {
        let first = self.items.len();
        let mut seen = rustc_hash::FxHashSet::default();
        self.items.extend(list.into_iter().filter(|&i| seen.insert(i)));
        self.items[first..].sort_unstable();
        self.from.push(self.items.len());
    }
}

/// Each text once; number 0 is the empty one.
struct Strings {
    all: Vec<String>,
    number: FxHashMap<String, u32>,
}

impl Strings {
    fn new() -> Strings {
        Strings { all: vec![String::new()], number: FxHashMap::from_iter([(String::new(), 0)]) }
    }

    fn number(&mut self, text: &str) -> u32 {
        if let Some(&known) = self.number.get(text) {
            return known;
        }
        let number = self.all.len() as u32;
        self.all.push(text.to_owned());
        self.number.insert(text.to_owned(), number);
        number
    }
}

/// The numbers of instructions on the page.
struct Numbers<'p, 'm> {
    plan: &'p Plan<'m>,
    beyond: FxHashMap<InstructionId, u32>,
    all: Vec<InstructionId>,
}

impl Numbers<'_, '_> {
    fn of(&mut self, id: InstructionId) -> u32 {
        if let Some(time) = self.plan.schedule.time(id) {
            return time;
        }
        *self.beyond.entry(id).or_insert_with(|| {
            self.all.push(id);
            self.all.len() as u32 - 1
        })
    }
}

/// The whole page.
pub(super) fn to_html(report: &Report<'_, '_>) -> String {
    let data = serde_json::to_string(&data(report)).unwrap_or_default();
    let title = format!("{} · memory", report.plan.dataflow.module().name);
    let parts = [("title", escape(&title)), ("style", STYLE.into()), ("data", embed(&data)), ("script", SCRIPT.into())];
    let mut page = String::with_capacity(data.len() + HTML.len() + STYLE.len() + SCRIPT.len());
    let mut rest = HTML;
    // The marks are looked for in the page's own text only, never in what has been put in.
    for (mark, content) in parts {
        let (before, after) = rest.split_once(&format!("<!--{mark}-->")).unwrap_or((rest, ""));
        page.extend([before, &content]);
        rest = after;
    }
    page.push_str(rest);
    page
}

/// JSON as it can stand in a script element: nothing in it ends the element or begins a comment.
fn embed(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", character as u32)),
            other => out.push(other),
        }
    }
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The number of an allocation's kind, as in `page/model.js`.
fn kind(allocation: &Allocation) -> u8 {
    if allocation.parameter.is_some() {
        0
    } else if allocation.is_constant {
        1
    } else if allocation.is_thread_local {
        2
    } else if allocation.is_live_out {
        3
    } else {
        4
    }
}

fn data<'a>(report: &'a Report<'_, '_>) -> Data<'a> {
    let Report { plan, target, spaces, .. } = report;
    let module = plan.dataflow.module();
    let mut strings = Strings::new();
    let mut numbers = Numbers { plan, beyond: FxHashMap::default(), all: plan.schedule.sequence.clone() };
    let mut allocations = Allocations::default();
    let mut places: Vec<(i64, i64, u32, Place)> = Vec::new();
    for (number, allocation) in plan.allocations.iter().enumerate() {
        let parameter = allocation.parameter.and_then(|p| plan.dataflow.at(p));
        allocations.colour.push(allocation.colour);
        allocations.size.push(allocation.size);
        allocations.kind.push(kind(allocation));
        allocations.parameter.push(strings.number(&parameter.map_or(String::new(), |v| describe::label(plan, v))));
        places.extend(allocation.places.iter().map(|place| {
            let range = plan.live.of(place.value);
            let (start, end) = range.map_or((-1, -1), |r| (i64::from(r.start), i64::from(r.end)));
            (start, end, number as u32, *place)
        }));
    }
    places.sort_unstable();

    let (mut values, mut users) = (Values::default(), Lists::new());
    for (start, end, allocation, place) in places {
        let Some(value) = plan.dataflow.value(place.value) else { continue };
        let shape = plan.dataflow.positions.shape(value.position);
        values.id.push(place.value);
        values.instruction.push(numbers.of(plan.dataflow.instruction(value)));
        values.index.push(strings.number(&describe::index(plan, place.value)));
        values.shape.push(strings.number(&shape.to_string()));
        values.allocation.push(allocation);
        values.offset.push(place.offset);
        values.size.push(place.size);
        values.data.push(plain_bytes(shape).min(place.size));
        values.start.push(start);
        values.end.push(end);
        users.push(plan.dataflow.uses_of(place.value).iter().map(|u| numbers.of(u.user)));
    }

    let (mut instructions, mut operands) = (Instructions::default(), Lists::new());
    // Operands may bring in instructions that nothing has named so far: the list grows while it is gone through.
    let mut next = 0;
    while let Some(&id) = numbers.all.get(next) {
        next += 1;
        let instruction = &module[id];
        instructions.name.push(strings.number(instruction.name()));
        instructions.opcode.push(strings.number(instruction.opcode().name()));
        instructions.computation.push(strings.number(module[instruction.parent()].name()));
        instructions.source.push(strings.number(&describe::source_line(module, id)));
        instructions.op_name.push(strings.number(describe::op_name(module, id)));
        operands.push(instruction.operands().iter().map(|&o| numbers.of(o)));
    }
    debug_assert_eq!(instructions.name.len(), plan.schedule.sequence.len() + numbers.beyond.len());

    Data {
        module: &module.name,
        target: &target.name,
        total: plan.total_bytes(),
        steps: plan.schedule.end(),
        strings: strings.all,
        spaces: spaces
            .iter()
            .map(|s| Space { colour: s.colour, name: &s.name, capacity: s.capacity, total: s.total })
            .collect(),
        allocations,
        instructions,
        operands,
        values,
        users,
        advice: report
            .advice
            .iter()
            .map(|a| Advice { colour: a.colour, bytes: a.bytes, value: a.value, text: &a.text })
            .collect(),
    }
}
