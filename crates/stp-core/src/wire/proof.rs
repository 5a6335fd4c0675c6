//! The proof that a packet comes from the other side of its connection.
//!
//! A key of 32 bits says which connection a packet belongs to, and keeps strays
//! away. What ends or answers something carries more: a hash over its head, keyed
//! with the secrets that both sides drew and told each other in the set-up.
//! Anyone who did not hear those can end nothing, whatever address it writes on its
//! packets, and a proof of another connection proves nothing here.

use core::ops::Range;

use siphasher::sip::SipHasher24;

use super::header::{self, HEADER_LEN, Header, LONGEST_HEAD, SUM_RANGE};
use super::op::{Flags, Op};

/// Where the secret lies in a Connection_Answer.
const SECRET: Range<usize> = HEADER_LEN..HEADER_LEN + 8;

/// What one side of a connection drew for it, and told the other.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Secret(pub u64);

/// It is not printed.
impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret")
    }
}

/// The secrets of a connection, as a packet from one side to the other uses them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Secrets {
    /// Of the side that receives the packet.
    pub receiver: Secret,
    /// Of the side that sends it.
    pub sender: Secret,
}

/// Where the proof lies in a packet that begins with this header; nothing where
/// it carries none.
#[must_use]
pub fn place(header: &Header) -> Option<Range<usize>> {
    /// Bufx and Offset, and each alone where the other is in use.
    const BOTH: Range<usize> = 20..28;
    const BUFX: Range<usize> = 20..24;
    const OFFSET: Range<usize> = 24..28;
    const BEHIND: Range<usize> = HEADER_LEN + 8..LONGEST_HEAD;
    let is_rejected = header.flags().has(Flags::REJECTED);
    match Op::from_number(header.op)? {
        Op::ConnectionAnswer => Some(if is_rejected { BOTH } else { BEHIND }),
        Op::MemoryRegionAvailable => Some(if is_rejected { BOTH } else { OFFSET }),
        Op::RequestStateResponse if header.param.get() as u8 == 1 => Some(BUFX),
        Op::RequestDisconnect
        | Op::DisconnectAnswer
        | Op::DisconnectComplete
        | Op::RequestAnswer
        | Op::FetchOpComplete
        | Op::RequestState
        | Op::RequestStateResponse
        | Op::End
        | Op::EndAck => Some(BOTH),
        Op::RequestConnection
        | Op::RequestToSend
        | Op::RequestToReceive
        | Op::ClearToSend
        | Op::Data
        | Op::RequestMemoryRegion
        | Op::Put
        | Op::Get
        | Op::FetchOp => None,
    }
}

/// Puts the proof into a head, where it carries one, and the checksum again.
pub fn seal(head: &mut [u8], secrets: Secrets) {
    if let Some(place) = Header::read(head).and_then(place)
        && let Some(proof) = hash(head, &place, secrets)
    {
        if let Some(field) = head.get_mut(place) {
            let len = field.len();
            field.copy_from_slice(&proof.to_be_bytes()[..len]);
        }
        if let Some(sum) = head.get_mut(SUM_RANGE) {
            sum.fill(0);
        }
        header::seal(head);
    }
}

/// What is known of the proof of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It carries none, and needs none.
    Without,
    /// Its proof is right.
    Right,
    /// Its proof is zero, as in packets of who does not know of proofs.
    Missing,
    /// Its proof is wrong.
    Wrong,
}

/// Is the proof of a head right?
#[must_use]
pub fn check(head: &[u8], secrets: Secrets) -> Verdict {
    let Some(place) = Header::read(head).and_then(place) else { return Verdict::Without };
    let (Some(proof), Some(field)) = (hash(head, &place, secrets), head.get(place)) else {
        return Verdict::Wrong;
    };
    if field == &proof.to_be_bytes()[..field.len()] {
        Verdict::Right
    } else if field.iter().all(|byte| *byte == 0) {
        Verdict::Missing
    } else {
        Verdict::Wrong
    }
}

/// SipHash-2-4 over the head, with zeros where checksum and proof are.
fn hash(head: &[u8], place: &Range<usize>, secrets: Secrets) -> Option<u64> {
    let mut bytes = [0; LONGEST_HEAD];
    let len = HEADER_LEN.max(place.end);
    let bytes = &mut bytes[..len];
    bytes.copy_from_slice(head.get(..len)?);
    bytes[SUM_RANGE].fill(0);
    bytes[place.clone()].fill(0);
    let sender = if bytes[0] != Op::ConnectionAnswer as u8 {
        secrets.sender.0
    } else if len == LONGEST_HEAD {
        // It tells the secret itself.
        u64::from_be_bytes(bytes[SECRET].try_into().ok()?)
    } else {
        // Who is refused has not heard it.
        0
    };
    let mut key = [0; 16];
    key[..8].copy_from_slice(&secrets.receiver.0.to_be_bytes());
    key[8..].copy_from_slice(&sender.to_be_bytes());
    Some(SipHasher24::new_with_key(&key).hash(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::message::{Ids, Message};
    use crate::wire::{Envelope, Reason};
    use std::vec::Vec;

    const SECRETS: Secrets =
        Secrets { receiver: Secret(0x0123_4567_89ab_cdef), sender: Secret(42) };

    fn abort(secrets: Secrets) -> Vec<u8> {
        let abort = Some(Reason::Cancelled);
        let message = Message::RequestDisconnect { ids: Ids { d_id: 3, s_id: 5 }, abort };
        let mut head = [0; LONGEST_HEAD];
        let len = message.encode(Envelope::default(), &mut head).expect("it fits");
        let mut head = head[..len].to_vec();
        seal(&mut head, secrets);
        head
    }

    #[test]
    fn every_bit_counts_and_so_does_every_bit_of_the_secrets() {
        let good = abort(SECRETS);
        assert!(header::is_sealed(&good));
        assert_eq!(check(&good, SECRETS), Verdict::Right);
        for bit in (0..good.len() * 8).filter(|bit| !SUM_RANGE.contains(&(bit / 8))) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(check(&bad, SECRETS), Verdict::Right, "bit {bit}");
        }
        for bit in 0..64 {
            let Secrets { receiver, sender } = SECRETS;
            let other = Secrets { receiver: Secret(receiver.0 ^ 1 << bit), sender };
            assert_eq!(check(&good, other), Verdict::Wrong);
            let other = Secrets { receiver, sender: Secret(sender.0 ^ 1 << bit) };
            assert_eq!(check(&good, other), Verdict::Wrong);
        }
    }

    #[test]
    fn a_proof_for_one_side_is_none_for_the_other() {
        let Secrets { receiver, sender } = SECRETS;
        let back = Secrets { receiver: sender, sender: receiver };
        assert_eq!(check(&abort(SECRETS), back), Verdict::Wrong);
    }

    #[test]
    fn no_proof_is_told_from_a_wrong_one() {
        let mut head = abort(SECRETS);
        head[20..28].fill(0);
        assert_eq!(check(&head, SECRETS), Verdict::Missing);
        head[27] = 1;
        assert_eq!(check(&head, SECRETS), Verdict::Wrong);
        assert_eq!(check(&head[..39], SECRETS), Verdict::Without, "that is no head");
    }
}
