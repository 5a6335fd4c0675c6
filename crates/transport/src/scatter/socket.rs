//! [`Socket`]: receives a burst with one call.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use landfall_placement::Instant;
use socket2::{Domain, Socket as PlainSocket, Type};

use super::send::Sender;
use super::{CapturePoint, Config, Outgoing, Posted};
use crate::OpenError;
use crate::driver::{Counters, Interest};
use crate::exchange::DONT_WAIT;
use crate::memory::Regions;
use crate::packet::{self, Found, fanout};

/// What the kernel counted for a socket since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames that passed the filter.
    pub frames: u64,
    /// Of those, the ones for which the socket buffer had no room.
    pub dropped: u64,
}

/// A packet socket for bursts of frames, both ways.
#[derive(Debug)]
pub struct Socket {
    socket: PlainSocket,
    interface: Found,
    sender: Sender,
    counters: Counters,
    statistics: Statistics,
    /// All sockets that share what comes.
    group: Option<Arc<[PlainSocket]>>,
}

impl Socket {
    /// Opens a socket on an interface of the network namespace that the calling
    /// thread is in. What it sends is read from these regions.
    ///
    /// # Errors
    /// [`OpenError`] says what is missing and what would help.
    pub fn open(config: &Config, regions: &Regions) -> Result<Self, OpenError> {
        let protocol = match config.hearing {
            CapturePoint::Everything => packet::ALL_PROTOCOLS,
            CapturePoint::Protocol(number) if number < packet::LEAST_ETHERTYPE => {
                return Err(OpenError::NotAnEthertype(number));
            }
            CapturePoint::Protocol(number) => number,
        };
        let (socket, interface) = open_deaf(config)?;
        let fd = socket.as_raw_fd();
        // Without it (before Linux 4.20) the filter turns own frames away.
        let _ = packet::set_option(fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
        let filter = config.filter.clone().only_received(interface.station);
        packet::attach_filter(fd, &filter.program())
            .map_err(OpenError::system("attach the packet filter"))?;
        let own_station = config.filter.only_station();
        if let Some(station) = own_station.filter(|own| *own != interface.station) {
            packet::join_interface(fd, interface.index, Some(station))
                .map_err(OpenError::system("let the interface take frames to another station"))?;
        }
        if config.filter.takes_groups() {
            packet::join_interface(fd, interface.index, None)
                .map_err(OpenError::system("let the interface take frames to all groups"))?;
        }
        packet::bind(fd, &packet::LinkAddress::interface(interface.index, protocol))
            .map_err(OpenError::system("bind to the interface"))?;
        Ok(Self {
            socket,
            interface,
            sender: Sender::new(regions),
            counters: Counters::default(),
            statistics: Statistics::default(),
            group: None,
        })
    }

    /// Opens one for each of these tables: the addresses of a packet say which of them gets its
    /// frames (`PACKET_FANOUT`), so all fragments of a packet come to one.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_members(config: &Config, regions: &[Regions]) -> Result<Vec<Self>, OpenError> {
        let opened = regions.iter().map(|regions| Self::open(config, regions));
        let mut members: Vec<_> = opened.collect::<Result<_, _>>()?;
        let sockets: Vec<_> = members.iter().map(|member| &member.socket).collect();
        let group = fanout::spread(&sockets, fanout::SpreadBy::Addresses)?;
        for member in &mut members {
            member.group = Some(Arc::clone(&group));
        }
        Ok(members)
    }

    /// The station address of the interface.
    #[must_use]
    pub const fn station(&self) -> [u8; 6] {
        self.interface.station
    }

    /// The MTU of the interface, as it was when the socket was opened.
    #[must_use]
    pub const fn mtu(&self) -> u32 {
        self.interface.mtu
    }

    /// Receives as many frames as wait, one for each posted descriptor at
    /// most, with one call that never waits. Returns how many came; if any did,
    /// the list is used up, else it is still posted.
    ///
    /// # Errors
    /// The socket is broken for good, as when its interface was removed.
    pub fn receive(&mut self, posted: &mut Posted) -> io::Result<usize> {
        if posted.posted() == 0 {
            return Ok(0);
        }
        // SAFETY: they are changed by the call below alone, which is over when this is.
        let headers = unsafe { posted.headers() };
        let (first, count) = (headers.as_mut_ptr(), headers.len() as libc::c_uint);
        let fd = self.socket.as_raw_fd();
        // SAFETY: there are `count` headers. Each names three pieces of memory
        // that the kernel may write until the call is over: slots of the list,
        // which is borrowed exclusively, and spans that it holds pinned: nobody can
        // release the one or the other but through the list.
        let came = unsafe { libc::recvmmsg(fd, first, count, DONT_WAIT, std::ptr::null_mut()) };
        let came = match usize::try_from(came) {
            Ok(came) => came,
            Err(_) => nothing_came(io::Error::last_os_error())?,
        };
        self.note_burst(posted, came, 1);
        Ok(came)
    }

