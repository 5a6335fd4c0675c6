//! When the sending half sends, and how much at once.

use landfall_placement::RegionId;

use super::*;
use crate::address::{Address, HostId, Key, Kind, WHOLE};
use crate::wire::frame::{Entry, FrameFlags, FrameKind};

const NOW: Instant = Instant::from_millis(1);
const UNIT: u32 = 1472;

fn sender_config() -> SenderConfig {
    SenderConfig {
        congestion: Congestion::new(1460),
        yields: false,
        frames: 1024,
        retry_after: Duration::from_millis(20),
        retry_floor: Duration::from_millis(5),
    }
}

fn payload() -> FramePayload<()> {
    let (kind, host, key) = (Kind::Burst, HostId::default(), Key::default());
    let address = Address { kind, host, slot: 1, word: 0, mask: WHOLE, key };
    let mut payload = FramePayload::default();
    payload.entries.push(Entry { address, words: 172 });
    payload.spans.push(RegionId::new(1, 1).span(0, 172 * 8));
    payload
}

fn header(ack: u32) -> FrameHeader {
    let (kind, flags, credit) = (FrameKind::Ack, FrameFlags::default(), 1024);
    let (tag, seq, sack, marks) = (1, 0, 0, 0);
    let (entries, payload_len) = (0, 0);
    FrameHeader { kind, flags, tag, seq, ack, sack, credit, marks, entries, payload_len }
}

/// Sends what may be sent; how many frames.
fn send(sender: &mut Sender<()>) -> u32 {
    let mut frames = 0;
    while sender.may_send(&sender_config(), NOW, UNIT) {
        let seq = sender.load(&sender_config(), NOW, &payload()).unwrap();
        let (mut head, mut from) = ([0; 256], Spans::new());
        sender.write(&sender_config(), NOW, seq, &mut head, &mut from).unwrap();
        sender.handle_sent(seq);
        frames += 1;
    }
    frames
}

#[test]
fn who_ran_into_a_bound_sends_whole_batches_and_never_stands_still() {
    let mut sender = Sender::new(&sender_config());
    sender.set_peer(1024, 1 << 20);
    let sent = send(&mut sender);
    assert!(sent > 700, "the bound is that of bytes: {sent}");
    let (mut acked, mut least) = (0, u32::MAX);
    while acked < sent {
        acked += 2;
        let acked = acked.min(sent);
        sender.handle_ack(&sender_config(), NOW, &header(acked), &[], false).unwrap();
        let more = send(&mut sender);
        least = if more > 0 { least.min(more) } else { least };
    }
    assert!((40..=47).contains(&least), "as many as one call carries: {least}");
    // Nothing is under way any more: what there is may go, batch or not.
    let next = sender.next().0;
    sender.handle_ack(&sender_config(), NOW, &header(next), &[], false).unwrap();
    assert!(sender.is_idle() && sender.may_send(&sender_config(), NOW, UNIT));
}

#[test]
fn a_bound_of_few_frames_is_no_bound_on_batches() {
    for bytes in [0, 1, 1500, 3000, 5000] {
        let mut sender = Sender::new(&sender_config());
        sender.set_peer(1024, bytes);
        for _ in 0..10 {
            assert!(send(&mut sender) > 0, "{bytes} bytes, and nothing goes");
            let next = sender.next().0;
            sender.handle_ack(&sender_config(), NOW, &header(next), &[], false).unwrap();
        }
    }
}

#[test]
fn a_word_under_way_holds_none_up_however_long_frames_may_be() {
    const LONG: u32 = 65_507;
    let sender_config = SenderConfig { yields: true, ..sender_config() };
    let mut sender = Sender::<()>::new(&sender_config);
    sender.set_peer(1024, 1 << 20);
    let mut word = payload();
    word.clear();
    word.entries.push(Entry { words: 1, ..payload().entries[0] });
    word.inline.extend([0; 8]);
    for _ in 0..20 {
        assert!(sender.may_send(&sender_config, NOW, LONG));
        let seq = sender.load(&sender_config, NOW, &word).unwrap();
        let (mut head, mut from) = ([0; 256], Spans::new());
        sender.write(&sender_config, NOW, seq, &mut head, &mut from).unwrap();
        assert!(sender.has_room(&sender_config, LONG.into()), "who is asked has to answer at once");
    }
}
