//! The Scheduled Transfer Protocol for C: endpoints, and who is connected to whom.

use std::ffi::{CString, c_char};
use std::future::Future;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use landfall::stp::{self, Config, Memory, Peer, Transport, blocking};
use rustix::event::{EventfdFlags, eventfd};

use crate::error::{Failure, address, code, number, pointer};
use crate::stp_memory::Shares;
use crate::stp_messages::Incoming;
use crate::{bytes, close, give, shared, text};

/// How an endpoint is opened: see `landfall.h`.
#[derive(Debug)]
#[repr(C)]
pub struct StpConfig {
    address: *const c_char,
    key: *const u8,
    threads: u32,
    flags: u32,
    keep_alive: u32,
    patience: u32,
}

const PLAINTEXT: u32 = 1;
const ENCRYPT_LOOPBACK: u32 = 2;
const KEY: usize = 32;
const MOST_THREADS: u32 = 64;
/// A machine may let a process wait for tens of milliseconds.
const LEAST_PATIENCE: u32 = 100;

/// What a program waits on, beside its other descriptors.
#[derive(Debug)]
struct EventDescriptor(OwnedFd);

impl Wake for EventDescriptor {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // It fails where the number is at its bound: the descriptor is readable then.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

/// An endpoint: see `landfall.h`.
#[derive(Debug)]
pub struct Stp {
    pub(crate) endpoint: blocking::Endpoint,
    descriptor: Arc<EventDescriptor>,
    waker: Waker,
}

/// A port where connections come in: see `landfall.h`.
#[derive(Debug)]
pub struct StpListener {
    listener: stp::Listener,
    context: WaitContext,
}

/// A connection: see `landfall.h`.
#[derive(Debug)]
pub struct StpConnection {
    pub(crate) connection: blocking::Connection,
    pub(crate) context: WaitContext,
    /// What comes, and was not copied out yet. It is locked by the thread that receives.
    pub(crate) incoming: Mutex<Incoming>,
    pub(crate) shares: Arc<Shares>,
}

/// How calls of one endpoint wait.
#[derive(Clone, Debug)]
pub(crate) struct WaitContext {
    pub(crate) endpoint: blocking::Endpoint,
    waker: Waker,
}

impl WaitContext {
    /// Waits for the end of a call, with the deadline of [`Until`].
    pub(crate) fn wait<F: Future + Unpin>(
        &self,
        future: &mut F,
        until: Until,
    ) -> Option<F::Output> {
        let limit = match until {
            Until::Now => {
                return match Pin::new(future).poll(&mut Context::from_waker(&self.waker)) {
                    Poll::Ready(done) => Some(done),
                    Poll::Pending => None,
                };
            }
            Until::Never => return Some(self.endpoint.wait(future)),
            Until::At(at) => remaining(at),
        };
        self.endpoint.wait_within(future, limit)
    }

    /// Where its endpoint is reached.
    pub(crate) fn local(&self) -> Result<String, Failure> {
        match self.endpoint.local() {
            Some(Peer::Socket(local)) => Ok(local.to_string()),
            _ => Err(stp::Error::EndpointClosed.into()),
        }
    }

    pub(crate) fn connect(
        &self,
        peer: &str,
        port: u16,
        until: Until,
    ) -> Result<blocking::Connection, Failure> {
        Ok(match until.left() {
            Some(limit) => self.endpoint.connect_within(peer, port, limit),
            None => self.endpoint.connect(peer, port),
        }?)
    }

    /// Memory with a copy of these bytes.
    pub(crate) fn copy(&self, bytes: &[u8]) -> Result<Memory, Failure> {
        let mut memory = self.memory(bytes.len())?;
        memory.copy_from_slice(bytes);
        Ok(memory)
    }

    /// Memory for this many bytes. Below a page the heap wastes less.
    pub(crate) fn memory(&self, len: usize) -> Result<Memory, Failure> {
        const PAGE: usize = 4096;
        if len < PAGE { Ok(Memory::zeroed(len)) } else { Ok(self.endpoint.memory(len)?) }
    }
}

/// The end of a timeout.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// It is tried once; the descriptor is readable when it is worth another try.
    Now,
    At(Instant),
    Never,
}

