//! The text form of a script: reading it.
//!
//! ```text
//! [3.10.7.4 a segment in order is acknowledged]
//! config sack=off
//! accept
//! +0     receive 1000
//! +0     > . 1:1 ack 1 win 1000
//! +0.5   < . 1:501 ack 1
//! +0.02  > . 1:1 ack 501
//! ```
//!
//! A script begins with its name in brackets, which starts with the section of the RFC
//! (or a word where there is none). Each line has the time since the line before, in
//! seconds, and what happens: a packet that comes (`<`), one that must leave just then
//! (`>`), what the user does, or what must be so. Numbers count from the openings of each
//! side, as positions do in the engine. Whatever leaves and is not mentioned is a failure.

use std::time::Duration;

use landfall_inet::Flags;
use landfall_inet::tcp_options::ImmediateOption;

/// A script.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// Where it stands.
    pub file: String,
    /// With the section.
    pub name: String,
    /// Where it starts in its file.
    pub line: usize,
    pub config: Vec<(String, String)>,
    /// What is set for the kernel alone.
    pub kernel_config: Vec<(String, String)>,
    /// Why engine and kernel do not do the same.
    pub differs: Option<String>,
    /// Why a kernel cannot play it.
    pub engine_only: Option<String>,
    pub steps: Vec<Step>,
}

/// Who plays a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    Engine,
    Kernel,
}

impl Script {
    /// The lines that are for this one.
    pub fn steps_of(&self, subject: Subject) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(move |step| step.only.is_none_or(|only| only == subject))
    }

    /// How long it takes in real time.
    pub fn seconds(&self, subject: Subject) -> f64 {
        self.steps_of(subject).map(|step| step.after.as_secs_f64()).sum()
    }

    /// Differences have a reason, and reasons a difference.
    fn check(&self) {
        let is_split = self.steps.iter().any(|step| step.only.is_some());
        let (name, is_told) = (&self.name, self.differs.is_some());
        assert_eq!(
            is_split, is_told,
            "[{name}] says `differs because …` where it does, and only there"
        );
        assert!(!is_told || self.engine_only.is_none(), "[{name}] is for one, and differs");
    }
}

/// A line of a script.
#[derive(Clone, Debug)]
pub struct Step {
    pub line: usize,
    /// For this one alone.
    pub only: Option<Subject>,
    /// Since the step before.
    pub after: Duration,
    /// It may happen so much earlier or later.
    pub slack: Duration,
    pub what: ScriptEvent,
}

/// What happens, or has to.
#[derive(Clone, Debug)]
pub enum ScriptEvent {
    /// A segment comes.
    Comes(Packet),
    /// A segment leaves.
    Leaves(Packet),
    /// An error of ICMP comes, about the last segment that left or one with this number.
    Icmp {
        kind: Icmp,
        about: Option<u32>,
    },
    /// A handshake, all of it: the peer asks, or we do.
    Opens {
        is_active: bool,
        peer: Packet,
        rtt: Duration,
    },
    /// The user chooses something about the connection.
    Set {
        key: String,
        value: String,
    },
    Listen,
    Offer,
    Connect,
    /// This many bytes, and the word of their message.
    Send(u32, Option<u32>),
    Receive {
        len: u32,
        count: u32,
    },
    Shutdown,
    Abort,
    /// The user hears this next.
    Event(String),
    /// This many bytes have been received, or sends of this many are done.
    Received(u64),
    Sent(u64),
    /// The congestion window.
    Window(u64),
    /// How far the connection is.
    State(String),
    /// Nothing has left.
    Quiet,
    /// Another queue pair takes the place of the one that was used.
    Again,
}

