//! Endpoints: opened, bound, enabled, closed.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use libc::{size_t, ssize_t};

use super::book::BookHandle;
use super::counter::CounterHandle;
use super::domain::domain_of;
use super::event::EventHandle;
use super::queue::QueueHandle;
use super::{
    atomic, closes, connection, endpoint_calls, give, known, message, of, passive, remote, tagged,
    take,
};
use crate::abi::*;
use crate::address::{self, Name};
use crate::carrier::Carrier;
use crate::channel::{EventTarget, Role, Taken};
use crate::completion::Failure;
use crate::core::Options;
use crate::domain::{Domain, State};
use crate::endpoint::Endpoint;
use crate::events::Source;
use crate::info::longest_of;
use crate::notify::locked;
use crate::settings::Settings;
use crate::world::World;

#[repr(C)]
pub(super) struct EndpointHandle {
    fid: fid_ep,
    pub(super) domain: Arc<Domain>,
    address: Option<SocketAddr>,
    /// `FI_EP_MSG`: where it connects to where the call does not say, or what it takes.
    pub(super) connected: Option<Mutex<Wanted>>,
    /// What is bound before it is enabled.
    options: Mutex<Options>,
    /// Once it is enabled.
    enabled: OnceLock<Enabled>,
    /// A receive for several messages with less room left takes no more: `FI_OPT_MIN_MULTI_RECV`.
    least_left: AtomicUsize,
}

/// What calls need to know of an endpoint, without a lock.
pub(super) struct Enabled {
    pub(super) number: usize,
    pub(super) options: Options,
    name: Name,
}

/// What a receive for several messages keeps free where the program says nothing else.
const LEAST_LEFT: usize = 64;

static FID_OPS: fi_ops = fi_ops { bind, control, ..closes(close) };
static OPS: fi_ops_ep = endpoint_calls(cancel, getopt, setopt);
static CM_OPS: fi_ops_cm = fi_ops_cm { getname, ..connection::NONE };

/// What `FI_EP_MSG` is to have.
#[derive(Debug)]
pub(super) enum Wanted {
    /// A connection to there.
    To(Option<SocketAddr>),
    /// One that was asked for; nothing once it has it.
    Taken(Option<Taken>),
}

