//! What a firmware is, to the machine that runs it.
//!
//! A firmware is the receive path that an adapter takes off its host: it looks
//! at each frame, says where the payload belongs, and what to tell the host once
//! it is there. It owns tables of fixed size, knows no time, allocates nothing.
//! All that it does not recognise goes to the host.
//!
//! # Order
//!
//! The machine keeps one queue from the arrival of a frame to the report of it,
//! for payloads and for whole frames alike, and one from the host's commands and
//! frames to the firmware and the wire. So an entry of a table is in force before
//! anything sent later can be answered, and the host hears of a unit before it
//! sees a frame that came behind it.

use core::fmt;

use landfall_placement::{Duration, Ecn, PathId, Peer, Span, Spans};

use crate::machine::{Batch, Request, Route};

/// A frame as it came off the wire.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'f> {
    /// All of its bytes.
    pub bytes: &'f [u8],
    /// The link it came over.
    pub path: PathId,
    /// From whom, where the network knows.
    pub from: Peer,
    /// Whether the network signalled congestion.
    pub ecn: Ecn,
}

/// A frame that is to leave: what is known before its payload is fetched.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingFrame<'f> {
    /// Its headers, as the host built them.
    pub head: &'f [u8],
    /// All of its bytes.
    pub len: u32,
}

/// A frame as short as a word of a link: a firmware builds no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// The link.
    pub path: PathId,
    /// All of its bytes.
    pub bytes: [u8; 8],
}

/// What shall become of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<T> {
    /// The host gets it whole.
    Host,
    /// Its payload goes to the spans that were filled in.
    Place {
        /// Where in the frame the payload begins.
        at: u16,
        /// What to say to [`Firmware::landed`].
        token: T,
    },
    /// Nobody gets it.
    Drop,
}

/// What the host hears of a payload that has landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landed<R> {
    /// Nothing.
    Silent,
    /// This, whenever it looks.
    Noted(R),
    /// This, and it is interrupted.
    EventQueue(R),
    /// This, and it is interrupted now: nothing is worth waiting for.
    Urgent(R),
}

/// Memory of the host, as the DMA engines of an adapter reach it.
pub trait HostMemory {
    /// May all of `span` be written?
    fn is_writable(&self, span: Span) -> bool;

    /// Writes `bytes` to `span`, of the same length. False where that is no memory
    /// that may be written.
    fn write(&mut self, span: Span, bytes: &[u8]) -> bool;

    /// Reads `span` into `into`, of the same length. False where that is no memory
    /// that may be read.
    fn read(&self, span: Span, into: &mut [u8]) -> bool;
}

/// Cycles are spent here, each under the name of a stage.
pub trait Meter {
    /// This many more in this stage.
    fn spend(&mut self, stage: Stage, cycles: u32);
}

/// What a processor of an adapter does with its cycles: the stages of the papers' tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Stage {
    /// Doorbells and commands of the host.
    Doorbell,
    /// Taking a frame off the wire, and reading its headers.
    Header,
    /// Finding the entry of a table.
    Lookup,
    /// Summing a payload in firmware.
    Checksum,
    /// Setting a DMA engine up.
    Dma,
    /// Changing the state of an entry, and reporting it.
    Update,
    /// Building and sending a frame.
    Send,
}

impl Stage {
    /// Every stage there is.
    pub const ALL: [Self; 7] = [
        Self::Doorbell,
        Self::Header,
        Self::Lookup,
        Self::Checksum,
        Self::Dma,
        Self::Update,
        Self::Send,
    ];
}

/// The receive path that an adapter takes off its host.
pub trait Firmware {
    /// A change of its tables.
    type Command: Copy + fmt::Debug + 'static;
    /// What the host is told instead of a frame.
    type Report: Copy + fmt::Debug + 'static;
    /// What it remembers of a payload on its way to memory.
    type Token: Copy + fmt::Debug + 'static;

    /// The driver's half, on the host: what of a command is put into the ring of work
    /// requests, and fetched from there before the command is obeyed.
    fn post(&mut self, command: &mut Self::Command, batch: &mut Batch) {
        let _ = (command, batch);
    }

    /// The work requests of the command that is obeyed next are here; or their doorbell
    /// was lost, and nobody knows them.
    fn fetched(&mut self, command: &mut Self::Command, requests: Option<&[Request]>) {
        let _ = (command, requests);
    }

    /// The driver's half, for a frame to be sent: where its payload lies is put into the
    /// ring; or nothing is, and the adapter is told with the frame.
    fn post_send(&mut self, from: &[Span], batch: &mut Batch) {
        let _ = (from, batch);
    }

    /// The work requests of the frame that is sent next are here: where its payload lies.
    /// Nothing where that is not known: the frame is not sent.
    fn fetched_send(&mut self, requests: Option<&[Request]>, from: &mut Spans) -> bool {
        let _ = (requests, from);
        false
    }

    /// Changes a table; some changes are answered, in the order of all reports.
    fn handle_command(
        &mut self,
        command: &Self::Command,
        meter: &mut impl Meter,
    ) -> Option<Self::Report>;

    /// Where does the payload of this frame belong? Fills `into`, which comes empty.
    fn receive(
        &mut self,
        frame: &Arrival<'_>,
        into: &mut Spans,
        meter: &mut impl Meter,
    ) -> Verdict<Self::Token>;

    /// The payload is in its place, or could not be written there.
    fn landed(
        &mut self,
        token: Self::Token,
        is_in_place: bool,
        meter: &mut impl Meter,
    ) -> Landed<Self::Report>;

    /// Of this many slots for frames that come, this many are taken.
    fn fill(&mut self, taken: u32, slots: u32) {
        let _ = (taken, slots);
    }

    /// The next thing that it says of its own accord to the other end of a link. It is
    /// sent behind the host's frames that were obeyed before.
    fn poll_word(&mut self) -> Option<Word> {
        None
    }

    /// A frame of the host is about to be fetched and sent: which way? Nothing where none
    /// is known: it is not sent.
    fn send(&mut self, frame: &OutgoingFrame<'_>, meter: &mut impl Meter) -> Option<Route> {
        let _ = (frame, meter);
        Some(Route::DIRECT)
    }

    /// After a command: for so long at most frames that came wait in their slots for
    /// the next one. For a host that was overtaken by frames while it spoke: under full
    /// load there is always one more under way, and without a pause it never catches up.
    fn patience(&self) -> Duration {
        Duration::ZERO
    }

    /// It was loaded anew: all tables are empty.
    fn restart(&mut self);
}
