//! Runs of programs.
//!
//! A run is over when the call returns, so the events of its results have happened by then. Errors about the arguments
//! leave them as they are; only when all are right is the memory of donated ones taken.

use crate::abi::{ExecuteOptions, Handle, LoadedExecutableExecuteArgs, read, slice};
use crate::buffer::Buffer;
use crate::event::Event;
use crate::ffi::{self, ExecuteContext};
use crate::program::{Program, located};
use crate::status::Status;
use hloom_ir::Shape;
use hloom_runtime::Buffer as Data;
use rustc_hash::FxHashMap;

pub(crate) fn execute(args: &mut LoadedExecutableExecuteArgs) -> Result<(), Status> {
    let program = args.executable.get()?.program()?;
    // SAFETY: the caller's options.
    let options: Option<ExecuteOptions> = unsafe { read(args.options) };
    // SAFETY: the caller's list.
    let kept =
        options.map_or(&[][..], |o| unsafe { slice(o.non_donatable_input_indices, o.num_non_donatable_input_indices) });
    let context = options.map_or(Handle::null(), |o| o.context);
    let devices = devices(program, args)?;
    // SAFETY: the caller's lists: of arguments for each device, each of one buffer per argument.
    let lists: Vec<&[Handle<Buffer>]> = unsafe {
        let lists = slice(args.argument_lists, devices.len());
        lists.iter().map(|&list| slice(list.cast_const(), args.num_args)).collect()
    };
    let inputs = inputs(program, &devices, &lists, kept)?;
    let context = if context.is_null() { None } else { Some(context.get()?) };
    let results = run(program, inputs, context)?;
    give_outputs(program, &devices, results, args)
}

/// The devices that a call runs on: those that the program was compiled for, or the one that the caller names.
fn devices(program: &Program, args: &LoadedExecutableExecuteArgs) -> Result<Vec<usize>, Status> {
    let assigned = &program.options.devices;
    let devices = match args.execute_device.is_null() {
        true => assigned.clone(),
        false if assigned.len() == 1 => vec![args.execute_device.get()?.description.id as usize],
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

/// The arguments of each device, taken from those that are donated.
fn inputs(
    program: &Program,
    devices: &[usize],
    lists: &[&[Handle<Buffer>]],
    kept: &[i64],
) -> Result<Vec<Vec<Data>>, Status> {
    let needed = program.parameters.len();
    let is_donated = |i: usize| program.parameters[i].donated && !kept.contains(&(i as i64));
    let mut inputs = Vec::with_capacity(devices.len());
    for (&device, list) in devices.iter().zip(lists) {
        if list.len() != needed {
            return Err(Status::invalid(format!("{} arguments are given, the program takes {needed}", list.len())));
        }
        let mut datas = Vec::with_capacity(needed);
        for (i, handle) in list.iter().enumerate() {
            let buffer = handle.get()?;
            if buffer.device != device {
                let message = format!("argument {i} is on device {}, the program runs on {device}", buffer.device);
                return Err(Status::invalid(message));
            }
            let data = buffer
                .data()
                .map_err(|status| Status { message: format!("argument {i}: {}", status.message), ..status })?;
            let shape = &program.parameters[i].shape;
            let is_token = matches!(shape, Shape::Token);
            if !is_token && !data.fits(shape) {
                let (given, needed) = (data.shape(), shape.without_layout());
                return Err(Status::invalid(format!("argument {i} is {given}, the program takes {needed}")));
            }
            if is_donated(i) && !buffer.is_donatable() {
                return Err(Status::invalid("Donation requested for buffer with external reference"));
            }
            datas.push(if is_token { Data::token() } else { data });
        }
        inputs.push(datas);
    }
    for list in lists {
        let mut times: FxHashMap<*mut Buffer, usize> = FxHashMap::default();
        for handle in *list {
            *times.entry(handle.as_ptr()).or_default() += 1;
        }
        if let Some((i, _)) = list.iter().enumerate().find(|(i, h)| is_donated(*i) && times[&h.as_ptr()] > 1) {
            return Err(Status::invalid(format!("argument {i} is donated, and given once more in the same call")));
        }
    }
    // Everything is as it must be: the handles of donated arrays go, so that the run has the last ones.
    for list in lists {
        for (i, handle) in list.iter().enumerate() {
            if is_donated(i) {
                drop(handle.get()?.donate()?);
            }
        }
    }
    Ok(inputs)
}

fn run(program: &Program, inputs: Vec<Vec<Data>>, context: Option<&ExecuteContext>) -> Result<Vec<Vec<Data>>, Status> {
    let custom_calls = ffi::custom_calls(program, context);
    let options = hloom_runtime::ExecuteOptions { custom_calls: Some(&custom_calls), ..Default::default() };
    program.executable.execute(inputs, &options).map_err(|fault| {
        let module = program.module.module();
        located(&[program.executable.explain(fault, module).into_diagnostic()], module)
    })
}

/// Hands results and events to the caller.
fn give_outputs(
    program: &Program,
    devices: &[usize],
    results: Vec<Vec<Data>>,
    args: &LoadedExecutableExecuteArgs,
) -> Result<(), Status> {
    // SAFETY: the caller's list of lists.
    let lists = unsafe { slice(args.output_lists, devices.len()) };
    if lists.len() != results.len() || (lists.iter().any(|l| l.is_null()) && !program.outputs.is_empty()) {
        return Err(Status::invalid("there is no room for the results"));
    }
    for ((&device, &list), leaves) in devices.iter().zip(lists).zip(results) {
        for (i, leaf) in leaves.into_iter().enumerate() {
            let leaf = match leaf.shape() {
                Shape::Array(_) => leaf,
                _ => empty(program)?,
            };
            let buffer = Handle::give(Buffer::new(&program.client, device, 0, leaf));
            // SAFETY: the caller has room for as many results as the program has.
            unsafe { list.add(i).write(buffer) };
        }
    }
    if !args.device_complete_events.is_null() {
        for i in 0..devices.len() {
            // SAFETY: the caller has room for an event per device.
            unsafe { args.device_complete_events.add(i).write(Handle::give(Event::done())) };
        }
    }
    Ok(())
}

/// What stands for a token outside of programs: an array without elements.
fn empty(program: &Program) -> Result<Data, Status> {
    let shape = hloom_ir::shape::ArrayShape::new(hloom_ir::ElementType::Pred, [0]);
    Ok(Data::filled(program.client.runtime.allocator(), shape, |_| {})?)
}