pub(super) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    info: *mut fi_info,
    endpoint: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: an open domain, and an info.
    let (domain, info) = unsafe { (domain_of(domain), &*info) };
    if !domain.is_here() {
        return -FI_EOPBADSTATE;
    }
    // SAFETY: what an info points to is there, or null; so for those below.
    let kind = unsafe { info.ep_attr.as_ref() }.map_or(FI_EP_RDM, |ep| ep.r#type);
    let connected = match kind {
        FI_EP_RDM | FI_EP_DGRAM => None,
        FI_EP_MSG if info.handle.is_null() => {
            // SAFETY: an address is as long as its family says.
            Some(Mutex::new(Wanted::To(unsafe { address::read(info.dest_addr) })))
        }
        FI_EP_MSG => {
            // SAFETY: the handle is that of a request.
            match unsafe { passive::take_request(info.handle) } {
                Ok(taken) => Some(Mutex::new(Wanted::Taken(Some(taken)))),
                Err(error) => return -error,
            }
        }
        _ => return -FI_EINVAL,
    };
    // SAFETY: see above.
    let transmit_flags = unsafe { info.tx_attr.as_ref() }.map_or(0, |tx| tx.op_flags);
    // SAFETY: see above.
    let receive_flags = unsafe { info.rx_attr.as_ref() }.map_or(0, |rx| rx.op_flags);
    // SAFETY: see above.
    let address = unsafe { address::read(info.src_addr) }.or(domain.address);
    let handle = EndpointHandle {
        fid: fid_ep {
            fid: known(FI_CLASS_EP, context, &FID_OPS),
            ops: &raw const OPS,
            cm: if connected.is_some() { &raw const connection::OPS } else { &raw const CM_OPS },
            msg: &raw const message::OPS,
            rma: &raw const remote::OPS,
            tagged: &raw const tagged::OPS,
            atomic: &raw const atomic::OPS,
            collective: std::ptr::null(),
        },
        domain: Arc::clone(domain),
        address,
        connected,
        options: Mutex::new(Options {
            transmit_flags,
            receive_flags,
            is_directed: info.caps & FI_DIRECTED_RECV != 0,
            longest: longest_of(kind),
            ..Options::default()
        }),
        enabled: OnceLock::new(),
        least_left: AtomicUsize::new(LEAST_LEFT),
    };
    // SAFETY: a place for the handle, which begins with its `fid_ep`.
    unsafe { give(handle, endpoint) }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the program uses it no more.
    let mut handle: Box<EndpointHandle> = unsafe { take(fid) };
    if !handle.domain.is_here() {
        // A connection that was not taken yet is the parent's.
        std::mem::forget(handle.connected.take());
    }
    let mut state = handle.domain.lock();
    if let Some(enabled) = handle.enabled.get()
        && let Some(mut endpoint) = state.endpoints.remove(enabled.number)
    {
        endpoint.close(&mut state.world);
    }
    if let Some(book) = locked(&handle.options).book
        && let Some(book) = state.world.books.get_mut(book)
    {
        book.users -= 1;
    }
    0
}

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    // SAFETY: an endpoint, and what it is bound to, which begins with its class.
    let (handle, class): (&EndpointHandle, _) = unsafe { (of(fid), (*other).fclass) };
    if handle.enabled.get().is_some() || !handle.domain.is_here() {
        return -FI_EOPBADSTATE;
    }
    let mut options = locked(&handle.options);
    match class {
        FI_CLASS_CQ => {
            // SAFETY: its class says that it is a queue.
            let number = unsafe { of::<QueueHandle, _>(other) }.number;
            if flags & (FI_SEND | FI_RECV) == 0 {
                return -FI_EINVAL;
            }
            let is_selective = flags & FI_SELECTIVE_COMPLETION != 0;
            if flags & FI_SEND != 0 {
                (options.transmit, options.selective_transmit) = (Some(number), is_selective);
            }
            if flags & FI_RECV != 0 {
                (options.receive, options.selective_receive) = (Some(number), is_selective);
            }
            0
        }
        FI_CLASS_CNTR => {
            // SAFETY: its class says that it is a counter.
            let number = unsafe { of::<CounterHandle, _>(other) }.number;
            options.counters.push((flags, number));
            0
        }
        FI_CLASS_AV => {
            // SAFETY: its class says that it is an address vector.
            let number = unsafe { of::<BookHandle, _>(other) }.number;
            if options.book.replace(number).is_some() {
                return -FI_EINVAL;
            }
            if let Some(book) = handle.domain.lock().world.books.get_mut(number) {
                book.users += 1;
            }
            0
        }
        FI_CLASS_EQ => {
            // SAFETY: its class says that it is an event queue.
            let events = &unsafe { of::<EventHandle, _>(other) }.events;
            let source: Arc<dyn Source> = Arc::clone(&handle.domain) as Arc<dyn Source>;
            events.follow(&source, &handle.domain.notify);
            options.events = Some(Arc::clone(events));
            0
        }
        _ => -FI_EINVAL,
    }
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: an endpoint.
    let handle: &EndpointHandle = unsafe { of(fid) };
    match command {
        FI_ENABLE => match handle.enable() {
            Ok(()) => 0,
            Err(error) => -error,
        },
        FI_GETOPSFLAG => {
            let options = locked(&handle.options);
            // SAFETY: the program gives flags that say which it wants, and a place for them.
            unsafe {
                let flags = arg.cast::<u64>();
                let is_send = *flags & FI_SEND != 0;
                *flags = if is_send { options.transmit_flags } else { options.receive_flags };
            }
            0
        }
        _ => -FI_ENOSYS,
    }
}

impl EndpointHandle {
    pub(super) fn enable(&self) -> Result<(), c_int> {
        if self.enabled.get().is_some() {
            return Ok(());
        }
        if !self.domain.is_here() {
            return Err(FI_EOPBADSTATE);
        }
        let options = locked(&self.options).clone();
        let counts = |flags| options.counters.iter().any(|(counted, _)| counted & flags != 0);
        if options.transmit.is_none() && !counts(FI_SEND | FI_WRITE | FI_READ)
            || options.receive.is_none() && !counts(FI_RECV | FI_REMOTE_WRITE)
        {
            return Err(FI_ENOCQ);
        }
        let mut state = self.domain.lock();
        let number = state.endpoints.next();
        let opened = self.open(&mut state, number, options.clone());
        let endpoint = opened.map_err(|failure| {
            eprintln!("landfall: cannot open an endpoint: {}", failure.text);
            failure.error
        })?;
        let name = endpoint.full_name();
        state.endpoints.add(endpoint);
        // Anyone who enables it twice at a time breaks libfabric's rules.
        let _ = self.enabled.set(Enabled { number, options, name });
        Ok(())
    }

