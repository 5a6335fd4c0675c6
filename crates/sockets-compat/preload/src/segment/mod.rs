//! The memory that both ends of a connection share: what lies where.
//!
//! A page of counters, and behind it two rings of bytes, one for each direction; before it a page
//! for each end alone. Counters
//! of a direction lie in two pairs of cache lines, by who moves them. Either end may hold
//! a program that writes whatever it likes: each number is checked where it is used.
//!
//! Memory is taken up only if it is a file of this user's which nobody else may open, with
//! one name, and if it says that it is this very file and of this connection. Its owner can
//! make it say so of any; what proves it is the kernel's word ([`crate::socket_diag`]).

mod holders;

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use holders::Holders;
use landfall_socket_wakes::{RoomWatchers, RoomWish, Shortcut, Waiters, Wishes};

use crate::folder::Owner;
use crate::kernel::{self, Errno};
use crate::registry::Name;

/// Says that this is ours, and how its parts lie: another version has another number.
pub(crate) const MAGIC: u64 = u64::from_be_bytes(*b"landfal8");
/// What a ring holds within a host. As much as a core's own cache has room for, several times
/// over.
pub(crate) const CAPACITY: u64 = 256 * 1024;
/// What it holds where the other end is on another host: as much as may be under way.
pub(crate) const CARRIED_CAPACITY: u64 = 2 * 1024 * 1024;
const HEADER: usize = 4096;
/// The file begins with a page for each end, which only its own processes map: the
/// connector's, and the acceptor's. Counters and rings lie behind them.
pub(crate) const PAGE: usize = 4096;

const fn file_len(capacity: u64) -> usize {
    PAGE + mapped_len(capacity)
}

/// What each process maps: its end's page, and what both ends share.
const fn mapped_len(capacity: u64) -> usize {
    PAGE + HEADER + 2 * capacity as usize
}

/// Which end of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Connector,
    Acceptor,
}

impl Role {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Connector => Self::Acceptor,
            Self::Acceptor => Self::Connector,
        }
    }

    const fn index(self) -> usize {
        self as usize
    }
}

/// What each end says of itself.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct End {
    /// The kernel's number of its socket.
    pub(crate) cookie: AtomicU64,
    /// How many processes have it open.
    pub(crate) holders: AtomicU32,
    /// The acceptor has found the memory; the connector has seen that.
    pub(crate) is_here: AtomicU32,
    /// Whether its calls wait, as far as is known; see [`crate::patience`].
    pub(crate) waits: AtomicU32,
    /// The interface that its socket is bound to; zero if it is to none.
    pub(crate) interface: AtomicU32,
    /// Its namespace of networks, by the kernel's number; zero where that tells none.
    pub(crate) network: AtomicU64,
    /// Its namespace of processes; zero while that is not said.
    pub(crate) processes: AtomicU64,
}

/// The sender's half of a direction.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Sending {
    /// Bytes that were ever put into the ring.
    pub(crate) head: AtomicU64,
    /// Zero while bytes go by TCP; then one more than the bytes that went so.
    pub(crate) switched: AtomicU64,
    /// Bytes that went by TCP.
    pub(crate) by_tcp: AtomicU64,
    /// Threads that are just now sending by TCP: the way does not change under them.
    pub(crate) in_flight: AtomicU32,
    /// What a sender that waits for room asks for; see [`crate::ring`].
    pub(crate) wants_room: RoomWish,
    /// No more will come: shut down or closed, and not by a killed process.
    pub(crate) has_ended: AtomicU32,
    /// What the program said of `TCP_NODELAY` and `TCP_CORK`; see [`crate::rings`].
    pub(crate) manner: AtomicU32,
}

/// The receiver's half of a direction.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Receiving {
    /// Bytes that were ever taken out of the ring.
    pub(crate) tail: AtomicU64,
    /// Bytes that were taken out of TCP.
    pub(crate) by_tcp: AtomicU64,
    /// Who sleeps, or will, and wants to be rung; see [`crate::ring`].
    pub(crate) wishes: Wishes,
    /// A ring was sent and may still lie in TCP's queue.
    pub(crate) was_rung: AtomicU32,
    /// Nothing will be taken any more.
    pub(crate) has_ended: AtomicU32,
    /// Who sleeps at the receiver's end.
    pub(crate) waiters: Waiters,
    /// TCP has told of the sender's end, and the sender has not; see
    /// [`crate::connection::SegmentView::has_ended_by_tcp`].
    pub(crate) is_doubtful: AtomicU32,
    /// A shorter way to wake them, and where that is to be found; see [`crate::wake_pipe`].
    pub(crate) shortcut: Shortcut,
    pub(crate) shortcut_place: AtomicU64,
    /// Changes when those are woken who sleep on it.
    pub(crate) word_of_bytes: AtomicU32,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct Direction {
    pub(crate) sending: Sending,
    pub(crate) receiving: Receiving,
}

