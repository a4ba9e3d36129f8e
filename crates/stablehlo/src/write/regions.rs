//! Operations with regions: the computations they apply, written in place.

use super::{Val, Writer, Written};
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::op::Scan;
use hloom_ir::{Op, Shape};

impl Writer<'_> {
    /// `({ ^bb0(%a: T): … return … })`: a computation as a region whose block takes its parameters.
    pub(super) fn region(&mut self, id: InstructionId, computation: ComputationId) -> Written<()> {
        let m = self.m;
        let Some(root) = m.root(computation) else { return Err(self.refuse(id, "applying an empty computation")) };
        let mut arguments = Vec::new();
        for p in m.parameters(computation) {
            let value = self.fresh_for(&m[p].shape);
            let mut names = Vec::new();
            value.leaves(&mut names);
            for (name, (_, leaf)) in names.iter().zip(m[p].shape.leaves()) {
                arguments.push(format!("{name}: {}", self.ty(id, leaf)?));
            }
            self.values.insert(p, value);
        }
        if !arguments.is_empty() {
            let label = format!("^bb0({}):", arguments.join(", "));
            self.line(&label);
        }
        self.indent += 1;
        self.body(computation)?;
        self.give("stablehlo.return", root)?;
        self.indent -= 1;
        Ok(())
    }

    /// A statement in the generic form with regions.
    pub(super) fn with_regions(
        &mut self,
        id: InstructionId,
        name: &str,
        regions: &[ComputationId],
        attributes: Vec<String>,
    ) -> Written<Val> {
        let shape = self.m[id].shape.clone();
        let operands = self.operand_names(id)?.join(", ");
        let (value, results) = self.results(&shape);
        self.line(&format!("{results}\"{name}\"({operands}) ({{"));
        for (i, &region) in regions.iter().enumerate() {
            if i > 0 {
                self.line("}, {");
            }
            self.region(id, region)?;
        }
        let tail = self.tail(id, attributes, &shape)?;
        self.line(&format!("}}){tail}"));
        Ok(value)
    }

    /// ` {attributes} : FT loc(…)`.
    pub(super) fn tail(&self, id: InstructionId, mut attributes: Vec<String>, shape: &Shape) -> Written<String> {
        self.annotations(id, &mut attributes);
        let dictionary = if attributes.is_empty() { String::new() } else { format!(" {{{}}}", attributes.join(", ")) };
        Ok(format!("{dictionary} : {}{}", self.signature(id, shape)?, self.location(id)))
    }

    /// A loop over the parts of its state.
    pub(super) fn while_loop(
        &mut self,
        id: InstructionId,
        condition: ComputationId,
        body: ComputationId,
    ) -> Written<Val> {
        let m = self.m;
        let shape = m[id].shape.clone();
        let initial = self.operand_names(id)?;
        let types = self.operand_types(id)?;
        let (value, results) = self.results(&shape);
        let state = self.fresh_for(&shape);
        let mut names = Vec::new();
        state.leaves(&mut names);
        let pairs: Vec<String> = names.iter().zip(&initial).map(|(n, i)| format!("{n} = {i}")).collect();
        let colon = if types.is_empty() { String::new() } else { format!(" : {}", types.join(", ")) };
        self.line(&format!("{results}stablehlo.while({}){colon}", pairs.join(", ")));
        for (keyword, computation) in [("cond {", condition), ("} do {", body)] {
            self.line(keyword);
            let Some(root) = m.root(computation) else { return Err(self.refuse(id, "applying an empty computation")) };
            if let [p] = m.parameters(computation)[..] {
                self.values.insert(p, state.clone());
            }
            self.indent += 1;
            self.body(computation)?;
            self.give("stablehlo.return", root)?;
            self.indent -= 1;
        }
        self.line(&format!("}}{}", self.location(id)));
        Ok(value)
    }

    /// Branches see the arguments that HLO passes to them by name.
    pub(super) fn conditional(&mut self, id: InstructionId, branches: &[ComputationId]) -> Written<Val> {
        let m = self.m;
        let shape = m[id].shape.clone();
        let chooser = self.name(id, 0)?;
        let by_truth =
            m[id].operands().first().is_some_and(|&x| m[x].shape.element_type() == Some(hloom_ir::ElementType::Pred));
        let name = if by_truth { "stablehlo.if" } else { "stablehlo.case" };
        let (value, results) = self.results(&shape);
        self.line(&format!("{results}\"{name}\"({chooser}) ({{"));
        for (i, &branch) in branches.iter().enumerate() {
            if i > 0 {
                self.line("}, {");
            }
            let Some(root) = m.root(branch) else { return Err(self.refuse(id, "applying an empty computation")) };
            if let ([p], Some(&argument)) = (&m.parameters(branch)[..], m[id].operands().get(i + 1)) {
                let argument = self.value(argument)?;
                self.values.insert(*p, argument);
            }
            self.indent += 1;
            self.body(branch)?;
            self.give("stablehlo.return", root)?;
            self.indent -= 1;
        }
        let mut types = Vec::new();
        for (_, leaf) in shape.leaves() {
            types.push(self.ty(id, leaf)?);
        }
        let chooser_type = match m[id].operands().first() {
            Some(&x) => self.ty(id, &m[x].shape)?,
            None => return Err(self.refuse(id, "short of operands")),
        };
        self.line(&format!("}}) : ({chooser_type}) -> ({}){}", types.join(", "), self.location(id)));
        Ok(value)
    }

    /// A scan: the last operands are what it starts from.
    pub(super) fn scan(&mut self, id: InstructionId, scan: &Scan) -> Written<Val> {
        let shape = self.m[id].shape.clone();
        let operands = self.operand_names(id)?;
        let carries = usize::try_from(scan.num_carries).unwrap_or(usize::MAX);
        let Some(inputs) = operands.len().checked_sub(carries) else {
            return Err(self.refuse(id, "short of operands"));
        };
        let (inputs, initial) = operands.split_at(inputs);
        let (value, results) = self.results(&shape);
        let mut attributes = vec![format!("is_reverse = {}", scan.is_reverse)];
        attributes.extend(scan.is_associative.map(|a| format!("is_associative = {a}")));
        self.line(&format!(
            "{results}chlo.scan({}) inits ({}) dimension = {} attributes {{{}}} {{",
            inputs.join(", "),
            initial.join(", "),
            scan.dimension,
            attributes.join(", ")
        ));
        self.region(id, scan.to_apply)?;
        let signature = self.signature(id, &shape)?;
        self.line(&format!("}} : {signature}{}", self.location(id)));
        Ok(value)
    }

    /// A call of a computation as a function.
    pub(super) fn call(&mut self, id: InstructionId, computation: ComputationId) -> Written<Val> {
        let function = super::types::symbol(&self.function_name(computation));
        let shape = self.m[id].shape.clone();
        self.call_of(id, &function, &shape)
    }

    /// A call that gives `shape`, which for asynchronous operations is not that of the instruction.
    pub(super) fn call_of(&mut self, id: InstructionId, function: &str, shape: &Shape) -> Written<Val> {
        let operands = self.operand_names(id)?.join(", ");
        let (value, results) = self.results(shape);
        let mut attributes = Vec::new();
        if !matches!(self.m[id].op, Op::AsyncStart(_)) {
            self.annotations(id, &mut attributes);
        }
        let dictionary = if attributes.is_empty() { String::new() } else { format!(" {{{}}}", attributes.join(", ")) };
        let signature = self.signature(id, shape)?;
        self.line(&format!(
            "{results}func.call @{function}({operands}){dictionary} : {signature}{}",
            self.location(id)
        ));
        Ok(value)
    }
}
