//! The side that publishes.

use super::{BASE, BYTES, Config, END, LATEST, LEN, PUBLISHER_LEN, complete, incomplete};
use crate::clan::{Cookie, Error, Fabric, Remote, Rights};

/// Publishes to all who subscribed. It never waits.
#[derive(Debug)]
pub struct Publisher<F: Fabric> {
    fabric: F,
    /// Kept, so that subscribers can tell that the publisher is there.
    _presence: F::Local,
    cookie: Cookie,
    config: Config,
    subscribers: Vec<F::Remote>,
    published: u64,
}

/// What became of a publication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// So many subscribers have it, or will have it in a moment.
    pub sent: usize,
    /// To so many the way was full: they will find that they missed it.
    pub skipped: usize,
    /// So many are gone, and no subscribers any more.
    pub lost: usize,
}

impl<F: Fabric> Publisher<F> {
    /// A publisher without subscribers.
    ///
    /// # Errors
    /// Those of [`Fabric::expose`], or the configuration makes no sense.
    pub fn open(fabric: &F, config: Config) -> Result<Self, Error> {
        config.subscriber_len()?;
        let (presence, cookie) = fabric.expose(PUBLISHER_LEN, Rights::Write)?;
        let (subscribers, published) = (Vec::new(), 0);
        let fabric = fabric.clone();
        Ok(Self { fabric, _presence: presence, cookie, config, subscribers, published })
    }

    /// What a subscriber needs to connect.
    #[must_use]
    pub const fn cookie(&self) -> Cookie {
        self.cookie
    }

    /// From the next publication on, the owner of this cookie gets them.
    ///
    /// # Errors
    /// The cookie is good for nothing, its memory is not what the configuration asks
    /// for, the way is full, or the subscriber is gone.
    pub fn add(&mut self, subscriber: &Cookie) -> Result<(), Error> {
        let mut remote = self.fabric.map(subscriber)?;
        let (expected, found) = (self.config.subscriber_len()?, remote.len());
        if found != expected {
            return Err(Error::Mismatch { expected, found });
        }
        remote.store(BASE, self.published)?;
        remote.store(LATEST, self.published + 1)?;
        remote.commit()?;
        self.subscribers.push(remote);
        Ok(())
    }

    /// How many subscribers there are, with those that are gone since the last
    /// publication.
    #[must_use]
    pub const fn subscribers(&self) -> usize {
        self.subscribers.len()
    }

    /// Publishes to all.
    ///
    /// # Errors
    /// It is too long, or this node does not run any more.
    pub fn publish(&mut self, bytes: &[u8]) -> Result<Delivery, Error> {
        let (len, most) = (bytes.len() as u64, u64::from(self.config.most));
        if len > most {
            return Err(Error::TooLong { len, most });
        }
        let number = self.published;
        let slot = self.config.slot(number);
        let mut delivery = Delivery::default();
        let mut failed = None;
        self.subscribers.retain_mut(|remote| match put(remote, slot, number, bytes) {
            Ok(()) => {
                delivery.sent += 1;
                true
            }
            Err(Error::Busy) => {
                delivery.skipped += 1;
                true
            }
            Err(Error::NodeGone) => {
                failed = Some(Error::NodeGone);
                true
            }
            Err(_) => {
                delivery.lost += 1;
                false
            }
        });
        self.published += 1;
        failed.map_or(Ok(delivery), Err)
    }
}

/// Writes one slot. What is cut off by a full way leaves a stamp that says so.
fn put<R: Remote>(remote: &mut R, slot: u64, number: u64, bytes: &[u8]) -> Result<(), Error> {
    remote.store(slot, incomplete(number))?;
    remote.store(slot + LEN, bytes.len() as u64)?;
    remote.write(slot + BYTES, bytes)?;
    remote.store(slot, complete(number))?;
    remote.store(LATEST, number + 2)?;
    remote.commit()
}

impl<F: Fabric> Drop for Publisher<F> {
    fn drop(&mut self) {
        for remote in &mut self.subscribers {
            // Whoever cannot be told finds the publisher gone.
            let _ = remote.store(END, 1).and_then(|()| remote.commit());
        }
    }
}
