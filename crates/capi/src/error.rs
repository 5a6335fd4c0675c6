//! What goes wrong, in terms of C: a code, and a text for each thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use landfall::clan::Error;
use landfall::qpip::{self, CloseReason, PostError};
use landfall::stp;
use landfall::stp::{Ended, EngineError, Reason};

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An argument makes no sense.
    Invalid(&'static str),
    /// The library's own error.
    Clan(Error),
    /// The same of STP.
    Stp(stp::Error),
    /// An endpoint could not be opened.
    Bind(stp::BindError),
    /// The same of QPIP.
    Qpip(qpip::Error),
    /// An adapter could not be opened.
    Open(qpip::OpenError),
    /// A request was not posted.
    Post(PostError),
    /// The deadline is over, or nothing is there.
    TimedOut,
    /// A message does not fit.
    TooLong { len: u64, room: u64 },
    /// What was found out before.
    Known(i32, String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Clan(error)
    }
}

impl From<stp::Error> for Failure {
    fn from(error: stp::Error) -> Self {
        Self::Stp(error)
    }
}

impl From<stp::Failed> for Failure {
    fn from(failed: stp::Failed) -> Self {
        Self::Stp(failed.into())
    }
}

impl From<stp::BindError> for Failure {
    fn from(error: stp::BindError) -> Self {
        Self::Bind(error)
    }
}

impl From<qpip::Error> for Failure {
    fn from(error: qpip::Error) -> Self {
        Self::Qpip(error)
    }
}

impl From<qpip::OpenError> for Failure {
    fn from(error: qpip::OpenError) -> Self {
        Self::Open(error)
    }
}

impl From<PostError> for Failure {
    fn from(error: PostError) -> Self {
        Self::Post(error)
    }
}

/// The code of what was not posted.
const fn post_code(error: PostError) -> i32 {
    match error {
        PostError::QueueFull | PostError::CompletionQueueFull => -10,
        PostError::Ended | PostError::UnknownQueuePair | PostError::UnknownSharedQueue => -2,
        PostError::TooLong => -7,
        PostError::NoRight => -6,
        PostError::NoRoute => -3,
        _ => -8,
    }
}

/// The code of an error of QPIP.
const fn qpip_code(error: &qpip::Error) -> i32 {
    use qpip::Error;
    match error {
        Error::NotConnected(CloseReason::Refused) => -6,
        Error::NotConnected(_) | Error::Ended(_) => -3,
        Error::AdapterGone => -2,
        Error::OutOfBounds { .. } | Error::TooLong(_) | Error::ForeignHandle => -8,
        _ => -9,
    }
}

/// The code of what ended early.
const fn ended(why: Ended) -> i32 {
    match why {
        Ended::There(Reason::TooLong) | Ended::DoesNotFit => -7,
        Ended::There(Reason::Closing) => -2,
        Ended::There(Reason::Gone) | Ended::Silent | Ended::Unreachable | Ended::ConnectionGone => {
            -3
        }
        Ended::There(_) => -6,
        Ended::Here | Ended::MemoryFailed => -9,
    }
}

/// The code of an error of STP.
const fn stp_code(error: &stp::Error) -> i32 {
    use stp::Error;
    match error {
        Error::TimedOut { .. } => -1,
        Error::Closed { why: None } | Error::EndpointClosed => -2,
        Error::Closed { why: Some(_) } => -3,
        Error::NotConnected(why) | Error::Ended { why, .. } => ended(*why),
        Error::NoKeys { .. } | Error::NotEncrypted { .. } => -6,
        Error::Refused(EngineError::Forbidden) => -6,
        Error::Refused(EngineError::NotOpen) => -2,
        Error::Refused(EngineError::Unknown) => -3,
        Error::Refused(EngineError::TooLong) => -7,
        Error::Refused(
            EngineError::OutOfBounds
            | EngineError::Unaligned
            | EngineError::BadMemory
            | EngineError::TooShort
            | EngineError::OutOfRange(_),
        )
        | Error::OutOfBounds { .. }
        | Error::ForeignMemory
        | Error::TakenBack
        | Error::Name { .. }
        | Error::NoPathTo { .. } => -8,
        _ => -9,
    }
}

