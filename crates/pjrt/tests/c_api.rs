//! The C API as a caller uses it: through the table of functions, with structs of its own.

use hloom_pjrt::abi::*;
use hloom_pjrt::buffer::Buffer;
use hloom_pjrt::client::Client;
use hloom_pjrt::event::Event;
use hloom_pjrt::executable::LoadedExecutable;
use hloom_pjrt::status::Error;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// The functions that the tests use, by their places in the table.
mod function {
    pub(crate) const ERROR_DESTROY: usize = 0;
    pub(crate) const ERROR_MESSAGE: usize = 1;
    pub(crate) const ERROR_GET_CODE: usize = 2;
    pub(crate) const PLUGIN_ATTRIBUTES: usize = 4;
    pub(crate) const EVENT_DESTROY: usize = 5;
    pub(crate) const EVENT_IS_READY: usize = 6;
    pub(crate) const EVENT_ON_READY: usize = 9;
    pub(crate) const CLIENT_CREATE: usize = 10;
    pub(crate) const CLIENT_DESTROY: usize = 11;
    pub(crate) const CLIENT_PLATFORM_NAME: usize = 12;
    pub(crate) const CLIENT_DEVICES: usize = 15;
    pub(crate) const CLIENT_LOOKUP_DEVICE: usize = 17;
    pub(crate) const CLIENT_COMPILE: usize = 20;
    pub(crate) const FROM_HOST: usize = 22;
    pub(crate) const DEVICE_DEFAULT_MEMORY: usize = 33;
    pub(crate) const EXECUTE: usize = 55;
    pub(crate) const LOADED_DESTROY: usize = 50;
    pub(crate) const BUFFER_DESTROY: usize = 58;
    pub(crate) const BUFFER_DIMENSIONS: usize = 60;
    pub(crate) const BUFFER_DELETE: usize = 67;
    pub(crate) const BUFFER_IS_DELETED: usize = 68;
    pub(crate) const TO_HOST: usize = 70;
    pub(crate) const INCREASE_REFERENCES: usize = 74;
    pub(crate) const DECREASE_REFERENCES: usize = 75;
    pub(crate) const READY_EVENT: usize = 72;
    pub(crate) const CREATE_VIEW: usize = 93;
    pub(crate) const CREATE_ALIAS: usize = 115;
    pub(crate) const FULFILL_ALIAS: usize = 116;
    pub(crate) const CREATE_ERROR: usize = 118;
    pub(crate) const COPY_RAW_FUTURE: usize = 120;
    pub(crate) const DONATE_WITH_DEPENDENCY: usize = 125;
    pub(crate) const BITCAST: usize = 131;
    pub(crate) const EVENT_ERROR: usize = 7;
    pub(crate) const EVENT_AWAIT: usize = 8;
    pub(crate) const EVENT_CREATE: usize = 126;
    pub(crate) const EVENT_SET: usize = 127;
}

const INVALID_ARGUMENT: i32 = 3;
const NOT_FOUND: i32 = 5;

fn api() -> &'static Api {
    // SAFETY: the table lives as long as the library.
    unsafe { &*hloom_pjrt::GetPjrtApi() }
}

/// Arguments with their size set and all else zero.
fn args<A: CStruct>() -> A {
    let mut args = MaybeUninit::<A>::zeroed();
    // SAFETY: zero is a value of every struct, and the first field is the size.
    unsafe {
        args.as_mut_ptr().cast::<usize>().write(A::SIZE);
        args.assume_init()
    }
}

/// Calls a function; the code and the message of its error.
fn call<A: CStruct>(number: usize, args: &mut A) -> Result<(), (i32, String)> {
    // SAFETY: the function of that number takes these arguments.
    let error = unsafe { api().functions[number](std::ptr::from_mut(args).cast()) };
    outcome(error)
}

fn outcome(error: *mut Error) -> Result<(), (i32, String)> {
    if error.is_null() {
        return Ok(());
    }
    let mut code: ErrorGetCodeArgs = args();
    code.error = error;
    let mut message: ErrorMessageArgs = args();
    message.error = error;
    let mut destroy: ErrorDestroyArgs = args();
    destroy.error = error;
    call(function::ERROR_GET_CODE, &mut code)?;
    call(function::ERROR_MESSAGE, &mut message)?;
    // SAFETY: the message lives as long as the error.
    let text = unsafe { String::from_utf8_lossy(slice(message.message, message.message_size)).into_owned() };
    call(function::ERROR_DESTROY, &mut destroy)?;
    Err((code.code, text))
}

