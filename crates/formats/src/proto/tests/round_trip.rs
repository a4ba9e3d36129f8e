//! What is written is read back as it was.

use super::*;
use hloom_ir::attributes::*;
use hloom_ir::device_list::{AxisRef, IotaTransform, Mesh, MeshDevices, ReplicaGroups};
use hloom_ir::element_type::ElementType;
use hloom_ir::instruction::{OriginTree, OriginalArray, OriginalValue, Statistics};
use hloom_ir::layout::{Layout, SplitConfig, Tile};
use hloom_ir::literal::{ArrayLiteral, Literal};
use hloom_ir::metadata::{FileLocation, Metadata, StackFrame, StackFrames};
use hloom_ir::module::{BufferDonor, InputOutputAlias, OriginRecovery};
use hloom_ir::op::*;
use hloom_ir::opcode::Opcode;
use hloom_ir::shape::{ArrayShape, ProgramShape};
use hloom_ir::sharding::*;
use smallvec::smallvec;
use std::sync::Arc;

fn f32s(dims: &[i64]) -> Shape {
    ArrayShape::new(ElementType::F32, dims.iter().copied()).with_default_layout().into()
}

fn computation_named(module: &mut Module, name: &str) -> ComputationId {
    let c = module.add_computation(name);
    let p = add(module, c, "x", Op::parameter(0), &f32s(&[]), &[]);
    add(module, c, "y", Op::unary(UnaryOp::Negate), &f32s(&[]), &[p]);
    c
}

/// Every operation once, with attributes that are not the default ones. Nothing else about the module makes sense.
pub(super) fn every_operation() -> Module {
    let mut module = Module::new("every");
    let f = computation_named(&mut module, "f");
    let g = computation_named(&mut module, "g");
    let entry = module.add_computation("main");
    module.set_entry(entry);
    let shape = f32s(&[4, 2]);
    let p = add(&mut module, entry, "p", Op::Parameter { number: 0, replication: Some([true].into()) }, &shape, &[]);
    let arity = |op: &Op| op.opcode().arity().unwrap_or(2);
    for op in operations(f, g) {
        let operands = vec![p; arity(&op)];
        add(&mut module, entry, op.opcode().name(), op, &shape, &operands);
    }
    module
}

fn collective() -> Collective {
    Collective {
        channel_id: Some(3),
        replica_groups: ReplicaGroups::Iota { num_groups: 2, group_size: 4, devices: IotaTransform::identity(8) },
        constrain_layout: true,
        use_global_device_ids: true,
        mode: None,
    }
}

fn window() -> Window {
    let dim = WindowDim { stride: 2, padding_low: -1, padding_high: 3, ..WindowDim::of_size(3) };
    Window { dims: smallvec![dim, WindowDim { window_dilation: 4, base_dilation: 5, window_reversal: true, ..dim }] }
}

fn conv_dims() -> ConvDimensionNumbers {
    ConvDimensionNumbers {
        input_batch: 3,
        input_feature: 2,
        input_spatial: smallvec![0, 1],
        kernel_input_feature: 1,
        kernel_output_feature: 0,
        kernel_spatial: smallvec![2, 3],
        output_batch: 0,
        output_feature: 3,
        output_spatial: smallvec![1, 2],
    }
}

fn aliases() -> Vec<OutputOperandAlias> {
    vec![OutputOperandAlias { output_index: smallvec![0], operand: 1, operand_index: smallvec![2, 3] }]
}

