//! Captures are read by the programs in C and in Python, and say the same.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

use landfall_testkit::TemporaryFolder;

use super::languages::{CProgram, c_command, compiled, python_command};

/// A UDP datagram from 10.0.0.1 to 10.0.0.2 in two fragments.
const FIRST: &[u8] = b"\x45\0\0\x24\0\x07\x20\0\x40\x11\x46\xc0\x0a\0\0\x01\x0a\0\0\x02\
    \0\x09\0\x09\0\x14\0\0fragment";
const LAST: &[u8] = b"\x45\0\0\x18\0\x07\0\x02\x40\x11\x66\xca\x0a\0\0\x01\x0a\0\0\x02ed!!";
/// In the place of the last one, with other bytes.
const OTHER: &[u8] = b"\x45\0\0\x18\0\x07\0\x02\x40\x11\x66\xca\x0a\0\0\x01\x0a\0\0\x02evil";
/// The same to another port, whole.
const WHOLE: &[u8] = b"\x45\0\0\x1c\0\x08\0\0\x40\x11\x66\xc7\x0a\0\0\x01\x0a\0\0\x02\
    \0\x09\0\x08\0\x08\0\0";

/// A capture, as a machine of either kind writes it; `behind` is what comes before each packet.
struct Capture {
    bytes: Vec<u8>,
    is_swapped: bool,
    behind: &'static [u8],
}

impl Capture {
    fn new(mark: u32, is_swapped: bool, link: u32, behind: &'static [u8]) -> Self {
        let mut capture = Self { bytes: Vec::new(), is_swapped, behind };
        for word in [mark, 0x0004_0002, 0, 0, 65_535, link] {
            capture.word(word);
        }
        capture
    }

    fn word(&mut self, word: u32) {
        let bytes = if self.is_swapped { word.to_be_bytes() } else { word.to_le_bytes() };
        self.bytes.extend(bytes);
    }

    fn packet(&mut self, second: u32, packet: &[u8]) {
        let length = (self.behind.len() + packet.len()) as u32;
        for word in [second, 7, length, length] {
            self.word(word);
        }
        self.bytes.extend(self.behind);
        self.bytes.extend(packet);
    }

    fn packets(mut self) -> Vec<u8> {
        self.packet(1, LAST);
        self.packet(1, WHOLE);
        self.packet(2, FIRST);
        // Another one's last fragment comes twice, with other bytes. Of a third there is the first.
        self.packet(3, LAST);
        self.packet(4, OTHER);
        self.packet(40, FIRST);
        self.packet(90, WHOLE);
        self.bytes
    }
}

fn programs() -> Vec<Command> {
    static BUILT: CProgram = OnceLock::new();
    let in_c = compiled(&BUILT, "examples/reassembly").map(c_command);
    in_c.into_iter().chain(python_command("examples/reassembly.py")).collect()
}

/// What a program says of a capture; nothing where it refuses it.
fn said(program: &mut Command, capture: &[u8]) -> Option<String> {
    let folder = TemporaryFolder::new("captures");
    let file = folder.path().join("capture.pcap");
    std::fs::write(&file, capture).unwrap();
    let output = program.arg(&file).stderr(Stdio::null()).output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

#[test]
fn captures_are_joined_alike_in_c_and_python() {
    let ethernet = b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x81\0\0\x05\x08\0";
    let captures = [
        (Capture::new(0xa1b2_c3d4, false, 1, ethernet).packets(), 58),
        (Capture::new(0xa1b2_3c4d, true, 101, b"").packets(), 40),
    ];
    for (capture, length) in captures {
        let expected = format!(
            "joined: {length} bytes\ndropped: overlaps or contradicts others\n\
             7 frames, 1 packets out of fragments, 1 dropped, 1 not complete\n"
        );
        for mut program in programs() {
            let found = said(&mut program, &capture);
            assert_eq!(found.as_deref(), Some(&*expected), "{program:?}");
        }
    }
}

#[test]
fn what_is_no_capture_is_refused_in_c_and_python() {
    let whole = Capture::new(0xa1b2_c3d4, false, 1, b"").packets();
    let mut of_radio = whole.clone();
    of_radio[20] = 105;
    let wrong = [&[][..], &whole[..20], b"a text that is long enough for a head", &of_radio];
    for capture in wrong {
        for mut program in programs() {
            assert_eq!(said(&mut program, capture), None, "{program:?}");
        }
    }
    // One that ends in the middle of a packet is read as far as it goes.
    for mut program in programs() {
        let said = said(&mut program, &whole[..whole.len() - 1]).unwrap();
        assert!(said.starts_with("dropped") || said.starts_with("6 frames"), "{said}");
    }
}
