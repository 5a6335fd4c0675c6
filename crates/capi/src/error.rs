//! What goes wrong, in terms of C: a code, and a text for each thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use landfall::clan::Error;

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An argument makes no sense.
    Invalid(&'static str),
    /// The library's own error.
    Clan(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Clan(error)
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

impl Failure {
    const fn code(&self) -> i32 {
        match self {
            Self::Clan(Error::TimedOut | Error::Busy) => -1,
            Self::Clan(Error::Closed) => -2,
            Self::Clan(Error::PeerLost | Error::StaleCookie | Error::NoRoute) => -3,
            Self::Clan(Error::PeerMisbehaved(_)) => -4,
            Self::Clan(Error::OtherLayout { .. }) => -5,
            Self::Clan(Error::Refused(_) | Error::Forbidden) => -6,
            Self::Clan(Error::TooLong { .. }) => -7,
            Self::Invalid(_) | Self::Clan(Error::BadConfig(_) | Error::Mismatch { .. }) => -8,
            Self::Clan(_) => -9,
        }
    }

    /// Keeps the text for this thread; gives the code.
    fn keep(&self) -> i32 {
        let text = match self {
            Self::Invalid(why) => (*why).to_owned(),
            Self::Clan(error) => error.to_string(),
        };
        let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
        LAST.with_borrow_mut(|last| *last = text);
        self.code()
    }
}

/// Runs a call. A panic ends here: it must not go through C.
fn run<T>(call: impl FnOnce() -> Result<T, Failure>) -> Result<T, i32> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(failure)) => Err(failure.keep()),
        Err(_) => {
            Failure::Invalid("a mistake within the library").keep();
            Err(-9)
        }
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
    LAST.with_borrow(|last| last.as_ptr())
}
