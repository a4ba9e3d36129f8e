//! Runs of programs.
//!
//! Errors about the arguments leave them as they are and come back from the call; only when all are right is the memory
//! of donated ones taken, unless there are external references to it. A run that is short, or that calls back into Python,
//! is over when the call returns, and what went wrong in it comes back from the call; others are left to the client's
//! dispatcher: their results come later, and what goes wrong is told by the events of these.

use crate::abi::{ExecuteOptions, Handle, LoadedExecutableExecuteArgs, read, slice};
use crate::buffer::{Buffer, Content, Promise};
use crate::dispatch::Task;
use crate::event::Event;
use crate::executable::Compiled;
use crate::ffi::{self, UserContext};
use crate::profiler;
use crate::program::{Program, located};
use crate::status::{Code, Status};
use hloom_comm::Communicator;
use hloom_ir::Shape;
use hloom_runtime::Buffer as Data;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub(crate) fn execute(args: &mut LoadedExecutableExecuteArgs) -> Result<(), Status> {
    let loaded = args.executable.get()?;
    let program = loaded.program()?;
    // SAFETY: the caller's options.
    let options: Option<ExecuteOptions> = unsafe { read(args.options) };
    // SAFETY: the caller's list.
    let kept =
        options.map_or(&[][..], |o| unsafe { slice(o.non_donatable_input_indices, o.num_non_donatable_input_indices) });
    let context = options.map_or(Handle::null(), |o| o.context);
    let context = if context.is_null() { UserContext::default() } else { context.get()?.snapshot() };
    let devices = devices(program, args)?;
    if devices.is_empty() {
        // All its devices are in other processes: these run it.
        return Ok(());
    }
    // SAFETY: the caller's lists: of arguments for each device, each of one buffer per argument.
    let lists: SmallVec<[&[Handle<Buffer>]; 1]> = unsafe {
        let lists = slice(args.argument_lists, devices.len());
        lists.iter().map(|&list| slice(list.cast_const(), args.num_args)).collect()
    };
    let outputs = outputs(program, devices.len(), args)?;
    let inputs = inputs(program, &devices, &lists, kept)?;
    let here = inputs.iter().flatten().all(|content| content.here().is_some());
    let client = &program.client;
    let inline = !program.fixed_shapes
        || program.is_bound_to_process
        || (here && program.executable.is_short() && client.dispatcher.is_idle());
    // Runs with other processes are counted in the order of the calls, which is the same in all of them.
    let communicator = client.processes.as_ref().and_then(|p| p.communicator(&program.options.devices));
    let events = match inline {
        true => give_results(program, &devices, &outputs, run(program, inputs, &context, communicator)?),
        false => dispatch(&loaded.compiled, &devices, &outputs, inputs, (context, communicator)),
    };
    if !args.device_complete_events.is_null() {
        for i in 0..devices.len() {
            // SAFETY: the caller has room for an event per device.
            unsafe { args.device_complete_events.add(i).write(events.give()) };
        }
    }
    Ok(())
}

type Devices = SmallVec<[usize; 1]>;
type Inputs = Vec<Vec<Content>>;
/// For each device, where the caller wants its results.
type Outputs = SmallVec<[*mut Handle<Buffer>; 1]>;

/// The devices that a call runs on: those that the program was compiled for, or the one that the caller names.
fn devices(program: &Program, args: &LoadedExecutableExecuteArgs) -> Result<Devices, Status> {
    let assigned: &Devices = &program.local_ordinals().into_iter().map(|i| program.options.devices[i]).collect();
    let devices = match args.execute_device.is_null() {
        true => Devices::from_slice(assigned),
        false if assigned.len() == 1 => Devices::from_slice(&[args.execute_device.get()?.description.id as usize]),
        false => {
            return Err(Status::unimplemented("a program of several devices runs on all of them in one call"));
        }
    };
    if args.num_devices != devices.len() {
        let message =
            format!("arguments for {} devices are given, the program runs on {}", args.num_devices, devices.len());
        return Err(Status::invalid(message));
    }
    Ok(devices)
}

