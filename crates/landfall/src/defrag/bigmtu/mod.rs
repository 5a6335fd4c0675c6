//! An interface with an MTU of 4 to 64 KiB above a link that carries 1500 bytes.
//!
//! A [`BigMtu`] makes a TAP interface. The kernel's own protocols use it like any
//! other, unmodified. What fits into a frame of the lower link the kernel passes between
//! the two interfaces by itself ([`Redirect`](landfall_transport::redirect::Redirect)),
//! super-packets of TCP as they are: by default ([`TcpMode::Segments`]) TCP announces what
//! fits. What does not fit is cut into IP fragments, below IP, and the pieces are joined at
//! the other end by a [`Receiver`](super::Receiver) that posts the places where they
//! belong. The kernel gets the whole packet with one call, from the page in which it was
//! joined. Long datagrams of UDP are cut by the kernel, which finishes their checksums.
//! With [`TcpMode::Fragments`] TCP sends segments of up to 64 KiB, which are cut, too.
//!
//! | other end | what happens |
//! | --- | --- |
//! | the same | whole packets both ways, mostly joined without a copy in user space |
//! | a kernel alone | its IP joins our pieces; the pieces that it cuts are joined here |
//!
//! It works on frames, as a bridge does: ARP and neighbour discovery pass, addresses
//! and routes belong to the new interface. That has the station address of the lower
//! one, so that the lower link needs no promiscuous mode.
//!
//! # The lower link is taken over
//!
//! The kernel's protocols would see what arrives there as well: they would answer
//! ARP, take each packet that fits a second time, since an address is local on every
//! interface, and join the same fragments. So all that arrives is dropped at the
//! ingress of the lower link (nftables, family `netdev`, priority -500), behind the
//! place where packet sockets hear it. The rule has a table of its own, which goes
//! when the interface does; after `kill -9` the next start replaces it, or
//! `nft delete table netdev landfall_bigmtu_NAME` takes it away. An address on the
//! lower link would be out of reach, so it must have none.
//!
//! # What to know
//!
//! - Pieces that are lost cost the whole packet: TCP sends it anew. A packet that does
//!   not become whole within [`lifetime`](BigMtuBuilder::lifetime) is given up. That is
//!   short: an IPv4 sender has 65,536 identifications, which at these rates come again
//!   in less than a second, and must not find old pieces (RFC 4963).
//! - Pieces keep the flag "don't fragment", as the packet had it: no router cuts them
//!   further, and a packet that comes out is the one that went in. Those that the kernel
//!   makes of datagrams lose it.
//! - A short packet passes a long one that was sent before it, where the kernel passes it.
//! - A virtual lower link hands over TCP super-packets with unfinished checksums
//!   where a kernel alone is at the other end; they stay so. UDP
//!   super-packets (`UDP_SEGMENT`) it hands over whole, and so do adapters that join
//!   received datagrams: switch that off with `ethtool -K … tx-udp-segmentation off`
//!   there, or `rx-udp-gro-forwarding off` here.
//! - VLAN frames of the lower link do not pass.
//!
//! # Who may send fast
//!
//! With [`admission`](BigMtuBuilder::admission) each station is asked before much that is cut
//! is sent to it, below unmodified sockets, as section 4.2 of the paper has it; what it refuses
//! leaves slowly. Programs ask by the [control socket](BigMtuBuilder::control_socket).
//!
//! | file | what it is |
//! | --- | --- |
//! | `builder` | what can be chosen, and the start |
//! | `down`, `up` | the two threads of each queue: from the kernel, and to it |
//! | `admission`, `control` | the stations that are asked; programs that ask |
//! | `mss` | what TCP announces |
//! | `report`, `stats` | what was done, for people; what is counted, over all queues |
//! | `lower` | the link below: is it free, and kept from the kernel |
//!
//! What does not live here: cutting and joining (those are engines), and addresses
//! or routes beyond the one that can be given at the start.

mod admission;
mod builder;
mod control;
mod down;
mod lower;
mod mss;
mod report;
mod stats;
mod up;

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use landfall_placement::{Duration, Instant};

use super::error::{Error, OpenError};
use super::technique::Chosen;
use crate::runtime::{Worker, locked};

