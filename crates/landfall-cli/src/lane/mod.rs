//! An engine at each end of a path, each on a thread of its own, and work for
//! both. `doctor`, `perf` and `demo` all run their engines here.
//!
//! | file | what it is |
//! | --- | --- |
//! | `transport` | how the two ends of a path are opened: UDP, a channel, … |
//! | `work` | what an engine is given to do: endless messages, or a conversation |
//! | `numbered`, `stream` | that work for the scheduled and the byte-stream test engine |
//! | `stp`, `stp_paths` | that work for the Scheduled Transfer Protocol, and its encapsulations |
//! | `qpip`, `qpip_paths` | that work for queue pairs, and what carries their frames |
//! | `qpip_socket` | a queue pair at one end, a kernel socket at the other |
//! | `clan` | shared memory with tripwires: words, queues, streams, between threads or processes |
//! | `defrag` | pages cut for the wire at one end, joined at the other |
//! | `overhead` | what posting and reaping costs the thread that does it |
//! | `bulk` | one side streams, the other receives in place |
//! | `talk` | messages there and back, timed one by one |
//! | `side` | what both threads have in common: core, namespace, clock, end |
//! | `pattern` | contents that can be checked |
//! | `trial` | one megabyte over loopback on one thread: does it work at all? |
//!
//! Another transport is one type that opens two ends; another engine is one
//! file with its source, its sink and its talker.

pub(crate) mod bulk;
pub(crate) mod clan;
pub(crate) mod defrag;
pub(crate) mod numbered;
pub(crate) mod overhead;
pub(crate) mod pattern;
pub(crate) mod qpip;
pub(crate) mod qpip_paths;
pub(crate) mod qpip_socket;
pub(crate) mod side;
pub(crate) mod stp;
pub(crate) mod stp_paths;
pub(crate) mod stream;
pub(crate) mod talk;
pub(crate) mod transport;
pub(crate) mod trial;
pub(crate) mod work;
