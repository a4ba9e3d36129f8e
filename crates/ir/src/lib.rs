//! The HLO language: what a program is, in memory.
//!
//! HLO is the language in which XLA's front ends hand over tensor programs and in which its compilers think and dump.
//! A [`Module`] is a program: *computations*, of which one is the entry; a computation is a list of *instructions*, of
//! which one is the root, its result; an instruction applies an *operation* to the results of other instructions of the
//! same computation, and its result has a *shape*. There are no variables and no statements: an instruction is a value,
//! named once. Control flow is an operation like any other, which calls computations.
//!
//! ```
//! use hloom_ir::{Builder, ElementType, Module, Shape};
//!
//! let mut module = Module::new("example");
//! let mut b = Builder::new(&mut module, "main");
//! let x = b.parameter(0, Shape::array(ElementType::F32, [4]), "x")?;
//! let y = b.tanh(x)?;
//! let sum = b.add(x, y)?;
//! b.finish_entry(sum);
//! assert_eq!(module[x].users(), [y, sum]);
//! # Ok::<(), hloom_ir::infer::ShapeError>(())
//! ```
//!
//! # How a module is laid out
//!
//! **Arenas and ids.** All instructions of a module stand in one arena and all computations in another ([`entity`]);
//! everything refers to them by [`InstructionId`] and [`ComputationId`], which are `u32`s that cannot be confused with
//! each other. A module is therefore plain data: it can be cloned, sent to another thread, and walked without a borrow
//! of any part of it held. What an analysis knows of each instruction it keeps in a [`entity::SideTable`], a vector. An
//! id is never used again: what is removed leaves an empty slot behind.
//!
//! **Operations carry their attributes.** [`Op`] is an enum, and a variant has just the attributes its operation has
//! ([`op`], [`attributes`]), so that an instruction cannot hold an attribute that means nothing to it, and a `match`
//! sees all there is. [`Opcode`] is the same without the attributes, to count or name by. Operations on each element are
//! two variants, [`Op::Unary`] and [`Op::Binary`], since hardly any code tells them apart.
//!
//! **The common part.** What every instruction may have, whatever it does (where it came from, its sharding, a
//! compiler's configuration, control dependencies), stands beside the operation in [`instruction::Common`]; what few
//! have is boxed once more. An instruction of a large dump costs no more for what it lacks.
//!
//! **Shapes and layouts.** A [`Shape`] is the type of a value: an array of some [`ElementType`] with its dimensions, a
//! tuple, a token, an opaque value or a buffer. Arrays may be *dynamic*: a dimension then has a bound, or not even
//! that ([`ArrayShape::UNBOUNDED`]). A [`Layout`] says how an array lies in memory (the order of its dimensions, tiles,
//! the memory space) and is a part of the shape it belongs to, since dumps write it there; but it never changes what a
//! program computes, and every comparison says whether it looks at layouts. Sizes are whatever a file says, up to
//! `i64::MAX`: whatever multiplies them checks. Shapes are shared and cheap to clone. Constants hold their values as a
//! [`Literal`], row-major, whatever the layout.
//!
//! **Order is the schedule.** A computation lists its instructions, each after what it reads. In a scheduled module
//! ([`Module::is_scheduled`]) that list *is* the schedule: there is no second order that could disagree with it. In
//! others the order means nothing, and is kept so that a module prints as it was read.
//!
//! **Names** are unique among the instructions, and among the computations, of a module ([`names`]): a name that is
//! taken gets a number, by XLA's own rule. A dump's names, numbers, metadata and configurations are kept as they were:
//! reading a module and printing it loses nothing.
//!
//! # Reading and changing
//!
//! `module[id]` is an instruction or a computation; [`Module::root`], [`Module::parameters`],
//! [`instruction::Instruction::operands`] and [`instruction::Instruction::users`] lead from one to the next. Operation,
//! shape and common part may be changed in place ([`Module::instruction_mut`]); operands, names and lists only by the
//! methods of [`edit`], which keep users, names, roots and order consistent and each take time in proportion to what
//! they touch. New computations are written with the [`Builder`], which works out the shapes.
//!
//! What an operation makes of its operands is known in one place, [`infer`]: the builder asks it for shapes, the readers
//! where a file leaves one out, the verifier to compare.
//!
//! # Trust
//!
//! A [`Module`] says what a file said, be it wrong. [`verify::verify`] checks all of it and turns it into a
//! [`VerifiedModule`], which is what every later stage takes; a later stage may rely on what the verifier checked, and
//! returns an error where it cannot go on, but never panics. To change a verified module is to give up the proof and
//! to ask for it again.
//!
//! Whatever is wrong is a [`Diagnostic`]: a code that `hloom explain` tells about, a message with the names and shapes
//! at hand, and a place. Places are ids and parts of instructions, not positions in a text, since modules also come
//! from protos and builders; whoever read a text knows where its instructions are and finds the part again when there is
//! something to show. So the millions of instructions that are right carry no positions.
//!
//! # What is not here
//!
//! Reading and writing files is the business of `hloom-formats`; what holds of a module (dataflow, aliasing, live
//! ranges, cost) of `hloom-analysis`; running it of the evaluator and the runtime. There is no undo, no hook that runs
//! when something changes, and no reference counting: a pass that wants the module of before clones it. There are no
//! implicit conversions or broadcasts, as there are none in HLO. And there is no way to hold an instruction other than
//! by its id.

pub mod attributes;
pub mod builder;
pub mod collective;
pub mod device_list;
pub mod diagnostic;
pub mod display;
pub mod edit;
pub mod element_type;
pub mod elementwise;
pub mod entity;
pub mod infer;
pub mod instruction;
pub mod kernel_config;
pub mod laid_out;
pub mod layout;
pub mod literal;
pub mod metadata;
pub mod module;
pub mod names;
pub mod op;
pub mod opcode;
pub mod order;
pub mod shape;
pub mod sharding;
pub mod verify;

pub use builder::Builder;
pub use diagnostic::Diagnostic;
pub use element_type::ElementType;
pub use entity::{ComputationId, InstructionId};
pub use instruction::Instruction;
pub use layout::Layout;
pub use literal::Literal;
pub use module::{Computation, Module};
pub use op::Op;
pub use opcode::Opcode;
pub use shape::{ArrayShape, Shape};
pub use verify::VerifiedModule;
