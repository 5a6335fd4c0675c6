//! The connection by which both programs agree on what is measured: one JSON object a line.
//!
//! Whatever comes in here came from a network: lines are bounded, waits too, and what makes
//! no sense ends the connection.
//!
//! One test, both sides of which are under way: ours on a thread of its own, while this one
//! carries the news between the two.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use landfall_placement::Peer;
use serde::{Deserialize, Serialize};
use socket2::{SockRef, TcpKeepalive};

use super::half::{self, Half, Open, PATIENCE, Test, TestSide};
use crate::machine::{self, Interface};
use crate::workload::Role;
use crate::workload::side::{OtherSideEnded, RemoteSide, Rendezvous, RunState, Update};

/// What both must speak.
pub(super) const PROTOCOL: u32 = 3;
/// Where a server listens if nobody says otherwise.
pub(super) const PORT: u16 = 7337;
/// Longer lines are none of ours.
const LONGEST_LINE: u64 = 64 << 10;
/// This many words may wait to be dealt with.
const WAITING: usize = 256;
/// A word that nobody takes for so long is lost, and so is the connection.
const TO_SAY: Duration = Duration::from_secs(5);
/// A peer that is gone without a word is missed after three of these.
const ALIVE: Duration = Duration::from_secs(5);

/// What one program says to the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(super) enum ControlMessage {
    /// The first of both.
    Hello {
        landfall_perf: u32,
        version: String,
    },
    /// What a server can do, and what it runs on. `boot` tells machines apart, and kernels
    /// of one machine.
    Offer {
        protocols: Vec<String>,
        machine: serde_json::Value,
        interface: Option<Interface>,
        boot: Option<String>,
    },
    /// It will not, or could not, and why.
    Refused {
        reason: String,
    },
    /// What is measured next.
    Test(Test),
    /// The name of a side; none once it is ready.
    Met {
        name: Option<SocketAddr>,
    },
    Over,
    /// What a side has to say when a test is done.
    Done(Half),
}

/// Which run of which kernel this is.
pub(super) fn boot() -> Option<String> {
    machine::first_line("/proc/sys/kernel/random/boot_id")
}

impl ControlMessage {
    pub(super) fn hello() -> Self {
        Self::Hello { landfall_perf: PROTOCOL, version: env!("CARGO_PKG_VERSION").into() }
    }

    fn of(news: Update) -> Self {
        match news {
            Update::Met(Some(Peer::Socket(name))) => Self::Met { name: Some(name) },
            // No other kind of name is met here.
            Update::Met(_) => Self::Met { name: None },
            Update::Over => Self::Over,
        }
    }
}

/// What happens while one waits.
#[derive(Debug)]
pub(super) enum ControlEvent {
    /// The other program said something.
    Said(ControlMessage),
    /// It says nothing any more.
    Gone(String),
    /// A side of ours has news for the other.
    Update(Update),
    /// A side of ours is done.
    Ended,
}

/// One end of the connection.
#[derive(Debug)]
pub(super) struct Control {
    stream: TcpStream,
    writer: Mutex<()>,
    happen: SyncSender<ControlEvent>,
    happening: Receiver<ControlEvent>,
    local: IpAddr,
    remote: SocketAddr,
}

