//! Messages over STP for C, and what is under way.

use std::ffi::c_void;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError, TryLockError};

use landfall::stp::{Ended, EngineError, Error, Message, Offer, Operation, Part, Reason};

use crate::error::{Failure, code, number, pointer};
use crate::stp::{StpConnection, Until, WaitContext};
use crate::verbs::{PartOf as _, Region, range};
use crate::{bytes, close, give, shared};

/// The next message of a connection, as far as it is.
#[derive(Debug, Default)]
pub enum Incoming {
    /// None is known.
    #[default]
    None,
    /// The other side has it.
    Offered(Offer),
    /// It comes, with this many bytes.
    Coming(Operation<Message>, u64),
    /// It is here, and there was no room for it.
    Here(Message),
}

impl Incoming {
    fn len(&self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Offered(offer) => Some(offer.len()),
            Self::Coming(_, len) => Some(*len),
            Self::Here(message) => Some(message.len() as u64),
        }
    }

    /// Waits until one is known, and says how long it is.
    fn next(&mut self, from: &StpConnection, until: Until) -> Result<u64, Failure> {
        if let Some(len) = self.len() {
            return Ok(len);
        }
        let mut offer = pin!(from.connection.as_async().offer());
        let offer = from.context.wait(&mut offer, until).ok_or(Failure::TimedOut)??;
        let len = offer.len();
        *self = Self::Offered(offer);
        Ok(len)
    }

    /// Waits until it is here. None is there afterwards where its sender has given it up.
    fn arrive(&mut self, context: &WaitContext, until: Until) -> Result<(), Failure> {
        if let Self::Offered(offer) = self {
            let len = offer.len();
            let memory = context.memory(usize::try_from(len).unwrap_or(usize::MAX))?;
            if let Self::Offered(offer) = std::mem::take(self) {
                *self = Self::Coming(offer.accept(memory).start(), len);
            }
        }
        if let Self::Coming(operation, _) = self {
            let message = context.wait(operation, until).ok_or(Failure::TimedOut)?;
            *self = match message.map_err(Error::from) {
                Ok(message) => Self::Here(message),
                // Where it failed there is nothing to be received any more.
                Err(error) => {
                    *self = Self::None;
                    return if is_given_up(&error) { Ok(()) } else { Err(error.into()) };
                }
            };
        }
        Ok(())
    }
}

/// Has the sender ended it, and nothing else?
const fn is_given_up(error: &Error) -> bool {
    matches!(
        error,
        Error::Ended { why: Ended::There(Reason::Cancelled | Reason::Gone), .. }
            | Error::Refused(EngineError::Unknown)
    )
}