fn client(devices: i64) -> Handle<Client> {
    let options = NamedValues::new(vec![("num_devices".to_owned(), OptionValue::Int(devices))]);
    let mut create: ClientCreateArgs = args();
    (create.create_options, create.num_options) = (options.as_ptr(), options.len());
    call(function::CLIENT_CREATE, &mut create).expect("a client");
    create.client
}

fn device(client: Handle<Client>, number: usize) -> Handle<hloom_pjrt::device::Device> {
    let mut devices: ClientDevicesArgs = args();
    devices.client = client;
    call(function::CLIENT_DEVICES, &mut devices).expect("devices");
    // SAFETY: the list lives as long as the client.
    unsafe { slice(devices.devices, devices.num_devices)[number] }
}

fn floats(
    client: Handle<Client>,
    dims: &[i64],
    strides: &[i64],
    data: &[f32],
) -> Result<Handle<Buffer>, (i32, String)> {
    let mut from: ClientBufferFromHostBufferArgs = args();
    from.client = client;
    from.data = data.as_ptr().cast_mut().cast();
    from.type_ = 11;
    (from.dims, from.num_dims) = (dims.as_ptr(), dims.len());
    (from.byte_strides, from.num_byte_strides) = (strides.as_ptr(), strides.len());
    from.device = device(client, 0);
    call(function::FROM_HOST, &mut from)?;
    destroy_event(from.done_with_host_buffer);
    Ok(from.buffer)
}

fn destroy_event(event: Handle<Event>) {
    let mut destroy: EventDestroyArgs = args();
    destroy.event = event;
    call(function::EVENT_DESTROY, &mut destroy).expect("an event to destroy");
}

fn to_host(buffer: Handle<Buffer>) -> Result<Vec<f32>, (i32, String)> {
    let mut to: BufferToHostBufferArgs = args();
    to.src = buffer;
    call(function::TO_HOST, &mut to)?;
    let mut out = vec![0f32; to.dst_size / 4];
    to.dst = out.as_mut_ptr().cast();
    call(function::TO_HOST, &mut to)?;
    destroy_event(to.event);
    Ok(out)
}

fn destroy_buffer(buffer: Handle<Buffer>) {
    let mut destroy: BufferDestroyArgs = args();
    destroy.buffer = buffer;
    call(function::BUFFER_DESTROY, &mut destroy).expect("a buffer to destroy");
}

fn destroy_client(client: Handle<Client>) {
    let mut destroy: ClientDestroyArgs = args();
    destroy.client = client;
    call(function::CLIENT_DESTROY, &mut destroy).expect("a client to destroy");
}

/// The options of a program for one device: none.
fn compile(client: Handle<Client>, format: &str, code: &[u8]) -> Result<Handle<LoadedExecutable>, (i32, String)> {
    let mut program: Program = args();
    (program.format, program.format_size) = (format.as_ptr(), format.len());
    (program.code, program.code_size) = (code.as_ptr(), code.len());
    let mut compile: ClientCompileArgs = args();
    compile.client = client;
    compile.program = &raw mut program;
    call(function::CLIENT_COMPILE, &mut compile)?;
    Ok(compile.executable)
}

/// A program in HLO text as the proto that the C API takes.
fn proto(text: &str) -> Vec<u8> {
    let module = hloom_formats::hlo_text::read(text.as_bytes()).module.expect("the text is right");
    hloom_formats::proto::write(&module, hloom_formats::proto::Container::Module).expect("it can be written")
}

fn execute(
    executable: Handle<LoadedExecutable>,
    arguments: &mut [Handle<Buffer>],
) -> Result<Handle<Buffer>, (i32, String)> {
    let mut outputs = [Handle::<Buffer>::null()];
    let argument_list = [arguments.as_mut_ptr()];
    let output_list = [outputs.as_mut_ptr()];
    let mut events = [Handle::<Event>::null()];
    let mut execute: LoadedExecutableExecuteArgs = args();
    execute.executable = executable;
    execute.argument_lists = argument_list.as_ptr();
    execute.num_devices = 1;
    execute.num_args = arguments.len();
    execute.output_lists = output_list.as_ptr();
    execute.device_complete_events = events.as_mut_ptr();
    call(function::EXECUTE, &mut execute)?;
    destroy_event(events[0]);
    Ok(outputs[0])
}

