//! The keys of an association in use: units sealed and opened with them.

use alloc::boxed::Box;

use landfall_placement::{PathId, Peer, Refusal};
use zeroize::Zeroizing;

use super::unit::{Authenticated, MASK_KEY, Mask, OVERHEAD, OuterHead, mask_key, tag_of};
use crate::aead::Tag;
use crate::handshake::Established;
use crate::provider::Provider;
use crate::record::{OpenError, Opener, RecordConfig, SealError, Sealer};

/// Hides the heads of what leaves, and uncovers those of what comes.
#[derive(Debug)]
struct Masks {
    outgoing: Mask,
    incoming: Mask,
}

/// The keys of an association in use. Unused they are as short as possible; expanded,
/// they are five times as long.
#[derive(Debug)]
pub(super) struct Session {
    sealer: Sealer<Provider>,
    opener: Opener<Provider>,
    /// What the masks of units that leave and that come are made of.
    mask_keys: Zeroizing<[[u8; MASK_KEY]; 2]>,
    /// The masks, while units come and go.
    masks: Option<Box<Masks>>,
    /// The highest packet number that was genuine, and where that came from.
    highest: Option<u64>,
    /// Where the unit came from that was placed last, and its number.
    seen: Option<(u64, PathId, Peer)>,
}

impl Session {
    pub(super) fn new(established: Established) -> Self {
        let keys = established.keys;
        let senders = [keys.role(), keys.role().peer()];
        let mask_keys = Zeroizing::new(senders.map(|sender| mask_key(&keys, sender)));
        let (sealer, opener) = keys.records(&RecordConfig::default());
        Self { sealer, opener, mask_keys, masks: None, highest: None, seen: None }
    }

    /// Are its keys expanded?
    #[inline]
    pub(super) const fn is_expanded(&self) -> bool {
        self.masks.is_some()
    }

    /// Lets go of expanded keys until they are used again.
    pub(super) fn drop_expanded(&mut self) {
        self.masks = None;
        self.sealer.drop_expanded();
        self.opener.drop_expanded();
    }

    #[inline]
    fn masks(&mut self) -> &Masks {
        let [outgoing, incoming] = &*self.mask_keys;
        self.masks.get_or_insert_with(|| {
            let (outgoing, incoming) = (Mask::of_key(outgoing), Mask::of_key(incoming));
            Box::new(Masks { outgoing, incoming })
        })
    }

    /// Reads the heads of a unit that may be genuine. What makes no sense or came before is
    /// refused here already.
    pub(super) fn uncover(&mut self, unit: &[u8]) -> Result<Authenticated, Covered> {
        let heads = self.masks().incoming.uncover(unit).map_err(Covered::Needs)?;
        let at = heads.outer().position(self.opener.generation());
        if self.opener.expects(at) { Ok(heads) } else { Err(Covered::Replayed) }
    }

    pub(super) fn note_seen(&mut self, heads: &Authenticated, path: PathId, from: Peer) {
        self.seen = Some((heads.outer().number, path, from));
    }

    /// Opens a payload. Gives where the peer is now, if that is news.
    pub(super) fn open(
        &mut self,
        unit: &[u8],
        heads: &Authenticated,
        payload: &mut [u8],
    ) -> Result<Option<(PathId, Peer)>, OpenError> {
        let tag = Tag(tag_of(unit).ok_or(OpenError::NoPosition)?);
        let at = heads.outer().position(self.opener.generation());
        self.opener.open(at, heads.bytes(), payload, &tag)?;
        if self.highest.is_some_and(|highest| highest > at.number) {
            return Ok(None);
        }
        self.highest = Some(at.number);
        let seen = self.seen.filter(|(number, ..)| *number == at.number);
        Ok(seen.map(|(_, path, from)| (path, from)))
    }

