//! The tests of `landfall-nbd`, in one program.

mod negotiation;
mod replies;
mod requests;
mod strangers;
