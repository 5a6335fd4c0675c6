//! All tests of these sockets, as one program; but `endurance`, which counts the descriptors
//! and threads of its process, is one of its own.

mod addresses;
#[cfg(feature = "clan")]
mod clan;
#[cfg(feature = "clan")]
mod clan_network;
mod examples;
#[cfg(any(feature = "clan", feature = "stp"))]
mod messages;
#[cfg(feature = "qpip")]
mod qp;
#[cfg(feature = "qpip")]
mod qp_kernel;
#[cfg(feature = "stp")]
mod stp;
mod support;
#[cfg(all(feature = "qpip", feature = "tls"))]
mod tls;
