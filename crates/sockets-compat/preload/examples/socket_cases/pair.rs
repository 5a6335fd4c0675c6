//! Two ends of a TCP connection, and what their calls give.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::zeroed;
use std::net::Ipv4Addr;
use std::ptr::{from_mut, from_ref};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What a case has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen(Vec<String>);

impl Seen {
    pub(crate) fn lines(&self) -> &[String] {
        &self.0
    }

    /// Something worth comparing.
    pub(crate) fn note(&mut self, what: &str, value: impl std::fmt::Debug) {
        self.0.push(format!("{what} = {value:?}"));
    }

    /// What a call gave: a number, or the name of the reason.
    pub(crate) fn call(&mut self, what: &str, result: isize) -> isize {
        let text = told(result);
        self.0.push(format!("{what} = {text}"));
        result
    }
}

/// A result as text.
pub(crate) fn told(result: isize) -> String {
    if result >= 0 {
        return result.to_string();
    }
    let number = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    let name = match number {
        libc::EAGAIN => "EAGAIN",
        libc::EPIPE => "EPIPE",
        libc::ECONNRESET => "ECONNRESET",
        libc::EINTR => "EINTR",
        libc::EBADF => "EBADF",
        libc::EINVAL => "EINVAL",
        libc::ENOTCONN => "ENOTCONN",
        libc::EISCONN => "EISCONN",
        libc::ECONNREFUSED => "ECONNREFUSED",
        libc::EEXIST => "EEXIST",
        libc::ENOENT => "ENOENT",
        libc::ENOTSOCK => "ENOTSOCK",
        libc::EINPROGRESS => "EINPROGRESS",
        _ => return format!("error {number}"),
    };
    name.to_owned()
}

/// A connection within this process.
#[derive(Debug)]
pub(crate) struct Pair {
    /// Called.
    pub(crate) a: c_int,
    /// Was called.
    pub(crate) b: c_int,
}

/// An address that somebody has chosen.
fn place(variable: &str) -> Option<Ipv4Addr> {
    std::env::var(variable).ok().map(|text| text.parse().expect("an address"))
}

static SETTLED: AtomicU32 = AtomicU32::new(0);

/// Between hosts nothing comes at once, not even what came by shared memory within one:
/// where that is so, what was done has a moment to arrive.
pub(crate) fn settle() {
    /// Who does this more often does not look at each.
    const OFTEN: u32 = 12;
    if SETTLED.fetch_add(1, Ordering::Relaxed) < OFTEN {
        rest();
    }
}

fn rest() {
    if let Ok(time) = std::env::var("CASES_SETTLE_MS") {
        let time = time.parse().expect("a number");
        std::thread::sleep(Duration::from_millis(time));
    }
}

/// From here on this process must not sleep where it did not say so.
pub(crate) fn settle_no_more() {
    SETTLED.store(u32::MAX / 2, Ordering::Relaxed);
}

pub(crate) fn listener() -> (c_int, libc::sockaddr_in) {
    // SAFETY: addresses and numbers of our own.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        let mut address: libc::sockaddr_in = zeroed();
        address.sin_family = libc::AF_INET as u16;
        address.sin_addr.s_addr =
            place("CASES_AT").unwrap_or(Ipv4Addr::LOCALHOST).to_bits().to_be();
        let mut len = size_of::<libc::sockaddr_in>() as u32;
        assert_eq!(libc::bind(fd, from_ref(&address).cast(), len), 0);
        assert_eq!(libc::listen(fd, 16), 0);
        assert_eq!(libc::getsockname(fd, from_mut(&mut address).cast(), &mut len), 0);
        (fd, address)
    }
}

pub(crate) fn call_up(address: &libc::sockaddr_in) -> c_int {
    // SAFETY: an address of our own.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        let len = size_of::<libc::sockaddr_in>() as u32;
        if let Some(from) = place("CASES_FROM") {
            let mut own: libc::sockaddr_in = zeroed();
            own.sin_family = libc::AF_INET as u16;
            own.sin_addr.s_addr = from.to_bits().to_be();
            assert_eq!(libc::bind(fd, from_ref(&own).cast(), len), 0);
        }
        assert_eq!(libc::connect(fd, from_ref(address).cast(), len), 0);
        fd
    }
}

