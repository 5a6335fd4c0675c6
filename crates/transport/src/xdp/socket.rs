//! An XDP socket: its memory, its rings, and the program that feeds it.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::frames::Frames;
use super::program::{BEFORE_THE_STACK, IN_THE_DRIVER, Map, Program};
use super::ring::{self, Reader, Writer};
use super::{Attach, ETHERNET_HEADER, Framing, XdpConfig, failed};
use crate::OpenError;
use crate::capability::{Capabilities, Feature};
use crate::inet::grow_buffers;
use crate::packet::{Found, find_interface, join_interface};

/// Numbers below are lengths of IEEE 802.3 frames (`linux/if_ether.h`).
const LEAST_ETHERTYPE: u16 = 0x0600;
/// A VLAN tag that a frame may have had.
const TAG: u32 = 4;
const SHORT_CHUNK: u32 = 2048;
const LONG_CHUNK: u32 = 4096;
/// The kernel keeps what it has not sent yet in buffers that this bounds.
const SEND_BUFFER: usize = 32 << 20;
/// No more queues of an interface are opened.
const MOST_QUEUES: u32 = 256;
/// How long the kernel may take to forget a socket that was closed.
const FORGETTING: Duration = Duration::from_secs(2);

/// What belongs to an open path.
#[derive(Debug)]
pub(super) struct Opened {
    /// It ends before all others.
    pub(super) redirection: Arc<Redirection>,
    pub(super) socket: Socket,
    pub(super) rings: Rings,
    pub(super) frames: Frames,
}

/// What keeps frames coming to the socket, and to those of other queues that were opened with it.
#[derive(Debug)]
pub(super) struct Redirection {
    /// Detaches the program when it is closed: before all others.
    _attached: OwnedFd,
    map: Map,
    _program: Program,
    /// Keeps the interface taking frames that are not for its own station.
    _memberships: Option<Socket>,
}

/// The rings of a socket.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) fill: Writer<u64>,
    pub(super) completion: Reader<u64>,
    pub(super) receive: Reader<libc::xdp_desc>,
    pub(super) send: Writer<libc::xdp_desc>,
}

/// What was found out while a path was opened.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) interface: Found,
    /// The largest unit.
    pub(super) unit: u32,
    pub(super) capabilities: Capabilities,
}

/// Opens a path and finds out what works. Long frames may come and leave in
/// several chunks, if that is allowed.
pub(super) fn open(config: &XdpConfig, allow_parts: bool) -> Result<(Opened, Link), OpenError> {
    let no_queue =
        || OpenError::NoQueue { interface: config.interface.clone(), queue: config.queue };
    open_queues(config, allow_parts, 1)?.pop().ok_or_else(no_queue)
}

/// The same for this many queues, from the configured one on, which one program feeds.
pub(super) fn open_queues(
    config: &XdpConfig,
    allow_parts: bool,
    count: u32,
) -> Result<Vec<(Opened, Link)>, OpenError> {
    let mut opened = Vec::new();
    open_while(config, allow_parts, count, &mut opened)?;
    Ok(opened)
}

/// The same for all queues that there are, from the configured one on.
pub(super) fn open_all_queues(config: &XdpConfig) -> Result<Vec<(Opened, Link)>, OpenError> {
    let mut opened = Vec::new();
    match open_while(config, false, MOST_QUEUES, &mut opened) {
        // There are no more.
        Err(OpenError::NoQueue { .. }) if !opened.is_empty() => Ok(opened),
        done => done.map(|()| opened),
    }
}

