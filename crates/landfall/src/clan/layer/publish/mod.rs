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
//!
//! What does not live here: waking those who wait for several things at once.

mod subscriber;

use landfall_transport::Wait;

use crate::clan::layer::place::Place;
use crate::clan::{Cookie, Error, Fabric, Group, Local, Remote, Rights, WORD};

pub use subscriber::{Publication, PublicationView, Subscriber};

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
/// Bytes that the publisher exposes: nobody writes them, but anyone who maps them learns
/// that the publisher is gone.
const PUBLISHER_LEN: u64 = WORD;
/// Bytes in which a subscriber confirms that it has joined the group.
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

    const fn stride(&self) -> u64 {
        BYTES + (self.most as u64).next_multiple_of(WORD)
    }

    /// Where the slot of a publication begins.
    const fn slot(&self, number: u64) -> u64 {
        SLOTS + number % (self.slots as u64) * self.stride()
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

/// Numbers beyond this have no stamp. They are never reached.
const MOST_NUMBERS: u64 = u64::MAX / 2 - 2;

/// Publishes to all who subscribed. It never waits.
#[derive(Debug)]
pub struct Publisher<F: Fabric> {
    fabric: F,
    /// Kept, so that subscribers can tell that the publisher is there.
    _presence: F::Local,
    cookie: Cookie,
    config: Config,
    subscribers: Vec<Reader<F>>,
    /// What writes to all members at once, where the fabric has that.
    group: Option<Box<dyn Group<Remote = F::Remote>>>,
    published: u64,
}

/// One that subscribed.
#[derive(Debug)]
struct Reader<F: Fabric> {
    remote: F::Remote,
    mode: DeliveryMode<F>,
}

/// How it gets what is published.
#[derive(Debug)]
enum DeliveryMode<F: Fabric> {
    /// By a write of its own.
    Alone,
    /// The same, until it says here that it has joined the group.
    Invited(F::Local),
    /// With all others of the group, in which this is its number.
    Member(u64),
}

/// What became of a publication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Subscribers that have it, or will have it in a moment.
    pub sent: usize,
    /// Subscribers skipped because their send buffer was full: they find that they missed it.
    pub skipped: usize,
    /// Subscribers that are gone, and were removed.
    pub lost: usize,
}

impl Delivery {
    /// Counts what became of one. Returns whether it is still a subscriber.
    fn count(&mut self, result: &Result<(), Error>) -> bool {
        match result {
            Ok(()) => self.sent += 1,
            Err(Error::Busy) => self.skipped += 1,
            // That is nobody's end but this side's.
            Err(Error::NodeGone) => {}
            Err(_) => {
                self.lost += 1;
                return false;
            }
        }
        true
    }
}

impl<F: Fabric> Publisher<F> {
    /// A publisher without subscribers.
    ///
    /// # Errors
    /// Those of [`Fabric::expose`] and [`Fabric::found_group`], or the configuration
    /// is invalid.
    pub fn open(fabric: &F, config: Config) -> Result<Self, Error> {
        let len = config.subscriber_len()?;
        let (presence, cookie) = fabric.expose(PUBLISHER_LEN, Rights::Write)?;
        let group = fabric.found_group(len)?;
        let (fabric, subscribers, published) = (fabric.clone(), Vec::new(), 0);
        Ok(Self { fabric, _presence: presence, cookie, config, subscribers, group, published })
    }

    /// What a subscriber needs to connect.
    #[must_use]
    pub const fn cookie(&self) -> Cookie {
        self.cookie
    }

    /// From the next publication on, the owner of this cookie gets them.
    ///
    /// # Errors
    /// The cookie is invalid, its memory is not what the configuration asks
    /// for, the send buffer is full, or the subscriber is gone.
    pub fn add(&mut self, subscriber: &Cookie) -> Result<(), Error> {
        let mut remote = self.fabric.map(subscriber)?;
        let (expected, found) = (self.config.subscriber_len()?, remote.len());
        if found != expected {
            return Err(Error::Mismatch { expected, found });
        }
        let mode = self.invite(&mut remote)?;
        remote.store(BASE, self.published)?;
        remote.store(LATEST, self.published + 1)?;
        remote.commit()?;
        self.subscribers.push(Reader { remote, mode });
        Ok(())
    }