/// The messages of a connection, for the one thread that receives.
fn incoming<T>(
    connection: &StpConnection,
    call: impl FnOnce(&mut Incoming) -> Result<T, Failure>,
) -> Result<T, Failure> {
    match connection.incoming.try_lock() {
        Ok(mut incoming) => call(&mut incoming),
        Err(TryLockError::Poisoned(poisoned)) => call(&mut poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => {
            Err(Failure::Invalid("another thread receives on this connection"))
        }
    }
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_next(connection: *const StpConnection, timeout: i64) -> i64 {
    number(|| {
        // SAFETY: the caller's promise.
        let connection = unsafe { shared(connection) }?;
        let next = |incoming: &mut Incoming| incoming.next(connection, Until::new(timeout));
        Ok(self::incoming(connection, next)?.try_into().unwrap_or(i64::MAX))
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_receive(
    connection: *const StpConnection,
    into: *mut c_void,
    room: usize,
    opaque: *mut u32,
    timeout: i64,
) -> i64 {
    number(|| {
        // SAFETY: the caller's promise.
        let connection = unsafe { shared(connection) }?;
        incoming(connection, |incoming| {
            let until = Until::new(timeout);
            let message = loop {
                let len = incoming.next(connection, until)?;
                if len > room as u64 {
                    return Err(Failure::TooLong { len, room: room as u64 });
                }
                if len > 0 && into.is_null() {
                    return Err(Failure::Invalid("bytes are NULL"));
                }
                incoming.arrive(&connection.context, until)?;
                if let Incoming::Here(message) = incoming {
                    break message;
                }
            };
            // SAFETY: the caller's promise.
            let given = unsafe { give(message, into.cast(), room) }?;
            // SAFETY: it is null, or the caller's promise.
            if let Some(opaque) = unsafe { opaque.as_mut() } {
                *opaque = message.opaque();
            }
            *incoming = Incoming::None;
            Ok(given)
        })
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_refuse(connection: *const StpConnection) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let connection = unsafe { shared(connection) }?;
        incoming(connection, |incoming| match std::mem::take(incoming) {
            Incoming::None => Err(Failure::Invalid("no message is there to be refused")),
            Incoming::Offered(offer) => {
                offer.refuse(Reason::TooLong);
                Ok(())
            }
            // Dropped, it is cancelled, or forgotten.
            Incoming::Coming(..) | Incoming::Here(_) => Ok(()),
        })
    })
}

type Pending = Pin<Box<dyn Future<Output = Result<u64, Error>> + Send>>;

enum Stage {
    UnderWay(Pending),
    Over(Result<u64, (i32, String)>),
}

/// Something under way: see `landfall.h`.
pub struct StpOperation {
    stage: Mutex<Stage>,
    context: WaitContext,
}

impl std::fmt::Debug for StpOperation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StpOperation").field("context", &self.context).finish_non_exhaustive()
    }
}

impl StpOperation {
    /// What was started, and which number it gives.
    pub(crate) fn new(
        context: &WaitContext,
        pending: impl Future<Output = Result<u64, Error>> + Send + 'static,
    ) -> Self {
        let stage = Mutex::new(Stage::UnderWay(Box::pin(pending)));
        Self { stage, context: context.clone() }
    }

    pub(crate) fn status(&self, until: Until) -> Result<u64, Failure> {
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if let Stage::UnderWay(pending) = &mut *stage {
            let over = self.context.wait(pending, until).ok_or(Failure::TimedOut)?;
            let over = over.map_err(|error| {
                let failure = Failure::from(error);
                (failure.code(), failure.text())
            });
            *stage = Stage::Over(over);
        }
        match &*stage {
            Stage::Over(over) => over.clone().map_err(|(code, text)| Failure::Known(code, text)),
            Stage::UnderWay(_) => Err(Failure::TimedOut),
        }
    }
}

/// Sends a copy.
fn send(connection: &StpConnection, bytes: &[u8], opaque: u32) -> Result<StpOperation, Failure> {
    let memory = connection.context.copy(bytes)?;
    let send = connection.connection.send(memory).opaque(opaque).start();
    Ok(StpOperation::new(&connection.context, async { Ok(send.await?.len) }))
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_send(
    connection: *const StpConnection,
    from: *const c_void,
    length: usize,
    opaque: u32,
    timeout: i64,
) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let (connection, from) = unsafe { (shared(connection)?, bytes(from.cast(), length)?) };
        send(connection, from, opaque)?.status(Until::new(timeout)).map(drop)
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_begin_send(
    connection: *const StpConnection,
    from: *const c_void,
    length: usize,
    opaque: u32,
) -> *mut StpOperation {
    pointer(|| {
        // SAFETY: the caller's promise.
        let (connection, from) = unsafe { (shared(connection)?, bytes(from.cast(), length)?) };
        send(connection, from, opaque)
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_begin_send_from(
    connection: *const StpConnection,
    region: *const Region,
    at: u64,
    length: u64,
    opaque: u32,
) -> *mut StpOperation {
    pointer(|| {
        // SAFETY: the caller's promise.
        let (connection, region) = unsafe { (shared(connection)?, shared(region)?) };
        let part = Part::of(region, range(at, length)?)?;
        let send = connection.connection.send(part).opaque(opaque).start();
        Ok(StpOperation::new(&connection.context, async { Ok(send.await?.len) }))
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_begin_receive(
    connection: *const StpConnection,
    region: *const Region,
    at: u64,
    length: u64,
) -> *mut StpOperation {
    pointer(|| {
        // SAFETY: the caller's promise.
        let (connection, region) = unsafe { (shared(connection)?, shared(region)?) };
        let receive =
            connection.connection.receive_into(&Part::of(region, range(at, length)?)?).start();
        Ok(StpOperation::new(&connection.context, async { Ok(receive.await?.len) }))
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_status(
    operation: *const StpOperation,
    value: *mut u64,
    timeout: i64,
) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let operation = unsafe { shared(operation) }?;
        let found = operation.status(Until::new(timeout))?;
        // SAFETY: it is null, or the caller's promise.
        if let Some(value) = unsafe { value.as_mut() } {
            *value = found;
        }
        Ok(())
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_operation_close(operation: *mut StpOperation) {
    // SAFETY: the caller's promise.
    unsafe { close(operation) }
}
