//! A ring with lazy counters (section 4.2 of the paper): what queue, stream and
//! multi-part messages have in common.
//!
//! ```text
//!  memory of the producer         memory of the consumer
//!    0  read: a copy                0  written: a copy
//!    8  closed                      8  end: 0, or one more than all there will be
//!   16  layout, of a typed queue   16  two words for those who builds on it; of a typed
//!                                      queue, the first is its layout
//!                                 128  places: CAPACITY of them, used in turn
//! ```
//!
//! Each side owns the true counter and writes a copy into the other's memory. The
//! counters run on without wrapping (64 bits), so that all places can be used and a
//! copy can be checked: it never goes back, nor further than there is room.
//!
//! What does not live here: the places, and what is in them.

use super::waiting::ConnectionEnd;
use crate::clan::{Error, Fabric, Local, Misbehaviour, Remote, WORD};

/// Where the copy of `written` lies, in the memory of the consumer.
pub(super) const WRITTEN: u64 = 0;
/// Where it says that nothing will follow.
pub(super) const END: u64 = WORD;
/// Two words for those above.
pub(super) const SPARE: u64 = 2 * WORD;
/// Where the places begin: two cache lines behind the words, which are fetched
/// together by most processors.
pub(super) const PLACES: u64 = 128;

/// Where the copy of `read` lies, in the memory of the producer.
pub(super) const READ: u64 = 0;
/// Where it says that nobody reads any more.
pub(super) const CLOSED: u64 = WORD;
/// Where the consumer says what it takes elements for.
const LAYOUT: u64 = 2 * WORD;
/// Bytes that the producer exposes.
pub(super) const PRODUCER_LEN: u64 = 64;

/// The sender's side.
#[derive(Debug)]
pub(super) struct Producer<F: Fabric> {
    local: F::Local,
    remote: F::Remote,
    capacity: u64,
    /// Elements that were put in.
    written: u64,
    /// Of these, published to the consumer.
    published: u64,
    /// Elements that the consumer has taken out, as far as is known here.
    read: u64,
    /// Something was written that was not committed.
    is_uncommitted: bool,
    end: End,
    layout: OurLayout,
}

/// The fingerprint of this side's elements; zero: there is none. It is published once, and
/// compared until the peer has published its own.
#[derive(Clone, Copy, Debug, Default)]
struct OurLayout {
    to_tell: u64,
    to_compare: u64,
}

impl OurLayout {
    const fn new(fingerprint: u64) -> Self {
        Self { to_tell: fingerprint, to_compare: fingerprint }
    }

    /// Compares what the peer has said, if it is to have said something by now.
    const fn compare(&mut self, theirs: u64, is_due: bool) -> Result<(), Error> {
        if theirs == self.to_compare {
            self.to_compare = 0;
        } else if is_due || theirs != 0 {
            return Err(Error::OtherLayout { ours: self.to_compare, theirs });
        }
        Ok(())
    }
}

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    No,
    Wanted,
    Told,
}

impl<F: Fabric> Producer<F> {
    pub(super) fn new(local: F::Local, remote: F::Remote, capacity: u64) -> Self {
        let (written, published, read) = (0, 0, 0);
        let (is_uncommitted, end) = (false, End::No);
        let layout = OurLayout::default();
        Self { local, remote, capacity, written, published, read, is_uncommitted, end, layout }
    }

    /// Sets the fingerprint of this side's elements: none is put in unless the peer's is the same.
    pub(super) const fn set_layout(&mut self, fingerprint: u64) {
        self.layout = OurLayout::new(fingerprint);
    }

    /// Elements that were put in.
    #[inline]
    pub(super) const fn written(&self) -> u64 {
        self.written
    }

    /// Elements that are not published to the consumer.
    #[inline]
    pub(super) const fn unpublished(&self) -> u64 {
        self.written - self.published
    }

    /// Room for this many, as far as is known without a look.
    #[inline]
    pub(super) const fn known_room(&self) -> u64 {
        self.capacity - (self.written - self.read)
    }

