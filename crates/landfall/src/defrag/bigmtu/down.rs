//! From the kernel to the link below: packets, cut where they are too long.

use std::ops::ControlFlow;
use std::sync::Arc;

use landfall_inet::{ethernet, ipv4, ipv6, protocol, udp, vlan};
use landfall_placement::{Instant, InternetSum, SumSlot};
use landfall_transport::driver::Interest;
use landfall_transport::memory::{Memory, Pins};
use landfall_transport::tap::{FrameReader, OFFLOAD_HEADER, unfinished_sum};

use super::super::datagram::udp_at;
use super::super::error::Error;
use super::super::registered::Registered;
use super::super::sender::{Outgoing, Sender};
use super::admission::{Admission, Verdict};
use super::control::ControlSocket;
use super::{Amount, InterfaceState, ReportTimer, mss, turn_of};
use crate::runtime::Source;

/// This many packets are read before they are sent.
const MOST_PACKETS: usize = 64;
/// This many bytes, if that is more than one packet: they shall still be in the cache
/// when the kernel reads them.
const MOST_BYTES: usize = 256 << 10;
/// The first bytes of a packet, which hold the headers that every piece repeats: as
/// many as fit in a head together with a fragment header.
const HEAD: usize = 176;
/// Packets start at cache lines.
const LINE: usize = 64;

/// Takes packets from the kernel, and sends them in frames of the link below.
#[derive(Debug)]
pub(super) struct Down {
    queue: u16,
    tap: FrameReader,
    sender: Sender,
    /// Bodies, one after another.
    memory: Registered,
    /// What the kernel says of each, and its first bytes.
    heads: Vec<[u8; OFFLOAD_HEADER + HEAD]>,
    /// What was read, and what was held before.
    frames: Vec<Frame>,
    /// How many of them were held before.
    held: usize,
    /// For checksums.
    sums: Pins,
    /// The longest frame.
    longest: usize,
    /// Connections are told to send packets of this length at most.
    announced: Option<u16>,
    asked: AdmissionParts,
    done: Done,
    told: ReportTimer,
    shared: Arc<InterfaceState>,
}

/// A packet that is to be sent. Its head is that of its number.
#[derive(Clone, Copy, Debug)]
struct Frame {
    /// Where the body starts.
    at: usize,
    /// The length of all.
    len: usize,
    /// Where its checksum is to be finished.
    sum: Option<SumSlot>,
    fate: Verdict,
}

/// Who is asked before much is sent, and who asks for that.
#[derive(Debug, Default)]
pub(super) struct AdmissionParts {
    pub(super) admission: Option<Admission>,
    pub(super) control: Option<ControlSocket>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Done {
    from_kernel: Amount,
    not_cut: u64,
    stuck: u64,
    announced: u64,
}

impl Frame {
    /// What the kernel says of one, in front of it.
    fn of(head: &[u8; OFFLOAD_HEADER + HEAD]) -> Self {
        let sum = head.first_chunk().and_then(unfinished_sum);
        Self { at: 0, len: 0, sum, fate: Verdict::NOW }
    }