impl Until {
    pub(crate) fn new(timeout: i64) -> Self {
        match limit(timeout) {
            None => Self::Never,
            Some(Duration::ZERO) => Self::Now,
            Some(limit) => Instant::now().checked_add(limit).map_or(Self::Never, Self::At),
        }
    }
}

impl Until {
    /// How long it is to the end, if there is one.
    pub(crate) fn left(self) -> Option<Duration> {
        match self {
            Self::Now => Some(Duration::ZERO),
            Self::At(at) => Some(remaining(at)),
            Self::Never => None,
        }
    }

    /// The end, if there is one.
    pub(crate) fn deadline(self) -> Option<Instant> {
        match self {
            Self::Now => Some(Instant::now()),
            Self::At(at) => Some(at),
            Self::Never => None,
        }
    }
}

fn remaining(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

/// A timeout in milliseconds; negative: none.
fn limit(timeout: i64) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis).filter(|limit| *limit < LONG)
}

/// Beyond this nobody waits for the end, and clocks do not overflow before it.
const LONG: Duration = Duration::from_secs(1 << 31);

impl StpConnection {
    fn new(connection: blocking::Connection, context: WaitContext) -> Self {
        let shares = Shares::serve(connection.as_async());
        Self { connection, context, incoming: Mutex::default(), shares }
    }
}

impl StpConfig {
    /// How long peers may be silent.
    fn config(&self) -> Config {
        let milliseconds = |number: u32| Duration::from_millis(number.into());
        let mut config = Config::shared_network();
        if self.patience > 0 {
            config = config.patient_for(milliseconds(self.patience));
        }
        if self.keep_alive > 0 {
            config.keep_alive = Some(milliseconds(self.keep_alive));
        }
        config
    }

    /// # Safety
    /// Its pointers are what the header asks for.
    unsafe fn open(&self) -> Result<Stp, Failure> {
        // SAFETY: the caller's promise.
        let local = unsafe { text(self.address) }?;
        let local: SocketAddr = local.parse().map_err(|_| {
            Failure::Invalid("the address is not one like 192.0.2.1:8181 or [::]:0")
        })?;
        if self.flags & !(PLAINTEXT | ENCRYPT_LOOPBACK) != 0 {
            return Err(Failure::Invalid("a flag is not known"));
        }
        if (1..LEAST_PATIENCE).contains(&self.patience) {
            return Err(Failure::Invalid("a patience of less than 100 milliseconds"));
        }
        if self.threads > MOST_THREADS {
            return Err(Failure::Invalid("more than 64 threads"));
        }
        let mut builder = blocking::Endpoint::builder().path(Transport::udp(local));
        if self.threads > 1 {
            builder = builder.threads(self.threads as usize);
        }
        builder = builder.config(self.config());
        if self.flags & PLAINTEXT != 0 {
            if !self.key.is_null() || self.flags & ENCRYPT_LOOPBACK != 0 {
                return Err(Failure::Invalid("plain text needs no key and no encryption"));
            }
            builder = builder.plaintext();
        }
        if self.flags & ENCRYPT_LOOPBACK != 0 {
            builder = builder.encrypt_loopback();
        }
        if !self.key.is_null() {
            // SAFETY: not null, and the rest is the caller's promise.
            let key = unsafe { bytes(self.key, KEY) }?;
            let key = <[u8; KEY]>::try_from(key).map_err(|_| Failure::Invalid("no key"))?;
            builder = builder.preshared_key(key);
        }
        let endpoint = builder.bind()?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let made = eventfd(0, flags).map_err(|error| stp::Error::NoDescriptor(error.into()))?;
        let descriptor = Arc::new(EventDescriptor(made));
        let waker = Waker::from(Arc::clone(&descriptor));
        Ok(Stp { endpoint: endpoint.into(), descriptor, waker })
    }
}

