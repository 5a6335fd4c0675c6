//! [`UringUdpDriver`]: a UDP socket behind a ring.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

use landfall_placement::{Engine, Instant, PathId, Peer};
use socket2::Socket;

use super::flight::{Ready, Sender, Wire};
use super::halves::Halves;
use super::ring::Ring;
use crate::capability::{Capabilities, Feature};
use crate::driver::{Descriptors, Driver, DriverState, Interests, Progress};
use crate::exchange::{Gathered, RunLimits};
use crate::inet::{SendFault, nothing_came};
use crate::memory::Regions;
use crate::udp;
use crate::udp::{ReceiveHeader, Receiver, SendHeader, Sending, UdpConfig};

/// How a UDP path on a ring is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UringUdpConfig {
    /// The socket, as for the plain driver.
    pub udp: UdpConfig,
    /// When payload is sent without a copy in the kernel.
    pub zero_copy: ZeroCopy,
    /// With [`ZeroCopy::Auto`], what is shorter is copied: below some 10 KiB
    /// the bookkeeping costs more than the copy.
    pub zero_copy_from: usize,
}

impl UringUdpConfig {
    /// A path for an interface with this MTU.
    #[must_use]
    pub const fn new(bind: SocketAddr, mtu: u32) -> Self {
        Self {
            udp: UdpConfig::new(bind, mtu),
            zero_copy: ZeroCopy::Auto,
            zero_copy_from: 16 * 1024,
        }
    }
}

/// Runs any engine over a UDP socket, entering the kernel once for a receive
/// and all that waits to be sent, and sending without a copy where that helps.
///
/// Where the kernel had no room, and where a send cannot go without a copy, the
/// units concerned leave after those that were queued behind them.
///
/// A dropped driver waits, up to a second, until the kernel reads none of the
/// memory that was sent without a copy. If it still does then (a packet may
/// wait for its neighbour's address for longer), the pins are never released:
/// the regions concerned cannot be taken back any more.
#[derive(Debug)]
pub struct UringUdpDriver {
    state: DriverState,
    local: SocketAddr,
    halves: Halves<Receiver, ReceiveHeader, UdpWire>,
}

impl UringUdpDriver {
    /// Opens a socket and a ring, and reads and writes the regions of this table.
    ///
    /// # Errors
    /// The address cannot be bound; or there is no `io_uring` here
    /// ([`Unavailable`](super::Unavailable) inside says why); or
    /// [`ZeroCopy::Always`] is asked of a kernel that cannot do it.
    pub fn open(path: PathId, config: UringUdpConfig, regions: &Regions) -> io::Result<Self> {
        let ring = Ring::open()?;
        let (socket, mut capabilities) = udp::open(&config.udp, "uring-udp", udp::Sharing::Alone)?;
        let zero_copy = zero_copy_policy(&config, &ring, &mut capabilities)?;
        let limits = config.udp.limits(&socket)?;
        let batch_receive = capabilities.has(Feature::BatchedReceive);
        let local = udp::bound_to(&socket)?;
        let wire = UdpWire {
            socket,
            ipv6: config.udp.bind.is_ipv6(),
            batch_send: capabilities.has(Feature::BatchedSend),
            refusal: None,
        };
        let receiver = Receiver::new(path, regions, batch_receive, config.udp.peek);
        let sender = Sender::new(wire, path, limits, regions, zero_copy);
        Ok(Self {
            state: DriverState::new(path, limits, capabilities, regions),
            local,
            halves: Halves::new(ring, receiver, ReceiveHeader::new(), sender),
        })
    }

    /// Where peers reach this path.
    #[must_use]
    pub const fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// What became of sends that were to go without a copy.
    #[must_use]
    pub fn zero_copy_use(&self) -> ZeroCopyUse {
        self.halves.sender().zero_copy.seen()
    }

    /// Receives one batch; sends what waited with the same entry into the kernel.
    fn exchange<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<u32> {
        let counters = &mut self.state.counters;
        self.halves.sender_mut().fill(engine, now, counters);
        let fd = self.halves.sender().wire.socket.as_raw_fd();
        let peeked =
            self.halves.receiver().look(engine, now, counters, |head| udp::peek(fd, head))?;
        let prepare = |receiver: &mut Receiver, header: &mut ReceiveHeader| {
            [header.prepare(receiver.post(engine, peeked.as_deref()))].into_iter().collect()
        };
        // SAFETY: the receiver posts scratch memory of its own and lent memory
        // that it has pinned until `settle`.
        let (outcomes, header, receiver) =
            unsafe { self.halves.exchange(counters, prepare, true)? };
        let message = match outcomes.into_iter().next() {
            Some(Ok(len)) => Some(header.message(len)),
            Some(Err(error)) if !nothing_came(&error) => return Err(error),
            _ => None,
        };
        Ok(receiver.settle(engine, now, counters, (message, peeked)))
    }

