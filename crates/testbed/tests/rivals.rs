//! Every kernel rival moves its bytes and counts them: over loopback, which
//! needs no privilege, and over a veth pair, which does.

use std::time::Duration;

use landfall_testbed::rivals::{
    Amount, Congestion, Endpoints, Plan, Polling, Scatter, TcpLatency, TcpThroughput, UdpLatency,
    UdpThroughput, UnixLatency, UnixThroughput, Workload,
};
use landfall_testbed::{Error, VethConfig, VethPair, require_namespaces};

const BYTES: u64 = 3_000_001;
const ROUNDS: u64 = 200;
const MESSAGE: usize = 300;

fn loopback(amount: Amount) -> Plan {
    Plan::new(Endpoints::loopback().unwrap(), amount)
}

const POLLINGS: [Polling; 2] = [Polling::Block, Polling::Spin];

#[test]
fn tcp_moves_every_byte_under_every_workload() {
    for polling in POLLINGS {
        for workload in [Workload::Plain, Workload::Sendfile, Workload::Trunc, Workload::Touch] {
            let mut tcp = TcpThroughput::new(loopback(Amount::Bytes(BYTES)).polling(polling));
            tcp.shape.workload = workload;
            let sample = tcp.run().unwrap();
            assert_eq!(sample.bytes, BYTES, "{workload} {polling:?}");
            assert!(sample.seconds > 0.0 && sample.messages > 0 && sample.rtt.is_none());
        }
    }
}

#[test]
fn tcp_takes_any_shape_and_options() {
    let mut tcp = TcpThroughput::new(loopback(Amount::Bytes(BYTES)));
    tcp.shape.workload = Workload::Touch;
    tcp.shape.send_size = 1000;
    tcp.shape.receive_size = 77_777;
    tcp.shape.memory = 1 << 20;
    tcp.options.no_delay = true;
    tcp.options.congestion = Some(Congestion::Reno);
    tcp.options.send_buffer = Some(1 << 20);
    tcp.options.receive_buffer = Some(1 << 20);
    tcp.options.low_water = Some(10_000);
    assert_eq!(tcp.run().unwrap().bytes, BYTES);
    tcp.plan.amount = Amount::Messages(12);
    assert_eq!(tcp.run().unwrap().bytes, 12_000);
    tcp.shape.receive_size = 0;
    assert!(matches!(tcp.run(), Err(Error::BadRequest(_))));
}

#[test]
fn every_variant_of_tcp_that_this_kernel_has_runs() {
    let variants = TcpThroughput::variants(&loopback(Amount::Bytes(BYTES)));
    let outcomes: Vec<_> = variants.into_iter().map(|(label, tcp)| (label, tcp.run())).collect();
    // Reno is part of every kernel; Cubic need not be.
    for (label, outcome) in outcomes {
        match outcome {
            Ok(sample) => assert_eq!(sample.bytes, BYTES, "{label}"),
            Err(error) => assert!(label.starts_with("cubic"), "{label}: {error}"),
        }
    }
}

#[test]
fn a_timed_run_lasts_that_long() {
    let time = Duration::from_millis(100);
    let sample = TcpThroughput::new(loopback(Amount::Time(time))).run().unwrap();
    assert!(sample.seconds >= time.as_secs_f64());
    let sample = UdpThroughput::new(loopback(Amount::Time(time)), 1000).run().unwrap();
    assert!((sample.bytes + sample.lost_bytes).is_multiple_of(1000));
    let sample = UnixLatency::new(loopback(Amount::Time(time)), 1).run().unwrap();
    assert!(sample.seconds >= time.as_secs_f64());
}

