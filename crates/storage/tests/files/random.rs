//! Random operations on one file, as fsx does them, against a model of its bytes: reads, writes,
//! changes of length, room that is made and freed, copies, and mapped memory, by two handles and
//! by names.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use landfall_placement::Random;
use landfall_testkit::skip_unless;
use rustix::fs::{FallocateFlags, copy_file_range, fallocate};

use super::{Carrier, Mounted, why_no_mounts};

const MOST: usize = 300_000;
const STEPS: usize = 1_500;

/// Maps a file, tells bytes of it, and writes others in their place.
const MAPPER: &str = "
import sys, mmap, os
file = os.open(sys.argv[1], os.O_RDWR)
for line in sys.stdin:
    at, bytes = line.split()
    at, bytes = int(at), bytearray.fromhex(bytes)
    memory = mmap.mmap(file, os.fstat(file).st_size)
    print(memory[at:at + len(bytes)].hex(), flush=True)
    memory[at:at + len(bytes)] = bytes
    memory.flush()
    memory.close()
    print('done', flush=True)
";

/// Another process that maps the file: there is no safe way to do it in this one.
struct Mapper {
    child: Child,
    asked: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Mapper {
    fn new(path: &Path) -> Self {
        let mut python = Command::new("python3");
        python.args(["-c", MAPPER]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = python.spawn().unwrap();
        let asked = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, asked, answers }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().into()
    }

    /// What was at that place, where these bytes are now.
    fn exchange(&mut self, at: usize, bytes: &[u8]) -> Vec<u8> {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(self.asked, "{at} {hex}").unwrap();
        let before = self.line();
        assert_eq!(self.line(), "done");
        let digits = before.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Run<'a> {
    path: &'a Path,
    file: File,
    model: Vec<u8>,
    random: Random,
    mapper: Mapper,
}

impl Run<'_> {
    fn below(&mut self, most: usize) -> usize {
        self.random.below(most as u64 + 1) as usize
    }

    /// A place and a length, both often at the ends of pages.
    fn part(&mut self) -> (usize, usize) {
        let (at, len) = (self.below(MOST - 1), self.below(70_000));
        let (at, len) = match self.below(3) {
            0 => (at / 4096 * 4096, len / 4096 * 4096),
            1 => (at, len.min(100)),
            _ => (at, len),
        };
        (at, len.min(MOST - at))
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let from = self.random.below(256) as usize;
        (0..len).map(|nth| (nth * 31 + from) as u8).collect()
    }

    fn grow(&mut self, len: usize) {
        if self.model.len() < len {
            self.model.resize(len, 0);
        }
    }

    fn step(&mut self) -> String {
        let (at, len) = self.part();
        match self.below(9) {
            0 | 1 => {
                let bytes = self.bytes(len);
                self.file.write_all_at(&bytes, at as u64).unwrap();
                if len > 0 {
                    self.grow(at + len);
                    self.model[at..at + len].copy_from_slice(&bytes);
                }
                format!("write {len} at {at}")
            }
            2 => {
                self.file.set_len(at as u64).unwrap();
                self.model.resize(at, 0);
                format!("length {at}")
            }
            3 if len > 0 => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&self.file, mode, at as u64, len as u64).unwrap();
                let end = self.model.len();
                self.model[at.min(end)..(at + len).min(end)].fill(0);
                format!("hole {len} at {at}")
            }
            4 if len > 0 => {
                fallocate(&self.file, FallocateFlags::empty(), at as u64, len as u64).unwrap();
                self.grow(at + len);
                format!("room {len} at {at}")
            }
            5 => self.copy(at, len),
            6 => self.map(at, len),
            7 => {
                // Somebody else opens it, writes, and is gone.
                let other = File::options().read(true).write(true).open(self.path).unwrap();
                let bytes = self.bytes(len.min(5000));
                other.write_all_at(&bytes, at as u64).unwrap();
                if !bytes.is_empty() {
                    self.grow(at + bytes.len());
                    self.model[at..at + bytes.len()].copy_from_slice(&bytes);
                }
                format!("write {} at {at} by another", bytes.len())
            }
            _ => {
                self.file.sync_all().unwrap();
                "sync".into()
            }
        }
    }

    /// Between parts that do not overlap.
    fn copy(&mut self, at: usize, len: usize) -> String {
        let to = self.below(MOST - 1);
        let len = len.min(self.model.len().saturating_sub(at)).min(MOST - to);
        let overlaps = at < to + len && to < at + len;
        if len == 0 || overlaps {
            return "no copy".into();
        }
        let (mut from_at, mut to_at, mut left) = (at as u64, to as u64, len);
        while left > 0 {
            let (from, into) = (Some(&mut from_at), Some(&mut to_at));
            let copied = copy_file_range(&self.file, from, &self.file, into, left).unwrap();
            assert!(copied > 0, "a copy of {len} from {at} to {to} stopped");
            left -= copied;
        }
        self.grow(to + len);
        self.model.copy_within(at..at + len, to);
        format!("copy {len} from {at} to {to}")
    }

    /// Reads and writes mapped memory.
    fn map(&mut self, at: usize, len: usize) -> String {
        let len = len.min(self.model.len().saturating_sub(at));
        if len == 0 {
            return "no map".into();
        }
        let bytes = self.bytes(len);
        let found = self.mapper.exchange(at, &bytes);
        assert!(found == self.model[at..at + len], "mapped memory differs, {len} bytes at {at}");
        self.model[at..at + len].copy_from_slice(&bytes);
        format!("map {len} at {at}")
    }

    fn check(&self, told: &[String]) {
        let mut found = vec![0; self.model.len() + 1];
        let mut len = 0;
        loop {
            match self.file.read_at(&mut found[len..], len as u64).unwrap() {
                0 => break,
                read => len += read,
            }
        }
        found.truncate(len);
        let differs = found.iter().zip(&self.model).position(|(found, model)| found != model);
        let lengths = (len, self.model.len());
        let last = &told[told.len().saturating_sub(12)..];
        assert!(differs.is_none() && lengths.0 == lengths.1, "{differs:?}, {lengths:?}: {last:#?}");
    }
}

fn random_steps(seed: u8, path: &Path) -> Vec<u8> {
    let file = File::options().create_new(true).read(true).write(true).open(path).unwrap();
    let (random, mapper) = (Random::new([seed; 32]), Mapper::new(path));
    let mut run = Run { path, file, model: Vec::new(), random, mapper };
    let mut told = Vec::new();
    for nth in 0..STEPS {
        told.push(run.step());
        if nth % 10 == 0 {
            run.check(&told);
        }
    }
    run.check(&told);
    run.model
}

#[test]
fn random_steps_give_what_the_model_says_by_all_ways() {
    skip_unless!(why_no_mounts());
    for (seed, carrier) in [(1, Carrier::Host), (2, Carrier::Udp), (3, Carrier::Host)] {
        let files = Mounted::new(carrier);
        let model = random_steps(seed, &files.path("file"));
        let bare = std::fs::read(files.bare("file")).unwrap();
        assert!(bare == model, "seed {seed}: the server's file is another");
        // The model itself, on a bare directory.
        assert!(random_steps(seed, &files.beside("bare")) == model, "seed {seed}");
    }
}
