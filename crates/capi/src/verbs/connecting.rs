//! How queue pairs are connected.

use std::ffi::c_char;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Instant;

use landfall::clan::Error;
use landfall::clan::shared::{Offer, SharedNode};
use landfall::qpip::{self, Mapping, Service};
use landfall::stp::Listener;
use landfall::verbs::clan::Half;
use landfall::verbs::software::QueuePairOptions;
use landfall::verbs::{clan as over_clan, stp as over_stp};

use super::address::socket;
use super::completions::{CompletionState, Completions, SharedReceives, SharedRoom, with_both};
use super::pair::{Ends, Pair, Places};
use super::{Any, OF_ANOTHER, Verbs, qpip::Host};
use crate::error::{Failure, pointer};
use crate::stp::{Until, WaitContext};
use crate::{close, shared, text};

/// What a queue pair is like: see `landfall.h`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PairOptions {
    sends: *const Completions,
    receives: *const Completions,
    shared: *const SharedReceives,
    send_depth: u32,
    receive_depth: u32,
    inlined: u32,
    flags: u32,
}

const STREAM: u32 = 1;
const MESSAGES: Service = Service::Tcp(Mapping::Message);
const OF_QPIP: Failure = Failure::Invalid("only QPIP has streams and datagrams");

/// The same, checked.
struct Wanted<'a> {
    sends: &'a Arc<CompletionState>,
    receives: &'a Arc<CompletionState>,
    room: Option<&'a Arc<SharedRoom>>,
    options: QueuePairOptions,
    service: Service,
}

/// Bounds of what one queue pair takes.
const MOST_REQUESTS: u32 = 1 << 16;
const MOST_INLINE: u32 = 1 << 16;

impl PairOptions {
    /// # Safety
    /// Its pointers are what the header asks for.
    unsafe fn wanted<'a>(&self) -> Result<Wanted<'a>, Failure> {
        // SAFETY: null, or the caller's promise.
        let room = unsafe { self.shared.as_ref() }.map(|SharedReceives(room)| room);
        // SAFETY: the caller's promise.
        let sends = &unsafe { shared(self.sends) }?.0;
        let receives = match room {
            Some(room) => &room.completions,
            // SAFETY: the caller's promise.
            None => &unsafe { shared(self.receives) }?.0,
        };
        let usual = QueuePairOptions::default();
        let or = |given: u32, usual: u32| if given == 0 { usual } else { given };
        let (sends_of, receives_of) =
            (or(self.send_depth, usual.sends), or(self.receive_depth, usual.receives));
        if self.flags & !STREAM != 0 {
            return Err(Failure::Invalid("a flag is not known"));
        }
        if sends_of.max(receives_of) > MOST_REQUESTS {
            return Err(Failure::Invalid("a queue pair has at most 65,536 requests each way"));
        }
        if self.inlined > MOST_INLINE {
            return Err(Failure::Invalid("at most 65,536 bytes are copied when they are posted"));
        }
        let inline = or(self.inlined, 1024) as usize;
        let options = QueuePairOptions { sends: sends_of, receives: receives_of, inline };
        let is_stream = self.flags & STREAM != 0;
        let service = if is_stream { Service::Tcp(Mapping::Stream) } else { MESSAGES };
        Ok(Wanted { sends, receives, room, options, service })
    }
}

