//! The reassembler that takes frames and gives packets, beside the naive one: the same traffic as
//! the receiver has, with tags or without a link header where the first bytes say so.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use landfall_inet::reassembly::LONGEST;
use landfall_placement::{Duration, Instant};
use landfall_tables::HashSecret;

use super::naive::{
    ETHERNET, Expired, LONGEST_HEAD, Naive, Name, Piece, Reading, read_within, word,
};
use super::traffic::{Step, Steps};
use crate::reassembly::{
    Config, Counters, DropReason, EndReason, Frame, Link, Outcome, Reassembler,
};

const LIFETIME: Duration = Duration::from_secs(30);

/// What the first three bytes stand for.
#[derive(Clone, Copy, Debug)]
struct Choices {
    link: Link,
    /// How many tags there are in front of each packet.
    tags: usize,
    /// So little memory that packets go before they are complete.
    is_tight: bool,
    fragments: u16,
    packets: u32,
}

impl Choices {
    const BYTES: usize = 3;

    fn new(bytes: &[u8]) -> Self {
        let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
        let tags = usize::from(byte(0) & 3) % 3;
        Self {
            link: if byte(0) & 12 == 12 { Link::Ip } else { Link::Ethernet },
            tags: if byte(0) & 12 == 12 { 0 } else { tags },
            is_tight: byte(0) & 0x70 == 0x70,
            fragments: if byte(1) & 7 == 7 { 4 } else { 128 },
            packets: 1 + u32::from(byte(2)),
        }
    }

    fn config(self) -> Config {
        let Self { link, fragments, is_tight, packets, .. } = self;
        let config = Config { link, fragments, lifetime: LIFETIME, ..Config::new(SECRET) };
        if !is_tight {
            let (bytes, packets) = (1 << 40, 1 << 20);
            return Config {
                bytes,
                bytes_per_source: bytes,
                packets,
                packets_per_source: packets,
                reports: packets,
                ..config
            };
        }
        let bytes = 8_000 * u64::from(packets);
        let (bytes_per_source, packets_per_source) = (1 + bytes / 3, 1 + packets / 3);
        Config { bytes, bytes_per_source, packets, packets_per_source, reports: 3, ..config }
    }

    /// The frame as this link has it; `None` for what it cannot carry.
    fn dress(self, frame: &[u8]) -> Option<Vec<u8>> {
        if self.link == Link::Ip {
            let version = match word(frame, 12)? {
                0x0800 => 4,
                0x86dd => 6,
                _ => return None,
            };
            return Some(frame[ETHERNET..].to_vec())
                .filter(|ip| ip.first().is_some_and(|byte| byte >> 4 == version));
        }
        let mut dressed = frame.to_vec();
        if frame.len() >= ETHERNET {
            // One bit of the flow says which VLAN it is, another which priority.
            let flow = frame[11];
            let tag = [0x81, 0, (flow & 0x20) << 1, 1 + (flow >> 4 & 1)];
            let service = [0x88, 0xa8, 0, 9];
            dressed.splice(12..12, [service, tag][2 - self.tags..].concat());
        }
        Some(dressed)
    }
}

const SECRET: HashSecret = HashSecret::new(3, 4);

/// A frame without its tags, and those.
fn undress(link: Link, frame: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut end = 12;
    if link == Link::Ip {
        let ethertype: u16 =
            if frame.first().is_some_and(|byte| byte >> 4 == 6) { 0x86dd } else { 0x0800 };
        return ([&[0; 12], &ethertype.to_be_bytes()[..], frame].concat(), Vec::new());
    }
    while end < 20
        && matches!(word(frame, end), Some(0x8100 | 0x88a8))
        && word(frame, end + 4).is_some()
    {
        end += 4;
    }
    if frame.len() < ETHERNET {
        return (frame.to_vec(), Vec::new());
    }
    ([&frame[..12], &frame[end..]].concat(), frame[12..end].to_vec())
}

/// The same with a header of its link and tags.
fn redress(link: Link, tags: &[u8], plain: &[u8]) -> Vec<u8> {
    match link {
        Link::Ip => plain[ETHERNET..].to_vec(),
        Link::Ethernet => [&plain[..12], tags, &plain[12..]].concat(),
    }
}