    /// Keeps the list of capabilities true.
    fn note_losses(&mut self) {
        if let Some(error) = self.halves.sender_mut().wire.refusal.take() {
            udp::lack_batched_send(&mut self.state.capabilities, &error);
        }
    }
}

/// Finds out whether sending without a copy is wanted and possible.
fn zero_copy_policy(
    config: &UringUdpConfig,
    ring: &Ring,
    found: &mut Capabilities,
) -> io::Result<Policy> {
    let mut mode = config.zero_copy;
    if mode == ZeroCopy::Never {
        found.lack(Feature::ZeroCopySend, "switched off by the configuration");
    } else if ring.can_send_without_copy() {
        found.add(Feature::ZeroCopySend);
    } else {
        found
            .lack(Feature::ZeroCopySend, "the kernel has no SENDMSG_ZC; Linux 6.1 or later has it");
        if mode == ZeroCopy::Always {
            found.require(Feature::ZeroCopySend).map_err(io::Error::other)?;
        }
        mode = ZeroCopy::Never;
    }
    Ok(Policy::new(mode, config.zero_copy_from))
}

impl Driver for UringUdpDriver {
    fn state(&self) -> &DriverState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut DriverState {
        &mut self.state
    }

    fn turn<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<Progress> {
        self.halves.check()?;
        self.halves.sender_mut().start_turn();
        let received = self.exchange(engine, now)?;
        let deposits = self.state.settle(engine, now);
        self.halves.send(engine, now, &mut self.state.counters)?;
        self.note_losses();
        Ok(Progress { received: received + deposits, sent: self.halves.sender().sent() })
    }

    fn is_blocked(&self) -> bool {
        self.halves.sender().is_blocked()
    }

    fn interests(&self) -> Interests {
        self.halves.interests(self.is_blocked())
    }

    fn descriptors(&self) -> Descriptors<'_> {
        self.halves.descriptors()
    }
}

/// A UDP socket, as the sending half sees it.
#[derive(Debug)]
struct UdpWire {
    socket: Socket,
    /// IPv4 peers have IPv6 addresses on this socket.
    ipv6: bool,
    batch_send: bool,
    /// Why batches are no longer sent, if that was not told yet.
    refusal: Option<io::Error>,
}

// SAFETY: `prepare` gives the header that it filled in, which names memory of its own and
// the pieces that it was given.
unsafe impl Wire for UdpWire {
    type Header = SendHeader;

    fn header() -> SendHeader {
        SendHeader::new()
    }

    fn socket(&self) -> &Socket {
        &self.socket
    }

    fn limits(&self) -> RunLimits {
        udp::run_limits(self.batch_send)
    }

    fn prepare(&mut self, header: &mut SendHeader, units: Gathered<'_>) -> Option<Ready> {
        let Peer::Socket(to) = units.first.to else { return None };
        let unit_len = u16::try_from(units.first.len).ok().filter(|_| units.count > 1);
        let sending = Sending { to: Some(to), unit_len, ecn: units.first.ecn, ipv6: self.ipv6 };
        let message = header.prepare(units.pieces, &sending);
        Some(Ready { by: self.socket.as_raw_fd(), message })
    }

    fn fault(&mut self, error: io::Error, units: usize, _by: RawFd) -> io::Result<SendFault> {
        let Some(fault) = SendFault::of(&error, units) else { return Err(error) };
        if fault == SendFault::CannotSegment {
            self.batch_send = false;
            self.refusal = Some(error);
        }
        Ok(fault)
    }
}

// Whether sending without a copy is worth trying.

/// When payload is sent without a copy in the kernel.
///
/// The kernel then reads the payload while the device sends it, and says when
/// it is through; setting that up costs more than copying a short payload. It
/// cannot scatter one packet over more than 17 pieces of memory, so long
/// batches of short units are always copied. Loopback and veth copy in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopy {
    /// The kernel copies what is sent.
    Never,
    /// Where it is long enough, and as long as the kernel does not report that
    /// it copied after all.
    #[default]
    Auto,
    /// Wherever the kernel can, however short, and whatever it reports.
    Always,
}

