//! The same bookkeeping in instructions, which do not depend on what else the
//! machine does. Runs itself under `valgrind --tool=callgrind`, which counts
//! inside of `Line::receive` only.

use std::env;
use std::process::Command;

use landfall_benches::{Endless, Line, NumberedLine, StreamLine};

const BATCH: usize = 61;
const BATCHES: usize = 500;
/// Tells the copy under valgrind which engine to run.
const WORK: &str = "LANDFALL_BENCH_WORK";

fn main() {
    if let Ok(engine) = env::var(WORK) {
        return run(&engine, BATCHES);
    }
    for engine in ["numbered", "stream"] {
        if env::args().any(|argument| argument == "--test") {
            // Once through, without valgrind: the benches must not rot.
            run(engine, 2);
            println!("instructions, {engine}: ok");
            continue;
        }
        match count(engine) {
            Ok(count) => println!(
                "{engine}: {:.1} instructions per unit for guess, place and placed",
                count as f64 / (BATCH * BATCHES) as f64
            ),
            Err(why) => println!("{engine}: not counted, since {why}; is valgrind installed?"),
        }
    }
}

fn run(engine: &str, batches: usize) {
    match engine {
        "stream" => receive(&mut StreamLine::new(), batches),
        _ => receive(&mut NumberedLine::new(1024), batches),
    }
}

fn receive<E: Endless>(line: &mut Line<E>, batches: usize) {
    for _ in 0..batches {
        line.next_batch(BATCH);
        assert_eq!(line.receive(), BATCH, "every unit has a place");
        line.answer();
    }
}

/// Runs this program under callgrind and gives the number of instructions.
fn count(engine: &str) -> Result<u64, String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(["--collect-atstart=no", "--toggle-collect=*Line*receive*"])
        .arg(program)
        .env(WORK, engine)
        .output()
        .map_err(|error| format!("valgrind cannot be started ({error})"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines()
        .find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
        .ok_or_else(|| format!("valgrind said: {said}"))
}
