//! Queue pairs for C: one set of functions over STP, the shared memory of a host, and QPIP.
//!
//! What each carrier has one of is an `Any`; a call is written once over its three, by
//! `each`, where their traits have the same words.

pub mod address;
pub mod completions;
pub mod connecting;
pub mod pair;
pub mod qpip;
pub mod region;
pub mod view;
pub mod work;

use std::ffi::c_char;

use landfall::clan::shared::SharedNode;

pub use address::Address;
pub use completions::Completions;
pub use qpip::QpipConfig;
pub use region::Region;
pub(crate) use region::{PartOf, range};
pub(crate) use work::word_function;

use crate::error::{Failure, number, pointer};
use crate::stp::{Stp, WaitContext, text_of};
use crate::{Node, close, handle, shared};

/// One of each carrier.
#[derive(Debug)]
pub(crate) enum Any<S, C, Q> {
    Stp(S),
    Clan(C),
    Qpip(Q),
}

/// The same for each carrier.
macro_rules! each {
    ($any:expr, $one:ident => $what:expr) => {
        match $any {
            Any::Stp($one) => $what,
            Any::Clan($one) => $what,
            Any::Qpip($one) => $what,
        }
    };
}
use each;

/// What carries queue pairs: see `landfall.h`.
#[derive(Debug)]
pub struct Verbs(Any<WaitContext, SharedNode, qpip::Host>);

/// Two things belong to different carriers.
const OF_ANOTHER: Failure =
    Failure::Invalid("the queues, memory and pairs of a request belong to one lf_verbs");

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_verbs_over_stp(endpoint: *const Stp) -> *mut Verbs {
    pointer(|| {
        // SAFETY: the caller's promise.
        let endpoint = unsafe { shared(endpoint) }?;
        Ok(Verbs(Any::Stp(endpoint.context())))
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_verbs_over_node(node: *mut Node) -> *mut Verbs {
    pointer(|| {
        // SAFETY: the caller's promise.
        let node = unsafe { handle(node) }?;
        Ok(Verbs(Any::Clan(node.0.clone())))
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_verbs_over_qpip(config: *const QpipConfig) -> *mut Verbs {
    pointer(|| {
        // SAFETY: the caller's promise.
        let host = unsafe { shared(config)?.open() }?;
        Ok(Verbs(Any::Qpip(host)))
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_verbs_local(
    verbs: *const Verbs,
    into: *mut c_char,
    room: usize,
) -> i64 {
    number(|| {
        // SAFETY: the caller's promise.
        let verbs = unsafe { shared(verbs) }?;
        let local = match &verbs.0 {
            Any::Stp(context) => context.local()?,
            Any::Clan(_) => String::new(),
            Any::Qpip(host) => host.local(),
        };
        // SAFETY: the caller's promise.
        unsafe { text_of(&local, into, room) }
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_verbs_close(verbs: *mut Verbs) {
    // SAFETY: the caller's promise.
    unsafe { close(verbs) }
}
