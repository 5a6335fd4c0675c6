//! A script played to the kernel's TCP: over an interface of bare packets, in a namespace of
//! its own, in real time.
//!
//! What leaves must be what the script says, in its order; when it leaves is bounded only so
//! that a run ends, for a busy machine is late. A script that fails is played again alone.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall_placement::Instant;
use landfall_testbed::socket::{TcpState, view};
use landfall_testbed::{Namespace, Tun, privileges};
use landfall_transport::{Clock, Interest, wait};
use qpip::wire::Flags;
use socket2::{Domain, Socket, TcpKeepalive, Type};

use super::peer::{Left, Peer, byte_at, same};
use super::text::{Packet, SYN_ACK, Script, ScriptEvent, Step, Subject, number, seconds};

/// Scripts that are played at a time: they sleep nearly always.
const AT_A_TIME: usize = 32;
/// What has to happen happens within this time.
const PATIENCE: Duration = Duration::from_secs(4);
/// More failures than this are not those of a busy machine.
const MOST_AGAIN: usize = 30;
/// The least MTU of IPv6.
const LEAST_MTU6: u32 = 1_280;
const ETHERNET: usize = 14;
/// `EINPROGRESS` of Linux.
const IN_PROGRESS: i32 = 115;
const TCP: u8 = 6;
const OURS4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const OURS6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);

/// How the kernel is set where a script says nothing: as the engine is there.
const KNOBS: [(&str, &str); 22] = [
    ("../ipv6/auto_flowlabels", "1"),
    ("tcp_timestamps", "0"),
    ("tcp_sack", "1"),
    ("tcp_dsack", "1"),
    ("tcp_ecn", "0"),
    ("tcp_window_scaling", "1"),
    ("tcp_syncookies", "0"),
    ("tcp_syn_retries", "6"),
    ("tcp_synack_retries", "5"),
    // From the first opening on each waits twice as long as the one before (RFC 6298).
    ("tcp_syn_linear_timeouts", "0"),
    ("tcp_retries2", "15"),
    ("tcp_slow_start_after_idle", "1"),
    ("tcp_early_retrans", "3"),
    ("tcp_fin_timeout", "60"),
    ("tcp_rfc1337", "0"),
    // Acknowledgements are neither saved up nor limited, unless that is tested.
    ("tcp_comp_sack_nr", "0"),
    ("tcp_invalid_ratelimit", "0"),
    ("tcp_autocorking", "0"),
    // Nothing is remembered of earlier scripts.
    ("tcp_no_metrics_save", "1"),
    // Longer than usual: a busy machine must not make time-outs where a script has none.
    ("tcp_rto_min_us", "500000"),
    ("tcp_frto", "2"),
    ("tcp_mtu_probing", "0"),
];

/// A namespace's interfaces: those of IPv4 and IPv6.
struct Host {
    four: Tun,
    six: Tun,
}

impl Host {
    /// In the namespace of this thread.
    fn new() -> Result<Self, String> {
        let open = |name, address, prefix| {
            Tun::open(name, 1_500, &[(address, prefix)]).map_err(|error| error.to_string())
        };
        Ok(Self {
            four: open("lfscript4", IpAddr::from(OURS4), 16)?,
            six: open("lfscript6", IpAddr::from(OURS6), 64)?,
        })
    }
}

/// What a script chooses.
#[derive(Clone, Debug)]
struct Settings {
    is_v4: bool,
    mtu: u32,
    stamps: bool,
    knobs: Vec<(String, String)>,
    /// What is set at sockets.
    options: Vec<(String, String)>,
    /// Acknowledgements are at once at first, as the kernel has them by itself.
    is_quick: bool,
}

