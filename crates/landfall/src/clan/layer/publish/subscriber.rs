//! The receiving side of publications.

use std::time::Instant;

use super::{
    BASE, BYTES, Config, END, GROUP, INVITED, LATEST, LEN, MOST_NUMBERS, PUBLISHER_LEN, REPLY,
    complete,
};
use crate::clan::layer::any::{Waitable, readiness};
use crate::clan::layer::place::View;
use crate::clan::layer::waiting::{Connect, ConnectionEnd, Half, Joint, Waiting};
use crate::clan::{Access, Cookie, Error, Fabric, Local, Misbehaviour, Remote, WORD};

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
    /// How many before it were overtaken by later ones, or never sent, since the last
    /// that was got here.
    pub missed: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// A publication where it lies. It is read, and then asked whether it was whole until then.
#[derive(Debug)]
pub struct PublicationView<'a, F: Fabric> {
    side: &'a Listening<F>,
    number: u64,
    missed: u64,
    len: u64,
}

impl<F: Fabric> PublicationView<'_, F> {
    /// Which it is, counted from the publisher's first.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// See [`Publication::missed`].
    #[must_use]
    pub const fn missed(&self) -> u64 {
        self.missed
    }

    /// Its bytes, which the publisher may overwrite at any moment.
    #[must_use]
    pub const fn view(&self) -> View<'_, F::Local> {
        View::new(&self.side.local, self.side.config.slot(self.number) + BYTES, self.len)
    }

    /// Was all that was read up to now of this publication? If not, what was read is to be
    /// dropped: it is lost.
    ///
    /// # Errors
    /// None that is known.
    pub fn is_whole(&self) -> Result<bool, Error> {
        let slot = self.side.config.slot(self.number);
        Ok(self.side.local.load(slot)? == complete(self.number))
    }
}

#[derive(Debug)]
struct Listening<F: Fabric> {
    fabric: F,
    local: F::Local,
    remote: F::Remote,
    config: Config,
    /// How many were published, as far as is known here; nothing before it begins.
    latest: Option<u64>,
    /// The one that is wanted next.
    next: u64,
    missed: u64,
    /// It was invited into the group, and tried.
    is_invited: bool,
}

impl<F: Fabric> ConnectionEnd<F> for Listening<F> {
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
    /// This side's half. Its cookie goes to [`Publisher::add`](super::Publisher::add).
    ///
    /// # Errors
    /// Those of [`Fabric::expose`], or the configuration is invalid.
    pub fn open(fabric: &F, config: Config) -> Result<Half<F, Self>, Error> {
        Half::open(fabric, config)
    }

    /// The next publication, if it is there.
    ///
    /// # Errors
    /// The publisher has ended it ([`Error::Closed`]), or is gone or misbehaves.
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

    /// The next publication where it lies, once it is there: nothing is copied but what is
    /// read. The publisher does not wait: whether it has overtaken what was read is asked
    /// with [`PublicationView::is_whole`], after the reading.
    ///
    /// # Errors
    /// Those of [`next`](Self::next).
    ///
    /// ```
    /// # use landfall::clan::Threads;
    /// # use landfall::clan::layer::publish::{Config, Publisher, Subscriber};
    /// # let (news, reader) = Threads::pair()?;
    /// # let config = Config::new(256, 16);
    /// # let mut publisher = Publisher::open(&news, config)?;
    /// # let subscriber = Subscriber::open(&reader, config)?;
    /// # publisher.add(&subscriber.cookie())?;
    /// # let mut subscriber = subscriber.connect(&publisher.cookie())?;
    /// publisher.publish_with(8, |place| place.put(0, &42u64))?;
    /// let sight = subscriber.sight(None)?;
    /// let value: u64 = sight.view().get(0)?;
    /// assert!(sight.is_whole()? && value == 42);
    /// # Ok::<(), landfall::clan::Error>(())
    /// ```
    pub fn sight(&mut self, deadline: Option<Instant>) -> Result<PublicationView<'_, F>, Error> {
        let Self { side, waiting } = self;
        let (number, missed, len) = waiting.until(side, deadline, Listening::look_in_place)?;
        Ok(PublicationView { side, number, missed, len })
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

impl<F: Fabric> Waitable<F> for Subscriber<F> {
    fn tripwire(&self) -> &F::Tripwire {
        self.waiting.tripwire()
    }

    fn is_ready(&mut self) -> Result<bool, Error> {
        readiness(self.side.is_behind())
    }
}

impl<F: Fabric> Listening<F> {
    fn look(&mut self) -> Result<Option<Publication>, Error> {
        self.look_with(Self::get)
    }

    /// The same for one that stays where it lies: number, missed, length.
    fn look_in_place(&mut self) -> Result<Option<(u64, u64, u64)>, Error> {
        self.look_with(|side| side.get_with(Self::len_of))
    }

    fn look_with<T>(
        &mut self,
        mut get: impl FnMut(&mut Self) -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        if !self.is_invited && self.local.load(INVITED)? == 1 {
            self.is_invited = true;
            // One that cannot join is written to by itself, for ever.
            let _ = self.join_group();
        }
        if let Some(publication) = get(self)? {
            return Ok(Some(publication));
        }
        // Before the last look: what came until it went away is found by that.
        let state = self.remote.check();
        let has_ended = match self.local.load(END)? {
            0 => false,
            1 => true,
            other => return Err(Error::PeerMisbehaved(Misbehaviour::Flag(other))),
        };
        match get(self)? {
            Some(publication) => Ok(Some(publication)),
            None if has_ended => Err(Error::Closed),
            None => state.map(|()| None),
        }
    }

    /// Is there one that was not got, or the end?
    fn is_behind(&mut self) -> Result<Option<()>, Error> {
        if self.latest()?.is_some_and(|latest| self.next < latest) || self.local.load(END)? != 0 {
            return Ok(Some(()));
        }
        self.remote.check().map(|()| None)
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

    /// How many were published; nothing before the subscription has begun.
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
        let got = self.get_with(Self::copy)?;
        Ok(got.map(|(number, missed, bytes)| Publication { number, missed, bytes }))
    }

    fn get_with<T>(
        &mut self,
        take: impl Fn(&Self, u64) -> Result<Option<T>, Error>,
    ) -> Result<Option<(u64, u64, T)>, Error> {
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
            let taken = take(self, number)?;
            self.next += 1;
            if let Some(taken) = taken {
                let missed = std::mem::take(&mut self.missed);
                return Ok(Some((number, missed, taken)));
            }
            self.missed += 1;
        }
        Ok(None)
    }

    /// The length of a publication that is whole.
    fn len_of(&self, number: u64) -> Result<Option<u64>, Error> {
        let slot = self.config.slot(number);
        if self.local.load(slot)? != complete(number) {
            return Ok(None);
        }
        let (len, most) = (self.local.load(slot + LEN)?, u64::from(self.config.most));
        if self.local.load(slot)? != complete(number) {
            return Ok(None);
        }
        if len > most {
            return Err(Error::PeerMisbehaved(Misbehaviour::Length { len, most }));
        }
        Ok(Some(len))
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
