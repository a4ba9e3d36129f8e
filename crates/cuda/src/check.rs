//! What of a GPU and its libraries works: each driver feature and library called alone, with its numbers checked.
//!
//! For a machine on which programs fail: the first check that fails says what to look at. See the example `device_check`.

use crate::conditional::{Kind, Test};
use crate::cublaslt::PreparedGemm;
use crate::driver::{DevicePointer, Driver, Handle};
use crate::gemm::{BatchDim, ComputeType, Gemm, GemmTypes, Matrix};
use crate::gpu::{Event, Gpu, Patience};
use crate::graph;
use crate::library::Library;
use crate::memory::Block;
use hloom_cuda_kernels::Architecture;
use hloom_ir::element_type::ElementType;
use hloom_value::ExecutionError;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Adds one to each of so many 32-bit numbers.
const ADD_ONE: &str = ".version 8.3
.target sm_80
.address_size 64

.visible .entry add_one(
	.param .u64 array,
	.param .u32 count
)
{
	.reg .pred %p1;
	.reg .b32 %r<8>;
	.reg .b64 %d<4>;
	ld.param.u64 %d0, [array];
	ld.param.u32 %r0, [count];
	mov.u32 %r1, %ctaid.x;
	mov.u32 %r2, %ntid.x;
	mov.u32 %r3, %tid.x;
	mad.lo.s32 %r4, %r1, %r2, %r3;
	setp.ge.u32 %p1, %r4, %r0;
	@%p1 bra done;
	cvta.to.global.u64 %d1, %d0;
	mul.wide.u32 %d2, %r4, 4;
	add.s64 %d3, %d1, %d2;
	ld.global.u32 %r5, [%d3];
	add.s32 %r6, %r5, 1;
	st.global.u32 [%d3], %r6;
done:
	ret;
}

.visible .entry at_most(
	.param .u64 array,
	.param .u64 truth,
	.param .u32 limit
)
{
	.reg .pred %p1;
	.reg .b32 %r<4>;
	.reg .b64 %d<4>;
	ld.param.u64 %d0, [array];
	ld.param.u64 %d1, [truth];
	ld.param.u32 %r0, [limit];
	cvta.to.global.u64 %d2, %d0;
	cvta.to.global.u64 %d3, %d1;
	ld.global.u32 %r1, [%d2];
	setp.lt.u32 %p1, %r1, %r0;
	selp.u32 %r2, 1, 0, %p1;
	st.global.u8 [%d3], %r2;
	ret;
}
";

/// What a check found.
pub type Finding = Result<String, String>;

/// Runs all checks, and tells what each found.
pub fn run(tell: &mut dyn FnMut(&str, Finding)) {
    let words = |error: ExecutionError| {
        let diagnostic = error.into_diagnostic();
        let notes: Vec<&str> = diagnostic.notes.iter().map(|n| n.message.as_str()).collect();
        format!("{} ({})", diagnostic.message, notes.join("; "))
    };
    for (name, files) in LIBRARIES {
        tell(&format!("open {name}"), Library::open(name, files).map(|l| l.path).map_err(words));
    }
    let begun = Instant::now();
    let gpu = match Driver::open().and_then(|driver| Gpu::open(driver, 0, Arc::default())) {
        Ok(gpu) => Arc::new(gpu),
        Err(error) => return tell("open the GPU", Err(words(error))),
    };
    tell("open the GPU", Ok(format!("{:?} in {:?}", gpu.description, begun.elapsed())));
    for (name, check) in CHECKS {
        let begun = Instant::now();
        let finding = check(&gpu).map(|found| format!("{found} [{:.1?}]", begun.elapsed()));
        tell(name, finding.map_err(words));
    }
}