#[test]
fn every_round_trip_is_recorded() {
    for polling in POLLINGS {
        let plan = loopback(Amount::Messages(ROUNDS)).polling(polling);
        let samples = [
            TcpLatency::new(plan.clone(), MESSAGE).run().unwrap(),
            UdpLatency::new(plan.clone(), MESSAGE).run().unwrap(),
            UnixLatency::new(plan, MESSAGE).run().unwrap(),
        ];
        for sample in samples {
            let rtt = sample.rtt.unwrap();
            assert_eq!((sample.messages, rtt.count), (ROUNDS, ROUNDS));
            assert_eq!(sample.bytes, ROUNDS * MESSAGE as u64);
            assert!(rtt.min_ns <= rtt.p50_ns && rtt.p50_ns <= rtt.p99_ns);
            assert!(rtt.p99_ns <= rtt.max_ns);
        }
    }
}

#[test]
fn udp_accounts_for_every_byte() {
    for polling in POLLINGS {
        for (payload, offload) in [(1024, true), (1424, true), (8192, true), (1024, false)] {
            let plan = loopback(Amount::Bytes(BYTES)).polling(polling);
            let mut udp = UdpThroughput::new(plan, payload);
            udp.offload = offload;
            udp.workload = Workload::Touch;
            let sample = udp.run().unwrap();
            assert_eq!(sample.bytes + sample.lost_bytes, BYTES);
            assert!(sample.bytes > 0);
            udp.workload = Workload::Plain;
            udp.scatter = Some(Scatter { head: 40, memory: 1 << 20 });
            let sample = udp.run().unwrap();
            assert_eq!(sample.bytes + sample.lost_bytes, BYTES, "heads are no payload");
            assert!(sample.bytes > 0);
        }
    }
}

#[test]
fn unix_streams_move_every_byte() {
    for workload in [Workload::Plain, Workload::Sendfile, Workload::Touch] {
        let mut unix = UnixThroughput::new(loopback(Amount::Bytes(BYTES)));
        unix.shape.workload = workload;
        unix.buffer = Some(1 << 20);
        assert_eq!(unix.run().unwrap().bytes, BYTES, "{workload}");
        unix.shape.workload = Workload::Trunc;
        assert!(matches!(unix.run(), Err(Error::Unsupported(_))));
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let plan = loopback(Amount::Messages(1));
    for message in [0, 1 << 40] {
        assert!(matches!(TcpLatency::new(plan.clone(), message).run(), Err(Error::BadRequest(_))));
        assert!(matches!(UdpLatency::new(plan.clone(), message).run(), Err(Error::BadRequest(_))));
        assert!(matches!(
            UdpThroughput::new(plan.clone(), message).run(),
            Err(Error::BadRequest(_))
        ));
    }
    let mut udp = UdpThroughput::new(plan, 1024);
    udp.workload = Workload::Sendfile;
    assert!(matches!(udp.run(), Err(Error::Unsupported(_))));
}

#[test]
fn both_threads_may_share_one_core() {
    let mut plan = loopback(Amount::Messages(ROUNDS)).polling(Polling::Spin);
    plan.endpoints.receive.core = plan.endpoints.send.core;
    assert_eq!(TcpLatency::new(plan, 1).run().unwrap().messages, ROUNDS);
}

#[test]
fn all_rivals_run_over_a_veth_pair() {
    require_namespaces!();
    let pair = VethPair::new(VethConfig::default()).unwrap();
    for real_frames in [false, true] {
        pair.set_real_frames(real_frames).unwrap();
        for endpoints in [Endpoints::over(&pair).unwrap(), Endpoints::over_ipv6(&pair).unwrap()] {
            let bulk = Plan::new(endpoints.clone(), Amount::Bytes(BYTES));
            assert_eq!(TcpThroughput::new(bulk.clone()).run().unwrap().bytes, BYTES);
            let udp = UdpThroughput::new(bulk, 1024).run().unwrap();
            assert_eq!(udp.bytes + udp.lost_bytes, BYTES);
            let short = Plan::new(endpoints, Amount::Messages(ROUNDS));
            assert_eq!(TcpLatency::new(short.clone(), 1).run().unwrap().messages, ROUNDS);
            assert_eq!(UdpLatency::new(short, 1).run().unwrap().messages, ROUNDS);
        }
    }
    // All of that crossed the pair.
    assert!(pair.b.counters().unwrap().received_bytes >= 4 * 2 * BYTES);
}
