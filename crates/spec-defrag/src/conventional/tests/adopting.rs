//! A page in which pieces landed by a guess becomes the buffer of their packet.

use super::*;
use crate::buffers::LEAD;
use crate::conventional::{Adopted, Congestion};
use crate::memory::ReassemblyPath;

/// What landed in a page: `filled` bytes of a packet in pieces of `unit`, the
/// first `split` of them apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Landed {
    pub(super) from: FragmentSource,
    pub(super) id: u32,
    pub(super) unit: u32,
    pub(super) split: u16,
    pub(super) filled: u32,
    pub(super) started: Instant,
}

pub(super) const LANDED: Landed =
    Landed { from: V4, id: 7, unit: 1000, split: 8, filled: 2000, started: NOW };

impl Host {
    /// The page is handed over. `None`: there is no page to land in.
    pub(super) fn adopt(
        &mut self,
        now: Instant,
        landed: Landed,
        sent: &[u8],
    ) -> Option<Result<Option<Packet>, Refusal>> {
        let buffer = self.buffers.take(PAGE)?;
        let split = usize::from(landed.split);
        let (first, frame) = read(landed.from, (landed.id, 0, true), &sent[..landed.unit as usize]);
        let rest = &sent[split..landed.filled as usize];
        let place = self.buffers.span(buffer, LEAD, rest.len() as u32).offset as usize;
        self.bytes.0[0][place..place + rest.len()].copy_from_slice(rest);
        let mut congestion = Congestion::default();
        congestion.add(landed.from.ecn);
        let adopted = Adopted {
            started: landed.started,
            first: &first,
            head: &frame[..usize::from(first.payload_at) + split],
            split: landed.split,
            buffer,
            filled: landed.filled,
            congestion,
        };
        Some(self.reassembly.adopt(now, &adopted, &mut self.buffers, &mut self.bytes))
    }

    fn adopt_well(&mut self, landed: Landed, sent: &[u8]) -> Result<Option<Packet>, Refusal> {
        self.adopt(NOW, landed, sent).unwrap()
    }
}

fn whole(from: FragmentSource, sent: &[u8]) -> Vec<u8> {
    frame(from, if from.is_v6 { None } else { Some((7, 0, false)) }, sent)
}

#[test]
fn the_rest_of_the_pieces_joins_the_page_without_moving_it() {
    let sent = bytes(4000);
    for from in [V4, V6] {
        for split in [0, 8, 20, 66] {
            let mut host = Host::small();
            let landed = Landed { from, split, ..LANDED };
            assert_eq!(host.adopt_well(landed, &sent), Ok(None));
            assert_eq!(host.buffers.free_pages(), 7);
            // What the later pieces are thought to have before them counts no more.
            let piece = frame(from, Some((7, 3000, false)), &sent[3000..]);
            host.receive(NOW, &piece, 99).unwrap();
            let again = frame(from, Some((7, 1000, true)), &sent[1000..2000]);
            assert_eq!(host.receive(NOW, &again, 0), Err(Refusal::Duplicate));
            let piece = frame(from, Some((7, 2000, true)), &sent[2000..3000]);
            let packet = host.receive(NOW, &piece, 0).unwrap().unwrap();
            assert_eq!(
                (packet.path, packet.body_len),
                (ReassemblyPath::Conventional, 4000 - u32::from(split))
            );
            assert_eq!(host.take(&packet), whole(from, &sent));
            assert!(host.is_clean());
        }
    }
}

#[test]
fn a_page_is_cut_where_its_pieces_were() {
    let sent = bytes(4000);
    for (piece, bytes) in [((7, 1000, true), &sent[1000..1992]), ((7, 992, true), &sent[992..2000])]
    {
        let mut host = Host::small();
        host.adopt_well(LANDED, &sent).unwrap();
        assert_eq!(host.piece(V4, piece, bytes), Err(Refusal::Forbidden), "that is an overlap");
        assert!(host.is_clean());
    }
}

#[test]
fn what_came_before_and_the_page_become_one() {
    let sent = bytes(3000);
    let piece = |host: &mut Host, from: FragmentSource, split: u16, start: usize| {
        let end = (start + 1000).min(3000);
        host.receive(
            NOW,
            &frame(from, Some((7, start as u32, end < 3000)), &sent[start..end]),
            split,
        )
    };
    for from in [V4, V6] {
        for (before, split) in [(0, 8), (8, 8), (20, 8), (8, 0), (128, 66)] {
            let landed = Landed { from, split, ..LANDED };
            // The last piece came first.
            let mut host = Host::small();
            piece(&mut host, from, before, 2000).unwrap();
            let packet = host.adopt_well(landed, &sent).unwrap().unwrap();
            assert_eq!(host.take(&packet), whole(from, &sent), "{before}, {split}");
            assert!(host.is_clean() && host.reassembly.is_empty());
            // A piece that lies in the page too.
            for known in [0, 1000] {
                piece(&mut host, from, before, known).unwrap();
                assert_eq!(host.adopt_well(landed, &sent), Ok(None));
                assert_eq!(host.buffers.free_pages(), 7, "one of the two pages goes back");
                let packet = piece(&mut host, from, 0, 2000).unwrap().unwrap();
                assert_eq!(host.take(&packet), whole(from, &sent), "{before}, {split}");
                assert!(host.is_clean());
            }
        }
    }
}

