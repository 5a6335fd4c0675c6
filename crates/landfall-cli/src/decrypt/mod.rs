//! `landfall decrypt`: captures of encrypted connections, opened with a key log.
//!
//! | file | what it is |
//! | --- | --- |
//! | this | the options, and what becomes of each packet |
//! | `recording` | captures as other programs write them |
//! | `frame` | where a sealed unit lies in a frame |
//!
//! What does not live here: the cipher and the keys (`landfall-seal`), and what units mean
//! (`docs/wireshark`).

mod frame;
mod recording;
#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions, Permissions};
use std::io::{BufRead as _, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use landfall_seal::{BadKeyLine, CaptureOpener, NotOpened};
use serde::Serialize;

use frame::{Content, Place};
use recording::{Recorded, Recording};

const EXAMPLES: &str = "\
Examples:
  LANDFALL_KEYLOG=keys my-program     (or `Builder::key_log` in the program)
  sudo landfall capture --snap 65536 --out run.pcapng --interface eth0 --seconds 60
  landfall decrypt run.pcapng --keys keys --out opened.pcap
  tshark -X lua_script:docs/wireshark/stp.lua -r opened.pcap

Each sealed unit of STP (ethertype 0x8181, IP protocol 118, UDP) and of CLAN (ethertype
0x88b5, UDP; docs/wireshark/clan.lua) whose keys are in the file is replaced by what was sealed; all else stays as it is. Units that a device was to cut become
packets of their own. Record whole packets: one that was cut short cannot be opened.

Anyone who has the key log, or the opened capture, can read all of it: both are made for you
alone (0600). What `send` and `receive` seal within their transfers has keys of its own, which
are not logged.";

/// Options of `landfall decrypt`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The capture, as pcap or pcapng
    capture: PathBuf,
    /// The key log, as `LANDFALL_KEYLOG` or `Builder::key_log` wrote it
    #[arg(long, value_name = "FILE")]
    keys: PathBuf,
    /// The file to be written, as pcap
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// One JSON object about it, on stderr
    #[arg(long)]
    json: bool,
}

/// What became of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Summary {
    /// Packets of the capture.
    packets: u64,
    /// Units that were opened.
    opened: u64,
    /// Messages of handshakes, which are not sealed.
    handshakes: u64,
    /// Units whose association the key log does not have.
    no_key: u64,
    /// Units of which not all was recorded.
    cut: u64,
    /// Units whose tag does not fit.
    forged: u64,
    /// Parts of packets of IP.
    fragments: u64,
    /// Packets of something else, or not sealed.
    other: u64,
    /// Lines of the key log that make no sense.
    bad_lines: u64,
    /// The capture ends in the middle of a packet.
    is_cut: bool,
}

/// Opens what there are keys for.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let name = |path: &Path| path.display().to_string();
    let read = |path: &Path| {
        let file = File::open(path).with_context(|| format!("cannot read {}", name(path)))?;
        Ok::<_, anyhow::Error>(BufReader::new(file))
    };
    let mut summary = Summary::default();
    let opener = read_keys(read(&args.keys)?, &mut summary)
        .with_context(|| format!("cannot read {}", name(&args.keys)))?;
    ensure!(
        !opener.is_empty(),
        "{} has no keys of this program: it is filled while LANDFALL_KEYLOG names it",
        name(&args.keys)
    );
    let recording = Recording::new(read(&args.capture)?)
        .with_context(|| format!("cannot read {}", name(&args.capture)))?;
    let is_same = args.out.canonicalize().is_ok_and(|out| {
        [&args.capture, &args.keys].iter().any(|path| path.canonicalize().is_ok_and(|p| p == out))
    });
    ensure!(!is_same, "{} would be written over: name another file", name(&args.out));
    let mut options = OpenOptions::new();
    let out = options.write(true).create(true).truncate(true).mode(0o600).open(&args.out);
    let out = out.with_context(|| format!("cannot write {}", name(&args.out)))?;
    // It may have been there before.
    out.set_permissions(Permissions::from_mode(0o600))?;
    let mut sheet = Sheet::new(BufWriter::new(out));
    open_all(recording, opener, &mut sheet, &mut summary)
        .with_context(|| format!("cannot open all of {}", name(&args.capture)))?;
    sheet.file.flush()?;
    tell(args, &summary)?;
    Ok(ExitCode::SUCCESS)
}

fn read_keys(from: impl Read, summary: &mut Summary) -> Result<CaptureOpener> {
    let mut opener = CaptureOpener::new();
    for line in BufReader::new(from).split(b'\n') {
        match String::from_utf8_lossy(&line?).parse() {
            Ok(keys) => opener.add(keys),
            Err(BadKeyLine::Other) => {}
            Err(BadKeyLine::Malformed) => summary.bad_lines += 1,
        }
    }
    Ok(opener)
}

