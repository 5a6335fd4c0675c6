use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::vec::Vec;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

/// One byte, as the naive model sees it.
#[derive(Clone, Copy)]
struct Byte {
    sent_at: Instant,
    transmissions: u32,
    is_sacked: bool,
    is_lost: bool,
}

/// The same scoreboard byte by byte, with no list and no hint.
#[derive(Default)]
struct Model {
    /// Every byte ever sent.
    bytes: Vec<Byte>,
    acknowledged: usize,
    /// Where transmissions end: they are judged as wholes.
    borders: BTreeSet<usize>,
}

impl Model {
    fn end_of(&self, position: usize) -> usize {
        *self.borders.range(position + 1..).next().unwrap()
    }

    fn count(&self, what: impl Fn(&Byte) -> bool) -> u64 {
        self.bytes[self.acknowledged..].iter().filter(|byte| what(byte)).count() as u64
    }

    fn clamp(&self, range: &Range<u64>) -> Range<usize> {
        let clamp = |position: u64| {
            usize::try_from(position).unwrap().clamp(self.acknowledged, self.bytes.len())
        };
        let (start, end) = (clamp(range.start), clamp(range.end));
        start..end.max(start)
    }

    fn push(&mut self, len: u32, now: Instant) {
        let byte = Byte { sent_at: now, transmissions: 1, is_sacked: false, is_lost: false };
        self.bytes.extend((0..len).map(|_| byte));
        self.borders.insert(self.bytes.len());
    }

    /// Puts the byte down as delivered.
    fn deliver(&self, position: usize, end: usize, delivered: &mut Delivered) {
        let byte = self.bytes[position];
        let sent = Sent { at: byte.sent_at, end: end as u64 };
        delivered.bytes += 1;
        delivered.newest = delivered.newest.max(Some(sent));
        delivered.highest = delivered.highest.max(sent.end);
        if byte.transmissions > 1 {
            delivered.has_retransmitted = true;
        } else {
            delivered.newest_original = delivered.newest_original.max(Some(sent));
            let oldest = delivered.oldest_original.unwrap_or(sent.at);
            delivered.oldest_original = Some(oldest.min(sent.at));
            let lowest = delivered.lowest_original.unwrap_or(sent.end);
            delivered.lowest_original = Some(lowest.min(sent.end));
        }
    }

    fn ack(&mut self, upto: u64, delivered: &mut Delivered) {
        let range = self.clamp(&(0..upto));
        for position in range.clone() {
            if !self.bytes[position].is_sacked {
                self.deliver(position, self.end_of(position).min(range.end), delivered);
            }
        }
        delivered.acknowledged += range.len() as u64;
        self.acknowledged = range.end.max(self.acknowledged);
    }

    fn sack(&mut self, range: &Range<u64>, delivered: &mut Delivered) {
        let range = self.clamp(range);
        if range.is_empty() {
            return;
        }
        for border in [range.start, range.end] {
            let inside = if border == range.end { border - 1 } else { border };
            if !self.bytes[inside].is_sacked {
                self.borders.insert(border);
            }
        }
        for position in range {
            if !self.bytes[position].is_sacked {
                self.deliver(position, self.end_of(position), delivered);
                self.bytes[position].is_sacked = true;
                self.bytes[position].is_lost = false;
            }
        }
    }

    fn lose(&mut self, position: usize) -> u64 {
        let byte = &mut self.bytes[position];
        let is_new = !byte.is_sacked && !byte.is_lost;
        byte.is_lost |= is_new;
        u64::from(is_new)
    }

    fn mark_lost(&mut self, range: &Range<u64>) -> u64 {
        let range = self.clamp(range);
        self.borders.extend([range.start, range.end]);
        range.map(|position| self.lose(position)).sum()
    }

    fn next_lost(&self, most: u64) -> Option<Range<u64>> {
        let start = (self.acknowledged..self.bytes.len()).find(|&at| self.bytes[at].is_lost)?;
        let lost = self.bytes[start..].iter().take_while(|byte| byte.is_lost).count() as u64;
        (most > 0).then(|| start as u64..start as u64 + lost.min(most))
    }