/// The port of this end.
pub(crate) fn port_of(fd: c_int) -> u16 {
    // SAFETY: an address of zeros is one without a family, and there is room for one.
    unsafe {
        let mut address: libc::sockaddr_in = zeroed();
        let mut len = size_of::<libc::sockaddr_in>() as u32;
        assert_eq!(libc::getsockname(fd, from_mut(&mut address).cast(), &mut len), 0);
        u16::from_be(address.sin_port)
    }
}

/// Not one of the cases: writes over its arguments and its environment, as servers do that
/// show in lists of processes what they are about, and then uses a connection.
pub(crate) fn with_a_title() {
    unsafe extern "C" {
        static environ: *const *mut std::ffi::c_char;
        static program_invocation_name: *mut std::ffi::c_char;
    }
    // SAFETY: strings of this process that nobody else uses: there is one thread.
    unsafe {
        let mut strings = vec![program_invocation_name];
        let mut next = environ;
        while !(*next).is_null() {
            strings.push(*next);
            next = next.add(1);
        }
        for string in strings {
            libc::memset(string.cast(), i32::from(b'x'), libc::strlen(string));
        }
    }
    Pair::used().close();
}

/// Not one of the cases: words for somebody in another process, who sends them back.
pub(crate) fn echoed_by(port: u16) {
    // SAFETY: an address of zeros is one without a family.
    let mut address: libc::sockaddr_in = unsafe { zeroed() };
    address.sin_family = libc::AF_INET as u16;
    address.sin_addr.s_addr = u32::from_be_bytes([127, 0, 0, 1]).to_be();
    address.sin_port = port.to_be();
    let fd = call_up(&address);
    for turn in 0..100_u8 {
        assert_eq!(send(fd, &[turn; 9], 0), 9);
        let mut bytes = [0; 9];
        assert_eq!(recv(fd, &mut bytes, libc::MSG_WAITALL), 9);
        assert_eq!(bytes, [turn; 9]);
    }
    close(fd);
}

impl Pair {
    /// Just connected: not a byte has gone.
    pub(crate) fn fresh() -> Self {
        SETTLED.store(0, Ordering::Relaxed);
        let (listener, address) = listener();
        let a = call_up(&address);
        // SAFETY: numbers.
        let b = unsafe { libc::accept(listener, std::ptr::null_mut(), std::ptr::null_mut()) };
        assert!(b >= 0);
        close(listener);
        Self { a, b }
    }

    /// A word was exchanged, and the end that called is about to say another: within a host memory
    /// is offered now, and nobody has looked for it yet.
    pub(crate) fn offered() -> Self {
        let pair = Self::fresh();
        pair.exchange(pair.a, pair.b);
        pair.exchange(pair.b, pair.a);
        send(pair.a, b"", 0);
        pair
    }

    /// Some words were exchanged: ends that know each other's ways have found them.
    pub(crate) fn used() -> Self {
        let pair = Self::fresh();
        for _ in 0..4 {
            pair.exchange(pair.a, pair.b);
            pair.exchange(pair.b, pair.a);
        }
        pair.until_shared(&[pair.a, pair.b], || {
            pair.exchange(pair.a, pair.b);
            pair.exchange(pair.b, pair.a);
        });
        pair.expect_shared(pair.a);
        pair.expect_shared(pair.b);
        pair
    }

    /// Between hosts the ends find each other a little later than within one: goes on until
    /// they have, or for long enough.
    pub(crate) fn until_shared(&self, ends: &[c_int], mut step: impl FnMut()) {
        const LONG_ENOUGH: Duration = Duration::from_secs(10);
        let is_far = std::env::var_os("EXPECT_SHARED").is_some() && place("CASES_FROM").is_some();
        let begin = Instant::now();
        while is_far && ends.iter().any(|end| is_shared(*end) != 3) && begin.elapsed() < LONG_ENOUGH
        {
            step();
        }
    }

    /// Where we are told to, sees to it that this end is memory both ways by now.
    pub(crate) fn expect_shared(&self, end: c_int) {
        if std::env::var_os("EXPECT_SHARED").is_some() {
            assert_eq!(is_shared(end), 3, "{end} of {self:?} is not shared");
        }
    }

    /// Whether it is memory both ways, as both ends have it.
    pub(crate) fn is_shared(&self) -> bool {
        is_shared(self.a) == 3 && is_shared(self.b) == 3
    }

