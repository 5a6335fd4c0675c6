//! The model of the LANai 9 beside what the words and tables of its paper state.

use std::time::Duration;

use nic_firmware_model::lanai::figures::{Access, Traffic, block_throughput};
use nic_firmware_model::lanai::figures::{
    CHUNKS, Design, Protocol, Stream, receive_side, round_trip, stream, transmit_side,
};
use nic_firmware_model::lanai::{Helps, Paper};

fn off(ours: f64, papers: f64) -> f64 {
    ours / papers - 1.0
}

/// Tables 2 and 3 are what the costs were taken from: the firmware spends them so.
#[test]
fn the_firmware_spends_what_the_tables_say() {
    let sent = transmit_side(&Design::PAPER);
    let data: Vec<f64> = sent.iter().map(|row| row.data).collect();
    let acks: Vec<f64> = sent.iter().map(|row| row.ack).collect();
    near(&data, &[1.0, 2.0, 5.5, 4.5, 5.0, 1.0, 1.0, 1.5]);
    near(&acks, &[1.0, 2.0, 0.0, 0.0, 5.0, 1.0, 1.0, 1.5]);
    let came = receive_side(&Design::PAPER);
    let data: Vec<f64> = came.iter().map(|row| row.data).collect();
    let acks: Vec<f64> = came.iter().map(|row| row.ack).collect();
    near(&data, &[1.0, 1.0, 1.5, 7.0, 5.5, 4.5, 1.5]);
    // The host's answer to an acknowledgement is no doorbell of a request.
    near(&acks, &[1.0, 1.0, 1.5, 14.0, 0.0, 0.0, 9.0]);
}

fn near(ours: &[f64], papers: &[f64]) {
    assert_eq!(ours.len(), papers.len());
    for (ours, papers) in ours.iter().zip(papers) {
        assert!((ours - papers).abs() < 0.06, "{ours} is not {papers}");
    }
}

/// Nothing is fitted to round trips.
#[test]
fn round_trips_are_the_papers() {
    let without = Design::PAPER.with_firmware_checksum();
    let rows = [
        ("UDP, round trip", round_trip(&without, Protocol::Udp), 73.0, 0.15),
        ("TCP, round trip", round_trip(&without, Protocol::Tcp), 113.0, 0.15),
    ];
    let mut wrong = Vec::new();
    for (name, ours, papers, most) in rows {
        let ours = ours.unwrap();
        println!("{name}: {ours:.1}, the paper {papers} ({:+.1} %)", off(ours, papers) * 100.0);
        if off(ours, papers).abs() > most {
            wrong.push(format!("{name}: {ours:.1}, the paper {papers}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Each of the four helps takes time off, and none costs any.
#[test]
fn every_help_of_hardware_helps() {
    let without = Design { helps: Helps::default(), ..Design::PAPER };
    let plain = round_trip(&without, Protocol::Tcp).unwrap();
    let none = Helps::default();
    for helps in [
        Helps { doorbells: true, ..none },
        Helps { lookup: true, ..none },
        Helps { arithmetic: true, ..none },
        Helps { checksum: true, ..none },
    ] {
        let helped = round_trip(&Design { helps, ..without }, Protocol::Tcp).unwrap();
        assert!(helped < plain, "{helps:?}: {helped} is not less than {plain}");
    }
    assert_eq!(transmit_side(&without)[0].stage, Paper::Doorbell);
}

/// Fitted are 75.6 and 26.4 MB/s, the others follow. No run stands still: a tail that
/// the receiver had room for once waited a quarter of a second for the sender to ask. And
/// the cards do the work: under full load a host once never caught up with its card.
#[test]
fn whole_runs_are_the_papers() {
    let (with, without) = (Design::PAPER, Design::PAPER.with_firmware_checksum());
    let rows = [
        ("16 KiB", stream(&with, 16_384 + 72, CHUNKS), 75.6, 0.03),
        ("16 KiB, sum in firmware", stream(&without, 16_384 + 72, CHUNKS), 26.4, 0.03),
        ("9000", stream(&with, 9_000, CHUNKS), 70.1, 0.15),
        ("1500", stream(&with, 1_500, CHUNKS), 35.4, 0.15),
    ];
    let mut wrong = Vec::new();
    for (name, ours, papers, most) in rows {
        let Stream { rate, placed, pause } = ours.unwrap();
        let off = off(rate, papers);
        println!("{name}: {rate:.1}, the paper {papers} ({:+.1} %)", off * 100.0);
        println!("    {:.1} % placed by the card, longest pause {pause:?}", placed * 100.0);
        if off.abs() > most || placed < 0.95 || pause > Duration::from_millis(5) {
            wrong.push(format!("{name}: {ours:?}, the paper {papers}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Blocks come both ways, and to have several under way pays.
#[test]
fn blocks_are_read_and_written() {
    for access in [Access::Read, Access::Write] {
        let rate = |ahead| {
            let traffic = Traffic { access, block: 64 << 10, ahead, count: 40 };
            block_throughput(&Design::PAPER, 9_000, &traffic).unwrap()
        };
        let (one, four) = (rate(1), rate(4));
        println!("{access:?}: {one:.1} MB/s one at a time, {four:.1} with four under way");
        assert!(one < four && four < 250.0, "{access:?}: {one:.1}, {four:.1}");
    }
}
