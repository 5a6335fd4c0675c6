//! The runtime of every protocol: who drives an engine and its paths, who sleeps, and who
//! wakes whom.
//!
//! One lock holds the engine, its paths and who waits for what. Three kinds of threads take
//! it, each for a turn at most:
//!
//! - **Anyone who asks, also sends.** A handle calls the engine and makes a turn at once: the
//!   packet leaves on the calling thread, without a hand-over.
//! - **Anyone who waits, drives.** A thread that blocks or spins makes turns until what it waits
//!   for has happened: no wake-up lies between the packet and its user.
//! - **A thread of its own** drives whenever nobody else does. Tasks of an async runtime are
//!   woken by it, and connections are kept alive while nobody calls. It stays aside while
//!   others drive.
//!
//! [`Driving`] chooses among them: all three, the own thread alone (an adapter that works
//! beside its users), or no own thread. In place of that a reactor of the user's own may
//! make the turns, whenever a descriptor is readable.
//!
//! A task on a tokio runtime was the alternative to the own thread. It would tie an endpoint
//! to one runtime, and to what else runs there. Here futures work on any executor.
//!
//! A call that needs no answer does not wait for the lock: where another thread has it, the
//! call leaves what it wants in a queue, and that thread makes one more turn for it. What
//! several calls left makes one turn.
//!
//! Turns need the lock only. Sleeping at the descriptors needs the **poll slot**, so that one
//! thread sleeps there, and one bell wakes it.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `drive` | the one loop: turns, spinning, sleep |
//! | `driving` | the lock, the turns, and threads that wait |
//! | `observing` | threads that wait for what they see by themselves, where nothing is driven |
//! | `own_thread` | the thread that drives when nobody else does |
//! | `waiting` | threads that wait for futures |
//! | `source` | what one thread has for itself, and drives without a lock |
//! | `state` | what is behind the lock, and what a turn leaves to be done without it |
//! | `reactor` | turns for a reactor of the user's own, in place of the own thread |
//! | `lock` | the lock, and who serves what was submitted meanwhile |
//! | `submissions` | the queue of what was submitted |
//! | `models` | both in every order of their steps |
//! | `protocol` | what a runtime drives |
//! | `poll_slot` | the place of the one thread that sleeps at the descriptors |
//! | `user_drivers` | when the own thread stays aside |
//! | `shutdown` | the stages of the end |
//! | `waker` | how long threads spin, and who wakes them |
//! | `driver` | drivers of several kinds in one list |
//! | `path` | a path that is open, and all of an engine |
//! | `path_stats` | what a path did so far |
//! | `path_source` | a driver to be opened, or a simulated adapter |
//! | `impairment` | faults on purpose around a driver, for tests |
//! | `driver_source` | which driver a path is opened with |
//! | `shared_path` | a path that several engines share, and who comes to which of them |
//! | `reach` | whether what is sent leaves the host |
//! | `adapter_source` | a path by a simulated adapter (feature `nic`) |

#[cfg(all(feature = "nic", any(feature = "clan", feature = "qpip", feature = "stp")))]
pub(crate) mod adapter_source;
mod drive;
mod driver;
#[cfg(any(feature = "clan", feature = "stp"))]
mod driver_source;
mod driving;
mod impairment;
mod lock;
#[cfg(all(test, loom))]
mod models;
#[cfg(all(feature = "clan", feature = "qpip"))]
mod observing;
mod own_thread;
mod path;
#[cfg(any(feature = "clan", feature = "stp"))]
mod path_source;
#[cfg(any(feature = "clan", feature = "stp"))]
mod path_stats;
mod poll_slot;
mod protocol;
#[cfg(any(feature = "clan", feature = "defrag", feature = "stp"))]
mod reach;
mod reactor;
#[cfg(any(feature = "clan", feature = "stp"))]
mod shared_path;
mod shutdown;
mod source;
mod state;
mod submissions;
mod sync;
#[cfg(all(test, not(loom), feature = "stp"))]
mod tests;
mod user_drivers;
mod waiting;
mod waker;

use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(all(feature = "nic", any(feature = "clan", feature = "stp")))]
pub(crate) use adapter_source::AdapterSource;
pub(crate) use driver::AnyDriver;
#[cfg(any(feature = "clan", feature = "stp"))]
pub(crate) use driver_source::DriverSource;
#[cfg(any(feature = "clan", feature = "stp"))]
pub(crate) use driver_source::Member;
pub(crate) use driving::{Driving, Handle, Runtime, RuntimeConfig};
pub(crate) use impairment::Impairment;
#[cfg(all(feature = "clan", feature = "qpip"))]
pub(crate) use observing::wait_observing;
pub(crate) use path::{Path, Paths, PeerKind};
#[cfg(any(feature = "clan", feature = "stp"))]
pub(crate) use path_source::PathSource;
#[cfg(any(feature = "clan", feature = "stp"))]
pub use path_stats::PathStats;
pub(crate) use protocol::{Deferred, Protocol};
#[cfg(any(feature = "clan", feature = "defrag", feature = "stp"))]
pub(crate) use reach::Reach;
pub(crate) use reactor::ReactorHandle;
pub use reactor::TurnReport;
#[cfg(feature = "clan")]
pub(crate) use shared_path::member_of;
#[cfg(any(feature = "clan", feature = "stp"))]
pub(crate) use shared_path::{SharedPath, SpreadBy};
#[cfg(feature = "defrag")]
pub(crate) use source::drive_alone;
pub(crate) use source::{Signal, Source, Worker};
#[cfg(feature = "qpip")]
pub(crate) use waiting::Observer;
use waker::{SpinBudget, ThreadWaker};

/// A thread that panicked under one of these locks left nothing half done.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
