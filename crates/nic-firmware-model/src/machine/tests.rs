//! The machine with a firmware that knows no protocol: byte 0 of a frame says
//! what shall become of it.

use std::vec::Vec;

use landfall_placement::{Duration, Ecn, Instant, PathId, Peer, RegionId, Span, Spans};

use super::*;
use crate::firmware::{Arrival, Firmware, HostMemory, Landed, Meter, Stage, Verdict};

const REGION: RegionId = RegionId::new(0, 0);

/// Memory of one region.
#[derive(Debug)]
struct Flat(Vec<u8>);

impl Flat {
    fn at(&self, span: Span) -> Option<std::ops::Range<usize>> {
        let end = span.end().filter(|end| *end <= self.0.len() as u64)? as usize;
        (span.region == REGION).then_some(end - span.len as usize..end)
    }
}

impl HostMemory for Flat {
    fn is_writable(&self, span: Span) -> bool {
        self.at(span).is_some()
    }

    fn write(&mut self, span: Span, bytes: &[u8]) -> bool {
        let Some(range) = self.at(span) else { return false };
        self.0[range].copy_from_slice(bytes);
        true
    }

    fn read(&self, span: Span, into: &mut [u8]) -> bool {
        let Some(range) = self.at(span) else { return false };
        into.copy_from_slice(&self.0[range]);
        true
    }
}

/// `P`, a place: the rest belongs there. `Q`: the same, and the host need not
/// hear of it soon. `H`: for the host. Anything else: for nobody. Commands are
/// answered with themselves; after a [`WAIT`] frames wait for the next one, and a [`POST`]
/// needs a work request. So do frames to be sent, whose payload lies so much further on.
#[derive(Debug, Default)]
struct ByFirstByte {
    is_patient: bool,
    further: u64,
    knows_no_request: bool,
}

const WAIT: u8 = 99;
const POST: u8 = 98;

impl Firmware for ByFirstByte {
    type Command = u8;
    type Report = (char, u8);
    type Token = (bool, u8);

    fn post(&mut self, command: &mut u8, batch: &mut Batch) {
        if *command == POST {
            batch.requests.push([POST; 32]);
        }
    }

    fn fetched(&mut self, command: &mut u8, requests: Option<&[Request]>) {
        assert_eq!((*command, requests), (POST, Some(&[[POST; 32]][..])));
    }

    fn post_send(&mut self, from: &[Span], batch: &mut Batch) {
        for span in from {
            let mut request = [0; 32];
            request[..8].copy_from_slice(&span.offset.to_le_bytes());
            request[8..12].copy_from_slice(&span.len.to_le_bytes());
            batch.requests.push(request);
        }
    }

    fn fetched_send(&mut self, requests: Option<&[Request]>, from: &mut Spans) -> bool {
        for request in requests.unwrap_or_default() {
            let at = u64::from_le_bytes(*request.first_chunk().unwrap());
            let len = u32::from_le_bytes(*request[8..].first_chunk().unwrap());
            from.push(REGION.span(at + self.further, len)).unwrap();
        }
        !self.knows_no_request
    }

    fn handle_command(&mut self, command: &u8, meter: &mut impl Meter) -> Option<(char, u8)> {
        meter.spend(Stage::Doorbell, 10);
        self.is_patient = *command == WAIT;
        Some(('c', *command))
    }

    fn receive(
        &mut self,
        frame: &Arrival<'_>,
        into: &mut Spans,
        meter: &mut impl Meter,
    ) -> Verdict<(bool, u8)> {
        meter.spend(Stage::Header, 10);
        match *frame.bytes {
            [kind @ (b'P' | b'Q'), place, ref payload @ ..] => {
                into.push(REGION.span(u64::from(place), payload.len() as u32)).unwrap();
                Verdict::Place { at: 2, token: (kind == b'P', place) }
            }
            [b'H', ..] => Verdict::Host,
            _ => Verdict::Drop,
        }
    }

    fn landed(
        &mut self,
        (is_urgent, place): (bool, u8),
        is_in_place: bool,
        meter: &mut impl Meter,
    ) -> Landed<(char, u8)> {
        meter.spend(Stage::Update, 10);
        let report = (if is_in_place { 'p' } else { 'f' }, place);
        if is_urgent { Landed::EventQueue(report) } else { Landed::Noted(report) }
    }

    fn patience(&self) -> Duration {
        if self.is_patient { Duration::from_micros(20) } else { Duration::ZERO }
    }

    fn restart(&mut self) {}
}