const SUM: &str = "HloModule sum, input_output_alias={ {}: (0, {}, may-alias) }
ENTRY e {
  x = f32[3]{0} parameter(0)
  y = f32[3]{0} parameter(1)
  ROOT z = f32[3]{0} add(x, y)
}";

#[test]
fn what_is_donated_is_given_once() {
    let client = client(1);
    let executable = compile(client, "hlo", &proto(SUM)).expect("it compiles");
    let x = floats(client, &[3], &[], &[1.0, 2.0, 3.0]).expect("a buffer");
    let (code, message) = execute(executable, &mut [x, x]).map(|_| ()).expect_err("it is given twice");
    assert_eq!((code, message.contains("once more")), (INVALID_ARGUMENT, true), "{message}");
    assert_eq!(to_host(x).expect("nothing happened to it"), [1.0, 2.0, 3.0]);
    let mut destroy: LoadedExecutableDestroyArgs = args();
    destroy.executable = executable;
    call(function::LOADED_DESTROY, &mut destroy).expect("it is destroyed");
    destroy_buffer(x);
    destroy_client(client);
}

const DOUBLE: &str = "HloModule double, input_output_alias={ {}: (0, {}, may-alias) }
ENTRY e {
  x = f32[3]{0} parameter(0)
  ROOT y = f32[3]{0} add(x, x)
}";

#[test]
fn a_program_runs_and_takes_what_it_is_donated() {
    let client = client(1);
    let executable = compile(client, "hlo", &proto(DOUBLE)).expect("it compiles");
    let x = floats(client, &[3], &[], &[1.0, 2.0, 3.0]).expect("a buffer");
    let y = execute(executable, &mut [x]).expect("it runs");
    assert_eq!(to_host(y).expect("it can be read"), [2.0, 4.0, 6.0]);
    let mut deleted: BufferIsDeletedArgs = args();
    deleted.buffer = x;
    call(function::BUFFER_IS_DELETED, &mut deleted).expect("it can be asked");
    assert_eq!(deleted.is_deleted, 1, "a donated argument is gone");
    assert_eq!(execute(executable, &mut [x]).map(|_| ()).expect_err("it was donated").0, INVALID_ARGUMENT);
    assert_eq!(to_host(x).expect_err("it was donated").0, INVALID_ARGUMENT);

    // What somebody outside refers to is not taken: the program works on a copy.
    let z = floats(client, &[3], &[], &[1.0, 1.0, 1.0]).expect("a buffer");
    let mut increase: BufferIncreaseExternalReferenceCountArgs = args();
    increase.buffer = z;
    call(function::INCREASE_REFERENCES, &mut increase).expect("a reference");
    let doubled = execute(executable, &mut [z]).expect("it runs");
    assert_eq!(to_host(doubled).expect("it can be read"), [2.0, 2.0, 2.0]);
    assert_eq!(to_host(z).expect("it is still there"), [1.0, 1.0, 1.0]);
    let mut decrease: BufferDecreaseExternalReferenceCountArgs = args();
    decrease.buffer = z;
    call(function::DECREASE_REFERENCES, &mut decrease).expect("it had one");
    call(function::DECREASE_REFERENCES, &mut decrease).expect_err("it has none");

    let wrong = floats(client, &[2], &[], &[1.0, 1.0]).expect("a buffer");
    assert_eq!(execute(executable, &mut [wrong]).map(|_| ()).expect_err("a wrong shape").0, INVALID_ARGUMENT);
    assert_eq!(execute(executable, &mut []).map(|_| ()).expect_err("no arguments").0, INVALID_ARGUMENT);
    assert_eq!(execute(executable, &mut [Handle::null()]).map(|_| ()).expect_err("null").0, INVALID_ARGUMENT);

    // Handles may outlive the client.
    destroy_client(client);
    assert_eq!(to_host(y).expect("it is still there"), [2.0, 4.0, 6.0]);
    for buffer in [x, y, z, wrong] {
        destroy_buffer(buffer);
    }
    let mut destroy: LoadedExecutableDestroyArgs = args();
    destroy.executable = executable;
    call(function::LOADED_DESTROY, &mut destroy).expect("it is destroyed");
}