    /// Tells a subscriber how to join the group, if there is one.
    fn invite(&self, remote: &mut F::Remote) -> Result<DeliveryMode<F>, Error> {
        let Some(group) = &self.group else { return Ok(DeliveryMode::Alone) };
        // Memory of its own for each: what one says nobody else can.
        let Ok((reply, cookie)) = self.fabric.expose(REPLY_LEN, Rights::Write) else {
            return Ok(DeliveryMode::Alone);
        };
        remote.write(GROUP, &group.cookie().to_bytes())?;
        remote.write(REPLY, &cookie.to_bytes())?;
        remote.store(INVITED, 1)?;
        Ok(DeliveryMode::Invited(reply))
    }

    /// How many subscribers there are, with those that are gone since the last
    /// publication.
    #[must_use]
    pub const fn subscribers(&self) -> usize {
        self.subscribers.len()
    }

    /// How many of them are written to at once, by way of a group.
    #[must_use]
    pub fn members(&self) -> usize {
        let is_member = |reader: &&Reader<F>| matches!(reader.mode, DeliveryMode::Member(_));
        self.subscribers.iter().filter(is_member).count()
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
        self.admit_members();
        let grouped = self.publish_to_group(slot, number, bytes, &mut delivery);
        let mut failed = grouped.as_ref().is_err_and(|error| matches!(error, Error::NodeGone));
        let is_in_order = self.group.as_ref().is_none_or(|group| group.keeps_order_with_writes());
        self.subscribers.retain_mut(|Reader { remote, mode }| {
            // What the group could not take goes to each by itself, behind what it took.
            if matches!(mode, DeliveryMode::Member(_)) {
                if grouped.is_ok() || failed {
                    return true;
                }
                if !is_in_order {
                    // It could be there before what the group took.
                    delivery.skipped += 1;
                    return true;
                }
            }
            let result = put(remote, slot, number, bytes);
            failed |= matches!(result, Err(Error::NodeGone));
            delivery.count(&result)
        });
        self.published += 1;
        if failed { Err(Error::NodeGone) } else { Ok(delivery) }
    }

