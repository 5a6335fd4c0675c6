//! Bursts of writes between two adapters of CLAN that are joined in memory: no
//! sockets, no copies of what lies in memory, and all that both engines do for them.

use clan_dsm::{Config, Event, HostId, Nic, Rights, WORD, WindowId};
use landfall_placement::{
    Area, Duration, Ecn, Engine, Instant, Landing, PathLimits, PathState, Peer, Placement,
    RegionId, Spans, Ticket, Unit,
};

use crate::PATH;

/// The head of a frame has at most this many bytes.
const ROOM: usize = 256;
/// Up to here the program copies a burst into the engine; longer ones lie in memory.
const PROGRAMMED: u32 = 16;
/// The unit of an Ethernet with long frames, and of UDP at its longest.
const LONG_FRAME: u32 = 9000 - 28;
const SUPER_FRAME: u32 = 65_535 - 28;
const APERTURE: u64 = 64 << 20;
const THEIRS: RegionId = RegionId::new(0, 1);
const OURS: RegionId = RegionId::new(1, 1);
/// Bursts that are begun in a round, at most.
const ROUND: u64 = 64;

/// A frame on its way: its head, and how long it is.
#[derive(Clone, Copy, Debug)]
struct Flying {
    head: [u8; ROOM],
    head_len: usize,
    len: u32,
}

/// Two adapters, and what is between them.
#[derive(Debug)]
struct Pair {
    sender: Nic,
    receiver: Nic,
    now: Instant,
    flying: Vec<Flying>,
    tickets: Vec<Ticket>,
    spans: Spans,
    /// Bytes that were given a place.
    placed: u64,
    /// Writes from memory whose end was told.
    ended: u64,
}

/// Two adapters, and a window of one onto an aperture of the other.
#[derive(Debug)]
pub struct NicPair {
    pair: Pair,
    window: WindowId,
    words: u32,
    /// The bursts that were begun.
    begun: u64,
    /// Those that lie in memory, of them.
    from_memory: u64,
}

impl NicPair {
    /// The most words that one burst can have.
    pub const LONGEST: u32 = (SUPER_FRAME - 40 - 3 * 18) / WORD;

    /// Two that write bursts of this many words, [`LONGEST`](Self::LONGEST) at most.
    ///
    /// # Panics
    /// The adapters do not come together.
    #[must_use]
    pub fn new(words: u32) -> Self {
        let words = words.clamp(1, Self::LONGEST);
        let unit = if words * WORD < LONG_FRAME / 2 { LONG_FRAME } else { SUPER_FRAME };
        let mut pair = Pair::new(unit);
        let aperture = pair.receiver.expose(Area::new(THEIRS, 0, APERTURE)).expect("the first");
        let cookie = pair.receiver.cookie(aperture, Rights::Write).expect("it is there");
        let window = pair.sender.map(&cookie).expect("the link is up");
        Self { pair, window, words, begun: 0, from_memory: 0 }
    }

    /// Writes this many bursts, and gives how many bytes of them got a place. Never
    /// inlined, so that its instructions can be counted.
    ///
    /// # Panics
    /// One of them is lost: the bench would measure nothing.
    #[inline(never)]
    pub fn write(&mut self, bursts: u64) -> u64 {
        let (before, last) = (self.pair.placed, self.begun + bursts);
        let mut idle = 0;
        while self.begun < last || self.pair.ended < self.from_memory {
            let at = (self.begun, self.pair.ended);
            self.begin(last);
            self.pair.carry();
            idle = if at == (self.begun, self.pair.ended) { idle + 1 } else { 0 };
            assert!(idle < 1000, "nothing moves any more");
        }
        self.pair.placed - before
    }

    /// What the program does: some bursts, until the engine has no room.
    fn begin(&mut self, last: u64) {
        let len = u64::from(self.words) * u64::from(WORD);
        let (nic, now) = (&mut self.pair.sender, self.pair.now);
        let bytes = [0x5a; (PROGRAMMED * WORD) as usize];
        for _ in 0..ROUND.min(last - self.begun) {
            // No burst goes on where the one before ended: they stay apart.
            let offset = self.begun * 7 % (APERTURE / len) * len;
            let is_from_memory = self.words > PROGRAMMED;
            let is_begun = match is_from_memory {
                false => nic.write(now, self.window, offset, &bytes[..len as usize]).is_ok(),
                true => {
                    let from = Area::new(OURS, offset, len);
                    nic.write_from(now, self.window, offset, from).is_ok()
                }
            };
            if !is_begun {
                return;
            }
            self.begun += 1;
            self.from_memory += u64::from(is_from_memory);
        }
    }
}