fn operations(f: ComputationId, g: ComputationId) -> Vec<Op> {
    let dot_dims = DotDimensionNumbers {
        lhs_contracting: smallvec![1],
        rhs_contracting: smallvec![0],
        lhs_batch: smallvec![2],
        rhs_batch: smallvec![3],
    };
    let precision = PrecisionConfig {
        operand_precision: smallvec![Precision::High, Precision::Default],
        algorithm: DotAlgorithm::Bf16Bf16F32X3,
    };
    let dot = || Box::new(Dot { dims: dot_dims.clone(), precision: precision.clone() });
    // The literal of a custom call is under no shape but its own: all of its layout must be there.
    let mut tiled = Layout::descending(1);
    tiled.tiles = smallvec![Tile(smallvec![128])];
    tiled.memory_space = 1;
    let literal =
        Literal::Array(ArrayLiteral::new(ArrayShape::new(ElementType::U8, [3]).with_layout(tiled), [1, 2, 3]).unwrap());
    let all_reduce = || Box::new(AllReduce { collective: collective(), to_apply: f });
    let all_gather = || Box::new(AllGather { collective: collective(), dimension: 1 });
    let permute = || {
        Box::new(CollectivePermute {
            channel_id: Some(9),
            source_target_pairs: vec![(0, 1), (1, 0)],
            slice_sizes: Vec::new(),
        })
    };
    let transfer = || Transfer { channel_id: Some(4), is_host_transfer: true };
    let mut operations: Vec<Op> = UnaryOp::ALL.iter().map(|&op| Op::unary(op)).collect();
    operations.extend(BinaryOp::ALL.iter().map(|&op| Op::Binary(op)));
    operations.extend([
        Op::Unary { op: UnaryOp::Tan, accuracy: ResultAccuracy::Highest },
        Op::Unary {
            op: UnaryOp::Exponential,
            accuracy: ResultAccuracy::Tolerance { atol: 1.5f64.to_bits(), rtol: 0, ulps: 2 },
        },
        Op::constant(Literal::Array(
            ArrayLiteral::new(ArrayShape::new(ElementType::F32, [4, 2]).with_default_layout(), vec![7; 32]).unwrap(),
        )),
        Op::Constant(ConstantValue::Elided),
        Op::Iota { dimension: 1 },
        Op::ReplicaId,
        Op::PartitionId,
        Op::Compare { direction: ComparisonDirection::Ge, kind: Some(ComparisonType::TotalOrder) },
        Op::Select,
        Op::Clamp,
        Op::Convert,
        Op::BitcastConvert,
        Op::ReducePrecision { exponent_bits: 5, mantissa_bits: 10 },
        Op::StochasticConvert,
        Op::Map { to_apply: f, dimensions: smallvec![0, 1] },
        Op::Bitcast,
        Op::Copy,
        Op::Reshape { inferred_dimension: Some(1) },
        Op::DynamicReshape,
        Op::Broadcast { dimensions: smallvec![1, 0] },
        Op::Transpose { dimensions: smallvec![1, 0] },
        Op::Reverse { dimensions: smallvec![0] },
        Op::Concatenate { dimension: 1 },
        Op::Slice { dims: [SliceDim { start: 1, limit: 4, stride: 2 }].into() },
        Op::DynamicSlice { sizes: smallvec![2, 1] },
        Op::DynamicUpdateSlice,
        Op::Pad { padding: [PaddingDim { low: -1, high: 2, interior: 3 }].into() },
        Op::Gather(Box::new(Gather {
            dims: GatherDimensionNumbers {
                offset_dims: smallvec![1],
                collapsed_slice_dims: smallvec![0],
                start_index_map: smallvec![2],
                operand_batching_dims: smallvec![3],
                start_indices_batching_dims: smallvec![4],
                index_vector_dim: 5,
            },
            slice_sizes: smallvec![6, 7],
            indices_are_sorted: true,
        })),
        Op::Scatter(Box::new(Scatter {
            dims: ScatterDimensionNumbers {
                update_window_dims: smallvec![1],
                inserted_window_dims: smallvec![0],
                scatter_dims_to_operand_dims: smallvec![2],
                input_batching_dims: smallvec![3],
                scatter_indices_batching_dims: smallvec![4],
                index_vector_dim: 5,
            },
            indices_are_sorted: true,
            unique_indices: true,
            to_apply: g,
        })),
        Op::GetDimensionSize { dimension: 1 },
        Op::SetDimensionSize { dimension: 1 },
        Op::Dot(dot()),
        Op::ScaledDot(dot()),
        Op::RaggedDot(Box::new(RaggedDot {
            dims: dot_dims.clone(),
            lhs_ragged: smallvec![1],
            rhs_group: smallvec![2],
            precision: precision.clone(),
        })),
        Op::Convolution(Box::new(Convolution {
            window: window(),
            dims: conv_dims(),
            feature_group_count: 2,
            batch_group_count: 3,
            precision: precision.clone(),
            kind: ConvolutionKind::Dgrad,
            lhs_sparsity: Some(Sparsity { num_non_zero: 2, block_size: 4, dimension: 1, stride: 3, idx: 2 }),
            rhs_sparsity: None,
        })),
        Op::Reduce { dimensions: smallvec![0], to_apply: f },
        Op::ReduceWindow { window: Box::new(window()), to_apply: f },
        Op::SelectAndScatter { window: Box::new(window()), select: f, scatter: g },
        Op::Scan(Box::new(Scan {
            dimension: 1,
            num_carries: 1,
            is_reverse: true,
            is_associative: Some(false),
            to_apply: f,
        })),
        Op::Sort { dimension: 1, is_stable: true, to_apply: f },
        Op::TopK { k: 3, largest: true, is_stable: true },
        Op::Fft { kind: FftType::Irfft, length: smallvec![8] },
        Op::Cholesky { lower: true },
        Op::TriangularSolve { left_side: true, lower: true, unit_diagonal: true, transpose_a: TransposeA::Adjoint },
        Op::BatchNormTraining { epsilon: 0.5.into(), feature_index: 1 },
        Op::BatchNormInference { epsilon: (-0.0).into(), feature_index: 1 },
        Op::BatchNormGrad { epsilon: 0.125.into(), feature_index: 1 },
        Op::Rng { distribution: RngDistribution::Normal },
        Op::RngBitGenerator { algorithm: RngAlgorithm::Philox },
        Op::RngGetAndUpdateState { delta: 7 },
        Op::Tuple,
        Op::GetTupleElement { index: 2 },
        Op::AfterAll,
        Op::AddDependency,
        Op::OptBarrier,
        Op::Domain(Box::new(Domain {
            entry: Sharding::leaf(ShardingKind::Manual),
            exit: Sharding::leaf(ShardingKind::Maximal { device: 2 }),
        })),
        Op::While { condition: f, body: g },
        Op::Conditional { branches: smallvec![g, f, g] },
        Op::Call { to_apply: g, is_composite: true },
        Op::Fusion(Box::new(Fusion { kind: FusionKind::Custom, calls: f, output_operand_aliasing: aliases() })),
        Op::CustomCall(Box::new(CustomCall {
            window: Some(window()),
            conv_dims: Some(conv_dims()),
            feature_group_count: 2,
            batch_group_count: 3,
            operand_layouts: Some(vec![f32s(&[2]), Shape::Opaque]),
            has_side_effect: true,
            called_computations: vec![g, f],
            output_operand_aliasing: aliases(),
            padding_type: PaddingType::Same,
            literal: Some(Arc::new(literal)),
            precision: precision.clone(),
            schedule: CustomCallSchedule::Earliest,
            api_version: CustomCallApiVersion::TypedFfi,
            ..CustomCall::new("target")
        })),
        Op::AsyncStart(Box::new(AsyncStart {
            calls: f,
            execution_thread: Some("host".into()),
            output_operand_aliasing: aliases(),
        })),
        Op::AsyncUpdate { output_operand_aliasing: aliases() },
        Op::AsyncDone,
        Op::AllReduce(all_reduce()),
        Op::AllReduceStart(all_reduce()),
        Op::AllReduceDone,
        Op::AllGather(all_gather()),
        Op::AllGatherStart(all_gather()),
        Op::AllGatherDone,
        Op::ReduceScatter(Box::new(ReduceScatter { collective: collective(), dimension: 1, to_apply: f })),
        Op::CollectiveReduce(Box::new(CollectiveReduce {
            collective: collective(),
            has_dynamic_root: true,
            to_apply: f,
        })),
        Op::AllToAll { collective: Box::new(collective()), split_dimension: Some(1) },
        Op::RaggedAllToAll { collective: Box::new(collective()), split_dimension: None },
        Op::CollectiveBroadcast { collective: Box::new(collective()), has_dynamic_root: true },
        Op::CollectivePermute(permute()),
        Op::CollectivePermuteStart(permute()),
        Op::CollectivePermuteDone,
        Op::CopyStart { cross_program_prefetch_index: Some(0) },
        Op::CopyDone,
        Op::Send(transfer()),
        Op::SendDone(transfer()),
        Op::Recv(transfer()),
        Op::RecvDone(transfer()),
        Op::Infeed { config: b"in\0".as_slice().into() },
        Op::Outfeed { config: b"out\xff".as_slice().into(), shape: f32s(&[3]) },
    ]);
    operations
}

