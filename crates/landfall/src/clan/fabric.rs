//! [`Fabric`]: non-coherent shared memory with tripwires, over any carrier.
//!
//! The programming layer is written once against these traits. Over memory
//! that processes of one host share, a remote write is a store; over a network it
//! becomes a burst in a frame; between threads both sides are in one process. On all of
//! them:
//!
//! - **Order** (PRAM consistency). What one handle writes takes effect in the
//!   order of the calls. What was committed by one handle comes before what any
//!   handle of the same node writes to the same peer later.
//! - **Words.** A word is eight bytes at a multiple of eight, written and read as
//!   one. In memory it is little-endian on every machine, so that hosts of both
//!   kinds understand each other. Anyone who sees a word sees all that its writer
//!   wrote before it.
//! - **Publication.** What was written may be seen at once, and is seen for
//!   certain after [`Remote::commit`]: one fence over shared memory, one frame
//!   over a network. A batch pays for it once.
//! - **No slices.** Memory that others write is copied or read by words, and
//!   nothing that is read from it is believed.
//! - **No hangs.** A peer that is gone is [`Error::PeerLost`], also for those who
//!   sleeps.
//!
//! # Sleeping without missing a write
//!
//! A [`Tripwire`] fires once per [`arm`](Tripwire::arm). The pattern that cannot
//! miss a write is *look, arm, look again, wait*: a write that the second look did
//! not see fires the tripwire.
//!
//! ```
//! use landfall::clan::{Cookie, Error, Fabric, Local, Remote, Tripwire};
//!
//! /// Waits until the first word of our memory is not zero.
//! fn wait_for_word<F: Fabric>(
//!     fabric: &F,
//!     memory: &F::Local,
//!     tripwire: &F::Tripwire,
//!     peer: &F::Remote,
//! ) -> Result<u64, Error> {
//!     loop {
//!         tripwire.arm();
//!         let word = memory.load(0)?;
//!         if word != 0 {
//!             tripwire.disarm();
//!             return Ok(word);
//!         }
//!         peer.check()?;
//!         fabric.wait(&[tripwire], None)?;
//!     }
//! }
//! ```
//!
//! What does not live here: how memory is exchanged (a [`Cookie`] is 32 bytes that
//! travel by any means), and what the bytes mean.

use std::fmt::Debug;
use std::ops::Range;
use std::task::{Context, Poll};
use std::time::Instant;

pub use clan_dsm::{Access, Cookie, Rights};
pub use landfall_placement::WordFunction;
pub use landfall_transport::memory::Piece;

use super::Error;

/// Bytes of a word: what is written and read as one.
pub const WORD: u64 = 8;