#[test]
fn arrays_are_copied_by_their_strides() {
    let client = client(1);
    let data = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let columns = floats(client, &[2, 3], &[4, 8], &data).expect("in the order of columns");
    assert_eq!(to_host(columns).expect("it is there"), [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]);
    let mut dims: BufferDimensionsArgs = args();
    dims.buffer = columns;
    call(function::BUFFER_DIMENSIONS, &mut dims).expect("sizes");
    // SAFETY: the list lives as long as the buffer.
    assert_eq!(unsafe { slice(dims.dims, dims.num_dims) }, [2, 3]);
    let (code, message) = floats(client, &[2, 3], &[4], &data).map(|_| ()).expect_err("too few strides");
    assert_eq!((code, message.contains("strides")), (INVALID_ARGUMENT, true), "{message}");
    assert!(floats(client, &[-1], &[], &data).is_err());
    assert!(floats(client, &[i64::MAX, 4], &[], &data).is_err());

    let mut delete: BufferDeleteArgs = args();
    delete.buffer = columns;
    call(function::BUFFER_DELETE, &mut delete).expect("deleted");
    call(function::BUFFER_DELETE, &mut delete).expect("deleting twice is nothing");
    assert_eq!(to_host(columns).expect_err("it was deleted").0, INVALID_ARGUMENT);
    destroy_buffer(columns);
    destroy_client(client);
}

#[test]
fn wrong_programs_give_errors() {
    let client = client(1);
    for (format, code) in [("mlir", &b"ML\xefR broken"[..]), ("hlo", b"\xff\xff"), ("what", b""), ("mlir", b"")] {
        compile(client, format, code).map(|_| ()).expect_err("it is no program");
    }
    let mut compile: ClientCompileArgs = args();
    compile.client = client;
    assert_eq!(call(function::CLIENT_COMPILE, &mut compile).expect_err("no program").0, INVALID_ARGUMENT);
    destroy_client(client);
}

#[test]
fn callers_may_have_shorter_structs_and_null_pointers() {
    let client = client(2);
    // A caller whose struct ends before the result gets nothing written.
    let mut name: ClientPlatformNameArgs = args();
    name.client = client;
    name.struct_size = 24;
    call(function::CLIENT_PLATFORM_NAME, &mut name).expect("a name");
    assert!(name.platform_name.is_null());
    // One whose struct is longer gets what we know.
    name.struct_size = 4096;
    call(function::CLIENT_PLATFORM_NAME, &mut name).expect("a name");
    // SAFETY: the name lives as long as the client.
    assert_eq!(unsafe { slice(name.platform_name, name.platform_name_size) }, b"hloom");
    name.struct_size = 3;
    assert_eq!(call(function::CLIENT_PLATFORM_NAME, &mut name).expect_err("no struct").0, INVALID_ARGUMENT);

    let mut null: ClientPlatformNameArgs = args();
    assert_eq!(call(function::CLIENT_PLATFORM_NAME, &mut null).expect_err("no client").0, INVALID_ARGUMENT);
    let mut nothing: ErrorDestroyArgs = args();
    call(function::ERROR_DESTROY, &mut nothing).expect("nothing to destroy");
    let mut memory: DeviceDefaultMemoryArgs = args();
    memory.device = device(client, 1);
    call(function::DEVICE_DEFAULT_MEMORY, &mut memory).expect("a memory");
    assert_eq!(memory.memory.get().map(|m| m.device), Ok(1));
    let mut lookup: ClientLookupDeviceArgs = args();
    (lookup.client, lookup.id) = (client, 2);
    assert_eq!(call(function::CLIENT_LOOKUP_DEVICE, &mut lookup).expect_err("there are two").0, NOT_FOUND);

    // Every function takes null, and says what is wrong with it.
    for (number, function) in api().functions.iter().enumerate() {
        // SAFETY: null is no struct, which each function finds out.
        let error = unsafe { function(null_mut::<c_void>()) };
        assert!(!error.is_null(), "function {number}");
        outcome(error).expect_err("null");
    }
    let mut attributes: PluginAttributesArgs = args();
    call(function::PLUGIN_ATTRIBUTES, &mut attributes).expect("attributes");
    assert!(attributes.num_attributes > 0);
    destroy_client(client);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for (name, value) in [
        ("num_devices", OptionValue::Int(0)),
        ("num_devices", OptionValue::String("many".into())),
        ("platform_name", OptionValue::Int(1)),
        ("num_nodes", OptionValue::Int(2)),
    ] {
        let options = NamedValues::new(vec![(name.to_owned(), value)]);
        let mut create: ClientCreateArgs = args();
        (create.create_options, create.num_options) = (options.as_ptr(), options.len());
        call(function::CLIENT_CREATE, &mut create).expect_err(name);
    }
}

