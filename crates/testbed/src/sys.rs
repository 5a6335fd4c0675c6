//! System calls that neither std nor socket2 offers, made safe one by one.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `SIOCETHTOOL` of `linux/sockios.h`.
const SIOCETHTOOL: libc::Ioctl = 0x8946;
/// `ETHTOOL_GSSET_INFO` of `linux/ethtool.h`.
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
/// The set of names of features.
const ETH_SS_FEATURES: u32 = 4;
/// Many kernels answer with all names that they have, whatever count they were given: so
/// many find room. Those of today know about 64.
pub(crate) const MOST_FEATURES: u32 = 4096;
/// Longest interface name, without its final zero (`IFNAMSIZ` - 1).
const LONGEST_NAME: usize = libc::IFNAMSIZ - 1;

/// Turns the `-1` of a system call into its error.
fn check(outcome: libc::c_int) -> io::Result<libc::c_int> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(outcome) }
}

/// Sets a socket option whose value is an `int`.
pub(crate) fn set_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the descriptor is open for the call; the value outlives it and
    // its true length is given.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// What the kernel knows about a TCP connection.
pub(crate) fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<libc::tcp_info> {
    // SAFETY: `tcp_info` is plain integers, for which zero is valid.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `info`; a shorter
    // answer leaves zeros, a longer one is cut.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut len,
        )
    })?;
    Ok(info)
}

/// What was given to a TCP socket and is not acknowledged (`SIOCOUTQ`).
pub(crate) fn unacknowledged(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut count: libc::c_int = 0;
    // SAFETY: the request writes an `int`, which lives through the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) })?;
    Ok(count.cast_unsigned())
}

/// Makes an interface of bare IP packets of an open `/dev/net/tun`.
pub(crate) fn make_tun(device: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    if name.is_empty() || name.len() > LONGEST_NAME || name.contains('\0') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: `ifreq` is plain data, for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // The flags are sixteen bits.
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the request reads and writes an `ifreq`, which lives through the call.
    check(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) }).map(drop)
}

/// A packet socket of the interface with this index: for what leaves, and for what enters
/// where it hears.
pub(crate) fn packet_socket(index: u32, hears: bool) -> io::Result<OwnedFd> {
    let protocol = if hears { (libc::ETH_P_ALL as u16).to_be() } else { 0 };
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // Without a protocol it hears nothing before it is bound, from other interfaces either.
    // SAFETY: the call takes no pointers.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: the kernel just made this descriptor for us alone.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
    // SAFETY: `sockaddr_ll` is plain integers, for which zero is valid.
    let mut at: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    at.sll_family = libc::AF_PACKET as libc::sa_family_t;
    at.sll_protocol = protocol;
    at.sll_ifindex = index.cast_signed();
    let len = size_of_val(&at) as libc::socklen_t;
    // SAFETY: the descriptor is open, and the address of that length lives through the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const at).cast(), len) })?;
    Ok(socket)
}

