//! Any bytes as a frame: taken apart and put together it is the same, and neither a
//! gate nor a requester minds it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use landfall_placement::{Instant, Refusal};

use super::super::frame::{ControlFrame, ETHERTYPE, MAGIC, VERSION, is_control};
use super::super::{Gate, GateConfig, Mode, Requester, RequesterConfig};

/// What breaks a rule about one frame: the bytes as they are, and made to begin like a
/// control frame, so that they get deep.
#[must_use]
pub fn misreadings(bytes: &[u8]) -> Vec<String> {
    let mut failures = Vec::new();
    check(bytes, &mut failures);
    let mut plain = bytes.to_vec();
    for (at, part) in [(12, &ETHERTYPE.to_be_bytes()[..]), (14, &MAGIC), (18, &[VERSION])] {
        if let Some(place) = plain.get_mut(at..at + part.len()) {
            place.copy_from_slice(part);
        }
    }
    check(&plain, &mut failures);
    if let Some((addresses, rest)) = plain.split_at_checked(12) {
        let tag = [0x81, 0, bytes[0] & 0xe0, 0];
        check(&[addresses, &tag, rest].concat(), &mut failures);
    }
    failures
}

fn check(bytes: &[u8], failures: &mut Vec<String>) {
    let parsed = ControlFrame::parse(bytes);
    match parsed {
        Ok(frame) => {
            let again = ControlFrame::parse(&frame.to_bytes());
            if again != Ok(frame) || !is_control(bytes) {
                failures.push(format!("{frame:?} became {again:?}"));
            }
        }
        Err(Refusal::Truncated | Refusal::Malformed | Refusal::Unsupported) => {}
        Err(other) => failures.push(format!("{other} is not to be seen in a frame")),
    }
    deliver(bytes, parsed, failures);
}

fn deliver(bytes: &[u8], parsed: Result<ControlFrame, Refusal>, failures: &mut Vec<String>) {
    let (sender, receiver) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let (to, from) = parsed.map_or((receiver, sender), |frame| (frame.to, frame.from));
    let now = Instant::from_millis(1);
    // Both are whom the frame names, so that no address stops it.
    if let Ok(mut gate) = Gate::new(GateConfig::new(to), [1; 32]) {
        let taken = gate.handle_frame(now, bytes);
        let answers = core::iter::from_fn(|| gate.poll_transmit(now)).count();
        if answers > 1 || (parsed.is_err() && (taken.is_ok() || answers > 0)) {
            failures.push(format!("{parsed:?}: {taken:?} with {answers} answers"));
        }
    }
    if let Ok(mut requester) = Requester::new(RequesterConfig::new(to, from), [2; 32]) {
        let _ = requester.ask(now);
        let _ = requester.poll_transmit(now);
        let taken = requester.handle_frame(now, bytes);
        if taken.is_ok() || requester.mode(now) != Mode::Slow || requester.poll_event().is_some() {
            failures.push(format!("{parsed:?}: nobody could have known the nonce"));
        }
    }
}