/// The VLANs that tags name: the priorities say nothing.
fn vlans(tags: &[u8]) -> Vec<u16> {
    tags.chunks(4).filter_map(|tag| word(tag, 2)).map(|control| control & 0xfff).collect()
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Reassembled {
    /// All that is wrong.
    pub failures: Vec<String>,
    /// What became of the frames.
    pub counters: Counters,
}

/// The packet that came, why the frame was dropped, and whether it is to be passed on.
fn what_became<F: Frame>(outcome: &Outcome<'_, F>) -> (Option<Vec<u8>>, Option<DropReason>, bool) {
    match outcome {
        Outcome::Packet(packet) => {
            let whole = packet.to_vec();
            let mut room = alloc::vec![0; whole.len()];
            let copied = packet.copy_to(&mut room);
            let is_alike =
                copied == Ok(whole.len()) && room == whole && packet.len() == whole.len();
            (Some(if is_alike { whole } else { Vec::new() }), None, false)
        }
        Outcome::Dropped(reason) => (None, Some(*reason), false),
        Outcome::NotFragment => (None, None, true),
        Outcome::Kept => (None, None, false),
    }
}

/// One naive reassembler for each VLAN.
struct Pair {
    choices: Choices,
    reassembler: Reassembler,
    /// Beside it one that keeps frames.
    keeping: Reassembler<Vec<u8>>,
    naive: Vec<(Vec<u16>, Naive)>,
    /// The tags of all first pieces: a packet has those of its own.
    firsts: Vec<(Name, Vec<u8>)>,
    /// All pieces that came, where packets cannot be foretold.
    came: Vec<(Vec<u16>, Piece)>,
    now: Instant,
    offered: u64,
    failures: Vec<String>,
}

/// See [`super::reassemble`].
pub(super) fn reassemble(bytes: &[u8]) -> Reassembled {
    let (chosen, bytes) = bytes.split_at(bytes.len().min(Choices::BYTES));
    let choices = Choices::new(chosen);
    let mut pair = Pair {
        choices,
        reassembler: Reassembler::new(choices.config()),
        keeping: Reassembler::keeping(choices.config()),
        naive: Vec::new(),
        firsts: Vec::new(),
        came: Vec::new(),
        now: Instant::from_millis(1),
        offered: 0,
        failures: Vec::new(),
    };
    for step in Steps::new(bytes) {
        match step {
            Step::Receive { frames, .. } => {
                frames
                    .iter()
                    .filter_map(|frame| choices.dress(frame))
                    .for_each(|frame| pair.offer(&frame));
            }
            Step::Wait(time) => pair.wait(time),
            Step::Release { .. } => {}
        }
    }
    pair.wait(Some(LIFETIME));
    let left = pair.reassembler.packets() + pair.keeping.packets();
    pair.expect(left == 0, || "packets stay for ever".into());
    Reassembled { failures: pair.failures, counters: *pair.reassembler.counters() }
}

impl Pair {
    fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.failures.push(what());
        }
    }

    fn naive(&mut self, vlans: &[u16]) -> &mut Naive {
        let at = self.naive.iter().position(|(known, _)| known == vlans).unwrap_or_else(|| {
            let naive = Naive::strict(LIFETIME, self.choices.fragments.into());
            self.naive.push((vlans.to_vec(), naive));
            self.naive.len() - 1
        });
        &mut self.naive[at].1
    }

    fn offer(&mut self, frame: &[u8]) {
        let link = self.choices.link;
        let (plain, tags) = undress(link, frame);
        let vlans = vlans(&tags);
        // Tags take of the bytes that a head may have, and where there is no link header it has more.
        let longest_head = LONGEST_HEAD + plain.len() - frame.len();
        let reading = read_within(&plain, longest_head);
        let (now, is_tight) = (self.now, self.choices.is_tight);
        self.offered += 1;
        let (came, dropped, passed) = what_became(&self.reassembler.offer(now, frame));
        let kept = self.keep(frame);
        if !is_tight {
            let is_alike = kept == (came.clone(), dropped, passed);
            self.expect(is_alike, || format!("kept, {frame:02x?} came to {kept:02x?}"));
        }
        if reading == Reading::Whole {
            // Headers beyond those that are read hide nothing.
            let is_good = passed || dropped == Some(DropReason::HeadersTooLong);
            self.expect(is_good, || format!("no fragment was taken for one: {frame:02x?}"));
        } else if is_tight {
            if let Reading::Piece(piece) = reading {
                self.came.push((vlans.clone(), piece));
            }
            for packet in [came, kept.0].into_iter().flatten() {
                let (plain, _) = undress(link, &packet);
                let is_made = is_made_of(&self.came, &vlans, &plain);
                self.expect(is_made, || {
                    format!("a packet is of bytes that did not come: {packet:02x?}")
                });
            }
        } else {
            if let Reading::Piece(piece) = &reading
                && piece.offset == 0
            {
                self.firsts.push((piece.name.clone(), tags.clone()));
            }
            let wanted = self.naive(&vlans).take(now, &plain, reading.clone());
            let is_alike = match (&wanted, &came) {
                (Some(wanted), Some(came)) => self.is_dressed(&reading, &vlans, wanted, came),
                (wanted, came) => wanted.is_none() && came.is_none(),
            };
            let is_good = is_alike && !passed;
            self.expect(is_good, || {
                format!("wanted {wanted:02x?}, came {came:02x?}, {dropped:?}, of {frame:02x?}")
            });
        }
        self.look();
    }

    /// Offers a frame to the one that keeps them.
    fn keep(&mut self, frame: &[u8]) -> (Option<Vec<u8>>, Option<DropReason>, bool) {
        let mut own = Some(frame.to_vec());
        let came = what_became(&self.keeping.offer_frame(self.now, &mut own));
        let is_done_with =
            came == (None, None, false) || came.1 == Some(DropReason::TooManyFragments);
        let is_good = own.as_deref().map_or(is_done_with, |own| own == frame);
        self.expect(is_good, || format!("{own:02x?} is back where {came:02x?} came"));
        came
    }

    /// Whether what came is the packet that is wanted, with the tags of a first piece of its name. (Of
    /// several such pieces, which differ in their priority, nothing says which one was kept.)
    fn is_dressed(&self, reading: &Reading, vlans: &[u16], wanted: &[u8], came: &[u8]) -> bool {
        let Reading::Piece(piece) = reading else { return false };
        let is_of_packet =
            |(name, tags): &&(Name, Vec<u8>)| *name == piece.name && self::vlans(tags) == vlans;
        let mut firsts = self.firsts.iter().filter(is_of_packet);
        firsts.any(|(_, tags)| redress(self.choices.link, tags, wanted) == came)
    }

    /// What holds at any time.
    fn look(&mut self) {
        let config = self.choices.config();
        let (memory, packets) = (self.reassembler.memory(), self.reassembler.packets());
        let most = config.bytes + config.bytes / 8 + 2 * u64::from(LONGEST);
        self.expect(memory <= most && packets <= config.packets as usize, || {
            format!("{packets} packets take {memory} bytes")
        });
        let (counted, offered) = (self.reassembler.counters().offered(), self.offered);
        self.expect(counted == offered, || format!("{counted} of {offered} frames are counted"));
        // The packet that came out last may hold as much as any.
        let (memory, most) = (self.keeping.memory(), most + config.bytes_per_source);
        let counted = self.keeping.counters().offered();
        self.expect(memory <= most && counted == offered, || {
            format!("frames of {memory} bytes are kept; {counted} of {offered} are counted")
        });
    }

    fn wait(&mut self, time: Option<Duration>) {
        self.now = match time {
            Some(time) => self.now + time,
            None => self.reassembler.poll_timeout().map_or(self.now, |end| end.max(self.now)),
        };
        let now = self.now;
        self.reassembler.handle_timeout(now);
        self.keeping.handle_timeout(now);
        let ended: Vec<_> = core::iter::from_fn(|| self.reassembler.poll_ended()).collect();
        let kept: Vec<_> = core::iter::from_fn(|| self.keeping.poll_ended()).collect();
        let is_alike = self.choices.is_tight || kept == ended;
        self.expect(is_alike, || format!("of frames that are kept {kept:02x?} ended"));
        let mut told = BTreeSet::new();
        for packet in ended {
            let Some(first) = packet.first.filter(|_| packet.reason == EndReason::Expired) else {
                continue;
            };
            let mut frame = first.head.as_slice()[first.parsed.network_at.into()..].to_vec();
            frame.extend_from_slice(&first.payload);
            told.insert(frame);
        }
        let mut wanted = BTreeSet::new();
        for (_, naive) in &mut self.naive {
            for Expired { frame } in naive.pass(now) {
                wanted.insert(frame[ETHERNET..].to_vec());
            }
        }
        if !self.choices.is_tight {
            let starts = |long: &Vec<u8>, short: &Vec<u8>| long.starts_with(short);
            let is_good = wanted.len() == told.len()
                && wanted.iter().all(|long| told.iter().any(|short| starts(long, short)));
            self.expect(is_good, || format!("to be told {wanted:02x?}, told {told:02x?}"));
        }
        self.look();
    }
}

