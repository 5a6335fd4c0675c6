//! Publications: one publisher, any number of subscribers, and nobody waits for
//! anybody.
//!
//! Each subscriber has a ring of slots in its own memory, into which the publisher
//! writes: to each in turn, or, where the fabric has [groups](super::super::Group), to
//! all at once. A slot is stamped before and after it is filled, so a subscriber that was
//! overtaken notices, drops the mixture that it has copied, and is told how many it
//! missed.
//!
//! ```text
//!  memory of the subscriber
//!    0  latest: one more than were published; 0: not subscribed yet
//!    8  base: where this subscription began
//!   16  end: 1 when nothing will follow
//!   24  invited: 1 when the two cookies below are there
//!   32  group: what the subscriber may join with this memory
//!   64  reply: where it then writes 1
//!  128  slots: stamp, length, bytes; the stamp of publication n is
//!       2 n + 1 while it is written, then 2 n + 2
//! ```
//!
//! Until a subscriber has joined and said so, and for ever where it cannot (two of one
//! node cannot both), it is written to by itself; it gets the same in either way. Only
//! the publisher can write to its group: members need not trust each other.
//!
//! ```
//! use landfall::clan::Threads;
//! use landfall::clan::layer::publish::{Config, Publisher, Subscriber};
//!
//! let (news, reader) = Threads::pair()?;
//! let config = Config::new(256, 16);
//! let mut publisher = Publisher::open(&news, config)?;
//! let subscriber = Subscriber::open(&reader, config)?;
//! publisher.add(&subscriber.cookie())?;
//! let mut subscriber = subscriber.connect(&publisher.cookie())?;
//!
//! publisher.publish(b"the first")?;
//! let publication = subscriber.next(None)?;
//! assert_eq!((publication.number, publication.missed), (0, 0));
//! assert_eq!(publication.bytes, b"the first");
//! # Ok::<(), landfall::clan::Error>(())
//! ```

mod publisher;
mod subscriber;

use landfall_transport::Wait;

use crate::clan::{Cookie, Error, WORD};

pub use publisher::{Delivery, Publisher};
pub use subscriber::{Publication, Subscriber};

const LATEST: u64 = 0;
const BASE: u64 = WORD;
const END: u64 = 2 * WORD;
const INVITED: u64 = 3 * WORD;
const GROUP: u64 = 32;
const REPLY: u64 = GROUP + Cookie::LEN as u64;
const SLOTS: u64 = 128;
const _: () = assert!(REPLY + Cookie::LEN as u64 <= SLOTS);
/// Of a slot: behind the stamp.
const LEN: u64 = WORD;
const BYTES: u64 = 2 * WORD;
/// Bytes that the publisher exposes: nobody writes them, but whoever maps them learns
/// that the publisher is gone.
const PUBLISHER_LEN: u64 = WORD;
/// Bytes that a subscriber says in that it has joined the group.
const REPLY_LEN: u64 = WORD;

/// What both sides agree on. How a subscriber waits is its own.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    most: u32,
    slots: u32,
    wait: Wait,
}

impl Config {
    /// Publications of up to `most` bytes; a subscriber may be `slots` of them late.
    #[must_use]
    pub const fn new(most: u32, slots: u32) -> Self {
        Self { most, slots, wait: Wait::BALANCED }
    }

    /// How this side waits.
    #[must_use]
    pub const fn wait(self, wait: Wait) -> Self {
        Self { wait, ..self }
    }

    fn stride(&self) -> u64 {
        BYTES + u64::from(self.most).next_multiple_of(WORD)
    }

    /// Where the slot of a publication begins.
    fn slot(&self, number: u64) -> u64 {
        SLOTS + number % u64::from(self.slots) * self.stride()
    }

    fn subscriber_len(&self) -> Result<u64, Error> {
        if self.slots == 0 {
            return Err(Error::BadConfig("a subscriber has at least one slot"));
        }
        // Neither factor is longer than 32 bits and a little.
        Ok(SLOTS + u64::from(self.slots) * self.stride())
    }
}

/// The stamp of a publication that is complete.
const fn complete(number: u64) -> u64 {
    2 * number + 2
}

/// The stamp of a publication that is being written.
const fn incomplete(number: u64) -> u64 {
    2 * number + 1
}

/// Numbers beyond this have no stamp, and nobody lives to publish them.
const MOST_NUMBERS: u64 = u64::MAX / 2 - 2;
