//! Servers that people run, over queue pairs or a kernel's TCP: files by HTTP, and a proxy
//! between the two.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`http`] | the files of a directory by HTTP/1.1, for any client |
//! | [`proxy`] | passes connections on, from a kernel's TCP to queue pairs and back |
//! | [`server`] | accepts connections within bounds, and drains when it is told to stop |
//! | [`simple`] | what echo, discard and characters (RFC 862 to 864) send and answer |
//! | [`listener`] | what both accept from and connect with |
//! | [`tls`] | certificates for servers, and those that clients trust |
//!
//! Every bound is in [`server::Limits`]: connections, time without progress, the size of a
//! request. A peer that reaches one loses its own connection and disturbs no other.
//!
//! What does not live here: options of a command line, and metrics' text (`landfall-cli`);
//! streams over queue pairs (`sockets-compat`).
#![forbid(unsafe_code)]

mod admission;
pub mod http;
pub mod listener;
mod progress;
pub mod proxy;
pub mod server;
pub mod simple;
pub mod tls;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
