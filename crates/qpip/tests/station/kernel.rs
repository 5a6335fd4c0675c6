//! The kernel's side of a conversation: ordinary sockets, on threads in a
//! namespace.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use landfall_testbed::{Error, Namespace, VethEnd};
use landfall_transport::Driver;
use socket2::SockRef;

use super::conversation::Pattern;
use super::{PATIENCE, Station};

/// A kernel that the station talks to.
pub struct Kernel {
    pub namespace: Namespace,
    pub ipv4: Ipv4Addr,
    pub ipv6: Ipv6Addr,
}

impl Kernel {
    /// The one at this end of a cable.
    pub fn at(end: &VethEnd) -> Self {
        Self { namespace: end.namespace.clone(), ipv4: end.ipv4, ipv6: end.ipv6 }
    }

    pub fn address(&self, is_ipv4: bool) -> IpAddr {
        if is_ipv4 { self.ipv4.into() } else { self.ipv6.into() }
    }

    /// A socket that listens on any free port.
    pub fn listen(&self, is_ipv4: bool) -> (TcpListener, SocketAddr) {
        let at = SocketAddr::new(self.address(is_ipv4), 0);
        let listener = self.namespace.enter(|| TcpListener::bind(at)).unwrap().unwrap();
        let at = listener.local_addr().unwrap();
        (listener, at)
    }

    /// Does this on a thread in the kernel's namespace.
    pub fn task<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Task<T> {
        Task(self.namespace.spawn("kernel-side", work).unwrap())
    }

    pub fn sysctl(&self, knob: &str, value: &str) {
        super::net::sysctl(&self.namespace, knob, value);
    }
}

/// What the kernel's side does meanwhile.
pub struct Task<T>(JoinHandle<Result<io::Result<T>, Error>>);

impl<T> Task<T> {
    pub fn is_over(&self) -> bool {
        self.0.is_finished()
    }

    /// Lets the station turn until it is over, and gives what came of it.
    #[track_caller]
    pub fn try_join<D: Driver>(self, station: &mut Station<D>) -> io::Result<T> {
        station.until("the kernel's side is done", |_| self.0.is_finished());
        match self.0.join() {
            Ok(outcome) => outcome.unwrap(),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    #[track_caller]
    pub fn join<D: Driver>(self, station: &mut Station<D>) -> T {
        match self.try_join(station) {
            Ok(done) => done,
            Err(error) => panic!("the kernel's side: {error}\n{}", station.describe()),
        }
    }
}

/// Waits no longer for anything than tests do.
fn bounded(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

pub fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    bounded(TcpStream::connect_timeout(&to, PATIENCE)?)
}

/// The next connection that comes in: it has to come within bounds, too.
pub fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    SockRef::from(listener).set_read_timeout(Some(PATIENCE))?;
    bounded(listener.accept()?.0)
}

/// Says so many bytes of a seed, and then that there are no more.
pub fn say(stream: &mut TcpStream, seed: u64, len: u64) -> io::Result<()> {
    say_in(stream, seed, len, 256 << 10)?;
    stream.shutdown(Shutdown::Write)
}

/// Says so many bytes of a seed, so many at a time.
pub fn say_in(stream: &mut TcpStream, seed: u64, len: u64, step: usize) -> io::Result<()> {
    let mut pattern = Pattern::new(seed);
    let mut bytes = vec![0; step];
    let mut left = len;
    while left > 0 {
        let now = left.min(step as u64) as usize;
        pattern.fill(&mut bytes[..now]);
        stream.write_all(&bytes[..now])?;
        left -= now as u64;
    }
    Ok(())
}

/// What the other side said until its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    pub len: u64,
    pub hash: blake3::Hash,
}

impl Heard {
    /// So many bytes of a seed.
    pub fn of(seed: u64, len: u64) -> Self {
        Self { len, hash: super::conversation::hash_of(seed, len) }
    }
}

/// Listens until the end.
pub fn hear(stream: &mut TcpStream) -> io::Result<Heard> {
    let mut hasher = blake3::Hasher::new();
    let mut bytes = vec![0; 256 << 10];
    let mut len = 0;
    loop {
        match stream.read(&mut bytes)? {
            0 => return Ok(Heard { len, hash: hasher.finalize() }),
            now => {
                hasher.update(&bytes[..now]);
                len += now as u64;
            }
        }
    }
}

/// Closing it resets the connection.
pub fn reset(stream: TcpStream) -> io::Result<()> {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
    drop(stream);
    Ok(())
}

/// A question, its answer, and the end.
pub fn ask(mut stream: TcpStream, number: usize) -> io::Result<()> {
    let question = number.to_be_bytes();
    stream.write_all(&question)?;
    let mut answer = [0; 8];
    stream.read_exact(&mut answer)?;
    assert_eq!(answer, question);
    stream.shutdown(Shutdown::Write)?;
    assert_eq!(stream.read(&mut answer)?, 0, "the station ends, too");
    Ok(())
}

/// Answers a question with itself, and ends: before it heard that the other side
/// did, or then.
pub fn answer(mut stream: TcpStream, ends_first: bool) -> io::Result<()> {
    let mut question = [0; 8];
    stream.read_exact(&mut question)?;
    stream.write_all(&question)?;
    if ends_first {
        stream.shutdown(Shutdown::Write)?;
    }
    assert_eq!(stream.read(&mut question)?, 0, "the station ends, too");
    Ok(())
}