/// Opens one queue after the other, up to this many, or until one fails.
fn open_while(
    config: &XdpConfig,
    allow_parts: bool,
    count: u32,
    opened: &mut Vec<(Opened, Link)>,
) -> Result<(), OpenError> {
    check(config)?;
    // XDP sockets themselves answer no questions about interfaces.
    let asking = Socket::new(Domain::UNIX, Type::DGRAM, None)
        .map_err(failed("open a socket to ask for interfaces"))?;
    let interface = find_interface(&asking, &config.interface)?;
    let longest = interface.mtu.saturating_add(ETHERNET_HEADER as u32 + TAG);
    let fits = |chunk| longest <= Frames::received_in_one(chunk);
    let chunk = if fits(SHORT_CHUNK) { SHORT_CHUNK } else { LONG_CHUNK };
    // Where there is not even one, nothing is attached to the interface.
    let mut first = Some(make(config, chunk)?);
    let last = config.queue.saturating_add(count.saturating_sub(1));
    let map = Map::new(last).map_err(failed("make a map of sockets"))?;
    let program = Program::load(&config.framing, &map)
        .map_err(failed("load the program that redirects frames"))?;
    let (attached, in_driver) = attach_once_free(config, &program, interface.index)?;
    let redirection = Arc::new(Redirection {
        _attached: attached,
        map,
        _program: program,
        _memberships: memberships(config, &interface)?,
    });
    for queue in config.queue..=last {
        let made = first.take().map_or_else(|| make(config, chunk), Ok)?;
        let Made { socket, rings, frames } = made;
        let in_parts =
            bind(config, &socket, (interface.index, queue), allow_parts && !fits(chunk))?;
        let told = redirection.map.set(queue, socket.as_raw_fd());
        told.map_err(failed("tell the program of the socket"))?;
        let in_one = Frames::received_in_one(chunk) - ETHERNET_HEADER as u32;
        let payload = if in_parts { interface.mtu } else { interface.mtu.min(in_one) };
        let unit = payload + (ETHERNET_HEADER - config.framing.header_len()) as u32;
        let mut capabilities = capabilities(&socket, in_driver);
        if config.framing.header_len() == 0 {
            capabilities.add(Feature::RawFrames);
        }
        let redirection = Arc::clone(&redirection);
        let link = Link { interface, unit, capabilities };
        opened.push((Opened { redirection, socket, rings, frames }, link));
    }
    Ok(())
}

/// Can a path be configured so?
fn check(config: &XdpConfig) -> Result<(), OpenError> {
    match config.framing {
        Framing::Payload { ethertype } if ethertype < LEAST_ETHERTYPE => {
            return Err(OpenError::NotAnEthertype(ethertype));
        }
        Framing::Frames { station, .. } if station[0] & 1 == 1 => {
            return Err(OpenError::NotAStation(station));
        }
        _ => {}
    }
    if !config.frames.is_power_of_two() || !(64..=1 << 16).contains(&config.frames) {
        return Err(OpenError::BadFrameCount(config.frames));
    }
    Ok(())
}

/// A socket that is bound to no queue yet.
struct Made {
    socket: Socket,
    rings: Rings,
    frames: Frames,
}

fn make(config: &XdpConfig, chunk: u32) -> Result<Made, OpenError> {
    let socket = Socket::new(Domain::from(libc::AF_XDP), Type::RAW, None).map_err(why_no_socket)?;
    grow_buffers(socket.as_raw_fd(), SEND_BUFFER);
    let frames = Frames::new(config.frames, chunk).map_err(failed("make memory for the frames"))?;
    let rings = register(&socket, &frames, config.frames)?;
    Ok(Made { socket, rings, frames })
}

/// Lets the interface take the frames of the path, if it would not by itself.
fn memberships(config: &XdpConfig, interface: &Found) -> Result<Option<Socket>, OpenError> {
    let Framing::Frames { station, groups } = config.framing else { return Ok(None) };
    let own = (station != interface.station).then_some(station);
    if own.is_none() && !groups {
        return Ok(None);
    }
    // With no protocol it hears nothing itself.
    let join = || {
        let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
        let fd = socket.as_raw_fd();
        own.map_or(Ok(()), |own| join_interface(fd, interface.index, Some(own)))?;
        if groups { join_interface(fd, interface.index, None).map(|()| socket) } else { Ok(socket) }
    };
    join().map(Some).map_err(failed("let the interface take frames of the path"))
}