#[test]
fn every_operation_keeps_its_attributes() {
    let before = every_operation();
    let after = through_proto(&before);
    let instructions = |m: &Module| m[m.entry().unwrap()].instructions().to_vec();
    let (was, is) = (instructions(&before), instructions(&after));
    assert_eq!(was.len(), is.len());
    for (&was, &is) in was.iter().zip(&is) {
        assert_eq!(before[was].op, after[is].op);
        assert_eq!(before[was].shape, after[is].shape);
        assert_eq!(before[was].name(), after[is].name());
        assert_eq!(before[was].operands(), after[is].operands());
    }
    let covered: std::collections::BTreeSet<Opcode> = was.iter().map(|&i| before[i].opcode()).collect();
    assert_eq!(covered.len(), Opcode::ALL.len(), "an opcode is not tested");
    assert_eq!(text(&before), text(&after));
}

#[test]
fn every_element_type_keeps_its_values_in_any_layout() {
    let mut module = Module::new("literals");
    let entry = module.add_computation("main");
    module.set_entry(entry);
    for element_type in ElementType::ALL {
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let shape = ArrayShape::new(element_type, [2, 3, 4]).with_layout(Layout::new(order));
            // All bits that a value of the type may have, no two elements alike where it has enough of them.
            let bytes: Vec<u8> = match element_type {
                ElementType::Pred => (0..24).map(|i| i % 3 % 2).collect(),
                t if t.is_sub_byte() => (0..24u8)
                    .map(|i| match t.is_signed_integer() {
                        true => (((i << (8 - t.bits())) as i8) >> (8 - t.bits())) as u8,
                        false => i & ((1 << t.bits()) - 1),
                    })
                    .collect(),
                t => (0..24 * t.bytes()).map(|i| (i * 37 + 200) as u8).collect(),
            };
            let literal = Literal::Array(ArrayLiteral::new(shape.clone(), bytes).unwrap());
            add(&mut module, entry, "c", Op::constant(literal), &shape.into(), &[]);
        }
    }
    let tuple = Literal::Tuple(vec![
        Literal::Token,
        Literal::Tuple(vec![Literal::Array(
            ArrayLiteral::new(ArrayShape::new(ElementType::S16, []).with_default_layout(), [5, 1]).unwrap(),
        )]),
    ]);
    let shape = tuple.shape();
    add(&mut module, entry, "t", Op::constant(tuple), &shape, &[]);
    let after = through_proto(&module);
    for (&was, &is) in module[entry].instructions().iter().zip(after[after.entry().unwrap()].instructions()) {
        assert_eq!(module[was].op, after[is].op, "{}", module[was].shape);
    }
}

