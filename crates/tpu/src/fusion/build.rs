//! Fusions of groups: the computation of each, and the instruction that calls it.
//!
//! A body is written in post-order from its results, and its parameters are numbered as they come up. What is cheap is made
//! inside each body that reads it. What the members of a group were is left for a later removal of what nothing reads.

use crate::fusion::classify::{Role, Roles};
use hloom_ir::attributes::FusionKind;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::instruction::{Common, Operands};
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::op::{Fusion, Op};
use hloom_ir::shape::Shape;
use rustc_hash::{FxHashMap, FxHashSet};

/// Makes a fusion of `members` that results in `roots`, and puts it in the place of those.
pub(super) fn fuse(
    module: &mut Module,
    roles: &Roles,
    members: &FxHashSet<InstructionId>,
    roots: &[InstructionId],
    kind: FusionKind,
    name: &str,
) -> Option<InstructionId> {
    let &lead = roots.last()?;
    let home = module[lead].parent();
    let mut body = Body::new(module, "fused_computation");
    let mut results = Operands::new();
    for &root in roots {
        results.push(body.copy(module, roles, members, root));
    }
    let shape = match roots {
        [only] => module[*only].shape.clone(),
        many => Shape::tuple(many.iter().map(|&r| module[r].shape.clone())),
    };
    let root = match results.as_slice() {
        [only] => *only,
        _ => body.push(module, "tuple", Op::Tuple, shape.clone(), results),
    };
    module.set_root(root);
    if let Some(home_root) = module.root(home) {
        module.set_root(home_root);
    }
    // A product that is made again for a loop makes it run over the product's windows.
    let has_convolution =
        module[body.computation].instructions().iter().any(|&i| matches!(module[i].op, Op::Convolution(_)));
    let kind = if has_convolution { FusionKind::Output } else { kind };
    let op = Op::Fusion(Box::new(Fusion { kind, calls: body.computation, output_operand_aliasing: Vec::new() }));
    let common = Common { metadata: module[lead].common.metadata.clone(), ..Common::default() };
    let new = NewInstruction { name: name.into(), op, shape, operands: body.operands, common };
    let fusion = module.add_instruction(home, new);
    for (n, &root) in roots.iter().enumerate() {
        let value = match roots {
            [_] => fusion,
            _ => {
                let element = NewInstruction {
                    name: "get-tuple-element".into(),
                    op: Op::GetTupleElement { index: n as i64 },
                    shape: module[root].shape.clone(),
                    operands: Operands::from_slice(&[fusion]),
                    common: Common::default(),
                };
                module.add_instruction(home, element)
            }
        };
        module.replace_all_uses(root, value).ok()?;
    }
    Some(fusion)
}

/// A computation that is being written.
pub(crate) struct Body {
    pub(crate) computation: ComputationId,
    pub(crate) operands: Operands,
    copies: FxHashMap<InstructionId, InstructionId>,
}

impl Body {
    pub(crate) fn new(module: &mut Module, name: &str) -> Body {
        let computation = module.add_computation(name);
        Body { computation, operands: Operands::new(), copies: FxHashMap::default() }
    }

    pub(crate) fn push(
        &mut self,
        module: &mut Module,
        name: &str,
        op: Op,
        shape: Shape,
        operands: Operands,
    ) -> InstructionId {
        let new = NewInstruction { name: name.into(), op, shape, operands, common: Common::default() };
        module.add_instruction(self.computation, new)
    }

    /// A parameter of the body for a value of the caller.
    pub(crate) fn parameter(&mut self, module: &mut Module, value: InstructionId) -> InstructionId {
        if let Some(&known) = self.copies.get(&value) {
            return known;
        }
        let number = self.operands.len();
        let shape = module[value].shape.clone();
        let parameter = self.push(module, "param", Op::parameter(number as i64), shape, Operands::new());
        module.rename(parameter, &format!("param_{number}"));
        self.operands.push(value);
        self.copies.insert(value, parameter);
        parameter
    }

    /// The copy of `root`, with everything before it that belongs into the body.
    fn copy(
        &mut self,
        module: &mut Module,
        roles: &Roles,
        members: &FxHashSet<InstructionId>,
        root: InstructionId,
    ) -> InstructionId {
        let mut stack = vec![(root, false)];
        while let Some((i, is_ready)) = stack.pop() {
            if self.copies.contains_key(&i) {
                continue;
            }
            if !members.contains(&i) && roles.of(i) != Role::Cheap {
                self.parameter(module, i);
            } else if !is_ready {
                stack.push((i, true));
                stack.extend(module[i].operands().iter().rev().map(|&o| (o, false)));
            } else {
                let original = &module[i];
                let operands = original.operands().iter().filter_map(|o| self.copies.get(o).copied()).collect();
                let new = NewInstruction {
                    name: original.name().into(),
                    op: original.op.clone(),
                    shape: original.shape.clone(),
                    operands,
                    common: Common { metadata: original.common.metadata.clone(), ..Common::default() },
                };
                let copy = module.add_instruction(self.computation, new);
                self.copies.insert(i, copy);
            }
        }
        self.copies.get(&root).copied().unwrap_or(root)
    }
}

/// Makes a loop fusion of one operation on elements that nothing reads yet, and removes the operation.
pub(crate) fn fuse_alone(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let home = module[i].parent();
    let (op, shape) = (module[i].op.clone(), module[i].shape.clone());
    let common = Common { metadata: module[i].common.metadata.clone(), ..Common::default() };
    let operands: Operands = module[i].operands().into();
    let mut body = Body::new(module, "fused_computation");
    let inside = operands.iter().map(|&o| body.parameter(module, o)).collect();
    let opcode = op.opcode().name();
    let root = body.push(module, opcode, op, shape.clone(), inside);
    module.set_root(root);
    if let Some(home_root) = module.root(home) {
        module.set_root(home_root);
    }
    let calls = Fusion { kind: FusionKind::Loop, calls: body.computation, output_operand_aliasing: Vec::new() };
    let name = format!("{opcode}_fusion").replace('-', "_");
    let op = Op::Fusion(Box::new(calls));
    let new = NewInstruction { name: name.as_str().into(), op, shape, operands: body.operands, common };
    let fusion = module.add_instruction(home, new);
    module.remove_instructions(&[i]).ok()?;
    Some(fusion)
}

/// Makes a loop fusion of `root`, which is cheap, for one reader alone: others make it again.
pub(super) fn fuse_read(
    module: &mut Module,
    roles: &Roles,
    members: &FxHashSet<InstructionId>,
    root: InstructionId,
    (user, operand): (InstructionId, usize),
) -> Option<InstructionId> {
    let home = module[root].parent();
    let mut body = Body::new(module, "fused_computation");
    let result = body.copy(module, roles, members, root);
    module.set_root(result);
    if let Some(home_root) = module.root(home) {
        module.set_root(home_root);
    }
    let kind = FusionKind::Loop;
    let op = Op::Fusion(Box::new(Fusion { kind, calls: body.computation, output_operand_aliasing: Vec::new() }));
    let shape = module[root].shape.clone();
    let new = NewInstruction {
        name: "broadcast_fusion".into(),
        op,
        shape,
        operands: body.operands,
        common: Common::default(),
    };
    let fusion = module.add_instruction(home, new);
    module.replace_operand(user, operand, fusion).ok()?;
    Some(fusion)
}