impl Stp {
    pub(crate) fn context(&self) -> WaitContext {
        WaitContext { endpoint: self.endpoint.clone(), waker: self.waker.clone() }
    }
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_open(config: *const StpConfig) -> *mut Stp {
    pointer(|| {
        // SAFETY: the caller's promise.
        unsafe { shared(config)?.open() }
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_local(endpoint: *const Stp, into: *mut c_char, room: usize) -> i64 {
    number(|| {
        // SAFETY: the caller's promise.
        let endpoint = unsafe { shared(endpoint) }?;
        // SAFETY: the caller's promise.
        unsafe { text_of(&endpoint.context().local()?, into, room) }
    })
}

/// Gives a text to C, with a zero byte, and says how long it is.
///
/// # Safety
/// It is null with no room, or points to this many bytes that nobody else uses meanwhile.
pub(crate) unsafe fn text_of(text: &str, into: *mut c_char, room: usize) -> Result<i64, Failure> {
    let text = CString::new(text).unwrap_or_default();
    // SAFETY: the caller's promise.
    let written = unsafe { give(text.as_bytes_with_nul(), into.cast(), room) }?;
    Ok(written - 1)
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_descriptor(endpoint: *const Stp) -> i32 {
    let found = number(|| {
        // SAFETY: the caller's promise.
        let endpoint = unsafe { shared(endpoint) }?;
        Ok(endpoint.descriptor.0.as_raw_fd().into())
    });
    found as i32
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_close(endpoint: *mut Stp) {
    let _: *mut u8 = address(|| {
        if !endpoint.is_null() {
            // SAFETY: it came from a box, and the rest is the caller's promise.
            let endpoint = unsafe { Box::from_raw(endpoint) };
            endpoint.endpoint.close();
        }
        Ok(std::ptr::null_mut())
    });
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_listen(endpoint: *const Stp, port: u16) -> *mut StpListener {
    pointer(|| {
        // SAFETY: the caller's promise.
        let endpoint = unsafe { shared(endpoint) }?;
        let listener = endpoint.endpoint.as_async().listen(port)?;
        Ok(StpListener { listener, context: endpoint.context() })
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_accept(
    listener: *const StpListener,
    timeout: i64,
) -> *mut StpConnection {
    pointer(|| {
        // SAFETY: the caller's promise.
        let StpListener { listener, context } = unsafe { shared(listener) }?;
        let mut accept = std::pin::pin!(listener.accept());
        let accepted = context.wait(&mut accept, Until::new(timeout));
        let connection = accepted.ok_or(Failure::TimedOut)??;
        Ok(StpConnection::new(connection.into(), context.clone()))
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_listener_close(listener: *mut StpListener) {
    // SAFETY: the caller's promise.
    unsafe { close(listener) }
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_connect(
    endpoint: *const Stp,
    peer: *const c_char,
    port: u16,
    timeout: i64,
) -> *mut StpConnection {
    pointer(|| {
        // SAFETY: the caller's promise.
        let (endpoint, peer) = unsafe { (shared(endpoint)?, text(peer)?) };
        let context = endpoint.context();
        let connection = context.connect(peer, port, Until::new(timeout))?;
        Ok(StpConnection::new(connection, context))
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_abort(connection: *const StpConnection) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let connection = unsafe { shared(connection) }?;
        connection.connection.abort();
        Ok(())
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_connection_close(
    connection: *mut StpConnection,
    timeout: i64,
) -> i32 {
    code(|| {
        if connection.is_null() {
            return Ok(());
        }
        // SAFETY: it came from a box, and the rest is the caller's promise.
        let connection = *unsafe { Box::from_raw(connection) };
        let StpConnection { connection, context, .. } = connection;
        let mut closing = std::pin::pin!(connection.as_async().clone().close());
        match context.wait(&mut closing, Until::new(timeout)) {
            Some(closed) => Ok(closed?),
            None => {
                connection.abort();
                Err(Failure::TimedOut)
            }
        }
    })
}