fn outputs(program: &Program, devices: usize, args: &LoadedExecutableExecuteArgs) -> Result<Outputs, Status> {
    // SAFETY: the caller's list of lists.
    let lists = unsafe { slice(args.output_lists, devices) };
    if !program.outputs.is_empty() && (lists.len() != devices || lists.iter().any(|l| l.is_null())) {
        return Err(Status::invalid("there is no room for the results"));
    }
    Ok(lists.into())
}

/// The arguments of each device, taken from those that are donated.
fn inputs(program: &Program, devices: &[usize], lists: &[&[Handle<Buffer>]], kept: &[i64]) -> Result<Inputs, Status> {
    let needed = program.parameters.len();
    let is_donated = |i: usize| program.parameters[i].donated && !kept.contains(&(i as i64));
    let mut inputs = Vec::with_capacity(devices.len());
    for (&device, list) in devices.iter().zip(lists) {
        if list.len() != needed {
            return Err(Status::invalid(format!("{} arguments are given, the program takes {needed}", list.len())));
        }
        let mut contents = Vec::with_capacity(needed);
        for (i, handle) in list.iter().enumerate() {
            let buffer = handle.get()?;
            if buffer.device != device {
                let message = format!("argument {i} is on device {}, the program runs on {device}", buffer.device);
                return Err(Status::invalid(message));
            }
            let content = buffer
                .content()
                .map_err(|status| Status { message: format!("argument {i}: {}", status.message), ..status })?;
            let shape = &program.parameters[i].shape;
            let is_token = matches!(shape, Shape::Token);
            if !is_token && !buffer.fits(shape) {
                // Of layouts it is spoken only where nothing else is wrong.
                let given = buffer.shape()?;
                let (given, needed) = match given.equal_ignoring_layout(shape) {
                    true => (given, shape.with_default_layout()),
                    false => (given.without_layout(), shape.without_layout()),
                };
                return Err(Status::invalid(format!("argument {i} is {given}, the program takes {needed}")));
            }
            contents.push(if is_token { Content::Here(Data::token()) } else { content });
        }
        inputs.push(contents);
    }
    if program.donates {
        // An array that somebody else looks at is copied instead.
        take_donated(lists, |i| is_donated(i) && lists.iter().all(|l| l[i].get().is_ok_and(Buffer::is_donatable)))?;
    }
    Ok(inputs)
}

/// The handles of donated arrays go, so that the run has the last ones.
fn take_donated(lists: &[&[Handle<Buffer>]], is_donated: impl Fn(usize) -> bool) -> Result<(), Status> {
    for list in lists {
        let mut times: FxHashMap<*mut Buffer, usize> = FxHashMap::default();
        for handle in *list {
            *times.entry(handle.as_ptr()).or_default() += 1;
        }
        if let Some((i, _)) = list.iter().enumerate().find(|(i, h)| is_donated(*i) && times[&h.as_ptr()] > 1) {
            return Err(Status::invalid(format!("argument {i} is donated, and given once more in the same call")));
        }
    }
    for list in lists {
        for (i, handle) in list.iter().enumerate() {
            if is_donated(i) {
                drop(handle.get()?.donate()?);
            }
        }
    }
    Ok(())
}

/// How the devices of a run meet, where several processes take part in it.
type Meeting = Option<Arc<dyn Communicator>>;