/// The libraries that programs may need.
const LIBRARIES: [(&str, &[&str]); 9] = [
    ("the driver", &["libcuda.so.1"]),
    ("nvJitLink", &["libnvJitLink.so.13", "libnvJitLink.so.12"]),
    ("cuBLASLt", &["libcublasLt.so.13", "libcublasLt.so.12"]),
    ("cuBLAS", &["libcublas.so.13", "libcublas.so.12"]),
    ("cuDNN", &["libcudnn.so.9"]),
    ("cuFFT", &["libcufft.so.12", "libcufft.so.11"]),
    ("cuSOLVER", &["libcusolver.so.12", "libcusolver.so.11"]),
    ("NCCL", &["libnccl.so.2"]),
    ("CUPTI", &["libcupti.so.13", "libcupti.so.12"]),
];

type Check = fn(&Arc<Gpu>) -> Result<String, ExecutionError>;

const CHECKS: [(&str, Check); 8] = [
    ("copies", copies),
    ("PTX by the driver", by_driver),
    ("PTX by nvJitLink", by_nvjitlink),
    ("PTX by nvJitLink on all cores", in_parallel),
    ("graphs", graphs),
    ("conditional nodes", conditional_nodes),
    ("products", products),
    ("speed of products", speed_of_products),
];

fn wrong(what: impl Into<String>) -> ExecutionError {
    ExecutionError::bug(what)
}

fn copies(gpu: &Arc<Gpu>) -> Result<String, ExecutionError> {
    let bytes: Vec<u8> = (0..100_000_007usize).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let (a, b) = (Block::new(gpu, bytes.len())?, Block::new(gpu, bytes.len())?);
    let _enqueue = gpu.lock()?;
    let begun = Instant::now();
    gpu.upload(a.address(), &bytes)?;
    let up = begun.elapsed();
    gpu.copy(b.address(), a.address(), bytes.len())?;
    let mut back = vec![0u8; bytes.len()];
    let begun = Instant::now();
    gpu.download(&mut back, b.address())?;
    let down = begun.elapsed();
    if back != bytes {
        return Err(wrong("other bytes come back"));
    }
    let large = 1usize << 30;
    let (x, y) = (Block::new(gpu, large)?, Block::new(gpu, large)?);
    let time = timed(gpu, 10, &mut || gpu.copy(y.address(), x.address(), large))?;
    let rate = |bytes: usize, time: Duration| bytes as f64 / time.as_secs_f64() / 1e9;
    Ok(format!(
        "up {:.1} GB/s, down {:.1} GB/s, on the device {:.0} GB/s",
        rate(bytes.len(), up),
        rate(bytes.len(), down),
        rate(2 * large, time)
    ))
}

/// The time of one of `count` times that `enqueue` is done, after one to warm up.
fn timed(
    gpu: &Gpu,
    count: u32,
    enqueue: &mut dyn FnMut() -> Result<(), ExecutionError>,
) -> Result<Duration, ExecutionError> {
    enqueue()?;
    let (begin, end) = (Event::new(gpu, true)?, Event::new(gpu, true)?);
    begin.record()?;
    for _ in 0..count {
        enqueue()?;
    }
    end.record()?;
    gpu.wait(Patience { time_limit: Some(Duration::from_secs(20)), ..Patience::default() })?;
    Ok(end.since(&begin)? / count)
}

/// The functions of the text in an image.
fn load(gpu: &Gpu, image: &[u8]) -> Result<[Handle; 2], ExecutionError> {
    let (mut module, mut functions) = (0, [0; 2]);
    // SAFETY: the image is whole or ended by a zero, as are the names.
    unsafe {
        gpu.driver.check((gpu.driver.module_load)(&mut module, image.as_ptr().cast()), "cuModuleLoadData")?;
        for (function, name) in functions.iter_mut().zip([c"add_one", c"at_most"]) {
            let call = (gpu.driver.module_function)(function, module, name.as_ptr());
            gpu.driver.check(call, "cuModuleGetFunction")?;
        }
    }
    Ok(functions)
}