#[test]
fn elements_lie_in_the_order_of_the_layout() {
    let shape = ArrayShape::new(ElementType::U8, [2, 3]).with_layout(Layout::new([0, 1]));
    let literal = Literal::Array(ArrayLiteral::new(shape.clone(), [1, 2, 3, 4, 5, 6]).unwrap());
    let mut module = Module::new("m");
    let entry = module.add_computation("main");
    module.set_entry(entry);
    add(&mut module, entry, "c", Op::constant(literal), &shape.into(), &[]);
    let bytes = write(&module, Container::Module).unwrap();
    assert!(bytes.windows(8).any(|w| w == [0x1a, 6, 1, 4, 2, 5, 3, 6]), "u8s must be column by column");
}

#[test]
fn shapes_keep_every_part() {
    let mut rare = Layout::new([1, 0]);
    rare.tiles = smallvec![Tile(smallvec![8, Tile::COMBINE]), Tile(smallvec![2])];
    rare.memory_space = 5;
    rare.element_size_in_bits = 4;
    let parts = rare.rare_mut();
    parts.tail_padding_alignment_in_elements = 1024;
    parts.index_primitive_type = Some(ElementType::U32);
    parts.pointer_primitive_type = Some(ElementType::U64);
    parts.split_configs = vec![SplitConfig { dimension: 1, split_indices: vec![2, 3] }];
    parts.physical_shape = Some(f32s(&[7]));
    parts.dynamic_shape_metadata_prefix_bytes = 16;
    let laid = ArrayShape::new(ElementType::S4, [2, 3]).with_layout(rare);
    let dynamic = ArrayShape::with_dynamic(ElementType::F32, [ArrayShape::UNBOUNDED, 8, 3], [true, true, false]);
    let shape = Shape::tuple([
        laid.clone().into(),
        dynamic.into(),
        Shape::Token,
        Shape::Opaque,
        Shape::tuple([]),
        Shape::Buffer(Arc::new(laid)),
    ]);
    let mut module = Module::new("m");
    let entry = module.add_computation("main");
    module.set_entry(entry);
    add(&mut module, entry, "p", Op::parameter(0), &shape, &[]);
    let after = through_proto(&module);
    let p = after.instruction_by_name("p").unwrap();
    assert_eq!(after[p].shape, shape);
}