fn why_no_socket(error: io::Error) -> OpenError {
    match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => OpenError::NoXdpSockets,
        _ => failed("open an XDP socket")(error),
    }
}

/// Tells the kernel of the memory, makes and maps the rings, and hands over the
/// frames to receive into.
fn register(socket: &Socket, frames: &Frames, each_way: u32) -> Result<Rings, OpenError> {
    let fd = socket.as_raw_fd();
    let registration = frames.registration();
    // SAFETY: the registration names the memory of `frames`, which is this
    // process's; the kernel holds its pages as long as it uses them.
    unsafe { set_option(fd, libc::XDP_UMEM_REG, &registration) }.map_err(|source| match source
        .raw_os_error()
    {
        Some(libc::ENOBUFS | libc::ENOMEM | libc::EPERM) => {
            OpenError::LockedMemory { bytes: registration.len, source }
        }
        _ => failed("register memory for the frames")(source),
    })?;
    // The kernel hands frames over before it shows that it has taken them from
    // this ring (`xsk_flush`): in between they may come round already.
    let to_fill = 2 * each_way;
    for (kind, size) in [
        (ring::FILL, to_fill),
        (ring::COMPLETION, each_way),
        (ring::RECEIVE, each_way),
        (ring::SEND, each_way),
    ] {
        // SAFETY: a number names no memory.
        unsafe { set_option(fd, kind.option, &size) }.map_err(failed("make a ring"))?;
    }
    let map = || {
        let at = ring_offsets(fd)?;
        let borrowed = socket.as_fd();
        Ok(Rings {
            fill: Writer::map(borrowed, ring::FILL, &at.fr, to_fill)?,
            completion: Reader::map(borrowed, ring::COMPLETION, &at.cr, each_way)?,
            receive: Reader::map(borrowed, ring::RECEIVE, &at.rx, each_way)?,
            send: Writer::map(borrowed, ring::SEND, &at.tx, each_way)?,
        })
    };
    let mut rings = map().map_err(failed("map the rings"))?;
    for nth in 0..each_way {
        rings.fill.write(u64::from(nth) * u64::from(frames.chunk()));
    }
    rings.fill.show();
    Ok(rings)
}

/// Attaches the program; where another one is, which may be one whose socket was closed a moment
/// ago, it waits for that to be forgotten.
fn attach_once_free(
    config: &XdpConfig,
    program: &Program,
    index: u32,
) -> Result<(OwnedFd, bool), OpenError> {
    let started = Instant::now();
    loop {
        match attach(config, program, index) {
            Err(OpenError::ProgramInUse(_)) if started.elapsed() < FORGETTING => {
                thread::sleep(Duration::from_millis(2));
            }
            outcome => return outcome,
        }
    }
}

/// Attaches the program. Returns what keeps it there, and whether it runs in the
/// device's driver.
fn attach(config: &XdpConfig, program: &Program, index: u32) -> Result<(OwnedFd, bool), OpenError> {
    let error = |error: io::Error| match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => OpenError::ProgramInUse(config.interface.clone()),
        _ => failed("attach the program to the interface")(error),
    };
    if config.attach != Attach::Generic {
        match (program.attach(index, IN_THE_DRIVER), config.attach) {
            (Ok(attached), _) => return Ok((attached, true)),
            (Err(source), _) if is_in_use(&source) => return Err(error(source)),
            (Err(source), Attach::Driver) if source.raw_os_error() != Some(libc::EPERM) => {
                let interface = config.interface.clone();
                return Err(OpenError::NoDriverMode { interface, source });
            }
            (Err(source), Attach::Driver) => return Err(error(source)),
            (Err(_), _) => {}
        }
    }
    program.attach(index, BEFORE_THE_STACK).map(|attached| (attached, false)).map_err(error)
}

fn is_in_use(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}