fn launch(gpu: &Gpu, function: Handle, blocks: u32, threads: u32, values: &mut [u64]) -> Result<(), ExecutionError> {
    let mut parameters: Vec<*mut c_void> = values.iter_mut().map(|v| std::ptr::from_mut(v).cast()).collect();
    let (parameters, none) = (parameters.as_mut_ptr(), std::ptr::null_mut());
    // SAFETY: the parameters are those of the kernels above.
    let call = unsafe { (gpu.driver.launch)(function, blocks, 1, 1, threads, 1, 1, 0, gpu.stream(), parameters, none) };
    gpu.driver.check(call, "cuLaunchKernel")
}

/// Checks `add_one`, and says how long a launch takes.
fn adds_one(gpu: &Arc<Gpu>, function: Handle) -> Result<String, ExecutionError> {
    let count = 1_000_003usize;
    let block = Block::new(gpu, 4 * count)?;
    let bytes: Vec<u8> = (0..count as u32).flat_map(u32::to_le_bytes).collect();
    gpu.upload(block.address(), &bytes)?;
    let add = || launch(gpu, function, count.div_ceil(256) as u32, 256, &mut [block.address(), count as u64]);
    add()?;
    let mut back = vec![0u8; 4 * count];
    gpu.download(&mut back, block.address())?;
    let right = back.chunks_exact(4).enumerate().all(|(n, b)| b == (n as u32 + 1).to_le_bytes());
    if !right {
        return Err(wrong("a kernel adds something else"));
    }
    let begun = Instant::now();
    for _ in 0..1000 {
        add()?;
    }
    let enqueued = begun.elapsed() / 1000;
    gpu.synchronize()?;
    Ok(format!("right, {enqueued:.1?} a launch"))
}

fn by_driver(gpu: &Arc<Gpu>) -> Result<String, ExecutionError> {
    let _enqueue = gpu.lock()?;
    let begun = Instant::now();
    let [add_one, _] = load(gpu, &[ADD_ONE.as_bytes(), &[0]].concat())?;
    let loaded = begun.elapsed();
    Ok(format!("loaded in {loaded:.1?}, {}", adds_one(gpu, add_one)?))
}

/// The text for the GPU's own architecture, changed so that no cache has it.
fn text(gpu: &Gpu, comment: &str) -> (String, Architecture) {
    let capability = gpu.description.capability;
    let architecture = Architecture { capability, accelerated: capability == 90 };
    let own = ADD_ONE.replace(".target sm_80", &format!(".target {architecture}"));
    (format!("// {} {comment}\n{own}", std::process::id()), architecture)
}

fn by_nvjitlink(gpu: &Arc<Gpu>) -> Result<String, ExecutionError> {
    let _enqueue = gpu.lock()?;
    let mut times = Vec::new();
    let mut found = String::new();
    for n in 0..3 {
        let (text, architecture) = text(gpu, &format!("one {n}"));
        let begun = Instant::now();
        let images = gpu.assembler.assemble(&[&text], architecture)?;
        times.push(begun.elapsed());
        let begun = Instant::now();
        let [add_one, _] = load(gpu, &images[0])?;
        found = format!("load {:.1?}, {}", begun.elapsed(), adds_one(gpu, add_one)?);
    }
    Ok(format!("assembled in {times:.1?}, {found}"))
}

fn in_parallel(gpu: &Arc<Gpu>) -> Result<String, ExecutionError> {
    let texts: Vec<String> = (0..64).map(|n| text(gpu, &format!("many {n}")).0).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let begun = Instant::now();
    let images = gpu.assembler.assemble(&texts, text(gpu, "").1)?;
    let time = begun.elapsed();
    let _enqueue = gpu.lock()?;
    let [add_one, _] = load(gpu, &images[63])?;
    Ok(format!("64 texts in {time:.1?}, {}", adds_one(gpu, add_one)?))
}

