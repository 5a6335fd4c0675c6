//! A host behind an adapter and a host without do the same, bit for bit: whatever comes,
//! whatever its user does, with costs off. Each firmware with a fault is told from one
//! without. The Hamachi's comparison is in `hamachi_model`.

use std::fmt::Debug;
use std::ops::Range;

use crate::kept;
use landfall_placement::Random;
use landfall_testkit::corpus::replay;
use nic_firmware_model::world::Record;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

/// Runs of a host behind an adapter beside those of a host without.
pub(crate) struct Comparison<F: 'static> {
    /// The bytes of a run, from a number.
    pub(crate) run: fn(u64) -> Vec<u8>,
    /// In what the two differ, with a fault in the firmware or with none.
    pub(crate) disagreements: fn(Option<F>, &[u8]) -> Vec<String>,
    pub(crate) faults: &'static [F],
    /// The runs in which faults are looked for.
    pub(crate) runs: Range<u64>,
}

impl<F: Copy + Debug> Comparison<F> {
    /// Fails the case of a property if the two differ over these bytes.
    pub(crate) fn agrees_about(&self, bytes: &[u8]) -> TestCaseResult {
        let found = (self.disagreements)(None, bytes);
        prop_assert!(found.is_empty(), "{found:#?}");
        Ok(())
    }

    /// # Panics
    /// If the two differ in any run without a fault.
    pub(crate) fn agrees(&self) {
        for seed in self.runs.clone() {
            let found = (self.disagreements)(None, &(self.run)(seed));
            assert_eq!(found, [] as [String; 0], "run {seed}, without a fault");
        }
    }

    /// Says which run catches each fault, and by what.
    ///
    /// # Panics
    /// If there is a fault that none catches.
    pub(crate) fn each_fault_is_caught(&self) {
        for fault in self.faults {
            let caught = self.runs.clone().find_map(|seed| {
                let found = (self.disagreements)(Some(*fault), &(self.run)(seed));
                found.into_iter().next().map(|what| (seed, what))
            });
            let Some((seed, what)) = caught else {
                panic!("{fault:?} was not noticed in any run");
            };
            println!("{fault:?}: run {seed}, {what}");
        }
    }
}

/// The run that is kept under this name, in which this many frames are the least.
fn expect_kept(name: &str, record: &Record, least: usize) {
    assert!(kept::blocks(&record.frames).len() > least, "hardly anything happens");
    let (frames, lines) = (format!("{name}.pcapng"), format!("{name}.txt"));
    kept::expect(&frames, &record.frames, &lines, &record.lines());
}

fn expect_same_trace(ours: &Record, theirs: &Record) {
    assert_eq!(ours.lines(), theirs.lines());
    kept::compare("the trace of the plain host", &ours.frames, &theirs.frames);
}

/// The CLAN adapter.
mod clan {
    use super::*;
    use nic_firmware_model::clan::model::{
        Fault, adapted, disagreements, disagreements_with, plain,
    };

    const COMPARISON: Comparison<Fault> = Comparison {
        run: steps,
        disagreements: disagreements_with,
        faults: &Fault::ALL,
        runs: 0..48,
    };

    /// A run of many steps, from a number.
    fn steps(seed: u64) -> Vec<u8> {
        let mut random = Random::from_number(seed);
        let len = 80 + random.below(400) as usize;
        let mut bytes: Vec<u8> = (0..len).map(|_| random.next_u32() as u8).collect();
        if seed.is_multiple_of(2) {
            // A link that is as good as the paper's.
            bytes[4] = 0;
        }
        // Memory at both ends, some of it watched.
        let opening = [0, 0, 200, 255, 0, 0, 129, 9, 64, 0, 255, 255, 7, 0, 4, 3, 3, 0, 62, 0];
        bytes.splice(5..5, opening);
        bytes
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

        #[test]
        fn the_adapter_changes_nothing_that_anybody_can_see(seed in any::<u64>()) {
            COMPARISON.agrees_about(&steps(seed))?;
        }

        #[test]
        fn whatever_the_bytes_stand_for(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            COMPARISON.agrees_about(&bytes)?;
        }
    }

    #[test]
    fn the_runs_are_worth_it() {
        let (mut told, mut sent, mut came, mut offloaded) = (0, 0, 0, 0);
        for seed in COMPARISON.runs {
            let record = plain(&steps(seed));
            assert!(record.wrong.is_empty(), "{:?}", record.wrong);
            let size = record.size();
            (told, sent, came) = (told + size.0, sent + size.1, came + size.2);
            offloaded += adapted(None, &steps(seed)).placed.0;
        }
        let all = (told, sent, came, offloaded);
        assert!(told > 1_000 && sent > 2_000 && came > 2_000, "hardly anything happens: {all:?}");
        assert!(offloaded > 500, "hardly anything is the adapter's: {all:?}");
    }