#[test]
fn events_tell_those_who_wait_even_after_they_are_destroyed() {
    unsafe extern "C" fn note(error: *mut Error, told: *mut c_void) {
        let failed = outcome(error).is_err();
        // SAFETY: the test's own list.
        unsafe { (*told.cast::<Vec<bool>>()).push(failed) };
    }
    let mut told: Vec<bool> = Vec::new();
    let mut create: EventCreateArgs = args();
    call(function::EVENT_CREATE, &mut create).expect("an event");
    // Another handle of the same event, as a buffer's.
    let kept = create.event.get().expect("it is there").clone();
    let mut on: EventOnReadyArgs = args();
    (on.event, on.callback, on.user_arg) = (create.event, Some(note as OnReady), (&raw mut told).cast());
    call(function::EVENT_ON_READY, &mut on).expect("it waits");
    let mut ready: EventIsReadyArgs = args();
    ready.event = create.event;
    call(function::EVENT_IS_READY, &mut ready).expect("it can be asked");
    assert_eq!(ready.is_ready, 0);
    destroy_event(create.event);
    assert!(kept.set(Ok(())));
    assert_eq!(told, [false]);

    call(function::EVENT_CREATE, &mut create).expect("an event");
    let mut set: EventSetArgs = args();
    (set.event, set.error_code) = (create.event, 13);
    call(function::EVENT_SET, &mut set).expect("it happens");
    call(function::EVENT_SET, &mut set).expect_err("it has happened");
    on.event = create.event;
    call(function::EVENT_ON_READY, &mut on).expect("it is told at once");
    assert_eq!(told, [false, true]);
    destroy_event(create.event);
}

fn default_memory(client: Handle<Client>) -> Handle<hloom_pjrt::memory::Memory> {
    let mut memory: DeviceDefaultMemoryArgs = args();
    memory.device = device(client, 0);
    call(function::DEVICE_DEFAULT_MEMORY, &mut memory).expect("a memory");
    memory.memory
}

fn wait(buffer: Handle<Buffer>) -> Result<(), (i32, String)> {
    let mut ready: BufferReadyEventArgs = args();
    ready.buffer = buffer;
    call(function::READY_EVENT, &mut ready).expect("an event");
    let mut wait: EventAwaitArgs = args();
    wait.event = ready.event;
    let result = call(function::EVENT_AWAIT, &mut wait);
    let mut error: EventErrorArgs = args();
    error.event = ready.event;
    assert_eq!(call(function::EVENT_ERROR, &mut error), result);
    destroy_event(ready.event);
    result
}

#[test]
fn a_program_may_be_given_what_is_not_there_yet() {
    let client = client(1);
    let executable = compile(client, "hlo", &proto(SUM)).expect("it compiles");
    let mut alias: ClientCreateAliasBufferArgs = args();
    (alias.client, alias.memory) = (client, default_memory(client));
    (alias.shape_dims, alias.shape_num_dims, alias.shape_element_type) = ([3i64].as_ptr(), 1, 11);
    call(function::CREATE_ALIAS, &mut alias).expect("an alias");
    let x = floats(client, &[3], &[], &[1.0, 2.0, 3.0]).expect("a buffer");
    let y = floats(client, &[3], &[], &[10.0, 20.0, 30.0]).expect("a buffer");
    // The run waits for its second argument, and the caller for neither.
    let sum = execute(executable, &mut [x, alias.alias_buffer]).expect("it is taken");
    let mut fulfill: ClientFulfillAliasBufferArgs = args();
    (fulfill.client, fulfill.buffer) = (client, y);
    fulfill.fulfill_alias_buffer_cb = alias.fulfill_alias_buffer_cb;
    call(function::FULFILL_ALIAS, &mut fulfill).expect("it is there now");
    wait(sum).expect("it ran");
    assert_eq!(to_host(sum).expect("elements"), [11.0, 22.0, 33.0]);
    assert_eq!(to_host(alias.alias_buffer).expect("elements"), [10.0, 20.0, 30.0]);
    for buffer in [x, y, sum, alias.alias_buffer] {
        destroy_buffer(buffer);
    }
    destroy_client(client);
}

