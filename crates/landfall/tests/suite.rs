//! All tests of this crate's public face, as one program: links once, and runs as many of
//! them at a time as there are cores. A test that needs a process of its own starts this
//! program again.

#![allow(unreachable_pub, reason = "what the files share is theirs")]

mod clan;
mod defrag;
mod nic;
mod qpip;
mod reactor;
mod stp;
mod support;
mod verbs;
