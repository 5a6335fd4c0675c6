//! The same bookkeeping in instructions, which do not depend on what else the
//! machine does. Runs itself under `valgrind --tool=callgrind`, which counts
//! inside of one function only.

use std::env;
use std::process::Command;

use landfall_benches::{
    BATCH as STP_BATCH, Bursts, Endless, NicPair, NumberedPair, Pair, QpipPair, StpPair,
    StreamPair, TripLine,
};

const BATCH: usize = 61;
const BATCHES: usize = 500;
/// Tells the copy under valgrind what to run.
const WORK: &str = "LANDFALL_BENCH_WORK";

/// What is counted.
struct Counted {
    name: &'static str,
    /// What happens to a unit in there.
    what: &'static str,
    /// The function, as callgrind looks for it.
    function: &'static str,
    /// Runs this many batches, and gives the number of units.
    run: fn(usize) -> usize,
}

const PLACED: &str = "guess, place and placed";
const RECEIVE: &str = "*landfall_benches*Pair*receive*";

const ALL: [Counted; 28] = [
    Counted {
        name: "numbered",
        what: PLACED,
        function: RECEIVE,
        run: |batches| endless(&mut NumberedPair::new(1024), batches),
    },
    Counted {
        name: "stream",
        what: PLACED,
        function: RECEIVE,
        run: |batches| endless(&mut StreamPair::new(), batches),
    },
    stp("stp, 1 connection, 1 MiB", |batches| rounds(1, 1 << 20, batches)),
    stp("stp, 1000 connections, 1 MiB", |batches| rounds(1_000, 1 << 20, batches)),
    stp("stp, 100000 connections, 1 MiB", |batches| rounds(100_000, 1 << 20, batches)),
    stp("stp, 1 connection, 64 KiB", |batches| rounds(1, 64 << 10, batches)),
    stp("stp, 1 connection, 64 MiB", |batches| rounds(1, 64 << 20, batches)),
    stp("stp, 1 connection, 64 GiB", |batches| rounds(1, 64 << 30, batches)),
    stp("stp, unit by unit, 1 connection, 1 MiB", |batches| unit_by_unit(1, batches)),
    stp("stp, unit by unit, 100000 connections, 1 MiB", |batches| unit_by_unit(100_000, batches)),
    Counted {
        name: "stp, 1 connection, 1 MiB",
        what: "requests, grants, acknowledgements and events of the receiver",
        function: "*StpPair*answer*",
        run: |batches| rounds(1, 1 << 20, batches),
    },
    stp_send("stp, 1 connection, 1 MiB", |batches| rounds(1, 1 << 20, batches)),
    stp_send("stp, 100000 connections, 1 MiB", |batches| rounds(100_000, 1 << 20, batches)),
    stp_send("stp, 1 connection, 64 GiB", |batches| rounds(1, 64 << 30, batches)),
    stp_send("stp, unit by unit, 1 connection, 1 MiB", |batches| unit_by_unit(1, batches)),
    qpip("qpip, 1 connection", |batches| segments(QpipPair::new(1), batches)),
    qpip("qpip, 1 connection, without the seam", |batches| {
        segments(QpipPair::without_seam(1), batches)
    }),
    qpip("qpip, 10000 connections", |batches| segments(QpipPair::new(10_000), batches)),
    qpip("qpip, 10000 connections, without the seam", |batches| {
        segments(QpipPair::without_seam(10_000), batches)
    }),
    clan("clan, a word, 1 tripwire", |batches| bursts(1, Bursts::Beside, batches)),
    clan("clan, a word, 4096 tripwires", |batches| bursts(4096, Bursts::Beside, batches)),
    clan("clan, a word, 1000000 tripwires", |batches| bursts(1_000_000, Bursts::Beside, batches)),
    clan("clan, 1448 bytes, 1 tripwire", |batches| bursts(1, Bursts::InOrder(181), batches)),
    clan("clan, a word anywhere, 1000000 tripwires", |batches| {
        bursts(1_000_000, Bursts::Anywhere(1), batches)
    }),
    clan_engine("clan, a word", |batches| written(1, batches)),
    clan_engine("clan, 16 words", |batches| written(16, batches)),
    clan_engine("clan, 256 words", |batches| written(256, batches)),
    clan_engine("clan, a super-packet", |batches| written(NicPair::LONGEST, batches)),
];