/// The option of Fast Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastOpen {
    /// There is none.
    None,
    /// It asks for a cookie.
    Request,
    /// There is a cookie: of one that comes, the last that was given.
    Cookie,
    /// This one, eight times.
    Byte(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icmp {
    Host,
    Port,
    TooBig(u16),
    Quench,
}

/// What the text says of a segment; what it doesn't say is not looked at (of one that
/// leaves) or as usual (of one that comes).
#[derive(Clone, Debug, Default)]
pub struct Packet {
    /// Of one that leaves PSH is looked at only where it is named.
    pub flags: Flags,
    /// The letter A among the flags.
    pub has_ae: bool,
    pub start: u32,
    pub end: u32,
    pub ack: Option<u32>,
    pub window: Option<u16>,
    pub mss: Option<u16>,
    pub scale: Option<u8>,
    pub sack_permitted: Option<bool>,
    pub sack: Vec<(u32, u32)>,
    pub stamp: Stamp,
    pub ecn: Option<u8>,
    /// Where urgent data ends.
    pub urgent: Option<u16>,
    /// Bytes in place of the options.
    pub options: Vec<u8>,
    /// A length of the header that it does not have, in words.
    pub words: Option<u8>,
    /// The checksum is wrong.
    pub is_damaged: bool,
    /// Payload of these bytes, and not what belongs there.
    pub fill: Option<u8>,
    /// Where the sequence number is not counted from the opening.
    pub is_absolute: bool,
    pub dscp: Option<u8>,
    pub fast_open: Option<FastOpen>,
    /// Counters of accurate ECN: ECT(0), CE and ECT(1); it may be that nothing is said.
    pub accurate: Option<Option<[Option<u32>; 3]>>,
    /// What is said of words with messages; it may be that nothing is.
    pub immediate: Option<Option<ImmediateOption>>,
    /// A label of its flow, in IPv6.
    pub label: Option<bool>,
}

/// What a listener answers a SYN with.
pub const SYN_ACK: Flags = Flags::SYN.union(Flags::ACK);

impl Packet {
    /// The peer's SYN, or its answer to ours, with what the script says of the handshake.
    pub fn opening(&self, is_answer: bool) -> Self {
        Self {
            flags: if is_answer { SYN_ACK } else { Flags::SYN },
            start: 0,
            end: 0,
            ack: if is_answer { Some(1) } else { self.ack },
            mss: self.mss.or(Some(1_000)),
            ..self.clone()
        }
    }

    /// The acknowledgement by which the peer ends the handshake that it began so.
    pub fn last_acknowledgement(&self) -> Self {
        Self {
            flags: Flags::ACK,
            start: 1,
            end: 1,
            ack: Some(1),
            window: self.window,
            stamp: self.stamp,
            ..Self::default()
        }
    }
}

/// The timestamp option of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamp {
    #[default]
    Unsaid,
    None,
    Some,
    /// This value; of one that comes, echoing this many milliseconds before our latest.
    Value {
        value: u32,
        back: u32,
    },
    /// The echo of one that leaves.
    Echo(u32),
}

/// Reads a file of scripts.
pub fn read(file: &str, text: &str) -> Vec<Script> {
    let mut scripts: Vec<Script> = Vec::new();
    let mut engine_only = None;
    for (nth, line) in text.lines().enumerate() {
        let number = nth + 1;
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            let name = name.trim_end_matches(']').to_owned();
            let engine_only = engine_only.clone();
            let file = file.to_owned();
            scripts.push(Script { file, name, line: number, engine_only, ..Script::default() });
            continue;
        }
        if let Some(why) = line.strip_prefix("engine-only because ") {
            let place =
                scripts.last_mut().map_or(&mut engine_only, |script| &mut script.engine_only);
            *place = Some(why.to_owned());
            continue;
        }
        let script = scripts.last_mut().expect("a script begins with its name");
        read_line(line, number, script)
            .unwrap_or_else(|| panic!("{file}:{number} is not understood: {line}"));
    }
    scripts.iter().for_each(Script::check);
    scripts
}

fn read_line(line: &str, number: usize, script: &mut Script) -> Option<()> {
    if let Some(why) = line.strip_prefix("differs because ") {
        script.differs = Some(why.to_owned());
        return Some(());
    }
    let mut words = line.split_whitespace().peekable();
    let only = match *words.peek()? {
        "engine" => Some(Subject::Engine),
        "kernel" => Some(Subject::Kernel),
        _ => None,
    };
    if only.is_some() {
        words.next();
    }
    if words.peek() == Some(&"config") {
        words.next();
        let is_kernels = only == Some(Subject::Kernel);
        let config = if is_kernels { &mut script.kernel_config } else { &mut script.config };
        for word in words {
            let (key, value) = word.split_once('=')?;
            config.push((key.to_owned(), value.to_owned()));
        }
        return Some(());
    }
    let mut after = Duration::ZERO;
    let mut slack = Duration::from_millis(1);
    if let Some(time) = words.peek().and_then(|word| word.strip_prefix('+')) {
        let (time, tolerance) = time.split_once('~').unwrap_or((time, "0.001"));
        after = Duration::from_secs_f64(time.parse().ok()?);
        slack = Duration::from_secs_f64(tolerance.parse().ok()?);
        words.next();
    }
    let words: Vec<&str> = words.collect();
    let what = read_what(&words)?;
    script.steps.push(Step { line: number, only, after, slack, what });
    Some(())
}