    /// A datagram whose checksum is where the kernel looks for it when it cuts, and that is none of
    /// a packet's pieces.
    fn is_for_kernel_to_cut(&self, first: &[u8]) -> bool {
        let Some(SumSlot { start, offset }) = self.sum else { return false };
        let Ok((link, network)) = ethernet::read(first) else { return false };
        let protocol = match link.ethertype.get() {
            ethernet::IPV4 => ipv4::read(network)
                .ok()
                .filter(|(header, len)| !header.is_fragment() && *len == ipv4::LEN)
                .map(|(header, _)| (header.protocol, true)),
            ethernet::IPV6 => ipv6::read(network).ok().map(|header| (header.next_header, false)),
            _ => None,
        };
        protocol.is_some_and(|(protocol, is_ipv4)| {
            protocol == protocol::UDP && start == udp_at(is_ipv4) && offset == udp::SUM_OFFSET
        })
    }
}

/// Finishes the checksum of a packet whose first bytes these are, and whose others have this sum.
/// False: it is not among the first bytes.
fn finish(first: &mut [u8], SumSlot { start, offset }: SumSlot, rest: InternetSum) -> bool {
    let (start, offset) = (usize::from(start), usize::from(offset));
    let Some(segment) = first.get_mut(start..) else { return false };
    let mut sum = InternetSum::new();
    sum.add(segment);
    sum.append(rest);
    // What is there is the sum of the pseudo-header. Zero would mean none, for UDP (RFC 768).
    let sum = udp::Header::sum_field(sum.checksum());
    let Some(at) = segment.get_mut(offset..).and_then(<[u8]>::first_chunk_mut) else {
        return false;
    };
    *at = sum.to_be_bytes();
    true
}

impl Done {
    /// A packet that cannot be cut, or a link that takes nothing for a while, is no failure.
    fn note(&mut self, sent: Result<(), Error>) -> Result<(), Error> {
        match sent {
            Ok(()) => Ok(()),
            Err(Error::Cut(_) | Error::NotCut(_)) => {
                self.not_cut += 1;
                Ok(())
            }
            // As on a wire that is cut for a while.
            Err(Error::Stuck(_)) => {
                self.stuck += 1;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

impl Down {
    pub(super) fn new(
        queue: u16,
        tap: FrameReader,
        sender: Sender,
        announced: Option<u16>,
        asked: AdmissionParts,
        shared: &Arc<InterfaceState>,
    ) -> Result<Self, Error> {
        /// Also frames of a VLAN above this interface.
        const LINK_HEADER: usize = ethernet::LEN + vlan::LEN;
        let longest = (tap.mtu() as usize + LINK_HEADER).next_multiple_of(LINE);
        let memory = sender.register(Memory::zeroed(MOST_BYTES.max(longest)))?;
        let heads = vec![[0; OFFLOAD_HEADER + HEAD]; MOST_PACKETS];
        let frames = Vec::with_capacity(MOST_PACKETS);
        let (done, told, shared) = (Done::default(), ReportTimer::default(), Arc::clone(shared));
        let (held, sums) = (0, Pins::new(&sender.parts.regions));
        Ok(Self {
            queue,
            tap,
            held,
            sums,
            sender,
            memory,
            heads,
            frames,
            longest,
            announced,
            asked,
            done,
            told,
            shared,
        })
    }

    /// It is over, or a link broke.
    pub(super) fn finish(self, result: Option<Result<(), Error>>) {
        self.tell();
        let shared = Arc::clone(&self.shared);
        drop(self);
        shared.done(result.unwrap_or(Ok(())));
    }

    fn work(&mut self, now: Instant) -> Result<bool, Error> {
        if let Some(admission) = &mut self.asked.admission {
            admission.tend(now)?;
            if let Some(control) = &mut self.asked.control {
                control.turn(now, admission);
            }
        }
        self.frames.clear();
        let at = self.take_held(now)?;
        self.held = self.frames.len();
        self.read(at)?;
        self.prepare(now)?;
        let moved = !self.frames.is_empty();
        if moved {
            self.send(false)?;
            self.send_low()?;
            if let Some(admission) = &mut self.asked.admission {
                // What was sent may be a reason to ask.
                admission.tend(now)?;
            }
        }
        if self.told.is_due(now) {
            self.tell();
        }
        Ok(moved)
    }

    /// Takes packets whose time has come, with finished checksums. Returns where there is room
    /// behind them.
    fn take_held(&mut self, now: Instant) -> Result<usize, Error> {
        let Some(admission) = &mut self.asked.admission else { return Ok(0) };
        let mut at = 0;
        // One of them is read, whatever waits.
        for head in &mut self.heads[..MOST_PACKETS / 2] {
            if at as u64 + 2 * self.longest as u64 > self.memory.len() {
                break;
            }
            let Some((packet, gives_way)) = admission.release(now) else { break };
            let (first, body) = packet.split_at(packet.len().min(HEAD));
            head[OFFLOAD_HEADER..][..first.len()].copy_from_slice(first);
            self.memory.write(at as u64, body)?;
            let fate = Verdict::Sent { gives_way };
            self.frames.push(Frame { at, len: packet.len(), sum: None, fate });
            at += body.len().next_multiple_of(LINE);
        }
        Ok(at)
    }

    /// Reads what is there, as far as there is room.
    fn read(&mut self, mut at: usize) -> Result<(), Error> {
        for head in &mut self.heads[self.frames.len()..] {
            if at as u64 + self.longest as u64 > self.memory.len() {
                break;
            }
            let place = self.memory.part(at as u64, self.longest as u32)?.span;
            let Some(len) = self.tap.read(head, &place)? else { break };
            // Something of this length stands in front of each.
            let len = len.saturating_sub(OFFLOAD_HEADER);
            self.done.from_kernel.add(len);
            let frame = Frame { at, len, ..Frame::of(head) };
            let first = &mut head[OFFLOAD_HEADER..][..HEAD.min(len)];
            if let Some(mtu) = self.announced {
                let is_finished = frame.sum.is_none();
                self.done.announced += u64::from(mss::lower(first, mtu, is_finished));
            }
            self.frames.push(frame);
            at += len.saturating_sub(HEAD).next_multiple_of(LINE);
        }
        Ok(())
    }

    /// Finishes checksums that nobody else does, and asks whether long packets may be sent now.
    fn prepare(&mut self, now: Instant) -> Result<(), Error> {
        let most = ethernet::LEN + usize::from(self.sender.mtu());
        for (head, frame) in self.heads.iter_mut().zip(&mut self.frames).skip(self.held) {
            let first = &mut head[OFFLOAD_HEADER..][..HEAD.min(frame.len)];
            let body = self.memory.part(frame.at as u64, frame.len.saturating_sub(HEAD) as u32)?;
            if frame.len > most
                && let (Some(admission), Some(to)) =
                    (&mut self.asked.admission, first.first_chunk())
            {
                frame.fate = admission.admit(now, *to, frame.len);
            }
            let is_left = frame.len > most && frame.is_for_kernel_to_cut(first);
            if let (Some(sum), false) = (frame.sum, is_left && frame.fate == Verdict::NOW) {
                let rest = self.sums.sum(&[body.span])?;
                self.sums.release();
                frame.sum = None;
                if !finish(first, sum, rest) {
                    self.done.not_cut += 1;
                    frame.fate = Verdict::Refused;
                }
            }
            if let (Verdict::Held, Some(admission), Some(to)) =
                (frame.fate, &mut self.asked.admission, first.first_chunk().copied())
            {
                let mut packet = first.to_vec();
                packet.resize(frame.len, 0);
                self.memory.read(&body, &mut packet[first.len()..])?;
                admission.hold(now, to, packet);
            }
        }
        Ok(())
    }

    /// Those that give way to others, behind those that do not.
    fn send_low(&mut self) -> Result<(), Error> {
        let gives_way = |frame: &Frame| frame.fate == Verdict::Sent { gives_way: true };
        if !self.frames.iter().any(gives_way) {
            return Ok(());
        }
        self.sender.parts.socket.give_way(true)?;
        let sent = self.send(true);
        self.sender.parts.socket.give_way(false)?;
        sent
    }

    /// Sends those of one kind, in their order.
    fn send(&mut self, gives_way: bool) -> Result<(), Error> {
        for (head, frame) in self.heads.iter().zip(&self.frames) {
            if frame.fate != (Verdict::Sent { gives_way }) {
                continue;
            }
            let head = &head[OFFLOAD_HEADER..][..HEAD.min(frame.len)];
            let body = self.memory.part(frame.at as u64, frame.len.saturating_sub(HEAD) as u32)?;
            let lined_up = match frame.sum {
                Some(_) => self.sender.line_up_unfinished(head, &body),
                None => self.sender.line_up(&Outgoing { head, body }),
            };
            self.done.note(lined_up)?;
        }
        let flushed = self.sender.flush_all();
        self.done.note(flushed)
    }

    fn tell(&self) {
        let cut = self.sender.stats();
        let Done { from_kernel, not_cut, stuck, announced } = self.done;
        let admission = self.asked.admission.as_ref().map(Admission::stats).unwrap_or_default();
        self.shared.tell(self.queue, |stats| {
            stats.admission = admission;
            stats.cut = cut;
            stats.from_kernel = from_kernel;
            stats.not_cut = not_cut;
            stats.stuck = stuck;
            stats.announced = announced;
        });
    }
}

impl Source for Down {
    type Output = Result<(), Error>;

    fn turn(&mut self, now: Instant) -> ControlFlow<Self::Output, bool> {
        turn_of(self.shared.is_over(), || self.work(now))
    }

    fn interests(&self, into: &mut Vec<Interest>) {
        into.push(self.tap.interest());
        into.extend(self.asked.admission.as_ref().map(Admission::interest));
        if let Some(control) = &self.asked.control {
            control.interests(into);
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let now = self.sender.clock.now();
        let admission = self.asked.admission.as_ref().and_then(|asked| asked.next_wake(now));
        let is_asked = self.asked.control.as_ref().is_some_and(ControlSocket::is_in_use);
        let answers = is_asked.then(|| now + Admission::LOOK);
        [Some(self.told.next()), admission, answers].into_iter().flatten().min()
    }
}
