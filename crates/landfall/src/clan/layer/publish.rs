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
//! The side that publishes.
//!
//! The side that listens.

use std::time::Instant;

use landfall_transport::Wait;

use crate::clan::layer::waiting::{Connect, Half, Joint, Side, Waiting};
use crate::clan::{
    Access, Cookie, Error, Fabric, Group, Local, Misbehaviour, Remote, Rights, WORD,
};

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
    way: Way<F>,
}

/// How it gets what is published.
#[derive(Debug)]
enum Way<F: Fabric> {
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
    /// So many subscribers have it, or will have it in a moment.
    pub sent: usize,
    /// To so many the way was full: they will find that they missed it.
    pub skipped: usize,
    /// So many are gone, and no subscribers any more.
    pub lost: usize,
}

impl Delivery {
    /// Counts what became of one. Gives whether it is still a subscriber.
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
    /// makes no sense.
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
    /// The cookie is good for nothing, its memory is not what the configuration asks
    /// for, the way is full, or the subscriber is gone.
    pub fn add(&mut self, subscriber: &Cookie) -> Result<(), Error> {
        let mut remote = self.fabric.map(subscriber)?;
        let (expected, found) = (self.config.subscriber_len()?, remote.len());
        if found != expected {
            return Err(Error::Mismatch { expected, found });
        }
        let way = self.invite(&mut remote)?;
        remote.store(BASE, self.published)?;
        remote.store(LATEST, self.published + 1)?;
        remote.commit()?;
        self.subscribers.push(Reader { remote, way });
        Ok(())
    }

    /// Tells a subscriber how to join the group, if there is one.
    fn invite(&self, remote: &mut F::Remote) -> Result<Way<F>, Error> {
        let Some(group) = &self.group else { return Ok(Way::Alone) };
        // Memory of its own for each: what one says nobody else can.
        let Ok((reply, cookie)) = self.fabric.expose(REPLY_LEN, Rights::Write) else {
            return Ok(Way::Alone);
        };
        remote.write(GROUP, &group.cookie().to_bytes())?;
        remote.write(REPLY, &cookie.to_bytes())?;
        remote.store(INVITED, 1)?;
        Ok(Way::Invited(reply))
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
        let is_member = |reader: &&Reader<F>| matches!(reader.way, Way::Member(_));
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
        self.take_in();
        let grouped = self.publish_to_group(slot, number, bytes, &mut delivery);
        let mut failed = grouped.as_ref().is_err_and(|error| matches!(error, Error::NodeGone));
        self.subscribers.retain_mut(|Reader { remote, way }| {
            // What the group could not take goes to each by itself, behind what it took.
            if matches!(way, Way::Member(_)) && (grouped.is_ok() || failed) {
                return true;
            }
            let result = put(remote, slot, number, bytes);
            failed |= matches!(result, Err(Error::NodeGone));
            delivery.count(&result)
        });
        self.published += 1;
        if failed { Err(Error::NodeGone) } else { Ok(delivery) }
    }

    /// Those who have joined are members from now on.
    fn take_in(&mut self) {
        let Some(group) = &mut self.group else { return };
        for Reader { remote, way } in &mut self.subscribers {
            let Way::Invited(reply) = way else { continue };
            if reply.load(0).is_ok_and(|word| word == 1) {
                *way = group.add(remote).map_or(Way::Alone, Way::Member);
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
            let is_gone = |way: &Way<F>| matches!(way, Way::Member(name) if gone.contains(name));
            self.subscribers.retain(|reader| !is_gone(&reader.way));
        }
        published
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
        for Reader { remote, .. } in &mut self.subscribers {
            // Whoever cannot be told finds the publisher gone.
            let _ = remote.store(END, 1).and_then(|()| remote.commit());
        }
    }
}

/// Gets publications, in their order, except those that it was too late for.
#[derive(Debug)]
pub struct Subscriber<F: Fabric> {
    side: Listening<F>,
    waiting: Waiting<F>,
}

/// What was published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// Which it is, counted from the publisher's first.
    pub number: u64,
    /// So many before it were overtaken by later ones, or never sent, since the last
    /// that was got here.
    pub missed: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

#[derive(Debug)]
struct Listening<F: Fabric> {
    fabric: F,
    local: F::Local,
    remote: F::Remote,
    config: Config,
    /// So many were published, as far as is known here; nothing before it begins.
    latest: Option<u64>,
    /// The one that is wanted next.
    next: u64,
    missed: u64,
    /// It was invited into the group, and tried.
    is_invited: bool,
}

impl<F: Fabric> Side<F> for Listening<F> {
    fn remote(&mut self) -> &mut F::Remote {
        &mut self.remote
    }
}

impl<F: Fabric> Connect<F> for Subscriber<F> {
    type Config = Config;

    fn ours(config: &Config) -> Result<u64, Error> {
        config.subscriber_len()
    }

    fn theirs(_: &Config) -> Result<u64, Error> {
        Ok(PUBLISHER_LEN)
    }

    fn join(joint: Joint<F>, config: Config) -> Result<Self, Error> {
        let Joint { fabric, local, remote } = joint;
        let wire = fabric.watch(&local, LATEST..END + WORD, Access::Write, Some(&remote))?;
        let waiting = Waiting::new(fabric.clone(), config.wait, wire);
        let (latest, next, missed, is_invited) = (None, 0, 0, false);
        let side = Listening { fabric, local, remote, config, latest, next, missed, is_invited };
        Ok(Self { side, waiting })
    }
}

impl<F: Fabric> Subscriber<F> {
    /// This side's half. Its cookie goes to [`Publisher::add`](Publisher::add).
    ///
    /// # Errors
    /// Those of [`Fabric::expose`], or the configuration makes no sense.
    pub fn open(fabric: &F, config: Config) -> Result<Half<F, Self>, Error> {
        Half::open(fabric, config)
    }