    /// This many calls filled the first `came` descriptors.
    pub(crate) fn note_burst(&mut self, posted: &mut Posted, came: usize, calls: u64) {
        if came == 0 {
            self.counters.empty_calls += calls;
        } else {
            self.counters.receive_calls += calls;
        }
        let burst = posted.came(came);
        self.counters.units_received += burst.frames;
        self.counters.malformed += burst.cut_short;
    }

    /// Sends frames in their order, as many as there is room for. Returns how
    /// many are out of the caller's hands: fewer than given means that the
    /// kernel has no more room, and the rest is to be given again later, once
    /// the [interest](Self::interest) is ready or the
    /// [time-out](Self::poll_timeout) has come.
    ///
    /// A frame that cannot be sent at all (longer than the MTU, its memory is
    /// gone, the interface is down) counts as lost on the way.
    ///
    /// # Errors
    /// The socket is broken for good, as when its interface was removed.
    pub fn send(&mut self, now: Instant, outgoing: &[Outgoing<'_>]) -> io::Result<usize> {
        let fd = self.socket.as_raw_fd();
        self.sender.send(fd, self.interface.index, now, outgoing, &mut self.counters)
    }

    /// Whether what leaves from now on gives way to others in queues that tell them
    /// apart (`SO_PRIORITY`).
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn give_way(&mut self, gives_way: bool) -> io::Result<()> {
        const USUAL: libc::c_int = 0;
        /// `TC_PRIO_BULK` of `linux/pkt_sched.h`.
        const BULK: libc::c_int = 2;
        let priority = if gives_way { BULK } else { USUAL };
        let fd = self.socket.as_raw_fd();
        packet::set_option(fd, libc::SOL_SOCKET, libc::SO_PRIORITY, priority)
    }

    /// What to wait for when nothing came, or when not everything could be sent.
    #[must_use]
    pub fn interest(&self) -> Interest {
        Interest {
            fd: self.socket.as_raw_fd(),
            readable: true,
            writable: self.sender.waits_for_buffer(),
        }
    }

    /// When to try to send again, where nothing else tells.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.sender.poll_timeout()
    }

    /// What was done so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What the kernel counted since the socket was opened.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn statistics(&mut self) -> io::Result<Statistics> {
        // It begins anew with each answer.
        let news = ask_statistics(self.socket.as_raw_fd())?;
        self.statistics.frames += u64::from(news.tp_packets);
        self.statistics.dropped += u64::from(news.tp_drops);
        Ok(self.statistics)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A socket that is not bound, and hears nothing.
pub(super) fn open_deaf(config: &Config) -> Result<(PlainSocket, Found), OpenError> {
    let socket =
        PlainSocket::new(Domain::PACKET, Type::RAW, None).map_err(packet::why_no_socket)?;
    socket.set_nonblocking(true).map_err(OpenError::system("make the socket non-blocking"))?;
    let interface = packet::find_interface(&socket, &config.interface)?;
    let fd = socket.as_raw_fd();
    packet::grow_buffers(fd, config.socket_buffer);
    if config.bypass_queue {
        packet::set_option(fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)
            .map_err(OpenError::system("bypass the queue (PACKET_QDISC_BYPASS)"))?;
    }
    Ok((socket, interface))
}

/// Zero frames, if that is all that the error says.
pub(crate) fn nothing_came(error: io::Error) -> io::Result<usize> {
    match error.raw_os_error() {
        // An interface that is down may come up again.
        Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN) => Ok(0),
        _ => Err(error),
    }
}

fn ask_statistics(fd: RawFd) -> io::Result<libc::tpacket_stats> {
    let mut answer = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut len = size_of_val(&answer) as libc::socklen_t;
    let into = (&raw mut answer).cast();
    // SAFETY: the kernel writes at most `len` bytes into the answer.
    let done = unsafe {
        libc::getsockopt(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, into, &raw mut len)
    };
    if done == 0 { Ok(answer) } else { Err(io::Error::last_os_error()) }
}