/// A nameless file in memory.
pub(crate) fn memory_file() -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string that outlives the call.
    let fd = check(unsafe { libc::memfd_create(c"landfall".as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: the kernel just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends up to `len` bytes of `file` from `at` without passing user space.
pub(crate) fn send_file(
    socket: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    at: usize,
    len: usize,
) -> io::Result<usize> {
    let mut offset = at as libc::off_t;
    // SAFETY: both descriptors are open for the call, and `offset` outlives
    // it; no other memory of ours is touched.
    let sent =
        unsafe { libc::sendfile(socket.as_raw_fd(), file.as_raw_fd(), &raw mut offset, len) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Receives into `bytes` with flags of `recv(2)`.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    flags: libc::c_int,
) -> io::Result<usize> {
    // SAFETY: the descriptor is open for the call, and the kernel writes at most as many
    // bytes as the buffer has.
    let got =
        unsafe { libc::recv(socket.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), flags) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// One ethtool request about `interface`, in the namespace of `socket`.
/// `command` is the request and takes the answer.
pub(crate) fn ethtool(
    socket: BorrowedFd<'_>,
    interface: &str,
    command: &mut EthtoolCommand<'_>,
) -> io::Result<usize> {
    if interface.is_empty() || interface.len() > LONGEST_NAME || interface.contains('\0') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: `ifreq` is plain data, for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = command.bytes.as_mut_ptr().cast();
    // SAFETY: the request and the buffer behind it outlive the call, and there is room
    // in the buffer for the longest answer: `EthtoolCommand`'s constructors see to it.
    let outcome = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    check(outcome).map(|value| value as usize)
}

/// What can be asked about the features of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Features {
    /// The names of all, of which there are that many.
    Names(u32),
    /// The states of this many blocks of 32.
    Get(u32),
    /// The same, to be changed.
    Set(u32),
}

impl Features {
    /// The words before the items.
    pub(crate) fn header(self) -> Vec<u32> {
        match self {
            Self::Names(count) => vec![ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count],
            Self::Get(blocks) => vec![ETHTOOL_GFEATURES, blocks],
            Self::Set(blocks) => vec![ETHTOOL_SFEATURES, blocks],
        }
    }

    /// How long an item is.
    pub(crate) const fn item_len(self) -> usize {
        match self {
            // ETH_GSTRING_LEN
            Self::Names(_) => 32,
            // struct ethtool_get_features_block: four words.
            Self::Get(_) => 16,
            // struct ethtool_set_features_block: two words.
            Self::Set(_) => 8,
        }
    }

    /// How long the answer is at most.
    pub(crate) fn len(self) -> usize {
        let items = match self {
            Self::Names(count) => count.max(MOST_FEATURES),
            Self::Get(blocks) | Self::Set(blocks) => blocks,
        };
        size_of_val(&*self.header()) + items as usize * self.item_len()
    }
}

/// A request whose answer is sure to lie within its buffer.
#[derive(Debug)]
pub(crate) struct EthtoolCommand<'a> {
    bytes: &'a mut [u8],
}

impl<'a> EthtoolCommand<'a> {
    /// About features: the items stand behind the header in `bytes`.
    ///
    /// # Errors
    /// The buffer has no room for the answer.
    pub(crate) fn features(
        bytes: &'a mut [u8],
        request: Features,
    ) -> io::Result<EthtoolCommand<'a>> {
        if bytes.len() < request.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (to, word) in bytes.chunks_exact_mut(4).zip(request.header()) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        Ok(EthtoolCommand { bytes })
    }

    /// `ETHTOOL_GSSET_INFO`: how many features there are. The
    /// answer is one word per set asked for, and one is.
    pub(crate) fn feature_count(bytes: &'a mut [u8; 20]) -> EthtoolCommand<'a> {
        bytes[..4].copy_from_slice(&ETHTOOL_GSSET_INFO.to_ne_bytes());
        bytes[8..16].copy_from_slice(&(1u64 << ETH_SS_FEATURES).to_ne_bytes());
        EthtoolCommand { bytes }
    }
}

/// Pins the calling thread to one core.
pub(crate) fn set_affinity(core: usize) -> io::Result<()> {
    if core >= libc::CPU_SETSIZE as usize {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: `cpu_set_t` is a bit array, for which zero is valid, and `core`
    // lies within it.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        set
    };
    // SAFETY: the set outlives the call and its true size is given.
    check(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) }).map(drop)
}

/// The cores on which the calling thread may run.
pub(crate) fn affinity() -> io::Result<Vec<usize>> {
    // SAFETY: `cpu_set_t` is a bit array, for which zero is valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most the given size into the set.
    check(unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) })?;
    // SAFETY: the index stays below the number of bits in the set.
    let may = |core: &usize| unsafe { libc::CPU_ISSET(*core, &set) };
    Ok((0..libc::CPU_SETSIZE as usize).filter(may).collect())
}

/// Lets the calling thread run only where nobody else wants to (`SCHED_IDLE`).
pub(crate) fn run_when_idle() -> io::Result<()> {
    // SAFETY: `sched_param` is plain integers, for which zero is valid: the lowest priority.
    // Some C libraries have more of them than the one.
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the structure outlives the call, which only reads it.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) }).map(drop)
}

/// What a thread or a process has used so far.
pub(crate) fn resource_usage(who: libc::c_int) -> io::Result<libc::rusage> {
    // SAFETY: `rusage` is plain integers, for which zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the structure, which outlives the call.
    check(unsafe { libc::getrusage(who, &raw mut usage) })?;
    Ok(usage)
}

/// Ticks per second in `/proc/stat` (`USER_HZ`).
pub(crate) fn user_hz() -> f64 {
    // SAFETY: `sysconf` takes no pointers.
    let hz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    // It is 100 on every Linux of today, and a failure is not documented.
    if hz > 0 { hz as f64 } else { 100.0 }
}

/// Waits for many sockets at once, level-triggered.
#[derive(Debug)]
pub(crate) struct Epoll {
    fd: OwnedFd,
    ready: Vec<libc::epoll_event>,
}