    /// Room for at least `least`, after a look if need be; how much there is, or
    /// nothing. Before it says so, what was written is published: else both might
    /// wait for each other.
    #[inline]
    pub(super) fn room(&mut self, least: u64) -> Result<Option<u64>, Error> {
        if self.end != End::No {
            return Err(Error::Closed);
        }
        match self.known_room() {
            enough if enough >= least => Ok(Some(enough)),
            _ => self.room_by_look(least),
        }
    }

    fn room_by_look(&mut self, least: u64) -> Result<Option<u64>, Error> {
        if let Some(enough) = self.look(least)? {
            return Ok(Some(enough));
        }
        self.publish()?;
        // The consumer may have taken all since, and gone.
        if let Some(enough) = self.look(least)? {
            return Ok(Some(enough));
        }
        let Self { local, remote, .. } = self;
        match local.load(CLOSED)? {
            0 => {}
            1 => return Err(Error::Closed),
            other => return Err(Error::PeerMisbehaved(Misbehaviour::Flag(other))),
        }
        remote.check().map(|()| None).map_err(|error| self.explain(error))
    }

    /// Takes over the copy of `read`.
    fn look(&mut self, least: u64) -> Result<Option<u64>, Error> {
        let read = self.local.load(READ)?;
        if !(self.read..=self.published).contains(&read) {
            let (from, room) = (self.read, self.published - self.read);
            return Err(Error::PeerMisbehaved(Misbehaviour::Counter { from, to: read, room }));
        }
        self.read = read;
        let room = self.known_room();
        Ok((room >= least).then_some(room))
    }

    /// How many the consumer has not taken out, as far as it has said.
    pub(super) fn under_way(&mut self) -> u64 {
        // One that is invalid is found out by the next call.
        let _ = self.look(0);
        self.written - self.read
    }

    /// Writes into the memory of the consumer, where [`room`](Self::room) is.
    #[inline]
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.remote.write(offset, bytes).map_err(|error| self.explain(error))
    }

    /// A consumer that goes takes its memory away: that is no fault. Its last word may
    /// still be on its way when the refusal is here already.
    #[cold]
    fn explain(&self, error: Error) -> Error {
        match (&error, self.local.load(CLOSED)) {
            (Error::Refused(_) | Error::StaleCookie, Ok(0 | 1)) => Error::Closed,
            _ => error,
        }
    }

    /// `count` places were filled; [`room`](Self::room) has said that there are that many.
    #[inline]
    pub(super) const fn advance(&mut self, count: u64) {
        self.written += count;
        self.is_uncommitted = true;
    }

    /// Publishes all that was put in to the consumer.
    ///
    /// On [`Error::Busy`] it is to be repeated; then it goes on where it was.
    pub(super) fn publish(&mut self) -> Result<(), Error> {
        self.publish_counters()?;
        self.commit()
    }

    fn publish_counters(&mut self) -> Result<(), Error> {
        if self.layout.to_compare | self.layout.to_tell != 0 {
            self.compare_layouts()?;
        }
        if self.published != self.written {
            self.store(WRITTEN, self.written)?;
            self.published = self.written;
            self.is_uncommitted = true;
        }
        if self.end == End::Wanted {
            self.store_notice(END, self.written + 1)?;
            self.end = End::Told;
            self.is_uncommitted = true;
        }
        Ok(())
    }

    /// Says before the first element what it is, and looks whether the consumer has said.
    #[cold]
    fn compare_layouts(&mut self) -> Result<(), Error> {
        // Said first: so a consumer that takes them for something else hears of it, too.
        if self.layout.to_tell != 0 {
            self.store(SPARE, self.layout.to_tell)?;
            self.layout.to_tell = 0;
        }
        if self.layout.to_compare != 0
            && let Err(other) = self.layout.compare(self.local.load(LAYOUT)?, false)
        {
            // That it differs is what is to be reported.
            let _ = self.remote.commit();
            return Err(other);
        }
        Ok(())
    }

    #[inline]
    fn store(&mut self, offset: u64, word: u64) -> Result<(), Error> {
        self.remote.store(offset, word).map_err(|error| self.explain(error))
    }

    /// Stores a word that only says something about what was put in. A consumer may take
    /// all, close the ring and go without having heard it: then nothing has failed.
    fn store_notice(&mut self, offset: u64, word: u64) -> Result<(), Error> {
        let Err(error) = self.remote.store(offset, word) else { return Ok(()) };
        let has_closed = self.local.load(CLOSED)? == 1;
        if error.is_gone() && has_closed && self.look(0).is_ok() && self.read == self.written {
            return Ok(());
        }
        Err(self.explain(error))
    }

    #[inline]
    fn commit(&mut self) -> Result<(), Error> {
        if self.is_uncommitted {
            if let Err(error) = self.remote.commit() {
                self.forgive(error)?;
            }
            self.is_uncommitted = false;
        }
        Ok(())
    }

    /// A consumer may see elements before the commit that publishes them has ended, take all,
    /// and go: then nothing has failed.
    #[cold]
    fn forgive(&mut self, error: Error) -> Result<(), Error> {
        // A full send buffer is another matter: the end may still be in it.
        match self.look(0) {
            Ok(_) if error.is_gone() && self.read == self.written => Ok(()),
            _ => Err(self.explain(error)),
        }
    }

    /// The same, and touches one of the spare words, for those who waits for that.
    pub(super) fn publish_with(&mut self, word: u64) -> Result<(), Error> {
        self.publish_counters()?;
        self.store_notice(word, self.written)?;
        self.is_uncommitted = true;
        self.commit()
    }

    /// Nothing more will be put in.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        if self.end == End::No {
            self.end = End::Wanted;
        }
        self.publish()
    }

    /// Has the consumer taken out all? An error if it never will.
    pub(super) fn is_drained(&mut self) -> Result<Option<()>, Error> {
        self.publish()?;
        // Before the last look: what was taken out until it went away counts.
        let state = self.remote.check();
        let is_closed = self.local.load(CLOSED)? != 0;
        self.look(0)?;
        match self.read == self.written {
            true => Ok(Some(())),
            false if is_closed => Err(Error::Closed),
            false => state.map(|()| None),
        }
    }
}