fn shardings() -> Vec<Sharding> {
    let mesh = |devices| Arc::new(Mesh { axes: vec![("x".into(), 2), ("y".into(), 4)], devices });
    let axis = |axis, sub_axis| AxisRef { axis, sub_axis };
    let iota = IotaTransform { reshape_dims: smallvec![2, 4], transpose_perm: smallvec![1, 0] };
    let named = |devices| {
        ShardingKind::Named(NamedSharding {
            mesh: mesh(devices),
            dims: vec![
                DimSharding { axes: vec![axis(0, None), axis(1, Some((1, 2)))], closed: true, priority: None },
                DimSharding { axes: Vec::new(), closed: false, priority: None },
            ],
            replicated: vec![axis(1, Some((2, 2)))],
            unreduced: Vec::new(),
            manual: Vec::new(),
            reduction: UnreducedReduction::Max,
        })
    };
    let tiled = |dims: &[i64], devices, subgroups| {
        ShardingKind::Tiled(TileAssignment { dims: dims.iter().copied().collect(), devices, subgroups })
    };
    let kinds = vec![
        ShardingKind::Replicated,
        ShardingKind::Manual,
        ShardingKind::Unknown,
        ShardingKind::Unreduced,
        ShardingKind::Maximal { device: 3 },
        tiled(&[2, 2], TileDevices::Explicit(vec![3, 1, 2, 0]), Subgroups::None),
        tiled(&[4, 2], TileDevices::Iota(iota.clone()), Subgroups::ReplicateLast),
        tiled(
            &[1, 2, 4],
            TileDevices::Iota(IotaTransform::identity(8)),
            Subgroups::Types(vec![SubgroupType::Manual, SubgroupType::Replicated]),
        ),
        named(MeshDevices::Iota),
        named(MeshDevices::Transformed(iota)),
        named(MeshDevices::Explicit(vec![7, 6, 5, 4, 3, 2, 1, 0])),
    ];
    let mut leaves: Vec<LeafSharding> = kinds.into_iter().map(Into::into).collect();
    leaves[0].group = Some(ShardGroup { id: 4, kind: ShardGroupKind::Like });
    leaves[5].metadata = vec![Metadata { op_name: "where".into(), ..Metadata::default() }];
    let mut all: Vec<Sharding> = leaves.iter().cloned().map(|l| Sharding::Leaf(Box::new(l))).collect();
    all.push(Sharding::Tuple(leaves));
    all
}

