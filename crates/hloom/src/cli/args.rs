//! The command line: every command and option, in the words that `--help` shows.

mod values;

pub(crate) use values::*;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use hloom::Engine;

/// Read, check, print and measure XLA's HLO programs.
///
/// A FILE is HLO text, a proto (HloProto or HloModuleProto) or StableHLO (text or bytecode), told apart by its content; `-` is standard input. Results
/// go to standard output, everything else to standard error. The exit status is 0 when all is well, 1 when the program or
/// the data is at fault, 2 when the command line is, 3 when hloom itself is, and 4 when the machine is.
#[derive(Parser, Debug)]
#[command(name = "hloom", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Print a module in XLA's own form, losing nothing
    Fmt(FmtArgs),
    /// Check modules: nothing to say, or errors with their places
    Verify(VerifyArgs),
    /// Run a module on virtual devices
    Run(RunArgs),
    /// Compile a module for a machine: to a file that is loaded without compiling, or to what any stage makes
    Compile(CompileArgs),
    /// Time compiling and running programs, and compare with the best that the machine can do
    Bench(BenchArgs),
    /// Convert a module between HLO text, protos and StableHLO
    Convert(ConvertArgs),
    /// Run a StableHLO program that says itself what it should compute
    Check(CheckArgs),
    /// Count a module's operations, flops, bytes, collectives and parameters
    Stats(StatsArgs),
    /// Plan a module's memory: the buffer assignment, as XLA dumps it
    Memory(MemoryArgs),
    /// Write one page about a module: cost, memory, timeline, graph, collectives, by source line
    Report(ReportArgs),
    /// Simulate a module on a machine: how long a step takes, and why
    Simulate(SimulateArgs),
    /// Rewrite a module by passes: those of a target, or those named
    Opt(OptArgs),
    /// Make the program of one device of a program over whole arrays
    Partition(PartitionArgs),
    /// Tell what differs in two modules; renaming, renumbering and reordering set aside
    ///
    /// The exit status is 0 when nothing differs, 1 when something does, 2 when a file cannot be read.
    Diff(DiffArgs),
    /// Find where two ways of running a program part, and the smallest program on which they do
    ///
    /// The exit status is 0 when there is a fault and a reproducer of it was written, 1 when there is none to find, 2 when
    /// the question cannot be asked.
    Bisect(BisectArgs),
    /// Tell what a diagnostic code means; without one, list them all
    Explain {
        /// The code, as `H0101`
        code: Option<String>,
    },
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

#[derive(Args, Debug)]
pub(crate) struct CompileArgs {
    /// The module to compile
    pub(crate) file: String,
    /// The machine: its name, or a file that describes it
    #[arg(long, value_name = "TARGET")]
    pub(crate) target: String,
    /// How many devices, where the module does not say
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) devices: Option<u32>,
    /// The slice of a TPU-like machine that the program runs on, as 2x4; as square as can be, unless given
    #[arg(long, value_name = "AxB")]
    pub(crate) topology: Option<String>,
    /// How much time the code is worth
    #[arg(long, value_enum, default_value = "full")]
    pub(crate) effort: EffortArg,
    /// Write here: the compiled module, to be loaded; or, if the name ends in .hlo or .txt, the scheduled module
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: Option<String>,
    /// Print what a stage made
    #[arg(long, value_name = "STAGE", value_parser = EmitParser)]
    pub(crate) emit: Option<EmitArg>,
    /// Say on standard error what became of the module, as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Make up values for constants that the dump leaves out
    #[arg(long)]
    pub(crate) fill_constants: bool,
    /// Fail if any instruction has no native code
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) precision: PrecisionArgs,
    /// Which bf16 values keep the digits of f32
    #[arg(long, value_name = "WHICH", value_enum, num_args = 0..=1, require_equals = true)]
    #[arg(default_value = "converted", default_missing_value = "arithmetic")]
    pub(crate) excess_precision: ExcessPrecisionArg,
    /// Write the module after each stage for a TPU-like machine into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) dump_after_each: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct FmtArgs {
    /// The module to print
    pub(crate) file: String,
    /// Write here instead of to standard output; may be FILE itself
    #[arg(short, long, value_name = "OUT", conflicts_with_all = ["check", "bench"])]
    pub(crate) output: Option<String>,
    /// Print nothing; fail unless the text is already as it would be printed
    #[arg(long, conflicts_with = "bench")]
    pub(crate) check: bool,
    /// Leave large constants out as `{...}`, as XLA's dumps do
    #[arg(long)]
    pub(crate) elide_constants: bool,
    /// Time reading, verifying and printing: the fastest of N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) bench: Option<u32>,
    /// Print the times as one JSON object
    #[arg(long, requires = "bench")]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    /// The modules to check
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<String>,
    /// Apply the rules for a run on N devices
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub(crate) devices: Option<i64>,
    #[command(flatten)]
    pub(crate) precision: PrecisionArgs,
    /// Print diagnostics to standard output, one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// By which rules floating-point types may be mixed.
