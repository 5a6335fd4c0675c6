//! [`Packet`]: what a receiver hands out.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use landfall_inet::{ethernet, udp};
use landfall_placement::{Instant, InternetSum, Span};
use landfall_transport::Wait;
use landfall_transport::driver::Interest;
use landfall_transport::memory::Pins;
use landfall_transport::remap::Delivered;
use landfall_transport::scatter::{CutError, Long, MOST_OUTGOING};
use spec_defrag::{Head, ReassemblyPath, cut};

use super::datagram::{Datagrams, piece_of, udp_at};
use super::delivery::Returns;
use super::error::Error;
use super::registered::Part;
use super::sender::{CutBy, HandOver, Handover, Outgoing, Sender};
use crate::runtime::drive_alone;

/// An IP packet in an Ethernet frame, whole, as if the wire had room for it. Its
/// memory goes back to the receiver, or to the kernel, when it is dropped, on any thread.
///
/// Where the receiver [lends](super::Delivery::List), as it does by default, most packets are lists:
/// [`body`](Self::body) is `None`, [`pieces`](Self::pieces) gives them one by one, and
/// [`to_vec`](Self::to_vec) and [`copy_out`](Self::copy_out) join them. To keep one for long, copy it.
///
/// The head has the link and IP headers, adapted to the whole packet, and mostly
/// the transport header as well; the body is what follows. Where the one ends and
/// the other starts depends on how the packet came, so read headers by
/// [`part`](Self::part), which joins them.
pub struct Packet {
    pub(super) head: Head,
    pub(super) path: ReassemblyPath,
    pub(super) body_len: u32,
    pub(super) body: Body,
}

/// Where the bytes behind the head are.
pub(super) enum Body {
    /// In a page that is the user's.
    Page(Loaned),
    /// In memory of the process.
    Copy(Copied),
    /// Where the fragments lie.
    List(List),
}

/// A page that is the user's, until it is dropped.
pub(super) struct Loaned {
    /// Dropped first: anyone who is told finds it returned.
    delivered: Delivered,
    _told: NotifyOnDrop,
}

struct NotifyOnDrop(Arc<Returns>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.tell();
    }
}

impl Loaned {
    pub(super) const fn new(delivered: Delivered, returns: Arc<Returns>) -> Self {
        Self { delivered, _told: NotifyOnDrop(returns) }
    }
}

/// A copy, whose memory is used again.
pub(super) struct Copied {
    pub(super) bytes: Vec<u8>,
    pub(super) returns: Arc<Returns>,
}

impl Drop for Copied {
    fn drop(&mut self) {
        self.returns.copy(std::mem::take(&mut self.bytes));
    }
}

/// Memory that frames lie in, held as long as somebody reads it.
pub(super) trait Holder: Send + Sync {
    /// The bytes of a span, if it names bytes of what is held.
    fn bytes_of(&self, span: &Span) -> Option<&[u8]>;
}

/// The memory that the pieces of a packet lie in: nearly always that of one bunch of frames.
pub(super) enum Held {
    One(Arc<dyn Holder>),
    Several(Box<[Arc<dyn Holder>]>),
}

impl Held {
    fn bytes_of(&self, span: &Span) -> Option<&[u8]> {
        match self {
            Self::One(holder) => holder.bytes_of(span),
            Self::Several(holders) => holders.iter().find_map(|holder| holder.bytes_of(span)),
        }
    }
}

/// The pieces of a packet, in order. Dropped, it gives up what holds their memory, which goes
/// back to the kernel with the last packet that lies there.
pub(super) struct List {
    pub(super) spans: Box<[Span]>,
    pub(super) held: Held,
}

impl List {
    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.spans.iter().filter_map(|span| self.held.bytes_of(span))
    }
}

impl Packet {
    /// The first bytes: Ethernet header, IP header, and mostly the transport header.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// What follows the head, if it lies in one piece: always, unless it was lent as
    /// a list of its fragments.
    #[must_use]
    pub fn body(&self) -> Option<&[u8]> {
        match &self.body {
            Body::Page(page) => Some(&page.delivered),
            Body::Copy(copy) => Some(&copy.bytes),
            Body::List(_) => None,
        }
    }

    /// What follows the head, piece by piece.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let (one, list) = match &self.body {
            Body::List(list) => (None, Some(list)),
            _ => (self.body(), None),
        };
        one.into_iter().chain(list.into_iter().flat_map(List::pieces))
    }

    /// All bytes, head and body.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a packet has at least its head")]
    pub fn len(&self) -> usize {
        self.head.len() + self.body_len as usize
    }

    /// How it was joined.
    #[must_use]
    pub const fn path(&self) -> ReassemblyPath {
        self.path
    }

    /// Whether it was lent as a list of its fragments.
    #[must_use]
    pub const fn is_list(&self) -> bool {
        matches!(self.body, Body::List(_))
    }

    /// Some bytes of it, piece by piece: positions count from the start of the head.
    /// Cut where the packet ends.
    pub fn part(&self, range: Range<usize>) -> impl Iterator<Item = &[u8]> {
        let mut skip = range.start;
        let mut left = range.len();
        std::iter::once(self.head()).chain(self.pieces()).filter_map(move |piece| {
            if skip >= piece.len() {
                skip -= piece.len();
                return None;
            }
            let piece = &piece[skip..];
            skip = 0;
            let piece = &piece[..piece.len().min(left)];
            left -= piece.len();
            (!piece.is_empty()).then_some(piece)
        })
    }

    /// Copies some bytes of it out; gives how many there were.
    pub fn copy_out(&self, from: usize, into: &mut [u8]) -> usize {
        let mut done = 0;
        for piece in self.part(from..from.saturating_add(into.len())) {
            into[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
        }
        done
    }

    /// A copy of all bytes.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        bytes.extend_from_slice(&self.head);
        self.pieces().for_each(|piece| bytes.extend_from_slice(piece));
        bytes
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet")
            .field("head", &self.head)
            .field("body_len", &self.body_len)
            .field("way", &self.path)
            .field("is_list", &self.is_list())
            .finish_non_exhaustive()
    }
}

