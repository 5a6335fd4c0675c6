//! A queue of elements of one size, many of them under way (section 4.2 of the
//! paper): lazy counters, and never a remote read.
//!
//! Elements are published in batches: the receiver hears of them when there are
//! [`Config::batch`] of them, when the first of them has waited for the set time and
//! another call is made, when the sender waits for room, or with
//! [`Sender::publish`]. Who puts in elements now and then asks
//! [`Sender::due`] when the last batch has to be published, lets
//! [`Sender::into_punctual`] see to it, or publishes each ([`Config::singly`]).
//!
//! Example: see [`layer`](super).

mod receiver;
mod sender;

use std::time::Duration;

use landfall_transport::Wait;

use super::ring;
use crate::clan::{Error, WORD};

pub use receiver::Receiver;
pub use sender::{Punctual, Sender};

/// What both sides agree on: size and number of elements. The rest each side
/// chooses for itself.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    element: u32,
    capacity: u32,
    batch: u32,
    within: Duration,
    wait: Wait,
}

impl Config {
    /// Elements of so many bytes; so many of them under way.
    #[must_use]
    pub const fn new(element: u32, capacity: u32) -> Self {
        let (batch, within) = (64, Duration::from_micros(20));
        Self { element, capacity, batch, within, wait: Wait::BALANCED }
    }

    /// The sender publishes after so many elements, or after this time.
    #[must_use]
    pub const fn batch(self, most: u32, within: Duration) -> Self {
        Self { batch: most, within, ..self }
    }

    /// The sender publishes each element by itself.
    #[must_use]
    pub const fn singly(self) -> Self {
        Self { batch: 1, ..self }
    }

    /// How this side waits.
    #[must_use]
    pub const fn wait(self, wait: Wait) -> Self {
        Self { wait, ..self }
    }

    /// Bytes of an element.
    #[must_use]
    pub const fn element_len(&self) -> usize {
        self.element as usize
    }

    /// From one element to the next: they begin at words.
    fn stride(&self) -> u64 {
        u64::from(self.element).next_multiple_of(WORD)
    }

    fn receiver_len(&self) -> Result<u64, Error> {
        if self.element == 0 || self.capacity == 0 {
            return Err(Error::BadConfig("a queue has room for elements of at least one byte"));
        }
        // Neither factor is longer than 32 bits and a little.
        Ok(ring::PLACES + self.stride() * u64::from(self.capacity))
    }
}

/// Which place comes next, without a division.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: u64,
    stride: u64,
    end: u64,
}

impl Place {
    fn first(config: &Config) -> Self {
        let end = ring::PLACES + config.stride() * u64::from(config.capacity);
        Self { at: ring::PLACES, stride: config.stride(), end }
    }

    /// So many places lie one after another from here on.
    #[inline]
    const fn in_a_row(&self) -> u64 {
        (self.end - self.at) / self.stride
    }

    /// `count` places on; at most as many as are left in a row.
    #[inline]
    const fn advance(&mut self, count: u64) {
        self.at += self.stride * count;
        if self.at >= self.end {
            self.at = ring::PLACES;
        }
    }
}