/// One node's way to the memory of others, and theirs to its own. Clones are the
/// same node.
pub trait Fabric: Clone + Debug + Send + Sync + 'static {
    /// Memory of this node that others touch.
    type Local: Local;
    /// Memory of another node.
    type Remote: Remote<Local = Self::Local>;
    /// Synchronisation with accesses to memory of this node.
    type Tripwire: Tripwire;

    /// Makes `len` bytes of memory, all zero, for others to use within `rights`.
    /// Anyone who has the cookie may [`map`](Self::map) it. The memory lives until
    /// the last clone of the handle is gone; then the cookie is invalid.
    ///
    /// # Errors
    /// No memory, or no room for one more aperture.
    fn expose(&self, len: u64, rights: Rights) -> Result<(Self::Local, Cookie), Error>;

    /// Makes memory of another node usable here. Over a network this asks nobody:
    /// an invalid cookie fails on first use.
    ///
    /// # Errors
    /// The cookie is invalid, or there is no way to its host.
    fn map(&self, cookie: &Cookie) -> Result<Self::Remote, Error>;

    /// A cookie for memory of this node that one peer alone can use: the node whose memory `peer`
    /// is, and no other, no matter who it passes the cookie on to. It allows what
    /// [`expose`](Self::expose) was told. Each call gives the same one, until
    /// [`revoke_from`](Self::revoke_from). The cookie that `expose` gave stays one for anyone who has
    /// it: keep it to yourself.
    ///
    /// Between processes a peer is a process, as the kernel says. Over networks it is a host, which
    /// has to have proven who it is, on an encrypted link.
    ///
    /// ```
    /// use landfall::clan::{Cookie, Error, Fabric, Rights};
    ///
    /// /// Memory that nobody but this peer can write, and its cookie.
    /// fn mailbox_of<F: Fabric>(
    ///     fabric: &F,
    ///     peer: &F::Remote,
    /// ) -> Result<(F::Local, Cookie), Error> {
    ///     let (memory, _) = fabric.expose(4096, Rights::Write)?;
    ///     let cookie = fabric.cookie_for(&memory, peer)?;
    ///     Ok((memory, cookie))
    /// }
    /// ```
    ///
    /// # Errors
    /// The peer is gone, or has not proven who it is ([`Error::NotProven`]); there is no room for
    /// one more; or the fabric does not tell peers apart, as threads of one process.
    fn cookie_for(&self, local: &Self::Local, peer: &Self::Remote) -> Result<Cookie, Error> {
        let _ = (local, peer);
        Err(Error::BadConfig("nobody is told apart on this fabric"))
    }

    /// Ends the use of this memory by one peer, as far as it was
    /// [for it alone](Self::cookie_for): the cookie is invalid from now on, and who uses it gets
    /// [`Error::Refused`] at its next use. Others go on. Twice is as good as once.
    ///
    /// # Errors
    /// As for [`cookie_for`](Self::cookie_for) where peers are not told apart.
    fn revoke_from(&self, local: &Self::Local, peer: &Self::Remote) -> Result<(), Error> {
        let _ = (local, peer);
        Err(Error::BadConfig("nobody is told apart on this fabric"))
    }

    /// A tripwire for a range of local memory, not armed yet. Ranges are watched in
    /// whole words. With a `peer`, it also fires when that peer is lost, so that
    /// nobody sleeps for ever.
    ///
    /// # Errors
    /// The range is not within the memory, or there is no room for one more.
    fn watch(
        &self,
        local: &Self::Local,
        range: Range<u64>,
        access: Access,
        peer: Option<&Self::Remote>,
    ) -> Result<Self::Tripwire, Error>;

    /// A tripwire for memory of another node, not armed yet: it fires when this node has touched
    /// it, through whichever handle, and what was written is in place there or what was read is
    /// here. It also fires when the peer is lost.
    ///
    /// # Errors
    /// The range is not within the memory, or there is no room for one more.
    fn watch_own(
        &self,
        remote: &Self::Remote,
        range: Range<u64>,
        access: Access,
    ) -> Result<Self::Tripwire, Error> {
        let _ = (remote, range, access);
        Err(Error::BadConfig("accesses of this node are not watched on this fabric"))
    }

    /// Founds memory of many nodes that is written at once, where the fabric knows how
    /// to; nothing where each of them is written by itself just as fast, as where a
    /// write is a store.
    ///
    /// # Errors
    /// The length is none that memory can have, or there is no room for one more.
    fn found_group(
        &self,
        len: u64,
    ) -> Result<Option<Box<dyn Group<Remote = Self::Remote>>>, Error> {
        let _ = len;
        Ok(None)
    }

    /// From now on, what the founder of a group publishes lands in this memory, as
    /// long as the memory lives.
    ///
    /// # Errors
    /// The fabric knows no groups, the memory is too short, this node is a member
    /// already, or there is no room for one more.
    fn join_group(&self, group: &Cookie, local: &Self::Local) -> Result<(), Error> {
        let _ = (group, local);
        Err(Error::BadConfig("nobody founds groups on this fabric"))
    }

    /// Sleeps until one of the tripwires has fired (true) or the deadline has passed
    /// (false). It may return early, with either answer: the caller looks again at
    /// what it waits for. A tripwire that has fired already ends it at once.
    ///
    /// # Errors
    /// The node does not run any more.
    fn wait(&self, tripwires: &[&Self::Tripwire], deadline: Option<Instant>)
    -> Result<bool, Error>;

    /// Call it in each round of a spin loop. A node without a thread of its own
    /// receives packets here; shared memory has nothing to do.
    #[inline]
    fn relax(&self) {
        std::hint::spin_loop();
    }
}