impl<F: Fabric> ConnectionEnd<F> for Producer<F> {
    #[inline]
    fn remote(&mut self) -> &mut F::Remote {
        &mut self.remote
    }
}

/// The receiver's side.
#[derive(Debug)]
pub(super) struct Consumer<F: Fabric> {
    local: F::Local,
    remote: F::Remote,
    capacity: u64,
    /// Elements that were put in, as far as is known here.
    written: u64,
    /// Elements that were taken out.
    read: u64,
    /// Of these, published to the producer.
    published: u64,
    is_uncommitted: bool,
    layout: OurLayout,
}

impl<F: Fabric> Consumer<F> {
    pub(super) fn new(local: F::Local, remote: F::Remote, capacity: u64) -> Self {
        let (written, read, published) = (0, 0, 0);
        let (is_uncommitted, layout) = (false, OurLayout::default());
        Self { local, remote, capacity, written, read, published, is_uncommitted, layout }
    }

    /// Sets the fingerprint of this side's elements: none is taken out unless the peer's is the
    /// same. It is published; a full send buffer delays that.
    pub(super) fn set_layout(&mut self, fingerprint: u64) -> Result<(), Error> {
        self.layout = OurLayout::new(fingerprint);
        self.publish_if_possible()
    }

    /// The memory that the places are in.
    #[inline]
    pub(super) const fn local(&self) -> &F::Local {
        &self.local
    }

    /// Elements that were taken out.
    #[inline]
    pub(super) const fn read(&self) -> u64 {
        self.read
    }

    /// Elements that are there, as far as is known without a look.
    #[inline]
    pub(super) const fn known(&self) -> u64 {
        self.written - self.read
    }

    /// At least `least` are there, after a look if need be; how many, or nothing.
    /// Fewer, and nothing will follow: [`Error::Closed`], or what became of the peer.
    #[inline]
    pub(super) fn filled(&mut self, least: u64) -> Result<Option<u64>, Error> {
        match self.known() {
            enough if enough >= least => Ok(Some(enough)),
            _ => self.filled_by_look(least),
        }
    }

    fn filled_by_look(&mut self, least: u64) -> Result<Option<u64>, Error> {
        if let Some(enough) = self.look(least)? {
            return Ok(Some(enough));
        }
        self.publish_before_waiting(least)?;
        self.last_look(least)
    }