#[test]
fn a_packet_that_was_refused_refuses_the_page() {
    let sent = bytes(3000);
    let mut host = Host::small();
    host.piece(V4, (7, 2000, true), &sent[2000..]).unwrap();
    host.piece(V4, (7, 2008, true), &sent[2008..2088]).unwrap_err();
    assert_eq!(host.adopt_well(LANDED, &sent), Err(Refusal::Forbidden));
    assert!(host.is_clean());
    // Pieces that contradict the page refuse the packet.
    host.piece(V4, (8, 992, true), &sent[992..2000]).unwrap();
    let landed = Landed { id: 8, ..LANDED };
    assert_eq!(host.adopt_well(landed, &sent), Err(Refusal::Forbidden));
    assert!(host.is_clean() && host.reassembly.counters().refused == 2);
}

#[test]
fn a_page_that_cannot_be_is_given_back() {
    let sent = bytes(3000);
    let mut host = Host::small();
    let (first, frame) = read(V4, (7, 0, true), &sent[..1000]);
    let (second, _) = read(V4, (7, 1000, true), &sent[..1000]);
    let (alone, _) = read(V6, (7, 0, false), &sent[..1000]);
    let good = Adopted {
        started: NOW,
        first: &first,
        head: &frame[..42],
        split: 8,
        buffer: host.buffers.take(PAGE).unwrap(),
        filled: 2000,
        congestion: Congestion::default(),
    };
    let lies = [
        (Adopted { first: &second, ..good }, Refusal::Malformed),
        (Adopted { first: &alone, ..good }, Refusal::Malformed),
        (Adopted { head: &frame[..41], ..good }, Refusal::Malformed),
        (Adopted { split: 1008, head: &frame, ..good }, Refusal::Malformed),
        (Adopted { split: 129, head: &frame, ..good }, Refusal::Malformed),
        (Adopted { filled: 992, ..good }, Refusal::Malformed),
        (Adopted { filled: 1999, ..good }, Refusal::Malformed),
        (Adopted { filled: 4112, ..good }, Refusal::Malformed),
        (Adopted { filled: u32::MAX, ..good }, Refusal::Malformed),
    ];
    for (mut lie, expected) in lies {
        host.buffers.give_back(good.buffer);
        lie.buffer = host.buffers.take(PAGE).unwrap();
        let result = host.reassembly.adopt(NOW, &lie, &mut host.buffers, &mut host.bytes);
        assert_eq!(result, Err(expected), "{lie:?}");
        assert!(host.is_clean() && host.reassembly.is_empty());
    }
    let stale = host.reassembly.adopt(NOW, &good, &mut host.buffers, &mut host.bytes);
    assert_eq!(stale, Err(Refusal::UnknownId));
    let full = Config { packets: 0, ..Config::default() };
    let mut full = Host::new(full, 8, 0);
    assert_eq!(full.adopt_well(LANDED, &sent), Err(Refusal::NoRoom));
    assert!(full.is_clean());
}

/// It began before packets that are here already, and ends before them.
#[test]
fn a_page_keeps_the_time_at_which_its_packet_began() {
    let sent = bytes(3000);
    let second = Duration::from_secs(1);
    let mut host = Host::small();
    for id in 0..3 {
        host.receive(NOW + second * id, &frame(V6, Some((id, 0, true)), &sent[..8]), 0).unwrap();
    }
    let landed = Landed { started: NOW + second / 2, ..LANDED };
    assert_eq!(host.adopt(NOW + second * 2, landed, &sent), Some(Ok(None)));
    let mut ends = Vec::new();
    while let Some(end) = host.reassembly.poll_timeout() {
        ends.push(end.since(NOW).as_millis() - 60_000);
        host.at(end);
    }
    assert_eq!(ends, [0, 500, 1000, 2000]);
    let earlier = Landed { started: Instant::ZERO, ..LANDED };
    host.adopt_well(earlier, &sent).unwrap().ok_or(()).unwrap_err();
    assert_eq!(host.reassembly.poll_timeout(), Some(Instant::ZERO + second * 60));
    host.receive(NOW, &frame(V6, Some((9, 0, true)), &sent[..8]), 0).unwrap();
    host.at(Instant::ZERO + second * 60);
    assert_eq!(host.reassembly.counters().expired, 5);
}
