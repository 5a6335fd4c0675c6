//! How links come to be, and how they end.
//!
//! How two sides get to know each other, and how they part: what the bodies of
//! Hello, Bye and Stranger say.
//!
//! ```text
//! Ask      tag 0          my tag, my host, …        who are you?
//! Answer   asker's tag    a tag that proves …       this is who I am; I keep nothing yet
//! Confirm  that tag       my tag, my host, …        now keep it
//! ```
//!
//! Who is asked keeps nothing until it is confirmed: the tag of the answer is a
//! keyed hash of who asked and what was said, so the confirmation brings all
//! back (as SYN cookies do; RFC 4987, 3.6). A stranger who cannot hear the
//! answer can neither open a link nor take room.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use core::hash::{Hash, Hasher};

use arrayvec::ArrayVec;
use landfall_placement::{Instant, PathId, Peer, Random, Refusal, Unit, assumed};
use landfall_tables::HashSecret;
use siphasher::sip::SipHasher24;

use crate::address::HostId;
use crate::error::{Ended, Reason};
use crate::link::link_state::State;
use crate::link::links::{FrameAction, LinkUpdate, Links};
use crate::wire::frame::{Frame, FrameKind, HEADER_LEN};

/// The most answers that wait to be sent to those that no link leads to.
const MOST_REPLIES: usize = 64;

/// The number of counters of links that have ended.
const ENDINGS: usize = 256;

/// Something to be said to one whom no link leads to.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) path: PathId,
    pub(crate) to: Peer,
    pub(crate) kind: FrameKind,
    pub(crate) tag: u64,
    pub(crate) body: ArrayVec<u8, { Hello::LEN }>,
}

/// Where strangers are answered. Nothing is kept of them.
#[derive(Debug)]
pub(crate) struct HandshakeResponder {
    secret: HashSecret,
    /// How many links to some of all peers have ended: a tag that was good for
    /// one that ended is good no more.
    endings: Box<[u32]>,
    replies: VecDeque<Reply>,
}

impl HandshakeResponder {
    pub(crate) fn new(random: &mut Random) -> Self {
        Self {
            secret: HashSecret::new(random.next_u64(), random.next_u64()),
            endings: vec![0; ENDINGS].into_boxed_slice(),
            replies: VecDeque::new(),
        }
    }

    fn hasher(&self, path: PathId, peer: Peer) -> SipHasher24 {
        let mut hasher = SipHasher24::new_with_keys(self.secret.k0(), self.secret.k1());
        (path, peer).hash(&mut hasher);
        hasher
    }

    fn ending_of(&self, path: PathId, peer: Peer) -> usize {
        self.hasher(path, peer).finish() as usize % ENDINGS
    }

    /// The tag that proves that who said this hears our answer, and that nothing
    /// has come about since then: no link with this peer took the place of
    /// `current` (zero where there was none), and none ended. So a confirmation
    /// that comes late confirms nothing.
    fn proof(&self, path: PathId, peer: Peer, hello: &Hello, current: u64) -> u64 {
        let mut hasher = self.hasher(path, peer);
        let said = Hello { stage: Stage::Ask, ..*hello };
        hasher.write(&said.to_bytes());
        hasher.write_u32(self.endings[self.ending_of(path, peer)]);
        hasher.write_u64(current);
        hasher.finish().max(1)
    }

    fn note_ending(&mut self, path: PathId, peer: Peer) {
        let ending = self.ending_of(path, peer);
        self.endings[ending] = self.endings[ending].wrapping_add(1);
    }

    /// At the bound nothing is said: who asks will ask again.
    fn queue_reply(&mut self, unit: &Unit<'_>, kind: FrameKind, tag: u64, body: &[u8]) {
        if self.replies.len() < MOST_REPLIES {
            let body = body.iter().copied().collect();
            self.replies.push_back(Reply { path: unit.path, to: unit.from, kind, tag, body });
        }
    }

    pub(crate) fn poll_reply(&mut self, path: PathId) -> Option<Reply> {
        let nth = self.replies.iter().position(|reply| reply.path == path)?;
        self.replies.remove(nth)
    }
}

impl<N: Copy> Links<N> {
    /// The link that a frame came for, if its sender has proved to hear us.
    pub(super) fn speaker(&mut self, unit: &Unit<'_>, frame: &Frame<'_>) -> Result<u32, Refusal> {
        let tag = frame.header().tag;
        let index = self.index_of(unit.path, unit.from);
        let refusal = match index.and_then(|index| self.table.get(index)) {
            Some(link) if link.is_ours(tag) => {
                self.recent = link.id.index;
                return Ok(link.id.index);
            }
            Some(_) => Refusal::WrongKey,
            None => Refusal::UnknownId,
        };
        if tag != 0 {
            self.queue_stranger_reply(unit, tag);
        }
        Err(refusal)
    }