    /// The next publication, if it is there.
    ///
    /// # Errors
    /// The publisher has ended it ([`Error::Closed`]), or is gone or mad.
    pub fn try_next(&mut self) -> Result<Option<Publication>, Error> {
        self.side.look()
    }

    /// The next publication.
    ///
    /// # Errors
    /// Those of [`try_next`](Self::try_next), or the deadline is over.
    pub fn next(&mut self, deadline: Option<Instant>) -> Result<Publication, Error> {
        let Self { side, waiting } = self;
        waiting.until(side, deadline, Listening::look)
    }

    /// The same for a task.
    ///
    /// # Errors
    /// Those of [`try_next`](Self::try_next).
    pub async fn next_async(&mut self) -> Result<Publication, Error> {
        let Self { side, waiting } = self;
        waiting.reached(side, Listening::look).await
    }

    /// Wants nothing that is older than the latest publication: for those to whom
    /// only the state of things counts. How many that leaves out.
    ///
    /// # Errors
    /// The publisher is mad.
    pub fn skip_to_latest(&mut self) -> Result<u64, Error> {
        let latest = self.side.latest()?.unwrap_or(0);
        let skipped = latest.saturating_sub(1).saturating_sub(self.side.next);
        self.side.next += skipped;
        Ok(skipped)
    }
}

impl<F: Fabric> Listening<F> {
    fn look(&mut self) -> Result<Option<Publication>, Error> {
        if !self.is_invited && self.local.load(INVITED)? == 1 {
            self.is_invited = true;
            // One that cannot join is written to by itself, for ever.
            let _ = self.join_group();
        }
        if let Some(publication) = self.get()? {
            return Ok(Some(publication));
        }
        // Before the last look: what came until it went away is found by that.
        let state = self.remote.check();
        let has_ended = match self.local.load(END)? {
            0 => false,
            1 => true,
            other => return Err(Error::PeerMisbehaved(Misbehaviour::Flag(other))),
        };
        match self.get()? {
            Some(publication) => Ok(Some(publication)),
            None if has_ended => Err(Error::Closed),
            None => state.map(|()| None),
        }
    }

    /// Joins the publisher's group, and says so.
    fn join_group(&self) -> Result<(), Error> {
        let cookie = |at| {
            let mut bytes = [0; Cookie::LEN];
            self.local.copy_out(at, &mut bytes)?;
            Ok::<_, Error>(Cookie::from_bytes(&bytes)?)
        };
        let (group, reply) = (cookie(GROUP)?, cookie(REPLY)?);
        let mut reply = self.fabric.map(&reply)?;
        self.fabric.join_group(&group, &self.local)?;
        reply.store(0, 1)?;
        reply.commit()
    }

    /// So many were published; nothing before the subscription has begun.
    fn latest(&mut self) -> Result<Option<u64>, Error> {
        let Some(latest) = self.local.load(LATEST)?.checked_sub(1) else { return Ok(None) };
        let known = match self.latest {
            Some(known) => known,
            None => {
                self.next = self.local.load(BASE)?;
                self.next
            }
        };
        if latest < known || latest > MOST_NUMBERS {
            let (from, to, room) = (known, latest, MOST_NUMBERS.saturating_sub(known));
            return Err(Error::PeerMisbehaved(Misbehaviour::Counter { from, to, room }));
        }
        self.latest = Some(latest);
        Ok(Some(latest))
    }

    /// The next one that is whole. When the publisher overtakes it time and again, it
    /// lets its caller look elsewhere in between; there will be another write then.
    fn get(&mut self) -> Result<Option<Publication>, Error> {
        let slots = u64::from(self.config.slots);
        for _ in 0..=2 * slots {
            let Some(latest) = self.latest()?.filter(|latest| self.next < *latest) else {
                return Ok(None);
            };
            // Older ones are overwritten.
            let overtaken = latest.saturating_sub(slots).saturating_sub(self.next);
            self.missed += overtaken;
            self.next += overtaken;
            let number = self.next;
            let copied = self.copy(number)?;
            self.next += 1;
            if let Some(bytes) = copied {
                let missed = std::mem::take(&mut self.missed);
                return Ok(Some(Publication { number, missed, bytes }));
            }
            self.missed += 1;
        }
        Ok(None)
    }

    /// The bytes of a publication, if it is whole before and after they were copied.
    fn copy(&self, number: u64) -> Result<Option<Vec<u8>>, Error> {
        let slot = self.config.slot(number);
        if self.local.load(slot)? != complete(number) {
            return Ok(None);
        }
        let (len, most) = (self.local.load(slot + LEN)?, u64::from(self.config.most));
        let mut bytes = Vec::new();
        if len <= most {
            bytes.resize(len as usize, 0);
            self.local.copy_out(slot + BYTES, &mut bytes)?;
        }
        if self.local.load(slot)? != complete(number) {
            return Ok(None);
        }
        if len > most {
            return Err(Error::PeerMisbehaved(Misbehaviour::Length { len, most }));
        }
        Ok(Some(bytes))
    }
}
