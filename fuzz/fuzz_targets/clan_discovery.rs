//! What anybody says to the multicast group of names: whatever is understood is what would be sent.
#![no_main]

use clan_dsm::discovery::Message;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    match Message::decode(bytes) {
        Some(Message::Query(heard)) => assert_eq!(&heard.encode()[..], bytes),
        Some(Message::Announcement(heard)) => assert_eq!(&heard.encode()[..], bytes),
        None => {}
    }
});
