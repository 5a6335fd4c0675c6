//! What holds for any bytes that come: checked by the fuzz target `transfer_wire`, over its
//! corpus by `cargo test`, and by nothing else.

use super::{
    Greeting, Kind, Label, MOST_GREETING, ToReceiver, ToSender, TransferMessages, VERSION,
};
use crate::printable::printable;
use crate::transfer::path::{MOST_PATH, check_target};

/// The first byte says as what the others are read.
pub(crate) fn check(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which % 4 {
        0 => greeting(bytes),
        1 => to_receiver(bytes),
        2 => to_sender(bytes),
        _ => label(bytes),
    }
}

/// What is a greeting is one again, however much a later version has appended.
fn greeting(bytes: &[u8]) {
    let Ok(greeting) = Greeting::parse(bytes) else { return };
    // Of other versions nothing else is read.
    if let Greeting::Hello { version, .. } | Greeting::Challenge { version, .. } = greeting
        && version != VERSION
    {
        return;
    }
    let again = greeting.to_bytes();
    assert!(again.len() <= MOST_GREETING && bytes.starts_with(&again), "{greeting:?}");
    assert_eq!(Greeting::parse(&again), Ok(greeting));
}

/// The list ends, each message takes a byte at least, and what was understood can be said
/// again so that it is understood in the same way.
fn to_receiver(bytes: &[u8]) {
    let heard: Vec<_> = ToReceiver::all(bytes).collect();
    assert!(heard.len() <= bytes.len());
    let mut said = TransferMessages::default();
    let mut understood = Vec::new();
    for message in heard.into_iter().flatten() {
        if let ToReceiver::Entry(entry) = &message {
            let Ok(path) = &entry.path else { continue };
            stays_inside(path.as_bytes());
            if let Kind::Link { target } = &entry.kind {
                assert!(check_target(path, target).is_err() || !target.starts_with(b"/"));
            }
        }
        if let ToReceiver::Abort { why } | ToReceiver::Leave { why, .. } = &message {
            assert_eq!(&printable(why), why);
        }
        said.push_to_receiver(&message);
        understood.push(Ok(message));
    }
    assert_eq!(ToReceiver::all(&said.0).collect::<Vec<_>>(), understood);
}

fn to_sender(bytes: &[u8]) {
    let heard: Vec<_> = ToSender::all(bytes).collect();
    assert!(heard.len() <= bytes.len());
    let mut said = TransferMessages::default();
    let understood: Vec<_> = heard.into_iter().filter(Result::is_ok).collect();
    understood.iter().flatten().for_each(|message| said.push_to_sender(message));
    assert_eq!(ToSender::all(&said.0).collect::<Vec<_>>(), understood);
}

/// A name that passed has parts, and none of them leads anywhere else.
fn stays_inside(path: &[u8]) {
    assert!(path.len() <= MOST_PATH && !path.contains(&0), "{path:?}");
    let is_bad = |part: &[u8]| part.is_empty() || part == b"." || part == b"..";
    assert!(!path.split(|byte| *byte == b'/').any(is_bad), "{path:?}");
}

/// A number is never before the one that is expected, and keeps its lower bits.
fn label(bytes: &[u8]) {
    let Some((bits, rest)) = bytes.split_first_chunk() else { return };
    let Some((next, _)) = rest.split_first_chunk() else { return };
    let (bits, next) = (u32::from_le_bytes(*bits), u64::from_le_bytes(*next) >> 1);
    let label = Label::from_wire(bits, next);
    assert!(label.number >= next, "{label:?} of {bits:#x}, next {next}");
    assert_eq!(label.to_wire(), bits);
}
