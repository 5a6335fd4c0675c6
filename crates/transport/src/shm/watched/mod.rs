//! Memory with tripwires, between processes.
//!
//! | part | what it is |
//! | --- | --- |
//! | [`Watched`] | the owner's end: memory, and which ranges of it are armed |
//! | [`Writer`] | the other end: stores, and tells when something armed was touched |
//! | [`Hits`], [`Reporter`] | what one process tells another: [`WatchUpdate`] |
//!
//! A remote write is a store into shared memory. After it the writer looks at a
//! filter, one bit for each word, which says whether a tripwire is armed there: the
//! content-addressable memory of the CLAN adapter, carried out by the writer. Only
//! where a bit is set the writer tells the owner, through a ring that the two have
//! for themselves, and wakes it if it sleeps. So the cost of a write depends neither
//! on the number of tripwires nor on the number of writers.
//!
//! ```
//! use landfall_transport::memory::{SharedMemory, SharedView};
//! use landfall_transport::shm::watched::{Hits, Reporter, Touch, WatchUpdate, Watched, Writer};
//!
//! let watched = Watched::create("example", 4096, 16)?;
//! let mut hits = Hits::create()?;
//! // Descriptors travel to another process: see `shm::rendezvous`.
//! let data = SharedMemory::from_fd(watched.data().fd().try_clone_to_owned()?)?;
//! let filter = SharedView::from_fd(watched.filter_fd().try_clone_to_owned()?)?;
//! let report = SharedMemory::from_fd(hits.memory().fd().try_clone_to_owned()?)?;
//! let reporter = Reporter::new(&report, hits.doorbell().fd().try_clone_to_owned()?)?;
//! let mut writer = Writer::new(&data, &filter, 7, reporter.into())?;
//!
//! let armed = watched.arm(64..72, Touch::Write)?;
//! writer.store(0, 1)?; // nobody listens there
//! writer.store(64, 2)?;
//! writer.commit();
//! let Some(WatchUpdate::Hit(hit)) = hits.poll()? else { panic!("it was armed") };
//! assert_eq!((hit.tag, hit.offset, hit.len), (7, 64, 8));
//! assert_eq!(watched.memory().load(64)?, 2);
//! watched.disarm(armed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Who can spoil what.** The filter is sealed: only its owner writes it. The hits
//! of each process have memory of their own. So a writer that scribbles over all it
//! can reach spoils the memory that it may write anyway, and news from itself.
//!
//! # The race between a store and an arming tripwire
//!
//! The writer stores, then looks at the filter; the owner sets a bit, then looks at
//! the memory. Without more, both may look too early: the processor may delay each
//! one's store behind its own load, and a tripwire would be missed. So each side has
//! a full fence between the two, after which at least one of them sees the other
//! (the pattern of Dekker). The fence of the writer costs some 9 ns, once per
//! [`commit`](Writer::commit). The alternative is a `membarrier` at arming,
//! which lets writers go without: a system call of 0.7 µs at best, and an interrupt
//! of each core on which a writer runs, which on virtual machines takes microseconds.
//! It needs every process to register, and is paid whenever somebody is about to
//! sleep, which is just when it hurts. The protocol is tried in every order by `loom`
//! (`shm/models.rs`).
//!
//! What does not live here: cookies and rights, and what is done when a tripwire
//! fires.

mod coverage;
pub(crate) mod filter;
mod owner;
pub(crate) mod report;
mod writer;

pub use owner::{Armed, Watched, WatchedError};
pub use report::{Hit, Hits, ReportError, Reporter, Touch, WatchUpdate};
pub use writer::{ReadOnly, Writer};