impl Pair {
    /// Two with a link between them, over a path with such units.
    fn new(unit: u32) -> Self {
        let now = Instant::from_millis(1);
        let nic = |host: u16| {
            let host = HostId::new(host).expect("a host of a small number");
            let mut nic = Nic::new(Config::default(), host, [host.number() as u8; 32]).unwrap();
            nic.handle_path(now, PATH, PathState::Up(PathLimits::plain(unit)));
            nic
        };
        let mut pair = Self {
            sender: nic(0),
            receiver: nic(1),
            now,
            flying: Vec::with_capacity(256),
            tickets: Vec::with_capacity(256),
            spans: Spans::new(),
            placed: 0,
            ended: 0,
        };
        pair.sender.open_link(now, PATH, Peer::Node(1)).expect("the first");
        // Ask and answer, confirm.
        for _ in 0..2 {
            pair.carry();
        }
        pair
    }

    /// Brings to each side what the other one has to say.
    fn carry(&mut self) {
        self.now += Duration::from_micros(1);
        let Self { sender, receiver, now, flying, tickets, spans, placed, .. } = self;
        fly(sender, *now, flying, spans);
        for frame in flying.drain(..) {
            let ticket = place(receiver, *now, (&frame, 0), spans);
            *placed += ticket.map_or(0, |_| spans.total_len());
            tickets.extend(ticket);
        }
        // As a driver does: a place for each, then all are there.
        for ticket in tickets.drain(..) {
            receiver.handle_placed(*now, ticket, Landing::Unchecked);
        }
        fly(receiver, *now, flying, spans);
        for frame in flying.drain(..) {
            let ticket = place(sender, *now, (&frame, 1), spans);
            assert!(ticket.is_none(), "nothing is written there");
        }
        self.hear();
    }

    /// Events and timers of both.
    fn hear(&mut self) {
        for nic in [&mut self.sender, &mut self.receiver] {
            while let Some(event) = nic.poll_event() {
                match event {
                    Event::Written { result, .. } => {
                        assert!(result.is_ok(), "{result:?}");
                        self.ended += 1;
                    }
                    Event::LinkUp { .. } => {}
                    other => panic!("an engine tells {other:?}"),
                }
            }
            if nic.poll_timeout().is_some_and(|timeout| timeout.at <= self.now) {
                nic.handle_timeout(self.now);
            }
        }
    }
}

/// All that an engine has to send.
fn fly(nic: &mut Nic, now: Instant, flying: &mut Vec<Flying>, spans: &mut Spans) {
    let mut head = [0; ROOM];
    loop {
        spans.clear();
        let Some(unit) = nic.poll_transmit(now, PATH, &mut head, spans) else { return };
        nic.handle_sent(now, unit.ticket);
        let head_len = usize::from(unit.head_len);
        flying.push(Flying { head, head_len, len: head_len as u32 + spans.total_len() as u32 });
    }
}

/// Asks an engine for the place of a frame that the other one sent.
fn place(
    nic: &mut Nic,
    now: Instant,
    (frame, from): (&Flying, u32),
    into: &mut Spans,
) -> Option<Ticket> {
    into.clear();
    let unit = Unit {
        path: PATH,
        from: Peer::Node(from),
        head: &frame.head[..frame.head_len],
        len: frame.len,
        segment: None,
        ecn: Ecn::NotCapable,
        verified: false,
    };
    match nic.place(now, &unit, into) {
        Ok(Placement::Into { ticket, .. }) => Some(ticket),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_every_burst_gets_its_place_once() {
        for words in [1, 16, 17, 256, NicPair::LONGEST] {
            let mut line = NicPair::new(words);
            for bursts in [100, 1, 77] {
                let there = line.write(bursts);
                assert_eq!(there, bursts * u64::from(words * WORD), "{words} words");
            }
        }
    }
}
