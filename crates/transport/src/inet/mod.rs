//! What sockets of the internet family have in common, whatever protocol they
//! carry: addresses, control messages, what error numbers mean.

mod address;
mod control;
mod errno;
mod option;

pub(crate) use address::RawAddress;
pub(crate) use control::{Control, Received};
pub(crate) use errno::{SendFault, nothing_came};
pub(crate) use option::{enable_ecn, grow_buffers, set_option};