#[test]
fn what_comes_of_an_error_is_that_error() {
    let client = client(1);
    let executable = compile(client, "hlo", &proto(SUM)).expect("it compiles");
    let mut broken: ClientCreateErrorBufferArgs = args();
    (broken.client, broken.memory, broken.error_code) = (client, default_memory(client), 8);
    (broken.error_message, broken.error_message_size) = ("no more".as_ptr(), 7);
    (broken.shape_dims, broken.shape_num_dims, broken.shape_element_type) = ([3i64].as_ptr(), 1, 11);
    call(function::CREATE_ERROR, &mut broken).expect("a buffer");
    let x = floats(client, &[3], &[], &[1.0, 2.0, 3.0]).expect("a buffer");
    let sum = execute(executable, &mut [x, broken.buffer]).expect("it is taken");
    assert_eq!(wait(sum), Err((8, "no more".to_owned())));
    let after = execute(executable, &mut [sum, broken.buffer]).expect("it is taken");
    assert_eq!(wait(after), Err((8, "no more".to_owned())));
    for buffer in [x, sum, after, broken.buffer] {
        destroy_buffer(buffer);
    }
    destroy_client(client);
}

#[test]
fn arrays_change_hands_and_types() {
    let client = client(1);
    let x = floats(client, &[2], &[], &[1.0, 2.0]).expect("a buffer");
    let mut bits: BufferBitcastArgs = args();
    (bits.buffer, bits.element_type) = (x, 8);
    (bits.dims, bits.num_dims) = ([2i64].as_ptr(), 1);
    call(function::BITCAST, &mut bits).expect("as many bytes");
    let as_numbers: Vec<u32> = to_host(bits.out_buffer).expect("elements").iter().map(|f| f.to_bits()).collect();
    assert_eq!(as_numbers, [1f32.to_bits(), 2f32.to_bits()]);
    bits.dims = [3i64].as_ptr();
    call(function::BITCAST, &mut bits).expect_err("more bytes than there are");

    let mut donate: BufferDonateWithControlDependencyArgs = args();
    donate.buffer = x;
    call(function::DONATE_WITH_DEPENDENCY, &mut donate).expect("it is given");
    assert!(to_host(x).is_err(), "what was given is gone");
    let mut ready: DonateCallbackArgs = args();
    ready.callback_data = donate.callback_data;
    // SAFETY: the function that came with the data, called once.
    unsafe { donate.dependency_ready_callback.expect("a callback")(&raw mut ready) };
    assert_eq!(to_host(donate.out_buffer).expect("elements"), [1.0, 2.0]);

    let mut raw: BufferCopyRawToHostFutureArgs = args();
    (raw.buffer, raw.offset, raw.transfer_size) = (donate.out_buffer, 4, 4);
    call(function::COPY_RAW_FUTURE, &mut raw).expect("a copy to come");
    let mut out = 0f32;
    let mut to: RawToHostCallbackArgs = args();
    (to.callback_data, to.dst) = (raw.callback_data, (&raw mut out).cast());
    // SAFETY: likewise.
    unsafe { raw.future_ready_callback.expect("a callback")(&raw mut to) };
    assert_eq!(out, 2.0);
    destroy_event(raw.event);
    for buffer in [x, bits.out_buffer, donate.out_buffer] {
        destroy_buffer(buffer);
    }
    destroy_client(client);
}

#[test]
fn views_are_of_aligned_memory() {
    let client = client(1);
    let floats: Vec<f32> = (0..64).map(|n| n as f32).collect();
    let offset = floats.as_ptr().align_offset(64);
    let view = |first: usize| {
        let mut view: ClientCreateViewOfDeviceBufferArgs = args();
        let dims = [4];
        view.client = client;
        view.device_buffer_ptr = floats[first..].as_ptr().cast_mut().cast();
        view.element_type = 11;
        (view.dims, view.num_dims) = (dims.as_ptr(), dims.len());
        view.device = device(client, 0);
        call(function::CREATE_VIEW, &mut view).map(|()| view.buffer)
    };
    let buffer = view(offset).expect("a view");
    assert_eq!(to_host(buffer).expect("its elements"), floats[offset..offset + 4]);
    destroy_buffer(buffer);
    let (code, message) = view(offset + 1).err().expect("no view");
    assert_eq!(code, INVALID_ARGUMENT);
    assert!(message.contains("is not aligned to 64 bytes"), "{message}");
    destroy_client(client);
}