    #[test]
    fn each_of_thirteen_faults_is_caught() {
        COMPARISON.agrees();
        COMPARISON.each_fault_is_caught();
    }

    /// Apertures with tripwires at both ends; writes of bytes and of words, some beyond the
    /// end; DMA, reads, a group; units that come again altered; an aperture that goes while
    /// it is written.
    const RUN: &[u8] = &[
        7, 0x0e, 0xe0, 0x03, 0, // the set-up
        0, 0, 200, 255, 0, 0, 129, 9, 64, 0, 255, 255, // expose twice here, once there
        7, 0, 4, 64, 4, 0, 7, 1, 0, 200, 90, 4, 7, 0, 16, 3, 3, 16, 62, 0, // watch
        145, 0, 4, 200, 90, 0, 145, 1, 3, 64, 40, 1, 145, 0, 255, 2, 44, 3, 56, 40, // write
        160, 1, 8, 201, 7, 160, 0, 16, 200, 31, 56, 90, // move
        39, 0, 8, 200, 90, 167, 1, 0, 130, 7, 62, 0, // read, both ways
        42, 30, 0, 42, 0, 2, 173, 0, 0, 64, 21, 173, 0, 6, 3, 3, 62, 0, // a group
        49, 2, 3, 9, 49, 4, 9, 3, 49, 3, 14, 1, 56, 30, 49, 1, 6, 1, 62, 0, // altered
        145, 0, 4, 201, 90, 0, 5, 0, 145, 0, 4, 3, 6, 0, 62, 0, 55, 3, 40, 62, 0, // revoked
        145, 0, 4, 200, 90, 0, 160, 0, 16, 200, 31, 62, 0,
    ];

    #[test]
    fn the_run_that_is_kept_is_the_same_again() {
        expect_kept("clan", &adapted(None, RUN), 60);
    }

    #[test]
    fn the_host_without_an_adapter_leaves_the_same_trace() {
        expect_same_trace(&adapted(None, RUN), &plain(RUN));
    }

    /// What the fuzz target `firmware_clan` runs, over its corpus: so that what was found
    /// stays found.
    #[test]
    fn the_corpus_of_the_fuzzer_shows_no_difference() {
        replay("firmware_clan", 10, disagreements);
    }
}

/// The Tigon-II.
mod tigon {
    use super::*;
    use nic_firmware_model::tigon::model::{
        Fault, adapted, disagreements, disagreements_with, plain,
    };

    const COMPARISON: Comparison<Fault> = Comparison {
        run: steps,
        disagreements: disagreements_with,
        faults: &Fault::ALL,
        runs: 0..80,
    };

    /// A run of many steps, from a number.
    fn steps(seed: u64) -> Vec<u8> {
        let mut random = Random::from_number(seed);
        let len = 60 + random.below(200) as usize;
        let mut bytes: Vec<u8> = (0..len).map(|_| random.next_u32() as u8).collect();
        // A connection, and memory in which something is to come.
        let opening =
            [1, 0, 62, 0, 14, 0, 200, 90, 3, 14, 0, 210, 4, 0, 5, 0, 199, 80, 6, 0, 213, 7];
        bytes.splice(6..6, opening);
        if seed.is_multiple_of(3) {
            narrow(&mut bytes, &mut random);
        }
        bytes
    }

    /// Small STUs, a slow link and a small window, so that Blocks stay open for long;
    /// and frames of the peer that come again while they are, for the next STU.
    fn narrow(bytes: &mut Vec<u8>, random: &mut Random) {
        bytes[2] = bytes[2] & !8 | 32;
        bytes[3] &= !(3 | 32);
        bytes[4] = 0;
        let mut forged = Vec::new();
        for round in 0..12 {
            let (fine, lead) = (random.next_u32() as u8, random.next_u32() as u8 & 0xfe);
            forged.extend([14, 0, 223, 255, lead, 5, 0, 216, fine]);
            for nth in 0..12 {
                let (wait, which) = (random.below(4) as u8, random.below(6) as u8);
                let (how, by) = (9 | (random.next_u32() as u8 & 64), random.below(32) as u8);
                forged.extend([49, wait, 37, which, how, by]);
                // The peer ends what it sends.
                if nth == 8 && round % 3 == 1 {
                    forged.extend([29 | 128 | 64, 0]);
                }
            }
        }
        bytes.splice(28..28, forged);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn the_adapter_changes_nothing_that_anybody_can_see(seed in any::<u64>()) {
            COMPARISON.agrees_about(&steps(seed))?;
        }

        #[test]
        fn whatever_the_bytes_stand_for(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            COMPARISON.agrees_about(&bytes)?;
        }
    }