fn settings(script: &Script) -> Settings {
    let mut set = Settings {
        is_v4: true,
        mtu: 1_040,
        stamps: false,
        knobs: Vec::new(),
        options: Vec::new(),
        is_quick: false,
    };
    for (key, value) in script.config.iter().chain(&script.kernel_config) {
        let switch = if value == "on" { "1" } else { "0" };
        let mut knob = |name: &str, value: &str| set.knobs.push((name.into(), value.into()));
        match key.as_str() {
            "version" => set.is_v4 = value == "4",
            "mtu" => set.mtu = number(value) as u32,
            "quick" => set.is_quick = value == "on",
            "timestamps" => {
                set.stamps = value == "on";
                knob("tcp_timestamps", switch);
            }
            "sack" => knob("tcp_sack", switch),
            "ecn" => knob("tcp_ecn", switch),
            "label" => knob("../ipv6/auto_flowlabels", switch),
            // What is the engine's alone.
            "window" | "predicts" | "delay" | "finish" | "time-wait" => {}
            _ if key.starts_with("tcp_") => knob(key, value),
            _ => set.options.push((key.clone(), value.clone())),
        }
    }
    set
}

/// Chooses something at a socket.
fn choose(socket: &Socket, is_v4: bool, key: &str, value: &str) -> io::Result<()> {
    match key {
        "corks" => socket.set_tcp_nodelay(value != "on"),
        "congestion" => socket.set_tcp_congestion(value.as_bytes()),
        "give-up" => socket.set_tcp_user_timeout(Some(seconds(value))),
        "rcvbuf" => socket.set_recv_buffer_size(number(value) as usize),
        "dscp" if is_v4 => socket.set_tos_v4((number(value) as u32) << 2),
        "dscp" => socket.set_tclass_v6((number(value) as u32) << 2),
        "keep-alive" => {
            let parts: Vec<&str> = value.split('/').collect();
            let ask = TcpKeepalive::new()
                .with_time(seconds(parts[0]))
                .with_interval(seconds(parts[1]))
                .with_retries(number(parts[2]) as u32);
            socket.set_tcp_keepalive(&ask)
        }
        _ => panic!("no such setting of the kernel: {key}={value}"),
    }
}

/// What plays a script.
struct Player<'a> {
    host: &'a Host,
    set: Settings,
    clock: Clock,
    peer: Peer,
    /// When the last line was done.
    at: Instant,
    listener: Option<Socket>,
    socket: Option<Socket>,
    left: VecDeque<Left>,
    /// Bytes that may be received still.
    credit: u64,
    received: u64,
    posted: u64,
    was_aborted: bool,
    error: Option<ErrorKind>,
}