/// Binds the socket to its queue. Returns whether frames may lie in several
/// chunks, if that is wanted.
fn bind(
    config: &XdpConfig,
    socket: &Socket,
    (index, queue): (u32, u32),
    in_parts: bool,
) -> Result<bool, OpenError> {
    let started = Instant::now();
    let mut parts = if in_parts { libc::XDP_USE_SG } else { 0 };
    loop {
        let flags = libc::XDP_USE_NEED_WAKEUP | parts;
        let Err(error) = bind_to(socket.as_raw_fd(), index, queue, flags) else {
            return Ok(parts != 0);
        };
        let interface = || config.interface.clone();
        match error.raw_os_error() {
            // A socket that was closed a moment ago keeps its queue until the
            // kernel comes round to it.
            Some(libc::EBUSY) if started.elapsed() < FORGETTING => {
                thread::sleep(Duration::from_millis(2));
            }
            Some(libc::EBUSY) => {
                return Err(OpenError::QueueInUse { interface: interface(), queue });
            }
            // A kernel, or a device, without frames in parts.
            Some(libc::EINVAL | libc::EOPNOTSUPP) if parts != 0 => parts = 0,
            Some(libc::EINVAL) => {
                return Err(OpenError::NoQueue { interface: interface(), queue });
            }
            _ => return Err(failed("bind to the queue")(error)),
        }
    }
}

fn capabilities(socket: &Socket, in_driver: bool) -> Capabilities {
    let mut found = Capabilities::of("xdp");
    found.add(Feature::BatchedSend);
    found.add(Feature::BatchedReceive);
    found.lack(
        Feature::DirectPlacement,
        "the kernel chooses the frame before the place is known; each payload is copied once",
    );
    found.lack(Feature::Ecn, "frames of an ethertype of their own have no IP header to mark");
    match (is_zero_copy(socket.as_raw_fd()), in_driver) {
        (Ok(true), _) => found.add(Feature::ZeroCopyRings),
        (Ok(false), true) => found.lack(
            Feature::ZeroCopyRings,
            "the device's driver runs the program, but copies; drivers of some network cards do not",
        ),
        (Ok(false), false) => found.lack(
            Feature::ZeroCopyRings,
            "the device's driver has no XDP, so the kernel's stack runs the program and copies",
        ),
        (Err(error), _) => {
            found.lack(Feature::ZeroCopyRings, format!("the kernel does not say so: {error}"));
        }
    }
    found
}

fn bind_to(fd: RawFd, index: u32, queue: u32, flags: u16) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: index,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: the address has that length, and lives through the call.
    let done = unsafe { libc::bind(fd, (&raw const address).cast(), len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn ring_offsets(fd: RawFd) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: the offsets are made of numbers, for all of which zero is good.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { mem::zeroed() };
    // SAFETY: the option writes these offsets.
    unsafe { get_option(fd, libc::XDP_MMAP_OFFSETS, &mut offsets)? };
    Ok(offsets)
}

fn is_zero_copy(fd: RawFd) -> io::Result<bool> {
    let mut options = libc::xdp_options { flags: 0 };
    // SAFETY: the option writes these flags.
    unsafe { get_option(fd, libc::XDP_OPTIONS, &mut options)? };
    Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

/// # Safety
/// The value is what the option writes: numbers, any of which are good.
unsafe fn get_option<T>(fd: RawFd, name: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_mut(value).cast();
    // SAFETY: there is room for as much as `len` says, and the caller vouches for what
    // is written there.
    let done = unsafe { libc::getsockopt(fd, libc::SOL_XDP, name, value, &raw mut len) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    if len as usize != size_of::<T>() {
        return Err(io::Error::other("the kernel is too old: Linux 5.4 or later is needed"));
    }
    Ok(())
}

/// # Safety
/// The value is what the option reads, and names no memory but this process's
/// own, which the kernel may use from now on.
unsafe fn set_option<T>(fd: RawFd, name: libc::c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: the value lives through the call, and `len` is its length.
    let done = unsafe { libc::setsockopt(fd, libc::SOL_XDP, name, value, len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