    /// Who used this tag hears that nobody here knows it.
    fn queue_stranger_reply(&mut self, unit: &Unit<'_>, tag: u64) {
        let body = Stranger { tag, incarnation: self.common.incarnation }.to_bytes();
        self.responder.queue_reply(unit, FrameKind::Stranger, 0, &body);
    }

    pub(super) fn handle_hello(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        frame: &Frame<'_>,
    ) -> Result<FrameAction, Refusal> {
        let hello = Hello::from_body(frame.payload())?;
        if hello.incarnation == self.common.incarnation {
            return Err(Refusal::WrongAddress); // We hear ourselves.
        }
        if hello.host == self.common.host {
            self.turn_away(unit, frame, &hello);
            return Err(Refusal::WrongAddress);
        }
        match hello.stage {
            Stage::Ask if frame.header().tag == 0 => self.answer(unit, &hello),
            Stage::Ask => return Err(Refusal::Malformed),
            Stage::Answer => self.handle_answer(now, unit, frame, hello)?,
            Stage::Confirm => self.handle_confirm(now, unit, frame, hello)?,
        }
        Ok(FrameAction::Consumed)
    }

    /// Somebody is not who it says: it is told that there will be no link.
    fn turn_away(&mut self, unit: &Unit<'_>, frame: &Frame<'_>, hello: &Hello) {
        if hello.stage != Stage::Answer {
            self.refuse(unit, hello);
        } else if let Ok(index) = self.speaker(unit, frame) {
            self.lose(index, Ended::There(Reason::Refused));
        }
    }

    /// The same where a layer below knows it.
    pub(crate) fn handle_false_name(&mut self, unit: &Unit<'_>, frame: &Frame<'_>) {
        if let Ok(hello) = Hello::from_body(frame.payload()) {
            self.turn_away(unit, frame, &hello);
        }
    }

    /// Says who we are, and keeps nothing.
    fn answer(&mut self, unit: &Unit<'_>, hello: &Hello) {
        let index = self.index_of(unit.path, unit.from);
        let link = index.and_then(|index| self.table.get(index));
        let tag = match link {
            // Both ask at the same time.
            Some(link) if matches!(link.state, State::Asking | State::Confirming) => link.tag,
            // An old question comes late.
            Some(link) if link.theirs.is_some_and(|theirs| theirs.tag == hello.tag) => link.tag,
            Some(link) => self.responder.proof(unit.path, unit.from, hello, link.tag),
            None => self.responder.proof(unit.path, unit.from, hello, 0),
        };
        let body = self.common.hello(Stage::Answer, tag).to_bytes();
        self.responder.queue_reply(unit, FrameKind::Hello, hello.tag, &body);
    }

    fn refuse(&mut self, unit: &Unit<'_>, hello: &Hello) {
        self.responder.queue_reply(unit, FrameKind::Bye, hello.tag, &bye(Reason::Refused));
    }

    fn handle_answer(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        frame: &Frame<'_>,
        hello: Hello,
    ) -> Result<(), Refusal> {
        let index = self.speaker(unit, frame)?;
        if let Some(is_alive) = self.rival_of(now, unit, index, &hello) {
            if is_alive {
                self.lose(index, Ended::There(Reason::Refused));
            }
            return Err(Refusal::Unexpected);
        }
        let link = self.table.get_mut(index).ok_or(Refusal::UnknownId)?;
        match link.state {
            State::Asking => link.handle_answer(now, hello),
            State::Confirming if link.theirs != Some(hello) => link.handle_answer(now, hello),
            _ => return Ok(()), // It is up, or about to be.
        }
        self.touch(index);
        Ok(())
    }

