//! Passive endpoints, which listen for connections of `FI_EP_MSG`, and those connections before
//! they are taken.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};

use libc::{size_t, ssize_t};

use super::event::EventHandle;
use super::{closes, connection, endpoint, endpoint_calls, give, known, of, take};
use crate::abi::*;
use crate::address;
use crate::channel::{EventTarget, Taken};
use crate::events::{Events, Request};
use crate::info::{self, Hints};
use crate::link::MOST_CONNECTION_DATA;
use crate::notify::locked;
use crate::passive::Passive;
use crate::settings::Settings;

#[repr(C)]
struct PassiveHandle {
    fid: fid_pep,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    address: Option<SocketAddr>,
    events: Option<Arc<Events>>,
    /// Once it listens.
    passive: Option<Arc<Passive>>,
    /// What the program asked for, which its connections are offered with.
    asked: Hints,
    version: u32,
}

static FID_OPS: fi_ops = fi_ops { bind, ..closes(close) };
static OPS: fi_ops_ep = endpoint_calls(cancel, getopt, setopt);
static CM_OPS: fi_ops_cm = fi_ops_cm { setname, getname, listen, reject, ..connection::NONE };

pub(super) unsafe extern "C" fn open(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    passive: *mut *mut fid_pep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the program gives an info.
    let info = unsafe { &*info };
    // SAFETY: what an info points to is there, or null.
    let kind = unsafe { info.ep_attr.as_ref() }.map_or(FI_EP_MSG, |ep| ep.r#type);
    if kind != FI_EP_MSG {
        return -FI_EINVAL;
    }
    // SAFETY: addresses are as long as their family says; else as above.
    let (address, asked) = unsafe { (address::read(info.src_addr), Hints::of(Some(info))) };
    // SAFETY: an open fabric.
    let version = unsafe { (*fabric).api_version };
    let state = State { address, events: None, passive: None, asked, version };
    let fid = fid_pep {
        fid: known(FI_CLASS_PEP, context, &FID_OPS),
        ops: &raw const OPS,
        cm: &raw const CM_OPS,
    };
    // SAFETY: a place for the handle, which begins with its `fid_pep`.
    unsafe { give(PassiveHandle { fid, state: Mutex::new(state) }, passive) }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the program uses it no more.
    let handle: Box<PassiveHandle> = unsafe { take(fid) };
    let passive = locked(&handle.state).passive.take();
    match passive {
        Some(passive) if passive.is_here() => passive.close(),
        // Its connections are the parent's, who goes on.
        Some(passive) => std::mem::forget(passive),
        None => {}
    }
    0
}

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, _: u64) -> c_int {
    // SAFETY: a passive endpoint, and what it is bound to, which begins with its class.
    let (handle, class): (&PassiveHandle, _) = unsafe { (of(fid), (*other).fclass) };
    if class != FI_CLASS_EQ {
        return -FI_EINVAL;
    }
    // SAFETY: its class says that it is an event queue.
    let events = Arc::clone(&unsafe { of::<EventHandle, _>(other) }.events);
    locked(&handle.state).events = Some(events);
    0
}

unsafe extern "C" fn cancel(_: *mut fid, _: *mut c_void) -> ssize_t {
    -FI_ENOSYS as ssize_t
}

/// How much programs may say along when they connect.
unsafe extern "C" fn getopt(
    _: *mut fid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut size_t,
) -> c_int {
    // SAFETY: the program says how much room there is, and where.
    unsafe { connection::connection_data_size(level, name, value, len) }
}

unsafe extern "C" fn setopt(_: *mut fid, _: c_int, _: c_int, _: *const c_void, _: size_t) -> c_int {
    -libc::ENOPROTOOPT
}

unsafe extern "C" fn setname(fid: *mut fid, name: *mut c_void, len: size_t) -> c_int {
    // SAFETY: a passive endpoint.
    let handle: &PassiveHandle = unsafe { of(fid) };
    let mut state = locked(&handle.state);
    if state.passive.is_some() {
        return -FI_EOPBADSTATE;
    }
    // SAFETY: the program gives an address, as long as its family says.
    match unsafe { address::read(name) } {
        Some(address) if len >= address::len_of(&address) => {
            state.address = Some(address);
            0
        }
        _ => -FI_EINVAL,
    }
}

unsafe extern "C" fn getname(fid: *mut fid, into: *mut c_void, len: *mut size_t) -> c_int {
    // SAFETY: a passive endpoint.
    let handle: &PassiveHandle = unsafe { of(fid) };
    let state = locked(&handle.state);
    let listening = state.passive.as_ref().map(|passive| passive.name());
    let Some(name) = listening.or(state.address) else { return -FI_EOPBADSTATE };
    // SAFETY: the program says how much room there is, and where.
    unsafe { connection::write_name(&name.into(), into, len) }
}