impl<'a> Player<'a> {
    /// The number tells scripts of one namespace apart: the peer of each has its own address.
    fn new(host: &'a Host, script: &Script, nth: usize) -> Result<Self, String> {
        let mut set = settings(script);
        for (knob, value) in KNOBS {
            turn(knob, value)?;
        }
        for (knob, value) in &set.knobs {
            turn(knob, value)?;
        }
        if !set.is_v4 {
            set.mtu = set.mtu.max(LEAST_MTU6);
        }
        let tun = if set.is_v4 { &host.four } else { &host.six };
        tun.set_mtu(set.mtu).map_err(|error| error.to_string())?;
        let (high, low) = ((1 + nth / 250) as u8, (1 + nth % 250) as u8);
        let ends = if set.is_v4 {
            let peer = Ipv4Addr::new(10, 77, high, low);
            (SocketAddr::from((OURS4, 80)), SocketAddr::from((peer, 1_234)))
        } else {
            let peer = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 1, nth as u16);
            (SocketAddr::from((OURS6, 80)), SocketAddr::from((peer, 1_234)))
        };
        let clock = Clock::start();
        Ok(Self {
            host,
            peer: Peer::new(ends, set.stamps),
            set,
            at: clock.now(),
            clock,
            listener: None,
            socket: None,
            left: VecDeque::new(),
            credit: 0,
            received: 0,
            posted: 0,
            was_aborted: false,
            error: None,
        })
    }

    fn tun(&self) -> &'a Tun {
        if self.set.is_v4 { &self.host.four } else { &self.host.six }
    }

    fn play(&mut self, script: &Script) -> Result<(), String> {
        for step in script.steps_of(Subject::Kernel) {
            self.step(step).map_err(|why| format!("line {}: {why}", step.line))?;
        }
        self.drain()?;
        let rest: Vec<String> = self.left.iter().map(|left| self.peer.describe(left)).collect();
        if rest.is_empty() { Ok(()) } else { Err(format!("at the end: {}", rest.join("; "))) }
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        let due = self.at + step.after;
        if let ScriptEvent::Leaves(packet) = &step.what {
            let own_line = step.only.is_some();
            return self.expect(due + step.slack, packet, own_line);
        }
        self.pass_until(due)?;
        let done = match &step.what {
            ScriptEvent::Event(text) => self.hear(text),
            ScriptEvent::Received(bytes) => {
                self.read()?;
                same("bytes received", bytes, &self.received)
            }
            ScriptEvent::Sent(bytes) => {
                let rest = self.view()?.map_or(0, |view| u64::from(view.unacknowledged));
                same("bytes sent", bytes, &(self.posted - rest.min(self.posted)))
            }
            ScriptEvent::Window(bytes) => {
                let view = self.view()?.ok_or("there is no connection")?;
                let window = u64::from(view.congestion_window) * u64::from(view.segment);
                same("the congestion window", bytes, &window)
            }
            ScriptEvent::State(name) => {
                let state = self.view()?.map(|view| view.state).ok_or("there is no connection")?;
                same("the state", name.as_str(), state_name(state))
            }
            what => match self.left.front() {
                Some(left) => Err(format!("this was not expected: {}", self.peer.describe(left))),
                None => self.act(what),
            },
        };
        self.at = self.clock.now();
        done
    }

    fn act(&mut self, what: &ScriptEvent) -> Result<(), String> {
        let said = |error: io::Error| format!("the kernel says: {error}");
        match what {
            ScriptEvent::Comes(packet) => self.come(packet)?,
            ScriptEvent::Icmp { kind, about } => {
                let frame = self.peer.icmp(*kind, *about)?;
                self.tun().send(&frame[ETHERNET..]).map_err(said)?;
            }
            ScriptEvent::Opens { is_active, peer, rtt } => self.open(*is_active, peer, *rtt)?,
            ScriptEvent::Listen => self.listen().map_err(said)?,
            ScriptEvent::Connect => self.connect().map_err(said)?,
            ScriptEvent::Send(len, _) => {
                let positions = self.posted + 1..=self.posted + u64::from(*len);
                let bytes: Vec<u8> = positions.map(byte_at).collect();
                self.posted += u64::from(*len);
                let mut socket = self.socket.as_ref().ok_or("there is no connection")?;
                socket.write_all(&bytes).map_err(said)?;
            }
            ScriptEvent::Receive { len, count } => {
                self.credit += u64::from(*len) * u64::from(*count);
                self.read()?;
            }
            ScriptEvent::Set { key, value } => {
                let socket = self.socket.as_ref().ok_or("there is no connection")?;
                choose(socket, self.set.is_v4, key, value).map_err(said)?;
            }
            ScriptEvent::Shutdown => {
                let socket = self.socket.as_ref().ok_or("there is no connection")?;
                socket.shutdown(Shutdown::Write).map_err(said)?;
            }
            ScriptEvent::Abort => {
                let socket = self.socket.take().ok_or("there is no connection")?;
                socket.set_linger(Some(Duration::ZERO)).map_err(said)?;
                self.was_aborted = true;
            }
            _ => {}
        }
        self.drain()
    }

    /// A socket with what is chosen for all.
    fn new_socket(&self) -> io::Result<Socket> {
        let domain = if self.set.is_v4 { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.set_reuse_address(true)?;
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_congestion(b"reno")?;
        socket.set_send_buffer_size(1 << 20)?;
        for (key, value) in &self.set.options {
            choose(&socket, self.set.is_v4, key, value)?;
        }
        socket.bind(&self.peer.ends.0.into())?;
        Ok(socket)
    }

    fn listen(&mut self) -> io::Result<()> {
        let socket = self.new_socket()?;
        socket.listen(16)?;
        self.listener = Some(socket);
        Ok(())
    }

    fn connect(&mut self) -> io::Result<()> {
        let socket = self.new_socket()?;
        match socket.connect(&self.peer.ends.1.into()) {
            Err(error) if error.raw_os_error() != Some(IN_PROGRESS) => return Err(error),
            _ => self.socket = Some(socket),
        }
        self.drain().map_err(io::Error::other)
    }

    /// All of a handshake.
    fn open(&mut self, is_active: bool, peer: &Packet, rtt: Duration) -> Result<(), String> {
        let said = |error: io::Error| format!("the kernel says: {error}");
        let peer = peer.opening(is_active);
        if is_active {
            self.connect().map_err(said)?;
            self.left.pop_front().ok_or("no opening left")?;
            self.pass_until(self.clock.now() + rtt)?;
            self.come(&peer)?;
            let answer = self.left.pop_front().ok_or("no acknowledgement left")?;
            same("flags", &Flags::ACK, &answer.tcp.flags)?;
            return self.hear("connected");
        }
        if self.listener.is_none() {
            self.listen().map_err(said)?;
        }
        self.come(&peer)?;
        let answer = self.left.pop_front().ok_or("no answer left")?;
        same("flags", &SYN_ACK, &answer.tcp.flags.without(Flags::ECE))?;
        self.pass_until(self.clock.now() + rtt)?;
        self.come(&peer.last_acknowledgement())?;
        self.hear("accepted")
    }

    /// A segment comes. What the kernel says to it at once has left when this is done.
    fn come(&mut self, packet: &Packet) -> Result<(), String> {
        let said = |error: io::Error| format!("the kernel says: {error}");
        if let Some(socket) = &self.socket
            && !self.set.is_quick
        {
            // A single segment is acknowledged later, as RFC 9293 has it, also at first.
            socket.set_tcp_quickack(false).map_err(said)?;
        }
        let frame = self.peer.segment(self.clock.now(), packet);
        self.tun().send(&frame[ETHERNET..]).map_err(said)?;
        self.drain()?;
        self.read()?;
        self.drain()
    }

    /// Takes out what has left.
    fn drain(&mut self) -> Result<(), String> {
        let mut buffer = vec![0; 65_536];
        loop {
            let packet = self.tun().receive(&mut buffer).map_err(|error| error.to_string())?;
            let Some(packet) = packet else { return Ok(()) };
            if is_to(packet, self.peer.ends.1.ip()) {
                let ethertype = if self.set.is_v4 { [8, 0] } else { [0x86, 0xdd] };
                let frame = [&[0; ETHERNET - 2][..], &ethertype, packet].concat();
                self.left.extend(self.peer.note(self.clock.now(), frame));
            }
        }
    }

    /// Lets time pass up to this moment.
    fn pass_until(&mut self, due: Instant) -> Result<(), String> {
        loop {
            self.drain()?;
            let rest = self.clock.until(due);
            if rest.is_zero() {
                return Ok(());
            }
            self.sleep(rest)?;
        }
    }

    /// Until something leaves, or this time is over.
    fn sleep(&self, at_most: Duration) -> Result<(), String> {
        let fd = self.tun().as_fd().as_raw_fd();
        let interest = Interest { fd, readable: true, writable: false };
        wait::until_ready(&[interest], at_most).map(drop).map_err(|error| error.to_string())
    }

    /// The next segment has to be so.
    fn expect(&mut self, due: Instant, wanted: &Packet, own_line: bool) -> Result<(), String> {
        let latest = due + PATIENCE;
        self.drain()?;
        while self.left.is_empty() {
            let rest = self.clock.until(latest);
            if rest.is_zero() {
                return Err("nothing leaves".into());
            }
            self.sleep(rest)?;
            self.drain()?;
        }
        let Some(left) = self.left.pop_front() else { return Ok(()) };
        self.at = self.clock.now();
        let text = self.peer.describe(&left);
        self.peer.remember(&left);
        self.peer.compare(&left, wanted, own_line).map_err(|why| format!("{why}: {text}"))
    }

    /// Receives what may be received.
    fn read(&mut self) -> Result<(), String> {
        let mut bytes = vec![0; 65_536];
        while self.credit > 0 {
            let Some(mut socket) = self.socket.as_ref() else { return Ok(()) };
            let most = bytes.len().min(self.credit as usize);
            match socket.read(&mut bytes[..most]) {
                Ok(0) => return Ok(()),
                Ok(len) => {
                    for (n, is) in bytes[..len].iter().enumerate() {
                        let position = 1 + self.received + n as u64;
                        if self.peer.is_true && *is != byte_at(position) {
                            return Err(format!("byte {position} is not what was sent"));
                        }
                    }
                    self.received += len as u64;
                    self.credit -= len as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => {
                    self.error = self.error.or(Some(error.kind()));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn view(&self) -> Result<Option<landfall_testbed::socket::TcpView>, String> {
        let seen = self.socket.as_ref().map(view).transpose();
        seen.map_err(|error| error.to_string())
    }

    /// The user hears this, sooner or later.
    fn hear(&mut self, text: &str) -> Result<(), String> {
        let latest = self.clock.now() + PATIENCE;
        loop {
            if self.hears(text)? {
                return Ok(());
            }
            if self.clock.until(latest).is_zero() {
                let state = self.view()?.map(|view| view.state);
                return Err(format!("no `{text}`: {state:?}, {:?}", self.error));
            }
            // What leaves meanwhile is looked at by the lines that follow.
            self.drain()?;
            wait::until_ready(&[], Duration::from_millis(5)).map_err(|error| error.to_string())?;
        }
    }

    fn hears(&mut self, text: &str) -> Result<bool, String> {
        use TcpState::{CloseWait, Closed, Closing, Established, LastAck, TimeWait};
        if text == "accepted" {
            let listener = self.listener.as_ref().ok_or("nobody listens")?;
            let Ok((socket, _)) = listener.accept() else { return Ok(false) };
            socket.set_nonblocking(true).map_err(|error| error.to_string())?;
            self.socket = Some(socket);
            return Ok(true);
        }
        if let Some(socket) = &self.socket
            && let Ok(Some(error)) = socket.take_error()
        {
            self.error = Some(error.kind());
        }
        let state = self.view()?.map(|view| view.state);
        Ok(match text {
            "connected" => matches!(state, Some(Established | CloseWait)),
            "peer-finished" => {
                matches!(state, Some(CloseWait | LastAck | Closing | TimeWait | Closed))
            }
            "closed finished" => self.error.is_none() && matches!(state, Some(TimeWait | Closed)),
            // Who has heard the peer's end before hears of a broken pipe.
            "closed reset" => {
                matches!(self.error, Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe))
            }
            "closed refused" => self.error == Some(ErrorKind::ConnectionRefused),
            "closed timedout" => self.error == Some(ErrorKind::TimedOut),
            "closed unreachable" => self.error == Some(ErrorKind::HostUnreachable),
            "closed aborted" => self.was_aborted,
            _ => return Err(format!("no kernel says `{text}`")),
        })
    }
}

impl Drop for Player<'_> {
    /// Nothing of it speaks any more when the next script begins.
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            let _ = socket.set_linger(Some(Duration::ZERO));
        }
    }
}

/// Sets a knob of the namespace of this thread.
fn turn(knob: &str, value: &str) -> Result<(), String> {
    let written = std::fs::write(format!("/proc/sys/net/ipv4/{knob}"), value);
    written.map_err(|error| format!("{knob}: {error}"))
}

/// Whether a packet is a segment to this address.
fn is_to(packet: &[u8], address: IpAddr) -> bool {
    match address {
        IpAddr::V4(to) => {
            packet.len() >= 40
                && packet[0] >> 4 == 4
                && packet[9] == TCP
                && packet[16..20] == to.octets()
        }
        IpAddr::V6(to) => {
            packet.len() >= 60
                && packet[0] >> 4 == 6
                && packet[6] == TCP
                && packet[24..40] == to.octets()
        }
    }
}

fn state_name(state: TcpState) -> &'static str {
    match state {
        TcpState::Established => "established",
        TcpState::SynSent => "syn-sent",
        TcpState::SynReceived => "syn-received",
        TcpState::FinWait1 => "fin-wait-1",
        TcpState::FinWait2 => "fin-wait-2",
        TcpState::TimeWait => "time-wait",
        TcpState::Closed => "closed",
        TcpState::CloseWait => "close-wait",
        TcpState::LastAck => "last-ack",
        TcpState::Listen => "listen",
        TcpState::Closing => "closing",
        TcpState::Other(_) => "unknown",
    }
}

