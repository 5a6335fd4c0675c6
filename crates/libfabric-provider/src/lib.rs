#![doc = include_str!("../README.md")]
//!
//! # Inside
//!
//! | file | what happens there |
//! | --- | --- |
//! | `abi` | what libfabric's headers declare |
//! | `calls` | the calls as C makes them: pointers become values |
//! | `info` | what is offered, and whether it is what a program asks for |
//! | `domain`, `world` | what endpoints share: one lock, queues, counters, address vectors, memory |
//! | `endpoint`, `core` | an endpoint: peers, receives, and where completions go |
//! | `carrier` | the endpoint of STP below it, or a port of the adapter of QPIP |
//! | `qpip` | that adapter, and its queue pairs |
//! | `channel`, `passive`, `events` | `FI_EP_MSG`: connections, who listens for them, and what is told of them |
//! | `link` | a connection to a peer, and what is under way on it |
//! | `record`, `ring` | what one side writes into the memory of the other, and where |
//! | `matching` | which receive takes which message |
//! | `buffer` | memory of the program |
//! | `process` | which process something was opened in: a child of it has a copy that it may not use |
//! | `notify` | what wakes anyone who waits |

pub mod abi;
mod address;
mod buffer;
mod calls;
mod carrier;
mod channel;
mod completion;
mod core;
mod domain;
mod endpoint;
mod events;
mod info;
mod link;
mod matching;
mod notify;
mod passive;
mod process;
mod qpip;
mod record;
mod ring;
mod settings;
mod world;

use std::ffi::c_void;

use abi::{fi_context, fi_provider};

/// The version of this provider: that of the crate.
pub(crate) const VERSION: u32 = info::fi_version(0, 1);
/// The newest version of libfabric's interface whose programs are served. The bindings are those
/// of 1.17; what later versions append is in `info::LaterDomain`, or optional.
pub(crate) const API: u32 = info::fi_version(2, 6);

/// What libfabric knows of this provider. It keeps something in the context.
struct Provider(std::cell::UnsafeCell<fi_provider>);

// SAFETY: this library makes it and hands it out, and never looks at it again; libfabric uses it
// under locks of its own.
unsafe impl Sync for Provider {}

static PROVIDER: Provider = Provider(std::cell::UnsafeCell::new(fi_provider {
    version: VERSION,
    fi_version: API,
    context: fi_context { internal: [std::ptr::null_mut(); 4] },
    name: c"landfall".as_ptr(),
    getinfo: calls::getinfo,
    fabric: calls::fabric,
    cleanup,
}));

/// Nothing is left when all handles are closed.
unsafe extern "C" fn cleanup() {}

/// Where libfabric finds the provider, in a library whose name ends in `fi.so`.
// SAFETY: no other library that is loaded with this one has that name in its own scope:
// libfabric looks for it in each library by itself.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut fi_provider {
    let provider = PROVIDER.0.get();
    let chosen = std::env::var("FI_PROVIDER").unwrap_or_default();
    if !chosen.contains(LAYER) {
        // SAFETY: libfabric calls this once, before it knows the provider.
        unsafe { (*provider).context.internal[0] = usize::from_ne_bytes(NO_LAYER) as *mut c_void };
    }
    provider
}

/// How the names of libfabric's layers begin: `ofi_rxm`.
const LAYER: &str = "ofi_";
/// libfabric's notes on a provider, from 1.17 to 2.6, with the sixth byte set: nothing layers on
/// its `FI_EP_MSG` but where a program names it (`landfall;ofi_rxm`). Else each program that asks
/// for `FI_EP_RDM` would get `ofi_rxm`, which libfabric lists before our own. It says so itself
/// of some of its own providers, by their names; others have no other way.
const NO_LAYER: [u8; 8] = [0, 0, 0, 0, 0, 1, 0, 0];
