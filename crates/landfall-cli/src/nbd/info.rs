//! `landfall nbd info`: what a server says of its exports.

use std::process::ExitCode;

use anyhow::Result;
use landfall_storage::client::{export_of, exports_of};
use serde::Serialize;

use super::connect::{ConnectArgs, Connector, Target};
use crate::{printable, style};

/// Options of `landfall nbd info`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = landfall_storage::program::INFO_EXAMPLES)]
pub(crate) struct Args {
    /// A server, and the name of an export: nbd://HOST:PORT/NAME, nbd+unix:///NAME?socket=PATH,
    /// nbd+qp://HOST:PORT/NAME or nbd+stp://HOST:PORT/NAME?udp=PORT, and nbds for TLS
    #[arg(value_parser = Target::parse)]
    server: Target,
    /// All exports that the server lists
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    connect: ConnectArgs,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Info {
    name: String,
    description: String,
    size: u64,
    features: Vec<&'static str>,
    minimum_block: u32,
    preferred_block: u32,
    maximum_block: u32,
    replies: &'static str,
    block_status: bool,
}

/// Asks, and prints.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let (server, mut connector) = (args.server.export()?, Connector::new(&args.connect));
    let names = if args.list {
        let (stream, options) = connector.open(server)?;
        exports_of(stream, &options)?.into_iter().map(|listed| listed.name).collect()
    } else {
        vec![server.name.clone()]
    };
    let mut all = Vec::new();
    for name in names {
        let (stream, options) = connector.open(server)?;
        let session = export_of(stream, &landfall_storage::client::Options { name, ..options })?;
        let export = session.export();
        all.push(Info {
            name: export.name.clone(),
            description: export.description.clone(),
            size: export.size,
            features: export.features.names().collect(),
            minimum_block: export.blocks.minimum,
            preferred_block: export.blocks.preferred,
            maximum_block: export.blocks.maximum,
            replies: session.replies().name(),
            block_status: session.has_status(),
        });
    }
    if args.json {
        style::print_json(&serde_json::json!({ "exports": all }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    for info in &all {
        // What a server says may be meant to confuse a terminal.
        text +=
            &printable::printable_lines(&format!("export `{}`: {}", info.name, info.description));
        text += &format!(
            "\n  size      {} ({})\n  features  {}\n  blocks    {} to {}, best {}\n  replies   {}{}\n",
            info.size,
            style::bytes(info.size),
            info.features.join(", "),
            info.minimum_block,
            style::bytes(info.maximum_block.into()),
            style::bytes(info.preferred_block.into()),
            info.replies,
            if info.block_status { ", with block status" } else { "" },
        );
    }
    style::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
