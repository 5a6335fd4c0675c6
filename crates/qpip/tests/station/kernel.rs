//! The kernel's side of a conversation: ordinary sockets, on threads in a
//! namespace.
//!
//! The server's side of `iperf3`, as its source (`iperf_api.h`, version 3) has
//! the conversation: one connection for control, and one for data.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::Duration;

use landfall_testbed::{Error, Namespace, VethEnd};
use landfall_transport::Driver;
use socket2::SockRef;

use super::conversation::{Pattern, Program, Say};
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

/// Says this many bytes of a seed, and then that there are no more.
pub fn say(stream: &mut TcpStream, seed: u64, len: u64) -> io::Result<()> {
    say_in(stream, seed, len, 256 << 10)?;
    stream.shutdown(Shutdown::Write)
}

/// Says this many bytes of a seed, this many at a time.
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
pub struct Received {
    pub len: u64,
    pub hash: blake3::Hash,
}

impl Received {
    /// This many bytes of a seed.
    pub fn of(seed: u64, len: u64) -> Self {
        Self { len, hash: super::conversation::hash_of(seed, len) }
    }
}

/// Listens until the end.
pub fn hear(stream: &mut TcpStream) -> io::Result<Received> {
    let mut hasher = blake3::Hasher::new();
    let mut bytes = vec![0; 256 << 10];
    let mut len = 0;
    loop {
        match stream.read(&mut bytes)? {
            0 => return Ok(Received { len, hash: hasher.finalize() }),
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

const COOKIE: usize = 37;
const TEST_START: u8 = 1;
const TEST_RUNNING: u8 = 2;
const TEST_END: u8 = 4;
const PARAM_EXCHANGE: u8 = 9;
const CREATE_STREAMS: u8 = 10;
const EXCHANGE_RESULTS: u8 = 13;
const DISPLAY_RESULTS: u8 = 14;
const IPERF_DONE: u8 = 16;

/// How far the control conversation is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    #[default]
    Cookie,
    Parameters,
    Streams,
    Running,
    Results,
    Done,
    Over,
}

/// What the two connections of a test share.
#[derive(Debug, Default)]
pub struct Test {
    pub stage: Stage,
    cookie: Vec<u8>,
    /// The server sends.
    pub is_reverse: bool,
    /// Bytes of data that came.
    pub received: u64,
}

/// One of the connections: the first is for control.
pub struct Connection {
    test: Rc<RefCell<Test>>,
    is_control: bool,
    heard: Vec<u8>,
    to_say: Vec<u8>,
    is_known: bool,
}

impl Connection {
    pub fn control(test: &Rc<RefCell<Test>>) -> Self {
        Self::new(test, true)
    }

    pub fn data(test: &Rc<RefCell<Test>>) -> Self {
        Self::new(test, false)
    }

    fn new(test: &Rc<RefCell<Test>>, is_control: bool) -> Self {
        let test = Rc::clone(test);
        Self { test, is_control, heard: Vec::new(), to_say: Vec::new(), is_known: false }
    }

    /// This many bytes, once they are there.
    fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        (self.heard.len() >= len).then(|| self.heard.drain(..len).collect())
    }

    /// A text behind its length.
    fn take_text(&mut self) -> Option<String> {
        let len = u32::from_be_bytes(*self.heard.first_chunk()?) as usize;
        let bytes = self.take(4 + len)?;
        Some(String::from_utf8_lossy(&bytes[4..]).into_owned())
    }

    /// Goes on as far as what was heard allows.
    fn advance(&mut self) -> Option<()> {
        let stage = self.test.borrow().stage;
        let next = match stage {
            Stage::Cookie => {
                self.test.borrow_mut().cookie = self.take(COOKIE)?;
                self.to_say.push(PARAM_EXCHANGE);
                Stage::Parameters
            }
            Stage::Parameters => {
                let text = self.take_text()?;
                let text: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
                self.test.borrow_mut().is_reverse = text.contains("\"reverse\":true");
                self.to_say.push(CREATE_STREAMS);
                Stage::Streams
            }
            // The connection for data goes on from here.
            Stage::Streams => return None,
            Stage::Running => {
                assert_eq!(self.take(1)?, [TEST_END]);
                self.to_say.push(EXCHANGE_RESULTS);
                Stage::Results
            }
            Stage::Results => {
                self.take_text()?;
                let bytes = self.test.borrow().received;
                let text = format!(
                    "{{\"cpu_util_total\":1,\"cpu_util_user\":1,\"cpu_util_system\":1,\
                      \"sender_has_retransmits\":0,\"streams\":[{{\"id\":1,\"bytes\":{bytes},\
                      \"retransmits\":0,\"jitter\":0,\"errors\":0,\"packets\":0,\
                      \"start_time\":0,\"end_time\":1}}]}}"
                );
                self.to_say.extend((text.len() as u32).to_be_bytes());
                self.to_say.extend(text.bytes());
                self.to_say.push(DISPLAY_RESULTS);
                Stage::Done
            }
            Stage::Done => {
                assert_eq!(self.take(1)?, [IPERF_DONE]);
                Stage::Over
            }
            Stage::Over => return None,
        };
        self.test.borrow_mut().stage = next;
        Some(())
    }
}

impl Program for Connection {
    fn say(&mut self, into: &mut [u8]) -> Say {
        let (stage, is_reverse) = (self.test.borrow().stage, self.test.borrow().is_reverse);
        if !self.is_control {
            return match stage {
                Stage::Running if is_reverse && self.is_known => {
                    into.fill(0x5a);
                    Say::Bytes(into.len())
                }
                // The client reads whole blocks until there are no more.
                Stage::Results | Stage::Done | Stage::Over => Say::End,
                _ => Say::Nothing,
            };
        }
        if stage == Stage::Running && !self.is_known {
            self.is_known = true;
            self.to_say.extend([TEST_START, TEST_RUNNING]);
        }
        let now = self.to_say.len().min(into.len());
        into[..now].copy_from_slice(&self.to_say[..now]);
        self.to_say.drain(..now);
        match now {
            0 if stage == Stage::Over => Say::End,
            0 => Say::Nothing,
            _ => Say::Bytes(now),
        }
    }

    fn hear(&mut self, bytes: &[u8]) {
        if self.is_control {
            self.heard.extend(bytes);
            while self.advance().is_some() {}
            return;
        }
        if self.is_known {
            self.test.borrow_mut().received += bytes.len() as u64;
            return;
        }
        self.heard.extend(bytes);
        if let Some(cookie) = self.take(COOKIE) {
            let mut test = self.test.borrow_mut();
            assert_eq!(cookie, test.cookie, "the data of another test");
            (test.stage, self.is_known) = (Stage::Running, true);
            test.received += self.heard.len() as u64;
        }
    }
}