impl Wanted<'_> {
    fn places(&self) -> Places {
        let queues = [self.sends, self.receives].map(Arc::clone);
        let ends_with_peer = self.service == MESSAGES;
        Places { queues, _room: self.room.cloned(), ends_with_peer }
    }

    /// Has this carrier queue pairs like it?
    fn check<S, C, Q>(&self, carrier: &Any<S, C, Q>) -> Result<(), Failure> {
        match (carrier, self.service) {
            (Any::Qpip(_), _) | (_, MESSAGES) => Ok(()),
            _ => Err(OF_QPIP),
        }
    }

    fn pair(&self, ends: Ends) -> Pair {
        Pair::new(ends, self.places())
    }

    fn over_stp(&self, connection: &landfall::stp::Connection) -> Result<Pair, Failure> {
        let pair = with_both([self.sends, self.receives], |sends, receives| {
            let (Any::Stp(sends), Any::Stp(receives)) = (sends, receives) else {
                return Err(OF_ANOTHER);
            };
            Ok(match self.room {
                None => over_stp::QueuePair::new(connection, sends, receives, &self.options)?,
                Some(room) => match &*locked(&room.room) {
                    Any::Stp(room) => {
                        over_stp::QueuePair::sharing(connection, sends, room, &self.options)?
                    }
                    _ => return Err(OF_ANOTHER),
                },
            })
        })?;
        Ok(self.pair(Any::Stp(pair)))
    }

    fn half(&self, node: &SharedNode) -> Result<Half<SharedNode>, Failure> {
        with_both([self.sends, self.receives], |sends, receives| {
            let (Any::Clan(sends), Any::Clan(receives)) = (sends, receives) else {
                return Err(OF_ANOTHER);
            };
            Ok(match self.room {
                None => over_clan::QueuePair::open(node, sends, receives, &self.options)?,
                Some(room) => match &*locked(&room.room) {
                    Any::Clan(room) => {
                        over_clan::QueuePair::open_sharing(node, sends, room, &self.options)?
                    }
                    _ => return Err(OF_ANOTHER),
                },
            })
        })
    }

    fn over_qpip(&self, host: &Host) -> Result<qpip::QueuePair, Failure> {
        let QueuePairOptions { sends, receives, inline } = self.options;
        let options = qpip::QueuePairOptions {
            send_depth: sends,
            receive_depth: receives,
            inline: inline as u32,
            tells: true,
            service: self.service,
            ..qpip::QueuePairOptions::tcp(Mapping::Message)
        };
        with_both([self.sends, self.receives], |sends, receives| {
            let (Any::Qpip(sends), Any::Qpip(receives)) = (sends, receives) else {
                return Err(OF_ANOTHER);
            };
            Ok(match self.room {
                None => host.domain.queue_pair(&options, sends, receives)?,
                Some(room) => match &*locked(&room.room) {
                    Any::Qpip(room) => {
                        host.domain.queue_pair_sharing(&options, (sends, receives), room)?
                    }
                    _ => return Err(OF_ANOTHER),
                },
            })
        })
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where connections come in: see `landfall.h`.
#[derive(Debug)]
pub struct PairListener(Any<(Listener, WaitContext), (Offer, SharedNode), Waiting>);

/// A listener of QPIP. A queue pair is offered, which waits for a connection until there is one:
/// one that came to nothing in time is there for the next call.
#[derive(Debug)]
struct Waiting {
    host: Host,
    listener: qpip::Listener,
    /// Where requests of the one that is offered complete. It is locked by the thread that accepts.
    offered: Mutex<Option<Places>>,
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_pair_listen(
    verbs: *const Verbs,
    place: *const c_char,
) -> *mut PairListener {
    pointer(|| {
        // SAFETY: the caller's promise.
        let (verbs, place) = unsafe { (shared(verbs)?, text(place)?) };
        Ok(PairListener(match &verbs.0 {
            Any::Stp(context) => {
                let listener = context.endpoint.as_async().listen(port(place)?)?;
                Any::Stp((listener, context.clone()))
            }
            Any::Clan(node) => Any::Clan((node.offer(place)?, node.clone())),
            Any::Qpip(host) => {
                let listener = host.adapter.listen(socket(place)?)?;
                Any::Qpip(Waiting { host: host.clone(), listener, offered: Mutex::default() })
            }
        }))
    })
}

fn port(text: &str) -> Result<u16, Failure> {
    text.parse().map_err(|_| Failure::Invalid("a port of STP is a number of 0 to 65535"))
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_pair_accept(
    listener: *const PairListener,
    options: *const PairOptions,
    timeout: i64,
) -> *mut Pair {
    pointer(|| {
        // SAFETY: the caller's promise.
        let (listener, wanted) = unsafe { (shared(listener)?, shared(options)?.wanted()?) };
        wanted.check(&listener.0)?;
        let until = Until::new(timeout);
        match &listener.0 {
            Any::Stp((listener, context)) => {
                // One that is gone already is passed over.
                loop {
                    let mut accept = std::pin::pin!(listener.accept());
                    let connection =
                        context.wait(&mut accept, until).ok_or(Failure::TimedOut)??;
                    match wanted.over_stp(&connection) {
                        Err(Failure::Stp(landfall::stp::Error::Closed { .. })) => {}
                        pair => return pair,
                    }
                }
            }
            Any::Clan((offer, node)) => {
                let pair = accept(&wanted, offer, node, until.deadline())?;
                Ok(wanted.pair(Any::Clan(pair)))
            }
            Any::Qpip(waiting) => waiting.accept(&wanted, until),
        }
    })
}

/// The next who has found the name and came for a queue pair: others are refused.
fn accept(
    wanted: &Wanted<'_>,
    offer: &Offer,
    node: &SharedNode,
    until: Option<Instant>,
) -> Result<over_clan::QueuePair<SharedNode>, Failure> {
    loop {
        let visitor = offer.accept(until)?;
        match wanted.half(node)?.accept(visitor) {
            Err(
                Error::BadConfig(_)
                | Error::NoCookie(_)
                | Error::PeerLost
                | Error::StaleCookie
                | Error::NoRoute
                | Error::Forbidden
                | Error::Refused(_),
            ) => {}
            joined => return Ok(joined?),
        }
    }
}

impl Waiting {
    fn accept(&self, wanted: &Wanted<'_>, until: Until) -> Result<Pair, Failure> {
        let mut offered = match self.offered.try_lock() {
            Ok(offered) => offered,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::Invalid("another thread accepts at this listener"));
            }
        };
        if offered.is_none() {
            let pair = wanted.over_qpip(&self.host)?;
            self.listener.offer(pair).map_err(qpip::Error::from)?;
            *offered = Some(wanted.places());
        }
        let accepted = match until.left() {
            None => Some(self.listener.accept().wait()),
            Some(limit) => self.listener.accept().wait_for(limit),
        };
        let pair = accepted.ok_or(Failure::TimedOut)??;
        let places = offered.take().unwrap_or_else(|| wanted.places());
        Ok(Pair::new(Any::Qpip(pair), places))
    }
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_pair_listener_close(listener: *mut PairListener) {
    // SAFETY: the caller's promise.
    unsafe { close(listener) }
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_pair_connect(
    verbs: *const Verbs,
    place: *const c_char,
    options: *const PairOptions,
    timeout: i64,
) -> *mut Pair {
    pointer(|| {
        // SAFETY: the caller's promise.
        let (verbs, place) = unsafe { (shared(verbs)?, text(place)?) };
        // SAFETY: the caller's promise.
        let wanted = unsafe { shared(options)?.wanted() }?;
        wanted.check(&verbs.0)?;
        let until = Until::new(timeout);
        match &verbs.0 {
            Any::Stp(context) => {
                let (peer, port_of) = place.rsplit_once('/').ok_or(Failure::Invalid(
                    "a place of STP is like 192.0.2.1:8181/7: HOST:PORT of UDP, and a port of STP",
                ))?;
                let connection = context.connect(peer, port(port_of)?, until)?;
                wanted.over_stp(connection.as_async())
            }
            Any::Clan(node) => {
                let found = node.find(place, until.deadline())?;
                let pair = wanted.half(node)?.join(&found, until.deadline())?;
                Ok(wanted.pair(Any::Clan(pair)))
            }
            Any::Qpip(host) => {
                let pair = wanted.over_qpip(host)?;
                let connecting = pair.connect(socket(place)?);
                let connected = match until.left() {
                    None => Some(connecting.wait()),
                    Some(limit) => connecting.wait_for(limit),
                };
                connected.ok_or(Failure::TimedOut)??;
                Ok(wanted.pair(Any::Qpip(pair)))
            }
        }
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_pair_bind(
    verbs: *const Verbs,
    place: *const c_char,
    options: *const PairOptions,
) -> *mut Pair {
    pointer(|| {
        // SAFETY: the caller's promise.
        let (verbs, place) = unsafe { (shared(verbs)?, text(place)?) };
        // SAFETY: the caller's promise.
        let mut wanted = unsafe { shared(options)?.wanted() }?;
        let Any::Qpip(host) = &verbs.0 else {
            return Err(OF_QPIP);
        };
        if wanted.service != MESSAGES {
            return Err(Failure::Invalid("a queue pair for datagrams is no stream"));
        }
        wanted.service = Service::Udp;
        let mut pair = wanted.over_qpip(host)?;
        pair.bind(socket(place)?)?;
        Ok(wanted.pair(Any::Qpip(pair)))
    })
}

impl fmt::Debug for Wanted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wanted").field("options", &self.options).finish_non_exhaustive()
    }
}