    fn retransmitted(&mut self, range: &Range<u64>, now: Instant) {
        let range = self.clamp(range);
        self.borders.extend([range.start, range.end]);
        for byte in &mut self.bytes[range] {
            if !byte.is_sacked {
                byte.is_lost = false;
                byte.sent_at = now;
                byte.transmissions += 1;
            }
        }
    }

    fn lose_older(&mut self, newest: Sent, patience: Duration, now: Instant) -> Losses {
        let (mut lost, mut next) = (0, None);
        for position in self.acknowledged..self.bytes.len() {
            let byte = self.bytes[position];
            let sent = Sent { at: byte.sent_at, end: self.end_of(position) as u64 };
            if byte.is_sacked || byte.is_lost || sent >= newest {
                continue;
            }
            let deadline = byte.sent_at + patience;
            if deadline <= now {
                lost += self.lose(position);
            } else if next.is_none_or(|next| deadline < next) {
                next = Some(deadline);
            }
        }
        Losses { bytes: lost, recheck_at: next }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push(u32),
    Ack(u64),
    Sack(Range<u64>),
    MarkLost(Range<u64>),
    Repair(u64),
    Retransmit(Range<u64>),
    LoseOlder { age: u64, end: u64, patience: u64 },
    MarkAllLost,
    ForgetSacks,
    ForgetLosses,
}

/// Positions are given as distances from the acknowledged one.
fn step() -> impl Strategy<Value = Step> {
    let range = || (0_u64..150, 0_u64..60).prop_map(|(start, len)| start..start + len);
    prop_oneof![
        6 => (0_u32..40).prop_map(Step::Push),
        3 => (0_u64..60).prop_map(Step::Ack),
        5 => range().prop_map(Step::Sack),
        1 => range().prop_map(Step::MarkLost),
        5 => (0_u64..50).prop_map(Step::Repair),
        1 => range().prop_map(Step::Retransmit),
        5 => (0_u64..30, 0_u64..150, 0_u64..30)
            .prop_map(|(age, end, patience)| Step::LoseOlder { age, end, patience }),
        1 => Just(Step::MarkAllLost),
        1 => Just(Step::ForgetSacks),
        1 => Just(Step::ForgetLosses),
    ]
}

struct Pair {
    flight: Flight,
    model: Model,
    now: u64,
}

impl Pair {
    fn apply(&mut self, step: &Step) {
        // Time never stands still, so retransmissions of one moment lie in the
        // order of positions, as a sender makes them.
        self.now += 1;
        let (now, base) = (at(self.now), self.flight.unacknowledged());
        let shift = |range: &Range<u64>| base + range.start..base + range.end;
        match step {
            Step::Push(len) => {
                self.flight.push(*len, now);
                self.model.push(*len, now);
            }
            Step::Ack(by) => self.compare_deliveries(
                |flight, all| flight.ack(base + by, all),
                |model, all| model.ack(base + by, all),
            ),
            Step::Sack(range) => self.compare_deliveries(
                |flight, all| flight.sack(shift(range), all),
                |model, all| model.sack(&shift(range), all),
            ),
            Step::MarkLost(range) => {
                let lost = self.model.mark_lost(&shift(range));
                assert_eq!(self.flight.mark_lost(shift(range)), lost);
            }
            Step::Repair(most) => {
                let range = self.flight.next_lost(*most);
                assert_eq!(range, self.model.next_lost(*most));
                if let Some(range) = range {
                    self.model.retransmitted(&range, now);
                    self.flight.retransmitted(range, now);
                }
            }
            Step::Retransmit(range) => {
                self.model.retransmitted(&shift(range), now);
                self.flight.retransmitted(shift(range), now);
            }
            Step::LoseOlder { age, end, patience } => {
                let newest = Sent { at: at(self.now.saturating_sub(*age)), end: base + end };
                let patience = Duration::from_nanos(*patience);
                let expected = self.model.lose_older(newest, patience, now);
                assert_eq!(self.flight.lose_older(newest, patience, now), expected);
            }
            Step::MarkAllLost => {
                let lost = self.model.mark_lost(&(0..u64::MAX));
                assert_eq!(self.flight.mark_all_lost(), lost);
            }
            Step::ForgetSacks => {
                self.model.bytes.iter_mut().for_each(|byte| byte.is_sacked = false);
                self.flight.forget_sacks();
            }
            Step::ForgetLosses => {
                self.model.bytes.iter_mut().for_each(|byte| byte.is_lost = false);
                self.flight.forget_losses();
            }
        }
    }