fn number(gpu: &Gpu, at: DevicePointer) -> Result<u32, ExecutionError> {
    let mut bytes = [0u8; 4];
    gpu.download(&mut bytes, at)?;
    Ok(u32::from_le_bytes(bytes))
}

fn graphs(gpu: &Arc<Gpu>) -> Result<String, ExecutionError> {
    let _enqueue = gpu.lock()?;
    let [add_one, _] = load(gpu, &[ADD_ONE.as_bytes(), &[0]].concat())?;
    let (a, b) = (Block::new(gpu, 4096)?, Block::new(gpu, 4096)?);
    for block in [&a, &b] {
        gpu.upload(block.address(), &[0; 4096])?;
    }
    let add = |to: DevicePointer| (0..100).try_for_each(|_| launch(gpu, add_one, 4, 256, &mut [to, 1024]));
    let mut kept = graph::Graphs::default();
    let bases = |to: DevicePointer| vec![vec![to]];
    let captured = graph::capture(gpu, || add(a.address()))?;
    kept.keep(gpu, &bases(a.address()), captured)?.launch(gpu)?;
    gpu.synchronize()?;
    let begun = Instant::now();
    kept.ran();
    match kept.step(&bases(a.address())) {
        graph::Step::Launch(graph) => graph.launch(gpu)?,
        _ => return Err(wrong("a graph was not kept")),
    }
    gpu.synchronize()?;
    let time = begun.elapsed();
    // As many as make the oldest graph be updated.
    for n in 0..5 {
        let captured = graph::capture(gpu, || add(b.address()))?;
        kept.keep(gpu, &bases(n), captured)?.launch(gpu)?;
    }
    let (in_a, in_b) = (number(gpu, a.address())?, number(gpu, b.address())?);
    if (in_a, in_b) != (200, 500) {
        return Err(wrong(format!("graphs added {in_a} and {in_b}, not 200 and 500")));
    }
    Ok(format!("right, 100 launches in {time:.1?}"))
}

fn conditional_nodes(gpu: &Arc<Gpu>) -> Result<String, ExecutionError> {
    let _enqueue = gpu.lock()?;
    let Some(nodes) = gpu.conditionals() else { return Err(wrong(gpu.why_no_conditionals())) };
    let [add_one, at_most] = load(gpu, &[ADD_ONE.as_bytes(), &[0]].concat())?;
    let memory = Block::new(gpu, 4096)?;
    gpu.upload(memory.address(), &[0; 4096])?;
    let (counter, truth, selector, other) =
        (memory.address(), memory.address() + 256, memory.address() + 512, memory.address() + 768);
    gpu.upload(selector, &1u32.to_le_bytes())?;
    let captured = graph::capture(gpu, || {
        let test = || launch(gpu, at_most, 1, 1, &mut [counter, truth, 1000]);
        test()?;
        let node = nodes.node(gpu)?;
        nodes.set(gpu, node, truth, Test::IsTrue)?;
        nodes.body(gpu, node, Kind::While, || {
            launch(gpu, add_one, 1, 1, &mut [counter, 1])?;
            test()?;
            nodes.set(gpu, node, truth, Test::IsTrue)
        })?;
        for branch in 0..3 {
            let node = nodes.node(gpu)?;
            nodes.set(gpu, node, selector, Test::Selects { branch, branches: 3, by_truth: false })?;
            let at = other + 4 * u64::from(branch);
            nodes.body(gpu, node, Kind::If, || launch(gpu, add_one, 1, 1, &mut [at, 1]))?;
        }
        Ok(())
    })?;
    let mut kept = graph::Graphs::default();
    let begun = Instant::now();
    kept.keep(gpu, &[], captured)?.launch(gpu)?;
    gpu.wait(Patience { time_limit: Some(Duration::from_secs(10)), ..Patience::default() })?;
    let time = begun.elapsed();
    let rounds = number(gpu, counter)?;
    let taken: Vec<u32> = (0..3).map(|n| number(gpu, other + 4 * n)).collect::<Result<_, _>>()?;
    if rounds != 1000 || taken != [0, 1, 0] {
        return Err(wrong(format!("{rounds} rounds, not 1000; branches {taken:?}, not the second")));
    }
    Ok(format!("right, 1000 rounds in {time:.1?} with the making of the graph"))
}

