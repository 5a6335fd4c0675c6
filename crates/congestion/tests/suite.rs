//! All tests of this crate's public face, as one program: this many of their own take longer
//! to link than to run. Each file says what it tests.

#![allow(unreachable_pub, reason = "what the files share is theirs")]

mod alone;
mod common;
mod decisions;
mod granting;
mod safety;
