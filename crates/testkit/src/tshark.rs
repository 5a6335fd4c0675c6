//! The program tshark reads what our code wrote, where it is installed.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

use landfall_placement::Refusal;

use crate::skip::skip;
use crate::{TemporaryFolder, root};

/// What it prints; `None`, and one line that says so, where there is no tshark.
///
/// # Panics
/// It fails, or a script of ours in it does; or there is none, and `LANDFALL_NO_SKIP=1`
/// forbids to go on without.
pub fn run(tshark: &mut Command) -> Option<String> {
    let output = match tshark.output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            static ONCE: Once = Once::new();
            ONCE.call_once(|| skip("reading captures:", &format!("there is no tshark: {error}")));
            return None;
        }
        Err(error) => panic!("tshark: {error}"),
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !errors.contains("Lua"), "tshark: {errors}");
    Some(String::from_utf8(output.stdout).expect("tshark writes UTF-8"))
}

/// Asks for fields of each packet of a capture; returns a list of cells for each.
///
/// # Panics
/// As [`run`] does.
pub fn fields(capture: &Path, fields: &[&str], options: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(capture).args(["-T", "fields", "-E", "separator=/t"]).args(options);
    for field in fields {
        command.args(["-e", field]);
    }
    let cells = |line: &str| line.split('\t').map(str::to_owned).collect();
    Some(run(&mut command)?.lines().map(cells).collect())
}

/// What makes tshark run one of the scripts in `docs/wireshark`: what follows `-X`.
#[must_use]
pub fn script(name: &str) -> String {
    let script = root().join("docs/wireshark").join(name).with_extension("lua");
    format!("lua_script:{}", script.display())
}

/// One of the dissectors in `docs/wireshark`.
#[derive(Clone, Copy, Debug)]
pub struct Dissector<'a> {
    /// The name of its script, without `.lua`.
    pub script: &'a str,
    /// What the names of its fields begin with.
    pub protocol: &'a str,
    /// What is asked for: names of fields, without that of the protocol.
    pub fields: &'a [&'a str],
    /// For what it marks a packet.
    pub marks: &'a [Refusal],
}

/// What a dissector says of one packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dissected {
    /// The number of the packet in its capture, from 1 on.
    pub number: usize,
    /// The fields that were asked for, in their order. What there is not is empty.
    pub fields: Vec<String>,
    /// The line for people.
    pub info: String,
    /// What is wrong with the packet.
    pub marks: Vec<Refusal>,
    /// It was read beyond its end, or an expert's word says that it is malformed.
    pub is_malformed: bool,
}

impl Dissected {
    /// A field as a number: the first one, if there are several.
    #[must_use]
    pub fn number_in(&self, field: usize) -> Option<u8> {
        self.fields[field].split(',').next().and_then(|number| number.parse().ok())
    }

    /// What is wrong with the packet in the first place.
    #[must_use]
    pub fn fault(&self) -> Option<Refusal> {
        self.marks.first().copied()
    }
}

impl Dissector<'_> {
    /// What it says of each packet of a capture that a filter lets through; `None`, and one
    /// line that says so, where there is no tshark.
    ///
    /// # Panics
    ///
    /// If it fails, or reads beyond the end of a packet and does not mark it.
    pub fn read(&self, capture: &Path, filter: &str, options: &[&str]) -> Option<Vec<Dissected>> {
        let script = script(self.script);
        let named = |field: &&str| format!("{}.{field}", self.protocol);
        let marks = self.marks.iter().map(|mark| named(&mark_name(*mark)));
        let own = self.fields.iter().map(named).chain(marks).collect::<Vec<_>>();
        let common = ["frame.number", "_ws.col.Info", "_ws.malformed", "_ws.lua.error"];
        let all: Vec<_> = common.into_iter().chain(own.iter().map(String::as_str)).collect();
        let options: Vec<_> =
            ["-X", &script, "-Y", filter].into_iter().chain(options.iter().copied()).collect();
        let packets = fields(capture, &all, &options)?;
        Some(packets.into_iter().map(|cells| self.parse(cells)).collect())
    }

    /// The same for a capture of these Ethernet frames.
    ///
    /// # Panics
    ///
    /// As [`Self::read`] does.
    pub fn dissect(
        &self,
        frames: &[Vec<u8>],
        filter: &str,
        options: &[&str],
    ) -> Option<Vec<Dissected>> {
        self.read(CaptureFile::of_frames(frames).path(), filter, options)
    }

    fn parse(&self, mut cells: Vec<String>) -> Dissected {
        let marks = cells.split_off(4 + self.fields.len());
        let fields = cells.split_off(4);
        let Ok([number, info, malformed, error]) = <[String; 4]>::try_from(cells) else {
            unreachable!("four are split off")
        };
        assert_eq!(error, "", "the dissector itself failed: {info}");
        let marks = self.marks.iter().zip(&marks).filter(|(_, cell)| !cell.is_empty());
        let marks: Vec<_> = marks.map(|(mark, _)| *mark).collect();
        // Wireshark marks what our own words mark, and what is read beyond its end.
        let is_malformed = !malformed.is_empty();
        assert!(!is_malformed || !marks.is_empty(), "read too far: {info}");
        let number = number.parse().expect("frames have numbers");
        Dissected { number, fields, info, marks, is_malformed }
    }
}