/// What a connection between hosts has beside all that; see [`crate::between_hosts`]. One end of
/// its memory is a program, the other the carrier of the same host.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct BetweenHosts {
    /// Zero within one host; else what carries the bytes.
    pub(crate) transport: AtomicU32,
    /// The process of the carrier; zero until it has come.
    pub(crate) carrier: AtomicU32,
    /// The process of the program that used it last; zero if that is not known.
    pub(crate) process: AtomicU32,
    /// What has become of the offer.
    pub(crate) verdict: AtomicU32,
    /// The carrier has lost the other host.
    pub(crate) is_broken: AtomicU32,
    /// Changes when the program has done something that the carrier has to know.
    pub(crate) bell: AtomicU32,
    /// The carrier sleeps on that, or is about to.
    pub(crate) carrier_sleeps: AtomicU32,
    /// The other end knows that a byte by TCP is a ring.
    pub(crate) may_ring: AtomicU32,
    /// Bytes went before that: a ring is due once it may be sent.
    pub(crate) owes_ring: AtomicU32,
    /// When a ring was sent, in milliseconds of the kernel's steady clock.
    pub(crate) rung_at: AtomicU64,
    /// When something came, or was seen to be on its way.
    pub(crate) changed_at: AtomicU64,
    /// When the program put something in: there may be an answer.
    pub(crate) sent_at: AtomicU64,
    /// When TCP was first seen to have ended before its carrier said so; zero if it was not.
    pub(crate) ended_at: AtomicU64,
}

/// What the processes of one end share, and the other end does not have: nobody there can
/// keep a lock of ours, or say what we are sure of.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct EndState {
    /// Of who sends, and of who receives.
    pub(crate) sending: EndHalf,
    pub(crate) receiving: EndHalf,
    /// Those of the watchers that wait for room: a ring that another takes away was for
    /// them, too.
    pub(crate) room_watchers: RoomWatchers,
    /// A process of this end has had the kernel's word of who is at the other.
    pub(crate) is_sure: AtomicU32,
    /// Who must claim the offer of this end, where the kernel was asked when it was made.
    pub(crate) awaited: Awaited,
    /// What each ring holds. The other end could say otherwise in what both share.
    capacity: AtomicU64,
    /// Who of [`End::holders`] has been counted.
    pub(crate) holders: Holders,
}

/// A socket at the other end of a connection, by the numbers that it will give in the memory.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Awaited {
    /// Zero where nobody was asked.
    cookie: AtomicU64,
    network: AtomicU64,
    processes: AtomicU64,
}

impl Awaited {
    /// It is the socket of this number, in the namespaces of this end.
    pub(crate) fn is_now(&self, cookie: u64, own: &End) {
        self.network.store(own.network.load(Ordering::Relaxed), Ordering::Relaxed);
        self.processes.store(own.processes.load(Ordering::Relaxed), Ordering::Relaxed);
        self.cookie.store(cookie, Ordering::Release);
    }

    /// Whether that is who says so in the memory.
    pub(crate) fn is(&self, other: &End) -> bool {
        let cookie = self.cookie.load(Ordering::Acquire);
        cookie != 0
            && other.cookie.load(Ordering::Acquire) == cookie
            && other.network.load(Ordering::Relaxed) == self.network.load(Ordering::Relaxed)
            && other.processes.load(Ordering::Relaxed) == self.processes.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct EndHalf {
    pub(crate) lock: AtomicU32,
}

const _: () = assert!(size_of::<EndState>() <= PAGE);

/// Of which file and which connection this memory is.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Identity {
    device: AtomicU64,
    inode: AtomicU64,
    /// The number of the socket that it is offered to, where a carrier offers it.
    pub(crate) addressee: AtomicU64,
    name: [AtomicU32; WORDS_OF_NAME],
}

const WORDS_OF_NAME: usize = Name::LEN / 4;
const _: () = assert!(Name::LEN.is_multiple_of(4));

impl Identity {
    fn write(&self, file: &libc::stat, name: &Name) {
        self.device.store(file.st_dev, Ordering::Relaxed);
        self.inode.store(file.st_ino, Ordering::Relaxed);
        for (place, word) in self.name.iter().zip(words_of(name)) {
            place.store(word, Ordering::Relaxed);
        }
    }