    /// The other side has our answer, and says again what it asked with.
    fn handle_confirm(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        frame: &Frame<'_>,
        hello: Hello,
    ) -> Result<(), Refusal> {
        let tag = frame.header().tag;
        let index = self.index_of(unit.path, unit.from);
        let link = index.and_then(|index| self.table.get_mut(index));
        let is_begun = |state| matches!(state, State::Asking | State::Confirming);
        let established = link.as_ref().filter(|link| !is_begun(link.state));
        let current = established.map_or(0, |link| link.tag);
        let is_proof = tag == self.responder.proof(unit.path, unit.from, &hello, current);
        let is_new = match (link, index) {
            (Some(link), Some(index)) if link.is_ours(tag) => match link.state {
                State::Asking | State::Confirming => Some(index),
                State::Up if link.theirs.is_some_and(|theirs| theirs.tag == hello.tag) => {
                    link.receiver.hurry(); // It was not heard that we heard.
                    self.touch(index);
                    return Ok(());
                }
                _ => return Err(Refusal::Unexpected),
            },
            // They asked before we did.
            (Some(link), Some(index)) if is_proof && is_begun(link.state) => {
                link.other_tag = tag;
                Some(index)
            }
            _ if is_proof => None,
            _ => {
                self.answer(unit, &hello);
                return Err(Refusal::WrongKey);
            }
        };
        let own = is_new.or(index).unwrap_or(u32::MAX);
        if let Some(is_alive) = self.rival_of(now, unit, own, &hello) {
            if is_alive {
                self.refuse(unit, &hello);
            }
            return Err(Refusal::Unexpected);
        }
        let index = match is_new {
            Some(index) => index,
            None => {
                if let Some(old) = index {
                    self.replace(old, &hello);
                }
                let entered = self.enter(now, unit.path, unit.from, tag);
                entered.ok_or_else(|| {
                    self.refuse(unit, &hello);
                    Refusal::NoRoom
                })?
            }
        };
        self.set_up(now, index, hello);
        Ok(())
    }

    /// A link from the same peer takes the place of this one.
    fn replace(&mut self, old: u32, hello: &Hello) {
        let theirs = self.table.get(old).and_then(|link| link.theirs);
        let is_same = theirs.is_some_and(|theirs| theirs.incarnation == hello.incarnation);
        let why = if is_same { Ended::There(Reason::Refused) } else { Ended::Restarted };
        self.lose(old, why);
    }

    /// Another host that has the same name, if there is one: whether it was found
    /// alive after the second came.
    fn rival_of(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        index: u32,
        hello: &Hello,
    ) -> Option<bool> {
        let rival = *self.by_host.get(&hello.host)?;
        let link = self.table.get_mut(rival)?;
        let is_same = link.theirs.is_some_and(|theirs| theirs.incarnation == hello.incarnation);
        if rival == index || is_same {
            return None;
        }
        if link.is_uncontested() {
            let (link, path, peer) = (link.id, unit.path, unit.from);
            self.updates.push_back(LinkUpdate::Contested { link, path, peer });
        }
        let is_alive = link.challenge(now);
        self.touch(rival);
        Some(is_alive)
    }

    pub(super) fn set_up(&mut self, now: Instant, index: u32, theirs: Hello) {
        let Some(link) =
            assumed(self.table.get_mut(index), "a link that is set up is in the table")
        else {
            return;
        };
        link.set_up(now, theirs);
        self.updates.push_back(LinkUpdate::Up { link: link.id, host: theirs.host });
        self.by_host.entry(theirs.host).or_insert(index);
        self.touch(index);
    }

    pub(super) fn handle_bye(
        &mut self,
        unit: &Unit<'_>,
        frame: &Frame<'_>,
    ) -> Result<FrameAction, Refusal> {
        let reason = bye_from(frame.payload())?;
        let index = self.speaker(unit, frame)?;
        let theirs = self.table.get(index).and_then(|link| link.theirs);
        self.lose(index, Ended::There(reason));
        // So that it is not said again.
        if theirs.is_some() {
            self.queue_stranger_reply(unit, frame.header().tag);
        }
        Ok(FrameAction::Consumed)
    }

    /// The other side knows nothing of a link that we have with it.
    pub(super) fn handle_stranger(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        frame: &Frame<'_>,
    ) -> Result<FrameAction, Refusal> {
        let said = Stranger::from_body(frame.payload())?;
        let index = self.index_of(unit.path, unit.from).ok_or(Refusal::UnknownId)?;
        let link = self.table.get(index).ok_or(Refusal::UnknownId)?;
        let theirs = link.theirs.filter(|theirs| theirs.tag == said.tag);
        let theirs = theirs.ok_or(Refusal::WrongKey)?;
        match link.state {
            State::Up if theirs.incarnation != said.incarnation => {
                self.lose(index, Ended::Restarted);
            }
            State::Up => self.lose(index, Ended::There(Reason::Refused)),
            State::Parting(_) => self.lose(index, Ended::Here),
            _ => return Err(Refusal::Unexpected),
        }
        let _ = now;
        Ok(FrameAction::Consumed)
    }

