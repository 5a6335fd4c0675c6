//! Two hosts with Tigon-IIs, measured frame by frame.

use std::time::Duration;

use nic_firmware_model::tigon::figures::{Account, Design, Message, one_way, transfer};

const WRITE: u32 = 256 << 10;

fn measured(design: &Design) -> Account {
    transfer(design, 8, WRITE, Duration::ZERO).expect("all of it came")
}

/// Table 1, STP write() 4136: 98 MB/s of 2^20 bytes, to which the set-up of a DMA is fitted.
#[test]
fn pages_go_as_fast_as_the_paper_measured() {
    let account = transfer(&Design::PAPER, 16, 512 << 10, Duration::ZERO).unwrap();
    let rate = account.rate() / f64::from(1 << 20);
    assert!((rate / 98.0 - 1.0).abs() < 0.03, "{rate} MB/s");
    assert_eq!((account.lost, account.receiver.stus_placed), (0, 16 * 128));
}

/// No packet is shorter than the DMA engine takes for one, whichever side it is at.
#[test]
fn short_packets_wait_for_the_dma_engine() {
    let account = measured(&Design::PAPER.with_stu(10));
    let packets = account.receiver.stus_placed as f64 / account.seconds;
    assert!((45_000.0..=50_000.0).contains(&packets), "{packets} packets a second");
    assert_eq!((account.lost, account.sender.stus_sent), (0, account.receiver.stus_placed));
}

#[test]
fn the_receiver_is_interrupted_once_for_each_block_and_each_control_operation() {
    let account = measured(&Design::PAPER);
    let blocks = account.receiver.stus_placed / 64;
    assert_eq!(account.blocks, blocks);
    let interrupts = account.receiver.interrupts;
    assert!((blocks..=blocks + account.receiver.heard).contains(&interrupts), "{interrupts}");
}

#[test]
fn a_second_adapter_carries_half_of_it() {
    for design in [Design::PAPER, Design::PAPER.with_stu(10)] {
        // Of one Block there is nothing to share.
        let rate = |design| transfer(&design, 2, 4 * WRITE, Duration::ZERO).unwrap().rate();
        let (one, two) = (rate(design), rate(design.striped(2)));
        assert!((1.8..=2.0).contains(&(two / one)), "{two} beside {one}");
    }
}

#[test]
fn who_touches_the_data_reads_later() {
    let touching = Duration::from_millis(2);
    let idle = measured(&Design::PAPER);
    let busy = transfer(&Design::PAPER, 8, WRITE, touching).unwrap();
    let longer = busy.seconds - idle.seconds;
    assert!((0.015..=0.0165).contains(&longer), "{longer} s for 8 times 2 ms");
    assert_eq!(busy.receiver.stus_placed, idle.receiver.stus_placed);
}

/// A Put asks for nothing first.
#[test]
fn a_put_is_there_before_a_transfer_is() {
    let put = one_way(&Design::PAPER, Message::Put, 8).unwrap();
    let whole = one_way(&Design::PAPER, Message::Transfer, 8).unwrap();
    assert!(put * 2.0 < whole, "{put} s and {whole} s");
}

/// Tables that do not fit into the adapter's memory are no figures.
#[test]
fn what_does_not_fit_is_not_measured() {
    let small = Design { sram: 4 << 10, ..Design::PAPER };
    assert_eq!(transfer(&small, 1, WRITE, Duration::ZERO), None);
}