type Machine = Adapter<'static, ByFirstByte>;

fn machine(sizes: Sizes, costs: Costs) -> (Machine, Flat) {
    (Adapter::new(ByFirstByte::default(), Parts::owned(&sizes), costs), Flat(vec![0; 256]))
}

fn frame(bytes: &[u8]) -> Arrival<'_> {
    Arrival { bytes, path: PathId(0), from: Peer::Unaddressed, ecn: Ecn::NotCapable }
}

/// What the host is told, frames as their second byte; buffers are given back.
fn told(machine: &mut Machine) -> Vec<(char, u8)> {
    let mut all = Vec::new();
    while let Some(upcall) = machine.poll_upcall() {
        all.push(match upcall {
            Upcall::Report(report) => report,
            Upcall::Frame(buffer) => {
                let second = machine.frame(buffer).unwrap().bytes[1];
                machine.give_back(buffer);
                ('h', second)
            }
        });
    }
    all
}

/// Runs it until nothing is due, and says when that was.
fn settle(machine: &mut Machine, memory: &mut Flat) -> Instant {
    let mut now = Instant::ZERO;
    machine.run(now, memory);
    for _ in 0..10_000 {
        let Some(at) = machine.poll_timeout() else { return now };
        now = now.max(at);
        machine.poll_interrupt(now);
        machine.run(now, memory);
    }
    panic!("it never comes to rest");
}

/// Slow enough that everything overlaps with something.
fn slow() -> Costs {
    Costs {
        clock: 10_000_000,
        dma: DmaCosts {
            setup: Duration::from_micros(2),
            rate: 10_000_000,
            gap: Duration::from_micros(4),
        },
        engines: Engines::Two,
        bus: BusCosts { rate: 50_000_000, transaction: Duration::from_nanos(100) },
        cut_through: 0,
        bridge: BridgeCosts::NONE,
        report: 16,
        interrupts: Coalescing::After { time: Duration::from_micros(50), reports: 4 },
    }
}

#[test]
fn with_costs_off_all_happens_at_the_same_instant() {
    let (mut machine, mut memory) = machine(Sizes::default(), Costs::OFF);
    let now = Instant::from_micros(3);
    machine.arrive(now, &frame(b"P\x05payload")).unwrap();
    machine.run(now, &mut memory);
    assert_eq!(told(&mut machine), [('p', 5)]);
    assert_eq!(&memory.0[5..12], b"payload");
    assert_eq!((machine.poll_timeout(), machine.interrupts()), (None, 1));
}

#[test]
fn the_host_hears_in_the_order_of_arrival_whatever_things_cost() {
    for costs in [Costs::OFF, slow(), Costs { engines: Engines::One, ..slow() }] {
        let (mut machine, mut memory) = machine(Sizes::default(), costs);
        let long = [&b"P\x01"[..], &[7; 100]].concat();
        for bytes in [&long[..], b"H\x02", b"P\x03x", b"?", b"P\xffout", b"Q\x04y", b"H\x05"] {
            machine.arrive(Instant::ZERO, &frame(bytes)).unwrap();
        }
        settle(&mut machine, &mut memory);
        let expected = [('p', 1), ('h', 2), ('p', 3), ('f', 255), ('p', 4), ('h', 5)];
        assert_eq!(told(&mut machine), expected);
        let counters = machine.counters();
        assert_eq!((counters.placed, counters.failed, counters.dropped), (3, 1, 1));
        assert_eq!(machine.spent(Stage::Header), 70);
    }
}

#[test]
fn frames_wait_for_a_host_that_was_overtaken_but_not_for_ever() {
    let (mut machine, mut memory) = machine(Sizes::default(), Costs::OFF);
    let at = Instant::from_micros;
    machine.command(WAIT).unwrap();
    machine.run(at(10), &mut memory);
    machine.arrive(at(11), &frame(b"P\x05a")).unwrap();
    machine.run(at(11), &mut memory);
    assert_eq!(told(&mut machine), [('c', WAIT)]);
    machine.command(1).unwrap();
    machine.run(at(12), &mut memory);
    assert_eq!(told(&mut machine), [('c', 1), ('p', 5)], "the next command is in force first");

    // Who says the same again and again holds nobody up for longer.
    machine.command(WAIT).unwrap();
    machine.run(at(20), &mut memory);
    machine.arrive(at(21), &frame(b"P\x06b")).unwrap();
    machine.command(WAIT).unwrap();
    machine.run(at(39), &mut memory);
    assert_eq!(told(&mut machine), [('c', WAIT), ('c', WAIT)]);
    assert_eq!(machine.poll_timeout(), Some(at(40)));
    machine.run(at(40), &mut memory);
    assert_eq!(told(&mut machine), [('p', 6)]);
    assert_eq!(machine.poll_timeout(), None);
}