const fn clan_engine(name: &'static str, run: fn(usize) -> usize) -> Counted {
    Counted { name, what: "all of both engines", function: "*NicPair*write*", run }
}

const fn clan(name: &'static str, run: fn(usize) -> usize) -> Counted {
    Counted { name, what: "the match with tripwires", function: "*TripLine*match_bursts*", run }
}

const fn qpip(name: &'static str, run: fn(usize) -> usize) -> Counted {
    Counted { name, what: PLACED, function: RECEIVE, run }
}

const fn stp(name: &'static str, run: fn(usize) -> usize) -> Counted {
    Counted { name, what: PLACED, function: RECEIVE, run }
}

const fn stp_send(name: &'static str, run: fn(usize) -> usize) -> Counted {
    Counted { name, what: "poll_transmit and sent", function: "*StpPair*send*", run }
}

fn main() {
    if let Ok(nth) = env::var(WORK) {
        let Some(counted) = nth.parse().ok().and_then(|nth: usize| ALL.get(nth)) else { return };
        println!("{}", (counted.run)(BATCHES));
        return;
    }
    for (nth, counted) in ALL.iter().enumerate() {
        let Counted { name, what, .. } = counted;
        if env::args().any(|argument| argument == "--test") {
            // Once through, without valgrind: the benches must not rot.
            (counted.run)(2);
            println!("instructions, {name}: ok");
            continue;
        }
        match count(nth, counted) {
            Ok(count) => println!("{name}: {count:.1} instructions per unit for {what}"),
            Err(why) => println!("{name}: not counted (is valgrind installed?): {why}"),
        }
    }
}

fn endless<E: Endless>(line: &mut Pair<E>, batches: usize) -> usize {
    for _ in 0..batches {
        line.next_batch(BATCH);
        assert_eq!(line.receive(), BATCH, "every unit has a place");
        line.answer();
    }
    batches * BATCH
}

fn rounds(connections: usize, transfer: u64, batches: usize) -> usize {
    stus(StpPair::new(connections, transfer), batches)
}

fn unit_by_unit(connections: usize, batches: usize) -> usize {
    stus(StpPair::unit_by_unit(connections, 1 << 20), batches)
}

fn stus(mut line: StpPair, batches: usize) -> usize {
    let stus: usize = (0..batches).map(|_| line.round()).sum();
    assert!(stus > batches * STP_BATCH / 4, "only {stus} STUs in {batches} rounds");
    stus
}

/// Bursts of writes to an aperture with this many tripwires.
fn bursts(tripwires: usize, bursts: Bursts, batches: usize) -> usize {
    let mut line = TripLine::new(tripwires, 1);
    for _ in 0..batches {
        line.draw(BATCH, bursts);
        let firings = line.match_bursts();
        assert!(bursts != Bursts::Beside || firings == 0, "none of them is on a tripwire");
    }
    batches * BATCH
}

/// Bursts of this many words from adapter to adapter.
fn written(words: u32, batches: usize) -> usize {
    let bursts = batches * BATCH;
    NicPair::new(words).write(bursts as u64);
    bursts
}

/// Messages of one segment each, from connection to connection, this many that the
/// first on each count for little.
fn segments(mut line: QpipPair, batches: usize) -> usize {
    let batches = batches * line.connections().div_ceil(1_000);
    let segments: usize = (0..batches).map(|_| line.round()).sum();
    assert!(segments >= 8 * batches, "only {segments} segments in {batches} rounds");
    segments
}

/// Runs this program under callgrind and gives the number of instructions per unit.
fn count(nth: usize, counted: &Counted) -> Result<f64, String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={}", counted.function))
        .arg(program)
        .env(WORK, nth.to_string())
        .output()
        .map_err(|error| format!("valgrind cannot be started ({error})"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let instructions: Option<u64> =
        said.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    let units: Option<u64> = String::from_utf8_lossy(&output.stdout).trim().parse().ok();
    match (instructions, units) {
        (Some(instructions), Some(units)) => Ok(instructions as f64 / units as f64),
        _ => Err(format!("it said: {said}")),
    }
}