impl Epoll {
    /// Tells of at most this many sockets at a time.
    pub(crate) fn new(most: usize) -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel just made this descriptor for us alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, ready: vec![libc::epoll_event { events: 0, u64: 0 }; most.max(1)] })
    }

    /// Watches a socket for these events (`EPOLLIN`, `EPOLLOUT`), by this name.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, name: u64, events: libc::c_int) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: name };
        // SAFETY: both descriptors are open for the call, and the event outlives it.
        check(unsafe {
            libc::epoll_ctl(
                self.fd.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                fd.as_raw_fd(),
                &raw mut event,
            )
        })
        .map(drop)
    }

    /// Watches it no more.
    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: both descriptors are open for the call; no event is needed to remove one.
        check(unsafe {
            libc::epoll_ctl(
                self.fd.as_raw_fd(),
                libc::EPOLL_CTL_DEL,
                fd.as_raw_fd(),
                std::ptr::null_mut(),
            )
        })
        .map(drop)
    }

    /// The names of those that are ready, after a wait of at most this many milliseconds.
    pub(crate) fn wait(&mut self, most_ms: u16) -> io::Result<impl Iterator<Item = u64> + '_> {
        // SAFETY: the kernel writes at most as many events as the buffer has, and it
        // outlives the call.
        let count = check(unsafe {
            libc::epoll_wait(
                self.fd.as_raw_fd(),
                self.ready.as_mut_ptr(),
                self.ready.len().min(i32::MAX as usize) as libc::c_int,
                most_ms.into(),
            )
        })?;
        Ok(self.ready[..count as usize].iter().map(|event| event.u64))
    }
}

/// Loads a program of XDP, a whole number of instructions, and attaches it to an interface of
/// the calling thread's namespace, in the interface's driver. It stays until the descriptor is
/// closed.
pub(crate) fn attach_xdp(interface: u32, program: &[u8]) -> io::Result<OwnedFd> {
    /// The commands, `BPF_PROG_TYPE_XDP` and the attach type `BPF_XDP` of `linux/bpf.h`.
    const PROG_LOAD: libc::c_long = 5;
    const LINK_CREATE: libc::c_long = 28;
    const PROG_TYPE_XDP: u32 = 6;
    const ATTACH_TYPE_XDP: u32 = 37;
    /// The program looks at no bytes, so that frames may be in several pieces.
    const HAS_FRAGS: u32 = 1 << 5;
    /// `XDP_FLAGS_DRV_MODE` of `linux/if_link.h`.
    const IN_DRIVER: u32 = 1 << 2;
    const INSTRUCTION: usize = 8;

    /// The beginning of `union bpf_attr` for `BPF_PROG_LOAD`.
    #[repr(C)]
    struct Load {
        prog_type: u32,
        insn_cnt: u32,
        insns: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log_buf: u64,
        kern_version: u32,
        prog_flags: u32,
        prog_name: [u8; 16],
        prog_ifindex: u32,
        expected_attach_type: u32,
    }

    /// The same for `BPF_LINK_CREATE`.
    #[repr(C)]
    struct Create {
        prog_fd: u32,
        target_ifindex: u32,
        attach_type: u32,
        flags: u32,
    }

    let load = Load {
        prog_type: PROG_TYPE_XDP,
        insn_cnt: (program.len() / INSTRUCTION) as u32,
        insns: program.as_ptr().expose_provenance() as u64,
        license: c"MIT".as_ptr().expose_provenance() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: HAS_FRAGS,
        prog_name: *b"landfall_loss\0\0\0",
        prog_ifindex: 0,
        expected_attach_type: ATTACH_TYPE_XDP,
    };
    // SAFETY: the structure is the beginning of what the command reads; the instructions,
    // of which there are as many as it says, and the licence live through the call.
    let program = unsafe { bpf(PROG_LOAD, &load) }?;
    let create = Create {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        target_ifindex: interface,
        attach_type: ATTACH_TYPE_XDP,
        flags: IN_DRIVER,
    };
    // SAFETY: the structure is the beginning of what the command reads, and names no memory.
    unsafe { bpf(LINK_CREATE, &create) }
}

/// A command of `bpf(2)` that opens something.
///
/// # Safety
/// The attributes are what the command reads, or the beginning of it; what they name lives
/// through the call.
unsafe fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    let attributes = std::ptr::from_ref(attributes);
    // SAFETY: the structure lives through the call, and its length is told; the kernel takes
    // what is behind it for zeros. The caller vouches for the rest.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    let fd = check(fd as libc::c_int)?;
    // SAFETY: the kernel just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
