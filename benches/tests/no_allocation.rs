//! An engine's work per unit allocates nothing, once it has warmed up.

mod counting;

use landfall_benches::{
    AdapterPair, BATCH, DefragPair, Endless, Join, Load, NumberedPair, Pair, STU, StpPair,
    StreamPair,
};
use landfall_placement::{Ecn, PathId, Peer, RegionId};
use stp_core::offload::{Arrival, Block, Blocks, Expected, Incoming, bits_needed};
use stp_core::wire::{Header, Op};

/// Allocations while `work` runs.
fn allocations(work: impl FnOnce()) -> u64 {
    counting::count(work).0.calls
}

/// Whole messages go by: also what happens at their ends is covered.
fn receives_without_allocating<E: Endless>(mut line: Pair<E>) {
    let turn = |line: &mut Pair<E>| {
        line.next_batch(61);
        let all = allocations(|| assert_eq!(line.receive(), 61));
        let answering = allocations(|| line.answer());
        (all, answering)
    };
    for _ in 0..100 {
        turn(&mut line);
    }
    for batch in 0..200 {
        assert_eq!(turn(&mut line), (0, 0), "in batch {batch}");
    }
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

#[test]
fn numbered_units_are_placed_without_allocating() {
    receives_without_allocating(NumberedPair::new(1024));
}

#[test]
fn stream_units_are_placed_without_allocating() {
    receives_without_allocating(StreamPair::new());
}

/// Of one long Transfer, batch after batch: placing, landing, sending and
/// letting go. What a Block or a Transfer needs is not counted here.
#[test]
fn stus_are_placed_and_sent_without_allocating() {
    let mut line = StpPair::new(1, 1 << 40);
    line.warm_up();
    let (mut batches, mut stus) = (0, 0);
    while batches < 2_000 {
        line.offer();
        let mut sent = 0;
        assert_eq!(allocations(|| sent = line.send()), 0, "sending batch {batches}");
        let mut placed = 0;
        assert_eq!(allocations(|| placed = line.receive()), 0, "receiving batch {batches}");
        assert_eq!(placed, sent);
        (batches, stus) = (batches + 1, stus + placed);
        line.answer();
        line.hear();
    }
    assert!(stus > batches * BATCH / 2, "only {stus} STUs");
}

/// Fragments that landed where they belong, and fragments on the conventional path:
/// posting, checking, joining, delivering.
#[test]
fn fragments_are_joined_without_allocating() {
    for join in [Join::Speculative, Join::Conventional, Join::Lists] {
        for flows in [1, 100] {
            let mut line = DefragPair::new(join, 4096, flows);
            // Once around the ring: all pages and tables were used.
            (0..300).for_each(|_| _ = line.burst());
            let before = line.joined_in_place();
            for burst in 0..300 {
                let calls = allocations(|| _ = line.burst());
                assert_eq!(calls, 0, "{join:?}, {flows} flows, burst {burst}");
            }
            assert_eq!(line.joined_in_place() > before, join != Join::Conventional, "{join:?}");
        }
    }
}

/// Short Transfers over many connections: what is allocated is bounded by the
/// number of Transfers, not of STUs.
#[test]
fn a_transfer_allocates_a_few_times_whatever_its_length() {
    let per_transfer = |len: u64| {
        let mut line = StpPair::new(50, len);
        line.warm_up();
        let mut stus = 0;
        let calls = allocations(|| stus = (0..1_000).map(|_| line.round()).sum());
        let transfers = stus as u64 / (len / STU);
        assert!(transfers > 10, "only {transfers} Transfers of {len} bytes");
        calls / transfers
    };
    for len in [64 << 10, 1 << 20, 4 << 20] {
        let calls = per_transfer(len);
        assert!(calls <= 4, "{calls} allocations for each Transfer of {len} bytes");
    }
}

/// Where an adapter keeps it, there is no allocator at all.
#[test]
fn the_offload_seam_allocates_nothing() {
    let expected = Expected { key: 7, peer: Peer::Node(1), ..Expected::default() };
    let calls = allocations(|| {
        let (mut blocks, mut bits) = ([Block::default(); 2], [0; bits_needed(2, 64)]);
        let mut seam = Blocks::new(&mut blocks, &mut bits, 64);
        let memory = RegionId::new(0, 1).span(0, 64 << 10);
        assert!(seam.open(1, expected, 0, memory, 1024));
        seam.grant(1, 64);
        let bufx = seam.block(1).map_or(0, |block| block.bufx(1));
        for stu in 0..64 {
            let header = Header {
                op: Op::Data as u8,
                d_key: 7.into(),
                bufx: bufx.into(),
                offset: (stu << 10).into(),
                ..Header::default()
            };
            let (path, from) = (PathId(0), Peer::Node(1));
            let ecn = Ecn::NotCapable;
            let data = Incoming { header: &header, len: 1024 + 40, path, from, ecn };
            let stu_id = seam.place(&data).map(|hit| hit.stu_id);
            let arrival = stu_id.map(|stu_id| seam.landed(stu_id, true));
            let wanted = if stu == 63 { Arrival::Complete(1024) } else { Arrival::Bytes(1024) };
            assert_eq!(arrival, Ok(wanted));
        }
    });
    assert_eq!(calls, 0);
}

/// The machine, its firmware and their tables, from the wire to the report: the first round
/// and all that follow.
fn an_adapter_allocates_nothing<L: Load>(mut line: AdapterPair<L>) {
    for round in 0..50 {
        let mut placed = 0;
        assert_eq!(allocations(|| placed = line.round()), 0, "in round {round}");
        assert!(placed >= 64, "only {placed} payloads in round {round}");
    }
}

#[test]
fn a_tigon_receives_without_allocating() {
    let mut line = AdapterPair::tigon();
    // Its frames are made in the first.
    line.round();
    an_adapter_allocates_nothing(line);
}

#[test]
fn a_lanai_receives_without_allocating() {
    an_adapter_allocates_nothing(AdapterPair::lanai());
}

#[test]
fn a_hamachi_receives_without_allocating() {
    an_adapter_allocates_nothing(AdapterPair::hamachi());
}

#[test]
fn a_clan_adapter_receives_without_allocating() {
    an_adapter_allocates_nothing(AdapterPair::clan());
}