    fn compare_deliveries(
        &mut self,
        flight: impl FnOnce(&mut Flight, &mut Delivered),
        model: impl FnOnce(&mut Model, &mut Delivered),
    ) {
        let (mut one, mut other) = (Delivered::default(), Delivered::default());
        flight(&mut self.flight, &mut one);
        model(&mut self.model, &mut other);
        assert_eq!(one, other);
    }

    fn compare(&mut self) {
        let (flight, model) = (&mut self.flight, &self.model);
        assert_eq!(flight.next(), model.bytes.len() as u64);
        assert_eq!(flight.unacknowledged(), model.acknowledged as u64);
        assert_eq!(flight.sacked_bytes(), model.count(|byte| byte.is_sacked));
        assert_eq!(flight.lost_bytes(), model.count(|byte| byte.is_lost));
        assert_eq!(flight.pipe(), model.count(|byte| !byte.is_sacked && !byte.is_lost));
        assert_eq!(flight.next_lost(u64::MAX), model.next_lost(u64::MAX));
        let highest = (model.acknowledged..model.bytes.len())
            .rfind(|&at| model.bytes[at].is_sacked)
            .map_or(0, |at| at as u64 + 1);
        assert_eq!(flight.board.as_ref().map_or(0, |board| board.sacked.end()), highest);
        check(flight);
    }
}

/// What holds after every operation.
fn check(flight: &Flight) {
    let mut expected = flight.unacknowledged;
    for record in &flight.records {
        assert_eq!(record.start, expected, "no gaps");
        assert!(record.len > 0 && !(record.is_sacked && record.is_lost));
        let board = flight.board.as_deref();
        let is_sacked = board.is_some_and(|board| board.sacked.end_at(record.start).is_some());
        assert_eq!(is_sacked, record.is_sacked);
        assert!(!record.is_lost || board.is_some_and(|board| record.start >= board.first_lost));
        expected = record.end();
    }
    assert_eq!(expected, flight.next);
    let most = 2 * flight.most_records as usize;
    assert!(flight.records.len() <= most);
    assert!(flight.board.as_ref().is_none_or(|board| board.again.len() <= 2 * most + 8));
    if flight.is_empty() {
        assert!(flight.records.capacity() == 0 && flight.board.is_none());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// Every operation does to the scoreboard what it does byte by byte.
    #[test]
    fn the_scoreboard_is_that_of_the_naive_model(steps in prop::collection::vec(step(), 0..60)) {
        let mut pair = Pair { flight: Flight::new(0, 10_000), model: Model::default(), now: 100 };
        for step in &steps {
            pair.apply(step);
            pair.compare();
        }
    }

    /// Invariant 5: blocks that cut records to pieces cannot make them grow
    /// without bound; what is lost can still be sent again.
    #[test]
    fn the_number_of_records_is_bounded(
        steps in prop::collection::vec((step(), any::<u8>()), 0..120),
    ) {
        let mut flight = Flight::new(0, 4);
        let mut delivered = Delivered::default();
        for (now, (step, some)) in (1..).zip(steps) {
            let some = u64::from(some) + flight.unacknowledged();
            match step {
                Step::Push(len) if flight.has_room() => {
                    flight.push(len, at(now));
                }
                Step::Ack(by) => flight.ack(flight.unacknowledged() + by, &mut delivered),
                Step::MarkAllLost => {
                    flight.mark_all_lost();
                }
                Step::MarkLost(range) => {
                    flight.mark_lost(some..some + range.end);
                }
                Step::Repair(most) => {
                    if let Some(range) = flight.next_lost(most) {
                        let before = flight.lost_bytes();
                        flight.retransmitted(range, at(now));
                        prop_assert!(flight.lost_bytes() < before, "a sender comes to an end");
                    }
                }
                _ => flight.sack(some..some + 1, &mut delivered),
            }
            check(&flight);
        }
    }
}

#[test]
fn a_record_is_small() {
    assert!(size_of::<Record>() <= 40, "{}", size_of::<Record>());
}

#[test]
fn pipe_counts_what_is_under_way() {
    // RFC 6675, section 4: neither what was selectively acknowledged nor what is
    // lost, but what was sent again since.
    let mut flight = Flight::new(0, 100);
    for start in 0..10 {
        flight.push(1_000, at(start));
    }
    let mut delivered = Delivered::default();
    flight.sack(2_000..5_000, &mut delivered);
    assert_eq!((delivered.bytes, flight.pipe()), (3_000, 7_000));
    assert_eq!(flight.mark_lost(0..3_000), 2_000);
    assert_eq!(flight.pipe(), 5_000);
    flight.retransmitted(0..1_000, at(20));
    assert_eq!(flight.pipe(), 6_000);
    assert_eq!(flight.next_lost(u64::MAX), Some(1_000..2_000));
    assert_eq!(flight.first().map(|first| first.sent_at), Some(at(20)));
    flight.ack(1_000, &mut delivered);
    assert_eq!((flight.pipe(), flight.outstanding()), (5_000, 9_000));
}

#[test]
fn only_data_sent_once_gives_a_round_trip() {
    // Karn's rule (RFC 6298, section 3).
    let mut flight = Flight::new(0, 100);
    flight.push(1_000, at(1));
    flight.push(1_000, at(2));
    flight.retransmitted(0..1_000, at(9));
    let mut delivered = Delivered::default();
    flight.ack(1_000, &mut delivered);
    assert!(delivered.has_retransmitted);
    assert_eq!((delivered.oldest_original, delivered.newest_original), (None, None));
    flight.ack(2_000, &mut delivered);
    assert_eq!(delivered.oldest_original, Some(at(2)));
    assert_eq!(delivered.newest, Some(Sent { at: at(9), end: 1_000 }));
}

#[test]
fn data_sent_again_and_again_needs_no_more_memory() {
    let mut flight = Flight::new(0, 10);
    flight.push(1_000, at(0));
    for now in 1..1_000 {
        flight.mark_lost(0..1_000);
        flight.retransmitted(0..1_000, at(now));
        check(&flight);
    }
    // The last repetition is the one that is judged.
    let newest = Sent { at: at(5_000), end: 0 };
    let found = flight.lose_older(newest, Duration::from_nanos(10), at(1_000));
    assert_eq!(found, Losses { bytes: 0, recheck_at: Some(at(1_009)) });
}

#[test]
fn blocks_and_numbers_outside_of_what_was_sent_change_nothing() {
    let mut flight = Flight::new(100, 10);
    flight.push(50, at(0));
    let mut delivered = Delivered::default();
    flight.ack(90, &mut delivered);
    flight.sack(0..100, &mut delivered);
    flight.sack(150..u64::MAX, &mut delivered);
    #[expect(clippy::reversed_empty_ranges, reason = "a peer may send such a block")]
    flight.sack(140..120, &mut delivered);
    assert_eq!(delivered, Delivered::default());
    flight.ack(u64::MAX, &mut delivered);
    assert_eq!((delivered.acknowledged, flight.unacknowledged()), (50, 150));
}

#[test]
fn a_receiver_that_dropped_what_it_had_gets_it_again() {
    // RFC 2018, section 8.
    let mut flight = Flight::new(0, 10);
    flight.push(1_000, at(0));
    flight.push(1_000, at(0));
    flight.sack(1_000..2_000, &mut Delivered::default());
    assert!(flight.last().is_some_and(Record::is_sacked));
    flight.forget_sacks();
    assert_eq!(flight.mark_all_lost(), 2_000);
    assert_eq!(flight.next_lost(u64::MAX), Some(0..2_000));
}