    fn is(&self, file: &libc::stat, name: &Name) -> bool {
        self.device.load(Ordering::Relaxed) == file.st_dev
            && self.inode.load(Ordering::Relaxed) == file.st_ino
            && self.name.iter().map(|word| word.load(Ordering::Relaxed)).eq(words_of(name))
    }
}

fn words_of(name: &Name) -> impl Iterator<Item = u32> {
    let bytes = name.to_bytes();
    (0..WORDS_OF_NAME).map(move |at| {
        let mut word = [0; 4];
        word.copy_from_slice(&bytes[4 * at..4 * at + 4]);
        u32::from_ne_bytes(word)
    })
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) magic: AtomicU64,
    ends: [End; 2],
    pub(crate) directions: [Direction; 2],
    between: BetweenHosts,
    identity: Identity,
}

const _: () = assert!(size_of::<Header>() <= HEADER);

/// A mapping of such memory. It ends by [`Segment::unmap`] only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    base: *mut u8,
}

/// The file is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// It belongs to this user, who could cut it off under us.
    OfUser(u32),
    /// Others may open it, by this mode, or it is no file.
    OpenToOthers(u32),
    /// It has more names than one, or none.
    Names(libc::nlink_t),
    /// Another length or version.
    Unknown,
    /// It is being made.
    Unfinished,
    /// It is the memory of another connection, or a copy.
    OfAnother,
    Kernel(Errno),
}

impl From<Errno> for Unusable {
    fn from(errno: Errno) -> Self {
        Self::Kernel(errno)
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfUser(user) => write!(f, "the offer belongs to user {user}"),
            Self::OpenToOthers(mode) => write!(f, "the offer is open to others (mode {mode:o})"),
            Self::Names(names) => write!(f, "the offer has {names} names"),
            Self::Unknown => f.write_str("the offer is of another version"),
            Self::Unfinished => f.write_str("the offer is being made"),
            Self::OfAnother => f.write_str("the offer is that of another connection"),
            Self::Kernel(why) => write!(f, "the offer cannot be used (errno {})", why.0),
        }
    }
}

impl Segment {
    /// Makes the memory of a connection in a file that was just made, for the end that offers it.
    pub(crate) fn create(
        file: i32,
        name: &Name,
        role: Role,
        capacity: u64,
    ) -> Result<Self, Unusable> {
        let status = kernel::status(file)?;
        kernel::set_len(file, file_len(capacity) as u64)?;
        // A store for which there is no memory would end the program (SIGBUS). The rings get
        // theirs as they are filled, and the other end its page when it comes.
        let segment = Self::map_pages(file, role, capacity, PAGE + HEADER)?;
        for role in [Role::Connector, Role::Acceptor] {
            // The first bytes find nobody who looks at the ring, only one at TCP.
            segment.direction_from(role).receiving.wishes.begin();
        }
        segment.identity().write(&status, name);
        segment.header().magic.store(MAGIC, Ordering::Release);
        Ok(segment)
    }

    /// Maps the page of one end and what both share, of which so much has memory from here on.
    fn map_pages(file: i32, role: Role, capacity: u64, populated: usize) -> Result<Self, Errno> {
        let base = kernel::map(file, PAGE, mapped_len(capacity))?;
        let mapped = match role {
            Role::Acceptor => Ok(0),
            // SAFETY: the first page of what was mapped just now.
            Role::Connector => unsafe { kernel::map_over(base, file, 0, PAGE) },
        };
        if let Err(why) = mapped.and_then(|_| kernel::populate(base, populated)) {
            // SAFETY: nobody knows of it yet.
            unsafe { kernel::unmap(base, mapped_len(capacity)) };
            return Err(why);
        }
        let segment = Self { base };
        segment.own().capacity.store(capacity, Ordering::Relaxed);
        Ok(segment)
    }

