//! Any bytes, by the oracles of the fuzz targets.

use landfall_scsi::Command;
use landfall_scsi::model::{commands, sessions};
use landfall_scsi::sst::{Answer, Request};
use landfall_testkit::corpus::replay;
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, proptest};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_disk_does_what_a_naive_one_does(bytes in vec(any::<u8>(), 0..600)) {
        assert_eq!(commands(&bytes), Vec::<String>::new());
    }

    #[test]
    fn an_initiator_that_keeps_the_rules_reads_what_it_wrote(bytes in vec(any::<u8>(), 0..200)) {
        let bytes = [&[1], &bytes[..]].concat();
        assert_eq!(sessions(&bytes), Vec::<String>::new());
    }

    #[test]
    fn no_message_of_a_stranger_breaks_a_bound(bytes in vec(any::<u8>(), 0..900)) {
        let bytes = [&[0], &bytes[..]].concat();
        assert_eq!(sessions(&bytes), Vec::<String>::new());
    }

    #[test]
    fn a_message_over_stp_says_one_thing_or_nothing(bytes in vec(any::<u8>(), 0..300), kind in 0..6u8) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = [1, 2, 3, 4, 0x82, *first][usize::from(kind)];
        }
        match kind {
            1 => bytes.resize(40, 0),
            2 => bytes.resize(16, 0),
            3 => bytes.resize(12, 0),
            _ => {}
        }
        if let Some(request) = Request::decode(&bytes) {
            assert_eq!(Request::decode(&request.encode()), Some(request));
        }
        if let Some(answer) = Answer::decode(&bytes) {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
    }

    #[test]
    fn a_command_that_is_cut_off_is_refused(bytes in vec(any::<u8>(), 16..20), len in 0..16usize) {
        // What a part means, the whole means as well.
        if let Ok(part) = Command::parse(&bytes[..len]) {
            assert_eq!(Command::parse(&bytes), Ok(part));
        }
    }
}

#[test]
fn the_corpus_of_commands_breaks_no_rule() {
    replay("scsi_commands", 4, |bytes| assert_eq!(commands(bytes), Vec::<String>::new()));
}

#[test]
fn the_corpus_of_sessions_breaks_no_rule() {
    replay("scsi_sessions", 4, |bytes| assert_eq!(sessions(bytes), Vec::<String>::new()));
}