#[test]
fn an_answer_comes_behind_what_was_under_way() {
    let (mut machine, mut memory) = machine(Sizes::default(), slow());
    machine.arrive(Instant::ZERO, &frame(b"P\x01payload")).unwrap();
    machine.run(Instant::ZERO, &mut memory);
    machine.command(9).unwrap();
    settle(&mut machine, &mut memory);
    assert_eq!(told(&mut machine), [('p', 1), ('c', 9)]);
}

#[test]
fn commands_are_obeyed_before_frames_given_later_leave() {
    let (mut machine, mut memory) = machine(Sizes::default(), slow());
    memory.0[40..44].copy_from_slice(b"body");
    for n in 0..3 {
        machine.command(n).unwrap();
        let send = Send {
            path: PathId(1),
            to: Peer::Node(3),
            ecn: Ecn::Capable0,
            head: &[n],
            from: &[REGION.span(40, 4)],
            checksum: None,
            sum_only: 0,
            ticket: u64::from(n),
        };
        machine.send(&send).unwrap();
    }
    let mut now = Instant::ZERO;
    let mut left = 0;
    for _ in 0..1_000 {
        machine.run(now, &mut memory);
        while let Some(departure) = machine.departure() {
            assert_eq!(departure.bytes, [left as u8, b'b', b'o', b'd', b'y']);
            assert!(machine.counters().commands > left, "it left before its command was obeyed");
            machine.departed();
            assert_eq!(machine.poll_sent(), Some(left));
            left += 1;
        }
        let Some(at) = machine.poll_timeout() else { break };
        now = now.max(at);
        machine.poll_interrupt(now);
    }
    assert_eq!((left, machine.counters().sent), (3, 3));
}

#[test]
fn what_cannot_be_read_is_not_sent_and_let_go() {
    let (mut machine, mut memory) = machine(Sizes::default(), Costs::OFF);
    let from = [REGION.span(250, 10)];
    let send = Send {
        path: PathId(0),
        to: Peer::Unaddressed,
        ecn: Ecn::NotCapable,
        head: b"head",
        from: &from,
        checksum: None,
        sum_only: 0,
        ticket: 7,
    };
    machine.send(&send).unwrap();
    machine.run(Instant::ZERO, &mut memory);
    assert!(machine.departure().is_none());
    assert_eq!((machine.poll_sent(), machine.counters().unsendable), (Some(7), 1));
}

/// What the host has said of it with the frame is forgotten.
#[test]
fn the_payload_of_a_frame_lies_where_its_work_requests_say() {
    let (mut machine, mut memory) = machine(Sizes::default(), slow());
    memory.0[40..44].copy_from_slice(b"this");
    memory.0[140..144].copy_from_slice(b"that");
    let send = Send {
        path: PathId(0),
        to: Peer::Unaddressed,
        ecn: Ecn::NotCapable,
        head: b"not ",
        from: &[REGION.span(40, 4)],
        checksum: None,
        sum_only: 0,
        ticket: 1,
    };
    machine.firmware_mut().further = 100;
    machine.send(&send).unwrap();
    settle(&mut machine, &mut memory);
    assert_eq!(machine.departure().unwrap().bytes, b"not that");
    machine.departed();
    assert_eq!(machine.poll_sent(), Some(1));
    // Requests that nobody can make anything of: it is not sent, and its memory let go.
    machine.firmware_mut().knows_no_request = true;
    machine.send(&Send { ticket: 2, ..send }).unwrap();
    settle(&mut machine, &mut memory);
    assert!(machine.departure().is_none());
    assert_eq!((machine.poll_sent(), machine.counters().unsendable), (Some(2), 1));
}

/// What takes no time is in force before the next frame is looked at. What does not make
/// the processor wait: the bus may be a while in coming.
#[test]
fn requests_are_in_force_when_they_are_here() {
    let commands = [('c', POST); 3];
    let frames = [('p', 0), ('p', 1), ('p', 2)];
    for (costs, expected) in
        [(Costs::OFF, [commands, frames].concat()), (slow(), [frames, commands].concat())]
    {
        let (mut machine, mut memory) = machine(Sizes::default(), costs);
        for n in 0..3 {
            machine.command(POST).unwrap();
            machine.arrive(Instant::ZERO, &frame(&[b'P', n, n])).unwrap();
        }
        settle(&mut machine, &mut memory);
        let mut found = told(&mut machine);
        if costs.clock > 0 {
            assert_eq!(found[0], ('p', 0), "it came before the first request was here");
            // The others come as the bus has it, each in its order.
            found.sort_by_key(|(kind, _)| *kind == 'c');
        }
        assert_eq!(found, expected);
    }
}