    /// Maps the memory of a connection that another made, for one of its ends. It has to be of `owner`,
    /// as the folder is that it lies in.
    pub(crate) fn open(file: i32, owner: Owner, name: &Name, role: Role) -> Result<Self, Unusable> {
        let status = kernel::status(file)?;
        if !owner.has(&status) {
            return Err(Unusable::OfUser(status.st_uid));
        }
        if !owner.has_alone(&status) {
            return Err(Unusable::OpenToOthers(status.st_mode));
        }
        let names = status.st_nlink;
        if names != 1 {
            return Err(Unusable::Names(names));
        }
        let segment = Self::map(file, &status, role)?;
        if segment.identity().is(&status, name) {
            return Ok(segment);
        }
        // SAFETY: nobody knows of it yet.
        unsafe { segment.unmap() };
        Err(Unusable::OfAnother)
    }

    /// Maps what has the length and the version of such memory, with the page of one end.
    fn map(file: i32, status: &libc::stat, role: Role) -> Result<Self, Unusable> {
        let has_length = |capacity: &u64| status.st_size == file_len(*capacity) as i64;
        if status.st_size == 0 {
            return Err(Unusable::Unfinished);
        }
        let capacity = [CAPACITY, CARRIED_CAPACITY].into_iter().find(has_length);
        let capacity = capacity.ok_or(Unusable::Unknown)?;
        let segment = Self::map_pages(file, role, capacity, PAGE)?;
        let fault = match segment.header().magic.load(Ordering::Acquire) {
            MAGIC => return Ok(segment),
            0 => Unusable::Unfinished,
            _ => Unusable::Unknown,
        };
        // SAFETY: nobody knows of it yet.
        unsafe { segment.unmap() };
        Err(fault)
    }

    /// Ends the mapping.
    ///
    /// # Safety
    ///
    /// Nobody uses it, or a reference into it, any more.
    pub(crate) unsafe fn unmap(self) {
        // SAFETY: as promised.
        unsafe { kernel::unmap(self.base, mapped_len(self.capacity())) }
    }

    /// What each ring holds.
    pub(crate) fn capacity(self) -> u64 {
        self.own().capacity.load(Ordering::Relaxed)
    }

    pub(crate) const fn base(self) -> *mut u8 {
        self.base
    }

    /// # Safety
    ///
    /// `base` came out of [`Segment::base`].
    pub(crate) const unsafe fn from_base(base: *mut u8) -> Self {
        Self { base }
    }

    const fn header<'a>(self) -> &'a Header {
        // SAFETY: the mapping is long enough, page aligned, and of atomics alone. Who
        // unmaps it promises that no reference is left.
        unsafe { &*self.base.add(PAGE).cast::<Header>() }
    }

    pub(crate) const fn end<'a>(self, role: Role) -> &'a End {
        &self.header().ends[role.index()]
    }

    /// The direction in which this side sends.
    pub(crate) const fn direction_from<'a>(self, role: Role) -> &'a Direction {
        &self.header().directions[role.index()]
    }

    /// What the processes of this end have for themselves.
    pub(crate) const fn own<'a>(self) -> &'a EndState {
        // SAFETY: the mapping begins with a page of that, and it is of atomics alone. Who
        // unmaps it promises that no reference is left.
        unsafe { &*self.base.cast::<EndState>() }
    }

    pub(crate) const fn between<'a>(self) -> &'a BetweenHosts {
        &self.header().between
    }

    pub(crate) const fn identity<'a>(self) -> &'a Identity {
        &self.header().identity
    }

    /// Both rings, as one piece of memory: where it begins, and how long it is.
    pub(crate) fn both_rings(self) -> (*mut u8, usize) {
        (self.bytes_from(Role::Connector), 2 * self.capacity() as usize)
    }

    /// Where in that piece the bytes of a direction begin.
    pub(crate) fn place_of_ring_from(self, role: Role) -> u64 {
        role.index() as u64 * self.capacity()
    }

    /// Where the bytes of that direction lie.
    pub(crate) fn bytes_from(self, role: Role) -> *mut u8 {
        // SAFETY: inside of the mapping.
        unsafe { self.base.add(PAGE + HEADER + self.place_of_ring_from(role) as usize) }
    }
}

#[cfg(test)]
pub(crate) mod tests;
