//! How fast sockets are with the library and without it, in turns, in one run.
//!
//! ```sh
//! cargo build --release -p landfall-preload --lib --examples
//! target/release/examples/sockets_speed [--rounds 5] [--only WORD] [LIBRARY]
//! ```
//!
//! Each row is run by three kinds in turn: on the kernel's sockets, with the library, and
//! with the library told to leave all to the kernel. The two ends are processes of their
//! own, each on its own core. A figure is the median of the rounds; a ratio that of the
//! ratios of the rounds. CPU is that of both ends, in the kernel and out of it.

mod ends;
mod programs;

use std::path::{Path, PathBuf};
use std::process::Command;

/// What one run gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    /// Round trips, requests or gigabits, in a second.
    pub(crate) per_second: f64,
    /// Of round trips, in microseconds; zero where that is not asked.
    pub(crate) median_us: f64,
    pub(crate) p99_us: f64,
    /// Processor seconds of both ends for a million of them (for a gigabit).
    pub(crate) cpu: f64,
}

/// On whose sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Kernel,
    Ours,
    Off,
}

/// How programs are started here.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    library: PathBuf,
}

impl Workspace {
    /// A program on a core, with the library or without.
    pub(crate) fn command(&self, program: impl AsRef<Path>, core: usize, kind: Kind) -> Command {
        let mut command = Command::new("taskset");
        command.args(["-c", &core.to_string()]).arg(program.as_ref());
        if kind != Kind::Kernel {
            command.env("LD_PRELOAD", &self.library);
        }
        if kind == Kind::Off {
            command.env("LANDFALL_SOCKETS", "off");
        }
        command
    }
}

/// Something that is measured; `None` where its program is missing.
pub(crate) type Row = (&'static str, fn(&Workspace, Kind) -> Option<Figure>);

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn library_beside() -> PathBuf {
    let own = std::env::current_exe().expect("a program has a path");
    let folder = own.parent().and_then(Path::parent).expect("target/<profile>/examples");
    folder.join("liblandfall_preload.so")
}

fn main() {
    let mut words = std::env::args().skip(1);
    let (mut rounds, mut only, mut library) = (5, String::new(), library_beside());
    while let Some(word) = words.next() {
        match word.as_str() {
            "--end" => return ends::run(&words.collect::<Vec<_>>()),
            "--rounds" => rounds = words.next().and_then(|word| word.parse().ok()).unwrap_or(5),
            "--only" => only = words.next().unwrap_or_default(),
            _ => library = PathBuf::from(word),
        }
    }
    assert!(library.exists(), "{} is missing", library.display());
    let ground = Workspace { library };
    println!(
        "| | kernel /s | ours /s | × | off × | kernel p50, p99 µs | ours p50, p99 µs | kernel CPU | ours CPU |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for (name, row) in ends::ROWS.iter().chain(programs::ROWS) {
        if name.contains(&only) {
            measure(&ground, name, *row, rounds);
        }
    }
}

fn measure(
    ground: &Workspace,
    name: &str,
    row: fn(&Workspace, Kind) -> Option<Figure>,
    rounds: usize,
) {
    let mut seen: Vec<[Figure; 3]> = Vec::new();
    for _ in 0..rounds {
        let figures = [Kind::Kernel, Kind::Ours, Kind::Off].map(|kind| row(ground, kind));
        let [Some(kernel), Some(ours), Some(off)] = figures else {
            println!("| {name} | a program is missing, or failed |");
            return;
        };
        seen.push([kernel, ours, off]);
    }
    let of = |kind: usize, what: fn(&Figure) -> f64| {
        median(seen.iter().map(|figures| what(&figures[kind])).collect())
    };
    let ratio = |kind: usize| {
        median(seen.iter().map(|round| round[kind].per_second / round[0].per_second).collect())
    };
    let [kernel, ours] = [0, 1].map(|kind| {
        let times = (of(kind, |figure| figure.median_us), of(kind, |figure| figure.p99_us));
        (of(kind, |figure| figure.per_second), times, of(kind, |figure| figure.cpu))
    });
    println!(
        "| {name} | {:.1} | {:.1} | {:.2} | {:.3} | {:.1}, {:.1} | {:.1}, {:.1} | {:.2} | {:.2} |",
        kernel.0,
        ours.0,
        ratio(1),
        ratio(2),
        kernel.1.0,
        kernel.1.1,
        ours.1.0,
        ours.1.1,
        kernel.2,
        ours.2,
    );
}
