//! One instruction: name, shape, opcode, operands and the attributes that every instruction may have.
//!
//! An async-start of a computation that holds one operation only is written as that operation (`slice-start(…)`, with
//! its attributes), where reading the text gives the same computation again.

use super::Printer;
use super::escape::as_raw_braces;
use crate::hlo_text::read::{ident_end, is_ident_start};
use hloom_ir::display::ShapeStyle;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::instruction::{Common, FrontendAttributes, Instruction, OriginTree, OriginalValue, RareCommon};
use hloom_ir::op::{AsyncStart, ConstantValue, Op};
use hloom_ir::opcode::Opcode;

impl Printer<'_> {
    /// `%name = shape opcode(operands), attributes`.
    pub(super) fn instruction(&mut self, id: InstructionId) {
        let instruction = &self.module[id];
        self.out.push('%');
        self.text(instruction.name());
        self.text(" = ");
        instruction.shape.write(&mut self.out, ShapeStyle::FULL);
        self.out.push(' ');
        let wrapped = self.opcode(id);
        self.out.push('(');
        self.operands(instruction);
        self.out.push(')');
        self.attributes(instruction, wrapped);
    }

    /// The opcode as it is written, and the one operation of an async instruction's computation if it goes by that.
    pub(super) fn opcode(&mut self, id: InstructionId) -> Option<InstructionId> {
        let instruction = &self.module[id];
        let wrapped = self.wrapped_by(id);
        match wrapped {
            Some(wrapped) => {
                self.text(self.module[wrapped].opcode().name());
                self.text(match instruction.op {
                    Op::AsyncStart(_) => "-start",
                    Op::AsyncUpdate { .. } => "-update",
                    _ => "-done",
                });
            }
            None => self.text(instruction.opcode().name()),
        }
        wrapped
    }

    /// Everything after the operands.
    pub(super) fn attributes(&mut self, instruction: &Instruction, wrapped: Option<InstructionId>) {
        match &instruction.op {
            Op::AsyncStart(start) => self.async_start(start, wrapped, &instruction.common),
            _ => self.op_attributes(instruction),
        }
        self.common_attributes(instruction, &Common::default());
        self.origin_and_configs(&instruction.common);
    }

    pub(super) fn operands(&mut self, instruction: &Instruction) {
        match &instruction.op {
            Op::Parameter { number, .. } => self.int(*number),
            Op::Constant(value) => self.constant(value, instruction),
            _ => {
                for (i, &operand) in instruction.operands().iter().enumerate() {
                    self.separator(i);
                    if self.operand_shapes {
                        self.module[operand].shape.write(&mut self.out, ShapeStyle::FULL);
                        self.out.push(' ');
                    }
                    self.out.push('%');
                    self.text(self.module[operand].name());
                }
            }
        }
    }

    fn constant(&mut self, value: &ConstantValue, instruction: &Instruction) {
        const LARGE: i64 = 10;
        match value {
            ConstantValue::Literal(literal)
                if !self.options.elide_constants
                    || instruction.shape.as_array().is_some_and(|a| a.element_count().is_some_and(|n| n <= LARGE)) =>
            {
                self.literal(literal);
            }
            _ => self.text("{...}"),
        }
    }

    pub(super) fn async_start(&mut self, start: &AsyncStart, wrapped: Option<InstructionId>, common: &Common) {
        if let Some(thread) = &start.execution_thread {
            self.quoted(", async_execution_thread=", thread.as_bytes());
        }
        if let Some(wrapped) = wrapped {
            let wrapped = &self.module[wrapped];
            self.op_attributes(wrapped);
            self.common_attributes(wrapped, common);
        }
        self.output_operand_aliasing(&start.output_operand_aliasing);
        if wrapped.is_none() {
            self.computation_attribute(", calls=", start.calls);
        }
    }

    /// What follows the attributes of the opcode, up to and without `origin`, less what `besides` has too.
    pub(super) fn common_attributes(&mut self, instruction: &Instruction, besides: &Common) {
        let common = &instruction.common;
        if let Some(sharding) = common.sharding.as_ref().filter(|_| besides.sharding.is_none()) {
            self.text(", sharding=");
            self.sharding(sharding);
        }
        if let Some(rare) = &common.rare {
            self.rare_attributes(rare, besides.rare.as_deref());
        }
        if let Op::Unary { accuracy, .. } = &instruction.op {
            self.result_accuracy(*accuracy);
        }
    }

    fn rare_attributes(&mut self, rare: &RareCommon, besides: Option<&RareCommon>) {
        if !rare.frontend_attributes.is_empty() && besides.is_none_or(|b| b.frontend_attributes.is_empty()) {
            self.frontend_attributes(&rare.frontend_attributes);
        }
        if !rare.control_predecessors.is_empty() && self.canonical.is_none() {
            self.text(", control-predecessors={");
            for (i, &predecessor) in rare.control_predecessors.iter().enumerate() {
                self.comma(i);
                self.out.push('%');
                self.text(self.module[predecessor].name());
            }
            self.out.push('}');
        }
        if let Some(statistics) = rare.statistics.as_ref().filter(|s| !s.values.is_empty())
            && besides.is_none_or(|b| b.statistics.is_none())
        {
            self.int_attribute(", statistics={visualizing_index=", statistics.visualizing_index);
            for (name, value) in &statistics.values {
                self.out.push(',');
                self.key(name);
                self.attribute_f64(*value);
            }
            self.out.push('}');
        }
    }

    fn origin_and_configs(&mut self, common: &Common) {
        if let Some(origin) = common.rare.as_ref().and_then(|r| r.origin.as_ref()) {
            self.text(", origin={");
            match origin {
                OriginalValue::SyntheticCall => self.text("[synthetic_call]"),
                OriginalValue::Tree(tree) => self.origin_tree(tree),
            }
            self.out.push('}');
        }
        if let Some(metadata) =
            common.metadata.as_ref().filter(|m| !self.leave_out_metadata && self.is_worth_printing(m))
        {
            self.text(", metadata={");
            self.metadata(metadata);
            self.out.push('}');
        }
        let config = self.backend_config.or(common.backend_config.as_deref());
        if let Some(config) = config.filter(|c| !c.is_empty()) {
            match as_raw_braces(config) {
                Some(raw) => {
                    self.text(", backend_config=");
                    self.text(raw);
                }
                None => self.quoted(", backend_config=", config),
            }
        }
    }

    /// Nests as deep as the tuples of a shape do, which readers limit.
    fn origin_tree(&mut self, tree: &OriginTree) {
        match tree {
            OriginTree::Leaf(None) => self.text("{}"),
            OriginTree::Leaf(Some(array)) => {
                self.out.push('{');
                self.original_array(array);
                self.out.push('}');
            }
            OriginTree::Tuple(elements) => {
                self.out.push('(');
                for (i, element) in elements.iter().enumerate() {
                    self.comma(i);
                    self.origin_tree(element);
                }
                self.out.push(')');
            }
        }
    }

    pub(super) fn frontend_attributes(&mut self, attributes: &FrontendAttributes) {
        self.text(", frontend_attributes={");
        for (i, (name, value)) in attributes.iter().enumerate() {
            if i > 0 {
                self.out.push(',');
            }
            self.key(name);
            match as_raw_braces(value.as_bytes()) {
                Some(raw) => self.text(raw),
                None => self.quoted("", value.as_bytes()),
            }
        }
        self.out.push('}');
    }

    /// `name=`; a name that is not a word, as a proto may have it, is written as a string.
    fn key(&mut self, name: &str) {
        if name.bytes().next().is_some_and(is_ident_start) && ident_end(name.as_bytes(), 0) == name.len() {
            self.text(name);
        } else {
            self.quoted("", name.as_bytes());
        }
        self.out.push('=');
    }

    /// `, name=%computation`; `name` is given with its comma and equals sign.
    pub(super) fn computation_attribute(&mut self, name: &str, computation: ComputationId) {
        self.text(name);
        if self.canonical.is_some() {
            return self.canonical_body(computation);
        }
        self.out.push('%');
        self.text(self.module[computation].name());
    }

    /// The operation in whose form an async instruction is written, if it is one that can be.
    fn wrapped_by(&mut self, id: InstructionId) -> Option<InstructionId> {
        match self.module[id].op {
            Op::AsyncStart(_) => self.wrapped_instruction(id),
            Op::AsyncUpdate { .. } | Op::AsyncDone => {
                let start = self.async_start_of(id)?;
                self.wrapped_instruction(start)
            }
            _ => None,
        }
    }

    /// The async-start at the head of the chain that `id` belongs to.
    fn async_start_of(&mut self, id: InstructionId) -> Option<InstructionId> {
        let mut chain = Vec::new();
        let mut at = id;
        let start = loop {
            if let Some(&known) = self.async_starts.get(&at) {
                break known;
            }
            match (&self.module[at].op, self.module[at].operands()) {
                (Op::AsyncStart(_), _) => break Some(at),
                (Op::AsyncUpdate { .. } | Op::AsyncDone, &[operand, ..]) => {
                    // What is met again before it is known is a cycle, which leads to no start.
                    self.async_starts.insert(at, None);
                    chain.push(at);
                    at = operand;
                }
                _ => break None,
            }
        };
        for link in chain {
            self.async_starts.insert(link, start);
        }
        start
    }

    /// The one operation of the computation that the async-start `id` calls, if it is written without its body. XLA's
    /// dumps do so whenever all else in the computation is parameters, even where that says another thing: the
    /// operation must read the parameters in their order, have no async opcode of its own, and carry nothing more.
    pub(super) fn wrapped_instruction(&self, id: InstructionId) -> Option<InstructionId> {
        let module = self.module;
        let Op::AsyncStart(start) = &module[id].op else { return None };
        let root = module.root(start.calls)?;
        let all = module[start.calls].instructions();
        if self.options.elide_constants {
            let is_parameter = |&i: &InstructionId| matches!(module[i].op, Op::Parameter { .. });
            return (!is_parameter(&root) && all.iter().all(|i| *i == root || is_parameter(i))).then_some(root);
        }
        let instruction = &module[root];
        let operands = instruction.operands();
        let reads_parameters = all.len() == operands.len() + 1
            && operands
                .iter()
                .enumerate()
                .all(|(i, &operand)| matches!(module[operand].op, Op::Parameter { number, .. } if number == i as i64));
        let nothing_lost = reads_parameters
            && !has_async_form(instruction.opcode())
            && module[start.calls].execution_thread == start.execution_thread
            && says_no_more(&instruction.common, &module[id].common)
            && operands.iter().all(|&p| says_no_more(&module[p].common, &Common::default()));
        nothing_lost.then_some(root)
    }
}