pub use admission::AdmissionStats;
pub use builder::{BigMtuBuilder, QUEUES_BY_DEFAULT, QUEUES_MAX};
pub use control::FastStream;
pub use stats::{Amount, BigMtuStats};

/// The largest MTU that Linux lets a TAP interface have (`drivers/net/tun.c`): a
/// packet of 65,535 bytes, less the Ethernet header.
pub const MTU_MAX: u32 = 65_521;
/// The smallest that is worth it here.
pub const MTU_MIN: u32 = 4096;

/// An interface with a large MTU, for as long as this lives.
///
/// ```no_run
/// use landfall::defrag::bigmtu::BigMtu;
///
/// let big = BigMtu::builder("eth0")
///     .name("big0")
///     .mtu(9000)
///     .address("10.9.0.1".parse()?, 24)
///     .start()?;
/// println!("{} has an MTU of {}", big.name(), big.mtu());
/// std::thread::sleep(std::time::Duration::from_secs(60));
/// println!("{:?}", big.stop()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BigMtu {
    link: Link,
    shared: Arc<InterfaceState>,
    workers: Vec<Worker>,
}

/// What does not change about an interface.
#[derive(Debug)]
struct Link {
    name: String,
    mtu: u32,
    lower_mtu: u16,
    station: [u8; 6],
    chosen: Chosen,
    is_passed_by_kernel: bool,
    queues: u16,
}

/// How TCP crosses the link below.
///
/// A connection has the mode of the end that receives: each announces how long the segments may
/// be that come to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TcpMode {
    /// In segments that fit the frames of the link, as if the interface had its MTU. The kernel
    /// passes them, and all else that fits, between the two interfaces by itself (TCX, Linux 6.6);
    /// where it cannot, they pass through user space.
    #[default]
    Segments,
    /// In segments that fit the large MTU, cut into fragments of IP: what the paper does.
    /// Everything passes through user space, in its order.
    Fragments,
}

impl BigMtu {
    /// An interface above this one, to be described, and then started.
    pub fn builder(lower: impl Into<String>) -> BigMtuBuilder {
        BigMtuBuilder::new(lower.into())
    }

    /// The name of the interface.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.link.name
    }

    /// Its MTU.
    #[must_use]
    pub const fn mtu(&self) -> u32 {
        self.link.mtu
    }

    /// The MTU of the link below.
    #[must_use]
    pub const fn lower_mtu(&self) -> u16 {
        self.link.lower_mtu
    }

    /// The station address of both.
    #[must_use]
    pub const fn station(&self) -> [u8; 6] {
        self.link.station
    }

    /// How frames come in.
    #[must_use]
    pub const fn chosen(&self) -> &Chosen {
        &self.link.chosen
    }

    /// Whether the kernel passes frames that fit the link by itself. Never so with
    /// [`TcpMode::Fragments`].
    #[must_use]
    pub const fn is_passed_by_kernel(&self) -> bool {
        self.link.is_passed_by_kernel
    }

    /// How many queues it has, each with two threads.
    #[must_use]
    pub const fn queues(&self) -> u16 {
        self.link.queues
    }

    /// What was done until a moment ago, over all queues.
    #[must_use]
    pub fn stats(&self) -> BigMtuStats {
        self.shared.stats()
    }

    /// The same of each queue.
    #[must_use]
    pub fn queue_stats(&self) -> Vec<BigMtuStats> {
        locked(&self.shared.stats).clone()
    }

    /// False once a link broke: [`stop`](Self::stop) says why.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.shared.is_over()
    }

    /// Takes the interface and the rule at the lower link away, and tells what was
    /// done.
    ///
    /// # Errors
    /// A link broke before.
    pub fn stop(mut self) -> Result<BigMtuStats, Error> {
        self.end();
        self.shared.take_error().map_or_else(|| Ok(self.shared.stats()), Err)
    }

    fn end(&mut self) {
        self.shared.end();
        self.workers.drain(..).for_each(Worker::join);
    }
}

impl Drop for BigMtu {
    fn drop(&mut self) {
        self.end();
    }
}

