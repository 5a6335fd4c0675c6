//! [`XdpQueue`]: frames as they lie in the memory of the rings.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use landfall_inet::vlan;
use landfall_placement::{Instant, RegionId, Span};
use socket2::Socket;

use super::driver::{kick, parts_of_next, reclaim, wake_receiver};
use super::frames::Frames;
use super::ring::{Reader, Writer};
use super::socket::{Link, Opened, Redirection, Rings};
use super::{ETHERNET_HEADER, Framing, XdpConfig, socket};
use crate::OpenError;
use crate::capability::Capabilities;
use crate::driver::{Counters, Interest};
use crate::exchange::MAX_UNITS;
use crate::memory::{Mapping, Pins, Regions, Rights};
use crate::packet::Room;
use crate::ring::Frame;
use crate::scatter::Outgoing;

/// Frames of an interface, received without a system call and named by where
/// they lie; and frames that are sent, many with one call.
///
/// The memory for frames that come is lent as a region that may only be read. A
/// [`Burst`] of them is this process's until it is dropped.
pub struct XdpQueue {
    /// It ends before all others.
    _redirection: Arc<Redirection>,
    socket: Socket,
    shared: Arc<FrameMemory>,
    receive: Reader<libc::xdp_desc>,
    send: Writer<libc::xdp_desc>,
    completion: Reader<u64>,
    frames: Frames,
    framing: Framing,
    station: [u8; 6],
    mtu: u32,
    capabilities: Capabilities,
    counters: Counters,
    pins: Pins,
    room: Room,
}

/// What a queue and its bursts have in common.
struct FrameMemory {
    mapping: Arc<Mapping>,
    regions: Regions,
    region: RegionId,
    chunk: u32,
    /// Of how many frames bursts are held.
    held: AtomicUsize,
    /// Through which frames go back to the kernel. It ends with the queue, since
    /// it keeps the socket open.
    fill: Mutex<Option<Writer<u64>>>,
}

impl FrameMemory {
    /// A thread that panicked under the lock left nothing half done.
    fn fill(&self) -> MutexGuard<'_, Option<Writer<u64>>> {
        self.fill.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns frames that nobody reads any more back to the kernel.
    fn give_back(&self, addresses: impl Iterator<Item = u64>) {
        let mut fill = self.fill();
        let Some(fill) = fill.as_mut() else { return };
        for address in addresses {
            // There is room for twice as many as there are.
            if fill.has_room(1) {
                fill.write(address - address % u64::from(self.chunk));
            }
        }
        fill.show();
    }
}

impl Drop for FrameMemory {
    fn drop(&mut self) {
        // Who still has the region pinned keeps the memory mapped, which is all
        // that it needs; the grant ends in any case.
        let _ = self.regions.take_back_shared(self.region, Duration::ZERO);
    }
}

impl XdpQueue {
    /// Opens a socket on an interface of the network namespace that the
    /// calling thread is in, where it stays, and lets a program redirect frames
    /// to it, with their Ethernet headers whatever the framing. What it sends it
    /// reads from these regions, and it lends its own memory there.
    ///
    /// # Errors
    /// [`OpenError`] says what is missing and what would help.
    pub fn open(config: &XdpConfig, regions: &Regions) -> Result<Self, OpenError> {
        Self::with(config, regions, socket::open(config, false)?)
    }