    fn open(
        &self,
        state: &mut State,
        number: usize,
        options: Options,
    ) -> Result<Endpoint, Failure> {
        let (notify, settings) = (&self.domain.notify, &self.domain.settings);
        let no_address = || Failure::new(FI_EADDRNOTAVAIL, "this host has no address");
        let Some(wanted) = &self.connected else {
            if options.book.is_none() {
                return Err(Failure::new(FI_ENOAV, "no address vector is bound"));
            }
            let address = specific(self.address, settings).ok_or_else(no_address)?;
            let carrier = Carrier::bind(address, settings)?;
            return Endpoint::open(number, carrier, notify, options, Role::Unconnected);
        };
        let no_queue = || Failure::new(FI_ENOEQ, "no event queue is bound");
        let events = options.events.clone().ok_or_else(no_queue)?;
        let (fid, context) = (std::ptr::from_ref(self) as usize, self.fid.fid.context as usize);
        let target = EventTarget { events, fid, context };
        match &mut *locked(wanted) {
            Wanted::Taken(taken) => {
                let gone = || Failure::new(FI_EOPBADSTATE, "the connection was taken before");
                let taken = taken.take().ok_or_else(gone)?;
                Endpoint::take_over(number, taken, notify, options, target)
            }
            Wanted::To(_) => {
                let address = specific(self.address, settings).ok_or_else(no_address)?;
                let carrier = state.carrier(address, settings)?;
                Endpoint::open(number, carrier, notify, options, Role::connected(target))
            }
        }
    }

    /// Does something with the connection of this endpoint.
    pub(super) fn with_connection<T>(
        &self,
        what: impl FnOnce(&mut Endpoint, &mut World) -> Result<T, c_int>,
    ) -> Result<T, c_int> {
        let enabled = self.enabled()?;
        let mut state = self.domain.lock();
        let (endpoint, world) = state.endpoint(enabled.number).ok_or(FI_EOPBADSTATE)?;
        what(endpoint, world)
    }

    pub(super) fn least_left(&self) -> usize {
        self.least_left.load(Ordering::Relaxed)
    }

    /// Once it is enabled.
    pub(super) fn enabled(&self) -> Result<&Enabled, c_int> {
        self.enabled.get().ok_or(FI_EOPBADSTATE)
    }
}

/// An address that others can be target: not that of all interfaces.
pub(super) fn specific(address: Option<SocketAddr>, settings: &Settings) -> Option<SocketAddr> {
    match address {
        Some(address) if !address.ip().is_unspecified() => Some(address),
        other => {
            let port = other.map_or(0, |address| address.port());
            let is_kind =
                |ip: std::net::IpAddr| other.is_none_or(|it| it.is_ipv4() == ip.is_ipv4());
            let local = settings.locals().into_iter().find(|local| is_kind(local.ip))?;
            Some(local.with_port(port))
        }
    }
}

unsafe extern "C" fn cancel(fid: *mut fid, context: *mut c_void) -> ssize_t {
    // SAFETY: an endpoint.
    let handle: &EndpointHandle = unsafe { of(fid) };
    let Ok(enabled) = handle.enabled() else { return -FI_EOPBADSTATE as ssize_t };
    let mut state = handle.domain.lock();
    if let Some((endpoint, world)) = state.endpoint(enabled.number) {
        endpoint.cancel(world, context as usize);
    }
    0
}

unsafe extern "C" fn getopt(
    fid: *mut fid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut size_t,
) -> c_int {
    // SAFETY: an endpoint.
    let handle: &EndpointHandle = unsafe { of(fid) };
    // SAFETY: the program says how much room there is, and where.
    unsafe {
        match (level, name) {
            (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV) => {
                connection::write_size(handle.least_left(), value, len)
            }
            _ => connection::connection_data_size(level, name, value, len),
        }
    }
}

unsafe extern "C" fn setopt(
    fid: *mut fid,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: size_t,
) -> c_int {
    // SAFETY: an endpoint.
    let handle: &EndpointHandle = unsafe { of(fid) };
    if (level, name) != (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV) {
        return -libc::ENOPROTOOPT;
    }
    if len != size_of::<size_t>() {
        return -FI_EINVAL;
    }
    // SAFETY: the program gives a value of this length.
    let least = unsafe { value.cast::<size_t>().read_unaligned() };
    handle.least_left.store(least, Ordering::Relaxed);
    0
}

pub(super) unsafe extern "C" fn getname(
    fid: *mut fid,
    into: *mut c_void,
    len: *mut size_t,
) -> c_int {
    // SAFETY: an endpoint.
    let handle: &EndpointHandle = unsafe { of(fid) };
    let Ok(enabled) = handle.enabled() else { return -FI_EOPBADSTATE };
    // SAFETY: the program says how much room there is, and where.
    unsafe { connection::write_name(&enabled.name, into, len) }
}