unsafe extern "C" fn listen(pep: *mut fid_pep) -> c_int {
    // SAFETY: a passive endpoint.
    let handle: &PassiveHandle = unsafe { of(pep) };
    let mut state = locked(&handle.state);
    if state.passive.is_some() {
        return -FI_EOPBADSTATE;
    }
    let Some(events) = state.events.clone() else { return -FI_ENOEQ };
    if !events.is_here() {
        return -FI_EOPBADSTATE;
    }
    let Ok(settings) = Settings::of_environment() else { return -FI_EINVAL };
    let Some(address) = endpoint::specific(state.address, &settings) else {
        return -FI_EADDRNOTAVAIL;
    };
    let target =
        EventTarget { events, fid: pep as usize, context: handle.fid.fid.context as usize };
    match Passive::listen(address, settings, target, (state.asked, state.version)) {
        Ok(passive) => {
            state.passive = Some(passive);
            0
        }
        Err(failure) => {
            eprintln!("landfall: cannot listen: {}", failure.text);
            -failure.error
        }
    }
}

/// A connection that was asked for: the handle of its info.
#[repr(C)]
struct RequestHandle {
    fid: fid,
    passive: Weak<Passive>,
    id: u64,
}

static REQUEST_OPS: fi_ops = closes(close_request);

unsafe extern "C" fn close_request(_: *mut fid) -> c_int {
    -FI_ENOSYS
}

/// Requests that were answered. Programs may name one once more where something failed
/// meanwhile, so their memory stays for a while.
static ANSWERED: Mutex<VecDeque<Box<RequestHandle>>> = Mutex::new(VecDeque::new());
const MOST_ANSWERED: usize = 256;

// SAFETY: what libfabric knows of it points to a table of this library, and to nothing else.
unsafe impl Send for RequestHandle {}

/// What a program is given for a request; null where there is no memory, or the one who listens
/// is closed.
pub(super) fn info_of(request: &Request) -> *mut fi_info {
    let Some(passive) = request.passive.upgrade() else { return std::ptr::null_mut() };
    let handle = RequestHandle {
        fid: known(FI_CLASS_CONNREQ, std::ptr::null_mut(), &REQUEST_OPS),
        passive: request.passive.clone(),
        id: request.id,
    };
    let (asked, version) = passive.offer();
    let ends = (passive.name(), request.from);
    let made = info::connection(ends, asked, version, passive.settings());
    let Some(made) = made else { return std::ptr::null_mut() };
    // SAFETY: it was made just now.
    unsafe { (*made).handle = Box::into_raw(Box::new(handle)).cast() };
    made
}

/// Answers a request: whose it is, and its number there.
///
/// # Safety
/// The handle is that of an info which came with a request.
unsafe fn answer(handle: *mut fid) -> Result<(Arc<Passive>, u64), c_int> {
    if handle.is_null() {
        return Err(FI_EINVAL);
    }
    // SAFETY: each handle begins with its class.
    if unsafe { (*handle).fclass } != FI_CLASS_CONNREQ {
        return Err(FI_EINVAL);
    }
    let mut answered = locked(&ANSWERED);
    if answered.iter().any(|known| std::ptr::eq(&raw const **known, handle.cast())) {
        return Err(FI_EINVAL);
    }
    // SAFETY: its class says what it is, and it was not answered before.
    let request: Box<RequestHandle> = unsafe { take(handle) };
    let (passive, id) = (request.passive.upgrade(), request.id);
    answered.push_back(request);
    if answered.len() > MOST_ANSWERED {
        answered.pop_front();
    }
    Ok((passive.ok_or(FI_ECONNREFUSED)?, id))
}

/// Takes the connection that an info is of, for an endpoint of its own.
///
/// # Safety
/// As for [`answer`].
pub(super) unsafe fn take_request(handle: *mut fid) -> Result<Taken, c_int> {
    // SAFETY: the caller says so.
    let (passive, id) = unsafe { answer(handle) }?;
    passive.give_away(id)
}

unsafe extern "C" fn reject(
    _: *mut fid_pep,
    handle: *mut fid,
    data: *const c_void,
    len: size_t,
) -> c_int {
    if len > MOST_CONNECTION_DATA {
        return -FI_EINVAL;
    }
    // SAFETY: the handle of a request, and this many bytes.
    let refused = unsafe {
        let data = connection::copied(data, len);
        answer(handle).and_then(|(passive, id)| passive.refuse(id, data))
    };
    refused.map_or_else(|error| -error, |()| 0)
}
