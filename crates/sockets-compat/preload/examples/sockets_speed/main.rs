//! How fast sockets are with the library and without it, in turns, in one run.
//!
//! ```sh
//! cargo build --release -p landfall-preload --lib --examples
//! target/release/examples/sockets_speed [--rounds 5] [--only WORD] [LIBRARY]
//! ```
//!
//! Each row is run by four kinds in turn: on the kernel's sockets, with the library, with the
//! library told to leave all to the kernel, and, where the programs can, over a Unix socket. The two
//! ends are processes of their
//! own, each on its own core. A figure is the median of the rounds; a ratio that of the
//! ratios of the rounds. CPU is that of both ends, in the kernel and out of it.

mod ends;
mod programs;
mod services;
mod streams;

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
    /// The kernel's, at a path.
    Unix,
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
        if matches!(kind, Kind::Ours | Kind::Off) {
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
        "| | kernel /s | ours /s | × | off × | kernel p50, p99 µs | ours p50, p99 µs | kernel CPU | ours CPU \
         | Unix /s | × Unix | Unix p50, p99 µs | Unix CPU |"
    );
    println!("| --- |{}", " ---: |".repeat(12));
    let rows = ends::ROWS.iter().chain(streams::ROWS).chain(programs::ROWS).chain(services::ROWS);
    for (name, row) in rows {
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
    let (mut seen, mut by_path): (Vec<[Figure; 3]>, Vec<Figure>) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let figures = [Kind::Kernel, Kind::Ours, Kind::Off].map(|kind| row(ground, kind));
        let [Some(kernel), Some(ours), Some(off)] = figures else {
            println!("| {name} | a program is missing, or failed |");
            return;
        };
        seen.push([kernel, ours, off]);
        by_path.extend(row(ground, Kind::Unix));
    }
    let of =
        |kind: usize| Shown::of(&seen.iter().map(|figures| &figures[kind]).collect::<Vec<_>>());
    let ratio = |kind: usize| {
        median(seen.iter().map(|round| round[kind].per_second / round[0].per_second).collect())
    };
    let (kernel, ours) = (of(0), of(1));
    let mut line = format!(
        "| {name} | {:.1} | {:.1} | {:.2} | {:.3} | {} | {} | {:.2} | {:.2} |",
        kernel.per_second,
        ours.per_second,
        ratio(1),
        ratio(2),
        kernel.times,
        ours.times,
        kernel.cpu,
        ours.cpu,
    );
    if by_path.len() == rounds {
        let unix = Shown::of(&by_path.iter().collect::<Vec<_>>());
        let rounds = seen.iter().zip(&by_path);
        let ratio = rounds.map(|(round, unix)| round[1].per_second / unix.per_second).collect();
        line += &format!(
            " {:.1} | {:.2} | {} | {:.2} |",
            unix.per_second,
            median(ratio),
            unix.times,
            unix.cpu
        );
    } else {
        line += " - | - | - | - |";
    }
    println!("{line}");
}

/// The medians of several runs.
struct Shown {
    per_second: f64,
    times: String,
    cpu: f64,
}

impl Shown {
    fn of(figures: &[&Figure]) -> Self {
        let median =
            |what: fn(&Figure) -> f64| median(figures.iter().map(|figure| what(figure)).collect());
        Self {
            per_second: median(|figure| figure.per_second),
            times: format!(
                "{:.1}, {:.1}",
                median(|figure| figure.median_us),
                median(|figure| figure.p99_us)
            ),
            cpu: median(|figure| figure.cpu),
        }
    }
}