    /// Ends a link and says goodbye.
    pub(super) fn part(&mut self, now: Instant, index: u32, reason: Reason, why: Ended) {
        let Some(link) = assumed(self.table.get_mut(index), "a link that parts is in the table")
        else {
            return;
        };
        link.part(now, reason);
        self.updates.push_back(LinkUpdate::Down { link: link.id, why });
        self.unlist_host(index);
        if self.table.get(index).is_some_and(|link| link.state == State::Ended) {
            self.unlist(index);
        }
        self.report_notes(index);
        self.touch(index);
    }

    /// A link is over.
    pub(super) fn lose(&mut self, index: u32, why: Ended) {
        let Some(link) = assumed(self.table.get_mut(index), "a link that is lost is in the table")
        else {
            return;
        };
        let was_parting = matches!(link.state, State::Parting(_));
        if link.state == State::Ended {
            return;
        }
        link.end();
        if !was_parting {
            self.updates.push_back(LinkUpdate::Down { link: link.id, why });
        }
        self.unlist_host(index);
        self.unlist(index);
        self.report_notes(index);
    }

    /// Its peer may have a new link from now on.
    fn unlist(&mut self, index: u32) {
        let Some(link) = assumed(self.table.get(index), "a link that ends is in the table") else {
            return;
        };
        let (path, peer) = (link.path, link.peer);
        self.by_peer.remove(&(path, peer), index);
        self.responder.note_ending(path, peer);
    }

    /// Another link to its host takes over, if there is one.
    fn unlist_host(&mut self, index: u32) {
        if let Some(host) = self.table.get(index).and_then(|link| link.host()) {
            if self.by_host.get(&host) != Some(&index) {
                return;
            }
            self.by_host.remove(&host);
            let other = self.table.indices().find(|other| {
                let link = self.table.get(*other);
                link.is_some_and(|link| link.state == State::Up && link.host() == Some(host))
            });
            if let Some(other) = other {
                self.by_host.insert(host, other);
            }
        }
    }
}

/// What a Hello is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    Ask = 1,
    Answer = 2,
    Confirm = 3,
}

/// What the other side has said of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) stage: Stage,
    /// It wants a sum over every payload.
    pub(crate) wants_sums: bool,
    pub(crate) host: HostId,
    /// The most frames that it takes behind what it has acknowledged.
    pub(crate) frames: u16,
    /// How it wants to be spoken to from now on.
    pub(crate) tag: u64,
    /// Drawn when it was started.
    pub(crate) incarnation: u64,
    /// How many bytes of frames it keeps that came too early.
    pub(crate) early_bytes: u32,
}

const WANTS_SUMS: u8 = 1;

impl Hello {
    pub(crate) const LEN: usize = 32;

    pub(crate) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = self.stage as u8;
        bytes[1] = if self.wants_sums { WANTS_SUMS } else { 0 };
        bytes[2..4].copy_from_slice(&self.host.number().to_be_bytes());
        bytes[4..6].copy_from_slice(&self.frames.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.tag.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.incarnation.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.early_bytes.to_be_bytes());
        bytes
    }

    pub(crate) fn from_body(body: &[u8]) -> Result<Self, Refusal> {
        let bytes: &[u8; Self::LEN] = body.try_into().map_err(|_| Refusal::Malformed)?;
        let long = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_be_bytes(word)
        };
        let short = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let stage = match bytes[0] {
            1 => Stage::Ask,
            2 => Stage::Answer,
            3 => Stage::Confirm,
            _ => return Err(Refusal::Malformed),
        };
        let is_zero = bytes[6..8] == [0; 2] && bytes[28..] == [0; 4] && bytes[1] <= WANTS_SUMS;
        let (frames, tag) = (short(4), long(8));
        if !is_zero || tag == 0 || frames == 0 {
            return Err(Refusal::Malformed);
        }
        Ok(Self {
            stage,
            wants_sums: bytes[1] == WANTS_SUMS,
            host: HostId::new(short(2)).ok_or(Refusal::Malformed)?,
            frames,
            tag,
            incarnation: long(16),
            early_bytes: (long(24) >> 32) as u32,
        })
    }
}

/// Who says to be who, in a unit that begins so: the host of a Hello.
pub(crate) fn host_in(head: &[u8]) -> Option<HostId> {
    let number = *head.get(HEADER_LEN + 2..)?.first_chunk()?;
    let is_hello = FrameKind::at_start(head) == Some(FrameKind::Hello);
    HostId::new(u16::from_be_bytes(number)).filter(|_| is_hello)
}