/// Whether each byte of a packet came in a piece of its name, at its place, and the pieces follow
/// one another.
fn is_made_of(came: &[(Vec<u16>, Piece)], vlans: &[u16], packet: &[u8]) -> bool {
    let name_len = if packet[ETHERNET] >> 4 == 4 { 8 } else { 32 };
    let name_at = ETHERNET + if name_len == 8 { 12 } else { 8 };
    let addresses = &packet[name_at..name_at + name_len];
    let of_packet =
        |(known, piece): &&(Vec<u16>, Piece)| known == vlans && piece.name.addresses == addresses;
    let pieces: Vec<&Piece> = came.iter().filter(of_packet).map(|(_, piece)| piece).collect();
    pieces.iter().filter(|piece| piece.offset == 0).any(|first| {
        let Some(payload) = packet.get(first.head.len()..) else { return false };
        let mut reached = BTreeSet::from([0]);
        while let Some(at) = reached.pop_first() {
            if at == payload.len() {
                return true;
            }
            for piece in
                pieces.iter().filter(|piece| piece.offset == at && piece.name == first.name)
            {
                if payload[at..].starts_with(&piece.bytes) && !piece.bytes.is_empty() {
                    reached.insert(piece.end());
                }
            }
        }
        payload.is_empty()
    })
}