thread_local! {
    static LAST: RefCell<(i32, CString)> = RefCell::default();
}

impl Failure {
    pub(crate) const fn code(&self) -> i32 {
        match self {
            Self::Known(code, _) => *code,
            Self::Stp(error) => stp_code(error),
            Self::TimedOut | Self::Clan(Error::TimedOut | Error::Busy) => -1,
            Self::Clan(Error::Closed) => -2,
            Self::Clan(Error::PeerLost | Error::StaleCookie | Error::NoRoute) => -3,
            Self::Clan(Error::PeerMisbehaved(_)) => -4,
            Self::Clan(Error::OtherLayout { .. }) => -5,
            Self::Clan(Error::Refused(_) | Error::Forbidden) => -6,
            Self::TooLong { .. } | Self::Clan(Error::TooLong { .. }) => -7,
            Self::Post(error) => post_code(*error),
            Self::Qpip(error) => qpip_code(error),
            Self::Invalid(_)
            | Self::Open(qpip::OpenError::BadLink(_))
            | Self::Clan(
                Error::BadConfig(_)
                | Error::Mismatch { .. }
                | Error::OutOfBounds { .. }
                | Error::NoCookie(_),
            ) => -8,
            Self::Bind(_) | Self::Open(_) | Self::Clan(_) => -9,
        }
    }

    pub(crate) fn text(&self) -> String {
        match self {
            Self::Invalid(why) => (*why).to_owned(),
            Self::Clan(error) => error.to_string(),
            Self::Stp(error) => error.to_string(),
            Self::Bind(error) => error.to_string(),
            Self::Qpip(error) => error.to_string(),
            Self::Open(error) => error.to_string(),
            Self::Post(error) => error.to_string(),
            Self::TimedOut => "the deadline is over: wait longer, or try again".to_owned(),
            Self::TooLong { len, room } => {
                format!("the next message has {len} bytes, and there is room for {room}")
            }
            Self::Known(_, text) => text.clone(),
        }
    }

    /// Keeps code and text for this thread; gives the code.
    fn keep(&self) -> i32 {
        let text = CString::new(self.text().replace('\0', " ")).unwrap_or_default();
        LAST.with_borrow_mut(|last| *last = (self.code(), text));
        self.code()
    }
}

/// Runs a call. A panic ends here: it must not go through C.
fn run<T>(call: impl FnOnce() -> Result<T, Failure>) -> Result<T, i32> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(failure)) => Err(failure.keep()),
        Err(_) => Err(Failure::Known(-9, "a mistake within the library".to_owned()).keep()),
    }
}

/// A call that gives a handle; null where it fails.
pub(crate) fn pointer<T>(call: impl FnOnce() -> Result<T, Failure>) -> *mut T {
    run(call).map_or(std::ptr::null_mut(), |value| Box::into_raw(Box::new(value)))
}

/// A call that gives an address; null where it fails.
pub(crate) fn address<T>(call: impl FnOnce() -> Result<*mut T, Failure>) -> *mut T {
    run(call).unwrap_or(std::ptr::null_mut())
}

/// A call that gives a code.
pub(crate) fn code(call: impl FnOnce() -> Result<(), Failure>) -> i32 {
    run(call).map_or_else(|code| code, |()| 0)
}

/// A call that gives a number, or a code.
pub(crate) fn number(call: impl FnOnce() -> Result<i64, Failure>) -> i64 {
    run(call).unwrap_or_else(i64::from)
}

/// See `landfall.h`.
#[unsafe(no_mangle)]
pub extern "C" fn lf_error() -> *const c_char {
    LAST.with_borrow(|(_, text)| text.as_ptr())
}

/// See `landfall.h`.
#[unsafe(no_mangle)]
pub extern "C" fn lf_error_code() -> i32 {
    LAST.with_borrow(|(code, _)| *code)
}