// Datagrams that the kernel cuts.

impl Sender {
    /// Puts a datagram in line for the kernel.
    pub(super) fn line_up_whole(
        &mut self,
        datagrams: &mut Datagrams,
        part: &Part,
    ) -> Result<(), Error> {
        let head = datagrams.next_unfinished(part.len())?;
        self.admit(&head, head.len() as u64 + u64::from(part.len()))?;
        self.whole.push((head, part.span));
        if self.whole.len() == MOST_OUTGOING { self.flush() } else { Ok(()) }
    }

    /// A datagram with an unfinished checksum, which others may cut: the kernel does, and finishes
    /// it. It has no headers but those of Ethernet, IP and UDP.
    pub(super) fn line_up_unfinished(&mut self, head: &[u8], part: &Part) -> Result<(), Error> {
        let mut head = Head::from_slice(head).ok_or(cut::CutError::BadHead)?;
        self.parts.cutter.let_cut(head.as_mut_slice())?;
        self.whole.push((head, part.span));
        if self.whole.len() == MOST_OUTGOING { self.flush() } else { Ok(()) }
    }

    /// Hands datagrams over; where the kernel does not cut them, they are cut here.
    pub(super) fn flush_whole(&mut self) -> Result<(), Error> {
        let whole = std::mem::take(&mut self.whole);
        let (clock, patience) = (self.clock, self.parts.patience);
        let leaving = WholeLeaving { sender: self, rest: &whole };
        drive_alone(&mut Handover::new(leaving, patience), clock, Wait::Block)?;
        // The memory of the list is used again.
        self.whole = whole;
        self.whole.clear();
        Ok(())
    }

    /// Finishes the checksums of datagrams and cuts them.
    fn cut_here(&mut self, whole: &[(Head, Span)]) -> Result<(), Error> {
        let mut sums = Pins::new(&self.parts.regions);
        for (head, payload) in whole {
            let mut head = *head;
            finish(&mut head, sums.sum(&[*payload])?);
            let body = Part { span: *payload, table: self.table() };
            self.line_up_admitted(&Outgoing { head: &head, body })?;
        }
        Ok(())
    }
}

/// Datagrams for the kernel to cut.
struct WholeLeaving<'a> {
    sender: &'a mut Sender,
    rest: &'a [(Head, Span)],
}

impl HandOver for WholeLeaving<'_> {
    fn hand_over(&mut self, now: Instant) -> Result<(usize, bool), Error> {
        let Self { sender, rest } = self;
        if rest.is_empty() {
            return Ok((0, true));
        }
        let Some(cutting) = &mut sender.parts.cutting else {
            sender.cut_here(rest)?;
            return Ok((rest.len(), true));
        };
        let mtu = sender.parts.mtu;
        let packets: Vec<_> = rest
            .iter()
            .map(|(head, payload)| {
                let is_ipv4 = is_ipv4(head);
                let (udp_at, piece) = (udp_at(is_ipv4), piece_of(is_ipv4, mtu));
                Long { head, payload: *payload, udp_at, piece }
            })
            .collect();
        match cutting.send(now, &packets) {
            Ok(sent) => {
                *rest = &rest[sent..];
                sender.stats.packets += sent as u64;
                sender.stats.cut_by_kernel += sent as u64;
                Ok((sent, rest.is_empty()))
            }
            Err(CutError::Broken(error)) => Err(error.into()),
            // It never will, on this interface.
            Err(CutError::Refused(_)) if sender.parts.cut_by == CutBy::Auto => {
                sender.parts.cutting = None;
                self.hand_over(now)
            }
            Err(error) => Err(Error::NotCut(error)),
        }
    }

    fn room(&self) -> (Interest, Option<Instant>) {
        let socket = &self.sender.parts.socket;
        self.sender.parts.cutting.as_ref().map_or_else(
            || (socket.interest(), socket.poll_timeout()),
            |cutting| (cutting.interest(), cutting.poll_timeout()),
        )
    }
}

fn is_ipv4(head: &[u8]) -> bool {
    head[12..14] == ethernet::IPV4.to_be_bytes()
}

/// The checksum of a datagram that has the sum of the pseudo-header in its place.
fn finish(head: &mut Head, payload: InternetSum) {
    let at = usize::from(udp_at(is_ipv4(head)));
    let mut sum = InternetSum::new();
    sum.add(&head[at..]);
    sum.append(payload);
    let checksum = udp::Header::sum_field(sum.checksum());
    let at = at + usize::from(udp::SUM_OFFSET);
    head.as_mut_slice()[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}