/// Runs the program here, once its arguments are there.
fn run(
    program: &Program,
    inputs: Inputs,
    context: &UserContext,
    communicator: Meeting,
) -> Result<Vec<Vec<Data>>, Status> {
    let taken = inputs.into_iter().map(|list| list.into_iter().map(Content::take).collect());
    let inputs: Vec<Vec<Data>> = taken.collect::<Result<_, _>>()?;
    let custom_calls = match program.custom_calls.is_empty() {
        true => None,
        false => Some(ffi::custom_calls(&program.custom_calls, context)),
    };
    let arguments = program.dump.as_ref().and_then(|d| d.arguments(program.module.module(), &inputs));
    let ordinals = communicator.is_some().then(|| program.local_ordinals());
    let options = hloom_runtime::ExecuteOptions {
        custom_calls: custom_calls.as_ref(),
        devices: ordinals.as_deref(),
        communicator,
        ..Default::default()
    };
    let run = || program.executable.execute(inputs, &options);
    let results = catch_unwind(AssertUnwindSafe(|| profiler::noted(program.name(), run)));
    let results = results.map_err(|panic| Status::from_panic(panic.as_ref()))?;
    let mut results = results.map_err(|fault| {
        let module = program.module.module();
        located(&[program.executable.compiled().explain(fault, module).into_diagnostic()], module)
    })?;
    if let (Some(dump), Some(arguments)) = (&program.dump, &arguments) {
        dump.run(program.client.runtime.backend(), program.module.module(), arguments, &results);
    }
    for leaf in results.iter_mut().flatten() {
        if !matches!(leaf.shape(), Shape::Array(_)) {
            *leaf = empty(program)?;
        }
    }
    if results.iter().any(|leaves| leaves.len() != program.outputs.len()) {
        return Err(Status::new(Code::Internal, "a program gave other results than it has"));
    }
    Ok(results)
}

/// Hands results that are there to the caller.
fn give_results(
    program: &Program,
    devices: &[usize],
    outputs: &[*mut Handle<Buffer>],
    results: Vec<Vec<Data>>,
) -> Event {
    let of = |(&device, leaves): (&usize, Vec<Data>)| {
        let buffer = |(leaf, shape)| Buffer::result(&program.client, device, shape, leaf);
        leaves.into_iter().zip(&program.outputs).map(buffer).collect()
    };
    write(outputs, devices.iter().zip(results).map(of).collect());
    Event::done()
}

/// Leaves the run to the dispatcher, and hands buffers that it will fill to the caller.
fn dispatch(
    compiled: &Arc<Compiled>,
    devices: &[usize],
    outputs: &[*mut Handle<Buffer>],
    inputs: Inputs,
    (context, communicator): (UserContext, Meeting),
) -> Event {
    let program = &compiled.program;
    let event = Event::coming();
    let (promised, buffers) = promises(program, devices, &event);
    let (compiled, over) = (compiled.clone(), event.clone());
    let task: Task = Box::new(move || {
        let results = run(&compiled.program, inputs, &context, communicator);
        let outcome = results.map(|results| {
            for (promise, data) in promised.iter().flatten().zip(results.into_iter().flatten()) {
                promise.keep(data);
            }
        });
        // Whoever waits for the results may be the only other one to hold them.
        drop(promised);
        over.set(outcome);
    });
    if let Err(task) = program.client.dispatcher.submit(task) {
        task();
    }
    write(outputs, buffers);
    event
}

type Promises = Vec<Vec<Arc<Promise>>>;

/// The results of each device as promises, and as buffers.
fn promises(program: &Program, devices: &[usize], event: &Event) -> (Promises, Vec<Vec<Buffer>>) {
    let of = |&device: &usize| {
        let each = program.outputs.iter().map(|shape| {
            let promise = Promise::new(event);
            (promise.clone(), Buffer::promised(&program.client, (device, 0), shape, promise))
        });
        each.unzip()
    };
    devices.iter().map(of).unzip()
}

fn write(outputs: &[*mut Handle<Buffer>], buffers: Vec<Vec<Buffer>>) {
    for (&list, buffers) in outputs.iter().zip(buffers) {
        for (i, buffer) in buffers.into_iter().enumerate() {
            // SAFETY: the caller has room for as many results as the program has.
            unsafe { list.add(i).write(Handle::give(buffer)) };
        }
    }
}

/// What stands for a token outside of programs: an array without elements.
fn empty(program: &Program) -> Result<Data, Status> {
    let shape = hloom_ir::shape::ArrayShape::new(hloom_ir::ElementType::Pred, [0]);
    Ok(program.client.runtime.allocate(0, shape, &mut |_| {})?)
}