/// Memory of this node that others write. Clones are the same memory.
///
/// All reads acquire, all writes release. Offsets are checked: a wrong one is
/// [`Error::OutOfBounds`] or [`Error::Unaligned`].
#[expect(clippy::len_without_is_empty, reason = "it is never empty")]
pub trait Local: Clone + Debug + Send + Sync + 'static {
    /// How many bytes; never none.
    fn len(&self) -> u64;

    /// Reads the word at a multiple of eight.
    ///
    /// # Errors
    /// There is none.
    fn load(&self, offset: u64) -> Result<u64, Error>;

    /// Writes the word at a multiple of eight. No tripwire hears of it: the node
    /// touches its own memory.
    ///
    /// # Errors
    /// There is none.
    fn store(&self, offset: u64, word: u64) -> Result<(), Error>;

    /// Changes the word at a multiple of eight in one indivisible step, also against what peers
    /// do; gives what it held before. No tripwire hears of it.
    ///
    /// # Errors
    /// There is none.
    fn change(&self, offset: u64, function: WordFunction) -> Result<u64, Error> {
        let _ = (offset, function);
        Err(Error::BadConfig("words are not changed in one step on this fabric"))
    }

    /// Copies bytes out. A peer that writes meanwhile leaves any mixture of them.
    ///
    /// # Errors
    /// They are not all there.
    fn copy_out(&self, offset: u64, into: &mut [u8]) -> Result<(), Error>;

    /// Copies bytes in, for instance for others to read or for
    /// [`Remote::write_from`].
    ///
    /// # Errors
    /// They do not all fit.
    fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<(), Error>;

    /// A part of this memory itself, where it is mapped: between threads, and between
    /// processes of one host. It begins at a multiple of eight.
    ///
    /// # Errors
    /// It is not all there, or begins elsewhere.
    fn piece(&self, part: Range<u64>) -> Result<Option<Piece>, Error> {
        let _ = part;
        Ok(None)
    }
}

/// How far a write has come, asked with [`Remote::is_reached`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A write as long as the one that was refused last would not be
    /// [`Error::Busy`] any more. However long it is: when the way is empty, it is taken.
    Room,
    /// The source of this DMA may be changed again.
    Sent(Dma),
    /// All that was committed is in the memory of the peer.
    Delivered,
}

/// One request to the DMA engine: its number at this [`Remote`]. They complete in
/// their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dma(pub u64);

/// Memory of another node, to be written. One handle has one user at a time; map
/// the cookie again for another.
///
/// A write that is refused has changed nothing. [`Error::Busy`] says that the way
/// to the peer is full just now: wait for [`Stage::Room`] and do it again.
#[expect(clippy::len_without_is_empty, reason = "it is never empty")]
pub trait Remote: Debug + Send + 'static {
    /// The memory of this node that DMA takes its bytes from.
    type Local: Local;

    /// How many bytes; never none.
    fn len(&self) -> u64;

    /// Writes the word at a multiple of eight.
    ///
    /// # Errors
    /// There is none, the send buffer is full, or the peer is gone.
    fn store(&mut self, offset: u64, word: u64) -> Result<(), Error>;

    /// Writes bytes, in one piece: they are copied once, whatever their number.
    ///
    /// # Errors
    /// They do not all fit, the send buffer is full, or the peer is gone.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error>;

    /// Writes bytes of local memory without copying them first. They must not
    /// change before [`Stage::Sent`]. Offset, start and end are multiples of eight.
    ///
    /// # Errors
    /// They do not all fit, the send buffer is full, or the peer is gone.
    fn write_from(
        &mut self,
        offset: u64,
        from: &Self::Local,
        range: Range<u64>,
    ) -> Result<Dma, Error>;

    /// A part of the peer's memory itself, for writing, where it is mapped: between
    /// threads, and between processes of one host. It begins at a multiple of eight. All of
    /// it counts as written by now: its tripwires fire with the next commit.
    ///
    /// # Errors
    /// It is not all there or begins elsewhere, it is not for writing, or the peer is gone.
    fn piece(&mut self, part: Range<u64>) -> Result<Option<Piece>, Error> {
        let _ = part;
        Ok(None)
    }

    /// Publishes what was written: the peer sees it, and its tripwires fire, without
    /// any further call. Nothing to publish is fine. What was taken has its room: this
    /// is not refused for want of it.
    ///
    /// # Errors
    /// The peer is gone.
    fn commit(&mut self) -> Result<(), Error>;

    /// Reads memory of the peer, after all that was written before. On a network
    /// that is a round trip, during which the thread waits: the programming layer
    /// never does it.
    ///
    /// # Errors
    /// They are not all there, the cookie is not for reading, the deadline is over,
    /// or the peer is gone.
    fn read(
        &mut self,
        offset: u64,
        into: &mut [u8],
        deadline: Option<Instant>,
    ) -> Result<(), Error>;

    /// Changes the word at a multiple of eight in one indivisible step, after all that was written
    /// before; gives what it held before. On a network that is a round trip, during which the
    /// thread waits. It touches the word as a write does.
    ///
    /// ```
    /// use landfall::clan::{Error, Fabric, Remote, Rights, Threads, WordFunction};
    ///
    /// /// A number that nobody else draws.
    /// fn draw<R: Remote>(counter: &mut R) -> Result<u64, Error> {
    ///     counter.change(0, WordFunction::Add(1), None)
    /// }
    ///
    /// let (here, there) = Threads::pair()?;
    /// let (_memory, cookie) = there.expose(8, Rights::ReadWrite)?;
    /// let (mut one, mut other) = (here.map(&cookie)?, here.map(&cookie)?);
    /// assert_eq!((draw(&mut one)?, draw(&mut other)?), (0, 1));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// There is none, the cookie is not for reading and writing, the deadline is over, or the
    /// peer is gone.
    fn change(
        &mut self,
        offset: u64,
        function: WordFunction,
        deadline: Option<Instant>,
    ) -> Result<u64, Error> {
        let _ = (offset, function, deadline);
        Err(Error::BadConfig("words are not changed in one step on this fabric"))
    }

    /// Is the peer still there? It costs a load.
    ///
    /// # Errors
    /// It is not, or it refused what was written.
    fn check(&self) -> Result<(), Error>;

    /// Has a write come that far?
    ///
    /// # Errors
    /// The peer is gone.
    fn is_reached(&self, stage: Stage) -> Result<bool, Error>;

    /// Waits until it has.
    ///
    /// # Errors
    /// The peer is gone, or the deadline is over.
    fn wait_for(&mut self, stage: Stage, deadline: Option<Instant>) -> Result<(), Error>;

    /// The same for a task. One task waits at a time: the last to ask is woken.
    ///
    /// # Errors
    /// The peer is gone.
    fn poll_reached(&mut self, stage: Stage, context: &mut Context<'_>) -> Poll<Result<(), Error>>;
}