    /// Opens one for each queue of the interface, from the configured one on. A device that sorts
    /// by addresses, as devices sort fragments, sends all those of a packet to one of them. These
    /// tables take turns to be what a queue sends from and lends its memory in.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_all(config: &XdpConfig, regions: &[Regions]) -> Result<Vec<Self>, OpenError> {
        let queues = socket::open_all_queues(config)?.into_iter().zip(regions.iter().cycle());
        queues.map(|(opened, regions)| Self::with(config, regions, opened)).collect()
    }

    fn with(
        config: &XdpConfig,
        regions: &Regions,
        (opened, link): (Opened, Link),
    ) -> Result<Self, OpenError> {
        let Opened { redirection, socket, rings, frames } = opened;
        let Rings { fill, completion, receive, send } = rings;
        let mapping = Arc::clone(frames.mapping());
        let owner = Arc::clone(&mapping);
        let len = frames.received_len();
        // SAFETY: a mapping starts on a page, and the slot keeps it. Without the
        // right to write nobody but the kernel does, in frames that it was
        // given; references are made to bytes of other frames only. The part
        // for frames that leave is not lent.
        let lent = unsafe { regions.lend_mapped(mapping.base(), len, Rights::READ, owner) };
        let region = lent.map_err(|why| OpenError::System {
            what: "lend the memory of the frames",
            source: io::Error::other(why),
        })?;
        let (regions, fill, chunk) = (regions.clone(), Mutex::new(Some(fill)), frames.chunk());
        let held = AtomicUsize::new(0);
        Ok(Self {
            _redirection: redirection,
            socket,
            pins: Pins::new(&regions),
            shared: Arc::new(FrameMemory { mapping, regions, region, chunk, held, fill }),
            receive,
            send,
            completion,
            frames,
            framing: config.framing,
            station: config.framing.station(link.interface.station),
            mtu: link.interface.mtu,
            capabilities: link.capabilities,
            counters: Counters::default(),
            room: Room::Enough,
        })
    }

    /// The frames that came, up to a batch of them. Never waits.
    ///
    /// # Errors
    /// The rings are in disorder, or the interface was removed.
    pub fn receive(&mut self) -> io::Result<Option<Burst>> {
        let (mut list, mut refused) = (Vec::new(), Vec::new());
        let mut looked_at = 0;
        while looked_at < MAX_UNITS {
            let Some(parts) = parts_of_next(&mut self.receive) else { break };
            let Some(first) = self.receive.peek(0) else { break };
            looked_at += 1;
            if parts == 1 && self.is_ours(first.addr, first.len)? {
                let tags = self.take_tags_away(first.addr, first.len);
                list.push((first.addr + u64::from(tags), first.len - tags));
            } else {
                self.counters.malformed += 1;
                let all = (0..parts).filter_map(|nth| self.receive.peek(nth));
                refused.extend(all.map(|part| part.addr));
            }
            self.receive.take(parts);
        }
        if looked_at == 0 {
            self.counters.empty_calls += 1;
        } else {
            // In this order: the kernel finds room for each frame that it fills.
            self.receive.give_back();
            self.shared.give_back(refused.into_iter());
        }
        if self.shared.fill().as_ref().is_some_and(Writer::needs_wakeup) {
            // A device that receives into the rings' memory had run out of it.
            wake_receiver(self.socket.as_raw_fd())?;
        }
        if list.is_empty() {
            return Ok(None);
        }
        self.counters.receive_calls += 1;
        self.counters.units_received += list.len() as u64;
        self.shared.held.fetch_add(list.len(), Ordering::Relaxed);
        Ok(Some(Burst { shared: Arc::clone(&self.shared), list }))
    }

    /// Is this frame, which was handed over, one for the queue?
    fn is_ours(&self, address: u64, len: u32) -> io::Result<bool> {
        let within = address < self.frames.received_len() as u64;
        // SAFETY: the kernel has handed it over, and gets it back later.
        let bytes = within.then(|| unsafe { self.frames.received(address, len) });
        let Some(bytes) = bytes.flatten() else {
            return Err(io::Error::other("a ring names no frame"));
        };
        let header: Option<&[u8; ETHERNET_HEADER]> = bytes.first_chunk();
        let is_of_vlan = self.framing.vlans().is_none_or(|vlans| vlan::ids(bytes) == vlans);
        Ok(is_of_vlan && header.is_some_and(|header| self.framing.takes(header, self.station)))
    }

    /// Takes the tags of a frame that is ours away, where it has some. Returns how many bytes later
    /// it begins.
    fn take_tags_away(&mut self, address: u64, len: u32) -> u32 {
        let Some(vlans) = self.framing.vlans() else { return 0 };
        let tags = vlans.iter().filter(|id| **id != 0).count() as u32;
        let mut at = 0;
        for _ in 0..tags {
            // SAFETY: the kernel has handed it over and gets it back later; no burst names it yet.
            let bytes = unsafe { self.frames.writable(address + u64::from(at), len - at) };
            if bytes.is_some_and(vlan::take_tag_away) {
                at += vlan::LEN as u32;
            }
        }
        at
    }

    /// Sends frames in their order, as many as there is room for. Returns how
    /// many are out of the caller's hands; the rest is to be given again after
    /// [`poll_timeout`](Self::poll_timeout).
    ///
    /// A frame that is too long or too short, or whose memory is gone, counts as
    /// lost on the way.
    ///
    /// # Errors
    /// The socket is broken for good, as when its interface was removed.
    pub fn send(&mut self, now: Instant, outgoing: &[Outgoing<'_>]) -> io::Result<usize> {
        if self.room.is_early(now) {
            return Ok(0);
        }
        reclaim(&mut self.completion, &mut self.frames);
        let mut done = 0;
        for frame in outgoing {
            if !self.frames.has(1) || !self.send.has_room(1) {
                // Perhaps some leave while this is written.
                self.send.show();
                kick(&self.socket, &mut self.send, &mut self.counters)?;
                reclaim(&mut self.completion, &mut self.frames);
                if !self.frames.has(1) || !self.send.has_room(1) {
                    break;
                }
            }
            match self.list(frame) {
                Some(copied) => {
                    self.counters.units_sent += 1;
                    self.counters.bytes_copied += copied as u64;
                }
                None => self.counters.send_failed += 1,
            }
            done += 1;
        }
        self.pins.release();
        self.send.show();
        kick(&self.socket, &mut self.send, &mut self.counters)?;
        reclaim(&mut self.completion, &mut self.frames);
        let is_stuck = done < outgoing.len() || self.send.waiting() > 0;
        self.counters.send_blocked += u64::from(is_stuck);
        // Nobody is told when the device has room again.
        self.room = if is_stuck { self.room.after_full_queue(now) } else { Room::Enough };
        Ok(done)
    }

    /// Copies a frame into a chunk and lists it. None if it cannot be sent.
    fn list(&mut self, frame: &Outgoing<'_>) -> Option<usize> {
        let len = frame.head.len().checked_add(frame.payload.len as usize)?;
        let fits = len >= ETHERNET_HEADER && len <= self.frames.chunk() as usize;
        let chunk = fits.then(|| self.frames.take())??;
        // SAFETY: it was just taken.
        let into = unsafe { self.frames.writable(chunk, len as u32) };
        let written = into.is_some_and(|into| {
            let (head, rest) = into.split_at_mut(frame.head.len());
            head.copy_from_slice(frame.head);
            rest.is_empty() || self.pins.copy_out(&frame.payload, rest).is_ok()
        });
        if !written {
            self.frames.give_back(chunk);
            return None;
        }
        self.send.write(libc::xdp_desc { addr: chunk, len: len as u32, options: 0 });
        Some(len)
    }

    /// What to wait for when nothing came.
    #[must_use]
    pub fn interest(&self) -> Interest {
        Interest { fd: self.socket.as_raw_fd(), readable: true, writable: false }
    }

    /// When to try to send again, also what was sent and has not left yet.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.room.until()
    }

    /// The region that frames that came lie in. It may be read only, and ends
    /// with the queue and the last of its bursts.
    #[must_use]
    pub fn region(&self) -> RegionId {
        self.shared.region
    }

    /// How many bytes of memory there are for frames that come.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.frames.received_len() as u64
    }

    /// How many of them hold frames of bursts, which the kernel cannot use until those are dropped.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.shared.held.load(Ordering::Relaxed) as u64 * u64::from(self.shared.chunk)
    }

    /// The station that frames are for.
    #[must_use]
    pub const fn station(&self) -> [u8; 6] {
        self.station
    }

    /// The MTU of the interface when the queue was opened. A frame that does not
    /// fit a chunk of 4096 bytes, with 256 of them kept free, does not come.
    #[must_use]
    pub const fn mtu(&self) -> u32 {
        self.mtu
    }

    /// What works here, and what not.
    #[must_use]
    pub const fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// What the queue did.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Drop for XdpQueue {
    fn drop(&mut self) {
        *self.shared.fill() = None;
    }
}