/// An address as its own family writes it: where a server listens by IPv6 for both, clients
/// by IPv4 look like IPv6, and no path of IPv4 leads from or to such an address.
pub(super) fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl Control {
    /// Over a connection that was made.
    pub(super) fn over(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(TO_SAY))?;
        let alive = TcpKeepalive::new().with_time(ALIVE).with_interval(ALIVE).with_retries(3);
        SockRef::from(&stream).set_tcp_keepalive(&alive)?;
        let (local, remote) = (plain(stream.local_addr()?).ip(), plain(stream.peer_addr()?));
        let (happen, happening) = sync_channel(WAITING);
        let (reader, tell) = (stream.try_clone()?, happen.clone());
        thread::Builder::new()
            .name("landfall-control".into())
            .spawn(move || listen(reader, &tell))
            .context("cannot start a thread")?;
        Ok(Self { stream, writer: Mutex::new(()), happen, happening, local, remote })
    }

    pub(super) fn local(&self) -> IpAddr {
        self.local
    }

    pub(super) fn remote(&self) -> SocketAddr {
        self.remote
    }

    pub(super) fn say(&self, word: &ControlMessage) -> Result<()> {
        let mut line = serde_json::to_vec(word)?;
        line.push(b'\n');
        // Whole lines, no matter who speaks.
        let _turn = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        (&self.stream).write_all(&line).with_context(|| format!("{} is gone", self.remote))
    }

    /// The next that happens within a time; nothing if nothing does.
    pub(super) fn next(&self, within: Duration) -> Option<ControlEvent> {
        match self.happening.recv_timeout(within) {
            Ok(happening) => Some(happening),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                Some(ControlEvent::Gone("nobody listens".into()))
            }
        }
    }

    /// The next word, where nothing else can happen.
    pub(super) fn hear(&self, within: Duration) -> Result<ControlMessage> {
        match self.next(within) {
            Some(ControlEvent::Said(word)) => Ok(word),
            Some(ControlEvent::Gone(why)) => Err(anyhow!("{}: {why}", self.remote)),
            Some(other) => bail!("{}: out of step: {other:?}", self.remote),
            None => bail!("{} said nothing for {within:?}", self.remote),
        }
    }

    /// Takes part in what happens, from another thread.
    pub(super) fn happen(&self) -> SyncSender<ControlEvent> {
        self.happen.clone()
    }

    /// Where a side of ours puts its news for the other.
    pub(super) fn remote_side(&self) -> RemoteSide {
        let happen = self.happen.clone();
        RemoteSide::new(move |news| {
            // Nobody listens any more: then nobody needs to know.
            let _ = happen.send(ControlEvent::Update(news));
        })
    }

    /// Tells the other side what a side of ours has for it.
    pub(super) fn pass_on(&self, news: Update) -> Result<()> {
        self.say(&ControlMessage::of(news))
    }

    /// Ends it from another thread, whatever goes on.
    pub(super) fn ender(&self) -> Result<CloseHandle> {
        Ok(CloseHandle(Arc::new(self.stream.try_clone()?)))
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // The thread that reads ends by this; who is gone needs no telling.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Ends a connection.
#[derive(Clone, Debug)]
pub(super) struct CloseHandle(Arc<TcpStream>);

impl CloseHandle {
    pub(super) fn end(&self) {
        // It may have ended before.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// Reads line after line until the connection ends, or nobody takes them.
fn listen(stream: TcpStream, tell: &SyncSender<ControlEvent>) {
    let mut reader = BufReader::new(stream);
    loop {
        let happening = match read_word(&mut reader) {
            Ok(word) => ControlEvent::Said(word),
            Err(error) => ControlEvent::Gone(format!("{error:#}")),
        };
        let is_over = matches!(happening, ControlEvent::Gone(_));
        if tell.send(happening).is_err() || is_over {
            return;
        }
    }
}

fn read_word(reader: &mut impl BufRead) -> Result<ControlMessage> {
    let mut line = Vec::new();
    reader.take(LONGEST_LINE).read_until(b'\n', &mut line).context("the connection broke")?;
    if line.is_empty() {
        bail!("it went away");
    }
    if line.last() != Some(&b'\n') {
        bail!("it does not speak our language: a line has no end");
    }
    serde_json::from_slice(&line).context("it does not speak our language")
}

/// Why a test gave nothing.
#[derive(Debug)]
pub(super) enum Failure {
    /// This test went wrong; the next may go well.
    Test(anyhow::Error),
    /// There is nobody to measure with any more.
    Connection(anyhow::Error),
}

/// Does our half, and gives both.
pub(super) fn conduct(control: &Control, test: &Test, role: Role) -> Result<(Half, Half), Failure> {
    let plan = half::plan(test, role, control).map_err(Failure::Test)?;
    let (open, shared) = (Open::default(), RunState::with_remote(control.remote_side()));
    let (mut meeting, met) = Rendezvous::with_remote(control.remote_side(), PATIENCE);
    let happen = control.happen();
    let (hears, leaves) = (&shared, &open);
    thread::scope(|scope| {
        let work = move || {
            let half = {
                let _end = hears.end_when_dropped();
                let (meeting, shared, open) = (&mut meeting, hears, leaves);
                half::run(&mut TestSide { test, role, plan, meeting, shared, open })
            };
            // Nobody listens any more: then nobody needs to know.
            let _ = happen.send(ControlEvent::Ended);
            half
        };
        let ours = thread::Builder::new().name("landfall-half".into()).spawn_scoped(scope, work);
        let ours = ours.context("cannot start a thread").map_err(Failure::Test)?;
        let carrier = Carrier {
            control,
            shared: &shared,
            open: &open,
            met: Some(met),
            is_datagrams: test.latency && test.kind == super::half::Kind::Udp,
            until: Instant::now() + test.time() + 3 * PATIENCE,
        };
        carrier.carry(ours)
    })
}

/// Carries news between the sides until both are done.
struct Carrier<'a> {
    control: &'a Control,
    shared: &'a RunState,
    open: &'a Open,
    /// Where names go that the other side says.
    met: Option<Sender<Option<Peer>>>,
    /// A conversation whose last word may be lost.
    is_datagrams: bool,
    until: Instant,
}

type Outcome = Result<Half>;

impl Carrier<'_> {
    fn carry(mut self, ours: ScopedJoinHandle<'_, Outcome>) -> Result<(Half, Half), Failure> {
        let (mut ours, mut ended, mut theirs, mut gone) = (Some(ours), None, None, None);
        while ended.is_none() || (theirs.is_none() && gone.is_none()) {
            let left = self.until.saturating_duration_since(Instant::now());
            match self.control.next(left.max(Duration::from_millis(1))) {
                Some(ControlEvent::Ended) => {
                    let half = ours.take().map(ScopedJoinHandle::join);
                    let half = half.unwrap_or_else(|| Ok(Err(anyhow!("it ended twice"))));
                    let half = half.unwrap_or_else(|_| Err(anyhow!("a thread panicked")));
                    gone = gone.or(self.tell(&half).err());
                    ended = Some(half);
                }
                Some(ControlEvent::Update(news)) => {
                    gone = gone.or(self.control.pass_on(news).err());
                }
                Some(ControlEvent::Said(word)) => match self.hear(word) {
                    Ok(None) => {}
                    Ok(Some(half)) => theirs = Some(half),
                    Err(error) => gone = Some(error),
                },
                Some(ControlEvent::Gone(why)) => {
                    gone = Some(anyhow!("{}: {why}", self.control.remote()));
                }
                None if Instant::now() >= self.until => {
                    gone = Some(anyhow!("{} does not end its half", self.control.remote()));
                }
                None => {}
            }
            if gone.is_some() {
                self.give_up();
            }
        }
        match (gone, ended, theirs) {
            (Some(error), ..) => Err(Failure::Connection(error)),
            (None, Some(ours), Some(theirs)) => both(ours, theirs).map_err(Failure::Test),
            _ => Err(Failure::Connection(anyhow!("it ended without a result"))),
        }
    }

    fn tell(&self, half: &Outcome) -> Result<()> {
        self.control.say(&match half {
            Ok(half) => ControlMessage::Done(*half),
            Err(error) => ControlMessage::Refused { reason: format!("{error:#}") },
        })
    }

    /// Deals with a word; gives the other side's half if that is it.
    fn hear(&mut self, word: ControlMessage) -> Result<Option<Outcome>> {
        match word {
            ControlMessage::Met { name } => {
                if let Some(met) = &self.met {
                    // Our side may have ended before.
                    let _ = met.send(name.map(Peer::Socket));
                }
            }
            ControlMessage::Over => {
                self.shared.hear(Update::Over);
                if self.is_datagrams {
                    self.open.shut();
                }
            }
            ControlMessage::Done(half) => return Ok(Some(Ok(half))),
            ControlMessage::Refused { reason } => {
                self.give_up();
                return Ok(Some(Err(anyhow!(reason))));
            }
            other => bail!("{} is out of step: {other:?}", self.control.remote()),
        }
        Ok(None)
    }

    /// Our side shall not wait for the other any more.
    fn give_up(&mut self) {
        self.met = None;
        self.shared.hear(Update::Over);
        self.open.shut();
    }
}

/// Both halves, or the error that explains the other.
fn both(ours: Outcome, theirs: Outcome) -> Result<(Half, Half)> {
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => Ok((ours, theirs)),
        (Ok(_), Err(theirs)) => Err(theirs.context("the other side")),
        (Err(ours), Err(theirs)) if ours.is::<OtherSideEnded>() => {
            Err(theirs.context("the other side"))
        }
        (Err(ours), _) => Err(ours),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_ipv4_is_one_wherever_the_server_listens() {
        let plain = |text: &str| plain(text.parse().unwrap()).to_string();
        assert_eq!(plain("[::ffff:192.0.2.7]:80"), "192.0.2.7:80");
        assert_eq!(plain("192.0.2.7:80"), "192.0.2.7:80");
        assert_eq!(plain("[2001:db8::7]:80"), "[2001:db8::7]:80");
    }

    #[test]
    fn lines_that_are_none_of_ours_are_told() {
        let long = vec![b'x'; 1 << 20];
        for bytes in [&b"GET / HTTP/1.1\r\n"[..], b"{}\n", b"\n", b"{\"say\":\"over\"", &long] {
            let error = read_word(&mut &*bytes).unwrap_err();
            assert!(format!("{error:#}").contains("our language"), "{error:#}");
        }
        assert!(read_word(&mut &b""[..]).unwrap_err().to_string().contains("went away"));
        assert!(matches!(read_word(&mut &b"{\"say\":\"over\"}\n"[..]), Ok(ControlMessage::Over)));
    }
}