    /// Opens a unit where it lies: the engine's head and payload are behind the outer head then.
    /// Gives where the peer is now, if that is news.
    pub(super) fn open_in_place(
        &mut self,
        unit: &mut [u8],
        path: PathId,
        from: Peer,
    ) -> Result<Option<(PathId, Peer)>, Refusal> {
        let heads = self.uncover(unit).map_err(|covered| match covered {
            Covered::Needs(len) if len == usize::MAX => Refusal::Malformed,
            Covered::Needs(_) => Refusal::Truncated,
            Covered::Replayed => Refusal::Duplicate,
        })?;
        self.note_seen(&heads, path, from);
        let (head, payload) = unit.split_at_mut(OVERHEAD + heads.inner().len());
        let moved = self.open(head, &heads, payload).map_err(|_| Refusal::BadProof)?;
        head[OVERHEAD..].copy_from_slice(heads.inner());
        Ok(moved)
    }

    /// Seals a unit whose outer head is to be written.
    pub(super) fn seal(&mut self, to: u32, head: &mut [u8], payload: &mut [u8]) -> bool {
        // Far below the limit, so that what is under way does not reach it.
        if self.sealer.needs_update() && self.sealer.update().is_err() {
            return false;
        }
        self.try_seal(to, head, payload).is_ok()
    }

    fn try_seal(&mut self, to: u32, head: &mut [u8], payload: &mut [u8]) -> Result<(), SealError> {
        let slot = self.sealer.slot(0)?;
        let at = slot.position();
        let inner_len = (head.len().saturating_sub(OVERHEAD)) as u8;
        let (generation, number) = (at.generation as u8, at.number);
        let Some(outer) = head.first_chunk_mut() else { return Err(SealError::TooLong) };
        OuterHead { generation, inner_len, to, number }.write(outer);
        let heads = Authenticated::of_plain(head).ok_or(SealError::TooLong)?;
        let tag = slot.seal(heads.bytes(), payload)?;
        head[16..OVERHEAD].copy_from_slice(&tag.0);
        self.masks().outgoing.cover(head);
        Ok(())
    }
}

/// Why the heads of a unit cannot be read.
pub(super) enum Covered {
    /// This many bytes of it are needed.
    Needs(usize),
    /// It came before.
    Replayed,
}

#[cfg(test)]
mod tests {
    use std::string::String;
    use std::vec::Vec;

    use super::super::{CaptureOpener, NotOpened, TrafficKeys};
    use super::*;
    use crate::aead::Suite;
    use crate::handshake::PeerIdentity;
    use crate::keys::{Keys, Role};
    use crate::secret::Secret;

    const DOCUMENT: &str = include_str!("../../../../docs/spec/seal.md");

    fn session(role: Role) -> Session {
        let keys = Keys::new(Secret::new([7; 32]), role, Suite::Aes128Gcm);
        Session::new(Established { keys, peer: PeerIdentity::PresharedKey })
    }

    /// The bytes in a block of the document, comments apart.
    fn vector(name: &str) -> Vec<u8> {
        let start = std::format!("vector {name}\n");
        let (_, behind) = DOCUMENT.split_once(&start).expect("the document has it");
        let (lines, _) = behind.split_once("```").expect("it ends");
        let bytes = lines.lines().map(|line| line.split(';').next().unwrap_or_default());
        let digits: String = bytes.flat_map(str::split_whitespace).collect();
        let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hex");
        (0..digits.len()).step_by(2).map(byte).collect()
    }

    #[test]
    fn the_vectors_of_the_document_are_what_is_sealed() {
        let mut session = session(Role::Initiator);
        let mut seal = || {
            let mut head = std::vec![0; OVERHEAD];
            head.extend(0..40);
            let mut payload = *b"in its place";
            assert!(session.seal(0x0102_0304, &mut head, &mut payload));
            head.extend_from_slice(&payload);
            head
        };
        let (first, second) = (seal(), seal());
        assert_eq!(first, vector("first unit"), "it is {first:02x?}");
        let keys = Keys::new(Secret::new([7; 32]), Role::Initiator, Suite::Aes128Gcm);
        let line = TrafficKeys::of(&keys, Role::Initiator, 0x0a0b_0c0d, 0x0102_0304).line();
        assert!(DOCUMENT.contains(&std::format!("{line}\n")), "the line is {line}");
        let alike = first.iter().zip(&second).filter(|(a, b)| a == b).count();
        assert!(alike < 12, "the same again looks like it in {alike} bytes");
    }