/// What became of sends that were to go without a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZeroCopyUse {
    /// Sends whose payload the device took from where it lies.
    pub uncopied: u64,
    /// Sends whose payload the kernel copied after all, as it reported.
    pub copied: u64,
    /// Sends that the kernel would not do without a copy.
    pub refused: u64,
}

/// The most pieces of memory in one packet of the kernel (`MAX_SKB_FRAGS`).
const MAX_PIECES: usize = 17;
/// This many disappointments in a row are no accident.
const DISAPPOINTMENTS: u32 = 8;
/// Then copy this many sends before the next attempt: routes change.
const REST: u32 = 1 << 16;

/// Learns from what the kernel reports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    mode: ZeroCopy,
    /// A shorter send is copied.
    from: usize,
    disappointments: u32,
    /// Sends to copy before the next attempt.
    rest: u32,
    seen: ZeroCopyUse,
}

impl Policy {
    pub(super) const fn new(mode: ZeroCopy, from: usize) -> Self {
        Self {
            mode,
            from,
            disappointments: 0,
            rest: 0,
            seen: ZeroCopyUse { uncopied: 0, copied: 0, refused: 0 },
        }
    }

    /// May anything be sent without a copy?
    pub(super) const fn is_on(&self) -> bool {
        !matches!(self.mode, ZeroCopy::Never)
    }

    pub(super) const fn seen(&self) -> ZeroCopyUse {
        self.seen
    }

    /// Shall a send of this many bytes in this many pieces go without a copy?
    pub(super) fn wants(&mut self, bytes: usize, pieces: usize) -> bool {
        let able = pieces <= MAX_PIECES;
        match self.mode {
            ZeroCopy::Never => false,
            ZeroCopy::Always => able,
            ZeroCopy::Auto if !able || bytes < self.from => false,
            ZeroCopy::Auto if self.rest > 0 => {
                self.rest -= 1;
                false
            }
            ZeroCopy::Auto => true,
        }
    }

    /// The kernel would not do it.
    pub(super) fn refused(&mut self) {
        self.seen.refused += 1;
        self.disappoint();
    }

    /// The kernel reports what it did.
    pub(super) fn reported(&mut self, copied: bool) {
        if copied {
            self.seen.copied += 1;
            self.disappoint();
        } else {
            self.seen.uncopied += 1;
            self.disappointments = 0;
        }
    }

    fn disappoint(&mut self) {
        self.disappointments += 1;
        if self.disappointments >= DISAPPOINTMENTS {
            self.disappointments = 0;
            self.rest = REST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: usize = 60_000;

    #[test]
    fn auto_gives_up_where_the_kernel_copies_and_tries_again_later() {
        let mut policy = Policy::new(ZeroCopy::Auto, 16_384);
        for _ in 0..DISAPPOINTMENTS {
            assert!(policy.wants(LONG, 2));
            policy.reported(true);
        }
        for _ in 0..REST {
            assert!(!policy.wants(LONG, 2));
        }
        assert!(policy.wants(LONG, 2), "the route may be another by now");
        assert_eq!(policy.seen().copied, u64::from(DISAPPOINTMENTS));
    }

    #[test]
    fn one_success_makes_up_for_some_disappointments() {
        let mut policy = Policy::new(ZeroCopy::Auto, 16_384);
        for _ in 0..100 {
            policy.refused();
            policy.reported(false);
            assert!(policy.wants(LONG, 2));
        }
        let seen = ZeroCopyUse { uncopied: 100, copied: 0, refused: 100 };
        assert_eq!(policy.seen(), seen);
    }

    #[test]
    fn what_no_packet_can_hold_is_never_tried() {
        for mode in [ZeroCopy::Always, ZeroCopy::Auto] {
            assert!(Policy::new(mode, 0).wants(LONG, MAX_PIECES));
            assert!(!Policy::new(mode, 0).wants(LONG, MAX_PIECES + 1));
        }
        assert!(!Policy::new(ZeroCopy::Auto, 16_384).wants(16_383, 2));
        assert!(Policy::new(ZeroCopy::Always, 16_384).wants(1, 2));
        assert!(!Policy::new(ZeroCopy::Never, 0).wants(LONG, 2));
        let mut always = Policy::new(ZeroCopy::Always, 0);
        (0..100).for_each(|_| always.reported(true));
        assert!(always.wants(1, 1));
    }
}
