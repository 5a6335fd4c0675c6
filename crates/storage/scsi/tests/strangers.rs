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

    /// What a part means, the whole means as well.
    #[test]
    fn bytes_behind_a_command_do_not_matter(
        which in 0..COMMANDS.len(), flips in vec((1..16usize, any::<u8>()), 0..2), more in vec(any::<u8>(), 0..4),
    ) {
        let mut command = COMMANDS[which].to_vec();
        for (at, byte) in flips {
            if let Some(place) = command.get_mut(at) {
                *place = byte;
            }
        }
        let meant = Command::parse(&command);
        assert_eq!(Command::parse(&[&command[..], &more].concat()), meant);
    }
}

/// Commands of each length, as a client of the standard makes them.
const COMMANDS: [&[u8]; 8] = [
    &[0x00, 0, 0, 0, 0, 0],                                   // TEST UNIT READY
    &[0x12, 1, 0x83, 1, 0, 0],                                // INQUIRY
    &[0x28, 0, 0, 0, 0, 8, 0, 0, 2, 0],                       // READ (10)
    &[0x35, 0, 0, 0, 0, 8, 0, 0, 2, 0],                       // SYNCHRONIZE CACHE (10)
    &[0xa0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0],                 // REPORT LUNS
    &[0xaa, 0, 0, 0, 0, 8, 0, 0, 0, 2, 0, 0],                 // WRITE (12)
    &[0x8a, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 2, 0, 0],     // WRITE (16)
    &[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0], // READ CAPACITY (16)
];

#[test]
fn a_command_that_is_cut_off_is_refused() {
    for command in COMMANDS {
        Command::parse(command).unwrap();
        for len in 0..command.len() {
            let refused = Command::parse(&command[..len]);
            assert!(refused.is_err(), "{len} bytes of {command:02x?}: {refused:?}");
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
