//! How frames come in, how packets are handed out, and what receivers and senders count.

use std::fmt;

use spec_defrag::{Stats, conventional};

/// How frames come from the interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Technique {
    /// The one that costs least here; [`Receiver::chosen`](super::Receiver::chosen)
    /// says which and why.
    #[default]
    Auto,
    /// One call takes a burst, each frame apart into the places that were posted
    /// for it (`recvmmsg`): the kernel's copy is the only one.
    Packet,
    /// The same by way of `io_uring`.
    PacketUring,
    /// The kernel writes frames into memory that is mapped here (TPACKET_V3): no
    /// call at all. Nothing is guessed: packets are lent where their fragments lie, without a
    /// copy ([`Delivery::List`]), or copied once, with the other deliveries. A block that is
    /// not full comes after a millisecond: where that is long, take
    /// [`Packet`](Self::Packet).
    PacketRing,
    /// AF_XDP: frames come before the kernel's own protocols see them, which then
    /// do not get them. Nothing is guessed, as with the [ring](Self::PacketRing).
    Xdp,
    /// A simulated Hamachi puts frames behind the descriptors of its list: the adapter of
    /// the paper, in front of a packet socket. See [`nic`](crate::nic).
    #[cfg(feature = "nic")]
    Nic,
}

impl Technique {
    /// Whether frames lie in memory that is shared with the kernel, when they come.
    #[must_use]
    pub const fn shares_memory(self) -> bool {
        matches!(self, Self::Auto | Self::PacketRing | Self::Xdp)
    }
}

impl fmt::Display for Technique {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Packet => "packet",
            Self::PacketUring => "packet-uring",
            Self::PacketRing => "packet-ring",
            Self::Xdp => "xdp",
            #[cfg(feature = "nic")]
            Self::Nic => "nic",
        })
    }
}

/// How a packet comes to its user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Delivery {
    /// [`List`](Self::List) where the technique shares memory with the kernel, as the
    /// default one does, else [`FastBuffers`](Self::FastBuffers).
    #[default]
    Auto,
    /// Where it was joined, in a page of a pool that is mapped from the start. The
    /// page is the user's until the packet is dropped, then the pool's again. Techniques that
    /// share memory with the kernel copy fragments there.
    FastBuffers,
    /// Its pages are moved to addresses of the application's own, by the kernel's
    /// page tables; other pages take their place at once.
    Remap,
    /// It is copied out, as a socket would.
    Copy,
    /// Where its fragments lie, as a list, without a copy: in whatever order they came, and from
    /// however many blocks, as long as it becomes whole within the
    /// [patience](super::ReceiverBuilder::patience) and no fragment comes twice or contradicts
    /// another; else copied, as with [`FastBuffers`](Self::FastBuffers). For techniques that share
    /// memory with the kernel, which gets it back with the packets. While users keep more of it
    /// than [may be lent](super::ReceiverBuilder::lend_at_most), packets are copied. A ring is
    /// filled in turn, so one packet that is kept for long stops it there: frames come to a second
    /// ring then, from which packets are copied, until nothing of the first is kept.
    List,
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::FastBuffers => "fast-buffers",
            Self::Remap => "remap",
            Self::Copy => "copy",
            Self::List => "list",
        })
    }
}

/// The technique that is at work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Never [`Technique::Auto`].
    pub technique: Technique,
    /// Why this one, in a sentence.
    pub why: String,
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.technique, self.why)
    }
}

/// Which frames a receiver looks at. The kernel sorts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wanted {
    /// Fragments of IP packets. What was not cut is left to the kernel, and costs
    /// nothing here.
    #[default]
    Fragments,
    /// All IP packets, joined or as they came.
    Ip,
}

/// What a receiver did since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Packets that were handed out.
    pub packets: u64,
    /// Frames and packets, by how they were joined: see [`lent`](Self::lent),
    /// [`guessed_right`](Self::guessed_right) and [`copied`](Self::copied).
    pub joined: Stats,
    /// What became of pieces that went the conventional way.
    pub gathered: conventional::Counters,
    /// Bytes that were copied to hand packets out: none unless delivery is by copy.
    pub bytes_handed: u64,
    /// Frames that the kernel had for this receiver, and those that it dropped
    /// since there was no room for them.
    pub kernel_frames: u64,
    /// See [`kernel_frames`](Self::kernel_frames).
    pub kernel_drops: u64,
    /// Bursts: calls, or blocks of a ring.
    pub bursts: u64,
    /// Turns that found no page free.
    pub starved: u64,
    /// Packets that had to wait until their user gave others back.
    pub held_up: u64,
    /// Packets that could not be handed out.
    pub lost: u64,
    /// Senders that were told (ICMP) that a packet did not become whole in time.
    pub answers: u64,
}

impl ReceiverStats {
    /// Bytes that were copied in user space: to join packets, and to hand them out.
    #[must_use]
    pub const fn bytes_copied(&self) -> u64 {
        self.joined.bytes_copied + self.bytes_handed
    }

    /// Packets that were lent where their fragments lie: nothing was guessed, and nothing copied.
    #[must_use]
    pub const fn lent(&self) -> u64 {
        self.joined.lent
    }

    /// Packets whose fragments had all landed where they belong, by guess.
    #[must_use]
    pub const fn guessed_right(&self) -> u64 {
        self.joined.speculated
    }

    /// Packets whose fragments were copied to where they belong.
    #[must_use]
    pub const fn copied(&self) -> u64 {
        self.joined.conventional
    }

    /// Of those, the ones that were copied since as much was lent as
    /// [may be](super::ReceiverBuilder::lend_at_most).
    #[must_use]
    pub const fn copied_at_bound(&self) -> u64 {
        self.joined.at_bound
    }

    /// The share of packets that were joined without a copy, lent or guessed right, among those
    /// that came in pieces.
    #[must_use]
    pub fn uncopied_rate(&self) -> f64 {
        let hits = self.guessed_right() + self.lent();
        let all = hits + self.copied();
        if all == 0 { 0.0 } else { hits as f64 / all as f64 }
    }
}

impl std::ops::AddAssign for ReceiverStats {
    fn add_assign(&mut self, other: Self) {
        let Self {
            packets,
            joined,
            gathered,
            bytes_handed,
            kernel_frames,
            kernel_drops,
            bursts,
            starved,
            held_up,
            lost,
            answers,
        } = other;
        self.packets += packets;
        self.joined += joined;
        self.gathered += gathered;
        self.bytes_handed += bytes_handed;
        self.kernel_frames += kernel_frames;
        self.kernel_drops += kernel_drops;
        self.bursts += bursts;
        self.starved += starved;
        self.held_up += held_up;
        self.lost += lost;
        self.answers += answers;
    }
}

/// What a sender did since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderStats {
    /// Packets that left.
    pub packets: u64,
    /// Of those, the ones that the kernel cut.
    pub cut_by_kernel: u64,
    /// Frames that left.
    pub frames: u64,
    /// Frames that could not be sent, as if they were lost on the way.
    pub failed: u64,
    /// Calls that sent something.
    pub calls: u64,
    /// Times that it had to wait for room in the kernel.
    pub blocked: u64,
    /// Times that admission control made it wait.
    pub throttled: u64,
}

impl std::ops::AddAssign for SenderStats {
    fn add_assign(&mut self, other: Self) {
        let Self { packets, cut_by_kernel, frames, failed, calls, blocked, throttled } = other;
        self.packets += packets;
        self.cut_by_kernel += cut_by_kernel;
        self.frames += frames;
        self.failed += failed;
        self.calls += calls;
        self.blocked += blocked;
        self.throttled += throttled;
    }
}