/// The body of a Bye: why.
pub(crate) const fn bye(reason: Reason) -> [u8; 8] {
    [reason as u8, 0, 0, 0, 0, 0, 0, 0]
}

pub(crate) fn bye_from(body: &[u8]) -> Result<Reason, Refusal> {
    match body {
        [code, 0, 0, 0, 0, 0, 0, 0] => Reason::from_code(*code).ok_or(Refusal::Malformed),
        _ => Err(Refusal::Malformed),
    }
}

/// The body of a Stranger: the tag of the frame that came for a link that does
/// not exist, and when the sender was started. The tag is the proof that the
/// sender has seen that frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stranger {
    pub(crate) tag: u64,
    pub(crate) incarnation: u64,
}

impl Stranger {
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.tag) << 64 | u128::from(self.incarnation)).to_be_bytes()
    }

    pub(crate) fn from_body(body: &[u8]) -> Result<Self, Refusal> {
        let bytes: [u8; 16] = body.try_into().map_err(|_| Refusal::Malformed)?;
        let both = u128::from_be_bytes(bytes);
        Ok(Self { tag: (both >> 64) as u64, incarnation: both as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::link_state::bare;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_said_is_heard(
            stage in 1u8..=3, wants_sums: bool, host in 0..=HostId::MAX, frames in 1u16..,
            tag in 1u64.., incarnation: u64, early_bytes: u32,
        ) {
            let stage = [Stage::Ask, Stage::Answer, Stage::Confirm][usize::from(stage) - 1];
            let host = HostId::new(host).unwrap();
            let hello = Hello { stage, wants_sums, host, frames, tag, incarnation, early_bytes };
            prop_assert_eq!(Hello::from_body(&hello.to_bytes()), Ok(hello));
            for (kind, found) in [(FrameKind::Hello, Some(host)), (FrameKind::Ack, None)] {
                let mut head = [0; HEADER_LEN + Hello::LEN];
                bare(kind, tag, &hello.to_bytes(), Peer::Unaddressed, &mut head);
                prop_assert_eq!(host_in(&head), found);
                prop_assert_eq!(host_in(&head[..HEADER_LEN + 3]), None);
            }
            let stranger = Stranger { tag, incarnation };
            prop_assert_eq!(Stranger::from_body(&stranger.to_bytes()), Ok(stranger));
        }

        /// Bytes as they may come: most of them are a Hello, for what must be zero mostly is.
        #[test]
        fn whatever_is_understood_is_said_alike(
            mut body: [u8; Hello::LEN], stage in 0u8..5, flags in 0u8..3, host in 0..=HostId::MAX + 1,
            zero in prop_oneof![9 => Just(0), 1 => any::<u8>()],
        ) {
            let [high, low] = host.to_be_bytes();
            body[..4].copy_from_slice(&[stage, flags, high, low]);
            for zeros in [6..8, 28..Hello::LEN] { body[zeros].fill(zero); }
            let is_one = (1..=3).contains(&stage) && flags < 2 && host <= HostId::MAX && zero == 0
                && body[4..6] != [0; 2] && body[8..16] != [0; 8];
            prop_assert_eq!(Hello::from_body(&body).map(Hello::to_bytes), is_one.then_some(body).ok_or(Refusal::Malformed));
            prop_assert_eq!(Hello::from_body(&body[..Hello::LEN - 1]), Err(Refusal::Malformed));
        }

        #[test]
        fn a_bye_that_is_understood_is_said_alike(code: u8, at in 1usize..8, other in 1u8..) {
            let mut body = [code, 0, 0, 0, 0, 0, 0, 0];
            let known = Reason::from_code(code).map(|_| body);
            prop_assert_eq!(bye_from(&body).map(bye), known.ok_or(Refusal::Malformed));
            body[at] = other;
            prop_assert_eq!(bye_from(&body), Err(Refusal::Malformed));
        }

        #[test]
        fn of_a_hello_every_byte_counts(host in 0..=HostId::MAX, tag in 1u64.., at in 0usize..Hello::LEN) {
            let host = HostId::new(host).unwrap();
            let hello = Hello {
                stage: Stage::Ask, wants_sums: false, host, frames: 7, tag, incarnation: 1, early_bytes: 9,
            };
            let mut body = hello.to_bytes();
            body[at] ^= 0x10;
            prop_assert_ne!(Hello::from_body(&body), Ok(hello));
        }
    }
}