#[derive(Args, Debug, Clone, Copy, Default)]
pub(crate) struct PrecisionArgs {
    /// Refuse floating-point types that are mixed without a convert, which is allowed in modules that a compiler has
    /// optimised
    #[arg(long)]
    pub(crate) strict_precision: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ConvertArgs {
    /// The module to read
    #[arg(value_name = "IN")]
    pub(crate) input: String,
    /// Where to write it
    #[arg(value_name = "OUT")]
    pub(crate) output: String,
    /// The format of IN, instead of the one its content shows
    #[arg(long, value_name = "FORMAT")]
    pub(crate) from: Option<FormatArg>,
    /// The format of OUT, instead of the one its ending shows (.hlo and .txt: HLO text; .pb: HloProto; .mlir:
    /// StableHLO text)
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to: Option<FormatArg>,
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The program, in StableHLO: every function without arguments is run, in each part split by `// -----`
    pub(crate) file: String,
    /// What runs it
    #[arg(long, value_parser = EngineParser, default_value = Engine::default().name())]
    pub(crate) engine: Engine,
}

#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// The modules to measure; their parameters are made up
    #[arg(required_unless_present = "calibrate", value_name = "FILE")]
    pub(crate) files: Vec<String>,
    /// Measure this machine, and write its description as a target
    #[arg(long, conflicts_with_all = ["files", "trace", "json", "devices"])]
    pub(crate) calibrate: bool,
    /// Write the description here instead of to standard output
    #[arg(short, long, value_name = "TARGET", requires = "calibrate")]
    pub(crate) output: Option<String>,
    /// What runs them
    #[arg(long, value_parser = EngineParser, default_value = Engine::default().name())]
    pub(crate) engine: Engine,
    /// Runs of each, after one to warm up
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,
    /// The number of devices; what the header says, unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) devices: Option<u32>,
    /// Threads that may compute at once; as many as there are processors, unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) threads: Option<u32>,
    /// For making up parameters
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Write here what ran where in one more run (of the last module), for Perfetto or chrome://tracing
    #[arg(long, value_name = "OUT.json")]
    pub(crate) trace: Option<String>,
    /// Print one JSON object per module
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DiffArgs {
    /// The first module, or a dump folder
    pub(crate) a: String,
    /// The second module, or another dump folder
    pub(crate) b: String,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a page to look at here (of folders: a page for each pair that differs, into this folder), and print only the
    /// summary
    #[arg(long, value_name = "OUT")]
    pub(crate) html: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct BisectArgs {
    /// The program
    pub(crate) file: String,
    /// The engine that is thought to be wrong
    #[arg(long, value_parser = EngineParser, default_value = Engine::default().name())]
    pub(crate) engine: Engine,
    /// The engine that is held to be right
    #[arg(long, value_parser = EngineParser, default_value = Engine::Eval.name())]
    pub(crate) against: Engine,
    /// Find the first pass after which the program computes something else
    #[arg(long, conflicts_with_all = ["engine", "against"])]
    pub(crate) passes: bool,
    /// Hold the results against these: d0.o0, d0.o1, …
    #[arg(long, value_name = "OUT.npz", conflicts_with = "passes")]
    pub(crate) expect: Option<String>,
    /// Ask this command: it ends with 0 for a program that is of interest. `{}` is the program's file, `{input}` that of
    /// its inputs
    #[arg(long, value_name = "CMD", conflicts_with_all = ["passes", "expect", "engine", "against"])]
    pub(crate) command: Option<String>,
    /// Arrays for the parameters: p0, p1, … for all devices, d0.p0, … for one
    #[arg(long, value_name = "IN.npz", conflicts_with = "seed")]
    pub(crate) input: Option<String>,
    /// Make parameters up: floats uniform in [-1, 1), integers 0 or 1
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// The number of devices; what the header says, unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) devices: Option<u32>,
    /// Write the reproducer here (reproducer.hlo, unless given) and its inputs beside it
    #[arg(short, long, value_name = "OUT.hlo")]
    pub(crate) output: Option<String>,
    /// Keep the best so far in this folder, and go on with what is in it
    #[arg(long, value_name = "DIR")]
    pub(crate) resume: Option<String>,
    /// Candidates tried at once; as many as there are processors, unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) jobs: Option<u32>,
    /// Seconds that a candidate may take; 60, unless given
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) time_limit: Option<u64>,
    /// Bytes of memory that a candidate may take; 8 GiB, unless given
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) memory_limit: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct StatsArgs {
    /// The module to measure
    pub(crate) file: String,
    /// The machine whose sizes are meant: a name or the path to a description; that of the dump, unless given
    #[arg(long, value_name = "T")]
    pub(crate) target: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct MemoryArgs {
    /// The module to plan
    pub(crate) file: String,
    /// The machine: a name (cpu, tpu-v6e, gpu-h200, …) or the path to a description; that of the dump, unless given
    #[arg(long, value_name = "T")]
    pub(crate) target: Option<String>,
    /// Schedule the module first: done for little memory where it has no schedule, unless given
    #[arg(long, value_enum, value_name = "HOW", conflicts_with = "check")]
    pub(crate) schedule: Option<SchedulerArg>,
    /// How temporaries are packed
    #[arg(long, value_enum, default_value = "reference", conflicts_with = "check")]
    pub(crate) packer: PackerArg,
    /// The form of the dump; the target's own, unless given
    #[arg(long, value_enum)]
    pub(crate) dialect: Option<DialectArg>,
    /// Which part of the dump, in dialect b
    #[arg(long, value_enum, conflicts_with_all = ["check", "summary", "json"])]
    pub(crate) part: Option<PartArg>,
    /// Judge this dump of a buffer assignment instead of making one
    #[arg(long, value_name = "DUMP", conflicts_with_all = ["dialect", "summary"])]
    pub(crate) check: Option<String>,
    /// Say how much each memory takes, and what is in use at its peak
    #[arg(long, conflicts_with = "dialect")]
    pub(crate) summary: bool,
    /// Print one JSON object; with --check, one per diagnostic
    #[arg(long, conflicts_with = "dialect")]
    pub(crate) json: bool,
    /// Write a page to look at here: the memory map over the schedule, in one file for any browser
    #[arg(long, value_name = "OUT", conflicts_with_all = ["dialect", "part", "check", "summary", "json"])]
    pub(crate) html: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct SimulateArgs {
    /// The module to simulate
    pub(crate) file: String,
    /// Another one, to compare with
    pub(crate) other: Option<String>,
    /// The machine: a name (tpu-v6e, gpu-h100, cpu, …) or the path to a description; what the module is for, unless given
    #[arg(long, value_name = "T")]
    pub(crate) target: Option<String>,
    /// How devices are joined: 2x2, or 64x8 for hosts × devices; as is usual for as many as the program needs, unless given
    #[arg(long, value_name = "AxB")]
    pub(crate) topology: Option<String>,
    /// Change the machine: hbm_bandwidth=2x, rate.bf16.matmul=1e15, …; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Where the cycles of instructions come from
    #[arg(long, value_enum, default_value_t)]
    pub(crate) cycles: CyclesArg,
    /// What a call costs, by its target or the instruction's name: 12us, 3e6cycles, 1e12flops, memory, attention
    #[arg(long, value_name = "NAME=COST")]
    pub(crate) cost: Vec<String>,
    /// How often a loop runs, where the module does not say
    #[arg(long, value_name = "NAME=N")]
    pub(crate) trip_count: Vec<String>,
    /// Simulate on each of these machines instead
    #[arg(long, value_name = "T,T,…", value_delimiter = ',', conflicts_with_all = ["target", "other", "trace"])]
    pub(crate) sweep: Option<Vec<String>>,
    /// In each of these topologies
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', requires = "sweep", conflicts_with = "topology")]
    pub(crate) topologies: Option<Vec<String>>,
    /// Write the timeline here, for Perfetto or chrome://tracing
    #[arg(long, value_name = "OUT.json")]
    pub(crate) trace: Option<String>,
    /// Write a page to look at here: the timeline, or the sweep as a plot
    #[arg(long, value_name = "OUT")]
    pub(crate) html: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// A module; two to compare; more, or a folder of them, for an index
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<String>,
    /// Where to write the page
    #[arg(short, long, value_name = "OUT.html", default_value = "report.html")]
    pub(crate) output: String,
    /// The machine: a name (cpu, tpu-v6e, gpu-h200, …) or the path to a description; what the module looks made for, unless
    /// given
    #[arg(long, value_name = "T")]
    pub(crate) target: Option<String>,
    /// Show when things ran: what `hloom run --trace` wrote. May be given once for each of two modules
    #[arg(long, value_name = "TRACE.json")]
    pub(crate) trace: Vec<String>,
    /// With an index, write a page for each module too, into a folder beside it
    #[arg(long)]
    pub(crate) pages: bool,
}

#[derive(Args, Debug)]
pub(crate) struct OptArgs {
    /// The module to rewrite
    #[arg(required_unless_present = "list")]
    pub(crate) file: Option<String>,
    /// The machine whose passes are run: a name or the path to a description
    #[arg(long, value_name = "T", default_value = "cpu")]
    pub(crate) target: String,
    /// Run these passes instead, in this order, each once
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    pub(crate) passes: Option<Vec<String>>,
    /// Say what each pass did and how long it took, on standard error
    #[arg(long)]
    pub(crate) report: bool,
    /// Say it as one JSON object
    #[arg(long, requires = "report")]
    pub(crate) json: bool,
    /// Write the module after each pass into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) dump_after_each: Option<String>,
    /// Write here instead of to standard output
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: Option<String>,
    /// Name all passes, each with what it does
    #[arg(long, exclusive = true)]
    pub(crate) list: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PartitionArgs {
    /// The program: StableHLO with sdy shardings, or HLO with shardings on its instructions
    pub(crate) file: String,
    /// The number of devices; what the header says or the shardings imply, unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1048576))]
    pub(crate) devices: Option<u32>,
    /// Write the program of one device here
    #[arg(short, long, value_name = "OUT.hlo")]
    pub(crate) output: Option<String>,
    /// Say what is sent, along which axes, and why, and what one annotation more would save
    #[arg(long)]
    pub(crate) report: bool,
    /// Print one JSON object
    #[arg(long, conflicts_with = "report")]
    pub(crate) json: bool,
    /// Say which annotation the sharding of this instruction came from, step by step
    #[arg(long, value_name = "NAME")]
    pub(crate) explain: Option<String>,
    /// Choose the shardings of parameters and activations by predicted time
    #[arg(long, requires = "mesh", conflicts_with_all = ["explain", "devices"])]
    pub(crate) auto: bool,
    /// The mesh that parameters are laid out on
    #[arg(long, value_name = "2x4", requires = "auto")]
    pub(crate) mesh: Option<String>,
    /// Bytes that a device has
    #[arg(long, value_name = "B", requires = "auto")]
    pub(crate) memory_limit: Option<u64>,
    /// The machine; tpu-v4 unless given
    #[arg(long, value_name = "T", requires = "auto")]
    pub(crate) target: Option<String>,
}

#[derive(Args, Debug, Clone, Default)]
pub(crate) struct RunArgs {
    /// The module to run: a program, a snapshot with its inputs, or a folder that XLA dumped into
    pub(crate) file: String,
    /// Which module of a folder to run, by its name or its number
    #[arg(long, value_name = "NAME")]
    pub(crate) module: Option<String>,
    /// What runs it
    #[arg(long, value_parser = EngineParser, default_value = Engine::default().name())]
    pub(crate) engine: Engine,
    /// The number of devices; what the header says, unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) devices: Option<u32>,
    /// Arrays for the parameters: p0, p1, … for all devices, d0.p0, … for one
    #[arg(long, value_name = "IN.npz")]
    pub(crate) input: Option<String>,
    /// Fill a parameter with a number; may be given several times
    #[arg(long, value_name = "p0=VALUE")]
    pub(crate) fill: Vec<String>,
    /// Make parameters up: floats uniform in [-1, 1), integers 0 or 1
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Write the results here, as d0.o0, d0.o1, …; of a program over whole arrays as o0, o1, …
    #[arg(long, value_name = "OUT.npz")]
    pub(crate) output: Option<String>,
    /// Under mpirun or srun, let each rank write the results of its own devices, to OUT.0.npz, OUT.1.npz, …
    #[arg(long, requires = "output")]
    pub(crate) output_per_rank: bool,
    /// The program is about whole arrays: partition it for the devices
    #[arg(long, conflicts_with = "per_device")]
    pub(crate) global: bool,
    /// The program is that of one device, whatever it says of shardings
    #[arg(long)]
    pub(crate) per_device: bool,
    /// Write the program with its inputs and results here, as an HloSnapshot
    #[arg(long, value_name = "OUT.pb", conflicts_with = "bench")]
    pub(crate) snapshot: Option<String>,
    /// Compare the results with these (d0.o0, …), and the values of instructions with arrays of their names; name the
    /// first instruction that goes wrong
    #[arg(long, value_name = "OTHER.npz", conflicts_with = "bench")]
    pub(crate) compare_with: Option<String>,
    /// Time N runs after one to warm up
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) bench: Option<u32>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Threads that may compute at once; as many as there are processors, unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) threads: Option<u32>,
    /// Write here what ran where, for Perfetto or chrome://tracing; with --bench in one more run, which is not timed
    #[arg(long, value_name = "OUT.json")]
    pub(crate) trace: Option<String>,
    /// Say on standard error what was compiled and what is left to the evaluator
    #[arg(long)]
    pub(crate) report: bool,
    /// Fail if any instruction has no native code, instead of leaving it to the evaluator
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) precision: PrecisionArgs,
    /// Which bf16 values keep the digits of f32
    #[arg(long, value_name = "WHICH", value_enum, num_args = 0..=1, require_equals = true)]
    #[arg(default_value = "converted", default_missing_value = "arithmetic")]
    pub(crate) excess_precision: ExcessPrecisionArg,
    /// End the run after this many instructions
    ///
    /// A loop that nobody needs is not run, and one without effects whose state no longer changes ends with that state;
    /// any other that never ends needs this limit, or Ctrl-C.
    #[arg(long, value_name = "N")]
    pub(crate) max_steps: Option<u64>,
    /// Print the values of this instruction as they come (`*` stands for anything: 'dot*', or '*' for all); may be given
    /// several times
    #[arg(long, value_name = "NAME")]
    pub(crate) print_values: Vec<String>,
    /// Stop at the first instruction that makes a NaN or an infinity out of finite operands
    #[arg(long)]
    pub(crate) check_nan: bool,
    /// Make up values for constants that the dump leaves out as {...}
    #[arg(long)]
    pub(crate) fill_constants: bool,
    /// Seconds that a device waits in a collective for one that is still computing, or for another rank
    #[arg(long, value_name = "SECONDS")]
    pub(crate) time_limit: Option<u64>,
}
