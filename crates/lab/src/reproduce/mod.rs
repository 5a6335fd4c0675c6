//! `landfall reproduce`: the tables and figures of the papers, from the model.
//!
//! | file | what it is |
//! | --- | --- |
//! | this | the options, and which files there are |
//! | `folder` | writing files without harming others' |
//! | `table` | CSV and JSON |
//! | `page` | all of it in HTML; what exhibits and files are called |
//! | `live` | what this machine measures for the same exhibits |
//!
//! What does not live here: the exhibits and the page in Markdown, which are the model's;
//! how exhibits are drawn ([`plot`]).

mod folder;
pub(crate) mod live;
mod page;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use nic_firmware_model::reproduce::report::{Chapter, markdown};
use nic_firmware_model::reproduce::{Design, Exhibit};

use crate::plot::{self, Plot};
use crate::style::{self, Progress};
use folder::Folder;
use live::Live;

const EXAMPLES: &str = "\
Examples:
  landfall reproduce                       all papers, as Markdown
  landfall reproduce all --out papers      files, too: open papers/index.html
  landfall reproduce clan | less           one of them
  sudo landfall reproduce --live --out papers   with what this machine measures beside
  landfall reproduce qpip --json | jq '.chapters[].exhibits[] | {name, title}'

With --out the folder gets index.html (one page, nothing else needed), reproduction.md, and
for each exhibit a CSV file (row, column, paper, model, kind, error) and a plot in SVG.
Files that this command did not write are never replaced.

Everything comes from the model of the papers' adapters: nothing is measured on this machine,
no network is used, no privileges are needed. With --live this machine is measured, too, for a
minute or two; what needs root is left out without it, and the page says so. More thorough are
`landfall paper stp`, `paper defrag`, `paper clan` and `perf local`. The fields of --json are
described in docs/perf-json.md.";

const INDEX: &str = "index.html";
const MARKDOWN: &str = "reproduction.md";

/// Options of `landfall reproduce`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Which paper
    #[arg(value_enum, default_value = "all")]
    paper: Paper,
    /// A folder for files; without it, Markdown goes to stdout
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Beside it what this machine measures for the same exhibits, in a minute or two
    #[arg(long)]
    live: bool,
    /// Each live value for a moment: it says nothing
    #[arg(long, hide = true, requires = "live")]
    quick: bool,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Paper {
    /// The Scheduled Transfer Protocol on the Tigon-II
    Stp,
    /// Queue pairs on the LANai 9
    Qpip,
    /// Speculative defragmentation with the Hamachi
    Defrag,
    /// The CLAN adapter
    Clan,
    /// The same firmware with today's links
    Beyond,
    /// All of these
    All,
}

impl Paper {
    /// Its chapters: none is what comes after the papers.
    fn chapters(self) -> Vec<Option<Design>> {
        let all = [
            (Self::Stp, Some(Design::Stp)),
            (Self::Qpip, Some(Design::Qpip)),
            (Self::Defrag, Some(Design::Defrag)),
            (Self::Clan, Some(Design::Clan)),
            (Self::Beyond, None),
        ];
        let chosen = all.into_iter().filter(|(paper, _)| self == Self::All || self == *paper);
        chosen.map(|(_, design)| design).collect()
    }
}

/// Runs the model, and writes down what it says.
pub fn run(args: &Args) -> Result<ExitCode> {
    // Whatever is wrong with the folder, nobody waits for the model to hear of it.
    let mut folder = args.out.as_deref().map(Folder::open).transpose()?;
    if let Some(folder) = &folder {
        folder.check([INDEX, MARKDOWN])?;
    }
    let progress = Progress::on_stderr();
    let simulate = |design: Option<Design>| {
        progress.say(&format!("simulating: {}", page::key(design)));
        Chapter::of(design)
    };
    let chapters: Vec<Chapter> = args.paper.chapters().into_iter().map(simulate).collect();
    let live = args.live.then(|| live::measure(&chapters, args.quick, &progress));
    drop(progress);
    let live = live.as_ref();
    let count = match &mut folder {
        Some(folder) => {
            let files = files(&chapters, live);
            folder.write(&files)?;
            files.len()
        }
        None => 0,
    };
    match (&args.out, args.json) {
        (_, true) => style::print_json(&table::Report::of(&chapters, live))?,
        (None, false) => style::print(&in_markdown(&chapters, live))?,
        (Some(path), false) => {
            let index = path.join(INDEX);
            style::print(&format!("{count} files; begin with {}\n", index.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// All files, with what is in them. The page that leads to the others comes last.
fn files(chapters: &[Chapter], live: Option<&Live>) -> Vec<(String, String)> {
    let plots: Vec<Vec<Plot>> =
        chapters.iter().map(|chapter| chapter.exhibits.iter().map(plot::plot).collect()).collect();
    let mut files = Vec::new();
    for (chapter, plots) in chapters.iter().zip(&plots) {
        let exhibits: &[Exhibit] = &chapter.exhibits;
        for ((exhibit, plot), id) in exhibits.iter().zip(plots).zip(page::ids(chapter)) {
            files.push((format!("{id}.csv"), table::csv(exhibit)));
            files.push((format!("{id}.svg"), plot.file()));
        }
        let constants = table::constants_csv(&chapter.constants);
        files.push((format!("{}-constants.csv", page::key(chapter.design)), constants));
    }
    for exhibit in live.iter().flat_map(|live| &live.exhibits) {
        files.push((format!("{}-live.csv", exhibit.id), live::csv(exhibit)));
    }
    files.push((MARKDOWN.into(), in_markdown(chapters, live)));
    files.push((INDEX.into(), page::page(chapters, &plots, live)));
    files
}

fn in_markdown(chapters: &[Chapter], live: Option<&Live>) -> String {
    markdown(chapters) + &live.map_or_else(String::new, live::markdown)
}