    /// The same, and tells the producer nothing: what was taken out is published in quarters of
    /// the ring only.
    pub(super) fn filled_quietly(&mut self, least: u64) -> Result<Option<u64>, Error> {
        match self.look(least)? {
            Some(enough) => Ok(Some(enough)),
            None => self.last_look(least),
        }
    }

    fn last_look(&mut self, least: u64) -> Result<Option<u64>, Error> {
        // Before the last look: what came until it went away is found by that.
        let state = self.remote.check();
        let has_ended = self.has_ended()?;
        match self.look(least)? {
            Some(enough) => Ok(Some(enough)),
            None if has_ended => Err(Error::Closed),
            None => state.map(|()| None),
        }
    }

    /// Takes over the copy of `written`.
    #[inline]
    fn look(&mut self, least: u64) -> Result<Option<u64>, Error> {
        let written = self.local.load(WRITTEN)?;
        let room = self.published + self.capacity - self.written;
        if written < self.written || written - self.written > room {
            let (from, to) = (self.written, written);
            return Err(Error::PeerMisbehaved(Misbehaviour::Counter { from, to, room }));
        }
        if self.layout.to_compare != 0 {
            // It was written before the counter.
            self.layout.compare(self.local.load(SPARE)?, written > 0)?;
        }
        self.written = written;
        let there = self.known();
        Ok((there >= least).then_some(there))
    }

    /// Will nothing follow after what is known?
    fn has_ended(&mut self) -> Result<bool, Error> {
        let end = self.local.load(END)?;
        if end == 0 {
            return Ok(false);
        }
        // The end is written behind the counter, so that this look is the last.
        self.look(0)?;
        if end - 1 == self.written {
            return Ok(true);
        }
        let (from, to) = (self.written, end - 1);
        Err(Error::PeerMisbehaved(Misbehaviour::Counter { from, to, room: 0 }))
    }

    /// `count` places are free again; [`filled`](Self::filled) has said that there
    /// are this many. That is published in quarters of the ring.
    #[inline]
    pub(super) fn advance(&mut self, count: u64) -> Result<(), Error> {
        self.read += count;
        if self.owes() { self.publish_if_possible() } else { Ok(()) }
    }

    #[inline]
    const fn owes(&self) -> bool {
        self.is_uncommitted || (self.read - self.published) * 4 >= self.capacity
    }

    /// There is nothing to do: time to bring the copy up to date. The producer may be
    /// waiting for that, to put in what is wanted here or to be sure that all is taken.
    fn publish_before_waiting(&mut self, least: u64) -> Result<(), Error> {
        let is_urgent = self.owes() || self.read + least > self.published + self.capacity;
        match unless_gone(self.publish_read()) {
            Err(Error::Busy) if !is_urgent => Ok(()),
            other => other,
        }
    }

    /// A full send buffer is tried again later, and a lost peer is ignored: it
    /// shows when there is nothing left to take out.
    fn publish_if_possible(&mut self) -> Result<(), Error> {
        match unless_gone(self.publish_read()) {
            Err(Error::Busy) => Ok(()),
            other => other,
        }
    }

    /// Publishes all that was taken out to the producer.
    pub(super) fn publish_read(&mut self) -> Result<(), Error> {
        if self.layout.to_tell != 0 {
            self.remote.store(LAYOUT, self.layout.to_tell)?;
            self.layout.to_tell = 0;
            self.is_uncommitted = true;
        }
        if self.published != self.read {
            self.is_uncommitted = true;
            self.remote.store(READ, self.read)?;
            self.published = self.read;
        }
        if self.is_uncommitted {
            self.remote.commit()?;
            self.is_uncommitted = false;
        }
        Ok(())
    }

    /// Nothing more will be taken out.
    pub(super) fn close(&mut self) -> Result<(), Error> {
        self.publish_read()?;
        self.remote.store(CLOSED, 1)?;
        self.remote.commit()
    }
}

/// Ignores that the peer is gone: what it left can still be read.
fn unless_gone(published: Result<(), Error>) -> Result<(), Error> {
    match published {
        Err(error) if error.is_gone() => Ok(()),
        other => other,
    }
}

impl<F: Fabric> ConnectionEnd<F> for Consumer<F> {
    #[inline]
    fn remote(&mut self) -> &mut F::Remote {
        &mut self.remote
    }
}