/// Writes each packet of a capture, opened or as it is.
fn open_all(
    mut recording: Recording<impl Read>,
    mut opener: CaptureOpener,
    sheet: &mut Sheet<impl Write>,
    summary: &mut Summary,
) -> Result<()> {
    while let Some(packet) = recording.next()? {
        summary.packets += 1;
        let place = match frame::look(packet.link_type, &packet.bytes, packet.len as usize) {
            Content::Unit(place) => place,
            other => {
                let counter = if other == Content::Fragment {
                    &mut summary.fragments
                } else {
                    &mut summary.other
                };
                *counter += 1;
                sheet.write(&packet, &packet.bytes, packet.len)?;
                continue;
            }
        };
        open_packet(&packet, &place, &mut opener, sheet, summary)?;
    }
    summary.is_cut = recording.is_cut;
    Ok(())
}

fn open_packet(
    packet: &Recorded,
    place: &Place,
    opener: &mut CaptureOpener,
    sheet: &mut Sheet<impl Write>,
    summary: &mut Summary,
) -> Result<()> {
    let unit = place.unit(&packet.bytes);
    let is_cut = place.end > packet.bytes.len();
    match opener.open(unit) {
        Ok(opened) => {
            summary.opened += 1;
            return sheet.write_all_of(packet, &place.replace(&packet.bytes, &opened.bytes));
        }
        // Perhaps several of them, recorded before a device cut them.
        Err(NotOpened::Forged) => {
            if let Some(len) = opener.unit_len(unit) {
                for unit in unit.chunks(len) {
                    let opened = opener.open(unit);
                    summary.count(opened.as_ref().err().copied(), place, is_cut);
                    let unit = opened.map_or_else(|_| unit.to_vec(), |opened| opened.bytes);
                    sheet.write_all_of(packet, &place.replace(&packet.bytes, &unit))?;
                }
                return Ok(());
            }
            summary.count(Some(NotOpened::Forged), place, is_cut);
        }
        Err(why) => summary.count(Some(why), place, is_cut),
    }
    sheet.write(packet, &packet.bytes, packet.len)
}

impl Summary {
    fn count(&mut self, why: Option<NotOpened>, place: &Place, is_cut: bool) {
        let counter = match why {
            None => &mut self.opened,
            // On any other port of UDP it may as well be something else.
            Some(NotOpened::Handshake) if place.is_ours => &mut self.handshakes,
            Some(NotOpened::NoKey) if place.is_ours => &mut self.no_key,
            Some(NotOpened::Forged) if !is_cut => &mut self.forged,
            Some(NotOpened::Forged | NotOpened::Cut) => &mut self.cut,
            Some(_) => &mut self.other,
        };
        *counter += 1;
    }
}

/// The opened capture: pcap, with nanoseconds.
struct Sheet<W> {
    file: W,
    /// That of the first packet; the format has one for all.
    link_type: Option<u16>,
}

/// The longest packet that readers take.
const SNAP_LEN: u32 = 1 << 18;

impl<W: Write> Sheet<W> {
    const fn new(file: W) -> Self {
        Self { file, link_type: None }
    }

    /// A packet of which all is here.
    fn write_all_of(&mut self, packet: &Recorded, bytes: &[u8]) -> Result<()> {
        self.write(packet, bytes, bytes.len() as u32)
    }

    fn write(&mut self, packet: &Recorded, bytes: &[u8], len: u32) -> Result<()> {
        let Recorded { link_type, nanos, .. } = *packet;
        if self.link_type.is_none() {
            self.link_type = Some(link_type);
            self.file.write_all(&0xa1b2_3c4d_u32.to_le_bytes())?;
            self.file.write_all(&[2_u16, 4].map(u16::to_le_bytes).concat())?;
            let rest = [0, 0, SNAP_LEN, u32::from(link_type)];
            self.file.write_all(&rest.map(u32::to_le_bytes).concat())?;
        }
        ensure!(
            self.link_type == Some(link_type),
            "it has packets of several link types: take those of one interface (`tshark -Y \
             'frame.interface_id == 0' -w …`)"
        );
        let here = &bytes[..bytes.len().min(SNAP_LEN as usize)];
        let seconds = u32::try_from(nanos / 1_000_000_000).unwrap_or(u32::MAX);
        let words = [seconds, (nanos % 1_000_000_000) as u32, here.len() as u32, len];
        self.file.write_all(&words.map(u32::to_le_bytes).concat()).context("is the disk full?")?;
        self.file.write_all(here).context("is the disk full?")?;
        Ok(())
    }
}

fn tell(args: &Args, summary: &Summary) -> Result<()> {
    if args.json {
        eprintln!("{}", serde_json::to_string(summary)?);
        return Ok(());
    }
    let Summary { packets, opened, handshakes, no_key, cut, forged, fragments, other, .. } =
        *summary;
    eprintln!("{}: {packets} packets, {opened} units opened", args.out.display());
    let reasons = [
        (handshakes, "are messages of handshakes"),
        (no_key, "have no key in the log"),
        (cut, "were recorded in part: record them with a larger --snap"),
        (forged, "have a tag that does not fit"),
        (fragments, "are fragments of IP"),
        (other, "are something else, or not sealed"),
        (summary.bad_lines, "lines of the key log make no sense"),
    ];
    for (count, why) in reasons.into_iter().filter(|(count, _)| *count > 0) {
        eprintln!("{count} {why}");
    }
    if summary.is_cut {
        eprintln!("the capture ends in the middle of a packet");
    }
    Ok(())
}