    #[test]
    fn keys_are_renewed_on_the_way_and_the_mask_stays() {
        let limits = crate::Limits { blocks: 64, ..Suite::Aes128Gcm.limits() };
        let records = RecordConfig { limits: Some(limits), ..RecordConfig::default() };
        let [mut here, mut there] = [Role::Initiator, Role::Responder].map(|role| {
            let keys = || Keys::new(Secret::new([7; 32]), role, Suite::Aes128Gcm);
            let mut session = session(role);
            (session.sealer, session.opener) = keys().records(&records);
            session
        });
        for nth in 0..5_000u32 {
            let mut head = std::vec![0; OVERHEAD + 4];
            head[OVERHEAD..].copy_from_slice(&nth.to_be_bytes());
            let mut payload = *b"in its place";
            assert!(here.seal(9, &mut head, &mut payload));
            let Ok(heads) = there.uncover(&head) else { panic!("unit {nth} is covered") };
            assert_eq!(heads.inner(), nth.to_be_bytes());
            assert_eq!(there.open(&head, &heads, &mut payload), Ok(None));
            assert_eq!(&payload, b"in its place");
            assert!(matches!(there.uncover(&head), Err(Covered::Replayed)));
        }
        assert!(there.opener.generation() > 256, "its low byte came round");
    }

    /// One line of a key log opens all generations, wherever the recording begins among the first
    /// 256, and whatever is missing from it, twice in it or in another order.
    #[test]
    fn a_line_of_a_key_log_opens_all_generations() {
        let mut here = session(Role::Initiator);
        let keys = Keys::new(Secret::new([7; 32]), Role::Initiator, Suite::Aes128Gcm);
        let line = || TrafficKeys::of(&keys, Role::Initiator, 5, 9).line();
        let opener = || {
            let mut opener = CaptureOpener::new();
            opener.add(line().parse().expect("it was written so"));
            opener
        };
        let mut units = Vec::new();
        for nth in 0..700u32 {
            let mut unit = std::vec![0; OVERHEAD + 4];
            unit[OVERHEAD..].copy_from_slice(&nth.to_be_bytes());
            let mut payload = *b"in its place";
            assert!(here.seal(9, &mut unit, &mut payload));
            unit.extend_from_slice(&payload);
            units.push(unit);
            here.sealer.update().expect("there are more");
        }
        let check = |opener: &mut CaptureOpener, nth: usize| {
            let opened = opener.open(&units[nth]).unwrap_or_else(|why| panic!("{nth}: {why}"));
            assert_eq!((opened.generation, opened.number), (nth as u32, nth as u64));
            assert_eq!(opened.bytes, [&(nth as u32).to_be_bytes()[..], b"in its place"].concat());
        };
        let mut all = opener();
        (0..700).for_each(|nth| check(&mut all, nth));
        for start in [1, 127, 128, 200, 255] {
            let mut late = opener();
            for nth in [start, start, start + 100, start + 3, start + 100] {
                check(&mut late, nth);
            }
        }
        // It cannot be known how often the low byte came round: not opened, and no harm done.
        let mut too_late = opener();
        assert_eq!(too_late.open(&units[256]), Err(NotOpened::Forged));
        check(&mut too_late, 0);
        // What claims to be of any generation only seems to be one.
        let mut damaged = units[0].clone();
        for byte in 0..=255 {
            damaged[1] = byte;
            let is_true = byte == units[0][1];
            assert_eq!(opener().open(&damaged).is_ok(), is_true, "{byte}");
        }
    }
}