/// Memory that many nodes have, each its own, and that its founder writes in all of
/// them by one call.
pub trait Group: Debug + Send + 'static {
    /// What the founder knows its members by.
    type Remote: Remote;

    /// What nodes need to [join](Fabric::join_group).
    fn cookie(&self) -> Cookie;

    /// From now on the node that this memory is of gets what is published, behind all
    /// that was written to it before. It has to have joined. Returns its number in the
    /// group, which no other had or will have.
    ///
    /// # Errors
    /// It is a member already, gone, or there is no room for one more.
    fn add(&mut self, member: &Self::Remote) -> Result<u64, Error>;

    /// Writes bytes at these places of each member's memory, in this order, and
    /// publishes them. A member gets all of it or nothing, and none waits for another.
    /// `tell` is called for each, by its number: [`Error::Busy`], it gets nothing this time;
    /// any other error, it is no member any more.
    ///
    /// # Errors
    /// What is the same for all, and then nobody got anything.
    fn publish(
        &mut self,
        writes: &[(u64, &[u8])],
        tell: &mut dyn FnMut(u64, Result<(), Error>),
    ) -> Result<(), Error>;

    /// Is what is published behind what was written to a member by itself, and before what is
    /// written to it after? Where the network multicasts it need not be.
    fn keeps_order_with_writes(&self) -> bool;
}

/// Fires when chosen memory is touched.
///
/// It is idle, armed or fired. Firing takes one access by another node that came
/// after [`arm`](Self::arm), and ends the arming: while nobody waits, a writer
/// finds nothing armed and pays nothing.
pub trait Tripwire: Debug + Send + Sync + 'static {
    /// Arms it. Each write that a look at the memory after this call
    /// does not see fires it, unless it is disarmed before.
    fn arm(&self);

    /// Disarms it; it has not fired.
    fn disarm(&self);

    /// Has it fired since it was armed, or is the peer that it was made for lost?
    fn has_fired(&self) -> bool;

    /// The same for a task. One task waits at a time: the last to ask is woken.
    fn poll_fired(&self, context: &mut Context<'_>) -> Poll<()>;
}