    /// The same of what this end sends, within a host.
    pub(crate) fn expect_sends_by_memory(end: c_int) {
        if std::env::var_os("EXPECT_SHARED").is_some() && place("CASES_FROM").is_none() {
            assert_eq!(is_shared(end) & 1, 1, "{end} does not send by memory");
        }
    }

    pub(crate) fn exchange(&self, from: c_int, to: c_int) {
        assert_eq!(send(from, b"word", 0), 4);
        let mut word = [0; 4];
        assert_eq!(recv(to, &mut word, 0), 4);
        assert_eq!(&word, b"word");
    }

    pub(crate) fn close(self) {
        close(self.a);
        close(self.b);
    }
}

/// Asks the library, if it is there.
fn is_shared(fd: c_int) -> c_int {
    // SAFETY: the function has this type where it exists.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"landfall_is_shared".as_ptr());
        if found.is_null() {
            return 0;
        }
        std::mem::transmute::<*mut c_void, extern "C" fn(c_int) -> c_int>(found)(fd)
    }
}

pub(crate) fn send(fd: c_int, bytes: &[u8], flags: c_int) -> isize {
    let sent = send_at_once(fd, bytes, flags);
    settle();
    sent
}

fn send_at_once(fd: c_int, bytes: &[u8], flags: c_int) -> isize {
    // SAFETY: a slice, here and below.
    unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags | libc::MSG_NOSIGNAL) }
}

pub(crate) fn recv(fd: c_int, into: &mut [u8], flags: c_int) -> isize {
    // SAFETY: memory and numbers of this case.
    unsafe { libc::recv(fd, into.as_mut_ptr().cast(), into.len(), flags) }
}

pub(crate) fn close(fd: c_int) {
    // SAFETY: memory and numbers of this case.
    unsafe { libc::close(fd) };
    settle();
}

pub(crate) fn set_nonblocking(fd: c_int) {
    // SAFETY: memory and numbers of this case.
    unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) };
}

/// Sends until no more fits, without waiting; how many bytes.
pub(crate) fn fill(fd: c_int) -> usize {
    fill_with(fd, &[7_u8; 65_536])
}

/// The same, piece by piece.
pub(crate) fn fill_with(fd: c_int, piece: &[u8]) -> usize {
    let (mut sum, mut before) = (0, 0);
    loop {
        match send_at_once(fd, piece, libc::MSG_DONTWAIT) {
            -1 if sum == before => return sum,
            -1 => {
                // Somebody on the way may have made room, were it the kernel at the other end.
                before = sum;
                std::thread::sleep(Duration::from_millis(2));
                rest();
            }
            sent => sum += sent as usize,
        }
    }
}

/// Receives what there is, without waiting; how many bytes.
pub(crate) fn drain(fd: c_int) -> usize {
    let mut piece = vec![0; 65_536];
    let mut sum = 0;
    loop {
        match recv(fd, &mut piece, libc::MSG_DONTWAIT) {
            -1 | 0 => return sum,
            got => sum += got as usize,
        }
    }
}

/// Until this many bytes have come: TCP takes a moment, even within one machine.
pub(crate) fn wait_for(fd: c_int, bytes: c_int) {
    let mut here = 0;
    while here < bytes {
        // SAFETY: a place for a number.
        unsafe { libc::ioctl(fd, libc::FIONREAD, &mut here) };
        std::thread::yield_now();
    }
}

/// What `poll` says now, by name.
pub(crate) fn poll_bits(fd: c_int, events: i16, milliseconds: c_int) -> String {
    let mut entry = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one entry.
    let result = unsafe { libc::poll(&mut entry, 1, milliseconds) };
    if result < 0 { told(-1) } else { names(u32::from(entry.revents.cast_unsigned())) }
}

/// The bits of `poll` and `epoll` by name.
pub(crate) fn names(bits: u32) -> String {
    let known = [
        (libc::POLLIN, "IN"),
        (libc::POLLPRI, "PRI"),
        (libc::POLLOUT, "OUT"),
        (libc::POLLERR, "ERR"),
        (libc::POLLHUP, "HUP"),
        (libc::POLLNVAL, "NVAL"),
        (libc::POLLRDHUP, "RDHUP"),
    ];
    let is_set = |bit: i16| bits & u32::from(bit.cast_unsigned()) != 0;
    let set: Vec<_> = known.iter().filter(|(bit, _)| is_set(*bit)).map(|(_, name)| *name).collect();
    if set.is_empty() { "nothing".to_owned() } else { set.join("|") }
}