/// The last words of the field by which our dissectors mark a packet.
fn mark_name(mark: Refusal) -> &'static str {
    match mark {
        Refusal::Truncated => "expert.truncated",
        Refusal::Unsupported => "expert.unsupported",
        Refusal::Malformed => "expert.malformed",
        Refusal::BadChecksum => "expert.checksum",
        other => panic!("no dissector marks {other}"),
    }
}

/// A capture that is gone when the test is over, also when it fails.
#[derive(Debug)]
pub struct CaptureFile {
    path: PathBuf,
    _folder: TemporaryFolder,
}

impl CaptureFile {
    /// A file with these bytes, which are a capture in any format that tshark knows.
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let folder = TemporaryFolder::new("capture");
        Self { path: folder.write("capture", bytes), _folder: folder }
    }

    /// A capture of these Ethernet frames, in this order.
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    #[must_use]
    pub fn of_frames(frames: &[Vec<u8>]) -> Self {
        Self::new(&pcap(frames))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Ethernet frames, a microsecond apart, in the format of libpcap.
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    const ETHERNET: u32 = 1;
    const MOST: u32 = 1 << 18;
    let mut bytes = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    bytes.extend([2_u16, 4].map(u16::to_le_bytes).concat());
    bytes.extend([0, 0, MOST, ETHERNET].map(u32::to_le_bytes).concat());
    for (time, frame) in (0..).zip(frames) {
        let len = u32::try_from(frame.len()).expect("a short frame");
        assert!(len <= MOST, "a frame of {len} bytes");
        bytes.extend([0_u32, time, len, len].map(u32::to_le_bytes).concat());
        bytes.extend(frame);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "tshark: ")]
    fn what_fails_is_told() {
        run(&mut Command::new("false"));
    }

    #[test]
    fn frames_are_read_as_they_were_written() {
        let capture = CaptureFile::of_frames(&[vec![2; 60], vec![3; 1 << 16]]);
        let Some(seen) = fields(capture.path(), &["frame.len", "eth.src"], &[]) else { return };
        assert_eq!(seen, [["60", "02:02:02:02:02:02"], ["65536", "03:03:03:03:03:03"]]);
    }

    const TEXT: Dissector<'_> = Dissector {
        script: "none",
        protocol: "none",
        fields: &["kind"],
        marks: &[Refusal::Truncated, Refusal::Malformed],
    };

    fn parse(cells: [&str; 7]) -> Dissected {
        TEXT.parse(cells.map(str::to_owned).into())
    }

    #[test]
    fn cells_are_read_by_their_places() {
        let seen = parse(["7", "a line", "yes", "", "3,4", "", "cut off"]);
        assert_eq!((seen.number, seen.info.as_str(), seen.number_in(0)), (7, "a line", Some(3)));
        assert_eq!(
            (seen.fault(), parse(["7", "", "", "", "", "", ""]).fault()),
            (Some(Refusal::Malformed), None)
        );
    }

    #[test]
    #[should_panic(expected = "read too far: a line")]
    fn a_dissector_that_reads_too_far_is_told_of() {
        parse(["7", "a line", "yes", "", "3", "", ""]);
    }

    #[test]
    #[should_panic(expected = "the dissector itself failed")]
    fn a_dissector_that_fails_is_told_of() {
        parse(["7", "a line", "", "nil", "3", "", ""]);
    }
}