/// A number as an element of some type, and back.
fn encode(t: ElementType, value: i32, to: &mut Vec<u8>) {
    match t {
        ElementType::F32 => to.extend((value as f32).to_le_bytes()),
        ElementType::F64 => to.extend(f64::from(value).to_le_bytes()),
        ElementType::Bf16 => to.extend(((value as f32).to_bits() >> 16).to_le_bytes()[..2].iter()),
        ElementType::C64 => to.extend([(value as f32).to_le_bytes(), [0; 4]].concat()),
        ElementType::C128 => to.extend([f64::from(value).to_le_bytes(), [0; 8]].concat()),
        ElementType::F16 => {
            let bits = (value.unsigned_abs() as f32).to_bits();
            let half = if value == 0 { 0 } else { (bits >> 13) - (112 << 10) } | if value < 0 { 0x8000 } else { 0 };
            to.extend((half as u16).to_le_bytes());
        }
        // 0, ±1 and ±2 of e4m3fn.
        ElementType::F8e4m3fn => {
            let magnitude = [0, 0x38, 0x40][value.unsigned_abs() as usize % 3];
            to.push(magnitude | if value < 0 { 0x80 } else { 0 });
        }
        ElementType::S32 => to.extend(value.to_le_bytes()),
        _ => to.push(value as u8),
    }
}

fn products(gpu: &Arc<Gpu>) -> Result<String, ExecutionError> {
    use ElementType::{Bf16, C64, C128, F8e4m3fn, F16, F32, F64, S8, S32};
    let _enqueue = gpu.lock()?;
    let mut found = vec![gpu.cublaslt()?.path().to_owned()];
    let kinds = [
        (F32, F32, ComputeType::Tf32),
        (F32, F32, ComputeType::F32),
        (F64, F64, ComputeType::F64),
        (Bf16, Bf16, ComputeType::F32),
        (Bf16, F32, ComputeType::F32),
        (F16, F16, ComputeType::F32),
        (F16, F32, ComputeType::F32),
        (C64, C64, ComputeType::Tf32),
        (C128, C128, ComputeType::F64),
        (S8, S32, ComputeType::S32),
        (F8e4m3fn, Bf16, ComputeType::F32),
        (F8e4m3fn, F32, ComputeType::F32),
        (F8e4m3fn, F16, ComputeType::F32),
    ];
    for (from, to, compute) in kinds {
        for (left, right) in [(true, false), (false, true), (true, true), (false, false)] {
            let is_byte = from.bytes() == 1;
            if is_byte && !(left && right) {
                continue;
            }
            let outcome = product(gpu, from, to, compute, left, right);
            let sides = |b: bool| if b { "k" } else { "-" };
            let name = format!("{from}[{}] {from}[{}] -> {to} in {compute:?}", sides(left), sides(right));
            found.push(match outcome {
                Ok(()) => format!("{name}: right"),
                Err(error) => format!("{name}: FAILS: {}", error.into_diagnostic().message),
            });
        }
    }
    Ok(found.join("\n    "))
}

