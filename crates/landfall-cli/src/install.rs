//! What stands beside the program where it is installed: completions for shells, and
//! pages for `man`. Both are made from the commands themselves.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::style;

const NAME: &str = "landfall";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  landfall completions bash > ~/.local/share/bash-completion/completions/landfall
  landfall completions zsh > ~/.zfunc/_landfall
  landfall completions fish > ~/.config/fish/completions/landfall.fish";

/// Options of `landfall completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints what a shell has to be told.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), NAME, &mut script);
    style::print(&String::from_utf8(script)?)?;
    Ok(ExitCode::SUCCESS)
}

const MAN_EXAMPLES: &str = "\
Examples:
  landfall man --out ~/.local/share/man/man1
  landfall man --out pages && man pages/landfall-demo.1";

/// Options of `landfall man`.
#[derive(Debug, clap::Args)]
#[command(after_help = MAN_EXAMPLES)]
pub(crate) struct ManArgs {
    /// The folder for the pages; it is made if it is not there
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
}

/// Writes a page for each command.
pub(crate) fn man(args: &ManArgs) -> Result<ExitCode> {
    let folder = &args.out;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut command = Cli::command();
    command.build();
    let mut pages = Vec::new();
    write_page(&command, NAME.to_owned(), &mut pages)?;
    for (name, page) in &pages {
        let path = folder.join(format!("{name}.1"));
        fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    style::print(&format!("{} pages in {}\n", pages.len(), folder.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// The page of a command, and those of the commands below it.
fn write_page(command: &Command, name: String, pages: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    let below = command.get_subcommands();
    for below in below.filter(|below| !below.is_hide_set() && below.get_name() != "help") {
        write_page(below, format!("{name}-{}", below.get_name()), pages)?;
    }
    let mut page = Vec::new();
    // The name as `man` looks for it.
    clap_mangen::Man::new(command.clone()).title(name.clone()).render(&mut page)?;
    pages.push((name, page));
    Ok(())
}