#[test]
fn shardings_keep_their_form() {
    for sharding in shardings() {
        let mut module = Module::new("m");
        let entry = module.add_computation("main");
        module.set_entry(entry);
        let p = add(&mut module, entry, "p", Op::parameter(0), &f32s(&[8, 8]), &[]);
        module.instruction_mut(p).common.sharding = Some(Arc::new(sharding.clone()));
        let after = through_proto(&module);
        let p = after.instruction_by_name("p").unwrap();
        assert_eq!(after[p].common.sharding.as_deref(), Some(&sharding));
    }
}

#[test]
fn one_sharding_of_a_tuple_is_that_of_each_leaf() {
    let mut module = Module::new("m");
    let entry = module.add_computation("main");
    module.set_entry(entry);
    let shape = Shape::tuple([f32s(&[2]), Shape::tuple([f32s(&[2]), f32s(&[2])])]);
    let p = add(&mut module, entry, "p", Op::parameter(0), &shape, &[]);
    module.instruction_mut(p).common.sharding = Some(Arc::new(Sharding::leaf(ShardingKind::Manual)));
    let after = through_proto(&module);
    let p = after.instruction_by_name("p").unwrap();
    let sharding = after[p].common.sharding.as_deref().unwrap();
    assert_eq!(sharding.leaves().len(), 3);
    assert!(matches!(sharding, Sharding::Tuple(_)));
}

#[test]
fn what_every_instruction_may_have_is_kept() {
    let mut module = Module::new("m");
    module.stack_frames = StackFrames {
        file_names: vec!["f.py".into()],
        function_names: vec!["main".into()],
        file_locations: vec![FileLocation {
            file_name_id: 1,
            function_name_id: 1,
            line: 3,
            end_line: 4,
            column: 5,
            end_column: 6,
        }],
        frames: vec![StackFrame { file_location_id: 1, parent_frame_id: 0 }],
    };
    let entry = module.add_computation("main");
    module.set_entry(entry);
    let p = add(&mut module, entry, "p", Op::parameter(0), &f32s(&[2]), &[]);
    let shape = Shape::tuple([f32s(&[2]), Shape::tuple([f32s(&[2]), f32s(&[2])])]);
    let q = add(&mut module, entry, "q", Op::Tuple, &shape, &[p]);
    let mut metadata = Metadata {
        op_type: "mul".into(),
        op_name: "jit(f)/mul".into(),
        source_file: "f.py".into(),
        source_line: 3,
        source_end_line: 4,
        source_column: 5,
        source_end_column: 6,
        stack_frame_id: 1,
        rare: None,
    };
    let rare = metadata.rare_mut();
    rare.deduplicated_name = "d".into();
    rare.scheduling_name = "s".into();
    rare.profile_types = vec![1, 4];
    rare.payload = Some([0, 255].into());
    let common = &mut module.instruction_mut(q).common;
    common.metadata = Some(Box::new(metadata));
    common.backend_config = Some(b"{\"a\":1}\xff".as_slice().into());
    let rare = common.rare_mut();
    rare.control_predecessors = vec![p];
    rare.frontend_attributes = [("k".into(), "v".into()), ("a".into(), String::new().into())].into();
    rare.statistics = Some(Statistics { visualizing_index: 1, values: vec![("s".into(), 0.5), ("t".into(), 1e300)] });
    let array = |name: &str| Some(OriginalArray { instruction_name: name.into(), index: smallvec![1] });
    rare.origin = Some(OriginalValue::Tree(OriginTree::Tuple(vec![
        OriginTree::Leaf(None),
        OriginTree::Tuple(vec![OriginTree::Leaf(array("a")), OriginTree::Leaf(array("b"))]),
    ])));
    let common = module.instruction_mut(p).common.rare_mut();
    common.origin = Some(OriginalValue::SyntheticCall);
    let after = through_proto(&module);
    for name in ["p", "q"] {
        let (was, is) = (module.instruction_by_name(name).unwrap(), after.instruction_by_name(name).unwrap());
        assert_eq!(module[was].common, after[is].common);
    }
    assert_eq!(module.stack_frames, after.stack_frames);
}