/// A small product of small integers, which every type holds.
fn product(
    gpu: &Arc<Gpu>,
    from: ElementType,
    to: ElementType,
    compute: ComputeType,
    left: bool,
    right: bool,
) -> Result<(), ExecutionError> {
    let (batch, m, n, k) = (3usize, 32usize, 48usize, 64usize);
    let lhs = |b: usize, i: usize, s: usize| ((b + i * 7 + s * 3) % 5) as i32 - 2;
    let rhs = |b: usize, s: usize, j: usize| ((b * 2 + j * 5 + s * 11) % 5) as i32 - 2;
    let (mut x, mut y, mut expected) = (Vec::new(), Vec::new(), Vec::new());
    for b in 0..batch {
        for n in 0..m * k {
            let (i, s) = if left { (n / k, n % k) } else { (n % m, n / m) };
            encode(from, lhs(b, i, s), &mut x);
        }
        for e in 0..n * k {
            let (j, s) = if right { (e / k, e % k) } else { (e % n, e / n) };
            encode(from, rhs(b, s, j), &mut y);
        }
        for i in 0..m {
            for j in 0..n {
                encode(to, (0..k).map(|s| lhs(b, i, s) * rhs(b, s, j)).sum(), &mut expected);
            }
        }
    }
    let side = |contiguous: bool, free: usize| Matrix {
        sum_is_contiguous: contiguous,
        leading_dimension: if contiguous { k } else { free } as u64,
        element_type: from,
    };
    let gemm = Gemm {
        m: m as u64,
        n: n as u64,
        k: k as u64,
        lhs: side(left, m),
        rhs: side(right, n),
        result_row: n as u64,
        batch: vec![BatchDim { size: batch as u64, lhs: (m * k) as u64, rhs: (n * k) as u64, result: (m * n) as u64 }],
        types: GemmTypes { result: to, compute },
    };
    let blocks = [Block::new(gpu, x.len())?, Block::new(gpu, y.len())?, Block::new(gpu, expected.len())?];
    gpu.upload(blocks[0].address(), &x)?;
    gpu.upload(blocks[1].address(), &y)?;
    let prepared = PreparedGemm::new(gpu, &gemm)?;
    prepared.enqueue(gpu, [0, 1, 2].map(|n| blocks[n].address()))?;
    let mut result = vec![0u8; expected.len()];
    gpu.download(&mut result, blocks[2].address())?;
    match result == expected {
        true => Ok(()),
        false => {
            let first = result.iter().zip(&expected).position(|(a, b)| a != b).unwrap_or(0);
            Err(wrong(format!("the product is another from byte {first} of {} on", expected.len())))
        }
    }
}

fn speed_of_products(gpu: &Arc<Gpu>) -> Result<String, ExecutionError> {
    use ElementType::{Bf16, F8e4m3fn, F32};
    let _enqueue = gpu.lock()?;
    let mut found = Vec::new();
    for (from, to, compute, n) in [
        (Bf16, Bf16, ComputeType::F32, 8192u64),
        (F32, F32, ComputeType::Tf32, 8192),
        (F8e4m3fn, Bf16, ComputeType::F32, 8192),
        (Bf16, Bf16, ComputeType::F32, 512),
    ] {
        let side = Matrix { sum_is_contiguous: true, leading_dimension: n, element_type: from };
        let types = GemmTypes { result: to, compute };
        let gemm = Gemm { m: n, n, k: n, lhs: side, rhs: side, result_row: n, batch: Vec::new(), types };
        let bytes = (n * n) as usize * from.bytes();
        let blocks =
            [Block::new(gpu, bytes)?, Block::new(gpu, bytes)?, Block::new(gpu, (n * n) as usize * to.bytes())?];
        let random: Vec<u8> = (0..bytes).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8 & 0xbf).collect();
        gpu.upload(blocks[0].address(), &random)?;
        gpu.upload(blocks[1].address(), &random)?;
        let begun = Instant::now();
        let prepared = PreparedGemm::new(gpu, &gemm)?;
        let ready = begun.elapsed();
        let time = timed(gpu, 10, &mut || prepared.enqueue(gpu, [0, 1, 2].map(|n| blocks[n].address())))?;
        let rate = 2.0 * (n as f64).powi(3) / time.as_secs_f64() / 1e12;
        found.push(format!("{from} {n}: {time:.1?}, {rate:.0} TFLOP/s (ready in {ready:.1?})"));
    }
    Ok(found.join("\n    "))
}
