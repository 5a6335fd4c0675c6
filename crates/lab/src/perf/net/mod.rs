//! `landfall perf server`, `landfall perf client` and `landfall perf report`: the two ends in two
//! programs, on one machine or on two.
//!
//! | file | what it is |
//! | --- | --- |
//! | `control` | the connection by which both agree: one JSON object a line; a test under way: our half, and the news for the other |
//! | `half` | what one program does of it; both halves as one result; what is measured next, and what a server can bear |
//! | `server`, `client` | the commands |
//! | `page` | what a client measured, as a page to send in: `landfall perf report` |
//!
//! What does not live here: how a side sends or receives. The engines' halves are those of
//! `workload` (`bulk`, `talk`), the kernel's the testbed's (`rivals::far`).

pub mod client;
mod control;
mod half;
pub mod page;
pub mod server;
