//! What holds for any bytes: the fuzz target `stp_header` runs this too.

use landfall_placement::Refusal;
use stp_core::wire::header::is_sealed;
use stp_core::wire::{Flags, Header, LONGEST_HEAD, Message, Op};

/// Decodes any bytes. What decodes must encode again, to something that decodes
/// to the same; what does not must be refused for a reason that fits.
///
/// # Panics
/// Where that does not hold.
pub fn check(bytes: &[u8]) {
    let _ = is_sealed(bytes);
    match Message::decode(bytes) {
        Ok((envelope, message)) => {
            let mut head = [0; LONGEST_HEAD];
            let len = message.encode(envelope, &mut head).expect("what was decoded fits");
            assert!(len <= bytes.len());
            assert_eq!(Message::decode(&head[..len]), Ok((envelope, message)));
            let header = Header::read(&head).expect("it is long enough");
            assert_eq!(header.op, bytes[0]);
            // Data and Put get theirs from the driver, who has the payload; until then the
            // place is empty. What the other fields sum up to is anything.
            let has_payload = matches!(message.op(), Op::Data | Op::Put);
            assert_eq!(header.flags().has(Flags::SUM), !has_payload, "{message:?}");
            if has_payload {
                assert_eq!(header.cksum.get(), 0, "{message:?}");
            } else {
                assert!(is_sealed(&head[..len]), "{message:?}");
            }
        }
        Err(Refusal::Truncated) => {
            let op = bytes.first().and_then(|op| Op::from_number(*op));
            let flags = Flags(bytes.get(1).copied().unwrap_or_default());
            let needed = Message::head_len(op.unwrap_or(Op::Data), flags);
            assert!(bytes.len() < needed, "{} bytes of {op:?}", bytes.len());
        }
        Err(Refusal::Unsupported) => {
            let op = Op::from_number(bytes[0]);
            assert!(matches!(op, None | Some(Op::FetchOp)), "{op:?} is supported");
        }
        Err(Refusal::BadChecksum) => {
            assert_eq!(bytes[1] & Flags::SUM.0, 0, "decoding does not sum");
            assert!(bytes[0] != Op::Data as u8 && bytes[0] != Op::Put as u8);
        }
        Err(Refusal::Malformed) => assert!(Op::from_number(bytes[0]).is_some()),
        Err(other) => panic!("decoding does not look at what {other} means"),
    }
}