/// Why an interface with a large MTU could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BigMtuError {
    /// The link below could not be opened, to receive or to send.
    #[error("the link below: {0}")]
    Lower(#[from] OpenError),
    /// Memory for packets could not be registered.
    #[error(transparent)]
    Memory(#[from] Error),
    /// The TAP interface could not be made.
    #[error(transparent)]
    Tap(#[from] landfall_transport::OpenError),
    /// The kernel uses the link below itself.
    #[error(
        "{lower} is in use by the kernel, with {what}: all that arrives there will be taken for \
         the interface above, so take its addresses away first (`ip address flush dev {lower}`)"
    )]
    LowerInUse {
        /// The link below.
        lower: String,
        /// What shows it.
        what: String,
    },
    /// No interface can have it.
    #[error("an MTU of {0}: use {MTU_MIN} to {MTU_MAX}")]
    Mtu(u32),
    /// The link below carries so little that IPv6 would not work (1280), or as much as
    /// is asked for above it.
    #[error(
        "{lower} has an MTU of {mtu}, and {above} is asked for above it: that of the lower one has \
         to be 1280 or more, and the smaller of the two"
    )]
    NothingToDo {
        /// The link below.
        lower: String,
        /// Its MTU.
        mtu: u32,
        /// What was asked for.
        above: u32,
    },
    /// The program that sets up packet filters is not there.
    #[error(
        "needs nft, to keep the kernel from taking what arrives at the link below as well: \
         install the package nftables ({0})"
    )]
    NoNft(#[source] io::Error),
    /// It refused.
    #[error("nft keeps nothing from the kernel at {lower}: {said}")]
    Nft {
        /// The link below.
        lower: String,
        /// What it said.
        said: String,
    },
    /// The control socket could not be made.
    #[error("cannot listen for requests at {}: {source}", path.display())]
    Control {
        /// Where it should be.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It cannot have this many queues.
    #[error("{0} queues: use 1 to {QUEUES_MAX}")]
    Queues(u16),
    /// Admission control is for one receiver, and each queue has one.
    #[error("admission control with {0} queues: it lets one receiver choose, so take one queue")]
    AdmissionWithQueues(u16),
    /// Nobody is asked for a fast stream, so there is nothing to request.
    #[error("a control socket needs admission control: choose that too, or neither")]
    ControlWithoutAdmission,
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}

/// Nobody waits longer until he looks whether it is over, and tells what he did.
const LOOK_UP: Duration = Duration::from_millis(50);

/// A turn of a thread of an interface, which ends when it is told to, or when its work fails.
fn turn_of(
    is_over: bool,
    work: impl FnOnce() -> Result<bool, Error>,
) -> ControlFlow<Result<(), Error>, bool> {
    if is_over {
        return ControlFlow::Break(Ok(()));
    }
    work().map_or_else(|error| ControlFlow::Break(Err(error)), ControlFlow::Continue)
}

/// What the threads of an interface share with its handle.
#[derive(Debug, Default)]
struct InterfaceState {
    over: AtomicBool,
    /// Of each queue.
    stats: Mutex<Vec<BigMtuStats>>,
    error: Mutex<Option<Error>>,
}

impl InterfaceState {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// A thread is done, for this reason if any: then the other shall end too.
    fn done(&self, result: Result<(), Error>) {
        if let Err(error) = result {
            locked(&self.error).get_or_insert(error);
        }
        self.end();
    }

    fn take_error(&self) -> Option<Error> {
        locked(&self.error).take()
    }

    fn stats(&self) -> BigMtuStats {
        let mut all = BigMtuStats::default();
        locked(&self.stats).iter().for_each(|queue| all += *queue);
        all
    }

    /// A thread of this queue tells what it did.
    fn tell(&self, queue: u16, write: impl FnOnce(&mut BigMtuStats)) {
        let mut stats = locked(&self.stats);
        let queue = usize::from(queue);
        if stats.len() <= queue {
            stats.resize(queue + 1, BigMtuStats::default());
        }
        write(&mut stats[queue]);
    }
}

/// When a thread tells again what it did.
#[derive(Debug, Default)]
struct ReportTimer(Option<Instant>);

impl ReportTimer {
    /// When it is time.
    fn next(&self) -> Instant {
        self.0.unwrap_or(Instant::ZERO)
    }

    /// Is it time? Then the next time is a while from now.
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.0.is_some_and(|next| now >= next);
        if is_due || self.0.is_none() {
            self.0 = Some(now + LOOK_UP);
        }
        is_due
    }
}