/// Why no kernel can play here.
pub fn why_not() -> Option<String> {
    let no_device = || {
        let opened = std::fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun");
        opened.err().map(|error| format!("needs /dev/net/tun: {error}"))
    };
    // What came with that version.
    let is_old = || !std::fs::exists("/proc/sys/net/ipv4/tcp_ecn_option").unwrap_or(false);
    let too_old =
        || is_old().then(|| "needs Linux 6.18: the scripts say what the TCP of that does".into());
    privileges::why_no_namespaces().or_else(no_device).or_else(too_old)
}

/// A script, and what was wrong with it.
type Played = (Script, Result<(), String>);

/// Plays scripts, several at a time, and says what failed.
pub fn play(scripts: Vec<Script>) -> Vec<(Script, String)> {
    let failed = |played: Vec<Played>| -> Vec<(Script, String)> {
        let failed = played.into_iter().filter_map(|(script, why)| Some((script, why.err()?)));
        failed.collect()
    };
    let mut failures = failed(play_at_once(scripts, AT_A_TIME));
    for _ in 0..2 {
        if failures.is_empty() || failures.len() > MOST_AGAIN {
            break;
        }
        for (script, why) in &failures {
            println!("played again: {}: [{}]: {why}", script.file, script.name);
        }
        let again = failures.into_iter().map(|(script, _)| script).collect();
        failures = failed(play_at_once(again, 2));
    }
    failures
}

fn play_at_once(mut scripts: Vec<Script>, at_a_time: usize) -> Vec<Played> {
    // From the end: those that take long come first.
    scripts.sort_by(|a, b| a.seconds(Subject::Kernel).total_cmp(&b.seconds(Subject::Kernel)));
    let players = at_a_time.min(scripts.len());
    let scripts = Arc::new(Mutex::new(scripts));
    let threads: Vec<_> = (0..players)
        .map(|_| {
            let scripts = Arc::clone(&scripts);
            let namespace = Namespace::new().unwrap();
            namespace.spawn("script", move || play_here(&scripts)).unwrap()
        })
        .collect();
    threads.into_iter().flat_map(|thread| thread.join().unwrap().unwrap()).collect()
}

/// Plays scripts in the namespace of this thread until there are no more.
fn play_here(scripts: &Mutex<Vec<Script>>) -> Vec<Played> {
    let host = Host::new().unwrap();
    let mut played = Vec::new();
    loop {
        let next = scripts.lock().unwrap().pop();
        let Some(script) = next else { return played };
        let nth = played.len();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Player::new(&host, &script, nth)?.play(&script)
        }));
        let outcome = outcome.unwrap_or_else(|_| Err("it panicked".into()));
        played.push((script, outcome));
    }
}