    #[test]
    fn the_runs_are_worth_it() {
        let mut sum = (0, 0, 0);
        for seed in COMPARISON.runs.take(20) {
            let record = plain(&steps(seed));
            assert!(record.wrong.is_empty(), "{:?}", record.wrong);
            let (told, sent, came) = record.size();
            sum = (sum.0 + told, sum.1 + sent, sum.2 + came);
        }
        assert!(sum.0 > 200 && sum.1 > 400 && sum.2 > 400, "hardly anything happens: {sum:?}");
        let mut taken = 0;
        for seed in COMPARISON.runs.take(20) {
            taken += adapted(None, &steps(seed)).size().2;
        }
        assert_eq!(taken, sum.2);
    }

    #[test]
    fn each_of_ten_faults_is_caught() {
        COMPARISON.agrees();
        COMPARISON.each_fault_is_caught();
    }

    /// Small STUs and Blocks over a link that loses, doubles and overtakes; sends, a
    /// read, a region that is refused, frames that come again altered, a Transfer that
    /// is ended.
    const RUN: &[u8] = &[
        0, 17, 0x28, 0x04, 0x07, 0x40, // the set-up
        1, 0, 62, 0, // connect
        11, 0, 200, 90, 3, 2, 0, 196, 80, 49, 9, // post, send, wait
        37, 0, 5, 7, 37, 1, 9, 30, 38, 2, 73, 1, 49,
        30, // other payload, too far, another key
        11, 0, 196, 9, 2, 3, 0, 66, 200, 62, 0, // post, send
        20, 0, 90, 99, 62, 0, 23, 0, 62, 0, 25, 0, 2, 70, 200, 62, 0, // read, ask
        11, 0, 208, 9, 0, 3, 0, 206, 0, 49, 12, 221, 0, 37, 0, 0, 0, 62, 0, // end under way
    ];

    #[test]
    fn the_run_that_is_kept_is_the_same_again() {
        expect_kept("tigon", &adapted(None, RUN), 100);
    }

    #[test]
    fn the_host_without_an_adapter_leaves_the_same_trace() {
        expect_same_trace(&adapted(None, RUN), &plain(RUN));
    }

    /// What the fuzz target `firmware_tigon` runs, over its corpus: so that what was found
    /// stays found.
    #[test]
    fn the_corpus_of_the_fuzzer_shows_no_difference() {
        replay("firmware_tigon", 10, disagreements);
    }
}

/// The LANai 9: a host whose card places what comes as expected, against one whose engine
/// places everything.
mod lanai {
    use super::*;
    use nic_firmware_model::lanai::model::{
        Carded, Fault, Plain, disagreements, disagreements_with, play,
    };

    const COMPARISON: Comparison<Fault> = Comparison {
        run: |seed| bytes(seed, 1_200),
        disagreements: disagreements_with,
        faults: &Fault::ALL,
        runs: 0..40,
    };

    /// What some seed stands for.
    fn bytes(seed: u64, len: usize) -> Vec<u8> {
        let mut random = Random::from_number(seed);
        (0..len).map(|_| random.next_u32() as u8).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn with_and_without_a_card_it_is_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..900)) {
            COMPARISON.agrees_about(&bytes)?;
        }
    }

    /// The property says something only if the card takes much of what comes.
    #[test]
    fn the_card_takes_much_of_what_comes() {
        let (mut card, mut seam) = (0, 0);
        for seed in 0..8 {
            let bytes = bytes(seed, 1_200);
            let (with, without) = (play::<Carded>(None, &bytes), play::<Plain>(None, &bytes));
            let differ = with.differences(&without);
            assert!(differ.is_empty(), "seed {seed}: {differ:#?}");
            card += with.placed.0;
            seam += without.placed.0;
        }
        // Without a card the engine runs the same seam in its own memory.
        assert!(card > 100 && card * 2 > seam, "cards placed {card} units, the seam {seam}");
    }

    /// What the fuzz target `firmware_lanai` runs, over its corpus: what was found stays found.
    #[test]
    fn the_corpus_finds_no_difference() {
        replay("firmware_lanai", 10, disagreements);
    }

    /// The comparison sees what a programmer may have got wrong.
    #[test]
    fn every_fault_of_a_firmware_is_seen() {
        COMPARISON.each_fault_is_caught();
    }

    /// Connections, datagrams, losses and forged frames.
    fn scenario() -> Vec<u8> {
        let mut random = Random::from_number(5);
        (0..700).map(|_| random.next_u32() as u8).collect()
    }

    #[test]
    fn it_is_as_it_always_was() {
        let record = play::<Carded>(None, &scenario());
        assert!(record.wrong.is_empty(), "{:?}", record.wrong);
        assert!(record.placed.0 > 0, "the cards placed nothing");
        let memory = record.memory.iter().flat_map(|regions| regions.values());
        let memory: String =
            memory.map(|bytes| format!("{:016x}\n", kept::digest(bytes))).collect();
        kept::expect("lanai.pcapng", &record.frames, "lanai.memory", &memory);
    }
}
