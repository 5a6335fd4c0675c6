//! Keys that several have: one seals with them, the others open.

use std::collections::VecDeque;

use landfall_placement::{
    Ecn, Engine, Guess, Instant, Landing, PathId, PathLimits, PathState, Peer, Placement, Refusal,
    Refusals, Spans, Ticket, Timeout, Transmit, Unit,
};
use landfall_seal::{OVERHEAD, Proof, SealConfig, Sealed, Secret, TrustAnybody};

const PATH: PathId = PathId(0);
const GROUP: Peer = Peer::Ethernet([3, 0, 0, 0, 0, 1]);
const WRITER: Peer = Peer::Ethernet([2, 0, 0, 0, 0, 1]);
const NOW: Instant = Instant::ZERO;
/// A unit that begins so says its sender's name.
const NAMED: u8 = b'!';

/// Sends what it was given, and keeps what comes.
#[derive(Default)]
struct Mail {
    out: VecDeque<(Peer, Vec<u8>)>,
    came: Vec<(Peer, Vec<u8>)>,
    refusals: Refusals,
}

impl Engine for Mail {
    type Event = ();

    fn handle_path(&mut self, _: Instant, _: PathId, _: PathState) {}

    fn guess(&self, _: PathId, _: usize) -> Option<Guess> {
        None
    }

    fn place(&mut self, _: Instant, unit: &Unit<'_>, _: &mut Spans) -> Result<Placement, Refusal> {
        self.came.push((unit.from, unit.head.to_vec()));
        Ok(Placement::Consumed)
    }

    fn handle_placed(&mut self, _: Instant, _: Ticket, _: Landing) {}

    fn poll_transmit(
        &mut self,
        _: Instant,
        _: PathId,
        head: &mut [u8],
        _: &mut Spans,
    ) -> Option<Transmit> {
        let (to, bytes) = self.out.pop_front()?;
        head[..bytes.len()].copy_from_slice(&bytes);
        Some(Transmit {
            to,
            head_len: bytes.len() as u16,
            segment: None,
            checksum: None,
            sum_only: 0,
            ecn: Ecn::NotCapable,
            ticket: Ticket::new(0, 0),
        })
    }

    fn handle_sent(&mut self, _: Instant, _: Ticket) {}

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_timeout(&self) -> Option<Timeout> {
        None
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }

    fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    fn name_in(&self, head: &[u8]) -> Option<u32> {
        (head.first() == Some(&NAMED)).then_some(7)
    }
}

fn end(seed: u8, most: usize) -> Sealed<Mail> {
    let proof = Proof::PresharedKey(Secret::new([7; 32]));
    let config = SealConfig { most, ..SealConfig::new(proof) };
    let mut end = Sealed::new(Mail::default(), config, Box::new(TrustAnybody), [seed; 32]);
    end.handle_path(NOW, PATH, PathState::Up(PathLimits::plain(1_400)));
    end
}

/// What leaves next, sealed: to whom, and the unit.
fn leave(end: &mut Sealed<Mail>) -> Option<(Peer, Vec<u8>)> {
    let mut head = [0; 256];
    let transmit = end.poll_transmit(NOW, PATH, &mut head, &mut Spans::new())?;
    let head = &mut head[..transmit.head_len.into()];
    end.seal(head, &mut []).then(|| (transmit.to, head.to_vec()))
}

fn say(end: &mut Sealed<Mail>, to: Peer, bytes: &[u8]) -> Option<(Peer, Vec<u8>)> {
    end.out.push_back((to, bytes.to_vec()));
    leave(end)
}

fn hear(end: &mut Sealed<Mail>, bytes: &[u8]) -> Result<Placement, Refusal> {
    let len = bytes.len() as u32;
    let (path, ecn, segment, verified) = (PATH, Ecn::NotCapable, None, false);
    let unit = Unit { path, from: WRITER, head: bytes, len, segment, ecn, verified };
    end.place(NOW, &unit, &mut Spans::new())
}

#[test]
fn all_members_open_what_one_seals_once_and_nobody_else_does() {
    let [mut writer, mut one, mut two, mut stranger] = [1, 2, 3, 4].map(|seed| end(seed, 8));
    let (number, secret) = writer.open_group(NOW, PATH, GROUP).unwrap();
    assert!(one.join_group(NOW, number, secret) && two.join_group(NOW, number, secret));
    for text in [b"for all of you".as_slice(), b"and this"] {
        let (to, unit) = say(&mut writer, Peer::Node(number), text).unwrap();
        assert_eq!((to, unit.len()), (GROUP, OVERHEAD + text.len()));
        assert!(!unit.windows(4).any(|part| text.starts_with(part)), "it is in clear");
        let mut changed = unit.clone();
        changed[OVERHEAD] ^= 1;
        for member in [&mut one, &mut two] {
            assert!(hear(member, &changed).is_err());
            assert_eq!(hear(member, &unit), Ok(Placement::Consumed));
            assert_eq!(member.came.pop(), Some((Peer::Node(number), text.to_vec())));
            assert_eq!(hear(member, &unit), Err(Refusal::Duplicate));
        }
        assert_eq!(hear(&mut stranger, &unit), Err(Refusal::UnknownId));
    }
    one.forget(Peer::Node(number));
    let (_, unit) = say(&mut writer, Peer::Node(number), b"more").unwrap();
    assert_eq!(hear(&mut one, &unit), Err(Refusal::UnknownId));
    assert_eq!(hear(&mut two, &unit), Ok(Placement::Consumed));
}

/// Two that seal with the same keys would use a nonce twice.
#[test]
fn no_unit_of_a_member_leaves_with_the_keys_of_a_group() {
    let [mut writer, mut member] = [1, 2].map(|seed| end(seed, 8));
    let (number, secret) = writer.open_group(NOW, PATH, GROUP).unwrap();
    assert!(member.join_group(NOW, number, secret));
    let before = member.seal_stats();
    assert_eq!(say(&mut member, Peer::Node(number), b"me, too"), None);
    let after = member.seal_stats();
    assert_eq!((after.dropped - before.dropped, after.sealed), (1, 0));
}

#[test]
fn a_member_of_a_group_has_proven_no_name() {
    let [mut writer, mut member] = [1, 2].map(|seed| end(seed, 8));
    let (number, secret) = writer.open_group(NOW, PATH, GROUP).unwrap();
    assert!(member.join_group(NOW, number, secret));
    let (_, unit) = say(&mut writer, Peer::Node(number), b"!I am host 7").unwrap();
    assert_eq!(hear(&mut member, &unit), Err(Refusal::BadProof));
    assert!(member.came.is_empty());
}

#[test]
fn keys_of_groups_have_a_bound_and_stay_where_others_want_room() {
    let mut member = end(2, 2);
    assert!(member.join_group(NOW, 5, [1; 32]));
    assert!(!member.join_group(NOW, 5, [2; 32]), "its number is taken");
    assert!(!member.join_group(NOW, 0, [2; 32]), "that is no number");
    let (_, _) = member.open_group(NOW, PATH, GROUP).unwrap();
    let later = NOW + landfall_placement::Duration::from_secs(3_600);
    assert!(!member.join_group(later, 6, [3; 32]));
    assert_eq!(member.associate(later, PATH, WRITER, None), None);
    member.forget(Peer::Node(5));
    assert!(member.join_group(later, 6, [3; 32]));
    assert!(Sealed::plain(Mail::default()).open_group(NOW, PATH, GROUP).is_none());
}
