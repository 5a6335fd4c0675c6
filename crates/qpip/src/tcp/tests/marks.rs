//! Accurate ECN between two ends: what one counts, the other follows.

use std::vec::Vec;

use super::pair::{Pair, Wire};
use crate::tcp::config::{Mapping, TcpConfig};
use crate::tcp::congestion::CongestionControl;

const ALGORITHMS: [CongestionControl; 3] =
    [CongestionControl::Cubic, CongestionControl::NewReno, CongestionControl::Dctcp];

/// Sends this many bytes over a wire that marks some of it.
fn transfer(seed: u64, config: TcpConfig, wire: Wire, total: usize) -> Pair {
    let mut pair = Pair::new(seed, config, Mapping::Stream, wire);
    let bytes: Vec<u8> = (0..total).map(|n| (n * 7 + n / 251) as u8).collect();
    let (mut next, mut receives) = (0, 0);
    pair.run_until("transfer", |pair| {
        while next < total {
            let end = (next + 50_000).min(total);
            if !pair.sides[0].post_send(next as u64, &bytes[next..end]) {
                break;
            }
            next = end;
        }
        while pair.sides[1].queues.receive.len() < 8 && pair.sides[1].post_receive(receives, 30_000)
        {
            receives += 1;
        }
        pair.sides[1].received.len() >= total && pair.sides[0].queues.send.is_empty()
    });
    assert!(pair.sides[1].received == bytes, "seed {seed}");
    pair
}

/// What side 1 counted, and what side 0 knows of that: packets, and bytes of each code point.
/// Nothing where the opening left ECN out, for it got lost twice.
fn counts(pair: &Pair) -> Option<[(u32, [u32; 3]); 2]> {
    let of = |side: usize| {
        let tcb = pair.sides[side].tcb.as_ref().unwrap();
        let accurate = tcb.sender.accurate.as_deref();
        assert!(accurate.is_some() || pair.sides[0].tcb.as_ref().unwrap().opening.tries > 2);
        accurate.copied()
    };
    Some([of(1)?.counted(), of(0)?.followed()])
}

fn accurate(congestion: CongestionControl) -> TcpConfig {
    TcpConfig { ecn: true, accurate_ecn: true, congestion, ..TcpConfig::default() }
}

#[test]
fn without_loss_both_ends_have_counted_the_same() {
    let mut marked = 0;
    for seed in 0..24 {
        for congestion in ALGORITHMS {
            let marking = [10_000, 100_000, 500_000][seed as usize % 3];
            // Cut by a device, or joined by one.
            let wire = Wire { marking, cuts: seed % 2 == 0, ..Wire::CLEAN };
            let config = TcpConfig { timestamps: seed % 4 != 0, ..accurate(congestion) };
            let pair = transfer(seed, config, wire, 600_000);
            let [counted, followed] = counts(&pair).unwrap();
            assert_eq!(counted.0, followed.0, "seed {seed}, {congestion:?}");
            marked += counted.0 - 5;
            // The last bytes may not have been told with an option any more.
            for nth in 0..3 {
                assert!(followed.1[nth] <= counted.1[nth], "seed {seed}: {counted:?} {followed:?}");
            }
            assert_eq!(counted.1[0] + counted.1[1] - 1, 600_000, "seed {seed}: all was capable");
        }
    }
    assert!(marked > 1_000, "{marked} packets were marked");
}

#[test]
fn with_losses_nobody_follows_more_than_was_counted() {
    for seed in 0..40 {
        let congestion = ALGORITHMS[seed as usize % 3];
        let wire = Wire {
            marking: 50_000,
            loss: 20_000,
            duplication: 10_000,
            reordering: 50_000,
            corruption: 10_000,
            cuts: seed % 2 == 0,
            ..Wire::CLEAN
        };
        let config = TcpConfig { sack: seed % 5 != 0, ..accurate(congestion) };
        let pair = transfer(seed, config, wire, 300_000);
        let Some([counted, followed]) = counts(&pair) else { continue };
        assert!(followed.0 <= counted.0, "seed {seed}: {followed:?} of {counted:?}");
        for nth in 0..3 {
            assert!(followed.1[nth] <= counted.1[nth], "seed {seed}: {counted:?} {followed:?}");
        }
    }
}

/// DCTCP is told how much was marked, and keeps most of its window where that is little: the
/// classic echo tells the same of each acknowledgement, so both do alike.
#[test]
fn dctcp_needs_no_agreement_of_its_own_on_how_marks_are_told() {
    let windows = |accurate_ecn: bool| {
        let wire = Wire { marking: 20_000, ..Wire::CLEAN };
        let config = TcpConfig { accurate_ecn, ..accurate(CongestionControl::Dctcp) };
        let pair = transfer(3, config, wire, 3_000_000);
        pair.sides[0].tcb.as_ref().unwrap().sender().congestion_window()
    };
    let (counted, echoed) = (windows(true), windows(false));
    assert!(counted * 3 > echoed && echoed * 3 > counted, "{counted} beside {echoed}");
}

/// A path that marks everything says nothing by that: it is not believed for long.
#[test]
fn a_path_that_marks_everything_is_not_believed() {
    let wire = Wire { marking: 1_000_000, ..Wire::CLEAN };
    let pair = transfer(1, accurate(CongestionControl::Cubic), wire, 2_000_000);
    let tcb = pair.sides[0].tcb.as_ref().unwrap();
    assert!(!tcb.sender.accurate.as_ref().unwrap().sends_capable);
    let [counted, _] = counts(&pair).unwrap();
    assert!(counted.1[1] < 1_000_000, "what left later was not capable: {counted:?}");
}