#[test]
fn the_header_is_kept() {
    let mut module = every_operation();
    let entry = module.entry().unwrap();
    let layout = ArrayShape::new(ElementType::F32, [4, 2]).with_layout(Layout::new([0, 1]));
    let config = &mut module.config;
    config.entry_layout = Some(ProgramShape { parameters: vec![layout.into()], result: f32s(&[4, 2]) });
    config.input_output_alias = vec![InputOutputAlias {
        output_index: smallvec![0, 1],
        parameter: 2,
        parameter_index: smallvec![3],
        kind: AliasKind::Must,
    }];
    config.buffer_donors = vec![BufferDonor { parameter: 1, parameter_index: smallvec![0] }];
    config.frontend_attributes = [("k".into(), "v".into())].into();
    let array = |name: &str| OriginalArray { instruction_name: name.into(), index: smallvec![2] };
    config.origin_recovery_table = vec![
        OriginRecovery { old: array("a"), new: array("b"), recovery: None },
        OriginRecovery { old: array("c"), new: array("d"), recovery: Some(Box::new(every_operation())) },
    ];
    module.computation_mut(entry).execution_thread = Some("other".into());
    let after = through_proto(&module);
    assert_eq!(module.config, after.config);
    assert_eq!(text(&module), text(&after));
    assert_eq!(after[after.entry().unwrap()].execution_thread.as_deref(), Some("other"));
}

#[test]
fn the_schedule_is_the_order() {
    let mut module = Module::new("m");
    let entry = module.add_computation("main");
    module.set_entry(entry);
    let p = add(&mut module, entry, "p", Op::parameter(0), &f32s(&[]), &[]);
    let root = add(&mut module, entry, "a", Op::unary(UnaryOp::Negate), &f32s(&[]), &[p]);
    add(&mut module, entry, "b", Op::unary(UnaryOp::Abs), &f32s(&[]), &[p]);
    module.set_root(root);
    module.is_scheduled = true;
    let after = through_proto(&module);
    assert!(after.is_scheduled);
    let main = after.entry().unwrap();
    let names: Vec<&str> = after[main].instructions().iter().map(|&i| after[i].name()).collect();
    assert_eq!(names, ["p", "a", "b"]);
    assert_eq!(after[after.root(main).unwrap()].name(), "a");
}

#[test]
fn what_is_used_is_written_first() {
    let mut module = Module::new("m");
    let entry = module.add_computation("main");
    module.set_entry(entry);
    let f = computation_named(&mut module, "f");
    let p = add(&mut module, entry, "p", Op::parameter(0), &f32s(&[]), &[]);
    let call = add(&mut module, entry, "call", Op::Call { to_apply: f, is_composite: false }, &f32s(&[]), &[p]);
    // An edit that leaves the user before what it uses.
    let late = add(&mut module, entry, "late", Op::unary(UnaryOp::Abs), &f32s(&[]), &[p]);
    module.replace_operand(call, 0, late).unwrap();
    module.set_root(call);
    let after = through_proto(&module);
    assert_eq!(text(&module), text(&after));
}

#[test]
fn what_no_one_could_read_is_not_written() {
    let mut shape = Shape::Token;
    for _ in 0..120 {
        shape = Shape::tuple([shape]);
    }
    let mut module = Module::new("m");
    let entry = module.add_computation("main");
    assert!(write(&module, Container::Module).is_err(), "there is no entry");
    module.set_entry(entry);
    assert!(write(&module, Container::Module).is_err(), "the entry is empty");
    add(&mut module, entry, "p", Op::parameter(0), &shape, &[]);
    let errors = write(&module, Container::Module).unwrap_err();
    assert!(errors[0].message.contains("nest too deeply in p"), "{}", errors[0]);
}