#[test]
fn what_finds_no_room_is_lost_whole_and_counted() {
    let sizes = Sizes { arrivals: 2, reports: 4, buffers: 1, frame: 64, ..Sizes::default() };
    let (mut machine, mut memory) = machine(sizes, slow());
    assert_eq!(machine.arrive(Instant::ZERO, &frame(&[b'H'; 65])), Err(Full));
    for n in 0..3u8 {
        let came = machine.arrive(Instant::ZERO, &frame(&[b'H', n]));
        assert_eq!(came.is_ok(), n < 2, "there are two slots");
    }
    settle(&mut machine, &mut memory);
    assert_eq!(told(&mut machine), [('h', 0)], "there is one buffer");
    assert_eq!((machine.counters().overruns, machine.counters().no_buffer), (2, 1));
    // Nobody reads the reports: the ring fills, and the wire is refused, not the tables.
    let mut taken = 0;
    for n in 0..20 {
        taken += usize::from(machine.arrive(Instant::ZERO, &frame(&[b'Q', n, n])).is_ok());
        settle(&mut machine, &mut memory);
    }
    assert_eq!(taken, 4);
    assert!(machine.command(1).is_ok());
    settle(&mut machine, &mut memory);
    assert_eq!(machine.counters().commands, 0, "its answer has no room yet");
    assert_eq!(told(&mut machine).len(), 4);
    settle(&mut machine, &mut memory);
    assert_eq!(told(&mut machine), [('c', 1)]);
}

#[test]
fn reports_that_nobody_waits_for_come_with_the_next_or_when_there_are_many() {
    let (mut machine, mut memory) = machine(Sizes { reports: 8, ..Sizes::default() }, slow());
    for n in 0..3 {
        machine.arrive(Instant::ZERO, &frame(&[b'Q', n])).unwrap();
    }
    settle(&mut machine, &mut memory);
    assert_eq!(machine.interrupts(), 0);
    machine.arrive(Instant::ZERO, &frame(&[b'Q', 3])).unwrap();
    settle(&mut machine, &mut memory);
    assert_eq!(machine.interrupts(), 1, "the ring is half full");
    told(&mut machine);
    machine.arrive(Instant::ZERO, &frame(&[b'P', 4])).unwrap();
    settle(&mut machine, &mut memory);
    assert_eq!(machine.interrupts(), 2);
}

#[test]
fn a_restart_forgets_what_was_under_way_and_lets_go_of_what_was_to_be_sent() {
    let (mut machine, mut memory) = machine(Sizes::default(), slow());
    machine.arrive(Instant::ZERO, &frame(b"P\x05payload")).unwrap();
    let send = Send {
        path: PathId(0),
        to: Peer::Unaddressed,
        ecn: Ecn::NotCapable,
        head: b"head",
        from: &[],
        checksum: None,
        sum_only: 0,
        ticket: 7,
    };
    machine.send(&send).unwrap();
    machine.send(&Send { ticket: 8, ..send }).unwrap();
    machine.run(Instant::ZERO, &mut memory);
    machine.restart();
    settle(&mut machine, &mut memory);
    assert_eq!(&memory.0[5..12], &[0; 7], "it did not land");
    assert_eq!(told(&mut machine), []);
    let mut sent = [machine.poll_sent(), machine.poll_sent()];
    sent.sort_unstable();
    assert_eq!((sent, machine.poll_sent()), ([Some(7), Some(8)], None));
    machine.arrive(Instant::ZERO, &frame(b"P\x05payload")).unwrap();
    settle(&mut machine, &mut memory);
    assert_eq!(&memory.0[5..12], b"payload", "it goes on");
}

#[test]
fn sram_runs_out() {
    let mut sram = Sram::new(Sram::TIGON);
    Sizes::default().reserve(&mut sram).unwrap();
    assert_eq!(sram.reserved().len(), 4);
    let more = Sizes::default().reserve(&mut sram).unwrap_err();
    assert_eq!((more.name, more.left), ("receive slots", sram.left()));
}