/// Whether all that `inner` says is said by `outer` too.
fn says_no_more(inner: &Common, outer: &Common) -> bool {
    let (none, Common { metadata, sharding, backend_config, rare }) = (RareCommon::default(), outer);
    let (inner_rare, outer_rare) = (inner.rare.as_deref().unwrap_or(&none), rare.as_deref().unwrap_or(&none));
    (inner.metadata.is_none() || inner.metadata == *metadata)
        && (inner.sharding.is_none() || inner.sharding == *sharding)
        && (inner.backend_config.is_none() || inner.backend_config == *backend_config)
        && (inner_rare.frontend_attributes.is_empty()
            || inner_rare.frontend_attributes == outer_rare.frontend_attributes)
        && (inner_rare.statistics.is_none() || inner_rare.statistics == outer_rare.statistics)
        && (inner_rare.origin.is_none() || inner_rare.origin == outer_rare.origin)
}

/// Whether `-start` after its name is, or would be read as, another opcode.
fn has_async_form(opcode: Opcode) -> bool {
    use Opcode::*;
    matches!(
        opcode,
        AllGather
            | AllReduce
            | CollectivePermute
            | Copy
            | Send
            | Recv
            | AsyncStart
            | AsyncUpdate
            | AsyncDone
            | Parameter
            | Constant
    )
}