fn read_what(words: &[&str]) -> Option<ScriptEvent> {
    let number = |nth: usize| words.get(nth)?.parse::<u64>().ok();
    Some(match *words.first()? {
        "<" if words.get(1) == Some(&"icmp") => read_icmp(&words[2..])?,
        "<" => ScriptEvent::Comes(read_packet(&words[1..])?),
        ">" => ScriptEvent::Leaves(read_packet(&words[1..])?),
        kind @ ("accept" | "connected") => {
            let mut rest = words[1..].to_vec();
            let mut rtt = Duration::from_millis(100);
            if let Some(at) = rest.iter().position(|word| *word == "rtt") {
                rtt = Duration::from_secs_f64(rest.get(at + 1)?.parse().ok()?);
                rest.drain(at..at + 2);
            }
            let peer = read_details(Packet::default(), &rest)?;
            ScriptEvent::Opens { is_active: kind == "connected", peer, rtt }
        }
        "set" => {
            let (key, value) = words.get(1)?.split_once('=')?;
            ScriptEvent::Set { key: key.to_owned(), value: value.to_owned() }
        }
        "listen" => ScriptEvent::Listen,
        "offer" => ScriptEvent::Offer,
        "connect" => ScriptEvent::Connect,
        "send" => {
            let word = match words.get(2) {
                None => None,
                Some(word) => Some((*word == "imm").then(|| number(3))?? as u32),
            };
            ScriptEvent::Send(number(1)? as u32, word)
        }
        "receive" => {
            let count = words.get(2).map_or(Some(1), |word| word.strip_prefix('x')?.parse().ok());
            ScriptEvent::Receive { len: number(1)? as u32, count: count? }
        }
        "shutdown" => ScriptEvent::Shutdown,
        "abort" => ScriptEvent::Abort,
        "event" => ScriptEvent::Event(words[1..].join(" ")),
        "received" => ScriptEvent::Received(number(1)?),
        "sent" => ScriptEvent::Sent(number(1)?),
        "cwnd" => ScriptEvent::Window(number(1)?),
        "state" => ScriptEvent::State((*words.get(1)?).to_owned()),
        "quiet" => ScriptEvent::Quiet,
        "again" => ScriptEvent::Again,
        _ => return None,
    })
}

fn read_icmp(words: &[&str]) -> Option<ScriptEvent> {
    let (kind, rest) = match *words.first()? {
        "host" => (Icmp::Host, &words[1..]),
        "port" => (Icmp::Port, &words[1..]),
        "quench" => (Icmp::Quench, &words[1..]),
        "too-big" => (Icmp::TooBig(words.get(1)?.parse().ok()?), &words[2..]),
        _ => return None,
    };
    let about = match rest {
        [] => None,
        ["about", number] => Some(number.parse().ok()?),
        _ => return None,
    };
    Some(ScriptEvent::Icmp { kind, about })
}

fn read_packet(words: &[&str]) -> Option<Packet> {
    let flags = words.first()?;
    let has_ae = flags.contains('A');
    let mut packet = Packet { flags: read_flags(flags)?, has_ae, ..Packet::default() };
    let range = words.get(1)?;
    let range = match range.strip_prefix('=') {
        Some(range) => {
            packet.is_absolute = true;
            range
        }
        None => range,
    };
    (packet.start, packet.end) = read_range(range)?;
    read_details(packet, &words[2..])
}

fn read_flags(word: &str) -> Option<Flags> {
    word.chars().try_fold(Flags::NONE, |flags, letter| {
        Some(flags.union(match letter {
            'S' => Flags::SYN,
            '.' => Flags::ACK,
            'F' => Flags::FIN,
            'R' => Flags::RST,
            'P' => Flags::PSH,
            'U' => Flags::URG,
            'E' => Flags::ECE,
            'W' => Flags::CWR,
            '-' | 'A' => Flags::NONE,
            _ => return None,
        }))
    })
}