impl fmt::Debug for XdpQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XdpQueue")
            .field("region", &self.region())
            .field("framing", &self.framing)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// Frames that came together. Their memory goes back to the queue when this is
/// dropped, in any order and on any thread.
pub struct Burst {
    shared: Arc<FrameMemory>,
    /// Where each lies in the memory of the frames, and its length.
    list: Vec<(u64, u32)>,
}

impl Burst {
    /// The frames, in the order in which they came. Nobody knows anything of
    /// their transport checksums.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = Frame<'_>> {
        self.list.iter().map(|frame| {
            let (address, len) = *frame;
            let span = self.shared.region.span(address, len);
            Frame { bytes: self.bytes(frame), span, verified: false }
        })
    }

    /// The bytes that a span of the queue's region names; `None` if they are not all
    /// of one of these frames.
    #[must_use]
    pub fn bytes_of(&self, span: &Span) -> Option<&[u8]> {
        let end = span.end()?;
        let holds = |(address, len): &&(u64, u32)| {
            *address <= span.offset && end <= address + u64::from(*len)
        };
        let frame = self.list.iter().find(holds).filter(|_| span.region == self.shared.region)?;
        let start = (span.offset - frame.0) as usize;
        self.bytes(frame).get(start..start + span.len as usize)
    }

    /// The bytes of a frame of the list.
    fn bytes(&self, (address, len): &(u64, u32)) -> &[u8] {
        // SAFETY: the queue has checked that the frame is within the mapping,
        // which is initialised. The kernel has handed it over, and gets it
        // back after this was dropped; nobody else may write there.
        unsafe {
            let start = self.shared.mapping.base().add(*address as usize);
            std::slice::from_raw_parts(start.as_ptr(), *len as usize)
        }
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        self.shared.held.fetch_sub(self.list.len(), Ordering::Relaxed);
        self.shared.give_back(self.list.iter().map(|(address, _)| *address));
    }
}

impl fmt::Debug for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Burst").field("frames", &self.list.len()).finish_non_exhaustive()
    }
}
