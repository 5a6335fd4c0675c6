//! A stream of bytes: the queue's scheme for unstructured data (section 4.3).
//!
//! Each write is one copy into the reader's memory and one publication; each read one
//! copy out of it. [`Writer`] and [`Reader`] are the two ends of one direction,
//! [`Stream`] is both directions; all of them are `std::io` readers and writers, and
//! with the feature `tokio` asynchronous ones.
//!
//! ```
//! use std::io::{Read, Write};
//! use landfall::clan::Threads;
//! use landfall::clan::layer::stream::{Config, Stream};
//!
//! let (here, there) = Threads::pair()?;
//! let (one, two) = (Stream::open(&here, Config::DEFAULT)?, Stream::open(&there, Config::DEFAULT)?);
//! let (to_one, to_two) = (one.cookies(), two.cookies());
//! let (mut one, mut two) = (one.connect(&to_two)?, two.connect(&to_one)?);
//!
//! one.write_all(b"every byte has its place")?;
//! one.finish()?;
//! let mut text = String::new();
//! two.read_to_string(&mut text)?;
//! assert_eq!(text, "every byte has its place");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "tokio")]
mod asynchronous;
mod both;
mod reader;
mod writer;

use landfall_transport::Wait;

use super::ring;
use crate::clan::{Error, WORD};

pub use both::{Opening, Stream};
pub use reader::Reader;
pub(super) use reader::copy_ring;
pub use writer::Writer;

/// What both sides agree on: the length of the ring. How each waits is its own.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    capacity: u64,
    wait: Wait,
}

impl Config {
    /// A ring of 512 KiB: several large messages, and still within a second-level
    /// cache.
    pub const DEFAULT: Self = Self::new(512 << 10);

    /// A ring of so many bytes, at each reader; a multiple of eight.
    #[must_use]
    pub const fn new(capacity: u64) -> Self {
        Self { capacity, wait: Wait::BALANCED }
    }

    /// How this side waits.
    #[must_use]
    pub const fn wait(self, wait: Wait) -> Self {
        Self { wait, ..self }
    }

    fn reader_len(&self) -> Result<u64, Error> {
        if self.capacity == 0 || !self.capacity.is_multiple_of(WORD) {
            return Err(Error::BadConfig("a ring has a multiple of eight bytes, and not none"));
        }
        ring::PLACES.checked_add(self.capacity).ok_or(Error::NoRoom("ring of that length"))
    }
}