/// Three counters, of which some are not said.
fn read_counters(word: &str) -> Option<[Option<u32>; 3]> {
    let parts: Vec<Option<u32>> = word.split('/').map(|part| part.parse().ok()).collect();
    parts.try_into().ok()
}

fn read_range(word: &str) -> Option<(u32, u32)> {
    let (start, end) = word.split_once(':')?;
    let number = |text: &str| text.parse::<i64>().ok().map(|number| number as u32);
    Some((number(start)?, number(end)?))
}

fn read_details(mut packet: Packet, words: &[&str]) -> Option<Packet> {
    let mut words = words.iter().copied().peekable();
    while let Some(word) = words.next() {
        let mut next = || words.next();
        match word {
            "ack" => packet.ack = Some(next()?.parse::<i64>().ok()? as u32),
            "win" => packet.window = Some(next()?.parse().ok()?),
            "mss" => packet.mss = Some(next()?.parse().ok()?),
            "scale" => packet.scale = Some(next()?.parse().ok()?),
            "noacc" => packet.accurate = Some(None),
            "acc" => packet.accurate = Some(Some(read_counters(next()?)?)),
            "imm" => {
                packet.immediate = Some(match next()? {
                    "none" => None,
                    "plain" => Some(ImmediateOption::Plain),
                    "declined" => Some(ImmediateOption::Declined),
                    word => Some(ImmediateOption::Word(word.parse::<u32>().ok()?.to_be_bytes())),
                });
            }
            "nofo" => packet.fast_open = Some(FastOpen::None),
            "fo" => {
                packet.fast_open = Some(match next()? {
                    "request" => FastOpen::Request,
                    "cookie" => FastOpen::Cookie,
                    byte => FastOpen::Byte(byte.parse().ok()?),
                });
            }
            "sackok" => packet.sack_permitted = Some(true),
            "nosackok" => packet.sack_permitted = Some(false),
            "nots" => packet.stamp = Stamp::None,
            "ts" => packet.stamp = Stamp::Some,
            "tsval" => {
                let text = next()?;
                let (value, back) = text.split_once('/').unwrap_or((text, "0"));
                let (value, back) = (value.parse().ok()?, back.parse().ok()?);
                packet.stamp = Stamp::Value { value, back };
            }
            "tsecr" => packet.stamp = Stamp::Echo(next()?.parse().ok()?),
            "urg" => packet.urgent = Some(next()?.parse().ok()?),
            "words" => packet.words = Some(next()?.parse().ok()?),
            "damaged" => packet.is_damaged = true,
            "options" => packet.options = read_hex(next()?)?,
            "fill" => packet.fill = Some(next()?.parse().ok()?),
            "ect0" => packet.ecn = Some(2),
            "ect1" => packet.ecn = Some(1),
            "ce" => packet.ecn = Some(3),
            "not-ect" => packet.ecn = Some(0),
            "label" => packet.label = Some(true),
            "nolabel" => packet.label = Some(false),
            "dscp" => packet.dscp = Some(next()?.parse().ok()?),
            "sack" => {
                while let Some(range) = words.peek().and_then(|word| read_range(word)) {
                    packet.sack.push(range);
                    words.next();
                }
            }
            _ => return None,
        }
    }
    Some(packet)
}

fn read_hex(word: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        word.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
    let (pairs, []) = digits.as_deref()?.as_chunks::<2>() else { return None };
    let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    // Options fill whole words.
    bytes.len().is_multiple_of(4).then_some(bytes)
}

/// The number that a setting says.
pub fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("no number: {text}"))
}

/// The time that a setting says, in seconds.
pub fn seconds(text: &str) -> Duration {
    Duration::from_secs_f64(text.parse().unwrap_or_else(|_| panic!("no time: {text}")))
}

#[test]
fn a_difference_has_a_reason_and_a_reason_a_difference() {
    let is_read = |text| std::panic::catch_unwind(|| read("here", text)).is_ok();
    assert!(is_read("[x]\n+0 quiet\n"));
    assert!(is_read("[x]\ndiffers because it does\nkernel +0 quiet\n"));
    assert!(is_read("engine-only because of time\n[x]\n+0 quiet\n"));
    assert!(!is_read("[x]\nkernel +0 quiet\n"));
    assert!(!is_read("[x]\ndiffers because it does\n+0 quiet\n"));
    assert!(!is_read("[x]\n+0 quite\n"));
}
