//! Measures the kernel's own transports on this machine, interleaved, and
//! prints one table.
//!
//! ```text
//! cargo run --release -p landfall-testbed --example rivals [-- ROUNDS [SECONDS]]
//! ```
//!
//! As root it measures over veth pairs with an MTU of 1500 and of 9000, each
//! with super-packets and with real frames; otherwise over loopback.

use std::time::Duration;

use landfall_testbed::rivals::{
    Amount, Congestion, Endpoints, Plan, Polling, TcpLatency, TcpThroughput, UdpLatency,
    UdpThroughput, UnixLatency, UnixThroughput, Workload,
};
use landfall_testbed::{
    Candidate, Error, Measured, Sample, VethConfig, VethPair, interleave, privileges,
};

fn main() -> Result<(), Error> {
    let mut numbers = std::env::args().skip(1).map(|argument| argument.parse::<f64>());
    let mut number = |default| numbers.next().and_then(Result::ok).unwrap_or(default);
    let rounds = number(5.0) as usize;
    let time = Duration::try_from_secs_f64(number(1.0)).unwrap_or(Duration::from_secs(1));
    if let Some(why) = privileges::why_no_namespaces() {
        println!("loopback (a veth pair {why})");
        return table(&Endpoints::loopback()?, 1024, rounds, time);
    }
    for (mtu, payload) in [(1500, 1024), (9000, 8192)] {
        let pair = VethPair::new(VethConfig { mtu, ..VethConfig::default() })?;
        for real in [false, true] {
            pair.set_real_frames(real)?;
            let frames = if real { "real frames" } else { "super-packets" };
            println!("\nveth, MTU {mtu}, {frames}");
            table(&Endpoints::over(&pair)?, payload, rounds, time)?;
        }
    }
    Ok(())
}

fn table(
    endpoints: &Endpoints,
    payload: usize,
    rounds: usize,
    time: Duration,
) -> Result<(), Error> {
    let plan = Plan::new(endpoints.clone(), Amount::Time(time));
    let mut candidates = throughput(&plan, payload);
    for polling in [Polling::Block, Polling::Spin] {
        candidates.extend(latency(&plan.clone().polling(polling)));
    }
    println!("{:38} {:>8} {:>7} {:>21}", "", "median", "spread", "CPU-s/GB s+r/all");
    for measured in interleave(rounds, &mut candidates).measured {
        println!("{}", row(&measured));
    }
    Ok(())
}

fn throughput(plan: &Plan, payload: usize) -> Vec<Candidate<'static>> {
    let mut candidates = Vec::new();
    for (label, tcp) in TcpThroughput::variants(plan) {
        candidates.push(Candidate::new(format!("tcp {label}"), move || tcp.run()));
    }
    for workload in [Workload::Sendfile, Workload::Trunc, Workload::Touch] {
        let mut tcp = TcpThroughput::new(plan.clone());
        tcp.shape.workload = workload;
        candidates.push(Candidate::new(format!("tcp {workload}"), move || tcp.run()));
    }
    let mut spinning = TcpThroughput::new(plan.clone().polling(Polling::Spin));
    spinning.options.congestion = Some(Congestion::Reno);
    let udp = UdpThroughput::new(plan.clone(), payload);
    let unix = UnixThroughput::new(plan.clone());
    candidates.push(Candidate::new("tcp reno, spinning", move || spinning.run()));
    candidates.push(Candidate::new(format!("udp {payload}"), move || udp.run()));
    candidates.push(Candidate::new("unix", move || unix.run()));
    candidates
}

fn latency(plan: &Plan) -> Vec<Candidate<'static>> {
    let label = |name: &str| format!("{name} 1 byte, {:?}", plan.polling);
    let tcp = TcpLatency::new(plan.clone(), 1);
    let udp = UdpLatency::new(plan.clone(), 1);
    let unix = UnixLatency::new(plan.clone(), 1);
    vec![
        Candidate::new(label("tcp"), move || tcp.run()),
        Candidate::new(label("udp"), move || udp.run()),
        Candidate::new(label("unix"), move || unix.run()),
    ]
}

fn row(measured: &Measured) -> String {
    let label = &measured.label;
    if let Some(failure) = &measured.failure {
        return format!("{label:38} {failure}");
    }
    let median = |figure: fn(&Sample) -> f64| measured.median(figure).unwrap_or(f64::NAN);
    if let Some(rtt) = measured.spread(Sample::rtt_p50_ns) {
        let p99 = median(|sample| sample.rtt.map_or(f64::NAN, |rtt| rtt.p99_ns as f64));
        let (us, spread) = (rtt.median / 1e3, rtt.relative() * 100.0);
        return format!("{label:38} {us:5.2} us {spread:6.0}% p99 {:.2} us", p99 / 1e3);
    }
    let goodput = measured.spread(Sample::goodput);
    let (rate, spread) = goodput.map_or((0.0, 0.0), |g| (g.median / 1e9, g.relative() * 100.0));
    let send = median(|sample| sample.cpu_per_gb().send_s);
    let receive = median(|sample| sample.cpu_per_gb().receive_s);
    let machine = median(|sample| sample.cpu_per_gb().machine_s);
    let lost = median(|sample| sample.lost_bytes as f64);
    let again = median(|sample| sample.retransmitted as f64);
    format!(
        "{label:38} {rate:3.2} GB/s {spread:5.0}% {send:6.3}+{receive:.3}/{machine:.3} \
         lost {lost:.0} again {again:.0}"
    )
}