    /// Publishes what `fill` writes into the memory of each subscriber: it is called for each
    /// of them, and has to write the same `len` bytes. Members of a group are written to one
    /// by one, too; where the network [multicasts](crate::clan::network::Builder::multicast),
    /// `fill` is called once for all of them, and writes to memory of this side.
    ///
    /// # Errors
    /// It is too long, or this node does not run any more. What `fill` returns for a
    /// subscriber makes it miss this one.
    pub fn publish_with(
        &mut self,
        len: usize,
        mut fill: impl FnMut(&mut Place<'_, F::Remote>) -> Result<(), Error>,
    ) -> Result<Delivery, Error> {
        let (len, most) = (len as u64, u64::from(self.config.most));
        if len > most {
            return Err(Error::TooLong { len, most });
        }
        let number = self.published;
        let slot = self.config.slot(number);
        let mut delivery = Delivery::default();
        let mut failed = false;
        let is_in_order = self.group.as_ref().is_none_or(|group| group.keeps_order_with_writes());
        self.admit_members();
        if !is_in_order && self.members() > 0 {
            // One by one it could be there before what was published by the group.
            let mut bytes = vec![0; len as usize];
            match fill(&mut Place::of_bytes(&mut bytes)) {
                Ok(()) => {
                    let grouped = self.publish_to_group(slot, number, &bytes, &mut delivery);
                    failed = grouped.is_err_and(|error| matches!(error, Error::NodeGone));
                }
                Err(_) => delivery.skipped += self.members(),
            }
        }
        self.subscribers.retain_mut(|Reader { remote, mode }| {
            if matches!(mode, DeliveryMode::Member(_)) && !is_in_order {
                return true;
            }
            let result = put_with(remote, slot, number, len, |remote| {
                fill(&mut Place::new(remote, slot + BYTES, len))
            });
            failed |= matches!(result, Err(Error::NodeGone));
            delivery.count(&result)
        });
        self.published += 1;
        if failed { Err(Error::NodeGone) } else { Ok(delivery) }
    }

    /// Makes members of those who have joined.
    fn admit_members(&mut self) {
        let Some(group) = &mut self.group else { return };
        for Reader { remote, mode } in &mut self.subscribers {
            let DeliveryMode::Invited(reply) = mode else { continue };
            if reply.load(0).is_ok_and(|word| word == 1) {
                *mode = group.add(remote).map_or(DeliveryMode::Alone, DeliveryMode::Member);
            }
        }
    }

    /// Writes one slot of all members. Those that are gone are no subscribers any more.
    fn publish_to_group(
        &mut self,
        slot: u64,
        number: u64,
        bytes: &[u8],
        delivery: &mut Delivery,
    ) -> Result<(), Error> {
        let Some(group) = &mut self.group else { return Ok(()) };
        let (begin, end) = (incomplete(number).to_le_bytes(), complete(number).to_le_bytes());
        let (len, latest) = ((bytes.len() as u64).to_le_bytes(), (number + 2).to_le_bytes());
        let writes: [(u64, &[u8]); 5] = [
            (slot, &begin),
            (slot + LEN, &len),
            (slot + BYTES, bytes),
            (slot, &end),
            (LATEST, &latest),
        ];
        let mut gone = Vec::new();
        let published = group.publish(&writes, &mut |member, result| {
            if !delivery.count(&result) {
                gone.push(member);
            }
        });
        if !gone.is_empty() {
            let is_gone = |mode: &DeliveryMode<F>| matches!(mode, DeliveryMode::Member(name) if gone.contains(name));
            self.subscribers.retain(|reader| !is_gone(&reader.mode));
        }
        published
    }
}

/// Writes one slot. What is cut off by a full way leaves a stamp that says so.
fn put<R: Remote>(remote: &mut R, slot: u64, number: u64, bytes: &[u8]) -> Result<(), Error> {
    let len = bytes.len() as u64;
    put_with(remote, slot, number, len, |remote| remote.write(slot + BYTES, bytes))
}

fn put_with<R: Remote>(
    remote: &mut R,
    slot: u64,
    number: u64,
    len: u64,
    fill: impl FnOnce(&mut R) -> Result<(), Error>,
) -> Result<(), Error> {
    remote.store(slot, incomplete(number))?;
    remote.store(slot + LEN, len)?;
    fill(remote)?;
    remote.store(slot, complete(number))?;
    remote.store(LATEST, number + 2)?;
    remote.commit()
}

impl<F: Fabric> Drop for Publisher<F> {
    fn drop(&mut self) {
        if let Some(group) = self.group.as_mut().filter(|group| !group.keeps_order_with_writes()) {
            // Behind what was published, at those that have room for it.
            let mut told = Vec::new();
            let end = group.publish(&[(END, &1u64.to_le_bytes())], &mut |member, result| {
                told.extend(result.is_ok().then_some(member));
            });
            let has_heard = |mode: &DeliveryMode<F>| {
                end.is_ok() && matches!(mode, DeliveryMode::Member(name) if told.contains(name))
            };
            self.subscribers.retain(|reader| !has_heard(&reader.mode));
        }
        for Reader { remote, .. } in &mut self.subscribers {
            // A subscriber that this does not reach finds the publisher gone.
            let _ = remote.store(END, 1).and_then(|()| remote.commit());
        }
    }
}
